"""Convolutions of parts of an image become one: where that saves work, and only where it answers the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from differential import run

import tflm
from tflm.graph import Graph
from tflm.schedule.states import merge_side_by_side, with_states
from tflm.schema import (
    ActivationFunctionType,
    AddOptions,
    BuiltinOperator,
    ConcatenationOptions,
    Conv2DOptions,
    DepthwiseConv2DOptions,
    Padding,
    QuantizationParameters,
    SliceOptions,
    SubgraphBuilder,
    TensorType,
    VarHandleOptions,
)

Part = tuple[int, int, int]
"""The first row of a part of an image, the taps of its convolution along the rows, and its channels."""

SCALE = tflm.quantized(0.5)
PARTS = ((1, 3, 3), (2, 2, 1))


def add_parts(
    main: SubgraphBuilder,
    x: int,
    shape: Sequence[int],
    parts: Sequence[Part],
    rows: int,
    stride: int = 1,
    axis: int = 3,
) -> list[int]:
    """Add a SLICE and a convolution of each part, and join so many rows of all; returns what was cut."""
    rng = np.random.default_rng(3)
    columns, outputs, images, channel = shape[2] - 1, [], [], 0
    for row, taps, channels in parts:
        size, made = (1, (rows - 1) * stride + taps, shape[2], channels), (1, rows, columns, channels)
        image, y = (main.tensor(name, of, TensorType.INT8, SCALE) for name, of in (("part", size), ("made", made)))
        place = [main.constant("place", np.array(values, np.int32)) for values in ((0, row, 0, channel), size)]
        main.operator(BuiltinOperator.SLICE, [x, *place], [image], SliceOptions())
        scales = tflm.quantized(0.25 if channels < 3 else rng.uniform(0.1, 1, channels), 0, 3)
        weights = main.constant("taps", rng.integers(-9, 10, (1, taps, 2, channels)).astype(np.int8), scales)
        bias = main.constant("bias", rng.integers(-40, 40, channels).astype(np.int32))
        options = DepthwiseConv2DOptions(padding=Padding.VALID, stride_h=stride, stride_w=1, depth_multiplier=1)
        main.operator(BuiltinOperator.DEPTHWISE_CONV_2D, [image, weights, bias], [y], options)
        outputs.append(y)
        images.append(image)
        channel += channels
    y = main.tensor("y", (1, rows, columns, channel), TensorType.INT8, SCALE)
    main.operator(BuiltinOperator.CONCATENATION, outputs, [y], ConcatenationOptions(axis=axis))
    main.output(y)
    return images


def side_by_side(
    parts: Sequence[Part] = PARTS, rows: int = 2, width: int = 4, height: int = 6, **options: Any
) -> Graph:
    main = tflm.ModelBuilder().subgraph()
    shape = 1, height, width, sum(channels for *_, channels in parts)
    add_parts(main, main.input("x", shape, TensorType.INT8, SCALE), shape, parts, rows, **options)
    return Graph(tflm.Model(main.builder.build()))


def names(graph: Graph) -> list[str]:
    return [graph.code(operator).name for operator in graph.operators]


def assert_answers_as(graph: Graph, original: Graph) -> None:
    image = np.random.default_rng(4).integers(-128, 128, graph.shape(graph.inputs[0])).astype(np.int8)
    merged, separate = (run(each.build(), [[image]], delegates=()) for each in (graph, original))
    for ours, theirs in zip(merged[0], separate[0], strict=True):
        np.testing.assert_array_equal(ours, theirs)


CUT = ["SLICE", "DEPTHWISE_CONV_2D"]


@pytest.mark.parametrize(
    ("arguments", "merged"),
    [
        ({}, CUT),
        ({"parts": PARTS[::-1], "axis": -1}, CUT),
        ({"parts": ((0, 3, 2), (1, 1, 1), (1, 2, 2)), "height": 5}, CUT),
        ({"parts": ((0, 3, 3), (0, 1, 1)), "height": 5, "stride": 2}, CUT[1:]),
        # As many multiplications are added as copies of elements are saved.
        ({"parts": ((0, 3, 1), (0, 1, 1)), "rows": 3, "width": 3, "height": 5}, CUT[1:]),
    ],
)
def test_parts_are_one_convolution_where_that_saves_work(arguments: dict[str, Any], merged: list[str]) -> None:
    graph = side_by_side(**arguments)
    merge_side_by_side(graph, graph.outputs)
    assert names(graph) == merged
    assert_answers_as(graph, side_by_side(**arguments))
    parts = arguments.get("parts", PARTS)
    depth = sum(channels for *_, channels in parts)
    _, taps, bias = (graph.tensors[tensor] for tensor in graph.operators[-1].inputs or ())
    reach = max(row + taps for row, taps, _ in parts) - min(row for row, *_ in parts)
    assert (taps.shape, bias.shape) == ((1, reach, 2, depth), (depth,))
    scales = taps.quantization
    assert scales is not None
    assert (len(scales.scale or ()), scales.zero_point, scales.quantized_dimension) == (depth, (0,) * depth, 3)


@pytest.mark.parametrize(
    "arguments",
    [
        {"parts": ((1, 3, 4),)},
        {"parts": ((0, 1, 2), (0, 3, 1), (0, 2, 2)), "width": 5, "stride": 2},
    ],
)
def test_parts_stay_apart_where_that_is_less_work(arguments: dict[str, Any]) -> None:
    """One part that nothing can be joined to, and three that one more multiplication than copies would join."""
    graph = side_by_side(**arguments)
    merge_side_by_side(graph, graph.outputs)
    assert names(graph) == [*CUT * len(arguments["parts"]), "CONCATENATION"]


def with_options(*places: int, **changes: Any) -> Callable[[Graph], None]:
    """Change options of operators."""

    def change(graph: Graph) -> None:
        for place in places:
            each = graph.operators[place]
            graph.operators[place] = graph.like(each, each.inputs or (), each.outputs or (), **changes)

    return change


def with_inputs(place: int, choose: Callable[[Graph, tuple[int, ...]], Sequence[int]]) -> Callable[[Graph], None]:
    """Change inputs of an operator."""

    def change(graph: Graph) -> None:
        operator = graph.operators[place]
        operator.inputs = tuple(choose(graph, operator.inputs or ()))

    return change


def with_tensor(place: int, number: int, **changes: Any) -> Callable[[Graph], None]:
    """Change an input of an operator, or with -1 its output."""

    def change(graph: Graph) -> None:
        operator = graph.operators[place]
        tensor = (operator.inputs or ())[number] if number >= 0 else (operator.outputs or ())[0]
        for name, value in changes.items():
            setattr(graph.tensors[tensor], name, value)

    return change


def with_code(code: BuiltinOperator, options: Any, *places: int) -> Callable[[Graph], None]:
    """Replace operators by those of another kind."""

    def change(graph: Graph) -> None:
        for place in places:
            each = graph.operators[place]
            graph.operators[place] = graph.make_operator(code, 1, each.inputs or (), each.outputs or (), options)

    return change


def read_once_more(graph: Graph, place: int = 3) -> None:
    output = graph.operators[place].outputs or ()
    graph.operators.append(graph.make_operator(BuiltinOperator.RELU, 1, output, [graph.add_tensor(output[0], "", ())]))


def begins_at(*place: int) -> Callable[[Graph], None]:
    """Cut the second part elsewhere."""
    return with_inputs(2, lambda graph, old: [old[0], graph.add_constant("", np.array(place, np.int32)), old[2]])


DIFFERENT: dict[str, Callable[[Graph], None]] = {
    "joined rows": with_options(4, axis=1),
    "added": with_code(BuiltinOperator.ADD, AddOptions(), 4),
    "other channels": with_inputs(4, lambda _, old: old[::-1]),
    "strides": with_options(3, stride_h=2),
    "activations": with_options(1, fused_activation_function=ActivationFunctionType.RELU),
    "padding": with_options(1, 3, padding=Padding.SAME),
    "multipliers": with_options(1, 3, depth_multiplier=2),
    "distant rows": with_options(1, 3, dilation_h_factor=2),
    "distant columns": with_options(1, 3, dilation_w_factor=2),
    "columns of taps": with_tensor(3, 1, shape=(1, 2, 1, 1)),
    "taps that are fed": with_inputs(
        3, lambda graph, old: [old[0], graph.add_tensor(old[1], "", (1, 2, 2, 1)), old[2]]
    ),
    "taps of 16 bits": with_tensor(3, 1, type=TensorType.INT16),
    "no bias": with_inputs(3, lambda _, old: old[:2]),
    "a bias that is fed": with_inputs(3, lambda graph, old: [*old[:2], graph.add_tensor(old[2], "", (1,))]),
    "scales of outputs": with_tensor(3, -1, quantization=tflm.quantized(0.25)),
    "no scales": with_tensor(3, 1, quantization=None),
    "empty scales": with_tensor(3, 1, quantization=QuantizationParameters()),
    "zero points": with_tensor(3, 1, quantization=tflm.quantized(0.25, 1, 3)),
    "too many scales": with_tensor(3, 1, quantization=tflm.quantized([0.25, 0.5], 0, 3)),
    "other convolutions": with_code(BuiltinOperator.CONV_2D, Conv2DOptions(padding=Padding.VALID), 1, 3),
    "a part that is not cut": with_code(BuiltinOperator.RELU, None, 2),
    "the image of the caller": with_inputs(3, lambda graph, old: [graph.inputs[0], *old[1:]]),
    "outputs of the caller": with_inputs(4, lambda graph, old: [old[0], graph.inputs[0]]),
    "two images": with_inputs(2, lambda graph, old: [graph.add_tensor(old[0], "", (1, 6, 4, 4)), *old[1:]]),
    "places that are fed": with_inputs(2, lambda graph, old: [old[0], graph.add_tensor(old[1], "", (4,)), old[2]]),
    "batches": begins_at(1, 2, 0, 3),
    "columns": begins_at(0, 2, 1, 3),
    "gaps": begins_at(0, 2, 0, 2),
    "columns left out": with_tensor(2, -1, shape=(1, 3, 3, 1)),
    "channels left out": with_tensor(0, 0, shape=(1, 6, 4, 5)),
    "other readers": read_once_more,
}
"""Changes of a graph after which its parts are no longer parts of one convolution."""


@pytest.mark.parametrize("difference", DIFFERENT)
def test_parts_that_differ_are_left_alone(difference: str) -> None:
    graph = side_by_side()
    DIFFERENT[difference](graph)
    before = list(graph.operators)
    merge_side_by_side(graph, graph.outputs)
    assert graph.operators == before


@pytest.mark.parametrize(("place", "merged"), [(1, [*CUT, *CUT, "CONCATENATION"]), (2, ["SLICE", *CUT])])
def test_other_outputs_are_still_computed(place: int, merged: list[str]) -> None:
    graphs = [side_by_side(), side_by_side()]
    for graph in graphs:
        needed = graph.operators[place].outputs or ()
        graph.set_ends(graph.inputs, (*graph.outputs, *needed))
    merge_side_by_side(graphs[0], graphs[0].outputs)
    assert names(graphs[0]) == merged
    assert_answers_as(*graphs)


def test_parts_that_other_operators_read_are_still_cut() -> None:
    graph = side_by_side()
    read_once_more(graph, 2)
    merge_side_by_side(graph, graph.outputs)
    assert names(graph) == ["SLICE", *CUT, "RELU"]


def test_a_part_that_is_assigned_to_a_variable_is_still_cut() -> None:
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 1, 2, 2), TensorType.INT8, SCALE)
    handles, reads = [], []
    for name in "ab":
        handles.append(main.tensor("handle", (), TensorType.RESOURCE))
        reads.append(main.tensor("read", (1, 2, 2, 1), TensorType.INT8, SCALE))
        options = VarHandleOptions(shared_name=name, container="")
        main.operator(BuiltinOperator.VAR_HANDLE, [], handles[-1:], options)
        main.operator(BuiltinOperator.READ_VARIABLE, handles[-1:], reads[-1:])
    old = main.tensor("old", (1, 2, 2, 2), TensorType.INT8, SCALE)
    window = main.tensor("window", (1, 3, 2, 2), TensorType.INT8, SCALE)
    main.operator(BuiltinOperator.CONCATENATION, reads, [old], ConcatenationOptions(axis=3))
    main.operator(BuiltinOperator.CONCATENATION, [old, x], [window], ConcatenationOptions(axis=1))
    for handle, cut in zip(handles, add_parts(main, window, (1, 3, 2, 2), ((1, 2, 1), (1, 2, 1)), 1)):
        main.operator(BuiltinOperator.ASSIGN_VARIABLE, [handle, cut], [])
    stateful = with_states(tflm.Model(builder.build()))
    made = {tensor for operator in stateful.model.subgraphs[0].operators or () for tensor in operator.outputs or ()}
    assert len(stateful.states) == 2
    assert made >= {*stateful.states.values()}
