"""Find out why a device's arena differs from the expected one, by trying other builds.

Builds may differ in the kernel library and its version, the TFLM release, the part, and the capacity for resource
variables. A build explains the difference if all its sizes are equal to the device's.

TFLM's whole history is searched for releases with given arena sizes, without measuring every commit. While a model is
allocated, declarations query the release for the changes that it includes. Two releases with the same answers have the
same sizes, so one measurement is valid for all commits back to the newest one that was queried.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tflm import libraries
from tflm.errors import TflmError, VersionAssumed
from tflm.firmware.device_log import DeviceArena
from tflm.libraries import TODAY, KernelLibrary, library_for
from tflm.libraries.pins import VERSIONS
from tflm.releases import WHEEL, Commit, Release, by_name, distributions, history, release_at
from tflm.releases.release import position
from tflm.runtime.allocator_structures import RecordedAllocation
from tflm.runtime.micro_measurement import measure_arena
from tflm.runtime.micro_measurement_report import ArenaMeasurement
from tflm.runtime.micro_op_resolver import AllOpsResolver
from tflm.runtime.micro_resource_variable import count_resource_variables
from tflm.schema.model import Model
from tflm.targets import PARTS, Target


@dataclass(frozen=True, eq=False)
class WatchedRelease(Release):
    """A release that records queries for its changes.

    Attributes:
        asked: the commits that were queried.
    """

    asked: set[str] = field(default_factory=set)

    __hash__ = object.__hash__  # equal only to itself, so that cached structure sizes of other releases are not reused

    def holds(self, commit: str) -> bool:
        self.asked.add(commit)
        return super().holds(commit)


class CommitRange(NamedTuple):
    """Consecutive commits of TFLM with the same answers to all queries."""

    first: Commit
    last: Commit

    def contains(self, commit: str) -> bool:
        """Whether a commit is in the range."""
        return position(self.first.hash) <= position(commit) <= position(self.last.hash)


class CommitRangeSearch:
    """Walks back through the history, one release per range of equal commits.

    Measure a model in `release`, then read the `commits` that it represents; the next iteration starts before it.
    """

    def __init__(self, static_memory: bool):
        self._static_memory = static_memory
        self._last = len(history()) - 1
        self.release = self._at(self._last)

    def __iter__(self) -> Iterator[WatchedRelease]:
        while True:
            yield self.release
            before = position(self.commits.first.hash) - 1
            if before < 0:
                return
            self._last = before
            self.release = self._at(before)

    @property
    def commits(self) -> CommitRange:
        """The commits with the same answers as `release`."""
        asked = [position(commit) for commit in self.release.asked if commit]
        first = max((place for place in asked if place <= self._last), default=0)
        return CommitRange(history()[first], history()[self._last])

    def _at(self, place: int) -> WatchedRelease:
        return WatchedRelease(**vars(release_at(history()[place], self._static_memory)))


def joined(ranges: list[CommitRange]) -> list[CommitRange]:
    """Spans in order, with adjacent ones merged."""
    found: list[CommitRange] = []
    for commits in sorted(ranges, key=lambda commits: position(commits.first.hash)):
        if found and position(found[-1].last.hash) + 1 == position(commits.first.hash):
            found[-1] = CommitRange(found[-1].first, commits.last)
        else:
            found.append(commits)
    return found


def contained_in(commits: CommitRange, library: str, static_memory: bool) -> list[str]:
    """Distributions that contain a TFLM of these commits with a kernel library: their names, first and last versions.

    All of them contain the reference kernels.
    """
    found = []
    for name, versions in distributions().items():
        numbers = [
            version.version
            for version in versions
            if commits.contains(version.commit)
            and version.static_memory in (static_memory, None)
            and (library == "reference" or version.kernels in (library, ""))
            and ("." in version.version or not any("." in each.version for each in versions))
        ]
        if numbers:
            found.append(f"{name} {numbers[0]}" + (f" to {numbers[-1]}" if len(numbers) > 1 else ""))
    return found


MAX_VARIABLES = 64
"""Capacities for resource variables to try."""


class Build(NamedTuple):
    """The properties of a firmware that affect the arena.

    Attributes:
        target, kernels: the part and its kernel library, with its TFLM release.
        resource_variables: its capacity for resource variables.
        commits: the commits of TFLM with the same figures, if releases were tried; `kernels` has the newest of them.
    """

    target: Target
    kernels: KernelLibrary
    resource_variables: int
    commits: CommitRange | None = None

    def measured(self, model: Model) -> ArenaMeasurement:
        """Measure a model's arena in this build.

        Raises:
            TflmError: the model can't be laid out.
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
    """Whether all figures of a device's log match; the log omits empty categories of the tail."""
    here = figures_here(measured, device.recording)
    nothing = RecordedAllocation()
    records = {kind: record for kind, record in measured.records.items() if record != nothing}
    return all(here[part] == size for part, size in device.parts.items()) and device.records in ({}, records)


def builds_that_fit(model: Model, device: DeviceArena, thought: Build, advance: Callable[[], None]) -> list[Build]:
    """Builds with the device's figures, from the first kind of change that explains them.

    Args:
        device: the device's figures.
        thought: the expected build.
        advance: called for each build that is tried.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", VersionAssumed)
        for kind in (kernels_instead, versions_instead):
            if found := _fitting(kind(model, thought), model, device, advance):
                return found
        if found := releases_that_fit(model, device, thought, advance):
            return found
        for kind in (components_instead, variables_instead, parts_instead):
            if found := _fitting(kind(model, thought), model, device, advance):
                return found
    return []


def _fitting(builds: Iterator[Build], model: Model, device: DeviceArena, advance: Callable[[], None]) -> list[Build]:
    found = []
    for build in builds:
        advance()
        if _fits(build, model, device):
            found.append(build)
    return found


def _fits(build: Build, model: Model, device: DeviceArena) -> bool:
    try:
        return equals(build.measured(model), device)
    except TflmError:
        return False  # this build could not have run the model


def kernels_instead(model: Model, thought: Build) -> Iterator[Build]:
    """Builds with other kernel libraries, and the tflite-micro Python package."""
    for library in _libraries(thought.target, thought.kernels.release):
        if library.name != thought.kernels.name:
            yield thought._replace(kernels=library)
    yield thought._replace(kernels=replace(thought.kernels, release=replace(WHEEL, recording=False)))


def versions_instead(model: Model, thought: Build) -> Iterator[Build]:
    """Other versions of kernel libraries for the part."""
    for name in _versions(thought.target):
        library = library_for(name, thought.target, thought.kernels.release)
        if library.name != thought.kernels.name:
            yield thought._replace(kernels=library)


def releases_that_fit(model: Model, device: DeviceArena, thought: Build, advance: Callable[[], None]) -> list[Build]:
    """Releases with the device's figures, with any kernel library of the part in any version."""
    named = [thought.kernels.name]
    others = [name for name in libraries.MODULES if name not in (named[0], "arduino") and _is_for(name, thought.target)]
    groups = _versions_with_equal_figures(model, thought)
    for names in (named + others, list(groups)):
        found = [
            build
            for name in names
            for static_memory in (thought.kernels.release.static_memory, not thought.kernels.release.static_memory)
            for build in _in_history(model, device, thought, name, static_memory, advance)
        ]
        if found:
            return [each for build in found for each in (build, *_alike(build, groups, model, device))]
    return []


def _alike(build: Build, groups: dict[str, list[str]], model: Model, device: DeviceArena) -> Iterator[Build]:
    """The same releases with other versions of the kernel library that have equal figures."""
    for name in groups.get(build.kernels.name, []):
        other = build._replace(kernels=library_for(name, build.target, build.kernels.release))
        if _fits(other, model, device):
            yield other


def _in_history(
    model: Model, device: DeviceArena, thought: Build, name: str, static_memory: bool, advance: Callable[[], None]
) -> Iterator[Build]:
    """Builds with a kernel library in any release that have the device's figures, newest first."""
    search = CommitRangeSearch(static_memory)
    found: list[CommitRange] = []
    for release in search:
        advance()
        if _fits(thought._replace(kernels=library_for(name, thought.target, release)), model, device):
            found.append(search.commits)
    for commits in reversed(joined(found)):
        library = library_for(name, thought.target, by_name(commits.last.hash, static_memory=static_memory))
        yield thought._replace(kernels=library, commits=commits)


def _versions_with_equal_figures(model: Model, thought: Build) -> dict[str, list[str]]:
    """Versions of kernel libraries, grouped by equal figures: the newest of each group, with the others."""
    groups: dict[object, list[str]] = {}
    for name in _versions(thought.target):
        library = library_for(name, thought.target, TODAY)
        try:
            measured = thought._replace(kernels=library).measured(model)
        except TflmError:
            continue
        figures = measured.head_bytes, measured.tail_bytes, measured.minimum_arena_bytes
        groups.setdefault((figures, tuple(measured.records.items())), []).insert(0, library.name)
    return {newest: others for newest, *others in groups.values()}


def components_instead(model: Model, thought: Build) -> Iterator[Build]:
    """Builds with other versions of esp-tflite-micro, whose kernels may have other requests than the newest."""
    for version in distributions()["esp-tflite-micro"] if thought.target.family == "espressif" else ():
        if "." in version.version:
            release = by_name(f"{version.name} {version.version}")
            for name in _versions(thought.target):
                yield thought._replace(kernels=library_for(name, thought.target, release))


def variables_instead(model: Model, thought: Build) -> Iterator[Build]:
    """Builds with other capacities for resource variables, if the model has any."""
    needed = count_resource_variables(model)
    if needed:
        for count in range(needed, MAX_VARIABLES + 1):
            if count != thought.resource_variables:
                yield thought._replace(resource_variables=count)


def parts_instead(model: Model, thought: Build) -> Iterator[Build]:
    """Builds for other parts, one of each kind that kernel libraries distinguish, with all of its libraries."""
    kinds = {replace(part, name="", description=""): part for part in reversed(PARTS.values())}
    for part in kinds.values():
        if part.extensions != thought.target.extensions or part.family != thought.target.family:
            for library in _libraries(part):
                yield thought._replace(target=part, kernels=library)


def _libraries(target: Target, release: Release = TODAY) -> Iterator[KernelLibrary]:
    """Every library for a part, in this release unless the library implies another."""
    for name in libraries.MODULES:
        if _is_for(name, target):
            yield libraries.by_name(name) if name == "arduino" else library_for(name, target, release)


def _is_for(name: str, target: Target) -> bool:
    return libraries.by_name(name).family in ("", target.family)


def _versions(target: Target) -> list[str]:
    return [f"{name}@{version}" for name, versions in VERSIONS.items() if _is_for(name, target) for version in versions]
