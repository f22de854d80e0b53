"""Planners that put each buffer into the smallest gap where it fits; they differ in the order of the buffers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from tflm.memory.greedy_memory_planner import GreedyMemoryPlanner
from tflm.memory.placed_buffers import PlacedBuffers
from tflm.memory.planner import ONLINE_PLANNED_BUFFER, BufferRequirements


def place_in_best_fit(buffers: Sequence[BufferRequirements]) -> list[int]:
    """The offset of each buffer, in the way of TFLite's arena planner.

    Buffers with an offline offset come first, then those that are alive at every step, then the others by falling
    size; of two of one size, the one that is needed earlier comes first. Each goes to the smallest gap where it fits,
    or on top. (TFLite has inputs alive at every step; here lifetimes are what they are said to be.)
    """
    begin = min((buffer.first_time_used for buffer in buffers), default=0)
    end = max((buffer.last_time_used for buffer in buffers), default=0)

    def rank(i: int) -> tuple[bool, int, int]:
        size, first, last, _ = buffers[i]
        return (False, 0, 0) if (first, last) == (begin, end) else (True, -size, first)

    return _place_in_order(buffers, sorted(range(len(buffers)), key=rank))


def place_by_breadth(buffers: Sequence[BufferRequirements]) -> list[int]:
    """The offset of each buffer, step after step.

    The steps at which most bytes are alive come first, and at each step the largest buffer. That is "greedy by breadth"
    of Y. Pisarchyk and J. Lee, "Efficient Memory Management for Deep Neural Net Inference" (2020).
    """
    if not buffers:
        return []
    table = np.array(buffers, np.int64)
    size, first, last = table[:, 0], table[:, 1], table[:, 2]
    by_size = np.argsort(-size, kind="stable")
    steps = np.unique(table[:, 1:3])
    alive = [by_size[((first <= step) & (last >= step))[by_size]] for step in steps]
    breadth = np.array([size[members].sum(dtype=np.int64) for members in alive], np.int64)
    order: dict[int, None] = {}
    for at in np.lexsort((steps, -breadth)).tolist():
        order.update(dict.fromkeys(alive[at].tolist()))
    return _place_in_order(buffers, [*order, *(i for i in by_size.tolist() if i not in order)])


def _place_in_order(buffers: Sequence[BufferRequirements], order: Iterable[int]) -> list[int]:
    offsets = [buffer.offline_offset for buffer in buffers]
    placed = PlacedBuffers(len(buffers))
    for buffer in buffers:
        if buffer.offline_offset != ONLINE_PLANNED_BUFFER:
            placed.add(buffer, buffer.offline_offset)
    for i in order:
        if offsets[i] == ONLINE_PLANNED_BUFFER:
            offsets[i] = placed.tightest_gap(buffers[i])
            placed.add(buffers[i], offsets[i])
    return offsets


class BestFitMemoryPlanner(GreedyMemoryPlanner):
    """Plans with `place_in_best_fit`."""

    place = staticmethod(place_in_best_fit)


class BreadthMemoryPlanner(GreedyMemoryPlanner):
    """Plans with `place_by_breadth`."""

    place = staticmethod(place_by_breadth)
