"""The library for Arduino, Chirale_TensorFLowLite 2.0.0: an older TFLM with an older CMSIS-NN.

It is TFLM of January 2023, built without `TF_LITE_STATIC_MEMORY`, which makes tensors and nodes larger. What follows is
what differs from today's TFLM, and from CMSIS-NN in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType

from tflm.kernels.layers.per_channel import ChannelMultipliers
from tflm.kernels.reference import (
    concatenation,
    conv_2d,
    depthwise_conv_2d,
    fully_connected,
    reduce,
    relu,
    strided_slice,
    transpose_conv,
)
from tflm.kernels.reference import unidirectional_sequence_lstm as lstm
from tflm.kernels.registration import NODE_AND_REGISTRATION
from tflm.kernels.requests import (
    NodeView,
    OperatorMemory,
    PersistentBuffer,
    Request,
    ScratchBuffer,
    TempInput,
    TempIntermediate,
    TempOutput,
    nothing,
    tensors,
)
from tflm.kernels.support.checks import element_count
from tflm.libraries import cmsis_nn
from tflm.libraries.kernel_library import Concern, Effect, KernelLibrary, Release
from tflm.memory.tensor import (
    TFLITE_ALLOCATION_TYPE,
    TFLITE_QUANTIZATION,
    TFLITE_QUANTIZATION_PARAMS,
    TFLITE_TENSOR,
    TFLITE_TYPE,
)
from tflm.schema.enums import TensorType
from tflm.targets import BOOL, INT, INT8, INT16, INT32, POINTER, SIZE_T, Array, Struct, Target, align_up

# --- TFLM of January 2023 ----------------------------------------------------------------------------------------

TFLITE_TENSOR_IN_FULL = Struct(
    "TfLiteTensor",
    type=TFLITE_TYPE,
    data=POINTER,
    dims=POINTER,
    params=TFLITE_QUANTIZATION_PARAMS,
    allocation_type=TFLITE_ALLOCATION_TYPE,
    bytes=SIZE_T,
    allocation=POINTER,
    name=POINTER,
    delegate=POINTER,
    buffer_handle=INT,
    data_is_stale=BOOL,
    is_variable=BOOL,
    quantization=TFLITE_QUANTIZATION,
    sparsity=POINTER,
    dims_signature=POINTER,
)
TFLITE_NODE_IN_FULL = Struct(
    "TfLiteNode",
    inputs=POINTER,
    outputs=POINTER,
    intermediates=POINTER,
    temporaries=POINTER,
    user_data=POINTER,
    builtin_data=POINTER,
    custom_initial_data=POINTER,
    custom_initial_data_size=INT,
    delegate=POINTER,
    might_have_side_effect=BOOL,
)
OP_DATA_REDUCE = reduce.OP_DATA_REDUCE.without("scratch_input_iter_idx")
RELU6_OP_DATA = Struct("Relu6OpData", six_int8=INT8, zero_int8=INT8)
INTEGER_LSTM_PARAMETER = Struct(
    "IntegerLstmParameter",
    effective_scales=Array(INT32, 26),
    layer_norm_scales=Array(INT32, 8),
    quantized_cell_clip=INT16,
    quantized_proj_clip=INT8,
    hidden_zp=INT32,
    cell_scale=INT32,
    variance_guards=Array(INT32, 4),
    effective_biases=Array(POINTER, 9),
    intermediate_scale_a=Array(INT32, 8),
    intermediate_scale_b=Array(INT32, 8),
    intermediate_zp=Array(INT32, 12),
)
OP_DATA_LSTM = Struct(
    "UnidirectionalSequenceLstmOpData",
    use_layer_norm=BOOL,
    scratch_index=Array(INT, 12),
    row_sums_size=INT32,
    row_sums=POINTER,
    compute_row_sums=BOOL,
    input_zero_point=INT32,
    output_state_zero_point=INT32,
    integer_lstm_param=INTEGER_LSTM_PARAMETER,
)

HIDDEN = 4
"""The intermediate tensor whose quantization an LSTM of int8 reads."""

ALL_WEIGHTS = range(1, 9)
"""Of an LSTM: of the input for four gates, then of the hidden state."""


def _concatenation_requests(node: NodeView) -> Iterator[Request]:
    yield from concatenation.CONCATENATION.requests(node)
    yield TempOutput(0)
    if node.output(0).type == TensorType.INT8:
        yield PersistentBuffer("input scales", 4 * node.input_count)
        yield PersistentBuffer("input zero points", 4 * node.input_count)
        yield from map(TempInput, range(node.input_count))


def _sum_requests(node: NodeView) -> Iterator[Request]:
    yield from reduce.FIRST_TENSORS
    if node.input(reduce.INPUT).type != TensorType.FLOAT32:
        yield ScratchBuffer("sums", 4 * element_count(node.output(0)))
    yield from reduce.second_tensors(node)


def _lstm_requests(node: NodeView) -> Iterator[Request]:
    yield from _lstm_tensors(lstm.INPUT, 4, 8, 1, 2, 3, 5, 6, 7, *sorted(lstm.BIASES))
    yield TempOutput(0)
    yield from _lstm_tensors(lstm.HIDDEN_STATE, lstm.CELL_STATE, 1)
    input, cell = node.input(lstm.INPUT), node.input(lstm.CELL_STATE)
    count = element_count(cell)
    if input.type != TensorType.INT8:
        yield ScratchBuffer("gates", 4 * input.bytes // element_count(input) * count)
        return
    yield from _integer_lstm_requests(count, node.input(ALL_WEIGHTS[0]).dims[0])


def _integer_lstm_requests(count: int, rows: int) -> Iterator[Request]:
    yield TempInput(lstm.CELL_STATE)
    yield TempOutput(0)
    yield from _lstm_tensors(lstm.INPUT, *ALL_WEIGHTS, lstm.HIDDEN_STATE)
    yield TempIntermediate(HIDDEN)
    for i in range(4):
        yield ScratchBuffer(f"gate {i}", 2 * count)
    yield ScratchBuffer("results", count)
    yield from _lstm_tensors(lstm.INPUT, lstm.HIDDEN_STATE, *ALL_WEIGHTS)
    yield TempIntermediate(HIDDEN)
    for gate, bias in (("forget", 13), ("cell", 14), ("output", 15), ("input", 12)):
        yield TempInput(bias)
        for side in ("input", "recurrent"):
            yield PersistentBuffer(f"effective bias of the {gate} gate, {side} side", 4 * rows)


def _lstm_tensors(*places: int) -> Iterator[Request]:
    return map(TempInput, places)


JANUARY_2023 = Release(
    "TFLM of January 2023, without static memory",
    structures=MappingProxyType(
        {
            NODE_AND_REGISTRATION.name: Struct(
                NODE_AND_REGISTRATION.name, node=TFLITE_NODE_IN_FULL, registration=POINTER
            ),
            TFLITE_TENSOR.name: TFLITE_TENSOR_IN_FULL,
            "MicroResourceVariables::MicroResourceVariable": Struct(
                "MicroResourceVariable", container=POINTER, shared_name=POINTER, resource_buffer=POINTER, bytes=SIZE_T
            ),
            **{
                options.name: options.without(newer)
                for options, newer in (
                    (conv_2d.TFLITE_CONV_PARAMS, "quantized_bias_type"),
                    (fully_connected.TFLITE_FULLY_CONNECTED_PARAMS, "quantized_bias_type"),
                    (transpose_conv.TFLITE_TRANSPOSE_CONV_PARAMS, "quantized_bias_type"),
                    (strided_slice.TFLITE_STRIDED_SLICE_PARAMS, "offset"),
                )
            },
        }
    ),
    memory=MappingProxyType(
        {
            "CONCATENATION": OperatorMemory(concatenation.OP_DATA_CONCATENATION, _concatenation_requests, nothing),
            "GATHER_ND": OperatorMemory(None, tensors(2), nothing),
            "MEAN": OperatorMemory(OP_DATA_REDUCE, _sum_requests, nothing),
            "REDUCE_MAX": OperatorMemory(OP_DATA_REDUCE, reduce.REDUCE_MAX.requests, nothing),
            "RELU6": OperatorMemory(RELU6_OP_DATA, relu.RELU6.requests, nothing),
            "SUM": OperatorMemory(OP_DATA_REDUCE, _sum_requests, nothing),
            "UNIDIRECTIONAL_SEQUENCE_LSTM": OperatorMemory(OP_DATA_LSTM, _lstm_requests, nothing),
        }
    ),
    lacks=frozenset(
        {
            "BATCH_MATMUL",
            "BasicClassifier",
            "DYNAMIC_UPDATE_SLICE",
            "EMBEDDING_LOOKUP",
            "REDUCE_ALL",
            "REDUCE_MIN",
            "REVERSE_V2",
            "SignalDelay",
            "SignalEnergy",
            "SignalFftAutoScale",
            "SignalFilterBank",
            "SignalFilterBankLog",
            "SignalFilterBankSpectralSubtraction",
            "SignalFilterBankSquareRoot",
            "SignalFramer",
            "SignalIrfft",
            "SignalOverlapAdd",
            "SignalPCAN",
            "SignalRfft",
            "SignalStacker",
            "SignalWindow",
            "TFLM_DECODE",
        }
    ),
)

# --- CMSIS-NN of October 2022 ------------------------------------------------------------------------------------

OP_DATA_FULLY_CONNECTED = Struct(
    "cmsis_nn/fully_connected.cc:OpData",
    reference_op_data=fully_connected.OP_DATA_FULLY_CONNECTED.without(
        "per_channel_output_multiplier", "per_channel_output_shift", "is_per_channel"
    ),
    per_channel_output_multiplier=POINTER,
    per_channel_output_shift=POINTER,
    buffer_idx=INT,
    batches=INT32,
    accum_depth=INT32,
    output_depth=INT32,
)

FAST_COLUMN = 512
"""Elements of a window from which on a CONV_2D of int16 takes no buffer."""


def conv_s8_bytes(conv: cmsis_nn.Convolution, target: Target) -> int:
    """arm_convolve_wrapper_s8_get_buffer_size: of then, whose columns are not rounded up."""
    if conv.strides == conv.taps == conv.dilations == (1, 1) and not any(conv.padding):
        return 0
    if not cmsis_nn.has_mve(target):
        return 4 * conv.column
    one_row = conv.x.dims[1] == conv.taps[0] == conv.dilations[1] == 1
    return 0 if one_row and conv.y.dims[2] % 4 == 0 else 4 * align_up(conv.column, 8)


def conv_s16_bytes(conv: cmsis_nn.Convolution, target: Target) -> int:
    """arm_convolve_wrapper_s16_get_buffer_size: only the fast code has a buffer."""
    fast = cmsis_nn.has_dsp(target) and conv.column < FAST_COLUMN and conv.dilations == (1, 1)
    return 4 * conv.column if fast else 0


def depthwise_s8_bytes(conv: cmsis_nn.Convolution, target: Target) -> int:
    """arm_depthwise_conv_wrapper_s8_get_buffer_size: windows of 3 x 3 are no exception."""
    if not cmsis_nn.keeps_channels(conv) or not target.extensions:
        return 0
    return cmsis_nn.depthwise_columns_bytes(conv, target)


def _conv_requests(node: NodeView) -> Iterator[Request]:
    x, f = node.input(0), node.input(1)
    if f.type == TensorType.INT4:
        yield ScratchBuffer("filter", element_count(f))
    yield from cmsis_nn.convolution_requests(node, conv_2d.OPERANDS)
    if x.type != TensorType.FLOAT32:
        size = conv_s8_bytes if x.type == TensorType.INT8 else conv_s16_bytes
        yield from cmsis_nn.scratch_if_any("columns", size(cmsis_nn.convolution(node), node.target))


def _depthwise_requests(node: NodeView) -> Iterator[Request]:
    x, f = node.input(0), node.input(1)
    if f.type == TensorType.INT4:
        yield ScratchBuffer("filter", element_count(f))
    yield from cmsis_nn.convolution_requests(node, depthwise_conv_2d.OPERANDS)
    if x.type == TensorType.INT8:
        size = depthwise_s8_bytes(cmsis_nn.depthwise_convolution(node), node.target)
        yield from cmsis_nn.scratch_if_any("columns", size)


def _fully_connected_requests(node: NodeView) -> Iterator[Request]:
    x, f, y = node.input(fully_connected.INPUT), node.input(fully_connected.WEIGHTS), node.output(0)
    yield from fully_connected.tensor_requests(node)
    if x.type == TensorType.INT8 and len(y.dims) > 2 and f.dims[-1] % 4 == 0:
        # Run as a convolution, which takes a scale for each channel.
        yield from ChannelMultipliers.requests(y.dims[-1])
    if f.type == TensorType.INT4:
        yield ScratchBuffer("filter", element_count(f))


# --- What comes out differently ----------------------------------------------------------------------------------


def _is_by_row(node: NodeView) -> bool:
    return bool(fully_connected.multiplier_requests(node.input(fully_connected.WEIGHTS)))


def _is_int16_lstm(node: NodeView) -> bool:
    return node.input(lstm.INPUT).type == TensorType.INT16


def _lacks_intermediates(node: NodeView) -> bool:
    return node.input(lstm.INPUT).type == TensorType.INT8 and not node.has_intermediate(HIDDEN)


CONCERNS = (
    Concern(
        "FULLY_CONNECTED",
        Effect.DIFFERS,
        _is_by_row,
        "It knows one scale for all rows of the weights, and takes the first: results are wrong.",
        "Convert the model with one scale for the weights of fully connected layers.",
    ),
    Concern(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        Effect.BREAKS,
        _is_int16_lstm,
        "It is prepared, but fails when it runs: activations of int16 are not supported.",
        "Convert the model with activations of int8 or float32.",
    ),
    Concern(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        Effect.REFUSED,
        _lacks_intermediates,
        "Of int8 it needs its five intermediate tensors.",
        "Convert the model with a converter that writes them.",
    ),
)

ARDUINO = KernelLibrary(
    "arduino",
    "Chirale_TensorFLowLite 2.0.0: CMSIS-NN 8aa412fd of October 2022",
    family="cortex-m",
    memory=MappingProxyType(
        {
            "CONV_2D": OperatorMemory(cmsis_nn.OP_DATA_CONV_CMSIS, _conv_requests, nothing),
            "DEPTHWISE_CONV_2D": OperatorMemory(cmsis_nn.OP_DATA_CONV_CMSIS, _depthwise_requests, nothing),
            "FULLY_CONNECTED": OperatorMemory(OP_DATA_FULLY_CONNECTED, _fully_connected_requests, nothing),
            **{operator: cmsis_nn.SPEED.memory[operator] for operator in ("AVERAGE_POOL_2D", "MAX_POOL_2D", "SOFTMAX")},
        }
    ),
    concerns=CONCERNS,
    release=JANUARY_2023,
)
