"""CONV_2D, DEPTHWISE_CONV_2D and TRANSPOSE_CONV, for float32, int8 and int16 activations.

- CONV_2D: windows of the input times weights (channels, rows, columns, depth). If the input has a multiple of that
  depth, input and output channels are divided into as many groups, and each output group uses one input group.
- DEPTHWISE_CONV_2D: each channel's windows times its own weights (1, rows, columns, channels); `depth_multiplier`
  successive output channels come from one input channel.
- TRANSPOSE_CONV: each input position adds the filter, weights (channels, rows, columns, depth), scaled by its value, to
  the output, one stride apart. TFLM ignores the first input, the output's shape, and uses that of the output tensor.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.layers.convolution import OP_DATA_CONV, ConvolutionInputs, OpDataConv, convolve
from tflm.kernels.layers.geometry import (
    TFLITE_PADDING,
    axes,
    behind_all_channels,
    behind_each_channel,
    convolved,
    convolved_by_channel,
    sliding_windows,
    taps,
)
from tflm.kernels.layers.product import ChannelMultipliers, accumulator_bits
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.registration import Refusal, Registration, Run
from tflm.kernels.requests import Request, ScratchBuffer
from tflm.kernels.shapes import from_values
from tflm.kernels.support.activation import TFLITE_FUSED_ACTIVATION, fused_activation
from tflm.kernels.support.checks import element_count, shape_error
from tflm.memory.tensor import TFLITE_TYPE, TfLiteTensor
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.options import Conv2DOptions, DepthwiseConv2DOptions, TransposeConvOptions
from tflm.schema.version_rules import (
    INT4_WEIGHTS,
    INT8_WEIGHTS,
    INT16_WEIGHTS,
    QUANTIZED_BIAS,
    Feature,
    Signature,
    hybrid,
    hybrid_by_channel,
    input_is,
    option,
)
from tflm.targets import FLOAT, INT, INT16, INT32, POINTER, UINT8, Since, Struct, When

CONV_INPUTS = ConvolutionInputs(
    input=0,
    weights=1,
    bias=2,
    channels=0,
    bias_types={
        TensorType.FLOAT32: (TensorType.FLOAT32,),
        TensorType.INT8: (TensorType.INT32,),
        TensorType.INT16: (TensorType.INT32, TensorType.INT64),
    },
)

TFLITE_CONV_PARAMS = Struct(
    "TfLiteConvParams",
    padding=TFLITE_PADDING,
    stride_width=INT,
    stride_height=INT,
    activation=TFLITE_FUSED_ACTIVATION,
    dilation_width_factor=INT,
    dilation_height_factor=INT,
    quantized_bias_type=Since("ad8d238f9", TFLITE_TYPE),
)


def _prepare_conv(context: KernelContext, node: Node) -> None:
    input, weights, output = CONV_INPUTS.prepared(node)
    _check_channels(input, weights, output)
    options = node.options(Conv2DOptions)
    bits = accumulator_bits(node, CONV_INPUTS.input, CONV_INPUTS.bias, options.quantized_bias_type)
    activation = fused_activation(node, Conv2DOptions)
    node.op_data = CONV_INPUTS.op_data(context, node, CONV_INPUTS.axes(node, options), activation, bits)


def _requests_conv(node: Node) -> Iterator[Request]:
    weights = node.input(CONV_INPUTS.weights)
    yield from CONV_INPUTS.shape_requests()
    yield from ChannelMultipliers.requests(weights.dims[0])
    yield from CONV_INPUTS.tensor_requests(node)
    if weights.type == TensorType.INT4:
        yield ScratchBuffer("filter", element_count(weights))


def _check_channels(input: TfLiteTensor, weights: TfLiteTensor, output: TfLiteTensor) -> None:
    channels, depth = output.dims[3], weights.dims[3]
    groups = input.dims[3] // depth
    if not groups or channels % groups:
        reason = (
            f"has shape {list(weights.dims)}: with a depth of {depth}, {input.dims[3]} input channels make {groups} "
            f"groups, which must share {channels} output channels"
        )
        raise OperatorError(reason, tensor=weights.name)
    if channels > weights.dims[0]:
        raise shape_error(output, f", the weights {list(weights.dims)} give {weights.dims[0]} channels")


def _bind_conv(context: KernelContext, node: Node) -> Run:
    arrays = CONV_INPUTS.bound(node)
    x, weights, _, y, _ = arrays
    op: OpDataConv = node.op_data
    groups = x.shape[3] // weights.shape[3]
    layer = op.layer(arrays, weights[: y.shape[3]].reshape(y.shape[3], -1))

    def run() -> None:
        y[...] = convolve(sliding_windows(layer.inputs(x), op.rows, op.columns), layer, layer.weights, groups)

    return run


def _is_grouped(signature: Signature) -> bool:
    image, weights = signature.shape(0), signature.shape(1)
    return len(image) > 3 and len(weights) > 3 and image[3] != weights[3]


CONV_2D = Registration(
    BuiltinOperator.CONV_2D,
    _bind_conv,
    _prepare_conv,
    op_data=OP_DATA_CONV,
    requests=_requests_conv,
    builtin_data=TFLITE_CONV_PARAMS,
    max_version=8,
    overlap=behind_all_channels,
    types=tuple(CONV_INPUTS.weight_types),
    multiply_accumulates=lambda inputs, output: math.prod(output) * math.prod(inputs[CONV_INPUTS.weights][1:]),
    weights=(CONV_INPUTS.weights,),
    int8_registration=True,
    output_shapes=convolved,
    versions={
        8: QUANTIZED_BIAS,
        6: Feature("groups of channels", _is_grouped),
        4: INT16_WEIGHTS,
        3: INT8_WEIGHTS,
        7: INT4_WEIGHTS,
        5: hybrid_by_channel(0),
        2: hybrid(),
    },
)


DEPTHWISE_INPUTS = ConvolutionInputs(
    input=0,
    weights=1,
    bias=2,
    channels=3,
    bias_types={
        TensorType.FLOAT32: (TensorType.FLOAT32,),
        TensorType.INT8: (TensorType.INT32,),
        TensorType.INT16: (TensorType.INT64,),
    },
)

TFLITE_DEPTHWISE_CONV_PARAMS = Struct(
    "TfLiteDepthwiseConvParams",
    padding=TFLITE_PADDING,
    stride_width=INT,
    stride_height=INT,
    depth_multiplier=INT,
    activation=TFLITE_FUSED_ACTIVATION,
    dilation_width_factor=INT,
    dilation_height_factor=INT,
)


def _prepare_depthwise(context: KernelContext, node: Node) -> None:
    if len(node.inputs) == 3 and not node.has_input(DEPTHWISE_INPUTS.bias):
        # TFLM crashes.
        raise OperatorError("has an omitted third input; without a bias, it must have two inputs")
    input, weights, output = DEPTHWISE_INPUTS.prepared(node)
    options = node.options(DepthwiseConv2DOptions)
    _check_depthwise_channels(input, weights, output, options.depth_multiplier)
    windows = DEPTHWISE_INPUTS.axes(node, options, copies=options.depth_multiplier)
    bits = 64 if input.type == TensorType.INT16 else 32
    node.op_data = DEPTHWISE_INPUTS.op_data(
        context, node, windows, fused_activation(node, DepthwiseConv2DOptions), bits
    )


def _requests_depthwise(node: Node) -> Iterator[Request]:
    weights = node.input(DEPTHWISE_INPUTS.weights)
    yield from DEPTHWISE_INPUTS.shape_requests()
    yield from ChannelMultipliers.requests(weights.dims[3])
    if weights.type == TensorType.INT4:
        yield ScratchBuffer("filter", element_count(weights))
    yield from DEPTHWISE_INPUTS.tensor_requests(node)


def _check_depthwise_channels(
    input: TfLiteTensor, weights: TfLiteTensor, output: TfLiteTensor, multiplier: int
) -> None:
    if weights.dims[0] < 1:
        raise shape_error(weights, ", its first dimension must be 1")
    for tensor in (weights, output):
        if tensor.dims[3] != input.dims[3] * multiplier:
            reason = (
                f"has shape {list(tensor.dims)}, must have {multiplier} channels (the depth multiplier) for each of "
                f"the input's {input.dims[3]}"
            )
            raise OperatorError(reason, tensor=tensor.name)


def _bind_depthwise(context: KernelContext, node: Node) -> Run:
    arrays = DEPTHWISE_INPUTS.bound(node)
    x, weights, _, y, _ = arrays
    op: OpDataConv = node.op_data
    channels, copies = y.shape[3], y.shape[3] // x.shape[3]
    layer = op.layer(arrays, weights[:1].reshape(-1, channels).T)  # TFLM ignores the first dimension

    def run() -> None:
        if x.shape[3] == 1:  # all filters use one channel: an ordinary convolution
            y[...] = convolve(sliding_windows(layer.inputs(x), op.rows, op.columns), layer, layer.weights)
            return
        seen = sliding_windows(np.repeat(layer.inputs(x), copies, axis=3), op.rows, op.columns)
        # Repeated for each column, so that numpy's inner loop runs along a row and not only along its channels.
        by_tap = np.repeat(layer.weights.T.reshape(*weights.shape[1:3], 1, channels), op.columns.windows, axis=2)
        sums = np.zeros(y.shape, layer.dtype)
        for tap in np.ndindex(by_tap.shape[:2]):
            sums += seen[(..., *tap, slice(None))] * by_tap[tap]
        y[...] = layer.outputs(sums)

    return run


def _is_int16(node: Node) -> bool:
    return node.input(DEPTHWISE_INPUTS.input).type == TensorType.INT16


def _is_dilated(signature: Signature) -> bool:
    return any(signature.option(name) != 1 for name in ("dilation_w_factor", "dilation_h_factor"))


DEPTHWISE_CONV_2D = Registration(
    BuiltinOperator.DEPTHWISE_CONV_2D,
    _bind_depthwise,
    _prepare_depthwise,
    op_data=OP_DATA_CONV,
    requests=_requests_depthwise,
    refusals=(
        Refusal(_is_int16, "Hybrid models are not supported on TFLite Micro.", since="5978ecbf7", until="a7846a175"),
    ),
    builtin_data=TFLITE_DEPTHWISE_CONV_PARAMS,
    max_version=7,
    overlap=behind_each_channel,
    types=tuple(DEPTHWISE_INPUTS.weight_types),
    multiply_accumulates=lambda inputs, output: math.prod(output) * math.prod(inputs[DEPTHWISE_INPUTS.weights][1:3]),
    weights=(DEPTHWISE_INPUTS.weights,),
    int8_registration=True,
    output_shapes=convolved_by_channel,
    versions={
        5: INT16_WEIGHTS,
        6: hybrid_by_channel(3),
        4: hybrid(),
        3: INT8_WEIGHTS,
        7: INT4_WEIGHTS,
        2: Feature("dilation", _is_dilated),
    },
)


TRANSPOSE_INPUTS = ConvolutionInputs(
    input=2,
    weights=1,
    bias=3,
    channels=0,
    weight_types={
        TensorType.FLOAT32: (TensorType.FLOAT32,),
        TensorType.INT8: (TensorType.INT8,),
        TensorType.INT16: (TensorType.INT8,),
    },
    bias_types={
        TensorType.FLOAT32: (TensorType.FLOAT32,),
        TensorType.INT8: (TensorType.INT32,),
        TensorType.INT16: (TensorType.INT16, TensorType.INT64),
    },
)

SCRATCH_BYTES = {TensorType.INT8: 4, TensorType.INT16: 8}
"""Bytes of TFLM's accumulator for an element of the output."""

PADDING_VALUES = Struct("PaddingValues", width=INT16, height=INT16, width_offset=INT16, height_offset=INT16)
CONV_PARAMS = Struct(
    "ConvParams",
    padding_type=UINT8,
    padding_values=PADDING_VALUES,
    stride_width=INT16,
    stride_height=INT16,
    dilation_width_factor=INT16,
    dilation_height_factor=INT16,
    input_offset=INT32,
    weights_offset=INT32,
    output_offset=INT32,
    output_multiplier=INT32,
    output_shift=INT,
    quantized_activation_min=INT32,
    quantized_activation_max=INT32,
    float_activation_min=FLOAT,
    float_activation_max=FLOAT,
)
OP_DATA_TRANSPOSE_CONV = Struct(
    "transpose_conv.cc:OpData",
    params=CONV_PARAMS,
    scratch_buffer_index=INT,
    filter_scratch_index=When("compression", INT),
    bias_scratch_index=When("compression", INT),
    bias_converted_buffer_index=Since("95ae9340e", INT),
    per_channel_output_multiplier=POINTER,
    per_channel_output_shift=POINTER,
)
TFLITE_TRANSPOSE_CONV_PARAMS = Struct(
    "TfLiteTransposeConvParams",
    padding=TFLITE_PADDING,
    stride_width=INT,
    stride_height=INT,
    activation=Since("b92a211e3", TFLITE_FUSED_ACTIVATION),
    quantized_bias_type=Since("ad8d238f9", TFLITE_TYPE),
)


def _prepare_transpose_conv(context: KernelContext, node: Node) -> None:
    input, weights, output = TRANSPOSE_INPUTS.prepared(node)
    if weights.dims[3] != input.dims[3] or output.dims[3] > weights.dims[0]:
        reason = (
            f"has shape {list(weights.dims)}, must be (channels, rows, columns, depth) with the output's "
            f"{output.dims[3]} channels and a depth of {input.dims[3]} like the input"
        )
        raise OperatorError(reason, tensor=weights.name)
    options = node.options(TransposeConvOptions)
    taps, strides = weights.dims[1:3], (options.stride_h, options.stride_w)
    # Seen as the reverse of a convolution whose windows, one for each input position, lie along the output.
    windows = axes(options.padding, output.dims[1:3], taps, input.dims[1:3], strides, (1, 1))
    activation = fused_activation(node, TransposeConvOptions)
    bits = 64 if input.type == TensorType.INT16 else 32
    node.op_data = TRANSPOSE_INPUTS.op_data(context, node, windows, activation, bits)


def _requests_transpose_conv(node: Node) -> Iterator[Request]:
    input, output = node.input(TRANSPOSE_INPUTS.input), node.output(0)
    yield from TRANSPOSE_INPUTS.shape_requests()
    yield from ChannelMultipliers.requests(node.input(TRANSPOSE_INPUTS.weights).dims[0])
    takes_int16 = node.release.holds("c062c1b27")
    if input.type in SCRATCH_BYTES and (input.type != TensorType.INT16 or takes_int16):
        yield ScratchBuffer("sums", element_count(output) * SCRATCH_BYTES[input.type])
    if input.type != TensorType.FLOAT32:
        yield from TRANSPOSE_INPUTS.tensor_requests(node)
        yield from wide_bias(node)


def wide_bias(node: Node) -> Iterator[Request]:
    """TFLM makes a 64-bit copy of a 16-bit bias."""
    if node.has_input(TRANSPOSE_INPUTS.bias) and node.release.holds("95ae9340e"):
        bias = node.input(TRANSPOSE_INPUTS.bias)
        if bias.type == TensorType.INT16:
            yield ScratchBuffer("bias", 8 * element_count(bias))


def _bind_transpose_conv(context: KernelContext, node: Node) -> Run:
    arrays = TRANSPOSE_INPUTS.bound(node)
    x, weights, _, y, _ = arrays
    op: OpDataConv = node.op_data
    filters = weights[: y.shape[3]]
    layer = op.layer(arrays, filters.reshape(len(filters), -1))
    row_taps, column_taps = taps(op.rows), taps(op.columns)

    def run() -> None:
        inputs, by_tap = layer.inputs(x), layer.weights.reshape(filters.shape)
        sums = np.zeros(y.shape, layer.dtype)
        # From the last tap to the first, so that each output position adds inputs in order.
        for row, column in itertools.product(reversed(row_taps), reversed(column_taps)):
            seen = inputs[:, row.windows, column.windows]
            _add_products(sums[:, row.inputs, column.inputs], seen, by_tap[:, row.tap, column.tap])
        y[...] = layer.outputs(sums)

    return run


def _add_products(sums: npt.NDArray[Any], x: npt.NDArray[Any], weights: npt.NDArray[Any]) -> None:
    """Add x (..., depth) times weights (channels, depth) to sums (..., channels); floats in order."""
    if sums.dtype != np.float32:
        sums += np.matmul(x, weights.T)
        return
    for d in range(x.shape[-1]):
        sums += x[..., d, np.newaxis] * weights[:, d]


TRANSPOSE_CONV = Registration(
    BuiltinOperator.TRANSPOSE_CONV,
    _bind_transpose_conv,
    _prepare_transpose_conv,
    op_data=OP_DATA_TRANSPOSE_CONV,
    requests=_requests_transpose_conv,
    builtin_data=TFLITE_TRANSPOSE_CONV_PARAMS,
    max_version=5,
    types=tuple(TRANSPOSE_INPUTS.weight_types),
    multiply_accumulates=lambda inputs, output: (
        math.prod(inputs[TRANSPOSE_INPUTS.input]) * math.prod(inputs[TRANSPOSE_INPUTS.weights][:3])
    ),
    activations=TRANSPOSE_INPUTS.input,
    weights=(TRANSPOSE_INPUTS.weights,),
    output_shapes=from_values(0),
    versions={
        5: QUANTIZED_BIAS,
        4: Feature("a fused activation", option("fused_activation_function")),
        3: Feature("a bias", lambda signature: len(signature.inputs) == 4 and signature.input(3) is not None),
        2: input_is("INT8", index=1),
    },
)
