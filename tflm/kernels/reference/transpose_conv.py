"""TRANSPOSE_CONV: each input position adds the filter, scaled by its value, to the output, one stride apart.

For float32, int8 and int16 activations. Weights are (channels, rows, columns, depth). TFLM ignores the first input, the
output's shape, and uses that of the output tensor.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.layers.convolution import ConvolutionInputs, OpDataConv
from tflm.kernels.layers.geometry import TFLITE_PADDING, axes, taps
from tflm.kernels.layers.per_channel import ChannelMultipliers
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.registration import Registration, Run, Shape
from tflm.kernels.requests import Request, ScratchBuffer
from tflm.kernels.shapes import from_values
from tflm.kernels.support.activation import TFLITE_FUSED_ACTIVATION, fused_activation
from tflm.kernels.support.checks import element_count
from tflm.memory.tensor import TFLITE_TYPE
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.options import TransposeConvOptions
from tflm.schema.signature import Signature
from tflm.schema.version_rules import QUANTIZED_BIAS, Feature, input_is, option
from tflm.targets import FLOAT, INT, INT16, INT32, POINTER, UINT8, Since, Struct, When

INPUTS = ConvolutionInputs(
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


def _prepare(context: KernelContext, node: Node) -> None:
    input, weights, output = INPUTS.prepared(node)
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
    node.op_data = INPUTS.op_data(context, node, windows, activation, bits)


def _requests(node: Node) -> Iterator[Request]:
    input, output = node.input(INPUTS.input), node.output(0)
    yield from INPUTS.shape_requests()
    yield from ChannelMultipliers.requests(node.input(INPUTS.weights).dims[0])
    takes_int16 = node.release.holds("c062c1b27")
    if input.type in SCRATCH_BYTES and (input.type != TensorType.INT16 or takes_int16):
        yield ScratchBuffer("sums", element_count(output) * SCRATCH_BYTES[input.type])
    if input.type != TensorType.FLOAT32:
        yield from INPUTS.tensor_requests(node)
        yield from wide_bias(node)


def wide_bias(node: Node) -> Iterator[Request]:
    """TFLM makes a 64-bit copy of a 16-bit bias."""
    if node.has_input(INPUTS.bias) and node.release.holds("95ae9340e"):
        bias = node.input(INPUTS.bias)
        if bias.type == TensorType.INT16:
            yield ScratchBuffer("bias", 8 * element_count(bias))


def _bind(context: KernelContext, node: Node) -> Run:
    arrays = INPUTS.bound(node)
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


def _multiply_accumulates(inputs: Sequence[Shape], output: Shape) -> int:
    return math.prod(inputs[INPUTS.input]) * math.prod(inputs[INPUTS.weights][:3])  # each element times the filter


def _has_bias_input(signature: Signature) -> bool:
    return len(signature.inputs) == 4 and signature.input(3) is not None


TRANSPOSE_CONV = Registration(
    BuiltinOperator.TRANSPOSE_CONV,
    _bind,
    _prepare,
    op_data=OP_DATA_TRANSPOSE_CONV,
    requests=_requests,
    builtin_data=TFLITE_TRANSPOSE_CONV_PARAMS,
    max_version=5,
    types=tuple(INPUTS.weight_types),
    multiply_accumulates=_multiply_accumulates,
    activations=INPUTS.input,
    weights=(INPUTS.weights,),
    output_shapes=from_values(0),
    versions={
        5: QUANTIZED_BIAS,
        4: Feature("a fused activation", option("fused_activation_function")),
        3: Feature("a bias", _has_bias_input),
        2: input_is("INT8", index=1),
    },
)
