"""Fixed-point arithmetic, exactly as TFLM's reference kernels do it (double rounding).

A format Qm.n has a sign bit, m integer bits and n fractional bits. Arrays hold raw values as int64, so that no step
overflows by accident. Where the reference wraps or saturates in 32 bits, the function does the same and documents it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.host_memory import track_host_array

Raw = npt.NDArray[np.int64]
"""Raw values of a fixed-point format."""

Transform = Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]]
"""A real function, over arrays."""

INT32_MAX = 2**31 - 1


# --- Multipliers -------------------------------------------------------------------------------------------------


def quantize_multiplier(real: float) -> tuple[int, int]:
    """A real multiplier as a Q0.31 significand in [1/2, 1) and a power of two: real = significand * 2^shift.

    Returns:
        (significand, shift); (0, 0) for zero and for multipliers below 2^-32.

    Raises:
        OperatorError: the multiplier is negative, infinite or not a number.
    """
    if not (math.isfinite(real) and real >= 0):
        raise OperatorError(f"its scales result in the multiplier {real:g}, which is not a positive number")
    fraction, shift = math.frexp(real)
    significand = round_half_away(fraction * 2**31)
    if significand == 2**31:
        significand, shift = 2**30, shift + 1
    return (significand, shift) if significand and shift >= -31 else (0, 0)


def multiply_by_quantized_multiplier(values: npt.ArrayLike, significand: npt.ArrayLike, shift: npt.ArrayLike) -> Raw:
    """32-bit integers times significand (Q0.31) * 2^shift, rounded twice: MultiplyByQuantizedMultiplier.

    Args:
        significand, shift: numbers, or arrays that broadcast with the values.
    """
    shift = np.asarray(shift, np.int64)
    # Shifting by 32 or more is undefined in C; like x86, use the count modulo 32.
    shifted = wrap_int32(np.left_shift(values, np.maximum(shift, 0) & 31, dtype=np.int64))
    return rounding_divide_by_pot(saturating_rounding_doubling_high_mul(shifted, significand), np.maximum(-shift, 0))


def multiply_by_quantized_multiplier_64(values: npt.ArrayLike, significand: npt.ArrayLike, shift: npt.ArrayLike) -> Raw:
    """Integers of up to 48 bits times a significand reduced to Q0.15, rounded once, wrapped to 32 bits.

    This is what MultiplyByQuantizedMultiplier does to 64-bit accumulators.
    """
    fraction_bits = 15 - np.asarray(shift, np.int64)
    # Undefined in C for powers of 15 or more; like x86, use the shift counts modulo 64.
    half = np.left_shift(np.int64(1), (fraction_bits - 1) & 63)
    product = np.multiply(values, reduced_significand(significand), dtype=np.int64)
    return wrap_int32((product + half) >> (fraction_bits & 63))


def reduced_significand(significand: npt.ArrayLike) -> Raw:
    """Round a significand from Q0.31 to Q0.15, keeping it below 1."""
    reduced: Raw = np.minimum((np.asarray(significand, np.int64) + (1 << 15)) >> 16, 0x7FFF)
    return reduced


class Float64Multiplier:
    """A multiplication by a quantized multiplier in float64; every step is exact.

    Both roundings are one: for an integer n, floor((floor(z) + n) / 2^k) is floor((z + n) / 2^k).
    SaturatingRoundingDoublingHighMul rounds halves up and RoundingDivideByPOT rounds them away from zero, so the
    constant added before the floor depends on the sign.

    Args:
        factor: one for all values or one for each channel.
        right: the power of two of the second rounding, likewise.
    """

    def __init__(self, factor: npt.NDArray[np.float64], right: Raw):
        power = np.ldexp(1.0, -right)
        self._factor, self._half = factor * power, np.array(0.5, np.float64)
        self._half_step = np.where(right > 0, 0.5 * power, 0.0)
        self._both_halves = np.where(right > 0, 0.5 + 0.5 * power, 0.5)
        for constants in (self._factor, self._half_step, self._both_halves):
            track_host_array(np.asarray(constants, None))

    def __call__(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Scale `values` in place and return them."""
        values *= self._factor
        values += np.copysign(self._half_step, values)
        values += self._half
        return np.floor(values, out=values)

    def positive(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The same, except that negative results may differ by one."""
        values *= self._factor
        values += self._both_halves
        return np.floor(values, out=values)


class Int64Multiplier:
    """A multiplication by a quantized multiplier in int64, with both roundings as one, as in `Float64Multiplier`.

    Args:
        number: one for all values or one for each channel, as are the others.
        shift: of the product, to the right.
        rounds_twice: whether there is a second rounding, 1 or 0.
    """

    def __init__(self, number: Raw, shift: Raw, rounds_twice: Raw):
        self._number, self._shift = number, shift
        self._halves = np.left_shift(np.int64(1), shift - 1) + (rounds_twice << 30)
        self._step_if_negative = -rounds_twice << 31
        for constants in (self._number, self._shift, self._halves, self._step_if_negative):
            track_host_array(np.asarray(constants, None))

    def __call__(self, values: Raw) -> Raw:
        """Scale `values` in place and return them."""
        step = values & self._step_if_negative
        values *= self._number
        values += self._halves
        values += step
        values >>= self._shift
        return values


@dataclass(frozen=True)
class QuantizedMultiplier:
    """Multiplies 32-bit integers, rounding twice.

    Attributes:
        significand: Q0.31, one for all values, or an array that broadcasts with them.
        shift: powers of two, likewise.
    """

    significand: Any
    shift: Any

    def __post_init__(self) -> None:
        for constants in (self.significand, self.shift):
            track_host_array(np.asarray(constants, None))

    @classmethod
    def of(cls, real: float) -> QuantizedMultiplier:
        """The multiplier nearest to a real number."""
        return cls(*quantize_multiplier(real))

    def __call__(self, values: npt.ArrayLike) -> Raw:
        """The product, a new array."""
        return multiply_by_quantized_multiplier(values, self.significand, self.shift)

    def in_float64(self, limit: int) -> Float64Multiplier | None:
        """The same for integers of absolute value `limit` at most, in float64; None where that is not exact.

        The product with the significand is a multiple of 2^-31. As long as the product plus its rounding terms stays
        below 2^53 steps, float64 holds every step exactly, and no left shift overflows 32 bits.
        """
        shift = np.asarray(self.shift, np.int64)
        left, right = np.maximum(shift, 0) & 31, np.maximum(-shift, 0)
        number = np.left_shift(self.significand, left, dtype=np.int64)
        if limit * int(number.max()) + (1 << 30) + (1 << 30 + int(right.max())) > 1 << 53:
            return None
        return Float64Multiplier(np.ldexp(np.asarray(number, np.float64), -31), right)

    def in_int64(self, limit: int) -> Int64Multiplier | None:
        """The same for integers of absolute value `limit` at most; None where a step may leave 32 bits."""
        shift, significand = np.asarray(self.shift, np.int64), np.asarray(self.significand, np.int64)
        left, right = np.maximum(shift, 0), np.maximum(-shift, 0)
        if int(significand.min()) < 0 or int(right.max()) > 31 or limit << int(left.max()) >= 1 << 30:
            return None
        return Int64Multiplier(significand << left, 31 + right, np.minimum(right, 1))


class WideQuantizedMultiplier(QuantizedMultiplier):
    """Multiplies integers of up to 48 bits, rounding once."""

    def __call__(self, values: npt.ArrayLike) -> Raw:
        """The product, a new array."""
        return multiply_by_quantized_multiplier_64(values, self.significand, self.shift)

    def in_float64(self, limit: int) -> Float64Multiplier | None:
        """The same for integers of absolute value `limit` at most, in float64; None where that is not exact.

        The product is a multiple of 2^-fraction_bits. As long as it stays below 2^53 steps, rounding term included,
        float64 holds it exactly. The result must stay below 2^30 too, so that nothing wraps.
        """
        fraction_bits = 15 - np.asarray(self.shift, np.int64)
        fewest, largest_count = int(fraction_bits.min()), int(fraction_bits.max())
        if fewest < 1 or largest_count > 53:
            return None
        reduced = reduced_significand(self.significand)
        largest = limit * int(reduced.max()) + (1 << (largest_count - 1))
        if largest > 1 << 53 or largest >> fewest >= 1 << 30:
            return None
        return Float64Multiplier(
            np.ldexp(np.asarray(reduced, np.float64), -fraction_bits), np.zeros_like(fraction_bits)
        )

    def in_int64(self, limit: int) -> Int64Multiplier | None:
        """The same for integers of absolute value `limit` at most; None where a result may leave 31 bits."""
        fraction_bits = 15 - np.asarray(self.shift, np.int64)
        reduced = np.asarray(reduced_significand(self.significand), np.int64)
        fewest, largest = int(fraction_bits.min()), limit * int(reduced.max())
        if fewest < 1 or largest >= 1 << 62 or largest >> fewest >= 1 << 30:
            return None
        return Int64Multiplier(reduced, fraction_bits, np.zeros_like(fraction_bits))


def wrap_int32(values: npt.ArrayLike) -> Raw:
    """The low 32 bits of each integer, as a signed number, in a new array."""
    wrapped: Raw = np.asarray(values, np.int64).astype(np.int32).astype(np.int64)
    return wrapped


# --- Rounding ----------------------------------------------------------------------------------------------------


def round_half_away(value: float) -> int:
    """The nearest integer, halves away from zero: C's `round`."""
    whole = math.floor(abs(value))
    return int(math.copysign(whole + (abs(value) - whole >= 0.5), value))


def round_half_away_array(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """`round_half_away` for an array of floats, in the array's own precision."""
    # Adding the float just below one half keeps 0.49999997 from rounding up; exact halves still round up.
    below_half = np.nextafter(values.dtype.type(0.5), values.dtype.type(0))
    rounded: npt.NDArray[Any] = np.trunc(values + np.copysign(below_half, values))
    return rounded


def int32_from_float(values: npt.ArrayLike) -> Raw:
    """Truncate floats to 32-bit integers. Values that do not fit, undefined in C, become -2^31 as on x86."""
    wide = np.asarray(values, np.float64)
    fits = (wide >= -(2.0**31)) & (wide < 2.0**31)
    return np.where(fits, wide, -(2.0**31)).astype(np.int64)


def saturating_rounding_doubling_high_mul(a: npt.ArrayLike, b: npt.ArrayLike) -> Raw:
    """Product of two Q0.31 (or Qm.n and Qk.l, giving Q(m+k)): the high half of 2ab, rounded, halves up.

    This is SaturatingRoundingDoublingHighMul; only -1 * -1 saturates.
    """
    product = np.multiply(a, b, dtype=np.int64)
    high: Raw = np.minimum((product + (1 << 30)) >> 31, INT32_MAX)
    return high


def rounding_divide_by_pot(values: npt.ArrayLike, exponent: npt.ArrayLike) -> Raw:
    """Values over 2^exponent, rounded, halves away from zero: RoundingDivideByPOT."""
    raw, bits = np.asarray(values, np.int64), np.asarray(exponent, np.int64)
    half, rounds = np.left_shift(np.int64(1), bits) >> 1, np.minimum(bits, 1)
    quotient: Raw = (raw + (raw >> 63) * rounds + half) >> bits
    return quotient


def rounding_divide_by_any_pot(values: Raw, exponent: Raw) -> Raw:
    """`rounding_divide_by_pot` for any exponent.

    Exponents outside 0..31 are undefined in C. This follows x86, which shifts the 64-bit mask modulo 64 and the value
    modulo 32. A mask of all ones rounds every non-negative value up.
    """
    count = exponent & 63
    within = rounding_divide_by_pot(values, np.minimum(count, 31))
    beyond = (values >> (count & 31)) + (values >= 0)
    return np.where(count < 32, within, beyond)


def input_radius(integer_bits: int, left_shift: int) -> int:
    """The smallest distance from zero that overflows Q(integer_bits).(31 - integer_bits) when shifted left."""
    # A negative shift is undefined in C; like x86, use the count modulo 64.
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


def _saturated(values: Raw) -> Raw:
    """Clamp values to 32 bits."""
    saturated: Raw = np.minimum(values, INT32_MAX)
    return saturated


BEST_LINE = round(48 / 17 * 2**29), round(-32 / 17 * 2**29)
"""Q2.29: the line that approximates 1 / d for d from 1/2 to 1 with the least maximum relative error."""


def _reciprocal_of_one_plus(a: npt.ArrayLike) -> Raw:
    """2 / (1 + a) in Q2.29 for a in [0, 1) in Q0.31: Newton's method, starting from a linear approximation."""
    mul = saturating_rounding_doubling_high_mul
    start, slope = BEST_LINE
    half_denominator = (np.asarray(a, np.int64) + (1 << 31)) >> 1
    x = start + mul(half_denominator, slope)
    for _ in range(3):
        x = x + (mul(x, (1 << 29) - mul(half_denominator, x)) << 2)
    return x


def one_over_one_plus_x(a: npt.ArrayLike) -> Raw:
    """1 / (1 + a) in Q0.31 for a in [0, 1) in Q0.31: one_over_one_plus_x_for_x_in_0_1."""
    return _saturated(_reciprocal_of_one_plus(a) << 1)


def one_minus_x_over_one_plus_x(a: npt.ArrayLike) -> Raw:
    """(1 - a) / (1 + a) in Q0.31 for a in [0, 1) in Q0.31: one_minus_x_over_one_plus_x_for_x_in_0_1."""
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


def count_leading_zeros_32(values: npt.ArrayLike) -> Raw:
    """Number of zero bits above the highest set bit of a 32-bit integer; 32 for zero."""
    zeros: Raw = 32 - np.frexp(np.asarray(values, np.float64))[1].astype(np.int64)
    return zeros


def reciprocal(values: npt.ArrayLike, integer_bits: int) -> tuple[Raw, Raw]:
    """1 / x for positive x in Q(integer_bits).(31 - integer_bits): GetReciprocal.

    Returns:
        (Q0.31 mantissa in (1/2, 1], number of bits of x above one): 1 / x = mantissa / 2^bits.
    """
    headroom_plus_one = count_leading_zeros_32(values)
    mantissa_minus_one = np.left_shift(values, headroom_plus_one, dtype=np.int64) - (1 << 31)
    return one_over_one_plus_x(mantissa_minus_one), integer_bits - headroom_plus_one


def inverse_square_root(values: npt.ArrayLike) -> tuple[Raw, Raw]:
    """1 / sqrt(value) of 32-bit integers; values below 1 count as 1: GetInvSqrtQuantizedMultiplierExp.

    Five steps of Newton's method from 1, x = 3/2 x - 1/2 value x^3, in Q3.28, with the value scaled to between 1/2 and
    2.

    Returns:
        (significand in Q0.31, power of two).
    """
    mul = saturating_rounding_doubling_high_mul
    raw = np.asarray(values, np.int64)
    value = np.maximum(raw, 2)
    is_large = (value >= 1 << 29).astype(np.int64)
    value, shift = value >> 2 * is_large, 11 + is_large
    pairs = (count_leading_zeros_32(value) - 1) // 2 - 1
    value, shift = value << 2 * pairs, shift - pairs
    half, three_halves = ((value >> 1) + 1) >> 1, (1 << 28) + (1 << 27)
    x: Raw = np.full_like(raw, 1 << 28)
    for _ in range(5):
        cube = _saturated(mul(mul(x, x), x) << 6)
        x = _saturated((mul(three_halves, x) - mul(half, cube)) << 3)
    left = np.maximum(-shift, 0)
    significand = mul(x, round(math.sqrt(2) / 2 * 2**31)) << left
    return np.where(raw > 1, significand, INT32_MAX), np.where(raw > 1, -shift - left, 0)


LOG_2, ROOT, FOURTH_ROOT = (round(constant * 2**31) for constant in (math.log(2), 0.5**0.5, 0.5**0.25))
LOG_WEIGHTS = tuple(
    round(weight * 2**31) for weight in (11 / 240 * 2**0.25, 1 / 20 * 2**0.25, 2 / 2**0.25 - 2**0.25, 1 / 4 * 2**0.25)
)
"""Q0.31: coefficients of the rational function that approximates the logarithm."""


def log_from_one(values: npt.ArrayLike, integer_bits: int, result_bits: int) -> Raw:
    """log(x) in Q(result_bits).(31 - result_bits) for x >= 1 in Q(integer_bits).(31 - integer_bits).

    x is 2^n r, with r around 2^(-1/4); a rational function approximates log(r).
    """
    mul = saturating_rounding_doubling_high_mul
    alpha_n, alpha_d, alpha_i, alpha_f = LOG_WEIGHTS
    raw = np.asarray(values, np.int64)
    fractional_bits = 30 - result_bits  # one extra integer bit until the last step
    unit, quarter = 1 << fractional_bits, 1 << (fractional_bits - 2)
    # Without its leading zeros, x is r / sqrt(2) or r; take the smaller of the two.
    zeros, other_zeros = count_leading_zeros_32(raw), count_leading_zeros_32(mul(raw, ROOT)) - 1
    n = np.maximum((integer_bits - zeros) * unit + quarter, (integer_bits - other_zeros) * unit - quarter)
    r = np.minimum(_saturated(mul(raw << (zeros - 1), ROOT) << 1), _saturated(raw << other_zeros))
    q = (r - FOURTH_ROOT) << 1
    square = mul(q, q)
    numerator = mul(q, r) + mul(mul(q, square), alpha_n)
    average = (r + FOURTH_ROOT + 1) >> 1
    denominator_minus_one = mul(average, alpha_i + q + mul(alpha_d, square)) + mul(alpha_f, q)
    scaled = rounding_divide_by_pot(numerator, result_bits + 1)
    return _saturated((mul(n, LOG_2) + mul(scaled, one_over_one_plus_x(denominator_minus_one))) << 1)


# --- Look-up tables ----------------------------------------------------------------------------------------------

LUT_INT16_SIZE = 513
"""Number of entries of an int16 table: 512 steps of 128, and the end of the last step."""


def populate_lut_int16(
    input_scale: float, input_zero_point: int, output_scale: float, output_zero_point: int, transform: Transform
) -> npt.NDArray[np.int16]:
    """A table of `transform` over all int16, which `lookup_int16` interpolates.

    Each entry is shifted by half the interpolation error at the middle of its step. All arithmetic is in float32, as in
    the reference.

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
    """The table's value for each int16, interpolated between entries, in the format of the entries."""
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

    # Interpolation falls below a concave curve: raise each entry by half the error in the middle.
    loss = sigmoid(x + 1 / 48) - (sigmoid(x) + sigmoid(x + 1 / 24)) / 2
    table = np.round(sigmoid(x) + loss / 2).astype(np.int64)
    table[-1] = 65535  # the end of the curve is 1
    return table


SIGMOID_TABLE = _sigmoid_table()
"""sigmoid(i / 24) in Q0.16, unsigned, for i from 0 to 255; tanh(x) = 2 sigmoid(2x) - 1 uses it too."""
