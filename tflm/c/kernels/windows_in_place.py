"""Multiply windows of images by weights, reading the windows in place. This needs no im2col tile, but more loads.

Runs of adjacent elements are multiplied as vectors: 8-bit elements as in `dense`, 16-bit elements as in `wide_windows`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.c.kernels import dsp, thumb
from tflm.c.kernels.convolution import Layer, packed_weights
from tflm.c.kernels.dense import (
    CHANNELS,
    paired_words,
    requantized,
    sum_of_bytes,
    sum_of_products,
    table_of_fours,
    words_of,
)
from tflm.c.kernels.im2col import CHANNELS as PAIR
from tflm.c.kernels.im2col import DEPTH, both_of, byte_of
from tflm.c.kernels.part import NEVER, first_places
from tflm.c.kernels.wide_windows import WIDE_RUN, sums_of_cells, sums_of_some
from tflm.compiler.intrinsics import DSP_ASSEMBLY, int8_from, int8_of, int16_from, int32_from
from tflm.compiler.language import (
    DONE,
    Int8s,
    Int16s,
    Int32s,
    Step,
    assembled,
    by_value,
    inlined,
    kernel,
    standalone,
    unrolled,
)
from tflm.delegates.compiled.casts import as_int32, as_int64
from tflm.delegates.compiled.requantization import CONSTANTS, Clamp, Limits, Rounding
from tflm.kernels.layers.geometry import Axis, Windows, window_fields, windows
from tflm.kernels.overlap import FAR, NOWHERE, OperatorFacts


class Positions(NamedTuple):
    """The first of some rows or columns, and the step to the next."""

    first: int
    step: int


ALL = Positions(0, 1)


class Shape(NamedTuple):
    """The windows of a convolution; attributes as in `Axis`.

    Attributes:
        x_step, y_step: step from a column to the next.
        y_row: step of the output from a row to the next.
        depth: number of input channels that are read, in one run.
        channels: number of output channels.
        runs, run_columns: number of runs of adjacent elements in a row of a window, a dilation apart, and number of
            columns in each.
        rows_together, cells_together, limit: maximum number of rows, of runs in a row, and of elements in a run, whose
            products with 16-bit elements are added in 32 bits.
        paired: mask of the number of 8-bit elements in a run whose weights are paired: -4, or 0 for none.
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
    y_rows: int
    y_columns: int
    y_row: int
    y_step: int
    channels: int
    runs: int
    run_columns: int
    rows_together: int
    cells_together: int
    limit: int
    paired: int
    activation_min: int
    activation_max: int


LONG = 16
"""Minimum number of elements for which multiplying a run separately pays."""


@inlined
def inside_of(first: int, step: int, taps: int, size: int) -> tuple[Any, Any]:
    """Return the number of taps before the image, and up to its end, for taps that are a step apart."""
    before, end = 0, taps
    if first < 0:
        before = min((step - 1 - first) // step, taps)
    if first + (taps - 1) * step >= size:
        end = max((max(size - first, 0) + step - 1) // step, before)
    return before, end


@inlined
def with_run(
    sum0: int, sum1: int, sum2: int, sum3: int, words: Int32s, elements: Int8s, zero_point: int, count: int, paired: int
) -> tuple[Any, Any, Any, Any]:
    """Add the products of a number of elements, without their zero point, to the sums of four channels."""
    fours = count & paired
    for four in range(0, fours, 4):
        for k in unrolled(2):
            word03, word21 = words[four + 2 * k], words[four + 2 * k + 1]
            first, second = elements[four + k] - zero_point, elements[four + k + 2] - zero_point
            sum0 += byte_of(word03, 24) * first + byte_of(word03, 8) * second
            sum1 += byte_of(word21, 0) * first + byte_of(word21, 16) * second
            sum2 += byte_of(word21, 24) * first + byte_of(word21, 8) * second
            sum3 += byte_of(word03, 0) * first + byte_of(word03, 16) * second
    for k in range(fours, count):
        word, element = words[k], elements[k] - zero_point
        sum0 += byte_of(word, 24) * element
        sum1 += byte_of(word, 16) * element
        sum2 += byte_of(word, 8) * element
        sum3 += byte_of(word, 0) * element
    return sum0, sum1, sum2, sum3


@by_value
class Inside(NamedTuple):
    """The elements of an 8-bit window that are inside of the image; attributes as in `set_window`."""

    zero_point: int
    rows: int
    cells: int
    length: int
    between: int
    x_row: int
    x_step: int
    paired: int


@assembled(
    {dsp.CONDITION: dsp.sums_of_window, thumb.LONG: thumb.sums_of_window_long, thumb.SHORT: thumb.sums_of_window_short}
)
@standalone
def sums_of_window(words: Int32s, x: Int8s, inside: Inside) -> tuple[Any, Any, Any, Any]:
    """Return the sums of a window for the first, the fourth, the third and the second of four channels; arguments as in
    `set_window`."""
    sum0, sum1, sum2, sum3 = 0, 0, 0, 0
    for _row in range(inside.rows):
        elements = int8_from(x, 0)
        for _cell in range(inside.cells):
            sum0, sum1, sum2, sum3 = with_run(
                sum0, sum1, sum2, sum3, words, elements, inside.zero_point, inside.length, inside.paired
            )
            words = int32_from(words, inside.length)
            elements = int8_from(elements, inside.length + inside.x_step)
        words = int32_from(words, inside.between)
        x = int8_from(x, inside.x_row)
    return as_int32(sum0), as_int32(sum3), as_int32(sum2), as_int32(sum1)


@assembled({dsp.CONDITION: dsp.set_window})
@standalone
def set_window(
    rounding: Any,
    clamp: Any,
    table: Int32s,
    words: Int32s,
    x: Int8s,
    inside: Inside,
    products: int,
    y: Int8s,
    channels: int,
    limits: Limits,
) -> None:
    """Set the outputs of a window from the elements that are inside of the image.

    Args:
        words, x: words of the first of these elements, and the elements.
        zero_point: subtracted from each element.
        rows, cells, length: number of the window's rows in the image, of cells in a row, and of adjacent elements in
            a cell.
        between: number of elements outside of the image from a row to the next.
        x_row, x_step: step from a row to the next, and from the end of a cell to the next.
        paired: see `Shape`.
        products: number of elements of a window, with those outside of the image.
    """
    for channel in range(0, channels, CHANNELS):
        sum0, sum3, sum2, sum1 = sums_of_window(words, x, inside)
        words = int32_from(words, products)
        last = min(channels - channel, CHANNELS) - 1
        # Channels that are not there are stored in the place of the last one, before it.
        value = rounding(sum3 + table[12], table[13], table[14], table[15])
        y[last] = clamp(value, limits)
        value = rounding(sum2 + table[8], table[9], table[10], table[11])
        y[min(last, 2)] = clamp(value, limits)
        value = rounding(sum1 + table[4], table[5], table[6], table[7])
        y[min(last, 1)] = clamp(value, limits)
        value = rounding(sum0 + table[0], table[1], table[2], table[3])
        y[0] = clamp(value, limits)
        table = int32_from(table, CHANNELS * CONSTANTS)
        y = int8_from(y, CHANNELS)


@kernel
def convolve_in_place(
    rounding: Rounding, clamp: Clamp, x: Int8s, weights: Int32s, table: Int32s, y: Int8s, shape: Shape, zero_point: int
) -> int:
    """Multiply windows of an 8-bit image by weights.

    Args:
        weights: for each four channels, words of all elements of a window, as `words_of` or `paired_words` returns
            them, without an offset.
        table: bias, significand, addend and shift of each channel, filled up to a multiple of four.
        zero_point: zero point of the image; elements outside of it count as this.
    """
    depth = shape.depth
    run = shape.column_taps * depth
    products = shape.row_taps * run
    x_row = shape.row_dilation * shape.x_columns * shape.x_step
    for i in range(shape.y_rows):
        top = i * shape.row_stride - shape.rows_before
        first_row, end_row = inside_of(top, shape.row_dilation, shape.row_taps, shape.x_rows)
        top += first_row * shape.row_dilation
        outputs = int8_from(y, i * shape.y_row)
        left = -shape.columns_before
        for _j in range(shape.y_columns):
            first, end = inside_of(left, shape.column_dilation, shape.column_taps, shape.x_columns)
            columns = end - first
            rows = end_row - first_row if columns > 0 else 0
            cells, length, x_step = 1, columns * depth, 0
            if shape.runs > 1:
                cells, length, x_step = columns, depth, shape.column_dilation * shape.x_step - depth
            at = (top * shape.x_columns + left + first * shape.column_dilation) * shape.x_step
            set_window(
                rounding,
                clamp,
                table,
                int32_from(weights, first_row * run + first * depth),
                int8_from(x, at),
                Inside(zero_point, rows, cells, length, run - columns * depth, x_row, x_step, shape.paired),
                products,
                outputs,
                shape.channels,
                Limits(shape.activation_min, shape.activation_max),
            )
            outputs = int8_from(outputs, shape.y_step)
            left += shape.column_stride
    return DONE


@assembled({dsp.CONDITION: dsp.sum_of_rows})
@standalone
def sum_of_rows(x: Int8s, weights: Int8s, rows: int, count: int, x_row: int, run: int) -> int:
    """Return the sum of the products of a window and the weights of a channel.

    Args:
        rows, count: number of rows, and of elements in each.
        x_row, run: step from a row to the next of the elements, and of the weights.
    """
    total = 0
    for _row in range(rows):
        total += sum_of_products(x, weights, count)
        x, weights = int8_from(x, x_row), int8_from(weights, run)
    return total


@assembled({dsp.CONDITION: dsp.sum_of_row_weights})
@standalone
def sum_of_row_weights(weights: Int8s, rows: int, count: int, run: int) -> int:
    """Return the sum of the same weights."""
    total = 0
    for _row in range(rows):
        total += sum_of_bytes(weights, count)
        weights = int8_from(weights, run)
    return total


@standalone
def set_alike(
    rounding: Any,
    clamp: Any,
    x: Int8s,
    weights: Int8s,
    table: Int32s,
    y: Int8s,
    windows: int,
    start: int,
    rows: int,
    count: int,
    x_row: int,
    run: int,
    step: int,
    y_step: int,
    limits: Limits,
) -> None:
    """Set the outputs of windows of the same size.

    Args:
        start: what the sums begin with.
        rows ... run: as in `sum_of_rows`.
        step, y_step: step from a window to the next of the elements, and of the outputs.
    """
    for _window in range(windows):
        total = start + sum_of_rows(x, weights, rows, count, x_row, run)
        y[0] = requantized(rounding, clamp, total, table, 0, limits)
        x, y = int8_from(x, step), int8_from(y, y_step)


@kernel
def convolve_one(
    rounding: Rounding,
    clamp: Clamp,
    x: Int8s,
    outside: Int32s,
    weights: Int8s,
    table: Int32s,
    y: Int8s,
    shape: Shape,
    together: int,
) -> int:
    """Multiply windows of an 8-bit image, whose rows are single runs, by the weights of one channel.

    Args:
        outside: the element that stands for all that are outside of the image, and the sum of its products with all
            weights.
        table: bias, significand, addend and shift.
        together: maximum number of rows of outputs that are set column by column.
    """
    depth, activation_min, activation_max = shape.depth, shape.activation_min, shape.activation_max
    limits = Limits(activation_min, activation_max)
    run = shape.column_taps * depth
    products = shape.row_taps * run
    x_row = shape.row_dilation * shape.x_columns * depth
    x_line, step = shape.row_stride * shape.x_columns * depth, shape.column_stride * depth
    zero_point = outside[0]
    top, lines_left = -shape.rows_before, shape.y_rows
    for _rows_together in range(shape.y_rows):
        first_row, end_row = inside_of(top, shape.row_dilation, shape.row_taps, shape.x_rows)
        rows = end_row - first_row
        lines = 1
        if together > 1 and rows == shape.row_taps:
            below = shape.x_rows - 1 - top - (shape.row_taps - 1) * shape.row_dilation
            lines = min(below // shape.row_stride + 1, lines_left, together)
        outputs = int8_from(y, 0)
        left = -shape.columns_before
        elements = int8_from(x, ((top + first_row * shape.row_dilation) * shape.x_columns + left) * depth)
        of_row = int8_from(weights, first_row * run)
        windows = shape.y_columns
        for _group in range(shape.y_columns):
            first, end = inside_of(left, 1, shape.column_taps, shape.x_columns)
            skipped, count = first * depth, (end - first) * depth
            seen = rows if count > 0 else 0
            same = 1
            if end - first == shape.column_taps:
                same += min((shape.x_columns - shape.column_taps - left) // shape.column_stride, windows - 1)
            of_window, start = int8_from(of_row, skipped), 0
            if zero_point != 0 and seen * count < products:
                start = outside[1] - zero_point * sum_of_row_weights(of_window, seen, count, run)
            of_line, targets = int8_from(elements, skipped), int8_from(outputs, 0)
            for _line in range(lines):
                set_alike(
                    rounding,
                    clamp,
                    of_line,
                    of_window,
                    table,
                    targets,
                    same,
                    start,
                    seen,
                    count,
                    x_row,
                    run,
                    step,
                    shape.y_step,
                    limits,
                )
                of_line, targets = int8_from(of_line, x_line), int8_from(targets, shape.y_row)
            outputs, elements = int8_from(outputs, same * shape.y_step), int8_from(elements, same * step)
            left += same * shape.column_stride
            windows -= same
            if windows == 0:
                break
        y = int8_from(y, lines * shape.y_row)
        top += lines * shape.row_stride
        lines_left -= lines
        if lines_left == 0:
            break
    return DONE


@by_value
class WideInside(NamedTuple):
    """The elements of a 16-bit window that are inside of the image; attributes as in `sums_together`."""

    rows: int
    cells: int
    length: int
    x_row: int
    x_step: int
    run: int
    padded: int
    between: int


@inlined
def sums_together(x: Int16s, weights: Int8s, inside: WideInside, shape: Any) -> tuple[Any, Any]:
    """Return the sums of products of a window for two channels.

    Args:
        rows, cells, length: number of the window's rows in the image, of cells in a row, and of elements in a cell.
        x_row, x_step: step from a row to the next, and from the end of a cell to the next.
        run, padded: number of weights of a row, and of a cell.
        between: weights from the last cell of a row to the first of the next row.
    """
    sum0, sum1 = 0, 0
    if DSP_ASSEMBLY:
        if inside.rows > 0:
            sum0, sum1 = both_of(
                sums_of_cells(
                    x, weights, inside.rows, inside.cells, inside.length, inside.x_row, inside.x_step, inside.between
                )
            )
    else:
        for row in range(inside.rows):
            for cell in range(inside.cells):
                of_cell = int16_from(x, row * inside.x_row + cell * (inside.length + inside.x_step))
                more0, more1 = sums_of_some(
                    of_cell, int8_from(weights, row * inside.run + cell * inside.padded), inside.length
                )
                sum0, sum1 = sum0 + more0, sum1 + more1
    return sum0, sum1


@inlined
def sums_in_parts(x: Int16s, weights: Int8s, inside: WideInside, shape: Any) -> tuple[Any, Any]:
    """Return the same sums in 64 bits, of parts that have no more than 32 bits; arguments as in `sums_together`."""
    sum0, sum1 = as_int64(0), as_int64(0)
    for row in range(0, inside.rows, shape.rows_together if DSP_ASSEMBLY else 1):
        for cell in range(0, inside.cells, shape.cells_together if DSP_ASSEMBLY else 1):
            for begin in range(0, inside.length, shape.limit):
                of_some = int16_from(x, row * inside.x_row + cell * (inside.length + inside.x_step) + begin)
                some_weights = int8_from(weights, row * inside.run + cell * inside.padded + PAIR * begin)
                count = min(inside.length - begin, shape.limit)
                if DSP_ASSEMBLY:
                    more0, more1 = both_of(
                        sums_of_cells(
                            of_some,
                            some_weights,
                            min(inside.rows - row, shape.rows_together),
                            min(inside.cells - cell, shape.cells_together),
                            count,
                            inside.x_row,
                            inside.x_step,
                            inside.between,
                        )
                    )
                else:
                    more0, more1 = sums_of_some(of_some, some_weights, count)
                sum0, sum1 = sum0 + more0, sum1 + more1
    return sum0, sum1


SUMS_OF_WINDOWS: dict[str, Callable[..., Any]] = {"int32": sums_together, "int64": sums_in_parts}
"""Functions that return the sums of a window, by the type of the sums."""

SumsOfWindow = Annotated[Callable[..., Any], SUMS_OF_WINDOWS]


@kernel
def convolve_wide_runs(
    rounding: Rounding,
    clamp: Clamp,
    sums: SumsOfWindow,
    x: Int16s,
    weights: Int32s,
    table: Int32s,
    y: Int16s,
    shape: Shape,
) -> int:
    """Multiply windows of a 16-bit image by weights. Elements outside of the image are 0.

    Args:
        weights: for two channels at a time, those of one run after the other, of an even number of elements; bytes in
            words.
        table: as of `convolve_in_place`.
    """
    activation_min, activation_max, last = shape.activation_min, shape.activation_max, shape.channels - 1
    limits = Limits(activation_min, activation_max)
    depth, padded = shape.depth, shape.run_columns * shape.depth
    padded = PAIR * (padded + (padded & 1))
    run = shape.runs * padded
    of_column = PAIR * depth if shape.runs == 1 else padded
    x_row = shape.row_dilation * shape.x_columns * shape.x_step
    for i in range(shape.y_rows):
        top = i * shape.row_stride - shape.rows_before
        first_row, end_row = inside_of(top, shape.row_dilation, shape.row_taps, shape.x_rows)
        top += first_row * shape.row_dilation
        outputs = int16_from(y, i * shape.y_row)
        left = -shape.columns_before
        for _j in range(shape.y_columns):
            first, end = inside_of(left, shape.column_dilation, shape.column_taps, shape.x_columns)
            columns = end - first
            rows = end_row - first_row if columns > 0 else 0
            cells, length, x_step = 1, columns * depth, 0
            if shape.runs > 1:
                cells, length, x_step = columns, depth, shape.column_dilation * shape.x_step - depth
            between = run - PAIR * cells * (length + (length & 1))
            seen = int16_from(x, (top * shape.x_columns + left + first * shape.column_dilation) * shape.x_step)
            of_pair, entry = int8_from(int8_of(weights), first_row * run + first * of_column), int32_from(table, 0)
            for channel in range(0, shape.channels, PAIR):
                sum0, sum1 = sums(
                    seen, of_pair, WideInside(rows, cells, length, x_row, x_step, run, padded, between), shape
                )
                sum0, sum1 = sum0 + entry[0], sum1 + entry[4]
                of_pair = int8_from(of_pair, shape.row_taps * run)
                outputs[min(channel + 1, last)] = clamp(rounding(sum1, entry[5], entry[6], entry[7]), limits)
                outputs[channel] = clamp(rounding(sum0, entry[1], entry[2], entry[3]), limits)
                entry = int32_from(entry, PAIR * CONSTANTS)
            outputs = int16_from(outputs, shape.y_step)
            left += shape.column_stride
    return DONE


def bind_layer(
    layer: Layer,
    rows: Axis,
    columns: Axis,
    x: npt.NDArray[Any],
    y: npt.NDArray[Any],
    places: tuple[Positions, Positions] = (ALL, ALL),
    *,
    can_overlap: bool = True,
) -> list[Step] | None:
    """Return the steps that set y to the windows of x times the weights of a layer; arguments as in `convolution`.

    Args:
        places: the rows and the columns of y that the windows set.
        can_overlap: whether y may overlap x as `overlap` returns.
    """
    groups, channels, *_, depth = layer.weights.shape
    runs, run_columns = (1, columns.taps) if are_rows_runs(columns, depth, x.shape, x.itemsize) else (columns.taps, 1)
    is_one, is_wide = channels == runs == 1, x.dtype != np.int8
    requantizer = layer.requantizer_of_runs if is_one or is_wide else layer.centred_requantizer
    scaling = requantizer(x.dtype, y.dtype)
    has_dilations = rows.dilation > 0 and columns.dilation > 0
    if scaling is None or not has_dilations or (is_wide and layer.zero_point):
        return None
    tables = table_of_fours(scaling, groups, channels)
    by_run = layer.weights.astype(np.int64).reshape(groups, channels, rows.taps * runs, run_columns * depth)
    paired = runs > 1 or depth % 4 == 0 or not columns.leaves_image
    length, products = by_run.shape[3], by_run[0, 0].size
    limit = products if scaling.sums == "int32" else WIDE_RUN
    others: dict[str, Any]
    packed: Callable[[npt.NDArray[np.int64]], npt.NDArray[Any]]
    if is_wide:
        multiply, others, packed = convolve_wide_runs, {"sums": scaling.sums}, pairs_of_runs
    elif is_one:
        multiply, packed = convolve_one, weights_of_one
        others = {"outside": outside_of_one(by_run, layer.zero_point), "together": 1 if can_overlap else rows.windows}
    else:
        multiply, others = convolve_in_place, {"zero_point": layer.zero_point}
        packed = words_of_pairs if paired else words_of_runs
    weights = [packed(group) for group in by_run]
    shape = Shape(
        x_rows=rows.size,
        x_columns=columns.size,
        x_step=x.shape[3],
        depth=depth,
        **window_fields(rows, columns),
        row_dilation=rows.dilation,
        column_dilation=columns.dilation,
        y_rows=rows.windows,
        y_columns=columns.windows,
        y_row=places[0].step * y[0, 0].size,
        y_step=places[1].step * y.shape[3],
        channels=channels,
        runs=runs,
        run_columns=run_columns,
        rows_together=min(max(limit // (runs * length), 1), rows.taps),
        cells_together=min(max(limit // length, 1), runs),
        limit=limit,
        paired=-4 if paired else 0,
        activation_min=scaling.activation_min,
        activation_max=scaling.activation_max,
    )
    first = places[0].first * y[0, 0].size + places[1].first * y.shape[3]
    return [
        multiply.step(
            rounding=scaling.rounding,
            clamp=scaling.clamp,
            x=x[batch].reshape(-1)[group * depth :],
            weights=weights[group],
            table=tables[group],
            y=y[batch].reshape(-1)[first + group * channels :],
            shape=shape,
            **others,
        )
        for batch in range(len(x))
        for group in range(groups)
    ]


def are_rows_runs(columns: Axis, depth: int, x: tuple[int, ...], itemsize: int) -> bool:
    """Whether each row of a window is a single run. 16-bit runs that the image cuts off must have an even length.

    Args:
        depth: number of channels of a window.
        x: (batches, rows, columns, channels).
        itemsize: size of an element of x.
    """
    has_pieces = itemsize == 2 and columns.leaves_image and depth % 2 != 0
    return columns.dilation == 1 and x[3] == depth and not has_pieces


def has_long_runs(columns: Axis, depth: int, x: tuple[int, ...], itemsize: int) -> bool:
    """Whether 16-bit windows are multiplied faster in place than in an im2col tile; arguments as in `are_rows_runs`."""
    return itemsize == 2 and depth * (columns.taps if are_rows_runs(columns, depth, x, itemsize) else 1) >= LONG


def words_of_runs(weights: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Pack weights (channels, runs, elements) as words (quadruples of channels, elements of all runs)."""
    return words_of(weights.reshape(len(weights), -1), 0)


def words_of_pairs(weights: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Like `words_of_runs`, with the weights of each run paired."""
    return np.stack([paired_words(of_run, 0) for of_run in weights.transpose(1, 0, 2)], 1)


def weights_of_one(weights: npt.NDArray[np.int64]) -> npt.NDArray[np.int8]:
    """Return the weights of one channel, which are not packed."""
    return weights.astype(np.int8)


def pairs_of_runs(weights: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Pack weights (channels, runs, elements) as bytes (pairs of channels, runs, elements, 2) in words."""
    pairs = packed_weights(weights.transpose(1, 0, 2), DEPTH).transpose(1, 0, 2, 3)
    return np.ascontiguousarray(pairs, None).reshape(len(pairs), -1).view(np.int32)


def outside_of_one(weights: npt.NDArray[np.int64], zero_point: int) -> npt.NDArray[np.int32]:
    """Return `outside` of `convolve_one`."""
    return np.array([zero_point, zero_point * weights.sum(dtype=np.int64)], np.int32)


def overlap(facts: OperatorFacts, both: Windows | None = None, input: int = 0) -> range:
    """Return how many bytes after the output's first byte the input may begin. Each window is read once for every four
    channels."""
    x, y, both = facts.inputs[0], facts.outputs[0], both or windows(facts)
    weights = facts.inputs[1]
    if input or x is None or weights is None or both is None or x.dims[0] != 1 or weights.dims[3] != x.dims[3]:
        return NOWHERE
    reads = first_places(*both)
    seen = reads < NEVER
    ends = np.arange(1, len(reads) + 1, dtype=np.int64)
    distances = ends[seen] * (y.dims[3] * y.itemsize) - reads[seen] * (x.dims[3] * x.itemsize)
    return range(int(distances.max(initial=1 - FAR)), FAR)
