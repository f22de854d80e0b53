"""Requantization: scale 32-bit results, add the output's zero point, clamp."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier, Raw, WideQuantizedMultiplier, wrap_int32
from tflm.kernels.arithmetic.numpy_calls import clip, scalar


@dataclass(frozen=True)
class OutputStage:
    """Adds the output's zero point to results at its scale, and clamps them.

    Attributes:
        zero_point: added before clamping.
        minimum, maximum: bounds of the output.
    """

    zero_point: int
    minimum: int
    maximum: int

    @classmethod
    def whole(cls, zero_point: int, dtype: npt.DTypeLike) -> OutputStage:
        """An output stage that clamps to the full range of a type."""
        limits = np.iinfo(dtype)
        return cls(zero_point, int(limits.min), int(limits.max))

    def clamp(self, values: npt.NDArray[Any]) -> Raw:
        """Add the zero point, wrapping to 32 bits, and clamp."""
        return clip(wrap_int32(values + np.int64(self.zero_point)), self.minimum, self.maximum)


@dataclass(frozen=True)
class Requantization:
    """A function of integers of 32 bits: clamp(zero_point + (x - input_zero_point) * multiplier), with the clamp of
    `stage`. Every step wraps to 32 bits.
    """

    multiplier: QuantizedMultiplier
    stage: OutputStage
    input_zero_point: int = 0

    def __call__(self, x: npt.NDArray[Any]) -> Raw:
        return self.stage.clamp(self.multiplier(wrap_int32(x - np.int64(self.input_zero_point))))


class AccumulatorRequantization:
    """Requantizes accumulators: clamp(zero_point + accumulator * multiplier).

    Computes in float64 if it holds every step exactly, as in all but very deep layers; otherwise in int64. Wraps to 32
    bits only if the accumulators may be large enough for a step to overflow.

    Args:
        multiplier: scales the accumulators; one for all, or one for each channel (the last dimension).
        stage: adds the zero point and clamps.
        limit: upper bound on the absolute value of accumulators.

    Attributes:
        dtype: of the accumulators: float64, or int64.
    """

    def __init__(self, multiplier: QuantizedMultiplier, stage: OutputStage, limit: int):
        self._stage = stage
        self._wraps = limit >= 1 << 31 and not isinstance(multiplier, WideQuantizedMultiplier)
        is_near_zero = not self._wraps and abs(stage.zero_point) < 1 << 30
        in_float64 = multiplier.in_float64(limit) if is_near_zero else None
        in_int64 = multiplier.in_int64(limit) if is_near_zero else None
        self.dtype = np.dtype(np.int64 if in_float64 is None else np.float64)
        # If the clamp starts at the zero point, as for RELU, negative results need no exact rounding.
        clamps_negative = stage.minimum >= stage.zero_point
        self._scale = in_float64.positive if in_float64 is not None and clamps_negative else in_float64 or in_int64
        self._multiplier = multiplier
        self._zero_point, self._minimum, self._maximum = (
            scalar(value, self.dtype) for value in (stage.zero_point, stage.minimum, stage.maximum)
        )

    def __call__(self, accumulators: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The outputs as whole numbers in the accumulators' dtype; overwrites the accumulators."""
        if self._scale is None:
            return self._stage.clamp(self._multiplier(wrap_int32(accumulators) if self._wraps else accumulators))
        results = self._scale(accumulators)
        if self._stage.zero_point:
            results += self._zero_point
        return clip(results, self._minimum, self._maximum, out=results)
