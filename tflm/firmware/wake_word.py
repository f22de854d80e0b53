"""Compute `tensor_arena_size` in the manifest of a micro_wake_word model, for each release of ESPHome.

ESPHome allocates an arena of that size for the model. The TFLM and ESP-NN that it uses changed over time; if ESPHome
does not pin the version of ESP-NN, the version depends on the day on which the firmware is built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tflm.errors import ArgumentError, ModelError, TflmError
from tflm.firmware.device_check import DeviceFinding, operator_findings
from tflm.libraries import library_for
from tflm.libraries.pins import ESPHOME, esp_nn_stated, versions_in
from tflm.releases import Releases, by_name, require_release
from tflm.runtime.micro_measurement import measure_arena
from tflm.runtime.micro_op_resolver import AllOpsResolver
from tflm.schema.enums import TensorType
from tflm.schema.model import Model
from tflm.targets import PARTS, Target

S3 = PARTS["esp32s3"]

FEATURES = 40
"""Values that micro_wake_word computes from each slice of sound."""

OPERATORS = (
    *("CALL_ONCE", "VAR_HANDLE", "RESHAPE", "READ_VARIABLE", "STRIDED_SLICE", "CONCATENATION", "ASSIGN_VARIABLE"),
    *("CONV_2D", "MUL", "ADD", "MEAN", "FULLY_CONNECTED", "LOGISTIC", "QUANTIZE"),
)
LATER_OPERATORS = ("DEPTHWISE_CONV_2D", "AVERAGE_POOL_2D", "MAX_POOL_2D", "PAD", "PACK", "SPLIT_V")
"""Operators in micro_wake_word's resolver; the later ones since ESPHome 2024.7."""

LARGEST_STRIDE = 255
"""Slices in an input; micro_wake_word counts them in a byte."""


class Need(NamedTuple):
    """A model's requirements in a range of ESPHome releases and ESP-NN versions.

    Attributes:
        first_esphome, last_esphome: the releases; the last is empty if it is the newest known one.
        component: their version of esp-tflite-micro.
        esp_nn: versions of ESP-NN that need the same size, oldest first.
        is_pinned: whether ESPHome pins that version; otherwise a build uses the newest.
        tensor_arena_size: the smallest size that works, in bytes, a multiple of 16; None if the model is rejected.
        refused: why the model is rejected; empty otherwise.
        findings: other issues to know before running the model there, such as defects of ESP-NN.
    """

    first_esphome: str
    last_esphome: str
    component: str
    esp_nn: tuple[str, ...]
    is_pinned: bool
    tensor_arena_size: int | None
    refused: str
    findings: tuple[DeviceFinding, ...]


def tensor_arena_sizes(model: Model, target: Target = S3, advance: Callable[[], None] = lambda: None) -> list[Need]:
    """The smallest `tensor_arena_size` of a model in each release of ESPHome, oldest first.

    The size includes the list of resource variables, which ESPHome keeps elsewhere; the slack makes up for an arena
    whose address is not a multiple of 16.

    Args:
        model: a microWakeWord model.
        target: the chip.
        advance: called for each version of ESP-NN in each release.

    Raises:
        ArgumentError: the target is not an Espressif chip.
        ModelError: micro_wake_word does not accept the model's input and output.
    """
    _require_wake_word(model)
    if target.family != S3.family:
        raise ArgumentError(
            f"micro_wake_word does not support target {target.name!r}; use an Espressif chip, such as esp32s3"
        )
    found: list[Need] = []
    for need in _needs(model, target):
        advance()
        if found and found[-1]._replace(esp_nn=need.esp_nn) == need:
            found[-1] = need._replace(esp_nn=found[-1].esp_nn + need.esp_nn)
        else:
            found.append(need)
    return found


def _require_wake_word(model: Model) -> None:
    """Check the first input and output as micro_wake_word does when it loads a model.

    Raises:
        ModelError: the model has others; the message says which.
    """
    main = model.subgraphs[0]
    sides = [[(main.tensors or [])[i] for i in (side or ())[:1]] for side in (main.inputs, main.outputs)]
    taken, returned = ([(each.type, list(each.shape or ())) for each in side] for side in sides)
    strides = range(1, LARGEST_STRIDE + 1)
    takes_slices = any(taken == [(TensorType.INT8, [1, stride, FEATURES])] for stride in strides)
    if not takes_slices or returned != [(TensorType.UINT8, [1, 1])]:
        found = [
            " ".join(f"{type.name.lower()} {shape}" for type, shape in side) or "nothing" for side in (taken, returned)
        ]
        raise ModelError(
            f"not a microWakeWord model: it takes {found[0]} and returns {found[1]}; ESPHome's micro_wake_word accepts "
            f"streaming models that take int8 [1, stride, {FEATURES}], with a stride from 1 to {LARGEST_STRIDE}, and "
            "return uint8 [1, 1]. For the arena of other models, use tflm arena --target esp32s3 --kernels esp-nn"
        )


def needs_in(needs: list[Need], release: Releases | None) -> list[Need]:
    """The needs of one release of ESPHome; of all, if none is given.

    Raises:
        ArgumentError: the release is unknown, or is not ESPHome's.
    """
    if release is None:
        return needs
    distribution = require_release(release).distribution
    if distribution is None or distribution.name != "esphome":
        raise ArgumentError(f"{release!r} is not a release of ESPHome; name one, such as 'esphome 2025.5'")
    return [need for need in needs if need.first_esphome == distribution.version]


def size_for_all(needs: list[Need]) -> int | None:
    """The smallest `tensor_arena_size` that works in all releases that accept the model; None if none does."""
    return max((need.tensor_arena_size for need in needs if need.tensor_arena_size is not None), default=None)


def _needs(model: Model, target: Target) -> Iterator[Need]:
    firsts = list(ESPHOME)
    used = dict.fromkeys(map(model.operator_name, (each for s in model.subgraphs for each in s.operators or ())))
    for first, after in zip(firsts, [*firsts[1:], ""]):
        contents = ESPHOME[first]
        known = OPERATORS if first == firsts[0] else OPERATORS + LATER_OPERATORS
        lacking = ", ".join(name for name in used if name not in known)
        for version in versions_in(contents.esp_nn or esp_nn_stated(contents.component), target):
            library = library_for(f"esp-nn@{version}", target, by_name(f"esphome {first}"))
            size, refused = None, ""
            try:
                measured = measure_arena(model, AllOpsResolver(), target=target, kernels=library)
                size = measured.minimum_arena_bytes
            except TflmError as error:
                refused = str(error)
            if lacking:
                size, refused = None, f"micro_wake_word does not register {lacking}"
            findings = tuple(operator_findings(model, target=target, kernels=library))
            before = _month_before(after) if after else ""
            pinned = bool(contents.esp_nn)
            yield Need(first, before, contents.component, (version,), pinned, size, refused, findings)


def _month_before(release: str) -> str:
    """The month before a release; ESPHome is released monthly, such as 2024.10."""
    year, month = map(int, release.split("."))
    return f"{year - 1}.12" if month == 1 else f"{year}.{month - 1}"
