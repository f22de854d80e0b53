"""The inner loop of `body_placement`: places bodies one after the other, in a given order.

It is compiled; see `tflm.compiler.language`.
"""

from __future__ import annotations

from tflm.compiler.language import kernel
from tflm.memory.buffer import Integers
from tflm.planning.bars import Bars

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
