"""Functions of an 8-bit or 16-bit integer as tables of all their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.kernels.arithmetic.fixed_point import Raw
from tflm.kernels.host_memory import track_host_array
from tflm.kernels.registration import Run

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
