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
from tflm.kernels.layers.convolution import OP_DATA_CONV, OpData, Operands, layer_finish, layer_weights
from tflm.kernels.layers.float_product import wants_positions_side_by_side
from tflm.kernels.layers.geometry import TFLITE_PADDING, axes
from tflm.kernels.layers.per_channel import ChannelMultipliers
from tflm.kernels.layers.product import bind_product
from tflm.kernels.layers.trailing_output import behind_all_channels
from tflm.kernels.layers.windows import bind_windows, image_elements, in_turn, require_room
from tflm.kernels.registration import KernelContext, Node, Registration, Run, Shape
from tflm.kernels.requests import NodeView, Request, ScratchBuffer
from tflm.kernels.support.activation import TFLITE_FUSED_ACTIVATION, fused_activation
from tflm.kernels.support.checks import element_count
from tflm.kernels.support.views import after_copies, apart
from tflm.memory.tensor import TFLITE_TYPE, TfLiteTensor
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.options import Conv2DOptions
from tflm.targets import INT, Since, Struct

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
    quantized_bias_type=Since("ad8d238f9", TFLITE_TYPE),
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


def bind_convolution(
    op: OpData,
    x: npt.NDArray[Any],
    weights: npt.NDArray[Any],
    bias: npt.NDArray[Any] | None,
    y: npt.NDArray[Any],
    *,
    channels: int,
    accumulator_bits: int,
    constant: bool,
) -> Run:
    """What sets y to the windows of x times weights.

    Args:
        x: (batches, rows, columns, channels); the groups share as many channels as they need.
        weights: (groups, rows of weights, taps of the rows, taps of the columns, depth), a view.
        bias: one for each row of weights, or None.
        y: (batches, rows, columns, rows of weights).
        channels: of the output; there may be several rows of weights for each, in the order of rows modulo channels.
        accumulator_bits: 32 or 64, the width of sums of integers.
        constant: whether neither weights nor bias ever change.
    """
    groups, rows, *_, depth = weights.shape
    positions = math.prod(y.shape[:3])

    # Geometry: what each window sees, (groups, batches, rows, columns, row taps, column taps, depth).
    side_by_side = op.quantization is None and wants_positions_side_by_side(positions, rows)
    fill, windows = bind_windows(x, op.rows, op.columns, dtype=x.dtype, border=op.border, channels_first=side_by_side)
    seen = windows[..., : groups * depth].reshape(*windows.shape[:5], groups, depth).transpose(5, 0, 1, 2, 3, 4, 6)

    # Product: the sum, for each window and each row of weights, over what it sees.
    product = layer_weights(
        op,
        weights,
        bias,
        x_dtype=x.dtype,
        accumulator_bits=accumulator_bits,
        positions=positions,
        constant=constant,
    )

    # Output: bias, scale and activation of each channel; (groups, batches, rows, columns, rows of weights).
    finish = layer_finish(
        op, product, bias, channels=channels, copies=groups * rows // channels, accumulator_bits=accumulator_bits
    )
    targets = y.reshape(*y.shape[:3], groups, rows).transpose(3, 0, 1, 2, 4)

    multiply = bind_product(seen, targets, product, finish)
    return multiply if fill is None else in_turn(fill, multiply)


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
