"""Random graphs, and the types, scales, shapes and values of `tflm.testing` that tests draw."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tflm import KernelContext, Node, Registration
from tflm.schema import (
    ELEMENT_TYPES,
    AddOptions,
    BuiltinOperator,
    CallOnceOptions,
    Conv2DOptions,
    DepthwiseConv2DOptions,
    FullyConnectedOptions,
    ModelBuilder,
    Padding,
    TensorType,
    VarHandleOptions,
    quantized,
    read_model,
    write_model,
)
from tflm.testing.drawing import (
    ACTIVATIONS,
    FLOAT32,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    Arrays,
    Draw,
    broadcast_shapes,
    factors,
    float32,
    quantization,
    rescaled,
    scales,
    shapes,
    values,
    zero_points,
)
from tflm.testing.drawing import (
    OperatorCase as Case,
)

__all__ = [
    "ACTIVATIONS",
    "FLOAT32",
    "INT16",
    "INT32",
    "INT64",
    "INT8",
    "UINT8",
    "Arrays",
    "Draw",
    "broadcast_shapes",
    "factors",
    "float32",
    "quantization",
    "rescaled",
    "scales",
    "shapes",
    "values",
    "zero_points",
    "Case",
    "counter",
]


def counter(type: TensorType, width: int, with_init: bool) -> bytes:
    """y = state + x, state = y; the state begins at zero, or at 2 by way of a subgraph that is called once."""
    parameters = None if type == FLOAT32 else quantized(0.5, 3)
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, width), type, parameters)
    handle = main.tensor("handle", (1,), TensorType.RESOURCE)
    state = main.tensor("state", (1, width), type, parameters)
    y = main.tensor("y", (1, width), type, parameters)
    if with_init:
        main.operator(BuiltinOperator.CALL_ONCE, [], [], CallOnceOptions(init_subgraph_index=1))
    main.operator(BuiltinOperator.VAR_HANDLE, [], [handle], VarHandleOptions(container="", shared_name="state"))
    main.operator(BuiltinOperator.READ_VARIABLE, [handle], [state])
    main.operator(BuiltinOperator.ADD, [state, x], [y], AddOptions())
    main.operator(BuiltinOperator.ASSIGN_VARIABLE, [handle, y], [])
    main.output(y)
    if with_init:
        init = builder.subgraph("init")
        initial = init.constant("initial", np.full((1, width), 2, ELEMENT_TYPES[type].dtype), parameters)
        handle = init.tensor("handle", (1,), TensorType.RESOURCE)
        init.operator(BuiltinOperator.VAR_HANDLE, [], [handle], VarHandleOptions(container="", shared_name="state"))
        init.operator(BuiltinOperator.ASSIGN_VARIABLE, [handle, initial], [])
    return builder.build()


def layer(operator: str, positions: int, width: int, channels: int, type: TensorType) -> tuple[bytes, list[Arrays]]:
    """A convolution, or the matrix of a fully connected layer, whose output is the last tensor of its arena."""
    rng = np.random.default_rng(positions * 100 + channels)
    is_float = type == TensorType.FLOAT32
    depth = {"FULLY_CONNECTED": 3, "CONV_2D": 2, "DEPTHWISE_CONV_2D": channels}[operator]
    filters = {
        "FULLY_CONNECTED": (channels, 3),
        "CONV_2D": (channels, 1, 1, 2),
        "DEPTHWISE_CONV_2D": (1, 1, 2, channels),
    }
    x_shape = (positions * width, 3) if operator == "FULLY_CONNECTED" else (1, positions, width, depth)
    y_shape = (*x_shape[:-1], channels)
    options = {
        "FULLY_CONNECTED": FullyConnectedOptions(),
        "CONV_2D": Conv2DOptions(padding=Padding.SAME, stride_w=1, stride_h=1),
        "DEPTHWISE_CONV_2D": DepthwiseConv2DOptions(padding=Padding.SAME, stride_w=1, stride_h=1, depth_multiplier=1),
    }[operator]
    scale = None if is_float else quantized(0.5)
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", x_shape, type, scale)
    weights = rng.integers(-9, 9, filters[operator]).astype(np.float32 if is_float else np.int8)
    w = main.constant("weights", weights, None if is_float else quantized([0.25]))
    y = main.tensor("y", y_shape, type, scale)
    main.operator(BuiltinOperator[operator], [x, w], [y], options)
    main.output(y)
    return builder.build(), [[rng.integers(-99, 99, x_shape).astype(ELEMENT_TYPES[type].dtype)]]


def negated() -> tuple[bytes, Registration]:
    """A model of a custom operator that negates three floats, and its registration."""

    def invoke(context: KernelContext, node: Node) -> None:
        np.negative(context.get_eval_input(node, 0).elements, out=context.get_eval_output(node, 0).elements)

    builder = ModelBuilder()
    main = builder.subgraph()
    x, y = main.input("x", (3,), TensorType.FLOAT32), main.tensor("y", (3,), TensorType.FLOAT32)
    main.operator("Negated", [x], [y])
    main.output(y)
    return builder.build(), Registration("Negated", invoke=invoke)


def renumbered(model: bytes, by: int) -> bytes:
    """The same graph with its tensors rotated, so that a constant may be tensor 0."""
    root = read_model(model)
    (subgraph,) = root.subgraphs or ()
    tensors = list(subgraph.tensors or ())

    def others(old: Sequence[int] | None) -> tuple[int, ...]:
        return tuple((tensor + by) % len(tensors) if tensor >= 0 else -1 for tensor in old or ())

    subgraph.tensors = [tensors[(i - by) % len(tensors)] for i in range(len(tensors))]
    subgraph.inputs, subgraph.outputs = others(subgraph.inputs), others(subgraph.outputs)
    for operator in subgraph.operators or ():
        operator.inputs, operator.outputs = others(operator.inputs), others(operator.outputs)
        operator.intermediates = others(operator.intermediates)
    return write_model(root)
