"""Memory and threads of steps: work arrays, and bands of rows that threads compute in parallel."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.compiler.language import Step

BANDS_OF_A_THREAD = 2
"""Bands per thread. With several, other threads wait less for one that was interrupted."""

MIN_PRODUCTS = 1 << 13
"""Minimum number of vector products in a band, which take some microseconds."""

_threads: ContextVar[int] = ContextVar("threads that share operators", default=1)


@contextlib.contextmanager
def shared_by(count: int) -> Iterator[None]:
    """Divide operators that are bound in this context into bands for that many threads."""
    token = _threads.set(count)
    try:
        yield
    finally:
        _threads.reset(token)


def threads() -> int:
    """Return the number of threads that share operators bound in this context."""
    return _threads.get()


def bands_of(rows: int, products_of_row: int, unit: int = 1) -> list[slice]:
    """Return the bands of an operator.

    Args:
        rows: number of rows of the operator.
        products_of_row: number of vector products in a row, a measure of its work.
        unit: rows of a tile. All bands but the last have a multiple of this.
    """
    affordable = min(rows // unit, rows * products_of_row // MIN_PRODUCTS)
    count = min(threads() * BANDS_OF_A_THREAD, affordable) if threads() > 1 else 1
    if count < 2:
        return [slice(0, rows)]
    edges = [rows // unit * band // count * unit for band in range(count)] + [rows]
    return [slice(*edge) for edge in itertools.pairwise(edges)]


def together(steps: Sequence[Step]) -> list[Step]:
    """Mark steps that may run at the same time."""
    return [*steps[:1], *(replace(step, parallel=True) for step in steps[1:])]


class WorkArray(np.ndarray[Any, np.dtype[Any]]):
    """An array without contents before the first step of its operator. Its views are work arrays too."""


def work_array(shape: int | Sequence[int], dtype: npt.DTypeLike) -> WorkArray:
    """Return a contiguous work array with undefined elements."""
    return np.empty(shape, dtype).view(WorkArray)
