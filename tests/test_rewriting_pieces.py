"""Pieces of the search for smaller arenas on their own: rows, estimates, ways that are kept, windows of pads."""

from __future__ import annotations

import functools
import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from differential import assert_close, run
from example_models import INT8_MODEL
from image_graphs import Images
from sampling import drawn

import tflm
from tflm.c.self_test import recorded_samples
from tflm.graph import Graph, reordered
from tflm.kernels.layers.geometry import Axis
from tflm.rewriting.cleanup import drop_operators_to_no_effect
from tflm.rewriting.fold import padded_axis, zeros_for_same
from tflm.rewriting.simplify import simplified
from tflm.rewriting.verification import (
    Verification,
    _answers,
    _random,
    random_inputs,
    require_equal_answers,
    require_same_values,
)
from tflm.schedule.band_costs import BandCosts, BandedStage, StageEstimate, _band, concatenations
from tflm.schedule.band_search import Tiler
from tflm.schedule.bands import BandOperator, BandStep
from tflm.schedule.normal_form import normalize, see_rows_as_columns, separate_parts
from tflm.schedule.rows import Border, Rows, band_of_border
from tflm.schedule.stage_search import KEPT, Tiling, _pareto_optimal
from tflm.schema import (
    BuiltinOperator,
    CallOnceOptions,
    ModelBuilder,
    Padding,
    SliceOptions,
    SplitOptions,
    SplitVOptions,
    StridedSliceOptions,
    TensorType,
    VarHandleOptions,
    WhileOptions,
    quantized,
)


def padded(rows: tuple[int, int], columns: tuple[int, int], taps: tuple[int, int]) -> tflm.Model:
    """Return a 9 x 9 convolution after a PAD, without its own padding."""
    builder = ModelBuilder()
    images = Images(builder.subgraph(), (1, 9, 9, 2))
    images.convolution(images.pad(images.last, rows, columns), 3, taps, padding=Padding.VALID)
    images.main.output(images.last)
    return tflm.Model(builder.build())


@pytest.mark.parametrize("turned", [False, True])
def test_a_kernel_grows_by_zeros_where_one_dimension_alone_needs_them(turned: bool) -> None:
    """SAME pads one row before and one after for three taps: two rows before need a tap of zeros."""
    few, more = padded_axis(9, (1, 1), 3, 1, 1), padded_axis(9, (2, 0), 3, 1, 1)
    assert zeros_for_same(few) == (0, 0)
    assert zeros_for_same(more) not in ((0, 0), None)
    borders = ((2, 0), (1, 1)) if turned else ((1, 1), (2, 0))
    model = padded(*borders, (3, 3))
    folded = tflm.Model(tflm.fold(model))
    (operator,) = folded.subgraphs[0].operators or ()
    first, last = zeros_for_same(more) or (0, 0)
    shape = Graph(folded).shape((operator.inputs or ())[1])
    assert shape[1:3] == ((3 + first + last, 3) if turned else (3, 3 + first + last))
    (values,) = random_inputs(model, np.random.default_rng(0))
    answers = []
    for each in (model, folded):
        interpreter = tflm.MicroInterpreter(each, tflm.AllOpsResolver(), bytearray(1 << 16))
        interpreter.allocate_tensors()
        interpreter.input(0).data[...] = values
        interpreter.invoke()
        answers.append(np.array(interpreter.output(0).data))
    assert np.array_equal(*answers)


def test_zeros_for_same_are_the_fewest_that_pad_as_much_before_in_as_many_windows() -> None:
    for size, before, after, taps, stride, dilation in itertools.product(
        (5, 8), (0, 1, 2), (0, 1, 2), (2, 3), (1, 2), (1, 2)
    ):
        axis = padded_axis(size, (before, after), taps, stride, dilation)
        whole = size + before + after
        assert axis.windows == (whole - (taps - 1) * dilation - 1) // stride + 1
        found = zeros_for_same(axis)

        def pads(zeros: tuple[int, int], axis: Axis = axis) -> bool:
            extent = (sum(zeros) + axis.taps - 1) * axis.dilation + 1
            total = max((axis.windows - 1) * axis.stride + extent - axis.size, 0)
            return total // 2 == axis.before + zeros[0] * axis.dilation

        fits = [zeros for zeros in itertools.product(range(4), repeat=2) if pads(zeros)]
        if axis.windows != -(-size // stride) or not fits:
            assert found is None
        else:
            assert found == min(fits, key=lambda zeros: (sum(zeros), zeros))


def test_so_many_random_inputs_are_compared() -> None:
    tiled = tflm.tile(padded((1, 1), (1, 1), (3, 3)))
    assert tiled.gains
    assert tiled.proved.inputs == 2
    assert tflm.tile(padded((1, 1), (1, 1), (3, 3)), verify=1).proved.inputs == 1


def counting() -> tflm.Model:
    """A model that adds ones to its input until the sum is 3."""
    builder = ModelBuilder()
    main, until, body = (builder.subgraph() for _ in range(3))
    number = (), TensorType.INT32
    options = WhileOptions(cond_subgraph_index=1, body_subgraph_index=2)
    main.operator(BuiltinOperator.WHILE, [main.input("first", *number)], [main.tensor("last", *number)], options)
    main.output(1)
    operands = [until.input("i", *number), until.constant("3", np.array(3, np.int32))]
    until.operator(BuiltinOperator.LESS, operands, [until.tensor("less", (), TensorType.BOOL)])
    until.output(2)
    operands = [body.input("i", *number), body.constant("1", np.array(1, np.int32))]
    body.operator(BuiltinOperator.ADD, operands, [body.tensor("sum", *number)])
    body.output(2)
    return tflm.Model(builder.build())


def test_random_counts_end_and_some_of_them_run() -> None:
    """A WHILE that counts from -2**31 to 3 would take hours."""
    model, resolver = counting(), tflm.AllOpsResolver()
    inputs = [random_inputs(model, rng) for rng in map(np.random.default_rng, range(16))]
    answers = _answers(model, resolver, inputs, None, lambda: None)
    assert {bool(answer) for answer in answers} == {True, False}
    assert any(answer and answer[0] == 3 for answer in answers)
    require_equal_answers(model, model, resolver, inputs=4)
    assert len(recorded_samples(model, 4).outputs) == 4


# --- Rows and estimates ----------------------------------------------------------------------------------------------


def estimate(**parts: Any) -> StageEstimate:
    """An estimate of a stage of 20 rows, whose inputs are 1 and 2; 2 is not needed after it."""
    made = StageEstimate.__new__(StageEstimate)
    made.stage = SimpleNamespace(output=0, inputs=(1, 2), rows=20, **parts)  # type: ignore[assignment]
    made._row_bytes, made._rows, made._ending = {0: 10, 1: 3, 2: 5}, {0: 20, 1: 30, 2: 40}, [2]
    return made


@pytest.mark.parametrize(
    ("made", "backwards", "rows"),
    [
        (Rows(4, 8), False, 4),
        (Rows(4, 8), True, 4),
        (Rows(3, 8), False, 5 + 4),
        (Rows(3, 8), True, 5),
        (Rows(4, 9), False, 5),
        (Rows(4, 9), True, 5 + 4),
    ],
)
def test_garbage_before_a_band_is_in_the_way_where_bands_go_forwards_and_behind_it_where_backwards(
    made: Rows, backwards: bool, rows: int
) -> None:
    last = BandOperator(0, BandStep({}, made, {}, {}), ())
    assert estimate()._at_the_end(last, Rows(4, 8), backwards) == rows * 10


def test_inputs_that_end_in_a_stage_are_alive_from_the_rows_that_are_still_needed() -> None:
    found = estimate()
    for backwards in (False, True):
        assert found._alive_rows(7, Rows(3, 9), backwards) == 6
        assert found._alive_rows(1, Rows(3, 9), backwards) == 0
    assert found._alive_rows(2, Rows(3, 9), False) == 37
    assert found._alive_rows(2, Rows(3, 9), True) == 9


def test_rows_for_later_bands_are_those_of_the_next_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StageEstimate, "_needed_next", lambda self, row: {2: Rows(row, row + 1)})
    found = estimate()
    assert found._kept_for_later(Rows(4, 8), False) == {2: Rows(8, 9)}
    assert found._kept_for_later(Rows(4, 8), True) == {2: Rows(3, 4)}
    assert found._kept_for_later(Rows(4, 20), False) == {}
    assert found._kept_for_later(Rows(0, 8), True) == {}
    assert found._kept_for_later(Rows(4, 19), False) == {2: Rows(19, 20)}
    assert found._kept_for_later(Rows(1, 8), True) == {2: Rows(0, 1)}


@pytest.mark.parametrize("backwards", [False, True])
def test_the_longest_band_is_found_whose_need_stays_within_the_head(
    monkeypatch: pytest.MonkeyPatch, backwards: bool
) -> None:
    monkeypatch.setattr(StageEstimate, "_cost", lambda self, band, _: SimpleNamespace(head=100 + 10 * band.size))
    monkeypatch.setattr(StageEstimate, "of", lambda self, bands, _: tuple(bands))
    found = estimate()
    assert [found._longest(0, 8, head, backwards) for head in (109, 110, 119, 120, 179, 180, 999)] == [
        0,
        1,
        1,
        2,
        7,
        8,
        8,
    ]
    bands: Any = found.within(160, backwards)
    assert [band.size for band in bands] == [6, 6, 6, 2]
    assert list(bands) == sorted(bands, reverse=backwards)
    assert found.within(109, backwards) is None
    assert found.within(300, backwards) is None
    two: Any = found.within(299, backwards)
    assert [band.size for band in two] == [19, 1]


def test_bands_are_counted_from_the_end_where_they_go_backwards() -> None:
    assert _band(3, 4, 20, False) == Rows(3, 7)
    assert _band(3, 4, 20, True) == Rows(13, 17)


def test_a_padded_image_is_made_of_the_rows_under_a_band_and_padding_beyond_them() -> None:
    for rows, before, after in itertools.product((1, 4), (0, 2), (0, 3)):
        whole = before + rows + after
        for first, end in itertools.combinations(range(whole + 1), 2):
            band = band_of_border(Border(rows, before, after), Rows(first, end))
            assert 0 <= band.needed.first < band.needed.end <= rows
            assert band.made.covers(Rows(first, end))
            assert band.made.size == band.before + band.needed.size + band.after
            assert min(band.before, band.after) >= 0
            assert band.made.first + band.before == before + band.needed.first
            if min(end, before + rows) - max(first, before) > 0:
                assert band.made == Rows(first, end)
                assert band.needed == Rows(max(first - before, 0), min(end - before, rows))


def test_concatenations_join_by_tens_until_one_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tflm.schedule.band_costs.MAXIMUM_CONCATENATED", 10)
    counts = {1: 0, 2: 1, 10: 1, 11: 2, 12: 3, 20: 3, 21: 3, 22: 4, 100: 11, 101: 12}
    assert {parts: concatenations(parts) for parts in counts} == counts


# --- Ways that are kept ----------------------------------------------------------------------------------------------


def test_ways_are_kept_of_which_no_other_has_less_tail_and_no_more_work() -> None:
    def way(tail: int, macs: int, head: int = 0) -> Tiling[BandedStage]:
        return Tiling((), head, (tail, macs))

    assert _pareto_optimal([way(3, 1), way(1, 5), way(2, 5), way(2, 4), way(3, 4)]) == [way(1, 5), way(2, 4), way(3, 1)]
    assert _pareto_optimal([way(1, 5, 9), way(1, 5, 8)]) == [way(1, 5, 8)]
    many = [way(i, 100 - i) for i in range(2 * KEPT)]
    assert _pareto_optimal(many[::-1]) == many[:KEPT]
    assert _pareto_optimal([]) == []


def test_a_stage_adds_tail_and_work_and_the_larger_head_counts() -> None:
    stage = BandedStage(0, 2, (Rows(0, 1), Rows(1, 2)))
    for head, larger in ((50, 70), (90, 90)):
        found = Tiling((stage,), head, (10, 20)).followed_by(Tiling((stage,), 70, (5, 7)))
        assert found == Tiling((stage, stage), larger, (15, 27))


def test_stages_are_turned_only_within_the_bands_that_they_have() -> None:
    search = BandCosts.__new__(BandCosts)
    stage = BandedStage(0, 2, (Rows(0, 1), Rows(1, 2)))
    bands = {1: (Rows(1, 2), Rows(0, 1)), 2: (Rows(2, 3), Rows(1, 2), Rows(0, 1))}

    def within(head: int, backwards: bool) -> Tiling[BandedStage] | None:
        return Tiling((stage._replace(bands=bands[head]),), 0, (0, 0)) if head else None

    made = SimpleNamespace(within=within)
    search._estimates = {(0, 2): made}  # type: ignore[dict-item]
    assert search.turned(stage, False, 1) is stage
    assert search.turned(stage, True, 1) == stage._replace(bands=bands[1])
    assert search.turned(stage, True, 2) is None
    assert search.turned(stage, True, 0) is None


@pytest.mark.parametrize(
    ("tried", "end", "is_over"), [(0, None, False), (4, None, False), (5, None, True), (0, 0.0, True), (0, 1e18, False)]
)
def test_a_search_is_over_after_so_many_tilings_or_at_its_end(tried: int, end: float | None, is_over: bool) -> None:
    tiler = Tiler.__new__(Tiler)
    tiler._tried, tiler.maximum_tried, tiler.end = tried, 5, end
    assert tiler._is_over() is is_over


# --- What is checked -------------------------------------------------------------------------------------------------


def test_integers_must_be_equal_and_floats_close() -> None:
    def differ(one: Any, other: Any) -> bool:
        try:
            require_same_values([np.zeros(1), np.asarray(one)], [np.zeros(1), np.asarray(other)], "output")
        except tflm.TflmError:
            return True
        return False

    with pytest.raises(tflm.TflmError, match="number 1, output"):
        require_same_values([np.zeros(1), np.ones(1)], [np.zeros(1), np.zeros(1)], "output")
    assert not differ([1, 2], [1, 2])
    assert differ([1, 2], [1, 3])
    assert differ(np.array([100000]), np.array([100001]))
    assert not differ([1.0, np.nan], [1.0 + 1e-9, np.nan])
    assert differ([1.0], [1.1])
    assert differ([np.nan], [1.0])


def test_random_values_go_through_all_that_a_type_holds() -> None:
    rng = np.random.default_rng(0)
    for dtype in (np.int8, np.uint8):
        values = _random(np.dtype(dtype), (9000,), rng)
        assert values.dtype == dtype
        assert set(values.tolist()) == set(range(np.iinfo(dtype).min, np.iinfo(dtype).max + 1))
    assert set(_random(np.dtype(bool), (50,), rng).tolist()) == {False, True}
    real = _random(np.dtype(np.float32), (900,), rng)
    assert real.dtype == np.float32
    assert min(real) < -1 < 1 < max(real)


def test_a_check_says_what_was_compared() -> None:
    assert Verification(unchanged=True).unchanged
    told = str(Verification(tags=True, inputs=31, stage_tensors=77))
    assert "31" in told
    assert "77" in told
    assert "31" not in str(Verification(unchanged=True, inputs=31))
    assert (Verification().unchanged, Verification().tags, Verification().inputs, Verification().stage_tensors) == (
        False,
        False,
        0,
        0,
    )


SCALE = quantized(0.5, 3)


@pytest.mark.parametrize(
    ("code", "before", "after", "is_no_op"),
    [
        (BuiltinOperator.RESHAPE, SCALE, SCALE, True),
        (BuiltinOperator.RESHAPE, SCALE, quantized(0.25, 3), False),
        (BuiltinOperator.RESHAPE, SCALE, quantized(0.5, 4), False),
        (BuiltinOperator.RESHAPE, None, None, True),
        (BuiltinOperator.QUANTIZE, SCALE, SCALE, True),
        (BuiltinOperator.QUANTIZE, SCALE, quantized(0.25, 3), False),
        (BuiltinOperator.QUANTIZE, None, None, False),
        (BuiltinOperator.RELU, SCALE, SCALE, False),
    ],
)
@pytest.mark.parametrize("is_variable", [False, True])
def test_what_copies_values_of_another_scale_or_of_a_variable_is_no_no_op(
    code: BuiltinOperator, before: Any, after: Any, is_no_op: bool, is_variable: bool
) -> None:
    main = tflm.ModelBuilder().subgraph()
    make = functools.partial(main.tensor, is_variable=True) if is_variable else main.input
    x = make("x", (1, 4), TensorType.INT8, before)
    copied, y = (main.tensor(name, (1, 4), TensorType.INT8, after) for name in ("copied", "y"))
    main.operator(code, [x], [copied])
    main.operator(BuiltinOperator.ABS, [copied], [y])
    main.output(y)
    graph = Graph(tflm.Model(main.builder.build()))
    expected = [(x,)] if is_no_op and not is_variable else [(x,), (copied,)]
    assert drop_operators_to_no_effect(graph) == 2 - len(expected)
    assert [operator.inputs for operator in graph.operators] == expected


@pytest.mark.parametrize(
    ("operators", "outputs", "expected"),
    [
        ("ABS xa, RESHAPE ay", "y", "ABS xy"),
        ("ABS xa, RESHAPE ay", "ay", "ABS xa, RESHAPE ay"),
        ("RESHAPE xy", "y", "RESHAPE xy"),
        ("ABS xa, RESHAPE ay, RESHAPE az", "yz", "ABS xy, RESHAPE yz"),
        ("ABS xa, RESHAPE ab, RESHAPE by, NEG bz", "yz", "ABS xy, NEG yz"),
        ("ABS xa, NEG ac, RESHAPE ay, RELU cz", "yz", "ABS xy, NEG yc, RELU cz"),
        ("RESHAPE xa, ABS ay", "y", "ABS xy"),
    ],
)
def test_a_no_op_is_left_out_and_the_model_keeps_its_outputs(operators: str, outputs: str, expected: str) -> None:
    main = tflm.ModelBuilder().subgraph()
    make = {name: main.input if name == "x" else main.tensor for name in "xabcyz"}
    tensors = {name: make[name](name, (1, 4), TensorType.FLOAT32) for name in make if name in operators}
    for each in operators.split(", "):
        code, ends = each.split()
        read, written = (tensors[name] for name in ends)
        main.operator(BuiltinOperator[code], [read], [written])
    main.output(*(tensors[name] for name in outputs))
    graph = Graph(tflm.Model(main.builder.build()))
    drop_operators_to_no_effect(graph)
    names = {index: name for name, index in tensors.items()}
    left = [f"{graph.code(o).name} {''.join(names[i] for i in (*o.inputs, *o.outputs))}" for o in graph.operators]
    assert ", ".join(left) == expected


def test_a_no_op_after_an_operator_with_state_is_left_out() -> None:
    main = tflm.ModelBuilder().subgraph()
    handle = main.input("handle", (), TensorType.RESOURCE)
    a, y = (main.tensor(name, (1, 4), TensorType.FLOAT32) for name in "ay")
    main.operator(BuiltinOperator.READ_VARIABLE, [handle], [a])
    main.operator(BuiltinOperator.RESHAPE, [a], [y])
    main.output(y)
    graph = Graph(tflm.Model(main.builder.build()))
    assert drop_operators_to_no_effect(graph) == 1
    assert [(operator.inputs, operator.outputs) for operator in graph.operators] == [((handle,), (y,))]


@pytest.mark.parametrize(
    ("change", "expected"),
    [("another operator", ["ABS", "ABS"]), ("more operators", ["ABS", "NEG"]), ("a higher peak", ["ABS", "NEG"])],
)
def test_a_pass_that_makes_a_graph_larger_is_undone(change: str, expected: list[str]) -> None:
    main = tflm.ModelBuilder().subgraph()
    x = main.input("x", (1, 64), TensorType.FLOAT32)
    a, y = (main.tensor(name, (1, 64), TensorType.FLOAT32) for name in "ay")
    main.operator(BuiltinOperator.ABS, [x], [a])
    main.operator(BuiltinOperator.NEG, [a], [y])
    main.output(y)
    ran = []

    def changed(graph: Graph) -> int:
        first, last = graph.operators
        if change == "another operator":
            graph.operators = [first, graph.like(first, [a], [y])]
        elif change == "more operators":
            b = graph.add_tensor(a, "b", (1, 64))
            graph.operators = [first, graph.like(first, [a], [b]), graph.like(last, [b], [y])]
        else:
            graph.operators = [first, graph.make_operator(BuiltinOperator.ADD, 1, [a, x], [y])]
        ran.append(change)
        return len(ran) == 1

    graph = Graph(tflm.Model(main.builder.build()))
    is_kept = expected == ["ABS", "ABS"]
    assert list(simplified(graph, changed).values()) == [1] * is_kept
    assert [graph.code(operator).name for operator in graph.operators] == expected


def test_constants_that_are_alike_are_added_once_and_metadata_is_kept() -> None:
    graph = Graph(padded((1, 1), (1, 1), (3, 3)))
    count = len(graph.tensors)
    first = graph.add_constant("c", np.array([1, 2], np.int32))
    assert first == count
    assert graph.add_constant("d", np.array([1, 2], np.int32)) == first
    others = [np.array([1, 3], np.int32), np.array([[1, 2]], np.int32), np.array([1, 2], np.int32).view(np.float32)]
    assert [graph.add_constant("c", of) for of in others] == [count + 1, count + 2, count + 3]
    assert graph.add_constant("c", np.array([1, 2], np.int32), tflm.quantized(0.5)) == count + 4
    assert graph.constant(count + 2).tolist() == [[1, 2]]
    assert (graph.is_constant(first), graph.is_constant(graph.inputs[0])) == (True, False)
    assert graph.element_bytes(first) == 4
    assert graph.tensor_bytes(first) == 8
    graph.add_metadata("kept", b"content")
    built = tflm.Model(graph.build())
    assert bytes(built.metadata("kept") or b"") == b"content"
    assert TensorType.INT32 in [tensor.type for tensor in built.subgraphs[0].tensors or ()]


def test_a_graph_makes_the_model_that_its_bytes_are_read_as() -> None:
    model = tflm.Model.from_file(INT8_MODEL)
    made = Graph(model).model("tflm")
    assert (made.root, made.checks) == (tflm.Model(Graph(model).written()).root, "tflm")
    assert tflm.Model(made.data).root == made.root
    turned = reordered(model, reversed(range(len(model.subgraphs[0].operators or ()))))
    assert turned.subgraphs[0].operators == (made.subgraphs[0].operators or [])[::-1]
    assert turned.subgraphs[0].tensors == made.subgraphs[0].tensors


def in_normal_form(model: bytes) -> bytes:
    """The model with fewer kinds of operators that move elements."""
    graph = Graph(tflm.Model(model))
    normalize(graph)
    separate_parts(graph, {*graph.outputs})
    see_rows_as_columns(graph)
    return graph.build()


@pytest.mark.parametrize(
    "name", ["DEPTHWISE_CONV_2D", "EXPAND_DIMS", "SLICE", "SPLIT", "SPLIT_V", "SQUEEZE", "STRIDED_SLICE"]
)
def test_models_in_normal_form_answer_the_same(name: str) -> None:
    replaced = 0
    for model, invocations in drawn(name, 60 if name == "STRIDED_SLICE" else 15):
        try:
            expected = run(model, invocations, delegates=())
        except tflm.TflmError:
            continue
        other = in_normal_form(model)
        for ours, theirs in zip(run(other, invocations, delegates=()), expected, strict=True):
            assert_close(ours, theirs)
        replaced += name not in operators_in(other)
    assert replaced or name in ("DEPTHWISE_CONV_2D", "SLICE")  # which stay, in one form or another


def operators_in(model: bytes) -> list[str]:
    loaded = tflm.Model(model)
    return [loaded.operator_name(operator) for operator in loaded.subgraphs[0].operators or ()]


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("is_even", [True, False])
def test_slices_of_parts_are_slices_of_the_whole(axis: int, is_even: bool) -> None:
    sizes = [2, 2, 2] if is_even else [1, 3, 2]
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (6, 6), TensorType.INT8)
    shapes = [(size, 6) if axis == 0 else (6, size) for size in sizes]
    parts = [main.tensor(f"part{i}", shape, TensorType.INT8) for i, shape in enumerate(shapes)]
    along = main.constant("axis", np.array(axis, np.int32))
    if is_even:
        main.operator(BuiltinOperator.SPLIT, [along, x], parts, SplitOptions(num_splits=3))
    else:
        lengths = main.constant("sizes", np.array(sizes, np.int32))
        main.operator(BuiltinOperator.SPLIT_V, [x, lengths, along], parts, SplitVOptions(num_splits=3))
    begin, size = (main.constant(name, np.array(of, np.int32)) for name, of in (("begin", [1, 1]), ("size", [1, 1])))
    cut = main.tensor("cut", (1, 1), TensorType.INT8)
    main.operator(BuiltinOperator.SLICE, [parts[1], begin, size], [cut], SliceOptions())
    both = main.tensor("both", shapes[2], TensorType.INT8)
    main.operator(BuiltinOperator.MAXIMUM, [parts[2], parts[2]], [both])
    main.output(cut, both, parts[0])
    model = builder.build()
    inputs = [[np.arange(36, dtype=np.int8).reshape(6, 6)]]
    other = in_normal_form(model)
    assert operators_in(other) == ["SLICE", "SLICE", "MAXIMUM", "SLICE"]
    for ours, theirs in zip(run(other, inputs, delegates=()), run(model, inputs, delegates=()), strict=True):
        assert_close(ours, theirs)


STRIDED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "ranges": ({}, ["SLICE"]),
    "ends after the last elements": ({"end": (9, 3, 100)}, ["SLICE"]),
    "from the end": ({"begin": (-3, 0, -2), "end": (-1, 3, 5)}, ["SLICE"]),
    "from the first element": ({"begin": (3, 2, 1), "end": (4, 3, 4), "begin_mask": 0b011}, ["SLICE"]),
    "to the last element": ({"end": (2, 1, 2), "end_mask": 0b110}, ["SLICE"]),
    "one element": ({"begin": (1, -1, 2), "shrink_axis_mask": 0b110}, ["SLICE", "RESHAPE"]),
    "without a mask of its own": ({"shrink_axis_mask": 0b100, "end_mask": 0b001}, ["SLICE", "RESHAPE"]),
    "steps": ({"strides": (1, 1, 2)}, []),
    "steps back": ({"begin": (2, 0, 0), "end": (0, 3, 5), "strides": (-1, 1, 1)}, []),
    "dimensions left out": ({"begin": (1, 0), "end": (3, 2), "strides": (1, 1)}, []),
    "an ellipsis": ({"ellipsis_mask": 0b010}, []),
    "new dimensions": ({"new_axis_mask": 0b010}, []),
    "ends relative to begins": ({"offset": True}, []),
    "nothing": ({"begin": (1, 2, 1), "end": (3, 2, 3)}, []),
}
"""Arguments of STRIDED_SLICE, and the operators that stand for it; none where it stays."""


@pytest.mark.parametrize("case", STRIDED)
def test_strided_slices_of_ranges_are_slices(case: str) -> None:
    arguments, expected = STRIDED[case]
    arguments = {"begin": (1, 0, 1), "end": (3, 2, 4), "strides": (1, 1, 1), **arguments}
    masks = {name: value for name, value in arguments.items() if name not in ("begin", "end", "strides")}
    main = ModelBuilder().subgraph()
    x = main.input("x", (4, 3, 5), TensorType.INT8)
    places = [main.constant(name, np.array(arguments[name], np.int32)) for name in ("begin", "end", "strides")]
    image, cut = np.arange(60, dtype=np.int8).reshape(4, 3, 5), []
    for axis, (begin, end) in enumerate(zip(arguments["begin"], arguments["end"])):
        first = None if masks.get("begin_mask", 0) >> axis & 1 else begin
        last = None if masks.get("end_mask", 0) >> axis & 1 else end
        cut.append(begin if masks.get("shrink_axis_mask", 0) >> axis & 1 else slice(first, last))
    y = main.tensor("y", image[tuple(cut)].shape, TensorType.INT8)
    main.operator(BuiltinOperator.STRIDED_SLICE, [x, *places], [y], StridedSliceOptions(**masks))
    main.output(y)
    other = in_normal_form(main.builder.build())
    assert operators_in(other) == (expected or ["STRIDED_SLICE"])
    if expected:
        np.testing.assert_array_equal(run(other, [[image]], delegates=())[0][0], image[tuple(cut)])


@pytest.mark.parametrize(
    ("change", "stays"),
    [
        (lambda graph, split: None, False),
        (lambda graph, split: setattr(graph.tensors[split.inputs[0]], "buffer", 0), True),
        (lambda graph, split: setattr(graph.tensors[split.inputs[1]], "is_variable", True), True),
        (lambda graph, split: setattr(graph.tensors[split.inputs[1]], "shape", (1, 1, 1, 4, 1, 1)), True),
        (lambda graph, split: setattr(graph.tensors[split.inputs[1]], "shape", (1, 1, 1, 4, 1)), False),
    ],
)
def test_what_can_not_be_sliced_is_split(change: Any, stays: bool) -> None:
    """An axis that is not known, a variable, and more dimensions than SLICE has."""
    main = ModelBuilder().subgraph()
    x, axis = main.input("x", (1, 1, 1, 4), TensorType.INT8), main.constant("axis", np.array(3, np.int32))
    parts = [main.tensor("part", (1, 1, 1, 2), TensorType.INT8) for _ in "ab"]
    main.operator(BuiltinOperator.SPLIT, [axis, x], parts, SplitOptions(num_splits=2))
    main.output(*parts)
    graph = Graph(tflm.Model(main.builder.build()))
    change(graph, graph.operators[0])
    separate_parts(graph, graph.outputs)
    assert {graph.code(operator).name for operator in graph.operators} == {"SPLIT" if stays else "SLICE"}


@pytest.mark.parametrize("change", ["fed", "state", "no options"])
def test_strided_slices_that_are_not_known_stay(change: str) -> None:
    main = ModelBuilder().subgraph()
    x, y = main.input("x", (4, 3), TensorType.INT8), main.tensor("y", (2, 3), TensorType.INT8)
    places = [main.constant("place", np.array(values, np.int32)) for values in ((1, 0), (3, 3), (1, 1))]
    main.operator(BuiltinOperator.STRIDED_SLICE, [x, *places], [y], StridedSliceOptions())
    main.output(y)
    graph = Graph(tflm.Model(main.builder.build()))
    if change == "fed":
        graph.tensors[places[1]].buffer = 0
    elif change == "state":
        graph.tensors[x].is_variable = True
    else:
        graph.operators[0].builtin_options = None
    normalize(graph)
    assert [graph.code(operator).name for operator in graph.operators] == ["STRIDED_SLICE"]


def test_operators_that_run_subgraphs_stay() -> None:
    builder = ModelBuilder()
    main, first = builder.subgraph(), builder.subgraph()
    x, y = (main.input("x", (1, 4), TensorType.INT8), main.tensor("y", (4,), TensorType.INT8))
    main.operator(BuiltinOperator.CALL_ONCE, [], [], CallOnceOptions(init_subgraph_index=1))
    main.operator(BuiltinOperator.SQUEEZE, [x], [y])
    main.output(y)
    handle = first.tensor("handle", (), TensorType.RESOURCE)
    first.operator(BuiltinOperator.VAR_HANDLE, [], [handle], VarHandleOptions(shared_name="v", container=""))
    assert operators_in(in_normal_form(builder.build())) == ["CALL_ONCE", "RESHAPE"]


@pytest.mark.parametrize(
    ("shape", "arguments", "turned"),
    [
        ((1, 6, 1, 3), {"taps": (6, 1), "padding": Padding.VALID}, True),
        ((2, 7, 1, 3), {"taps": (3, 1), "dilations": (3, 2), "padding": Padding.VALID, "multiplier": 2}, True),
        ((1, 3, 1, 3), {"taps": (2, 1), "strides": (3, 2)}, True),
        ((1, 4, 1, 3), {"taps": (3, 1), "strides": (2, 1), "padding": Padding.VALID}, True),
        ((1, 6, 1, 3), {"taps": (5, 1), "padding": Padding.VALID}, False),
        ((1, 6, 2, 3), {"taps": (6, 1), "padding": Padding.VALID}, False),
        ((1, 6, 2, 3), {"taps": (6, 2), "padding": Padding.VALID}, False),
        ((1, 1, 1, 3), {"taps": (1, 1)}, False),
        ((1, 6, 1, 3), {"taps": (6, 1), "padding": Padding.VALID, "channels": 2}, False),
    ],
)
def test_one_column_that_becomes_one_row_is_seen_as_a_row(
    shape: tuple[int, int, int, int], arguments: dict[str, Any], turned: bool
) -> None:
    images = Images(ModelBuilder().subgraph(), shape)
    images.main.output(images.convolution(images.last, **arguments))
    model, image = images.main.builder.build(), np.random.default_rng(0).integers(-128, 128, shape).astype(np.int8)
    other = in_normal_form(model)
    assert (operators_in(other)[:-1] == ["RESHAPE"]) == turned
    for ours, theirs in zip(run(other, [[image]], delegates=()), run(model, [[image]], delegates=()), strict=True):
        assert_close(ours, theirs)
