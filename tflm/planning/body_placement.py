"""Places bodies of tensors, whose bytes are needed at different times, in as few bytes as it finds."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.memory import ARENA_ALIGNMENT
from tflm.memory.placed_buffers import Integers
from tflm.planning.views import Body
from tflm.targets import align_up

ROUNDS_PER_BODY = 20
"""Changes of the order that are tried for each height that is aimed at, for each body."""

LARGE_BODIES = 4
"""Bodies of which all choices of an end are tried to begin with."""

SHARES = (0.0, 0.05, 0.1, 0.2, 0.4, 0.6)
"""The heights that are aimed at in turn, from the least possible (0) to that of the best placement so far (1)."""


class Bars(NamedTuple):
    """What bars the places of bodies: differences of offsets that must not be.

    Attributes:
        size: bytes of each body.
        start: for body b, its bars are those from `start[b]` to `start[b + 1]` - 1.
        other: whose offset a difference counts from.
        low, high: the lowest and the highest difference that is barred.
    """

    size: Integers
    start: Integers
    other: Integers
    low: Integers
    high: Integers


class Part(NamedTuple):
    """A tensor in a body: which body, the place in it, and bytes."""

    body: int
    offset: int
    bytes: int


class Trailing(NamedTuple):
    """An output that may be written over what its operator has read.

    Attributes:
        step: at which that one runs.
        input, output: the tensors.
        distance: bytes by which the input must begin behind the output at the least.
    """

    step: int
    input: Part
    output: Part
    distance: int


class BodyPlacement:
    """A problem of placement.

    Args:
        bodies: what is placed.
        scratch: buffers that the device places itself, as bodies; they come after all others.
        on_device: the bodies as they stand in the way of those: as a device counts the lives of their tensors.
        trailing: outputs that may reach into inputs.
    """

    def __init__(
        self,
        bodies: Sequence[Body],
        scratch: Sequence[Body] = (),
        on_device: Sequence[Body] = (),
        trailing: Sequence[Trailing] = (),
    ):
        self._bodies = [*bodies, *scratch]
        pairs = [_pairs(bodies, bodies, own=0, trailing=trailing)]
        if scratch:
            body, other, low, high = _pairs(scratch, [*on_device, *scratch], own=len(bodies))
            body = body + len(bodies)
            back = other < len(bodies)
            pairs += [(body, other, low, high), (other[back], body[back], -high[back], -low[back])]
        self._bars = _bars([body.bytes for body in self._bodies], pairs)

    def search(self, bound: int, seconds: float | None = None, rounds: int = ROUNDS_PER_BODY) -> list[int]:
        """Offsets of all bodies: the best of several orders, and of small changes to them.

        Args:
            bound: bytes below which no placement can be.
            seconds: time limit, or None.
            rounds: changes that are tried for each height that is aimed at, for each body.
        """
        end = None if seconds is None else time.monotonic() + seconds
        chance = random.Random(0)
        best = min(self._beginnings(bound), key=_height)
        for share in SHARES:
            top = align_up(bound + int(share * (best.height - bound)), ARENA_ALIGNMENT)
            now = min(self._beginnings(top), key=_height)
            for _ in range(rounds * len(self._bodies)):
                if now.height <= top or (end is not None and time.monotonic() > end):
                    break
                changed = self._changed(now, top, chance)
                if changed.height <= now.height:
                    now = changed
            best = min(best, now, key=_height)
            if best.height <= bound:
                break
        return [int(offset) for offset in best.offsets]

    def _beginnings(self, top: int) -> Iterator[_Placed]:
        """Several orders; the largest bodies at either end."""
        bodies = self._bodies
        life = [max(p.last for p in body.pieces) - min(p.first for p in body.pieces) + 1 for body in bodies]
        keys: list[Callable[[int], tuple[int, ...]]] = [
            lambda i: (-bodies[i].bytes, -life[i]),
            lambda i: (-life[i], -bodies[i].bytes),
            lambda i: (-life[i] * bodies[i].bytes,),
        ]
        for key in keys:
            order = np.array(sorted(range(len(bodies)), key=key), np.int64)
            for choice in itertools.product((0, 1), repeat=min(LARGE_BODIES, len(order))):
                is_high = np.zeros(len(order), np.int64)
                is_high[order[: len(choice)]] = choice
                yield self._placed(order, is_high, top)

    def _placed(self, order: Integers, is_high: Integers, top: int) -> _Placed:
        offsets = np.empty(len(order), np.int64)
        from tflm.memory.machine_code import call  # which brings the compiler
        from tflm.planning.ordered_placement import place

        return _Placed(int(call(place, self._bars, order, is_high, top, offsets)), offsets, order, is_high)

    def _changed(self, placed: _Placed, top: int, chance: random.Random) -> _Placed:
        """Another order, in which one of the highest bodies, or any, comes earlier; at times at the other end."""
        order, is_high = placed.order, placed.is_high
        at = chance.randrange(len(order))
        if chance.random() < 0.7:
            is_highest = placed.offsets + self._bars.size > placed.height - ARENA_ALIGNMENT
            at = chance.choice(np.flatnonzero(is_highest[order]).tolist())
        if chance.random() < 0.3:
            is_high = is_high.copy()
            is_high[order[at]] ^= 1
        to = chance.randrange(at + 1)
        order = np.concatenate([order[:to], order[at : at + 1], order[to:at], order[at + 1 :]])
        return self._placed(order, is_high, top)


class _Placed(NamedTuple):
    """A placement: its bytes, the offsets, and how it came about."""

    height: int
    offsets: Integers
    order: Integers
    is_high: Integers


def _height(placed: _Placed) -> int:
    return placed.height


_Pairs = tuple[Integers, Integers, Integers, Integers]


def _pairs(bodies: Sequence[Body], others: Sequence[Body], own: int, trailing: Sequence[Trailing] = ()) -> _Pairs:
    """Which of some bodies bar each other: (body, other, lowest and highest difference of their offsets).

    Args:
        own: where the bodies themselves are among the others.
    """
    ours, of = _table(bodies)
    theirs, of_theirs = _table(others)
    together = (ours[:, 2:3] <= theirs[:, 3]) & (theirs[:, 2] <= ours[:, 3:4]) & (of[:, None] + own != of_theirs)
    mine, their = np.nonzero(together)
    low, high = theirs[their, 0] - ours[mine, 1] + 1, theirs[their, 1] - ours[mine, 0] - 1
    for step, input, output, distance in trailing:
        most = input.offset - output.offset - distance
        written = _pieces_of(output, of[mine], ours[mine]) & (ours[mine, 2] == step)
        read = _pieces_of(input, of_theirs[their], theirs[their]) & (theirs[their, 3] == step)
        low[written & read] = np.maximum(low[written & read], most + 1)
        written = _pieces_of(output, of_theirs[their], theirs[their]) & (theirs[their, 2] == step)
        read = _pieces_of(input, of[mine], ours[mine]) & (ours[mine, 3] == step)
        high[written & read] = np.minimum(high[written & read], -most - 1)
    barred = low <= high
    return of[mine][barred], of_theirs[their][barred], low[barred], high[barred]


def _pieces_of(part: Part, body: Integers, pieces: Integers) -> npt.NDArray[np.bool_]:
    """Which pieces are of a tensor's bytes alone."""
    begins, ends = pieces[:, 0] >= part.offset, pieces[:, 1] <= part.offset + part.bytes
    inside: npt.NDArray[np.bool_] = (body == part.body) & begins & ends
    return inside


def _bars(sizes: Sequence[int], pairs: Sequence[_Pairs]) -> Bars:
    body, other, low, high = (np.concatenate(columns) for columns in zip(*pairs))
    order = np.lexsort((high, low, other, body))
    start = np.searchsorted(body[order], np.arange(len(sizes) + 1, dtype=np.int64))
    return Bars(np.array(sizes, np.int64), start.astype(np.int64), other[order], low[order], high[order])


def _table(bodies: Sequence[Body]) -> tuple[Integers, Integers]:
    """The pieces of all bodies as rows, and the body of each."""
    pieces = np.array([piece for body in bodies for piece in body.pieces], np.int64).reshape(-1, 4)
    return pieces, np.repeat(np.arange(len(bodies), dtype=np.int64), [len(body.pieces) for body in bodies])
