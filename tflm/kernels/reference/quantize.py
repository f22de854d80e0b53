"""QUANTIZE, from float to integers or between integer types; DEQUANTIZE, back to float32; and CAST.

CAST wraps integers, saturates floats, and takes anything but zero as true. Bools are read as bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier, Raw, int32_from_float, round_half_away_array
from tflm.kernels.arithmetic.requantization import OutputStage, Requantization
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.overlap import element_wise
from tflm.kernels.registration import Refusal, Registration, Run
from tflm.kernels.requests import tensors
from tflm.kernels.support.checks import require_same_size, require_scale, require_type
from tflm.kernels.support.elementwise import as_numbers, bind_unary
from tflm.memory.tensor import TFLITE_TYPE
from tflm.schema.enums import ELEMENT_TYPES, BuiltinOperator, TensorType
from tflm.schema.tables import Tensor
from tflm.schema.version_rules import (
    Feature,
    Signature,
    by_input,
    every,
    input_is,
    input_or_output_is,
    output_is,
    scales_of,
)
from tflm.targets import DOUBLE, INT, INT32, Struct

DEQUANTIZE_TYPES = (TensorType.INT8, TensorType.INT16, TensorType.UINT8)
OUTPUT_TYPES = {
    TensorType.FLOAT32: (TensorType.INT8, TensorType.INT16),
    TensorType.INT32: (TensorType.INT8, TensorType.INT16),
    TensorType.INT16: (TensorType.INT8, TensorType.INT16, TensorType.INT32),
    TensorType.INT8: (TensorType.INT8, TensorType.UINT8, TensorType.INT16, TensorType.INT32),
    TensorType.UINT8: (TensorType.INT8,),
}
"""QUANTIZE's output types, by the type of the input."""

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


@dataclass(frozen=True)
class AffineQuantize:
    """Quantizes real numbers: x / scale, rounded and truncated to 32 bits, plus the zero point, clamped."""

    scale: np.float32
    output: OutputStage

    def __call__(self, x: npt.NDArray[np.float32]) -> Raw:
        return self.output.clamp(int32_from_float(round_half_away_array(x / self.scale)))


@dataclass(frozen=True)
class AffineDequantize:
    """Converts integers to the real numbers that they represent."""

    scale: float
    zero_point: int

    def __call__(self, x: Raw) -> npt.NDArray[np.floating]:
        return self.scale * (x - self.zero_point)


def _prepare_quantize(context: KernelContext, node: Node) -> None:
    input, output = node.expect_tensors(1)
    require_type(input, *OUTPUT_TYPES)
    require_type(output, *OUTPUT_TYPES[input.type])
    require_same_size(output, input)
    require_scale(output)
    assert output.quantization is not None
    if len(output.quantization.scale) != 1:
        raise OperatorError("has a scale for each channel; only one for all is supported", tensor=output.name)
    stage = OutputStage.whole(output.zero_point, ELEMENT_TYPES[output.type].dtype)
    if input.type == TensorType.FLOAT32:
        node.op_data = AffineQuantize(np.float32(output.scale), stage)
    else:
        node.op_data = Requantization(QuantizedMultiplier.of(input.scale / output.scale), stage, input.zero_point)


def _prepare_dequantize(context: KernelContext, node: Node) -> None:
    input, output = node.expect_tensors(1)
    require_type(input, *DEQUANTIZE_TYPES)
    require_type(output, TensorType.FLOAT32)
    require_same_size(output, input)
    node.op_data = AffineDequantize(input.scale, input.zero_point)


def _reads_int32(node: Node) -> bool:
    return node.input(0).type == TensorType.INT32


def _reads_uint8(node: Node) -> bool:
    return node.input(0).type == TensorType.UINT8


def _has_uint8(node: Node) -> bool:
    return TensorType.UINT8 in (node.input(0).type, node.output(0).type)


def _has_scale_for_each_slice(tensor: Tensor | None) -> bool:
    scales = scales_of(tensor)
    if tensor is None or tensor.quantization is None or len(scales) < 2:
        return False
    shape, dimension = tensor.shape or (), tensor.quantization.quantized_dimension
    return 0 <= dimension < len(shape) and shape[dimension] == len(scales)


def _reads_a_scale_for_each_slice(signature: Signature) -> bool:
    return _has_scale_for_each_slice(signature.input(0))


def _writes_a_scale_for_each_slice(signature: Signature) -> bool:
    return _has_scale_for_each_slice(next(iter(signature.outputs), None))


QUANTIZE = Registration(
    BuiltinOperator.QUANTIZE,
    bind_unary,
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
    versions={
        5: input_or_output_is("UINT4"),
        4: input_or_output_is("INT4"),
        3: Feature("a scale for each slice", _writes_a_scale_for_each_slice),
        2: output_is("INT16"),
    },
)
DEQUANTIZE = Registration(
    BuiltinOperator.DEQUANTIZE,
    bind_unary,
    _prepare_dequantize,
    op_data=DEQUANTIZE_OP_DATA,
    requests=tensors(),
    max_version=6,
    types=DEQUANTIZE_TYPES,
    refusals=(Refusal(_reads_uint8, "its input may be int8 or int16", since="1ca285989", until="5f443a287"),),
    overlap=element_wise,
    versions={
        **by_input(FLOAT8=9, UINT4=8, INT2=7, INT4=6, INT16=3, FLOAT16=3),
        5: Feature("INT8 with a scale for each slice", every(input_is("INT8"), _reads_a_scale_for_each_slice)),
        2: input_is("INT8"),
    },
)


TFLITE_CAST_PARAMS = Struct("TfLiteCastParams", in_data_type=TFLITE_TYPE, out_data_type=TFLITE_TYPE)

CAST_TYPES = (
    TensorType.FLOAT32,
    TensorType.INT8,
    TensorType.INT16,
    TensorType.INT32,
    TensorType.UINT32,
    TensorType.BOOL,
)


def _prepare_cast(context: KernelContext, node: Node) -> None:
    input, output = node.expect_tensors(1)
    require_type(input, *CAST_TYPES)
    require_type(output, *CAST_TYPES)
    require_same_size(output, input)


def _bind_cast(context: KernelContext, node: Node) -> Run:
    x = as_numbers(node.eval_input(0).elements.reshape(-1))
    y = node.eval_output(0).elements.reshape(-1)
    if x.dtype == np.uint8:
        y = as_numbers(y)
    truncates = x.dtype.kind == "f" and y.dtype.kind in "iu"

    def run() -> None:
        y[...] = _truncated(x, np.iinfo(y.dtype)) if truncates else x

    return run


def _truncated(x: npt.NDArray[np.float32], limits: np.iinfo[Any]) -> npt.NDArray[np.float64]:
    """Truncate floats towards zero and saturate; NaN becomes 0."""
    numbers = np.where(np.isnan(x), 0, x.astype(np.float64))
    truncated: npt.NDArray[np.float64] = np.trunc(np.clip(numbers, limits.min, limits.max))
    return truncated


CAST = Registration(
    BuiltinOperator.CAST,
    _bind_cast,
    _prepare_cast,
    requests=tensors(),
    builtin_data=TFLITE_CAST_PARAMS,
    max_version=7,
    types=CAST_TYPES,
    overlap=element_wise,
    output_values=lambda node: node.values(0),
    versions={
        9: input_or_output_is("FLOAT8"),
        8: input_or_output_is("INT2", "UINT4"),
        7: input_or_output_is("BFLOAT16"),
        6: Feature("INT4 to FLOAT32", every(input_is("INT4"), output_is("FLOAT32"))),
        5: input_or_output_is("FLOAT64", "FLOAT16"),
        4: input_or_output_is("UINT16"),
        3: input_or_output_is("INT8"),
        2: input_or_output_is("UINT32"),
    },
)
