"""Bands: rows of a large operator, in as many steps as threads can share; each step writes to its own rows only."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import replace

from tflm.compiler.language import Step

BANDS_OF_A_THREAD = 2
"""Bands per thread: with several, the others wait less for a thread that was interrupted."""

MIN_PRODUCTS = 1 << 13
"""Minimum number of vector products in a band: some microseconds."""

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
    """The number of threads that share operators bound in this context."""
    return _threads.get()


def bands_of(rows: int, products_of_row: int, unit: int = 1) -> list[slice]:
    """The bands of an operator.

    Args:
        rows: of the operator.
        products_of_row: products of vectors, which say how much work a row is.
        unit: rows of a tile; all bands but the last have a multiple of it, and all have one at least.
    """
    affordable = min(rows // unit, rows * products_of_row // MIN_PRODUCTS)
    count = min(threads() * BANDS_OF_A_THREAD, affordable) if threads() > 1 else 1
    if count < 2:
        return [slice(0, rows)]
    edges = [rows // unit * band // count * unit for band in range(count)] + [rows]
    return [slice(*edge) for edge in itertools.pairwise(edges)]


def together(steps: Sequence[Step]) -> list[Step]:
    """Steps that may run at the same time."""
    return [*steps[:1], *(replace(step, parallel=True) for step in steps[1:])]
