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
    wrap_int32,
)
from tflm.kernels.arithmetic.lookup import bind_lookup
from tflm.kernels.arithmetic.requantization import OutputStage, Requantization
from tflm.kernels.host_memory import kept
from tflm.kernels.overlap import element_wise
from tflm.kernels.registration import KernelContext, Node, Registration, Run
from tflm.kernels.requests import tensors
from tflm.kernels.support.checks import require_alike, require_scale, require_type, require_zero_point, scale_or_none
from tflm.kernels.support.precision import SCALES, SCALES_OF_LEAKY_RELU
from tflm.kernels.support.views import apart
from tflm.memory.tensor import TfLiteTensor
from tflm.schema.element_types import ELEMENT_TYPES
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.options import LeakyReluOptions
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


def _prepare_relu(context: KernelContext, node: Node) -> None:
    input = context.input_tensor(node, 0)
    output = context.output_tensor(node, 0)
    require_type(input, *TYPES)
    require_alike(output, input)
    if input.type == TensorType.FLOAT32:
        return
    if input.type == TensorType.INT16:
        require_zero_point(input, 0)
        require_zero_point(output, 0)
    number = SCALES.number(context.release)
    ratio = float(number(input.scale) / number(require_scale(output)))
    limits = np.iinfo(ELEMENT_TYPES[input.type].dtype)
    stage = OutputStage(output.zero_point, max(int(limits.min), output.zero_point), int(limits.max))
    node.op_data = Requantization(QuantizedMultiplier.of(ratio), stage, input.zero_point)


def _bind_relu(context: KernelContext, node: Node) -> Run:
    x, y = context.get_eval_input(node, 0).elements, context.get_eval_output(node, 0).elements
    if x.dtype != np.float32:
        return bind_lookup(x, y, node.op_data)
    return _bind_clamp(x, y, np.float32(0), np.float32(np.inf))


def _prepare_relu6(context: KernelContext, node: Node) -> None:
    input = context.input_tensor(node, 0)
    output = context.get_eval_output(node, 0)
    require_type(input, *TYPES)
    require_alike(input, output)
    if input.type == TensorType.FLOAT32:
        node.op_data = np.float32(0), np.float32(6)
        return
    scale_or_none(input)
    # The output is taken to have the quantization of the input.
    dtype = ELEMENT_TYPES[input.type].dtype
    limits = np.iinfo(dtype)
    six = np.clip(int32_from_float(_six(input)), limits.min, limits.max)
    node.op_data = dtype.type(input.zero_point), dtype.type(six)


def _six(input: TfLiteTensor) -> npt.NDArray[np.float32]:
    """6 in the integers of a tensor, in float32 throughout."""
    return round_half_away_array(np.array(6, np.float32) / np.float32(input.scale)) + np.float32(input.zero_point)


def _bind_relu6(context: KernelContext, node: Node) -> Run:
    x, y = context.get_eval_input(node, 0).elements, context.get_eval_output(node, 0).elements
    return _bind_clamp(x, y, *node.op_data)


def _bind_clamp(x: npt.NDArray[Any], y: npt.NDArray[Any], minimum: Any, maximum: Any) -> Run:
    flat_x, flat_y = x.reshape(-1), y.reshape(-1)
    above = kept(np.empty(flat_x.shape, np.bool_))

    def run() -> None:
        np.greater(flat_x, maximum, out=above)
        np.maximum(flat_x, minimum, out=flat_y)
        np.copyto(flat_y, maximum, where=above)  # only what was above: the minimum may be, at odd scales

    return run


@dataclass
class LeakyRelu:
    """A function of integers: (x - x_zero) by one multiplier if it is positive, else by another and a sign."""

    input_zero_point: int
    output_zero_point: int
    identity: QuantizedMultiplier
    alpha: QuantizedMultiplier
    alpha_sign: int

    def __call__(self, x: Raw) -> Raw:
        values = x - self.input_zero_point
        positive, negative = (
            multiplier.scale(values.copy(), kept(np.empty_like(values))) for multiplier in (self.identity, self.alpha)
        )
        scaled = np.where(values >= 0, positive, self.alpha_sign * negative)
        return wrap_int32(scaled + self.output_zero_point)


def _prepare_leaky_relu(context: KernelContext, node: Node) -> None:
    node.expect(inputs=1, outputs=1)
    input = context.input_tensor(node, 0)
    output = context.output_tensor(node, 0)
    require_type(input, *TYPES)
    require_alike(output, input)
    alpha = (node.options(LeakyReluOptions) or LeakyReluOptions()).alpha
    if input.type == TensorType.FLOAT32:
        node.op_data = np.float32(alpha)
        return
    number = SCALES_OF_LEAKY_RELU.number(context.release)
    input_scale, output_scale = number(input.scale), number(require_scale(output))
    node.op_data = LeakyRelu(
        input.zero_point,
        output.zero_point,
        identity=QuantizedMultiplier.of(float(input_scale / output_scale)),
        alpha=_multiplier_of_slope(float(input_scale * number(alpha) / output_scale)),
        alpha_sign=-1 if alpha < 0 else 1,
    )


def _multiplier_of_slope(real: float) -> QuantizedMultiplier:
    """The multiplier of a slope without its sign.

    A negative significand that rounds to -1 is left so by the reference, and its negative is again -1 in 32 bits.
    """
    significand, shift = quantize_multiplier(abs(real))
    if real < 0 and significand == 2**30 and math.frexp(real)[0] != -0.5:
        return QuantizedMultiplier(-(2**31), shift - 1)
    return QuantizedMultiplier(significand, shift)


def _bind_leaky_relu(context: KernelContext, node: Node) -> Run:
    x, y = context.get_eval_input(node, 0).elements, context.get_eval_output(node, 0).elements
    if x.dtype != np.float32:
        limits = np.iinfo(y.dtype)
        return bind_lookup(x, y, lambda values: np.clip(node.op_data(values), limits.min, limits.max))
    flat_y, alpha = y.reshape(-1), node.op_data
    flat_x, copies = apart(x.reshape(-1), flat_y)
    positive, others = kept(np.empty((2, *flat_x.shape), np.bool_))

    def run() -> None:
        for copy, original in copies:
            np.copyto(copy, original)
        np.greater(flat_x, 0, out=positive)
        np.logical_not(positive, out=others)
        np.multiply(flat_x, alpha, out=flat_y, where=others)  # in two parts: the output may lie on the input
        np.copyto(flat_y, flat_x, where=positive)

    return run


RELU = Registration(
    BuiltinOperator.RELU,
    _bind_relu,
    _prepare_relu,
    op_data=RELU_OP_DATA,
    requests=tensors(),
    max_version=3,
    types=TYPES,
    overlap=element_wise,
)
RELU6 = Registration(
    BuiltinOperator.RELU6,
    _bind_relu6,
    _prepare_relu6,
    op_data=RELU6_OP_DATA,
    requests=tensors(1, 0),
    max_version=3,
    types=TYPES,
    overlap=element_wise,
)
LEAKY_RELU = Registration(
    BuiltinOperator.LEAKY_RELU,
    _bind_leaky_relu,
    _prepare_leaky_relu,
    op_data=LEAKY_RELU_OP_DATA,
    requests=tensors(),
    builtin_data=TFLITE_LEAKY_RELU_PARAMS,
    max_version=2,
    types=TYPES,
    overlap=element_wise,
)
