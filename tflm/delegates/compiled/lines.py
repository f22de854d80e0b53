"""Requantization in float32: outputs are floors of points on a line, with a line for each channel.

An accumulator a of 32 bits becomes floor((a * factor + addend) / 2^shift) + zero_point, clamped. Here it becomes

    floor(fma(x, high, fma(x, low, offset)))    x = float32(a + start), both sums rounded down

- high + low is the exact slope, factor / 2^shift, whose significand has at most 31 bits. Short lines need only `high`,
  the exact slope rounded to float32, or a neighbour of that: then there is one sum.
- `start`, the initial value of a channel's sum, accounts for nearly all of the zero point and of the addend. The rest,
  `offset`, is smaller than a step of the line, and therefore has small rounding errors.
- The outer sum has no rounding error that matters: rounding down does not move a number to the other side of an
  integer.
- Results that round halves away from zero come from two lines: `below`, where x < switch, and `offset`.

Both functions of a are monotone. They are therefore equal for all a if they are equal next to each threshold t, where
the exact function reaches the next output: at t and at t - 1. The distance of the exact line from an integer there is
the remainder of a division by `factor`. The smallest of these remainders leave a range for `offset`; `lines_of` uses
its middle, and accepts a channel if the margin exceeds all rounding errors.

A channel whose accumulators reach at most one threshold needs no slope, only a step.
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
"""Integers up to this are exact in float32."""

MAX_RIGHT = 23
"""Maximum right shift. With larger ones, slopes are so small that no threshold is within `EXACT`."""

LARGEST_SLOPE = 64
LARGEST_OUTPUT = 256
"""A bound on the absolute value of slope * x next to a threshold of 8 bits."""

EPSILON = 2.0**-23
"""Relative error of a float32 after rounding down."""

FLOAT64_ERROR = 2.0**-45
"""Upper bound of errors in this module, which computes in float64 with numbers up to `LARGEST_SLOPE`."""

NEIGHBOURS = 0, 1, -1, 2, -2
"""Slopes to try for short lines, as distances from the nearest float32 in units of the last place."""

SLOPE_OF_STEP = 2.0**-32
"""A slope so small that accumulators do not reach another output."""


class Multipliers(NamedTuple):
    """Exact multipliers of channels: floor((a * factor + addend) / 2^shift), with `sign` off the addend below zero.

    Attributes:
        factor, addend, sign, shift: one for each channel.
        lowest, highest: range of the accumulators. Both fit in 32 bits, also after the left shift that the factor
            contains.
    """

    factor: Integers
    addend: Integers
    sign: Integers
    shift: Integers
    lowest: Integers
    highest: Integers

    def of(self, channels: Truths) -> Multipliers:
        """Return the multipliers of some of the channels."""
        return Multipliers(*(values[channels] for values in self))

    def outputs(self, accumulators: Integers, stage: OutputStage) -> Integers:
        """Return the outputs for accumulators, one for each channel."""
        products = accumulators * self.factor
        is_negative = products < -(1 << 30)
        results = (products + self.addend - is_negative * self.sign) >> self.shift
        outputs: Integers = np.clip(results + stage.zero_point, stage.minimum, stage.maximum)
        return outputs


class Lines(NamedTuple):
    """The lines of channels.

    Attributes:
        rows: float32, (high, low, offset), or (high, low, offset, below, switch) where halves go away from zero. Short
            lines have no `low`.
        starts: initial value of each channel's sum.
        are_short: whether all slopes are a single float32.
    """

    rows: Floats32
    starts: Integers
    are_short: bool


def lines_of(multipliers: Multipliers, stage: OutputStage, *, rounds_away: bool) -> Lines | None:
    """Return the lines of channels with 8-bit outputs; None if one cannot be shown to be exact."""
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
    """Return the first accumulator of each channel whose output reaches this value."""
    first, last = multipliers.lowest, multipliers.highest  # bounds of a binary search
    while (first < last).any():
        middle = (first + last) >> 1
        is_reached = multipliers.outputs(middle, stage) == outputs
        first, last = np.where(is_reached, first, np.minimum(middle + 1, last)), np.where(is_reached, middle, last)
    return last


def _slopes(
    multipliers: Multipliers, reached: tuple[Integers, Integers], stage: OutputStage, rounds_away: bool
) -> Lines | None:
    """Return the lines of channels with several outputs, from the first to the second of `reached`."""
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
    # The output after the last one must not be reached.
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
    """Return the integers of a range (inclusive) limited to the bounds of each channel: (integers, channels or 1)."""
    column = np.arange(first, last + 1, dtype=np.int64)[:, np.newaxis]
    is_bounded = (lowest > first).any() or (highest < last).any()
    return np.minimum(np.maximum(column, lowest), highest) if is_bounded else column  # np.clip is much slower


class _Thresholds(NamedTuple):
    """The points where the exact line of each channel reaches another output.

    Attributes:
        offset: offset of the line.
        heights: (outputs, channels), height of the line without its offset, at the first accumulator after a threshold.
        above: distance of the line above the output at the same points.
    """

    offset: Floats
    heights: Floats
    above: Floats

    def of(self, channels: Integers) -> _Thresholds:
        """Return the thresholds of some of the channels."""
        if len(channels) == len(self.offset):
            return self
        return _Thresholds(self.offset[channels], self.heights[:, channels], self.above[:, channels])


def _thresholds(multipliers: Multipliers, exact_offset: Integers, steps: Integers, zero_point: int) -> _Thresholds:
    """Return the thresholds of outputs (outputs, channels), given without the zero point."""
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
    """Return slopes of one float32, and the offset of each side; None if some channel has no exact one."""
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
    """Return slopes of two float32, the first of which is not larger than the exact slope, and the offset of each
    side."""
    nearest = slope.astype(np.float32)
    high = np.where(nearest > slope, np.nextafter(nearest, np.float32(0)), nearest)
    offsets, accepted = _offsets(slope, slope, sides, EPSILON)
    return [high, (slope - high).astype(np.float32), *offsets] if accepted.all() else None


def _offsets(
    exact: Floats, slope: Floats, sides: Sequence[_Thresholds], epsilon: float = 0.0
) -> tuple[list[Floats32], Truths]:
    """Return the offset of each side of lines, and whether all thresholds of a channel are exact.

    Args:
        exact, slope: slopes of the exact line, and of the line.
        epsilon: relative error of the term to which the offset is added.
    """
    found = [_offset(exact, slope, side, epsilon) for side in sides]
    return [offset for offset, _ in found], np.logical_and.reduce([accepted for _, accepted in found])


def _offset(exact: Floats, slope: Floats, side: _Thresholds, epsilon: float) -> tuple[Floats32, Truths]:
    above = side.above
    if slope is not exact:
        above = side.heights * ((slope - exact) / exact)
        above += side.above
    # With the exact offset, the line is above an integer by `over` at a threshold, and below it by `under` just before.
    over = np.minimum(above.min(axis=0, initial=np.inf), slope)
    under = slope - above.max(axis=0, initial=0)
    offset = (side.offset + (under - over) / 2).astype(np.float32)
    shifted = offset.astype(np.float64) - side.offset
    error = epsilon * (abs(offset).astype(np.float64) + LARGEST_OUTPUT * epsilon) + FLOAT64_ERROR
    return offset, (shifted - error >= -over) & (shifted + FLOAT64_ERROR < under)
