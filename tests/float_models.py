"""Float models for the tests of quantization, and a substitute for litert-quantizer if it is not installed."""

from __future__ import annotations

from typing import Any

import numpy as np

import tflm
from tflm.quantization.quantized_model import int8_outline
from tflm.quantization.recipe import Range, Recipe
from tflm.schema import (
    ActivationFunctionType,
    BuiltinOperator,
    Conv2DOptions,
    DequantizeOptions,
    FullyConnectedOptions,
    ModelBuilder,
    ReshapeOptions,
    SoftmaxOptions,
    SubgraphBuilder,
    TensorType,
    UnidirectionalSequenceLSTMOptions,
    read_model,
    write_model,
)

FLOAT = TensorType.FLOAT32


def classifier(classes: int = 4, width: int = 16) -> ModelBuilder:
    """A convolution, a dense layer and SOFTMAX over pictures of 8 by 8, without a signature."""
    rng = np.random.default_rng(3)
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 8, 8, 1), FLOAT)
    kernel = main.constant("kernel", rng.normal(0, 0.5, (width, 3, 3, 1)).astype(np.float32))
    bias = main.constant("bias", rng.normal(0, 0.1, width).astype(np.float32))
    y = main.tensor("conv", (1, 4, 4, width), FLOAT)
    options = Conv2DOptions(stride_w=2, stride_h=2, fused_activation_function=ActivationFunctionType.RELU)
    main.operator(BuiltinOperator.CONV_2D, [x, kernel, bias], [y], options)
    flat = main.tensor("flat", (1, 16 * width), FLOAT)
    shape = main.constant("shape", np.array([1, 16 * width], np.int32))
    main.operator(BuiltinOperator.RESHAPE, [y, shape], [flat], ReshapeOptions(new_shape=(1, 16 * width)))
    logits = dense(main, flat, 16 * width, classes)
    main.output(main.tensor("probabilities", (1, classes), FLOAT))
    main.operator(BuiltinOperator.SOFTMAX, [logits], [logits + 1], SoftmaxOptions(beta=1.0))
    return builder


def dense(main: SubgraphBuilder, x: int, inputs: int, outputs: int) -> int:
    """A layer without an activation; returns its output."""
    weights = np.random.default_rng(inputs).normal(0, inputs**-0.5, (outputs, inputs)).astype(np.float32)
    operands = [x, main.constant(f"weights_{inputs}", weights), main.constant(f"biases_{inputs}", weights[:, 0])]
    y = main.tensor(f"dense_{inputs}", (1, outputs), FLOAT)
    main.operator(BuiltinOperator.FULLY_CONNECTED, operands, [y], FullyConnectedOptions())
    return y


def one_layer(inputs: int = 8, outputs: int = 4) -> tflm.Model:
    """A dense layer."""
    builder = ModelBuilder()
    main = builder.subgraph()
    main.output(dense(main, main.input("x", (1, inputs), FLOAT), inputs, outputs))
    return tflm.Model(builder.build())


def half_layer() -> tflm.Model:
    """A dense layer whose weights, 0 to 31, are stored as FLOAT16."""
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 8), FLOAT)
    stored = main.constant("stored", np.arange(32, dtype=np.float16).reshape(4, 8))
    weights = main.tensor("weights", (4, 8), FLOAT)
    main.operator(BuiltinOperator.DEQUANTIZE, [stored], [weights], DequantizeOptions())
    main.output(main.tensor("y", (1, 4), FLOAT))
    main.operator(BuiltinOperator.FULLY_CONNECTED, [x, weights, -1], [weights + 1], FullyConnectedOptions())
    return tflm.Model(builder.build())


def recurrent(steps: int = 4, size: int = 3, cells: int = 5) -> tflm.Model:
    """An LSTM without peepholes or projection, then a dense layer."""
    rng = np.random.default_rng(8)
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, steps, size), FLOAT)

    def constants(name: str, *shape: int) -> list[int]:
        return [main.constant(f"{name}_{i}", rng.normal(0, 0.4, shape).astype(np.float32)) for i in range(4)]

    states = [main.tensor(name, (1, cells), FLOAT, is_variable=True) for name in ("output_state", "cell_state")]
    operands = [x, *constants("w", cells, size), *constants("r", cells, cells), -1, -1, -1, *constants("b", cells)]
    operands += [-1, -1, *states, -1, -1, -1, -1]
    y = main.tensor("lstm", (1, steps, cells), FLOAT)
    options = UnidirectionalSequenceLSTMOptions(fused_activation_function=ActivationFunctionType.TANH)
    main.operator(BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_LSTM, operands, [y], options)
    flat = main.tensor("flat", (1, steps * cells), FLOAT)
    shape = main.constant("shape", np.array([1, steps * cells], np.int32))
    main.operator(BuiltinOperator.RESHAPE, [y, shape], [flat], ReshapeOptions(new_shape=(1, steps * cells)))
    main.output(dense(main, flat, steps * cells, 2))
    return tflm.Model(builder.build())


def samples(count: int, *shape: int) -> np.ndarray[Any, Any]:
    """Random inputs."""
    return np.random.default_rng(count).normal(0, 1, (count, *shape)).astype(np.float32)


def stand_in(recipe: Recipe, model: tflm.Model, ranges: dict[int, Range]) -> bytes:
    """An int8 version in which all scales are 1/64 and biases are 0; a model with a state stays float."""
    before = model.subgraphs[0].tensors or []
    if any(tensor.is_variable for tensor in before):
        return bytes(model.data)
    root = read_model(memoryview(int8_outline(model)))
    for tensor, same in zip((root.subgraphs or [])[0].tensors or (), before, strict=True):
        content = model.constant(same)
        if content is not None and tensor.type is TensorType.INT8:
            integers = np.clip(np.round(np.frombuffer(content, np.float32) * 64), -127, 127)
            (root.buffers or [])[tensor.buffer].data = integers.astype(np.int8).tobytes()
    return write_model(root)
