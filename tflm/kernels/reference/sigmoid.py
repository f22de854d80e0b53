"""LOGISTIC and TANH, for float32, int8 and int16.

The integer results do not depend on the output's quantization, which must be the natural one: 1/256 and -128 for
LOGISTIC in int8, 1/128 and 0 for TANH in int8, 1/32768 and 0 for both in int16.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.arithmetic import fixed_point
from tflm.kernels.arithmetic.fixed_point import (
    SIGMOID_TABLE,
    Raw,
    input_radius,
    int32_from_float,
    multiply_by_quantized_multiplier,
    rounding_divide_by_pot,
    wrap_int32,
)
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.overlap import element_wise
from tflm.kernels.registration import Registration
from tflm.kernels.requests import TempInput, TempOutput, always, tensors
from tflm.kernels.support.checks import (
    require_alike,
    require_scale,
    require_type,
    require_zero_point,
    scale_or_none,
    unary_tensors,
)
from tflm.kernels.support.elementwise import bind_unary
from tflm.memory.tensor import TfLiteTensor
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.version_rules import INT16_ACTIVATIONS, input_is
from tflm.targets import INT, INT32, Struct

TYPES = (TensorType.FLOAT32, TensorType.INT8, TensorType.INT16)

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
        self,
        input: TfLiteTensor,
        output: TfLiteTensor,
        largest_exact_shift: int,
        function: Callable[[Raw], Raw],
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
TANH = Registration(
    BuiltinOperator.TANH,
    bind_unary,
    _prepare_tanh,
    op_data=OP_DATA_TANH,
    requests=always(TempInput(0), TempInput(0), TempOutput(0)),
    max_version=3,
    types=TYPES,
    overlap=element_wise,
    versions={3: INT16_ACTIVATIONS, 2: input_is("INT8")},
)
