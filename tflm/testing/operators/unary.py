"""Models of functions of one number, of SOFTMAX, and of conversions between types."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import strategies as st

from tflm.kernels import REGISTRATIONS
from tflm.kernels.reference.quantize import OUTPUT_TYPES
from tflm.schema import quantized
from tflm.testing.drawing import (
    FLOAT32,
    INT8,
    INT16,
    LARGE_SHAPE,
    Draw,
    OperatorCase,
    factors,
    float32,
    quantization,
    rescaled,
    scales,
    shapes,
    values,
    zero_point_of,
)
from tflm.testing.operators.declared import DrawnOperator, large, strategy
from tflm.testing.operators.single_operator import any_values

FLOAT_FUNCTIONS = ("SIN", "COS", "LOG", "SQRT", "SQUARE", "EXP", "NEG", "CEIL", "FLOOR", "ROUND")
FUNCTIONS = (*FLOAT_FUNCTIONS, "ABS", "RSQRT", "LOGICAL_NOT", "ELU", "HARD_SWISH", "ZEROS_LIKE")
POSITIVE = ("LOG", "SQRT", "RSQRT")


@strategy(*FUNCTIONS)
def function(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Draw inputs in a function's domain, with halves among the floats."""
    name, type = model.name, model.type
    plain = type not in (INT8, INT16) or (type == INT16 and name == "ABS" and draw(st.booleans()))
    input = None if plain else quantization(draw, type, -14, 2)
    output = None if input is None else draw(st.just(input)) if draw(st.booleans()) else rescaled(draw, type, input)
    x = any_values(draw, type, draw(shapes()))
    if type == FLOAT32:
        x.reshape(-1)[::2] = np.rint(x.reshape(-1)[::2] * 2) / 2
        x = abs(x) + np.float32(0.25) if name in POSITIVE else x
        x = np.minimum(x, np.float32(80)) if name == "EXP" else x
    elif name == "RSQRT" and input is not None and draw(st.integers(0, 5)):
        x = np.maximum(x, zero_point_of(input)).astype(x.dtype)
    model.input(type, [x], input)
    return model.result(output)


for operator in FUNCTIONS:
    large(operator, LARGE_SHAPE, scales=(0.01, 0.02))


SOFTMAX_TYPES = [(FLOAT32, FLOAT32), (INT8, INT8), (INT8, INT16), (INT16, INT16)]

OUTPUTS = {
    ("LOGISTIC", INT8): quantized(1 / 256, -128),
    ("LOG_SOFTMAX", INT8): quantized(1 / 16, 127),
    ("TANH", INT8): quantized(1 / 128),
    ("SOFTMAX", INT8, INT8): quantized(1 / 256, -128),
    ("SOFTMAX", INT8, INT16): quantized(1 / 65536, -32768),
}
"""The quantization that an output of integers must have; `SHORT` for the others."""

SHORT = quantized(1 / 32768)


@strategy("RELU", "RELU6", "LEAKY_RELU")
def relu(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Slopes of LEAKY_RELU have either sign and any size."""
    input = quantization(draw, model.type)
    model.operand(draw(shapes()), input)
    output = rescaled(draw, model.type, input)
    if model.name != "LEAKY_RELU":
        return model.result(output)
    return model.result(output, alpha=float32(draw(factors(-20, 10)) * draw(st.sampled_from([1, 1, -1, 0]))))


@strategy("LOGISTIC", "TANH")
def sigmoid(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Draw scales from ones at which almost nothing is in range to ones at which everything is."""
    (input,) = model.scaled(scales(-40, 30) | scales(-16, 2) | st.sampled_from([2.0**-12, 2.0**-11, 2.0**-10, 2.0**-4]))
    model.operand(draw(shapes()), input)
    output = OUTPUTS.get((model.name, model.type), SHORT)
    if model.type == INT8 and model.name == "TANH":
        output = draw(st.sampled_from([output, OUTPUTS["LOGISTIC", INT8]]))
    return model.result(input and output)


@strategy("LOG_SOFTMAX")
@strategy("SOFTMAX", kinds=SOFTMAX_TYPES)
def softmax(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Over rows of 1 to 40."""
    is_log = model.name == "LOG_SOFTMAX"
    (input,) = model.scaled(scales(-26, 8) | scales(-10, 2) if is_log else scales(-40, 20) | scales(-18, 4))
    model.operand((*draw(shapes(0, 3, 3)), draw(st.integers(1, 40))), input)
    output = input and OUTPUTS.get((model.name, *model.types), SHORT)
    return model.result(output, **({} if is_log else {"beta": draw(st.sampled_from([1.0, 0.5, 2.0]))}))


for operator in ("RELU", "RELU6", "LEAKY_RELU"):
    large(operator, LARGE_SHAPE, scales=(0.01, 0.02))
for operator in ("LOGISTIC", "TANH", "LOG_SOFTMAX"):
    for type in REGISTRATIONS[operator].types:
        large(operator, LARGE_SHAPE, kinds=[type], scales=(0.01, OUTPUTS.get((operator, type), SHORT)))
for types in SOFTMAX_TYPES:
    large("SOFTMAX", LARGE_SHAPE, kinds=[types], scales=(0.01, OUTPUTS.get(("SOFTMAX", *types), SHORT)), beta=1.0)


ODD_FLOATS = (0.5, -0.5, 2.0**31, -(2.0**31), 2.0**32, 1e30, np.inf, -np.inf, np.nan)
CASTS = list(itertools.product(REGISTRATIONS["CAST"].types, repeat=2))
QUANTIZATIONS = [(input, output) for input, outputs in OUTPUT_TYPES.items() for output in outputs]
DEQUANTIZATIONS = [(input, FLOAT32) for input in REGISTRATIONS["DEQUANTIZE"].types]


@strategy("CAST", kinds=CASTS)
def cast(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Draw casts from each type to each type, with floats outside of all integers, and without elements."""
    x = values(draw, model.type, draw(shapes()))
    if model.type == FLOAT32:
        x *= np.float32(2.0 ** draw(st.integers(-10, 60)))
        x.reshape(-1)[0] = draw(st.sampled_from(ODD_FLOATS))
    model.input(model.type, [x])
    return model.result()


@strategy("QUANTIZE", kinds=QUANTIZATIONS)
def quantize(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Every pair of types."""
    input = quantization(draw, model.type)
    model.operand(draw(shapes()), input)
    return model.result(rescaled(draw, model.types[1], input))


@strategy("DEQUANTIZE", kinds=DEQUANTIZATIONS)
def dequantize(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Every type."""
    model.operand(draw(shapes()), quantization(draw, model.type, -60, 60))
    return model.result()


large("CAST", LARGE_SHAPE, kinds=CASTS, scales=(None,))
large("QUANTIZE", LARGE_SHAPE, kinds=QUANTIZATIONS, scales=(quantized(0.01), quantized(0.02)))
large("DEQUANTIZE", LARGE_SHAPE, kinds=DEQUANTIZATIONS, scales=(0.01,))
