"""Convolve images of one channel, or a few windows, without an im2col tile.

Weights of four channels are packed in a word, as in `dense`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.c.kernels import convolution, windows_in_place
from tflm.c.kernels.convolution import Layer, bind_layer, layer_of, part_of
from tflm.c.kernels.dense import CHANNELS, OFFSET, RUN, bind_vectors, words_of
from tflm.c.kernels.encoded import bind_encoded_vectors, bind_encoded_windows
from tflm.c.kernels.im2col import WINDOWS
from tflm.c.kernels.packed_sums import (
    LARGEST_WORD_SUM,
    OUTER_BYTES,
    WORD_UPPER,
    lower_sum,
    turned,
    upper_sum,
    with_word,
)
from tflm.c.kernels.part import NEVER, Part, first_places
from tflm.c.kernels.requantization import CONSTANTS, Clamp, Rounding
from tflm.compiler.intrinsics import LONG_MULTIPLY, int8_from, int32_from
from tflm.compiler.language import DONE, Int8s, Int32s, Step, kernel, standalone, unrolled
from tflm.delegates.compiled.casts import as_int64
from tflm.kernels.layers.convolution import OpDataConv
from tflm.kernels.layers.geometry import Axis, window_fields
from tflm.kernels.layers.trailing_output import Windows, windows
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.overlap import FAR, NOWHERE, OperatorFacts
from tflm.kernels.reference import conv_2d

NARROW_INTEGERS = True

SMALL = 64
"""Maximum number of products in a window for which an im2col tile is used."""


class FlatImage(NamedTuple):
    """Windows over an image of one channel; attributes as in `Axis`.

    Attributes:
        channels: number of output channels.
        zero_point: zero point of the input, which stands for elements outside of the image.
        activation_min, activation_max: limits of the output.
    """

    x_rows: int
    x_columns: int
    row_taps: int
    column_taps: int
    row_stride: int
    column_stride: int
    rows_before: int
    columns_before: int
    y_rows: int
    y_columns: int
    channels: int
    zero_point: int
    activation_min: int
    activation_max: int


@standalone
def multiply_window(
    rounding: Any,
    clamp: Any,
    x: Int8s,
    words: Int32s,
    table: Int32s,
    y: Int8s,
    begin: int,
    top: int,
    first: int,
    end: int,
    x_sum: int,
    entry: int,
    target: int,
    count: int,
    image: Any,
) -> None:
    """Set the outputs of a window for four channels.

    Args:
        begin: index of the window's first element in the image.
        top: the window's first row, which can be outside of the image.
        first, end: range of the taps in each row that are inside of the image.
        x_sum: sum of the window's elements.
        entry, target: index of the first channel in the table and in y.
        count: number of channels, up to four.
    """
    zero_point, taps, x_rows, x_row = image.zero_point, image.column_taps, image.x_rows, image.x_columns
    rounds = (end - first) >> 2
    rest = (end - first) & 3 if LONG_MULTIPLY else end - first
    sums03 = as_int64(LARGEST_WORD_SUM)
    sums21 = as_int64(LARGEST_WORD_SUM)
    for row in range(top, top + image.row_taps):
        is_inside = row >= 0 and row < x_rows
        inner = first if is_inside else taps
        for _k in range(inner):
            word = words[0]
            sums03, sums21 = with_word(sums03, word, zero_point), with_word(sums21, turned(word), zero_point)
            words = int32_from(words, 1)
        if is_inside:
            elements = int8_from(x, begin + first)
            if LONG_MULTIPLY:
                for _k in range(rounds):
                    for k in unrolled(4):
                        sums03 += as_int64(words[k] & OUTER_BYTES) * elements[k]
                        sums21 += as_int64(turned(words[k]) & OUTER_BYTES) * elements[k]
                    words = int32_from(words, 4)
                    elements = int8_from(elements, 4)
            for k in range(rest):
                word, element = words[0], elements[k]
                sums03, sums21 = with_word(sums03, word, element), with_word(sums21, turned(word), element)
                words = int32_from(words, 1)
            for _k in range(end, taps):
                word = words[0]
                sums03, sums21 = with_word(sums03, word, zero_point), with_word(sums21, turned(word), zero_point)
                words = int32_from(words, 1)
        begin += x_row
    lower = -LARGEST_WORD_SUM - OFFSET * x_sum
    total0 = lower_sum(sums03, WORD_UPPER) + lower
    total1 = upper_sum(sums21, WORD_UPPER)
    total2 = lower_sum(sums21, WORD_UPPER) + lower
    total3 = upper_sum(sums03, WORD_UPPER)
    for each in range(count):
        total = total0 + table[entry]
        value = rounding(total, table[entry + 1], table[entry + 2], table[entry + 3])
        y[target + each] = clamp(value, image.activation_min, image.activation_max)
        total0, total1, total2 = total1, total2, total3
        entry += CONSTANTS


@kernel
def convolve_flat(
    rounding: Rounding, clamp: Clamp, x: Int8s, weights: Int32s, table: Int32s, y: Int8s, image: FlatImage
) -> int:
    """Multiply windows of an image of one channel by the weights of each output channel.

    Args:
        weights: words of four channels, for one element of the window after the other.
        table: bias, significand, addend and shift of each channel.
    """
    channels, zero_point = image.channels, image.zero_point
    taps = image.column_taps
    target = 0
    for i in range(image.y_rows):
        top = i * image.row_stride - image.rows_before
        for j in range(image.y_columns):
            left = j * image.column_stride - image.columns_before
            first = min(max(-left, 0), taps)
            end = max(min(image.x_columns - left, taps), first)
            x_sum = zero_point * (taps - (end - first)) * image.row_taps
            for row in range(top, top + image.row_taps):
                if row >= 0 and row < image.x_rows:
                    at = row * image.x_columns + left
                    for k in range(first, end):
                        x_sum += x[at + k]
                else:
                    x_sum += zero_point * (end - first)
            entry = 0
            words = int32_from(weights, 0)
            for channel in range(0, channels, CHANNELS):
                count = min(channels - channel, CHANNELS)
                begin = top * image.x_columns + left
                multiply_window(
                    rounding, clamp, x, words, table, y, begin, top, first, end, x_sum, entry, target, count, image
                )
                words = int32_from(words, taps * image.row_taps)
                entry += CHANNELS * CONSTANTS
                target += count
    return DONE


def is_flat(rows: Axis, columns: Axis, x: tuple[int, ...], itemsize: int) -> bool:
    """Whether windows of an image with one channel are read in place, because an im2col tile would take much memory.

    Args:
        x: (batches, rows, columns, channels).
    """
    products = rows.taps * columns.taps
    return itemsize == 1 and x[3] == 1 and rows.dilation == columns.dilation == 1 and SMALL < products <= RUN


def are_vectors(rows: Axis, columns: Axis, itemsize: int) -> bool:
    """Whether the elements of each window are adjacent, and the windows too few for an im2col tile to pay."""
    is_whole = columns.windows == 1 and columns.before == 0 and columns.taps == columns.size
    is_inside = rows.before <= 0 and rows.stop <= rows.size and rows.dilation == columns.dilation == 1
    return itemsize == 1 and rows.windows < WINDOWS and is_whole and is_inside


def bind_windows(
    layer: Layer,
    rows: Axis,
    columns: Axis,
    x: npt.NDArray[Any],
    y: npt.NDArray[Any],
    stored: npt.NDArray[Any] | None = None,
) -> list[Step] | None:
    """Return the steps that set y to the windows of x times the weights of a layer; None if sums can exceed 32 bits.

    Args:
        x, y: (batches, rows, columns, channels).
        stored: the tensor with the layer's weights, in their order; it may be encoded.
    """
    is_one_group = len(layer.weights) == 1
    if is_one_group and are_vectors(rows, columns, x.itemsize):
        return _bind_vectors(layer, rows, columns, x, y, stored)
    if stored is not None and not (is_one_group and is_flat(rows, columns, x.shape, x.itemsize)):
        encoded = bind_encoded_windows(layer, rows, columns, x, y, stored)
        if encoded is not None:
            return encoded
    if windows_in_place.has_long_runs(columns, layer.weights.shape[4], x.shape, x.itemsize):
        return windows_in_place.bind_layer(layer, rows, columns, x, y)
    is_one_channel = is_one_group and is_flat(rows, columns, x.shape, x.itemsize)
    return (_bind_flat if is_one_channel else bind_layer)(layer, rows, columns, x, y)


def _bind_vectors(
    layer: Layer,
    rows: Axis,
    columns: Axis,
    x: npt.NDArray[Any],
    y: npt.NDArray[Any],
    stored: npt.NDArray[Any] | None,
) -> list[Step] | None:
    step = rows.stride * columns.size * x.shape[3]
    vectors = [(of_x[-rows.before :].reshape(-1), of_y.reshape(rows.windows, -1)) for of_x, of_y in zip(x, y)]
    bound = [None if stored is None else bind_encoded_vectors(layer, *arrays, stored, 0, step) for arrays in vectors]
    if None in bound:
        bound = [bind_vectors(layer, *arrays, step) for arrays in vectors]
    return None if None in bound else [step for steps in bound for step in steps or ()]


def _bind_flat(layer: Layer, rows: Axis, columns: Axis, x: npt.NDArray[Any], y: npt.NDArray[Any]) -> list[Step] | None:
    scaling = layer.requantizer(x.dtype, y.dtype)
    if scaling is None:
        return None
    image = FlatImage(
        x_rows=rows.size,
        x_columns=columns.size,
        **window_fields(rows, columns),
        y_rows=rows.windows,
        y_columns=columns.windows,
        channels=y.shape[3],
        zero_point=layer.zero_point,
        activation_min=scaling.activation_min,
        activation_max=scaling.activation_max,
    )
    weights = words_of(layer.weights.reshape(y.shape[3], -1).astype(np.int64))
    names = {"rounding": scaling.rounding, "clamp": scaling.clamp, "weights": weights, "table": scaling.table}
    return [convolve_flat.step(**names, x=x[i], y=y[i], image=image) for i in range(len(x))]


def bind_conv_2d(context: KernelContext, node: Node, part: Part | None = None) -> Sequence[Step] | None:
    """Bind CONV_2D."""
    x, weights, bias, y, constant = conv_2d.INPUTS.bound(node)
    op: OpDataConv = node.op_data
    if not constant or op.multiplier is None:
        return None
    rows, x, y, _ = part_of(part, op.rows, x, y)
    groups = x.shape[3] // weights.shape[3]
    by_group = weights[: y.shape[3]].reshape(groups, -1, *weights.shape[1:])
    layer = layer_of(by_group, bias, op, op.input_zero_point)
    return bind_windows(layer, rows, op.columns, x, y, node.eval_input(conv_2d.INPUTS.weights).elements)


def overlap(facts: OperatorFacts, both: Windows | None = None, input: int = 0) -> range:
    """Return how many bytes after the output's first byte the input may begin. Windows are as given, or as the options
    say."""
    x, y, both = facts.inputs[0], facts.outputs[0], both or windows(facts)
    weights = facts.inputs[1]
    if input or x is None or weights is None or both is None or x.dims[0] != 1:
        return NOWHERE
    if windows_in_place.has_long_runs(both[1], weights.dims[3], x.dims, x.itemsize):
        return windows_in_place.overlap(facts, both)
    if not are_vectors(*both, x.itemsize) and not is_flat(*both, x.dims, x.itemsize):
        return convolution.overlap(facts, both)
    reads = first_places(*both)
    seen = reads < NEVER
    # Each window is read once for every four channels.
    ends = np.arange(1, len(reads) + 1, dtype=np.int64)
    distances = ends[seen] * (y.dims[3] * y.itemsize) - reads[seen] * (x.dims[3] * x.itemsize)
    return range(int(distances.max(initial=1 - FAR)), FAR)


def scratch_bytes(facts: OperatorFacts, both: Windows | None = None) -> int:
    """Return the size of the im2col tile of four windows, if one is used."""
    x, weights, both = facts.inputs[0], facts.inputs[1], both or windows(facts)
    assert x is not None
    assert weights is not None
    assert both is not None
    if windows_in_place.has_long_runs(both[1], weights.dims[3], x.dims, x.itemsize):
        return 0
    is_one_group = weights.dims[3] == x.dims[3]
    if is_one_group and (are_vectors(*both, x.itemsize) or is_flat(*both, x.dims, x.itemsize)):
        return 0
    return convolution.scratch_bytes(facts, both)
