"""Windows of inputs of 8 bits times weights: four windows at a time, times the weights of two channels.

The elements of two windows share 32 bits, and their sums share 64: see `joint_sums`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tflm.c.kernels.joint_sums import LARGEST_PAIR_SUM, PAIR_UPPER, lower_sum, pair_of, upper_sum, with_pair
from tflm.c.kernels.requantization import CONSTANTS, Clamp, Rounding
from tflm.compiler.intrinsics import LONG_MULTIPLY, int8_from, int32_from
from tflm.compiler.language import DONE, Int8s, Int32s, inlined, kernel, standalone
from tflm.delegates.compiled.casts import as_int64

NARROW_INTEGERS = True

WINDOWS = 4
"""Windows that are multiplied at a time."""

CHANNELS, DEPTH, WIDE_DEPTH = 2, 2, 8
"""Channels at a time, and products of each in a round of the innermost loop, for inputs of 8 and of 16 bits.

Weights are filled up with zeros to these."""


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
        is_pointwise: whether window i is element i of the image.
        has_runs: whether the elements of a window's row are adjacent.
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
    zero_point: int
    is_pointwise: int
    has_runs: int
    least: int
    most: int


@inlined
def hold_two(x: Int8s, held: Int32s, target: int, at: int, other_at: int, count: int) -> None:
    """Hold as many elements from each of two places."""
    for k in range(count):
        held[target + 2 * k] = pair_of(x[at + k], x[other_at + k])


@inlined
def gather_pair(x: Int8s, held: Int32s, pair: int, window: int, other: int, shape: Any) -> None:
    """Hold the elements of two of four windows for the multiplication.

    Args:
        held: two integers for each element of a window: of windows 0 and 1, and of windows 2 and 3.
        pair: 0 for windows 0 and 1, 1 for windows 2 and 3.
        window, other: their numbers.
    """
    target = pair
    columns = shape.column_taps * shape.column_dilation
    top = window // shape.y_columns * shape.row_stride - shape.rows_before
    left = window % shape.y_columns * shape.column_stride - shape.columns_before
    other_top = other // shape.y_columns * shape.row_stride - shape.rows_before
    other_left = other % shape.y_columns * shape.column_stride - shape.columns_before
    last = shape.x_columns - columns
    inside = shape.has_runs and min(left, other_left) >= 0 and max(left, other_left) <= last
    for _i in range(shape.row_taps):
        has_row = top >= 0 and top < shape.x_rows
        other_has_row = other_top >= 0 and other_top < shape.x_rows
        if inside and has_row and other_has_row:
            at = (top * shape.x_columns + left) * shape.depth
            other_at = (other_top * shape.x_columns + other_left) * shape.depth
            hold_two(x, held, target, at, other_at, columns * shape.depth)
            target += 2 * columns * shape.depth
        else:
            for j in range(shape.column_taps):
                column = left + j * shape.column_dilation
                other_column = other_left + j * shape.column_dilation
                sees = has_row and column >= 0 and column < shape.x_columns
                other_sees = other_has_row and other_column >= 0 and other_column < shape.x_columns
                at = (top * shape.x_columns + column) * shape.x_step
                other_at = (other_top * shape.x_columns + other_column) * shape.x_step
                if sees and other_sees:
                    hold_two(x, held, target, at, other_at, shape.depth)
                    target += 2 * shape.depth
                else:
                    for k in range(shape.depth):
                        lower = x[at + k] if sees else shape.zero_point
                        upper = x[other_at + k] if other_sees else shape.zero_point
                        held[target] = pair_of(lower, upper)
                        target += 2
        top += shape.row_dilation
        other_top += shape.row_dilation


@inlined
def hold_pairs(x: Int8s, held: Int32s, window: int, shape: Any) -> None:
    """Hold four windows of one element of the image each, in its order; arguments as those of `gather_pair`."""
    step = shape.x_step
    at0 = window * step
    at1 = at0 + step
    at2 = at1 + step
    at3 = at2 + step
    for k in range(shape.depth):
        held[2 * k] = pair_of(x[at0 + k], x[at1 + k])
        held[2 * k + 1] = pair_of(x[at2 + k], x[at3 + k])


@inlined
def sums_of_pair(x: Int32s, weights: Int8s, rounds: int) -> tuple[Any, Any]:
    """The sums of two of four windows for two channels, for processors that have too few registers for more."""
    sum0 = as_int64(LARGEST_PAIR_SUM)
    sum1 = as_int64(LARGEST_PAIR_SUM)
    for _round in range(rounds):
        sum0, sum1 = with_pair(sum0, x[0], weights[0]), with_pair(sum1, x[0], weights[1])
        sum0, sum1 = with_pair(sum0, x[2], weights[2]), with_pair(sum1, x[2], weights[3])
        x = int32_from(x, 2 * DEPTH)
        weights = int8_from(weights, CHANNELS * DEPTH)
    return sum0, sum1


@standalone
def multiply_pairs(
    rounding: Any,
    clamp: Any,
    held: Int32s,
    weights: Int8s,
    table: Int32s,
    y: Int8s,
    first: int,
    second: int,
    third: int,
    fourth: int,
    products: int,
    channels: int,
    least: int,
    most: int,
) -> None:
    """Set the outputs of four windows.

    Later ones are written first: a window that is not there has the place of the last that is, and so has a channel.

    Args:
        first ... fourth: where in y the outputs of each window begin.
    """
    row = 0
    rounds = products // DEPTH
    for channel in range(0, channels, CHANNELS):
        # Lower sums are held with 2^22 added, so that they are positive.
        sum00 = as_int64(LARGEST_PAIR_SUM)
        sum01 = as_int64(LARGEST_PAIR_SUM)
        sum10 = as_int64(LARGEST_PAIR_SUM)
        sum11 = as_int64(LARGEST_PAIR_SUM)
        if LONG_MULTIPLY:
            x = int32_from(held, 0)
            for _round in range(rounds):
                x0, x1, w0, w1 = x[0], x[1], weights[0], weights[1]
                sum00 += as_int64(x0) * w0
                sum01 += as_int64(x1) * w0
                sum10 += as_int64(x0) * w1
                sum11 += as_int64(x1) * w1
                x0, x1, w0, w1 = x[2], x[3], weights[2], weights[3]
                sum00 += as_int64(x0) * w0
                sum01 += as_int64(x1) * w0
                sum10 += as_int64(x0) * w1
                sum11 += as_int64(x1) * w1
                x = int32_from(x, 2 * DEPTH)
                weights = int8_from(weights, CHANNELS * DEPTH)
        else:
            sum00, sum10 = sums_of_pair(held, weights, rounds)
            sum01, sum11 = sums_of_pair(int32_from(held, 1), weights, rounds)
            weights = int8_from(weights, CHANNELS * products)
        other = min(channel + 1, channels - 1)
        bias, significand, addend, shift = table[row + 4], table[row + 5], table[row + 6], table[row + 7]
        lower = bias - LARGEST_PAIR_SUM
        y[fourth + other] = clamp(
            rounding(upper_sum(sum11, PAIR_UPPER) + bias, significand, addend, shift), least, most
        )
        y[third + other] = clamp(
            rounding(lower_sum(sum11, PAIR_UPPER) + lower, significand, addend, shift), least, most
        )
        y[second + other] = clamp(
            rounding(upper_sum(sum10, PAIR_UPPER) + bias, significand, addend, shift), least, most
        )
        y[first + other] = clamp(
            rounding(lower_sum(sum10, PAIR_UPPER) + lower, significand, addend, shift), least, most
        )
        bias, significand, addend, shift = table[row], table[row + 1], table[row + 2], table[row + 3]
        lower = bias - LARGEST_PAIR_SUM
        y[fourth + channel] = clamp(
            rounding(upper_sum(sum01, PAIR_UPPER) + bias, significand, addend, shift), least, most
        )
        y[third + channel] = clamp(
            rounding(lower_sum(sum01, PAIR_UPPER) + lower, significand, addend, shift), least, most
        )
        y[second + channel] = clamp(
            rounding(upper_sum(sum00, PAIR_UPPER) + bias, significand, addend, shift), least, most
        )
        y[first + channel] = clamp(
            rounding(lower_sum(sum00, PAIR_UPPER) + lower, significand, addend, shift), least, most
        )
        row += CHANNELS * CONSTANTS


@kernel
def convolve_int8(
    rounding: Rounding, clamp: Clamp, x: Int8s, weights: Int8s, table: Int32s, held: Int32s, y: Int8s, shape: Shape
) -> int:
    """Windows of an image of 8 bits times weights; the output can overlap the image where `overlap` says so.

    Args:
        weights: for two channels at a time, of one element of the windows after the other.
        table: bias, significand, addend and shift of each channel.
        held: four windows.
    """
    products, channels, y_step, least, most = shape.products, shape.channels, shape.y_step, shape.least, shape.most
    window = shape.first
    for k in range(2 * (products - DEPTH), 2 * products):
        held[k] = 0
    for _group in range(shape.groups):
        count = min(shape.windows - window, WINDOWS)
        first = window * y_step
        if shape.is_pointwise and count == WINDOWS:
            hold_pairs(x, held, window, shape)
            second = first + y_step
            third = second + y_step
            fourth = third + y_step
            multiply_pairs(
                rounding, clamp, held, weights, table, y, first, second, third, fourth, products, channels, least, most
            )
        else:
            end = window + count - 1
            gather_pair(x, held, 0, window, min(window + 1, end), shape)
            gather_pair(x, held, 1, min(window + 2, end), end, shape)
            last = first + (count - 1) * y_step
            second = min(first + y_step, last)
            third = min(second + y_step, last)
            fourth = min(third + y_step, last)
            multiply_pairs(
                rounding, clamp, held, weights, table, y, first, second, third, fourth, products, channels, least, most
            )
        window += shape.step
    return DONE
