"""Models of operators with a state, run several times."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tflm.schema import (
    ELEMENT_TYPES,
    ActivationFunctionType,
    BuiltinOperator,
    ModelBuilder,
    QuantizationParameters,
    SVDFOptions,
    TensorType,
    UnidirectionalSequenceLSTMOptions,
    quantized,
)
from tflm.testing.drawing import (
    FLOAT32,
    INT8,
    INT16,
    INT32,
    INT64,
    Arrays,
    Draw,
    OperatorCase,
    factors,
    float32,
    scales,
    values,
    zero_points,
)

INVOKES = 4


@st.composite
def svdf(draw: Draw) -> OperatorCase:
    """SVDF in float and int8, with a state of 16 or 8 bits, or half a state of 16."""
    type, time_type, state_type = draw(
        st.sampled_from([(FLOAT32, FLOAT32, FLOAT32), (INT8, INT16, INT16), (INT8, INT8, INT8), (INT8, INT8, INT16)])
    )
    batches, size, memory = draw(st.integers(1, 3)), draw(st.integers(0, 12)), draw(st.integers(1, 6))
    rank, units = draw(st.integers(1, 3)), draw(st.integers(1, 5))
    activations = [ActivationFunctionType.NONE, ActivationFunctionType.RELU, ActivationFunctionType.RELU6]
    model = _svdf(
        draw, (type, time_type, state_type), batches, size, memory, rank, units, draw(st.sampled_from(activations))
    )
    return model, [[values(draw, type, (batches, size))] for _ in range(INVOKES)]


def _svdf(
    draw: Draw,
    types: tuple[TensorType, TensorType, TensorType],
    batches: int,
    size: int,
    memory: int,
    rank: int,
    units: int,
    activation: ActivationFunctionType,
) -> bytes:
    type, time_type, state_type = types
    filters = rank * units
    parameters: list[Any] = [None] * 6
    if type != FLOAT32:
        x, feature, time = draw(scales(-8, 0)), draw(scales(-8, 0)), draw(scales(-14, -4))
        state = float32(x * feature * draw(factors(-8, 8)))
        y = float32(state * time * draw(factors(-4, 14)))
        parameters = [
            quantized(x, draw(zero_points(INT8))),
            quantized(feature),
            quantized(time),
            quantized(state * time),
            quantized(state, draw(zero_points(time_type)) if time_type == INT8 else 0),
            quantized(y, draw(zero_points(INT8))),
        ]
    builder = ModelBuilder()
    main = builder.subgraph()
    bias = values(draw, FLOAT32, (units,)) if type == FLOAT32 else values(draw, INT16, (units,)).astype(np.int32)
    tensors = [
        main.input("x", (batches, size), type, parameters[0]),
        main.constant("feature", values(draw, type, (filters, size)), parameters[1]),
        main.constant("time", values(draw, time_type, (filters, memory)), parameters[2]),
        main.constant("bias", bias.reshape(draw(st.sampled_from([(units,), (units, 1)]))), parameters[3]),
        main.tensor("state", (batches, memory * filters), state_type, parameters[4], is_variable=True),
    ]
    y = main.tensor("y", (batches, units), type, parameters[5])
    main.operator(BuiltinOperator.SVDF, tensors, [y], SVDFOptions(rank=rank, fused_activation_function=activation))
    main.output(y)
    return builder.build()


@st.composite
def lstm(draw: Draw) -> OperatorCase:
    """UNIDIRECTIONAL_SEQUENCE_LSTM of either order, with and without a clipped cell."""
    type = draw(st.sampled_from([FLOAT32, INT8, INT16]))
    batches, steps, size, units = (draw(st.integers(1, n)) for n in (3, 5, 8, 6))
    time_major = draw(st.booleans())
    shape: tuple[int, ...] = (steps, batches, size) if time_major else (batches, steps, size)
    if draw(st.integers(0, 4)) == 0:
        shape = (*shape, draw(st.integers(1, 2)))
    clip = draw(st.sampled_from([0.0, 0.0, 0.5, 3.0, 1e9]))
    model, weights = _lstm(draw, type, shape, batches, units, time_major, clip)
    return model, [[_small(draw, type, shape), *weights] for _ in range(INVOKES - 1)]


def _scales_and_powers(lowest: int, highest: int) -> st.SearchStrategy[float]:
    return scales(lowest, highest) | st.integers(lowest, highest).map(lambda exponent: 2.0**exponent)


def _small(draw: Draw, type: TensorType, shape: tuple[int, ...]) -> np.ndarray:
    """Values of a type; floats of about 1, where gates are neither open nor shut."""
    if type != FLOAT32:
        return values(draw, type, shape)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return rng.standard_normal(shape).astype(np.float32)


def _lstm(
    draw: Draw, type: TensorType, shape: tuple[int, ...], batches: int, units: int, time_major: bool, clip: float
) -> tuple[bytes, Arrays]:
    """The model, and those of its weights that are inputs."""
    weight_type, bias_type, cell_type = {
        FLOAT32: (FLOAT32, FLOAT32, FLOAT32),
        INT8: (INT8, INT32, INT16),
        INT16: (INT8, INT64, INT16),
    }[type]
    x_scale, hidden_scale = draw(scales(-10, 2)), draw(_scales_and_powers(-16, -6))
    cell_scale = 2.0 ** draw(st.integers(-16, -8) | st.integers(-60, 0)) * draw(st.sampled_from([1.0, 1.0, 1.3]))
    builder = ModelBuilder()
    main = builder.subgraph()

    def scaled(scale: float, zero_point: int = 0) -> QuantizationParameters | None:
        return None if type == FLOAT32 else quantized(float32(scale), zero_point)

    x = main.input("x", shape, type, scaled(x_scale, draw(zero_points(type))))
    inputs: Arrays = []
    tensors = [-1] * 24
    tensors[0] = x
    for i in range(1, 9):
        depth = shape[2] if i < 5 else units
        weights = _small(draw, weight_type, (units, depth))
        parameters = scaled(draw(_scales_and_powers(-14, -4)), draw(st.just(0) | zero_points(weight_type)))
        if draw(st.integers(0, 39)) == 0:
            tensors[i] = main.input(f"w{i}", weights.shape, weight_type, parameters)
            inputs.append(weights)
        else:
            tensors[i] = main.constant(f"w{i}", weights, parameters)
    for i in range(12, 16):
        bias = _small(draw, FLOAT32 if type == FLOAT32 else INT16, (units,))
        tensors[i] = main.constant(f"b{i}", bias.astype(ELEMENT_TYPES[bias_type].dtype), scaled(x_scale))
    hidden = scaled(hidden_scale, draw(zero_points(type)))
    tensors[18] = main.tensor("h", (batches, units), type, hidden, is_variable=True)
    tensors[19] = main.tensor("c", (batches, units), cell_type, scaled(cell_scale), is_variable=True)
    y = main.tensor("y", (*shape[:2], units), type, hidden)
    activation = draw(st.sampled_from([ActivationFunctionType.TANH] * 3 + list(ActivationFunctionType)))
    options = UnidirectionalSequenceLSTMOptions(
        fused_activation_function=activation, cell_clip=clip, time_major=time_major
    )
    main.operator(BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_LSTM, tensors, [y], options)
    main.output(y)
    return builder.build(), inputs


def _large_lstm(type: TensorType) -> OperatorCase:
    """128 units over 4 steps of 512 inputs."""
    dtypes = {FLOAT32: np.float32, INT8: np.int8, INT16: np.int16}
    weight_dtype = np.float32 if type == FLOAT32 else np.int8
    bias_dtype = {FLOAT32: np.float32, INT8: np.int32, INT16: np.int64}[type]
    cell_type = FLOAT32 if type == FLOAT32 else INT16
    scale = None if type == FLOAT32 else quantized(0.01)
    builder = ModelBuilder()
    main = builder.subgraph()
    tensors = [-1] * 24
    tensors[0] = main.input("x", (1, 4, 512), type, scale)
    for i in range(1, 9):
        tensors[i] = main.constant(f"w{i}", np.ones((128, 512 if i < 5 else 128), weight_dtype), scale)
    for i in range(12, 16):
        tensors[i] = main.constant(f"b{i}", np.ones(128, bias_dtype), scale)
    tensors[18] = main.tensor("h", (1, 128), type, scale, is_variable=True)
    tensors[19] = main.tensor("c", (1, 128), cell_type, scale and quantized(2.0**-11), is_variable=True)
    y = main.tensor("y", (1, 4, 128), type, scale)
    options = UnidirectionalSequenceLSTMOptions(fused_activation_function=ActivationFunctionType.TANH)
    main.operator(BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_LSTM, tensors, [y], options)
    main.output(y)
    return builder.build(), [[np.ones((1, 4, 512), dtypes[type])]]


def _large_svdf(type: TensorType, state_type: TensorType) -> OperatorCase:
    """512 filters over 512 inputs, remembered for 16 steps."""
    scale = None if type == FLOAT32 else quantized(0.01)
    dtypes = {FLOAT32: np.float32, INT8: np.int8, INT16: np.int16, INT32: np.int32}
    builder = ModelBuilder()
    main = builder.subgraph()
    tensors = [
        main.input("x", (1, 512), type, scale),
        main.constant("feature", np.ones((512, 512), dtypes[type]), scale),
        main.constant("time", np.ones((512, 16), dtypes[state_type]), scale),
        main.constant("bias", np.ones(256, np.float32 if type == FLOAT32 else np.int32), scale and quantized(0.0001)),
        main.tensor("state", (1, 512 * 16), state_type, scale, is_variable=True),
    ]
    y = main.tensor("y", (1, 256), type, scale)
    main.operator(BuiltinOperator.SVDF, tensors, [y], SVDFOptions(rank=2))
    main.output(y)
    return builder.build(), [[np.ones((1, 512), dtypes[type])]]


OPERATORS = {"SVDF": svdf(), "UNIDIRECTIONAL_SEQUENCE_LSTM": lstm()}

LARGE = {
    **{
        f"SVDF-{type.name}-{state.name}": partial(_large_svdf, type, state)
        for type, state in ((FLOAT32, FLOAT32), (INT8, INT16), (INT8, INT8))
    },
    **{f"UNIDIRECTIONAL_SEQUENCE_LSTM-{type.name}": partial(_large_lstm, type) for type in (FLOAT32, INT8, INT16)},
}
