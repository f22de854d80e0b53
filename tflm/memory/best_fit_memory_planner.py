"""Best-fit planners: each buffer goes to the smallest gap where it fits; they differ in the order of buffers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tflm.memory.buffer import Buffer, table_of
from tflm.memory.greedy_memory_planner import GreedyMemoryPlanner
from tflm.memory.placed_buffers import PlacedBuffers, place_in_order


def place_in_best_fit(buffers: Sequence[Buffer]) -> list[int]:
    """Return the offset of each buffer, placed as by TFLite's arena planner.

    Buffers with an offline offset come first, then those that are alive at every step, then the others by falling size;
    of two of one size, the one that is needed earlier comes first. Each goes to the smallest gap where it fits, or on
    top. (TFLite keeps inputs alive at every step; here the given lifetimes apply.)
    """
    begin = min((buffer.first_use for buffer in buffers), default=0)
    end = max((buffer.last_use for buffer in buffers), default=0)

    def rank(i: int) -> tuple[bool, int, int]:
        size, first, last, _ = buffers[i]
        return (False, 0, 0) if (first, last) == (begin, end) else (True, -size, first)

    return place_in_order(buffers, sorted(range(len(buffers)), key=rank), PlacedBuffers.tightest_gap)


def place_by_breadth(buffers: Sequence[Buffer]) -> list[int]:
    """The offset of each buffer, step after step.

    The steps at which most bytes are alive come first, and at each step the largest buffer. That is "greedy by breadth"
    of Y. Pisarchyk and J. Lee, "Efficient Memory Management for Deep Neural Net Inference" (2020).
    """
    if not buffers:
        return []
    table = table_of(buffers)
    size, first, last, _ = table.T
    by_size = np.argsort(-size, kind="stable")
    steps = np.unique(table[:, 1:3])
    alive = [by_size[((first <= step) & (last >= step))[by_size]] for step in steps]
    breadth = np.array([size[members].sum(dtype=np.int64) for members in alive], np.int64)
    order: dict[int, None] = {}
    for at in np.lexsort((steps, -breadth)).tolist():
        order.update(dict.fromkeys(alive[at].tolist()))
    order.update(dict.fromkeys(by_size.tolist()))
    return place_in_order(buffers, order, PlacedBuffers.tightest_gap)


class BestFitMemoryPlanner(GreedyMemoryPlanner):
    """Plans with `place_in_best_fit`."""

    place = staticmethod(place_in_best_fit)


class BreadthMemoryPlanner(GreedyMemoryPlanner):
    """Plans with `place_by_breadth`."""

    place = staticmethod(place_by_breadth)
