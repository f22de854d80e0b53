"""Requantization by lines in float32: each output next to each threshold, with the arithmetic in rational numbers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import outcomes
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tflm.delegates.compiled.lines import Multipliers, lines_of
from tflm.kernels.arithmetic.requantization import OutputStage


def rounded_down(value: Fraction) -> float:
    """The largest float32 that is not larger."""
    nearest = np.float32(float(value))
    while Fraction(float(nearest)) > value:
        nearest = np.nextafter(nearest, np.float32(-np.inf))
    return float(nearest)


def on_line(x: float, rows: list[float], slopes: int) -> int:
    """Return the result of the machine code for a float32 and the constants of a channel."""
    height, *below = rows[slopes:]
    if below and x < below[1]:
        height = below[0]
    for slope in reversed(rows[:slopes]):
        height = rounded_down(Fraction(x) * Fraction(slope) + Fraction(height))
    return int(np.floor(height))


def scaled(accumulator: int, significand: int, shift: int) -> int:
    """An accumulator times significand * 2^(shift - 31), rounded twice, the second time halves away from zero."""
    high = ((accumulator << max(shift, 0)) * significand + 2**30) >> 31
    if shift >= 0:
        return high
    magnitude = (abs(high) + (1 << -shift - 1)) >> -shift
    return magnitude if high >= 0 else -magnitude


def thresholds(lowest: int, highest: int, significand: int, shift: int, outputs: range) -> set[int]:
    """The first accumulators with outputs of at least each of a range, and those just before."""
    found = {lowest, highest}
    for output in outputs:
        first, last = lowest, highest + 1
        while first < last:
            middle = (first + last) // 2
            if scaled(middle, significand, shift) >= output:
                last = middle
            else:
                first = middle + 1
        found |= {place for place in (first - 1, first) if lowest <= place <= highest}
    return found


SIGNIFICANDS = st.integers(2**30, 2**31 - 1) | st.sampled_from([2**30, 2**30 + 1, 3 * 2**29, 2**31 - 1])


@pytest.mark.runs(0.5)
@given(
    significand=SIGNIFICANDS,
    shift=st.integers(-12, -2) | st.integers(-31, 4),
    zero_point=st.sampled_from([-128, 0, 127]) | st.integers(-128, 127),
    clamps=st.booleans(),
    away=st.booleans(),
    reach=st.integers(1, 1 << 20) | st.sampled_from([1 << 25, 1 << 26]),
    bias=st.integers(-(1 << 16), 1 << 16) | st.sampled_from([-(1 << 29), 1 << 29]),
)
def test_lines_give_the_exact_outputs_next_to_all_thresholds(
    significand: int, shift: int, zero_point: int, clamps: bool, away: bool, reach: int, bias: int
) -> None:
    minimum = zero_point if not away else -100 if clamps and zero_point > -100 else -128
    maximum = max(100, minimum) if clamps else 127
    left, right = max(shift, 0), max(-shift, 0)
    lowest, highest = bias - reach, bias + reach
    if max(abs(lowest), abs(highest)) << left >= 1 << 31:
        return
    addend = (1 << 30) + (1 << 30 + right if right else 0)
    sign = 1 << 31 if right else 0
    numbers = (significand << left, addend, sign, 31 + right, lowest, highest)
    multipliers = Multipliers(*(np.array([number], np.int64) for number in numbers))
    lines = lines_of(multipliers, OutputStage(zero_point, minimum, maximum), rounds_away=away)
    outcomes.count(ran=lines is not None)
    if lines is None:
        return
    rows = [float(row) for row in lines.rows[:, 0]]
    start = int(lines.starts[0])
    for accumulator in thresholds(
        lowest, highest, significand, shift, range(minimum - zero_point, maximum - zero_point + 2)
    ):
        assert abs(accumulator + start) < 1 << 31
        result = on_line(float(np.float32(accumulator + start)), rows, 1 if lines.are_short else 2)
        assert abs(result) < 1 << 31
        expected = scaled(accumulator, significand, shift) + zero_point
        assert min(max(result, minimum), maximum) == min(max(expected, minimum), maximum)


@pytest.mark.parametrize("away", [False, True])
def test_lines_of_several_channels_are_those_of_each_alone(away: bool) -> None:
    dice = np.random.default_rng(5)
    count, right, reach = 100, 12, 1 << 20
    factor, bias = dice.integers(2**30, 2**31, count), dice.integers(-(1 << 12), 1 << 12, count)
    ends = (bias - dice.choice([1, reach], count), bias + dice.choice([1, reach], count))
    rounding = (np.full(count, number) for number in ((1 << 30) + (1 << 30 + right), 1 << 31, 31 + right))
    multipliers = Multipliers(*(factor, *rounding, *ends))
    stage = OutputStage(0 if away else -128, -128, 127)
    alone = [lines_of(multipliers.of(np.arange(count) == i), stage, rounds_away=away) for i in range(count)]
    for is_short in (True, False):
        some = np.array([lines is not None and lines.are_short == is_short for lines in alone])
        together = lines_of(multipliers.of(some), stage, rounds_away=away)
        assert some.sum() > 3
        assert together is not None
        assert together.are_short == is_short
        chosen = [lines for lines, is_chosen in zip(alone, some) if is_chosen and lines is not None]
        np.testing.assert_array_equal(together.rows, np.hstack([lines.rows for lines in chosen]))
        np.testing.assert_array_equal(together.starts, np.hstack([lines.starts for lines in chosen]))
