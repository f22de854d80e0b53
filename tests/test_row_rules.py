"""Rules for a few rows: an operator with the rows, options and constants of a rule computes what the whole one does."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from differential import assert_close, run
from image_graphs import Images
from models import Arrays
from sampling import drawn

import tflm
from tflm.graph import Graph
from tflm.kernels.layers.geometry import output_size, padding_before
from tflm.rewriting.fold import fold_pads_explicitly
from tflm.rewriting.streaming import time_rules
from tflm.rewriting.streaming.time_rules import TimeRule, Track, time_rule
from tflm.schedule.bands import BATCHES, ROWS, BandStep, band_rule, windows_of
from tflm.schedule.normal_form import see_rows_as_columns
from tflm.schedule.rows import BandOfWindows, Rows, Window, band_of_windows
from tflm.schema import (
    AddOptions,
    BuiltinOperator,
    ConcatenationOptions,
    Conv2DOptions,
    ModelBuilder,
    Padding,
    PadOptions,
    Pool2DOptions,
    ReducerOptions,
    SplitOptions,
    TensorType,
)

SHARED = "ADD", "L2_NORMALIZATION", "MAXIMUM", "PRELU", "SOFTMAX", "SUB"
"""Some operators whose rows follow the rule of element-wise or of row-wise operators."""

OWN = sorted({code.name for code in time_rules.RULES} - {"RESHAPE"})
"""Operators with a rule of their own; a drawn RESHAPE is not the only operator of its model."""

IN_BANDS = "ADD", "AVERAGE_POOL_2D", "CONV_2D", "DEPTHWISE_CONV_2D", "MAX_POOL_2D", "PAD", "PRELU"
"""Operators of which some drawn models can run in bands."""


def graph_of(model: bytes) -> Graph | None:
    """The graph of a model of one operator; None for others."""
    graph = Graph(tflm.Model(model))
    return graph if len(graph.operators) == 1 else None


def time_tracks(graph: Graph) -> Iterator[dict[int, Track]]:
    """Time along each dimension, counted from the last, of all inputs of the operator that are not constant."""
    (operator,) = graph.operators
    varying = [t for t in operator.inputs or () if t >= 0 and not graph.is_constant(t)]
    if not varying or set(varying) != set(graph.inputs):
        return
    for behind in range(1, max(len(graph.shape(tensor)) for tensor in varying) + 1):
        sizes = {graph.shape(tensor)[-behind] if behind <= len(graph.shape(tensor)) else 0 for tensor in varying}
        if len(sizes) == 1 and min(sizes) > 1:
            (size,) = sizes
            for unit in {1, 2} if size % 2 == 0 and size > 2 else {1}:
                yield {t: Track(len(graph.shape(t)) - behind, unit, size // unit) for t in varying}


def part(model: bytes, step: BandStep, tracks: dict[int, Track], out: Track) -> bytes:
    """The model with its operator on the rows of a step."""
    graph = graph_of(model)
    assert graph is not None
    (operator,) = graph.operators
    inputs, outputs = list(operator.inputs or ()), operator.outputs or ()
    sizes = [(inputs[place], tracks[inputs[place]], rows) for place, rows in step.needed.items()]
    for tensor, track, rows in (*sizes, *((output, out, step.made) for output in outputs)):
        shape = list(graph.shape(tensor))
        shape[track.axis] = rows.size * track.unit
        graph.tensors[tensor].shape = tuple(shape)
    for place, values in step.constants.items():
        if place < len(inputs):
            inputs[place] = graph.add_constant("", np.asarray(values))
    graph.operators[:] = [graph.like(operator, inputs, outputs, **step.options)]
    return graph.build()


def cut(values: Any, track: Track, rows: Rows) -> Any:
    """Some rows of an array."""
    return values.take(range(rows.first * track.unit, rows.end * track.unit), track.axis)


def require_same_rows(
    model: bytes, inputs: Arrays, whole: Arrays, step: BandStep, wanted: Rows, tracks: dict[int, Track], out: Track
) -> None:
    """Compare the wanted rows of a step with those of the whole operator."""
    graph = graph_of(model)
    assert graph is not None
    assert step.made.covers(wanted)
    (operator,) = graph.operators
    needed = {(operator.inputs or ())[place]: rows for place, rows in step.needed.items()}
    given = [
        cut(values, tracks[tensor], needed[tensor]) if tensor in needed else values
        for tensor, values in zip(graph.inputs, inputs)
    ]
    (found,) = run(part(model, step, tracks, out), [given], delegates=())
    inside = Rows(wanted.first - step.made.first, wanted.end - step.made.first)
    assert_close([cut(values, out, inside) for values in found], [cut(values, out, wanted) for values in whole])


def some_rows(count: int) -> set[Rows]:
    """The first row, the last one, and those in the middle."""
    return {Rows(0, 1), Rows(count - 1, count), Rows(count // 3, count - count // 3)}


def require_reads(rule: TimeRule, step: BandStep, wanted: Rows) -> None:
    """What the rows depend on is what the step needs, except in bands that compute more rows, or only padding."""
    for place in rule.places:
        read = [each.row for row in range(*wanted) for each in rule.reads(row) if each.place == place]
        rows = [row for row in read if row is not None]
        if rows:
            hull = Rows(min(rows), max(rows) + 1)
            assert step.needed[place].covers(hull)
            assert step.needed[place] == hull or step.made != wanted or len(rows) < len(read)
        if rule.causal is not None and len(rows) == len(read):
            before = [each.row for row in range(rule.track.rows) for each in rule.reads(row)]
            if None not in before:
                assert rule.causal(wanted).needed == step.needed


def bands_of(window: Window, wanted: Rows, read: Rows) -> Iterator[BandOfWindows]:
    """All bands of a window with these rows: what they make lies where the whole operator has it."""
    if not window.pads_columns and read == Rows(max(read.first, 0), min(read.end, window.rows)):
        yield BandOfWindows(read, wanted, Padding.VALID)
    for first, end in itertools.combinations(range(window.rows + 1), 2):
        count = output_size(Padding.SAME, end - first, window.extent, window.stride)
        shift = first - padding_before(count, end - first, window.extent, window.stride) + window.before
        made = Rows(shift // window.stride, shift // window.stride + count)
        sees = first <= max(read.first, 0) and end >= min(read.end, window.rows)
        if shift % window.stride == 0 and sees and made.covers(wanted):
            yield BandOfWindows(Rows(first, end), made, Padding.SAME)


@pytest.mark.parametrize("pads_columns", [False, True])
def test_bands_of_windows_compute_and_read_the_fewest_rows(pads_columns: bool) -> None:
    for rows, extent, stride in itertools.product(range(1, 8), range(1, 5), range(1, 5)):
        count = output_size(Padding.SAME, rows, extent, stride)
        window = Window(rows, extent, stride, padding_before(count, rows, extent, stride), pads_columns)
        for wanted in itertools.starmap(Rows, itertools.combinations(range(count + 1), 2)):
            first = wanted.first * stride - window.before
            possible = bands_of(window, wanted, Rows(first, first + (wanted.size - 1) * stride + extent))
            band = band_of_windows(window, wanted)
            assert (band.made.size, band.needed.size) == min((each.made.size, each.needed.size) for each in possible)


def graphs(name: str, count: int) -> Iterator[tuple[bytes, Arrays, Graph]]:
    """Drawn models of one operator, with inputs."""
    for model, (inputs, *_) in drawn(name, count):
        graph = graph_of(model)
        if graph is not None:
            yield model, inputs, graph


def answers(model: bytes, inputs: Arrays) -> Arrays | None:
    """The outputs; None if the model is refused."""
    try:
        (found,) = run(model, [inputs], delegates=())
    except tflm.OperatorError:
        return None
    return found


@pytest.mark.parametrize(
    ("name", "count"),
    [*((name, 8) for name in SHARED), *((name, 30 if name == "CONCATENATION" else 10) for name in OWN)],
)
def test_rows_along_time_are_those_of_the_whole_operator(name: str, count: int) -> None:
    tried = False
    for model, inputs, graph in graphs(name, count):
        for tracks in time_tracks(graph):
            rule = time_rule(graph, graph.operators[0], tracks)
            whole = None if rule is None else answers(model, inputs)
            if rule is None or whole is None:
                continue
            assert {values.shape[rule.track.axis] for values in whole} == {rule.track.rows * rule.track.unit}
            for wanted in some_rows(rule.track.rows):
                step = rule.step(wanted)
                require_reads(rule, step, wanted)
                require_same_rows(model, inputs, whole, step, wanted, tracks, rule.track)
            tried = True
    assert tried


@pytest.mark.parametrize("name", sorted({*OWN} - {"AVERAGE_POOL_2D", "MAX_POOL_2D"}))
def test_rows_do_not_follow_from_values_that_may_change(name: str) -> None:
    """With a constant as another input, with or without time, an operator has the same rule or none."""
    tried = False
    for _, _, graph in graphs(name, 10):
        (operator,) = graph.operators
        constants = [t for t in operator.inputs or () if t >= 0 and graph.is_constant(t)]
        for tracks, constant in itertools.product(list(time_tracks(graph)), constants):
            known = time_rule(graph, operator, tracks)
            tensor, inputs = graph.tensors[constant], graph.inputs
            buffer, tensor.buffer = tensor.buffer, 0
            graph.set_ends((*inputs, constant), graph.outputs)
            for time in {}, {constant: Track(0, 1, graph.size(constant))}:
                rule = time_rule(graph, operator, {**tracks, **time})
                if rule is not None:
                    assert known is not None
                    rows = range(known.track.rows)
                    assert (rule.track, [*map(rule.reads, rows)]) == (known.track, [*map(known.reads, rows)])
            graph.set_ends(inputs, graph.outputs)
            tensor.buffer = buffer
            tried = True
    assert tried


@pytest.mark.parametrize("name", IN_BANDS)
def test_rows_of_bands_are_those_of_the_whole_operator(name: str) -> None:
    tried = False
    for model, inputs, graph in graphs(name, 100 if name == "PAD" else 24):
        (operator,) = graph.operators
        for axis in (BATCHES, ROWS):
            rule = band_rule(graph, operator, axis)
            whole = None if rule is None else answers(model, inputs)
            if rule is None or whole is None:
                continue
            out = Track(axis, 1, whole[0].shape[axis])
            tracks = {t: Track(axis, 1, graph.shape(t)[axis]) for t in operator.inputs or () if t in graph.inputs}
            for wanted in some_rows(out.rows):
                require_same_rows(model, inputs, whole, rule(wanted), wanted, tracks, out)
            tried = True
    assert tried


@pytest.mark.parametrize(("before", "stride", "dilation"), [(2, 1, 1), (2, 2, 1), (1, 3, 2), (3, 1, 2), (0, 2, 1)])
def test_bands_of_explicit_padding_read_what_the_whole_operator_reads(before: int, stride: int, dilation: int) -> None:
    builder = ModelBuilder()
    images = Images(builder.subgraph(), (1, 9, 1, 4))
    padded = images.pad(images.last, (before, 2), (0, 0))
    steps = {"strides": (stride, 1), "dilations": (dilation, 1)}
    images.main.output(images.convolution(padded, taps=(3, 1), padding=Padding.VALID, **steps))
    graph = Graph(tflm.Model(builder.build()))
    assert fold_pads_explicitly(graph) == 1
    operator = graph.operators[1]
    rule = band_rule(graph, operator, ROWS)
    assert rule is not None

    def read(row: int, above: int, size: int) -> list[int]:
        taps = (row * stride - above + tap * dilation for tap in range(3))
        return [place for place in taps if 0 <= place < size]

    for wanted in some_rows(graph.shape(graph.outputs[0])[ROWS]):
        needed, made, changes, _ = rule(wanted)
        assert made == wanted
        for row in range(wanted.size):
            part = read(row, changes["padding"].rows, needed[0].size)
            assert [needed[0].first + place for place in part] == read(wanted.first + row, before, 9)


def test_columns_in_place_of_rows_have_their_explicit_padding() -> None:
    builder = ModelBuilder()
    images = Images(builder.subgraph(), (1, 4, 1, 4))
    padded = images.pad(images.last, (2, 0), (0, 0))
    images.main.output(images.convolution(padded, taps=(6, 1), padding=Padding.VALID))
    graph = Graph(tflm.Model(builder.build()))
    assert fold_pads_explicitly(graph) == 1
    before = windows_of(graph, graph.operators[1], graph.operators[1].builtin_options)
    see_rows_as_columns(graph)
    after = windows_of(graph, graph.operators[-1], graph.operators[-1].builtin_options)
    assert before is not None
    assert before[0].before == 2
    assert after == before[::-1]


IMAGE, WIDE, ONE_ROW = (1, 6, 4, 3), (1, 6, 4, 6), (1, 1, 4, 3)
PADDED = np.array([(0, 0), (2, 1), (0, 0), (0, 3)], np.int32)
TAPS = np.ones((2, 3, 3, 3), np.int8)
VALID = {"padding": Padding.VALID, "stride_h": 1, "stride_w": 1}
SAME = {"padding": Padding.SAME, "stride_h": 1, "stride_w": 1}
POOL = Pool2DOptions(filter_height=2, filter_width=3, **VALID)
WHOLE, BOTH = {0: Rows(1, 3)}, {0: Rows(1, 3), 1: Rows(1, 3)}

Needed = dict[int, Rows]

BANDS: dict[str, tuple[BuiltinOperator, list[Any], Any, Any, Needed | None]] = {
    "sums": (BuiltinOperator.ADD, [IMAGE, IMAGE], IMAGE, AddOptions(), BOTH),
    "sums with channels": (BuiltinOperator.ADD, [IMAGE, np.ones(3, np.int8)], IMAGE, AddOptions(), WHOLE),
    "sums with columns": (BuiltinOperator.ADD, [np.ones((4, 1), np.int8), IMAGE], IMAGE, AddOptions(), {1: Rows(1, 3)}),
    "sums with one row": (BuiltinOperator.ADD, [IMAGE, np.ones(ONE_ROW, np.int8)], IMAGE, AddOptions(), WHOLE),
    "sums with rows": (BuiltinOperator.ADD, [IMAGE, np.ones(IMAGE, np.int8)], IMAGE, AddOptions(), None),
    "sums with rows of one batch": (
        BuiltinOperator.ADD,
        [IMAGE, np.ones((6, 1, 1), np.int8)],
        IMAGE,
        AddOptions(),
        None,
    ),
    "sums with a row that is computed": (BuiltinOperator.ADD, [IMAGE, ONE_ROW], IMAGE, AddOptions(), None),
    "sums of constants": (BuiltinOperator.ADD, [np.ones(ONE_ROW, np.int8)] * 2, IMAGE, AddOptions(), None),
    "joined channels": (BuiltinOperator.CONCATENATION, [IMAGE, IMAGE], WIDE, ConcatenationOptions(axis=-1), BOTH),
    "joined columns": (BuiltinOperator.CONCATENATION, [IMAGE] * 2, (1, 6, 8, 3), ConcatenationOptions(axis=2), BOTH),
    "joined rows": (BuiltinOperator.CONCATENATION, [IMAGE] * 2, (1, 12, 4, 3), ConcatenationOptions(axis=1), None),
    "joined with a constant": (
        BuiltinOperator.CONCATENATION,
        [IMAGE, np.ones(IMAGE, np.int8)],
        WIDE,
        ConcatenationOptions(axis=3),
        None,
    ),
    "padding": (BuiltinOperator.PAD, [IMAGE, PADDED], (1, 9, 4, 6), PadOptions(), {0: Rows(0, 1)}),
    "padding of a constant": (BuiltinOperator.PAD, [np.ones(IMAGE, np.int8), PADDED], (1, 9, 4, 6), PadOptions(), None),
    "less than no padding": (BuiltinOperator.PAD, [IMAGE, -PADDED], IMAGE, PadOptions(), None),
    "padding of few dimensions": (BuiltinOperator.PAD, [IMAGE, PADDED[1:]], IMAGE, PadOptions(), None),
    "means of columns": (BuiltinOperator.MEAN, [IMAGE, np.array([2], np.int32)], (1, 6, 1, 3), ReducerOptions(), WHOLE),
    "maxima of channels": (
        BuiltinOperator.REDUCE_MAX,
        [IMAGE, np.array([-1, 2], np.int32)],
        (1, 6, 1, 1),
        ReducerOptions(),
        WHOLE,
    ),
    "means of rows": (BuiltinOperator.MEAN, [IMAGE, np.array([2, -3], np.int32)], (1, 1, 1, 3), ReducerOptions(), None),
    "means of a constant": (
        BuiltinOperator.MEAN,
        [np.ones(IMAGE, np.int8), np.array([2], np.int32)],
        (1, 6, 1, 3),
        ReducerOptions(),
        None,
    ),
    "windows": (BuiltinOperator.CONV_2D, [IMAGE, TAPS], (1, 4, 2, 2), Conv2DOptions(**VALID), {0: Rows(1, 5)}),
    "padded windows": (BuiltinOperator.CONV_2D, [IMAGE, TAPS], (1, 6, 4, 2), Conv2DOptions(**SAME), {0: Rows(0, 4)}),
    "distant windows": (
        BuiltinOperator.CONV_2D,
        [(1, 9, 4, 3), TAPS],
        (1, 5, 1, 2),
        Conv2DOptions(padding=Padding.VALID, stride_h=1, stride_w=2, dilation_h_factor=2),
        {0: Rows(1, 7)},
    ),
    "fewer windows than fit": (BuiltinOperator.CONV_2D, [IMAGE, TAPS], (1, 3, 2, 2), Conv2DOptions(**VALID), None),
    "fewer columns than fit": (BuiltinOperator.CONV_2D, [IMAGE, TAPS], (1, 4, 1, 2), Conv2DOptions(**VALID), None),
    "taps of few dimensions": (BuiltinOperator.CONV_2D, [IMAGE, TAPS[0]], (1, 4, 2, 2), Conv2DOptions(**VALID), None),
    "taps that are computed": (BuiltinOperator.CONV_2D, [IMAGE, IMAGE], (1, 1, 1, 1), Conv2DOptions(**VALID), None),
    "no options": (BuiltinOperator.CONV_2D, [IMAGE, TAPS], (1, 4, 2, 2), None, None),
    "pools": (BuiltinOperator.MAX_POOL_2D, [IMAGE], (1, 5, 2, 3), POOL, {0: Rows(1, 4)}),
    "pools of batches": (BuiltinOperator.MAX_POOL_2D, [(4, 6, 4, 3)], (4, 5, 2, 3), POOL, WHOLE),
    "sums of batches": (BuiltinOperator.ADD, [(4, 6, 4, 3)] * 2, (4, 6, 4, 3), AddOptions(), BOTH),
    "batches of one image": (BuiltinOperator.ADD, [(4, 6, 4, 3), IMAGE], (4, 6, 4, 3), AddOptions(), None),
    "matrices": (BuiltinOperator.ADD, [(6, 4)] * 2, (6, 4), AddOptions(), None),
    "images without columns": (BuiltinOperator.ADD, [(1, 6, 0, 3)] * 2, (1, 6, 0, 3), AddOptions(), None),
    "two outputs": (
        BuiltinOperator.SPLIT,
        [np.array(3, np.int32), WIDE],
        [IMAGE, IMAGE],
        SplitOptions(num_splits=2),
        None,
    ),
    "transposed images": (BuiltinOperator.REVERSE_V2, [IMAGE, np.array([2], np.int32)], IMAGE, None, None),
}
"""An operator, its inputs (the shape of an image or a constant), the shape of its output, its options, and the rows of
inputs that rows 1 and 2 of the output need, or None if no rule applies."""


@pytest.mark.parametrize("case", BANDS)
def test_bands_need_rows_of_what_is_not_constant(case: str) -> None:
    code, inputs, output, options, needed = BANDS[case]
    main = ModelBuilder().subgraph()
    tensors = [
        main.constant("constant", of) if isinstance(of, np.ndarray) else main.input("x", of, TensorType.INT8)
        for of in inputs
    ]
    shapes = output if isinstance(output, list) else [output]
    outputs = [main.tensor("y", shape, TensorType.INT8) for shape in shapes]
    main.operator(code, tensors, outputs, options)
    main.output(*outputs)
    graph = Graph(tflm.Model(main.builder.build()))
    axis = BATCHES if shapes[0][0] > 1 else ROWS
    rule = band_rule(graph, graph.operators[0], axis)
    assert (None if rule is None else rule(Rows(1, 3)).needed) == needed
    assert band_rule(graph, graph.operators[0], ROWS if axis == BATCHES else BATCHES) is None
    for tensor in (*graph.inputs[:1], *graph.outputs[:1]) if needed is not None else ():
        graph.tensors[tensor].is_variable = True
        assert band_rule(graph, graph.operators[0], axis) is None
        graph.tensors[tensor].is_variable = False
        graph.tensors[tensor].type = TensorType.INT64
        assert band_rule(graph, graph.operators[0], axis) is None
        graph.tensors[tensor].type = TensorType.INT8
