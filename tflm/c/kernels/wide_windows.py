"""Windows of inputs of 16 bits times weights: four windows beside each other, times the weights of two channels."""

from __future__ import annotations

from typing import Any

from tflm.c.kernels.held_windows import CHANNELS, WIDE_DEPTH, WINDOWS, Shape
from tflm.c.kernels.requantization import CONSTANTS, Clamp, Rounding
from tflm.compiler.intrinsics import int8_from, int16_from
from tflm.compiler.language import DONE, Int8s, Int16s, Int32s, inlined, kernel, standalone

NARROW_INTEGERS = True


@inlined
def gather_beside(x: Int16s, held: Int16s, place: int, window: int, shape: Any) -> None:
    """Hold the elements of a window beside those of the other three of four.

    Args:
        place: which of the four it is.
        window: its number.
    """
    target = place
    columns = shape.column_taps * shape.column_dilation
    top = window // shape.y_columns * shape.row_stride - shape.rows_before
    left = window % shape.y_columns * shape.column_stride - shape.columns_before
    inside = shape.has_runs and left >= 0 and left + columns <= shape.x_columns
    for _i in range(shape.row_taps):
        has_row = top >= 0 and top < shape.x_rows
        if inside and has_row:
            copy_beside(x, held, target, (top * shape.x_columns + left) * shape.depth, columns * shape.depth)
            target += WINDOWS * columns * shape.depth
        else:
            column = left
            for _j in range(shape.column_taps):
                if has_row and column >= 0 and column < shape.x_columns:
                    copy_beside(x, held, target, (top * shape.x_columns + column) * shape.x_step, shape.depth)
                else:
                    for k in range(shape.depth):
                        held[target + WINDOWS * k] = 0
                target += WINDOWS * shape.depth
                column += shape.column_dilation
        top += shape.row_dilation


@inlined
def copy_beside(x: Int16s, held: Int16s, target: int, at: int, count: int) -> None:
    """Hold elements from a place in the image."""
    source = int16_from(x, at)
    held = int16_from(held, target)
    for _k in range(count // 4):
        held[0] = source[0]
        held[WINDOWS] = source[1]
        held[2 * WINDOWS] = source[2]
        held[3 * WINDOWS] = source[3]
        source = int16_from(source, 4)
        held = int16_from(held, 4 * WINDOWS)
    for k in range(count % 4):
        held[WINDOWS * k] = source[k]


@standalone
def multiply_beside(
    rounding: Any,
    clamp: Any,
    held: Int16s,
    weights: Int8s,
    table: Int32s,
    y: Int16s,
    first: int,
    second: int,
    third: int,
    fourth: int,
    products: int,
    channels: int,
    least: int,
    most: int,
) -> None:
    """Set the outputs of four windows; arguments as those of `multiply_pairs`."""
    row = 0
    rounds = products // WIDE_DEPTH
    for channel in range(0, channels, CHANNELS):
        sum00, sum01, sum02, sum03 = 0, 0, 0, 0
        sum10, sum11, sum12, sum13 = 0, 0, 0, 0
        x = int16_from(held, 0)
        for _round in range(rounds):
            w0, w1 = weights[0], weights[1]
            sum00 += x[0] * w0
            sum10 += x[0] * w1
            sum01 += x[1] * w0
            sum11 += x[1] * w1
            sum02 += x[2] * w0
            sum12 += x[2] * w1
            sum03 += x[3] * w0
            sum13 += x[3] * w1
            w0, w1 = weights[2], weights[3]
            sum00 += x[4] * w0
            sum10 += x[4] * w1
            sum01 += x[5] * w0
            sum11 += x[5] * w1
            sum02 += x[6] * w0
            sum12 += x[6] * w1
            sum03 += x[7] * w0
            sum13 += x[7] * w1
            w0, w1 = weights[4], weights[5]
            sum00 += x[8] * w0
            sum10 += x[8] * w1
            sum01 += x[9] * w0
            sum11 += x[9] * w1
            sum02 += x[10] * w0
            sum12 += x[10] * w1
            sum03 += x[11] * w0
            sum13 += x[11] * w1
            w0, w1 = weights[6], weights[7]
            sum00 += x[12] * w0
            sum10 += x[12] * w1
            sum01 += x[13] * w0
            sum11 += x[13] * w1
            sum02 += x[14] * w0
            sum12 += x[14] * w1
            sum03 += x[15] * w0
            sum13 += x[15] * w1
            w0, w1 = weights[8], weights[9]
            sum00 += x[16] * w0
            sum10 += x[16] * w1
            sum01 += x[17] * w0
            sum11 += x[17] * w1
            sum02 += x[18] * w0
            sum12 += x[18] * w1
            sum03 += x[19] * w0
            sum13 += x[19] * w1
            w0, w1 = weights[10], weights[11]
            sum00 += x[20] * w0
            sum10 += x[20] * w1
            sum01 += x[21] * w0
            sum11 += x[21] * w1
            sum02 += x[22] * w0
            sum12 += x[22] * w1
            sum03 += x[23] * w0
            sum13 += x[23] * w1
            w0, w1 = weights[12], weights[13]
            sum00 += x[24] * w0
            sum10 += x[24] * w1
            sum01 += x[25] * w0
            sum11 += x[25] * w1
            sum02 += x[26] * w0
            sum12 += x[26] * w1
            sum03 += x[27] * w0
            sum13 += x[27] * w1
            w0, w1 = weights[14], weights[15]
            sum00 += x[28] * w0
            sum10 += x[28] * w1
            sum01 += x[29] * w0
            sum11 += x[29] * w1
            sum02 += x[30] * w0
            sum12 += x[30] * w1
            sum03 += x[31] * w0
            sum13 += x[31] * w1
            x = int16_from(x, WINDOWS * WIDE_DEPTH)
            weights = int8_from(weights, CHANNELS * WIDE_DEPTH)
        other = min(channel + 1, channels - 1)
        bias, significand, addend, shift = table[row + 4], table[row + 5], table[row + 6], table[row + 7]
        y[fourth + other] = clamp(rounding(sum13 + bias, significand, addend, shift), least, most)
        y[third + other] = clamp(rounding(sum12 + bias, significand, addend, shift), least, most)
        y[second + other] = clamp(rounding(sum11 + bias, significand, addend, shift), least, most)
        y[first + other] = clamp(rounding(sum10 + bias, significand, addend, shift), least, most)
        bias, significand, addend, shift = table[row], table[row + 1], table[row + 2], table[row + 3]
        y[fourth + channel] = clamp(rounding(sum03 + bias, significand, addend, shift), least, most)
        y[third + channel] = clamp(rounding(sum02 + bias, significand, addend, shift), least, most)
        y[second + channel] = clamp(rounding(sum01 + bias, significand, addend, shift), least, most)
        y[first + channel] = clamp(rounding(sum00 + bias, significand, addend, shift), least, most)
        row += CHANNELS * CONSTANTS


@standalone
def multiply_one(
    rounding: Any,
    clamp: Any,
    held: Int16s,
    weights: Int8s,
    table: Int32s,
    y: Int16s,
    first: int,
    products: int,
    channels: int,
    least: int,
    most: int,
) -> None:
    """Set the outputs of one of four windows; arguments as those of `multiply_pairs`."""
    row = 0
    rounds = products // WIDE_DEPTH
    for channel in range(0, channels, CHANNELS):
        sum0, sum1 = 0, 0
        x = int16_from(held, 0)
        for _round in range(rounds):
            sum0 += x[0] * weights[0]
            sum1 += x[0] * weights[1]
            sum0 += x[4] * weights[2]
            sum1 += x[4] * weights[3]
            sum0 += x[8] * weights[4]
            sum1 += x[8] * weights[5]
            sum0 += x[12] * weights[6]
            sum1 += x[12] * weights[7]
            sum0 += x[16] * weights[8]
            sum1 += x[16] * weights[9]
            sum0 += x[20] * weights[10]
            sum1 += x[20] * weights[11]
            sum0 += x[24] * weights[12]
            sum1 += x[24] * weights[13]
            sum0 += x[28] * weights[14]
            sum1 += x[28] * weights[15]
            x = int16_from(x, WINDOWS * WIDE_DEPTH)
            weights = int8_from(weights, CHANNELS * WIDE_DEPTH)
        other = min(channel + 1, channels - 1)
        total = sum1 + table[row + 4]
        y[first + other] = clamp(rounding(total, table[row + 5], table[row + 6], table[row + 7]), least, most)
        total = sum0 + table[row]
        y[first + channel] = clamp(rounding(total, table[row + 1], table[row + 2], table[row + 3]), least, most)
        row += CHANNELS * CONSTANTS


@kernel
def convolve_int16(
    rounding: Rounding, clamp: Clamp, x: Int16s, weights: Int8s, table: Int32s, held: Int16s, y: Int16s, shape: Shape
) -> int:
    """Windows of an image of 16 bits times weights, with sums of 32 bits; arguments as those of `convolve_int8`."""
    products, channels, y_step, least, most = shape.products, shape.channels, shape.y_step, shape.least, shape.most
    window = shape.first
    for k in range(WINDOWS * (products - WIDE_DEPTH), WINDOWS * products):
        held[k] = 0
    for _group in range(shape.groups):
        end = min(shape.windows - window, WINDOWS) - 1
        for place in range(end + 1):
            gather_beside(x, held, place, window + place, shape)
        first = window * y_step
        if end < 2:
            for place in range(end + 1):
                one = int16_from(held, place)
                multiply_one(rounding, clamp, one, weights, table, y, first, products, channels, least, most)
                first += y_step
            window += shape.step
            continue
        last = first + end * y_step
        second = min(first + y_step, last)
        third = min(second + y_step, last)
        fourth = min(third + y_step, last)
        multiply_beside(
            rounding, clamp, held, weights, table, y, first, second, third, fourth, products, channels, least, most
        )
        window += shape.step
    return DONE
