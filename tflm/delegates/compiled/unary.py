"""Functions of one number: of integers of 8 and 16 bits by the numpy kernel's table, of others by arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np

from tflm.delegates.compiled.bindings import FAMILIES
from tflm.delegates.compiled.casts import as_float32, as_float64, as_int64
from tflm.delegates.compiled.fixed_point import clamped, parts, scaled, wrapped
from tflm.delegates.compiled.functions import exponential, exponential_minus_one, hyperbolic_tangent, sigmoid
from tflm.delegates.compiled.language import (
    DONE,
    Float32s,
    Int8s,
    Int16s,
    Int32s,
    Kernel,
    Step,
    kernel,
)
from tflm.delegates.compiled.lookup import bind_lookups
from tflm.kernels.arithmetic.requantization import Requantization
from tflm.kernels.registration import KernelContext, Node

LOWEST_SIGMOID = -9.0
"""Below this, LOGISTIC is exp(x)."""


@kernel
def clamp_float32(x: Float32s, y: Float32s, limits: Float32s, count: int) -> int:
    """Set y to x within limits; of limits that are crossed, the upper one counts."""
    least, most = limits[0], limits[1]
    for i in range(count):
        value = least if x[i] < least else x[i]
        y[i] = most if x[i] > most else value
    return DONE


clamp_int8 = clamp_float32.variant("clamp_int8", x=Int8s, y=Int8s, limits=Int8s)
clamp_int16 = clamp_float32.variant("clamp_int16", x=Int16s, y=Int16s, limits=Int16s)


@kernel
def leaky_relu(x: Float32s, y: Float32s, slope: Float32s, count: int) -> int:
    """x, or slope * x where it is not positive."""
    alpha = slope[0]
    for i in range(count):
        product = x[i] * alpha
        y[i] = x[i] if x[i] > 0 else product
    return DONE


@kernel
def logistic(x: Float32s, y: Float32s, count: int) -> int:
    """1 / (1 + exp(-x)), or exp(x) where that is tiny."""
    for i in range(count):
        value = as_float64(x[i])
        y[i] = exponential(value) if value < LOWEST_SIGMOID else sigmoid(value)
    return DONE


@kernel
def tanh(x: Float32s, y: Float32s, count: int) -> int:
    """tanh(x)"""
    for i in range(count):
        y[i] = hyperbolic_tangent(as_float64(x[i]))
    return DONE


@kernel
def hard_swish(x: Float32s, y: Float32s, count: int) -> int:
    """x * relu6(x + 3) / 6"""
    three, six, zero = as_float32(3), as_float32(6), as_float32(0)
    for i in range(count):
        gate = x[i] + three
        gate = zero if gate < zero else gate
        gate = six if gate > six else gate
        y[i] = x[i] * gate / six
    return DONE


@kernel
def elu(x: Float32s, y: Float32s, count: int) -> int:
    """x, or exp(x) - 1 below zero."""
    for i in range(count):
        value = as_float64(x[i])
        y[i] = exponential_minus_one(value) if value < 0 else value
    return DONE


@kernel
def exp(x: Float32s, y: Float32s, count: int) -> int:
    """exp(x)"""
    for i in range(count):
        y[i] = exponential(as_float64(x[i]))
    return DONE


@kernel
def log(x: Float32s, y: Float32s, count: int) -> int:
    """log(x)"""
    for i in range(count):
        y[i] = np.log(as_float64(x[i]))
    return DONE


@kernel
def sin(x: Float32s, y: Float32s, count: int) -> int:
    """sin(x)"""
    for i in range(count):
        y[i] = np.sin(as_float64(x[i]))
    return DONE


@kernel
def cos(x: Float32s, y: Float32s, count: int) -> int:
    """cos(x)"""
    for i in range(count):
        y[i] = np.cos(as_float64(x[i]))
    return DONE


@kernel
def sqrt(x: Float32s, y: Float32s, count: int) -> int:
    """sqrt(x)"""
    for i in range(count):
        y[i] = np.sqrt(x[i])
    return DONE


@kernel
def rsqrt(x: Float32s, y: Float32s, count: int) -> int:
    """1 / sqrt(x)"""
    for i in range(count):
        y[i] = as_float32(1) / np.sqrt(x[i])
    return DONE


@kernel
def square(x: Float32s, y: Float32s, count: int) -> int:
    """x^2"""
    for i in range(count):
        y[i] = x[i] * x[i]
    return DONE


@kernel
def absolute(x: Float32s, y: Float32s, count: int) -> int:
    """|x|"""
    for i in range(count):
        y[i] = abs(x[i])
    return DONE


@kernel
def negative(x: Float32s, y: Float32s, count: int) -> int:
    """-x"""
    for i in range(count):
        y[i] = -x[i]
    return DONE


@kernel
def floor(x: Float32s, y: Float32s, count: int) -> int:
    """The largest whole number that is not larger."""
    for i in range(count):
        y[i] = np.floor(x[i])
    return DONE


@kernel
def ceil(x: Float32s, y: Float32s, count: int) -> int:
    """The smallest whole number that is not smaller."""
    for i in range(count):
        y[i] = np.ceil(x[i])
    return DONE


@kernel
def round_to_even(x: Float32s, y: Float32s, count: int) -> int:
    """The nearest whole number, an even one of two."""
    for i in range(count):
        y[i] = np.rint(x[i])
    return DONE


# --- Quantization ------------------------------------------------------------------------------------------------


@kernel
def quantize_to_int8(x: Float32s, y: Int8s, scale: Float32s, zero_point: int, least: int, most: int, count: int) -> int:
    """x / scale, rounded, halves away from zero, and the zero point. What does not fit in 32 bits gives -2^31."""
    divisor = scale[0]
    for i in range(count):
        quotient = as_float64(x[i] / divisor)
        # Of a float32, half can be added in float64 without rounding.
        whole = np.trunc(quotient + np.copysign(0.5, quotient))
        integer = as_int64(whole if abs(whole) < 2.0**31 else -(2.0**31))
        y[i] = clamped(wrapped(integer + zero_point), least, most)
    return DONE


quantize_to_int16 = quantize_to_int8.variant("quantize_to_int16", y=Int16s)


@kernel
def requantize_to_int8(
    x: Int32s,
    y: Int8s,
    significand: int,
    left: int,
    right: int,
    input_zero_point: int,
    output_zero_point: int,
    least: int,
    most: int,
    count: int,
) -> int:
    """Integers of 32 bits to those of another scale and zero point."""
    for i in range(count):
        value = scaled(x[i] - input_zero_point, significand, left, right)
        y[i] = clamped(wrapped(value + output_zero_point), least, most)
    return DONE


requantize_to_int16 = requantize_to_int8.variant("requantize_to_int16", y=Int16s)


# --- Binding -----------------------------------------------------------------------------------------------------

CLAMPS: dict[str, Kernel] = {"float32": clamp_float32, "int8": clamp_int8, "int16": clamp_int16}
QUANTIZERS: dict[str, tuple[Kernel, Kernel]] = {
    "int8": (quantize_to_int8, requantize_to_int8),
    "int16": (quantize_to_int16, requantize_to_int16),
}
FLOAT_KERNELS: dict[str, Kernel] = {
    "ABS": absolute,
    "CEIL": ceil,
    "COS": cos,
    "ELU": elu,
    "EXP": exp,
    "FLOOR": floor,
    "HARD_SWISH": hard_swish,
    "LEAKY_RELU": leaky_relu,
    "LOG": log,
    "LOGISTIC": logistic,
    "NEG": negative,
    "RELU": clamp_float32,
    "RELU6": clamp_float32,
    "ROUND": round_to_even,
    "RSQRT": rsqrt,
    "SIN": sin,
    "SQRT": sqrt,
    "SQUARE": square,
    "TANH": tanh,
}
"""By operator, from float32 to float32."""


def _bind(context: KernelContext, node: Node) -> list[Step] | None:
    x, y = context.get_eval_input(node, 0).elements, context.get_eval_output(node, 0).elements
    if x.dtype == np.float32 and y.dtype == np.float32:
        constants: dict[str, Any] = {}
        if node.operator in ("RELU", "RELU6"):
            limits = (0, np.inf) if node.operator == "RELU" else node.op_data
            constants = {"limits": np.array(limits, np.float32)}
        elif node.operator == "LEAKY_RELU":
            constants = {"slope": np.array([node.op_data], np.float32)}
        return [FLOAT_KERNELS[node.operator].step(x=x, y=y, **constants, count=y.size)]
    if node.operator == "RELU6":
        return [CLAMPS[y.dtype.name].step(x=x, y=y, limits=np.array(node.op_data, y.dtype), count=y.size)]
    if node.operator == "QUANTIZE" and x.itemsize == 4:
        return [_quantize_step(x, y, node.op_data)]
    return bind_lookups(context, node)


def _quantize_step(x: Any, y: Any, op: Any) -> Step:
    from_float, from_int32 = QUANTIZERS[y.dtype.name]
    if isinstance(op, Requantization):
        significand, left, right = parts(op.multiplier)
        return from_int32.step(
            x=x,
            y=y,
            significand=significand,
            left=left,
            right=right,
            input_zero_point=op.input_zero_point,
            output_zero_point=op.stage.zero_point,
            least=op.stage.minimum,
            most=op.stage.maximum,
            count=y.size,
        )
    scale, zero_point = op
    limits = np.iinfo(y.dtype)
    return from_float.step(
        x=x,
        y=y,
        scale=np.array([scale], np.float32),
        zero_point=zero_point,
        least=int(limits.min),
        most=int(limits.max),
        count=y.size,
    )


BINDINGS = dict.fromkeys(FAMILIES["unary"], _bind)
