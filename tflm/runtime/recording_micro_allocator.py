"""Allocators that log allocations and record the usage of the tail."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tflm.libraries import Kernels
from tflm.memory.simple_memory_allocator import Allocation, RecordingSimpleMemoryAllocator
from tflm.runtime.allocator_structures import Recorded, RecordedAllocation, RecordedAllocationType
from tflm.runtime.micro_allocator import MicroAllocator, Planner
from tflm.targets import HOST, Target


class LoggingMicroAllocator(MicroAllocator):
    """The plain allocator with a log of allocations and their purposes, which takes no arena."""

    MEMORY_ALLOCATOR = RecordingSimpleMemoryAllocator
    _persistent: RecordingSimpleMemoryAllocator
    _non_persistent: RecordingSimpleMemoryAllocator

    def __init__(self, *args: Any, **options: Any):
        self._purposes: list[Recorded] = []
        super().__init__(*args, **options)

    @property
    def log(self) -> list[Allocation]:
        """Every allocation, in order; with a persistent arena, those in it."""
        return self._persistent.log

    @property
    def head_log(self) -> list[Allocation]:
        """Every allocation in the arena of the head, in order; the same, where tail and head share one."""
        return self._non_persistent.log

    def _checkpoint(self) -> Callable[[], None]:
        restore, purposes = super()._checkpoint(), len(self._purposes)

        def restore_all() -> None:
            restore()
            del self._purposes[purposes:]

        return restore_all

    @contextmanager
    def _recorded(self, kind: RecordedAllocationType) -> Iterator[Recorded]:
        recorded = Recorded(kind, len(self.log))
        used = self._persistent.get_persistent_used_bytes()
        yield recorded
        recorded.end = len(self.log)
        recorded.used_bytes = self._persistent.get_persistent_used_bytes() - used
        self._purposes.append(recorded)


class RecordingMicroAllocator(LoggingMicroAllocator):
    """The same, which also records the usage of the tail. Its own objects, and so its totals, are larger."""

    RECORDING = True

    def __init__(
        self,
        arena: Any,
        planner: Planner = "greedy",
        target: Target | str = HOST,
        *,
        kernels: Kernels = "reference",
        memories: Sequence[Any] = (),
    ):
        super().__init__(arena, planner, target, kernels=kernels, memories=memories)

    @property
    def records(self) -> dict[RecordedAllocationType, RecordedAllocation]:
        """Usage of the tail so far, by category."""
        records = dict.fromkeys(RecordedAllocationType, RecordedAllocation())
        for purpose in self._purposes:
            sizes = [a.size for a in self.log[purpose.begin : purpose.end] if a.section == "tail"]
            total = records[purpose.kind]
            records[purpose.kind] = RecordedAllocation(
                total.requested_bytes + sum(sizes),
                total.used_bytes + purpose.used_bytes,
                total.count + (len(sizes) if purpose.count is None else purpose.count),
            )
        return records

    def repeat(self, other: LoggingMicroAllocator) -> None:
        """Repeat another allocator's allocations in the tail, so that the records include them.

        Args:
            other: an allocator with the same planner, over an arena of the same size.

        Raises:
            ArenaExhausted: the larger objects of this allocator leave too little memory.
        """
        position = len(self.log)  # both start with the same number of own objects
        for purpose in other._purposes:
            self._allocate_again(other.log[position : purpose.begin])
            with self._recorded(purpose.kind) as recorded:
                self._allocate_again(other.log[purpose.begin : purpose.end])
                recorded.count = purpose.count
            position = purpose.end
        self._allocate_again(other.log[position:])

    def _allocate_again(self, allocations: Sequence[Allocation]) -> None:
        for allocation in (a for a in allocations if a.section == "tail"):
            self._persistent.allocate_persistent_buffer(allocation.size, allocation.alignment, allocation.what)
