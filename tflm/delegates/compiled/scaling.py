"""Constants of `tiles.Epilogue` for each channel, in the layout that tiles read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.delegates.compiled.images import aligned
from tflm.delegates.compiled.lines import Multipliers, lines_of
from tflm.delegates.compiled.tiles import LINE_ROWS, SCALE_ROWS, ChannelConstants, EpilogueForm, OutputLimits, has_lines
from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier, WideQuantizedMultiplier
from tflm.kernels.arithmetic.requantization import OutputStage


@dataclass(frozen=True)
class Scaling:
    """Constants of an epilogue, for each channel.

    Attributes:
        scale, rounds, bits: as in `EpilogueForm`.
        limits: limits of the output.
        rows: (4, channels) int64, the constants of `tiles.Epilogue`; float32 for lines; for floats (1, channels)
            float32, the bias.
        shifts: left shifts that are applied to sums first.
        sums: int32, initial value of each channel's sum.
    """

    scale: str
    rounds: str
    bits: int
    limits: OutputLimits
    rows: npt.NDArray[Any]
    shifts: npt.NDArray[np.int64]
    sums: npt.NDArray[np.int32]

    @property
    def left(self) -> int:
        """1 if any channel shifts to the left."""
        return int(self.shifts.any())

    @property
    def form(self) -> EpilogueForm:
        """The part of the epilogue that is compiled into kernels. Floats are always clamped."""
        largest = (1 << (self.bits - 1)) - 1
        clamps = self.scale == "float" or self.limits.minimum > ~largest or self.limits.maximum < largest
        adds = self.limits.zero_point != 0
        return EpilogueForm(self.scale, self.bits, self.rounds, self.left, int(adds), int(clamps))

    def repeated(self, count: int) -> Scaling:
        """Return the epilogue of `count` copies of the channels, one after the other."""
        rows, shifts, sums = (np.tile(part, count) for part in (self.rows, self.shifts, self.sums))
        return replace(self, rows=rows, shifts=shifts, sums=sums)

    def with_weights(self, weights: npt.NDArray[Any], channels: npt.NDArray[np.intp], tiles: int) -> ChannelConstants:
        """Return the memory that tiles read, for a number of tiles whose vectors have these channels (vectors,
        lanes)."""
        constants = self.constants(channels)
        return ChannelConstants(weights, self.first_sums(channels), constants, constants.nbytes // tiles)

    def constants(self, channels: npt.NDArray[np.intp]) -> npt.NDArray[Any]:
        """Return the constants for vectors of these channels (vectors, lanes); -1 stands for no channel."""
        vectors, width = channels.shape
        chosen = np.where(channels < 0, 0, channels)
        if self.scale == "float":
            return copied(np.where(channels < 0, np.float32(0), self.rows[0][chosen]))
        row_bytes = 4 * width
        if self.scale in LINE_ROWS:
            return copied(self.rows[:, chosen].transpose(1, 0, 2))
        laid_out = aligned((vectors, SCALE_ROWS * row_bytes + row_bytes * self.left), np.uint8)
        for row, values in enumerate(self.rows):
            for odd in (0, 1):
                value = values[chosen[:, odd::2]].astype(np.int64)
                start = (2 * row + odd) * row_bytes
                laid_out[:, start : start + row_bytes] = value.view(np.uint8)
        if self.left:
            laid_out[:, SCALE_ROWS * row_bytes :] = self.shifts[chosen].astype(np.int32).view(np.uint8)
        return laid_out

    def first_sums(self, channels: npt.NDArray[np.intp]) -> npt.NDArray[np.int32]:
        """Return the initial values of the sums of these channels."""
        return copied(np.where(channels < 0, np.int32(0), self.sums[np.where(channels < 0, 0, channels)]))


def copied(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an aligned copy."""
    copy = aligned(values.shape, values.dtype)
    copy[...] = values
    return copy


def largest_result(multiplier: QuantizedMultiplier, limits: npt.NDArray[np.int64]) -> int:
    """Return an upper bound of the absolute 32-bit results for sums of each channel up to `limits`."""
    left, right = np.maximum(multiplier.shift, 0) & 31, np.maximum(-multiplier.shift, 0)
    shifted = np.minimum(np.left_shift(np.minimum(limits, 1 << 31), left), 1 << 31)
    return int((shifted * multiplier.significand >> 31 >> np.minimum(right, 31)).max(initial=0)) + 1


def integer_scaling(
    multiplier: QuantizedMultiplier,
    output: OutputStage,
    bias: npt.NDArray[np.int64],
    sums: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]],
    y_dtype: np.dtype[Any],
) -> Scaling | None:
    """Return the scaling of integer sums to which a bias is to be added first; None if vectors cannot compute it.

    Results plus the zero point must fit in 32 bits, because vectors saturate the sum.

    Args:
        bias: one for each channel. A 32-bit bias wraps, as sums do.
        sums: the smallest and the largest sum of each channel, including the bias.
    """
    limits = np.iinfo(y_dtype)
    if not limits.min <= output.minimum <= limits.max or not limits.min <= output.maximum <= limits.max:
        return None
    if y_dtype == np.int16 and output.zero_point:
        return None
    count = len(bias)
    significand, shift = (
        np.broadcast_to(value, (count,)).astype(np.int64) for value in (multiplier.significand, multiplier.shift)
    )
    stage = limits.bits, OutputLimits(output.zero_point, output.minimum, output.maximum)
    none = np.zeros(count, np.int64)
    if isinstance(multiplier, WideQuantizedMultiplier):
        reduced = np.where(significand < 0x7FFF0000, (significand + (1 << 15)) >> 16, 0x7FFF)
        right = 15 - shift
        if right.min() < 1 or right.max() > 62:
            return None
        rows = np.stack([reduced, np.left_shift(np.int64(1), right - 1), bias, right])
        return Scaling("wide", "up", *stage, rows, none, none.astype(np.int32))
    left, right = np.maximum(shift, 0) & 31, np.maximum(-shift, 0)
    second_half = np.where(right > 0, np.left_shift(np.int64(1), 31 + np.maximum(right - 1, 0)), 0)
    signs = np.where(right > 0, np.int64(1 << 31), 0)
    rows = np.stack([significand, (1 << 30) + second_half, signs, 31 + right])
    rounds = "up" if output.minimum >= output.zero_point else "away"
    double = Scaling("double", rounds, *stage, rows, left, in_32_bits(bias))
    return (_on_lines(double, output, bias, sums) if y_dtype == np.int8 and has_lines() else None) or double


def _on_lines(
    double: Scaling, output: OutputStage, bias: npt.NDArray[np.int64], sums: tuple[npt.NDArray[np.int64], ...]
) -> Scaling | None:
    """Return the same scaling by lines; None if it cannot be shown to be exact. Arguments as in `integer_scaling`."""
    significand, addend, sign, shift = double.rows
    (lowest, highest), left = sums, double.shifts
    in_range = (lowest >= (-1 << 31) >> left) & (highest < (1 << 31) >> left) & (highest - lowest < 1 << 31)
    if not in_range.all() or shift.max(initial=0) > 62:
        return None
    exact = Multipliers(significand << left, addend, sign, shift, lowest, highest)
    for zero_point in {0: None, output.zero_point: None}:
        # The rest of the zero point is added to the results of lines.
        stage = OutputStage(*(each - zero_point for each in (output.zero_point, output.minimum, output.maximum)))
        lines = lines_of(exact, stage, rounds_away=double.rounds == "away")
        if lines is not None:
            first_sums = in_32_bits(bias + lines.starts)
            scale, shifts = "short_lines" if lines.are_short else "lines", np.zeros_like(left)
            limits = double.limits._replace(zero_point=zero_point)
            return replace(double, scale=scale, limits=limits, rows=lines.rows, shifts=shifts, sums=first_sums)
    return None


def in_32_bits(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Return integers modulo 2^32."""
    return (values & 0xFFFFFFFF).astype(np.uint32).view(np.int32)


def float_scaling(bias: npt.NDArray[np.float32], activation_min: Any, activation_max: Any) -> Scaling:
    """Return the bias and the activation of float sums."""
    bounds = [int(np.float64(value).view(np.int64)) for value in (activation_min, activation_max)]
    none = np.zeros(len(bias), np.int64)
    limits = OutputLimits(0, bounds[0], bounds[1])
    return Scaling("float", "none", 32, limits, bias[np.newaxis], none, none.astype(np.int32))
