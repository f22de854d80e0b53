"""Allocator, planners and lifetimes: invariants, and TFLM's order of placement."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import tflm
from tflm.memory import (
    PLANNERS,
    Arena,
    BufferRequirements,
    GreedyMemoryPlanner,
    LinearMemoryPlanner,
    RecordingSimpleMemoryAllocator,
    SimpleMemoryAllocator,
    lower_bound_bytes,
)

SIZES = st.integers(0, 200)
ALIGNMENTS = st.sampled_from([1, 2, 4, 8, 16])


class AllocatorMachine(RuleBasedStateMachine):
    """Any order of calls keeps head, temp and tail apart, aligned, and as large as what was asked for."""

    @initialize(size=st.integers(0, 2000))
    def start(self, size: int) -> None:
        self.allocator = RecordingSimpleMemoryAllocator(Arena(bytearray(size)))
        self.size = size
        self.head = 0
        self.temps: list[tuple[int, int]] = []
        self.live_temps: list[int] = []
        self.persistent: list[tuple[int, int]] = []

    def attempt(self, call: Any, *arguments: Any) -> int | None:
        """The offset; None when the arena is exhausted, which must have changed nothing."""
        allocator = self.allocator
        before = allocator.head, allocator.temp, allocator.tail, len(allocator.log)
        try:
            offset = call(*arguments)
        except tflm.ArenaExhausted as error:
            assert error.missing > 0  # noqa: PT017  # it may succeed, too
            assert (allocator.head, allocator.temp, allocator.tail, len(allocator.log)) == before
            return None
        return int(offset or 0)

    @rule(size=SIZES, alignment=ALIGNMENTS)
    def allocate_persistent(self, size: int, alignment: int) -> None:
        free = self.allocator.tail - self.allocator.temp
        offset = self.attempt(self.allocator.allocate_persistent_buffer, size, alignment)
        if offset is None:
            assert size > free - alignment
            return
        assert offset % alignment == 0
        self.persistent.append((offset, size))

    @rule(size=SIZES, alignment=ALIGNMENTS)
    def allocate_temp(self, size: int, alignment: int) -> None:
        free = self.allocator.tail - self.allocator.temp
        offset = self.attempt(self.allocator.allocate_temp, size, alignment)
        if offset is None:
            assert size > free - alignment
            return
        assert offset % alignment == 0
        self.temps.append((offset, size))
        self.live_temps.append(offset)

    @precondition(lambda self: self.live_temps)
    @rule(data=st.data())
    def deallocate_temp(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(self.live_temps))
        self.live_temps.remove(offset)
        self.allocator.deallocate_temp(offset)

    @rule()
    def reset_temps(self) -> None:
        assert self.allocator.is_all_temp_deallocated() == (not self.live_temps)
        if self.live_temps:
            with pytest.raises(tflm.ArenaError, match="not released"):
                self.allocator.reset_temp_allocations()
        else:
            self.allocator.reset_temp_allocations()
            self.temps.clear()

    @rule(size=SIZES, alignment=ALIGNMENTS)
    def resize_head(self, size: int, alignment: int) -> None:
        if self.allocator.temp != self.allocator.head:
            with pytest.raises(tflm.ArenaError, match="no temp allocations"):
                self.allocator.resize_buffer(0, size, alignment)
        elif self.attempt(self.allocator.resize_buffer, 0, size, alignment) is not None:
            self.head = size

    @rule(size=SIZES)
    def fail_and_go_back(self, size: int) -> None:
        allocator = self.allocator
        checkpoint = allocator.checkpoint()
        self.attempt(allocator.allocate_temp, size, 1)
        self.attempt(allocator.allocate_persistent_buffer, size, 1)
        allocator.restore(checkpoint)
        assert allocator.checkpoint() == checkpoint

    @invariant()
    def parts_are_in_order(self) -> None:
        if not hasattr(self, "allocator"):
            return
        assert 0 <= self.allocator.head <= self.allocator.temp <= self.allocator.tail <= self.size

    @invariant()
    def nothing_overlaps(self) -> None:
        if not hasattr(self, "allocator"):
            return
        spans = sorted([(0, self.head), *self.temps, *self.persistent])
        for (offset, size), (following, _) in itertools.pairwise(span for span in spans if span[1]):
            assert offset + size <= following
        assert all(offset + size <= self.size for offset, size in spans)

    @invariant()
    def used_bytes_cover_what_was_asked_for(self) -> None:
        if not hasattr(self, "allocator"):
            return
        asked = sum(size for _, size in self.persistent)
        assert asked <= self.allocator.get_persistent_used_bytes()
        assert self.allocator.get_used_bytes() <= self.size
        assert self.allocator.get_non_persistent_used_bytes() == self.allocator.temp


TestAllocator = AllocatorMachine.TestCase


@pytest.mark.parametrize("size", [96, 97, 104, 111])
@pytest.mark.parametrize("taken", [0, 1, 15, 16, 17])
@pytest.mark.parametrize("below", ["head", "temp"])
def test_what_is_free_begins_and_ends_aligned(size: int, taken: int, below: str) -> None:
    """Where the arena, its head or its temp memory ends between two multiples of 16, the odd bytes are not counted."""
    allocator = SimpleMemoryAllocator(Arena(bytearray(size)))
    if below == "head":
        allocator.allocate_resizable_buffer(taken, 16)
    else:
        allocator.allocate_temp(taken, 1)
    low, high = (taken + 15) // 16 * 16, size // 16 * 16
    assert allocator.get_available_memory(16) == high - low
    checkpoint = allocator.checkpoint()
    assert allocator.allocate_temp(high - low, 16) == low
    assert allocator.get_available_memory(16) == 0
    allocator.restore(checkpoint)
    with pytest.raises(tflm.ArenaExhausted) as error:
        allocator.allocate_persistent_buffer(size - low + 1, 16)
    assert error.value.available == size - low
    assert allocator.allocate_persistent_buffer(size - low, 16) == low
    assert allocator.get_persistent_used_bytes() == size - low


@st.composite
def requirements(draw: Any, largest_count: int = 12, offline: bool = False) -> list[BufferRequirements]:
    """Buffers of sizes that meet often, over few steps."""
    buffers = []
    for _ in range(draw(st.integers(0, largest_count))):
        size = 16 * draw(st.integers(0, 6))
        first, last = sorted(draw(st.tuples(st.integers(-1, 8), st.integers(-1, 8))))
        offset = 16 * draw(st.integers(0, 20)) if offline and draw(st.booleans()) else -1
        buffers.append(BufferRequirements(size, first, last, offset))
    return buffers


def planned(planner: Any, buffers: list[BufferRequirements]) -> list[int]:
    """The offsets that a planner gives."""
    planner.init(1 << 20)
    for buffer in buffers:
        planner.add_buffer(*buffer)
    assert planner.get_buffer_count() == len(buffers)
    return [planner.get_offset_for_buffer(i) for i in range(len(buffers))]


@pytest.mark.parametrize("name", PLANNERS)
@given(data=st.data())
def test_buffers_alive_together_never_overlap(name: str, data: st.DataObject) -> None:
    buffers = data.draw(requirements())
    planner = PLANNERS[name]()
    offsets = planned(planner, buffers)
    for (a, offset_a), (b, offset_b) in itertools.combinations(zip(buffers, offsets), 2):
        if a.size and b.size and (a.overlaps_in_time(b) or planner.preserves_all_tensors):
            assert offset_a + a.size <= offset_b or offset_b + b.size <= offset_a
    size = planner.get_maximum_memory_size()
    assert size == max((offset + buffer.size for buffer, offset in zip(buffers, offsets)), default=0)
    assert lower_bound_bytes(buffers) <= size <= sum(buffer.size for buffer in buffers)


@given(requirements())
def test_the_lower_bound_is_the_largest_sum_alive_at_a_step(buffers: list[BufferRequirements]) -> None:
    steps = range(-1, 9)
    alive = [sum(b.size for b in buffers if b.first_time_used <= step <= b.last_time_used) for step in steps]
    assert lower_bound_bytes(buffers) == max(alive)


def place_like_tflm(buffers: list[BufferRequirements]) -> list[int]:
    """TFLM's greedy placement in words, byte by byte: the first of all offsets at which a buffer is in nobody's way.

    Fixed offsets first. Then by size, the larger first; of equal ones, the one that was added last.
    """
    offsets = [buffer.offline_offset for buffer in buffers]
    order = sorted(
        (i for i, buffer in enumerate(buffers) if buffer.offline_offset == -1),
        key=lambda i: (buffers[i].size, i),
        reverse=True,
    )
    placed = [i for i, buffer in enumerate(buffers) if buffer.offline_offset != -1]
    for i in order:
        size = buffers[i].size
        others = [(offsets[j], buffers[j].size) for j in placed if buffers[j].overlaps_in_time(buffers[i])]
        offsets[i] = next(
            at
            for at in itertools.count()
            if all(at + size <= offset or at >= offset + other for offset, other in others)
        )
        placed.append(i)
    return offsets


@given(requirements(offline=False))
def test_greedy_places_in_the_order_of_tflm(buffers: list[BufferRequirements]) -> None:
    buffers = [buffer for buffer in buffers if buffer.size]
    assert planned(GreedyMemoryPlanner(), buffers) == place_like_tflm(buffers)


@given(requirements(offline=True))
def test_greedy_keeps_offline_offsets_and_plans_around_them(buffers: list[BufferRequirements]) -> None:
    buffers = [buffer for buffer in buffers if buffer.size]
    offsets = planned(GreedyMemoryPlanner(), buffers)
    for i, buffer in enumerate(buffers):
        if buffer.offline_offset != -1:
            assert offsets[i] == buffer.offline_offset
            continue
        for j, other in enumerate(buffers):
            if i != j and buffer.overlaps_in_time(other):
                assert offsets[i] + buffer.size <= offsets[j] or offsets[j] + other.size <= offsets[i]


@given(requirements())
def test_linear_places_one_behind_the_other(buffers: list[BufferRequirements]) -> None:
    sizes = [buffer.size for buffer in buffers]
    assert planned(LinearMemoryPlanner(), buffers) == [sum(sizes[:i]) for i in range(len(sizes))]


def test_linear_refuses_an_offline_plan_and_more_buffers_than_its_table_holds() -> None:
    planner = LinearMemoryPlanner()
    planner.add_buffer(16, 0, 0, 32)
    with pytest.raises(tflm.ArenaError, match="offline plan"):
        planner.get_offset_for_buffer(0)
    planner.init(1 << 20)
    for _ in range(1024):
        planner.add_buffer(16, 0, 0)
    with pytest.raises(tflm.ArenaError, match="1024 buffers"):
        planner.add_buffer(16, 0, 0)


def test_greedy_needs_40_bytes_of_working_space_for_each_buffer() -> None:
    planner = GreedyMemoryPlanner()
    planner.init(119)
    planner.add_buffer(16, 0, 0)
    planner.add_buffer(16, 0, 0)
    with pytest.raises(tflm.ArenaExhausted) as error:
        planner.add_buffer(16, 0, 0)
    assert (error.value.requested, error.value.available) == (120, 119)


def test_a_planner_knows_only_the_buffers_it_was_told_of() -> None:
    planner = GreedyMemoryPlanner()
    assert planner.get_maximum_memory_size() == 0
    with pytest.raises(tflm.ArenaError, match="out of range"):
        planner.get_offset_for_buffer(0)


@given(st.integers(0, 64), st.sampled_from(["u1", "<i2", "<f4", "<i8"]))
def test_a_view_of_the_arena_is_the_callers_memory(offset: int, dtype: str) -> None:
    buffer = bytearray(128)
    view = Arena(buffer).view(offset, dtype, (2, 3))
    view[...] = np.arange(6).reshape(2, 3)
    assert buffer[offset : offset + view.nbytes] == view.tobytes()
    assert sum(buffer[:offset]) == 0
