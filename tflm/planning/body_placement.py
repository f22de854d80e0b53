"""Heuristic placement of bodies: groups of tensors whose bytes have different lifetimes."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tflm.compiler.calls import prepared
from tflm.compiler.language import kernel
from tflm.memory import ARENA_ALIGNMENT
from tflm.memory.buffer import Integers
from tflm.planning.bars import Bars, Trailing, barred_pairs, bars_of
from tflm.planning.views import Body
from tflm.targets import align_up

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
        best = min(self._beginnings(bound), key=_height)
        for share in SHARES:
            top = align_up(bound + int(share * (best.height - bound)), self._alignment)
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
        """Several initial orders, with the largest bodies at either end."""
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
        self._order[:], self._is_high[:], self._top[0] = order, is_high, top
        height = self._place()
        return _Placed(int(height), self._offsets.copy(), order, is_high)

    def _changed(self, placed: _Placed, top: int, chance: random.Random) -> _Placed:
        """A changed order: one of the highest bodies, or a random one, moves forward, sometimes to the other end."""
        order, is_high = placed.order, placed.is_high
        at = chance.randrange(len(order))
        if chance.random() < 0.7:
            is_highest = placed.offsets + self._bars.size > placed.height - self._alignment
            at = chance.choice(np.flatnonzero(is_highest[order]).tolist())
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
