"""Plans of compiled models keep every value when they are run on numbers; the checker finds what a faulty plan
loses."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from image_graphs import Images, image_graph
from models import INT8, counter
from outcomes import count
from reference_kernels import ReferenceKernels, plan
from sampling import drawn

import tflm
from tflm.c import source
from tflm.c.binding import StateAndScratch, bind_model
from tflm.c.kernel_needs import BoundKernels, small_kernel
from tflm.c.row_binding import bind_lean, bind_small
from tflm.kernels import REGISTRATIONS
from tflm.kernels.layers.geometry import windows
from tflm.kernels.overlap import FAR, NOWHERE, OperatorFacts
from tflm.libraries.kernel_library import reference_overlap
from tflm.planning.views import Piece
from tflm.rewriting.verification import random_inputs
from tflm.runtime.growing_arena import ready_interpreter
from tflm.schedule.call_checker import values_lost_in_calls
from tflm.schedule.calls import BufferRegion, Call, CallNeeds, MovedRows, Plan, RamBuffer, ShapedCall
from tflm.schedule.line_buffers import (
    BlockedStage,
    Blocking,
    LineBuffer,
    LineBufferCosts,
    RowOperator,
    distances,
    row_blocks,
    row_operators,
    shared_bytes,
)
from tflm.schedule.lowering import Lowering, RamRequirements
from tflm.schedule.plan import late_reads
from tflm.schedule.rows import Rows
from tflm.schedule.schedule import Schedule, distributed
from tflm.schema import (
    AddOptions,
    BuiltinOperator,
    CallOnceOptions,
    ModelBuilder,
    StridedSliceOptions,
    TensorType,
    VarHandleOptions,
    quantized,
)
from tflm.testing import graphs

FEWER, FEWEST = (settings(max_examples=max(settings().max_examples // share, 1)) for share in (3, 8))

Bytes = npt.NDArray[np.uint8]


class CautiousKernels(ReferenceKernels):
    """Kernels whose outputs may share no byte with inputs, and which need scratch."""

    def __init__(self, model: tflm.Model, scratch: tuple[int, ...] = (24,)):
        super().__init__(model)
        self._scratch = scratch

    def needs(self, call: ShapedCall) -> CallNeeds:
        """The same for all calls."""
        return CallNeeds(self._scratch, (NOWHERE,) * len(call.facts.inputs))


def kernels_of(model: tflm.Model, cautious: bool) -> ReferenceKernels:
    return CautiousKernels(model) if cautious else ReferenceKernels(model)


class Emulation:
    """Runs the calls of a plan on the numbers of one invoke.

    A call finds right rows in its windows, and then writes right rows of its output; else it writes wrong ones.
    """

    def __init__(self, model: tflm.Model, planned: Plan):
        self._planned = planned
        self._operators = model.subgraphs[0].operators or []
        interpreter = ready_interpreter(model, delegates=(), preserve_all_tensors=True)
        rng = np.random.default_rng(1)
        for i, values in enumerate(random_inputs(model, rng)):
            interpreter.input(i).data[...] = values
        given = self._numbers(model, interpreter)
        interpreter.invoke()
        self._right = {**self._numbers(model, interpreter), **{t: given[t] for t in model.subgraphs[0].inputs or ()}}
        self._memory = rng.integers(0, 256, planned.ram_bytes, np.uint8)
        self._ends = tuple(list(side or ()) for side in (model.subgraphs[0].inputs, model.subgraphs[0].outputs))

    @staticmethod
    def _numbers(model: tflm.Model, interpreter: Any) -> dict[int, npt.NDArray[Any]]:
        tables = model.subgraphs[0].tensors or []
        return {t: np.array(interpreter.get_tensor(t).data) for t in range(len(tables)) if tables[t].shape}

    def is_right(self) -> bool:
        """Whether the outputs have the right numbers at the end."""
        for tensor in self._ends[0]:
            self._whole(tensor)[:] = self._bytes(tensor)
        for call in self._planned.calls:
            if isinstance(call, MovedRows):
                buffer = self._buffer(call.buffer)
                buffer[call.target : call.target + call.size] = buffer[call.source : call.source + call.size].copy()
            else:
                self._run(call)
        return all(np.array_equal(self._whole(tensor), self._bytes(tensor)) for tensor in self._ends[1])

    def _run(self, call: Call) -> None:
        operator = self._operators[call.operator]
        inputs, outputs = (
            [(t, w) for t, w in zip(tensors or (), windows) if w is not None]
            for tensors, windows in ((operator.inputs, call.inputs), (operator.outputs, call.outputs))
        )
        right = all(np.array_equal(self._window(t, w), self._rows(t, w)) for t, w in inputs)
        for region in call.scratch:
            self._buffer(region.buffer)[:] = 99
        for tensor, window in outputs:
            self._window(tensor, window)[:] = self._rows(tensor, window) if right else 99

    def _buffer(self, number: int) -> Bytes:
        buffer = self._planned.buffers[number]
        begin = sum(self._planned.memories[: buffer.memory]) + buffer.offset
        return self._memory[begin : begin + buffer.size]

    def _whole(self, tensor: int) -> Bytes:
        places = {key: (number, at) for number, b in enumerate(self._planned.buffers) for key, at in b.tensors}
        number, at = places[0, tensor]
        return self._buffer(number)[at : at + self._right[tensor].nbytes]

    def _bytes(self, tensor: int) -> Bytes:
        return np.frombuffer(self._right[tensor].tobytes(), np.uint8)

    def _rows(self, tensor: int, window: BufferRegion) -> Bytes:
        values = self._right[tensor]
        rows = values[:, window.first_row : window.first_row + window.rows] if values.ndim == 4 else values
        return np.frombuffer(np.ascontiguousarray(rows).tobytes(), np.uint8)

    def _window(self, tensor: int, window: BufferRegion) -> Bytes:
        return self._buffer(window.buffer)[window.offset : window.offset + self._rows(tensor, window).size]


@FEWER
@given(data=image_graph(), cautious=st.booleans())
def test_images_are_where_calls_look_for_them(data: bytes, cautious: bool) -> None:
    model = tflm.Model(data)
    planned = plan(model, kernels_of(model, cautious))
    assert Emulation(model, planned).is_right()
    assert max((b.offset + b.size for b in planned.buffers), default=0) <= planned.ram_bytes


@FEWEST
@given(data=image_graph(), cautious=st.booleans(), shares=st.tuples(st.floats(0.1, 1), st.floats(0.1, 1.5)))
def test_several_memories_hold_what_is_accessed(data: bytes, cautious: bool, shares: tuple[float, float]) -> None:
    model = tflm.Model(data)
    smallest = plan(model, kernels_of(model, cautious)).ram_bytes
    sizes = [int(smallest * share) for share in shares]
    try:
        planned = plan(model, kernels_of(model, cautious), memories=sizes)
    except tflm.CompileError:
        assert max(sizes) < 1.2 * smallest
        return
    assert Emulation(model, planned).is_right()
    assert all(used <= size for used, size in zip(planned.memories, sizes))


def strided_reader() -> tflm.Model:
    """An image whose last row only the model's caller reads: a convolution of stride 2 leaves it out."""
    builder = tflm.ModelBuilder()
    images = Images(builder.subgraph(), (1, 8, 8, 8))
    first = images.convolution(images.last, 8)
    images.convolution(first, 8, (1, 1), (2, 2))
    images.convolution(images.last, 1, (1, 1))
    images.main.output(images.last)
    images.main.output(first)
    return tflm.Model(builder.build())


def test_rows_that_only_the_caller_reads_are_computed() -> None:
    model = strided_reader()
    for grain in (Blocking(1, 1), Blocking(2, 3)):
        search = LineBufferCosts(model, ReferenceKernels(model))
        _, calls = search.calls(BlockedStage(0, 3, grain))
        assert [max(call.rows.end for call in calls if call.place == i) for i in (0, 1, 2)] == [8, 4, 4]
    assert Emulation(model, plan(model)).is_right()


def test_plans_that_lose_values_are_dropped_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    model = strided_reader()
    rejected: list[Plan] = []

    def lost(_: tflm.Model, found: Plan, *__: object) -> Iterator[str]:
        if found not in rejected and len(rejected) < refused:
            rejected.append(found)
        return iter(["a value"] if found in rejected else [])

    refused = 3
    monkeypatch.setattr("tflm.schedule.plan.values_lost_in_calls", lost)
    assert Emulation(model, plan(model)).is_right()
    assert len(rejected) == refused
    refused = 1 << 30
    with pytest.raises(tflm.RewriteError, match="loses a value: a value"):
        plan(model)


@pytest.mark.parametrize("slots", [1, 2, 8])
def test_all_rows_of_a_variable_are_read(slots: int) -> None:
    """The output of a CIRCULAR_BUFFER, for example, has one row for each slot."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    scale = tflm.quantized(0.5)
    x = main.input("x", (1, 1, 1, 4), TensorType.INT8, scale)
    state = main.tensor("state", (1, slots, 1, 4), TensorType.INT8, scale, is_variable=True)
    y = main.tensor("y", (1, slots, 1, 4), TensorType.INT8, scale)
    main.operator("CIRCULAR_BUFFER", [x], [state])
    main.operator(BuiltinOperator.ADD, [state, state], [y])
    main.output(y)
    calls = [call for call in plan(tflm.Model(builder.build())).calls if isinstance(call, Call)]
    assert [region and region.rows for region in calls[-1].inputs] == [slots, slots]


@pytest.mark.parametrize("operator", [name for name, each in REGISTRATIONS.items() if each.ends_invoke])
def test_what_an_invoke_may_end_with_lasts(operator: str) -> None:
    """Even if the tensor is not a variable, so that small tensors could overlap it."""
    builder = ModelBuilder()
    main = builder.subgraph()
    scale = quantized(0.5)
    tensors = [main.input("x", (1, 1, 1, 4), INT8, scale)]
    tensors += [main.tensor(name, (1, 3, 1, 4), INT8, scale) for name in ("state", "sum", "y")]
    main.operator(operator, tensors[:1], tensors[1:2])
    for x, y in itertools.pairwise(tensors[1:]):
        main.operator(BuiltinOperator.ADD, [x, x], [y], AddOptions())
    main.output(tensors[-1])
    model = tflm.Model(builder.build())
    planned = plan(model)
    places = {tensor: buffer for buffer in planned.buffers for (_, tensor), _ in buffer.tensors}
    state = places[tensors[1]]
    others = [buffer for buffer in planned.buffers if buffer is not state]
    assert all(b.offset + b.size <= state.offset or b.offset >= state.offset + state.size for b in others)
    over = planned.buffers.index(places[tensors[3]])
    buffers = (
        *planned.buffers[:over],
        planned.buffers[over]._replace(offset=state.offset),
        *planned.buffers[over + 1 :],
    )
    assert list(values_lost_in_calls(model, planned._replace(buffers=buffers), ReferenceKernels(model)))


@FEWER
@given(data=graphs(), cautious=st.booleans())
def test_tensors_of_any_graph_are_where_calls_look_for_them(data: bytes, cautious: bool) -> None:
    model = tflm.Model(data)
    planned = plan(model, kernels_of(model, cautious), requirements=RamRequirements({"history": 20}))
    variables = {i for i, table in enumerate(model.subgraphs[0].tensors or ()) if table.is_variable}
    if not variables:
        assert Emulation(model, planned).is_right()
    (history,) = [buffer for buffer in planned.buffers if buffer.name == "history"]
    lasting = [history, *(b for b in planned.buffers for (_, tensor), _ in b.tensors if tensor in variables)]
    for one in lasting:
        ends = {
            other.offset + other.size <= one.offset or other.offset >= one.offset + one.size
            for other in planned.buffers
            if other is not one
        }
        assert ends <= {True}


@pytest.mark.runs(0.3)
@FEWER
@given(data=image_graph(), cautious=st.booleans(), choose=st.data())
def test_the_checker_finds_what_a_fault_loses(data: bytes, cautious: bool, choose: st.DataObject) -> None:
    model = tflm.Model(data)
    kernels = kernels_of(model, cautious)
    faulty = choose.draw(st.sampled_from(FAULTS))(plan(model, kernels), choose)
    if count(not Emulation(model, faulty).is_right()):
        assert list(values_lost_in_calls(model, faulty, kernels))


def copies() -> tuple[tflm.Model, dict[int, int]]:
    """Rows that are padded, left out, turned around and joined, before and after a convolution."""
    images = Images(ModelBuilder().subgraph(), (1, 12, 6, 2))
    main, scale = images.main, quantized(0.05, -3)
    kept = images.cropped(images.pad(images.last, (2, 1), (0, 1)), 1, 12)
    both = images.beside(images.convolution(kept, 2), kept)
    turned = main.tensor("turned", (1, 6, 7, 4), INT8, scale)
    places = [main.constant("place", np.array(of, np.int32)) for of in ((0, 11, 0, 0), (1, -13, 7, 4), (1, -2, 1, 1))]
    main.operator(BuiltinOperator.STRIDED_SLICE, [both, *places], [turned], StridedSliceOptions())
    images.shapes[turned] = (1, 6, 7, 4)
    main.output(images.convolution(turned, 3, (1, 1)))
    return tflm.Model(main.builder.build()), {}


def rows_at_a_time() -> tuple[tflm.Model, dict[int, int]]:
    """Convolutions of an image that grows and shrinks."""
    images = Images(ModelBuilder().subgraph(), (1, 14, 14, 1))
    images.convolution(images.last, 8, (1, 1))
    images.convolution(images.last, 4, (3, 2), (2, 1))
    images.main.output(images.convolution(images.last, 1, (2, 2)))
    return tflm.Model(images.main.builder.build()), {}


def delayed() -> tuple[tflm.Model, dict[int, int]]:
    """The sum of an image and of the image before."""
    images = Images(ModelBuilder().subgraph(), (1, 4, 4, 2))
    before = images.main.tensor("before", (1, 4, 4, 2), INT8, quantized(0.05, -3), is_variable=True)
    kept = images.element_wise(images.last)
    images.shapes[before] = images.shapes[kept]
    images.main.output(images.add(kept, before))
    return tflm.Model(images.main.builder.build()), {before: kept}


def with_call(planned: Plan, place: int, **changes: Any) -> Plan:
    calls = list(planned.calls)
    calls[place] = calls[place]._replace(**changes)
    return planned._replace(calls=tuple(calls))


def with_buffer(planned: Plan, number: int, offset: int) -> Plan:
    buffers = list(planned.buffers)
    buffers[number] = buffers[number]._replace(offset=offset)
    return planned._replace(buffers=tuple(buffers))


def computing(model: tflm.Model, planned: Plan) -> Iterator[tuple[int, Call]]:
    """The calls of operators that do more than copy, whose scratch is used, with their places."""
    operators = model.subgraphs[0].operators or []
    for place, call in enumerate(planned.calls):
        if isinstance(call, Call) and REGISTRATIONS[model.operator_name(operators[call.operator])].moves is None:
            yield place, call


def regions_changed(model: tflm.Model, planned: Plan) -> Iterator[tuple[Plan, str]]:
    """Plans with a call that lacks rows of an input, an input, a scratch buffer, or the place of its output."""
    for place, call in enumerate(planned.calls):
        if not isinstance(call, Call):
            continue
        for i, region in enumerate(call.inputs):
            if region is None:
                continue
            others: list[tuple[str, BufferRegion | None]] = [("has no region", None)]
            if region.rows > 1:
                fewer = region._replace(rows=region.rows - 1)
                others += [("has no rows", each) for each in (fewer, fewer._replace(first_row=region.first_row + 1))]
            for problem, other in others:
                yield with_call(planned, place, inputs=(*call.inputs[:i], other, *call.inputs[i + 1 :])), problem
        for i, region in enumerate(call.outputs):
            if region is not None and call.rows is not None:
                moved = region._replace(first_row=region.first_row + 1)
                yield (
                    with_call(planned, place, outputs=(*call.outputs[:i], moved, *call.outputs[i + 1 :])),
                    "writes rows",
                )
    for place, call in computing(model, planned):
        if call.scratch:
            yield with_call(planned, place, scratch=call.scratch[1:]), "bytes of scratch, but needs"


def buffers_moved(model: tflm.Model, planned: Plan, is_cautious: bool) -> Iterator[tuple[Plan, str]]:
    """Plans with a buffer outside of its memory, or what lasts between invokes over something else."""
    for number, buffer in enumerate(planned.buffers):
        for offset in (-1, planned.memories[buffer.memory] - buffer.size + 1):
            yield with_buffer(planned, number, offset), "exceeds its memory"
        if buffer.name == "history":
            for other in planned.buffers:
                if other is not buffer:
                    yield with_buffer(planned, number, other.offset), "history is overwritten"
    for _, call in computing(model, planned):
        read, written = (next(filter(None, regions)) for regions in (call.inputs, call.outputs))
        if read.buffer != written.buffer and is_cautious:
            yield with_buffer(planned, written.buffer, planned.buffers[read.buffer].offset), "writes its output over"
        for scratch in call.scratch:
            for region, problem in ((read, "writes scratch over"), (written, "writes two outputs or scratch")):
                yield with_buffer(planned, scratch.buffer, planned.buffers[region.buffer].offset), problem


@pytest.mark.parametrize("cautious", [False, True])
@pytest.mark.parametrize("made", [copies, rows_at_a_time, delayed])
def test_the_checker_needs_every_part_of_a_plan(
    made: Callable[[], tuple[tflm.Model, dict[int, int]]], cautious: bool
) -> None:
    model, states = made()
    kernels = kernels_of(model, cautious)
    planned = plan(model, kernels, requirements=RamRequirements({"history": 20}, states=states))

    assert (planned.stages != ()) == (made is not delayed)

    def problems(faulty: Plan) -> Iterator[str]:
        return values_lost_in_calls(model, faulty, kernels, states)

    assert list(problems(planned)) == []
    for place in range(len(planned.calls)):
        assert any(problems(planned._replace(calls=planned.calls[:place] + planned.calls[place + 1 :])))
    faults = (*regions_changed(model, planned), *buffers_moved(model, planned, cautious))
    for faulty, expected in faults:
        assert any(expected in problem for problem in problems(faulty)), expected


@pytest.mark.parametrize("taps", [(1, 3), (2, 1), (4, 3)])
@pytest.mark.parametrize(
    ("strides", "dilations"), [((1, 1), (1, 1)), ((1, 2), (1, 1)), ((2, 1), (1, 1)), ((1, 1), (1, 2)), ((1, 1), (2, 1))]
)
def test_the_checker_knows_which_rows_a_window_reads(
    taps: tuple[int, int], strides: tuple[int, int], dilations: tuple[int, int]
) -> None:
    images = Images(ModelBuilder().subgraph(), (1, 24, 24, 1))
    images.convolution(images.last, 8, (1, 1))
    images.convolution(images.last, 1, taps, strides, dilations)
    images.main.output(images.last)
    model = tflm.Model(images.main.builder.build())
    kernels = ReferenceKernels(model)
    planned = plan(model, kernels)
    places = [i for i, call in enumerate(planned.calls) if isinstance(call, Call) and call.operator == 1]
    assert len(places) > 1
    assert not list(values_lost_in_calls(model, planned, kernels))
    for place, above in ((places[0], 1), (places[len(places) // 2], 0), (places[-dilations[0]], 0)):
        call = planned.calls[place]
        assert isinstance(call, Call)
        region, calls = call.inputs[0], list(planned.calls)
        assert region is not None
        fewer = region._replace(first_row=region.first_row + above, rows=region.rows - 1)
        calls[place] = call._replace(inputs=(fewer, *call.inputs[1:]))
        assert list(values_lost_in_calls(model, planned._replace(calls=tuple(calls)), kernels))


def moved(planned: Plan, choose: st.DataObject) -> Plan:
    """A plan with a buffer elsewhere."""
    number = choose.draw(st.integers(0, len(planned.buffers) - 1))
    buffer = planned.buffers[number]
    offset = choose.draw(st.integers(0, max(planned.ram_bytes - buffer.size, 0)))
    buffers = list(planned.buffers)
    buffers[number] = buffer._replace(offset=offset)
    return planned._replace(buffers=tuple(buffers))


def swapped(planned: Plan, choose: st.DataObject) -> Plan:
    """A plan with two calls in each other's place."""
    places = st.integers(0, len(planned.calls) - 1)
    one, other = choose.draw(places), choose.draw(places)
    calls = list(planned.calls)
    calls[one], calls[other] = calls[other], calls[one]
    return planned._replace(calls=tuple(calls))


def left_out(planned: Plan, choose: st.DataObject) -> Plan:
    """A plan without one of its calls."""
    number = choose.draw(st.integers(0, len(planned.calls) - 1))
    return planned._replace(calls=planned.calls[:number] + planned.calls[number + 1 :])


FAULTS = (moved, swapped, left_out)


@FEWEST
@given(data=image_graph(), share=st.floats(0.5, 3))
def test_a_plan_fits_where_the_smallest_does(data: bytes, share: float) -> None:
    model = tflm.Model(data)
    smallest = plan(model)
    ram = int(smallest.ram_bytes * share)
    found = plan(model, ram_bytes=ram)
    assert found.ram_bytes <= max(ram, smallest.ram_bytes)


@FEWER
@given(data=image_graph())
def test_no_row_is_computed_twice(data: bytes) -> None:
    made = set[tuple[int, int]]()
    for call in plan(tflm.Model(data)).calls:
        if isinstance(call, Call):
            (window,) = [window for window in call.outputs if window is not None]
            assert call.rows is None or call.rows == Rows(window.first_row, window.first_row + window.rows)
            rows = {(call.operator, window.first_row + row) for row in range(window.rows)}
            assert made.isdisjoint(rows)
            made |= rows


@given(st.integers(1, 20), st.integers(1, 20), st.integers(-9, 9), st.booleans())
def test_shared_bytes_are_those_of_the_nearest_distance(written: int, dying: int, near: int, ascending: bool) -> None:
    allowed = range(near, 60) if ascending else range(-60, near + 1)
    spans = [max(dying, -distance + written) - min(0, -distance) for distance in allowed]
    assert shared_bytes(written, dying, allowed) == max(written + dying - min(spans), 0)
    assert shared_bytes(written, dying, NOWHERE) == 0


@given(data=image_graph(), grain=st.integers(1, 4), backwards=st.booleans())
def test_rows_in_place_are_not_written_over_rows_still_to_be_read(data: bytes, grain: int, backwards: bool) -> None:
    model = tflm.Model(data)
    for operator in row_operators(model, ReferenceKernels(model)):
        if operator is None or len(operator.inputs) != 1:
            continue
        (facts,) = [operator.facts.inputs[place] for place in operator.inputs]
        assert facts is not None
        row = facts.bytes // facts.dims[1]
        blocks = row_blocks(operator.rows, grain, backwards=backwards)
        allowed = distances(operator, grain, backwards=backwards)
        nearest, step = (allowed[-1], 1) if backwards else (allowed[0], -1)
        assert is_safe(operator, blocks, row, nearest)
        assert not is_safe(operator, blocks, row, nearest + step)


def is_safe(operator: RowOperator, blocks: list[Rows], row_bytes: int, distance: int) -> bool:
    """Whether no block overwrites rows that it or a later one reads, with the input at this distance after the
    output."""
    still = set[int]()
    for rows in blocks[::-1]:
        read = operator.needed(rows)
        still.update(range(distance + read.first * row_bytes, distance + read.end * row_bytes))
        if not still.isdisjoint(range(rows.first * operator.row_bytes, rows.end * operator.row_bytes)):
            return False
    return True


def test_a_window_rolls_when_it_is_full() -> None:
    window = LineBuffer(0, row_bytes=10, capacity=3)
    assert window.make_room(Rows(0, 2), 0) == []
    assert window.region(Rows(0, 2)) == BufferRegion(0, 0, 20, 0, 2)
    assert window.make_room(Rows(2, 3), 1) == []
    assert window.make_room(Rows(3, 4), 1) == [MovedRows(0, 10, 0, 20)]
    assert window.region(Rows(1, 4)) == BufferRegion(0, 0, 30, 1, 3)
    assert window.make_room(Rows(4, 7), 4) == []
    assert window.region(Rows(4, 7)) == BufferRegion(0, 0, 30, 4, 3)


def test_a_value_is_needed_from_when_it_is_written_until_it_is_read() -> None:
    schedule = Schedule([RamBuffer("a", 8), RamBuffer("b", 4)])
    whole, half, other = BufferRegion(0, 0, 8, 0, 1), BufferRegion(0, 4, 4, 0, 1), BufferRegion(1, 0, 4, 0, 1)
    schedule.inputs.append(whole)
    schedule.calls = [
        Call(0, None, (whole,), (other,), (), ((),)),
        MovedRows(0, 4, 0, 4),
        Call(1, None, (other,), (half,), (), ((range(FAR),),)),
    ]
    schedule.outputs.append(half)
    schedule.alive.append((1, 4, 4))
    assert [list(body.pieces) for body in schedule.bodies()] == [
        [Piece(0, 4, 0, 1), Piece(4, 8, 0, 2), Piece(0, 4, 2, 2), Piece(4, 8, 3, 4)],
        [Piece(0, 4, 1, 3), Piece(0, 4, 4, 4)],
    ]
    (trailing,) = schedule.trailing()
    assert (trailing.step, trailing.input.body, trailing.output.body) == (3, 1, 0)


@pytest.mark.parametrize("with_init", [False, True])
def test_called_subgraphs_have_memory_of_their_own(with_init: bool) -> None:
    model = tflm.Model(counter(INT8, 40, with_init))
    planned = plan(model, CautiousKernels(model), requirements=RamRequirements({"state": 40}))
    assert any(buffer.scratch_of == (1, 1) for buffer in planned.buffers) == with_init


@pytest.mark.parametrize(
    ("variables", "order"),
    [
        ([("", "a"), ("", "b")], [0, 1, 4, 2, 5, 6, 3, 7]),
        ([("one", "a"), ("", "a")], [0, 1, 4, 2, 5, 6, 3, 7]),
        ([("", "a"), ("", "a")], [0, 1, 4, 2, 5, 3, 6, 7]),
        ([(None, "a"), ("", "a")], [0, 1, 4, 2, 5, 3, 6, 7]),
        ([("", None), ("", "")], [0, 1, 4, 2, 5, 3, 6, 7]),
    ],
)
def test_variables_are_read_when_they_are_needed(variables: list[tuple[Any, Any]], order: list[int]) -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 8), INT8, quantized(0.5))
    handles = [main.tensor(f"handle {i}", (1,), TensorType.RESOURCE) for i in range(2)]
    read = [main.tensor(f"read {i}", (1, 8), INT8, quantized(0.5)) for i in range(2)]
    positive, one, other = (main.tensor(name, (1, 8), INT8, quantized(0.5)) for name in ("positive", "one", "other"))
    for (container, name), handle in zip(variables, handles):
        main.operator(BuiltinOperator.VAR_HANDLE, [], [handle], VarHandleOptions(container=container, shared_name=name))
    for handle, tensor in zip(handles, read):
        main.operator(BuiltinOperator.READ_VARIABLE, [handle], [tensor])
    main.operator(BuiltinOperator.RELU, [x], [positive])
    main.operator(BuiltinOperator.ADD, [read[0], positive], [one], AddOptions())
    main.operator(BuiltinOperator.ASSIGN_VARIABLE, [handles[0], one], [])
    main.operator(BuiltinOperator.ADD, [read[1], one], [other], AddOptions())
    main.output(other)
    model = tflm.Model(builder.build())
    assert late_reads(model) == order
    calls = plan(model, requirements=RamRequirements({"a": 8})).calls
    assert [call.operator for call in calls if isinstance(call, Call)] == order


def test_a_variable_is_read_before_a_subgraph_that_assigns_it() -> None:
    builder = ModelBuilder()
    main, called = builder.subgraph(), builder.subgraph("called")
    x = main.input("x", (1, 8), INT8, quantized(0.5))
    before, y = (main.tensor(name, (1, 8), INT8, quantized(0.5)) for name in ("before", "y"))
    handles = [graph.tensor("handle", (1,), TensorType.RESOURCE) for graph in (main, called)]
    for graph, handle in zip((main, called), handles):
        graph.operator(BuiltinOperator.VAR_HANDLE, [], [handle], VarHandleOptions(shared_name="a"))
    main.operator(BuiltinOperator.READ_VARIABLE, handles[:1], [before])
    main.operator(BuiltinOperator.CALL_ONCE, [], [], CallOnceOptions(init_subgraph_index=1))
    main.operator(BuiltinOperator.ADD, [before, x], [y], AddOptions())
    main.output(y)
    assigned = called.constant("assigned", np.ones((1, 8), np.int8), quantized(0.5))
    called.operator(BuiltinOperator.ASSIGN_VARIABLE, [handles[1], assigned], [])
    assert late_reads(tflm.Model(builder.build())) == [0, 1, 2, 3]


def test_a_buffer_fills_a_memory_to_its_last_byte() -> None:
    schedule = Schedule([RamBuffer("a", 64), RamBuffer("b", 32)], alive=[(0, 0, 1), (1, 0, 1)])
    locations = distributed(schedule, [64, 32], 16)
    assert locations is not None
    assert [location.memory for location in locations] == [0, 1]
    assert distributed(schedule, [64, 31], 16) is None
    assert distributed(schedule, [63, 32], 16) is None


def test_views_need_no_calls() -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 8), INT8, quantized(0.5))
    wide, y = (main.tensor(name, (2, 4), INT8, quantized(0.5)) for name in ("wide", "y"))
    main.operator(BuiltinOperator.RESHAPE, [x, main.constant("shape", np.array([2, 4], np.int32))], [wide])
    main.operator(BuiltinOperator.RELU, [wide], [y])
    main.output(y)
    planned = plan(tflm.Model(builder.build()))
    assert [call.operator for call in planned.calls if isinstance(call, Call)] == [1]
    assert planned.ram_bytes == 16


LARGEST_RAM = {
    "person_detect": 21600,
    "vww_96_int8": 30400,
    "pretrainedResnet_quant": 25200,
    "kws_ref_model": 9216,
    "micro_speech_quantized": 4224,
    "ad01_int8": 768,
    "hello_world_int8": 48,
    "okay_nabu_v2": 8448,
}
"""Bytes that a search without windows of rows needs, in which bands compute some rows twice."""

VARIABLES = {"okay_nabu_v2": 3472}


@pytest.mark.parametrize("name", LARGEST_RAM)
def test_real_models_run_in_little_ram(corpus: Path, name: str) -> None:
    model = tflm.Model.from_file(corpus / "models" / f"{name}.tflite")
    planned = plan(model, requirements=RamRequirements({"variables": VARIABLES.get(name, 0)}))
    assert planned.ram_bytes <= LARGEST_RAM[name]


@FEWER
@given(data=image_graph(), grain=st.builds(Blocking, st.integers(1, 6), st.integers(1, 6)))
def test_a_stage_needs_the_bytes_that_are_alive_at_once(data: bytes, grain: Blocking) -> None:
    model = tflm.Model(data)
    kernels = CautiousKernels(model, scratch=())
    search = LineBufferCosts(model, kernels)
    for first, end in itertools.combinations(range(len(search.operators) + 1), 2):
        if search.stage(first, end) is None:
            continue
        chosen = BlockedStage(first, end, grain)
        schedule = Lowering(model, kernels, search.operators, (), RamRequirements()).in_stages([search.calls(chosen)])
        steps = [
            step
            for item, step in zip(schedule.calls, schedule.starts())
            if isinstance(item, Call) and first <= item.operator < end
        ]
        pieces = [piece for body in schedule.bodies() for piece in body.pieces]
        alive = max(sum(p.end - p.begin for p in pieces if p.first <= step <= p.last) for step in steps)
        assert search.stage_peak(chosen) >= alive
        if all(reads_all_rows(operator) for operator in search.stage(first, end).operators):
            assert search.stage_peak(chosen) == alive


def reads_all_rows(operator: RowOperator) -> bool:
    """Whether each row of the inputs is read for some row of the output."""
    read = {row for output in range(operator.rows) for row in range(*operator.needed(Rows(output, output + 1)))}
    heights = {facts.dims[1] for place, facts in enumerate(operator.facts.inputs) if facts and place in operator.inputs}
    return heights == {len(read)}


@pytest.mark.parametrize("operator", ["CONV_2D", "DEPTHWISE_CONV_2D"])
def test_kernels_use_the_memory_that_they_declare(operator: str) -> None:
    seen = set()
    for data, _ in drawn(operator, 25):
        try:
            bound = bind_model(tflm.Model(data), bind_small, bind_lean=bind_lean)
        except tflm.TflmError:
            continue
        facts = OperatorFacts.of(bound.model.root, bound.model.subgraphs[0], bound.model.subgraphs[0].operators[0])
        extra = StateAndScratch(bound, source.written)
        needs = BoundKernels(bound, extra, reference_overlap).needs(ShapedCall(0, 0, facts, windows(facts)))
        assert sorted(needs.scratch) == sorted(array.nbytes for array in extra.scratch.get((0, 0), ()))
        small = small_kernel(bound.operators[0][0])
        if small is not None:
            assert needs.overlaps[0] == small.overlap(facts, windows(facts), 0)
        seen.add(bool(needs.scratch))
    assert seen == {False, True}
