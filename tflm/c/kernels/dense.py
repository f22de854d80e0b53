"""FULLY_CONNECTED on small processors: a vector of bytes times the weights of four channels, which are packed in a
word.

One multiplication by an element covers the lowest and the highest byte of a word, another one those of the word rotated
by 16 bits: see `packed_sums`. The lowest byte is unsigned: it holds a weight plus 128.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.c.kernels import dsp, helium, thumb
from tflm.c.kernels.convolution import Layer, bind_layer, layer_of, packed_weights, tables_of_pairs
from tflm.c.kernels.encoded import bind_encoded_vectors, bind_encoded_windows, is_encoded
from tflm.c.kernels.im2col import DEPTH, WINDOWS, both_of, joined
from tflm.c.kernels.packed_sums import LARGEST_WORD_SUM, WORD_UPPER, lower_sum, turned, upper_sum, with_word
from tflm.c.kernels.part import Part
from tflm.c.kernels.wide_windows import WIDE_RUN, WideVectors, multiply_wide
from tflm.compiler.intrinsics import elements_from, int8_from, int32_from
from tflm.compiler.language import DONE, Elements, Int8s, Int32s, Step, assembled, inlined, kernel, standalone, unrolled
from tflm.delegates.compiled.casts import as_int64
from tflm.delegates.compiled.requantization import CONSTANTS, Clamp, Limits, Requantizer, Rounding
from tflm.kernels.layers.geometry import Axis
from tflm.kernels.node import Node
from tflm.kernels.reference import fully_connected

CHANNELS = 4
"""Number of channels in a word."""

OFFSET = 128
"""Offset added to the weights of channels 0 and 2 of a word."""

RUN = 256
"""Maximum number of products in a sum of weights with the offset: each product is below 2^15."""


class Vectors(NamedTuple):
    """Constants of a product of vectors and weights.

    Attributes:
        total, depth, x_step: number of vectors, their elements, and the step from one vector to the next.
        channels: number of output channels.
        run: number of products in a sum.
        lower, upper: amount by which stored weights exceed the real ones: for channels 0 and 2, and for channels 1 and
            3 of a word.
        offset: addend that the sums of channels 0 and 2 contain.
        activation_min, activation_max: limits of the output.
    """

    total: int
    depth: int
    x_step: int
    channels: int
    run: int
    lower: int
    upper: int
    offset: int
    activation_min: int
    activation_max: int


@inlined
def requantized(rounding: Any, clamp: Any, total: int, table: Any, row: int, limits: Limits) -> Any:
    """Return the output for a sum without its bias."""
    value = rounding(total + table[row], table[row + 1], table[row + 2], table[row + 3])
    return clamp(value, limits)


@assembled({helium.CONDITION: helium.sum_of_bytes, dsp.CONDITION: dsp.sum_of_bytes})
@standalone
def sum_of_bytes(elements: Int8s, count: int) -> int:
    """Return the sum of some elements."""
    total = 0
    for k in range(count):
        total += elements[k]
    return total


@assembled({f"{dsp.CONDITION} && LONG_MULTIPLY": dsp.sums_of_run, thumb.SHORT: thumb.sums_of_run})
@standalone
def sums_of_run(words: Int32s, elements: Int8s, length: int) -> tuple[Any, Any]:
    """Return the sums of products of some elements with the weights of four channels, packed in two pairs."""
    sums03 = as_int64(LARGEST_WORD_SUM)
    sums21 = as_int64(LARGEST_WORD_SUM)
    for _four in range(length >> 2):
        for k in unrolled(2):
            word03, word21 = words[2 * k], words[2 * k + 1]
            sums03 = with_word(with_word(sums03, word03, elements[k]), turned(word03), elements[k + 2])
            sums21 = with_word(with_word(sums21, word21, elements[k]), turned(word21), elements[k + 2])
        words = int32_from(words, 4)
        elements = int8_from(elements, 4)
    for k in range(length & 3):
        sums03 = with_word(sums03, words[k], elements[k])
        sums21 = with_word(sums21, turned(words[k]), elements[k])
    return sums03, sums21


@assembled({helium.CONDITION: helium.multiply_vector, dsp.CONDITION: dsp.multiply_vector})
@standalone
def multiply_vector(
    rounding: Any,
    clamp: Any,
    x: Int8s,
    words: Int32s,
    table: Int32s,
    y: Elements,
    depth: int,
    channels: int,
    limits: Limits,
    x_sum: int,
    upper: int,
    lower: int,
    offset: int,
    run: int,
) -> None:
    """Set the outputs of one vector; arguments as for `multiply_words`, and the sum of the vector's elements."""
    for channel in range(0, channels, CHANNELS):
        total0 = -lower * x_sum - offset
        total1 = -upper * x_sum
        total2 = total0
        total3 = total1
        for begin in range(0, depth, run):
            length = min(depth - begin, run)
            sums03, sums21 = sums_of_run(words, int8_from(x, begin), length)
            words = int32_from(words, length)
            total0 += lower_sum(sums03, WORD_UPPER)
            total1 += upper_sum(sums21, WORD_UPPER)
            total2 += lower_sum(sums21, WORD_UPPER)
            total3 += upper_sum(sums03, WORD_UPPER)
        row = channel * CONSTANTS
        y[channel] = requantized(rounding, clamp, total0, table, row, limits)
        if channel + 1 < channels:
            y[channel + 1] = requantized(rounding, clamp, total1, table, row + CONSTANTS, limits)
        if channel + 2 < channels:
            y[channel + 2] = requantized(rounding, clamp, total2, table, row + 2 * CONSTANTS, limits)
        if channel + 3 < channels:
            y[channel + 3] = requantized(rounding, clamp, total3, table, row + 3 * CONSTANTS, limits)


@kernel
def multiply_words(
    rounding: Rounding, clamp: Clamp, x: Int8s, weights: Int32s, table: Int32s, y: Elements, vectors: Vectors
) -> int:
    """Multiply vectors by the weights of each channel.

    Args:
        weights: as `paired_words` returns them.
        table: bias, significand, addend and shift of each channel, filled up to a multiple of four.
    """
    for _vector in range(vectors.total):
        multiply_vector(
            rounding,
            clamp,
            x,
            weights,
            table,
            y,
            vectors.depth,
            vectors.channels,
            Limits(vectors.activation_min, vectors.activation_max),
            sum_of_bytes(x, vectors.depth),
            vectors.upper,
            vectors.lower,
            vectors.offset,
            vectors.run,
        )
        x = int8_from(x, vectors.x_step)
        y = elements_from(y, vectors.channels)
    return DONE


class Rows(NamedTuple):
    """Constants of a product of vectors and the weights of one or two channels; attributes as in `Vectors`."""

    total: int
    depth: int
    x_step: int
    channels: int
    activation_min: int
    activation_max: int


@assembled({helium.CONDITION: helium.sum_of_products, dsp.CONDITION: dsp.sum_of_products})
@standalone
def sum_of_products(x: Int8s, weights: Int8s, count: int) -> int:
    """Return the sum of the products of some elements and the weights of a channel."""
    total = 0
    for k in range(count):
        total += x[k] * weights[k]
    return total


@assembled({helium.CONDITION: helium.sums_of_two, dsp.CONDITION: dsp.sums_of_two})
@standalone
def sums_of_two(x: Int8s, first: Int8s, second: Int8s, count: int) -> int:
    """Return the sum of the products of some elements and the weights of a channel, and in the upper 32 bits that for
    another one."""
    sum0, sum1 = 0, 0
    for k in range(count):
        sum0 += x[k] * first[k]
        sum1 += x[k] * second[k]
    both: int = joined(sum0, sum1)
    return both


@kernel
def multiply_rows(
    rounding: Rounding, clamp: Clamp, x: Int8s, weights: Int8s, table: Int32s, y: Elements, rows: Rows
) -> int:
    """Multiply vectors by the weights of one or two channels.

    Args:
        weights: those of one channel after the other.
        table: bias, significand, addend and shift of each channel.
    """
    activation_min, activation_max = rows.activation_min, rows.activation_max
    limits = Limits(activation_min, activation_max)
    for _vector in range(rows.total):
        if rows.channels == 1:
            first = sum_of_products(x, weights, rows.depth)
        else:
            first, second = both_of(sums_of_two(x, weights, int8_from(weights, rows.depth), rows.depth))
            y[1] = requantized(rounding, clamp, second, table, CONSTANTS, limits)
        y[0] = requantized(rounding, clamp, first, table, 0, limits)
        x = int8_from(x, rows.x_step)
        y = elements_from(y, rows.channels)
    return DONE


FEW = 2
"""Maximum number of channels whose weights are not packed in words."""


def words_of(weights: npt.NDArray[np.int64], offset: int = OFFSET) -> npt.NDArray[np.int32]:
    """Pack weights (channels, depth) as words (quadruples of channels, depth), padded with zeros.

    Args:
        offset: offset added to the weights of channels 0 and 2 of a word.
    """
    channels, depth = weights.shape
    filled = np.zeros((-(-channels // CHANNELS) * CHANNELS, depth), np.int64)
    filled[:channels] = weights
    by_word = filled.reshape(-1, CHANNELS, depth).transpose(0, 2, 1) + np.array([offset, 0, offset, 0], np.int64)
    words = np.ascontiguousarray(by_word, np.uint8).view("<u4")[..., 0]
    return words.astype(np.uint32).view(np.int32)


def table_of_fours(scaling: Requantizer, groups: int, channels: int) -> npt.NDArray[np.int32]:
    """Return the tables of channels (groups, channels, constants), padded to multiples of four channels."""
    tables = np.zeros((groups, -(-channels // CHANNELS) * CHANNELS, CONSTANTS), np.int32)
    tables[:, :channels] = scaling.table.reshape(groups, channels, CONSTANTS)
    return tables


def paired_words(weights: npt.NDArray[np.int64], offset: int = OFFSET) -> npt.NDArray[np.int32]:
    """Pack weights (channels, depth) as words (quadruples of channels, depth) for `sums_of_run`; arguments as in
    `words_of`.

    Of four consecutive elements, elements 0 and 2 share two words, and so do elements 1 and 3. One of the words has
    channels 0 and 3, the other channels 2 and 1. The outer bytes of a word belong to its first element; those of the
    rotated word to its second. Remaining elements have a word each.
    """
    words = words_of(weights, offset)
    fours = weights.shape[1] // 4
    quadruples, depth = words.shape
    by_byte = words.view(np.uint8).reshape(quadruples, depth, CHANNELS)
    by_half = by_byte[:, : 4 * fours].reshape(quadruples, fours, 2, 2, CHANNELS)
    pairs = by_half[:, :, [0, 1, 1, 0], :, [[0, 3, 0, 3], [2, 1, 2, 1]]].transpose(2, 3, 4, 0, 1)
    words[:, : 4 * fours] = np.ascontiguousarray(pairs, None).reshape(quadruples, 16 * fours).view(np.int32)
    return words


def bind_vectors(layer: Layer, x: npt.NDArray[Any], y: npt.NDArray[Any], x_step: int = 0) -> list[Step] | None:
    """Return the step that sets y (count, channels) to vectors in x times the weights of a layer with one window.

    None if sums can exceed 32 bits, or weights have more than 8 bits.

    Args:
        x_step: step from one vector to the next; without it, x is (count, depth).
    """
    count, channels = y.shape
    depth = layer.weights[0, 0].size
    scaling = layer.requantizer(x.dtype, y.dtype)
    weights = layer.weights.reshape(channels, depth).astype(np.int64)
    lowest, highest = int(weights.min()), int(weights.max())
    # 8-bit weights with their zero point subtracted.
    zero_point = max(-128 - lowest, min(127 - highest, 0))
    if scaling is None or x.dtype != np.int8 or lowest + zero_point < -128 or highest + zero_point > 127:
        return None
    names = {"rounding": scaling.rounding, "clamp": scaling.clamp, "x": x, "y": y}
    if channels <= FEW and not zero_point:
        rows = Rows(count, depth, x_step or depth, channels, scaling.activation_min, scaling.activation_max)
        return [multiply_rows.step(**names, weights=weights.astype(np.int8), table=scaling.table, rows=rows)]
    words = paired_words(weights + zero_point)
    lower = weights[[*range(0, channels, 4), *range(2, channels, 4)]] + zero_point + OFFSET
    run = depth if lower.sum(axis=1, dtype=np.int64).max() < LARGEST_WORD_SUM >> 7 else RUN
    vectors = Vectors(
        count,
        depth,
        x_step or depth,
        channels,
        run=run,
        lower=OFFSET + zero_point,
        upper=zero_point,
        offset=-(-depth // run) * LARGEST_WORD_SUM,
        activation_min=scaling.activation_min,
        activation_max=scaling.activation_max,
    )
    return [multiply_words.step(**names, weights=words, table=table_of_fours(scaling, 1, channels), vectors=vectors)]


def bind_wide_vectors(layer: Layer, x: npt.NDArray[Any], y: npt.NDArray[Any]) -> list[Step] | None:
    """Bind vectors as `bind_vectors` does, for 16-bit x and y; None, too, if sums can exceed 48 bits."""
    count, channels = y.shape
    scaling = layer.requantizer_of_runs(x.dtype, y.dtype)
    if scaling is None or layer.weights.min() < -128 or layer.weights.max() > 127:
        return None
    depth = x.shape[1]
    limit = WIDE_RUN if scaling.sums == "int64" else depth
    return [
        multiply_wide.step(
            rounding=scaling.rounding,
            clamp=scaling.clamp,
            start=scaling.sums,
            x=x,
            weights=packed_weights(layer.weights.reshape(1, channels, -1), DEPTH),
            table=tables_of_pairs(scaling, 1, channels),
            y=y,
            vectors=WideVectors(count, depth, limit, channels, scaling.activation_min, scaling.activation_max),
        )
    ]


def bind(node: Node, part: Part | None = None) -> Sequence[Step] | None:
    """Bind FULLY_CONNECTED."""
    x, weights, bias, y, constant = fully_connected.bound(node)
    if not constant or x.dtype == np.float32:
        return None
    op: fully_connected.OpDataFullyConnected = node.op_data
    centred = weights.astype(np.int16) - np.int16(op.weights_zero_point)
    layer = layer_of(centred[np.newaxis, :, np.newaxis, np.newaxis], bias, op, op.input_zero_point)
    count = x.shape[1]
    stored = node.eval_input(fully_connected.WEIGHTS).elements
    if x.dtype == np.int8 and (count < WINDOWS or op.weights_zero_point):
        encoded = bind_encoded_vectors(layer, x[0], y[0], stored, op.weights_zero_point)
        return bind_vectors(layer, x[0], y[0]) if encoded is None else encoded
    if op.weights_zero_point:
        return None
    if x.dtype == np.int16:
        return bind_wide_vectors(layer, x[0], y[0])
    windows = Axis(1, 1, 1), Axis(count, 1, count), x[:, np.newaxis], y[:, np.newaxis]
    encoded = bind_encoded_windows(layer, *windows, stored)
    return bind_layer(layer, *windows) if encoded is None else encoded


def bind_in_place(node: Node, part: Part | None = None) -> Sequence[Step] | None:
    """Bind an int8 FULLY_CONNECTED without scratch memory; None for encoded weights, which would have to be decoded."""
    x, weights, bias, y, constant = fully_connected.bound(node)
    if not constant or x.dtype != np.int8 or is_encoded(node.eval_input(fully_connected.WEIGHTS).elements):
        return None
    op: fully_connected.OpDataFullyConnected = node.op_data
    centred = weights.astype(np.int16) - np.int16(op.weights_zero_point)
    layer = layer_of(centred[np.newaxis, :, np.newaxis, np.newaxis], bias, op, op.input_zero_point)
    return bind_vectors(layer, x[0], y[0])
