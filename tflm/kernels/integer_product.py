"""Matrix products of integers and their way back to 8 or 16 bits, shared by the operators that multiply weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.kernels.fixed_point import QuantizedMultiplier, Raw, WideQuantizedMultiplier, wrap_int32


class IntegerProduct:
    """The accumulators of a layer: acc[b, n] = bias[n] + sum over d of (w[n, d] - w_zero) * (x[b, d] - x_zero).

    The sums go through BLAS in a float type in which they are exact: products of the raw values are summed, and what
    the zero point of x contributes is a constant of each row, added with the bias.

    Args:
        x: (batches, depth), read anew at each call.
        weights: (rows, depth).
        bias: (rows,), or None.
        x_zero_point, weights_zero_point: taken off each value.
        accumulator_bits: 32 or 64, the width at which the reference's accumulator wraps.
        constant: whether weights and bias never change, so that they are laid out once.
    """

    def __init__(
        self,
        x: npt.NDArray[Any],
        weights: npt.NDArray[Any],
        bias: npt.NDArray[Any] | None,
        *,
        x_zero_point: int,
        weights_zero_point: int,
        accumulator_bits: int,
        constant: bool,
    ):
        self._x, self._weights, self._bias = x, weights, bias
        self._x_zero_point, self._weights_zero_point = x_zero_point, weights_zero_point
        self._accumulator_bits = accumulator_bits
        self._constant = constant
        self._lay_out()
        self._sums = np.empty((x.shape[0], weights.shape[0]), self._factors.dtype)
        self._x_as_float = np.empty(x.shape, self._factors.dtype)
        self._accumulators = np.empty(self._sums.shape, np.int64)

    def __call__(self) -> Raw:
        """The accumulators for the values that x has now, int64 of shape (batches, rows), valid until the next call."""
        if not self._constant:
            self._lay_out()
        np.copyto(self._x_as_float, self._x)
        np.matmul(self._x_as_float, self._factors, out=self._sums)
        np.copyto(self._accumulators, self._sums, casting="unsafe")
        np.add(self._accumulators, self._offsets, out=self._accumulators)
        return wrap_int32(self._accumulators) if self._may_wrap else self._accumulators

    def _lay_out(self) -> None:
        weights = self._weights.astype(np.int64) - self._weights_zero_point
        offsets = -self._x_zero_point * weights.sum(axis=1)
        if self._bias is not None:
            offsets = offsets + self._bias
        largest = self._largest_sum(weights)
        # Every partial sum is an integer of at most `largest`: exact in float32 below 2^24, in float64 below 2^53.
        self._factors = np.ascontiguousarray(weights.T, np.float32 if largest < 2**24 else np.float64)
        self._offsets = offsets
        self._may_wrap = self._accumulator_bits == 32 and largest + int(abs(offsets).max(initial=0)) >= 2**31

    def _largest_sum(self, weights: Raw) -> int:
        """A bound on the absolute value of any sum of products."""
        limits = np.iinfo(self._x.dtype)
        largest_x = max(-int(limits.min), int(limits.max))
        if self._constant:
            return largest_x * int(abs(weights).sum(axis=1).max(initial=0))
        limits = np.iinfo(self._weights.dtype)
        largest_weight = max(-int(limits.min), int(limits.max)) + abs(self._weights_zero_point)
        return largest_x * largest_weight * int(weights.shape[1])


@dataclass
class Requantization:
    """A function of integers: y_zero + (x - x_zero) * multiplier, wrapped to 32 bits at each step, then clamped."""

    multiplier: QuantizedMultiplier
    input_zero_point: int
    output_zero_point: int
    minimum: int
    maximum: int

    def __call__(self, x: npt.NDArray[Any]) -> Raw:
        values = x.astype(np.int64)
        return self.in_place(values, np.empty_like(values))

    def in_place(self, values: Raw, scratch: Raw) -> Raw:
        """Change `values` and give them back; `scratch` is an array of the same shape to work in."""
        np.subtract(values, self.input_zero_point, out=values)
        self.multiplier.scale(wrap_int32(values), scratch)
        np.add(values, self.output_zero_point, out=values)
        np.maximum(wrap_int32(values), self.minimum, out=values)
        return np.minimum(values, self.maximum, out=values)


class Requantizer:
    """Takes 32-bit results to the integers of an output: scale, add the zero point, clamp, store.

    Args:
        shape: of the results.
        multiplier: scales them; per-channel ones count along the last axis.
        zero_point, minimum, maximum: of the output.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        multiplier: QuantizedMultiplier | WideQuantizedMultiplier,
        zero_point: int,
        minimum: int,
        maximum: int,
    ):
        self._scale = multiplier.scale
        self._scratch = np.empty(shape, np.int64)
        self._zero_point, self._minimum, self._maximum = map(np.int64, (zero_point, minimum, maximum))

    def __call__(self, values: Raw, output: npt.NDArray[Any]) -> None:
        """Requantize `values`, which are overwritten, into `output`."""
        self._scale(values, self._scratch)
        np.add(values, self._zero_point, out=values)
        np.maximum(values, self._minimum, out=values)
        np.minimum(values, self._maximum, out=values)
        np.copyto(output, values, casting="unsafe")
