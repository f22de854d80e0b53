"""DEPTHWISE_CONV_2D: each channel's windows times its own weights, for float32, int8 and int16 activations.

Weights are (1, rows, columns, channels); `depth_multiplier` successive output channels come from one input channel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from tflm.errors import OperatorError
from tflm.kernels.layers.convolution import OP_DATA_CONV, ConvolutionInputs, OpDataConv, convolve
from tflm.kernels.layers.geometry import TFLITE_PADDING
from tflm.kernels.layers.per_channel import ChannelMultipliers
from tflm.kernels.layers.trailing_output import behind_each_channel
from tflm.kernels.layers.windows import convolved_by_channel, windows
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.registration import Refusal, Registration, Run, Shape
from tflm.kernels.requests import Request, ScratchBuffer
from tflm.kernels.support.activation import TFLITE_FUSED_ACTIVATION, fused_activation
from tflm.kernels.support.checks import element_count
from tflm.memory.tensor import TfLiteTensor
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.options import DepthwiseConv2DOptions
from tflm.schema.signature import Signature
from tflm.schema.version_rules import INT4_WEIGHTS, INT8_WEIGHTS, INT16_WEIGHTS, Feature, hybrid, hybrid_by_channel
from tflm.targets import INT, Struct

INPUTS = ConvolutionInputs(
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


def _prepare(context: KernelContext, node: Node) -> None:
    if len(node.inputs) == 3 and not node.has_input(INPUTS.bias):
        # TFLM crashes.
        raise OperatorError("has an omitted third input; without a bias, it must have two inputs")
    input, weights, output = INPUTS.prepared(node)
    options = node.options(DepthwiseConv2DOptions)
    _check_channels(input, weights, output, options.depth_multiplier)
    windows = INPUTS.axes(node, options, copies=options.depth_multiplier)
    bits = 64 if input.type == TensorType.INT16 else 32
    node.op_data = INPUTS.op_data(context, node, windows, fused_activation(node, DepthwiseConv2DOptions), bits)


def _requests(node: Node) -> Iterator[Request]:
    weights = node.input(INPUTS.weights)
    yield from INPUTS.shape_requests()
    yield from ChannelMultipliers.requests(weights.dims[3])
    if weights.type == TensorType.INT4:
        yield ScratchBuffer("filter", element_count(weights))
    yield from INPUTS.tensor_requests(node)


def _check_channels(input: TfLiteTensor, weights: TfLiteTensor, output: TfLiteTensor, multiplier: int) -> None:
    if weights.dims[0] < 1:
        raise OperatorError(f"has shape {list(weights.dims)}, its first dimension must be 1", tensor=weights.name)
    for tensor in (weights, output):
        if tensor.dims[3] != input.dims[3] * multiplier:
            reason = (
                f"has shape {list(tensor.dims)}, must have {multiplier} channels (the depth multiplier) for each of "
                f"the input's {input.dims[3]}"
            )
            raise OperatorError(reason, tensor=tensor.name)


def _bind(context: KernelContext, node: Node) -> Run:
    arrays = INPUTS.bound(node)
    x, weights, _, y, _ = arrays
    op: OpDataConv = node.op_data
    channels, copies = y.shape[3], y.shape[3] // x.shape[3]
    layer = op.layer(arrays, weights[:1].reshape(-1, channels).T)  # TFLM ignores the first dimension

    def run() -> None:
        if x.shape[3] == 1:  # all filters use one channel: an ordinary convolution
            y[...] = convolve(windows(layer.inputs(x), op.rows, op.columns), layer, layer.weights)
            return
        seen = windows(np.repeat(layer.inputs(x), copies, axis=3), op.rows, op.columns)
        # Repeated for each column, so that numpy's inner loop runs along a row and not only along its channels.
        by_tap = np.repeat(layer.weights.T.reshape(*weights.shape[1:3], 1, channels), op.columns.windows, axis=2)
        sums = np.zeros(y.shape, layer.dtype)
        for tap in np.ndindex(by_tap.shape[:2]):
            sums += seen[(..., *tap, slice(None))] * by_tap[tap]
        y[...] = layer.outputs(sums)

    return run


def _multiply_accumulates(inputs: Sequence[Shape], output: Shape) -> int:
    return math.prod(output) * math.prod(inputs[INPUTS.weights][1:3])


def _is_int16(node: Node) -> bool:
    return node.input(INPUTS.input).type == TensorType.INT16


def _is_dilated(signature: Signature) -> bool:
    return any(signature.option(name) != 1 for name in ("dilation_w_factor", "dilation_h_factor"))


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
    types=tuple(INPUTS.weight_types),
    multiply_accumulates=_multiply_accumulates,
    weights=(INPUTS.weights,),
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
