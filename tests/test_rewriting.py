"""Models in bands of rows: the same answers, here and in TFLM, in smaller arenas."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from differential import assert_close, run
from hypothesis import given, settings
from hypothesis import strategies as st
from image_graphs import Images, image_graph, windows
from oracle import Oracle
from sampling import examples

import tflm
from tflm.graph import Graph, multiply_accumulates
from tflm.planning.head_plan import Head
from tflm.planning.views import Views, peak_alive
from tflm.rewriting.verification import check_tags
from tflm.schedule import rows as row_arithmetic
from tflm.schedule.band_costs import BandCosts, BandedStage, OperatorCosts, StageEstimate, concatenations, stages_of
from tflm.schedule.band_search import band_rules, write_stages
from tflm.schedule.bands import Stage
from tflm.schedule.operator_costs import measured_costs
from tflm.schedule.rows import Rows, Window, band_of_windows
from tflm.schedule.stage_search import Liveness, tilings_within
from tflm.schema import (
    AddOptions,
    BuiltinOperator,
    ConcatenationOptions,
    DepthwiseConv2DOptions,
    ModelBuilder,
    PackOptions,
    Padding,
    ReducerOptions,
    SliceOptions,
    SplitOptions,
    TensorType,
    quantized,
)
from tflm.schema.patch import with_metadata
from tflm.schema.tables import METADATA_NAME, encode_offsets

SMALLER_THAN = {"vww_96_int8": 64_368, "person_detect": 58_896, "pretrainedResnet_quant": 39_232}
"""Bytes of an arena on Cortex-M that these models fit into, with a tenth more work."""


def some_inputs(model: bytes, seed: int) -> list[np.ndarray[Any, Any]]:
    """Random values for each input."""
    main = tflm.Model(model).subgraphs[0]
    shapes = [(main.tensors or [])[i].shape or () for i in main.inputs or ()]
    rng = np.random.default_rng(seed)
    return [rng.integers(-128, 128, shape).astype(np.int8) for shape in shapes]


def network(size: int = 56, channels: int = 8) -> bytes:
    """Convolutions whose images are the larger the earlier they come, and a classifier of one."""
    builder = ModelBuilder()
    images = Images(builder.subgraph(), (1, size, size, 3))
    x = images.convolution(images.last, channels, strides=(2, 2))
    x = images.convolution(x)
    x = images.convolution(x, 2 * channels, taps=(1, 1))
    x = images.convolution(x, strides=(2, 2))
    x = images.convolution(x, 2 * channels, taps=(1, 1))
    images.main.output(images.convolution(x, 4, strides=(2, 2)))
    return builder.build()


# Rows.


@given(
    rows=st.integers(1, 30),
    taps=st.integers(1, 5),
    stride=st.integers(1, 4),
    dilation=st.integers(1, 3),
    padding=st.sampled_from([Padding.SAME, Padding.VALID]),
    pads_columns=st.booleans(),
    data=st.data(),
)
def test_windows_of_a_band_look_at_what_they_look_at_in_the_whole(
    rows: int, taps: int, stride: int, dilation: int, padding: Padding, pads_columns: bool, data: st.DataObject
) -> None:
    extent, count = (taps - 1) * dilation + 1, windows(padding, rows, taps, stride, dilation)
    if count < 1 or (pads_columns and padding == Padding.VALID):
        return
    before = max((count - 1) * stride + extent - rows, 0) // 2 if padding == Padding.SAME else 0
    first = data.draw(st.integers(0, count - 1))
    wanted = Rows(first, data.draw(st.integers(first + 1, count)))
    band = band_of_windows(Window(rows, extent, stride, before, pads_columns), wanted)
    assert 0 <= band.needed.first < band.needed.end <= rows
    made = windows(band.padding, band.needed.size, taps, stride, dilation)
    assert band.made.covers(wanted)
    assert band.made.size == made
    shift = max((made - 1) * stride + extent - band.needed.size, 0) // 2 if band.padding == Padding.SAME else 0
    for row in range(*wanted):
        whole = [row * stride - before + tap * dilation for tap in range(taps)]
        begin = (row - band.made.first) * stride - shift
        ours = [begin + tap * dilation for tap in range(taps)]
        inside = [(at + band.needed.first) if 0 <= at < band.needed.size else None for at in ours]
        assert inside == [at if 0 <= at < rows else None for at in whole]


# Random graphs in random bands.


def in_random_bands(model: bytes, data: st.DataObject) -> bytes:
    """A model in stages and bands that are drawn, with its plan."""
    graph = Graph(tflm.Model(model))
    rules = band_rules(graph)
    stage_of = stages_of(graph, Liveness(graph), rules, longest=8)
    stages, position = [], 0
    while position < len(rules):
        ends = [end for end in range(position + 1, len(rules) + 1) if stage_of(position, end) is not None]
        end = data.draw(st.sampled_from([*ends, None]))
        stage = stage_of(position, end) if end is not None else None
        if stage is not None and end is not None and stage.rows > 1:
            cuts = data.draw(st.sets(st.integers(1, stage.rows - 1), min_size=1, max_size=12))
            borders = [0, *sorted(cuts), stage.rows]
            bands = [Rows(*border) for border in itertools.pairwise(borders)]
            stages.append(BandedStage(position, end, tuple(bands[:: data.draw(st.sampled_from([1, -1]))])))
            position = end
        else:
            position += 1
    write_stages(graph, rules, stages)
    return planned(graph.checked())


def planned(model: tflm.Model) -> bytes:
    """A model with a plan whose tensors lie in others."""
    head = Head(model, tflm.measure_arena(model, tflm.AllOpsResolver()).buffers)
    plan = head.planned_with_views(rounds=1)
    assert plan is None or plan.proved_optimal == (plan.head_bytes == plan.lower_bound_bytes)
    return bytes(model.data) if plan is None else with_metadata(model, METADATA_NAME, encode_offsets(plan.offsets))


@given(model=image_graph(), seed=st.integers(0, 99), data=st.data())
@settings(max_examples=examples(25))
def test_random_bands_of_random_graphs_give_the_same_answers(
    oracle: Oracle, model: bytes, seed: int, data: st.DataObject
) -> None:
    rewritten = in_random_bands(model, data)
    inputs = [some_inputs(model, seed), some_inputs(model, seed + 1)]
    for expected, *answers in zip(oracle.run(model, inputs), run(rewritten, inputs), oracle.run(rewritten, inputs)):
        for answer in answers:
            assert_close(answer, expected)


# The smallest arena.


def test_bands_make_an_arena_smaller_and_keep_every_answer(oracle: Oracle) -> None:
    model = tflm.Model(network())
    tiled = tflm.tile(model, target=tflm.targets.CORTEX_M)
    plan = tflm.plan(model, target=tflm.targets.CORTEX_M)
    assert tiled.minimum_arena_bytes < 0.8 * plan.minimum_arena_bytes
    assert tiled.minimum_arena_bytes_before == plan.minimum_arena_bytes_before
    assert tiled.stages
    assert 0 < tiled.extra_macs <= 0.1
    assert tiled.needed_operators == ("CONCATENATION", "SLICE")
    assert tiled.proved.tags
    for target in tflm.targets.TARGETS.values():
        measured = tflm.measure_arena(tiled.model, tflm.AllOpsResolver(), target=target)
        assert measured.head_bytes <= tiled.minimum_arena_bytes
    inputs = [some_inputs(model.data, seed) for seed in range(4)]
    for answers in (run(tiled.data, inputs), oracle.run(tiled.data, inputs)):
        for answer, expected in zip(answers, oracle.run(bytes(model.data), inputs)):
            assert_close(answer, expected)


@pytest.mark.long
@pytest.mark.parametrize("name", SMALLER_THAN)
def test_real_models_fit_where_no_plan_fits(corpus: Path, oracle: Oracle, name: str) -> None:
    model = tflm.Model.from_file(corpus / "models" / f"{name}.tflite")
    tiled = tflm.tile(model, target=tflm.targets.CORTEX_M, ram=SMALLER_THAN[name], verify=1)
    assert tiled.minimum_arena_bytes <= SMALLER_THAN[name]
    assert tiled.extra_macs <= 0.1
    inputs = [some_inputs(model.data, 5)]
    assert_close(oracle.run(tiled.data, inputs)[0], oracle.run(bytes(model.data), inputs)[0])


def test_the_kernel_library_counts() -> None:
    model, part = tflm.Model(network(40)), tflm.targets.by_name("cortex-m55")
    tiled = tflm.tile(model, target=part, kernels="cmsis-nn", verify=1)
    measured = tflm.measure_arena(tiled.model, tflm.AllOpsResolver(), target=part, kernels="cmsis-nn")
    plan = tflm.plan(model, target=part, kernels="cmsis-nn")
    assert tiled.minimum_arena_bytes == measured.minimum_arena_bytes < plan.minimum_arena_bytes
    assert any(buffer.kind == "scratch" for buffer in measured.buffers)


def test_what_nothing_makes_smaller_stays_as_it_is() -> None:
    model = tflm.Model(network(size=2, channels=1))
    tiled = tflm.tile(model)
    assert tiled.data == model.data
    assert tiled.minimum_arena_bytes == tiled.minimum_arena_bytes_before
    assert tiled.proved.unchanged


# Faults that are found.


def test_wrong_rows_are_found_before_a_model_is_given_away(monkeypatch: pytest.MonkeyPatch) -> None:
    right = row_arithmetic.band_of_windows

    def wrong(window: Window, wanted: Rows) -> Any:
        band = right(window, wanted)
        return band._replace(made=Rows(band.made.first - 1, band.made.end - 1)) if band.made.first > 1 else band

    monkeypatch.setattr("tflm.schedule.bands.band_of_windows", wrong)
    with pytest.raises(tflm.TflmError, match=r"differs|slice"):
        tflm.tile(tflm.Model(network()), target=tflm.targets.CORTEX_M)


def test_a_plan_that_loses_a_value_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tflm.Model(network())
    tiled = tflm.tile(model, target=tflm.targets.CORTEX_M)
    measured = tflm.measure_arena(tiled.model, tflm.AllOpsResolver())
    buffers = sorted(measured.buffers, key=lambda buffer: -buffer.bytes)
    offsets = {buffer.tensor: buffer.offset for buffer in measured.buffers}
    count = len(tiled.model.subgraphs[0].tensors or ())
    moved = [offsets.get(i, -1) for i in range(count)]
    second = buffers[1].tensor
    assert second is not None
    moved[second] = buffers[0].offset + 16
    with pytest.raises(tflm.ModelError, match="share bytes"):
        tflm.Model(with_metadata(tiled.model, METADATA_NAME, encode_offsets(moved)))


# Small rewrites.


@given(
    size=st.tuples(st.integers(4, 12), st.integers(4, 12)),
    rows=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    columns=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    taps=st.integers(1, 4),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 2),
    channels=st.integers(0, 4),
    seed=st.integers(0, 99),
)
@settings(max_examples=examples(40))
def test_a_convolution_that_pads_by_itself_gives_what_it_gave_behind_a_pad(
    oracle: Oracle,
    size: tuple[int, int],
    rows: tuple[int, int],
    columns: tuple[int, int],
    taps: int,
    stride: int,
    dilation: int,
    channels: int,
    seed: int,
) -> None:
    if any((taps - 1) * dilation >= of + sum(pads) for of, pads in zip(size, (rows, columns))):
        return
    builder = ModelBuilder()
    images = Images(builder.subgraph(), (1, *size, 2), seed)
    x = images.pad(images.last, rows, columns)
    strides, dilations = (stride, stride), (dilation, dilation)
    images.convolution(x, channels, (taps, taps), strides, dilations, Padding.VALID)
    images.main.output(images.last)
    model = builder.build()
    folded = tflm.fold(tflm.Model(model))
    inputs = [some_inputs(model, seed)]
    assert_close(oracle.run(folded, inputs)[0], oracle.run(model, inputs)[0])
    assert_close(run(folded, inputs)[0], oracle.run(model, inputs)[0])


@pytest.mark.parametrize(("size", "stride", "rows"), [(8, 1, (1, 1)), (8, 2, (1, 1)), (8, 2, (0, 1)), (9, 2, (1, 1))])
def test_the_pads_that_converters_write_are_folded(size: int, stride: int, rows: tuple[int, int]) -> None:
    builder = ModelBuilder()
    images = Images(builder.subgraph(), (1, size, size, 2))
    images.convolution(images.pad(images.last, rows, rows), strides=(stride, stride), padding=Padding.VALID)
    images.main.output(images.last)
    folded = tflm.Model(tflm.fold(tflm.Model(builder.build())))
    assert [folded.operator_name(operator) for operator in folded.subgraphs[0].operators or ()] == ["DEPTHWISE_CONV_2D"]


def test_chains_to_no_effect_are_left_out(oracle: Oracle) -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (2, 6), TensorType.INT8, quantized(0.5, 1))
    a = main.tensor("a", (3, 4), TensorType.INT8, quantized(0.5, 1))
    b = main.tensor("b", (12,), TensorType.INT8, quantized(0.5, 1))
    c = main.tensor("c", (12,), TensorType.INT8, quantized(0.5, 1))
    d = main.tensor("d", (12,), TensorType.INT8, quantized(0.25, 3))
    unread = main.tensor("unread", (12,), TensorType.INT8, quantized(0.5, 1))
    main.operator(BuiltinOperator.RESHAPE, [x, main.constant("to a", np.array([3, 4], np.int32))], [a])
    main.operator(BuiltinOperator.RESHAPE, [a, main.constant("to b", np.array([12], np.int32))], [b])
    main.operator(BuiltinOperator.QUANTIZE, [b], [c], version=2)
    main.operator(BuiltinOperator.RELU, [c], [unread], version=2)
    main.operator(BuiltinOperator.QUANTIZE, [c], [d], version=2)
    main.output(d)
    model = builder.build()
    folded = tflm.fold(tflm.Model(model))
    main_after = tflm.Model(folded).subgraphs[0]
    names = [tflm.Model(folded).operator_name(operator) for operator in main_after.operators or ()]
    assert names == ["RESHAPE", "QUANTIZE"]
    inputs = [some_inputs(model, 3)]
    assert_close(oracle.run(folded, inputs)[0], oracle.run(model, inputs)[0])


def names_of(data: bytes) -> list[str]:
    model = tflm.Model(data)
    return [model.operator_name(operator) for operator in model.subgraphs[0].operators or ()]


I8, F32 = TensorType.INT8, TensorType.FLOAT32


@pytest.mark.parametrize(
    ("image", "padded", "fill", "folds"),
    [
        ((0.5, 3), (0.5, 3), None, True),
        ((0.5, 3), (0.25, 3), None, False),
        ((0.5, 3), (0.5, 4), None, False),
        ((0.5, 3), (0.5, 3), 3, True),
        ((0.5, 3), (0.5, 3), 0, False),
        ((0.5, 0), (0.5, 0), 0, True),
        (None, (0.5, 0), None, False),
        ((0.5, 0), None, None, False),
        (None, None, None, True),
    ],
)
def test_a_pad_is_folded_only_where_what_it_adds_is_zero(
    image: Any, padded: Any, fill: int | None, folds: bool
) -> None:
    """A PAD between two quantizations keeps the integers, and so changes the values that they represent."""
    for paddings in (
        ([0, 0], [1, 1], [1, 1], [0, 0]),
        ([1, 0], [1, 1], [1, 1], [0, 0]),
        ([0, 0], [1, 1], [1, 1], [0, 1]),
    ):
        builder = ModelBuilder()
        main = builder.subgraph()
        type = I8 if image or padded else F32
        x = main.input("x", (1, 6, 6, 2), type, image and quantized(*image))
        shape = [size + sum(borders) for size, borders in zip((1, 6, 6, 2), paddings)]
        a = main.tensor("a", shape, type, padded and quantized(*padded))
        inputs = [x, main.constant("paddings", np.array(paddings, np.int32))]
        if fill is not None:
            inputs.append(main.constant("fill", np.full(1, fill, np.int8), quantized(*image)))
        main.operator(BuiltinOperator.PAD if fill is None else BuiltinOperator.PADV2, inputs, [a])
        w = main.constant(
            "w", np.ones((1, 3, 3, shape[3]), np.int8 if type is I8 else np.float32), quantized(0.5, 0, 3)
        )
        y = main.tensor("y", (shape[0], 6, 6, shape[3]), type, quantized(1.0))
        options = DepthwiseConv2DOptions(padding=Padding.VALID, stride_h=1, stride_w=1, depth_multiplier=1)
        main.operator(BuiltinOperator.DEPTHWISE_CONV_2D, [a, w], [y], options)
        main.output(y)
        folded = names_of(tflm.fold(tflm.Model(builder.build())))
        whole = paddings == ([0, 0], [1, 1], [1, 1], [0, 0])
        assert (len(folded) == 1) == (folds and whole)


def with_variable(kind: str) -> bytes:
    """A graph in which a rewrite would move, or leave out, what reads or writes the variable."""
    builder = ModelBuilder()
    main = builder.subgraph()
    shape = (1, 4, 4, 1)
    x = main.input("x", shape, F32)
    state = main.tensor("state", shape, F32, is_variable=True)
    flat, back = (main.constant(f"to {n}", np.array(dims, np.int32)) for n, dims in (("16", [16]), ("image", shape)))
    y = main.tensor("y", shape, F32)
    if kind == "a chain that begins with it":
        a = main.tensor("a", (16,), F32)
        main.operator(BuiltinOperator.RESHAPE, [state, flat], [a])
        main.operator(BuiltinOperator.ADD, [x, x], [state], AddOptions())
        b = main.tensor("b", shape, F32)
        main.operator(BuiltinOperator.RESHAPE, [a, back], [b])
        main.operator(BuiltinOperator.RELU, [b], [y])
    elif kind == "a chain that goes through it":
        a = main.tensor("a", (1, 16), F32)
        main.operator(BuiltinOperator.RESHAPE, [state, main.constant("", np.array([1, 16], np.int32))], [a])
        main.operator(BuiltinOperator.RESHAPE, [x, back], [state])
        main.operator(BuiltinOperator.RESHAPE, [a, back], [y])
    elif kind == "a copy from it":
        copy = main.tensor("copy", shape, F32)
        main.operator(BuiltinOperator.RESHAPE, [state, back], [copy])
        main.operator(BuiltinOperator.ADD, [x, x], [state], AddOptions())
        main.operator(BuiltinOperator.RELU, [copy], [y])
    elif kind == "a copy to it":
        s = main.tensor("sum", shape, F32)
        main.operator(BuiltinOperator.ADD, [x, state], [s], AddOptions())
        main.operator(BuiltinOperator.RESHAPE, [s, back], [state])
        main.operator(BuiltinOperator.RELU, [s], [y])
    else:
        a = main.tensor("a", (1, 6, 6, 1), F32)
        paddings = main.constant("paddings", np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32))
        main.operator(BuiltinOperator.PAD, [state, paddings], [a])
        main.operator(BuiltinOperator.ADD, [x, x], [state], AddOptions())
        w = main.constant("w", np.ones((1, 3, 3, 1), np.float32))
        options = DepthwiseConv2DOptions(padding=Padding.VALID, stride_h=1, stride_w=1, depth_multiplier=1)
        main.operator(BuiltinOperator.DEPTHWISE_CONV_2D, [a, w], [y], options)
    main.output(y)
    return builder.build()


@pytest.mark.parametrize(
    "kind",
    [
        "a chain that begins with it",
        "a chain that goes through it",
        "a copy from it",
        "a copy to it",
        "a PAD of it",
    ],
)
def test_what_reads_or_writes_a_variable_stays_in_its_place(kind: str) -> None:
    model = with_variable(kind)
    invocations = [[np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1) + i] for i in range(3)]
    for expected, found in zip(run(model, invocations), run(tflm.fold(tflm.Model(model)), invocations)):
        assert_close(found, expected)


def test_what_is_given_to_the_caller_or_changes_anything_is_not_left_out() -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (4,), I8, quantized(0.5, 1))
    of = {
        "same": (0.5, 1),
        "scale": (0.25, 1),
        "zero point": (0.5, 2),
    }
    made = {name: main.tensor(name, (4,), I8, quantized(*q)) for name, q in of.items()}
    for tensor in made.values():
        y = main.tensor("y", (4,), I8, quantized(0.5, 1))
        main.operator(BuiltinOperator.QUANTIZE, [x], [tensor])
        main.operator(BuiltinOperator.RELU, [tensor], [y])
        main.output(y)
    given = main.tensor("given", (4,), I8, quantized(0.5, 1))
    main.operator(BuiltinOperator.QUANTIZE, [x], [given])
    main.output(given)
    main.operator("Writes", [x], [main.tensor("unread", (4,), I8)])
    names = names_of(tflm.fold(tflm.Model(builder.build())))
    assert names == ["RELU", "QUANTIZE", "RELU", "QUANTIZE", "RELU", "QUANTIZE", "Writes"]


@pytest.mark.parametrize(
    ("shape", "constant", "fits"),
    [
        ((1, 6, 4, 3), (6, 4, 3), False),
        ((1, 6, 4, 3), (6, 1, 1), False),
        ((1, 6, 4, 3), (1, 4, 3), True),
        ((1, 6, 4, 3), (4, 3), True),
        ((1, 6, 4, 3), (3,), True),
        ((1, 6, 4, 3), (1, 6, 4, 3), False),
        ((1, 6, 4, 3), (1, 1, 4, 3), True),
        ((2, 6, 4, 3), (6, 4, 3), True),
        ((2, 6, 4, 3), (2, 6, 4, 3), False),
        ((2, 6, 4, 3), (1, 6, 4, 3), True),
    ],
)
def test_a_constant_that_differs_from_row_to_row_keeps_an_operator_out_of_bands(
    shape: tuple[int, ...], constant: tuple[int, ...], fits: bool
) -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    x, y = main.input("x", shape, F32), main.tensor("y", shape, F32)
    c = main.constant("c", np.arange(np.prod(constant), dtype=np.float32).reshape(constant))
    main.operator(BuiltinOperator.ADD, [x, c], [y], AddOptions())
    main.output(y)
    assert (band_rules(Graph(tflm.Model(builder.build())))[0] is not None) == fits


@pytest.mark.parametrize("other", [(1, 6, 4, 3), (1, 6, 1, 1), (1, 1, 4, 3), (1, 1, 1, 1)])
def test_a_tensor_that_broadcasts_along_rows_keeps_an_operator_out_of_bands(other: tuple[int, ...]) -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    tensors = [main.input("x", (1, 6, 4, 3), F32), main.input("other", other, F32)]
    main.operator(BuiltinOperator.ADD, tensors, [main.tensor("y", (1, 6, 4, 3), F32)], AddOptions())
    main.output(2)
    assert (band_rules(Graph(tflm.Model(builder.build())))[0] is not None) == (other[1] == 6)


def test_constants_and_variables_are_kept_after_their_last_reader() -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 4, 4, 2), TensorType.FLOAT32)
    kept = main.tensor("kept", (1, 4, 4, 2), TensorType.FLOAT32, is_variable=True)
    constant = main.constant("constant", np.ones((1, 4, 4, 2), np.float32))
    sums = [main.tensor(name, (1, 4, 4, 2), TensorType.FLOAT32) for name in "abc"]
    for left, right, total in zip([x, *sums], [kept, constant, x], sums):
        main.operator(BuiltinOperator.ADD, [left, right], [total], AddOptions())
    main.output(sums[-1])
    live = Liveness(Graph(tflm.Model(builder.build())))
    for end in range(4):
        assert [live.ends_in(tensor, end) for tensor in (kept, constant)] == [False, False]
        assert [live.ends_in(tensor, end) for tensor in sums] == [end > 1, end > 2, False]


def stages_in(graph: Graph, live: Liveness) -> list[Stage]:
    """All stages of a graph that have more than one row."""
    stage_of, count = stages_of(graph, live, band_rules(graph), longest=8), len(graph.operators)
    spans = [(first, end) for first in range(count) for end in range(first + 1, count + 1)]
    return [stage for stage in itertools.starmap(stage_of, spans) if stage is not None and stage.rows > 1]


@given(model=image_graph(), data=st.data())
@settings(max_examples=examples(20))
def test_bands_are_as_long_as_a_head_allows(model: bytes, data: st.DataObject) -> None:
    """Whatever was asked of the same stage before."""
    graph = Graph(tflm.Model(model))
    live, count = Liveness(graph), len(graph.operators)
    stages = stages_in(graph, live)
    if not stages:
        return
    make = partial(StageEstimate, data.draw(st.sampled_from(stages)), live)
    costs = OperatorCosts((1000,) * count, (16,) * count, (1,) * count, slice=10, concatenation=1)
    asked, rows = make(costs), make(costs).stage.rows
    peaks = {make(costs).of([Rows(0, length)], False).peak for length in range(1, rows + 1)}
    heads = sorted({peak - below for peak in peaks for below in (0, 1)})
    for head, backwards in itertools.product(heads[:: len(heads) // 10 + 1], (False, True)):
        found = asked.within(head, backwards)
        assert found == make(costs).within(head, backwards)
        if found is None:
            continue
        assert found.peak <= head
        (stage,) = found.stages
        done, limit = 0, rows
        for band in stage.bands:
            assert band.end == rows - done if backwards else band.first == done
            if band.size < limit:
                longer = Rows(band.first - backwards, band.end + (not backwards))
                assert make(costs).of([longer], backwards).peak > head
            done += band.size
            limit = min(2 * band.size, rows - done)
        assert done == rows


@given(model=image_graph(), data=st.data())
@settings(max_examples=examples(40))
def test_what_a_stage_is_expected_to_take_is_what_it_takes_when_it_is_written(
    model: bytes, data: st.DataObject
) -> None:
    before = tflm.Model(model)
    graph = Graph(before)
    rules, live, count = band_rules(graph), Liveness(graph), len(graph.operators)
    stages = stages_in(graph, live)
    if not stages:
        return
    stage = data.draw(st.sampled_from(stages))
    cuts = data.draw(st.sets(st.integers(1, stage.rows - 1), min_size=1, max_size=12))
    bands = [Rows(*border) for border in itertools.pairwise([0, *sorted(cuts), stage.rows])]
    backwards = data.draw(st.booleans())
    bands = bands[::-1] if backwards else bands
    main = before.subgraphs[0]
    macs = [multiply_accumulates(before, main, operator) for operator in main.operators or ()]
    costs = OperatorCosts((1000,) * count, (0,) * count, tuple(macs), slice=10, concatenation=1)
    cost = StageEstimate(stage, live, costs).of(bands, backwards)
    chosen = BandedStage(stage.first, stage.end, tuple(bands))
    assert chosen.backwards == backwards
    write_stages(graph, rules, [chosen])
    after = graph.checked()
    operators = after.subgraphs[0].operators or []
    tail, macs_added = cost.cost
    assert macs_added == sum(multiply_accumulates(after, after.subgraphs[0], op) for op in operators) - sum(macs)
    names = Counter(after.operator_name(operator) for operator in operators)
    slices, joins = names["SLICE"], concatenations(len(bands))
    more = len(operators) - slices - joins - count
    assert tail == 1000 * more + 10 * slices + joins
    buffers = {b.tensor: b for b in tflm.measure_arena(after, tflm.AllOpsResolver()).buffers if b.tensor is not None}
    rest = [live.at(i) for i in range(count) if not stage.first <= i < stage.end]
    alive = peak_alive(Views(after, buffers).bodies())
    assert abs(max([cost.peak, *rest]) - alive) <= 64  # rows are counted without what aligns them


def test_a_graph_says_who_reads_and_makes_each_tensor() -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (4,), F32)
    a, b = main.tensor("a", (4,), F32), main.tensor("b", (2,), F32)
    main.operator(BuiltinOperator.ADD, [x, x], [a], AddOptions())
    main.operator("mine", [x, -1, a], [b])
    main.output(b)
    graph = Graph(tflm.Model(builder.build()))
    assert x == 0
    assert graph.readers() == {x: [0, 1], a: [1]}
    assert graph.producers() == {a: 0, b: 1}
    live = Liveness(graph)
    assert [live.at(i) for i in range(2)] == [32, 48]
    assert [live.across(*span) for span in ((0, 1), (1, 2), (0, 2))] == [16, 0, 0]
    assert [live.ends_in(tensor, 1) for tensor in (x, a, b)] == [False, False, False]
    assert [live.ends_in(tensor, 2) for tensor in (x, a, b)] == [True, True, False]
    assert [live.is_inside(a, *span) for span in ((0, 2), (0, 1), (1, 2))] == [True, False, False]


@pytest.mark.parametrize(
    ("shape", "type", "is_variable", "fits"),
    [
        ((1, 4, 4, 2), F32, False, True),
        ((1, 4, 4, 2), F32, True, False),
        ((1, 4, 4, 2), TensorType.UINT8, False, False),
        ((1, 4, 4, 2), TensorType.INT16, False, True),
        ((4, 4, 2), F32, False, False),
        ((1, 1, 4, 4, 2), F32, False, False),
        ((2, 4, 4, 2), F32, False, True),
    ],
)
def test_bands_are_of_images_of_types_that_can_be_cut_and_joined(
    shape: tuple[int, ...], type: TensorType, is_variable: bool, fits: bool
) -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    x, y = main.input("x", shape, type), main.tensor("y", shape, type)
    read = main.tensor("state", shape, type, is_variable=True) if is_variable else x
    main.operator(BuiltinOperator.ADD, [x, read], [y], AddOptions())
    main.output(y)
    rules = band_rules(Graph(tflm.Model(builder.build(), checks="tflm")))
    assert (rules[0] is not None) == fits


@pytest.mark.parametrize(
    ("batches", "paddings", "fits"),
    [
        (1, [[0, 0], [1, 2], [0, 0], [0, 0]], True),
        (1, [[0, 0], [0, 0], [3, 0], [0, 1]], True),
        (1, [[0, 1], [0, 0], [0, 0], [0, 0]], False),
        (1, [[1, 0], [1, 0], [0, 0], [0, 0]], False),
        (2, [[1, 0], [0, 0], [0, 1], [0, 0]], True),
    ],
)
def test_a_pad_runs_in_bands_unless_it_pads_batches_of_one(batches: int, paddings: list[list[int]], fits: bool) -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    shape = (batches, 4, 5, 2)
    x = main.input("x", shape, F32)
    y = main.tensor("y", [size + sum(borders) for size, borders in zip(shape, paddings)], F32)
    main.operator(BuiltinOperator.PAD, [x, main.constant("p", np.array(paddings, np.int32))], [y])
    main.output(y)
    assert (band_rules(Graph(tflm.Model(builder.build())))[0] is not None) == fits


@pytest.mark.parametrize("is_constant", [False, True])
@pytest.mark.parametrize(("axis", "fits"), [(1, False), (2, True), (3, True), (-1, True), (-2, True), (-3, False)])
def test_images_side_by_side_run_in_bands_of_rows(axis: int, fits: bool, is_constant: bool) -> None:
    """Constant images do not: their rows are not tensors."""
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 4, 4, 4), F32)
    z = main.constant("z", np.ones((1, 4, 4, 4), np.float32)) if is_constant else main.input("z", (1, 4, 4, 4), F32)
    y = main.tensor("y", [8 if i == axis % 4 else size for i, size in enumerate((1, 4, 4, 4))], F32)
    main.operator(BuiltinOperator.CONCATENATION, [x, z], [y], ConcatenationOptions(axis=axis))
    main.output(y)
    assert (band_rules(Graph(tflm.Model(builder.build())))[0] is not None) == (fits and not is_constant)


def test_bands_that_need_no_padding_read_just_what_their_windows_see() -> None:
    window = Window(rows=8, extent=3, stride=1, before=0, pads_columns=False)
    for wanted, needed in (((0, 4), (0, 6)), ((2, 6), (2, 8)), ((0, 6), (0, 8)), ((3, 4), (3, 6))):
        band = band_of_windows(window, Rows(*wanted))
        assert (band.needed, band.made, band.padding) == (Rows(*needed), Rows(*wanted), Padding.VALID)
    for other in (window._replace(pads_columns=True), window._replace(before=1)):
        assert band_of_windows(other, Rows(0, 4)).padding is Padding.SAME
    strided = Window(rows=9, extent=3, stride=2, before=0, pads_columns=False)
    assert band_of_windows(strided, Rows(1, 4)) == (Rows(2, 9), Rows(1, 4), Padding.VALID)


@given(first=st.tuples(st.integers(0, 9), st.integers(0, 9)), other=st.tuples(st.integers(0, 9), st.integers(0, 9)))
def test_rows_cover_and_reach_as_sets_do(first: tuple[int, int], other: tuple[int, int]) -> None:
    a, b = Rows(*sorted(first)), Rows(*sorted(other))
    rows = [set(range(*of)) for of in (a, b)]
    assert a.size == len(rows[0])
    if a.size and b.size:
        assert a.covers(b) == (rows[1] <= rows[0])
        union = rows[0] | rows[1]
        assert a.hull(b) == (min(union), max(union) + 1)


@pytest.mark.parametrize(("rows", "joins"), [(2, 1), (10, 1), (11, 2), (12, 3), (20, 3), (21, 3), (100, 11), (101, 12)])
def test_more_bands_than_a_concatenation_takes_are_joined_by_way_of_others(rows: int, joins: int) -> None:
    """One takes ten; a part that is left over needs none of its own."""
    builder = ModelBuilder()
    main = builder.subgraph()
    x, y = (main.input("x", (1, rows, 2, 1), F32), main.tensor("y", (1, rows, 2, 1), F32))
    main.operator(BuiltinOperator.RELU, [x], [y])
    main.output(y)
    graph = Graph(tflm.Model(builder.build()))
    write_stages(graph, band_rules(graph), [BandedStage(0, 1, tuple(Rows(i, i + 1) for i in range(rows)))])
    names = Counter(names_of(graph.build()))
    assert (names["RELU"], names["SLICE"], names["CONCATENATION"]) == (rows, rows, joins)
    assert concatenations(rows) == joins
    assert concatenations(1) == 0


def hourglass() -> tflm.Model:
    """Two places at which memory peaks, with little in between."""
    builder = ModelBuilder()
    images = Images(builder.subgraph(), (1, 24, 24, 2))
    x = images.convolution(images.last, 8, strides=(1, 1))
    x = images.convolution(x, 2, strides=(2, 2))
    x = images.convolution(x, 32, strides=(1, 1))
    images.main.output(images.convolution(x, 2, strides=(2, 2)))
    return tflm.Model(builder.build())


def test_work_that_stages_add_is_counted_together() -> None:
    model = hourglass()
    graph = Graph(model)
    rules = band_rules(graph)
    resolver = tflm.AllOpsResolver()
    costs = measured_costs(model, rules, tflm.measure_arena(model, resolver), lambda m: tflm.measure_arena(m, resolver))
    unlimited = BandCosts(graph, rules, costs, sum(costs.macs))
    (low, high), heads = (0, max(unlimited.start.peak, *unlimited.alone)), []
    for head in range(low, high, high // 40):
        heads += [
            (head, tiling) for tiling in tilings_within(unlimited, head) if len(tiling.stages) > 1 and tiling.cost[1]
        ]
    assert heads
    stage_of, live = stages_of(graph, Liveness(graph), rules, longest=16), Liveness(graph)
    assert [stages_of(graph, live, rules, longest)(0, 2) is not None for longest in (1, 2)] == [False, True]
    for head, tiling in heads:
        inside = {i for stage in tiling.stages for i in range(stage.first, stage.end)}
        alone = [live.at(i) + costs.scratch[i] for i in range(len(rules)) if i not in inside]
        in_bands = [
            StageEstimate(stage_of(of.first, of.end), live, costs).of(of.bands, of.backwards) for of in tiling.stages
        ]
        assert tiling.peak == max(live.size[0], *alone, *(stage.peak for stage in in_bands)) <= head
        assert tiling.cost == tuple(map(sum, zip(*(stage.cost for stage in in_bands))))
        macs = tiling.cost[1]
        exact = tilings_within(BandCosts(graph, rules, costs, macs), head)
        assert tiling in exact
        assert all(other.cost[1] <= macs for other in exact)
        less = tilings_within(BandCosts(graph, rules, costs, macs - 1), head)
        assert all(other.cost[1] < macs for other in less)


@pytest.mark.parametrize("types", [(I8, TensorType.INT16), (TensorType.INT16, I8)])
def test_operators_of_other_types_are_measured_apart(types: tuple[TensorType, ...]) -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    for i, type in enumerate(types):
        x, y = (
            main.input(f"x{i}", (1, 8, 8, 3), type, quantized(0.5)),
            main.tensor(f"y{i}", (1, 8, 8, 3), type, quantized(0.5)),
        )
        main.operator(BuiltinOperator.RELU, [x], [y])
        main.output(y)
    model = tflm.Model(builder.build())
    resolver = tflm.AllOpsResolver()
    measured: list[TensorType] = []

    def measure(changed: tflm.Model) -> Any:
        measured.extend((changed.subgraphs[0].tensors or [])[t].type for t in changed.subgraphs[0].inputs or ())
        return tflm.measure_arena(changed, resolver)

    kinds = [("scratch", 1, 16), ("scratch", 1, 8), ("tensor", 2, 64), ("scratch", 2, 4)]
    buffers: Any = [SimpleNamespace(kind=kind, first_use=step, bytes=size) for kind, step, size in kinds]
    whole = replace(tflm.measure_arena(model, resolver), buffers=buffers)
    assert measured_costs(model, band_rules(Graph(model)), whole, measure).scratch == (24, 4)
    assert set(measured) == set(types)


def test_a_plan_that_loses_a_value_fails_the_check_of_a_rewritten_model() -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 4, 4, 3), I8, quantized(0.5))
    a, y = main.tensor("a", (1, 4, 4, 3), I8, quantized(0.5)), main.tensor("y", (1, 1, 1, 3), I8, quantized(0.5))
    main.operator(BuiltinOperator.RELU, [x], [a])
    axes = main.constant("axes", np.array([1, 2], np.int32))
    main.operator(BuiltinOperator.MEAN, [a, axes], [y], ReducerOptions(keep_dims=True))
    main.output(y)
    model = tflm.Model(builder.build())
    measured = tflm.measure_arena(model, tflm.AllOpsResolver())
    check_tags(model, measured)
    names = [buffer.name if buffer.kind == "tensor" else "scratch" for buffer in measured.buffers]
    assert names[:4] == ["x", "a", "y", "scratch"]
    for moved, onto in ((2, 1), (3, 1), (3, 2)):
        buffers = list(measured.buffers)
        buffers[moved] = replace(buffers[moved], offset=buffers[onto].offset)
        with pytest.raises(tflm.TflmError, match="is unsafe"):
            check_tags(model, replace(measured, buffers=buffers))


def test_a_stripped_model_keeps_the_metadata_that_is_not_for_converters() -> None:
    model = tflm.Model(network())
    for name, content in (("mine", b"kept"), ("min_runtime_version", b"2.1"), ("CONVERSION_METADATA", b"long" * 99)):
        model = tflm.Model(with_metadata(model, name, content))
    stripped = tflm.Model(tflm.strip(model))
    assert [entry.name for entry in stripped.root.metadata or ()] == ["mine"]
    assert bytes(stripped.metadata("mine") or b"") == b"kept"


@given(model=image_graph())
@settings(max_examples=examples(10))
def test_a_stripped_model_is_smaller_keeps_its_plan_and_its_answers(model: bytes) -> None:
    planned_model = tflm.Model(planned(tflm.Model(model)))
    stripped = tflm.strip(planned_model)
    assert len(stripped) <= len(planned_model.data)
    assert bytes(tflm.Model(stripped).metadata(METADATA_NAME) or b"") == bytes(
        planned_model.metadata(METADATA_NAME) or b""
    )
    inputs = [some_inputs(model, 1)]
    assert_close(run(stripped, inputs)[0], run(model, inputs)[0])


# Tensors inside others.


def test_a_plan_alone_gains_where_tensors_are_parted_and_joined_along_the_outer_dimension(oracle: Oracle) -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    of = TensorType.INT8, quantized(0.5, 1)
    x = main.input("x", (8, 64), *of)
    halves = [main.tensor(f"half {i}", (4, 64), *of) for i in range(2)]
    main.operator(BuiltinOperator.SPLIT, [main.constant("axis", np.int32(0)), x], halves, SplitOptions(num_splits=2))
    signs = [main.tensor(f"sign {i}", (4, 64), *of) for i in range(2)]
    for half, sign in zip(halves, signs):
        main.operator(BuiltinOperator.RELU6, [half], [sign], version=2)
    joined = main.tensor("joined", (8, 64), *of)
    main.operator(BuiltinOperator.CONCATENATION, signs, [joined], ConcatenationOptions(axis=0), version=2)
    begin, size = (main.constant("", np.array(of, np.int32)) for of in ([1, 0], [6, 64]))
    rows = main.tensor("rows", (6, 64), *of)
    main.operator(BuiltinOperator.SLICE, [joined, begin, size], [rows], SliceOptions(), version=2)
    packed = main.tensor("packed", (2, 6, 64), *of)
    main.operator(BuiltinOperator.PACK, [rows, rows], [packed], PackOptions(values_count=2, axis=0))
    main.output(packed)
    model = builder.build()
    apart, inside = (tflm.plan(tflm.Model(model), views=views) for views in (False, True))
    assert inside.head_bytes < 0.8 * apart.head_bytes
    inputs = [some_inputs(model, seed) for seed in range(3)]
    for answers in (run(inside.data, inputs), oracle.run(inside.data, inputs)):
        for answer, expected in zip(answers, oracle.run(model, inputs)):
            assert_close(answer, expected)


def test_rewritten_models_run_in_litert() -> None:
    litert = pytest.importorskip("ai_edge_litert.interpreter", reason="ai-edge-litert is not installed")
    model = network()
    tiled = tflm.tile(tflm.Model(model), target=tflm.targets.CORTEX_M)
    answers = []
    for data in (model, tiled.data):
        resolver = litert.OpResolverType.BUILTIN_REF
        interpreter = litert.Interpreter(model_content=data, experimental_op_resolver_type=resolver)
        interpreter.allocate_tensors()
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], some_inputs(model, 7)[0])
        interpreter.invoke()
        answers.append(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))
    np.testing.assert_array_equal(*answers)


def test_without_aliases_concatenation_copies_to_another_place() -> None:
    tiled = tflm.tile(tflm.Model(network()), target=tflm.targets.CORTEX_M, alias=False, max_extra_macs=1.0)
    plan = tiled.model
    measured = tflm.measure_arena(plan, tflm.AllOpsResolver(), target=tflm.targets.CORTEX_M)
    place = {buffer.tensor: (buffer.offset, buffer.offset + buffer.bytes) for buffer in measured.buffers}
    operators = plan.subgraphs[0].operators or ()
    joined = [operator for operator in operators if plan.operator_name(operator) == "CONCATENATION"]
    assert joined
    for operator in joined:
        begin, end = place[(operator.outputs or ())[0]]
        assert all(place[t][1] <= begin or end <= place[t][0] for t in operator.inputs or ())


def test_outputs_reach_into_inputs_if_that_is_wanted(oracle: Oracle) -> None:
    model = tflm.Model(network(32))
    plain, overlapping = (tflm.plan(model, overlap=overlap) for overlap in (None, "reference"))
    assert overlapping.head_bytes < 0.9 * plain.head_bytes
    inputs = [some_inputs(bytes(model.data), seed) for seed in range(3)]
    for answers in (run(overlapping.data, inputs), oracle.run(overlapping.data, inputs)):
        for answer, expected in zip(answers, oracle.run(bytes(model.data), inputs)):
            assert_close(answer, expected)
    with pytest.raises(tflm.ArgumentError, match="is for another kernel library"):
        tflm.plan(model, target=tflm.targets.by_name("cortex-m4"), kernels="cmsis-nn", overlap="reference")


def test_keyword_spotting_fits_where_outputs_reach_into_inputs(corpus: Path) -> None:
    model = tflm.Model.from_file(corpus / "models" / "kws_ref_model.tflite")
    tiled = tflm.tile(model, target=tflm.targets.CORTEX_M, overlap="reference", ram=16_832, verify=1)
    assert tiled.minimum_arena_bytes <= 16_832
