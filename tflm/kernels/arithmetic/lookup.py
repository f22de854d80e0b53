"""Functions of one 8-bit or 16-bit integer, run by a table of all their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.kernels.arithmetic.fixed_point import Raw
from tflm.kernels.host_memory import kept
from tflm.kernels.registration import Run


class Lookup:
    """What sets y to the table's values of x.

    Attributes:
        x: unsigned integers of 8 or 16 bits, in one dimension.
        table: the value for each of them.
        y: as many values.
    """

    __slots__ = ("_index", "table", "x", "y")

    def __init__(self, x: npt.NDArray[Any], table: npt.NDArray[Any], y: npt.NDArray[Any]):
        self.x, self.table, self.y = x, kept(table), y
        self._index = kept(np.empty(x.shape, np.intp))

    def __call__(self) -> None:
        np.copyto(self._index, self.x)
        self.table.take(self._index, out=self.y, mode="clip")


def bind_lookup(x: npt.NDArray[Any], y: npt.NDArray[Any], function: Callable[[Raw], npt.NDArray[Any]]) -> Run:
    """What sets y to function(x), element by element.

    Args:
        x: integers of 8 or 16 bits.
        y: of the same shape, any type.
        function: from an array of values of x to an array of values that y can hold. It is called once.
    """
    limits = np.iinfo(x.dtype)
    table = function(np.arange(int(limits.min), int(limits.max) + 1, dtype=np.int64)).astype(y.dtype)
    table = np.roll(table, int(limits.min))  # so that a negative value, read as unsigned, finds its place
    return Lookup(x.reshape(-1).view(f"u{x.itemsize}"), table, y.reshape(-1))
