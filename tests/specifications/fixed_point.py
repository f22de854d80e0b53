"""Fixed point as gemmlowp and TFLite have it, on integers of Python."""

from __future__ import annotations

import math

INT32_MAX = 2**31 - 1
INT32_MIN = -(2**31)


def wrap(value: int) -> int:
    """The low 32 bits, signed."""
    return (value + 2**31) % 2**32 - 2**31


def round_half_away(value: float) -> int:
    """The nearest integer; of two, the one further from zero."""
    return int(math.copysign(math.floor(abs(value) + 0.5), value))


def quantize_multiplier(real: float) -> tuple[int, int]:
    """A positive number as a significand in Q0.31 and a power of two."""
    if real == 0:
        return 0, 0
    mantissa, shift = math.frexp(real)
    significand = round_half_away(mantissa * 2**31)
    if significand == 2**31:
        significand, shift = 2**30, shift + 1
    if shift < -31:
        return 0, 0
    if shift > 30:
        return INT32_MAX, 30
    return significand, shift


def saturating_rounding_doubling_high_mul(a: int, b: int) -> int:
    """The high half of twice the product, rounded half away from zero."""
    if a == b == INT32_MIN:
        return INT32_MAX
    product = a * b
    nudged = product + (2**30 if product >= 0 else 1 - 2**30)
    return nudged // 2**31 if nudged >= 0 else -(-nudged // 2**31)


def rounding_divide_by_pot(value: int, exponent: int) -> int:
    """value / 2^exponent, rounded half away from zero."""
    remainder = value & (2**exponent - 1)
    threshold = (2**exponent - 1) // 2 + (value < 0)
    return (value >> exponent) + (remainder > threshold)


def multiply(value: int, multiplier: tuple[int, int]) -> int:
    """An accumulator times a quantized multiplier: it is rounded twice."""
    significand, shift = multiplier
    left, right = max(shift, 0), max(-shift, 0)
    high = saturating_rounding_doubling_high_mul(wrap(value << left), significand)
    return rounding_divide_by_pot(high, right)


def exp_on_negative(value: int, integer_bits: int) -> int:
    """exp of a number <= 0 in Q(integer_bits), as Q0.31."""
    fraction_bits = 31 - integer_bits
    quarter = 1 << (fraction_bits - 2)
    remainder = (value & (quarter - 1)) - quarter
    result = _exp_on_quarter(remainder << integer_bits)
    factors = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
    for exponent, factor in zip(range(-2, 5), factors):
        if integer_bits > exponent and (remainder - value) & (1 << (fraction_bits + exponent)):
            result = saturating_rounding_doubling_high_mul(result, factor)
    if integer_bits > 5 and value < -(1 << (fraction_bits + 5)):
        return 0
    return INT32_MAX if value == 0 else result


def _exp_on_quarter(value: int) -> int:
    """exp on [-1/4, 0) in Q0.31: a Taylor series of four terms about -1/8."""
    times = saturating_rounding_doubling_high_mul
    x = value + 2**28
    x2 = times(x, x)
    x3, x4 = times(x2, x), times(x2, x2)
    tail = rounding_divide_by_pot(times(rounding_divide_by_pot(x4, 2) + x3, 715827883) + x2, 1)
    return 1895147668 + times(1895147668, x + tail)


def reciprocal_of_one_plus(value: int) -> int:
    """1 / (1 + x) for x in [0, 1) as Q0.31: three steps of Newton's for half the denominator."""
    times = saturating_rounding_doubling_high_mul
    total = value + INT32_MAX
    half = (total + (1 if total >= 0 else -1)) // 2
    estimate = 1515870810 + times(half, -1010580540)
    for _ in range(3):
        product = times(half, estimate)
        estimate += _shifted_left(times(estimate, 2**29 - product), 2)
    return _shifted_left(estimate, 1)


def _shifted_left(value: int, bits: int) -> int:
    return min(max(value << bits, INT32_MIN), INT32_MAX)
