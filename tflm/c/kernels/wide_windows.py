"""Multiply 16-bit inputs by the weights of two channels: four interleaved windows of an im2col tile, or a vector in
place."""

from __future__ import annotations

from typing import Any, NamedTuple

from tflm.c.kernels import dsp
from tflm.c.kernels.im2col import CHANNELS, DEPTH, WIDE_DEPTH, WINDOWS, Shape, both_of, joined
from tflm.compiler.intrinsics import int8_from, int16_from
from tflm.compiler.language import DONE, Int8s, Int16s, Int32s, assembled, inlined, kernel, standalone, unrolled
from tflm.delegates.compiled.requantization import CONSTANTS, Clamp, Limits, Rounding, Sum


@inlined
def fill_interleaved(x: Int16s, tile: Int16s, place: int, window: int, shape: Any) -> None:
    """Copy the elements of a window to the tile, interleaved with those of the other three windows.

    Args:
        place: index of the window in the tile.
        window: number of the window.
    """
    target = place
    columns = shape.column_taps * shape.column_dilation
    row = window // shape.y_columns
    top = row * shape.row_stride - shape.rows_before
    left = (window - row * shape.y_columns) * shape.column_stride - shape.columns_before
    inside = shape.has_runs and left >= 0 and left + columns <= shape.x_columns
    for _i in range(shape.row_taps):
        has_row = top >= 0 and top < shape.x_rows
        if inside and has_row:
            copy_interleaved(x, tile, target, (top * shape.x_columns + left) * shape.depth, columns * shape.depth)
            target += WINDOWS * columns * shape.depth
        else:
            column = left
            for _j in range(shape.column_taps):
                if has_row and column >= 0 and column < shape.x_columns:
                    copy_interleaved(x, tile, target, (top * shape.x_columns + column) * shape.x_step, shape.depth)
                else:
                    for k in range(shape.depth):
                        tile[target + WINDOWS * k] = 0
                target += WINDOWS * shape.depth
                column += shape.column_dilation
        top += shape.row_dilation


@inlined
def copy_interleaved(x: Int16s, tile: Int16s, target: int, at: int, count: int) -> None:
    """Copy elements from a position in the image."""
    source = int16_from(x, at)
    tile = int16_from(tile, target)
    for _k in range(count // 4):
        for k in unrolled(4):
            tile[WINDOWS * k] = source[k]
        source = int16_from(source, 4)
        tile = int16_from(tile, 4 * WINDOWS)
    for k in range(count % 4):
        tile[WINDOWS * k] = source[k]


@standalone
def multiply_interleaved(
    rounding: Any,
    clamp: Any,
    tile: Int16s,
    weights: Int8s,
    table: Int32s,
    y: Int16s,
    first: int,
    second: int,
    third: int,
    fourth: int,
    products: int,
    channels: int,
    limits: Limits,
) -> None:
    """Set the outputs of four windows; arguments as in `multiply_pairs`.

    Which channel comes first alternates, so that GCC keeps all sums in registers.
    """
    row = 0
    rounds = products // WIDE_DEPTH
    for channel in range(0, channels, CHANNELS):
        sum00, sum01, sum02, sum03 = 0, 0, 0, 0
        sum10, sum11, sum12, sum13 = 0, 0, 0, 0
        x = int16_from(tile, 0)
        for _round in range(rounds):
            for k in unrolled(0, WIDE_DEPTH, 2):
                w0, w1 = weights[CHANNELS * k], weights[CHANNELS * k + 1]
                sum00 += x[WINDOWS * k] * w0
                sum10 += x[WINDOWS * k] * w1
                sum01 += x[WINDOWS * k + 1] * w0
                sum11 += x[WINDOWS * k + 1] * w1
                sum02 += x[WINDOWS * k + 2] * w0
                sum12 += x[WINDOWS * k + 2] * w1
                sum03 += x[WINDOWS * k + 3] * w0
                sum13 += x[WINDOWS * k + 3] * w1
                w0, w1 = weights[CHANNELS * k + 2], weights[CHANNELS * k + 3]
                sum10 += x[WINDOWS * k + 4] * w1
                sum00 += x[WINDOWS * k + 4] * w0
                sum11 += x[WINDOWS * k + 5] * w1
                sum01 += x[WINDOWS * k + 5] * w0
                sum12 += x[WINDOWS * k + 6] * w1
                sum02 += x[WINDOWS * k + 6] * w0
                sum13 += x[WINDOWS * k + 7] * w1
                sum03 += x[WINDOWS * k + 7] * w0
            x = int16_from(x, WINDOWS * WIDE_DEPTH)
            weights = int8_from(weights, CHANNELS * WIDE_DEPTH)
        other = min(channel + 1, channels - 1)
        bias, significand, addend, shift = table[row + 4], table[row + 5], table[row + 6], table[row + 7]
        y[fourth + other] = clamp(rounding(sum13 + bias, significand, addend, shift), limits)
        y[third + other] = clamp(rounding(sum12 + bias, significand, addend, shift), limits)
        y[second + other] = clamp(rounding(sum11 + bias, significand, addend, shift), limits)
        y[first + other] = clamp(rounding(sum10 + bias, significand, addend, shift), limits)
        bias, significand, addend, shift = table[row], table[row + 1], table[row + 2], table[row + 3]
        y[fourth + channel] = clamp(rounding(sum03 + bias, significand, addend, shift), limits)
        y[third + channel] = clamp(rounding(sum02 + bias, significand, addend, shift), limits)
        y[second + channel] = clamp(rounding(sum01 + bias, significand, addend, shift), limits)
        y[first + channel] = clamp(rounding(sum00 + bias, significand, addend, shift), limits)
        row += CHANNELS * CONSTANTS


@standalone
def multiply_one(
    rounding: Any,
    clamp: Any,
    tile: Int16s,
    weights: Int8s,
    table: Int32s,
    y: Int16s,
    first: int,
    products: int,
    channels: int,
    limits: Limits,
) -> None:
    """Set the outputs of one of four windows; arguments as in `multiply_pairs`."""
    row = 0
    rounds = products // WIDE_DEPTH
    for channel in range(0, channels, CHANNELS):
        sum0, sum1 = 0, 0
        x = int16_from(tile, 0)
        for _round in range(rounds):
            for k in unrolled(WIDE_DEPTH):
                sum0 += x[WINDOWS * k] * weights[CHANNELS * k]
                sum1 += x[WINDOWS * k] * weights[CHANNELS * k + 1]
            x = int16_from(x, WINDOWS * WIDE_DEPTH)
            weights = int8_from(weights, CHANNELS * WIDE_DEPTH)
        other = min(channel + 1, channels - 1)
        total = sum1 + table[row + 4]
        y[first + other] = clamp(rounding(total, table[row + 5], table[row + 6], table[row + 7]), limits)
        total = sum0 + table[row]
        y[first + channel] = clamp(rounding(total, table[row + 1], table[row + 2], table[row + 3]), limits)
        row += CHANNELS * CONSTANTS


@kernel
def convolve_int16(
    rounding: Rounding, clamp: Clamp, x: Int16s, weights: Int8s, table: Int32s, tile: Int16s, y: Int16s, shape: Shape
) -> int:
    """Multiply windows of a 16-bit image by weights, with 32-bit sums; arguments as in `convolve_int8`."""
    products, channels, y_step = shape.products, shape.channels, shape.y_step
    activation_min, activation_max = shape.activation_min, shape.activation_max
    limits = Limits(activation_min, activation_max)
    window = shape.first
    for k in range(WINDOWS * (products - WIDE_DEPTH), WINDOWS * products):
        tile[k] = 0
    for _group in range(shape.groups):
        end = min(shape.windows - window, WINDOWS) - 1
        for place in range(end + 1):
            fill_interleaved(x, tile, place, window + place, shape)
        first = window * y_step
        if end < 2:
            for place in range(end + 1):
                one = int16_from(tile, place)
                multiply_one(rounding, clamp, one, weights, table, y, first, products, channels, limits)
                first += y_step
            window += shape.step
            continue
        last = first + end * y_step
        second = min(first + y_step, last)
        third = min(second + y_step, last)
        fourth = min(third + y_step, last)
        multiply_interleaved(
            rounding, clamp, tile, weights, table, y, first, second, third, fourth, products, channels, limits
        )
        window += shape.step
    return DONE


class WideVectors(NamedTuple):
    """Sizes of 16-bit vectors.

    Attributes:
        total, depth: number of vectors, and of their elements.
        limit: maximum number of elements whose products are added in 32 bits; even.
        channels: number of output channels.
        activation_min, activation_max: limits of the output.
    """

    total: int
    depth: int
    limit: int
    channels: int
    activation_min: int
    activation_max: int


WIDE_RUN = 510
"""Maximum even number of products of 8 and 16 bits whose sum always fits into 32 bits."""


@assembled({dsp.CONDITION: dsp.sums_of_vector})
@standalone
def sums_of_vector(x: Int16s, weights: Int8s, rounds: int) -> int:
    """Return a vector's sum of products for a channel, and in the upper 32 bits that for the next channel."""
    sum0, sum1 = 0, 0
    for _round in range(rounds):
        for k in unrolled(DEPTH):
            sum0 += x[k] * weights[CHANNELS * k]
            sum1 += x[k] * weights[CHANNELS * k + 1]
        x = int16_from(x, DEPTH)
        weights = int8_from(weights, DEPTH * CHANNELS)
    both: int = joined(sum0, sum1)
    return both


@inlined
def sums_of_some(x: Int16s, weights: Int8s, count: int) -> tuple[Any, Any]:
    """Return the sums of products of a number of elements for two channels."""
    sum0, sum1 = both_of(sums_of_vector(x, weights, count // DEPTH))
    if count & 1:
        sum0 += x[count - 1] * weights[CHANNELS * (count - 1)]
        sum1 += x[count - 1] * weights[CHANNELS * (count - 1) + 1]
    return sum0, sum1


@assembled({dsp.CONDITION: dsp.sums_of_cells})
@standalone
def sums_of_cells(
    x: Int16s, weights: Int8s, rows: int, cells: int, count: int, x_row: int, x_step: int, between: int
) -> int:
    """Return the sums of products of a window for two channels, as `sums_of_vector` does.

    Args:
        weights: those of each cell are padded to an even number of elements; aligned to words.
        rows, cells, count: number of rows, of cells in a row, and of adjacent elements in a cell; at least 1.
        x_row, x_step: step from a row to the next, and from the end of a cell to the next.
        between: weights from the last cell of a row to the first of the next row.
    """
    sum0, sum1 = 0, 0
    for _row in range(rows):
        elements = int16_from(x, 0)
        for _cell in range(cells):
            more0, more1 = sums_of_some(elements, weights, count)
            sum0, sum1 = sum0 + more0, sum1 + more1
            weights = int8_from(weights, CHANNELS * (count + (count & 1)))
            elements = int16_from(elements, count + x_step)
        weights = int8_from(weights, between)
        x = int16_from(x, x_row)
    both: int = joined(sum0, sum1)
    return both


@kernel
def multiply_wide(
    rounding: Rounding,
    clamp: Clamp,
    start: Sum,
    x: Int16s,
    weights: Int8s,
    table: Int32s,
    y: Int16s,
    vectors: WideVectors,
) -> int:
    """Multiply 16-bit vectors by weights.

    Args:
        weights: for each pair of channels, the weights of both for one element after the other, padded to an even
            number of elements.
        table: bias, significand, addend and shift of each channel.
    """
    depth, channels = vectors.depth, vectors.channels
    activation_min, activation_max = vectors.activation_min, vectors.activation_max
    limits = Limits(activation_min, activation_max)
    for _vector in range(vectors.total):
        row = 0
        of_pair = int8_from(weights, 0)
        for channel in range(0, channels, CHANNELS):
            sum0, sum1 = start(table[row]), start(table[row + 4])
            for begin in range(0, depth, vectors.limit):
                count = min(depth - begin, vectors.limit)
                more0, more1 = sums_of_some(int16_from(x, begin), of_pair, count)
                sum0, sum1 = sum0 + more0, sum1 + more1
                of_pair = int8_from(of_pair, (count + (count & 1)) * CHANNELS)
            other = min(channel + 1, channels - 1)
            y[other] = clamp(rounding(sum1, table[row + 5], table[row + 6], table[row + 7]), limits)
            y[channel] = clamp(rounding(sum0, table[row + 1], table[row + 2], table[row + 3]), limits)
            row += CHANNELS * CONSTANTS
        x = int16_from(x, depth)
        y = int16_from(y, channels)
    return DONE
