"""How results of 32 bits become the integers of an output: scale, add the zero point, clamp."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier, Raw, wrap_int32
from tflm.kernels.arithmetic.numpy_calls import clip


@dataclass(frozen=True)
class OutputStage:
    """Turns results at the scale of an output into its integers.

    Attributes:
        zero_point: added, before clamping.
        minimum, maximum: of the output.
    """

    zero_point: int
    minimum: int
    maximum: int

    @classmethod
    def whole(cls, zero_point: int, dtype: npt.DTypeLike) -> OutputStage:
        """For an output that has all values of its type."""
        limits = np.iinfo(dtype)
        return cls(zero_point, int(limits.min), int(limits.max))

    def clamp(self, values: npt.NDArray[Any]) -> Raw:
        """Add the zero point, wrapping to 32 bits, and clamp."""
        return clip(wrap_int32(values + np.int64(self.zero_point)), self.minimum, self.maximum)


@dataclass(frozen=True)
class Requantization:
    """A function of integers of 32 bits: clamp(zero_point + (x - input_zero_point) * multiplier), as a `stage` does it.

    Every step wraps to 32 bits.
    """

    multiplier: QuantizedMultiplier
    stage: OutputStage
    input_zero_point: int = 0

    def __call__(self, x: npt.NDArray[Any]) -> Raw:
        return self.stage.clamp(self.multiplier(wrap_int32(x - np.int64(self.input_zero_point))))


class AccumulatorRequantization:
    """Takes accumulators to the integers of an output: clamp(zero_point + accumulator * multiplier).

    In float64 where that holds every step exactly, as in all but very deep layers; in int64 where not.

    Args:
        multiplier: scales the accumulators; one for all, or one for each channel, the last dimension.
        stage: what becomes of the results.
        limit: a bound on the absolute value of accumulators.
        wraps: whether they are to be wrapped to 32 bits first.

    Attributes:
        dtype: of the accumulators: float64, or int64.
    """

    def __init__(self, multiplier: QuantizedMultiplier, stage: OutputStage, limit: int, *, wraps: bool):
        self._multiplier, self._stage, self._wraps = multiplier, stage, wraps
        in_float64 = None if wraps or abs(stage.zero_point) >= 1 << 30 else multiplier.in_float64(limit)
        self.dtype = np.dtype(np.int64 if in_float64 is None else np.float64)
        # What is clamped to the zero point and above, as RELU does it, needs no care for negative results.
        clamps_negative = stage.minimum >= stage.zero_point
        self._scale = in_float64.positive if in_float64 is not None and clamps_negative else in_float64

    def __call__(self, accumulators: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The outputs, as whole numbers of the type of the accumulators, which are changed."""
        stage = self._stage
        if self._scale is None:
            return stage.clamp(self._multiplier(wrap_int32(accumulators) if self._wraps else accumulators))
        results = self._scale(accumulators)
        results += stage.zero_point
        np.maximum(results, stage.minimum, out=results)
        return np.minimum(results, stage.maximum, out=results)
