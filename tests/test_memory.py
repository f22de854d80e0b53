"""Allocator, planners and lifetimes: invariants, and TFLM's order of placement."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tflm
from tflm.memory import (
    Arena,
    Buffer,
    GreedyMemoryPlanner,
    LinearMemoryPlanner,
    SimpleMemoryAllocator,
    lower_bound_bytes,
)
from tflm.memory.tensor import affine_quantization
from tflm.schema.tables import QuantizationParameters, Tensor
from tflm.testing import buffers
from tflm.testing.planner_check import LATE_STEPS


@pytest.mark.parametrize("floor", [0, 31, 32, 48])
def test_the_tail_grows_down_to_its_floor_but_not_into_the_head(floor: int) -> None:
    """Temp bytes above the floor are overwritten."""
    allocator = SimpleMemoryAllocator(Arena(bytearray(96)))
    allocator.allocate_resizable_buffer(32, 16)
    allocator.allocate_temp(40, 1)
    lowest = max(floor, 32)
    with pytest.raises(tflm.ArenaExhausted):
        allocator.allocate_persistent_buffer(96 - lowest + 1, 1, floor=floor)
    assert allocator.allocate_persistent_buffer(96 - lowest, 1, floor=floor) == lowest


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


def small_buffers(fixed: bool = False) -> st.SearchStrategy[list[Buffer]]:
    """Few enough, and small enough, for placement byte by byte."""
    return buffers(max_count=12, fixed=fixed, max_size=96)


def planned(planner: Any, added: list[Buffer]) -> list[int]:
    """The offsets that a planner gives."""
    planner.init(1 << 20)
    for buffer in added:
        planner.add_buffer(*buffer)
    assert planner.get_buffer_count() == len(added)
    return [planner.get_offset_for_buffer(i) for i in range(len(added))]


@given(small_buffers())
def test_the_lower_bound_is_the_largest_sum_alive_at_a_step(added: list[Buffer]) -> None:
    steps = range(-1, LATE_STEPS + 1)
    alive = [sum(b.size for b in added if b.first_time_used <= step <= b.last_time_used) for step in steps]
    assert lower_bound_bytes(added) == max(alive)


def place_like_tflm(added: list[Buffer]) -> list[int]:
    """TFLM's greedy placement in words, byte by byte: the first of all offsets at which a buffer is in nobody's way.

    Fixed offsets first. Then by size, the larger first; of equal ones, the one that was added last.
    """
    offsets = [buffer.offline_offset for buffer in added]
    order = sorted(
        (i for i, buffer in enumerate(added) if buffer.offline_offset == -1),
        key=lambda i: (added[i].size, i),
        reverse=True,
    )
    placed = [i for i, buffer in enumerate(added) if buffer.offline_offset != -1]
    for i in order:
        size = added[i].size
        others = [(offsets[j], added[j].size) for j in placed if added[j].overlaps_in_time(added[i])]
        offsets[i] = next(
            at
            for at in itertools.count()
            if all(at + size <= offset or at >= offset + other for offset, other in others)
        )
        placed.append(i)
    return offsets


@given(small_buffers())
def test_greedy_places_in_the_order_of_tflm(added: list[Buffer]) -> None:
    added = [buffer for buffer in added if buffer.size]
    assert planned(GreedyMemoryPlanner(), added) == place_like_tflm(added)


@given(small_buffers(fixed=True))
def test_greedy_keeps_offline_offsets_and_plans_around_them(added: list[Buffer]) -> None:
    added = [buffer for buffer in added if buffer.size]
    offsets = planned(GreedyMemoryPlanner(), added)
    for i, buffer in enumerate(added):
        if buffer.offline_offset != -1:
            assert offsets[i] == buffer.offline_offset
            continue
        for j, other in enumerate(added):
            if i != j and buffer.overlaps_in_time(other):
                assert offsets[i] + buffer.size <= offsets[j] or offsets[j] + other.size <= offsets[i]


@given(small_buffers())
def test_linear_places_one_behind_the_other(added: list[Buffer]) -> None:
    sizes = [buffer.size for buffer in added]
    assert planned(LinearMemoryPlanner(), added) == [sum(sizes[:i]) for i in range(len(sizes))]


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


@pytest.mark.parametrize(
    ("zero_points", "expected"), [((), None), ((5,), (5, 5, 5)), ((5, 6), (5, 5, 5)), ((5, 6, 7), (5, 6, 7))]
)
def test_zero_points_that_are_not_one_for_each_scale_are_the_first(
    zero_points: tuple[int, ...], expected: tuple[int, ...] | None
) -> None:
    parameters = QuantizationParameters(scale=(0.5, 0.25, 1.0), zero_point=zero_points, quantized_dimension=1)
    found = affine_quantization(Tensor(shape=(2, 3), quantization=parameters))
    assert (found and found.zero_point) == expected
    assert found is None or (found.scale, found.quantized_dimension) == ((0.5, 0.25, 1.0), 1)
