"""ESP-NN, Espressif's kernels, and the glue of esp-tflite-micro for them.

They differ from TFLM's by scratch buffers alone, whose sizes go by the chip: those with vector instructions of their
own (ESP32-S3, ESP32-P4), and all others. The sizes are those that the functions named `esp_nn_get_..._scratch_size`
give. In what follows x is the input, f the filter, y the output, and pairs are for rows and columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import NamedTuple

from tflm.kernels.layers.convolution import OP_DATA_CONV
from tflm.kernels.layers.geometry import paddings
from tflm.kernels.reference import conv_2d, depthwise_conv_2d, softmax
from tflm.kernels.requests import NodeView, OperatorMemory, Request, Requests, ScratchBuffer, nothing
from tflm.libraries.kernel_library import Concern, Effect, KernelLibrary
from tflm.schema.enums import TensorType
from tflm.schema.options import Conv2DOptions, DepthwiseConv2DOptions
from tflm.targets import INT, Struct, Target, align_up

NODE_DATA_CONV = Struct("esp_nn/conv.cc:NodeData", op_data=OP_DATA_CONV, buffer_idx=INT)
NODE_DATA_SOFTMAX = Struct("esp_nn/softmax.cc:NodeData", op_data=softmax.SOFTMAX_PARAMS, buffer_idx=INT)

BYTES_IN_A_VECTOR = 16
LARGEST_PADDED_IMAGE_S3 = 40960
LARGEST_IMAGE_AND_FILTER_S3 = 49152
L1_CACHE_P4 = 32768
"""L1D_BUDGET: what a tile of a padded image may take."""

CHIPS = ("esp32s3", "esp32p4")
"""Those with code of their own, as `Target.extensions` names them."""


class Convolution(NamedTuple):
    """What the size of a scratch buffer goes by.

    Attributes:
        rows, columns: of x.
        channels: of x.
        taps: of f.
        outputs: of y.
        output_size: rows and columns of y.
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
        """Of x."""
        return self.rows * self.columns

    @property
    def window(self) -> int:
        """Elements under a window."""
        return self.taps[0] * self.taps[1] * self.channels

    @property
    def is_pointwise(self) -> bool:
        """Whether it is a product of matrices as it stands."""
        return self.taps == self.strides == (1, 1) and not any(self.padding)

    @property
    def beyond(self) -> tuple[int, int]:
        """How far the last windows would reach beyond the last row and column, were they to begin one stride later."""
        rows = self.output_size[0] * self.strides[0] + self.taps[0] - 1 - self.rows
        columns = self.output_size[1] * self.strides[1] + self.taps[1] - 1 - self.columns
        return rows, columns

    def image(self, rows: int, columns: int, channels: int) -> int:
        """Elements of x with so many rows and columns more."""
        return (self.rows + rows) * (self.columns + columns) * channels


def _convolution(node: NodeView, kind: type[Conv2DOptions] | type[DepthwiseConv2DOptions]) -> Convolution:
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


def _pointwise_bytes(conv: Convolution, rest: int) -> int:
    channels = align_up(conv.channels, 8)
    image = conv.places * channels if conv.channels % 8 else 0
    block = 16 * channels if conv.places >= 8 else 0
    return image + channels * conv.outputs + block + rest


def conv_s3_bytes(conv: Convolution) -> int:
    """esp_nn_get_conv_scratch_size_esp32s3."""
    if conv.is_pointwise:
        return _pointwise_bytes(conv, 64)
    bias = 4 * conv.outputs
    if conv.taps[1] * conv.channels < BYTES_IN_A_VECTOR <= conv.window:
        column = align_up(conv.window, 16)
        return bias + 16 + conv.outputs * column + 16 + column + 64
    image = conv.image(2 * conv.padding[0], 2 * conv.padding[1], conv.channels) if any(conv.padding) else 0
    rows, columns = (max(0, size) for size in conv.beyond)
    bound = conv.image(rows, columns, conv.channels) if rows or columns else 0
    filter = conv.taps[0] * conv.taps[1] * align_up(conv.channels, 16) * conv.outputs
    filter_by_row = align_up(conv.taps[1] * conv.channels, 16) * conv.taps[0] * conv.outputs
    return image + filter + filter_by_row + bound + 64 + bias


def depthwise_s3_bytes(conv: Convolution) -> int:
    """esp_nn_get_depthwise_conv_scratch_size_esp32s3."""
    channels = conv.channels
    filter = conv.window * conv.multiplier
    widened = 2 * (filter + conv.places * channels) + 32
    if conv.multiplier == 1 and channels % 8 == 0:
        if conv.taps != (3, 3):
            by_row = 2 * filter + 2 * conv.columns * conv.taps[0] * channels + 32
            return widened if widened - 32 <= LARGEST_IMAGE_AND_FILTER_S3 else by_row
        if channels % 16 == 0:
            return _depthwise_3x3_bytes(conv)
        if channels >= 12:
            return _depthwise_3x3_padded_channels_bytes(conv)
        return widened
    if conv.multiplier == 1 and channels > 3:
        padded = align_up(channels, 8)
        size = align_up(2 * conv.taps[0] * conv.taps[1] * padded, 16)
        size = align_up(size + 2 * conv.places * padded, 16)
        size = align_up(size + conv.output_size[0] * conv.output_size[1] * padded, 16)
        return size + 12 * padded + 16
    return widened if conv.multiplier % 4 == 0 else 32


def _depthwise_3x3_bytes(conv: Convolution) -> int:
    rows, columns = (2 * conv.padding[0], 2 * conv.padding[1]) if any(conv.padding) else conv.beyond
    if not rows and not columns:
        return conv.window + 16
    image = conv.image(rows, columns, conv.channels)
    if image > LARGEST_PADDED_IMAGE_S3:
        image = (conv.columns + columns) * conv.taps[0] * conv.channels
    return conv.window + image + 16


def _depthwise_3x3_padded_channels_bytes(conv: Convolution) -> int:
    channels = align_up(conv.channels, 16)
    rows, columns = (
        2 * padding + max(0, windows * stride + 2 - size)
        for padding, windows, stride, size in zip(
            conv.padding, conv.output_size, conv.strides, (conv.rows, conv.columns)
        )
    )
    return (
        9 * channels + conv.image(rows, columns, channels) + conv.output_size[0] * conv.output_size[1] * channels + 64
    )


def conv_p4_bytes(conv: Convolution) -> int:
    """esp_nn_get_conv_scratch_size_esp32p4."""
    bias, row = 4 * conv.outputs, conv.taps[1] * conv.channels
    if conv.is_pointwise:
        return bias + 16 * conv.outputs + 32 + 32 if conv.channels < 16 else _pointwise_bytes(conv, 32)
    filter = conv.taps[0] * conv.taps[1] * align_up(conv.channels, 16) * conv.outputs
    if not any(conv.padding) and row >= BYTES_IN_A_VECTOR:
        return filter + 32 + bias
    if conv.window >= BYTES_IN_A_VECTOR:
        return bias + conv.window + 32
    if not any(conv.padding):
        padded = _channels_of_a_vector(conv)
        return bias + conv.taps[0] * conv.taps[1] * padded * conv.outputs + conv.places * padded + 32
    image = conv.image(2 * conv.padding[0], 2 * conv.padding[1], conv.channels)
    if image + bias <= L1_CACHE_P4:
        return image + filter + 32 + bias
    return _conv_p4_by_tiles_bytes(conv)


def _channels_of_a_vector(conv: Convolution) -> int:
    """So many that a row of a window fills a vector."""
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


def _none(conv: Convolution) -> int:
    return 0


Bytes = Callable[[Convolution], int]

CONV_BYTES: dict[str, Bytes] = {"esp32s3": conv_s3_bytes, "esp32p4": conv_p4_bytes}
DEPTHWISE_BYTES: dict[str, Bytes] = {"esp32s3": depthwise_s3_bytes, "esp32p4": _none}


def _for_chip(sizes: dict[str, Bytes], target: Target) -> Bytes:
    return next((sizes[chip] for chip in CHIPS if chip in target.extensions), _none)


def _with_scratch(
    reference: Requests, kind: type[Conv2DOptions] | type[DepthwiseConv2DOptions], sizes: dict[str, Bytes]
) -> Requests:
    """What TFLM's kernel asks for, and the library's buffer after that."""

    def requests(node: NodeView) -> Iterator[Request]:
        yield from reference(node)
        if node.input(0).type == TensorType.INT8:
            size = _for_chip(sizes, node.target)(_convolution(node, kind))
            if size > 0:
                yield ScratchBuffer("esp_nn", size)

    return requests


def _softmax_requests(node: NodeView) -> Iterator[Request]:
    yield from softmax.SOFTMAX.requests(node)
    input = node.input(0)
    if input.type == node.output(0).type == TensorType.INT8:
        # As the source has it, the second dimension counts, whichever the last one is.
        yield ScratchBuffer("esp_nn", 4 * input.dims[1] if len(input.dims) > 1 else 0)


def _is_int8_softmax_of_another_rank(node: NodeView) -> bool:
    input = node.input(0)
    return input.type == node.output(0).type == TensorType.INT8 and len(input.dims) != 2


CONCERNS = (
    Concern(
        "SOFTMAX",
        Effect.BREAKS,
        _is_int8_softmax_of_another_rank,
        "Of int8 its scratch buffer is as large as the second dimension, but it writes as many elements as the last "
        "one has: with another rank than 2 it may write over other tensors.",
        "Reshape its input to 2 dimensions.",
    ),
)

ESP_NN = KernelLibrary(
    "esp-nn",
    "ESP-NN d45b843 (1.2.3) in esp-tflite-micro 99f49e1 (1.4.0)",
    family="espressif",
    view_alignment=16,
    memory=MappingProxyType(
        {
            "CONV_2D": OperatorMemory(
                NODE_DATA_CONV,
                _with_scratch(conv_2d.CONV_2D.requests, Conv2DOptions, CONV_BYTES),
                nothing,
            ),
            "DEPTHWISE_CONV_2D": OperatorMemory(
                NODE_DATA_CONV,
                _with_scratch(depthwise_conv_2d.DEPTHWISE_CONV_2D.requests, DepthwiseConv2DOptions, DEPTHWISE_BYTES),
                nothing,
            ),
            "SOFTMAX": OperatorMemory(NODE_DATA_SOFTMAX, _softmax_requests, nothing),
        }
    ),
    concerns=CONCERNS,
)
