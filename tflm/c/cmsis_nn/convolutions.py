"""CONV_2D, DEPTHWISE_CONV_2D and poolings with CMSIS-NN."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from tflm.c.cmsis_nn.element_wise import KINDS as BY_TYPE
from tflm.c.cmsis_nn.processors import Processors
from tflm.c.cmsis_nn.structures import (
    activation,
    channel_scales,
    checked_call,
    context,
    dims,
    dims_of,
    source,
    target,
    tile,
    wide_sums_fit,
    window_fields,
)
from tflm.c.library_calls import LibraryCall, Structure, Value
from tflm.kernels.arithmetic.fixed_point import WideQuantizedMultiplier
from tflm.kernels.layers.convolution import ConvolutionInputs, OpDataConv
from tflm.kernels.layers.geometry import padding_before
from tflm.kernels.node import Node
from tflm.kernels.reference.convolution import CONV_INPUTS, DEPTHWISE_INPUTS
from tflm.kernels.reference.pooling import OpDataPooling
from tflm.libraries.cmsis_nn_scratch import (
    conv_s8_bytes,
    conv_s16_bytes,
    convolution,
    depthwise_s4_bytes,
    depthwise_s8_bytes,
    has_dsp,
)
from tflm.schema.enums import TensorType
from tflm.schema.options import Conv2DOptions, DepthwiseConv2DOptions, Pool2DOptions

KINDS = {
    (TensorType.INT8, TensorType.INT8): "s8",
    (TensorType.INT8, TensorType.INT4): "s4",
    (TensorType.INT16, TensorType.INT8): "s16",
}
"""The suffix of a function's name, by the types of input and weights."""

LARGEST_SIZE = 0xFFFF
"""Maximum size of a dimension, and maximum number of elements in a window: kernels store these in 16 bits."""


def bind_conv_2d(node: Node, processors: Processors) -> Sequence[LibraryCall] | None:
    """Bind CONV_2D. Groups are supported for int8 only, and not for 1 x n windows, whose groups version 7.0.0
    ignores."""
    weights, kind = node.eval_input(CONV_INPUTS.weights), _kind(node, CONV_INPUTS)
    if kind is None or (_is_grouped(node) and (kind != "s8" or weights.dims[1] == 1)):
        return None
    size = conv_s16_bytes if kind == "s16" else conv_s8_bytes
    bytes = processors.maximum_bytes(partial(size, convolution(node, Conv2DOptions)))
    filter = dims(1, *weights.dims[1:])
    return [_call(f"arm_convolve_wrapper_{kind}", node, CONV_INPUTS, {}, filter, bytes)]


def bind_depthwise_conv_2d(node: Node, processors: Processors) -> Sequence[LibraryCall] | None:
    """Bind DEPTHWISE_CONV_2D."""
    kind, inputs, channels = _kind(node, DEPTHWISE_INPUTS), node.eval_input(0).dims[3], _channels(node)
    if kind is None or channels % inputs:
        return None
    copies: dict[str, Value] = {"ch_mult": channels // inputs}
    filter = dims(*node.eval_input(1).dims)
    if kind == "s16":
        return [_call("arm_depthwise_conv_s16", node, DEPTHWISE_INPUTS, copies, filter, 0)]
    size = depthwise_s8_bytes if kind == "s8" else depthwise_s4_bytes
    bytes = processors.maximum_bytes(partial(size, convolution(node, DepthwiseConv2DOptions)))
    return [_call(f"arm_depthwise_conv_wrapper_{kind}", node, DEPTHWISE_INPUTS, copies, filter, bytes)]


def _is_grouped(node: Node) -> bool:
    """Return whether a CONV_2D has groups."""
    return node.eval_input(CONV_INPUTS.input).dims[3] != node.eval_input(CONV_INPUTS.weights).dims[3]


def _channels(node: Node) -> int:
    return node.eval_output(0).dims[3]


def _kind(node: Node, operands: ConvolutionInputs) -> str | None:
    """Return the suffix of the function's name; None if CMSIS-NN has no kernel for the types or sizes."""
    op: OpDataConv = node.op_data
    layer = operands.bound(node)
    by_channel = np.moveaxis(layer.weights, operands.channels, 0).reshape(layer.weights.shape[operands.channels], -1)
    sizes = *layer.x.shape[1:], *layer.y.shape[1:], by_channel.shape[1]
    if not layer.constant or op.multiplier is None or 0 in (op.rows.dilation, op.columns.dilation):
        return None
    if max(sizes) > LARGEST_SIZE or not wide_sums_fit(by_channel[: _channels(node)], layer.bias, op.multiplier):
        return None
    return KINDS.get((node.eval_input(operands.input).type, node.eval_input(operands.weights).type))


def _call(
    function: str, node: Node, operands: ConvolutionInputs, fields: dict[str, Value], filter: Structure, bytes: int
) -> LibraryCall:
    op: OpDataConv = node.op_data
    assert op.multiplier is not None
    assert op.output is not None
    x, weights, y = node.eval_input(operands.input), node.eval_input(operands.weights), node.eval_output(0)
    parameters: dict[str, Value] = {
        "input_offset": -op.input_zero_point,
        "output_offset": op.output.zero_point,
        **fields,
        **window_fields(op.rows, op.columns, op.output),
        "dilation": tile(op.rows.dilation, op.columns.dilation),
    }
    return checked_call(
        function,
        context(bytes),
        Structure("cmsis_nn_dw_conv_params" if fields else "cmsis_nn_conv_params", parameters),
        channel_scales(op.multiplier, _channels(node)),
        dims_of(x),
        source("input", x.elements),
        filter,
        source("weights", weights.elements),
        dims(1, c=_channels(node)),
        _bias(function, node, operands),
        dims_of(y),
        target("output", y.elements),
    )


def _bias(function: str, node: Node, operands: ConvolutionInputs) -> Value:
    """Return the bias argument: a pointer; for int16, a structure with the width of its elements."""
    values: Any = operands.bound(node).bias
    if values is None and function == "arm_convolve_wrapper_s8" and _is_grouped(node):
        # Without a bias, the kernel adds the offset of later groups to NULL, and reads there.
        values = np.zeros(_channels(node), np.int32)
    if function != "arm_convolve_wrapper_s16":
        return source("bias", values)
    op: OpDataConv = node.op_data
    is_narrow = not isinstance(op.multiplier, WideQuantizedMultiplier)
    fields: dict[str, Value] = {"data": source("bias", values), "is_int32_bias": int(is_narrow)}
    return Structure("cmsis_nn_bias_data", fields)


POOLS = {"AVERAGE_POOL_2D": "arm_avgpool", "MAX_POOL_2D": "arm_max_pool"}

LARGEST_WINDOW = 1 << 15
"""Maximum number of elements in a window: their sum fits in 32 bits."""


def bind_pool(node: Node, processors: Processors) -> Sequence[LibraryCall] | None:
    """Bind AVERAGE_POOL_2D or MAX_POOL_2D."""
    x, y, options = node.eval_input(0), node.eval_output(0), node.options(Pool2DOptions)
    op: OpDataPooling = node.op_data
    kind, taps = BY_TYPE.get(x.type), (options.filter_height, options.filter_width)
    if kind is None or taps[0] * taps[1] >= LARGEST_WINDOW:
        return None
    strides = options.stride_h, options.stride_w
    before = [padding_before(*sizes) for sizes in zip(y.dims[1:3], x.dims[1:3], taps, strides)]
    parameters = Structure(
        "cmsis_nn_pool_params",
        {
            "stride": tile(*strides),
            "padding": tile(*before),
            "activation": activation(int(op.minimum), int(op.maximum)),
        },
    )
    has_sums = node.operator == "AVERAGE_POOL_2D"
    bytes = processors.maximum_bytes(lambda part, version: 4 * x.dims[3] if has_sums and has_dsp(part) else 0)
    return [
        checked_call(
            f"{POOLS[node.operator]}_{kind}",
            context(bytes),
            parameters,
            dims_of(x),
            source("input", x.elements),
            dims(1, *taps),
            dims_of(y),
            target("output", y.elements),
        )
    ]
