"""SOFTMAX along the last dimension: float32, int8 to int8 or int16, int16."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.checks import require_same_size, require_scale, require_type, require_zero_point
from tflm.kernels.fixed_point import (
    INT32_MAX,
    LUT_INT16_SIZE,
    Raw,
    count_leading_zeros_32,
    exp_on_negative_values,
    input_radius,
    lookup_int16,
    multiply_by_quantized_multiplier,
    populate_lut_int16,
    quantize_multiplier,
    reciprocal,
    rounding_divide_by_pot,
    saturating_rounding_doubling_high_mul,
)
from tflm.kernels.registration import KernelContext, Node, Registration, Run
from tflm.memory.tensor import TfLiteTensor
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.options import SoftmaxOptions
from tflm.targets import DOUBLE, FLOAT, INT, INT32, POINTER, Struct

OUTPUT_TYPES = {
    TensorType.FLOAT32: (TensorType.FLOAT32,),
    TensorType.INT8: (TensorType.INT8, TensorType.INT16),
    TensorType.INT16: (TensorType.INT16,),
}
SCALED_DIFF_INTEGER_BITS = 5
ACCUMULATION_INTEGER_BITS = 12

TFLITE_SOFTMAX_PARAMS = Struct("TfLiteSoftmaxParams", beta=FLOAT)
SOFTMAX_PARAMS = Struct(
    "SoftmaxParams",
    beta=DOUBLE,
    input_multiplier=INT32,
    input_left_shift=INT32,
    reverse_scaling_divisor=INT32,
    reverse_scaling_right_shift=INT32,
    diff_min=INT,
    zero_point=INT32,
    scale=FLOAT,
    table=POINTER,
    exp_lut=POINTER,
    one_over_one_plus_x_lut=POINTER,
    uint8_table1=POINTER,
    uint8_table2=POINTER,
)


@dataclass
class Int16OpData:
    """The multiplier of the differences, and two tables in the arena: exp over [-10, 0], 1 / (1 + x) over [0, 1]."""

    significand: int
    shift: int
    exp_lut: npt.NDArray[np.int16]
    one_over_one_plus_x_lut: npt.NDArray[np.int16]


def _prepare(context: KernelContext, node: Node) -> None:
    node.expect(inputs=1, outputs=1)
    input = context.allocate_temp_input_tensor(node, 0)
    if not input.dims or input.dims[-1] == 0:
        raise OperatorError(f"has shape {list(input.dims)}; softmax goes along its last dimension", tensor=input.name)
    output = context.allocate_temp_output_tensor(node, 0)
    require_type(input, *OUTPUT_TYPES)
    require_type(output, *OUTPUT_TYPES[input.type])
    require_same_size(output, input)
    if output.dims[-1:] != input.dims[-1:]:
        reason = f"has shape {list(output.dims)}, its last dimension must be {input.dims[-1]} like the input's"
        raise OperatorError(reason, tensor=output.name)
    options = node.options(SoftmaxOptions)
    beta = 0.0 if options is None else options.beta
    if input.type == TensorType.FLOAT32:
        node.op_data = np.float32(beta)
    elif input.type == TensorType.INT16:
        node.op_data = _prepare_int16(context, input, output, beta)
    else:
        _check_int8_output(output)
        node.op_data = _exp_table(input, beta)


def _check_int8_output(output: TfLiteTensor) -> None:
    if output.type == TensorType.INT16:
        require_zero_point(output, -32768)
        _require_scale_near(output, 1 / 65536)
    else:
        require_zero_point(output, -128)
        if output.scale != 1 / 256:
            raise OperatorError(f"has scale {output.scale:g}, must have 1/256", tensor=output.name)


def _require_scale_near(output: TfLiteTensor, scale: float) -> None:
    if not abs(output.scale - scale) <= 0.001 * scale:
        raise OperatorError(f"has scale {output.scale:g}, must have {scale:g}", tensor=output.name)


def _exp_table(input: TfLiteTensor, beta: float) -> Raw:
    """exp(-beta * scale * d) in Q0.31 for each distance d from the largest, 0 to 255; 0 for what is too far."""
    real = min(beta * require_scale(input) * 2.0 ** (31 - SCALED_DIFF_INTEGER_BITS), INT32_MAX)
    if not real > 1:
        raise OperatorError(f"beta {beta:g} times scale {input.scale:g} is too small", tensor=input.name)
    significand, shift = quantize_multiplier(real)
    distances = np.arange(256)
    near = distances <= input_radius(SCALED_DIFF_INTEGER_BITS, shift)
    diffs = multiply_by_quantized_multiplier(np.where(near, -distances, 0), significand, shift)
    return np.where(near, exp_on_negative_values(diffs, SCALED_DIFF_INTEGER_BITS), 0)


def _prepare_int16(context: KernelContext, input: TfLiteTensor, output: TfLiteTensor, beta: float) -> Int16OpData:
    exp_lut = context.allocate_array(LUT_INT16_SIZE, np.int16)
    one_over_one_plus_x_lut = context.allocate_array(LUT_INT16_SIZE, np.int16)
    require_zero_point(input, 0)
    require_zero_point(output, 0)
    _require_scale_near(output, 1 / 32768)
    # The reference works these scales out in float32.
    f32, steps = np.float32, 65535
    ten, two, one = (float(f32(length) / f32(steps)) for length in (10, 2, 1))
    exp_lut[:] = populate_lut_int16(ten, 32767, two, 0, _exp)
    one_over_one_plus_x_lut[:] = populate_lut_int16(one, -32768, two, 0, lambda x: f32(1) / (f32(1) + x))
    multiplier = quantize_multiplier(input.scale * beta / (10.0 / steps))
    return Int16OpData(*multiplier, exp_lut, one_over_one_plus_x_lut)


def _exp(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return np.exp(x.astype(np.float64)).astype(np.float32)  # by way of float64, to be rounded right


def _bind(context: KernelContext, node: Node) -> Run:
    input, output = context.get_eval_input(node, 0), context.get_eval_output(node, 0)
    x = input.elements.reshape(-1, input.dims[-1])
    y = output.elements.reshape(x.shape)
    if input.type == TensorType.FLOAT32:
        return _bind_float(x, y, node.op_data)
    if input.type == TensorType.INT8:
        return _bind_int8(x, y, node.op_data)
    return _bind_int16(x, y, node.op_data)


def _bind_float(x: npt.NDArray[Any], y: npt.NDArray[Any], beta: np.float32) -> Run:
    row = np.empty((x.shape[0], 1), np.float32)

    def run() -> None:
        np.max(x, axis=1, keepdims=True, out=row)
        np.subtract(x, row, out=y)
        np.multiply(y, beta, out=y)
        np.exp(y, out=y)
        np.sum(y, axis=1, keepdims=True, out=row)
        np.divide(y, row, out=y)

    return run


def _bind_int8(x: npt.NDArray[Any], y: npt.NDArray[Any], exp_table: Raw) -> Run:
    # Q12.19, so that 4096 exponentials can be summed.
    addends = rounding_divide_by_pot(exp_table, ACCUMULATION_INTEGER_BITS)
    limits = np.iinfo(y.dtype)
    lowest, highest = int(limits.min), int(limits.max)

    def run() -> None:
        wide = x.astype(np.intp)
        distances = wide.max(axis=1, keepdims=True) - wide
        sums = addends[distances].sum(axis=1, keepdims=True)
        scale, bits_over_unit = reciprocal(sums, ACCUMULATION_INTEGER_BITS)
        shares = saturating_rounding_doubling_high_mul(scale, exp_table[distances])
        exponent = bits_over_unit + 31 - 8 * y.itemsize
        np.copyto(y, np.minimum(rounding_divide_by_pot(shares, exponent) + lowest, highest), casting="unsafe")

    return run


def _bind_int16(x: npt.NDArray[Any], y: npt.NDArray[Any], op: Int16OpData) -> Run:
    def run() -> None:
        wide = x.astype(np.int64)
        diffs = wide - wide.max(axis=1, keepdims=True)
        scaled = multiply_by_quantized_multiplier(diffs, op.significand, op.shift)
        exps = lookup_int16(np.clip(scaled + 32767, -32768, 32767), op.exp_lut)  # Q0.15
        sums = exps.sum(axis=1, keepdims=True)  # Q16.15
        headroom_plus_one = count_leading_zeros_32(sums)
        # The sum as 1 + x, x in [0, 1) over the whole of int16, which the second table inverts.
        shifted = (np.left_shift(sums, headroom_plus_one - 1) + (1 << 13)) >> 14
        centered = np.clip(shifted - (1 << 15) - (1 << 16), -32768, 32767)
        scale = lookup_int16(centered, op.one_over_one_plus_x_lut)
        right_shift = 31 - headroom_plus_one
        shares = (exps * scale + np.left_shift(np.int64(1), right_shift - 1)) >> right_shift
        np.copyto(y, np.clip(shares, 0, 32767), casting="unsafe")

    return run


SOFTMAX = Registration(
    BuiltinOperator.SOFTMAX,
    _bind,
    _prepare,
    op_data=SOFTMAX_PARAMS,
    builtin_data=TFLITE_SOFTMAX_PARAMS,
    max_version=3,
)
