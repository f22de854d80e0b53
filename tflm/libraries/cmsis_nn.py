"""CMSIS-NN, Arm's kernels for Cortex-M, and the glue that TFLM has for them.

Scratch sizes are those that CMSIS-NN's functions named `..._get_buffer_size` give when it is compiled with GCC, and go
by the part: whether it has `mve` (Helium), `dsp`, or neither. x is the input, f the filter, y the output.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from tflm.kernels.layers.convolution import OP_DATA_CONV, Operands
from tflm.kernels.layers.geometry import paddings
from tflm.kernels.layers.per_channel import ChannelMultipliers
from tflm.kernels.reference import (
    batch_matmul,
    conv_2d,
    depthwise_conv_2d,
    fully_connected,
    pooling,
    softmax,
    svdf,
    transpose_conv,
)
from tflm.kernels.reference import unidirectional_sequence_lstm as lstm
from tflm.kernels.requests import (
    NodeView,
    OperatorMemory,
    PersistentBuffer,
    Request,
    Requests,
    ScratchBuffer,
    TempInput,
    TempOutput,
    nothing,
    tensors,
    writable_dims,
)
from tflm.kernels.support.checks import element_count
from tflm.libraries.cmsis_nn_answers import BEHAVIOUR, CONCERNS
from tflm.libraries.kernel_library import KernelLibrary
from tflm.memory.tensor import TfLiteTensor
from tflm.schema.enums import TensorType
from tflm.schema.options import Conv2DOptions, DepthwiseConv2DOptions, TransposeConvOptions
from tflm.targets import INT, INT32, POINTER, Array, EnumType, Struct, Target, align_up

DIMS = Struct("cmsis_nn_dims", n=INT32, h=INT32, w=INT32, c=INT32)
OP_DATA_CONV_CMSIS = Struct("cmsis_nn/conv.cc:OpData", reference_op_data=OP_DATA_CONV, buffer_idx=INT)
OP_DATA_FULLY_CONNECTED_CMSIS = Struct(
    "cmsis_nn/fully_connected.cc:OpData",
    reference_op_data=fully_connected.OP_DATA_FULLY_CONNECTED,
    buffer_conv_1x1_idx=INT,
    buffer_idx=INT,
    kernel_sums=POINTER,
    batches=INT32,
    accum_depth=INT32,
    output_depth=INT32,
)
OP_DATA_POOLING_CMSIS = Struct("cmsis_nn/pooling.cc:OpData", reference_op_data=pooling.OP_DATA_POOLING, buffer_idx=INT)
OP_DATA_SVDF_CMSIS = svdf.OP_DATA_SVDF.extend("CmsisNnOpDataSvdf", kernel_sums=POINTER)
OP_DATA_SVDF_SIZE = OP_DATA_SVDF_CMSIS.extend("CmsisNnOpDataSvdf", scratch_weight_tensor_index=INT)
OP_DATA_TRANSPOSE_CONV_CMSIS = Struct(
    "cmsis_nn/transpose_conv.cc:OpData",
    params=transpose_conv.CONV_PARAMS,
    scratch_buffer_index=INT,
    scratch_buffer_output_index=INT,
    bias_converted_buffer_index=INT,
    per_channel_output_multiplier=POINTER,
    per_channel_output_shift=POINTER,
)
OP_DATA_BATCH_MATMUL_CMSIS = Struct(
    "cmsis_nn/batch_matmul.cc:OpData",
    reference_op_data=batch_matmul.OP_DATA_BATCH_MATMUL,
    output_shape=DIMS,
    buffer_idx=INT,
)
OP_DATA_SOFTMAX_CMSIS = Struct(
    "CMSISNNSoftmaxParams", softmax_params=softmax.SOFTMAX_PARAMS, num_rows=INT32, row_size=INT32
)
LSTM_GATE = Struct(
    "cmsis_nn_lstm_gate",
    input_multiplier=INT32,
    input_shift=INT32,
    input_weights=POINTER,
    input_effective_bias=POINTER,
    hidden_multiplier=INT32,
    hidden_shift=INT32,
    hidden_weights=POINTER,
    hidden_effective_bias=POINTER,
    bias=POINTER,
    activation_type=EnumType(largest=1),
)
LSTM_PARAMS = Struct(
    "cmsis_nn_lstm_params",
    time_major=INT32,
    batch_size=INT32,
    time_steps=INT32,
    input_size=INT32,
    hidden_size=INT32,
    input_offset=INT32,
    forget_to_cell_multiplier=INT32,
    forget_to_cell_shift=INT32,
    input_to_cell_multiplier=INT32,
    input_to_cell_shift=INT32,
    cell_clip=INT32,
    cell_scale_power=INT32,
    output_multiplier=INT32,
    output_shift=INT32,
    output_offset=INT32,
    gates=Array(LSTM_GATE, 4),
)
OP_DATA_LSTM_CMSIS = Struct(
    "cmsis_nn/unidirectional_sequence_lstm.cc:OpData", params_ref=lstm.OP_DATA_LSTM, params_cmsis_nn=LSTM_PARAMS
)

CHANNELS_IN_A_BLOCK = 124
"""CH_IN_BLOCK_MVE: channels that a depthwise convolution with Helium works on at once."""

REVERSED_FROM_CHANNELS = 16
"""REVERSE_TCOL_EFFICIENT_THRESHOLD: with more input channels, a TRANSPOSE_CONV is run as a CONV_2D."""


def has_mve(target: Target) -> bool:
    """Whether kernels use Helium."""
    return "mve" in target.extensions


def has_dsp(target: Target) -> bool:
    """Whether kernels use the DSP instructions, which they do not where there is Helium."""
    return "dsp" in target.extensions and not has_mve(target)


# --- Convolutions ------------------------------------------------------------------------------------------------


class Convolution(NamedTuple):
    """What the size of a convolution's scratch buffer goes by; pairs are for rows and columns."""

    x: TfLiteTensor
    y: TfLiteTensor
    taps: tuple[int, int]
    depth: int
    strides: tuple[int, int]
    dilations: tuple[int, int]
    padding: tuple[int, ...]

    @property
    def column(self) -> int:
        """Elements of the input under a window; all channels count, also those of other groups."""
        return self.x.dims[3] * self.taps[0] * self.taps[1]

    @property
    def is_pointwise(self) -> bool:
        """Whether it is a product of matrices as it stands: windows of one place, without padding."""
        return not any(self.padding) and self.taps == self.dilations == (1, 1) and self.x.dims[3] == self.depth

    @property
    def is_one_row(self) -> bool:
        """Whether the code for 1 x n windows takes it."""
        whole_words = self.strides[1] * self.x.dims[3] % 4 == 0
        one_row = self.x.dims[1] == self.taps[0] == self.dilations[1] == 1
        return one_row and whole_words and self.x.dims[3] == self.depth


def convolution(node: NodeView) -> Convolution:
    """A CONV_2D."""
    x, f, y = node.input(0), node.input(1), node.output(0)
    options = node.options(Conv2DOptions)
    strides = options.stride_h, options.stride_w
    dilations = options.dilation_h_factor, options.dilation_w_factor
    padding = paddings(options.padding, x.dims[1:3], f.dims[1:3], strides, dilations)
    return Convolution(x, y, (f.dims[1], f.dims[2]), f.dims[3], strides, dilations, padding)


def depthwise_convolution(node: NodeView) -> Convolution:
    """A DEPTHWISE_CONV_2D, whose filter has a depth of 1."""
    x, f, y = node.input(0), node.input(1), node.output(0)
    options = node.options(DepthwiseConv2DOptions)
    strides = options.stride_h, options.stride_w
    dilations = options.dilation_h_factor, options.dilation_w_factor
    padding = paddings(options.padding, x.dims[1:3], f.dims[1:3], strides, dilations)
    return Convolution(x, y, (f.dims[1], f.dims[2]), 1, strides, dilations, padding)


def columns_bytes(column: int, target: Target) -> int:
    """arm_convolve_s8_get_buffer_size: columns of int8, four with Helium, else two that are widened to int16."""
    return 4 * align_up(column, 16 if has_mve(target) else 4)


def conv_s8_bytes(conv: Convolution, target: Target) -> int:
    """arm_convolve_wrapper_s8_get_buffer_size, for int4 filters as well."""
    if conv.is_pointwise:
        return 0
    if has_mve(target) and conv.is_one_row:
        return _conv_1_x_n_bytes(conv, target)
    return columns_bytes(conv.column, target)


def _conv_1_x_n_bytes(conv: Convolution, target: Target) -> int:
    """arm_convolve_1_x_n_s8_get_buffer_size_mve: what lies under a window that reaches into the padding."""
    channels, taps, stride, padding = conv.x.dims[3], conv.taps[1], conv.strides[1], conv.padding[1]
    width, windows = conv.x.dims[2], conv.y.dims[2]
    uneven = ((windows - 1) * stride + taps - width) % 2
    right = max(1, (padding + uneven + stride - 1) // stride) if padding + uneven else 0
    left = max(1, (padding + stride - 1) // stride) if padding else 0
    between = max(windows - right - left, 0)
    if left + between + right != windows:
        return columns_bytes(conv.column, target)
    under_right = right if uneven else padding
    return max(taps + padding, taps - 1 + under_right) * channels


def conv_s16_bytes(conv: Convolution, target: Target) -> int:
    """arm_convolve_wrapper_s16_get_buffer_size."""
    return 8 * align_up(conv.column, 8) if has_mve(target) else 4 * conv.column


def depthwise_s8_bytes(conv: Convolution, target: Target) -> int:
    """arm_depthwise_conv_wrapper_s8_get_buffer_size."""
    channels = conv.y.dims[3]
    if has_mve(target) and conv.x.dims[3] == 1 and channels > 1:
        return conv_s8_bytes(conv, target) + channels * conv.taps[0] * conv.taps[1]
    if not keeps_channels(conv):
        return 0
    if not has_mve(target) and conv.taps == (3, 3) and max(conv.padding) <= 1:
        return 0
    return depthwise_columns_bytes(conv, target) if target.extensions else 0


def depthwise_s4_bytes(conv: Convolution, target: Target) -> int:
    """arm_depthwise_conv_wrapper_s4_get_buffer_size."""
    return depthwise_columns_bytes(conv, target) if keeps_channels(conv) else 0


def keeps_channels(conv: Convolution) -> bool:
    """Whether the optimised code takes a depthwise convolution: each channel makes one, of one image."""
    return conv.x.dims[3] == conv.y.dims[3] and conv.x.dims[0] == 1 and conv.dilations == (1, 1)


def depthwise_columns_bytes(conv: Convolution, target: Target) -> int:
    """arm_depthwise_conv_s8_opt_get_buffer_size: four blocks of int8 with Helium, else a column of int16."""
    return 4 * CHANNELS_IN_A_BLOCK * conv.taps[0] * conv.taps[1] if has_mve(target) else 2 * conv.column


def _conv_requests(node: NodeView) -> Iterator[Request]:
    x = node.input(0)
    yield from convolution_requests(node, conv_2d.OPERANDS)
    if x.type != TensorType.FLOAT32:
        size = (conv_s8_bytes if x.type == TensorType.INT8 else conv_s16_bytes)(convolution(node), node.target)
        yield from scratch_if_any("columns", size)


def _depthwise_requests(node: NodeView) -> Iterator[Request]:
    yield from convolution_requests(node, depthwise_conv_2d.OPERANDS)
    if node.input(0).type == TensorType.INT8:
        size = depthwise_s4_bytes if node.input(1).type == TensorType.INT4 else depthwise_s8_bytes
        yield from scratch_if_any("columns", size(depthwise_convolution(node), node.target))


def convolution_requests(node: NodeView, operands: Operands) -> Iterator[Request]:
    """What CONV_2D and DEPTHWISE_CONV_2D ask for, but for scratch."""
    yield TempInput(operands.input)
    yield TempInput(operands.weights)
    yield TempOutput(0)
    if node.input(operands.input).type != TensorType.FLOAT32:
        yield from ChannelMultipliers.requests(node.input(operands.weights).dims[operands.channels])
    yield from operands.tensor_requests(node)


def scratch_if_any(name: str, size: int) -> Iterator[Request]:
    """A scratch buffer, unless its size is 0."""
    if size > 0:
        yield ScratchBuffer(name, size)


def transpose_conv_bytes(node: NodeView) -> tuple[int, int]:
    """arm_transpose_conv_s8_get_buffer_size, and that of the reversed filter."""
    x, f = node.input(2), node.input(1)
    options = node.options(TransposeConvOptions)
    (rows, columns), channels = f.dims[1:3], x.dims[3]
    if max(options.stride_h, options.stride_w) <= 2 and channels > REVERSED_FROM_CHANNELS:
        column = channels * rows * columns
        return columns_bytes(column, node.target), column * f.dims[0]
    # As the source has it, the stride along the height bounds the columns as well.
    width = (x.dims[2] - 1) * options.stride_w + max(columns, options.stride_h)
    return 4 * width * f.dims[0] * max(rows, options.stride_h), 0


def _transpose_conv_requests(node: NodeView) -> Iterator[Request]:
    x, operands = node.input(2), transpose_conv.OPERANDS
    yield from operands.shape_requests()
    yield from ChannelMultipliers.requests(node.input(operands.weights).dims[0])
    if x.type == TensorType.INT8:
        sums, filter = transpose_conv_bytes(node)
        yield ScratchBuffer("sums", sums)
        yield ScratchBuffer("reversed filter", filter)
    if x.type == TensorType.INT16:
        yield ScratchBuffer("sums", 8 * element_count(node.output(0)))
    if x.type != TensorType.FLOAT32:
        yield from operands.tensor_requests(node)
        yield from transpose_conv.wide_bias(node)


# --- Products ----------------------------------------------------------------------------------------------------


def _fully_connected_requests(node: NodeView, for_size: bool) -> Iterator[Request]:
    f, y = node.input(fully_connected.WEIGHTS), node.output(0)
    yield from fully_connected.tensor_requests(node)
    yield from fully_connected.multiplier_requests(f)
    if node.input(fully_connected.INPUT).type != TensorType.INT8 or f.type == TensorType.INT4:
        return
    channels = y.dims[-1]
    if len(y.dims) > 2 and f.dims[-1] % 4 == 0:  # run as a convolution, which takes a scale for each channel
        if not any(fully_connected.multiplier_requests(f)):
            yield ScratchBuffer("per-channel quantization", 8 * channels)
    elif has_mve(node.target):
        has_bias = node.has_input(fully_connected.BIAS)
        constant = f.is_constant and (not has_bias or node.input(fully_connected.BIAS).is_constant)
        kind = PersistentBuffer if constant and not for_size else ScratchBuffer
        yield kind("kernel_sums", 4 * channels)


def _batch_matmul_requests(node: NodeView) -> Iterator[Request]:
    y = node.output(0)
    yield from tensors(2)(node)
    yield from batch_matmul.transposed_requests(node)
    yield writable_dims(y)
    if y.type != TensorType.FLOAT32:
        yield batch_matmul.quantization_request(node)
    if y.type == TensorType.INT8 and has_mve(node.target):
        yield ScratchBuffer("kernel_sums", 4 * y.dims[-1])


def _svdf_requests(node: NodeView, for_size: bool) -> Iterator[Request]:
    yield from tensors(5)(node)
    yield from svdf.sums_requests(node)
    if node.input(svdf.INPUT).type == TensorType.INT8 and has_mve(node.target):
        kind = ScratchBuffer if for_size else PersistentBuffer
        yield kind("kernel_sums", 4 * node.input(svdf.WEIGHTS_FEATURE).dims[0])


def _lstm_requests(node: NodeView) -> Iterator[Request]:
    input, cell = node.input(lstm.INPUT), node.input(lstm.CELL_STATE)
    yield from lstm.tensor_requests()
    if input.type == TensorType.FLOAT32:
        for i in range(4):
            yield ScratchBuffer(f"gate {i}", cell.bytes)
        return
    units = node.input(lstm.HIDDEN_STATE).dims[1]
    bias_bytes = 8 if input.type == TensorType.INT16 else 4
    for side in ("input", "recurrent"):
        for gate in ("input", "forget", "cell", "output"):
            yield PersistentBuffer(f"effective bias of the {gate} gate, {side} side", bias_bytes * units)
    for name in ("temp1", "temp2", "cell_state"):
        yield ScratchBuffer(name, cell.bytes)


# --- Pools and softmax -------------------------------------------------------------------------------------------


def _average_pool_requests(node: NodeView) -> Iterator[Request]:
    x = node.input(0)
    yield from 2 * (TempInput(0), TempOutput(0))
    if x.type != TensorType.FLOAT32 and has_dsp(node.target):
        yield ScratchBuffer("sums", 4 * x.dims[3])


def _softmax_requests(node: NodeView) -> Iterator[Request]:
    yield from tensors()(node)
    yield from softmax.table_requests(node)


def _memory(for_size: bool) -> dict[str, OperatorMemory]:
    def declare(op_data: Struct, prepare: Requests) -> OperatorMemory:
        return OperatorMemory(op_data, prepare, nothing)

    return {
        "CONV_2D": declare(OP_DATA_CONV_CMSIS, _conv_requests),
        "DEPTHWISE_CONV_2D": declare(OP_DATA_CONV_CMSIS, _depthwise_requests),
        "TRANSPOSE_CONV": declare(OP_DATA_TRANSPOSE_CONV_CMSIS, _transpose_conv_requests),
        "FULLY_CONNECTED": declare(
            OP_DATA_FULLY_CONNECTED_CMSIS, partial(_fully_connected_requests, for_size=for_size)
        ),
        "BATCH_MATMUL": declare(OP_DATA_BATCH_MATMUL_CMSIS, _batch_matmul_requests),
        "SVDF": declare(
            OP_DATA_SVDF_SIZE if for_size else OP_DATA_SVDF_CMSIS, partial(_svdf_requests, for_size=for_size)
        ),
        "UNIDIRECTIONAL_SEQUENCE_LSTM": declare(OP_DATA_LSTM_CMSIS, _lstm_requests),
        "AVERAGE_POOL_2D": declare(OP_DATA_POOLING_CMSIS, _average_pool_requests),
        "MAX_POOL_2D": declare(OP_DATA_POOLING_CMSIS, tensors()),
        "SOFTMAX": declare(OP_DATA_SOFTMAX_CMSIS, _softmax_requests),
    }


SPEED = KernelLibrary(
    "cmsis-nn",
    "CMSIS-NN 4ab83cc3c, built for speed (the default)",
    family="cortex-m",
    memory=MappingProxyType(_memory(for_size=False)),
    behaviour=BEHAVIOUR,
    concerns=CONCERNS,
)
SIZE = replace(
    SPEED,
    name="cmsis-nn:size",
    version="CMSIS-NN 4ab83cc3c, built for size",
    memory=MappingProxyType(_memory(for_size=True)),
)
