"""A placement problem as flat arrays: lifetimes of buffers, and pairs that are alive together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tflm.memory.buffer import ONLINE_PLANNED_BUFFER, Buffer, Integers, lower_bound_bytes, table_of


class Problem(NamedTuple):
    """Buffers, and the sections of time that they are alive in.

    Only sections are kept whose buffers are not all alive in another one, too.

    Attributes:
        size: bytes of each buffer, above 0.
        counted: the same, or 0 for a buffer that shares memory with another by their fixed offsets.
        fixed: its required offset, or -1.
        first, end: each buffer is alive in the sections from `first` to `end` - 1.
        neighbours, neighbours_from: the buffers alive at a common time with buffer b, from `neighbours_from[b]` to
            `neighbours_from[b + 1]`. Two buffers that are both fixed are no neighbours.
        members, members_from: likewise the buffers alive in a section.
    """

    size: Integers
    counted: Integers
    fixed: Integers
    first: Integers
    end: Integers
    neighbours: Integers
    neighbours_from: Integers
    members: Integers
    members_from: Integers


def problem_of(buffers: Sequence[Buffer]) -> Problem:
    """The problem of placing buffers. No buffer is empty, and none ends before it begins."""
    table = table_of(buffers)
    size, fixed = table[:, 0].copy(), table[:, 3].copy()
    first, end = _sections(table[:, 1], table[:, 2])
    is_fixed = fixed != ONLINE_PLANNED_BUFFER
    neighbours = []
    for i in range(len(size)):
        others = (first < end[i]) & (first[i] < end)
        others[i] = False
        if is_fixed[i]:
            others &= ~is_fixed
        neighbours.append(np.flatnonzero(others))
    members = [np.flatnonzero((first <= section) & (section < end)) for section in range(int(end.max()))]
    counted = np.where(_share_memory(buffers), 0, size)
    return Problem(size, counted, fixed, first, end, *_flat(neighbours), *_flat(members))


def least_height(buffers: Sequence[Buffer]) -> int:
    """A lower bound of any placement: bytes alive at once, and the ends of fixed buffers."""
    alone = [buffer for buffer, shares in zip(buffers, _share_memory(buffers)) if not shares]
    ends = [buffer.offset + buffer.size for buffer in buffers if buffer.is_placed]
    return max(lower_bound_bytes(alone), *ends, 0)


def height_unit(problem: Problem) -> int:
    """A common divisor of the heights of all placements that cannot be compacted."""
    return math.gcd(*problem.size.tolist(), *(offset for offset in problem.fixed.tolist() if offset > 0))


def pairs_alive_together(buffers: Sequence[Buffer]) -> int:
    """The number of pairs of buffers that are alive at a common step, each counted twice."""
    table = table_of(buffers)
    first, last = np.sort(table[:, 1]), np.sort(table[:, 2])
    begun = first.searchsorted(table[:, 2], side="right")
    over = last.searchsorted(table[:, 1], side="left")
    return int((begun - over - 1).sum(dtype=np.int64))


def _share_memory(buffers: Sequence[Buffer]) -> list[bool]:
    """Return which buffers are fixed to bytes in which another simultaneously alive buffer is fixed, too."""
    fixed = [buffer for buffer in buffers if buffer.is_placed]
    table = table_of(fixed)
    first, last, begin, end = table[:, 1], table[:, 2], table[:, 3], table[:, 3] + table[:, 0]

    def shares(size: int, first_step: int, last_step: int, offset: int) -> bool:
        together = (first <= last_step) & (first_step <= last) & (begin < offset + size) & (offset < end)
        return bool(np.count_nonzero(together) > 1)

    return [buffer.is_placed and shares(*buffer) for buffer in buffers]


def _sections(first_step: Integers, last_step: Integers) -> tuple[Integers, Integers]:
    """Return the first section of each buffer, and the one after its last.

    A section is a step at which some buffer is alive for the first time and, before another one is, some buffer for
    the last time.
    """
    firsts = np.unique(first_step)
    firsts_so_far = np.searchsorted(firsts, np.unique(last_step), side="right").astype(np.int64)
    steps = firsts[np.unique(firsts_so_far) - 1]
    return np.searchsorted(steps, first_step, side="left"), np.searchsorted(steps, last_step, side="right")


def _flat(lists: Sequence[Integers]) -> tuple[Integers, Integers]:
    """Concatenate lists; returns the array and the start of each."""
    starts = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(entries) for entries in lists], out=starts[1:])
    return np.concatenate([*lists, np.zeros(0, np.int64)]), starts
