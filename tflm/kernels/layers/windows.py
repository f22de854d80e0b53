"""Windows that slide over images: their views as arrays, and the output shapes of convolutions and pooling."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from tflm.errors import OperatorError
from tflm.kernels.layers.geometry import Axis, effective_size, output_size
from tflm.kernels.shapes import Shapes, StaticNode
from tflm.kernels.support.checks import AnyTensor, element_count
from tflm.schema.enums import Padding


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


def pooled(node: StaticNode) -> Shapes:
    """Output shape of pooling: each channel has its own windows."""
    taps = node.option("filter_height"), node.option("filter_width")
    return _slide(node, taps, node.images()[3])


def convolved(node: StaticNode) -> Shapes:
    """Output shape for weights (channels, rows, columns, depth), where depth is the input's channels or those of a
    group.
    """
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
