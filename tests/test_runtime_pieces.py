"""Pieces of the runtime on their own: bytes that are covered, labels of memory, partitions, variables, reports."""

from __future__ import annotations

import contextlib
import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from image_graphs import shrinking_network

import tflm
from tflm.libraries import by_name
from tflm.memory import ARENA_ALIGNMENT, Buffer
from tflm.memory.arena import Arena
from tflm.memory.buffer import Place
from tflm.memory.byte_labels import Label, LabelledBytes
from tflm.memory.lifetimes import InvocationStep
from tflm.memory.simple_memory_allocator import Allocation
from tflm.runtime.growing_arena import in_growing_arena
from tflm.runtime.host_placement import _colliding, _kernel_reads
from tflm.runtime.micro_allocator import PLANNER_WORKING_SPACE
from tflm.runtime.micro_context import MicroContext
from tflm.runtime.micro_measurement import (
    _alive_at,
    _alive_bytes,
    _minimum_arena_bytes,
    _peak,
    alive_at_each_step,
    arena_with,
    covered_bytes,
    measure_separate_arenas,
)
from tflm.runtime.micro_measurement_report import ArenaMeasurement
from tflm.runtime.micro_profiler import Event, MicroProfiler
from tflm.runtime.model_report import _zero_point, model_figures
from tflm.schema import BuiltinOperator, TensorType


def buffer(offset: int, size: int, first: int = 0, last: int = 0) -> Buffer:
    return Buffer(size, first, last, offset)


def test_bytes_that_buffers_share_are_covered_once() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        places = [(int(offset) * 8, int(size)) for offset, size in rng.integers(0, 30, (5, 2))]
        for alignment in (1, 16):
            covered: set[int] = set()
            for offset, size in places:
                covered.update(range(offset, offset + -(-size // alignment) * alignment))
            assert covered_bytes([buffer(*of) for of in places], alignment) == len(covered)


@pytest.mark.parametrize(
    ("lives", "reads", "shown", "displaced"),
    [
        ([(0, 1), (2, 3)], [[], [0], [], [1]], [], []),
        ([(0, 2), (2, 3)], [[], [0], [0], [1]], [], []),  # in place
        ([(0, 2), (2, 3)], [[], [0], [], [1]], [], [1]),
        ([(0, 2), (2, 3)], [[], [0], [], [1]], [1], [0]),
        ([(0, 3), (2, 3)], [[], [0], [0], [1]], [0, 1], [1]),
        ([(-1, -1), (0, 3)], [[], [1], [1], [1]], [], []),  # nobody uses the first
    ],
)
def test_of_two_buffers_that_are_alive_together_the_one_that_nobody_sees_moves(
    lives: list[tuple[int, int]], reads: list[list[int]], shown: list[int], displaced: list[int]
) -> None:
    for offset in (0, 15, 16):
        needed = [Buffer(16, *life, at, tensor=i) for i, (life, at) in enumerate(zip(lives, (0, offset)))]
        found = _colliding(needed, [frozenset(each) for each in reads], shown)
        assert found == (displaced if offset < 16 else [])


@pytest.mark.parametrize(
    ("step", "read"),
    [((0, None), set()), ((0, 0), {0, 2}), ((0, 1), set()), ((1, 0), {11, 13}), ((1, 1), {14})],
)
def test_kernels_read_their_inputs_and_delegates_none_in_place(step: tuple[int, int | None], read: set[int]) -> None:
    """In the second subgraph, numbers go on; omitted inputs do not count."""

    def unit(*inputs: int, is_delegated: bool = False) -> Any:
        return SimpleNamespace(inputs=inputs, is_delegated=is_delegated)

    units = [[unit(0, -1, 2), unit(1, is_delegated=True)], [unit(1, 3, -1), unit(4)]]
    assert _kernel_reads(units, [0, 10], InvocationStep(*step)) == read


def test_another_library_is_measured_with_the_same_planner() -> None:
    model, target = shrinking_network(8), tflm.targets.by_name("cortex-m4")
    library = by_name("cmsis-nn")
    found = {name: arena_with(model, target, library, planner=name) for name in ("greedy", "linear")}
    for name, measured in found.items():
        on: dict[str, Any] = {"target": target, "kernels": library, "planner": name}
        assert isinstance(measured, ArenaMeasurement)
        assert measured.head_bytes == tflm.measure_arena(model, tflm.AllOpsResolver(), **on).head_bytes
    assert len({each.head_bytes for each in found.values() if isinstance(each, ArenaMeasurement)}) == 2


def test_buffers_are_alive_from_their_first_to_their_last_use() -> None:
    rng = np.random.default_rng(1)
    steps = 6
    spans = [sorted(int(step) for step in pair) for pair in rng.integers(0, steps, (12, 2))]
    buffers = [buffer(0, i + 1, *span) for i, span in enumerate(spans)]
    sums = _alive_bytes(buffers, steps).tolist()
    for step, alive in alive_at_each_step(buffers, steps):
        expected = [of for of, (first, last) in zip(buffers, spans) if first <= step <= last]
        assert sorted(alive, key=lambda of: of.bytes) == expected == _alive_at(buffers, step)
        assert sums[step] == ARENA_ALIGNMENT * len(expected)


@pytest.mark.parametrize("seed", range(20))
def test_memory_peaks_at_the_first_of_the_steps_with_most_bytes(seed: int) -> None:
    """Of buffers that share bytes, are used at no step, or only where the inputs are filled."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 6))
    spans = [(-1, -1), (0, 0), *(sorted(pair) for pair in rng.integers(0, count, (6, 2)).tolist())]
    planned = [buffer(16 * int(rng.integers(8)), int(rng.integers(1, 40)), *span) for span in spans]
    steps = [InvocationStep(0, None), *(InvocationStep(i % 2, i) for i in range(count - 1))]
    nodes = [(SimpleNamespace(operator=f"OPERATOR_{i}"), None) for i in range(count)]
    graph = SimpleNamespace(allocations=[SimpleNamespace(nodes=nodes)] * 2)
    covered = [
        {
            byte
            for of in planned
            if of.first_use <= step <= of.last_use
            for byte in range(of.offset, of.offset + of.size)
        }
        for step in range(count)
    ]
    bytes_at = [16 * len({byte // 16 for byte in of}) for of in covered]
    layout: Any = SimpleNamespace(planned=planned, steps=steps, graph=graph)
    peak = _peak(layout)
    assert (peak.bytes, peak.step) == (max(bytes_at), bytes_at.index(max(bytes_at)))
    assert (peak.subgraph_index, peak.operator_index) == steps[peak.step]
    assert peak.operator == (f"OPERATOR_{peak.operator_index}" if peak.step else "")
    alive = [of for of in planned if of.first_use <= peak.step <= of.last_use]
    assert peak.buffers == sorted(alive, key=lambda of: of.size, reverse=True)


def test_places_meet_where_they_have_a_byte_in_common() -> None:
    for a, m, b, n in itertools.product(range(5), (0, 1, 3), range(5), (0, 1, 3)):
        meet = bool(set(range(a, a + m)) & set(range(b, b + n)))
        assert Place(a, m).meets(Place(b, n)) == meet


def contents(memory: LabelledBytes, size: int = 12) -> list[tuple[tuple[int, int], ...]]:
    """Return the values of each byte, read at once."""
    found: list[Any] = [None] * size
    for begin, end, label in memory.read(0, size):
        found[begin:end] = [label.values] * (end - begin)
    return found


def test_each_byte_holds_what_was_written_last() -> None:
    rng = np.random.default_rng(2)
    for _ in range(30):
        memory, expected = LabelledBytes(), [()] * 12
        for value in range(6):
            begin, end = (int(of) for of in rng.integers(0, 13, 2))
            kept = memory.copy()
            before = contents(kept)
            memory.write(begin, end, Label(((value, begin),), None, None))
            expected[begin:end] = [((value, begin),)] * max(end - begin, 0)  # type: ignore[list-item]
            assert contents(memory) == expected
            assert contents(kept) == before
            for low, high in itertools.combinations(range(13), 2):
                read = [(at, label.values) for a, b, label in memory.read(low, high) for at in range(a, b)]
                assert read == list(enumerate(expected))[low:high]


def test_two_memories_meet_in_what_both_hold() -> None:
    one, other = LabelledBytes(), LabelledBytes()
    one.write(0, 8, Label(((1, 0), (2, 0)), (0, 1), None))
    other.write(4, 12, Label(((2, 0), (3, 0)), (0, 2), None))
    one.meet(other)
    assert contents(one) == [()] * 4 + [((2, 0),)] * 4 + [()] * 4


def test_an_arena_grows_until_it_is_large_enough() -> None:
    tried: list[int] = []

    def make(arena: Any) -> int:
        tried.append(arena.size)
        if arena.size < 100:
            raise tflm.ArenaExhausted("too small", requested=100, available=arena.size)
        return int(arena.size)

    assert in_growing_arena(make, 2) == 128
    assert tried == [2, 16, 128]


def test_a_tensor_is_reported_as_its_model_has_it() -> None:
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (2, 3), TensorType.INT8, tflm.quantized(0.5, 7))
    c = main.constant("c", np.ones((3,), np.int8), tflm.quantized(0.25, 0))
    y = main.tensor("y", (2, 3), TensorType.INT8, tflm.quantized(0.5, 7))
    main.operator(BuiltinOperator.ADD, [x, c], [y])
    main.output(y)
    (subgraph,) = model_figures(tflm.Model(builder.build()), "")["subgraphs"]
    found = subgraph["tensors"]
    assert [each["shape"] for each in found] == [[2, 3], [3], [2, 3]]
    assert [each["index"] for each in found] == [0, 1, 2]
    assert [each["file_bytes"] for each in found] == [0, 3, 0]
    assert [(each["scale"], each["zero_point"]) for each in found] == [([0.5], [7]), ([0.25], [0]), ([0.5], [7])]
    assert len({each["role"] for each in found}) == 3


def test_durations_are_added_up_for_each_tag() -> None:
    profiler = MicroProfiler()
    profiler.events = [Event("a", 5, 9), Event("b", 9, 10, (0, 1)), Event("a", 20, 31)]
    assert profiler.total_ns() == 16
    assert list(profiler.ns_per_tag().items()) == [("a", 15), ("b", 1)]
    assert profiler.csv() == '"Event","Tag","Nanoseconds"\n0,a,4\n1,b,1\n2,a,11\n'
    assert profiler.begin_operator("c", (2, 3)) == 3
    assert profiler.events[3].place == (2, 3)
    profiler.end_event(3)
    profiler.end_event(0)
    assert profiler.events[0].end_ns >= profiler.events[3].end_ns >= profiler.events[3].start_ns
    for handle in (-1, 4):
        with pytest.raises(tflm.InterpreterError):
            profiler.end_event(handle)
    profiler.clear_events()
    assert (profiler.total_ns(), profiler.csv()) == (0, '"Event","Tag","Nanoseconds"\n')


@pytest.mark.parametrize(
    ("scales", "zero_points", "shown"),
    [((0.5,), (), ""), ((), (3,), ""), ((0.5,), (3,), "3"), ((0.5, 1.0), (5, -2), "-2..5"), ((0.5, 1.0), (4, 4), "4")],
)
def test_zero_points_are_shown_beside_scales(
    scales: tuple[float, ...], zero_points: tuple[int, ...], shown: str
) -> None:
    assert _zero_point(tflm.schema.QuantizationParameters(scale=scales, zero_point=zero_points)) == shown


@pytest.mark.parametrize("tail", [0, 1, 15, 16, 20, 33])
@pytest.mark.parametrize("planner", [1, 8, 16, 28, 47])
def test_the_planner_works_between_aligned_limits(tail: int, planner: int) -> None:
    log = [Allocation("tail", "tensors", 1 << 10, tail, 1), Allocation("temp", PLANNER_WORKING_SPACE, 16, 512, 16)]
    fitting = (size for size in range(0, 256, 16) if (size - tail) // 16 * 16 >= 16 + planner)
    assert _minimum_arena_bytes(log, (1 << 10) + tail, [planner]) == next(fitting)


def test_decoded_tensors_are_aligned_beside_the_arena() -> None:
    memory = bytearray(24)
    context: Any = SimpleNamespace(
        _require=lambda *state: None, _decompression_bytes=0, _decompression_memory=Arena(memory)
    )
    for number, size in enumerate((5, 9, 8, 1), 1):
        found = MicroContext.allocate_decompression_memory(context, size)
        if found is not None:
            found[:] = number
    assert list(memory) == [1] * 5 + [0] * 11 + [3] * 8


def test_temp_buffers_lie_one_above_the_other_in_what_is_left() -> None:
    allocator = tflm.MicroAllocator(bytearray(4096))
    first, second = allocator.allocate_temp_buffer(100, 16), allocator.allocate_temp_buffer(8, 32)
    assert (first % 16, second % 32) == (0, 0)
    assert first + 100 <= second <= first + 128
    with pytest.raises(tflm.ArenaExhausted, match="a temporary buffer"):
        allocator.allocate_temp_buffer(4096, 16)


@pytest.mark.parametrize("kernels", ["reference", "arduino"])
def test_separate_arenas_have_the_structures_of_the_library(kernels: str) -> None:
    model, resolver, target = shrinking_network(8), tflm.AllOpsResolver(), tflm.targets.by_name("cortex-m4")
    arenas = measure_separate_arenas(model, resolver, target=target, kernels=kernels)
    for less in (0, ARENA_ALIGNMENT):
        head, tail = bytearray(arenas.head_arena_bytes), bytearray(arenas.tail_arena_bytes - less)
        allocator = tflm.MicroAllocator(head, target=target, kernels=kernels, persistent_arena=tail)
        with pytest.raises(tflm.ArenaExhausted) if less else contextlib.nullcontext():
            tflm.MicroInterpreter(model, resolver, allocator).allocate_tensors()


@pytest.mark.parametrize("kernels", ["reference", "arduino"])
def test_the_recording_allocator_has_the_structures_of_the_library(kernels: str) -> None:
    model, resolver, target = shrinking_network(8), tflm.AllOpsResolver(), tflm.targets.by_name("cortex-m4")
    allocators = [
        of(bytearray(1 << 14), target=target, kernels=kernels)
        for of in (tflm.MicroAllocator, tflm.RecordingMicroAllocator)
    ]
    for allocator in allocators:
        tflm.MicroInterpreter(model, resolver, allocator).allocate_tensors()
    plain, recording = allocators
    measured = tflm.measure_arena(model, resolver, target=target, kernels=kernels)
    assert isinstance(recording, tflm.RecordingMicroAllocator)
    assert (measured.tail_bytes, measured.recording_tail_bytes) == (plain.tail_bytes, recording.tail_bytes)
    assert measured.records == recording.records
    assert recording.kernels == plain.kernels
    assert sum(record.used_bytes for record in recording.records.values()) < plain.tail_bytes < recording.tail_bytes


def test_both_allocators_of_separate_arenas_take_room_in_the_persistent_one() -> None:
    """The objects of an allocator for each arena take more than that of one."""
    sizes = [np.zeros(1 << 12, np.uint8) for _ in range(2)]
    target = tflm.targets.by_name("cortex-m4")
    one = tflm.MicroAllocator(sizes[0], target=target)
    two = tflm.MicroAllocator(sizes[0], target=target, persistent_arena=sizes[1])
    assert two.tail_bytes > one.tail_bytes
