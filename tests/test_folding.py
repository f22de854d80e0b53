"""Fold models as converters write them: the same integers and the same bits of floats, in no larger arena."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import fuzz
import numpy as np
import pytest
from differential import assert_close, run
from hypothesis import given, settings
from hypothesis import strategies as st
from image_graphs import image_graph
from leftover_graphs import Leftovers, leftover_graph, with_leftovers
from models import FLOAT32, INT8, INT16
from oracle import Oracle, OracleError
from sampling import examples

import tflm
from tflm.graph import Graph
from tflm.rewriting.verification import random_inputs
from tflm.schema import (
    ActivationFunctionType,
    AddOptions,
    BuiltinOperator,
    Conv2DOptions,
    DepthwiseConv2DOptions,
    FullyConnectedOptions,
    GatherOptions,
    ModelBuilder,
    MulOptions,
    ReducerOptions,
    SubOptions,
    TensorType,
    quantized,
)

Values = list[np.ndarray[Any, Any]]


def assert_same_bits(ours: list[Values], theirs: list[Values]) -> None:
    """Equal shapes, types and bytes."""
    for one, other in zip(ours, theirs, strict=True):
        for a, b in zip(one, other, strict=True):
            assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


def arena_and_operators(data: bytes) -> tuple[int, int]:
    model = tflm.Model(data)
    measured = tflm.measure_arena(model, tflm.AllOpsResolver())
    return measured.minimum_arena_bytes, len(model.subgraphs[0].operators or ())


@given(model=leftover_graph(), seed=st.integers(0, 99))
@settings(max_examples=examples(60))
def test_random_graphs_with_leftovers_keep_every_bit_and_do_not_grow(oracle: Oracle, model: bytes, seed: int) -> None:
    rng = np.random.default_rng(seed)
    inputs = [random_inputs(tflm.Model(model), rng) for _ in range(2)]
    folded = tflm.fold(tflm.Model(model))
    assert_same_bits(run(folded, inputs), run(model, inputs))
    assert all(after <= before for after, before in zip(arena_and_operators(folded), arena_and_operators(model)))
    try:
        expected = oracle.run(model, inputs)
    except OracleError:
        return
    assert_same_bits(oracle.run(folded, inputs), expected)
    for ours, theirs in zip(run(folded, inputs), expected):
        assert_close(ours, theirs)


@given(model=image_graph(), seed=st.integers(0, 99), data=st.data())
@settings(max_examples=examples(25))
def test_leftovers_that_were_put_into_random_graphs_are_gone(
    oracle: Oracle, model: bytes, seed: int, data: st.DataObject
) -> None:
    with_more = with_leftovers(data.draw, model)
    folded = tflm.fold(tflm.Model(with_more))
    inputs = [random_inputs(tflm.Model(model), np.random.default_rng(seed))]
    assert_same_bits(run(folded, inputs), run(model, inputs))
    assert_same_bits(oracle.run(folded, inputs), oracle.run(model, inputs))
    without = arena_and_operators(tflm.fold(tflm.Model(model)))
    assert all(after <= before for after, before in zip(arena_and_operators(folded), without))


def names_of(data: bytes) -> list[str]:
    model = tflm.Model(data)
    return [model.operator_name(operator) for operator in model.subgraphs[0].operators or ()]


def folded_names(oracle: Oracle, model: bytes, seed: int = 0) -> list[str]:
    """The operators after folding; the bits are those of before, here and in TFLM."""
    inputs = [random_inputs(tflm.Model(model), np.random.default_rng(seed)) for _ in range(2)]
    folded = tflm.fold(tflm.Model(model))
    assert_same_bits(run(folded, inputs), run(model, inputs))
    assert_same_bits(oracle.run(folded, inputs), oracle.run(model, inputs))
    return names_of(folded)


# TRANSPOSEs.

FIRST, LAST = (0, 3, 1, 2), (0, 2, 3, 1)
"""Channels first, from channels last; and back."""

IMAGE = (2, 4, 6, 8)


@pytest.mark.parametrize("type", [INT8, FLOAT32])
@pytest.mark.parametrize(
    ("first", "second", "left"), [(FIRST, LAST, 0), (FIRST, FIRST, 1), ((0, 2, 1, 3), (0, 1, 3, 2), 1)]
)
def test_transposes_in_a_row_become_one_or_none(
    oracle: Oracle, type: TensorType, first: tuple[int, ...], second: tuple[int, ...], left: int
) -> None:
    graph = Leftovers(IMAGE, type)
    x = graph.transpose(graph.transpose(graph.last, first), second)
    graph.operator(BuiltinOperator.RELU, [x], graph.shapes[x])
    assert folded_names(oracle, graph.build([graph.last])) == ["TRANSPOSE"] * left + ["RELU"]


def channels_first(graph: Leftovers, kind: str) -> int:
    """One or more operators on an image whose channels come first."""
    x = graph.transpose(graph.last, FIRST)
    shape = graph.shapes[x]
    if kind == "unary":
        return graph.operator(BuiltinOperator.RELU, [x], shape)
    if kind == "a constant for each channel":
        return graph.with_constant(x, (1, shape[1], 1, 1))
    if kind == "a constant of fewer dimensions":
        return graph.with_constant(x, (shape[1], 1, 1))
    if kind == "a constant for all":
        return graph.with_constant(x, (1,))
    if kind == "a sum of two":
        a = graph.operator(BuiltinOperator.RELU, [x], shape)
        return graph.operator(BuiltinOperator.ADD, [a, x], shape, AddOptions())
    if kind == "concatenation":
        return graph.concatenate([x, graph.constant(shape)], 1)
    if kind == "split":
        a, b = graph.split(x, 1, 2)
        return graph.operator(BuiltinOperator.MAXIMUM, [a, b], graph.shapes[a])
    if kind == "pad":
        return graph.pad(x, [(0, 0), (0, 0), (1, 0), (0, 2)])
    if kind == "slice":
        return graph.slice(x, [0, 1, 2, 0], [2, 3, 1, 6])
    return graph.reduce(BuiltinOperator[kind], x, [2, 3], True)


@pytest.mark.parametrize("type", [INT8, FLOAT32])
@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("unary", ["RELU"]),
        ("a constant for each channel", None),
        ("a constant of fewer dimensions", None),
        ("a constant for all", None),
        ("a sum of two", ["RELU", "ADD"]),
        ("concatenation", ["CONCATENATION"]),
        ("split", ["SPLIT", "MAXIMUM"]),
        ("pad", ["PAD"]),
        ("slice", ["SLICE"]),
        ("MEAN", ["MEAN"]),
        ("SUM", ["SUM"]),
        ("REDUCE_MAX", ["REDUCE_MAX"]),
        ("REDUCE_MIN", ["REDUCE_MIN"]),
    ],
)
def test_operators_on_channels_first_run_on_channels_last(
    oracle: Oracle, type: TensorType, kind: str, names: list[str] | None
) -> None:
    graph = Leftovers(IMAGE, type)
    graph.transpose(channels_first(graph, kind), LAST)
    found = folded_names(oracle, graph.build([graph.last]))
    assert found == (names or [found[0]])
    assert "TRANSPOSE" not in found


def test_a_mean_without_its_dimensions_takes_a_transpose_away(oracle: Oracle) -> None:
    for type in (INT8, FLOAT32):
        graph = Leftovers(IMAGE, type)
        graph.reduce(BuiltinOperator.MEAN, graph.transpose(graph.last, FIRST), [2, 3], False)
        assert folded_names(oracle, graph.build([graph.last])) == ["MEAN"]


@pytest.mark.parametrize("code", [BuiltinOperator.MAX_POOL_2D, BuiltinOperator.AVERAGE_POOL_2D])
def test_pools_of_integers_are_turned_and_those_of_floats_are_not(oracle: Oracle, code: BuiltinOperator) -> None:
    turned = (0, 2, 1, 3)
    for type in (INT8, FLOAT32):
        graph = Leftovers(IMAGE, type)
        x = graph.pool(code, graph.transpose(graph.last, turned), (3, 2), (2, 1))
        graph.transpose(x, turned)
        expected = [code.name] if type == INT8 else ["TRANSPOSE", code.name, "TRANSPOSE"]
        assert folded_names(oracle, graph.build([graph.last])) == expected


def test_floats_are_not_summed_in_another_order(oracle: Oracle) -> None:
    for type, names in ((INT8, ["MEAN"]), (FLOAT32, ["TRANSPOSE", "MEAN"])):
        graph = Leftovers(IMAGE, type)
        graph.reduce(BuiltinOperator.MEAN, graph.transpose(graph.last, (0, 2, 1, 3)), [1, 2], False)
        assert folded_names(oracle, graph.build([graph.last])) == names


def test_several_readers_get_the_order_that_each_needs(oracle: Oracle) -> None:
    """A residual block between convolutions that read channels last, and one reader of channels first."""
    for other in (False, True):
        graph = Leftovers(IMAGE, INT8)
        start = graph.last
        a = graph.operator(BuiltinOperator.RELU, [graph.transpose(start, FIRST)], (2, 8, 4, 6))
        b = graph.transpose(graph.pool(BuiltinOperator.MAX_POOL_2D, graph.transpose(a, LAST), (3, 3), (1, 1)), FIRST)
        total = graph.operator(BuiltinOperator.ADD, [a, b], (2, 8, 4, 6), AddOptions())
        y = graph.transpose(total, LAST)
        found = folded_names(oracle, graph.build([y, total] if other else [y]))
        assert found == ["RELU", "MAX_POOL_2D", "ADD"] + ["TRANSPOSE"] * other


@pytest.mark.parametrize(
    ("shape", "order", "after", "names"),
    [
        ((1, 1, 6, 1), (1, 0, 2, 3), None, ["RELU"]),
        ((1, 4, 1, 1), (0, 3, 1, 2), None, ["TRANSPOSE", "RELU"]),
        ((1, 1, 1, 8), (0, 3, 1, 2), (8,), ["RESHAPE"]),
        ((1, 2, 1, 8), (0, 3, 1, 2), (16,), ["TRANSPOSE", "RESHAPE"]),
        ((1, 2, 1, 8), (2, 1, 0, 3), (16,), ["RESHAPE"]),
    ],
)
def test_transposes_that_move_nothing_are_left_out_or_merged_into_reshapes(
    oracle: Oracle, shape: tuple[int, ...], order: tuple[int, ...], after: tuple[int, ...] | None, names: list[str]
) -> None:
    graph = Leftovers(shape, INT8)
    x = graph.transpose(graph.last, order)
    if after is None:
        graph.operator(BuiltinOperator.RELU, [x], graph.shapes[x])
    else:
        graph.operator(BuiltinOperator.RESHAPE, [x, graph.numbers(after)], after)
    assert folded_names(oracle, graph.build([graph.last])) == names


def test_a_reshape_and_a_transpose_that_moves_nothing_become_one_reshape(oracle: Oracle) -> None:
    graph = Leftovers((2, 8), FLOAT32)
    x = graph.operator(BuiltinOperator.RESHAPE, [graph.last, graph.numbers((2, 1, 1, 8))], (2, 1, 1, 8))
    graph.transpose(x, FIRST)
    assert folded_names(oracle, graph.build([graph.last])) == ["RESHAPE"]


@pytest.mark.parametrize(
    ("code", "names"),
    [(BuiltinOperator.RESHAPE, ["RESHAPE"]), (BuiltinOperator.EXPAND_DIMS, ["RESHAPE", "EXPAND_DIMS"])],
)
def test_only_reshapes_read_the_start_of_a_chain(oracle: Oracle, code: BuiltinOperator, names: list[str]) -> None:
    graph = Leftovers((1, 2, 1, 8), INT8)
    x = graph.operator(BuiltinOperator.RESHAPE, [graph.last, graph.numbers((2, 8))], (2, 8))
    made = (2, 1, 8)
    graph.operator(code, [x, graph.numbers(made if code == BuiltinOperator.RESHAPE else (1,))], made)
    assert folded_names(oracle, graph.build([graph.last])) == names


def test_transposes_of_variables_stay_in_their_place() -> None:
    """The variable changes between the TRANSPOSE and what reads its output."""
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (2, 3), FLOAT32)
    state = main.tensor("state", (2, 3), FLOAT32, is_variable=True)
    a, b, y = main.tensor("a", (3, 2), FLOAT32), main.tensor("b", (2, 3), FLOAT32), main.tensor("y", (2, 3), FLOAT32)
    order = main.constant("order", np.array([1, 0], np.int32))
    main.operator(BuiltinOperator.TRANSPOSE, [state, order], [a])
    main.operator(BuiltinOperator.ADD, [state, x], [state], AddOptions())
    main.operator(BuiltinOperator.TRANSPOSE, [a, order], [b])
    main.operator(BuiltinOperator.RELU, [b], [y])
    main.output(y)
    model = builder.build()
    inputs = [[np.full((2, 3), i + 1, np.float32)] for i in range(3)]
    assert_same_bits(run(tflm.fold(tflm.Model(model)), inputs), run(model, inputs))
    assert names_of(tflm.fold(tflm.Model(model))) == names_of(model)


def test_a_transpose_between_two_scales_is_no_transpose() -> None:
    """TFLM moves the integers regardless of the scales, so that their meaning changes."""
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (2, 3), INT8, quantized(0.5, 1))
    a = main.tensor("a", (3, 2), INT8, quantized(0.25, 1))
    y = main.tensor("y", (2, 3), INT8, quantized(0.25, 1))
    order = main.constant("order", np.array([1, 0], np.int32))
    main.operator(BuiltinOperator.TRANSPOSE, [x, order], [a])
    main.operator(BuiltinOperator.TRANSPOSE, [a, order], [y])
    main.output(y)
    assert names_of(tflm.fold(tflm.Model(builder.build()))) == ["TRANSPOSE", "TRANSPOSE"]


# Operators whose output equals their input.


def there_and_back(type: TensorType, before: Any, after: Any) -> bytes:
    """DEQUANTIZE and QUANTIZE between the scales and zero points."""
    builder = ModelBuilder()
    main = builder.subgraph()
    count = 256 if type == INT8 else 65536
    x = main.input("x", (count,), type, quantized(*before))
    a = main.tensor("a", (count,), FLOAT32)
    b, y = (main.tensor(name, (count,), type, quantized(*after)) for name in "by")
    main.operator(BuiltinOperator.DEQUANTIZE, [x], [a])
    main.operator(BuiltinOperator.QUANTIZE, [a], [b])
    main.operator(BuiltinOperator.RELU, [b], [y])
    main.output(y)
    return builder.build()


@pytest.mark.parametrize(
    ("type", "before", "after", "folds"),
    [
        (INT8, (0.1, 3), (0.1, 3), True),
        (INT8, (0.0123, -128), (0.0123, -128), True),
        (INT8, (1.2e-38, 0), (1.2e-38, 0), True),
        (INT8, (3e38, 0), (3e38, 0), False),
        (INT8, (0.1, 3), (0.1, 4), False),
        (INT8, (0.1, 3), (0.1000001, 3), False),
        (INT16, (1 / 3e4, 0), (1 / 3e4, 0), True),
        (INT16, (1e-3, 0), (1.1e-3, 0), False),
    ],
)
def test_conversions_to_floats_and_back_are_left_out_if_every_value_comes_back(
    oracle: Oracle, type: TensorType, before: Any, after: Any, folds: bool
) -> None:
    model = there_and_back(type, before, after)
    kind: Any = np.int8 if type == INT8 else np.int16
    limits = np.iinfo(kind)
    values = [[np.arange(limits.min, limits.max + 1).astype(kind)]]
    folded = tflm.fold(tflm.Model(model))
    assert_same_bits(run(folded, values), run(model, values))
    assert_same_bits(oracle.run(folded, values), oracle.run(model, values))
    assert names_of(folded) == (["RELU"] if folds else ["DEQUANTIZE", "QUANTIZE", "RELU"])


@pytest.mark.parametrize(("zero_point", "names"), [(-128, ["TANH"]), (-127, ["RELU", "TANH"])])
def test_a_relu_that_changes_no_value_is_left_out(oracle: Oracle, zero_point: int, names: list[str]) -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    x, a = (main.input("x", (9,), INT8, quantized(0.1, zero_point)), main.tensor("a", (9,), INT8))
    (main.table.tensors or [])[a].quantization = quantized(0.1, zero_point)
    y = main.tensor("y", (9,), INT8, quantized(1 / 128, 0))
    main.operator(BuiltinOperator.RELU, [x], [a])
    main.operator(BuiltinOperator.TANH, [a], [y])
    main.output(y)
    assert folded_names(oracle, builder.build()) == names


@pytest.mark.parametrize(
    ("code", "options", "value", "folds"),
    [
        (BuiltinOperator.MUL, MulOptions(), 1.0, True),
        (BuiltinOperator.MUL, MulOptions(), -1.0, False),
        (BuiltinOperator.MUL, MulOptions(fused_activation_function=ActivationFunctionType.RELU), 1.0, False),
        (BuiltinOperator.SUB, SubOptions(), 0.0, True),
        (BuiltinOperator.SUB, SubOptions(), -0.0, False),
        (BuiltinOperator.ADD, AddOptions(), -0.0, True),
        (BuiltinOperator.ADD, AddOptions(), 0.0, False),
    ],
)
def test_floats_that_keep_each_bit_also_of_zero_are_passed_on(
    code: BuiltinOperator, options: Any, value: float, folds: bool
) -> None:
    graph = Leftovers((2, 3), FLOAT32)
    c = graph.main.constant("c", np.full((3,), value, np.float32))
    start = graph.last
    clamped = graph.operator(BuiltinOperator.ADD, [start, start], (2, 3), AddOptions())
    for x in (clamped, start):
        graph.operator(BuiltinOperator.NEG, [graph.operator(code, [x, c], (2, 3), options)], (2, 3))
        graph.main.output(graph.last)
    model = graph.build([])
    folded = tflm.fold(tflm.Model(model))
    inputs = [[np.array([[0.0, -0.0, 1.5], [-2.5, np.inf, 1e-45]], np.float32)]]
    assert_same_bits(run(folded, inputs), run(model, inputs))
    assert names_of(folded) == ["ADD", *([] if folds else [code.name]), "NEG", code.name, "NEG"]


def test_what_would_keep_more_bytes_alive_is_not_taken() -> None:
    """Without the conversions, the input would be alive during the operator that needs most memory."""
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1000,), INT8, quantized(0.1))
    real, large = main.tensor("real", (1000,), FLOAT32), main.tensor("large", (1000,), FLOAT32)
    mean, y, z = main.tensor("mean", (1,), FLOAT32), *(main.tensor(n, (1000,), INT8, quantized(0.1)) for n in "yz")
    main.operator(BuiltinOperator.DEQUANTIZE, [x], [real])
    main.operator(BuiltinOperator.NEG, [real], [large])
    axis = main.constant("axis", np.array([0], np.int32))
    main.operator(BuiltinOperator.MEAN, [large, axis], [mean], ReducerOptions(keep_dims=True))
    main.operator(BuiltinOperator.QUANTIZE, [real], [y])
    main.operator(BuiltinOperator.ADD, [y, y], [z], AddOptions())
    main.output(mean, z)
    model = builder.build()
    assert tflm.fold(tflm.Model(model)) == model


def test_a_transpose_whose_input_would_live_longer_stays(oracle: Oracle) -> None:
    """The input of the first TRANSPOSE would stay alive next to its output, which is also read."""
    graph = Leftovers((10, 100), INT8)
    turned = (1, 0)
    x = graph.operator(BuiltinOperator.RELU, [graph.last], (10, 100))
    a = graph.transpose(x, turned)
    flat = graph.operator(BuiltinOperator.RESHAPE, [a, graph.numbers((1000,))], (1000,))
    mean = graph.reduce(BuiltinOperator.MEAN, flat, [0], True)
    y = graph.transpose(a, turned)
    z = graph.operator(BuiltinOperator.ADD, [y, y], (10, 100), AddOptions())
    names = ["RELU", "TRANSPOSE", "RESHAPE", "MEAN", "TRANSPOSE", "ADD"]
    assert folded_names(oracle, graph.build([mean, z])) == names


# Constants.


def layer_and(
    kind: BuiltinOperator, type: TensorType, operator: BuiltinOperator, constant: Any, **changes: Any
) -> bytes:
    """A layer of four channels, then ADD, SUB or MUL of a constant.

    Args:
        changes: `scale` of the last output, over that of the layer's; `bias`, `activation` of the layer, `used` for a
            layer whose output is an output of the model.
    """
    builder = ModelBuilder()
    main = builder.subgraph()
    random = np.random.default_rng(1)
    image = kind != BuiltinOperator.FULLY_CONNECTED
    integers = type == INT8
    x = main.input("x", (1, 5, 5, 4) if image else (2, 4), type, quantized(0.1, 3) if integers else None)
    shapes = {BuiltinOperator.CONV_2D: (4, 3, 3, 4), BuiltinOperator.DEPTHWISE_CONV_2D: (1, 3, 3, 4)}
    values = random.integers(-90, 90, shapes.get(kind, (4, 4)))
    channels = 3 if kind == BuiltinOperator.DEPTHWISE_CONV_2D else 0
    scales = quantized([0.01, 0.02, 0.03, 0.04] if image else 0.01, 0, channels) if integers else None
    w = main.constant("w", values.astype(np.int8) if integers else (values / 7).astype(np.float32), scales)
    inputs = [x, w]
    if changes.get("bias", integers):
        b = np.array([1, -2, 3, 4])
        inputs.append(main.constant("b", b.astype(np.int32 if integers else np.float32), quantized(0.001)))
    shape = (1, 5, 5, 4) if image else (2, 4)
    t = main.tensor("t", shape, type, quantized(0.25, 5) if integers else None)
    activation = changes.get("activation", ActivationFunctionType.NONE)
    options: dict[BuiltinOperator, Any] = {
        BuiltinOperator.CONV_2D: Conv2DOptions(stride_h=1, stride_w=1, fused_activation_function=activation),
        BuiltinOperator.DEPTHWISE_CONV_2D: DepthwiseConv2DOptions(
            stride_h=1, stride_w=1, depth_multiplier=1, fused_activation_function=activation
        ),
        BuiltinOperator.FULLY_CONNECTED: FullyConnectedOptions(fused_activation_function=activation),
    }
    main.operator(kind, inputs, [t], options[kind])
    y = main.tensor("y", shape, type, quantized(0.25 * changes.get("scale", 1.0), 5) if integers else None)
    c = main.constant(
        "c", np.asarray(constant, np.int8 if integers else np.float32), quantized(0.5) if integers else None
    )
    then: dict[BuiltinOperator, Any] = {
        BuiltinOperator.ADD: AddOptions(fused_activation_function=ActivationFunctionType.RELU),
        BuiltinOperator.SUB: SubOptions(),
        BuiltinOperator.MUL: MulOptions(),
    }
    main.operator(operator, [t, c], [y], then[operator])
    main.output(*([t, y] if changes.get("used") else [y]))
    return builder.build()


LAYERS = (BuiltinOperator.CONV_2D, BuiltinOperator.DEPTHWISE_CONV_2D, BuiltinOperator.FULLY_CONNECTED)
ADD, SUB, MUL = BuiltinOperator.ADD, BuiltinOperator.SUB, BuiltinOperator.MUL
CHANNELS = [0.1, -0.2, 0.3, 0.0]


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize(
    ("type", "operator", "constant", "changes", "folds"),
    [
        (FLOAT32, ADD, CHANNELS, {}, True),
        (FLOAT32, ADD, [0.7], {}, True),
        (FLOAT32, ADD, CHANNELS, {"bias": True}, False),
        (FLOAT32, ADD, CHANNELS, {"activation": ActivationFunctionType.RELU}, False),
        (FLOAT32, ADD, CHANNELS, {"used": True}, False),
        (FLOAT32, SUB, CHANNELS, {}, True),
        (FLOAT32, MUL, [0.5, 2.0, 4.0, 1.0], {"bias": True}, False),
        (FLOAT32, MUL, [0.5], {}, False),
        (INT8, MUL, [1], {"scale": 0.5}, True),
        (INT8, MUL, [4], {"scale": 2.0}, True),
        (INT8, MUL, [4, 4, 4, 4], {"scale": 2.0, "activation": ActivationFunctionType.RELU}, True),
        (INT8, MUL, [4], {"scale": 2.0, "activation": ActivationFunctionType.RELU6}, False),
        (INT8, MUL, [4, 4, 4, 2], {"scale": 2.0}, False),
        (INT8, MUL, [3], {"scale": 1.5}, False),
        (INT8, MUL, [4], {"scale": 1.0}, False),
        (INT8, ADD, [4], {}, False),
    ],
)
def test_constants_are_merged_into_layers_where_every_bit_stays(
    oracle: Oracle,
    layer: BuiltinOperator,
    type: TensorType,
    operator: BuiltinOperator,
    constant: list[float],
    changes: dict[str, Any],
    folds: bool,
) -> None:
    model = layer_and(layer, type, operator, constant, **changes)
    assert folded_names(oracle, model) == ([layer.name] if folds else [layer.name, operator.name])


def test_tile_reports_what_was_folded() -> None:
    graph = Leftovers((1, 20, 20, 8), INT8)
    graph.transpose(channels_first(graph, "unary"), LAST)
    tiled = tflm.tile(tflm.Model(graph.build([graph.last])))
    assert tiled.rewrites == {"TRANSPOSEs merged, moved or removed": 2}
    assert tiled.minimum_arena_bytes < tiled.minimum_arena_bytes_before


@given(model=leftover_graph(), seed=st.integers(0, 2**32))
@settings(max_examples=examples(40))
def test_damaged_models_are_folded_or_refused(model: bytes, seed: int) -> None:
    with contextlib.suppress(tflm.TflmError):
        tflm.fold(tflm.Model(fuzz.change_table(model, random.Random(seed))))


def test_a_constant_may_be_shorter_than_its_buffer() -> None:
    graph = Leftovers((2, 3), FLOAT32)
    graph.transpose(graph.last, (1, 0))
    (graph.main.table.tensors or [])[1].shape = (1,)
    assert Graph(tflm.Model(graph.build([graph.last]))).constant(1).tolist() == [1]


def test_what_rejects_some_values_is_not_left_out() -> None:
    """RSQRT rejects negative numbers, even if the model never passes one."""
    builder = ModelBuilder()
    main = builder.subgraph()
    tensors = [main.input("x", (3,), INT8, quantized(0.5)), main.tensor("y", (3,), INT8, quantized(0.5))]
    main.operator(BuiltinOperator.RSQRT, tensors[:1], tensors[1:])
    main.output(tensors[1])
    folded = tflm.Model(tflm.fold(tflm.Model(builder.build())))
    assert len(folded.subgraphs[0].operators or ()) == 1


def test_a_model_is_verified_with_inputs_that_it_rejects() -> None:
    """Random indices are out of range for GATHER, before a model is tiled and afterwards."""
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (4, 3), INT8, quantized(0.5))
    indices = main.input("indices", (2,), TensorType.INT32)
    y = main.tensor("y", (2, 3), INT8, quantized(0.5))
    main.operator(BuiltinOperator.GATHER, [x, indices], [y], GatherOptions())
    main.output(y)
    assert tflm.tile(tflm.Model(builder.build()), verify=2).model.subgraphs[0].operators
