"""Positions of windows along a dimension: SAME and VALID padding, stride, dilation, taps inside the image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tflm.errors import OperatorError
from tflm.schema.enums import Padding
from tflm.targets import INT, EnumType, Struct

TFLITE_PADDING = EnumType(largest=2)
TFLITE_PADDING_VALUES = Struct("TfLitePaddingValues", width=INT, height=INT, width_offset=INT, height_offset=INT)

LARGEST_STEP = 2**15 - 1
"""Strides and dilations are 16-bit numbers."""


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


def axes(
    padding: Padding,
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
    padding: Padding, sizes: Sequence[int], taps: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[int, ...]:
    """Padding above and to the left of the image.

    Raises:
        OperatorError: a stride or a dilation is out of range.
    """
    if max(*strides, *dilations) > LARGEST_STEP:
        raise OperatorError(f"has strides {strides} and dilations {dilations}, must be at most {LARGEST_STEP}")
    dimensions = list(zip(sizes, taps, strides, dilations))
    windows = [output_size(padding, *dimension) for dimension in dimensions]
    if min(windows) < 0 or 0 in dilations:
        return (0, 0)  # TFLM computes no padding for an oversized window or a dilation of 0, but runs the operator
    return tuple(padding_before(count, *dimension) for count, dimension in zip(windows, dimensions))


class Tap(NamedTuple):
    """One element of a window along one dimension: the windows for which it lies in the image, and its positions
    there.
    """

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
