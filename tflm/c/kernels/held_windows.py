"""Windows of inputs of 8 bits times weights: four windows at a time, times the weights of two channels.

Windows are held as pairs of 16 bits: for each two elements that are multiplied in one round, those of four windows. Of
four elements in a row, the even ones are a pair, and the odd ones: so a word of bytes becomes two pairs. What a row of
a window has more is held behind all of these. The weights are in the same order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.c.kernels import dsp
from tflm.c.kernels.requantization import CONSTANTS, Clamp, Rounding
from tflm.compiler.intrinsics import DSP_ASSEMBLY, LONG_MULTIPLY, int8_from, int16_from
from tflm.compiler.language import DONE, Int8s, Int16s, Int32s, assembled, inlined, kernel, standalone, unrolled
from tflm.delegates.compiled.casts import as_int32, as_int64

NARROW_INTEGERS = True

WINDOWS = 4
"""Windows that are multiplied at a time."""

CHANNELS, DEPTH, WIDE_DEPTH = 2, 2, 8
"""Channels at a time, and products of each in a round of the innermost loop, for inputs of 8 and of 16 bits.

Weights are filled up with zeros to these."""

FOUR, PAIRS = 4 * WINDOWS, DEPTH * WINDOWS
"""What four elements of each window take, and two of them."""


class Shape(NamedTuple):
    """The windows of a convolution, and their places.

    Attributes:
        x_rows, x_columns: of the image.
        x_step: elements from a column to the next.
        depth: channels that are read.
        row_taps ... columns_before: as in `Axis`.
        windows: how many there are; y_columns of them are in a row.
        first, step: the first of four windows at the start, and from there to the next four; a negative step goes from
            the last ones to the first.
        groups: how many times four.
        y_step: elements from a window's outputs to those of the next.
        channels: of the output.
        products: of a window and a channel, with those by zeros that fill up the last round.
        is_pointwise: whether window i is element i of the image, whose depth is a multiple of 4.
        has_runs: whether the elements of a window's row are adjacent.
        run: elements that are adjacent; fours: how many times four of them are held as two pairs.
        is_even: whether the depth is a multiple of 4, and all of it held so.
        zero_point: of the input, which stands for elements outside of the image.
        least, most: of the output.
    """

    x_rows: int
    x_columns: int
    x_step: int
    depth: int
    row_taps: int
    column_taps: int
    row_stride: int
    column_stride: int
    row_dilation: int
    column_dilation: int
    rows_before: int
    columns_before: int
    windows: int
    y_columns: int
    first: int
    step: int
    groups: int
    y_step: int
    channels: int
    products: int
    is_pointwise: int
    has_runs: int
    run: int
    fours: int
    is_even: int
    zero_point: int
    least: int
    most: int


def order_of(count: int, run: int, fours: int) -> npt.NDArray[np.int64]:
    """The order in which the elements of a window are held.

    Args:
        count: of the elements, of which `run` at a time are adjacent.
        fours: how many times four of these are held as two pairs.
    """
    elements = np.arange(count, dtype=np.int64).reshape(-1, run)
    paired = elements[:, : 4 * fours].reshape(-1, 2, 2).transpose(0, 2, 1)
    return np.concatenate([paired.reshape(-1), elements[:, 4 * fours :].reshape(-1)])


@assembled(dsp.hold_fours)
@standalone
def hold_fours(x: Int8s, held: Int16s, count: int) -> None:
    """Hold so many times four elements of a window."""
    for _k in range(count):
        held[0] = x[0]
        held[1] = x[2]
        held[PAIRS] = x[1]
        held[PAIRS + 1] = x[3]
        x = int8_from(x, 4)
        held = int16_from(held, FOUR)


@assembled(dsp.hold_adjacent)
@standalone
def hold_adjacent(x: Int8s, held: Int16s, step: int, count: int) -> None:
    """Hold so many times four elements of each of four windows, which are a step apart."""
    for place in unrolled(WINDOWS):
        hold_fours(int8_from(x, place * step), int16_from(held, 2 * place), count)


@inlined
def hold_alike(held: Int16s, value: int, count: int) -> None:
    """Hold a value as so many times four elements."""
    for k in range(0, FOUR * count, PAIRS):
        held[k] = value
        held[k + 1] = value


@inlined
def hold_window(x: Int8s, held: Int16s, place: int, window: int, shape: Any) -> None:
    """Hold the elements of one of four windows.

    Args:
        place: of the window among the four.
        window: its number.
    """
    top = window // shape.y_columns * shape.row_stride - shape.rows_before
    left = window % shape.y_columns * shape.column_stride - shape.columns_before
    is_inside = shape.has_runs and left >= 0 and left + shape.column_taps <= shape.x_columns
    target = DEPTH * place
    # Elements behind those that are held in fours.
    single = target + shape.row_taps * (shape.column_taps * shape.depth // shape.run) * shape.fours * FOUR
    parity = 0
    for _i in range(shape.row_taps):
        has_row = top >= 0 and top < shape.x_rows
        if is_inside and has_row:
            at = (top * shape.x_columns + left) * shape.depth
            if shape.fours > 0:
                hold_fours(int8_from(x, at), int16_from(held, target), shape.fours)
            target += FOUR * shape.fours
            for k in range(4 * shape.fours, shape.run):
                held[single + parity] = x[at + k]
                single += PAIRS * parity
                parity = 1 - parity
        else:
            element = 0
            for j in range(shape.column_taps):
                column = left + j * shape.column_dilation
                sees = has_row and column >= 0 and column < shape.x_columns
                at = (top * shape.x_columns + column) * shape.x_step
                if shape.is_even:
                    if sees:
                        hold_fours(int8_from(x, at), int16_from(held, target), shape.depth >> 2)
                    else:
                        hold_alike(int16_from(held, target), shape.zero_point, shape.depth >> 2)
                    target += WINDOWS * shape.depth
                else:
                    for k in range(shape.depth):
                        value = x[at + k] if sees else shape.zero_point
                        if element < 4 * shape.fours:
                            held[target + FOUR * (element >> 2) + PAIRS * (element & 1) + ((element >> 1) & 1)] = value
                        else:
                            held[single + parity] = value
                            single += PAIRS * parity
                            parity = 1 - parity
                        element += 1
                    if element == shape.run:
                        target += FOUR * shape.fours
                        element = 0
        top += shape.row_dilation


@inlined
def sums_of_four(held: Int16s, weights: Int8s, rounds: int) -> tuple[Any, Any, Any, Any, Any, Any, Any, Any]:
    """The sums of four windows for a channel, then those for the next one."""
    sum00, sum01, sum02, sum03 = 0, 0, 0, 0
    sum10, sum11, sum12, sum13 = 0, 0, 0, 0
    for _round in range(rounds):
        for k in unrolled(DEPTH):
            w0, w1 = weights[CHANNELS * k], weights[CHANNELS * k + 1]
            sum00 += held[k] * w0
            sum10 += held[k] * w1
            sum01 += held[DEPTH + k] * w0
            sum11 += held[DEPTH + k] * w1
            sum02 += held[2 * DEPTH + k] * w0
            sum12 += held[2 * DEPTH + k] * w1
            sum03 += held[3 * DEPTH + k] * w0
            sum13 += held[3 * DEPTH + k] * w1
        held = int16_from(held, PAIRS)
        weights = int8_from(weights, CHANNELS * DEPTH)
    return sum00, sum01, sum02, sum03, sum10, sum11, sum12, sum13


@assembled(dsp.sums_of_one)
@standalone
def sums_of_one(held: Int16s, weights: Int8s, rounds: int) -> int:
    """The sum of one of four windows for a channel, and in the upper 32 bits that for the next one."""
    sum0, sum1 = 0, 0
    for _round in range(rounds):
        for k in unrolled(DEPTH):
            sum0 += held[k] * weights[CHANNELS * k]
            sum1 += held[k] * weights[CHANNELS * k + 1]
        held = int16_from(held, PAIRS)
        weights = int8_from(weights, CHANNELS * DEPTH)
    both: int = (as_int64(sum1) << 32) | (as_int64(sum0) & 0xFFFFFFFF)
    return both


@inlined
def both_of(sums: int) -> tuple[int, int]:
    """The sums in the lower and the upper 32 bits."""
    return as_int32(sums), as_int32(as_int64(sums) >> 32)


@assembled(dsp.multiply_four)
@standalone
def multiply_four(
    rounding: Any,
    clamp: Any,
    held: Int16s,
    weights: Int8s,
    table: Int32s,
    y: Int8s,
    rounds: int,
    channels: int,
    y_step: int,
    least: int,
    most: int,
) -> None:
    """Set the outputs of four windows.

    The second channel is written first: one that is not there has the place of the last that is.

    Args:
        rounds: of two products of each channel.
        y_step: elements from a window's outputs to those of the next.
    """
    row = 0
    for channel in range(0, channels, CHANNELS):
        # Eight sums need the registers of larger processors.
        if LONG_MULTIPLY > DSP_ASSEMBLY:
            sum00, sum01, sum02, sum03, sum10, sum11, sum12, sum13 = sums_of_four(held, weights, rounds)
        else:
            sum00, sum10 = both_of(sums_of_one(held, weights, rounds))
            sum01, sum11 = both_of(sums_of_one(int16_from(held, DEPTH), weights, rounds))
            sum02, sum12 = both_of(sums_of_one(int16_from(held, 2 * DEPTH), weights, rounds))
            sum03, sum13 = both_of(sums_of_one(int16_from(held, 3 * DEPTH), weights, rounds))
        weights = int8_from(weights, CHANNELS * DEPTH * rounds)
        at = min(channel + 1, channels - 1)
        bias, significand, addend, shift = table[row + 4], table[row + 5], table[row + 6], table[row + 7]
        y[at] = clamp(rounding(sum10 + bias, significand, addend, shift), least, most)
        y[at + y_step] = clamp(rounding(sum11 + bias, significand, addend, shift), least, most)
        y[at + 2 * y_step] = clamp(rounding(sum12 + bias, significand, addend, shift), least, most)
        y[at + 3 * y_step] = clamp(rounding(sum13 + bias, significand, addend, shift), least, most)
        at = channel
        bias, significand, addend, shift = table[row], table[row + 1], table[row + 2], table[row + 3]
        y[at] = clamp(rounding(sum00 + bias, significand, addend, shift), least, most)
        y[at + y_step] = clamp(rounding(sum01 + bias, significand, addend, shift), least, most)
        y[at + 2 * y_step] = clamp(rounding(sum02 + bias, significand, addend, shift), least, most)
        y[at + 3 * y_step] = clamp(rounding(sum03 + bias, significand, addend, shift), least, most)
        row += CHANNELS * CONSTANTS


@standalone
def multiply_one(
    rounding: Any,
    clamp: Any,
    held: Int16s,
    weights: Int8s,
    table: Int32s,
    y: Int8s,
    rounds: int,
    channels: int,
    least: int,
    most: int,
) -> None:
    """Set the outputs of one of four windows; arguments as those of `multiply_four`."""
    row = 0
    for channel in range(0, channels, CHANNELS):
        sum0, sum1 = both_of(sums_of_one(held, weights, rounds))
        weights = int8_from(weights, CHANNELS * DEPTH * rounds)
        other = min(channel + 1, channels - 1)
        total = sum1 + table[row + 4]
        y[other] = clamp(rounding(total, table[row + 5], table[row + 6], table[row + 7]), least, most)
        total = sum0 + table[row]
        y[channel] = clamp(rounding(total, table[row + 1], table[row + 2], table[row + 3]), least, most)
        row += CHANNELS * CONSTANTS


@kernel
def convolve_int8(
    rounding: Rounding, clamp: Clamp, x: Int8s, weights: Int8s, table: Int32s, held: Int16s, y: Int8s, shape: Shape
) -> int:
    """Windows of an image of 8 bits times weights; the output can overlap the image where `overlap` says so.

    Args:
        weights: for two channels at a time, of one element of the windows after the other, in the order of `order_of`.
        table: bias, significand, addend and shift of each channel.
        held: four windows.
    """
    rounds, channels, y_step, least, most = (
        shape.products // DEPTH,
        shape.channels,
        shape.y_step,
        shape.least,
        shape.most,
    )
    window = shape.first
    for _group in range(shape.groups):
        count = min(shape.windows - window, WINDOWS)
        if shape.is_pointwise and count == WINDOWS:
            hold_adjacent(int8_from(x, window * shape.x_step), held, shape.x_step, shape.fours)
        else:
            for place in range(count):
                hold_window(x, held, place, window + place, shape)
        target = window * y_step
        if count == WINDOWS:
            multiply_four(
                rounding, clamp, held, weights, table, int8_from(y, target), rounds, channels, y_step, least, most
            )
        else:
            for place in range(count):
                one, y_one = int16_from(held, DEPTH * place), int8_from(y, target + place * y_step)
                multiply_one(rounding, clamp, one, weights, table, y_one, rounds, channels, least, most)
        window += shape.step
    return DONE
