"""RELU, RELU6 and LEAKY_RELU, for float32, int8 and int16."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.kernels.arithmetic.fixed_point import (
    QuantizedMultiplier,
    Raw,
    int32_from_float,
    quantize_multiplier,
    round_half_away_array,
)
from tflm.kernels.arithmetic.requantization import OutputStage, Requantization
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.overlap import element_wise
from tflm.kernels.registration import Registration
from tflm.kernels.requests import tensors
from tflm.kernels.support.checks import (
    require_alike,
    require_scale,
    require_symmetric_int16,
    require_type,
    scale_or_none,
    unary_tensors,
)
from tflm.kernels.support.elementwise import bind_unary
from tflm.kernels.support.precision import SCALES, SCALES_OF_LEAKY_RELU
from tflm.memory.tensor import TfLiteTensor
from tflm.schema.element_types import ELEMENT_TYPES
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.options import LeakyReluOptions
from tflm.schema.version_rules import by_input
from tflm.targets import FLOAT, INT, INT8, INT32, UINT8, Since, Struct, Until

TYPES = (TensorType.FLOAT32, TensorType.INT8, TensorType.INT16)

RELU_OP_DATA = Struct(
    "ReluOpData",
    activation_type=UINT8,
    quantized_activation_min=INT32,
    quantized_activation_max=INT32,
    input_offset=INT32,
    output_offset=INT32,
    output_multiplier=INT32,
    output_shift=INT,
)
TFLITE_LEAKY_RELU_PARAMS = Struct("TfLiteLeakyReluParams", alpha=FLOAT)
LEAKY_RELU_OP_DATA = Struct(
    "LeakyReluOpData",
    output_multiplier_alpha=INT32,
    output_shift_alpha=INT32,
    output_multiplier_identity=INT32,
    output_shift_identity=INT32,
    input_zero_point=INT32,
    output_zero_point=INT32,
)
RELU6_OP_DATA = Struct(
    "Relu6OpData",
    six_int8=Until("ef2179ce0", INT8),
    zero_int8=Until("ef2179ce0", INT8),
    six_uint8=Until("ca7ed66b5", UINT8),
    zero_uint8=Until("ca7ed66b5", UINT8),
    six=Since("ef2179ce0", INT32),
    zero=Since("ef2179ce0", INT32),
)


@dataclass
class Clamp:
    """Clamps x; if the limits are crossed, as for unusual scales, the upper one wins."""

    minimum: Any
    maximum: Any

    def __call__(self, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        clamped: npt.NDArray[Any] = np.where(x > self.maximum, self.maximum, np.maximum(x, self.minimum))
        return clamped


def _prepare_relu(context: KernelContext, node: Node) -> None:
    input, output = node.input(0), node.output(0)
    require_type(input, *TYPES)
    require_alike(output, input)
    if input.type == TensorType.FLOAT32:
        node.op_data = Clamp(np.float32(0), np.float32(np.inf))
        return
    require_symmetric_int16(input, output)
    number = SCALES.number(node.release)
    ratio = float(number(input.scale) / number(require_scale(output)))
    limits = np.iinfo(ELEMENT_TYPES[input.type].dtype)
    stage = OutputStage(output.zero_point, max(int(limits.min), output.zero_point), int(limits.max))
    node.op_data = Requantization(QuantizedMultiplier.of(ratio), stage, input.zero_point)


def _prepare_relu6(context: KernelContext, node: Node) -> None:
    input, output = node.input(0), node.eval_output(0)
    require_type(input, *TYPES)
    require_alike(input, output)
    if input.type == TensorType.FLOAT32:
        node.op_data = Clamp(np.float32(0), np.float32(6))
        return
    scale_or_none(input)
    # TFLM assumes that the output has the input's quantization.
    dtype = ELEMENT_TYPES[input.type].dtype
    limits = np.iinfo(dtype)
    six = np.clip(int32_from_float(_six(input)), limits.min, limits.max)
    node.op_data = Clamp(dtype.type(input.zero_point), dtype.type(six))


def _six(input: TfLiteTensor) -> npt.NDArray[np.float32]:
    """6 in the integers of a tensor, in float32 throughout."""
    return round_half_away_array(np.array(6, np.float32) / np.float32(input.scale)) + np.float32(input.zero_point)


@dataclass
class LeakyRelu:
    """A function of integers: x - x_zero times one multiplier if positive, otherwise times another and a sign."""

    input_zero_point: int
    identity: QuantizedMultiplier
    alpha: QuantizedMultiplier
    alpha_sign: int
    output: OutputStage

    def __call__(self, x: Raw) -> Raw:
        values = x - self.input_zero_point
        scaled = np.where(values >= 0, self.identity(values), self.alpha_sign * self.alpha(values))
        return self.output.clamp(scaled)


@dataclass
class FloatLeakyRelu:
    """x if positive, else x * alpha."""

    alpha: np.float32

    def __call__(self, x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        return np.where(x > 0, x, x * self.alpha)


def _prepare_leaky_relu(context: KernelContext, node: Node) -> None:
    input, output = unary_tensors(node, *TYPES)
    alpha = node.options(LeakyReluOptions).alpha
    if input.type == TensorType.FLOAT32:
        node.op_data = FloatLeakyRelu(np.float32(alpha))
        return
    number = SCALES_OF_LEAKY_RELU.number(node.release)
    input_scale, output_scale = number(input.scale), number(require_scale(output))
    node.op_data = LeakyRelu(
        input.zero_point,
        identity=QuantizedMultiplier.of(float(input_scale / output_scale)),
        alpha=_multiplier_of_slope(float(input_scale * number(alpha) / output_scale)),
        alpha_sign=-1 if alpha < 0 else 1,
        output=OutputStage.whole(output.zero_point, ELEMENT_TYPES[output.type].dtype),
    )


def _multiplier_of_slope(real: float) -> QuantizedMultiplier:
    """The multiplier of a slope without its sign.

    The reference does not normalize a negative significand that rounds to -1; its negative is again -1 in 32 bits.
    """
    significand, shift = quantize_multiplier(abs(real))
    if real < 0 and significand == 2**30 and math.frexp(real)[0] != -0.5:
        return QuantizedMultiplier(-(2**31), shift - 1)
    return QuantizedMultiplier(significand, shift)


RELU = Registration(
    BuiltinOperator.RELU,
    bind_unary,
    _prepare_relu,
    op_data=RELU_OP_DATA,
    requests=tensors(),
    max_version=3,
    types=TYPES,
    overlap=element_wise,
    versions=by_input(INT16=3, INT8=2, UINT8=2),
)
RELU6 = Registration(
    BuiltinOperator.RELU6,
    bind_unary,
    _prepare_relu6,
    op_data=RELU6_OP_DATA,
    requests=tensors(1, 0),
    max_version=3,
    types=TYPES,
    overlap=element_wise,
    versions=by_input(INT16=3, INT8=2),
)
LEAKY_RELU = Registration(
    BuiltinOperator.LEAKY_RELU,
    bind_unary,
    _prepare_leaky_relu,
    op_data=LEAKY_RELU_OP_DATA,
    requests=tensors(),
    builtin_data=TFLITE_LEAKY_RELU_PARAMS,
    max_version=2,
    types=TYPES,
    overlap=element_wise,
    versions=by_input(INT16=2),
)
