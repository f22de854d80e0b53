"""Windows of an image as arrays: views of it, or of a copy with a border."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from tflm.errors import OperatorError
from tflm.kernels.host_memory import kept
from tflm.kernels.layers.geometry import Axis
from tflm.kernels.registration import Run
from tflm.kernels.support.checks import AnyTensor, element_count


def require_room(elements: int, *tensors: AnyTensor) -> None:
    """Refuse a convolution that needs far more elements to work in than its tensors have together."""
    given = sum(element_count(tensor) for tensor in tensors)
    if elements > 64 * given + (1 << 20):
        reason = f"{elements} elements to work in, for tensors of {given}: its strides or dilations leave the image far"
        raise OperatorError(reason, tensor=tensors[-1].name)


def bind_windows(
    x: npt.NDArray[Any],
    rows: Axis,
    columns: Axis,
    *,
    dtype: np.dtype[Any],
    border: int,
    channels_first: bool = False,
    copies: int = 1,
) -> tuple[Run | None, npt.NDArray[Any]]:
    """The windows of an image, which is the input itself or a copy with a border.

    Args:
        x: (batches, rows, columns, channels).
        dtype: of the copy, which is made if the input has another.
        border: what a window sees outside of the input.
        channels_first: make a copy in which rows and columns, not channels, are side by side.
        copies: how often the copy has each channel, one beside the other.

    Returns:
        (what must run first to fill the copy, or None; a view of the windows, of shape (batches, rows, columns, taps
        of the rows, taps of the columns, channels)).
    """
    fill = None
    image = x[:, max(rows.start, 0) :, max(columns.start, 0) :]
    if dtype != x.dtype or channels_first or copies > 1 or rows.leaves_image or columns.leaves_image:
        shape = (x.shape[0], rows.stop - rows.start, columns.stop - columns.start, x.shape[3] * copies)
        image = _image(shape, dtype, border, channels_first)
        fill = _bind_fill(image, x, rows, columns)
    batch, row, column, channel = image.strides
    places, steps = (row * rows.stride, column * columns.stride), (row * rows.dilation, column * columns.dilation)
    windows = (image.shape[0], rows.windows, columns.windows, rows.taps, columns.taps, image.shape[-1])
    return fill, as_strided(image, windows, (batch, *places, *steps, channel), writeable=False)


def _image(shape: tuple[int, ...], dtype: np.dtype[Any], border: int, channels_first: bool) -> npt.NDArray[Any]:
    if not channels_first:
        return kept(np.full(shape, border, dtype))
    batches, height, width, channels = shape
    return kept(np.full((batches, channels, height, width), border, dtype)).transpose(0, 2, 3, 1)


def _bind_fill(image: npt.NDArray[Any], x: npt.NDArray[Any], rows: Axis, columns: Axis) -> Run:
    """What copies to an image all that its windows see of the input."""
    places = [slice(max(axis.start, 0), max(min(axis.stop, axis.size), 0)) for axis in (rows, columns)]
    source = x[:, places[0], places[1], :, np.newaxis]
    top, left = places[0].start - rows.start, places[1].start - columns.start
    inside = image[:, top : top + source.shape[1], left : left + source.shape[2]]
    inside = inside.reshape(*source.shape[:4], image.shape[3] // x.shape[3])

    def fill() -> None:
        np.copyto(inside, source)

    return fill


def image_elements(rows: Axis, columns: Axis, input: AnyTensor) -> int:
    """Elements of an image that has all that windows see."""
    return math.prod((input.dims[0], rows.stop - rows.start, columns.stop - columns.start, input.dims[3]))


def in_turn(*runs: Run) -> Run:
    """One after the other."""

    def run() -> None:
        for step in runs:
            step()

    return run
