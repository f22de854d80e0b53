"""CONV_2D: windows of the input times weights, for float32, int8 and int16 activations.

Weights are (channels, rows, columns, depth). Where the input has several times that depth, its channels fall into as
many groups, and so do the output's: each sees one group only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.layers.convolution import OP_DATA_CONV, OpData, Operands, bind_convolution
from tflm.kernels.layers.geometry import TFLITE_PADDING, axes
from tflm.kernels.layers.per_channel import ChannelMultipliers
from tflm.kernels.layers.trailing_output import behind_all_channels
from tflm.kernels.layers.windows import image_elements, require_room
from tflm.kernels.registration import KernelContext, Node, Registration, Run, Shape
from tflm.kernels.requests import NodeView, Request, ScratchBuffer
from tflm.kernels.support.activation import TFLITE_FUSED_ACTIVATION, fused_activation
from tflm.kernels.support.checks import element_count
from tflm.kernels.support.views import after_copies, apart
from tflm.memory.tensor import TFLITE_TYPE, TfLiteTensor
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.options import Conv2DOptions
from tflm.targets import INT, Struct

OPERANDS = Operands(
    input=0,
    weights=1,
    bias=2,
    channels=0,
    weight_types={
        TensorType.FLOAT32: (TensorType.FLOAT32,),
        TensorType.INT8: (TensorType.INT8, TensorType.INT4),
        TensorType.INT16: (TensorType.INT8,),
    },
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
    quantized_bias_type=TFLITE_TYPE,
)


def _prepare(context: KernelContext, node: Node) -> None:
    input, weights, output = OPERANDS.prepared(context, node)
    _check_channels(input, weights, output)
    options = node.options(Conv2DOptions) or Conv2DOptions()
    rows, columns = axes(
        options.padding,
        input.dims[1:3],
        weights.dims[1:3],
        output.dims[1:3],
        (options.stride_h, options.stride_w),
        (options.dilation_h_factor, options.dilation_w_factor),
    )
    require_room(image_elements(rows, columns, input), input, weights, output)
    activation = fused_activation(node, Conv2DOptions)
    node.op_data = OpData(rows, columns, OPERANDS.quantization(context, node, activation), activation)


def _requests(node: NodeView) -> Iterator[Request]:
    weights = node.input(OPERANDS.weights)
    yield from OPERANDS.shape_requests()
    yield from ChannelMultipliers.requests(weights.dims[0])
    yield from OPERANDS.tensor_requests(node)
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
    x, weights, bias, y, constant = OPERANDS.bound(context, node)
    x, copies = apart(x, y, except_in_place=False)
    groups = x.shape[3] // weights.shape[3]
    by_group = weights[: y.shape[3]].reshape(groups, -1, *weights.shape[1:])
    bits = accumulator_bits(node, x, bias)
    run = bind_convolution(
        node.op_data, x, by_group, bias, y, channels=y.shape[3], accumulator_bits=bits, constant=constant
    )
    return after_copies(copies, run)


def accumulator_bits(node: Node, x: npt.NDArray[Any], bias: npt.NDArray[Any] | None) -> int:
    """32; 64 for 16-bit activations, unless the bias has 32 or, where there is none, the options say so."""
    if x.dtype != np.int16:
        return 32
    if bias is not None:
        return 8 * bias.itemsize
    options = node.options(Conv2DOptions)
    return 32 if options is not None and options.quantized_bias_type == TensorType.INT32 else 64


def _multiply_accumulates(inputs: Sequence[Shape], output: Shape) -> int:
    return math.prod(output) * math.prod(inputs[OPERANDS.weights][1:])  # each element sees its channel's weights


CONV_2D = Registration(
    BuiltinOperator.CONV_2D,
    _bind,
    _prepare,
    op_data=OP_DATA_CONV,
    requests=_requests,
    builtin_data=TFLITE_CONV_PARAMS,
    max_version=8,
    overlap=behind_all_channels,
    types=tuple(OPERANDS.weight_types),
    multiply_accumulates=_multiply_accumulates,
    int8_registration=True,
)
