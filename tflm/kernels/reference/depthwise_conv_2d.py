"""DEPTHWISE_CONV_2D: each channel's windows times its own weights, for float32, int8 and int16 activations.

Weights are (1, rows, columns, channels); `depth_multiplier` successive output channels come from one input channel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from tflm.errors import OperatorError
from tflm.kernels.arithmetic.numpy_calls import einsum
from tflm.kernels.host_memory import kept
from tflm.kernels.layers.convolution import OP_DATA_CONV, OpData, Operands, layer_finish, layer_weights
from tflm.kernels.layers.float_product import FloatWeights
from tflm.kernels.layers.geometry import TFLITE_PADDING, axes
from tflm.kernels.layers.integer_product import IntegerWeights
from tflm.kernels.layers.per_channel import ChannelMultipliers
from tflm.kernels.layers.product import SUMS_IN_A_BLOCK, Finish, Scratch, blocks
from tflm.kernels.layers.trailing_output import behind_each_channel
from tflm.kernels.layers.windows import bind_windows, image_elements, in_turn, require_room
from tflm.kernels.reference.conv_2d import bind_convolution
from tflm.kernels.registration import KernelContext, Node, Registration, Run, Shape
from tflm.kernels.requests import NodeView, Refusal, Request, ScratchBuffer
from tflm.kernels.support.activation import TFLITE_FUSED_ACTIVATION, fused_activation
from tflm.kernels.support.checks import element_count
from tflm.kernels.support.views import after_copies, apart
from tflm.memory.tensor import TfLiteTensor
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.options import DepthwiseConv2DOptions
from tflm.targets import INT, Struct

OPERANDS = Operands(
    input=0,
    weights=1,
    bias=2,
    channels=3,
    weight_types={
        TensorType.FLOAT32: (TensorType.FLOAT32,),
        TensorType.INT8: (TensorType.INT8, TensorType.INT4),
        TensorType.INT16: (TensorType.INT8,),
    },
    bias_types={
        TensorType.FLOAT32: (TensorType.FLOAT32,),
        TensorType.INT8: (TensorType.INT32,),
        TensorType.INT16: (TensorType.INT64,),
    },
)

WEIGHTS_IN_A_ROW = 1 << 18
"""How many weights, repeated for each column, are laid beside a row of output at the most."""

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


def _prepare(context: KernelContext, node: Node) -> None:
    if len(node.inputs) == 3 and not node.has_input(OPERANDS.bias):
        # TFLM goes down with it.
        raise OperatorError("has a third input that is left out; without a bias, it takes two")
    input, weights, output = OPERANDS.prepared(context, node)
    options = node.options(DepthwiseConv2DOptions) or DepthwiseConv2DOptions()
    _check_channels(input, weights, output, options.depth_multiplier)
    rows, columns = axes(
        options.padding,
        input.dims[1:3],
        weights.dims[1:3],
        output.dims[1:3],
        (options.stride_h, options.stride_w),
        (options.dilation_h_factor, options.dilation_w_factor),
    )
    require_room(options.depth_multiplier * image_elements(rows, columns, input), input, weights, output)
    activation = fused_activation(node, DepthwiseConv2DOptions)
    node.op_data = OpData(rows, columns, OPERANDS.quantization(context, node, activation), activation)


def _requests(node: NodeView) -> Iterator[Request]:
    weights = node.input(OPERANDS.weights)
    yield from OPERANDS.shape_requests()
    yield from ChannelMultipliers.requests(weights.dims[3])
    if weights.type == TensorType.INT4:
        yield ScratchBuffer("filter", element_count(weights))
    yield from OPERANDS.tensor_requests(node)


def _check_channels(input: TfLiteTensor, weights: TfLiteTensor, output: TfLiteTensor, multiplier: int) -> None:
    for tensor in (weights, output):
        if tensor.dims[3] != input.dims[3] * multiplier:
            reason = (
                f"has shape {list(tensor.dims)}, must have {multiplier} channels (the depth multiplier) for each of "
                f"the input's {input.dims[3]}"
            )
            raise OperatorError(reason, tensor=tensor.name)


def _bind(context: KernelContext, node: Node) -> Run:
    x, weights, bias, y, constant = OPERANDS.bound(context, node)
    x, again = apart(x, y, except_in_place=False)
    op: OpData = node.op_data
    by_channel = weights[0].transpose(2, 0, 1)
    bits = 64 if x.dtype == np.int16 else 32
    if x.shape[3] == 1:  # one channel is seen by all: an ordinary convolution
        weights = by_channel[np.newaxis, ..., np.newaxis]
        channels = y.shape[3]
        run = bind_convolution(op, x, weights, bias, y, channels=channels, accumulator_bits=bits, constant=constant)
        return after_copies(again, run)
    layer = layer_weights(
        op, by_channel[np.newaxis], bias, x_dtype=x.dtype, accumulator_bits=bits, positions=0, constant=constant
    )
    copies = y.shape[3] // x.shape[3]
    fill, windows = bind_windows(x, op.rows, op.columns, dtype=layer.dtype, border=op.border, copies=copies)
    finish = layer_finish(op, layer, bias, channels=y.shape[3], accumulator_bits=bits)
    multiply = _bind_multiply(windows, layer, finish, y, side_by_side=op.columns.stride == 1)
    return after_copies(again, multiply if fill is None else in_turn(fill, multiply))


def _bind_multiply(
    windows: npt.NDArray[Any],
    layer: FloatWeights | IntegerWeights,
    finish: Finish,
    y: npt.NDArray[Any],
    side_by_side: bool,
) -> Run:
    """What sets y to the sums, over the taps of each window, of products with the weights.

    Args:
        windows: (batches, rows, columns, row taps, column taps, channels).
        side_by_side: whether what a tap sees in successive windows of a row lies side by side. Then all of it is one
            run of elements, with the weights repeated beside it.
    """
    channels, width, taps = y.shape[3], y.shape[2], windows.shape[3:5]
    limit = max(SUMS_IN_A_BLOCK // channels, 1)
    if side_by_side and min(limit, width) * layer.factors.size > WEIGHTS_IN_A_ROW:
        limit = max(WEIGHTS_IN_A_ROW // layer.factors.size, 1)
    columns = min(limit, width) if side_by_side else 1
    weights = kept(np.empty((*taps, columns * channels), layer.dtype))
    steps, scratch = [], Scratch(layer.dtype)
    for block in blocks(y.shape[:3], limit):
        target, seen = y[block], windows[block]
        sums = scratch.array("sums", *target.shape)
        run = channels * (seen.shape[2] if side_by_side else 1)
        runs = as_strided(
            seen,
            (*seen.shape[:2], target.shape[2] * channels // run, *taps, run),
            seen.strides,
            writeable=False,
        )
        finish_block = finish.bind(sums, target, (1, 1, 1, channels))
        steps.append((runs, weights[..., :run], sums.reshape(*target.shape[:2], -1, run), finish_block))

    def lay_out() -> None:
        layer.lay_out()
        np.copyto(weights.reshape(-1, columns, channels), layer.factors.reshape(-1, 1, channels))
        finish.refresh()

    def multiply() -> None:
        for runs, factors, sums, finish_block in steps:
            einsum("byxfgr,fgr->byxr", runs, factors, out=sums)
            finish_block()

    lay_out()
    return multiply if layer.constant else in_turn(lay_out, multiply)


def _multiply_accumulates(inputs: Sequence[Shape], output: Shape) -> int:
    return math.prod(output) * math.prod(inputs[OPERANDS.weights][1:3])


def _is_int16(node: NodeView) -> bool:
    return node.input(OPERANDS.input).type == TensorType.INT16


DEPTHWISE_CONV_2D = Registration(
    BuiltinOperator.DEPTHWISE_CONV_2D,
    _bind,
    _prepare,
    op_data=OP_DATA_CONV,
    requests=_requests,
    refusals=(
        Refusal(_is_int16, "Hybrid models are not supported on TFLite Micro.", since="5978ecbf7", until="a7846a175"),
    ),
    builtin_data=TFLITE_DEPTHWISE_CONV_PARAMS,
    max_version=7,
    overlap=behind_each_channel,
    types=tuple(OPERANDS.weight_types),
    multiply_accumulates=_multiply_accumulates,
    int8_registration=True,
)
