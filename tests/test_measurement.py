"""Properties of the arena over random models and every target."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from differential import run
from hypothesis import given
from hypothesis import strategies as st

import tflm
from tflm.memory import PLANNERS, BufferRequirements, lower_bound_bytes
from tflm.targets import TARGETS, Target, align_up
from tflm.testing import graphs

targets = st.sampled_from(sorted(TARGETS.values(), key=lambda target: target.name))


def measured(model: bytes, target: Target, checks: str = "all", **options: Any) -> tflm.ArenaMeasurement:
    """The measurement of a model with every operator at hand."""
    return tflm.measure_arena(tflm.Model(model, checks=checks), tflm.AllOpsResolver(), target=target, **options)


def allocated(model: bytes, arena: Any, **options: Any) -> tflm.MicroInterpreter:
    """An interpreter with its tensors allocated."""
    interpreter = tflm.MicroInterpreter(tflm.Model(model), tflm.AllOpsResolver(), arena, **options)
    interpreter.allocate_tensors()
    return interpreter


@given(model=graphs(), target=targets, planner=st.sampled_from(sorted(PLANNERS)))
def test_the_smallest_arena_works_and_one_step_less_does_not(model: bytes, target: Target, planner: str) -> None:
    smallest = measured(model, target, planner=planner).minimum_arena_bytes
    interpreter = allocated(model, bytearray(smallest), target=target, planner=planner)
    interpreter.invoke()
    assert smallest % 16 == 0
    with pytest.raises(tflm.ArenaExhausted):
        allocated(model, bytearray(smallest - 16), target=target, planner=planner)


@given(model=graphs(), target=targets, extra=st.integers(0, 300))
def test_what_was_measured_is_what_the_interpreter_reports(model: bytes, target: Target, extra: int) -> None:
    measurement = measured(model, target)
    interpreter = allocated(model, bytearray(measurement.minimum_arena_bytes + 16 * extra), target=target)
    assert interpreter.arena_used_bytes() == measurement.arena_used_bytes <= measurement.minimum_arena_bytes
    assert interpreter.head_bytes == measurement.head_bytes
    assert interpreter.tail_bytes == measurement.tail_bytes
    assert interpreter.planned_buffers() == measurement.buffers


@given(model=graphs())
def test_the_head_is_the_same_on_every_target(model: bytes) -> None:
    plans = [measured(model, target) for target in TARGETS.values()]
    assert all(plan.buffers == plans[0].buffers for plan in plans)
    assert len({plan.head_bytes for plan in plans}) == 1


@given(model=graphs())
def test_memory_peaks_where_the_lower_bound_is_reached(model: bytes) -> None:
    measurement = measured(model, tflm.targets.HOST)
    peak = measurement.peak
    requirements = [BufferRequirements(align_up(b.bytes, 16), b.first_use, b.last_use) for b in measurement.buffers]
    assert peak.bytes == lower_bound_bytes(requirements) <= measurement.head_bytes
    assert peak.bytes == sum(align_up(buffer.bytes, 16) for buffer in peak.buffers)
    operators = tflm.Model(model).subgraphs[0].operators or []
    if peak.operator_index is None:
        assert (peak.step, peak.operator) == (0, "")
    else:
        assert peak.operator == tflm.Model(model).operator_name(operators[peak.operator_index])
        assert peak.step == peak.operator_index + 1


@given(model=graphs(), steps=st.lists(st.integers(0, 24), min_size=40, max_size=40))
def test_memory_peaks_where_most_is_covered_if_buffers_share_memory(model: bytes, steps: list[int]) -> None:
    count = len(measured(model, tflm.targets.HOST).buffers)
    options = {"planner": [16 * step for step in (steps * count)[:count]]}
    measurement = measured(model, tflm.targets.HOST, "tflm", **options)
    covered = [
        len({byte // 16 for b in alive_at(measurement, step) for byte in range(b.offset, b.offset + b.bytes)})
        for step in range(len(measurement.steps))
    ]
    peak = measurement.peak
    assert peak.bytes == 16 * max(covered)
    assert peak.step == covered.index(max(covered))
    assert peak.buffers == sorted(alive_at(measurement, peak.step), key=lambda buffer: -buffer.bytes)


def alive_at(measurement: tflm.ArenaMeasurement, step: int) -> list[tflm.PlannedBuffer]:
    """The buffers that are alive at a step."""
    return [buffer for buffer in measurement.buffers if buffer.first_use <= step <= buffer.last_use]


@given(model=graphs(), target=targets)
def test_records_are_those_of_the_recording_allocator(model: bytes, target: Target) -> None:
    allocator = tflm.RecordingMicroAllocator(bytearray(1 << 16), target=target)
    allocated(model, allocator, target=target)
    assert measured(model, target).records == allocator.records


class Watcher:
    """A profiler that looks at which bytes of the arena each operator changes."""

    def __init__(self, arena: bytearray):
        self.arena = np.frombuffer(arena, np.uint8)
        self.before = self.arena.copy()
        self.changed: list[np.ndarray[Any, Any]] = []

    def begin_event(self, tag: str) -> int:
        self.before = self.arena.copy()
        return len(self.changed)

    def end_event(self, event_handle: int) -> None:
        self.changed.append(np.flatnonzero(self.arena != self.before))


@given(model=graphs(), target=targets, seed=st.integers(0, 255))
def test_an_operator_writes_nothing_but_its_outputs(model: bytes, target: Target, seed: int) -> None:
    size = measured(model, target).minimum_arena_bytes
    guarded = bytearray(np.random.default_rng(seed).bytes(size + 128))
    outside = bytes(guarded[:64]), bytes(guarded[-64:])
    arena = memoryview(guarded)[64:-64]
    watcher = Watcher(arena)
    interpreter = allocated(model, arena, target=target, profiler=watcher, delegates=())
    interpreter.input(0).data[...] = 1
    interpreter.invoke()
    tensors = interpreter.eval_tensors()
    for operator, changed in zip(tflm.Model(model).subgraphs[0].operators or [], watcher.changed):
        allowed = np.zeros(size, bool)
        for index in operator.outputs or ():
            offset = tensors[index].offset
            assert offset is not None
            allowed[offset : offset + tensors[index].byte_length] = True
        assert allowed[changed].all()
    assert (bytes(guarded[:64]), bytes(guarded[-64:])) == outside


@given(pair=st.tuples(graphs(), graphs()), target=targets)
def test_two_models_in_one_arena_give_what_they_give_alone(pair: tuple[bytes, bytes], target: Target) -> None:
    allocator = tflm.MicroAllocator(bytearray(1 << 16), target=target)
    interpreters = [allocated(model, allocator) for model in pair]
    for model, interpreter in zip(pair, interpreters):
        interpreter.input(0).data[...] = 3
        values = np.array(interpreter.input(0).data)
        interpreter.invoke()
        (alone,) = run(model, [[values]])
        for i, output in enumerate(alone):
            assert np.array_equal(interpreter.output(i).data, output)
    heads = [measured(model, target).head_bytes for model in pair]
    assert allocator.head_bytes == max(heads)


@given(model=graphs(), target=targets)
def test_head_and_tail_may_be_in_separate_arenas(model: bytes, target: Target) -> None:
    head, tail = bytearray(1 << 16), bytearray(b"\x5a" * (1 << 16))
    interpreter = allocated(model, tflm.MicroAllocator(head, target=target, persistent_arena=tail))
    together = measured(model, target)
    assert interpreter.head_bytes == together.head_bytes
    assert interpreter.planned_buffers() == together.buffers
    interpreter.input(0).data[...] = 2
    values = np.array(interpreter.input(0).data)
    interpreter.invoke()
    (expected,) = run(model, [[values]])
    for i, output in enumerate(expected):
        assert np.array_equal(interpreter.output(i).data, output)
    assert set(tail[: len(tail) - interpreter.tail_bytes]) == {0x5A}


@given(model=graphs())
def test_a_plan_given_as_a_list_of_offsets_is_obeyed(model: bytes) -> None:
    plan = measured(model, tflm.targets.HOST)
    offsets = [buffer.offset + 32 for buffer in plan.buffers]
    interpreter = allocated(model, bytearray(1 << 16), planner=offsets)
    assert [buffer.offset for buffer in interpreter.planned_buffers()] == offsets
    assert interpreter.head_bytes == plan.head_bytes + 32
    with pytest.raises(tflm.ArenaError, match=f"has {len(offsets) + 1} offsets, the model needs {len(offsets)}"):
        allocated(model, bytearray(1 << 16), planner=[*offsets, 0])


@given(model=graphs())
def test_with_all_tensors_preserved_each_can_be_looked_at(model: bytes) -> None:
    interpreter = allocated(model, bytearray(1 << 16), preserve_all_tensors=True)
    interpreter.input(0).data[...] = 2
    values = np.array(interpreter.input(0).data)
    interpreter.invoke()
    (expected,) = run(model, [[values]])
    for index, output in zip(tflm.Model(model).subgraphs[0].outputs or (), expected):
        assert np.array_equal(interpreter.get_tensor(index).data, output)
