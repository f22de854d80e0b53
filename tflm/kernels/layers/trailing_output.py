"""How near behind its input the output of a convolution may be written, by the order of TFLM's reference loops.

They go over batches, rows, columns and, for each window, channels: every element is written as soon as its window was
read. What P. Blacker and others call diagonal memory optimisation: an element may be written over what no later window
reads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.layers.geometry import axes
from tflm.kernels.overlap import FAR, NOWHERE, OperatorFacts

NEVER = np.int64(1) << np.int64(60)
"""The address of what is not read."""

Addresses = npt.NDArray[np.int64]


def behind_all_channels(operator: OperatorFacts, input: int) -> range:
    """CONV_2D: each channel of a window reads all channels of the input."""
    reads = _first_reads(operator) if input == 0 else None
    if reads is None:
        return NOWHERE
    channels, written = operator.outputs[0].dims[3], operator.outputs[0].itemsize
    begins = np.arange(len(reads), dtype=np.int64) * (channels * written)
    later = _from_the_next_on(reads)
    distance = np.max(begins + channels * written - later)
    if channels > 1:
        distance = max(distance, np.max(begins + (channels - 1) * written - np.minimum(reads, later)))
    return range(max(int(distance), 1 - FAR), FAR)


def behind_each_channel(operator: OperatorFacts, input: int) -> range:
    """DEPTHWISE_CONV_2D: a channel reads one channel of the input."""
    reads = _first_reads(operator) if input == 0 else None
    x, y = operator.inputs[0], operator.outputs[0]
    if reads is None or x is None or y.dims[3] % x.dims[3]:
        return NOWHERE
    channels, written, multiplier = y.dims[3], y.itemsize, y.dims[3] // x.dims[3]
    begins = np.arange(len(reads), dtype=np.int64) * (channels * written)
    later = _from_the_next_on(reads)
    distance = np.max(begins + channels * written - later)
    for channel in range(channels - 1):
        next_read = reads + (channel + 1) // multiplier * x.itemsize
        distance = max(distance, np.max(begins + (channel + 1) * written - np.minimum(next_read, later)))
    return range(max(int(distance), 1 - FAR), FAR)


def _first_reads(operator: OperatorFacts) -> Addresses | None:
    """For each window, the lowest byte of the input that it reads; None where that is not known."""
    x, weights, y, options = operator.inputs[0], operator.inputs[1], operator.outputs[0], operator.options
    if x is None or weights is None or not len(x.dims) == len(weights.dims) == len(y.dims) == 4 or options is None:
        return None
    of: Any = options
    strides, dilations = (of.stride_h, of.stride_w), (of.dilation_h_factor, of.dilation_w_factor)
    try:
        both = axes(of.padding, x.dims[1:3], weights.dims[1:3], y.dims[1:3], strides, dilations)
    except OperatorError:
        return None
    if min(*x.dims, *y.dims) < 1 or x.dims[0] != y.dims[0] or 0 in dilations:
        return None
    rows, columns = (_first_inside(axis) for axis in both)
    inside = rows[:, np.newaxis] * x.dims[2] + columns
    inside[rows >= x.dims[1]] = NEVER
    inside[:, columns >= x.dims[2]] = NEVER
    image = np.arange(x.dims[0], dtype=np.int64)[:, np.newaxis] * (x.dims[1] * x.dims[2])
    places = np.where(inside.reshape(-1) == NEVER, NEVER, image + inside.reshape(-1))
    return np.where(places == NEVER, NEVER, places * (x.dims[3] * x.itemsize)).reshape(-1)


def _first_inside(axis: Any) -> Addresses:
    """For each window the first of its taps that is not before the image."""
    begins = np.arange(axis.windows, dtype=np.int64) * axis.stride - axis.before
    before = np.maximum(-begins, 0)
    skipped = -(-before // axis.dilation)
    inside: Addresses = np.where(skipped < axis.taps, begins + skipped * axis.dilation, axis.size)
    return inside


def _from_the_next_on(reads: Addresses) -> Addresses:
    """For each window, the lowest byte that a later one reads."""
    lowest = np.minimum.accumulate(reads[::-1])[::-1]
    return np.append(lowest[1:], NEVER)
