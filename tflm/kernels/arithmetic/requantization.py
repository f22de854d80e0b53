"""How results of 32 bits become the integers of an output: scale, add the zero point, clamp."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier, Raw, wrap_int32


@dataclass(frozen=True)
class OutputStage:
    """What becomes of results at the scale of an output.

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

    def clamp(self, values: Raw) -> Raw:
        """Add the zero point, wrapping to 32 bits, and clamp; in place."""
        if self.zero_point:
            wrap_int32(np.add(values, self.zero_point, out=values))
        np.maximum(values, self.minimum, out=values)
        return np.minimum(values, self.maximum, out=values)


@dataclass(frozen=True)
class Requantization:
    """A function of integers of 32 bits: clamp(zero_point + (x - input_zero_point) * multiplier), as a `stage` does it.

    Every step wraps to 32 bits.
    """

    multiplier: QuantizedMultiplier
    stage: OutputStage
    input_zero_point: int = 0

    def __call__(self, x: npt.NDArray[Any]) -> Raw:
        values = x.astype(np.int64)
        return self.in_place(values, np.empty_like(values))

    def in_place(self, values: Raw, scratch: Raw) -> Raw:
        """Change `values` and give them back; `scratch` is an array of the same shape to work in."""
        if self.input_zero_point:
            wrap_int32(np.subtract(values, self.input_zero_point, out=values))
        return self.stage.clamp(self.multiplier.scale(values, scratch))
