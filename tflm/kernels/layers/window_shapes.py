"""Output shapes of operators that slide a window over images: convolutions and pooling."""

from __future__ import annotations

from tflm.errors import OperatorError
from tflm.kernels.layers.geometry import effective_size, output_size
from tflm.kernels.shapes import Shapes, StaticNode
from tflm.schema.enums import Padding


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
