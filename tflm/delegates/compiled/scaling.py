"""Constants of `tiles.Epilogue` for each channel, in the layout that tiles read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.delegates.compiled.images import aligned
from tflm.delegates.compiled.tiles import SCALE_ROWS
from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier, WideQuantizedMultiplier
from tflm.kernels.arithmetic.requantization import OutputStage


@dataclass(frozen=True)
class Scaling:
    """How sums of channels become outputs.

    Attributes:
        scale, rounds, bits, left: as `tiles.Epilogue` takes them.
        zero_point, least, most: of the output; the bits of a float64 for floats.
        rows: (4, channels) int64, the constants of `tiles.Epilogue`; for floats (1, channels) float32, the bias.
        shifts: left shifts that are applied to sums first.
        sums: int32, initial value of the sum of each channel.
    """

    scale: str
    rounds: str
    bits: int
    zero_point: int
    least: int
    most: int
    rows: npt.NDArray[Any]
    shifts: npt.NDArray[np.int64]
    sums: npt.NDArray[np.int32]

    @property
    def left(self) -> int:
        """1 where any channel shifts to the left."""
        return int(self.shifts.any())

    def constants(self, channels: npt.NDArray[np.intp]) -> npt.NDArray[Any]:
        """The constants for vectors of these channels (vectors, lanes); -1 stands for no channel."""
        vectors, width = channels.shape
        chosen = np.where(channels < 0, 0, channels)
        if self.scale == "float":
            return copied(np.where(channels < 0, np.float32(0), self.rows[0][chosen]))
        row_bytes = 4 * width
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
        """Initial values of the sums of these channels."""
        return copied(np.where(channels < 0, np.int32(0), self.sums[np.where(channels < 0, 0, channels)]))


def copied(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """An aligned copy."""
    copy = aligned(values.shape, values.dtype)
    copy[...] = values
    return copy


def largest_result(multiplier: QuantizedMultiplier, limits: npt.NDArray[np.int64]) -> int:
    """A bound on the absolute results of 32 bits for sums of each channel up to `limits`."""
    left, right = np.maximum(multiplier.shift, 0) & 31, np.maximum(-multiplier.shift, 0)
    shifted = np.minimum(np.left_shift(np.minimum(limits, 1 << 31), left), 1 << 31)
    return int((shifted * multiplier.significand >> 31 >> np.minimum(right, 31)).max(initial=0)) + 1


def integer_scaling(
    multiplier: QuantizedMultiplier, output: OutputStage, bias: npt.NDArray[np.int64], y_dtype: np.dtype[Any]
) -> Scaling | None:
    """The scaling of integer sums, to which a bias is to be added first; None where vectors can't do it.

    Results must leave room for the zero point in 32 bits: where vectors add it, they saturate.

    Args:
        bias: of each channel. In 32 bits it is taken modulo 2^32, as sums are.
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
    stage = limits.bits, output.zero_point, output.minimum, output.maximum
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
    sums = (bias & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
    return Scaling("double", rounds, *stage, rows, left, sums)


def float_scaling(bias: npt.NDArray[np.float32], least: Any, most: Any) -> Scaling:
    """The bias and the activation of float sums."""
    bounds = [int(np.float64(value).view(np.int64)) for value in (least, most)]
    none = np.zeros(len(bias), np.int64)
    return Scaling("float", "none", 32, 0, bounds[0], bounds[1], bias[np.newaxis], none, none.astype(np.int32))
