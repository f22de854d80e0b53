"""Why a device's arena is not what a model takes as the firmware is thought to be: other builds are tried.

What can be another than thought: the kernel library, the TFLM that it is built into, the part, and how many resource
variables the firmware makes room for. A cause is one whose figures are all equal to the device's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from tflm import libraries
from tflm.errors import TflmError
from tflm.firmware.device_log import DeviceArena
from tflm.libraries import TODAY, KernelLibrary
from tflm.libraries.arduino import ARDUINO
from tflm.libraries.wheel import WHEEL
from tflm.runtime.micro_allocator import RecordedAllocation
from tflm.runtime.micro_measurement import ArenaMeasurement, measure_arena
from tflm.runtime.micro_op_resolver import AllOpsResolver
from tflm.runtime.micro_resource_variable import count_resource_variables
from tflm.schema.model import Model
from tflm.targets import PARTS, Target

RELEASES = (TODAY, ARDUINO.release, replace(WHEEL, recording=False))
MOST_VARIABLES = 64
"""Resource variables of a firmware that are tried."""


class Build(NamedTuple):
    """A firmware as far as its arena goes.

    Attributes:
        target, kernels: the part and its kernel library, with the TFLM that this is built into.
        resource_variables: how many it makes room for.
    """

    target: Target
    kernels: KernelLibrary
    resource_variables: int

    def measured(self, model: Model) -> ArenaMeasurement:
        """What a model takes in it.

        Raises:
            TflmError: it can't be laid out there.
        """
        return measure_arena(
            model,
            AllOpsResolver(),
            target=self.target,
            kernels=self.kernels,
            resource_variables=self.resource_variables,
        )


def figures_here(measured: ArenaMeasurement, recording: bool) -> dict[str, int]:
    """Total, head and tail, with the plain or the recording allocator."""
    tail = measured.recording_tail_bytes if recording else measured.tail_bytes
    return {"total": measured.head_bytes + tail, "head": measured.head_bytes, "tail": tail}


def equals(measured: ArenaMeasurement, device: DeviceArena) -> bool:
    """Whether all that a device says of its arena is so; it leaves out categories of the tail that are empty."""
    here = figures_here(measured, device.recording)
    nothing = RecordedAllocation()
    records = {kind: record for kind, record in measured.records.items() if record != nothing}
    return all(here[part] == size for part, size in device.parts.items()) and device.records in ({}, records)


def builds_that_fit(
    model: Model, device: DeviceArena, thought: Build, advance: Callable[[], None] = lambda: None
) -> list[Build]:
    """Builds with the device's figures: those of the first kind of change that any of them is found by.

    Args:
        device: what it says.
        thought: what the firmware was thought to be.
        advance: called for each build that is tried.
    """
    for kind in (kernels_instead, releases_instead, variables_instead, parts_instead):
        found = []
        for build in kind(model, thought):
            advance()
            try:
                if equals(build.measured(model), device):
                    found.append(build)
            except TflmError:
                continue  # such a firmware could not have run the model
        if found:
            return found
    return []


def kernels_instead(model: Model, thought: Build) -> Iterator[Build]:
    """Other kernel libraries for the part."""
    for library in _libraries(thought.target):
        if library.name != thought.kernels.name:
            yield thought._replace(kernels=library)


def releases_instead(model: Model, thought: Build) -> Iterator[Build]:
    """Every kernel library for the part, built into other releases of TFLM."""
    for library in _libraries(thought.target):
        for release in RELEASES:
            if release is not library.release:
                yield thought._replace(kernels=replace(library, release=release))


def variables_instead(model: Model, thought: Build) -> Iterator[Build]:
    """Room for other numbers of resource variables, in a firmware for a model that has some."""
    needed = count_resource_variables(model)
    if needed:
        for count in range(needed, MOST_VARIABLES + 1):
            if count != thought.resource_variables:
                yield thought._replace(resource_variables=count)


def parts_instead(model: Model, thought: Build) -> Iterator[Build]:
    """Other parts, one of each kind that kernel libraries tell apart, with all that is for them."""
    kinds = {replace(part, name="", description=""): part for part in reversed(PARTS.values())}
    for part in kinds.values():
        if part.extensions != thought.target.extensions or part.family != thought.target.family:
            for library in _libraries(part):
                yield thought._replace(target=part, kernels=library)


def _libraries(target: Target) -> list[KernelLibrary]:
    named = (libraries.by_name(name) for name in libraries.MODULES)
    return [library for library in named if library.family in ("", target.family)]
