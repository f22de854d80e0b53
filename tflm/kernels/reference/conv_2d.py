"""CONV_2D: windows of the input times weights, for float32, int8 and int16 activations.

Weights are (channels, rows, columns, depth). If the input has a multiple of that depth, input and output channels are
divided into as many groups, and each output group uses one input group.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tflm.errors import OperatorError
from tflm.kernels.layers.convolution import OP_DATA_CONV, ConvolutionInputs, OpDataConv, convolve
from tflm.kernels.layers.geometry import TFLITE_PADDING
from tflm.kernels.layers.per_channel import ChannelMultipliers, accumulator_bits
from tflm.kernels.layers.trailing_output import behind_all_channels
from tflm.kernels.layers.windows import convolved, windows
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.registration import Registration, Run, Shape
from tflm.kernels.requests import Request, ScratchBuffer
from tflm.kernels.support.activation import TFLITE_FUSED_ACTIVATION, fused_activation
from tflm.kernels.support.checks import element_count
from tflm.memory.tensor import TFLITE_TYPE, TfLiteTensor
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.options import Conv2DOptions
from tflm.schema.signature import Signature
from tflm.schema.version_rules import (
    INT4_WEIGHTS,
    INT8_WEIGHTS,
    INT16_WEIGHTS,
    QUANTIZED_BIAS,
    Feature,
    hybrid,
    hybrid_by_channel,
)
from tflm.targets import INT, Since, Struct

INPUTS = ConvolutionInputs(
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


def _prepare(context: KernelContext, node: Node) -> None:
    input, weights, output = INPUTS.prepared(node)
    _check_channels(input, weights, output)
    options = node.options(Conv2DOptions)
    bits = accumulator_bits(node, INPUTS.input, INPUTS.bias, options.quantized_bias_type)
    activation = fused_activation(node, Conv2DOptions)
    node.op_data = INPUTS.op_data(context, node, INPUTS.axes(node, options), activation, bits)


def _requests(node: Node) -> Iterator[Request]:
    weights = node.input(INPUTS.weights)
    yield from INPUTS.shape_requests()
    yield from ChannelMultipliers.requests(weights.dims[0])
    yield from INPUTS.tensor_requests(node)
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
        reason = f"has shape {list(output.dims)}, the weights {list(weights.dims)} give {weights.dims[0]} channels"
        raise OperatorError(reason, tensor=output.name)


def _bind(context: KernelContext, node: Node) -> Run:
    arrays = INPUTS.bound(node)
    x, weights, _, y, _ = arrays
    op: OpDataConv = node.op_data
    groups = x.shape[3] // weights.shape[3]
    layer = op.layer(arrays, weights[: y.shape[3]].reshape(y.shape[3], -1))

    def run() -> None:
        y[...] = convolve(windows(layer.inputs(x), op.rows, op.columns), layer, layer.weights, groups)

    return run


def _multiply_accumulates(inputs: Sequence[Shape], output: Shape) -> int:
    return math.prod(output) * math.prod(inputs[INPUTS.weights][1:])  # each output element uses its channel's weights


def _is_grouped(signature: Signature) -> bool:
    image, weights = signature.shape(0), signature.shape(1)
    return len(image) > 3 and len(weights) > 3 and image[3] != weights[3]


CONV_2D = Registration(
    BuiltinOperator.CONV_2D,
    _bind,
    _prepare,
    op_data=OP_DATA_CONV,
    requests=_requests,
    builtin_data=TFLITE_CONV_PARAMS,
    max_version=8,
    overlap=behind_all_channels,
    types=tuple(INPUTS.weight_types),
    multiply_accumulates=_multiply_accumulates,
    weights=(INPUTS.weights,),
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
