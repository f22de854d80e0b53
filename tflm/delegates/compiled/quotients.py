"""DIV of integers and RSQRT of int16, without floats and without tables of all results."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.compiler.intrinsics import leading_zeros, truncated_quotient
from tflm.compiler.language import DONE, REFUSED, Int8s, Int16s, Int32s, Step, inlined, kernel
from tflm.delegates.compiled.casts import as_int32, as_int64
from tflm.delegates.compiled.fixed_point import (
    LARGEST,
    clamped,
    high_product,
    one_over_one_plus,
    rounding_divided,
    wrapped,
)
from tflm.kernels.arithmetic.fixed_point import reciprocal
from tflm.kernels.reference.arithmetic import Clamped, Quotient
from tflm.kernels.reference.unary import RSQRT_SHIFT, Rsqrt

INVERSE_OF_ZERO = int(reciprocal(0, 31)[0])
"""The factor that the reference uses in place of 1 / 0."""


class Division(NamedTuple):
    """Constants of a quotient of two inputs.

    Attributes:
        size: number of elements of the output.
        step1, step2: step from one element to the next: 1, or 0 for an input of one element.
        zero_point1, zero_point2, zero_point: zero points of the inputs and the output.
        significand, shift: the output's multiplier, significand * 2^shift.
        activation_min, activation_max: limits of the output.
    """

    size: int
    step1: int
    step2: int
    zero_point1: int
    zero_point2: int
    zero_point: int
    significand: int
    shift: int
    activation_min: int
    activation_max: int


@kernel
def divide_int32(x1: Int32s, x2: Int32s, y: Int32s, division: Division) -> int:
    """Divide int32, truncating towards zero."""
    zeros = 0
    for i in range((division.size - 1) * division.step2 + 1):
        zeros += x2[i] == 0
    if zeros:
        return REFUSED
    for i in range(division.size):
        quotient = truncated_quotient(x1[i * division.step1], x2[i * division.step2])
        y[i] = clamped(quotient, division.activation_min, division.activation_max)
    return DONE


@inlined
def divided_by_any_power(value: int, exponent: int) -> Any:
    """Return value / 2^exponent, rounded as in `rounding_divide_by_any_pot`."""
    count = exponent & 63
    if count < 32:
        return rounding_divided(value, count)
    return (value >> (count & 31)) + (value >= 0)


@kernel
def divide_int8(x1: Int8s, x2: Int8s, y: Int8s, division: Division) -> int:
    """Multiply the dividend, shifted left as far as possible, by the reciprocal of the divisor."""
    for i in range(division.size):
        dividend = as_int32(x1[i * division.step1]) - division.zero_point1
        divisor = as_int32(x2[i * division.step2]) - division.zero_point2
        if divisor < 0:
            dividend = -dividend
        divisor = abs(divisor)
        zeros = leading_zeros(divisor) - 32
        inverse = one_over_one_plus((as_int64(divisor) << zeros) - (1 << 31)) if divisor > 0 else INVERSE_OF_ZERO
        headroom = leading_zeros(max(dividend, -dividend - 1)) - 33
        quotient = min(high_product(dividend << headroom, inverse), LARGEST)
        scaled = min(high_product(quotient, division.significand), LARGEST)
        result = divided_by_any_power(scaled, 31 - zeros + headroom - division.shift)
        y[i] = clamped(result + division.zero_point, division.activation_min, division.activation_max)
    return DONE


def step_of_quotient(op: Quotient | Clamped, x1: npt.NDArray[Any], x2: npt.NDArray[Any], y: npt.NDArray[Any]) -> Step:
    """Return the step of flat arrays of int8 or int32; an input may have a single element."""
    steps = {"size": y.size, "step1": int(x1.size > 1), "step2": int(x2.size > 1)}
    if isinstance(op, Clamped):
        limits = {"activation_min": int(op.minimum), "activation_max": int(op.maximum)}
        return divide_int32.step(x1=x1, x2=x2, y=y, division=Division(**steps, **NO_QUANTIZATION, **limits))
    division = Division(
        **steps,
        zero_point1=op.zero_point1,
        zero_point2=op.zero_point2,
        zero_point=op.output.zero_point,
        significand=op.significand,
        shift=op.shift,
        activation_min=op.output.minimum,
        activation_max=op.output.maximum,
    )
    return divide_int8.step(x1=x1, x2=x2, y=y, division=division)


NO_QUANTIZATION = dict.fromkeys(("zero_point1", "zero_point2", "zero_point", "significand", "shift"), 0)


# --- RSQRT -------------------------------------------------------------------------------------------------------

NEWTON_STEPS = 5

UNIT = 1 << 28
"""1 in Q3.28."""

HALF_ROOT = round(math.sqrt(2) / 2 * 2**31)
"""sqrt(1/2) in Q0.31."""


class Roots(NamedTuple):
    """Constants of reciprocal square roots; attributes as in `Division`."""

    size: int
    zero_point: int
    significand: int
    left: int
    right: int
    output_zero_point: int
    activation_min: int
    activation_max: int


@inlined
def inverse_root(value: int) -> Any:
    """Return 2^`RSQRT_SHIFT` / sqrt(value) for an integer from 2 to 2^16; see `inverse_square_root`."""
    pairs = ((leading_zeros(value) - 33) >> 1) - 1
    scaled = value << (2 * pairs)
    half = ((scaled >> 1) + 1) >> 1
    x = UNIT
    for _ in range(NEWTON_STEPS):
        cube = as_int32(clamped(high_product(high_product(x, x), x) << 6, -LARGEST - 1, LARGEST))
        x = as_int32(
            clamped((high_product(UNIT + UNIT // 2, x) - high_product(half, cube)) << 3, -LARGEST - 1, LARGEST)
        )
    left = max(pairs - 11, 0)
    significand = high_product(x, HALF_ROOT) << left
    return high_product(1 << (RSQRT_SHIFT + pairs - 11 - left), significand)


@kernel
def rsqrt_int16(x: Int16s, y: Int16s, roots: Roots) -> int:
    """Compute reciprocal square roots; the largest value for zero."""
    for i in range(roots.size):
        if x[i] < roots.zero_point:
            return REFUSED
    for i in range(roots.size):
        value = as_int32(x[i]) - roots.zero_point
        root = high_product(1 << RSQRT_SHIFT, LARGEST)
        if value > 1:
            root = inverse_root(value)
        result = high_product(wrapped(root << roots.left), roots.significand)
        result = divided_by_any_power(result, roots.right) + roots.output_zero_point
        y[i] = clamped(result, roots.activation_min, roots.activation_max) if value > 0 else roots.activation_max
    return DONE


def step_of_roots(op: Rsqrt, x: npt.NDArray[np.int16], y: npt.NDArray[np.int16]) -> Step | None:
    """Return the step of RSQRT; None if its multiplier is too large."""
    shift = op.shift - RSQRT_SHIFT
    if shift > 31:
        return None
    roots = Roots(
        x.size,
        op.input_zero_point,
        op.significand,
        left=max(shift, 0),
        right=max(-shift, 0),
        output_zero_point=op.output.zero_point,
        activation_min=op.output.minimum,
        activation_max=op.output.maximum,
    )
    return rsqrt_int16.step(x=x.reshape(-1), y=y.reshape(-1), roots=roots)
