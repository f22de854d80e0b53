"""Planners that place buffers one by one: greedy, as TFLM's default, best fit, linear and given offsets.

The greedy planner takes the largest buffer first, each in the lowest gap where it fits. Best-fit planners take the
smallest gap where a buffer fits; they differ in the order of buffers. The linear planner places every buffer in
separate memory, so that all tensors can be read after an invoke.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from tflm.errors import ArenaError
from tflm.memory.buffer import Buffer, table_of
from tflm.memory.planner import PlacingPlanner
from tflm.targets import BOOL, HOST, INT, POINTER, SIZE_T, Array, Struct

FEW = 128
"""Up to this many buffers are compared faster one by one than by numpy."""


class PlacedBuffers:
    """Placed buffers, to find those alive together with another without visiting all.

    Up to `FEW` are kept by offset. More are indexed by lifetime: a buffer that is alive for less than 2^n steps is in a
    cell of 2^n steps, the one in which its lifetime starts. All buffers that are alive together with another are in the
    cells that it touches and the cell before these, for each n.

    Args:
        capacity: the largest number of buffers.
    """

    def __init__(self, capacity: int):
        self._placed: list[tuple[int, int, int, int]] = []  # offset, end, first step, last step
        self._by_offset: list[tuple[int, int, int, int]] = []  # the same, if they are few
        self._capacity = capacity
        self._columns: npt.NDArray[np.int64]  # the same, of those that are indexed
        self._cells: dict[int, dict[int, list[int]]] = {}
        self._indexed = 0

    def add(self, buffer: Buffer, offset: int) -> None:
        """Add a placed buffer."""
        placed = offset, offset + buffer.size, buffer.first_use, buffer.last_use
        self._placed.append(placed)
        if len(self._placed) <= FEW:
            bisect.insort(self._by_offset, placed)

    def lowest_gap(self, wanted: Buffer) -> int:
        """The lowest offset at which a buffer overlaps no other live buffer."""
        if len(self._placed) > FEW:
            gaps, top = self._gaps_between_many(wanted)
            return gaps[0][1] if gaps else top
        size, top = wanted.size, 0
        for offset, end in self._alive(wanted):
            if offset - top >= size:
                break
            top = max(top, end)
        return top

    def tightest_gap(self, wanted: Buffer) -> int:
        """The start of the smallest gap in which a buffer fits (the lowest if equal), or the top."""
        if len(self._placed) > FEW:
            gaps, top = self._gaps_between_many(wanted)
        else:
            gaps, top = [], 0
            for offset, end in self._alive(wanted):
                if offset - top >= wanted.size:
                    gaps.append((offset - top, top))
                top = max(top, end)
        return min(gaps)[1] if gaps else top

    def in_the_way(self, wanted: Buffer, offset: int) -> npt.NDArray[np.intp]:
        """Live buffers that share bytes with a buffer at an offset, in the order in which they were added."""
        near = np.array(self._near(wanted), np.intp)
        start, end, first, last = self._columns[:, near]
        in_time = (first <= wanted.last_use) & (last >= wanted.first_use)
        found: npt.NDArray[np.intp] = near[in_time & (start < offset + wanted.size) & (end > offset)]
        return found

    def _alive(self, wanted: Buffer) -> list[tuple[int, int]]:
        """Start and end of each of the few buffers that are alive with `wanted`, by start."""
        begin, finish = wanted.first_use, wanted.last_use
        return [(offset, end) for offset, end, first, last in self._by_offset if first <= finish and last >= begin]

    def _gaps_between_many(self, wanted: Buffer) -> tuple[list[tuple[int, int]], int]:
        """Size and start of each gap between live buffers in which `wanted` fits, by start; and where the last ends."""
        near = np.array(self._near(wanted), np.intp)
        offset, end, first, last = self._columns[:, near]
        alive = np.flatnonzero((first <= wanted.last_use) & (last >= wanted.first_use))
        alive = alive[np.lexsort((end[alive], offset[alive]))]
        tops = np.maximum.accumulate(np.append(0, end[alive]))
        rooms = offset[alive] - tops[:-1]
        fits = np.flatnonzero(rooms >= wanted.size)
        return list(zip(rooms[fits].tolist(), tops[fits].tolist())), int(tops[-1])

    def _near(self, wanted: Buffer) -> list[int]:
        """The indices of a superset of the buffers alive with `wanted`."""
        self._index()
        found: list[int] = []
        for power, cells in self._cells.items():
            touched = range((wanted.first_use >> power) - 1, (wanted.last_use >> power) + 1)
            for cell in touched if len(touched) < len(cells) else [cell for cell in cells if cell in touched]:
                found += cells.get(cell, ())
        return found

    def _index(self) -> None:
        """Index the buffers that were added since the last time."""
        if not self._indexed:
            self._columns = np.zeros((4, self._capacity), np.int64)
        for index in range(self._indexed, len(self._placed)):
            self._columns[:, index] = self._placed[index]
            *_, first, last = self._placed[index]
            power = (last - first).bit_length()
            self._cells.setdefault(power, {}).setdefault(first >> power, []).append(index)
        self._indexed = len(self._placed)


def place_in_order(
    buffers: Sequence[Buffer], order: Iterable[int], gap: Callable[[PlacedBuffers, Buffer], int]
) -> list[int]:
    """The offset of each buffer: first those that have one, then the others in the order `order`, into gaps."""
    offsets = [buffer.offset for buffer in buffers]
    placed = PlacedBuffers(len(buffers))
    for buffer in buffers:
        if buffer.is_placed:
            placed.add(buffer, buffer.offset)
    for i in order:
        if not buffers[i].is_placed:
            offsets[i] = gap(placed, buffers[i])
            placed.add(buffers[i], offsets[i])
    return offsets


GREEDY_MEMORY_PLANNER = Struct(
    "GreedyMemoryPlanner",
    vtable=POINTER,
    max_buffer_count=INT,
    buffer_count=INT,
    requirements=POINTER,
    buffer_sizes_sorted=POINTER,
    buffer_ids_sorted=POINTER,
    buffers_sorted_by_offset=POINTER,
    next_free_entry=INT,
    first_entry_index=INT,
    buffer_offsets=POINTER,
    need_to_calculate_offsets=BOOL,
)
BUFFER_REQUIREMENTS = Struct(
    "GreedyMemoryPlanner::BufferRequirements",
    size=INT,
    offline_offset=INT,
    first_time_used=INT,
    last_time_used=INT,
)
LIST_ENTRY = Struct("GreedyMemoryPlanner::ListEntry", offset=INT, requirements_index=INT, next_entry_index=INT)
TABLE_ROW = Struct(
    "a buffer's row in each of the planner's tables",
    requirements=BUFFER_REQUIREMENTS,
    size_sorted=INT,
    id_sorted=INT,
    entry=LIST_ENTRY,
    offset=INT,
)


def place_greedily(buffers: Sequence[Buffer]) -> list[int]:
    """Return the offset of each buffer.

    Buffers with an offline offset come first and keep it. The others follow by decreasing size; of equal sizes, the one
    added later comes first. Each goes to the lowest offset where it fits between the buffers placed so far that are
    alive at a common step.
    """
    order = sorted(range(len(buffers)), key=lambda i: (-buffers[i].size, -i))
    return place_in_order(buffers, order, PlacedBuffers.lowest_gap)


class GreedyMemoryPlanner(PlacingPlanner):
    """Plans with `place_greedily`.

    Planners that do not exist on devices derive from this one: their plans reach a device as offline plans for its
    greedy planner, whose structures must be reserved.
    """

    STRUCT = GREEDY_MEMORY_PLANNER
    WORKING_BYTES_PER_BUFFER = TABLE_ROW.size(HOST)
    place = staticmethod(place_greedily)


MAXIMUM_BUFFERS = 1024

LINEAR_MEMORY_PLANNER = Struct(
    "LinearMemoryPlanner",
    vtable=POINTER,
    buffer_offsets=Array(SIZE_T, MAXIMUM_BUFFERS),
    current_buffer_count=INT,
    next_free_offset=SIZE_T,
)


def place_linearly(buffers: Sequence[Buffer]) -> list[int]:
    """The offset of each buffer: one after the other, in the order in which they were added."""
    if any(buffer.is_placed for buffer in buffers):
        raise ArenaError("the linear planner places every buffer itself; it does not support a model's offline plan")
    return list(itertools.accumulate((buffer.size for buffer in buffers), initial=0))[:-1]


class LinearMemoryPlanner(PlacingPlanner):
    """Plans with `place_linearly`."""

    STRUCT = LINEAR_MEMORY_PLANNER
    MAXIMUM_BUFFERS = MAXIMUM_BUFFERS
    place = staticmethod(place_linearly)
    preserves_all_tensors = True


class OffsetsPlanner(PlacingPlanner):
    """Puts each buffer where the caller says.

    TFLM does not check such a plan, and counts no bytes of the head for it. Here the head extends to the end of the
    last buffer, so that nothing else can overlap it.

    Args:
        offsets: in bytes, one for each buffer that needs a place: the tensors of every subgraph in turn, without
            constants and variables, then the scratch buffers in the order in which operators request them.
    """

    def __init__(self, offsets: Sequence[int]):
        super().__init__()
        self.offsets = [int(offset) for offset in offsets]
        self.place = self._take

    def _take(self, buffers: Sequence[Buffer]) -> list[int]:
        if len(buffers) != len(self.offsets):
            raise ArenaError(f"the plan has {len(self.offsets)} offsets, the model needs {len(buffers)} buffers")
        return self.offsets


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
