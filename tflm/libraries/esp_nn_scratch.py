"""Sizes of ESP-NN's scratch buffers, by chip and version.

They are what the functions named `esp_nn_get_..._scratch_size` return. Below, x is the input, f the filter, y the
output, and pairs are (rows, columns).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from tflm.errors import ArgumentError
from tflm.kernels.layers.geometry import paddings
from tflm.kernels.node import Node
from tflm.libraries.kernel_library import Version
from tflm.schema.options import Conv2DOptions, DepthwiseConv2DOptions
from tflm.targets import Target, align_up

VERSIONS = (
    "1.0-beta",
    "1.0.0-rc1",
    "1.0.0",
    "1.0.1",
    "1.0.2",
    "1.1.0",
    "1.1.1",
    "1.1.2",
    "1.2.0",
    "1.2.0~1",
    "1.2.1",
    "1.2.2",
    "1.2.3",
    "58ca1a4",
    "1.4.0",
)
"""Oldest first. Between 1.2.3 and 1.4.0 lie versions whose sources are not public; 58ca1a4 is a commit among them."""

BYTES_IN_A_VECTOR = 16
LARGEST_PADDED_IMAGE_S3 = 40960
LARGEST_IMAGE_AND_FILTER_S3 = 49152
LARGEST_FILTER_S3 = 24576
FILTER_BLOCK_S3 = 16384
L1_CACHE_P4 = 32768
"""L1D_BUDGET: largest size of a tile of a padded image."""


class Convolution(NamedTuple):
    """The parameters that determine the size of a scratch buffer.

    Attributes:
        rows, columns: rows and columns of x.
        channels: channels of x.
        taps: rows and columns of f.
        outputs: channels of y.
        output_size: rows and columns of y.
        padding: padding above and to the left.
        multiplier: output channels for each input channel of a depthwise convolution.
    """

    rows: int
    columns: int
    channels: int
    taps: tuple[int, int]
    outputs: int
    output_size: tuple[int, int]
    strides: tuple[int, int]
    padding: tuple[int, int]
    multiplier: int

    @property
    def places(self) -> int:
        """Number of positions of x."""
        return self.rows * self.columns

    @property
    def elements(self) -> int:
        """Number of elements of x."""
        return self.places * self.channels

    @property
    def window(self) -> int:
        """Elements under a window."""
        return self.taps[0] * self.taps[1] * self.channels

    @property
    def filter(self) -> int:
        """Elements of the filter of a depthwise convolution."""
        return self.window * self.multiplier

    @property
    def is_pointwise(self) -> bool:
        """Whether it is a plain matrix product."""
        return self.taps == self.strides == (1, 1) and not any(self.padding)

    @property
    def fills_columns(self) -> bool:
        """Whether each window is copied to a column first: its rows are shorter than a vector, but the window is
        not."""
        return self.taps[1] * self.channels < BYTES_IN_A_VECTOR <= self.window

    @property
    def beyond(self) -> tuple[int, int]:
        """How far windows one stride after the last would extend beyond the last row and column."""
        rows = self.output_size[0] * self.strides[0] + self.taps[0] - 1 - self.rows
        columns = self.output_size[1] * self.strides[1] + self.taps[1] - 1 - self.columns
        return rows, columns

    @property
    def trailing(self) -> tuple[int, int]:
        """Padding below and to the right that the windows use."""
        rows, columns = (
            max(0, (windows - 1) * stride + taps - before - size)
            for windows, stride, taps, before, size in zip(
                self.output_size, self.strides, self.taps, self.padding, (self.rows, self.columns)
            )
        )
        return rows, columns

    def image(self, rows: int, columns: int, channels: int) -> int:
        """Elements of x with additional rows and columns."""
        return (self.rows + rows) * (self.columns + columns) * channels

    @property
    def padded_image(self) -> int:
        """Elements of x with the leading padding on all sides; 0 without padding."""
        return self.image(2 * self.padding[0], 2 * self.padding[1], self.channels) if any(self.padding) else 0


def convolution(node: Node, kind: type[Conv2DOptions] | type[DepthwiseConv2DOptions]) -> Convolution:
    """A CONV_2D or DEPTHWISE_CONV_2D, by the kind of its options."""
    x, f, y = node.input(0), node.input(1), node.output(0)
    options = node.options(kind)
    strides = options.stride_h, options.stride_w
    dilations = options.dilation_h_factor, options.dilation_w_factor
    top, left = paddings(options.padding, x.dims[1:3], f.dims[1:3], strides, dilations)
    return Convolution(
        rows=x.dims[1],
        columns=x.dims[2],
        channels=x.dims[3],
        taps=(f.dims[1], f.dims[2]),
        outputs=y.dims[3],
        output_size=(y.dims[1], y.dims[2]),
        strides=strides,
        padding=(top, left),
        multiplier=options.depth_multiplier if isinstance(options, DepthwiseConv2DOptions) else 1,
    )


Bytes = Callable[[Convolution], int]

# --- ESP32-S3: CONV_2D -------------------------------------------------------------------------------------------


def conv_s3_widened_bytes(conv: Convolution) -> int:
    """1.0-beta: x and f as int16, unless it is pointwise in whole vectors of 8 channels."""
    block = _block_bytes(conv, conv.channels)
    if conv.is_pointwise and conv.channels % 8 == 0:
        return conv.channels * conv.outputs + block + 32
    return 2 * (conv.window * conv.outputs + conv.elements) + block + 32


def conv_s3_padded_bytes(conv: Convolution) -> int:
    """Since 1.0.0-rc1: the padded image, and f with channels in whole vectors; on ESP32-P4 too, since 1.1.0."""
    if conv.is_pointwise:
        return _pointwise_bytes(conv, 32)
    return conv.padded_image + _filter_bytes(conv) + 32 + 4 * conv.outputs


def conv_s3_columns_bytes(conv: Convolution, margin: int) -> int:
    """Since 1.2.1: columns, or the padded image with f in whole vectors both by tap and by row."""
    if conv.is_pointwise:
        return _pointwise_bytes(conv, margin)
    if conv.fills_columns:
        return _columns_bytes(conv, margin)
    rows, columns = (max(0, size) for size in conv.beyond)
    bound = conv.image(rows, columns, conv.channels) if rows or columns else 0
    return conv.padded_image + _filter_bytes(conv) + _filter_by_row_bytes(conv) + bound + margin + 4 * conv.outputs


def conv_s3_by_shape_bytes(conv: Convolution) -> int:
    """Since 58ca1a4: 3 x 3 windows and pointwise convolutions in separate blocks."""
    bias = 4 * conv.outputs
    if conv.taps == (3, 3) and conv.channels % 16 == 0 and conv.outputs >= 16:
        return conv.window * (conv.outputs + 1) + bias + 32
    if conv.is_pointwise:
        sums = 24 * conv.channels + 64
        by_block = sums + FILTER_BLOCK_S3 if conv.channels * conv.outputs > LARGEST_FILTER_S3 else 0
        return max(_block_bytes(conv, align_up(conv.channels, 8)) + 64, sums + 8 * conv.outputs, by_block)
    if conv.fills_columns:
        return _columns_bytes(conv, 64)
    before, after = conv.padding, conv.trailing
    image = conv.image(before[0] + after[0], before[1] + after[1], conv.channels) if any(before + after) else 0
    return image + max(_filter_by_row_bytes(conv), conv.window * conv.outputs) + 64 + bias


def _pointwise_bytes(conv: Convolution, margin: int) -> int:
    channels = align_up(conv.channels, 8)
    image = conv.places * channels if conv.channels % 8 else 0
    return image + channels * conv.outputs + _block_bytes(conv, channels) + margin


def _block_bytes(conv: Convolution, channels: int) -> int:
    """Bytes of a transposed block of 8 int16 positions; 0 for smaller images."""
    return 16 * channels if conv.places >= 8 else 0


def _columns_bytes(conv: Convolution, margin: int) -> int:
    column = align_up(conv.window, 16)
    return 4 * conv.outputs + 16 + conv.outputs * column + 16 + column + margin


def _filter_bytes(conv: Convolution) -> int:
    return conv.taps[0] * conv.taps[1] * align_up(conv.channels, 16) * conv.outputs


def _filter_by_row_bytes(conv: Convolution) -> int:
    return align_up(conv.taps[1] * conv.channels, 16) * conv.taps[0] * conv.outputs


# --- ESP32-S3: DEPTHWISE_CONV_2D ---------------------------------------------------------------------------------


def depthwise_s3_whole_bytes(conv: Convolution, margin: int) -> int:
    """Up to 1.2.0~1: the whole image, padded or widened to int16, whose end has `margin` bytes."""
    widened = 2 * (conv.filter + conv.elements) + margin
    if conv.multiplier == 1 and conv.channels % 8 == 0 and conv.taps == (3, 3):
        return conv.filter + _padded_3x3(conv) + 16 if conv.channels % 16 == 0 else widened
    return widened if conv.multiplier % 4 == 0 else 32


def depthwise_s3_tiled_bytes(conv: Convolution) -> int:
    """Since 1.2.1: large images are processed by rows."""
    if conv.multiplier == 1 and conv.channels % 8 == 0 and conv.taps == (3, 3) and conv.channels % 16 == 0:
        image = _padded_3x3(conv)
        if image > LARGEST_PADDED_IMAGE_S3:
            image = (conv.columns + _padding_3x3(conv)[1]) * conv.taps[0] * conv.channels
        return conv.window + image + 16
    return _depthwise_s3_other_bytes(conv, 0)


def depthwise_s3_by_padding_bytes(conv: Convolution, any_padding: bool) -> int:
    """Since 58ca1a4: large images are processed in strips.

    Args:
        any_padding: whether windows of 3 x 3 over channels in whole vectors may have any padding; else only that of
            SAME with a stride of 1, and none.
    """
    one_column = conv.columns == conv.taps[1] == conv.output_size[1] == conv.strides[1] == 1
    if conv.multiplier == 1 and one_column and conv.channels % 16 == 0:
        return 4 * conv.channels + 2 * conv.taps[0] * conv.channels + 64
    is_3x3 = conv.multiplier == 1 and conv.taps == (3, 3) and conv.channels % 16 == 0
    if is_3x3 and (any_padding or conv.padding in ((0, 0), (1, 1))):
        return _depthwise_s3_strip_bytes(conv, any_padding)
    return _depthwise_s3_other_bytes(conv, 12)


def _depthwise_s3_strip_bytes(conv: Convolution, any_padding: bool) -> int:
    before, after = conv.padding, conv.trailing
    rows, columns = (before[0] + after[0], before[1] + after[1]) if any_padding else _padding_3x3(conv)
    if not rows and not columns:
        return conv.window + 16
    image = conv.image(rows, columns, conv.channels)
    if image <= LARGEST_PADDED_IMAGE_S3:
        return conv.window + image + 16
    row = (conv.columns + columns) * conv.channels
    strip = (LARGEST_PADDED_IMAGE_S3 - conv.window - 32) // row
    return conv.window + min(max(strip, 3), conv.rows + rows) * row + 32


def _padding_3x3(conv: Convolution) -> tuple[int, int]:
    """Additional rows and columns: twice the leading padding, or as far as the windows reach; may be negative."""
    return (2 * conv.padding[0], 2 * conv.padding[1]) if any(conv.padding) else conv.beyond


def _padded_3x3(conv: Convolution) -> int:
    rows, columns = _padding_3x3(conv)
    return conv.image(rows, columns, conv.channels) if rows or columns else 0


def _depthwise_s3_other_bytes(conv: Convolution, quantization: int) -> int:
    """All windows except 3 x 3 over channels in whole vectors; `quantization` is the number of bytes for each padded
    channel."""
    widened = 2 * (conv.filter + conv.elements) + 32
    if conv.multiplier == 1 and conv.channels % 8 == 0:
        if conv.taps == (3, 3):
            return _depthwise_3x3_padded_channels_bytes(conv, quantization) if conv.channels >= 12 else widened
        by_row = 2 * conv.filter + 2 * conv.columns * conv.taps[0] * conv.channels + 32
        return widened if widened - 32 <= LARGEST_IMAGE_AND_FILTER_S3 else by_row
    if conv.multiplier == 1 and conv.channels > 3:
        padded = align_up(conv.channels, 8)
        size = align_up(2 * conv.taps[0] * conv.taps[1] * padded, 16)
        size = align_up(size + 2 * conv.places * padded, 16)
        size = align_up(size + conv.output_size[0] * conv.output_size[1] * padded, 16)
        return size + 12 * padded + 16
    return widened if conv.multiplier % 4 == 0 else 32


def _depthwise_3x3_padded_channels_bytes(conv: Convolution, quantization: int) -> int:
    channels = align_up(conv.channels, 16)
    rows, columns = (
        2 * padding + max(0, windows * stride + 2 - size)
        for padding, windows, stride, size in zip(
            conv.padding, conv.output_size, conv.strides, (conv.rows, conv.columns)
        )
    )
    output = conv.output_size[0] * conv.output_size[1] * channels
    return 9 * channels + conv.image(rows, columns, channels) + output + quantization * channels + 64


# --- ESP32-P4 ----------------------------------------------------------------------------------------------------


def conv_p4_bytes(conv: Convolution) -> int:
    """Since 1.2.3: columns, or a padded image, which is tiled if large."""
    bias, row = 4 * conv.outputs, conv.taps[1] * conv.channels
    if conv.is_pointwise:
        return bias + 16 * conv.outputs + 32 + 32 if conv.channels < 16 else _pointwise_bytes(conv, 32)
    if not any(conv.padding) and row >= BYTES_IN_A_VECTOR:
        return _filter_bytes(conv) + 32 + bias
    if conv.window >= BYTES_IN_A_VECTOR:
        return bias + conv.window + 32
    if not any(conv.padding):
        padded = _channels_of_a_vector(conv)
        return bias + conv.taps[0] * conv.taps[1] * padded * conv.outputs + conv.places * padded + 32
    if conv.padded_image + bias <= L1_CACHE_P4:
        return conv.padded_image + _filter_bytes(conv) + 32 + bias
    return _conv_p4_by_tiles_bytes(conv)


def _channels_of_a_vector(conv: Convolution) -> int:
    """The number of channels with which a row of a window fills a vector."""
    return align_up((BYTES_IN_A_VECTOR + conv.taps[1] - 1) // conv.taps[1], 16)


def _conv_p4_by_tiles_bytes(conv: Convolution) -> int:
    bias, channels, filter = 4 * conv.outputs, conv.channels, 0
    if conv.taps[1] * conv.channels < BYTES_IN_A_VECTOR:
        channels = _channels_of_a_vector(conv)
        filter = conv.taps[0] * conv.taps[1] * channels * conv.outputs
    row = (conv.columns + 2 * conv.padding[1]) * channels
    left = L1_CACHE_P4 - bias - filter
    rows = 1
    if left > 0 and conv.taps[0] * row <= left:
        rows = min((left - conv.taps[0] * row) // (conv.strides[0] * row) + 1, conv.output_size[0])
    return ((rows - 1) * conv.strides[0] + conv.taps[0] + 2 * conv.padding[0]) * row + filter + 32 + bias


# --- By chip and version -----------------------------------------------------------------------------------------


def _nothing(conv: Convolution) -> int:
    return 0


CONV_BYTES: Mapping[str, Mapping[str, Bytes | None]] = {
    "esp32s3": {
        "1.0-beta": conv_s3_widened_bytes,
        "1.0.0-rc1": conv_s3_padded_bytes,
        "1.2.1": partial(conv_s3_columns_bytes, margin=32),
        "1.2.3": partial(conv_s3_columns_bytes, margin=64),
        "58ca1a4": conv_s3_by_shape_bytes,
    },
    "esp32p4": {"1.0-beta": _nothing, "1.1.0": conv_s3_padded_bytes, "1.2.3": conv_p4_bytes, "58ca1a4": None},
}
"""esp_nn_get_conv_scratch_size of each chip with its own code, by first version; None if unknown."""

DEPTHWISE_BYTES: Mapping[str, Mapping[str, Bytes | None]] = {
    "esp32s3": {
        "1.0-beta": partial(depthwise_s3_whole_bytes, margin=16),
        "1.2.0": partial(depthwise_s3_whole_bytes, margin=32),
        "1.2.1": depthwise_s3_tiled_bytes,
        "58ca1a4": partial(depthwise_s3_by_padding_bytes, any_padding=False),
        "1.4.0": partial(depthwise_s3_by_padding_bytes, any_padding=True),
    },
    "esp32p4": {"1.0-beta": _nothing, "58ca1a4": None},
}
"""esp_nn_get_depthwise_conv_scratch_size, likewise."""


def known_versions(target: Target) -> list[str]:
    """The versions whose sizes on a chip are known, oldest first."""
    return [name for name in VERSIONS if _is_known(target, Version(name, VERSIONS))]


def _is_known(target: Target, version: Version) -> bool:
    tables = (sizes[chip] for sizes in (CONV_BYTES, DEPTHWISE_BYTES) for chip in sizes if chip in target.extensions)
    return all(version.latest(changes) is not None for changes in tables)


def bytes_for(sizes: Mapping[str, Mapping[str, Bytes | None]], target: Target, version: Version) -> Bytes:
    """The size function of a version on a chip; chips without their own code need no scratch.

    Raises:
        ArgumentError: the sizes of that version on that chip are not known.
    """
    chip = next((chip for chip in sizes if chip in target.extensions), None)
    found = _nothing if chip is None else version.latest(sizes[chip])
    if found is None:
        raise ArgumentError(
            f"scratch sizes of ESP-NN {version.name} on {target.name} are unknown; use an older version, such as 1.2.3"
        )
    return found
