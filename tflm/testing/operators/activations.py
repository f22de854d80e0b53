"""Models of RELU, RELU6, LOGISTIC, TANH and SOFTMAX."""

from __future__ import annotations

from functools import partial

from hypothesis import strategies as st

from tflm.schema import BuiltinOperator, LeakyReluOptions, SoftmaxOptions, quantized
from tflm.testing.drawing import (
    FLOAT32,
    INT8,
    INT16,
    Draw,
    OperatorCase,
    factors,
    float32,
    quantization,
    rescaled,
    scales,
    shapes,
    zero_points,
)
from tflm.testing.operators.single_operator import large, unary


@st.composite
def relu(draw: Draw, operator: BuiltinOperator) -> OperatorCase:
    """RELU or RELU6."""
    type = draw(st.sampled_from([FLOAT32, INT8, INT16]))
    input = quantization(draw, type)
    return unary(operator, draw, (type, type), (input, rescaled(draw, type, input)))


@st.composite
def sigmoid(draw: Draw, operator: BuiltinOperator) -> OperatorCase:
    """LOGISTIC or TANH, from scales at which almost nothing is in range to ones at which all is."""
    type = draw(st.sampled_from([FLOAT32, INT8, INT16]))
    natural = {INT8: quantized(1 / 256, -128), INT16: quantized(1 / 32768), FLOAT32: None}
    scale = draw(scales(-40, 30) | scales(-16, 2) | st.sampled_from([2.0**-12, 2.0**-11, 2.0**-10, 2.0**-4]))
    input = None if type == FLOAT32 else quantized(scale, draw(zero_points(type)))
    return unary(operator, draw, (type, type), (input, natural[type]))


@st.composite
def softmax(draw: Draw) -> OperatorCase:
    """SOFTMAX over rows of 1 to 40, from int8 to int8 and int16, int16 and float."""
    types = draw(st.sampled_from([(FLOAT32, FLOAT32), (INT8, INT8), (INT8, INT16), (INT16, INT16)]))
    natural = {
        (INT8, INT8): quantized(1 / 256, -128),
        (INT8, INT16): quantized(1 / 65536, -32768),
        (INT16, INT16): quantized(1 / 32768),
    }
    shape = (*draw(shapes(0, 3, 3)), draw(st.integers(1, 40)))
    input = (
        None if types[0] == FLOAT32 else quantized(draw(scales(-40, 20) | scales(-18, 4)), draw(zero_points(types[0])))
    )
    options = SoftmaxOptions(beta=draw(st.sampled_from([1.0, 0.5, 2.0])))
    return unary(BuiltinOperator.SOFTMAX, draw, types, (input, natural.get(types)), options, shape)


@st.composite
def leaky_relu(draw: Draw) -> OperatorCase:
    """LEAKY_RELU, with slopes of either sign and of any size."""
    type = draw(st.sampled_from([FLOAT32, INT8, INT16]))
    input = quantization(draw, type)
    alpha = draw(factors(-20, 10)) * draw(st.sampled_from([1, 1, -1, 0]))
    options = LeakyReluOptions(alpha=float32(alpha))
    return unary(BuiltinOperator.LEAKY_RELU, draw, (type, type), (input, rescaled(draw, type, input)), options)


@st.composite
def log_softmax(draw: Draw) -> OperatorCase:
    """LOG_SOFTMAX over rows of 1 to 40."""
    type = draw(st.sampled_from([FLOAT32, INT8]))
    shape = (*draw(shapes(0, 3, 3)), draw(st.integers(1, 40)))
    input = None if type == FLOAT32 else quantized(draw(scales(-26, 8) | scales(-10, 2)), draw(zero_points(type)))
    output = None if type == FLOAT32 else quantized(1 / 16, 127)
    return unary(BuiltinOperator.LOG_SOFTMAX, draw, (type, type), (input, output), None, shape)


OPERATORS = {
    "LOG_SOFTMAX": log_softmax(),
    "LEAKY_RELU": leaky_relu(),
    "RELU": relu(BuiltinOperator.RELU),
    "RELU6": relu(BuiltinOperator.RELU6),
    "LOGISTIC": sigmoid(BuiltinOperator.LOGISTIC),
    "TANH": sigmoid(BuiltinOperator.TANH),
    "SOFTMAX": softmax(),
}

NATURAL = {
    ("LOGISTIC", INT8): quantized(1 / 256, -128),
    ("LOG_SOFTMAX", INT8): quantized(1 / 16, 127),
    ("TANH", INT8): quantized(1 / 128),
    ("SOFTMAX", INT8): quantized(1 / 256, -128),
}
"""The quantization that an output of integers must have; 1 / 32768 for the others of 16 bits."""

LARGE = {
    **{
        f"{name}-{type.name}": partial(large, BuiltinOperator[name], (type, type))
        for name in ("RELU", "RELU6", "LEAKY_RELU")
        for type in (FLOAT32, INT8, INT16)
    },
    **{
        f"{name}-{type.name}": partial(
            large,
            BuiltinOperator[name],
            (type, type),
            None if type == FLOAT32 else (quantized(0.01), NATURAL.get((name, type), quantized(1 / 32768))),
            SoftmaxOptions(beta=1.0) if name == "SOFTMAX" else None,
        )
        for name in ("LOGISTIC", "TANH", "SOFTMAX", "LOG_SOFTMAX")
        for type in (FLOAT32, INT8, INT16)
        if (name, type) != ("LOG_SOFTMAX", INT16)
    },
    "SOFTMAX-INT8-INT16": partial(
        large,
        BuiltinOperator.SOFTMAX,
        (INT8, INT16),
        (quantized(0.01), quantized(1 / 65536, -32768)),
        SoftmaxOptions(beta=1.0),
    ),
}
