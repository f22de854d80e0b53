"""TFLM's default planner: the largest buffer first, each in the lowest gap where it fits."""

from __future__ import annotations

from collections.abc import Sequence

from tflm.memory.buffer import Buffer
from tflm.memory.placed_buffers import PlacedBuffers, place_in_order
from tflm.memory.planner import PlacingPlanner
from tflm.targets import BOOL, HOST, INT, POINTER, Struct

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
