"""Requantization: scale 32-bit results, add the zero point, clamp. Tables of functions of 8-bit or 16-bit integers.

`clip` and `einsum` are numpy's C implementations: on arrays of a few hundred elements, call overhead exceeds the
arithmetic. They are private, so this module falls back to the public functions where a numpy version lacks them. The
Python wrapper of `clip` takes twice as long as the C function; that of `einsum` allocates a dictionary in each call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier, Raw, WideQuantizedMultiplier, wrap_int32
from tflm.kernels.host_memory import track_host_array
from tflm.kernels.registration import Run

__all__ = ["clip", "einsum", "scalar"]

Function = TypeVar("Function", bound=Callable[..., Any])


def private(module: str, name: str, public: Function) -> Function:
    """A function from one of numpy's private modules, or the equivalent public one if it does not exist."""
    try:
        function: Function = getattr(import_module(module), name)
    except (ImportError, AttributeError):
        return public
    return function


clip = private("numpy._core.umath", "clip", np.clip)
einsum = private("numpy._core.multiarray", "c_einsum", np.einsum)


def scalar(value: float, dtype: npt.DTypeLike = np.int64) -> npt.NDArray[Any]:
    """A number as a zero-dimensional array, which numpy combines with arrays twice as fast as a number."""
    return np.array(value, dtype)


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
    `stage`. Every step wraps to 32 bits."""

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


IntegerFunction = Callable[[Raw], npt.NDArray[Any]]
"""Maps integers to values that fit the output's element type."""


def lookup_table(function: IntegerFunction, x_dtype: np.dtype[Any], y_dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Tabulate a function over all integers of a type; the index is the integer's bits, read as unsigned."""
    bits = np.arange(1 << 8 * x_dtype.itemsize, dtype=f"u{x_dtype.itemsize}")
    return function(bits.view(x_dtype).astype(np.int64)).astype(y_dtype)


def table_of_int16(function: IntegerFunction) -> Raw:
    """The function of all int16, each at the index that it is: negative ones count from the end."""
    return lookup_table(function, np.dtype(np.int16), np.dtype(np.int64))


def bind_lookup(x: npt.NDArray[Any], y: npt.NDArray[Any], function: IntegerFunction) -> Run:
    """Run y = function(x), element by element.

    Args:
        x: integers of 8 or 16 bits.
        y: the same number of elements, of any type.
        function: called once, to build the table.
    """
    table = track_host_array(lookup_table(function, x.dtype, y.dtype))
    index, results = x.reshape(-1).view(f"u{x.itemsize}"), y.reshape(-1)

    def run() -> None:
        results[...] = table[index]

    return run
