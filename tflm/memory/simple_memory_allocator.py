"""The allocator that splits one arena into head, temp and tail.

    0                                                            size
    | head: planned buffers | temp -> |      free      | <- tail |

The head is resized as a whole, temp allocations above it are released together, and the tail only grows, downwards. The
tail may overlap the end of temp memory that nothing reads any more. Positions are offsets into the arena. An allocation
that fails raises `ArenaExhausted` and changes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from tflm.errors import ArenaError, ArenaExhausted
from tflm.memory.arena import Arena
from tflm.targets import BOOL, INT, POINTER, SIZE_T, Since, Struct, Until, align_down, align_up

SINGLE_ARENA_BUFFER_ALLOCATOR = Struct(
    "SingleArenaBufferAllocator",
    non_persistent_vtable=POINTER,
    persistent_vtable=Since("45022bbbe", POINTER),
    error_reporter=Until("95761fcfd", POINTER),
    buffer_head=POINTER,
    buffer_tail=POINTER,
    head=POINTER,
    tail=POINTER,
    temp=POINTER,
    temp_buffer_ptr_check_sum=Since("ff5c3a610", POINTER),
    temp_buffer_count=Since("ff5c3a610", INT),
)
RECORDING_SINGLE_ARENA_BUFFER_ALLOCATOR = SINGLE_ARENA_BUFFER_ALLOCATOR.extend(
    "RecordingSingleArenaBufferAllocator",
    requested_head_bytes=SIZE_T,
    requested_tail_bytes=SIZE_T,
    used_bytes=SIZE_T,
    alloc_count=SIZE_T,
)
PERSISTENT_ARENA_BUFFER_ALLOCATOR = Struct(
    "PersistentArenaBufferAllocator", vtable=POINTER, buffer_head=POINTER, buffer_tail=POINTER, tail_temp=POINTER
)
NON_PERSISTENT_ARENA_BUFFER_ALLOCATOR = Struct(
    "NonPersistentArenaBufferAllocator",
    vtable=POINTER,
    buffer_head=POINTER,
    buffer_tail=POINTER,
    head_temp=POINTER,
    next_temp=POINTER,
    temp_buffer_ptr_check_sum=POINTER,
    temp_buffer_count=INT,
    resizable_buffer_allocated=Since("60d83223d", BOOL),
)


class Checkpoint(NamedTuple):
    """A state of an allocator that can be restored."""

    head: int
    temp: int
    tail: int
    live_temps: tuple[int, ...]
    log_length: int = 0


class SimpleMemoryAllocator:
    """Head, temp and tail over an arena.

    Attributes:
        arena: the memory.
        head: end of the head, as an offset; the head begins at 0.
        temp: end of the temp allocations, which begin at `head`.
        tail: start of the tail, which ends at the arena's size.
    """

    def __init__(self, arena: Arena):
        self.arena = arena
        self.head = self.temp = 0
        self.tail = arena.size
        self._live_temps: list[int] = []

    def allocate_persistent_buffer(
        self, size: int, alignment: int, what: str = "a persistent buffer", floor: int | None = None
    ) -> int:
        """Allocate `size` bytes of the tail; returns their offset, a multiple of `alignment`.

        Args:
            size, alignment: in bytes.
            what: names them in errors.
            floor: the lowest allowed offset, at least the head's end; the default is temp's end.
        """
        require_size(what, size)
        floor = self._floor(floor)
        start = align_down(self.tail - size, alignment)
        if start < floor:
            raise ArenaExhausted(what, requested=size, available=self.tail - align_up(floor, alignment))
        self.tail = start
        return start

    def _floor(self, floor: int | None) -> int:
        return self.temp if floor is None else max(floor, self.head)

    def allocate_temp(self, size: int, alignment: int, what: str = "a temporary buffer") -> int:
        """Allocate `size` bytes above the head until they are released; returns their offset."""
        start = align_up(self.temp, alignment)
        self._check_fits(what, size, start)
        self.temp = start + size
        self._live_temps.append(start)
        return start

    def deallocate_temp(self, offset: int) -> None:
        """Release one temp allocation. Its bytes are free after `reset_temp_allocations`."""
        if offset not in self._live_temps:
            raise ArenaError(f"no temp allocation at offset {offset} to release")
        self._live_temps.remove(offset)

    def is_all_temp_deallocated(self) -> bool:
        """Whether every temp allocation was released."""
        return not self._live_temps

    def reset_temp_allocations(self) -> None:
        """Free the bytes of all temp allocations, which must have been released."""
        if self._live_temps:
            raise ArenaError(f"{len(self._live_temps)} temp allocations were not released")
        self.temp = self.head

    def allocate_resizable_buffer(self, size: int, alignment: int, what: str = "a resizable buffer") -> int:
        """Make the head one buffer of `size` bytes; returns its offset. There is only one such buffer at a time."""
        self.resize_buffer(0, size, alignment, what)
        return 0

    def resize_buffer(self, offset: int, size: int, alignment: int, what: str = "a resizable buffer") -> None:
        """Change the size of the buffer that is the head."""
        if offset != 0 or self.head != self.temp:
            raise ArenaError("only the head can be resized, and only while there are no temp allocations")
        self._check_fits(what, size, 0)
        self.head = self.temp = size

    def deallocate_resizable_buffer(self, offset: int) -> None:
        """Make the head empty."""
        self.resize_buffer(offset, 0, 1)

    def reserve_non_persistent_overlay_memory(self, size: int, alignment: int, what: str = "the memory plan") -> None:
        """Set the head to `size` bytes, for the buffers that a planner placed in it."""
        self.resize_buffer(0, size, alignment, what)

    def get_available_memory(self, alignment: int) -> int:
        """Bytes between temp and tail, both rounded to `alignment`; below zero when they are that close."""
        return align_down(self.tail, alignment) - align_up(self.temp, alignment)

    def get_non_persistent_used_bytes(self) -> int:
        """Bytes of head and temp."""
        return max(self.head, self.temp)

    def get_persistent_used_bytes(self) -> int:
        """Bytes of the tail."""
        return self.arena.size - self.tail

    def get_used_bytes(self) -> int:
        """Bytes of head, temp and tail."""
        return self.get_non_persistent_used_bytes() + self.get_persistent_used_bytes()

    def checkpoint(self) -> Checkpoint:
        """The state now, for `restore`."""
        return Checkpoint(self.head, self.temp, self.tail, tuple(self._live_temps))

    def restore(self, checkpoint: Checkpoint) -> None:
        """Restore an earlier state, as if nothing had been allocated since."""
        self.head, self.temp, self.tail = checkpoint.head, checkpoint.temp, checkpoint.tail
        self._live_temps = list(checkpoint.live_temps)

    def _check_fits(self, what: str, size: int, start: int) -> None:
        require_size(what, size)
        available = self.tail - start
        if available < size:
            raise ArenaExhausted(what, requested=size, available=available)


def require_size(what: str, size: int) -> None:
    """Raise `ArenaError` for a negative size."""
    if size < 0:
        raise ArenaError(f"{what} can't have {size} bytes; must be 0 or more")


class Allocation(NamedTuple):
    """One recorded call.

    Attributes:
        section: "head", "temp" or "tail".
        what: purpose of the allocation.
        offset, size, alignment: position, size and alignment, in bytes.
        floor: the lowest offset that was allowed; 0 in head and temp.
    """

    section: str
    what: str
    offset: int
    size: int
    alignment: int
    floor: int = 0


class RecordingSimpleMemoryAllocator(SimpleMemoryAllocator):
    """The same allocator, with a log of its allocations.

    Attributes:
        log: every allocation that succeeded, in order.
    """

    def __init__(self, arena: Arena):
        super().__init__(arena)
        self.log: list[Allocation] = []

    def allocate_persistent_buffer(
        self, size: int, alignment: int, what: str = "a persistent buffer", floor: int | None = None
    ) -> int:
        offset = super().allocate_persistent_buffer(size, alignment, what, floor)
        self.log.append(Allocation("tail", what, offset, size, alignment, self._floor(floor)))
        return offset

    def allocate_temp(self, size: int, alignment: int, what: str = "a temporary buffer") -> int:
        offset = super().allocate_temp(size, alignment, what)
        self.log.append(Allocation("temp", what, offset, size, alignment))
        return offset

    def resize_buffer(self, offset: int, size: int, alignment: int, what: str = "a resizable buffer") -> None:
        super().resize_buffer(offset, size, alignment, what)
        self.log.append(Allocation("head", what, offset, size, alignment))

    def checkpoint(self) -> Checkpoint:
        return super().checkpoint()._replace(log_length=len(self.log))

    def restore(self, checkpoint: Checkpoint) -> None:
        super().restore(checkpoint)
        del self.log[checkpoint.log_length :]
