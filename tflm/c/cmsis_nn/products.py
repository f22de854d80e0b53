"""Call CMSIS-NN for FULLY_CONNECTED."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tflm.c.cmsis_nn.processors import Processors
from tflm.c.cmsis_nn.structures import (
    NO_BUFFER,
    Array,
    activation,
    buffer,
    channel_scales,
    checked_call,
    constants,
    dims,
    scale,
    scale_fields,
    source,
    target,
    tile,
    wide_sums_fit,
)
from tflm.c.library_calls import LibraryCall, Structure, Value
from tflm.kernels.arithmetic.fixed_point import WideQuantizedMultiplier, wrap_int32
from tflm.kernels.node import Node
from tflm.kernels.reference.fully_connected import INPUT, WEIGHTS, OpDataFullyConnected, bound, has_scale_for_each_row
from tflm.schema.enums import TensorType

DEPTH_OF_CONVOLUTION = 4
"""TFLM runs a layer with more than two dimensions as a CONV_2D if its depth is a multiple of this."""


def bind(node: Node, processors: Processors) -> Sequence[LibraryCall] | None:
    """Bind FULLY_CONNECTED."""
    layer = bound(node)
    op: OpDataFullyConnected = node.op_data
    types = node.eval_input(INPUT).type, node.eval_input(WEIGHTS).type
    if not layer.constant or layer.x.dtype == np.float32:
        return None
    if types == (TensorType.INT8, TensorType.INT8):
        rank, depth = len(node.eval_output(0).dims), layer.x.shape[2]
        if rank > 2 and depth % DEPTH_OF_CONVOLUTION == 0 and not op.weights_zero_point:
            return [_convolution(node)]
        return [_with_sums(node, processors)]
    if op.weights_zero_point or np.size(op.multiplier.significand) > 1:
        return None
    if types == (TensorType.INT8, TensorType.INT4):
        return [_call("arm_fully_connected_s4", node, NO_BUFFER, scale(op.multiplier))]
    # With int16, sums and the bias have 64 bits.
    if op.input_zero_point or op.output.zero_point or not isinstance(op.multiplier, WideQuantizedMultiplier):
        return None
    if not wide_sums_fit(layer.weights, layer.bias, op.multiplier):
        return None
    return [_call("arm_fully_connected_s16", node, NO_BUFFER, scale(op.multiplier))]


def row_sums(weights: Array, offset: int, weights_offset: int, bias: Array | None) -> Array:
    """Return the 32-bit sums that Helium's kernels add to int8 products: each row's weights times the input offset,
    plus the bias."""
    sums = weights.sum(axis=1, dtype=np.int64) + weights_offset * weights.shape[1]
    total: Array = sums * offset + (0 if bias is None else bias.astype(np.int64))
    return wrap_int32(total).astype(np.int32)


def _with_sums(node: Node, processors: Processors) -> LibraryCall:
    layer, op = bound(node), node.op_data
    context = NO_BUFFER
    if processors.may_have_mve:
        sums = row_sums(layer.weights, -op.input_zero_point, -op.weights_zero_point, layer.bias)
        context = buffer(constants("sums", sums), sums.nbytes)
    is_per_channel = has_scale_for_each_row(node.input(WEIGHTS))
    scales = scale_fields(op.multiplier, layer.y.shape[2] if is_per_channel else 1)
    quantization = Structure("cmsis_nn_quant_params", {**scales, "is_per_channel": int(is_per_channel)})
    return _call("arm_fully_connected_wrapper_s8", node, context, quantization)


def _convolution(node: Node) -> LibraryCall:
    op: OpDataFullyConnected = node.op_data
    fields: dict[str, Value] = {
        "input_offset": -op.input_zero_point,
        "output_offset": op.output.zero_point,
        "stride": tile(1, 1),
        "padding": tile(0, 0),
        "dilation": tile(1, 1),
        "activation": activation(op.output.minimum, op.output.maximum),
    }
    channels = node.eval_output(0).dims[-1]
    scales = channel_scales(op.multiplier, channels)
    return _call("arm_convolve_1x1_s8_fast", node, NO_BUFFER, scales, Structure("cmsis_nn_conv_params", fields))


def _call(
    function: str, node: Node, context: Structure, scales: Structure, parameters: Structure | None = None
) -> LibraryCall:
    layer = bound(node)
    (_, count, depth), channels = layer.x.shape, layer.y.shape[2]
    return checked_call(
        function,
        context,
        parameters or _parameters(node),
        scales,
        dims(count, c=depth),
        source("input", layer.x),
        dims(depth, c=channels),
        source("weights", node.eval_input(WEIGHTS).elements),
        dims(1, c=channels),
        source("bias", layer.bias),
        dims(count, c=channels),
        target("output", layer.y),
    )


def _parameters(node: Node) -> Structure:
    op: OpDataFullyConnected = node.op_data
    fields: dict[str, Value] = {
        "input_offset": -op.input_zero_point,
        "filter_offset": -op.weights_zero_point,
        "output_offset": op.output.zero_point,
        "activation": activation(op.output.minimum, op.output.maximum),
    }
    return Structure("cmsis_nn_fc_params", fields)
