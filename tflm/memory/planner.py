"""What a memory planner is: it is told of buffers with their sizes and lifetimes, and says where each goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple, Protocol

from tflm.errors import ArenaError, ArenaExhausted
from tflm.targets import Struct

ONLINE_PLANNED_BUFFER = -1
"""The offline offset of a buffer that the planner is to place."""


class BufferRequirements(NamedTuple):
    """A buffer to be placed.

    Attributes:
        size: bytes.
        first_time_used, last_time_used: the steps between which it is alive, both included.
        offline_offset: where it must be, or `ONLINE_PLANNED_BUFFER`.
    """

    size: int
    first_time_used: int
    last_time_used: int
    offline_offset: int = ONLINE_PLANNED_BUFFER

    def overlaps_in_time(self, other: BufferRequirements) -> bool:
        """Whether there is a step at which both are alive."""
        return self.first_time_used <= other.last_time_used and other.first_time_used <= self.last_time_used


class MemoryPlanner(Protocol):
    """The calls that the allocator makes of a planner, in this order. Any object with these methods will do."""

    @property
    def preserves_all_tensors(self) -> bool:
        """Whether no two buffers ever share memory, so that every tensor can be looked at after an invoke."""

    def init(self, working_bytes: int) -> None:
        """Forget all buffers. `working_bytes` of the arena are free for the planner's own tables on the device."""

    def add_buffer(
        self, size: int, first_time_used: int, last_time_used: int, offline_offset: int = ONLINE_PLANNED_BUFFER
    ) -> None:
        """Tell of a buffer, in bytes and steps; see `BufferRequirements`."""

    def get_maximum_memory_size(self) -> int:
        """Bytes that the plan takes, from offset 0 to the end of the last buffer."""

    def get_buffer_count(self) -> int:
        """How many buffers were added."""

    def get_offset_for_buffer(self, buffer_index: int) -> int:
        """Where the buffer that was added as number `buffer_index` goes."""


class PlacingPlanner(MemoryPlanner):
    """A planner made of one function that places all buffers at once."""

    STRUCT: ClassVar[Struct]
    """What TFLM reserves in the tail for the planner itself."""

    WORKING_BYTES_PER_BUFFER: ClassVar[int] = 0
    """Bytes of the arena that the planner's tables take for each buffer, on every target."""

    MAXIMUM_BUFFERS: ClassVar[int | None] = None
    """Largest number of buffers, where there is one."""

    place: Callable[[Sequence[BufferRequirements]], list[int]]
    preserves_all_tensors = False

    def __init__(self) -> None:
        self._requirements: list[BufferRequirements] = []
        self._offsets: list[int] | None = None
        self._working_bytes: int | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self._requirements)} buffers)"

    def init(self, working_bytes: int) -> None:
        self._requirements, self._offsets, self._working_bytes = [], None, working_bytes

    def add_buffer(
        self, size: int, first_time_used: int, last_time_used: int, offline_offset: int = ONLINE_PLANNED_BUFFER
    ) -> None:
        count = len(self._requirements) + 1
        if self.MAXIMUM_BUFFERS is not None and count > self.MAXIMUM_BUFFERS:
            raise ArenaError(f"{type(self).__name__} takes {self.MAXIMUM_BUFFERS} buffers at the most")
        needed = count * self.WORKING_BYTES_PER_BUFFER
        if self._working_bytes is not None and needed > self._working_bytes:
            raise ArenaExhausted(
                f"the planner's table of {count} buffers", requested=needed, available=self._working_bytes
            )
        self._requirements.append(BufferRequirements(size, first_time_used, last_time_used, offline_offset))
        self._offsets = None

    def get_maximum_memory_size(self) -> int:
        return plan_bytes(self._requirements, self._placed())

    def get_buffer_count(self) -> int:
        return len(self._requirements)

    def get_offset_for_buffer(self, buffer_index: int) -> int:
        if not 0 <= buffer_index < len(self._requirements):
            raise ArenaError(f"buffer index {buffer_index} is out of range, there are {len(self._requirements)}")
        return self._placed()[buffer_index]

    def _placed(self) -> list[int]:
        if self._offsets is None:
            self._offsets = self.place(self._requirements)
        return self._offsets


def plan_bytes(buffers: Sequence[BufferRequirements], offsets: Sequence[int]) -> int:
    """Bytes that a plan takes, from offset 0 to the end of the last buffer."""
    return max((offset + buffer.size for offset, buffer in zip(offsets, buffers)), default=0)


def lower_bound_bytes(buffers: Sequence[BufferRequirements]) -> int:
    """The largest sum of the sizes of buffers that are alive at the same step: no plan can be smaller."""
    changes: dict[int, int] = {}
    for buffer in buffers:
        changes[buffer.first_time_used] = changes.get(buffer.first_time_used, 0) + buffer.size
        changes[buffer.last_time_used + 1] = changes.get(buffer.last_time_used + 1, 0) - buffer.size
    alive = largest = 0
    for step in sorted(changes):
        alive += changes[step]
        largest = max(largest, alive)
    return largest
