"""Functions of one number: 8-bit and 16-bit integers are looked up in a table of all results; others are computed.

Plain kernels also compute those of 16 bits, except RSQRT.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import numpy as np

from tflm.compiler.language import (
    DONE,
    REFUSED,
    Elements,
    Float32s,
    Int16s,
    Shift,
    Step,
    UInt8s,
    UInt16s,
    inlined,
    kernel,
)
from tflm.compiler.processor import Profile
from tflm.delegates.compiled import quotients
from tflm.delegates.compiled.bindings import FAMILIES
from tflm.delegates.compiled.casts import as_float32, as_float64, as_int32, as_int64
from tflm.delegates.compiled.fixed_point import (
    Multiplier,
    Stage,
    clamped,
    multiplier_of,
    requantization,
    scaled,
    stage_of,
    wrapped,
)
from tflm.delegates.compiled.functions import (
    exponential,
    exponential_minus_one,
    hyperbolic_tangent,
    sigmoid_of_steps,
    tanh_of_steps,
)
from tflm.delegates.compiled.movement import copy_steps
from tflm.kernels.arithmetic.fixed_point import SIGMOID_TABLE, QuantizedMultiplier
from tflm.kernels.arithmetic.requantization import Requantization, lookup_table
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.reference.activations import Clamp, FloatLeakyRelu, Int16Input, LeakyRelu, logistic_int16
from tflm.kernels.reference.quantize import AffineDequantize, AffineQuantize
from tflm.kernels.reference.unary import Abs, Rsqrt

LOWEST_SIGMOID = -9.0
"""Below this, LOGISTIC is computed as exp(x)."""


@inlined
def logistic(x: Any) -> Any:
    """Return 1 / (1 + exp(-x)), or exp(x) if that is tiny."""
    value = as_float64(x)
    is_tiny = value < LOWEST_SIGMOID
    power = exponential(value if is_tiny else -value)
    return power if is_tiny else 1 / (1 + power)


@inlined
def library_logistic(x: Any) -> Any:
    """Return the same as `logistic`, in float32."""
    is_tiny = x < as_float32(LOWEST_SIGMOID)
    power = np.exp(x if is_tiny else -x)
    return power if is_tiny else as_float32(1) / (as_float32(1) + power)


@inlined
def hard_swish(x: Any) -> Any:
    """x * relu6(x + 3) / 6"""
    three, six, zero = as_float32(3), as_float32(6), as_float32(0)
    gate = x + three
    gate = zero if gate < zero else gate
    gate = six if gate > six else gate
    return x * gate / six


@inlined
def elu(x: Any) -> Any:
    """Return x, or exp(x) - 1 if x is negative."""
    value = as_float64(x)
    return exponential_minus_one(value) if value < 0 else value


@inlined
def library_elu(x: Any) -> Any:
    """Return the same as `elu`, in float32."""
    return np.expm1(x) if x < as_float32(0) else x


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "ABS": lambda x: abs(x),
    "CEIL": lambda x: np.ceil(x),
    "COS": lambda x: np.cos(as_float64(x)),
    "ELU": elu,
    "EXP": lambda x: exponential(as_float64(x)),
    "FLOOR": lambda x: np.floor(x),
    "HARD_SWISH": hard_swish,
    "LOG": lambda x: np.log(as_float64(x)),
    "LOGICAL_NOT": lambda x: x ^ 1,
    "LOGISTIC": logistic,
    "NEG": lambda x: -x,
    "ROUND": lambda x: np.rint(x),
    "RSQRT": lambda x: as_float32(1) / np.sqrt(x),
    "SIN": lambda x: np.sin(as_float64(x)),
    "SQRT": lambda x: np.sqrt(x),
    "SQUARE": lambda x: x * x,
    "TANH": lambda x: hyperbolic_tangent(as_float64(x)),
}
"""Functions of float32, by operator; LOGICAL_NOT is one of bools as bytes."""

LIBRARY: dict[str, Callable[..., Any]] = {
    "COS": lambda x: np.cos(x),
    "ELU": library_elu,
    "EXP": lambda x: np.exp(x),
    "LOG": lambda x: np.log(x),
    "LOGISTIC": library_logistic,
    "SIN": lambda x: np.sin(x),
    "TANH": lambda x: np.tanh(x),
}
"""Functions of float32 that call C's library, which needs no double precision."""

FUNCTIONS |= {f"LIBRARY_{name}": function for name, function in LIBRARY.items()}

SIGMOIDS: dict[str, Callable[..., Any]] = {"LOGISTIC": sigmoid_of_steps, "TANH": tanh_of_steps}
Sigmoid = Annotated[Callable[..., Any], SIGMOIDS]

Function = Annotated[Callable[..., Any], FUNCTIONS]


@kernel
def each(function: Function, x: Elements, y: Elements, count: int) -> int:
    """Set y to the function of x."""
    for i in range(count):
        y[i] = function(x[i])
    return DONE


@inlined
def between(value: Any, lowest: Any, highest: Any) -> Any:
    """Clamp a value. If the minimum exceeds the maximum, the result is the maximum."""
    bounded = lowest if value < lowest else value
    return highest if value > highest else bounded


BOUNDS: dict[str, Callable[..., Any]] = {
    "between": between,
    "above": lambda value, lowest, highest: lowest if value < lowest else value,
}
Bound = Annotated[Callable[..., Any], BOUNDS]


@kernel
def clamp(bound: Bound, x: Elements, y: Elements, limits: Elements, count: int) -> int:
    """Clamp x."""
    lowest, highest = limits[0], limits[1]
    for i in range(count):
        y[i] = bound(x[i], lowest, highest)
    return DONE


@kernel
def leaky_relu(x: Float32s, y: Float32s, slope: Float32s, count: int) -> int:
    """Return x if positive, else slope * x."""
    alpha = slope[0]
    for i in range(count):
        product = x[i] * alpha
        y[i] = x[i] if x[i] > 0 else product
    return DONE


@kernel
def look_up(x: Elements, table: Elements, y: Elements, count: int) -> int:
    """Set y to the table's element for each of x."""
    for i in range(count):
        y[i] = table[x[i]]
    return DONE


@kernel
def refuse_below(x: Elements, lowest: int, count: int) -> int:
    """Leave numbers below the minimum to numpy, which raises the error."""
    for i in range(count):
        if x[i] < lowest:
            return REFUSED
    return DONE


@kernel
def quantize(x: Float32s, y: Elements, scale: Float32s, stage: Stage, count: int) -> int:
    """Divide by the scale, round (halves away from zero), and add the zero point."""
    divisor, limit, zero = scale[0], as_float32(2.0**31), as_float32(0)
    below_half = as_float32(0.5 - 2.0**-25)
    for i in range(count):
        quotient = x[i] / divisor
        integer = as_int32(-(2**31))
        if quotient < limit and quotient > -limit:
            # Adding this number, just below a half, never rounds a smaller fraction up to the next integer.
            integer = as_int32(quotient + (below_half if quotient >= zero else -below_half))
        y[i] = clamped(wrapped(as_int64(integer) + stage.zero_point), stage.activation_min, stage.activation_max)
    return DONE


@kernel
def requantize(
    x: Elements, y: Elements, multiplier: Multiplier, input_zero_point: int, stage: Stage, count: int
) -> int:
    """Convert integers to another scale and zero point."""
    for i in range(count):
        value = scaled(as_int64(x[i]) - input_zero_point, multiplier)
        y[i] = clamped(wrapped(value + stage.zero_point), stage.activation_min, stage.activation_max)
    return DONE


CONVERSIONS: dict[str, Callable[..., Any]] = {"float32": as_float32, "float64": as_float64}
Conversion = Annotated[Callable[..., Any], CONVERSIONS]


@kernel
def dequantize(conversion: Conversion, x: Elements, y: Float32s, scale: Elements, zero_point: int, count: int) -> int:
    """Convert integers to the real numbers that they stand for."""
    factor = scale[0]
    for i in range(count):
        y[i] = factor * conversion(as_int32(as_int64(x[i]) - zero_point))
    return DONE


@kernel
def sigmoid_int16(
    function: Sigmoid, x: Int16s, y: Int16s, table: UInt16s, factor: int, shift: Shift, count: int
) -> int:
    """Compute LOGISTIC or TANH: convert to steps of 1 / 12288, and apply the function in Q0.15."""
    half = as_int32((as_int64(1) << shift) >> 1)
    for i in range(count):
        steps = as_int32(as_int64(x[i]) * factor + half) >> shift
        y[i] = function(steps, table)
    return DONE


@kernel
def leaky_relu_int16(
    x: Int16s,
    y: Int16s,
    count: int,
    input_zero_point: int,
    multiplier: Multiplier,
    multiplier_alpha: Multiplier,
    alpha_sign: int,
    stage: Stage,
) -> int:
    """Scale negative numbers by one multiplier with a sign, others by another one."""
    for i in range(count):
        value = x[i] - input_zero_point
        identity = scaled(value, multiplier)
        product = scaled(value, multiplier_alpha) * alpha_sign
        y[i] = clamped(
            wrapped((identity if value >= 0 else product) + stage.zero_point),
            stage.activation_min,
            stage.activation_max,
        )
    return DONE


@kernel
def absolute_int16(
    x: Int16s, y: Int16s, count: int, input_zero_point: int, multiplier: Multiplier, stage: Stage
) -> int:
    """Compute absolute values at another scale."""
    for i in range(count):
        value = scaled(abs(as_int32(x[i]) - input_zero_point), multiplier)
        y[i] = clamped(wrapped(value + stage.zero_point), stage.activation_min, stage.activation_max)
    return DONE


EXACT_ZERO_POINT = (1 << 24) - (1 << 15)
"""Limit of a zero point whose difference from each int16 is exact in float32."""


def _plain_step(op: Any, arrays: dict[str, Any]) -> Step | None:
    """Return the step that computes results without a table; None if no kernel does."""
    if isinstance(op, AffineDequantize):
        # The product of two float32 is rounded once, as TFLM rounds a product of doubles, if both are exact.
        is_exact = abs(op.zero_point) < EXACT_ZERO_POINT
        kind = "float32" if is_exact else "float64"
        scale = np.array([op.scale], kind)
        return dequantize.step(conversion=kind, **arrays, scale=scale, zero_point=op.zero_point)
    if arrays["x"].itemsize == 1:
        return None
    if isinstance(op, Int16Input):
        name = "LOGISTIC" if op.function is logistic_int16 else "TANH"
        return sigmoid_int16.step(
            function=name, **arrays, table=SIGMOID_TABLE.astype(np.uint16), factor=op.multiplier, shift=op.shift
        )
    if isinstance(op, Requantization):
        return requantize.step(**arrays, input_zero_point=op.input_zero_point, **requantization(op))
    if isinstance(op, LeakyRelu):
        return leaky_relu_int16.step(
            **arrays,
            input_zero_point=op.input_zero_point,
            multiplier=multiplier_of(op.identity),
            multiplier_alpha=multiplier_of(op.alpha),
            alpha_sign=op.alpha_sign,
            stage=stage_of(op.output),
        )
    if isinstance(op, Abs):
        multiplier = op.multiplier or ONE
        return absolute_int16.step(
            **arrays,
            input_zero_point=op.input_zero_point,
            multiplier=multiplier_of(multiplier),
            stage=stage_of(op.output),
        )
    return quotients.step_of_roots(op, arrays["x"], arrays["y"]) if isinstance(op, Rsqrt) else None


ONE = QuantizedMultiplier(1 << 30, 1)
"""Type for integers of up to 31 bits, for which both roundings are exact."""


def _bind(context: KernelContext, node: Node, profile: Profile) -> list[Step]:
    op, x, y = node.op_data, node.eval_input(0).elements, node.eval_output(0).elements
    arrays: dict[str, Any] = {"x": x, "y": y, "count": y.size}
    if isinstance(op, Clamp):
        bound = "above" if op.maximum == np.inf else "between"
        return [clamp.step(bound=bound, **arrays, limits=np.array([op.minimum, op.maximum], y.dtype))]
    if isinstance(op, FloatLeakyRelu):
        return [leaky_relu.step(**arrays, slope=np.array([op.alpha], np.float32))]
    if isinstance(op, AffineQuantize):
        return [quantize.step(**arrays, scale=np.array([op.scale], np.float32), stage=stage_of(op.output))]
    if isinstance(op, Requantization) and x.dtype == np.int32:
        return [requantize.step(**arrays, input_zero_point=op.input_zero_point, **requantization(op))]
    if x.dtype in (np.float32, np.bool_):
        by_library = not profile.has_tiles and node.operator in LIBRARY
        return [each.step(function="LIBRARY_" * by_library + node.operator, **arrays)]
    plain = None if profile.has_tiles else _plain_step(op, arrays)
    if plain is not None:
        return [plain]
    arrays["x"] = x.view(f"u{x.itemsize}")
    look_ups = [look_up.step(**arrays, table=lookup_table(op, x.dtype, y.dtype))]
    if isinstance(op, Rsqrt):
        return [refuse_below.step(x=x, lowest=op.input_zero_point, count=x.size), *look_ups]
    return look_ups


@kernel
def convert(x: Elements, y: Elements, count: int) -> int:
    """Convert to integers truncated to the bits of y, or to the nearest floats."""
    for i in range(count):
        y[i] = x[i]
    return DONE


@kernel
def is_not_zero(x: Elements, y: UInt8s, count: int) -> int:
    """Set y to 1 for any number but 0."""
    for i in range(count):
        y[i] = 1 if x[i] != 0 else 0
    return DONE


TRUNCATIONS: dict[str, Callable[..., Any]] = {"int32": as_int32, "int64": as_int64}
Truncation = Annotated[Callable[..., Any], TRUNCATIONS]


@kernel
def truncate(truncation: Truncation, x: Float32s, y: Elements, limits: Float32s, highest: Elements, count: int) -> int:
    """Truncate floats towards zero; NaN becomes 0.

    Numbers below the first limit become the limit, those from the second limit on become `highest`. Both are 0 or
    powers of 2, which float32 represents: there is no other float between the second limit and the integer below it.
    """
    lowest, above = limits[0], limits[1]
    for i in range(count):
        value = x[i]
        if value >= above:
            y[i] = highest[0]
        elif value > lowest:
            y[i] = truncation(value)
        else:
            y[i] = truncation(lowest) if value <= lowest else 0
    return DONE


IN_32_BITS = ("int8", "uint8", "int16", "uint16", "int32")
"""Types whose numbers a processor truncates to in one instruction."""


def _bind_cast(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    x, y = (tensor.elements.reshape(-1) for tensor in (node.eval_input(0), node.eval_output(0)))
    have_floats = "f" in (x.dtype.kind, y.dtype.kind)
    if x.dtype == y.dtype or (y.dtype != np.bool_ and not have_floats and x.itemsize == y.itemsize):
        return copy_steps([(y, x.view(y.dtype))])
    if y.dtype == np.bool_:
        return [is_not_zero.step(x=x, y=y, count=y.size)]
    if x.dtype == np.float32:
        info, truncation = np.iinfo(y.dtype), "int32" if y.dtype in IN_32_BITS else "int64"
        limits = np.array([info.min, info.max + 1], np.float32)
        highest = np.array([info.max], y.dtype)
        return [truncate.step(truncation=truncation, x=x, y=y, limits=limits, highest=highest, count=y.size)]
    return [convert.step(x=x, y=y, count=y.size)]


BINDINGS = {**dict.fromkeys(FAMILIES["unary"], _bind), "CAST": _bind_cast}
