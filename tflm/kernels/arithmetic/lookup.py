"""Functions of one integer of 8 or 16 bits, as tables of all their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.kernels.arithmetic.fixed_point import Raw
from tflm.kernels.host_memory import track_host_array
from tflm.kernels.registration import Run

IntegerFunction = Callable[[Raw], npt.NDArray[Any]]
"""From integers to values that fit in the elements of an output."""


def lookup_table(function: IntegerFunction, x_dtype: np.dtype[Any], y_dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The function of all integers of a type; their bits, read as an unsigned integer, are the index."""
    bits = np.arange(1 << 8 * x_dtype.itemsize, dtype=f"u{x_dtype.itemsize}")
    return function(bits.view(x_dtype).astype(np.int64)).astype(y_dtype)


def bind_lookup(x: npt.NDArray[Any], y: npt.NDArray[Any], function: IntegerFunction) -> Run:
    """Run y = function(x), element by element.

    Args:
        x: integers of 8 or 16 bits.
        y: as many elements of any type.
        function: called once, here.
    """
    table = track_host_array(lookup_table(function, x.dtype, y.dtype))
    index, results = x.reshape(-1).view(f"u{x.itemsize}"), y.reshape(-1)

    def run() -> None:
        results[...] = table[index]

    return run
