"""Models of operators with a state, run several times."""

from __future__ import annotations

from functools import partial

import numpy as np
from hypothesis import strategies as st
from models import FLOAT32, INT8, INT16, INT32, Case, Draw, factors, float32, scales, values, zero_points

from tflm.schema import ActivationFunctionType, BuiltinOperator, ModelBuilder, SVDFOptions, TensorType, quantized

INVOKES = 4


@st.composite
def svdf(draw: Draw) -> Case:
    """SVDF in float and int8, with a state of 16 or 8 bits."""
    type, state_type = draw(st.sampled_from([(FLOAT32, FLOAT32), (INT8, INT16), (INT8, INT8)]))
    batches, size, memory = draw(st.integers(1, 3)), draw(st.integers(1, 12)), draw(st.integers(1, 6))
    rank, units = draw(st.integers(1, 3)), draw(st.integers(1, 5))
    activations = [ActivationFunctionType.NONE, ActivationFunctionType.RELU, ActivationFunctionType.RELU6]
    model = _svdf(draw, (type, state_type), batches, size, memory, rank, units, draw(st.sampled_from(activations)))
    return model, [[values(draw, type, (batches, size))] for _ in range(INVOKES)]


def _svdf(
    draw: Draw,
    types: tuple[TensorType, TensorType],
    batches: int,
    size: int,
    memory: int,
    rank: int,
    units: int,
    activation: ActivationFunctionType,
) -> bytes:
    type, state_type = types
    filters = rank * units
    parameters = [None] * 6
    if type != FLOAT32:
        x, feature, time = draw(scales(-8, 0)), draw(scales(-8, 0)), draw(scales(-14, -4))
        state = float32(x * feature * draw(factors(-8, 8)))
        y = float32(state * time * draw(factors(-4, 14)))
        parameters = [
            quantized(x, draw(zero_points(INT8))),
            quantized(feature),
            quantized(time),
            quantized(state * time),
            quantized(state, draw(zero_points(INT8)) if state_type == INT8 else 0),
            quantized(y, draw(zero_points(INT8))),
        ]
    builder = ModelBuilder()
    main = builder.subgraph()
    bias = values(draw, FLOAT32, (units,)) if type == FLOAT32 else values(draw, INT16, (units,)).astype(np.int32)
    tensors = [
        main.input("x", (batches, size), type, parameters[0]),
        main.constant("feature", values(draw, type, (filters, size)), parameters[1]),
        main.constant("time", values(draw, state_type, (filters, memory)), parameters[2]),
        main.constant("bias", bias, parameters[3]),
        main.tensor("state", (batches, memory * filters), state_type, parameters[4], is_variable=True),
    ]
    y = main.tensor("y", (batches, units), type, parameters[5])
    main.operator(BuiltinOperator.SVDF, tensors, [y], SVDFOptions(rank=rank, fused_activation_function=activation))
    main.output(y)
    return builder.build()


def _large_svdf(type: TensorType, state_type: TensorType) -> Case:
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


OPERATORS = {"SVDF": svdf()}

LARGE = {
    f"SVDF-{type.name}-{state.name}": partial(_large_svdf, type, state)
    for type, state in ((FLOAT32, FLOAT32), (INT8, INT16), (INT8, INT8))
}
