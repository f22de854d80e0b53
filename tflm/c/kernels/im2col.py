"""Convolve 8-bit inputs with an im2col tile: four windows at a time, times the weights of two channels.

The tile consists of pairs of 16-bit elements: for each two elements of a window that are multiplied in one round, the
pairs of four windows. Of four adjacent elements, elements 0 and 2 form a pair, and elements 1 and 3: one instruction
each extracts them from a word of bytes. Remaining elements of rows follow all of these. The weights are in the same
order.

Without DSP instructions, a word packs elements of two windows, one in its low and one in its high bits, so that one
multiplication computes both products. For Helium, the tile contains bytes in the same order, one window after the
other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.c.kernels import dsp, helium, thumb
from tflm.compiler.intrinsics import (
    DSP_ASSEMBLY,
    HELIUM_ASSEMBLY,
    LONG_MULTIPLY,
    int8_from,
    int8_of,
    int16_from,
    int32_from,
    int32_of,
)
from tflm.compiler.language import DONE, Int8s, Int16s, Int32s, assembled, inlined, kernel, standalone, unrolled
from tflm.delegates.compiled.casts import as_int32, as_int64
from tflm.delegates.compiled.requantization import CONSTANTS, Clamp, Limits, Rounding

WINDOWS = 4
"""Number of windows that are multiplied at a time."""

CHANNELS, DEPTH, WIDE_DEPTH = 2, 2, 8
"""Channels that are multiplied at a time, and products of each in a round of the innermost loop, for 8-bit and 16-bit
inputs.

Weights are padded with zeros to multiples of these."""

FOUR, PAIRS = 4 * WINDOWS, DEPTH * WINDOWS
"""Number of cells of the tile for four elements of each window, and for two."""

RUN = 128
"""Maximum number of rounds of two products for which sums fit in 23 bits."""


class Shape(NamedTuple):
    """Constants of a convolution and its windows.

    Attributes:
        x_rows, x_columns: size of the image.
        x_step: step from a column to the next.
        depth: number of channels that are read.
        row_taps ... columns_before: as in `Axis`.
        windows: number of windows, of which y_columns are in a row.
        first, step: the first window of the first group of four, and the step to the next group; negative if the last
            group is computed first.
        groups: number of groups of four windows.
        y_step: step from a window's outputs to those of the next.
        channels: number of output channels.
        products: number of products of a window and a channel, including padding of the last round.
        is_pointwise: whether window i is element i of the image, whose depth is a multiple of 4.
        has_runs: whether the elements of a window's row are adjacent.
        run: number of adjacent elements; fours: number of groups of four among them that are stored as two pairs.
        singles: offset of the first element in the tile that does not belong to such a group.
        is_packed: whether the sum of two products of a channel is below 2^15 for any elements, so that sums can be
            packed.
        is_even: whether the depth is a multiple of 4, so that all elements belong to such groups.
        zero_point: zero point of the input, which stands for elements outside of the image.
        activation_min, activation_max: limits of the output.
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
    singles: int
    is_packed: int
    is_even: int
    zero_point: int
    activation_min: int
    activation_max: int


def order_of(count: int, run: int, fours: int) -> npt.NDArray[np.int64]:
    """Return the order of a window's elements in the tile.

    Args:
        count: number of elements, of which `run` at a time are adjacent.
        fours: number of groups of four that are stored as two pairs.
    """
    elements = np.arange(count, dtype=np.int64).reshape(-1, run)
    paired = elements[:, : 4 * fours].reshape(-1, 2, 2).transpose(0, 2, 1)
    return np.concatenate([paired.reshape(-1), elements[:, 4 * fours :].reshape(-1)])


@assembled({helium.CONDITION: helium.fill_fours, dsp.CONDITION: dsp.fill_fours})
@standalone
def fill_fours(x: Int8s, tile: Int16s, count: int) -> None:
    """Copy groups of four elements of a window to the tile."""
    for _k in range(count):
        tile[0] = x[0]
        tile[1] = x[2]
        tile[PAIRS] = x[1]
        tile[PAIRS + 1] = x[3]
        x = int8_from(x, 4)
        tile = int16_from(tile, FOUR)


@inlined
def upper_unit() -> Any:
    """Return the factor of the upper of two elements in a word."""
    return (1 << 23) if LONG_MULTIPLY else (1 << 16)


@standalone
def pack_fours(x: Int8s, words: Int32s, count: int, is_upper: int) -> None:
    """Copy groups of four elements of a window to words, or to the upper halves of words that have another window's
    elements."""
    for _k in range(count):
        if is_upper:
            words[0] += x[0] * upper_unit()
            words[1] += x[2] * upper_unit()
            words[WINDOWS] += x[1] * upper_unit()
            words[WINDOWS + 1] += x[3] * upper_unit()
        else:
            words[0] = x[0]
            words[1] = x[2]
            words[WINDOWS] = x[1]
            words[WINDOWS + 1] = x[3]
        x = int8_from(x, 4)
        words = int32_from(words, PAIRS)


@assembled({helium.CONDITION: helium.fill_adjacent, dsp.CONDITION: dsp.fill_adjacent})
@standalone
def fill_adjacent(x: Int8s, tile: Int16s, step: int, count: int, products: int) -> None:
    """Copy groups of four elements of each of four windows, which are a step apart, to the tile. Each has `products`
    elements in all."""
    words = int32_of(tile)
    third = int8_from(x, 2 * step)
    for _k in range(count):
        for k in unrolled(4):
            place = (k & 1) * WINDOWS + (k >> 1)
            words[place] = x[k] + x[k + step] * upper_unit()
            words[place + 2] = third[k] + third[k + step] * upper_unit()
        x = int8_from(x, 4)
        third = int8_from(third, 4)
        words = int32_from(words, PAIRS)


@inlined
def fill_run(x: Int8s, tile: Int16s, at: int, place: int, count: int, is_packed: int, as_bytes: int) -> None:
    """Copy groups of four elements to one of the tile's four windows."""
    if as_bytes:
        fill_fours(x, int16_from(tile, at >> 1), count)
    elif is_packed:
        pack_fours(x, int32_from(int32_of(tile), (at >> 1) - (place & 1)), count, place & 1)
    else:
        fill_fours(x, int16_from(tile, at), count)


@inlined
def fill_element(tile: Int16s, at: int, place: int, value: int, is_packed: int, as_bytes: int) -> None:
    """Copy one element to one of the tile's four windows."""
    if as_bytes:
        cells = int8_of(tile)
        cells[at] = value
    elif is_packed:
        words = int32_of(tile)
        cell = (at >> 1) + (at & 1) - (place & 1)
        if place & 1:
            words[cell] += value * upper_unit()
        else:
            words[cell] = value
    else:
        tile[at] = value


@inlined
def fill_constant(tile: Int16s, at: int, place: int, value: int, count: int, is_packed: int, as_bytes: int) -> None:
    """Fill groups of four elements with one value."""
    for _pair in range(2 * count):
        fill_element(tile, at, place, value, is_packed, as_bytes)
        fill_element(tile, at + 1, place, value, is_packed, as_bytes)
        at += DEPTH if as_bytes else PAIRS


@inlined
def fill_window(x: Int8s, tile: Int16s, place: int, window: int, shape: Any, is_packed: int, as_bytes: int) -> None:
    """Copy the elements of a window to the tile.

    Args:
        place: index of the window in the tile.
        window: number of the window.
        is_packed: whether words pack the elements of two windows; the first of these is copied before the second.
        as_bytes: whether the tile contains bytes, one window after the other.
    """
    four = 4 if as_bytes else FOUR
    pair = DEPTH if as_bytes else PAIRS
    row = window // shape.y_columns
    top = row * shape.row_stride - shape.rows_before
    left = (window - row * shape.y_columns) * shape.column_stride - shape.columns_before
    is_inside = shape.has_runs and left >= 0 and left + shape.column_taps <= shape.x_columns
    target = place * shape.products if as_bytes else DEPTH * place
    # Elements after the groups of four.
    single = target + shape.singles * four // FOUR
    parity = 0
    for _i in range(shape.row_taps):
        has_row = top >= 0 and top < shape.x_rows
        if is_inside and has_row:
            at = (top * shape.x_columns + left) * shape.depth
            if shape.fours > 0:
                fill_run(int8_from(x, at), tile, target, place, shape.fours, is_packed, as_bytes)
            target += four * shape.fours
            for k in range(4 * shape.fours, shape.run):
                fill_element(tile, single + parity, place, x[at + k], is_packed, as_bytes)
                single += 1 if as_bytes else pair * parity
                parity = 0 if as_bytes else 1 - parity
        else:
            element = 0
            for j in range(shape.column_taps):
                column = left + j * shape.column_dilation
                sees = has_row and column >= 0 and column < shape.x_columns
                at = (top * shape.x_columns + column) * shape.x_step
                if shape.is_even:
                    if sees:
                        fill_run(int8_from(x, at), tile, target, place, shape.depth >> 2, is_packed, as_bytes)
                    else:
                        fill_constant(tile, target, place, shape.zero_point, shape.depth >> 2, is_packed, as_bytes)
                    target += four * (shape.depth >> 2)
                else:
                    for k in range(shape.depth):
                        value = x[at + k] if sees else shape.zero_point
                        if element < 4 * shape.fours:
                            inner = four * (element >> 2) + pair * (element & 1) + ((element >> 1) & 1)
                            fill_element(tile, target + inner, place, value, is_packed, as_bytes)
                        else:
                            fill_element(tile, single + parity, place, value, is_packed, as_bytes)
                            single += 1 if as_bytes else pair * parity
                            parity = 0 if as_bytes else 1 - parity
                        element += 1
                    if element == shape.run:
                        target += four * shape.fours
                        element = 0
        top += shape.row_dilation


@inlined
def are_in_a_row(window: int, shape: Any) -> bool:
    """Whether this window and the next three are inside of the image, and in one row."""
    column = window % shape.y_columns
    left = column * shape.column_stride - shape.columns_before
    top = window // shape.y_columns * shape.row_stride - shape.rows_before
    last = left + (WINDOWS - 1) * shape.column_stride + shape.column_taps
    is_inside: bool = (
        column + WINDOWS <= shape.y_columns
        and left >= 0
        and last <= shape.x_columns
        and top >= 0
        and top + (shape.row_taps - 1) * shape.row_dilation < shape.x_rows
    )
    return is_inside


@inlined
def fill_row(x: Int8s, tile: Int16s, window: int, shape: Any) -> None:
    """Copy four windows for which `are_in_a_row` is true, and whose rows consist of groups of four, to the tile."""
    top = window // shape.y_columns * shape.row_stride - shape.rows_before
    at = (top * shape.x_columns + window % shape.y_columns * shape.column_stride - shape.columns_before) * shape.depth
    step = shape.column_stride * shape.depth
    for _row in range(shape.row_taps):
        fill_adjacent(int8_from(x, at), tile, step, shape.fours, shape.products)
        tile = int16_from(tile, (DEPTH if HELIUM_ASSEMBLY else FOUR) * shape.fours)
        at += shape.row_dilation * shape.x_columns * shape.depth


@inlined
def byte_of(word: int, left: int) -> Any:
    """Return the byte of a word that a left shift moves to the top."""
    return as_int32(as_int64(word) << left) >> 24


@inlined
def joined(lower: int, upper: int) -> Any:
    """Pack two numbers in one."""
    return (as_int64(upper) << 32) | (as_int64(lower) & 0xFFFFFFFF)


@assembled({thumb.LONG: thumb.packed_sums_long, thumb.SHORT: thumb.packed_sums_short})
@standalone
def packed_sums(words: Int32s, weights: Int32s, twice: int) -> tuple[Any, Any]:
    """Return the packed sums of the first two windows for a channel, and of the others, for `lower_sum` and
    `upper_sum`.

    Args:
        twice: twice the number of rounds, plus the index of one of two channels.
    """
    left = 24 - 8 * (twice & 1)
    sums0, sums1 = as_int64(0), as_int64(0)
    # Sums of both elements modulo 2^32, and sums of the upper ones.
    both0, both1, upper0, upper1 = 0, 0, 0, 0
    for _round in range(twice >> 1):
        w0, w1 = byte_of(weights[0], left), byte_of(weights[0], left - 16)
        if LONG_MULTIPLY:
            sums0 += as_int64(words[0]) * w0 + as_int64(words[1]) * w1
            sums1 += as_int64(words[2]) * w0 + as_int64(words[3]) * w1
        else:
            first, second = words[0] * w0 + words[1] * w1, words[2] * w0 + words[3] * w1
            both0, upper0 = as_int32(as_int64(both0) + first), upper0 + ((first + (1 << 15)) >> 16)
            both1, upper1 = as_int32(as_int64(both1) + second), upper1 + ((second + (1 << 15)) >> 16)
        words = int32_from(words, WINDOWS)
        weights = int32_from(weights, 1)
    if LONG_MULTIPLY:
        return sums0, sums1
    return joined(both0, upper0), joined(both1, upper1)


@assembled({helium.CONDITION: helium.sums_of_one, dsp.CONDITION: dsp.sums_of_one})
@standalone
def sums_of_one(tile: Int16s, weights: Int32s, rounds: int) -> int:
    """Return the sum of one of four windows for a channel, and in the upper 32 bits that for the next channel."""
    sum0, sum1 = 0, 0
    for _round in range(rounds):
        for k in unrolled(DEPTH):
            sum0 += tile[k] * byte_of(weights[0], 24 - 16 * k)
            sum1 += tile[k] * byte_of(weights[0], 16 - 16 * k)
        tile = int16_from(tile, PAIRS)
        weights = int32_from(weights, 1)
    both: int = joined(sum0, sum1)
    return both


@inlined
def split(sums: int) -> tuple[int, int]:
    """Return the two sums that `packed_sums` packs in one number."""
    if LONG_MULTIPLY:
        lower = as_int32(as_int64(sums) << 9) >> 9
        return lower, as_int32((sums - lower) >> 23)
    upper = as_int32(sums >> 32)
    return as_int32(sums - (as_int64(upper) << 16)), upper


@inlined
def sums_of_four(words: Int32s, weights: Int32s, twice: int) -> tuple[Any, Any, Any, Any]:
    """Return the sums of four windows for a channel; arguments as in `packed_sums`."""
    sums01, sums23 = packed_sums(words, weights, twice)
    sum0, sum1 = split(sums01)
    sum2, sum3 = split(sums23)
    return sum0, sum1, sum2, sum3


@inlined
def both_of(sums: int) -> tuple[int, int]:
    """Return the sums in the lower and the upper 32 bits."""
    return as_int32(sums), as_int32(as_int64(sums) >> 32)


@standalone
def multiply_one(
    rounding: Any,
    clamp: Any,
    tile: Int16s,
    weights: Int32s,
    table: Int32s,
    y: Int8s,
    rounds: int,
    channels: int,
    limits: Limits,
) -> None:
    """Set the outputs of one of four windows; arguments as in `multiply_four`."""
    row = 0
    for channel in range(0, channels, CHANNELS):
        sum0, sum1 = both_of(sums_of_one(tile, weights, rounds))
        weights = int32_from(weights, rounds)
        other = min(channel + 1, channels - 1)
        total = sum1 + table[row + 4]
        y[other] = clamp(rounding(total, table[row + 5], table[row + 6], table[row + 7]), limits)
        total = sum0 + table[row]
        y[channel] = clamp(rounding(total, table[row + 1], table[row + 2], table[row + 3]), limits)
        row += CHANNELS * CONSTANTS


@assembled({helium.CONDITION: helium.multiply_four, dsp.CONDITION: dsp.multiply_four, thumb.SHORT: thumb.multiply_four})
@standalone
def multiply_four(
    rounding: Any,
    clamp: Any,
    tile: Int16s,
    weights: Int32s,
    table: Int32s,
    y: Int8s,
    rounds: int,
    channels: int,
    y_step: int,
    limits: Limits,
) -> None:
    """Set the outputs of four windows.

    Args:
        rounds: number of rounds of two products of each channel.
        y_step: step from a window's outputs to those of the next.
    """
    if DSP_ASSEMBLY:
        for place in range(WINDOWS):
            one = int16_from(tile, place * (rounds if HELIUM_ASSEMBLY else DEPTH))
            y_one = int8_from(y, place * y_step)
            multiply_one(rounding, clamp, one, weights, table, y_one, rounds, channels, limits)
    else:
        words = int32_of(tile)
        for channel in range(channels):
            sum0, sum1, sum2, sum3 = table[0], table[0], table[0], table[0]
            parity = channel & 1
            first = 0
            if LONG_MULTIPLY:
                for begin in range(0, rounds - RUN, RUN):
                    first = begin + RUN
                    at, more_weights = int32_from(words, WINDOWS * begin), int32_from(weights, begin)
                    more0, more1, more2, more3 = sums_of_four(at, more_weights, 2 * RUN + parity)
                    sum0, sum1, sum2, sum3 = sum0 + more0, sum1 + more1, sum2 + more2, sum3 + more3
            at, more_weights = int32_from(words, WINDOWS * first), int32_from(weights, first)
            more0, more1, more2, more3 = sums_of_four(at, more_weights, 2 * (rounds - first) + parity)
            sum0, sum1, sum2, sum3 = sum0 + more0, sum1 + more1, sum2 + more2, sum3 + more3
            weights = int32_from(weights, rounds * parity)
            significand, addend, shift = table[1], table[2], table[3]
            y[0] = clamp(rounding(sum0, significand, addend, shift), limits)
            y[y_step] = clamp(rounding(sum1, significand, addend, shift), limits)
            y[2 * y_step] = clamp(rounding(sum2, significand, addend, shift), limits)
            y[3 * y_step] = clamp(rounding(sum3, significand, addend, shift), limits)
            table = int32_from(table, CONSTANTS)
            y = int8_from(y, 1)


@kernel
def convolve_int8(
    rounding: Rounding, clamp: Clamp, x: Int8s, weights: Int32s, table: Int32s, tile: Int16s, y: Int8s, shape: Shape
) -> int:
    """Multiply windows of an 8-bit image by weights. The output can overlap the image as `overlap` allows.

    Args:
        weights: for each pair of channels, the weights of both for one element after the other, in the order of
            `order_of`.
        table: bias, significand, addend and shift of each channel.
        tile: the im2col tile of four windows.
    """
    rounds, channels, y_step = shape.products // DEPTH, shape.channels, shape.y_step
    activation_min, activation_max = shape.activation_min, shape.activation_max
    limits = Limits(activation_min, activation_max)
    window = shape.first
    has_fours = shape.has_runs and shape.run == 4 * shape.fours
    for _group in range(shape.groups):
        count = min(shape.windows - window, WINDOWS)
        # Remaining windows are multiplied one by one.
        are_together = count == WINDOWS and (DSP_ASSEMBLY > 0 or shape.is_packed > 0)
        if shape.is_pointwise and are_together:
            fill_adjacent(int8_from(x, window * shape.x_step), tile, shape.x_step, shape.fours, shape.products)
        elif has_fours and are_together and are_in_a_row(window, shape):
            fill_row(x, tile, window, shape)
        else:
            for place in range(count):
                fill_window(x, tile, place, window + place, shape, are_together and not DSP_ASSEMBLY, HELIUM_ASSEMBLY)
        target = window * y_step
        if are_together:
            multiply_four(rounding, clamp, tile, weights, table, int8_from(y, target), rounds, channels, y_step, limits)
        else:
            for place in range(count):
                one = int16_from(tile, place * (rounds if HELIUM_ASSEMBLY else DEPTH))
                y_one = int8_from(y, target + place * y_step)
                multiply_one(rounding, clamp, one, weights, table, y_one, rounds, channels, limits)
        window += shape.step
    return DONE
