"""The planner that places every buffer in separate memory, so that all tensors can be read after an invoke."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tflm.errors import ArenaError
from tflm.memory.buffer import Buffer
from tflm.memory.planner import PlacingPlanner
from tflm.targets import INT, POINTER, SIZE_T, Array, Struct

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
