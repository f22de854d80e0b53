"""Multiply windows of images by weights, reading the windows in place. This needs no im2col tile, but more loads.

Runs of adjacent elements are multiplied as vectors: 8-bit elements as in `dense`, 16-bit elements as in `wide_windows`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.c.kernels.convolution import Layer, layer_of, packed_weights
from tflm.c.kernels.dense import OFFSET, RUN, paired_words, sum_of_bytes, sums_of_run
from tflm.c.kernels.encoded import is_encoded
from tflm.c.kernels.im2col import CHANNELS as PAIR
from tflm.c.kernels.im2col import DEPTH, both_of
from tflm.c.kernels.packed_sums import LARGEST_WORD_SUM, WORD_UPPER, lower_sum, upper_sum
from tflm.c.kernels.part import NEVER, Part, first_places
from tflm.c.kernels.requantization import CONSTANTS, Clamp, Rounding
from tflm.c.kernels.wide_windows import sums_of_vector
from tflm.compiler.intrinsics import int8_from, int16_from, int32_from
from tflm.compiler.language import DONE, Int8s, Int16s, Int32s, Step, inlined, kernel
from tflm.kernels.layers.convolution import OpDataConv
from tflm.kernels.layers.geometry import Axis, window_fields
from tflm.kernels.layers.trailing_output import Windows, windows
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.overlap import FAR, NOWHERE, OperatorFacts
from tflm.kernels.reference import conv_2d

NARROW_INTEGERS = True

CHANNELS = 4
"""Number of channels whose weights are interleaved, and multiplied at a time."""


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
        limit: maximum number of 8-bit elements whose products are added at a time.
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
    limit: int
    activation_min: int
    activation_max: int


LONG = 16
"""Minimum number of elements for which multiplying a run separately pays."""

PIECES = 3
"""Number of pieces of a run: before the image, inside of it, and after it."""

BEFORE, INSIDE = 0, 1


@inlined
def length_of(piece: int, row: int, column: int, shape: Any) -> Any:
    """Return the number of elements in a piece of the run that begins at a row and a column."""
    before = min(max(-column, 0), shape.run_columns)
    if row < 0 or row >= shape.x_rows:
        before = shape.run_columns
    inside = max(min(shape.run_columns, shape.x_columns - column), before) - before
    behind = shape.run_columns - before - inside
    return (before if piece == BEFORE else inside if piece == INSIDE else behind) * shape.depth


@inlined
def is_inside(row: int, column: int, shape: Any) -> Any:
    """Whether a run is completely inside of the image."""
    return row >= 0 and row < shape.x_rows and column >= 0 and column + shape.run_columns <= shape.x_columns


@inlined
def elements_of(x: Int8s, outside: Int8s, piece: int, row: int, column: int, shape: Any) -> Any:
    """Return the address of a piece's elements."""
    elements = int8_from(outside, 0)
    if piece == INSIDE:
        elements = int8_from(x, (row * shape.x_columns + max(column, 0)) * shape.x_step)
    return elements


@kernel
def convolve_runs(
    rounding: Rounding,
    clamp: Clamp,
    x: Int8s,
    outside: Int8s,
    weights: Int32s,
    table: Int32s,
    y: Int8s,
    shape: Shape,
) -> int:
    """Multiply windows of an 8-bit image by weights.

    Args:
        outside: a run of elements for positions outside of the image.
        weights: for each four channels, the weights of one run after the other, packed by `paired_words`.
        table: bias, significand, addend and shift of each channel, padded to a multiple of four channels.
    """
    activation_min, activation_max, last = shape.activation_min, shape.activation_max, shape.channels - 1
    for window in range(shape.y_rows * shape.y_columns):
        i, j = window // shape.y_columns, window % shape.y_columns
        top, left = i * shape.row_stride - shape.rows_before, j * shape.column_stride - shape.columns_before
        x_sum = 0
        for row in range(shape.row_taps):
            for run in range(shape.runs):
                at, column = top + row * shape.row_dilation, left + run * shape.column_dilation
                is_whole = is_inside(at, column, shape)
                for piece in range(INSIDE if is_whole else BEFORE, INSIDE + 1 if is_whole else PIECES):
                    length = length_of(piece, at, column, shape)
                    if length > 0:
                        x_sum += sum_of_bytes(elements_of(x, outside, piece, at, column, shape), length)
        words, entry = int32_from(weights, 0), int32_from(table, 0)
        outputs = int8_from(y, i * shape.y_row + j * shape.y_step)
        for channel in range(0, shape.channels, CHANNELS):
            sum0, sum1, sum2, sum3 = entry[0] - OFFSET * x_sum, entry[4], entry[8] - OFFSET * x_sum, entry[12]
            for row in range(shape.row_taps):
                for run in range(shape.runs):
                    at, column = top + row * shape.row_dilation, left + run * shape.column_dilation
                    is_whole = is_inside(at, column, shape)
                    for piece in range(INSIDE if is_whole else BEFORE, INSIDE + 1 if is_whole else PIECES):
                        length = length_of(piece, at, column, shape)
                        elements = elements_of(x, outside, piece, at, column, shape)
                        for begin in range(0, length, shape.limit):
                            count = min(length - begin, shape.limit)
                            sums03, sums21 = sums_of_run(words, int8_from(elements, begin), count)
                            sum0 += lower_sum(sums03, WORD_UPPER) - LARGEST_WORD_SUM
                            sum1 += upper_sum(sums21, WORD_UPPER)
                            sum2 += lower_sum(sums21, WORD_UPPER) - LARGEST_WORD_SUM
                            sum3 += upper_sum(sums03, WORD_UPPER)
                            words = int32_from(words, count)
            # Missing channels are stored at the address of the last one, and then overwritten.
            outputs[min(channel + 3, last)] = clamp(
                rounding(sum3, entry[13], entry[14], entry[15]), activation_min, activation_max
            )
            outputs[min(channel + 2, last)] = clamp(
                rounding(sum2, entry[9], entry[10], entry[11]), activation_min, activation_max
            )
            outputs[min(channel + 1, last)] = clamp(
                rounding(sum1, entry[5], entry[6], entry[7]), activation_min, activation_max
            )
            outputs[channel] = clamp(rounding(sum0, entry[1], entry[2], entry[3]), activation_min, activation_max)
            entry = int32_from(entry, CHANNELS * CONSTANTS)
    return DONE


@kernel
def convolve_wide_runs(
    rounding: Rounding, clamp: Clamp, x: Int16s, weights: Int8s, table: Int32s, y: Int16s, shape: Shape
) -> int:
    """Multiply windows of a 16-bit image by weights. Elements outside of the image are 0.

    Args:
        weights: for each pair of channels, the weights of one run after the other, padded to an even number of
            elements.
        table: as in `convolve_runs`.
    """
    activation_min, activation_max, last = shape.activation_min, shape.activation_max, shape.channels - 1
    length = shape.run_columns * shape.depth
    for window in range(shape.y_rows * shape.y_columns):
        i, j = window // shape.y_columns, window % shape.y_columns
        top, left = i * shape.row_stride - shape.rows_before, j * shape.column_stride - shape.columns_before
        of_pair, entry = int8_from(weights, 0), int32_from(table, 0)
        outputs = int16_from(y, i * shape.y_row + j * shape.y_step)
        for channel in range(0, shape.channels, PAIR):
            sum0, sum1 = entry[0], entry[4]
            for row in range(shape.row_taps):
                for run in range(shape.runs):
                    at, column = top + row * shape.row_dilation, left + run * shape.column_dilation
                    inside = length_of(INSIDE, at, column, shape)
                    if inside > 0:
                        seen = int16_from(x, (at * shape.x_columns + max(column, 0)) * shape.x_step)
                        first = int8_from(of_pair, PAIR * length_of(BEFORE, at, column, shape))
                        more0, more1 = both_of(sums_of_vector(seen, first, inside // DEPTH))
                        if inside & 1:
                            more0 += seen[inside - 1] * first[PAIR * (inside - 1)]
                            more1 += seen[inside - 1] * first[PAIR * (inside - 1) + 1]
                        sum0, sum1 = sum0 + more0, sum1 + more1
                    of_pair = int8_from(of_pair, PAIR * (length + (length & 1)))
            outputs[min(channel + 1, last)] = clamp(
                rounding(sum1, entry[5], entry[6], entry[7]), activation_min, activation_max
            )
            outputs[channel] = clamp(rounding(sum0, entry[1], entry[2], entry[3]), activation_min, activation_max)
            entry = int32_from(entry, PAIR * CONSTANTS)
    return DONE


def bind_conv_2d(context: KernelContext, node: Node, part: Part | None = None) -> Sequence[Step] | None:
    """Bind an integer CONV_2D; None if sums can exceed 32 bits, or if weights are encoded, so that they would be
    decoded."""
    x, weights, bias, y, constant = conv_2d.INPUTS.bound(node)
    op: OpDataConv = node.op_data
    if not constant or op.multiplier is None or is_encoded(node.eval_input(conv_2d.INPUTS.weights).elements):
        return None
    groups = x.shape[3] // weights.shape[3]
    layer = layer_of(weights[: y.shape[3]].reshape(groups, -1, *weights.shape[1:]), bias, op, op.input_zero_point)
    return bind_layer(layer, op.rows, op.columns, x, y)


def bind_layer(
    layer: Layer,
    rows: Axis,
    columns: Axis,
    x: npt.NDArray[Any],
    y: npt.NDArray[Any],
    places: tuple[Positions, Positions] = (ALL, ALL),
) -> list[Step] | None:
    """Return the steps that set y to the windows of x times the weights of a layer; arguments as in `convolution`.

    Args:
        places: the rows and the columns of y that the windows set.
    """
    scaling = layer.requantizer(x.dtype, y.dtype)
    if scaling is None or (x.dtype != np.int8 and layer.zero_point):
        return None
    groups, channels, *_, depth = layer.weights.shape
    tables = np.zeros((groups, -(-channels // CHANNELS) * CHANNELS, CONSTANTS), np.int32)
    tables[:, :channels] = scaling.table.reshape(groups, channels, CONSTANTS)
    runs, run_columns = (1, columns.taps) if are_rows_runs(columns, depth, x.shape, x.itemsize) else (columns.taps, 1)
    by_run = layer.weights.astype(np.int64).reshape(groups, channels, rows.taps * runs, run_columns * depth)
    largest = int((by_run + OFFSET).sum(axis=3, dtype=np.int64).max(initial=0))
    outside = {"outside": np.full(run_columns * depth, layer.zero_point, np.int8)} if x.dtype == np.int8 else {}
    multiply, packed = (convolve_runs, words_of_runs) if outside else (convolve_wide_runs, pairs_of_runs)
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
        limit=run_columns * depth if largest < LARGEST_WORD_SUM >> 7 else RUN,
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
            **outside,
        )
        for batch in range(len(x))
        for group in range(groups)
    ]


def are_rows_runs(columns: Axis, depth: int, x: tuple[int, ...], itemsize: int) -> bool:
    """Whether each row of a window is a single run. If it has several columns, its pieces must have a multiple of four
    bytes.

    Args:
        depth: number of channels of a window.
        x: (batches, rows, columns, channels).
        itemsize: size of an element of x.
    """
    has_pieces = columns.leaves_image and depth * itemsize % 4 != 0
    return columns.dilation == 1 and x[3] == depth and not has_pieces


def has_long_runs(columns: Axis, depth: int, x: tuple[int, ...], itemsize: int) -> bool:
    """Whether 16-bit windows are multiplied faster in place than in an im2col tile; arguments as in `are_rows_runs`."""
    return itemsize == 2 and depth * (columns.taps if are_rows_runs(columns, depth, x, itemsize) else 1) >= LONG


def words_of_runs(weights: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Pack weights (channels, runs, elements) as words (quadruples of channels, runs, elements)."""
    return np.stack([paired_words(of_run) for of_run in weights.transpose(1, 0, 2)], 1)


def pairs_of_runs(weights: npt.NDArray[np.int64]) -> npt.NDArray[np.int8]:
    """Pack weights (channels, runs, elements) as (pairs of channels, runs, elements, 2)."""
    return np.ascontiguousarray(packed_weights(weights.transpose(1, 0, 2), DEPTH).transpose(1, 0, 2, 3), None)


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
