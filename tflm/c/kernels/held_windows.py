"""Windows of inputs of 8 bits times weights: four windows at a time, times the weights of two channels.

Windows are held as pairs of 16 bits: for each two elements that are multiplied in one round, those of four windows. Of
four elements in a row, the even ones are a pair, and the odd ones: so a word of bytes becomes two pairs. What a row of
a window has more is held behind all of these. The weights are in the same order.

Without DSP instructions, a word holds an element of one window and, further up, that of another one: one multiplication
makes both products. For Helium, windows are held as bytes in the same order, one behind the other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.c.kernels import dsp, helium, thumb
from tflm.c.kernels.requantization import CONSTANTS, Clamp, Rounding
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

NARROW_INTEGERS = True

WINDOWS = 4
"""Windows that are multiplied at a time."""

CHANNELS, DEPTH, WIDE_DEPTH = 2, 2, 8
"""Channels at a time, and products of each in a round of the innermost loop, for inputs of 8 and of 16 bits.

Weights are filled up with zeros to these."""

FOUR, PAIRS = 4 * WINDOWS, DEPTH * WINDOWS
"""What four elements of each window take, and two of them."""

RUN = 128
"""The most rounds of two products for which sums have 23 bits."""


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
        singles: where the first element is that is not held so.
        is_joint: whether a pair of products of a channel is below 2^15, for any elements.
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
    singles: int
    is_joint: int
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


@assembled({helium.CONDITION: helium.hold_fours, dsp.CONDITION: dsp.hold_fours})
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


@inlined
def upper_unit() -> Any:
    """What the upper of two elements in a word is multiplied by."""
    return (1 << 23) if LONG_MULTIPLY else (1 << 16)


@standalone
def hold_jointly(x: Int8s, words: Int32s, count: int, is_upper: int) -> None:
    """Hold so many times four elements of a window in words, or above those of another one."""
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


@assembled({helium.CONDITION: helium.hold_adjacent, dsp.CONDITION: dsp.hold_adjacent})
@standalone
def hold_adjacent(x: Int8s, held: Int16s, step: int, count: int, products: int) -> None:
    """Hold so many times four elements of each of four windows, which are a step apart, and have so many in all."""
    words = int32_of(held)
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
def hold_run(x: Int8s, held: Int16s, at: int, place: int, count: int, is_joint: int, as_bytes: int) -> None:
    """Hold so many times four elements of one of four windows."""
    if as_bytes:
        hold_fours(x, int16_from(held, at >> 1), count)
    elif is_joint:
        hold_jointly(x, int32_from(int32_of(held), (at >> 1) - (place & 1)), count, place & 1)
    else:
        hold_fours(x, int16_from(held, at), count)


@inlined
def hold_element(held: Int16s, at: int, place: int, value: int, is_joint: int, as_bytes: int) -> None:
    """Hold one element of one of four windows."""
    if as_bytes:
        cells = int8_of(held)
        cells[at] = value
    elif is_joint:
        words = int32_of(held)
        joint = (at >> 1) + (at & 1) - (place & 1)
        if place & 1:
            words[joint] += value * upper_unit()
        else:
            words[joint] = value
    else:
        held[at] = value


@inlined
def hold_alike(held: Int16s, at: int, place: int, value: int, count: int, is_joint: int, as_bytes: int) -> None:
    """Hold a value as so many times four elements."""
    for _pair in range(2 * count):
        hold_element(held, at, place, value, is_joint, as_bytes)
        hold_element(held, at + 1, place, value, is_joint, as_bytes)
        at += DEPTH if as_bytes else PAIRS


@inlined
def hold_window(x: Int8s, held: Int16s, place: int, window: int, shape: Any, is_joint: int, as_bytes: int) -> None:
    """Hold the elements of one of four windows.

    Args:
        place: of the window among the four.
        window: its number.
        is_joint: whether words hold elements of two windows each; the first of these is held before the second.
        as_bytes: whether windows follow each other as bytes.
    """
    four = 4 if as_bytes else FOUR
    pair = DEPTH if as_bytes else PAIRS
    row = window // shape.y_columns
    top = row * shape.row_stride - shape.rows_before
    left = (window - row * shape.y_columns) * shape.column_stride - shape.columns_before
    is_inside = shape.has_runs and left >= 0 and left + shape.column_taps <= shape.x_columns
    target = place * shape.products if as_bytes else DEPTH * place
    # Elements behind those that are held in fours.
    single = target + shape.singles * four // FOUR
    parity = 0
    for _i in range(shape.row_taps):
        has_row = top >= 0 and top < shape.x_rows
        if is_inside and has_row:
            at = (top * shape.x_columns + left) * shape.depth
            if shape.fours > 0:
                hold_run(int8_from(x, at), held, target, place, shape.fours, is_joint, as_bytes)
            target += four * shape.fours
            for k in range(4 * shape.fours, shape.run):
                hold_element(held, single + parity, place, x[at + k], is_joint, as_bytes)
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
                        hold_run(int8_from(x, at), held, target, place, shape.depth >> 2, is_joint, as_bytes)
                    else:
                        hold_alike(held, target, place, shape.zero_point, shape.depth >> 2, is_joint, as_bytes)
                    target += four * (shape.depth >> 2)
                else:
                    for k in range(shape.depth):
                        value = x[at + k] if sees else shape.zero_point
                        if element < 4 * shape.fours:
                            inner = four * (element >> 2) + pair * (element & 1) + ((element >> 1) & 1)
                            hold_element(held, target + inner, place, value, is_joint, as_bytes)
                        else:
                            hold_element(held, single + parity, place, value, is_joint, as_bytes)
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
def hold_row(x: Int8s, held: Int16s, window: int, shape: Any) -> None:
    """Hold four windows for which `are_in_a_row` holds, whose rows are fours alone."""
    top = window // shape.y_columns * shape.row_stride - shape.rows_before
    at = (top * shape.x_columns + window % shape.y_columns * shape.column_stride - shape.columns_before) * shape.depth
    step = shape.column_stride * shape.depth
    for _row in range(shape.row_taps):
        hold_adjacent(int8_from(x, at), held, step, shape.fours, shape.products)
        held = int16_from(held, (DEPTH if HELIUM_ASSEMBLY else FOUR) * shape.fours)
        at += shape.row_dilation * shape.x_columns * shape.depth


@inlined
def byte_of(word: int, left: int) -> Any:
    """The byte of a word that is the highest one after a shift to the left."""
    return as_int32(as_int64(word) << left) >> 24


@inlined
def joined(lower: int, upper: int) -> Any:
    """Two numbers in one."""
    return (as_int64(upper) << 32) | (as_int64(lower) & 0xFFFFFFFF)


@assembled({thumb.LONG: thumb.joint_sums_long, thumb.SHORT: thumb.joint_sums_short})
@standalone
def joint_sums(words: Int32s, weights: Int32s, twice: int) -> tuple[Any, Any]:
    """The sums of the first two windows for a channel, and of the others, as `lower_sum` and `upper_sum` take them.

    Args:
        twice: rounds; in the lowest bit, which of two channels it is.
    """
    left = 24 - 8 * (twice & 1)
    sums0, sums1 = as_int64(0), as_int64(0)
    # Of both elements, modulo 2^32, and of the upper ones.
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
def sums_of_one(held: Int16s, weights: Int32s, rounds: int) -> int:
    """The sum of one of four windows for a channel, and in the upper 32 bits that for the next one."""
    sum0, sum1 = 0, 0
    for _round in range(rounds):
        for k in unrolled(DEPTH):
            sum0 += held[k] * byte_of(weights[0], 24 - 16 * k)
            sum1 += held[k] * byte_of(weights[0], 16 - 16 * k)
        held = int16_from(held, PAIRS)
        weights = int32_from(weights, 1)
    both: int = joined(sum0, sum1)
    return both


@inlined
def split(sums: int) -> tuple[int, int]:
    """The two sums that `joint_sums` returns as one."""
    if LONG_MULTIPLY:
        lower = as_int32(as_int64(sums) << 9) >> 9
        return lower, as_int32((sums - lower) >> 23)
    upper = as_int32(sums >> 32)
    return as_int32(sums - (as_int64(upper) << 16)), upper


@inlined
def sums_of_four(words: Int32s, weights: Int32s, twice: int) -> tuple[Any, Any, Any, Any]:
    """The sums of four windows for a channel; arguments as those of `joint_sums`."""
    sums01, sums23 = joint_sums(words, weights, twice)
    sum0, sum1 = split(sums01)
    sum2, sum3 = split(sums23)
    return sum0, sum1, sum2, sum3


@inlined
def both_of(sums: int) -> tuple[int, int]:
    """The sums in the lower and the upper 32 bits."""
    return as_int32(sums), as_int32(as_int64(sums) >> 32)


@standalone
def multiply_one(
    rounding: Any,
    clamp: Any,
    held: Int16s,
    weights: Int32s,
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
        weights = int32_from(weights, rounds)
        other = min(channel + 1, channels - 1)
        total = sum1 + table[row + 4]
        y[other] = clamp(rounding(total, table[row + 5], table[row + 6], table[row + 7]), least, most)
        total = sum0 + table[row]
        y[channel] = clamp(rounding(total, table[row + 1], table[row + 2], table[row + 3]), least, most)
        row += CHANNELS * CONSTANTS


@assembled(
    {
        helium.CONDITION: helium.multiply_four,
        dsp.CONDITION: dsp.multiply_four,
        thumb.SHORT: thumb.multiply_four,
    }
)
@standalone
def multiply_four(
    rounding: Any,
    clamp: Any,
    held: Int16s,
    weights: Int32s,
    table: Int32s,
    y: Int8s,
    rounds: int,
    channels: int,
    y_step: int,
    least: int,
    most: int,
) -> None:
    """Set the outputs of four windows.

    Args:
        rounds: of two products of each channel.
        y_step: elements from a window's outputs to those of the next.
    """
    if DSP_ASSEMBLY:
        for place in range(WINDOWS):
            one = int16_from(held, place * (rounds if HELIUM_ASSEMBLY else DEPTH))
            y_one = int8_from(y, place * y_step)
            multiply_one(rounding, clamp, one, weights, table, y_one, rounds, channels, least, most)
    else:
        words = int32_of(held)
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
            y[0] = clamp(rounding(sum0, significand, addend, shift), least, most)
            y[y_step] = clamp(rounding(sum1, significand, addend, shift), least, most)
            y[2 * y_step] = clamp(rounding(sum2, significand, addend, shift), least, most)
            y[3 * y_step] = clamp(rounding(sum3, significand, addend, shift), least, most)
            table = int32_from(table, CONSTANTS)
            y = int8_from(y, 1)


@kernel
def convolve_int8(
    rounding: Rounding, clamp: Clamp, x: Int8s, weights: Int32s, table: Int32s, held: Int16s, y: Int8s, shape: Shape
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
    has_fours = shape.has_runs and shape.run == 4 * shape.fours
    for _group in range(shape.groups):
        count = min(shape.windows - window, WINDOWS)
        # Other windows are multiplied one by one.
        are_together = count == WINDOWS and (DSP_ASSEMBLY > 0 or shape.is_joint > 0)
        if shape.is_pointwise and are_together:
            hold_adjacent(int8_from(x, window * shape.x_step), held, shape.x_step, shape.fours, shape.products)
        elif has_fours and are_together and are_in_a_row(window, shape):
            hold_row(x, held, window, shape)
        else:
            for place in range(count):
                hold_window(x, held, place, window + place, shape, are_together and not DSP_ASSEMBLY, HELIUM_ASSEMBLY)
        target = window * y_step
        if are_together:
            multiply_four(
                rounding, clamp, held, weights, table, int8_from(y, target), rounds, channels, y_step, least, most
            )
        else:
            for place in range(count):
                one = int16_from(held, place * (rounds if HELIUM_ASSEMBLY else DEPTH))
                y_one = int8_from(y, target + place * y_step)
                multiply_one(rounding, clamp, one, weights, table, y_one, rounds, channels, least, most)
        window += shape.step
    return DONE
