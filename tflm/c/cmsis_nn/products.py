"""Call CMSIS-NN for FULLY_CONNECTED, ADD, MUL and SOFTMAX."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tflm.c.cmsis_nn.processors import Processors
from tflm.c.cmsis_nn.structures import (
    FUNCTIONS,
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
from tflm.c.library_calls import Address, LibraryCall, Structure, Value
from tflm.kernels.arithmetic.fixed_point import WideQuantizedMultiplier, wrap_int32
from tflm.kernels.node import Node
from tflm.kernels.reference.arithmetic import Addend, Product, Sum
from tflm.kernels.reference.fully_connected import (
    INPUT,
    WEIGHTS,
    OpDataFullyConnected,
    bound,
    has_scale_for_each_row,
)
from tflm.kernels.reference.normalization import OpDataSoftmax, OpDataSoftmaxInt16
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


KINDS = {TensorType.INT8: "s8", TensorType.INT16: "s16"}
"""The suffix of a function's name, by type."""


def bind_add(node: Node, processors: Processors) -> Sequence[LibraryCall] | None:
    """Bind ADD."""
    kind, op = _kind_of_one_shape(node), node.op_data
    if kind is None or not isinstance(op, Sum):
        return None
    scales = [*_addend(op.addend1), *_addend(op.addend2), op.addend1.left_shift]
    return [checked_call(f"arm_elementwise_add_{kind}", *_inputs(node), *scales, *_output(node, op))]


def bind_mul(node: Node, processors: Processors) -> Sequence[LibraryCall] | None:
    """Bind MUL."""
    kind, op = _kind_of_one_shape(node), node.op_data
    if kind is None or not isinstance(op, Product):
        return None
    offsets = -op.zero_point1, -op.zero_point2
    return [checked_call(f"arm_elementwise_mul_{kind}", *_inputs(node), *offsets, *_output(node, op))]


def _kind_of_one_shape(node: Node) -> str | None:
    """Return the suffix of the function's name; None for other types, and if an input broadcasts."""
    tensors = node.eval_input(0), node.eval_input(1), node.eval_output(0)
    if len({tensor.dims for tensor in tensors}) > 1 or len({tensor.type for tensor in tensors}) > 1:
        return None
    return KINDS.get(tensors[0].type)


def _inputs(node: Node) -> list[Value]:
    return [source(f"input{i + 1}", node.eval_input(i).elements) for i in range(2)]


def _addend(addend: Addend) -> list[Value]:
    """Return the offset, multiplier and shift of an input."""
    return [-addend.zero_point, int(addend.multiplier.significand), int(addend.multiplier.shift)]


def _output(node: Node, op: Sum | Product) -> list[Value]:
    """Return the arguments for the output: address, offset, multiplier, shift, limits and number of elements."""
    y, multiplier, stage = node.eval_output(0).elements, op.output.multiplier, op.output.stage
    scale = int(multiplier.significand), int(multiplier.shift)
    return [target("output", y), stage.zero_point, *scale, stage.minimum, stage.maximum, y.size]


def bind_softmax(node: Node, processors: Processors) -> Sequence[LibraryCall] | None:
    """Bind SOFTMAX. An int16 row of one element is left to generated kernels: CMSIS-NN's result wraps."""
    x, y, op = node.eval_input(0).elements, node.eval_output(0).elements, node.op_data
    if not isinstance(op, (OpDataSoftmax, OpDataSoftmaxInt16)) or not x.size:
        return None
    rows = x.size // x.shape[-1]
    first: list[Value] = [source("input", x), rows, x.shape[-1], op.significand, op.shift]
    if isinstance(op, OpDataSoftmaxInt16):
        if x.shape[-1] == 1:
            return None
        return [checked_call("arm_softmax_s16", *first, _tables(op), target("output", y))]
    function = "arm_softmax_s8" if y.dtype == np.int8 else "arm_softmax_s8_s16"
    return [LibraryCall(function, (*first, op.diff_min, target("output", y)), headers=(FUNCTIONS,))]


def _tables(op: OpDataSoftmaxInt16) -> Structure:
    tables = {"exp_lut": op.exp_lut, "one_by_one_lut": op.one_over_one_plus_x_lut}
    fields: dict[str, Value] = {
        name: Address(name, "const int16_t *", np.array(values, np.int16)) for name, values in tables.items()
    }
    return Structure("cmsis_nn_softmax_lut_s16", fields)
