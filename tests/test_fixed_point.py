"""Fixed-point arithmetic against exact rational numbers and real functions, function by function."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tflm.errors import OperatorError
from tflm.kernels.arithmetic import fixed_point as fp

int32 = st.integers(-(2**31), 2**31 - 1) | st.sampled_from([-(2**31), -(2**31) + 1, -1, 0, 1, 2**31 - 1])
significands = st.integers(2**30, 2**31 - 1)
"""Q0.31, from one half on."""


def rounded(value: Fraction) -> int:
    """Round to the nearest integer, halves away from zero."""
    whole = math.floor(abs(value) + Fraction(1, 2))
    return whole if value >= 0 else -whole


def rounded_up(value: Fraction) -> int:
    """Round to the nearest integer, halves towards positive infinity."""
    return math.floor(value + Fraction(1, 2))


def wrapped(value: int) -> int:
    """The low 32 bits, as a signed number."""
    return (value + 2**31) % 2**32 - 2**31


# --- Multipliers -------------------------------------------------------------------------------------------------


@given(st.floats(2.0**-30, 2.0**30))
def test_a_multiplier_is_the_real_number_to_31_bits(real: float) -> None:
    significand, shift = fp.quantize_multiplier(real)
    assert 2**30 <= significand < 2**31
    error = abs(Fraction(significand) * Fraction(2) ** (shift - 31) - Fraction(real))
    assert error <= Fraction(2) ** (shift - 32)


@pytest.mark.parametrize("real", [0.0, 1e-300, 2.0**-33])
def test_a_multiplier_too_small_for_a_shift_is_zero(real: float) -> None:
    assert fp.quantize_multiplier(real) == (0, 0)


@pytest.mark.parametrize("real", [-1.0, math.inf, -math.inf, math.nan])
def test_a_multiplier_is_a_positive_number(real: float) -> None:
    with pytest.raises(OperatorError, match="not a positive number"):
        fp.quantize_multiplier(real)


def test_a_multiplier_just_below_one_is_carried_over() -> None:
    assert fp.quantize_multiplier(1 - 2.0**-40) == (2**30, 1)


@pytest.mark.parametrize(
    ("real", "multiplier"),
    [
        (2.0**-32, (2**30, -31)),
        (2.0**-32 * (1 - 2.0**-40), (2**30, -31)),
        (2.0**-32 * (1 - 2.0**-20), (0, 0)),
        (2.0**-31 * (1 - 2.0**-20), (2**31 - 2**11, -31)),
        (2.0**40, (2**30, 41)),
        ((2**31 - 0.75) * 2.0**-31, (2**31 - 1, 0)),
        ((2**31 - 0.5) * 2.0**-31, (2**30, 1)),
    ],
)
def test_a_multiplier_at_the_ends_of_significands_and_shifts(real: float, multiplier: tuple[int, int]) -> None:
    assert fp.quantize_multiplier(real) == multiplier


@given(st.lists(int32, min_size=1, max_size=8), significands, st.integers(-31, 70))
def test_a_product_is_rounded_twice(values: list[int], significand: int, shift: int) -> None:
    """First to 31 bits with halves up, then by the right shift with halves away from zero.

    A shift to the left counts modulo 32, as on x86.
    """
    scaled = fp.multiply_by_quantized_multiplier(values, significand, shift)
    for value, actual in zip(values, scaled.tolist()):
        high = rounded_up(Fraction(wrapped(value << max(shift, 0) % 32) * significand, 2**31))
        assert actual == rounded(Fraction(high, 2 ** max(-shift, 0)))


@pytest.mark.parametrize("shift", [-31, -30, -1, 0, 1, 30, 31, 32, 33, 63, 64])
def test_products_at_the_ends_of_a_shift(shift: int) -> None:
    values = [-(2**31), -(2**31) + 1, -(2**30) - 1, -(2**30), -3, -2, -1, 0, 1, 2, 3, 2**30 - 1, 2**30, 2**31 - 1]
    for significand in (2**30, 2**30 + 1, 3 << 29, 2**31 - 1):
        scaled = fp.multiply_by_quantized_multiplier(values, significand, shift)
        for value, actual in zip(values, scaled.tolist()):
            high = rounded_up(Fraction(wrapped(value << max(shift, 0) % 32) * significand, 2**31))
            assert actual == rounded(Fraction(high, 2 ** max(-shift, 0)))


multipliers = st.builds(fp.QuantizedMultiplier, significands, st.integers(-31, 31))
wide_multipliers = st.builds(fp.WideQuantizedMultiplier, significands, st.integers(-31, 14))


@given(multipliers | wide_multipliers, st.integers(0, 2**48), st.integers(-(2**48), 2**48))
def test_float64_gives_the_same_wherever_it_is_exact(
    multiplier: fp.QuantizedMultiplier, limit: int, value: int
) -> None:
    """For values up to a limit."""
    in_float64 = multiplier.in_float64(limit)
    assume(in_float64 is not None)
    assert in_float64 is not None
    near = min(abs(value), limit)
    values = np.array([limit, -limit, limit // 2, near, -near], np.int64)
    assert in_float64(values.astype(np.float64)).tolist() == multiplier(values).tolist()


@given(multipliers | wide_multipliers, st.integers(0, 2**48), st.integers(-(2**48), 2**48))
def test_one_shift_in_int64_gives_the_same(multiplier: fp.QuantizedMultiplier, limit: int, value: int) -> None:
    """For values up to a limit, next to zero and to where rounding decides."""
    in_int64 = multiplier.in_int64(limit)
    assume(in_int64 is not None)
    assert in_int64 is not None
    near = min(abs(value), limit)
    step = 2**31 * 2.0**-multiplier.shift / max(multiplier.significand, 1)
    halves = [int((count + 0.5) * step) + offset for count in (-2, -1, 0, 1) for offset in (-1, 0, 1)]
    values = np.array([limit, -limit, near, -near, *(half for half in halves if abs(half) <= limit)], np.int64)
    assert in_int64(values.copy()).tolist() == multiplier(values).tolist()


@pytest.mark.parametrize("shift", [-31, -15, -1, 0, 1, 10])
@pytest.mark.parametrize("significand", [2**30, 2**30 + 1, 2**31 - 1])
def test_float64_is_used_as_far_as_it_holds_a_product(significand: int, shift: int) -> None:
    """The limit is 2^53, including the rounding term. Above it, some products would be rounded."""
    multiplier = fp.QuantizedMultiplier(significand, shift)
    left, right = max(shift, 0), max(-shift, 0)
    limit = (2**53 - 2**30 - 2 ** (30 + right)) // (significand << left)
    assert multiplier.in_float64(limit) is not None
    assert multiplier.in_float64(limit + 1) is None


@pytest.mark.parametrize("shift", [-31, -22, -15, -1, 0, 1, 10, 14])
@pytest.mark.parametrize("significand", [2**30, 2**30 + 2**15, 2**31 - 1])
def test_float64_is_used_as_far_as_it_holds_a_wide_product(significand: int, shift: int) -> None:
    """Results must also fit in 32 bits after the zero point is added."""
    multiplier = fp.WideQuantizedMultiplier(significand, shift)
    reduced = min((significand + 2**15) >> 16, 2**15 - 1)
    bits = 15 - shift
    limit = (min(2**53, (2**30 << bits) - 1) - 2 ** (bits - 1)) // reduced
    assert multiplier.in_float64(limit) is not None
    assert multiplier.in_float64(limit + 1) is None


@pytest.mark.parametrize("shift", range(15, 80, 8))
def test_float64_has_no_part_in_shifts_beyond_a_wide_multiplier(shift: int) -> None:
    assert fp.WideQuantizedMultiplier(2**30, shift).in_float64(1) is None


@given(st.lists(st.tuples(int32, significands, st.integers(-31, 10)), min_size=1, max_size=6))
def test_each_channel_has_its_own_multiplier(channels: list[tuple[int, int, int]]) -> None:
    values, multipliers, shifts = (np.array(column, np.int64) for column in zip(*channels))
    batch = np.stack([values, values // 2])
    scaled = fp.QuantizedMultiplier(multipliers, shifts)(batch)
    for c, (_, significand, shift) in enumerate(channels):
        expected = fp.multiply_by_quantized_multiplier(batch[:, c], significand, shift)
        assert scaled[:, c].tolist() == expected.tolist()


@given(st.integers(-(2**47), 2**47 - 1), significands, st.integers(-31, 14))
def test_a_wide_product_is_rounded_once_by_15_bits_of_the_multiplier(value: int, significand: int, shift: int) -> None:
    values = np.array([value], np.int64)
    (scaled,) = fp.multiply_by_quantized_multiplier_64(values, significand, shift).tolist()
    reduced = min(rounded_up(Fraction(significand, 2**16)), 2**15 - 1)
    assert scaled == wrapped(rounded_up(Fraction(value * reduced, 2 ** (15 - shift))))


@given(st.integers(-(2**47), 2**47 - 1), significands, st.integers(15, 80))
def test_a_wide_product_is_shifted_modulo_64(value: int, significand: int, shift: int) -> None:
    """Shifts by 15 minus the shift that are undefined in C behave as on x86."""
    values = np.array([value], np.int64)
    (scaled,) = fp.multiply_by_quantized_multiplier_64(values, significand, shift).tolist()
    reduced = min((significand + 2**15) >> 16, 2**15 - 1)
    total = value * reduced + (1 << (14 - shift) % 64)
    total = (total + 2**63) % 2**64 - 2**63
    assert scaled == wrapped(total >> (15 - shift) % 64)


@given(st.integers(-(2**62), 2**62))
def test_wrapping_keeps_32_bits(value: int) -> None:
    assert fp.wrap_int32(np.array([value], np.int64)).tolist() == [wrapped(value)]


# --- Rounding ----------------------------------------------------------------------------------------------------


@given(st.floats(-(2.0**52), 2.0**52) | st.integers(-1000, 1000).map(lambda n: n / 2))
def test_half_rounds_away_from_zero(value: float) -> None:
    assert fp.round_half_away(value) == rounded(Fraction(value))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(value=st.floats(-(2.0**22), 2.0**22, width=32) | st.integers(-1000, 1000).map(lambda n: n / 2))
def test_arrays_round_as_numbers_do(dtype: type[np.floating], value: float) -> None:
    (result,) = fp.round_half_away_array(np.array([value], dtype))
    assert result.dtype == dtype
    assert result == fp.round_half_away(float(dtype(value)))


def test_the_number_just_below_one_half_rounds_to_zero() -> None:
    for dtype in (np.float32, np.float64):
        below = np.nextafter(dtype(0.5), dtype(0))
        assert fp.round_half_away_array(np.array([below, -below])).tolist() == [0, 0]
    assert fp.round_half_away(math.nextafter(0.5, 0)) == 0


@given(st.floats(width=32))
def test_floats_are_cut_off_and_those_that_do_not_fit_give_the_lowest(value: float) -> None:
    (result,) = fp.int32_from_float([value]).tolist()
    fits = -(2.0**31) <= value < 2.0**31
    assert result == (int(value) if fits else -(2**31))


@given(int32, int32)
def test_the_high_half_of_a_doubled_product(a: int, b: int) -> None:
    expected = min(rounded_up(Fraction(a * b, 2**31)), 2**31 - 1)
    assert int(fp.saturating_rounding_doubling_high_mul(a, b)) == expected


@given(int32, st.integers(1, 31))
def test_division_by_a_power_of_two(value: int, exponent: int) -> None:
    assert int(fp.rounding_divide_by_pot(value, exponent)) == rounded(Fraction(value, 2**exponent))


@given(int32 | st.integers(-9, 9), st.integers(-70, 130))
def test_division_by_any_power_of_two_does_as_x86_does(value: int, exponent: int) -> None:
    """The mask of the bits that are cut off is made of 64 bits and kept in 32; a shift of 32 bits counts modulo 32."""
    mask = wrapped((1 << exponent % 64) - 1)
    rounds_up = value & mask > (mask >> 1) + (value < 0)
    (result,) = fp.rounding_divide_by_any_pot(np.array([value], np.int64), np.array([exponent], np.int64)).tolist()
    assert result == (value >> exponent % 32) + rounds_up


@given(st.integers(2, 2**31 - 1) | st.integers(2, 40))
def test_inverse_square_roots(value: int) -> None:
    significand, shift = fp.inverse_square_root(value)
    assert float(significand) * 2.0 ** (int(shift) - 31) == pytest.approx(value**-0.5, rel=2.0**-19)
    arrays = fp.inverse_square_root(np.array([value, 1, 0, -1, 2], np.int64))
    alone = [fp.inverse_square_root(of) for of in (value, 1, 0, -1, 2)]
    assert list(zip(*(array.tolist() for array in arrays))) == alone
    assert alone[1:4] == [(2**31 - 1, 0)] * 3


@given(st.integers(0, 8), st.integers(0, 31))
def test_values_within_the_radius_fit_when_shifted(integer_bits: int, left_shift: int) -> None:
    radius = fp.input_radius(integer_bits, left_shift)
    limit = ((1 << integer_bits) - 1) << (31 - integer_bits)
    assert radius << left_shift <= limit < (radius + 1) << left_shift


@given(st.integers(1, 2**31 - 1))
def test_leading_zeros(value: int) -> None:
    assert int(fp.count_leading_zeros_32(value)) == 32 - value.bit_length()
    assert int(fp.count_leading_zeros_32(0)) == 32


# --- Functions ---------------------------------------------------------------------------------------------------

EXP_ERROR = (1 / 8) ** 5 / 120 + 2.0**-26
"""The first term that the polynomial of degree 4 leaves out, at the ends of its quarter; and roundings."""


def real(raw: object, integer_bits: int = 0) -> np.ndarray:
    """Raw values of Q(integer_bits).(31 - integer_bits) as numbers."""
    return np.asarray(raw, np.float64) / 2.0 ** (31 - integer_bits)


@pytest.mark.parametrize("integer_bits", range(6))
@given(raw=st.integers(-(2**31), 0))
def test_exp_of_negative_values(integer_bits: int, raw: int) -> None:
    result = real(fp.exp_on_negative_values(raw, integer_bits))
    assert result == pytest.approx(math.exp(real(raw, integer_bits)), abs=EXP_ERROR)


@given(st.integers(0, 2**31 - 1))
def test_quotients_of_one_and_a_fraction(raw: int) -> None:
    x = float(real(raw))
    assert float(real(fp.one_over_one_plus_x(raw))) == pytest.approx(1 / (1 + x), abs=2.0**-28)
    assert float(real(fp.one_minus_x_over_one_plus_x(raw))) == pytest.approx((1 - x) / (1 + x), abs=2.0**-27)


@pytest.mark.parametrize("integer_bits", range(5))
@given(raw=int32)
def test_sigmoids(integer_bits: int, raw: int) -> None:
    x = float(real(raw, integer_bits))
    assert float(real(fp.logistic(raw, integer_bits))) == pytest.approx(1 / (1 + math.exp(-x)), abs=EXP_ERROR)
    assert float(real(fp.tanh(raw, integer_bits))) == pytest.approx(math.tanh(x), abs=2 * EXP_ERROR)


@given(st.integers(1, 2**31 - 1), st.integers(0, 31))
def test_reciprocals(raw: int, integer_bits: int) -> None:
    mantissa, bits = fp.reciprocal(raw, integer_bits)
    assert 2**30 - 4 <= int(mantissa) <= 2**31 - 1
    x = Fraction(raw, 2 ** (31 - integer_bits))
    assert float(Fraction(int(mantissa), 2**31) / Fraction(2) ** int(bits) * x) == pytest.approx(1, rel=2.0**-27)


@given(st.integers(2**19, 2**31 - 1))
def test_logarithms(raw: int) -> None:
    assert float(real(fp.log_from_one(raw, 12, 5), 5)) == pytest.approx(math.log(real(raw, 12)), abs=2.0**-20)


@given(st.lists(st.integers(2**19, 2**31 - 1), min_size=1, max_size=5))
def test_functions_of_numbers_and_of_arrays_are_the_same(values: list[int]) -> None:
    array = np.array(values)
    assert fp.log_from_one(array, 12, 5).tolist() == [fp.log_from_one(value, 12, 5) for value in values]
    mantissas, bits = fp.reciprocal(array, 12)
    assert list(zip(mantissas.tolist(), bits.tolist())) == [fp.reciprocal(value, 12) for value in values]


# --- Look-up tables ----------------------------------------------------------------------------------------------


def test_a_table_of_the_identity_gives_each_value_back() -> None:
    table = fp.populate_lut_int16(2.0**-15, 0, 2.0**-15, 0, lambda x: x)
    assert table.shape == (fp.LUT_INT16_SIZE,)
    values = np.arange(-(2**15), 2**15)
    # 512 steps lead from -32768 to 32767, which is one less than 512 * 128.
    assert abs(fp.lookup_int16(values, table) - values).max() <= 1


@given(st.floats(2.0**-14, 2.0**-10), st.integers(-100, 100))
def test_a_table_interpolates_a_smooth_function(scale: float, zero_point: int) -> None:
    table = fp.populate_lut_int16(scale, zero_point, 2.0**-15, 0, np.tanh)
    values = np.arange(-(2**15), 2**15, 7)
    expected = np.tanh((values - zero_point) * scale) * 2**15
    step = 128 * scale
    # Linear interpolation is off by step^2 / 8 times the second derivative (0.77 at most), and roundings of a unit.
    assert abs(fp.lookup_int16(values, table) - expected).max() <= step**2 / 8 * 0.77 * 2**15 + 4


def test_the_sigmoid_table_is_a_sigmoid() -> None:
    expected = 65536 / (1 + np.exp(-np.arange(256) / 24))
    assert abs(fp.SIGMOID_TABLE - expected).max() <= 4
    assert (np.diff(fp.SIGMOID_TABLE) >= 0).all()
