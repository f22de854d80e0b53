"""The inner loop of `body_placement`: places bodies one after the other, in a given order.

It is compiled; see `tflm.compiler.language`.
"""

from __future__ import annotations

from tflm.compiler.language import kernel
from tflm.memory import ARENA_ALIGNMENT
from tflm.memory.buffer import Integers
from tflm.planning.bars import Bars

UNPLACED = -1


@kernel
def place(count: int, bars: Bars, order: Integers, is_high: Integers, top: int, offsets: Integers) -> int:
    """Fill `offsets`, each a multiple of the arena's alignment; returns the total size in bytes.

    Each body gets the lowest allowed offset; one that `is_high`, the highest below `top`, if there is one.
    """
    for body in range(count):
        offsets[body] = UNPLACED
    height = 0
    for i in range(count):
        body = order[i]
        at = UNPLACED
        if is_high[body]:
            at = (top - bars.size[body]) // ARENA_ALIGNMENT * ARENA_ALIGNMENT
            moved = True
            while moved and at >= 0:
                moved = False
                for bar in range(bars.start[body], bars.start[body + 1]):
                    base = offsets[bars.other[bar]]
                    if base >= 0 and base + bars.low[bar] <= at <= base + bars.high[bar]:
                        at = (base + bars.low[bar] - 1) // ARENA_ALIGNMENT * ARENA_ALIGNMENT
                        moved = True
        if at < 0:
            at, moved = 0, True
            while moved:
                moved = False
                for bar in range(bars.start[body], bars.start[body + 1]):
                    base = offsets[bars.other[bar]]
                    if base >= 0 and base + bars.low[bar] <= at <= base + bars.high[bar]:
                        at = (base + bars.high[bar]) // ARENA_ALIGNMENT * ARENA_ALIGNMENT + ARENA_ALIGNMENT
                        moved = True
        offsets[body] = at
        end = (at + bars.size[body] + ARENA_ALIGNMENT - 1) // ARENA_ALIGNMENT * ARENA_ALIGNMENT
        height = max(height, end)
    return height
