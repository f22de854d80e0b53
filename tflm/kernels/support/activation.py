"""Fused activation functions, as ranges that results are clamped to; the precision of scales in each release."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.arithmetic.fixed_point import int32_from_float, round_half_away, wrap_int32
from tflm.kernels.node import Node
from tflm.memory.tensor import TfLiteTensor
from tflm.releases import Release
from tflm.releases.release import WHEEL_SOURCE
from tflm.schema.enums import ELEMENT_TYPES, ActivationFunctionType
from tflm.schema.layout import Table
from tflm.targets import EnumType

TFLITE_FUSED_ACTIVATION = EnumType(largest=6)

RANGES: dict[ActivationFunctionType, tuple[float, float]] = {
    ActivationFunctionType.RELU: (0.0, math.inf),
    ActivationFunctionType.RELU_N1_TO_1: (-1.0, 1.0),
    ActivationFunctionType.RELU6: (0.0, 6.0),
}
"""The real range of each activation. As in TFLM, all other activations do not clamp."""


def fused_activation(node: Node, kind: type[Table]) -> ActivationFunctionType:
    """The activation in the options of a node; NONE if its options are of another kind."""
    activation: ActivationFunctionType = getattr(
        node.options(kind), "fused_activation_function", ActivationFunctionType.NONE
    )
    return activation


def activation_range(activation: ActivationFunctionType, dtype: npt.DTypeLike) -> tuple[Any, Any]:
    """The finite range that an activation clamps values of `dtype` to."""
    kind: np.dtype[Any] = np.dtype(dtype)
    limits: Any = np.finfo(kind) if kind.kind == "f" else np.iinfo(kind)
    low, high = RANGES.get(activation, (-math.inf, math.inf))
    minimum = limits.min if math.isinf(low) else low
    maximum = limits.max if math.isinf(high) else high
    return kind.type(minimum), kind.type(maximum)


def quantized_activation_range(activation: ActivationFunctionType, output: TfLiteTensor) -> tuple[int, int]:
    """The range that an activation clamps to, quantized like the output.

    Raises:
        OperatorError: a bound is too large for 32 bits at the output's scale.
    """
    limits = np.iinfo(ELEMENT_TYPES[output.type].dtype)
    low, high = RANGES.get(activation, (-math.inf, math.inf))
    minimum = int(limits.min) if math.isinf(low) else max(int(limits.min), quantize(low, output))
    maximum = int(limits.max) if math.isinf(high) else min(int(limits.max), quantize(high, output))
    return minimum, maximum


def quantize(value: float, tensor: TfLiteTensor) -> int:
    """Quantize a real value like a tensor: float32 division, rounded half away from zero, not saturated.

    Raises:
        OperatorError: it does not fit in 32 bits.
    """
    scaled = float(np.float32(value) / np.float32(tensor.scale))
    if not -(2.0**31) <= scaled <= 2.0**31:
        raise OperatorError(f"{value:g} at scale {tensor.scale:g} does not fit in 32 bits", tensor=tensor.name)
    return int(wrap_int32(int32_from_float([round_half_away(scaled)]) + tensor.zero_point)[0])


class Precision(NamedTuple):
    """When scales were doubles: from one commit until its revert, and again in the wheel's source."""

    since: str
    until: str

    def number(self, release: Release) -> type[np.float32] | type[np.float64]:
        """The type for the release's arithmetic on scales."""
        holds = release.answers_hold
        if holds(WHEEL_SOURCE) or (holds(self.since) and not holds(self.until)):
            return np.float64
        return np.float32


SCALES = Precision("d5d82e25f", "b29826661")
"""The precision of RELU, SUB and SVDF."""

SCALES_OF_LEAKY_RELU = Precision("3bede6679", "4aa157e5e")
