"""Models of functions of one number or several that broadcast, of SOFTMAX, of conversions and of reductions."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from tflm.kernels import REGISTRATIONS
from tflm.kernels.reference.quantize import OUTPUT_TYPES
from tflm.schema import TensorType, quantized
from tflm.testing.drawing import (
    FLOAT32,
    INT8,
    INT16,
    INT32,
    Draw,
    OperatorCase,
    any_values,
    broadcast_shapes,
    factors,
    float32,
    quantization,
    rescaled,
    scales,
    shapes,
    values,
    zero_point_of,
    zero_points,
)
from tflm.testing.operators.declared import DrawnOperator, strategy

BOOL = TensorType.BOOL
OF_ANY_RANK = ("ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM")
"""Operators that broadcast the maximum number of dimensions of a shape in TFLM."""
COMPARISONS = ("EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL")
TO_BOOL = (*COMPARISONS, "LOGICAL_AND", "LOGICAL_OR")
BINARY = (*OF_ANY_RANK, "SQUARED_DIFFERENCE", "FLOOR_DIV", "FLOOR_MOD", *TO_BOOL)


@strategy(*BINARY)
def binary(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Two inputs, or an input and a constant, with broadcasting and activations."""
    name, type = model.name, model.type
    # An output much finer than the inputs is refused by ADD: the output's scale is drawn to be mostly allowed.
    scale = draw(scales(-14, -8) if name in COMPARISONS else scales(-10, 4))
    parameters = [
        None if type not in (INT8, INT16) else quantized(float32(scale * draw(factor)), draw(zero_points(type)))
        for factor in (factors(-6, 6), factors(-6, 6), factors(-24, 12))
    ]
    first, second = (values(draw, type, shape) for shape in broadcast_shapes(draw, 6 if name in OF_ANY_RANK else 4))
    if name in COMPARISONS and type not in (FLOAT32, BOOL) and draw(st.booleans()):
        first, second = first % 2, second % 2  # of which some are equal
    if name == "DIV" and type != FLOAT32:
        second[second == zero_point_of(parameters[1])] += 1  # TFLM crashes on a divisor of zero in INT32
    model.input(type, [first], parameters[0])
    model.either(draw, second, type, parameters[1])
    if name in TO_BOOL:
        return model.result(type=BOOL)
    return model.result(parameters[2])


@strategy("PRELU")
def prelu(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """An alpha of any shape that broadcasts, a constant or not."""
    alpha_type = INT8 if model.type == INT16 else model.type
    shape = draw(shapes(1, 4, 5))
    alpha_shape = tuple(draw(st.sampled_from([n, 1])) for n in shape)[draw(st.integers(0, len(shape) - 1)) :]
    scale = draw(scales(-10, 4))
    input, output = model.scaled(*(factor.map(lambda f: f * scale) for factor in (factors(-6, 6), factors(-24, 12))))
    alpha = input and quantized(float32(scale * draw(factors(-6, 6))), draw(zero_points(alpha_type)))
    model.operand(shape, input)
    model.either(draw, values(draw, alpha_type, alpha_shape), alpha_type, alpha)
    return model.result(output)


@strategy("ADD_N")
def add_n(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Two to six inputs."""
    shape, scale = draw(shapes(1, 4, 5)), draw(scales(-10, 4))
    input, output = model.scaled(st.just(scale), factors(-18, 12).map(lambda factor: factor * scale))
    for _ in range(draw(st.integers(2, 6))):
        model.operand(shape, input)
    return model.result(output)


@strategy("SELECT_V2")
def select(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Three inputs that broadcast."""
    shape = draw(shapes(1, 5, 4))
    for type in (BOOL, model.type, model.type):
        model.operand([draw(st.sampled_from([n, n, 1])) for n in shape], type=type)
    return model.result()


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


REDUCTIONS = ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_ALL")


def _axes(draw: Draw, model: DrawnOperator, axes: npt.ArrayLike) -> None:
    """Dimensions: a constant, or sometimes an input."""
    numbers = np.array(axes, np.int32)
    if draw(st.integers(0, 4)):
        model.constant(numbers)
    else:
        model.input(INT32, [numbers])


@strategy(*REDUCTIONS)
def reduction(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Any dimensions, counted from either end, some of them twice; sometimes as an input."""
    shape = draw(shapes(1, 4, 6))
    rank = len(shape)
    input = None if model.type == TensorType.BOOL else quantization(draw, model.type)
    model.operand(shape, input)
    _axes(draw, model, draw(st.lists(st.integers(-rank, rank - 1), min_size=1, max_size=rank)))
    is_extreme = model.name in ("REDUCE_MAX", "REDUCE_MIN")
    return model.result(input if is_extreme or input is None else rescaled(draw, model.type, input))


@strategy("ARG_MAX", "ARG_MIN")
def arg_min_max(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Equal elements and NaNs among others; sometimes the axis is an input."""
    x = values(draw, model.type, draw(shapes(1, 4, 6)))
    if model.type == FLOAT32:
        flat = x.reshape(-1)
        flat[: draw(st.integers(0, 2))] = draw(st.sampled_from([np.nan, np.inf, -np.inf]))
        flat[::-2] = np.round(flat[::-2])
    model.input(model.type, [x])
    _axes(draw, model, draw(st.integers(-x.ndim, x.ndim - 1)))
    return model.result(type=INT32, output_type=INT32)


@strategy("CUMSUM")
def cumsum(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Draw sums from both ends. An output with a much finer scale than the input is rejected."""
    shape = draw(shapes(1, 4, 6) | st.tuples(st.integers(1, 2), st.integers(10, 40)))
    scale, factor = draw(scales(-20, 8)), draw(factors(-20, 8) | factors(-1, 4))
    input, output = model.scaled(st.just(scale), st.just(scale * factor))
    model.operand(shape, input)
    _axes(draw, model, draw(st.integers(-len(shape), len(shape) - 1)))
    return model.result(output)
