"""FULLY_CONNECTED on small processors: a vector times the weights of four channels, which share a word.

A word without its two middle bytes is w0 + w3 * 2^24, and the same of the word turned by 16 bits w2 + w1 * 2^24. One
long multiplication by an element adds to the sums of two channels. The lower of them are positive, so that they take
nothing from the upper ones: their weights are held with 128 added.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.c.kernels.convolution import Layer, bind_layer, layer_of, scratch_of
from tflm.c.kernels.held_windows import WINDOWS
from tflm.c.kernels.part import Part
from tflm.c.kernels.requantization import CONSTANTS, Clamp, Rounding
from tflm.compiler.intrinsics import int8_from, int32_from
from tflm.compiler.language import DONE, Elements, Int8s, Int32s, Step, inlined, kernel
from tflm.delegates.compiled.casts import as_int32, as_int64
from tflm.kernels.layers.geometry import Axis
from tflm.kernels.layers.trailing_output import Windows
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.overlap import OperatorFacts
from tflm.kernels.reference import fully_connected

NARROW_INTEGERS = True

CHANNELS = 4
"""Of a word."""

OUTER_BYTES = -0xFFFF01
"""A mask of the lowest and the highest byte of a word."""

OFFSET = 128
"""Added to the weights of channels 0 and 2 of a word."""

UPPER = 24
"""Bits below the second of two weights."""

LOWER = (1 << UPPER) - 1

LARGEST_LOWER_SUM = 1 << UPPER - 1

RUN = 256
"""The most products of a sum of weights with 128 added: each is below 2^15."""


class Vectors(NamedTuple):
    """Vectors that are multiplied.

    Attributes:
        total, depth, x_step: how many there are, their elements, and from the start of one to the next.
        channels: of the output.
        lower, upper: what is to be taken off the weights of channels 0 and 2, and of channels 1 and 3 of a word.
        least, most: of the output.
    """

    total: int
    depth: int
    x_step: int
    channels: int
    lower: int
    upper: int
    least: int
    most: int


@inlined
def turned(word: int) -> Any:
    """A word with its halves exchanged."""
    return as_int32((as_int64(word) << 16) | ((word >> 16) & 0xFFFF))


@kernel
def multiply_words(
    rounding: Rounding, clamp: Clamp, x: Int8s, weights: Int32s, table: Int32s, y: Elements, vectors: Vectors
) -> int:
    """Vectors times the weights of each channel.

    Args:
        weights: words of four channels, of one element after the other.
        table: bias, significand, addend and shift of each channel.
    """
    depth, channels, least, most = vectors.depth, vectors.channels, vectors.least, vectors.most
    for vector in range(vectors.total):
        begin = vector * vectors.x_step
        x_sum = 0
        for k in range(depth):
            x_sum += x[begin + k]
        words = int32_from(weights, 0)
        row = 0
        target = vector * channels
        for channel in range(0, channels, CHANNELS):
            total0 = -vectors.lower * x_sum
            total1 = -vectors.upper * x_sum
            total2 = total0
            total3 = total1
            elements = int8_from(x, begin)
            for run in range(0, depth, RUN):
                sums03 = as_int64(LARGEST_LOWER_SUM)
                sums21 = as_int64(LARGEST_LOWER_SUM)
                length = min(depth - run, RUN)
                for _round in range(length >> 2):
                    sums03 += as_int64(words[0] & OUTER_BYTES) * elements[0]
                    sums21 += as_int64(turned(words[0]) & OUTER_BYTES) * elements[0]
                    sums03 += as_int64(words[1] & OUTER_BYTES) * elements[1]
                    sums21 += as_int64(turned(words[1]) & OUTER_BYTES) * elements[1]
                    sums03 += as_int64(words[2] & OUTER_BYTES) * elements[2]
                    sums21 += as_int64(turned(words[2]) & OUTER_BYTES) * elements[2]
                    sums03 += as_int64(words[3] & OUTER_BYTES) * elements[3]
                    sums21 += as_int64(turned(words[3]) & OUTER_BYTES) * elements[3]
                    words = int32_from(words, 4)
                    elements = int8_from(elements, 4)
                for _k in range(length & 3):
                    sums03 += as_int64(words[0] & OUTER_BYTES) * elements[0]
                    sums21 += as_int64(turned(words[0]) & OUTER_BYTES) * elements[0]
                    words = int32_from(words, 1)
                    elements = int8_from(elements, 1)
                total0 += as_int32(sums03 & LOWER) - LARGEST_LOWER_SUM
                total1 += as_int32(sums21 >> UPPER)
                total2 += as_int32(sums21 & LOWER) - LARGEST_LOWER_SUM
                total3 += as_int32(sums03 >> UPPER)
            for _each in range(min(channels - channel, CHANNELS)):
                total = total0 + table[row]
                y[target] = clamp(rounding(total, table[row + 1], table[row + 2], table[row + 3]), least, most)
                total0, total1, total2 = total1, total2, total3
                row += CONSTANTS
                target += 1
    return DONE


def words_of(weights: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Weights (channels, depth) as words (quadruples of channels, depth), filled up with zeros."""
    channels, depth = weights.shape
    filled = np.zeros((-(-channels // CHANNELS) * CHANNELS, depth), np.int64)
    filled[:channels] = weights
    by_word = filled.reshape(-1, CHANNELS, depth).transpose(0, 2, 1) + np.array([OFFSET, 0, OFFSET, 0], np.int64)
    words = np.ascontiguousarray(by_word, np.uint8).view("<u4")[..., 0]
    return words.astype(np.uint32).view(np.int32)


def bind_vectors(layer: Layer, x: npt.NDArray[Any], y: npt.NDArray[Any], x_step: int = 0) -> list[Step] | None:
    """The step that sets y (count, channels) to vectors in x times the weights of a layer of one window.

    None where 32 bits do not hold the sums, or weights have more than 8 bits.

    Args:
        x_step: from the begin of a vector to that of the next one; without it, x is (count, depth).
    """
    count, channels = y.shape
    depth = layer.weights[0, 0].size
    scaling = layer.requantizer(x.dtype, y.dtype)
    weights = layer.weights.reshape(channels, depth).astype(np.int64)
    lowest, highest = int(weights.min()), int(weights.max())
    # Weights of 8 bits, from which a zero point was taken off.
    zero_point = max(-128 - lowest, min(127 - highest, 0))
    if scaling is None or x.dtype != np.int8 or lowest + zero_point < -128 or highest + zero_point > 127:
        return None
    words = words_of(weights + zero_point)
    vectors = Vectors(
        count, depth, x_step or depth, channels, OFFSET + zero_point, zero_point, scaling.least, scaling.most
    )
    return [
        multiply_words.step(
            rounding=scaling.rounding,
            clamp=scaling.clamp,
            x=x,
            weights=words,
            table=scaling.table,
            y=y,
            vectors=vectors,
        )
    ]


def bind(context: KernelContext, node: Node, part: Part | None = None) -> Sequence[Step] | None:
    """FULLY_CONNECTED."""
    x, weights, bias, y, constant = fully_connected.bound(node)
    if not constant or x.dtype == np.float32:
        return None
    op: fully_connected.OpDataFullyConnected = node.op_data
    centred = weights.astype(np.int16) - np.int16(op.weights_zero_point)
    layer = layer_of(centred[np.newaxis, :, np.newaxis, np.newaxis], bias, op, op.input_zero_point)
    count = x.shape[1]
    if x.dtype == np.int8 and (count < WINDOWS or op.weights_zero_point):
        return bind_vectors(layer, x[0], y[0])
    if count < WINDOWS or op.weights_zero_point:
        return None
    return bind_layer(layer, Axis(1, 1, 1), Axis(count, 1, count), x[:, np.newaxis], y[:, np.newaxis])


def scratch_bytes(facts: OperatorFacts, windows: Windows | None) -> int:
    """Of four vectors that are multiplied at a time."""
    x, weights = facts.inputs[:2]
    assert x is not None
    assert weights is not None
    depth = weights.dims[-1]
    vectors = facts.outputs[0].elements // max(facts.outputs[0].dims[-1], 1)
    return scratch_of(depth, x.itemsize) if vectors >= WINDOWS else 0
