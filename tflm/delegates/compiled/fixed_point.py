"""Fixed-point arithmetic as in `tflm.kernels.arithmetic.fixed_point`, for kernels: on int64, one number at a time."""

from __future__ import annotations

from typing import Any, NamedTuple

from tflm.compiler.language import by_value, inlined
from tflm.delegates.compiled.casts import as_int32, as_int64
from tflm.kernels.arithmetic.fixed_point import BEST_LINE, QuantizedMultiplier
from tflm.kernels.arithmetic.requantization import OutputStage, Requantization

LARGEST = 2**31 - 1

BEST_START, BEST_SLOPE = BEST_LINE


@by_value
class Multiplier(NamedTuple):
    """A quantized multiplier: a significand in Q0.31, and shifts to the left and to the right, one of which is 0."""

    significand: int
    left: int
    right: int


@by_value
class Stage(NamedTuple):
    """What requantized values become outputs by: the zero point, then the limits."""

    zero_point: int
    activation_min: int
    activation_max: int


@inlined
def wrapped(value: Any) -> Any:
    """Return the low 32 bits, as a signed number."""
    return as_int32(value)


@inlined
def scaled(value: int, multiplier: Multiplier) -> int:
    """Return a 32-bit integer times significand (Q0.31) * 2^(left - right), rounded twice; `left` or `right` is 0."""
    high = (as_int64(wrapped(value << multiplier.left)) * multiplier.significand + (1 << 30)) >> 31
    return rounding_divided(high, multiplier.right)


@inlined
def rounding_divided(value: int, exponent: int) -> int:
    """Return value / 2^exponent, rounded, with halves away from zero."""
    if exponent == 0:
        return value
    return (value + (value >> 63) + (1 << (exponent - 1))) >> exponent


@inlined
def high_product(a: int, b: int) -> int:
    """Return the product of two Q0.31 that are not both -1: the high half of 2ab, rounded, halves up."""
    product: int = (as_int64(a) * b + (1 << 30)) >> 31
    return product


@inlined
def one_over_one_plus(a: int) -> int:
    """Return 1 / (1 + a) in Q0.31 for a in [0, 1) in Q0.31, by three steps of Newton's method in Q2.29."""
    half_denominator = as_int32((as_int64(a) + (1 << 31)) >> 1)
    x = as_int32(BEST_START + high_product(half_denominator, BEST_SLOPE))
    for _ in range(3):
        error = as_int32((1 << 29) - high_product(half_denominator, x))
        x = as_int32(x + (high_product(x, error) << 2))
    inverse: int = min(as_int64(x) << 1, LARGEST)
    return inverse


@inlined
def clamped(value: int, lowest: int, highest: int) -> int:
    """Return the nearest value in a range."""
    return min(max(value, lowest), highest)


def multiplier_of(multiplier: QuantizedMultiplier) -> Multiplier:
    """Return a multiplier that all channels share, as kernels take it."""
    shift = int(multiplier.shift)
    return Multiplier(int(multiplier.significand), max(shift, 0) & 31, max(-shift, 0))


def stage_of(stage: OutputStage) -> Stage:
    """Return an output stage as kernels take it."""
    return Stage(stage.zero_point, stage.minimum, stage.maximum)


def requantization(output: Requantization) -> dict[str, Multiplier | Stage]:
    """Return the arguments of a kernel that requantizes."""
    return {"multiplier": multiplier_of(output.multiplier), "stage": stage_of(output.stage)}
