"""Windows of an image as an array."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from tflm.errors import OperatorError
from tflm.kernels.layers.geometry import Axis
from tflm.kernels.support.checks import AnyTensor, element_count


def require_room(elements: int, *tensors: AnyTensor) -> None:
    """Reject a convolution whose working memory far exceeds the size of its tensors."""
    given = sum(element_count(tensor) for tensor in tensors)
    if elements > 64 * given + (1 << 20):
        reason = (
            f"needs {elements} work elements for tensors of {given}: strides or dilations reach far outside the image"
        )
        raise OperatorError(reason, tensor=tensors[-1].name)


def windows(x: npt.NDArray[Any], rows: Axis, columns: Axis) -> npt.NDArray[Any]:
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
