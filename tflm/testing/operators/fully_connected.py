"""Models of FULLY_CONNECTED."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tflm.schema import (
    ELEMENT_TYPES,
    BuiltinOperator,
    FullyConnectedOptions,
    ModelBuilder,
    QuantizationParameters,
    SubgraphBuilder,
    TensorType,
    quantized,
)
from tflm.testing.drawing import (
    ACTIVATIONS,
    FLOAT32,
    INT8,
    INT16,
    INT32,
    UINT8,
    Draw,
    OperatorCase,
    factors,
    float32,
    quantization,
    scale_of,
    scales,
    sizes,
    values,
    zero_points,
)


@st.composite
def fully_connected(draw: Draw) -> OperatorCase:
    """FULLY_CONNECTED in float, int8 and int16, per tensor and per row, with and without bias and activation."""
    type = draw(st.sampled_from([FLOAT32, INT8, INT16]))
    batches, rows, depth = draw(st.integers(1, 5)), draw(sizes(8)), draw(sizes(64))
    builder = ModelBuilder()
    main = builder.subgraph()
    input = quantization(draw, type)
    x = main.input("x", (batches, depth), type, input)
    weights, multipliers = _weights(draw, main, type, rows, depth)
    y_parameters = None
    if type != FLOAT32:
        # Accumulators of a random layer are about this large: an output scale near it uses the whole range.
        typical = scale_of(input) * float(multipliers[0]) * 64
        y_parameters = quantized(float32(typical * draw(factors(-30, 20))), draw(zero_points(type)))
    bias = _bias(draw, main, type, rows, input, multipliers)
    y = main.tensor("y", (batches, rows), type, y_parameters)
    options = FullyConnectedOptions(
        fused_activation_function=draw(ACTIVATIONS),
        quantized_bias_type=draw(st.sampled_from([FLOAT32, INT32])),
    )
    main.operator(BuiltinOperator.FULLY_CONNECTED, [x, weights, bias], [y], options)
    main.output(y)
    return builder.build(), [[values(draw, type, (batches, depth))]]


def _weights(
    draw: Draw, main: SubgraphBuilder, type: TensorType, rows: int, depth: int
) -> tuple[int, np.ndarray[Any, Any]]:
    """The weights of a layer, and their scales."""
    if type == FLOAT32:
        return main.constant("w", values(draw, FLOAT32, (rows, depth))), np.ones(1, np.float64)
    base = draw(scales(-12, 0))
    per_row = draw(st.booleans())
    multipliers = np.array([base * draw(scales(-3, 3)) for _ in range(rows)] if per_row else [base], np.float64)
    if not per_row and type == INT8 and draw(st.booleans()):
        packed = values(draw, UINT8, ((rows * depth + 1) // 2,))
        index = main.constant("w", packed, quantized(base), type=TensorType.INT4, shape=(rows, depth))
    else:
        index = main.constant("w", values(draw, INT8, (rows, depth)), quantized(multipliers.tolist()))
    return index, multipliers


def _bias(
    draw: Draw,
    main: SubgraphBuilder,
    type: TensorType,
    rows: int,
    input: QuantizationParameters | None,
    multipliers: np.ndarray[Any, Any],
) -> int:
    if not draw(st.booleans()):
        return -1
    if type == FLOAT32:
        return main.constant("b", values(draw, FLOAT32, (rows,)))
    parameters = quantized((multipliers * scale_of(input)).tolist())
    dtype = np.int64 if type == INT16 and draw(st.booleans()) else np.int32
    bits = draw(st.integers(1, 31 if dtype == np.int32 else 40))
    limit = 2 ** (bits - 1)
    elements = draw(st.lists(st.integers(-limit, limit - 1), min_size=rows, max_size=rows))
    return main.constant("b", np.array(elements, dtype), parameters)


OPERATORS = {"FULLY_CONNECTED": fully_connected()}


def _large(type: TensorType) -> OperatorCase:
    """256 rows of 512 elements, 256 results each."""
    rng = np.random.default_rng(0)
    parameters = None if type == FLOAT32 else quantized(0.01)
    dtype = ELEMENT_TYPES[type].dtype
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (256, 512), type, parameters)
    w = main.constant(
        "w", rng.integers(-9, 9, (256, 512)).astype(np.float32 if type == FLOAT32 else np.int8), parameters
    )
    y = main.tensor("y", (256, 256), type, parameters)
    main.operator(BuiltinOperator.FULLY_CONNECTED, [x, w, -1], [y], FullyConnectedOptions())
    main.output(y)
    return builder.build(), [[rng.integers(-100, 100, (256, 512)).astype(dtype)]]


LARGE = {f"FULLY_CONNECTED-{type.name}": partial(_large, type) for type in (FLOAT32, INT8, INT16)}
