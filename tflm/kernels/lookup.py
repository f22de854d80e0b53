"""Functions of one 8-bit or 16-bit integer, run by a table of all their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.kernels.fixed_point import Raw
from tflm.kernels.registration import Run


def bind_lookup(x: npt.NDArray[Any], y: npt.NDArray[Any], function: Callable[[Raw], npt.NDArray[Any]]) -> Run:
    """What sets y to function(x), element by element.

    Args:
        x: integers of 8 or 16 bits.
        y: of the same shape, any type.
        function: from an array of values of x to an array of values that y can hold. It is called once.
    """
    limits = np.iinfo(x.dtype)
    table = function(np.arange(int(limits.min), int(limits.max) + 1)).astype(y.dtype)
    table = np.roll(table, int(limits.min))  # so that a negative value, read as unsigned, finds its place
    unsigned = x.reshape(-1).view(f"u{x.itemsize}")
    flat = y.reshape(-1)
    index = np.empty(unsigned.shape, np.intp)

    def run() -> None:
        np.copyto(index, unsigned)
        table.take(index, out=flat, mode="clip")

    return run
