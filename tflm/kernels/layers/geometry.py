"""Windows along images: SAME and VALID padding, stride, dilation, taps, and how far an output may overlap its input.

TFLM's reference loops run over batches, rows, columns and, for each window, channels, and write each element as soon as
its window is read. An element may overwrite input that no later window reads (P. Blacker et al.: diagonal memory
optimisation).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from tflm.errors import OperatorError
from tflm.kernels.overlap import FAR, NOWHERE, OperatorFacts
from tflm.kernels.shapes import Shapes, StaticNode
from tflm.kernels.support.checks import AnyTensor, element_count
from tflm.schema.enums import Padding
from tflm.schema.options import Conv2DOptions, DepthwiseConv2DOptions, Pool2DOptions
from tflm.targets import INT, EnumType, Struct

TFLITE_PADDING = EnumType(largest=2)
TFLITE_PADDING_VALUES = Struct("TfLitePaddingValues", width=INT, height=INT, width_offset=INT, height_offset=INT)

LARGEST_STEP = 2**15 - 1
"""Strides and dilations are 16-bit numbers."""


class ExplicitPadding(NamedTuple):
    """The number of rows above an image and of columns to its left that windows read as zeros.

    TFLite's options cannot express it; generated code can.
    """

    rows: int
    columns: int


def transposed(padding: Padding | ExplicitPadding) -> Padding | ExplicitPadding:
    """Return the padding of an image whose rows become columns."""
    return ExplicitPadding(padding.columns, padding.rows) if isinstance(padding, ExplicitPadding) else padding


def output_size(padding: Padding, size: int, window: int, stride: int, dilation: int = 1) -> int:
    """Number of windows along a dimension of `size`; with SAME, the last ones may reach beyond the end.

    For a window larger than the dimension, returns 0, or a negative number if it is larger by the stride or more.

    Raises:
        OperatorError: the stride is not positive, or the dilation is negative.
    """
    if stride <= 0 or dilation < 0:
        raise OperatorError(f"has stride {stride} and dilation {dilation}, must be at least 1 and 0")
    covered = 1 if padding == Padding.SAME else effective_size(window, dilation)
    room = size + stride - covered
    return 0 if -stride < room < 0 else room // stride


def effective_size(window: int, dilation: int) -> int:
    """Extent of a dilated window: elements from the first to the last that it reads."""
    return (window - 1) * dilation + 1


def padding_before(windows: int, size: int, window: int, stride: int, dilation: int = 1) -> int:
    """Padding before the first element for this many windows: half of all padding, rounded down.

    0 for a negative number of windows, which `output_size` may return.
    """
    if windows < 0:
        return 0
    return max((windows - 1) * stride + effective_size(window, dilation) - size, 0) // 2


class Axis(NamedTuple):
    """Windows along one dimension of an image: tap t of window i is at i * stride + t * dilation - before.

    With a dilation of 0, all taps of a window are at one place, as in TFLM.

    Attributes:
        size: elements of the image.
        taps: taps of a window.
        windows: number of windows.
    """

    size: int
    taps: int
    windows: int
    stride: int = 1
    dilation: int = 1
    before: int = 0

    @property
    def start(self) -> int:
        """The first position read; negative if it is before the image."""
        return -self.before

    @property
    def stop(self) -> int:
        """The position after the last one read."""
        return self.start + (self.windows - 1) * self.stride + effective_size(self.taps, self.dilation)

    @property
    def mirrored(self) -> Axis:
        """The same windows over the image in reverse, from the last one to the first."""
        return self._replace(before=self.stop - self.size)

    @property
    def leaves_image(self) -> bool:
        """Whether any window reaches beyond the image."""
        return self.start < 0 or self.stop > self.size

    @property
    def always_reads(self) -> bool:
        """Whether every window has a tap in the image."""
        return bool((_first_inside(self) < self.size).all())


def axes(
    padding: Padding | ExplicitPadding,
    sizes: Sequence[int],
    taps: Sequence[int],
    windows: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> tuple[Axis, Axis]:
    """The windows along rows and columns of a convolution's input.

    Raises:
        OperatorError: a stride or a dilation is out of range.
    """
    before = paddings(padding, sizes, taps, strides, dilations)
    rows, columns = (Axis(*parameters) for parameters in zip(sizes, taps, windows, strides, dilations, before))
    return rows, columns


def paddings(
    padding: Padding | ExplicitPadding,
    sizes: Sequence[int],
    taps: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> tuple[int, ...]:
    """Padding above and to the left of the image.

    Raises:
        OperatorError: a stride or a dilation is out of range.
    """
    if max(*strides, *dilations) > LARGEST_STEP:
        raise OperatorError(f"has strides {strides} and dilations {dilations}, must be at most {LARGEST_STEP}")
    if isinstance(padding, ExplicitPadding):
        return padding
    dimensions = list(zip(sizes, taps, strides, dilations))
    windows = [output_size(padding, *dimension) for dimension in dimensions]
    if min(windows) < 0 or 0 in dilations:
        return (0, 0)  # TFLM computes no padding for an oversized window or a dilation of 0, but runs the operator
    return tuple(padding_before(count, *dimension) for count, dimension in zip(windows, dimensions))


class Tap(NamedTuple):
    """One element of a window along one dimension: the windows for which it lies in the image, and its positions
    there."""

    tap: int
    windows: slice
    inputs: slice


def taps(axis: Axis) -> list[Tap]:
    """The taps that lie in the image for at least one window, in order."""
    lowest, highest = 0, axis.taps - 1
    if axis.dilation > 0:  # skip taps outside the image: windows can have a great many
        lowest = max(0, -(-(axis.before - (axis.windows - 1) * axis.stride) // axis.dilation))
        highest = min(axis.taps - 1, (axis.size - 1 + axis.before) // axis.dilation)
    found = []
    for tap in range(lowest, highest + 1):
        offset = tap * axis.dilation - axis.before  # offset of the first window's tap
        first = max(0, -(offset // axis.stride))
        last = min(axis.windows - 1, (axis.size - 1 - offset) // axis.stride)
        if first <= last:
            places = slice(first * axis.stride + offset, last * axis.stride + offset + 1, axis.stride)
            found.append(Tap(tap, slice(first, last + 1), places))
    return found


def window_fields(rows: Axis, columns: Axis) -> dict[str, int]:
    """Taps, strides and padding of windows, by the names that compiled kernels give these fields."""
    return {
        "row_taps": rows.taps,
        "column_taps": columns.taps,
        "row_stride": rows.stride,
        "column_stride": columns.stride,
        "rows_before": rows.before,
        "columns_before": columns.before,
    }


def require_room(elements: int, *tensors: AnyTensor) -> None:
    """Reject a convolution whose working memory far exceeds the size of its tensors."""
    given = sum(element_count(tensor) for tensor in tensors)
    if elements > 64 * given + (1 << 20):
        reason = (
            f"needs {elements} work elements for tensors of {given}: strides or dilations reach far outside the image"
        )
        raise OperatorError(reason, tensor=tensors[-1].name)


def sliding_windows(x: npt.NDArray[Any], rows: Axis, columns: Axis) -> npt.NDArray[Any]:
    """The windows of an image: a view of a zero-padded copy.

    Args:
        x: (batches, rows, columns, channels).

    Returns:
        (batches, windows along the rows, along the columns, taps of the rows, of the columns, channels).
    """
    image = np.zeros((x.shape[0], rows.stop - rows.start, columns.stop - columns.start, x.shape[3]), x.dtype)
    top, left = max(rows.start, 0), max(columns.start, 0)
    inside = x[:, top : max(rows.stop, 0), left : max(columns.stop, 0)]
    top, left = top - rows.start, left - columns.start
    image[:, top : top + inside.shape[1], left : left + inside.shape[2]] = inside
    batch, row, column, channel = image.strides
    shape = (x.shape[0], rows.windows, columns.windows, rows.taps, columns.taps, x.shape[3])
    places, steps = (row * rows.stride, column * columns.stride), (row * rows.dilation, column * columns.dilation)
    return as_strided(image, shape, (batch, *places, *steps, channel), writeable=False)


def image_elements(rows: Axis, columns: Axis, input: AnyTensor) -> int:
    """Number of elements of an image padded for all windows."""
    return math.prod((input.dims[0], rows.stop - rows.start, columns.stop - columns.start, input.dims[3]))


def pooled(node: StaticNode) -> Shapes:
    """Output shape of pooling: each channel has its own windows."""
    taps = node.option("filter_height"), node.option("filter_width")
    return _slide(node, taps, node.images()[3])


def convolved(node: StaticNode) -> Shapes:
    """Output shape for weights (channels, rows, columns, depth), where depth is the input's channels or those of a
    group."""
    filters, rows, columns, depth = node.images(1)
    channels = node.images()[3]
    if depth == 0 or channels % depth:
        raise OperatorError(f"weights are for {depth} channels, the input has {channels}")
    return _slide(node, (rows, columns), filters, _dilations(node))


def convolved_by_channel(node: StaticNode) -> Shapes:
    """Output shape for weights (1, rows, columns, channels), each filter over one channel of the input."""
    _, rows, columns, filters = node.images(1)
    channels = node.images()[3]
    if channels == 0 or filters % channels:
        raise OperatorError(f"weights are for {filters} channels, the input has {channels}")
    return _slide(node, (rows, columns), filters, _dilations(node))


def _dilations(node: StaticNode) -> tuple[int, int]:
    return node.option("dilation_h_factor"), node.option("dilation_w_factor")


def _slide(node: StaticNode, taps: tuple[int, int], channels: int, dilations: tuple[int, int] = (1, 1)) -> Shapes:
    batch, height, width, _ = node.images()
    padding = node.option("padding")
    rows = _window(height, taps[0], node.option("stride_h"), dilations[0], padding)
    columns = _window(width, taps[1], node.option("stride_w"), dilations[1], padding)
    return [(batch, rows, columns, channels)]


def _window(size: int, taps: int, stride: int, dilation: int, padding: Padding) -> int:
    found = output_size(padding, size, taps, stride, dilation)
    if found <= 0:
        raise OperatorError(f"{size} rows or columns are too few for a window of {effective_size(taps, dilation)}")
    return found


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
