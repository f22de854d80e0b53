"""Strategies for buffers with lifetimes, the input of memory planners."""

from __future__ import annotations

from hypothesis import strategies as st

from tflm.memory.arena import ARENA_ALIGNMENT
from tflm.memory.buffer import ONLINE_PLANNED_BUFFER, UNUSED, Buffer

SMALL_UNITS, LARGE_UNITS = 7, 1 << 17
"""Largest sizes, in units of the alignment: small ones, which are often equal, and up to 2 MiB."""

STEPS, LATE_STEPS = 6, 100


def _lifetimes(unused: bool) -> st.SearchStrategy[tuple[int, int]]:
    step = st.integers(0, STEPS)
    late = st.integers(0, LATE_STEPS)
    pairs = st.one_of(st.tuples(step, step), st.tuples(step, step), st.tuples(late, late))
    lifetimes = st.one_of(pairs, pairs, pairs, st.just((UNUSED, UNUSED))) if unused else pairs
    return lifetimes.map(lambda pair: (min(pair), max(pair)))


def _sizes(alignment: int, max_size: int | None) -> st.SearchStrategy[int]:
    largest = LARGE_UNITS if max_size is None else max_size // alignment
    small = st.integers(0, min(SMALL_UNITS, largest))
    return st.one_of(small, small, small, st.integers(0, largest)).map(lambda units: units * alignment)


def buffers(
    *,
    min_count: int = 0,
    max_count: int = 24,
    fixed: bool = False,
    alignment: int = ARENA_ALIGNMENT,
    max_size: int | None = None,
    unused: bool = True,
) -> st.SearchStrategy[list[Buffer]]:
    """Lists of buffers for a planner: many equal sizes, short lifetimes that often touch, some unused.

    Args:
        min_count, max_count: of buffers.
        fixed: whether some buffers have an offline offset, which may overlap that of another one.
        alignment: of sizes and offsets, in bytes.
        max_size: largest size in bytes, None for 2^17 times the alignment.
        unused: whether some buffers are used at no step.
    """
    online = st.just(ONLINE_PLANNED_BUFFER)
    offsets = st.one_of(online, online, st.integers(0, 12).map(lambda units: units * alignment)) if fixed else online
    buffer = st.builds(
        lambda size, life, offset: Buffer(size, life[0], life[1], offset),
        _sizes(alignment, max_size),
        _lifetimes(unused),
        offsets,
    )
    return st.lists(buffer, min_size=min_count, max_size=max_count)
