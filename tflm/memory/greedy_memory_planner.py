"""TFLM's default planner: the largest buffer first, each in the lowest gap where it fits."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence

from tflm.memory.planner import ONLINE_PLANNED_BUFFER, BufferRequirements, PlacingPlanner
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


def place_greedily(buffers: Sequence[BufferRequirements]) -> list[int]:
    """The offset of each buffer.

    Buffers with an offline offset come first and stay where they are told. The others follow by falling size; of two
    of one size, the one added later comes first. Each goes to the lowest offset where it fits between the buffers
    placed so far that are alive at a common step.
    """
    offline = [i for i, buffer in enumerate(buffers) if buffer.offline_offset != ONLINE_PLANNED_BUFFER]
    online = [i for i, buffer in enumerate(buffers) if buffer.offline_offset == ONLINE_PLANNED_BUFFER]
    online.sort(key=lambda i: (-buffers[i].size, -i))
    offsets = [ONLINE_PLANNED_BUFFER] * len(buffers)
    placed: list[tuple[int, BufferRequirements]] = []  # by rising offset
    for i in offline + online:
        buffer = buffers[i]
        offsets[i] = buffer.offline_offset
        if buffer.offline_offset == ONLINE_PLANNED_BUFFER:
            offsets[i] = _lowest_gap(buffer, placed)
        bisect.insort_right(placed, (offsets[i], buffer), key=lambda entry: entry[0])
    return offsets


def _lowest_gap(wanted: BufferRequirements, placed: Iterable[tuple[int, BufferRequirements]]) -> int:
    candidate = 0
    for offset, buffer in placed:
        if not buffer.overlaps_in_time(wanted):
            continue
        if offset - candidate >= wanted.size:
            break
        candidate = max(candidate, offset + buffer.size)
    return candidate


class GreedyMemoryPlanner(PlacingPlanner):
    """Plans with `place_greedily`."""

    STRUCT = GREEDY_MEMORY_PLANNER
    WORKING_BYTES_PER_BUFFER = TABLE_ROW.size(HOST)
    place = staticmethod(place_greedily)
