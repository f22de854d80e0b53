"""Rules of rewriting, each on its own: operators in other layouts, limits of what is merged, what a check compares."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from differential import run
from hypothesis import given
from hypothesis import strategies as st
from image_graphs import Images
from leftover_graphs import Leftovers, leftover_graph
from models import FLOAT32, INT8, Arrays, renumbered
from sampling import drawn
from test_compression import svdf
from test_folding import CHANNELS, LAST, assert_same_bits, channels_first, layer_and, names_of

import tflm
from tflm.graph import Graph
from tflm.planning.improved_model import SeparateMemories
from tflm.rewriting.cleanup import inverse, transposed
from tflm.rewriting.fold import fold_pads_explicitly, padded_with_zeros
from tflm.rewriting.identities import _only_scale, _with_scales, merge_constants
from tflm.rewriting.layouts import RULES, Change, flipped, run_in
from tflm.rewriting.resizing import with_main_subgraph
from tflm.rewriting.tiled_model import shown
from tflm.rewriting.transposes import Region, _parts
from tflm.rewriting.verification import random_inputs, require_equal_answers, verified
from tflm.schedule.stage_search import Liveness
from tflm.schema import (
    ActivationFunctionType,
    AddOptions,
    BuiltinOperator,
    CallOnceOptions,
    ConcatenationOptions,
    FullyConnectedOptions,
    ModelBuilder,
    MulOptions,
    Padding,
    Pool2DOptions,
    QuantizationParameters,
    ReducerOptions,
    ReshapeOptions,
    TensorType,
    options,
    quantized,
    read_model,
    write_model,
)
from tflm.schema.patch import with_metadata
from tflm.schema.tables import METADATA_NAME, SignatureDef, TensorMap, encode_offsets

# --- Layouts ---------------------------------------------------------------------------------------------------------

ELEMENT_WISE = "ADD", "MAXIMUM", "MUL", "PRELU", "RELU", "SQUARED_DIFFERENCE"
LAID_OUT = *ELEMENT_WISE, "CONCATENATION", *sorted({code.name for code in RULES} - {"PADV2"})
"""Operators that run on transposed tensors, and some of those that are element-wise. PADV2 has the rule of PAD; too few
drawn ones have constant values."""


def in_other_layout(
    model: bytes, tensor: int, order: tuple[int, ...]
) -> tuple[bytes, dict[int, tuple[int, ...]]] | None:
    """The model with its operator on transposed tensors, and the orders of these; None without a rule."""
    graph = Graph(tflm.Model(model))
    (operator,) = graph.operators
    found = flipped(graph, operator, tensor, order)
    if found is None:
        return None
    names = {
        t: graph.add_tensor(t, "turned", transposed(graph.shape(t), inverse(by))) for t, by in found.orders.items()
    }
    graph.operators = [run_in(graph, operator, found.change, names)]
    ends = ([names.get(t, t) for t in tensors] for tensors in (graph.inputs, graph.outputs))
    graph.set_ends(*ends)
    return graph.build(), found.orders


def turned(tensors: Sequence[int], values: Arrays, orders: dict[int, tuple[int, ...]]) -> Arrays:
    return [each.transpose(inverse(orders[t])) if t in orders else each for t, each in zip(tensors, values)]


@pytest.mark.parametrize("name", LAID_OUT)
def test_operators_in_another_layout_compute_the_same_elements(name: str) -> None:
    tried = False
    for model, (inputs, *_) in drawn(name, 60 if name in ("PAD", "SLICE") else 10):
        graph = Graph(tflm.Model(model))
        if len(graph.operators) != 1 or not inputs:
            continue
        try:
            (whole,) = run(model, [inputs], delegates=())
        except tflm.TflmError:
            continue
        for tensor in {*graph.inputs, *graph.outputs}:
            for order in itertools.islice(itertools.permutations(range(len(graph.shape(tensor)))), 1, 9):
                made = in_other_layout(model, tensor, order)
                if made is not None:
                    (found,) = run(made[0], [turned(graph.inputs, inputs, made[1])], delegates=())
                    assert_same_bits([found], [turned(graph.outputs, whole, made[1])])
                    tried = True
    assert tried


@given(leftover_graph())
def test_the_peak_is_the_most_that_is_alive_while_an_operator_runs(model: bytes) -> None:
    graph = Graph(tflm.Model(model))
    operators = graph.operators
    peaks = []
    for now in range(len(operators) + 1):
        written = {t for op in operators[: now + 1] for t in op.outputs or ()} | {*graph.inputs}
        later = {t for op in operators[now:] for t in op.inputs or ()} | {*graph.outputs}
        here = {*(operators[now].outputs or ())} if now < len(operators) else set()
        begin = {*graph.inputs} if now == 0 else set()
        alive = (written & later) | here | begin
        peaks.append(sum(-(-graph.tensor_bytes(t) // 16) * 16 for t in alive))
    assert Liveness(graph).peak() == max(peaks)


def test_a_single_element_has_no_layout() -> None:
    main = ModelBuilder().subgraph()
    x, one = main.input("x", (2, 3), INT8, quantized(0.5)), main.input("one", (1,), INT8, quantized(0.5))
    y = main.tensor("y", (2, 3), INT8, quantized(0.5))
    main.operator(BuiltinOperator.ADD, [x, one], [y], AddOptions())
    main.output(y)
    graph = Graph(tflm.Model(main.builder.build()))
    found = flipped(graph, graph.operators[0], x, (1, 0))
    assert found is not None
    assert found.orders == {x: (1, 0), y: (1, 0)}


@pytest.mark.parametrize("is_constant", [False, True])
def test_a_single_element_beside_others_is_in_their_layout_if_it_is_constant(is_constant: bool) -> None:
    main = ModelBuilder().subgraph()
    x, y = main.input("x", (1, 3), INT8, quantized(0.5)), main.tensor("y", (1, 4), INT8, quantized(0.5))
    value = np.ones((1, 1), np.int8)
    one = (
        main.constant("one", value, quantized(0.5)) if is_constant else main.input("one", (1, 1), INT8, quantized(0.5))
    )
    main.operator(BuiltinOperator.CONCATENATION, [x, one], [y], ConcatenationOptions(axis=1))
    main.output(y)
    graph = Graph(tflm.Model(main.builder.build()))
    assert (flipped(graph, graph.operators[0], x, (1, 0)) is not None) == is_constant


SHAPE = (2, 3, 4, 5)
AXES = np.array([1, 2], np.int32)
Array = np.ndarray[Any, Any]


@pytest.mark.parametrize(
    ("name", "type", "constants", "given", "order", "changes"),
    [
        ("ADD", INT8, [np.ones((3, 1, 1), np.int8)], AddOptions(), (1, 0, 2, 3), True),
        ("ADD", INT8, [np.ones((1, 1, 3, 1, 1), np.int8)], AddOptions(), (1, 0, 2, 3), False),
        ("ADD", INT8, [np.ones((3, 1, 1), np.int8)], AddOptions(), (1, 0, 2), False),
        ("CONCATENATION", INT8, [np.ones(SHAPE, np.int8)], ConcatenationOptions(axis=3), (1, 0, 2, 3), True),
        ("CONCATENATION", INT8, [np.ones(SHAPE, np.int8)], ConcatenationOptions(axis=-4), (1, 0, 2, 3), True),
        ("CONCATENATION", INT8, [np.ones(SHAPE, np.int8)], ConcatenationOptions(axis=4), (1, 0, 2, 3), False),
        ("CONCATENATION", INT8, [np.ones(SHAPE, np.int8)], ConcatenationOptions(axis=-5), (1, 0, 2, 3), False),
        ("CONCATENATION", INT8, [np.ones(SHAPE, np.int8)], None, (1, 0, 2, 3), False),
        ("CONCATENATION", INT8, [np.ones(SHAPE[1:], np.int8)], ConcatenationOptions(axis=3), (1, 0, 2, 3), False),
        ("CONCATENATION", INT8, [np.ones(SHAPE, np.int64)], ConcatenationOptions(axis=3), (1, 0, 2, 3), False),
        (
            *("CONCATENATION", INT8, [np.ones(SHAPE, np.int8)]),
            *(ConcatenationOptions(axis=3, fused_activation_function=ActivationFunctionType.RELU), (1, 0, 2, 3), False),
        ),
        ("PAD", INT8, [np.ones((4, 2), np.int32)], None, (1, 0, 2, 3), True),
        ("PAD", INT8, [np.ones((3, 2), np.int32)], None, (1, 0, 2, 3), False),
        ("SLICE", INT8, [np.ones(4, np.int32), np.ones(4, np.int32)], None, (3, 0, 2, 1), True),
        ("SLICE", INT8, [np.ones(4, np.int32), np.ones(5, np.int32)], None, (3, 0, 2, 1), False),
        ("MEAN", FLOAT32, [AXES], ReducerOptions(keep_dims=True), (0, 2, 1, 3), False),
        ("MEAN", FLOAT32, [AXES], ReducerOptions(keep_dims=True), (3, 1, 2, 0), True),
        ("MEAN", INT8, [AXES], ReducerOptions(keep_dims=True), (0, 2, 1, 3), True),
        ("MEAN", INT8, [AXES + 2], ReducerOptions(keep_dims=True), (0, 2, 1, 3), False),
        ("MEAN", INT8, [AXES - 6], ReducerOptions(keep_dims=True), (0, 2, 1, 3), False),
        ("MEAN", INT8, [AXES - 5], ReducerOptions(keep_dims=True), (0, 2, 1, 3), True),
        ("MEAN", INT8, [AXES], None, (0, 2, 1, 3), False),
        ("MAX_POOL_2D", INT8, [], Pool2DOptions(), (0, 2, 1, 3), True),
        ("MAX_POOL_2D", INT8, [], Pool2DOptions(), (0, 3, 2, 1), False),
        ("MAX_POOL_2D", INT8, [], None, (0, 2, 1, 3), False),
        ("MAX_POOL_2D", FLOAT32, [], Pool2DOptions(), (0, 2, 1, 3), False),
        ("SOFTMAX", INT8, [], None, (0, 2, 1, 3), False),
        ("RELU", TensorType.INT64, [], None, (0, 2, 1, 3), False),
    ],
)
def test_an_operator_is_left_in_its_layout_unless_its_elements_stay_the_same(
    name: str, type: TensorType, constants: list[Array], given: Any, order: tuple[int, ...], changes: bool
) -> None:
    main = ModelBuilder().subgraph()
    x, y = main.input("x", SHAPE, type), main.tensor("y", SHAPE, type)
    others = [main.constant(f"c{i}", value) for i, value in enumerate(constants)]
    main.operator(BuiltinOperator[name], [x, *others], [y], given)
    main.output(y)
    graph = Graph(tflm.Model(main.builder.build()))
    for tensor in (x, y):
        assert (flipped(graph, graph.operators[0], tensor, order) is not None) == changes


@pytest.mark.parametrize(("axis", "changes"), [(-5, False), (-4, True), (3, True), (4, False)])
@pytest.mark.parametrize("name", ["SPLIT", "SPLIT_V"])
def test_a_split_along_a_dimension_that_is_there_may_change_its_layout(name: str, axis: int, changes: bool) -> None:
    main = ModelBuilder().subgraph()
    x, along = main.input("x", SHAPE, INT8), main.constant("axis", np.array([axis], np.int32))
    halves = [main.tensor(f"y{i}", SHAPE, INT8) for i in range(2)]
    sizes = main.constant("sizes", np.array([1, 1], np.int32))
    main.operator(BuiltinOperator[name], [along, x] if name == "SPLIT" else [x, sizes, along], halves)
    main.output(*halves)
    graph = Graph(tflm.Model(main.builder.build()))
    found = flipped(graph, graph.operators[0], x, (3, 2, 1, 0))
    assert (found is not None) == changes
    if found is not None:
        (constant,) = found.change.constants.values()
        assert constant.tolist() == [3 - axis % 4]
        assert found.orders == dict.fromkeys((x, *halves), (3, 2, 1, 0))


def test_an_output_is_alive_to_the_end() -> None:
    graph = Leftovers((1, 64), INT8)
    early = graph.operator(BuiltinOperator.RELU, [graph.last], (1, 64))
    last = graph.pad(graph.operator(BuiltinOperator.TANH, [early], (1, 64)), [(0, 0), (0, 936)])
    for outputs, peak in (([last], 64 + 1008), ([early, last], 64 + 64 + 1008)):
        assert Liveness(Graph(tflm.Model(with_outputs(graph, outputs)))).peak() == peak


def with_outputs(graph: Leftovers, outputs: list[int]) -> bytes:
    graph.main.table.outputs = ()
    return graph.build(outputs)


@pytest.mark.parametrize("axes", list(itertools.permutations(range(3), 2)))
@pytest.mark.parametrize("order", list(itertools.permutations(range(3)))[1:])
def test_layouts_that_meet_and_differ_stay_apart(order: tuple[int, ...], axes: tuple[int, int]) -> None:
    """The maxima of one tensor along two dimensions are in different orders if the tensor is transposed."""
    graph = Leftovers((3, 3, 3), INT8)
    x = graph.transpose(graph.last, order)
    maxima = [graph.reduce(BuiltinOperator.REDUCE_MAX, x, [axis], False) for axis in axes]
    total = graph.operator(BuiltinOperator.ADD, maxima, (3, 3), AddOptions())
    model = graph.build([graph.transpose(total, (1, 0))])
    inputs = [random_inputs(tflm.Model(model), np.random.default_rng(0))]
    assert_same_bits(run(tflm.fold(tflm.Model(model)), inputs), run(model, inputs))


@pytest.mark.parametrize("rank", [2, 4, 5, 6])
def test_layouts_of_up_to_five_dimensions_are_changed(rank: int) -> None:
    """TFLM's TRANSPOSE takes no more."""
    graph = Leftovers(tuple(range(2, 2 + rank)), INT8)
    order = (1, 0, *range(2, rank))
    x = graph.transpose(graph.last, order)
    graph.transpose(graph.operator(BuiltinOperator.RELU, [x], graph.shapes[x]), order)
    names = names_of(tflm.fold(tflm.Model(graph.build([graph.last]))))
    assert names == (["RELU"] if rank <= 5 else ["TRANSPOSE", "RELU", "TRANSPOSE"])


# --- What is merged --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [2, 3, 4])
def test_chains_of_up_to_three_operators_that_return_their_input_are_removed(length: int) -> None:
    """RELU6 of floats in between keeps every value of this input's type."""
    main = ModelBuilder().subgraph()
    x = main.input("x", (6,), INT8, quantized(1 / 64, -128))
    real = [main.tensor(f"real{i}", (6,), FLOAT32) for i in range(length - 1)]
    y, z = (main.tensor(name, (6,), INT8, quantized(1 / 64, -128)) for name in "yz")
    main.operator(BuiltinOperator.DEQUANTIZE, [x], real[:1])
    for one, other in itertools.pairwise(real):
        main.operator(BuiltinOperator.RELU6, [one], [other])
    main.operator(BuiltinOperator.QUANTIZE, real[-1:], [y])
    main.operator(BuiltinOperator.TANH, [y], [z])
    main.output(z)
    names = names_of(tflm.fold(tflm.Model(main.builder.build())))
    assert (names == ["TANH"]) == (length <= 3)


@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (1, 2), (2, 1), (3, 2)])
@pytest.mark.parametrize("is_column", [False, True])
@pytest.mark.parametrize("is_behind", [False, True])
def test_pads_are_explicit_unless_a_window_would_read_padding_alone(
    stride: int, dilation: int, is_column: bool, is_behind: bool
) -> None:
    size, extent = 6, 2 * dilation + 1
    for pad in range(1, extent + 4):
        border = (0, pad) if is_behind else (pad, 0)
        images = Images(ModelBuilder().subgraph(), (1, 6, 6, 2))
        sides = [(0, 0), border] if is_column else [border, (0, 0)]
        x = images.pad(images.last, *sides)
        images.main.output(images.convolution(x, 2, (3, 3), (stride,) * 2, (dilation,) * 2, Padding.VALID))
        count = (size + pad - extent) // stride + 1
        taps = ([row * stride - border[0] + tap * dilation for tap in range(3)] for row in range(count))
        always_reads = all(any(0 <= place < size for place in each) for each in taps)
        assert fold_pads_explicitly(Graph(tflm.Model(images.main.builder.build()))) == always_reads


def dense_with_constant(constant: Any, type: TensorType, output: tuple[int, ...], is_shared: bool = False) -> bytes:
    """A layer of four channels over four rows, then ADD of floats or MUL of integers."""
    is_float = type == FLOAT32
    main, parameters = ModelBuilder().subgraph(), None if is_float else quantized(0.25)
    x = main.input("x", (4, 4), type, parameters)
    w = main.constant("w", np.eye(4, dtype=np.float32 if is_float else np.int8), None if is_float else quantized(0.5))
    t, y = (
        main.tensor("t", (4, 4), type, parameters),
        main.tensor("y", output, type, None if is_float else quantized(0.5)),
    )
    main.operator(BuiltinOperator.FULLY_CONNECTED, [x, w, -1], [t], FullyConnectedOptions())
    c = main.constant(
        "c", np.asarray(constant, np.float32 if is_float else np.int8), None if is_float else quantized(0.5)
    )
    code, settings = (BuiltinOperator.ADD, AddOptions()) if is_float else (BuiltinOperator.MUL, MulOptions())
    main.operator(code, [t, c], [y], settings)
    main.output(y)
    if is_shared:
        other = main.tensor("other", (4, 4), type, parameters)
        main.operator(BuiltinOperator.FULLY_CONNECTED, [x, w, -1], [other], FullyConnectedOptions())
        main.output(other)
    return main.builder.build()


@pytest.mark.parametrize(
    ("type", "shape", "output", "is_shared", "merges"),
    [
        (FLOAT32, (4,), (4, 4), False, True),
        (FLOAT32, (1, 4), (4, 4), False, True),
        (FLOAT32, (1, 1), (4, 4), False, True),
        (FLOAT32, (4, 1), (4, 4), False, False),
        (FLOAT32, (4, 4), (4, 4), False, False),
        (FLOAT32, (1, 1, 4), (1, 4, 4), False, False),
        (FLOAT32, (4,), (4, 4), True, False),
        (INT8, (1,), (4, 4), False, True),
        (INT8, (4, 1), (4, 4), False, True),
        (INT8, (1, 1, 1), (1, 4, 4), False, False),
        (INT8, (1,), (4, 4), True, False),
    ],
)
def test_a_constant_is_merged_into_a_layer_of_its_own_that_it_broadcasts_to(
    type: TensorType, shape: tuple[int, ...], output: tuple[int, ...], is_shared: bool, merges: bool
) -> None:
    constant = np.arange(1, 1 + np.prod(shape)).reshape(shape) if type == FLOAT32 else np.full(shape, 4)
    model = dense_with_constant(constant, type, output, is_shared)
    folded = tflm.fold(tflm.Model(model))
    assert (len(names_of(folded)) < len(names_of(model))) == merges
    inputs = [random_inputs(tflm.Model(model), np.random.default_rng(0))]
    assert_same_bits(run(folded, inputs), run(model, inputs))


@pytest.mark.parametrize("is_packed", [False, True])
def test_weights_of_four_bits_are_not_scaled(is_packed: bool) -> None:
    """Two of them share a byte."""
    main, half = ModelBuilder().subgraph(), quantized(0.5)
    x = main.input("x", (4, 4), INT8, half)
    packed = main.constant("w", np.arange(8, dtype=np.int8), half, type=TensorType.INT4, shape=(4, 4))
    w = packed if is_packed else main.constant("w", np.eye(4, dtype=np.int8), half)
    t, y = main.tensor("t", (4, 4), INT8, quantized(0.25)), main.tensor("y", (4, 4), INT8, half)
    main.operator(BuiltinOperator.FULLY_CONNECTED, [x, w, -1], [t], FullyConnectedOptions())
    main.operator(BuiltinOperator.MUL, [t, main.constant("c", np.full(1, 4, np.int8), half)], [y], MulOptions())
    main.output(y)
    model = main.builder.build()
    folded = tflm.fold(tflm.Model(model))
    assert (len(names_of(folded)) == 1) == (not is_packed)
    inputs = [random_inputs(tflm.Model(model), np.random.default_rng(0))]
    assert_same_bits(run(folded, inputs), run(model, inputs))


@pytest.mark.parametrize(("bias", "merges"), [(None, True), (0.0, True), (0.25, False)])
def test_a_constant_becomes_the_bias_if_there_is_none_or_one_of_zeros(bias: float | None, merges: bool) -> None:
    model = dense_with_constant([1, 2, 3, 4], FLOAT32, (4, 4))
    graph = Graph(tflm.Model(model))
    layer = graph.operators[0]
    if bias is not None:
        b = graph.add_constant("bias", np.full(4, bias, np.float32))
        graph.operators[0] = graph.like(layer, [*(layer.inputs or ())[:2], b], layer.outputs or ())
    model = graph.build()
    folded = tflm.fold(tflm.Model(model))
    assert (len(names_of(folded)) == 1) == merges
    inputs = [random_inputs(tflm.Model(model), np.random.default_rng(0))]
    assert_same_bits(run(folded, inputs), run(model, inputs))


def folded_alike(model: bytes, *shifts: int) -> list[str]:
    """The operators that are left of a model, whatever the numbers of its tensors."""
    names = names_of(tflm.fold(tflm.Model(model)))
    for by in shifts:
        assert names_of(tflm.fold(tflm.Model(renumbered(model, by)))) == names
    return names


@given(leftover_graph(), st.integers(1, 20))
def test_a_graph_is_folded_alike_whatever_the_numbers_of_its_tensors(model: bytes, by: int) -> None:
    folded_alike(model, by)


@pytest.mark.parametrize("layer", [BuiltinOperator.CONV_2D, BuiltinOperator.FULLY_CONNECTED])
@pytest.mark.parametrize(("type", "operator"), [(FLOAT32, "ADD"), (FLOAT32, "SUB"), (INT8, "MUL")])
@pytest.mark.parametrize("bias", [False, True])
def test_a_layer_is_merged_alike_whatever_the_number_of_its_bias(
    layer: BuiltinOperator, type: TensorType, operator: str, bias: bool
) -> None:
    model = layer_and(layer, type, BuiltinOperator[operator], [4], scale=2.0, bias=bias)
    assert len(folded_alike(model, *range(-3, 0))) == 1 + (bias and type == FLOAT32)


@pytest.mark.parametrize(
    ("weights", "constant", "output", "merges"),
    [
        (FLOAT32, np.ones(4, np.float32), (2, 4), True),
        (FLOAT32, np.ones((1, 4), np.float32), (2, 4), True),
        (FLOAT32, np.ones((1, 1), np.float32), (2, 4), True),
        (FLOAT32, np.ones((1, 1, 4), np.float32), (2, 4), False),
        (FLOAT32, np.ones((4, 1), np.float32), (4, 4), False),
        (FLOAT32, np.ones(3, np.float32), (2, 4), False),
        (FLOAT32, np.ones(4, np.int32), (2, 4), False),
        (INT8, np.ones(4, np.float32), (2, 4), False),
        (FLOAT32, np.ones((), np.float32), (), False),
    ],
)
def test_a_constant_is_merged_that_has_an_element_for_each_channel(
    weights: TensorType, constant: Array, output: tuple[int, ...], merges: bool
) -> None:
    main = ModelBuilder().subgraph()
    x, t, y = main.input("x", (2, 4), FLOAT32), main.tensor("t", output, FLOAT32), main.tensor("y", output, FLOAT32)
    w = main.constant("w", np.ones((4, 4), np.float32 if weights == FLOAT32 else np.int8))
    main.operator(BuiltinOperator.FULLY_CONNECTED, [x, w, -1], [t], FullyConnectedOptions())
    main.operator(BuiltinOperator.ADD, [t, main.constant("c", constant)], [y], AddOptions())
    main.output(y)
    assert merge_constants(Graph(tflm.Model(main.builder.build()))) == merges


TINY, HUGE = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)


@pytest.mark.parametrize(
    ("dtype", "scales", "factor", "changes"),
    [
        (np.int8, (0.5, 0.25), 2.0, True),
        (np.int32, (0.5,), 0.25, True),
        (np.int64, (0.5,), 1.0, True),
        (np.int16, (0.5,), 2.0, False),
        (np.float32, (0.5,), 2.0, False),
        (np.int8, (), 2.0, False),
        (np.int8, None, 2.0, False),
        (np.int8, (2 * TINY,), 0.5, True),
        (np.int8, (1.0, TINY), 0.5, False),
        (np.int8, (HUGE / 2,), 2.0, True),
        (np.int8, (1.0, HUGE), 2.0, False),
    ],
)
def test_scales_are_multiplied_as_far_as_float32_has_them_with_all_bits(
    dtype: Any, scales: tuple[float, ...] | None, factor: float, changes: bool
) -> None:
    main = ModelBuilder().subgraph()
    parameters = None if scales is None else QuantizationParameters(scale=scales, zero_point=(3,) * len(scales))
    values = [5, 7][: len(scales or ()) or None]
    c = main.constant("c", np.array(values, dtype), parameters)
    main.output(main.input("x", (1,), INT8))
    graph = Graph(tflm.Model(main.builder.build()))
    assert _only_scale(graph, c) == (scales[0] if scales is not None and len(scales) == 1 else None)
    made = _with_scales(graph, c, factor)
    assert (made is not None) == changes
    if made is not None and scales is not None:
        table = graph.tensors[made]
        assert graph.constant(made).tolist() == values
        assert (table.name, graph.constant(made).dtype) == ("c", dtype)
        assert table.quantization is not None
        assert tuple(table.quantization.scale or ()) == tuple(scale * factor for scale in scales)
        assert tuple(table.quantization.zero_point or ()) == (3,) * len(scales)


@pytest.mark.parametrize(
    ("type", "value", "parameters", "borders"),
    [
        (FLOAT32, 0, None, True),
        (FLOAT32, 1, None, False),
        (INT8, 0, None, True),
        (INT8, -3, quantized(0.5, -3), True),
        (INT8, 0, quantized(0.5, -3), False),
        (INT8, 0, QuantizationParameters(scale=(0.5,)), True),
    ],
)
def test_padding_is_of_zeros_if_its_value_stands_for_zero(
    type: TensorType, value: int, parameters: QuantizationParameters | None, borders: bool
) -> None:
    main = ModelBuilder().subgraph()
    x, y = main.input("x", (1, 2, 2, 1), type, parameters), main.tensor("y", (1, 5, 3, 1), type, parameters)
    paddings = np.array([(0, 0), (1, 2), (0, 1), (0, 0)], np.int32)
    given = np.array([value], np.float32 if type == FLOAT32 else np.int8)
    main.operator(BuiltinOperator.PADV2, [x, main.constant("p", paddings), main.constant("v", given, parameters)], [y])
    main.output(y)
    graph = Graph(tflm.Model(main.builder.build()))
    found = padded_with_zeros(graph, graph.operators[0])
    assert found == ([(0, 0), (1, 2), (0, 1), (0, 0)] if borders else None)


def test_a_region_is_cut_from_either_end() -> None:
    changes = {i: Change() for i in (5, 1, 4)}
    found = [sorted(part.changes) for part in _parts(Region(changes, {7: (1, 0)}))]
    assert found == [[1, 4], [1], [4, 5], [5]]
    assert {part.orders[7] for part in _parts(Region(changes, {7: (1, 0)}))} == {(1, 0)}


@pytest.mark.parametrize("operator", [BuiltinOperator.ADD, BuiltinOperator.SUB])
@pytest.mark.parametrize("is_first", [False, True])
def test_a_constant_on_either_side_of_a_sum_is_merged_and_before_a_difference_stays(
    operator: BuiltinOperator, is_first: bool
) -> None:
    model = layer_and(BuiltinOperator.FULLY_CONNECTED, FLOAT32, operator, CHANNELS)
    graph = Graph(tflm.Model(model))
    if is_first:
        last = graph.operators[-1]
        graph.operators[-1] = graph.like(last, (last.inputs or ())[::-1], last.outputs or ())
    model = graph.build()
    merges = not is_first or operator is BuiltinOperator.ADD
    folded = tflm.fold(tflm.Model(model))
    assert (len(names_of(folded)) == 1) == merges
    inputs = [random_inputs(tflm.Model(model), np.random.default_rng(0))]
    assert_same_bits(run(folded, inputs), run(model, inputs))


@pytest.mark.parametrize("operator", [BuiltinOperator.ADD, BuiltinOperator.SUB, BuiltinOperator.MUL])
@pytest.mark.parametrize("type", [FLOAT32, INT8])
def test_a_merged_layer_has_the_activation_that_came_last(operator: BuiltinOperator, type: TensorType) -> None:
    """Of floats that of the operator after it, which ADD has here; of integers that of the layer."""
    constant = [1] if type == INT8 else CHANNELS
    model = layer_and(BuiltinOperator.FULLY_CONNECTED, type, operator, constant, scale=0.5)
    folded = tflm.fold(tflm.Model(model))
    inputs = [random_inputs(tflm.Model(model), np.random.default_rng(i)) for i in range(3)]
    assert_same_bits(run(folded, inputs), run(model, inputs))


def test_a_transpose_whose_input_is_an_output_is_not_merged_into_the_reshape_before_it() -> None:
    for is_output in (False, True):
        graph = Leftovers((2, 8), FLOAT32)
        x = graph.operator(
            BuiltinOperator.RESHAPE, [graph.last, graph.numbers((2, 1, 1, 8))], (2, 1, 1, 8), ReshapeOptions()
        )
        y = graph.transpose(x, (0, 3, 1, 2))
        model = graph.build([y, x] if is_output else [y])
        folded = tflm.fold(tflm.Model(model))
        assert_same_bits(*(run(each, [[np.arange(16, dtype=np.float32).reshape(2, 8)]]) for each in (folded, model)))
        assert names_of(folded) == (["RESHAPE", "TRANSPOSE"] if is_output else ["RESHAPE"])


@pytest.mark.parametrize("padding", Padding)
@pytest.mark.parametrize("channels", [0, 2])
@pytest.mark.parametrize("size", [5, 6])
def test_a_pad_is_folded_into_a_convolution_without_padding_of_its_own(
    padding: Padding, channels: int, size: int
) -> None:
    images = Images(ModelBuilder().subgraph(), (1, size, size, 2))
    x = images.pad(images.last, (1, 1), (1, 1))
    images.main.output(images.convolution(x, channels, padding=padding))
    model = images.main.builder.build()
    folded = tflm.fold(tflm.Model(model))
    assert (len(names_of(folded)) == 1) == (padding == Padding.VALID)
    inputs = [random_inputs(tflm.Model(model), np.random.default_rng(0))]
    assert_same_bits(run(folded, inputs), run(model, inputs))


def test_a_tensor_that_takes_another_name_is_read_by_it() -> None:
    """The first copy is read instead of the second one, and then the tensor becomes the output that equals it."""
    graph = Leftovers((2, 6), INT8)
    x = graph.operator(BuiltinOperator.RELU, [graph.last], (2, 6))
    copy = graph.operator(BuiltinOperator.QUANTIZE, [x], (2, 6))
    same = graph.operator(BuiltinOperator.RESHAPE, [x, graph.numbers((2, 6))], (2, 6), ReshapeOptions())
    last = graph.operator(BuiltinOperator.ADD, [copy, x], (2, 6), AddOptions())
    model = graph.build([same, last])
    folded = tflm.fold(tflm.Model(model))
    assert names_of(folded) == ["RELU", "ADD"]
    inputs = [random_inputs(tflm.Model(model), np.random.default_rng(0))]
    assert_same_bits(run(folded, inputs), run(model, inputs))


# --- Checks of a rewritten model -------------------------------------------------------------------------------------


def two_steps(first: BuiltinOperator, last: BuiltinOperator) -> tflm.Model:
    main = ModelBuilder().subgraph()
    x, a, y = (
        make(name, (1, 900), FLOAT32) for make, name in ((main.input, "x"), (main.tensor, "a"), (main.tensor, "y"))
    )
    main.operator(first, [x], [a])
    main.operator(last, [a], [y])
    main.output(y)
    return tflm.Model(main.builder.build())


ABS, RELU, NEG = BuiltinOperator.ABS, BuiltinOperator.RELU, BuiltinOperator.NEG


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(
    ("after", "wrong"),
    [
        ((ABS, ABS), None),
        ((ABS, NEG), "output, with random input 0"),
        ((NEG, ABS), "output or end of a stage, with random input 0"),
    ],
)
def test_outputs_and_ends_of_stages_are_compared(
    after: tuple[BuiltinOperator, BuiltinOperator], wrong: str | None, count: int
) -> None:
    """ABS after ABS or after NEG returns the same, and what is between them differs."""
    told: list[str] = []
    original, rewritten = two_steps(ABS, ABS), two_steps(*after)

    def check() -> Any:
        return verified(original, original, rewritten, tflm.AllOpsResolver(), {1: 1}, count, told.append)

    if wrong is None:
        found = check()
        assert (found.tags, found.inputs, found.stage_tensors) == (True, count, 1)
    else:
        with pytest.raises(tflm.RewriteError, match=f"{wrong}$"):
            check()
    assert told == [f"run {i} of {4 * count}" for i in range(1, 4 * count + 1)]


def test_a_rewritten_model_runs_in_its_plan() -> None:
    """Here, an operator overwrites its own input, which the last one reads again."""
    main = ModelBuilder().subgraph()
    x, a, b, y = (
        make(name, (1, 32), FLOAT32) for make, name in zip([main.input, main.tensor, main.tensor, main.tensor], "xaby")
    )
    main.operator(RELU, [x], [a])
    main.operator(NEG, [a], [b])
    main.operator(BuiltinOperator.ADD, [a, b], [y], AddOptions())
    main.output(y)
    model = tflm.Model(main.builder.build())
    for place, is_wrong in ((128, False), (64, True)):
        planned = tflm.Model(with_metadata(model, METADATA_NAME, encode_offsets([512, 0, place, 256])), checks="tflm")

        def check(planned: tflm.Model = planned) -> None:
            require_equal_answers(model, planned, tflm.AllOpsResolver(), 1)

        if is_wrong:
            with pytest.raises(tflm.RewriteError, match="number 0, output"):
                check()
        else:
            check()


# --- The search for a smaller arena ----------------------------------------------------------------------------------


def joined(count: int) -> tflm.Model:
    """Parts that lie in their CONCATENATION, if that is allowed."""
    main = ModelBuilder().subgraph()
    x = main.input("x", (1, 900), INT8, quantized(0.5))
    parts = [main.tensor(f"part{i}", (1, 900), INT8, quantized(0.5)) for i in range(count)]
    for part in parts:
        main.operator(BuiltinOperator.RELU, [x], [part])
    y = main.tensor("y", (1, 900 * count), INT8, quantized(0.5))
    main.operator(BuiltinOperator.CONCATENATION, parts, [y], ConcatenationOptions(axis=1))
    main.output(y)
    return tflm.Model(main.builder.build())


@pytest.mark.parametrize("alias", [True, False])
def test_a_plan_alone_is_what_tile_returns_where_it_is_enough(alias: bool) -> None:
    model = joined(4)
    planned = {views: tflm.plan(model, views=views).minimum_arena_bytes for views in (True, False)}
    assert planned[True] < planned[False]
    for ram in (None, planned[alias]):
        found = tflm.tile(model, ram=ram, alias=alias)
        assert found.minimum_arena_bytes == planned[alias]
    assert not found.stages


def test_overlaps_are_for_the_plan_alone_as_well() -> None:
    model = two_steps(RELU, ABS)
    plain, overlapping = (tflm.plan(model, overlap=overlap).minimum_arena_bytes for overlap in (None, "reference"))
    assert overlapping < plain
    found = tflm.tile(model, ram=overlapping, overlap="reference")
    assert (found.minimum_arena_bytes, found.stages) == (overlapping, ())


def two_convolutions() -> tflm.Model:
    """A large image between small ones."""
    images = Images(ModelBuilder().subgraph(), (1, 20, 20, 2))
    images.convolution(images.convolution(images.last, 12), 2)
    images.main.output(images.last)
    return tflm.Model(images.main.builder.build())


def test_a_plan_of_the_original_does_not_count_for_its_bands() -> None:
    model = two_convolutions()
    plain, planned = (
        tflm.tile(each, max_extra_macs=0.5, verify=1) for each in (model, tflm.Model(tflm.plan(model).data))
    )
    assert plain.stages
    assert planned.minimum_arena_bytes == plain.minimum_arena_bytes
    smallest = tflm.tile(model, ram=1, max_extra_macs=0.5, verify=1)
    assert smallest.minimum_arena_bytes == plain.minimum_arena_bytes


def test_the_more_work_is_allowed_the_smaller_is_the_arena() -> None:
    limits = (0.0, 0.1, 0.2, 0.5)
    found = [tflm.tile(two_convolutions(), max_extra_macs=limit, verify=1) for limit in limits]
    assert all(0 <= each.extra_macs <= limit for each, limit in zip(found, limits))
    arenas = [each.minimum_arena_bytes for each in found]
    assert arenas == sorted(arenas, reverse=True)
    assert arenas[0] > arenas[-1]
    assert found[-1].extra_macs > 0.1


def test_memories_of_head_and_tail_are_those_that_were_given() -> None:
    found = tflm.tile(joined(3), head_ram=4000, tail_ram=9000)
    assert isinstance(found.separate, SeparateMemories)
    assert (found.separate.head_ram_bytes, found.separate.tail_ram_bytes) == (4000, 9000)


@pytest.mark.parametrize(
    ("model", "facts"),
    [
        (lambda: joined(4), {"checked"}),
        (lambda: turned_image(), {"checked", "work", "rewritten"}),
    ],
)
def test_the_report_tells_work_where_the_graph_has_changed(model: Callable[[], tflm.Model], facts: set[str]) -> None:
    enough = tflm.plan(tflm.Model(tflm.fold(model()))).minimum_arena_bytes
    tiled = tflm.tile(model(), ram=enough, verify=1)
    assert (tiled.gains, tiled.stages) == (True, ())
    assert {label for label, _ in shown(tiled).facts} == facts


def turned_image() -> tflm.Model:
    """An operator between two TRANSPOSEs."""
    graph = Leftovers((1, 20, 20, 8), INT8)
    graph.transpose(channels_first(graph, "unary"), LAST)
    return tflm.Model(graph.build([graph.last]))


# --- Other shapes ----------------------------------------------------------------------------------------------------


def with_two_subgraphs() -> tflm.Model:
    """RELU of x, beside a custom operator on z; the other subgraph has an input of its own."""
    builder = ModelBuilder()
    main, other = builder.subgraph(), builder.subgraph("other")
    x, z = (main.input(name, (2, 3), FLOAT32) for name in "xz")
    y, kept = (main.tensor(name, (2, 3), FLOAT32) for name in ("y", "kept"))
    main.operator(RELU, [x], [y])
    main.operator("Mine", [z], [kept])
    main.output(y, kept)
    n = other.input("n", (4,), FLOAT32)
    other.output(n)
    maps = ((0, [("first", x), ("second", z)]), (1, [("only", n)]))
    builder.model.signature_defs = [
        SignatureDef(
            inputs=[TensorMap(name=name, tensor_index=tensor) for name, tensor in entries],
            outputs=[],
            signature_key=f"key{subgraph}",
            subgraph_index=subgraph,
        )
        for subgraph, entries in maps
    ]
    return tflm.Model(builder.build())


@pytest.mark.parametrize("shape", [(0, 3), (1, 3), (7,), (), (2, 2, 2)])
@pytest.mark.parametrize("name", ["x", "first", 0])
def test_only_what_reads_a_resized_input_needs_a_rule(name: str | int, shape: tuple[int, ...]) -> None:
    main = tflm.Model(tflm.resize(with_two_subgraphs(), {name: shape}), checks="tflm").subgraphs[0]
    shapes = {tensor.name: tuple(tensor.shape or ()) for tensor in main.tensors or ()}
    assert shapes == {"x": shape, "y": shape, "z": (2, 3), "kept": (2, 3)}


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"only": (1,)}, r"unknown input 'only' \(available: 'x', 'z', 'first', 'second'\)"),
        ({"n": (1,)}, "unknown input 'n'"),
        ({2: (1,)}, r"unknown input 2 \(the model has 2, counted from 0\)"),
        ({-1: (1,)}, "unknown input -1"),
        ({"x": (1, -1)}, r"invalid shape \[1, -1\]"),
        ({"x": (1, 1.5)}, r"invalid shape \[1, 1.5\]"),
    ],
)
def test_inputs_of_the_main_subgraph_are_resized_and_no_others(shapes: Any, message: str) -> None:
    with pytest.raises(tflm.ArgumentError, match=message):
        tflm.resize(with_two_subgraphs(), shapes)


def test_options_of_both_kinds_name_a_subgraph_that_moves() -> None:
    root = read_model(with_two_subgraphs().data)
    (relu, mine) = (root.subgraphs or [])[0].operators or ()
    relu.builtin_options, mine.builtin_options = CallOnceOptions(init_subgraph_index=1), None
    mine.builtin_options_2 = options.StableHLOCompositeOptions(name="composite", decomposition_subgraph_index=1)
    moved = read_model(with_main_subgraph(tflm.Model(write_model(root), checks="tflm"), 1))
    (relu, mine) = (moved.subgraphs or [])[1].operators or ()
    assert relu.builtin_options.init_subgraph_index == 0
    assert mine.builtin_options_2.decomposition_subgraph_index == 0
    assert [each.subgraph_index for each in moved.signature_defs or ()] == [1, 0]


def test_an_operator_without_a_rule_is_named() -> None:
    with pytest.raises(
        tflm.OperatorError, match=r"operator 1 Mine.* does not allow its inputs to be resized"
    ) as raised:
        tflm.resize(with_two_subgraphs(), {"z": (1, 3)})
    assert (raised.value.subgraph_index, raised.value.operator_index) == (0, 1)


@pytest.mark.parametrize("batches", [1, 3])
def test_state_has_the_batches_of_the_input(batches: int) -> None:
    resized = tflm.Model(tflm.resize(tflm.Model(svdf()), {"x": (batches, 64)}))
    shapes = {tensor.name: tensor.shape for tensor in resized.subgraphs[0].tensors or ()}
    assert (shapes["state"], shapes["y"]) == ((batches, 128), (batches, 64))
