"""CMSIS-NN, Arm's kernels for Cortex-M, and TFLM's glue code for them.

Sizes of scratch buffers depend on the part and the version: see `cmsis_nn_scratch`. x is the input, f the filter, y the
output.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from types import MappingProxyType
from typing import Any

from tflm.kernels.layers.convolution import OP_DATA_CONV, ConvolutionInputs
from tflm.kernels.layers.product import ChannelMultipliers
from tflm.kernels.node import Node, Requests
from tflm.kernels.reference import fully_connected, normalization, pooling, svdf
from tflm.kernels.reference import unidirectional_sequence_lstm as lstm
from tflm.kernels.reference.convolution import CONV_INPUTS, CONV_PARAMS, DEPTHWISE_INPUTS, TRANSPOSE_INPUTS, wide_bias
from tflm.kernels.registration import OperatorMemory
from tflm.kernels.requests import (
    PersistentBuffer,
    Request,
    ScratchBuffer,
    TempInput,
    TempIntermediate,
    TempOutput,
    nothing,
    tensors,
    writable_dims,
)
from tflm.kernels.support.checks import element_count
from tflm.libraries.cmsis_nn_answers import BEHAVIOUR, CONCERNS, NEW_LSTM, defects
from tflm.libraries.cmsis_nn_scratch import (
    COMMITS_OF_TAGS,
    VERSIONS,
    conv_s8_bytes,
    conv_s16_bytes,
    convolution,
    depthwise_s4_bytes,
    depthwise_s8_bytes,
    has_dsp,
    has_mve,
    overlaps,
    transpose_conv_bytes,
)
from tflm.libraries.kernel_library import KernelLibrary, Version, version_named
from tflm.schema.enums import TensorType
from tflm.schema.options import Conv2DOptions, DepthwiseConv2DOptions
from tflm.targets import INT, INT8, INT16, INT32, POINTER, Array, EnumType, Since, Struct, Until

CURRENT = "4ab83cc3"
"""The default version of `cmsis-nn`: that of the TFLM that this package follows."""

# Commits of TFLM that changed the requests of its glue code.
INT4_FILTERS = "8e83744d8", "4f253e217"
"""int4 filters are unpacked into scratch, by CONV_2D and by the others."""
INT4_KERNELS = "5beca7c52"
"""int4 filters are used directly."""
INT16_POOLS = "4b0314f25"
OLD_LSTM = "c373ad48b"
KERNEL_SUMS = "3022d0960"
"""With Helium, kernels store sums of the weights."""
SYMMETRIC_WEIGHTS = "a6e6ea182", "f5e498b68"
"""Between these, the library's FULLY_CONNECTED is used only if the weights' zero point is 0."""
TRANSPOSE_CONV = "c845961df"
REVERSED_FILTERS = "182c8c770"
BATCH_MATMUL = "89f99a9e7"
BUILT_FOR_SIZE = "5a46ab0e1"
"""FULLY_CONNECTED and SVDF can be built for size."""
CONSTANT_BIAS = "11a8f50d9"
"""Sums of the weights are stored if the bias is constant, too."""

DIMS = Struct("cmsis_nn_dims", n=INT32, h=INT32, w=INT32, c=INT32)
OP_DATA_CONV_CMSIS = Struct("cmsis_nn/conv.cc:OpData", reference_op_data=OP_DATA_CONV, buffer_idx=INT)
OP_DATA_FULLY_CONNECTED_CMSIS = Struct(
    "cmsis_nn/fully_connected.cc:OpData",
    reference_op_data=fully_connected.OP_DATA_FULLY_CONNECTED,
    per_channel_output_multiplier=Until(fully_connected.SCALES_BY_ROW, Since("06e32a48f", POINTER)),
    per_channel_output_shift=Until(fully_connected.SCALES_BY_ROW, Since("06e32a48f", POINTER)),
    buffer_conv_1x1_idx=Since(fully_connected.SCALES_BY_ROW, INT),
    buffer_idx=INT,
    kernel_sums=Since(KERNEL_SUMS, POINTER),
    batches=Since("b0afe2890", INT32),
    accum_depth=Since("b0afe2890", INT32),
    output_depth=Since("b0afe2890", INT32),
)
OP_DATA_POOLING_CMSIS = Struct("cmsis_nn/pooling.cc:OpData", reference_op_data=pooling.OP_DATA_POOLING, buffer_idx=INT)
OP_DATA_SVDF_CMSIS = svdf.OP_DATA_SVDF.extend("CmsisNnOpDataSvdf", kernel_sums=Since(KERNEL_SUMS, POINTER))
OP_DATA_SVDF_SIZE = OP_DATA_SVDF_CMSIS.extend(
    "CmsisNnOpDataSvdf", scratch_weight_tensor_index=Since(BUILT_FOR_SIZE, INT)
)
OP_DATA_TRANSPOSE_CONV_CMSIS = Struct(
    "cmsis_nn/transpose_conv.cc:OpData",
    params=CONV_PARAMS,
    scratch_buffer_index=INT,
    scratch_buffer_output_index=INT,
    bias_converted_buffer_index=INT,
    per_channel_output_multiplier=POINTER,
    per_channel_output_shift=POINTER,
)
OP_DATA_BATCH_MATMUL_CMSIS = Struct(
    "cmsis_nn/batch_matmul.cc:OpData",
    reference_op_data=fully_connected.OP_DATA_BATCH_MATMUL,
    output_shape=DIMS,
    buffer_idx=INT,
)
OP_DATA_SOFTMAX_CMSIS = Struct(
    "CMSISNNSoftmaxParams", softmax_params=normalization.SOFTMAX_PARAMS, num_rows=INT32, row_size=INT32
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
SCALINGS_BEFORE = 17
"""A multiplier and a shift for each gate, layer normalization and projection."""
LSTM_PARAMS_BEFORE = Struct(
    "cmsis_nn_lstm_params",
    time_major=INT32,
    scalings=Array(INT32, 2 * SCALINGS_BEFORE),
    cell_state_shift=INT32,
    hidden_offset=INT32,
    output_state_offset=INT32,
    cell_clip=INT16,
    projection_clip=INT8,
    guard=Array(INT32, 4),
    layer_norm=Array(POINTER, 4),
    effective_biases=Array(POINTER, 9),
    gate_biases=Array(POINTER, 4),
    activation=Array(INT32, 2),
)
OP_DATA_LSTM_CMSIS = Struct(
    "cmsis_nn/unidirectional_sequence_lstm.cc:OpData",
    params_ref=lstm.OP_DATA_LSTM,
    params_cmsis_nn=Since(NEW_LSTM, LSTM_PARAMS),
    params_before=Until(NEW_LSTM, LSTM_PARAMS_BEFORE),
)

# --- Convolutions ------------------------------------------------------------------------------------------------


def _conv_requests(node: Node, version: Version) -> Iterator[Request]:
    x = node.input(0)
    yield from _unpacked_filter(node, INT4_FILTERS[0])
    yield from _convolution_requests(node, CONV_INPUTS)
    if x.type != TensorType.FLOAT32:
        size = conv_s8_bytes if x.type == TensorType.INT8 else conv_s16_bytes
        yield from _scratch_if_any("columns", size(convolution(node, Conv2DOptions), node.target, version))


def _depthwise_requests(node: Node, version: Version) -> Iterator[Request]:
    yield from _unpacked_filter(node, INT4_FILTERS[1])
    yield from _convolution_requests(node, DEPTHWISE_INPUTS)
    if node.input(0).type == TensorType.INT8:
        is_int4 = node.input(1).type == TensorType.INT4 and node.release.holds(INT4_KERNELS)
        size = depthwise_s4_bytes if is_int4 else depthwise_s8_bytes
        yield from _scratch_if_any("columns", size(convolution(node, DepthwiseConv2DOptions), node.target, version))


def _unpacked_filter(node: Node, since: str) -> Iterator[Request]:
    f, release = node.input(1), node.release
    if f.type == TensorType.INT4 and release.holds(since) and not release.holds(INT4_KERNELS):
        yield ScratchBuffer("filter", element_count(f))


def _convolution_requests(node: Node, operands: ConvolutionInputs) -> Iterator[Request]:
    """Requests of CONV_2D and DEPTHWISE_CONV_2D, except scratch."""
    yield TempInput(operands.input)
    yield TempInput(operands.weights)
    yield TempOutput(0)
    if node.input(operands.input).type != TensorType.FLOAT32:
        yield from ChannelMultipliers.requests(node.input(operands.weights).dims[operands.channels])
    yield from operands.tensor_requests(node)


def _scratch_if_any(name: str, size: int) -> Iterator[Request]:
    """A scratch buffer, unless its size is 0."""
    if size > 0:
        yield ScratchBuffer(name, size)


def _transpose_conv_requests(node: Node, version: Version) -> Iterator[Request]:
    x, operands = node.input(2), TRANSPOSE_INPUTS
    yield from operands.shape_requests()
    yield from ChannelMultipliers.requests(node.input(operands.weights).dims[0])
    if x.type == TensorType.INT8:
        sums, filter = transpose_conv_bytes(node, version)
        yield ScratchBuffer("sums", sums)
        if node.release.holds(REVERSED_FILTERS):
            yield ScratchBuffer("reversed filter", filter)
        else:
            yield ScratchBuffer("output", 4 * element_count(node.output(0)) // node.output(0).dims[0])
    if x.type == TensorType.INT16:
        yield ScratchBuffer("sums", 8 * element_count(node.output(0)))
    if x.type != TensorType.FLOAT32:
        yield from operands.tensor_requests(node)
        yield from wide_bias(node)


# --- Products ----------------------------------------------------------------------------------------------------


def _fully_connected_requests(node: Node, version: Version, for_size: bool) -> Iterator[Request]:
    yield from fully_connected.tensor_requests(node)
    yield from fully_connected.multiplier_requests(node)
    if node.input(fully_connected.INPUT).type == TensorType.INT8 and _takes_weights(node):
        yield from _integer_fully_connected_requests(node, version, for_size)
    yield from _unpacked_filter(node, INT4_FILTERS[1])


def _takes_weights(node: Node) -> bool:
    """Whether the library's int8 kernel supports these weights."""
    f, release = node.input(fully_connected.WEIGHTS), node.release
    if f.type == TensorType.INT4 and release.holds(INT4_KERNELS):
        return False
    only_symmetric = release.holds(SYMMETRIC_WEIGHTS[0]) and not release.holds(SYMMETRIC_WEIGHTS[1])
    return f.zero_point == 0 or not only_symmetric


def _integer_fully_connected_requests(node: Node, version: Version, for_size: bool) -> Iterator[Request]:
    f, y, release = node.input(fully_connected.WEIGHTS), node.output(0), node.release
    channels = y.dims[-1]
    if len(y.dims) > 2 and f.dims[-1] % 4 == 0:  # run as a convolution, which supports a scale for each channel
        if not release.holds(fully_connected.SCALES_BY_ROW):
            yield from ChannelMultipliers.requests(channels)
        elif not any(fully_connected.multiplier_requests(node)):
            yield ScratchBuffer("per-channel quantization", 8 * channels)
    elif has_mve(node.target) and version.since("58f17705"):
        kind = PersistentBuffer if _keeps_kernel_sums(node, for_size) else ScratchBuffer
        yield kind("kernel_sums", 4 * channels)


def _keeps_kernel_sums(node: Node, for_size: bool) -> bool:
    """Whether sums of the weights are computed once and stored."""
    f, release = node.input(fully_connected.WEIGHTS), node.release
    if for_size and release.holds(BUILT_FOR_SIZE):
        return False
    if not release.holds(SYMMETRIC_WEIGHTS[1]):
        return True
    has_bias = node.has_input(fully_connected.BIAS) and release.holds(CONSTANT_BIAS)
    return f.is_constant and (not has_bias or node.input(fully_connected.BIAS).is_constant)


def _batch_matmul_requests(node: Node) -> Iterator[Request]:
    y = node.output(0)
    yield from tensors(2)(node)
    yield from fully_connected.transposed_requests(node)
    yield writable_dims(y)
    if y.type != TensorType.FLOAT32:
        yield fully_connected.quantization_request(node)
    if y.type == TensorType.INT8 and has_mve(node.target):
        yield ScratchBuffer("kernel_sums", 4 * y.dims[-1])


def _svdf_requests(node: Node, version: Version, for_size: bool) -> Iterator[Request]:
    yield from tensors(5)(node)
    yield from svdf.sums_requests(node)
    if node.input(svdf.INPUT).type == TensorType.INT8 and has_mve(node.target) and version.since("58f17705"):
        kind = ScratchBuffer if for_size and node.release.holds(BUILT_FOR_SIZE) else PersistentBuffer
        yield kind("kernel_sums", 4 * node.input(svdf.WEIGHTS_FEATURE).dims[0])


def _lstm_requests(node: Node) -> Iterator[Request]:
    input, cell = node.input(lstm.INPUT), node.input(lstm.CELL_STATE)
    yield from lstm.tensor_requests()
    if input.type == TensorType.FLOAT32:
        for i in range(4):
            yield ScratchBuffer(f"gate {i}", cell.bytes)
        return
    if not node.release.holds(NEW_LSTM):
        yield from _lstm_requests_before(node)
        return
    units = node.input(lstm.HIDDEN_STATE).dims[1]
    bias_bytes = 8 if input.type == TensorType.INT16 else 4
    for side in ("input", "recurrent"):
        for gate in ("input", "forget", "cell", "output"):
            yield PersistentBuffer(f"effective bias of the {gate} gate, {side} side", bias_bytes * units)
    for name in ("temp1", "temp2", "cell_state"):
        yield ScratchBuffer(name, cell.bytes)


def _lstm_requests_before(node: Node) -> Iterator[Request]:
    cell, is_int8 = node.input(lstm.CELL_STATE), node.input(lstm.INPUT).type == TensorType.INT8
    if is_int8:
        for gate, weights in (("forget", 2), ("cell", 3), ("output", 4), ("input", 1)):
            for side in ("input", "recurrent"):
                yield PersistentBuffer(
                    f"effective bias of the {gate} gate, {side} side", 4 * node.input(weights).dims[0]
                )
        yield TempIntermediate(lstm.HIDDEN_INTERMEDIATE)
    for i in range(4):
        yield ScratchBuffer(f"gate {i}", cell.bytes)


# --- Pools and softmax -------------------------------------------------------------------------------------------


def _average_pool_requests(node: Node) -> Iterator[Request]:
    x = node.input(0)
    yield from 2 * (TempInput(0), TempOutput(0))
    has_kernel = x.type == TensorType.INT8 or (x.type == TensorType.INT16 and node.release.holds(INT16_POOLS))
    if has_kernel and has_dsp(node.target):
        yield ScratchBuffer("sums", 4 * x.dims[3])


def _softmax_requests(node: Node) -> Iterator[Request]:
    yield from tensors()(node)
    yield from normalization.table_requests(node)


def _memory(version: Version, for_size: bool) -> dict[str, OperatorMemory]:
    def declare(op_data: Struct, requests: Requests, since: str = "") -> OperatorMemory:
        return OperatorMemory(op_data, requests, nothing, since)

    build: dict[str, Any] = {"version": version, "for_size": for_size}
    return {
        "CONV_2D": declare(OP_DATA_CONV_CMSIS, partial(_conv_requests, version=version)),
        "DEPTHWISE_CONV_2D": declare(OP_DATA_CONV_CMSIS, partial(_depthwise_requests, version=version)),
        "TRANSPOSE_CONV": declare(
            OP_DATA_TRANSPOSE_CONV_CMSIS, partial(_transpose_conv_requests, version=version), TRANSPOSE_CONV
        ),
        "FULLY_CONNECTED": declare(OP_DATA_FULLY_CONNECTED_CMSIS, partial(_fully_connected_requests, **build)),
        "BATCH_MATMUL": declare(OP_DATA_BATCH_MATMUL_CMSIS, _batch_matmul_requests, BATCH_MATMUL),
        "SVDF": declare(OP_DATA_SVDF_SIZE if for_size else OP_DATA_SVDF_CMSIS, partial(_svdf_requests, **build)),
        "UNIDIRECTIONAL_SEQUENCE_LSTM": declare(OP_DATA_LSTM_CMSIS, _lstm_requests, OLD_LSTM),
        "AVERAGE_POOL_2D": declare(OP_DATA_POOLING_CMSIS, _average_pool_requests),
        "MAX_POOL_2D": declare(OP_DATA_POOLING_CMSIS, tensors()),
        "SOFTMAX": declare(OP_DATA_SOFTMAX_CMSIS, _softmax_requests, "a3e7bdad0"),
    }


@cache
def library(version: str = CURRENT, *, for_size: bool = False) -> KernelLibrary:
    """CMSIS-NN of a version.

    Args:
        version: a tag or commit of the library.
        for_size: whether TFLM's glue is built for size; else for speed, which is its default.

    Raises:
        ArgumentError: there is no such version; the message lists them.
    """
    found = version_named("CMSIS-NN", version, VERSIONS, COMMITS_OF_TAGS)
    name = "cmsis-nn:size" if for_size else "cmsis-nn"
    return KernelLibrary(
        name if found.name == CURRENT else f"{name}@{found.name}",
        f"CMSIS-NN {found.name}, built for {'size' if for_size else 'speed (the default)'}",
        family="cortex-m",
        memory=MappingProxyType(_memory(found, for_size)),
        behaviour=BEHAVIOUR,
        concerns=(*CONCERNS, *defects(found)),
        overlaps=partial(overlaps, version=found),
    )


library_for_size = partial(library, for_size=True)
