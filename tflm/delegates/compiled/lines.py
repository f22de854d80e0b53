"""Requantization in float32: outputs are floors of points on a line, one line for each channel.

An accumulator a of 32 bits becomes floor((a * factor + addend) / 2^shift) + zero_point, clamped. Here it becomes

    floor(fma(x, high, fma(x, low, offset)))    x = float32(a + start), both sums rounded down

- high + low is the exact slope, factor / 2^shift, whose significand has at most 31 bits. Short lines do with `high`
  alone, the exact slope rounded to float32, or a neighbour of that: then there is one sum.
- `start`, which belongs to the sum of a channel from its begin, stands for nearly all of the zero point and of the
  addend; what is left, `offset`, is smaller than a step of the line, and therefore has small rounding errors.
- The outer sum has none: rounding down does not change on which side of an integer a number is.
- Results that round halves away from zero come from two lines: `below`, where x < switch, and `offset`.

Both functions of a are monotone. So they are equal for all a if they are at each threshold, where the exact one reaches
the next output: at the threshold t, and at t - 1. How far the exact line is from an integer there is a remainder of a
division by `factor`. The least of these remainders leave a window for `offset`; `lines_of` takes its middle, and
accepts a channel if what remains is larger than all rounding errors.

A channel whose accumulators reach one threshold at most needs no slope: it has a step there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.kernels.arithmetic.requantization import OutputStage

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Floats32 = npt.NDArray[np.float32]
Truths = npt.NDArray[np.bool_]

EXACT = 1 << 24
"""Integers up to this are float32."""

MAX_RIGHT = 23
"""Shifts to the right beyond this leave slopes for which no threshold is in `EXACT`."""

LARGEST_SLOPE = 64
LARGEST_OUTPUT = 256
"""A bound on the absolute value of slope * x next to a threshold of 8 bits."""

EPSILON = 2.0**-23
"""Relative error of a float32 that was rounded down."""

FLOAT64_ERROR = 2.0**-45
"""A bound on the errors of the arithmetic here, in float64 on numbers up to `LARGEST_SLOPE`."""

NEIGHBOURS = 0, 1, -1, 2, -2
"""Slopes that are tried for short lines, as distances from the nearest float32 in units of the last place."""

SLOPE_OF_STEP = 2.0**-32
"""With it, no accumulator is as far as an output away from a step."""


class Multipliers(NamedTuple):
    """Exact multipliers of channels: floor((a * factor + addend) / 2^shift), with `sign` off the addend below zero.

    Attributes:
        factor, addend, sign, shift: one for each channel.
        lowest, highest: of the accumulators, both within 32 bits, as they are times 2 to the left shift in the factor.
    """

    factor: Integers
    addend: Integers
    sign: Integers
    shift: Integers
    lowest: Integers
    highest: Integers

    def of(self, channels: Truths) -> Multipliers:
        """The same for some of the channels."""
        return Multipliers(*(values[channels] for values in self))

    def outputs(self, accumulators: Integers, stage: OutputStage) -> Integers:
        """The outputs for accumulators, one for each channel."""
        products = accumulators * self.factor
        is_negative = products < -(1 << 30)
        results = (products + self.addend - is_negative * self.sign) >> self.shift
        outputs: Integers = np.clip(results + stage.zero_point, stage.minimum, stage.maximum)
        return outputs


class Lines(NamedTuple):
    """Lines of channels.

    Attributes:
        rows: float32, (high, low, offset), or (high, low, offset, below, switch) where halves go away from zero. Short
            lines have no `low`.
        starts: what the sums of each channel begin with.
        are_short: whether a float32 is enough for all slopes.
    """

    rows: Floats32
    starts: Integers
    are_short: bool


def lines_of(multipliers: Multipliers, stage: OutputStage, *, rounds_away: bool) -> Lines | None:
    """The lines of channels with outputs of 8 bits; None if there is one whose line can't be shown to be exact."""
    lowest, highest = (multipliers.outputs(end, stage) for end in (multipliers.lowest, multipliers.highest))
    is_step = highest - lowest <= 1
    reached = lowest[~is_step] - stage.zero_point, highest[~is_step] - stage.zero_point
    lines = _slopes(multipliers.of(~is_step), reached, stage, rounds_away)
    if lines is None:
        return None
    rows, starts = np.zeros((len(lines.rows), len(is_step)), np.float32), np.zeros(len(is_step), np.int64)
    rows[:, ~is_step], starts[~is_step] = lines.rows, lines.starts
    rows[0, is_step], rows[1 if lines.are_short else 2, is_step] = SLOPE_OF_STEP, highest[is_step]
    starts[is_step] = -_first_with(multipliers.of(is_step), stage, highest[is_step])
    if rounds_away:
        rows[-1, is_step] = -np.inf
    return Lines(rows, starts, lines.are_short)


def _first_with(multipliers: Multipliers, stage: OutputStage, outputs: Integers) -> Integers:
    """The first accumulator of each channel whose output is at least this value."""
    first, last = multipliers.lowest, multipliers.highest  # the accumulator is between
    while (first < last).any():
        middle = (first + last) >> 1
        is_reached = multipliers.outputs(middle, stage) == outputs
        first, last = np.where(is_reached, first, np.minimum(middle + 1, last)), np.where(is_reached, middle, last)
    return last


def _slopes(
    multipliers: Multipliers, reached: tuple[Integers, Integers], stage: OutputStage, rounds_away: bool
) -> Lines | None:
    """The lines of channels with more outputs, which are from the first to the second of `reached`."""
    factor, addend, sign, shift = multipliers[:4]
    if (shift > 31 + MAX_RIGHT).any():
        return None
    unit = 0.5**shift
    slope = factor * unit
    starts = np.rint((addend * unit + stage.zero_point) / slope)
    largest = np.maximum(abs(multipliers.lowest + starts), abs(multipliers.highest + starts))
    is_exact = (LARGEST_OUTPUT / slope <= EXACT) | (largest <= EXACT)
    fits = (largest < 2.0**31) & (largest * slope < 2.0**30) & (slope <= LARGEST_SLOPE)
    if not (is_exact & fits).all():
        return None
    whole = starts.astype(np.int64)
    exact_offset = addend + np.left_shift(np.int64(stage.zero_point), shift) - factor * whole
    lowest, highest = stage.minimum - stage.zero_point, stage.maximum - stage.zero_point
    # The output after the last one must not be reached, either.
    bounds = np.maximum(reached[0], lowest + 1), np.minimum(reached[1] + 1, highest)
    first = min(0, highest) if rounds_away else lowest + 1
    sides = [_thresholds(multipliers, exact_offset, _steps(first, highest, *bounds), stage.zero_point)]
    switch: list[Floats32] = []
    if rounds_away:
        beyond = multipliers._replace(addend=addend - sign)
        sides.append(_thresholds(beyond, exact_offset - sign, _steps(lowest + 1, 0, *bounds), stage.zero_point))
        switch = [(whole - (1 << 30) // factor).astype(np.float32)]
    short = _short_lines(slope, sides)
    rows = short or _long_lines(slope, sides)
    return Lines(np.stack([*rows, *switch]), whole, short is not None) if rows else None


def _steps(first: int, last: int, lowest: Integers, highest: Integers) -> Integers:
    """The integers of a range, both ends included, within the bounds of each channel: (integers, channels or 1)."""
    column = np.arange(first, last + 1, dtype=np.int64)[:, np.newaxis]
    is_bounded = (lowest > first).any() or (highest < last).any()
    return np.minimum(np.maximum(column, lowest), highest) if is_bounded else column  # np.clip takes much longer


class _Thresholds(NamedTuple):
    """Where the exact line of each channel reaches outputs.

    Attributes:
        offset: of the line.
        heights: (outputs, channels), of the line without its offset, at the first accumulator beyond a threshold.
        above: how far the line is above the output at the same places.
    """

    offset: Floats
    heights: Floats
    above: Floats

    def of(self, channels: Integers) -> _Thresholds:
        """The same for some of the channels."""
        if len(channels) == len(self.offset):
            return self
        return _Thresholds(self.offset[channels], self.heights[:, channels], self.above[:, channels])


def _thresholds(multipliers: Multipliers, exact_offset: Integers, steps: Integers, zero_point: int) -> _Thresholds:
    """The thresholds of outputs (outputs, channels) without the zero point."""
    factor, addend, _, shift, *_ = multipliers
    unit = 0.5**shift
    remainders = steps * (np.left_shift(np.int64(1), shift) % factor)
    np.subtract(addend % factor, remainders, out=remainders)
    remainders %= factor
    above, offset = remainders * unit, exact_offset * unit
    heights: Floats = above + (steps + zero_point)
    heights -= offset
    return _Thresholds(offset, heights, above)


def _short_lines(slope: Floats, sides: Sequence[_Thresholds]) -> list[Floats32] | None:
    """A slope of one float32, and the offset of each side; None if there is a channel where none near it is exact."""
    rows = np.zeros((1 + len(sides), len(slope)), np.float32)
    left = np.arange(len(slope), dtype=np.int64)
    for neighbour in NEIGHBOURS:
        nearest = slope[left].astype(np.float32)
        tried = (nearest.view(np.int32) + np.int32(neighbour)).view(np.float32)
        offsets, accepted = _offsets(slope[left], tried.astype(np.float64), [side.of(left) for side in sides])
        rows[:, left[accepted]] = np.stack([tried, *offsets])[:, accepted]
        left = left[~accepted]
        if not len(left):
            return list(rows)
    return None


def _long_lines(slope: Floats, sides: Sequence[_Thresholds]) -> list[Floats32] | None:
    """A slope of two float32, of which the first is not larger than it, and the offset of each side."""
    nearest = slope.astype(np.float32)
    high = np.where(nearest > slope, np.nextafter(nearest, np.float32(0)), nearest)
    offsets, accepted = _offsets(slope, slope, sides, EPSILON)
    return [high, (slope - high).astype(np.float32), *offsets] if accepted.all() else None


def _offsets(
    exact: Floats, slope: Floats, sides: Sequence[_Thresholds], epsilon: float = 0.0
) -> tuple[list[Floats32], Truths]:
    """The offset of each side of lines, and whether all thresholds of a channel are exact.

    Args:
        exact, slope: of the exact line, and of the line.
        epsilon: the relative error of what is added to the offset.
    """
    found = [_offset(exact, slope, side, epsilon) for side in sides]
    return [offset for offset, _ in found], np.logical_and.reduce([accepted for _, accepted in found])


def _offset(exact: Floats, slope: Floats, side: _Thresholds, epsilon: float) -> tuple[Floats32, Truths]:
    above = side.above
    if slope is not exact:
        above = side.heights * ((slope - exact) / exact)
        above += side.above
    # With the exact offset, the line is `over` an integer at a threshold, and `under` one just before.
    over = np.minimum(above.min(axis=0, initial=np.inf), slope)
    under = slope - above.max(axis=0, initial=0)
    offset = (side.offset + (under - over) / 2).astype(np.float32)
    shifted = offset.astype(np.float64) - side.offset
    error = epsilon * (abs(offset).astype(np.float64) + LARGEST_OUTPUT * epsilon) + FLOAT64_ERROR
    return offset, (shifted - error >= -over) & (shifted + FLOAT64_ERROR < under)
