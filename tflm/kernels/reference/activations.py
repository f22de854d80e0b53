"""RELU, RELU6, LEAKY_RELU, PRELU, ELU, HARD_SWISH, LOGISTIC and TANH.

The integer results of LOGISTIC and TANH do not depend on the output's quantization, which must be the natural one:
1/256 and -128 for LOGISTIC in int8, 1/128 and 0 for TANH in int8, 1/32768 and 0 for both in int16.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.arithmetic import fixed_point
from tflm.kernels.arithmetic.fixed_point import (
    SIGMOID_TABLE,
    QuantizedMultiplier,
    Raw,
    input_radius,
    int32_from_float,
    multiply_by_quantized_multiplier,
    quantize_multiplier,
    round_half_away_array,
    rounding_divide_by_pot,
    wrap_int32,
)
from tflm.kernels.arithmetic.requantization import OutputStage, Requantization
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.overlap import element_wise
from tflm.kernels.registration import Registration
from tflm.kernels.requests import TempInput, TempOutput, always, tensors
from tflm.kernels.support.activation import SCALES, SCALES_OF_LEAKY_RELU
from tflm.kernels.support.checks import (
    require_alike,
    require_one_type,
    require_scale,
    require_symmetric_int16,
    require_type,
    require_zero_point,
    scale_or_none,
    unary_tensors,
)
from tflm.kernels.support.elementwise import RANK_4D, bind_binary, bind_unary, require_broadcast
from tflm.memory.tensor import TfLiteTensor
from tflm.schema.enums import ELEMENT_TYPES, BuiltinOperator, TensorType
from tflm.schema.options import LeakyReluOptions
from tflm.schema.version_rules import INT16_ACTIVATIONS, by_input, input_is
from tflm.targets import FLOAT, INT, INT8, INT16, INT32, UINT8, Array, Since, Struct, Until

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


ALPHA_TYPES = {
    TensorType.FLOAT32: TensorType.FLOAT32,
    TensorType.INT8: TensorType.INT8,
    TensorType.INT16: TensorType.INT8,
}

PRELU_PARAMS = Struct(
    "PreluParams",
    input_offset=INT32,
    alpha_offset=INT32,
    output_offset=INT32,
    output_multiplier_1=INT32,
    output_shift_1=INT,
    output_multiplier_2=INT32,
    output_shift_2=INT,
)


@dataclass(frozen=True)
class Prelu:
    """A function of integers: one multiplier (`output`) for positive values, another for products with alpha."""

    input_zero_point: int
    alpha_zero_point: int
    product: QuantizedMultiplier
    output: Requantization

    def __call__(self, x: npt.NDArray[Any], alpha: npt.NDArray[Any]) -> Raw:
        value = x.astype(np.int64) - self.input_zero_point
        product = wrap_int32(value * (alpha.astype(np.int64) - self.alpha_zero_point))
        return np.where(value >= 0, self.output(value), self.output.stage.clamp(self.product(product)))


def _prepare_prelu(context: KernelContext, node: Node) -> None:
    input, alpha = node.input(0), node.input(1)
    output = node.output(0)
    require_one_type(ALPHA_TYPES, input, output)
    require_type(alpha, ALPHA_TYPES[input.type])
    require_broadcast(input, alpha, output, RANK_4D, RANK_4D)
    if input.type == TensorType.FLOAT32:
        node.op_data = lambda x, alpha: np.where(x >= 0, x, x * alpha)
        return
    scale = require_scale(output)
    identity = QuantizedMultiplier.of(input.scale / scale)
    node.op_data = Prelu(
        input.zero_point,
        alpha.zero_point,
        QuantizedMultiplier.of(input.scale * alpha.scale / scale),
        Requantization(identity, OutputStage.whole(output.zero_point, ELEMENT_TYPES[input.type].dtype)),
    )


PRELU = Registration(
    BuiltinOperator.PRELU,
    bind_binary,
    _prepare_prelu,
    op_data=PRELU_PARAMS,
    requests=tensors(2),
    types=tuple(ALPHA_TYPES),
    overlap=element_wise,
)


INT8_INTEGER_BITS = 4
"""The input of the int8 functions is Q4.27."""

INT16_UNIT = 3 << 12
"""The input of the int16 functions is in steps of 1 / (3 * 4096): 24 entries of the table are 1, 512 steps each."""

_FIELDS = {"input_zero_point": INT32, "input_range_radius": INT32, "input_multiplier": INT32, "input_left_shift": INT}
OP_DATA_LOGISTIC = Struct("OpDataLogistic", **_FIELDS)
OP_DATA_TANH = Struct("tanh.cc:OpData", **_FIELDS)


def _prepare_logistic(context: KernelContext, node: Node) -> None:
    input, output = node.input(0), node.output(0)
    require_type(input, *TYPES)
    require_alike(output, input)
    if input.type == TensorType.INT8:
        require_zero_point(output, -128)
        node.op_data = Int8Sigmoid(input, fixed_point.logistic, output_shift=23, output_zero_point=-128)
    elif input.type == TensorType.INT16:
        node.op_data = Int16Input(input, output, largest_exact_shift=0, function=logistic_int16)
    else:
        node.op_data = float_logistic


def _prepare_tanh(context: KernelContext, node: Node) -> None:
    input, output = unary_tensors(node, *TYPES)
    if input.type == TensorType.INT8:
        node.op_data = Int8Sigmoid(input, fixed_point.tanh, output_shift=24, output_zero_point=0)
    elif input.type == TensorType.INT16:
        node.op_data = Int16Input(input, output, largest_exact_shift=1, function=tanh_int16)
    else:
        node.op_data = np.tanh


class Int8Sigmoid:
    """A function from int8 to int8: the input as Q4.27, the function in Q0.31, and its upper bits as the output.

    Inputs too large for Q4.27 map to the ends of the output range.
    """

    def __init__(
        self, input: TfLiteTensor, function: Callable[[Raw, int], Raw], output_shift: int, output_zero_point: int
    ):
        fraction, self._shift = math.frexp(scale_or_none(input) * 2.0 ** (31 - INT8_INTEGER_BITS))
        self._significand = fixed_point.round_half_away(fraction * 2**31)
        self._radius = input_radius(INT8_INTEGER_BITS, self._shift)
        self._zero_point = input.zero_point
        self._function, self._output_shift, self._output_zero_point = function, output_shift, output_zero_point

    def __call__(self, x: Raw) -> Raw:
        centered = x - self._zero_point
        low, high = centered <= -self._radius, centered >= self._radius
        inside = np.where(low | high, 0, centered)
        q4 = multiply_by_quantized_multiplier(inside, self._significand, self._shift)
        q0 = self._function(q4, INT8_INTEGER_BITS)
        y = np.clip(rounding_divide_by_pot(q0, self._output_shift) + self._output_zero_point, -128, 127)
        return np.where(low, -128, np.where(high, 127, y))


class Int16Input:
    """A function from int16 to Q0.15: rescales the input to steps of 1 / 12288, then applies `function`.

    An input scale of 2^-12 (or, where `largest_exact_shift` allows it, a larger power of two) is exact.

    Attributes:
        function: of steps.
        multiplier, shift: from the input to steps: times the multiplier, shifted to the right, rounded.
    """

    def __init__(
        self, input: TfLiteTensor, output: TfLiteTensor, largest_exact_shift: int, function: Callable[[Raw], Raw]
    ):
        require_zero_point(input, 0)
        require_zero_point(output, 0)
        power, is_power = checked_log2(require_scale(output))
        if not is_power or power != -15:
            raise OperatorError(f"has scale {output.scale:g}, must have 1/32768", tensor=output.name)
        power, is_power = checked_log2(require_scale(input))
        exact_shift = power + 12
        self.function = function
        if is_power and 0 <= exact_shift <= largest_exact_shift:
            self.multiplier, self.shift = 3 << exact_shift, 0
        else:
            multiplier, self.shift = input.scale * INT16_UNIT, 0
            while multiplier <= 32767 / 2 and self.shift <= 30:
                multiplier, self.shift = multiplier * 2, self.shift + 1
            self.multiplier = int(int32_from_float(multiplier))

    def __call__(self, x: Raw) -> Raw:
        half = (1 << self.shift) >> 1
        steps = wrap_int32(x * self.multiplier + half) >> self.shift
        return self.function(steps)


def checked_log2(value: float) -> tuple[int, bool]:
    """The power of two nearest to a float32, and whether the float32 is one (to a thousandth), computed in float32."""
    power = np.log(np.float32(value)) * (np.float32(1) / np.log(np.float32(2)))
    rounded = fixed_point.round_half_away(float(power))
    return rounded, bool(abs(power - np.float32(rounded)) < np.float32(1e-3))


def logistic_int16(steps: Raw) -> Raw:
    """sigmoid in Q0.15 of an input in steps of 1 / 12288."""
    q25 = _interpolated(abs(steps), bits=9, end=0x7FFF << 10)
    return np.where(steps >= 0, q25 + (1 << 9), (1 << 25) - q25 + (1 << 9) - 1) >> 10


def tanh_int16(steps: Raw) -> Raw:
    """tanh in Q0.15 of an input in steps of 1 / 12288: 2 sigmoid(2x) - 1."""
    q24 = _interpolated(abs(steps), bits=8, end=0xFFFF << 8)
    one_half, rounding = 1 << 23, 1 << 7
    return np.where(steps >= 0, q24 - one_half + rounding, one_half - q24 + rounding - 1) >> 8


def _interpolated(steps: Raw, bits: int, end: int) -> Raw:
    """The sigmoid table at `steps` / 2^bits, in Q0.(16 + bits); `end` from its last entry on."""
    index = np.minimum(steps >> bits, 254)
    fraction = steps & ((1 << bits) - 1)
    inside = (SIGMOID_TABLE[index] << bits) + fraction * (SIGMOID_TABLE[index + 1] - SIGMOID_TABLE[index])
    return np.where(steps >> bits >= 255, end, inside)


def float_logistic(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """1 / (1 + exp(-x)); far below zero, exp(x), which keeps more precision."""
    return np.where(x < np.float32(-9), np.exp(x), np.reciprocal(np.exp(-x) + np.float32(1)))


LOGISTIC = Registration(
    BuiltinOperator.LOGISTIC,
    bind_unary,
    _prepare_logistic,
    op_data=OP_DATA_LOGISTIC,
    requests=tensors(),
    max_version=3,
    types=TYPES,
    overlap=element_wise,
    versions={3: INT16_ACTIVATIONS, 2: input_is("INT8")},
)
TANH = replace(
    LOGISTIC,
    operator=BuiltinOperator.TANH,
    prepare=_prepare_tanh,
    op_data=OP_DATA_TANH,
    requests=always(TempInput(0), TempInput(0), TempOutput(0)),
)


FLOAT_AND_INT8 = (TensorType.FLOAT32, TensorType.INT8)

RELUISH_SCALE = 3 / 32768
"""Scale of the second factor while it represents -3 to 3."""

HARD_SWISH_PARAMS = Struct(
    "HardSwishParams",
    input_zero_point=INT16,
    output_zero_point=INT16,
    reluish_multiplier_fixedpoint_int16=INT16,
    reluish_multiplier_exponent=INT,
    output_multiplier_fixedpoint_int16=INT16,
    output_multiplier_exponent=INT,
)
OP_DATA_ELU = Struct("elu.cc:OpData", table=Array(INT8, 256))


@dataclass
class HardSwish:
    """A function of int8 in 16-bit arithmetic.

    The input, shifted left by 7, is rescaled by one multiplier to the output's scale and by another to `RELUISH_SCALE`.
    The latter saturates at -3 and 3 and becomes a factor in Q0.15. Multipliers are Q0.15 and a power of two.
    """

    input_zero_point: int
    output_zero_point: int
    output_significand: int
    output_exponent: int
    reluish_significand: int
    reluish_exponent: int

    def __call__(self, x: Raw) -> Raw:
        fine = (x - self.input_zero_point) << 7
        value = _rounding_high_mul(fine, self.output_significand)
        product = _saturated(_high_mul(self._reluish(fine), value))
        shifted = _divide_by_pot(product, -self.output_exponent)
        return np.clip(shifted + self.output_zero_point, -128, 127)

    def _reluish(self, fine: Raw) -> Raw:
        """0 to 1 in Q0.15, for inputs from -3 to 3."""
        up = max(self.reluish_exponent, 0)
        value = _saturated(np.left_shift(fine, max(up - 1, 0)))
        value = _rounding_high_mul(value, self.reluish_significand)
        if up:
            value = _saturated(value << 1)
        elif self.reluish_exponent < 0:
            value = _divide_by_pot(value, -self.reluish_exponent)
        return (value + (1 << 15)) >> 1


def _saturated(values: Raw) -> Raw:
    return np.clip(values, -(1 << 15), (1 << 15) - 1)


def _rounding_high_mul(a: Raw, b: int) -> Raw:
    """Product of Q0.15 in Q0.15, rounded, halves up."""
    return _saturated((a * b + (1 << 14)) >> 15)


def _divide_by_pot(values: Raw, exponent: int) -> Raw:
    """`rounding_divide_by_pot` of 16 bits: from 16 on, C's mask of the remainder is all ones, and rounds to 1 or -1."""
    if exponent >= 16:
        return np.where(values >= 0, np.int64(1), np.int64(-1))
    return rounding_divide_by_pot(values, exponent) if exponent else values


def _high_mul(a: Raw, b: Raw) -> Raw:
    """Product of Q0.15 in Q0.15, truncated towards zero."""
    product = a * b
    cut_off: Raw = np.sign(product) * (abs(product) >> 15)
    return cut_off


def float_hard_swish(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """x * relu6(x + 3) / 6"""
    relu6: npt.NDArray[np.float32] = np.minimum(np.maximum(x + np.float32(3), np.float32(0)), np.float32(6))
    return x * relu6 / np.float32(6)


def _prepare_hard_swish(context: KernelContext, node: Node) -> None:
    input, output = unary_tensors(node, *FLOAT_AND_INT8)
    if input.type == TensorType.FLOAT32:
        node.op_data = float_hard_swish
        return
    fine_scale = np.float32(require_scale(input)) * np.float32(1 / 128)
    significand, exponent = quantize_multiplier(float(fine_scale / np.float32(require_scale(output))))
    if exponent > 0:
        reason = f"has scale {output.scale:g}, must be at least 1/128 of the input's {input.scale:g}"
        raise OperatorError(reason, tensor=output.name)
    reluish = quantize_multiplier(float(fine_scale / np.float32(RELUISH_SCALE)))
    node.op_data = HardSwish(
        input.zero_point, output.zero_point, _to_int16(significand), exponent, _to_int16(reluish[0]), reluish[1]
    )


def _to_int16(significand: int) -> int:
    """Q0.31 to Q0.15, rounded and saturated."""
    return min((significand + (1 << 15)) >> 16, (1 << 15) - 1)


def _prepare_elu(context: KernelContext, node: Node) -> None:
    """The op data is a function of int8, computed in float32 as in the reference.

    numpy's exp of float32 can be off by two units in the last place, unlike C's.
    """
    input, output = unary_tensors(node, *FLOAT_AND_INT8)
    if input.type == TensorType.FLOAT32:
        node.op_data = lambda x: np.where(x < 0, np.expm1(x), x)
        return
    scale, inverse = np.float32(input.scale), np.float32(1) / np.float32(require_scale(output))

    def elu(x: Raw) -> Raw:
        real = scale * (x - input.zero_point).astype(np.float32)
        exponential = np.exp(np.minimum(real, 0).astype(np.float64)).astype(np.float32)
        transformed = np.where(real < 0, exponential - np.float32(1), real)
        rounded = round_half_away_array(transformed * inverse) + np.float32(output.zero_point)
        return np.clip(int32_from_float(rounded), -128, 127)

    node.op_data = elu


HARD_SWISH = Registration(
    BuiltinOperator.HARD_SWISH,
    bind_unary,
    _prepare_hard_swish,
    op_data=HARD_SWISH_PARAMS,
    requests=tensors(),
    types=FLOAT_AND_INT8,
    overlap=element_wise,
)
ELU = replace(HARD_SWISH, operator=BuiltinOperator.ELU, prepare=_prepare_elu, op_data=OP_DATA_ELU)
