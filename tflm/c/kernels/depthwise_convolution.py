"""DEPTHWISE_CONV_2D on small processors.

3 x 3 windows are computed channel by channel, with the weights of one channel in registers. Channel c of the output may
therefore overlap channel c of the input: a row and a position behind it, or before it if the last window is computed
first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.c.kernels import dsp, flat_convolution, helium, windows_in_place
from tflm.c.kernels.convolution import Layer, layer_of, part_of
from tflm.c.kernels.encoded import is_encoded
from tflm.c.kernels.part import NEVER, Part, first_places
from tflm.compiler.intrinsics import HELIUM_ASSEMBLY, elements_from, int8_from, int32_from
from tflm.compiler.language import DONE, Elements, Int8s, Int32s, Step, assembled, by_value, inlined, kernel, standalone
from tflm.delegates.compiled.casts import as_int16, as_int32
from tflm.delegates.compiled.requantization import CONSTANTS, Clamp, Limits, Rounding
from tflm.kernels.layers.geometry import Axis, Windows, window_fields, windows
from tflm.kernels.node import Node
from tflm.kernels.overlap import FAR, NOWHERE, OperatorFacts, TensorFacts
from tflm.kernels.reference.convolution import DEPTHWISE_INPUTS

TAPS = 3
"""Taps along rows and columns of the windows with a specialized kernel."""

EIGHT = helium.EIGHT

FIRST_TAP, FIRST_ROW, FIRST_COLUMN = 0b100000000, 0b111000000, 0b100100100
"""Bits that mark taps of a window as outside of the image: the first tap, row and column."""


class Image(NamedTuple):
    """3 x 3 windows over an image. The middle row of each is inside of the image.

    Attributes:
        step: step from a column to the next. This and the row steps are negative if the last window is computed first;
            rows and columns then count from the last one.
        run: distance from the start of a row's windows to the first of its last `rest` windows, fewer than three. These
            exclude a window that leaves the image on the right, and with a stride of two, one that leaves it on the
            left.
        has_left, has_right: whether the first and the last window of a row leave the image by a column.
        x_step, y_step: step of the input and of the output from one row of outputs to the next.
        x_first, y_first: offset of the first row.
        channels: number of channels of input and output.
        x_rows, x_columns: size of the image.
        row_stride, column_stride, rows_before: as in `Axis`.
        y_rows, y_columns: size of the output.
        zero_point: zero point of the input, which stands for elements outside of the image.
        activation_min, activation_max: limits of the output.
    """

    step: int
    run: int
    rest: int
    has_left: int
    has_right: int
    x_step: int
    y_step: int
    x_first: int
    y_first: int
    channels: int
    x_rows: int
    x_columns: int
    row_stride: int
    column_stride: int
    rows_before: int
    y_rows: int
    y_columns: int
    zero_point: int
    activation_min: int
    activation_max: int


@by_value
class Window(NamedTuple):
    """The weights of a channel, row by row."""

    w0: int
    w1: int
    w2: int
    w3: int
    w4: int
    w5: int
    w6: int
    w7: int
    w8: int


@by_value
class Channel(NamedTuple):
    """What `rows_by_one` computes the outputs of a channel with."""

    pair0: int
    pair1: int
    pair2: int
    last01: int
    last2: int
    bias: int
    significand: int
    addend: int
    shift: int
    left: int
    right: int


@inlined
def pair_of(first: int, second: int) -> Any:
    """Pack two weights in 32 bits."""
    return (first & 0xFFFF) + second * (1 << 16)


@inlined
def rows_of(
    rounding: Any,
    clamp: Any,
    x: Int8s,
    y: Int8s,
    rows: int,
    x_row: int,
    channel: Channel,
    inner: int,
    column_step: int,
    image: Any,
) -> None:
    """Compute the rows of `rows_by_one` for windows any number of columns apart."""
    channels = image.step
    w0, w1, w2 = as_int16(channel.pair0), as_int16(channel.pair1), as_int16(channel.pair2)
    w3, w4, w5 = channel.pair0 >> 16, channel.pair1 >> 16, channel.pair2 >> 16
    w6, w7, w8 = as_int16(channel.last01), channel.last01 >> 16, channel.last2
    limits = Limits(image.activation_min, image.activation_max)
    for _row in range(rows):
        x0 = int8_from(x, 0)
        x1 = int8_from(x, x_row)
        x2 = int8_from(x, 2 * x_row)
        target = 0
        if image.has_left:
            total = channel.left + x0[0] * w1 + x0[channels] * w2 + x1[0] * w4 + x1[channels] * w5 + x2[0] * w7
            y[0] = clamp(
                rounding(total + x2[channels] * w8, channel.significand, channel.addend, channel.shift), limits
            )
            target = channels
            x0 = int8_from(x0, column_step - channels)
            x1 = int8_from(x1, column_step - channels)
            x2 = int8_from(x2, column_step - channels)
        for _column in range(inner):
            total = channel.bias + x0[0] * w0 + x0[channels] * w1 + x0[2 * channels] * w2
            total += x1[0] * w3 + x1[channels] * w4 + x1[2 * channels] * w5
            total += x2[0] * w6 + x2[channels] * w7 + x2[2 * channels] * w8
            y[target] = clamp(rounding(total, channel.significand, channel.addend, channel.shift), limits)
            target += channels
            x0 = int8_from(x0, column_step)
            x1 = int8_from(x1, column_step)
            x2 = int8_from(x2, column_step)
        if image.has_right:
            total = channel.bias + channel.right + x0[0] * w0 + x0[channels] * w1 + x1[0] * w3 + x1[channels] * w4
            total += x2[0] * w6 + x2[channels] * w7
            y[target] = clamp(rounding(total, channel.significand, channel.addend, channel.shift), limits)
        x = int8_from(x, image.x_step)
        y = int8_from(y, image.y_step)


@assembled({dsp.CONDITION: dsp.rows_by_one})
@standalone
def rows_by_one(
    rounding: Any, clamp: Any, x: Int8s, y: Int8s, rows: int, x_row: int, channel: Channel, image: Any
) -> None:
    """Set rows of a channel's outputs, for windows one column apart.

    Args:
        rows: number of rows.
        x_row: step from a row of a window to the next.
        pair0 ... last2: weights: for each column, a pair with those of the first two rows; then those of the third row.
        left: start of the first window's sum if a column is outside of the image.
        right: addend of the last window's sum if a column is outside of the image.
    """
    inner = image.run // image.step + image.rest - image.has_left
    rows_of(rounding, clamp, x, y, rows, x_row, channel, inner, image.step, image)


@assembled({dsp.CONDITION: dsp.rows_by_two})
@standalone
def rows_by_two(
    rounding: Any, clamp: Any, x: Int8s, y: Int8s, rows: int, x_row: int, channel: Channel, image: Any
) -> None:
    """Set rows of a channel's outputs, for windows two columns apart; arguments as in `rows_by_one`."""
    rows_of(rounding, clamp, x, y, rows, x_row, channel, image.run // (2 * image.step), 2 * image.step, image)


@inlined
def rows_of_image(
    rounding: Any,
    clamp: Any,
    x: Int8s,
    y: Int8s,
    rows: int,
    x_row: int,
    w: Window,
    bias: int,
    table: Int32s,
    image: Any,
) -> None:
    """Set rows of a channel's outputs; arguments as in `rows_by_one`, with each weight separate."""
    zero_point = image.zero_point
    significand, addend, shift = table[1], table[2], table[3]
    pair0, pair1, pair2 = pair_of(w.w0, w.w3), pair_of(w.w1, w.w4), pair_of(w.w2, w.w5)
    last01 = pair_of(w.w6, w.w7)
    left = bias + zero_point * (w.w0 + w.w3 + w.w6)
    right = zero_point * (w.w2 + w.w5 + w.w8)
    channel = Channel(pair0, pair1, pair2, last01, w.w8, bias, significand, addend, shift, left, right)
    if image.column_stride == 1:
        rows_by_one(rounding, clamp, x, y, rows, x_row, channel, image)
    elif image.column_stride == 2:
        rows_by_two(rounding, clamp, x, y, rows, x_row, channel, image)
    else:
        rows_of(
            rounding,
            clamp,
            x,
            y,
            rows,
            x_row,
            channel,
            image.y_columns - image.has_right - image.has_left,
            image.column_stride * image.step,
            image,
        )


@assembled({helium.CONDITION: helium.set_eights})
@standalone
def set_eights(
    rounding: Any,
    clamp: Any,
    x: Int8s,
    weights: Int8s,
    table: Int32s,
    y: Int8s,
    x_row: int,
    x_step: int,
    eights: int,
    outside: int,
    zero_point: int,
    limits: Limits,
) -> None:
    """Set the outputs of a window, eight channels at a time.

    Args:
        x: the input from the window's first tap, which can be outside of the image.
        x_row, x_step: step from a row of taps, and from a tap, to the next.
        eights: number of groups of eight channels.
        outside: a bit for each tap outside of the image, as in `FIRST_TAP`.
    """
    for channel in range(EIGHT * eights):
        total = table[0]
        taps = outside
        start = 0
        for tap in range(TAPS * TAPS):
            value = zero_point if taps & FIRST_TAP else x[start]
            total = as_int32(total + value * weights[tap])
            taps <<= 1
            start += x_row - 2 * x_step if tap % TAPS == TAPS - 1 else x_step
        y[channel] = clamp(rounding(total, table[1], table[2], table[3]), limits)
        table = int32_from(table, CONSTANTS)
        x = int8_from(x, 1)
        weights = int8_from(weights, TAPS * TAPS)


@inlined
def set_image(
    rounding: Any, clamp: Any, x: Int8s, weights: Int8s, table: Int32s, y: Int8s, x_row: int, eights: int, image: Any
) -> None:
    """Set the outputs of the channels that are computed eight at a time."""
    for i in range(image.y_rows):
        top = i * image.row_stride - image.rows_before
        outside_rows = 0
        for row in range(TAPS):
            if top + row < 0 or top + row >= image.x_rows:
                outside_rows |= FIRST_ROW >> (TAPS * row)
        for j in range(image.y_columns):
            left = j * image.column_stride - image.has_left
            outside = outside_rows
            if left < 0:
                outside |= FIRST_COLUMN
            if left + TAPS > image.x_columns:
                outside |= FIRST_COLUMN >> 2
            set_eights(
                rounding,
                clamp,
                int8_from(x, top * x_row + left * image.step),
                weights,
                table,
                int8_from(y, (i * image.y_columns + j) * image.step),
                x_row,
                image.step,
                eights,
                outside,
                image.zero_point,
                Limits(image.activation_min, image.activation_max),
            )


@kernel
def convolve_3x3(
    rounding: Rounding, clamp: Clamp, x: Int8s, weights: Int8s, table: Int32s, y: Int8s, image: Image
) -> int:
    """Multiply each channel's 3 x 3 windows by its weights.

    Args:
        weights: nine for each channel.
        table: bias, significand, addend and shift of each channel.
    """
    channels, zero_point = image.channels, image.zero_point
    x_row = image.step * image.x_columns
    y_row = image.step * image.y_columns
    x = int8_from(x, image.x_first)
    y = int8_from(y, image.y_first)
    last = (image.y_rows - 1) * image.row_stride - image.rows_before + TAPS > image.x_rows
    inner = image.y_rows - max(image.rows_before, 0) - last
    together = channels >> 3 if HELIUM_ASSEMBLY else 0
    if together > 0:
        set_image(rounding, clamp, x, weights, table, y, x_row, together, image)
    for channel in range(together * EIGHT, channels):
        w = int8_from(weights, channel * TAPS * TAPS)
        entry = int32_from(table, channel * CONSTANTS)
        bias = entry[0]
        source = int8_from(x, channel)
        target = int8_from(y, channel)
        if image.x_rows < TAPS:
            # Missing rows have zero weights, and read from the address of other rows.
            above = bias + zero_point * (w[0] + w[1] + w[2])
            below = zero_point * (w[6] + w[7] + w[8])
            if image.x_rows == 1:
                only = Window(w[3], w[4], w[5], 0, 0, 0, 0, 0, 0)
                rows_of_image(rounding, clamp, source, target, image.y_rows, 0, only, above + below, entry, image)
            else:
                if image.rows_before > 0:
                    first_of_two = Window(w[3], w[4], w[5], 0, 0, 0, w[6], w[7], w[8])
                    rows_of_image(rounding, clamp, source, target, 1, x_row >> 1, first_of_two, above, entry, image)
                    target = int8_from(target, y_row)
                if last:
                    last_of_two = Window(w[0], w[1], w[2], 0, 0, 0, w[3], w[4], w[5])
                    rows_of_image(
                        rounding, clamp, source, target, 1, x_row >> 1, last_of_two, bias + below, entry, image
                    )
        else:
            if image.rows_before > 0:
                above = bias + zero_point * (w[0] + w[1] + w[2])
                highest = Window(w[3], w[4], w[5], w[6], w[7], w[8], 0, 0, 0)
                rows_of_image(rounding, clamp, source, target, 1, x_row, highest, above, entry, image)
                target = int8_from(target, y_row)
                source = int8_from(source, (image.row_stride - 1) * x_row)
            else:
                source = int8_from(source, -image.rows_before * x_row)
            if inner > 0:
                whole = Window(w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8])
                rows_of_image(rounding, clamp, source, target, inner, x_row, whole, bias, entry, image)
                target = int8_from(target, inner * y_row)
            if last:
                below = bias + zero_point * (w[6] + w[7] + w[8])
                lowest = Window(0, 0, 0, w[0], w[1], w[2], w[3], w[4], w[5])
                rows_of_image(
                    rounding,
                    clamp,
                    int8_from(x, channel + (image.x_rows - TAPS) * x_row),
                    target,
                    1,
                    x_row,
                    lowest,
                    below,
                    entry,
                    image,
                )
    return DONE


SPREADS: dict[str, Callable[..., Any]] = {"each": lambda i: i, "pairs": lambda i: i >> 1, "copies": lambda i: 0}
"""The input channel that each of four output channels reads, relative to that of the first one."""

Spread = Annotated[Callable[..., Any], SPREADS]

FOUR = 4
"""Number of channels that are computed together."""


class Shape(NamedTuple):
    """Windows of any size over an image; attributes as in `Image` and `Axis`.

    Attributes:
        y_channels: number of output channels, of which `copies` read the same input channel.
        together: number of output channels that are computed four at a time.
        repeats: number of groups of four that read the same input channels; the next ones are `next` elements further.
    """

    x_rows: int
    x_columns: int
    x_channels: int
    row_taps: int
    column_taps: int
    row_stride: int
    column_stride: int
    row_dilation: int
    column_dilation: int
    rows_before: int
    columns_before: int
    y_rows: int
    y_columns: int
    y_channels: int
    copies: int
    together: int
    repeats: int
    next: int
    zero_point: int
    activation_min: int
    activation_max: int


@inlined
def taps_before(start: int, dilation: int) -> int:
    """Return the number of taps before the image, for a window that begins at a position."""
    return 0 if start >= 0 else (dilation - 1 - start) // dilation


@by_value
class Inside(NamedTuple):
    """The taps of a window inside of the image; attributes as in `set_fours`."""

    rows: int
    columns: int
    before: int
    between: int
    behind: int
    x_row: int
    x_step: int


def _helium_of_fours(functions: Mapping[str, Any]) -> str | None:
    spread = next(name for name, function in SPREADS.items() if function is functions["spread"])
    return helium.set_fours(functions, spread)


def _dsp_of_fours(functions: Mapping[str, Any]) -> str | None:
    """Return the assembly if four channels are adjacent in the input as in the output; None otherwise."""
    return dsp.set_fours(functions) if functions["spread"] is SPREADS["each"] else None


@assembled({helium.CONDITION: _helium_of_fours, dsp.CONDITION: _dsp_of_fours})
@standalone
def set_fours(
    spread: Any,
    rounding: Any,
    clamp: Any,
    x: Elements,
    weights: Int8s,
    table: Int32s,
    y: Elements,
    inside: Inside,
    together: int,
    zero_point: int,
    repeats: int,
    next: int,
    limits: Limits,
) -> None:
    """Set the outputs of a window for the channels that are computed four at a time.

    Args:
        x: the input from the first tap inside of the image.
        rows, columns: number of taps inside.
        before, between, behind: number of taps outside of the image: before the first row inside, between two such
            rows, and after the last one.
        x_row, x_step: step of the input from a row of taps, and from a tap, to the next.
        together, repeats, next: as in `Shape`.
    """
    repeat = repeats
    for k in range(0, together, FOUR):
        sum0, sum1, sum2, sum3 = table[0], table[4], table[8], table[12]
        start = 0
        outside = inside.before
        for row in range(inside.rows + 1):
            for _tap in range(outside):
                sum0 = as_int32(sum0 + zero_point * weights[0])
                sum1 = as_int32(sum1 + zero_point * weights[1])
                sum2 = as_int32(sum2 + zero_point * weights[2])
                sum3 = as_int32(sum3 + zero_point * weights[3])
                weights = int8_from(weights, FOUR)
            if row < inside.rows:
                at = start
                for _column in range(inside.columns):
                    sum0 = as_int32(sum0 + x[at + spread(0)] * weights[0])
                    sum1 = as_int32(sum1 + x[at + spread(1)] * weights[1])
                    sum2 = as_int32(sum2 + x[at + spread(2)] * weights[2])
                    sum3 = as_int32(sum3 + x[at + spread(3)] * weights[3])
                    at += inside.x_step
                    weights = int8_from(weights, FOUR)
                start += inside.x_row
            outside = inside.between if row < inside.rows - 1 else inside.behind
        y[k] = clamp(rounding(sum0, table[1], table[2], table[3]), limits)
        y[k + 1] = clamp(rounding(sum1, table[5], table[6], table[7]), limits)
        y[k + 2] = clamp(rounding(sum2, table[9], table[10], table[11]), limits)
        y[k + 3] = clamp(rounding(sum3, table[13], table[14], table[15]), limits)
        table = int32_from(table, FOUR * CONSTANTS)
        repeat -= 1
        if repeat == 0:
            repeat = repeats
            x = elements_from(x, next)


@inlined
def sum_of_one(x: Elements, weights: Int8s, inside: Inside, zero_point: int) -> int:
    """Return the sum of one channel's products; arguments as in `set_fours`."""
    total: int = as_int32(0)
    start = 0
    outside = inside.before
    for row in range(inside.rows + 1):
        for tap in range(outside):
            total = as_int32(total + zero_point * weights[tap])
        weights = int8_from(weights, outside)
        if row < inside.rows:
            for column in range(inside.columns):
                total = as_int32(total + x[start + column * inside.x_step] * weights[column])
            weights = int8_from(weights, inside.columns)
            start += inside.x_row
        outside = inside.between if row < inside.rows - 1 else inside.behind
    return total


@kernel
def convolve_each(
    spread: Spread,
    rounding: Rounding,
    clamp: Clamp,
    x: Elements,
    weights: Int8s,
    table: Int32s,
    y: Elements,
    shape: Shape,
) -> int:
    """Multiply each channel's windows by its weights.

    Args:
        weights: for groups of four channels, tap by tap; then for each remaining channel.
        table: bias, significand, addend and shift of each channel.
    """
    activation_min, activation_max, zero_point = shape.activation_min, shape.activation_max, shape.zero_point
    limits = Limits(activation_min, activation_max)
    taps = shape.row_taps * shape.column_taps
    x_step = shape.column_dilation * shape.x_channels
    x_row = shape.row_dilation * shape.x_columns * shape.x_channels
    for i in range(shape.y_rows):
        top = i * shape.row_stride - shape.rows_before
        first_row = min(taps_before(top, shape.row_dilation), shape.row_taps)
        last_row = max(min(shape.row_taps, taps_before(top - shape.x_rows, shape.row_dilation)), first_row)
        for j in range(shape.y_columns):
            left = j * shape.column_stride - shape.columns_before
            first = min(taps_before(left, shape.column_dilation), shape.column_taps)
            last = max(min(shape.column_taps, taps_before(left - shape.x_columns, shape.column_dilation)), first)
            rows, columns = last_row - first_row, last - first
            before = first_row * shape.column_taps + first
            between = shape.column_taps - columns
            behind = (shape.row_taps - last_row + 1) * shape.column_taps - last
            at = (top + first_row * shape.row_dilation) * shape.x_columns + left + first * shape.column_dilation
            at *= shape.x_channels
            if rows == 0 or columns == 0:
                rows, before, behind, at = 0, taps, 0, 0
            if shape.together > 0:
                set_fours(
                    spread,
                    rounding,
                    clamp,
                    elements_from(x, at),
                    weights,
                    table,
                    y,
                    Inside(rows, columns, before, between, behind, x_row, x_step),
                    shape.together,
                    zero_point,
                    shape.repeats,
                    shape.next,
                    limits,
                )
            for k in range(shape.together, shape.y_channels):
                source, of_one = elements_from(x, at + k // shape.copies), int8_from(weights, k * taps)
                total = sum_of_one(
                    source, of_one, Inside(rows, columns, before, between, behind, x_row, x_step), zero_point
                )
                entry = int32_from(table, k * CONSTANTS)
                y[k] = clamp(rounding(total + entry[0], entry[1], entry[2], entry[3]), limits)
            y = elements_from(y, shape.y_channels)
    return DONE


def bind(node: Node, part: Part | None = None) -> Sequence[Step] | None:
    """Bind DEPTHWISE_CONV_2D."""
    x, weights, bias, y, constant = DEPTHWISE_INPUTS.bound(node)
    op = node.op_data
    if not constant or op.multiplier is None:
        return None
    rows, x, y, backwards = part_of(part, op.rows, x, y)
    by_channel = weights[0].transpose(2, 0, 1)
    layer = layer_of(by_channel[np.newaxis, ..., np.newaxis], bias, op, op.input_zero_point)
    if x.shape[3] == 1:  # all outputs read the same channel, as in an ordinary convolution
        return flat_convolution.bind_windows(layer, rows, op.columns, x, y)
    return bind_each(layer, rows, op.columns, x, y, backwards=backwards)


def bind_in_place(node: Node, part: Part | None = None) -> Sequence[Step] | None:
    """Bind an integer DEPTHWISE_CONV_2D whose input has a single channel; its windows are read in place."""
    x, weights, bias, y, constant = DEPTHWISE_INPUTS.bound(node)
    op = node.op_data
    is_plain = (
        constant and op.multiplier is not None and not is_encoded(node.eval_input(DEPTHWISE_INPUTS.weights).elements)
    )
    if not is_plain or x.shape[3] != 1:
        return None
    layer = layer_of(weights[0].transpose(2, 0, 1)[np.newaxis, ..., np.newaxis], bias, op, op.input_zero_point)
    return windows_in_place.bind_layer(layer, op.rows, op.columns, x, y)


def overlap_in_place(facts: OperatorFacts, both: Windows | None = None, input: int = 0) -> range:
    """As `overlap`, of `bind_in_place`."""
    return windows_in_place.overlap(_as_convolution(facts), both or windows(facts), input)


def bind_each(
    layer: Layer, rows: Axis, columns: Axis, x: npt.NDArray[Any], y: npt.NDArray[Any], *, backwards: bool = False
) -> list[Step] | None:
    """Return the steps of a layer whose output channels each read one input channel; None if sums can exceed 32 bits.

    Args:
        backwards: whether the last window is computed first, which only the 3 x 3 kernel supports.
    """
    scaling = layer.requantizer(x.dtype, y.dtype)
    if scaling is None or 0 in (rows.dilation, columns.dilation):
        return None
    names: dict[str, Any] = {"rounding": scaling.rounding, "clamp": scaling.clamp, "table": scaling.table}
    limits = {
        "zero_point": layer.zero_point,
        "activation_min": scaling.activation_min,
        "activation_max": scaling.activation_max,
    }
    channels = y.shape[3]
    by_channel = np.ascontiguousarray(layer.weights.reshape(channels, -1), np.int8)
    step = channels
    if backwards:
        rows, columns, step = rows.mirrored, columns.mirrored, -channels
        by_channel = np.ascontiguousarray(by_channel[:, ::-1], None)
    if has_own_kernel(rows, columns, x.shape[3], channels) and x.dtype == np.int8:
        has_left, has_right = int(columns.before > 0), int(columns.stop > columns.size)
        inner = columns.windows - has_right - has_left * (columns.stride == 2)
        rest = inner % 3 if columns.stride == 1 else 0
        image = Image(
            step=step,
            run=(inner - rest) * columns.stride * step,
            rest=rest,
            has_left=has_left,
            has_right=has_right,
            x_step=rows.stride * columns.size * step,
            y_step=columns.windows * step,
            x_first=x[0].size - channels if backwards else 0,
            y_first=y[0].size - channels if backwards else 0,
            channels=channels,
            x_rows=rows.size,
            x_columns=columns.size,
            row_stride=rows.stride,
            column_stride=columns.stride,
            rows_before=rows.before,
            y_rows=rows.windows,
            y_columns=columns.windows,
            **limits,
        )
        return [convolve_3x3.step(**names, x=x[i], weights=by_channel, y=y[i], image=image) for i in range(len(x))]
    if columns.size == columns.taps == columns.windows == 1:  # as an image of one row, it needs no loop over rows
        rows, columns = columns, rows
    copies = channels // x.shape[3]
    spread = "each" if copies == 1 else "pairs" if copies == 2 else "copies"
    together = channels - channels % FOUR if copies <= 2 or copies % FOUR == 0 else 0
    fours = by_channel[:together].reshape(-1, FOUR, rows.taps * columns.taps).transpose(0, 2, 1)
    packed = np.concatenate([fours.reshape(-1), by_channel[together:].reshape(-1)])
    shape = Shape(
        x_rows=rows.size,
        x_columns=columns.size,
        x_channels=x.shape[3],
        **window_fields(rows, columns),
        row_dilation=rows.dilation,
        column_dilation=columns.dilation,
        y_rows=rows.windows,
        y_columns=columns.windows,
        y_channels=channels,
        copies=copies,
        together=together,
        repeats=max(copies // FOUR, 1),
        next=max(FOUR // copies, 1),
        **limits,
    )
    return [
        convolve_each.step(spread=spread, **names, x=x[i], weights=packed, y=y[i], shape=shape) for i in range(len(x))
    ]


def has_own_kernel(rows: Axis, columns: Axis, x_channels: int, y_channels: int) -> bool:
    """Whether the 3 x 3 kernel applies: windows leave the image by at most one row or column."""
    if x_channels != y_channels or any((axis.taps, axis.dilation) != (TAPS, 1) for axis in (rows, columns)):
        return False
    last_row = (rows.windows - 1) * rows.stride + 1 - rows.before
    by_one = columns.before in (0, 1) and columns.stop <= columns.size + 1
    # The kernel cannot compute a window that leaves the image on both sides. If a row between two others is missing, it
    # reads the middle of the first row instead.
    is_one_sided = columns.windows >= (columns.before > 0) + (columns.stop > columns.size)
    has_place = rows.size != TAPS - 1 or columns.size * x_channels % 2 == 0
    return rows.before <= 1 and last_row < rows.size and by_one and is_one_sided and has_place


def overlap(facts: OperatorFacts, both: Windows | None = None, input: int = 0) -> range:
    """Return how many bytes after the output's first byte the input may begin. Windows are as given, or as the options
    say."""
    x, y, both = facts.inputs[0], facts.outputs[0], both or windows(facts)
    if input or x is None or both is None or x.dims[0] != 1:
        return NOWHERE
    rows, columns = both
    if x.dims[3] == 1:
        return flat_convolution.overlap(_as_convolution(facts), both)
    if x.itemsize != 1 or not has_own_kernel(rows, columns, x.dims[3], y.dims[3]):
        return NOWHERE
    channels = y.dims[3]
    ends = np.arange(1, rows.windows * columns.windows, dtype=np.int64)
    reads = first_places(rows, columns)[ends]
    seen = reads < NEVER
    first = int((ends[seen] - reads[seen]).max(initial=1 - rows.size * columns.size))
    return range(first * channels, FAR // channels * channels, channels)


def overlap_backwards(facts: OperatorFacts, both: Windows | None = None, input: int = 0) -> range:
    """Return the same as `overlap` for kernels that compute the last window first."""
    x, y, both = facts.inputs[0], facts.outputs[0], both or windows(facts)
    if x is None or both is None or x.dims[3] == 1:
        return NOWHERE
    rows, columns = both
    before = overlap(facts, (rows.mirrored, columns.mirrored), input)
    return range(y.bytes - x.bytes - before[-1], y.bytes - x.bytes - before[0] + 1, before.step) if before else NOWHERE


def scratch_bytes(facts: OperatorFacts, both: Windows | None = None) -> int:
    """Return the size of an im2col tile of four windows, needed if all outputs read the same channel."""
    x = facts.inputs[0]
    return (
        flat_convolution.scratch_bytes(_as_convolution(facts), both or windows(facts))
        if x is not None and x.dims[3] == 1
        else 0
    )


def _as_convolution(facts: OperatorFacts) -> OperatorFacts:
    """Return the facts of an ordinary convolution with these weights, (1, rows, columns, channels)."""
    x, weights, *others = facts.inputs
    assert weights is not None
    _, rows, columns, channels = weights.dims
    return OperatorFacts([x, TensorFacts(weights.type, (channels, rows, columns, 1)), *others], facts.outputs, None)
