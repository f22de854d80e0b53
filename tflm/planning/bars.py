"""Placement constraints between pairs of bodies whose bytes are needed at the same time."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.memory.buffer import Integers
from tflm.planning.views import Body


class Bars(NamedTuple):
    """Forbidden differences between the offsets of bodies.

    Attributes:
        size: bytes of each body.
        start: the bars of body b are those from `start[b]` to `start[b + 1]` - 1.
        other: the body that each difference is relative to.
        low, high: the lowest and highest forbidden difference.
    """

    size: Integers
    start: Integers
    other: Integers
    low: Integers
    high: Integers


class BodyMember(NamedTuple):
    """A tensor in a body: the body, the offset in it, and the size in bytes."""

    body: int
    offset: int
    bytes: int


class Trailing(NamedTuple):
    """An output that may overwrite input that its operator has already read.

    Attributes:
        step: the operator's step.
        input, output: the tensors.
        distances: bytes by which the input may begin behind the output, in any of these ranges.
    """

    step: int
    input: BodyMember
    output: BodyMember
    distances: tuple[range, ...]


Pairs = tuple[Integers, Integers, Integers, Integers]


def barred_pairs(bodies: Sequence[Body], others: Sequence[Body], own: int, trailing: Sequence[Trailing] = ()) -> Pairs:
    """Pairs of bodies that constrain each other: (body, other, lowest and highest forbidden difference of offsets).

    Args:
        own: index of the first of the bodies among the others.
    """
    ours, of_ours = _table(bodies)
    theirs, of_theirs = _table(others)
    together = (ours[:, 2:3] <= theirs[:, 3]) & (theirs[:, 2] <= ours[:, 3:4]) & (of_ours[:, None] + own != of_theirs)
    bars: list[tuple[int, int, int, int]] = []

    def take(mine: Integers, their: Integers, free: Sequence[range]) -> None:
        """Forbid the positions of these pieces at which no difference of their bodies' offsets is allowed."""
        for i, j in itertools.product(mine.tolist(), their.tolist()):
            if together[i, j]:
                together[i, j] = False
                low, high = int(theirs[j, 0] - ours[i, 1]) + 1, int(theirs[j, 1] - ours[i, 0]) - 1
                bars.extend((int(of_ours[i]), int(of_theirs[j]), *bar) for bar in _outside(free, low, high))

    for step, input, output, distances in trailing:
        base = input.offset - output.offset
        free = [_shifted(range(-allowed[-1], 1 - allowed[0], allowed.step), base) for allowed in distances]
        written = np.flatnonzero(_pieces_of(output, of_ours, ours) & (ours[:, 2] == step))
        read = np.flatnonzero(_pieces_of(input, of_theirs, theirs) & (theirs[:, 3] == step))
        take(written, read, free)
        free = [_shifted(allowed, -base) for allowed in distances]
        written = np.flatnonzero(_pieces_of(output, of_theirs, theirs) & (theirs[:, 2] == step))
        read = np.flatnonzero(_pieces_of(input, of_ours, ours) & (ours[:, 3] == step))
        take(read, written, free)
    mine, their = np.nonzero(together)
    low, high = theirs[their, 0] - ours[mine, 1] + 1, theirs[their, 1] - ours[mine, 0] - 1
    more = np.array(bars, np.int64).reshape(-1, 4).T
    columns = (of_ours[mine], of_theirs[their], low, high)
    body, other, low, high = (np.concatenate(pair) for pair in zip(columns, more))
    barred = low <= high
    return body[barred], other[barred], low[barred], high[barred]


def _shifted(numbers: range, by: int) -> range:
    return range(numbers.start + by, numbers.stop + by, numbers.step)


@functools.lru_cache(maxsize=1 << 14)
def _outside_of_one(free: range, low: int, high: int) -> tuple[tuple[int, int], ...]:
    """The numbers from `low` to `high` that are not in a range, as intervals."""
    if free.step == 1:
        intervals = ((low, min(high, free.start - 1)), (max(low, free.stop), high))
        return tuple((first, last) for first, last in intervals if first <= last)
    first = max(free.start, low + -(low - free.start) % free.step)
    inside = range(first, min(free.stop, high + 1), free.step)
    ends = [low - 1, *inside, high + 1]
    return tuple((before + 1, after - 1) for before, after in itertools.pairwise(ends) if before + 1 < after)


def _outside(free: Sequence[range], low: int, high: int) -> list[tuple[int, int]]:
    """The numbers from `low` to `high` that are in no range, as intervals."""
    intervals = [(low, high)] if low <= high else []
    for numbers in free:
        intervals = [part for first, last in intervals for part in _outside_of_one(numbers, first, last)]
    return intervals


def _pieces_of(part: BodyMember, body: Integers, pieces: Integers) -> npt.NDArray[np.bool_]:
    """Marks the pieces that consist only of this tensor's bytes."""
    begins, ends = pieces[:, 0] >= part.offset, pieces[:, 1] <= part.offset + part.bytes
    inside: npt.NDArray[np.bool_] = (body == part.body) & begins & ends
    return inside


def bars_of(sizes: Sequence[int], pairs: Sequence[Pairs]) -> Bars:
    """The bars of bodies of these sizes, sorted by body; those that meet are one."""
    body, other, low, high = (np.concatenate(columns) for columns in zip(*pairs))
    order = np.lexsort((low, other, body))
    body, other, low, high = body[order], other[order], low[order], high[order]
    group = np.cumsum(np.diff(body, prepend=-1).astype(bool) | np.diff(other, prepend=-1).astype(bool), dtype=np.int64)
    span = np.int64(2) * (int(np.abs(np.concatenate([low, high])).max()) + 2 if len(low) else 1)
    reach = np.maximum.accumulate(high + group * span)  # of this and all before it; another group's is out of reach
    begins = np.append(True, low[1:] + group[1:] * span > reach[:-1] + 1)[: len(low)]
    first = np.flatnonzero(begins)
    body, other, low = body[first], other[first], low[first]
    high = reach[np.append(first[1:], len(reach))[: len(first)] - 1] - group[first] * span
    start = np.searchsorted(body, np.arange(len(sizes) + 1, dtype=np.int64))
    return Bars(np.array(sizes, np.int64), start.astype(np.int64), other, low, high)


def _table(bodies: Sequence[Body]) -> tuple[Integers, Integers]:
    """The pieces of all bodies as rows, and the body of each."""
    pieces = np.array([piece for body in bodies for piece in body.pieces], np.int64).reshape(-1, 4)
    return pieces, np.repeat(np.arange(len(bodies), dtype=np.int64), [len(body.pieces) for body in bodies])
