"""Placement of bodies, groups of tensors whose bytes have different lifetimes, and constraints between pairs."""

from __future__ import annotations

import functools
import itertools
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.compiler.calls import prepared
from tflm.compiler.language import kernel
from tflm.memory import ARENA_ALIGNMENT
from tflm.memory.buffer import Integers
from tflm.planning.views import Body
from tflm.targets import align_up


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
    """Return the bars of bodies of these sizes, sorted by body; bars that touch are merged."""
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


UNPLACED = -1


@kernel
def place(
    count: int, bars: Bars, order: Integers, is_high: Integers, top: Integers, alignment: int, offsets: Integers
) -> int:
    """Fill `offsets`, each a multiple of the alignment; returns the bytes of all buffers.

    Each body goes to the lowest place that is not barred; one that `is_high` to the highest below `top[0]`, where there
    is one.
    """
    for body in range(count):
        offsets[body] = UNPLACED
    height = 0
    for i in range(count):
        body = order[i]
        at = UNPLACED
        if is_high[body]:
            at = (top[0] - bars.size[body]) // alignment * alignment
            moved = True
            while moved and at >= 0:
                moved = False
                for bar in range(bars.start[body], bars.start[body + 1]):
                    base = offsets[bars.other[bar]]
                    if base >= 0 and base + bars.low[bar] <= at <= base + bars.high[bar]:
                        at = (base + bars.low[bar] - 1) // alignment * alignment
                        moved = True
        if at < 0:
            at, moved = 0, True
            while moved:
                moved = False
                for bar in range(bars.start[body], bars.start[body + 1]):
                    base = offsets[bars.other[bar]]
                    if base >= 0 and base + bars.low[bar] <= at <= base + bars.high[bar]:
                        at = (base + bars.high[bar]) // alignment * alignment + alignment
                        moved = True
        offsets[body] = at
        end = (at + bars.size[body] + alignment - 1) // alignment * alignment
        height = max(height, end)
    return height


ROUNDS_PER_BODY = 20
"""Changes of the order that are tried per body for each target height."""

LARGE_BODIES = 4
"""Number of bodies for which all combinations of ends (low or high) are tried at first."""

SHARES = (0.0, 0.05, 0.1, 0.2, 0.4, 0.6)
"""Target heights to try in turn, from the lower bound (0) to the best placement so far (1)."""


class BodyPlacement:
    """A placement problem.

    Args:
        bodies: the bodies to place.
        scratch: buffers that the device places itself, as bodies; they come after all others.
        on_device: the bodies as they stand in the way of those: as a device counts the lives of their tensors.
        trailing: outputs that may reach into inputs.
        alignment: of all bodies, in bytes.
    """

    def __init__(
        self,
        bodies: Sequence[Body],
        scratch: Sequence[Body] = (),
        on_device: Sequence[Body] = (),
        trailing: Sequence[Trailing] = (),
        alignment: int = ARENA_ALIGNMENT,
    ):
        self._alignment = alignment
        self._bodies = [*bodies, *scratch]
        pairs = [barred_pairs(bodies, bodies, own=0, trailing=trailing)]
        if scratch:
            body, other, low, high = barred_pairs(scratch, [*on_device, *scratch], own=len(bodies))
            body = body + len(bodies)
            back = other < len(bodies)
            pairs += [(body, other, low, high), (other[back], body[back], -high[back], -low[back])]
        self._bars = bars_of([body.bytes for body in self._bodies], pairs)
        count = len(self._bodies)
        self._order, self._is_high, self._offsets = np.zeros((3, count), np.int64)
        self._top = np.zeros(1, np.int64)
        self._place = prepared(
            place,
            count=count,
            bars=self._bars,
            order=self._order,
            is_high=self._is_high,
            top=self._top,
            alignment=alignment,
            offsets=self._offsets,
        )

    def search(self, bound: int, seconds: float | None = None, rounds: int = ROUNDS_PER_BODY) -> list[int]:
        """Search offsets of all bodies, over several orders and small changes to them.

        Args:
            bound: lower bound of the size in bytes.
            seconds: time limit, or None.
            rounds: changes that are tried per body for each target height.
        """
        end = None if seconds is None else time.monotonic() + seconds
        chance = random.Random(0)
        beginning = functools.cache(lambda top: min(self._beginnings(top), key=_height))
        best = beginning(bound)
        for share in SHARES:
            top = align_up(bound + int(share * (best.height - bound)), self._alignment)
            now = beginning(top)
            highest = self._highest(now)
            for _ in range(rounds * len(self._bodies)):
                if now.height <= top or (end is not None and time.monotonic() > end):
                    break
                changed = self._changed(now, highest, top, chance)
                if changed.height <= now.height:
                    now, highest = changed, self._highest(changed)
            best = min(best, now, key=_height)
            if best.height <= bound:
                break
        return [int(offset) for offset in best.offsets]

    def _beginnings(self, top: int) -> Iterator[_Placed]:
        """Several initial orders, with the largest bodies at either end."""
        bodies = self._bodies
        life = [max(p.last for p in body.pieces) - min(p.first for p in body.pieces) + 1 for body in bodies]
        keys: list[Callable[[int], tuple[int, ...]]] = [
            lambda i: (-bodies[i].bytes, -life[i]),
            lambda i: (-life[i], -bodies[i].bytes),
            lambda i: (-life[i] * bodies[i].bytes,),
        ]
        for numbers in dict.fromkeys(tuple(sorted(range(len(bodies)), key=key)) for key in keys):
            order = np.array(numbers, np.int64)
            for choice in itertools.product((0, 1), repeat=min(LARGE_BODIES, len(order))):
                is_high = np.zeros(len(order), np.int64)
                is_high[order[: len(choice)]] = choice
                yield self._placed(order, is_high, top)

    def _placed(self, order: Integers, is_high: Integers, top: int) -> _Placed:
        self._order[:], self._is_high[:], self._top[0] = order, is_high, top
        height = self._place()
        return _Placed(int(height), self._offsets.copy(), order, is_high)

    def _highest(self, placed: _Placed) -> list[int]:
        """Return the positions of the highest bodies in the order."""
        is_highest = placed.offsets + self._bars.size > placed.height - self._alignment
        return np.flatnonzero(is_highest[placed.order]).tolist()

    def _changed(self, placed: _Placed, highest: Sequence[int], top: int, chance: random.Random) -> _Placed:
        """A changed order: one of the highest bodies, or a random one, moves forward, sometimes to the other end."""
        order, is_high = placed.order, placed.is_high
        at = chance.randrange(len(order))
        if chance.random() < 0.7:
            at = chance.choice(highest)
        if chance.random() < 0.3:
            is_high = is_high.copy()
            is_high[order[at]] ^= 1
        earlier = chance.randrange(at + 1)
        order = np.concatenate([order[:earlier], order[at : at + 1], order[earlier:at], order[at + 1 :]])
        return self._placed(order, is_high, top)


class _Placed(NamedTuple):
    """A placement: its size in bytes, the offsets, and the order that produced it."""

    height: int
    offsets: Integers
    order: Integers
    is_high: Integers


def _height(placed: _Placed) -> int:
    return placed.height
