"""How far the output of a convolution or pooling may overlap its input, from the order of its loops.

TFLM's reference loops run over batches, rows, columns and, for each window, channels, and write each element as soon as
its window is read. An element may overwrite input that no later window reads (P. Blacker et al.: diagonal memory
optimisation).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.layers.geometry import Axis, axes
from tflm.kernels.overlap import FAR, NOWHERE, OperatorFacts
from tflm.schema.options import Conv2DOptions, DepthwiseConv2DOptions, Pool2DOptions

NEVER = np.int64(1) << np.int64(60)
"""Address of an element that is never read."""

Addresses = npt.NDArray[np.int64]

Windows = tuple[Axis, Axis]
"""Windows along rows and columns."""


def behind_all_channels(operator: OperatorFacts, input: int, both: Windows | None = None) -> range:
    """CONV_2D: each channel of a window reads all channels of the input."""
    reads = first_reads(operator, both) if input == 0 else None
    if reads is None:
        return NOWHERE
    channels, written = operator.outputs[0].dims[3], operator.outputs[0].itemsize
    begins = np.arange(len(reads), dtype=np.int64) * (channels * written)
    later = _from_the_next_on(reads)
    distance = np.max(begins + channels * written - later)
    if channels > 1:
        distance = max(distance, np.max(begins + (channels - 1) * written - np.minimum(reads, later)))
    return range(max(int(distance), 1 - FAR), FAR)


def behind_each_channel(operator: OperatorFacts, input: int, both: Windows | None = None) -> range:
    """DEPTHWISE_CONV_2D and AVERAGE_POOL_2D: a channel reads one channel of the input."""
    reads = first_reads(operator, both) if input == 0 else None
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


def behind_each_window(operator: OperatorFacts, input: int, both: Windows | None = None) -> range:
    """MAX_POOL_2D: a window's output holds the largest element so far, so it is written before the window is read."""
    reads = first_reads(operator, both) if input == 0 else None
    if reads is None:
        return NOWHERE
    width = operator.outputs[0].dims[3] * operator.outputs[0].itemsize
    ends = np.arange(1, len(reads) + 1, dtype=np.int64) * width
    distance = np.max(ends - np.minimum(reads, _from_the_next_on(reads)))
    return range(max(int(distance), 1 - FAR), FAR)


def behind_blocks(operator: OperatorFacts, input: int, size: int, run: int) -> range:
    """Blocks of windows: all channels but the last of a whole block are written before the block's last read.

    Args:
        operator, input: as for any other `Overlap`.
        size: windows of a block.
        run: windows after which a new block begins. The rest at the end of a run forms blocks of one window.
    """
    reads = first_reads(operator) if input == 0 else None
    if reads is None:
        return NOWHERE
    channels, written = operator.outputs[0].dims[3], operator.outputs[0].itemsize
    windows = np.arange(len(reads), dtype=np.int64)
    whole = windows % run < run // size * size
    first = np.where(whole, windows - windows % run % size, windows)
    behind = np.where(whole, first + size, windows + 1)
    later = np.append(NEVER, _from_the_next_on(reads))[behind]  # from the first window after the block
    distance = np.max(behind * channels * written - later)
    if channels > 1:
        from_the_first_on = np.minimum(reads, _from_the_next_on(reads))[first]
        distance = max(distance, np.max((behind * channels - 1) * written - from_the_first_on))
    return range(max(int(distance), 1 - FAR), FAR)


def windows(operator: OperatorFacts) -> Windows | None:
    """Return the windows of a convolution or a pool along rows and columns; None if they are unknown."""
    x, y, options = operator.inputs[0], operator.outputs[0], operator.options
    weights = operator.inputs[1] if len(operator.inputs) > 1 else None
    if x is None or not len(x.dims) == len(y.dims) == 4 or min(*x.dims, *y.dims) < 1 or x.dims[0] != y.dims[0]:
        return None
    if isinstance(options, Pool2DOptions):
        taps, dilations = (options.filter_height, options.filter_width), (1, 1)
    elif isinstance(options, Conv2DOptions | DepthwiseConv2DOptions) and weights is not None and len(weights.dims) == 4:
        taps, dilations = weights.dims[1:3], (options.dilation_h_factor, options.dilation_w_factor)
    else:
        return None
    if 0 in dilations:
        return None
    try:
        return axes(options.padding, x.dims[1:3], taps, y.dims[1:3], (options.stride_h, options.stride_w), dilations)
    except OperatorError:
        return None


def first_reads(operator: OperatorFacts, both: Windows | None = None) -> Addresses | None:
    """For each window, the lowest byte of the input that it reads; None where that is not known.

    Args:
        operator: with the shapes of what is read and made, which may be some rows only.
        both: where windows lie along rows and columns of these; by the options, if it is not given.
    """
    x, both = operator.inputs[0], both or windows(operator)
    if x is None or both is None:
        return None
    rows, columns = (_first_inside(axis) for axis in both)
    inside = rows[:, np.newaxis] * x.dims[2] + columns
    inside[rows >= x.dims[1]] = NEVER
    inside[:, columns >= x.dims[2]] = NEVER
    image = np.arange(x.dims[0], dtype=np.int64)[:, np.newaxis] * (x.dims[1] * x.dims[2])
    places = np.where(inside.reshape(-1) == NEVER, NEVER, image + inside.reshape(-1))
    return np.where(places == NEVER, NEVER, places * (x.dims[3] * x.itemsize)).reshape(-1)


def _first_inside(axis: Axis) -> Addresses:
    """For each window, its first tap that is not before the image."""
    begins = np.arange(axis.windows, dtype=np.int64) * axis.stride - axis.before
    before = np.maximum(-begins, 0)
    skipped = -(-before // axis.dilation)
    inside: Addresses = np.where(skipped < axis.taps, begins + skipped * axis.dilation, axis.size)
    return inside


def _from_the_next_on(reads: Addresses) -> Addresses:
    """For each window, the lowest byte that a later window reads."""
    lowest = np.minimum.accumulate(reads[::-1])[::-1]
    return np.append(lowest[1:], NEVER)
