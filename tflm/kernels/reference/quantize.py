"""QUANTIZE, from float to integers and from integers to others; and DEQUANTIZE, back to float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.arithmetic.fixed_point import (
    QuantizedMultiplier,
    int32_from_float_into,
    round_half_away_in_place,
)
from tflm.kernels.arithmetic.lookup import bind_lookup
from tflm.kernels.arithmetic.requantization import OutputStage, Requantization
from tflm.kernels.host_memory import kept
from tflm.kernels.overlap import element_wise
from tflm.kernels.registration import KernelContext, Node, Registration, Run
from tflm.kernels.requests import NodeView, Refusal, tensors
from tflm.kernels.support.checks import require_same_size, require_scale, require_type
from tflm.schema.element_types import ELEMENT_TYPES
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.targets import DOUBLE, INT, INT32, Struct

DEQUANTIZE_TYPES = (TensorType.INT8, TensorType.INT16, TensorType.UINT8)
OUTPUT_TYPES = {
    TensorType.FLOAT32: (TensorType.INT8, TensorType.INT16),
    TensorType.INT32: (TensorType.INT8, TensorType.INT16),
    TensorType.INT16: (TensorType.INT8, TensorType.INT16, TensorType.INT32),
    TensorType.INT8: (TensorType.INT8, TensorType.UINT8, TensorType.INT16, TensorType.INT32),
    TensorType.UINT8: (TensorType.INT8,),
}
"""What QUANTIZE makes of each type of input."""

QUANTIZATION_PARAMS = Struct("QuantizationParams", zero_point=INT32, scale=DOUBLE)
DEQUANTIZATION_PARAMS = Struct("DequantizationParams", scale=DOUBLE, zero_point=INT32)
OP_DATA_QUANTIZE = Struct(
    "OpDataQuantizeReference",
    quantization_params=QUANTIZATION_PARAMS,
    requantize_output_multiplier=INT32,
    requantize_output_shift=INT,
    input_zero_point=INT32,
)
DEQUANTIZE_OP_DATA = Struct(
    "DequantizeOpData",
    quantization_params=DEQUANTIZATION_PARAMS,
    output_multiplier=INT32,
    output_shift=INT,
    output_zero_point=INT32,
)


def _prepare_quantize(context: KernelContext, node: Node) -> None:
    node.expect(inputs=1, outputs=1)
    input = context.input_tensor(node, 0)
    output = context.output_tensor(node, 0)
    require_type(input, *OUTPUT_TYPES)
    require_type(output, *OUTPUT_TYPES[input.type])
    require_same_size(output, input)
    require_scale(output)
    assert output.quantization is not None
    if len(output.quantization.scale) != 1:
        raise OperatorError("has a scale for each channel; only one for all is supported", tensor=output.name)
    if input.type == TensorType.FLOAT32:
        node.op_data = np.float32(output.scale), output.zero_point
    else:
        stage = OutputStage.whole(output.zero_point, ELEMENT_TYPES[output.type].dtype)
        node.op_data = Requantization(QuantizedMultiplier.of(input.scale / output.scale), stage, input.zero_point)


def _bind_quantize(context: KernelContext, node: Node) -> Run:
    x, y = context.get_eval_input(node, 0).elements, context.get_eval_output(node, 0).elements
    if x.dtype == np.float32:
        return _bind_affine_quantize(x.reshape(-1), y.reshape(-1), *node.op_data)
    if x.itemsize <= 2:
        return bind_lookup(x, y, node.op_data)

    requantize = node.op_data.in_place
    flat_x, flat_y = x.reshape(-1), y.reshape(-1)
    values, scratch = (kept(np.empty(flat_x.shape, np.int64)) for _ in range(2))

    def run() -> None:
        np.copyto(values, flat_x)
        np.copyto(flat_y, requantize(values, scratch), casting="unsafe")

    return run


def _bind_affine_quantize(x: npt.NDArray[Any], y: npt.NDArray[Any], scale: np.float32, zero_point: int) -> Run:
    stage = OutputStage.whole(zero_point, y.dtype)
    scaled, scratch = (kept(np.empty(x.shape, np.float32)) for _ in range(2))
    mask = kept(np.empty(x.shape, np.bool_))
    values = kept(np.empty(x.shape, np.int64))

    def run() -> None:
        np.divide(x, scale, out=scaled)
        round_half_away_in_place(scaled, scratch)
        int32_from_float_into(values, scaled, mask)
        np.copyto(y, stage.clamp(values), casting="unsafe")

    return run


def _prepare_dequantize(context: KernelContext, node: Node) -> None:
    node.expect(inputs=1, outputs=1)
    input = context.input_tensor(node, 0)
    output = context.output_tensor(node, 0)
    require_type(input, *DEQUANTIZE_TYPES)
    require_type(output, TensorType.FLOAT32)
    require_same_size(output, input)
    node.op_data = input.scale, input.zero_point


def _bind_dequantize(context: KernelContext, node: Node) -> Run:
    x, y = context.get_eval_input(node, 0).elements, context.get_eval_output(node, 0).elements
    scale, zero_point = node.op_data
    return bind_lookup(x, y, lambda values: scale * (values - zero_point))


def _reads_int32(node: NodeView) -> bool:
    return node.input(0).type == TensorType.INT32


def _reads_uint8(node: NodeView) -> bool:
    return node.input(0).type == TensorType.UINT8


def _has_uint8(node: NodeView) -> bool:
    return TensorType.UINT8 in (node.input(0).type, node.output(0).type)


QUANTIZE = Registration(
    BuiltinOperator.QUANTIZE,
    _bind_quantize,
    _prepare_quantize,
    op_data=OP_DATA_QUANTIZE,
    requests=tensors(),
    max_version=4,
    types=tuple(OUTPUT_TYPES),
    refusals=(
        Refusal(_reads_int32, "its input may be float32, int16 or int8", until="8b47571d2"),
        Refusal(_has_uint8, "neither input nor output may be uint8", until="ad60ac482"),
    ),
    overlap=element_wise,
)
DEQUANTIZE = Registration(
    BuiltinOperator.DEQUANTIZE,
    _bind_dequantize,
    _prepare_dequantize,
    op_data=DEQUANTIZE_OP_DATA,
    requests=tensors(),
    max_version=6,
    types=DEQUANTIZE_TYPES,
    refusals=(Refusal(_reads_uint8, "its input may be int8 or int16", since="1ca285989", until="5f443a287"),),
    overlap=element_wise,
)
