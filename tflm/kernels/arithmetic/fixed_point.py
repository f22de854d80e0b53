"""Fixed-point arithmetic, exactly as TFLM's reference kernels do it (double rounding).

A format Qm.n has a sign bit, m integer bits and n fractional bits. Arrays hold raw values as int64, so that no step
overflows by accident; where the reference wraps or saturates in 32 bits, the function says so and does it.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.arithmetic.numpy_calls import scalar
from tflm.kernels.host_memory import kept

Raw = npt.NDArray[np.int64]
"""Raw values of a fixed-point format."""

Transform = Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]]
"""A real function, over arrays."""

INT32_MAX = 2**31 - 1

_SIGN_BIT, _LOW_BITS = scalar(1 << 31), scalar((1 << 32) - 1)
_HALF_OF_Q31, _BITS_OF_Q31, _BITS_BELOW_THE_SIGN = scalar(1 << 30), scalar(31), scalar(63)


# --- Multipliers -------------------------------------------------------------------------------------------------


def quantize_multiplier(real: float) -> tuple[int, int]:
    """A real multiplier as a Q0.31 significand in [1/2, 1) and a power of two: real = significand * 2^shift.

    Returns:
        (significand, shift); (0, 0) for zero and for what is below 2^-32.

    Raises:
        OperatorError: the multiplier is negative, infinite or not a number.
    """
    if not (math.isfinite(real) and real >= 0):
        raise OperatorError(f"its scales give the multiplier {real:g}, which is not a positive number")
    fraction, shift = math.frexp(real)
    significand = round_half_away(fraction * 2**31)
    if significand == 2**31:
        significand, shift = 2**30, shift + 1
    return (significand, shift) if significand and shift >= -31 else (0, 0)


class FloatScaling(NamedTuple):
    """A multiplication of integers in float64, every step of it exact.

    The result is floor(x * factor + 1/2); where `right` is positive, then divided by 2^right and rounded, halves away
    from zero.

    Attributes:
        factor: float64, one for all values or one for each channel.
        right: powers of two, likewise.
    """

    factor: npt.NDArray[np.float64]
    right: Raw

    def in_one_step(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """(f, a) such that floor(x * f + a) is the result wherever that is positive; elsewhere it is not.

        For an integer n, floor((floor(z) + n) / 2^k) is floor((z + n) / 2^k): where no sign is to be regarded, both
        roundings are one, of (x * factor + 1/2 + 2^(right - 1)) / 2^right.
        """
        half = np.where(self.right > 0, 0.5, 0.0)
        return np.ldexp(self.factor, -self.right), half + np.ldexp(0.5, -self.right)


class Multiplier(ABC):
    """Multiplies integers by significand * 2^shift. Two of one kind are equal where these are.

    Args:
        significand: Q0.31, one for all values, or an array that broadcasts with them.
        shift: powers of two, likewise.

    Attributes:
        significand, shift: the same as int64, one number where all are equal.
    """

    def __init__(self, significand: npt.ArrayLike, shift: npt.ArrayLike):
        self.significand = _constant_if_equal(np.asarray(significand, np.int64))
        self.shift = _constant_if_equal(np.asarray(shift, np.int64))

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def _parts(self) -> tuple[object, ...]:
        return self.significand.shape, self.significand.tobytes(), self.shift.shape, self.shift.tobytes()

    @abstractmethod
    def scale(self, values: Raw, scratch: Raw) -> Raw:
        """Multiply `values` in place and give them back; `scratch` is an array of the same shape to work in."""

    @abstractmethod
    def in_float64(self, limit: int) -> FloatScaling | None:
        """The same for integers of absolute value `limit` at the most, in float64; None where that is not exact."""

    @abstractmethod
    def largest_result(self, limit: int) -> int | None:
        """A bound on absolute results for such integers; None where there is no one multiplier, or it may wrap."""

    def spread(self, shape: tuple[int, ...], channels: tuple[int, ...]) -> Multiplier:
        """The multiplier for arrays of `shape`, of which one for each channel broadcasts with them as `channels`."""
        return type(self)(spread(self.significand, shape, channels), spread(self.shift, shape, channels))


def spread(values: npt.NDArray[Any], shape: tuple[int, ...], channels: tuple[int, ...]) -> npt.NDArray[Any]:
    """A new array of `shape` with what there is for each channel, or once for all, where it belongs.

    Args:
        channels: the shape that what there is for each channel broadcasts with.
    """
    return kept(np.broadcast_to(values.reshape(channels) if values.ndim else values, shape).copy())


class _RoundedShift(NamedTuple):
    """How a quantized multiplier shifts: to the left before the product, to the right after it, rounding.

    Attributes:
        left, right: powers of two.
        shifts_left, shifts_right: whether there are any.
        half: half of 2^right; 0 where nothing is shifted to the right.
        sign_mask: half is rounded away from zero: the sign of a negative value, -1, is taken off before the shift. All
            bits where there is one, 0 elsewhere; None where there is one everywhere.
    """

    left: Raw
    right: Raw
    shifts_left: bool
    shifts_right: bool
    half: Raw
    sign_mask: Raw | None

    @classmethod
    def by(cls, shift: Raw) -> _RoundedShift:
        """By 2^shift."""
        # C leaves a shift by 32 and more undefined: this follows x86, which takes the count modulo 32.
        left = np.asarray(np.maximum(shift, 0) & 31, np.int64)
        right = np.asarray(np.maximum(-shift, 0), np.int64)
        rounds = right > 0
        half = np.asarray(np.where(rounds, np.left_shift(1, np.maximum(right - 1, 0)), 0), np.int64)
        sign_mask = None if rounds.all() else np.asarray(np.negative(rounds, dtype=np.int64), np.int64)
        for array in (left, right, half) if sign_mask is None else (left, right, half, sign_mask):
            kept(array)
        return cls(left, right, bool(left.any()), bool(right.any()), half, sign_mask)


class QuantizedMultiplier(Multiplier):
    """Multiplies 32-bit integers, rounding twice."""

    def __init__(self, significand: npt.ArrayLike, shift: npt.ArrayLike):
        super().__init__(significand, shift)
        if self.shift.ndim:  # one number takes no memory to speak of, and is often never shifted by
            self._shift.left  # noqa: B018

    @functools.cached_property
    def _shift(self) -> _RoundedShift:
        return _RoundedShift.by(self.shift)

    @classmethod
    def of(cls, real: float) -> QuantizedMultiplier:
        """The multiplier nearest to a real number."""
        return cls(*quantize_multiplier(real))

    def in_float64(self, limit: int) -> FloatScaling | None:
        """The same in float64, where that is exact.

        The product with the significand is an integer of steps of 2^-31. While that and what is added to round it,
        once or twice, stay below 2^53, float64 holds every step exactly, and no shift to the left has left 32 bits.
        """
        number = np.left_shift(self.significand, self._shift.left)
        halves = (1 << 30) + (1 << 30 + int(self._shift.right.max()))
        if limit * int(number.max()) + halves > 1 << 53:
            return None
        return FloatScaling(np.ldexp(np.asarray(number, np.float64), -31), self._shift.right)

    def largest_result(self, limit: int) -> int | None:
        left, right = self._shift.left, self._shift.right
        if max(a.ndim for a in (self.significand, left, right)) or limit << int(left) >= 1 << 31:
            return None
        return (limit << int(left)) >> int(right)

    def scale(self, values: Raw, scratch: Raw) -> Raw:
        """Multiply `values` in place and give them back; `scratch` is an array of the same shape to work in."""
        shift = self._shift
        if shift.shifts_left:
            wrap_int32(np.left_shift(values, shift.left, values))
        np.multiply(values, self.significand, values)
        np.add(values, _HALF_OF_Q31, values)
        np.right_shift(values, _BITS_OF_Q31, values)
        if shift.shifts_right:
            np.right_shift(values, _BITS_BELOW_THE_SIGN, scratch)
            if shift.sign_mask is not None:
                np.bitwise_and(scratch, shift.sign_mask, scratch)
            np.add(values, scratch, values)
            np.add(values, shift.half, values)
            np.right_shift(values, shift.right, values)
        return values


class WideQuantizedMultiplier(Multiplier):
    """Multiplies integers of up to 48 bits by a significand reduced to Q0.15, rounding once.

    This is what the reference does to 64-bit accumulators. The result wraps to 32 bits.
    """

    def __init__(self, significand: npt.ArrayLike, shift: npt.ArrayLike):
        super().__init__(significand, shift)
        wide = self.significand
        self._reduced = np.asarray(np.where(wide < 0x7FFF0000, (wide + (1 << 15)) >> 16, 0x7FFF), np.int64)
        self._fraction_bits = 15 - self.shift
        # Undefined in C for powers of 15 and more: this follows x86, which takes the counts modulo 64.
        self._right = np.asarray(self._fraction_bits & 63, np.int64)
        self._half = np.asarray(np.left_shift(np.int64(1), (self._fraction_bits - 1) & 63), np.int64)

    def in_float64(self, limit: int) -> FloatScaling | None:
        """The same in float64, where that is exact.

        The product is an integer of steps of 2^-fraction_bits. While that and the rounding half stay below 2^53,
        float64 holds it exactly. The result must fit in 32 bits too, so that nothing wraps.
        """
        fewest, most = int(self._fraction_bits.min()), int(self._fraction_bits.max())
        if fewest < 1 or most > 53:
            return None
        largest = limit * int(self._reduced.max()) + (1 << (most - 1))
        if largest > 1 << 53 or largest >> fewest >= 1 << 31:
            return None
        factor = np.ldexp(np.asarray(self._reduced, np.float64), -self._fraction_bits)
        return FloatScaling(factor, np.zeros_like(self._right))

    def largest_result(self, limit: int) -> int | None:
        if max(a.ndim for a in (self._reduced, self._fraction_bits)) or self.in_float64(limit) is None:
            return None
        return limit * int(self._reduced) >> int(self._fraction_bits)

    def scale(self, values: Raw, scratch: Raw) -> Raw:
        """Multiply `values` in place and give them back; `scratch` is not needed and may be anything."""
        np.multiply(values, self._reduced, values)
        np.add(values, self._half, values)
        np.right_shift(values, self._right, values)
        return wrap_int32(values)


def multiply_by_quantized_multiplier(values: npt.ArrayLike, significand: int, shift: int) -> Raw:
    """32-bit integers times significand (Q0.31) * 2^shift; a new array."""
    product = np.array(values, np.int64)
    return QuantizedMultiplier(significand, shift).scale(product, np.empty_like(product))


def wrap_int32(values: Raw) -> Raw:
    """Keep the low 32 bits of each value, as a signed number; in place."""
    np.add(values, _SIGN_BIT, values)
    np.bitwise_and(values, _LOW_BITS, values)
    np.subtract(values, _SIGN_BIT, values)
    return values


def _constant_if_equal(values: Raw) -> Raw:
    """One number for an array of equal ones: numpy shifts by a scalar several times faster."""
    if values.ndim == 0:
        return values
    first = values.reshape(-1)[:1]
    return first.reshape(()) if values.size and (values == first).all() else values


# --- Rounding ----------------------------------------------------------------------------------------------------


def round_half_away(value: float) -> int:
    """The nearest integer, halves away from zero: C's `round`."""
    whole = math.floor(abs(value))
    return int(math.copysign(whole + (abs(value) - whole >= 0.5), value))


def round_half_away_array(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """`round_half_away` for an array of floats, in the array's own precision."""
    return round_half_away_in_place(np.array(values, values.dtype), np.empty_like(values))


def round_half_away_in_place(values: npt.NDArray[Any], scratch: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Round an array of floats and give it back; `scratch` is an array of the same kind to work in."""
    # The float just below one half keeps 0.49999997 from rounding up, and still carries exact halves over.
    below_half = np.nextafter(values.dtype.type(0.5), values.dtype.type(0))
    np.copysign(below_half, values, out=scratch)
    np.add(values, scratch, out=values)
    np.trunc(values, out=values)
    return values


def int32_from_float(values: npt.ArrayLike) -> Raw:
    """Floats cut off to 32-bit integers. C leaves it undefined where they don't fit: as on x86, that gives -2^31."""
    wide = np.array(values, np.float64)
    return int32_from_float_into(np.empty(wide.shape, np.int64), wide, np.empty(wide.shape, np.bool_))


def int32_from_float_into(integers: Raw, values: npt.NDArray[Any], mask: npt.NDArray[np.bool_]) -> Raw:
    """`int32_from_float` into an array that is there; `values` are changed and `mask` is an array to work in."""
    limit = values.dtype.type(2**31)
    np.less(values, limit, out=mask)
    np.logical_not(mask, out=mask)  # what is too large, and what is not a number
    np.copyto(values, -limit, where=mask)
    np.maximum(values, -limit, out=values)
    np.copyto(integers, values, casting="unsafe")
    return integers


def saturating_rounding_doubling_high_mul(a: npt.ArrayLike, b: npt.ArrayLike) -> Raw:
    """Product of two Q0.31 (or Qm.n and Qk.l, giving Q(m+k)): the high half of 2ab, rounded, halves up.

    Only -1 * -1 saturates.
    """
    product = np.multiply(a, b, dtype=np.int64)
    high: Raw = np.minimum((product + (1 << 30)) >> 31, INT32_MAX)
    return high


def rounding_divide_by_pot(values: npt.ArrayLike, exponent: npt.ArrayLike) -> Raw:
    """Values over 2^exponent (1 or more), rounded, halves away from zero."""
    raw, bits = np.asarray(values, np.int64), np.asarray(exponent, np.int64)
    quotient: Raw = (raw + (raw >> 63) + np.left_shift(np.int64(1), bits - 1)) >> bits
    return quotient


def rounding_divide_by_any_pot(values: Raw, exponent: Raw) -> Raw:
    """`rounding_divide_by_pot`, where the exponent may be anything.

    C leaves exponents outside 0..31 undefined. This follows x86: the shift of the 64-bit mask counts modulo 64, that of
    the value modulo 32; a mask of all ones makes every value that is not negative round up.
    """
    count = exponent & 63
    within = np.where(count == 0, values, rounding_divide_by_pot(values, np.clip(count, 1, 31)))
    beyond = (values >> (count & 31)) + (values >= 0)
    return np.where(count < 32, within, beyond)


def input_radius(integer_bits: int, left_shift: int) -> int:
    """The smallest distance from zero that, shifted left, leaves Q(integer_bits).(31 - integer_bits)."""
    # Undefined in C for a negative shift: this follows x86, which takes the count modulo 64.
    unit = 1 << (left_shift & 63)
    unit = -unit if unit == 1 << 63 else unit
    return math.floor(((1 << integer_bits) - 1) * 2.0 ** (31 - integer_bits) / unit)


# --- Functions ---------------------------------------------------------------------------------------------------


def exp_on_negative_values(a: npt.ArrayLike, integer_bits: int) -> Raw:
    """exp(a) in Q0.31 for a <= 0 in Q(integer_bits).(31 - integer_bits), of at most 5 integer bits.

    exp of the fraction in [-1/4, 0) comes from a polynomial; each bit above it multiplies by a constant.
    """
    raw = np.asarray(a, np.int64)
    fractional_bits = 31 - integer_bits
    one_quarter = 1 << (fractional_bits - 2)
    fraction = (raw & (one_quarter - 1)) - one_quarter
    result = _exp_on_last_quarter(fraction << integer_bits)
    remainder = fraction - raw
    for exponent in range(-2, integer_bits):
        constant = round(math.exp(-(2.0**exponent)) * 2**31)
        bit = 1 << (fractional_bits + exponent)
        product = saturating_rounding_doubling_high_mul(result, constant)
        result = np.where(remainder & bit, product, result)
    return np.where(raw == 0, INT32_MAX, result)


def _exp_on_last_quarter(a: Raw) -> Raw:
    """exp(a) in Q0.31 for a in [-1/4, 0) in Q0.31: the Taylor polynomial of degree 4 around -1/8."""
    mul = saturating_rounding_doubling_high_mul
    x = a + (1 << 28)
    x2 = mul(x, x)
    x3 = mul(x2, x)
    x4_over_4 = rounding_divide_by_pot(mul(x2, x2), 2)
    x4_over_12_plus_x3_over_3 = mul(x4_over_4 + x3, round(2**31 / 3))
    tail = rounding_divide_by_pot(x4_over_12_plus_x3_over_3 + x2, 1)
    constant = round(math.exp(-1 / 8) * 2**31)
    return constant + mul(constant, x + tail)


def _high_mul(a: Any, b: Any) -> Any:
    """As `saturating_rounding_doubling_high_mul`, of numbers or arrays that are not both -1."""
    return (a * b + (1 << 30)) >> 31


def _saturated(a: Any) -> Any:
    """A number or array that may be too large for 32 bits, cut off."""
    return min(a, INT32_MAX) if isinstance(a, int) else np.minimum(a, INT32_MAX)


BEST_LINE = round(48 / 17 * 2**29), round(-32 / 17 * 2**29)
"""Q2.29: the line through 1 / d, for d from 1/2 to 1, whose largest relative error is smallest."""


def _reciprocal_of_one_plus(a: Any) -> Any:
    """2 / (1 + a) in Q2.29 for a in [0, 1) in Q0.31: Newton's method from the best line."""
    start, slope = BEST_LINE
    half_denominator = (a + INT32_MAX + 1) >> 1
    x = start + _high_mul(half_denominator, slope)
    for _ in range(3):
        error = (1 << 29) - _high_mul(half_denominator, x)
        x = x + (_high_mul(x, error) << 2)
    return x


def one_over_one_plus_x(a: Any) -> Any:
    """1 / (1 + a) in Q0.31 for a in [0, 1) in Q0.31; a is a number or an array."""
    return _saturated(_reciprocal_of_one_plus(a) << 1)


def one_minus_x_over_one_plus_x(a: Any) -> Any:
    """(1 - a) / (1 + a) in Q0.31 for a in [0, 1) in Q0.31; a is a number or an array."""
    return _saturated((_reciprocal_of_one_plus(a) - (1 << 29)) << 2)


def logistic(a: npt.ArrayLike, integer_bits: int) -> Raw:
    """1 / (1 + exp(-a)) in Q0.31 for a in Q(integer_bits).(31 - integer_bits)."""
    raw = np.asarray(a, np.int64)
    of_positive = one_over_one_plus_x(exp_on_negative_values(-abs(raw), integer_bits))
    result = np.where(raw > 0, of_positive, INT32_MAX - of_positive)
    return np.where(raw == 0, 1 << 30, result)


def tanh(a: npt.ArrayLike, integer_bits: int) -> Raw:
    """tanh(a) in Q0.31 for a in Q(integer_bits).(31 - integer_bits)."""
    raw = np.asarray(a, np.int64)
    # Reading the raw value with one more integer bit doubles it.
    of_positive = one_minus_x_over_one_plus_x(exp_on_negative_values(-abs(raw), integer_bits + 1))
    result: Raw = np.sign(raw) * of_positive
    return result


def count_leading_zeros_32(values: Any) -> Any:
    """Zero bits above the highest one bit, in 32 bits, of a number or of each in an array; 32 for zero."""
    if isinstance(values, int):
        return 32 - values.bit_length()
    return 32 - np.frexp(np.asarray(values, np.float64))[1].astype(np.int64)


def reciprocal(values: Any, integer_bits: int) -> tuple[Any, Any]:
    """1 / x for positive x in Q(integer_bits).(31 - integer_bits), a number or an array.

    Returns:
        (Q0.31 mantissa in (1/2, 1], number of bits of x above one): 1 / x = mantissa / 2^bits.
    """
    headroom_plus_one = count_leading_zeros_32(values)
    mantissa_minus_one = (values << headroom_plus_one) - (1 << 31)
    return one_over_one_plus_x(mantissa_minus_one), integer_bits - headroom_plus_one


def inverse_square_root(values: Any) -> tuple[Any, Any]:
    """1 / sqrt(value) of 32-bit integers, a number or an array; what is not positive counts as 1.

    Returns:
        (significand in Q0.31, power of two).
    """
    if isinstance(values, int):
        return _inverse_square_root(values) if values > 1 else (INT32_MAX, 0)
    significands, shifts = _inverse_square_root(np.maximum(values, 2))
    return np.where(values > 1, significands, INT32_MAX), np.where(values > 1, shifts, 0)


def _inverse_square_root(value: Any) -> tuple[Any, Any]:
    """Newton's method, five steps from 1: x = 3/2 x - 1/2 value x^3, all in Q3.28, of a value between 1/2 and 2."""
    mul = _high_mul
    is_large = (value >= 1 << 29) * np.int64(1)
    value, shift = value >> 2 * is_large, 11 + is_large
    pairs = (count_leading_zeros_32(value) - 1) // 2 - 1
    value, shift = value << 2 * pairs, shift - pairs
    scaled = value >> 1
    half, three_halves = (scaled + 1) >> 1, (1 << 28) + (1 << 27)
    x = 1 << 28
    for _ in range(5):
        cube = _saturated(mul(mul(x, x), x) << 6)
        x = _saturated((mul(three_halves, x) - mul(half, cube)) << 3)
    significand = mul(x, round(math.sqrt(2) / 2 * 2**31))
    left = (shift < 0) * -shift
    return significand << left, -shift - left


_LOG_2, _ROOT, _FOURTH_ROOT = (round(constant * 2**31) for constant in (math.log(2), 0.5**0.5, 0.5**0.25))
_LOG_WEIGHTS = tuple(
    round(weight * 2**31) for weight in (11 / 240 * 2**0.25, 1 / 20 * 2**0.25, 2 / 2**0.25 - 2**0.25, 1 / 4 * 2**0.25)
)
"""Q0.31: coefficients of the quotient of polynomials that is a logarithm."""


def log_from_one(values: Any, integer_bits: int, result_bits: int) -> Any:
    """log(x) in Q(result_bits).(31 - result_bits) for x >= 1 in Q(integer_bits).(31 - integer_bits).

    x, a number or an array, is 2^n r, with r around 2^(-1/4): the log of r is a quotient of polynomials around there.
    """
    mul = _high_mul
    alpha_n, alpha_d, alpha_i, alpha_f = _LOG_WEIGHTS
    smallest, largest = (min, max) if isinstance(values, int) else (np.minimum, np.maximum)
    fractional_bits = 30 - result_bits  # one integer bit more until the end
    unit, quarter = 1 << fractional_bits, 1 << (fractional_bits - 2)
    # Without its leading zeros, x is r / sqrt(2) or r: the smaller one of both is meant.
    zeros, other_zeros = count_leading_zeros_32(values), count_leading_zeros_32(mul(values, _ROOT)) - 1
    n = largest((integer_bits - zeros) * unit + quarter, (integer_bits - other_zeros) * unit - quarter)
    r = smallest(_saturated(mul(values << (zeros - 1), _ROOT) << 1), _saturated(values << other_zeros))
    q = (r - _FOURTH_ROOT) << 1
    square = mul(q, q)
    numerator = mul(q, r) + mul(mul(q, square), alpha_n)
    average = (r + _FOURTH_ROOT + 1) >> 1
    denominator_minus_one = mul(average, alpha_i + q + mul(alpha_d, square)) + mul(alpha_f, q)
    down = result_bits + 1
    scaled = (numerator + (numerator >> 63) + (1 << (down - 1))) >> down
    return _saturated((mul(n, _LOG_2) + mul(scaled, one_over_one_plus_x(denominator_minus_one))) << 1)


# --- Look-up tables ----------------------------------------------------------------------------------------------

LUT_INT16_SIZE = 513
"""Entries of a table for int16: 512 steps of 128, and the end of the last one."""


def populate_lut_int16(
    input_scale: float, input_zero_point: int, output_scale: float, output_zero_point: int, transform: Transform
) -> npt.NDArray[np.int16]:
    """A table of `transform` over all int16, to be interpolated by `lookup_int16`.

    Each entry is moved by half the error that interpolation would make at the middle of its step. All arithmetic is
    in float32, as in the reference.

    Args:
        transform: from an array of real float32 values to another.
    """
    f32 = np.float32
    low, high = -(1 << 15), (1 << 15) - 1
    input_min = f32(input_scale) * f32(low - input_zero_point)
    input_max = f32(input_scale) * f32(high - input_zero_point)
    output_min = f32(output_scale) * f32(low - output_zero_point)
    output_max = f32(output_scale) * f32(high - output_zero_point)
    step = (input_max - input_min) / f32(512)
    inverse = f32(1 << 16) / (output_max - output_min)
    i = np.arange(512, dtype=f32)
    value = transform(input_min + i * step) * inverse
    middle = transform(input_min + i * step + step / f32(2)) * inverse
    following = transform(input_min + (i + f32(1)) * step) * inverse
    sample = round_half_away_array(value)
    error = round_half_away_array((following + sample) / f32(2)) - round_half_away_array(middle)
    entries = sample - round_half_away_array(error / f32(2))
    last = round_half_away_array(transform(np.array([input_max], f32)) * inverse)
    table: npt.NDArray[np.int16] = np.clip(np.concatenate([entries, last]), low, high).astype(np.int16)
    return table


def lookup_int16(values: npt.ArrayLike, table: npt.NDArray[np.int16]) -> Raw:
    """The table's value for each int16, interpolated between its entries: Q0.15 where the entries are."""
    raw = np.asarray(values, np.int64)
    index = 256 + (raw >> 7)
    base = table[index].astype(np.int64)
    slope = (table[index + 1] - table[index]).astype(np.int64)
    values_between: Raw = base + ((slope * (raw & 0x7F) + 64) >> 7)
    return values_between


def _sigmoid_table() -> npt.NDArray[np.int64]:
    x = np.arange(256, dtype=np.float64) / 24

    def sigmoid(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return 65536 / (1 + np.exp(-x))

    # Interpolation cuts the corner of a concave curve: each entry is raised by half of what is lost in the middle.
    loss = sigmoid(x + 1 / 48) - (sigmoid(x) + sigmoid(x + 1 / 24)) / 2
    table = np.round(sigmoid(x) + loss / 2).astype(np.int64)
    table[-1] = 65535  # the end of the curve is 1
    return table


SIGMOID_TABLE = _sigmoid_table()
"""sigmoid(i / 24) in Q0.16, unsigned, for i from 0 to 255; tanh(x) = 2 sigmoid(2x) - 1 uses it too."""
