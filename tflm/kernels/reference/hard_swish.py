"""HARD_SWISH, x * relu6(x + 3) / 6, and ELU, x or exp(x) - 1 below zero; for float32 and int8."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.arithmetic.fixed_point import (
    Raw,
    int32_from_float,
    quantize_multiplier,
    round_half_away_array,
    rounding_divide_by_pot,
)
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.overlap import element_wise
from tflm.kernels.registration import Registration
from tflm.kernels.requests import tensors
from tflm.kernels.support.checks import require_scale, unary_tensors
from tflm.kernels.support.elementwise import bind_unary
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.targets import INT, INT8, INT16, Array, Struct

TYPES = (TensorType.FLOAT32, TensorType.INT8)

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


def float_elu(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """x, or exp(x) - 1 below zero."""
    return np.where(x < 0, np.expm1(x), x)


def _prepare_hard_swish(context: KernelContext, node: Node) -> None:
    input, output = unary_tensors(node, *TYPES)
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
        input.zero_point,
        output.zero_point,
        _to_int16(significand),
        exponent,
        _to_int16(reluish[0]),
        reluish[1],
    )


def _to_int16(significand: int) -> int:
    """Q0.31 to Q0.15, rounded and saturated."""
    return min((significand + (1 << 15)) >> 16, (1 << 15) - 1)


def _prepare_elu(context: KernelContext, node: Node) -> None:
    """The op data is a function of int8, computed in float32 as in the reference.

    numpy's exp of float32 can be off by two units in the last place, unlike C's.
    """
    input, output = unary_tensors(node, *TYPES)
    if input.type == TensorType.FLOAT32:
        node.op_data = float_elu
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
    types=TYPES,
    overlap=element_wise,
)
ELU = Registration(
    BuiltinOperator.ELU,
    bind_unary,
    _prepare_elu,
    op_data=OP_DATA_ELU,
    requests=tensors(),
    types=TYPES,
    overlap=element_wise,
)
