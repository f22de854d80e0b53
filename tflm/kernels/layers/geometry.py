"""Where windows lie along a dimension: SAME and VALID padding, strides, dilations, and the taps inside an image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tflm.errors import OperatorError
from tflm.schema.enums import Padding
from tflm.targets import INT, EnumType, Struct

TFLITE_PADDING = EnumType(largest=2)
TFLITE_PADDING_VALUES = Struct("TfLitePaddingValues", width=INT, height=INT, width_offset=INT, height_offset=INT)

LARGEST_STEP = 2**15 - 1
"""Strides and dilations are numbers of 16 bits."""


def output_size(padding: Padding, size: int, window: int, stride: int, dilation: int = 1) -> int:
    """How many windows fit along a dimension of `size`; SAME lets the last ones reach beyond the end.

    A window that is larger than the dimension gives 0, or a negative number if it is larger by the stride or more.

    Raises:
        OperatorError: the stride is not positive, or the dilation is negative.
    """
    if stride <= 0 or dilation < 0:
        raise OperatorError(f"has stride {stride} and dilation {dilation}, must be at least 1 and 0")
    covered = 1 if padding == Padding.SAME else effective_size(window, dilation)
    room = size + stride - covered
    return 0 if -stride < room < 0 else room // stride


def effective_size(window: int, dilation: int) -> int:
    """Elements from the first to the last that a dilated window reads."""
    return (window - 1) * dilation + 1


def padding_before(windows: int, size: int, window: int, stride: int, dilation: int = 1) -> int:
    """Elements before the first one that the first of so many windows covers: half of all padding, rounded down.

    None for a negative number of windows, as `output_size` gives it.
    """
    if windows < 0:
        return 0
    return max((windows - 1) * stride + effective_size(window, dilation) - size, 0) // 2


class Axis(NamedTuple):
    """Windows along one dimension of an image: tap t of window i is at i * stride + t * dilation - before.

    With a dilation of 0 all taps of a window are at one place, as in TFLM.

    Attributes:
        size: of the image.
        taps: that a window has.
        windows: how many there are.
    """

    size: int
    taps: int
    windows: int
    stride: int = 1
    dilation: int = 1
    before: int = 0

    @property
    def start(self) -> int:
        """The first place that is read; negative where it is before the image."""
        return -self.before

    @property
    def stop(self) -> int:
        """The place behind the last one that is read."""
        return self.start + (self.windows - 1) * self.stride + effective_size(self.taps, self.dilation)

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
    """For rows and columns, the places before the image that the first of the windows that fit along it covers.

    Raises:
        OperatorError: a stride or a dilation is out of range.
    """
    if max(*strides, *dilations) > LARGEST_STEP:
        raise OperatorError(f"has strides {strides} and dilations {dilations}, must be at most {LARGEST_STEP}")
    dimensions = list(zip(sizes, taps, strides, dilations))
    windows = [output_size(padding, *dimension) for dimension in dimensions]
    if min(windows) < 0 or 0 in dilations:
        return (0, 0)  # TFLM gives up where a window is too large, or a dilation 0, but runs the operator
    return tuple(padding_before(count, *dimension) for count, dimension in zip(windows, dimensions))


class Tap(NamedTuple):
    """One element of a window along one dimension: the windows that have it in the image, and where it is there."""

    tap: int
    windows: slice
    inputs: slice


def taps(axis: Axis) -> list[Tap]:
    """The taps of a window that have an element of the image for any of the windows, in order."""
    lowest, highest = 0, axis.taps - 1
    if axis.dilation > 0:  # what may be left out; windows can have a great many taps
        lowest = max(0, -(-(axis.before - (axis.windows - 1) * axis.stride) // axis.dilation))
        highest = min(axis.taps - 1, (axis.size - 1 + axis.before) // axis.dilation)
    found = []
    for tap in range(lowest, highest + 1):
        offset = tap * axis.dilation - axis.before  # of the first window's tap from the first element
        first = max(0, -(offset // axis.stride))
        last = min(axis.windows - 1, (axis.size - 1 - offset) // axis.stride)
        if first <= last:
            places = slice(first * axis.stride + offset, last * axis.stride + offset + 1, axis.stride)
            found.append(Tap(tap, slice(first, last + 1), places))
    return found
