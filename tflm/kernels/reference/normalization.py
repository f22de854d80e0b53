"""SOFTMAX, LOG_SOFTMAX and L2_NORMALIZATION along the last dimension.

SOFTMAX is exp(beta * (x - largest)) over the row's sum of exponentials. Integers follow the same steps in fixed point:
distances from the largest element, exponentials, sum, reciprocal of the sum, result. LOG_SOFTMAX subtracts the log of
the sum instead.

L2_NORMALIZATION divides elements, float32 or int8, by the root of the sum of their squares. An int8 output has scale
1/128 and zero point 0, whatever the tensor's quantization says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.arithmetic.fixed_point import (
    INT32_MAX,
    LUT_INT16_SIZE,
    Raw,
    count_leading_zeros_32,
    exp_on_negative_values,
    input_radius,
    inverse_square_root,
    log_from_one,
    lookup_int16,
    multiply_by_quantized_multiplier,
    populate_lut_int16,
    quantize_multiplier,
    reciprocal,
    rounding_divide_by_pot,
    saturating_rounding_doubling_high_mul,
    wrap_int32,
)
from tflm.kernels.arithmetic.requantization import clip, einsum
from tflm.kernels.host_memory import track_host_array
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.overlap import row_wise
from tflm.kernels.registration import Registration, Run
from tflm.kernels.requests import PersistentBuffer, Request, tensors
from tflm.kernels.support.activation import TFLITE_FUSED_ACTIVATION, fused_activation
from tflm.kernels.support.checks import (
    require_one_type,
    require_same_shape,
    require_same_size,
    require_scale,
    require_type,
    require_zero_point,
    shape_error,
)
from tflm.memory.tensor import TfLiteTensor
from tflm.schema.enums import ActivationFunctionType, BuiltinOperator, TensorType
from tflm.schema.options import L2NormOptions, SoftmaxOptions
from tflm.schema.version_rules import by_input, output_is
from tflm.targets import DOUBLE, FLOAT, INT, INT32, POINTER, SIZE_T, Struct

LOG_TYPES = (TensorType.FLOAT32, TensorType.INT8)
OUTPUT_TYPES = {
    TensorType.FLOAT32: (TensorType.FLOAT32,),
    TensorType.INT8: (TensorType.INT8, TensorType.INT16),
    TensorType.INT16: (TensorType.INT16,),
}
SCALED_DIFF_INTEGER_BITS = 5
ACCUMULATION_INTEGER_BITS = 12
LOG_OUTPUT_INTEGER_BITS = 4
LOG_OUTPUT_SCALE = 1 / 16

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
LOG_SOFTMAX_OP_DATA = Struct(
    "LogSoftmaxOpData",
    input_multiplier=INT32,
    input_left_shift=INT32,
    reverse_scaling_divisor=INT32,
    reverse_scaling_right_shift=INT32,
    diff_min=INT,
    outer_size=SIZE_T,
    depth=SIZE_T,
)

UINT32_MASK = (1 << 32) - 1
INT32_MIN = -(1 << 31)


@dataclass(frozen=True)
class OpDataSoftmax:
    """Constants of SOFTMAX and LOG_SOFTMAX of int8.

    Attributes:
        significand, shift: the multiplier from a difference of two elements to Q5.26, with beta and the input's scale.
        diff_min: the lowest difference from the largest element that Q5.26 holds; lower ones count as infinite.
    """

    significand: int
    shift: int
    diff_min: int


@dataclass(frozen=True)
class OpDataSoftmaxInt16:
    """Constants of SOFTMAX of int16.

    Attributes:
        significand, shift: the multiplier from a difference of two elements to steps of 10 / 65535.
        exp_lut, one_over_one_plus_x_lut: tables in the arena, for `lookup_int16`: exp over [-10, 0], 1 / (1 + x) over
            [0, 1].
    """

    significand: int
    shift: int
    exp_lut: npt.NDArray[np.int16]
    one_over_one_plus_x_lut: npt.NDArray[np.int16]


def _prepare(context: KernelContext, node: Node) -> None:
    input, output = _tensors(node)
    require_type(input, *OUTPUT_TYPES)
    require_type(output, *OUTPUT_TYPES[input.type])
    beta = node.options(SoftmaxOptions).beta
    if input.type == TensorType.FLOAT32:
        node.op_data = np.float32(beta)
    elif input.type == TensorType.INT16:
        node.op_data = _prepare_int16(context, node, beta)
    else:
        _check_int8_output(output)
        node.op_data = _prepare_int8(input, beta)


def _prepare_log(context: KernelContext, node: Node) -> None:
    input, output = _tensors(node, lowest_rank=0)
    require_one_type(LOG_TYPES, input, output)
    require_same_shape(output, input)
    if input.type == TensorType.INT8:
        require_zero_point(output, 127)
        if output.scale != LOG_OUTPUT_SCALE:
            raise OperatorError(f"has scale {output.scale:g}, must have 1/16", tensor=output.name)
        node.op_data = _prepare_int8(input, beta=1.0)


def _requests(node: Node) -> Iterator[Request]:
    yield from tensors()(node)
    yield from table_requests(node)


def table_requests(node: Node) -> Iterator[Request]:
    """The tables for int16."""
    if node.input(0).type == TensorType.INT16:
        yield PersistentBuffer("exp_lut", 2 * LUT_INT16_SIZE)
        yield PersistentBuffer("one_over_one_plus_x_lut", 2 * LUT_INT16_SIZE)


def _requests_of_log(node: Node) -> Iterator[Request]:
    yield from tensors()(node)
    if node.input(0).type == TensorType.INT8:
        yield PersistentBuffer(LOG_SOFTMAX_OP_DATA.name, LOG_SOFTMAX_OP_DATA.size(node.target))


def _tensors(node: Node, lowest_rank: int = 1) -> tuple[TfLiteTensor, TfLiteTensor]:
    node.expect(inputs=1, outputs=1)
    input = node.input(0)
    if len(input.dims) < lowest_rank or 0 in input.dims[-1:]:
        raise shape_error(input, "; softmax goes along its last dimension")
    output = node.output(0)
    require_same_size(output, input)
    if output.dims[-1:] != input.dims[-1:]:
        raise shape_error(output, f", its last dimension must be that of the input, {list(input.dims)}")
    return input, output


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


def _prepare_int8(input: TfLiteTensor, beta: float) -> OpDataSoftmax:
    real = min(beta * require_scale(input) * 2.0 ** (31 - SCALED_DIFF_INTEGER_BITS), INT32_MAX)
    if not real > 1:
        raise OperatorError(f"beta {beta:g} times scale {input.scale:g} is too small", tensor=input.name)
    significand, shift = quantize_multiplier(real)
    return OpDataSoftmax(significand, shift, diff_min=-input_radius(SCALED_DIFF_INTEGER_BITS, shift))


def _prepare_int16(context: KernelContext, node: Node, beta: float) -> OpDataSoftmaxInt16:
    input, output = node.input(0), node.output(0)
    require_zero_point(input, 0)
    require_zero_point(output, 0)
    _require_scale_near(output, 1 / 32768)
    context.allocate_requested(node)
    exp_lut, one_over_one_plus_x_lut = (
        node.array(name, LUT_INT16_SIZE, np.int16) for name in ("exp_lut", "one_over_one_plus_x_lut")
    )
    # The reference computes these scales in float32.
    f32, steps = np.float32, 65535
    ten, two, one = (float(f32(length) / f32(steps)) for length in (10, 2, 1))
    exp_lut[:] = populate_lut_int16(ten, 32767, two, 0, _exp)
    one_over_one_plus_x_lut[:] = populate_lut_int16(one, -32768, two, 0, lambda x: f32(1) / (f32(1) + x))
    multiplier = quantize_multiplier(input.scale * beta / (10.0 / steps))
    return OpDataSoftmaxInt16(*multiplier, exp_lut, one_over_one_plus_x_lut)


def _exp(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return np.exp(x.astype(np.float64)).astype(np.float32)  # via float64, for correct rounding


def _bind(context: KernelContext, node: Node) -> Run:
    x, y = rows_of(node)
    op = node.op_data
    if x.dtype == np.float32:
        return _bind_rows(x, y, lambda x: softmax_float32(x, op))
    if x.dtype == np.int16:
        return _bind_rows(x, y, lambda x: softmax_int16(x, op))
    exps = track_host_array(exps_int8(np.arange(256, dtype=np.int64), op))
    return _bind_rows(x, y, lambda x: softmax_int8(x, exps, y.dtype))


def _bind_log(context: KernelContext, node: Node) -> Run:
    if not node.eval_input(0).dims:
        return _write_nothing
    x, y = rows_of(node)
    op = node.op_data
    return _bind_rows(x, y, log_softmax_float32 if x.dtype == np.float32 else lambda x: log_softmax_int8(x, op))


def _write_nothing() -> None:
    """A scalar has no last dimension: TFLM finds no elements along it and leaves the output unchanged."""


def rows_of(node: Node) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Input and output as matrices of (rows, elements of a row)."""
    input, output = node.eval_input(0), node.eval_output(0)
    x = input.elements.reshape(-1, input.dims[-1])
    return x, output.elements.reshape(x.shape)


def _bind_rows(x: npt.NDArray[Any], y: npt.NDArray[Any], function: Callable[[Any], npt.NDArray[Any]]) -> Run:
    def run() -> None:
        y[...] = function(x)

    return run


def softmax_float32(x: npt.NDArray[np.float32], beta: np.float32) -> npt.NDArray[np.float32]:
    """exp(beta * (x - largest)) over the row's sum of exponentials."""
    exps = np.exp((x - x.max(axis=1, keepdims=True)) * beta)
    quotients: npt.NDArray[np.float32] = exps / exps.sum(axis=1, keepdims=True, dtype=np.float32)
    return quotients


def log_softmax_float32(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """x - largest - log of the sum of exp(x - largest)."""
    differences = x - x.max(axis=1, keepdims=True)
    # The sum is taken in the reference's order: the log of a sum near 1 depends on it.
    sums = np.add.accumulate(np.exp(differences), axis=1, dtype=np.float32)[:, -1:]
    logs: npt.NDArray[np.float32] = differences - np.log(sums)
    return logs


def softmax_int8(x: npt.NDArray[np.int8], exps: Raw, dtype: np.dtype[Any]) -> Raw:
    """SOFTMAX of int8, to int8 or int16; `exps` is the table of `exps_int8` for distances from 0 to 255."""
    limits = np.iinfo(dtype)
    exponentials = exps[_distances(x)]  # Q0.31
    addends = rounding_divide_by_pot(exponentials, ACCUMULATION_INTEGER_BITS)  # Q12.19
    sums = addends.sum(axis=1, keepdims=True, dtype=np.int64)
    scale, bits_over_unit = reciprocal(sums & UINT32_MASK, ACCUMULATION_INTEGER_BITS)  # GetReciprocal
    shares = saturating_rounding_doubling_high_mul(scale, exponentials)
    results = rounding_divide_by_pot(shares, bits_over_unit + 31 - limits.bits) + int(limits.min)
    return clip(results, int(limits.min), int(limits.max))


def log_softmax_int8(x: npt.NDArray[np.int8], op: OpDataSoftmax) -> Raw:
    """LOG_SOFTMAX of int8: Q4.27 is rounded to the output's Q4.4, whose zero point is 127."""
    all_distances, distances = np.arange(256, dtype=np.int64), _distances(x)
    addends = rounding_divide_by_pot(exps_int8(all_distances, op), ACCUMULATION_INTEGER_BITS)[distances]
    sums = addends.sum(axis=1, keepdims=True, dtype=np.int64)
    log_sums = log_from_one(np.minimum(sums, INT32_MAX), ACCUMULATION_INTEGER_BITS, SCALED_DIFF_INTEGER_BITS)
    shift = 31 - SCALED_DIFF_INTEGER_BITS - LOG_OUTPUT_INTEGER_BITS
    return clip(
        rounding_divide_by_pot(scaled_distances(all_distances, op)[distances] - log_sums, shift) + 127, -128, 127
    )


def softmax_int16(x: npt.NDArray[np.int16], op: OpDataSoftmaxInt16) -> Raw:
    """SOFTMAX of int16: exp and the reciprocal are interpolated between entries of tables."""
    exps = exps_int16(_distances(x), op)  # Q0.15
    sums = np.minimum(exps.sum(axis=1, keepdims=True, dtype=np.int64), INT32_MAX)  # Q16.15: 2^n (1 + f)
    headroom = count_leading_zeros_32(sums) - 1
    fractions = (((sums << headroom) + (1 << 13)) >> 14) - (1 << 16)  # f in Q0.16
    shift = 30 - headroom
    shares: Raw = (exps * reciprocals_int16(fractions, op) + (1 << (shift - 1))) >> shift
    return clip(shares, 0, 32767)


def _distances(x: npt.NDArray[Any]) -> Raw:
    """The difference between the largest element of the row and each element."""
    wide = x.astype(np.int64)
    distances: Raw = wide.max(axis=1, keepdims=True) - wide
    return distances


def scaled_distances(distances: Raw, op: OpDataSoftmax) -> Raw:
    """-distance * beta * scale in Q5.26, saturated at the lowest number."""
    scaled = multiply_by_quantized_multiplier(-distances, op.significand, op.shift)
    return np.where(-distances >= op.diff_min, scaled, INT32_MIN)


def exps_int8(distances: Raw, op: OpDataSoftmax) -> Raw:
    """exp(-distance * beta * scale) in Q0.31; 0 for distances that overflow Q5.26."""
    return exp_on_negative_values(scaled_distances(distances, op), SCALED_DIFF_INTEGER_BITS)


def exps_int16(distances: Raw, op: OpDataSoftmaxInt16) -> Raw:
    """exp(-distance * beta * scale) in Q0.15; distances are 0 to 65535."""
    scaled = multiply_by_quantized_multiplier(-distances, op.significand, op.shift)
    return lookup_int16(clip(scaled + 32767, -32768, 32767), op.exp_lut)


def reciprocals_int16(fractions: Raw, op: OpDataSoftmaxInt16) -> Raw:
    """1 / (1 + f) in Q0.15 for f in Q0.16, from 0 to 1 inclusive."""
    return lookup_int16(np.minimum(fractions - 32768, 32767), op.one_over_one_plus_x_lut)


SOFTMAX = Registration(
    BuiltinOperator.SOFTMAX,
    _bind,
    _prepare,
    op_data=SOFTMAX_PARAMS,
    requests=_requests,
    builtin_data=TFLITE_SOFTMAX_PARAMS,
    max_version=3,
    types=tuple(OUTPUT_TYPES),
    overlap=row_wise,
    int8_registration=True,
    versions=by_input(FLOAT16=4, INT16=3, INT8=2),
)
LOG_SOFTMAX = Registration(
    BuiltinOperator.LOG_SOFTMAX,
    _bind_log,
    _prepare_log,
    requests=_requests_of_log,
    max_version=2,
    types=LOG_TYPES,
    overlap=row_wise,
    since="21ea0a6b3",
    versions=by_input(INT8=2),
)


MAXIMUM_RANK = 4
SMALLEST_NORM = np.float32(1e-6)
OUTPUT_BITS = 7
"""The output is in Q0.7."""

TYPES = (TensorType.FLOAT32, TensorType.INT8)

TFLITE_L2_NORM_PARAMS = Struct("TfLiteL2NormParams", activation=TFLITE_FUSED_ACTIVATION)
L2_NORMALIZATION_PARAMS = Struct("L2NormalizationParams", input_zero_point=INT32)


def _prepare_l2(context: KernelContext, node: Node) -> None:
    """The op data is the input's zero point."""
    input, output = node.expect_tensors(1)
    require_one_type(TYPES, output, input)
    if not 1 <= len(input.dims) <= MAXIMUM_RANK:
        raise OperatorError(
            f"has shape {list(input.dims)}, must have 1 to {MAXIMUM_RANK} dimensions", tensor=input.name
        )
    require_same_shape(output, input)
    if fused_activation(node, L2NormOptions) != ActivationFunctionType.NONE:
        raise OperatorError("has a fused activation function, none is supported")
    node.op_data = input.zero_point


def _bind_l2(context: KernelContext, node: Node) -> Run:
    x, y, zero_point = node.eval_input(0).elements, node.eval_output(0).elements, node.op_data

    def run() -> None:
        y[...] = normalized_float32(x) if x.dtype == np.float32 else normalized_int8(x, zero_point)

    return run


def normalized_float32(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """x over its norm along the last dimension."""
    norms = np.sqrt(einsum("...d,...d->...", x, x))[..., np.newaxis]
    with np.errstate(invalid="ignore"):  # an infinite norm
        quotients: npt.NDArray[np.float32] = x / np.maximum(norms, SMALLEST_NORM)
    return quotients


def normalized_int8(x: npt.NDArray[np.int8], zero_point: int) -> Raw:
    """The same in Q0.7, with the reciprocal of the norm as a quantized multiplier."""
    values = x.astype(np.int64) - zero_point
    squares = wrap_int32((values * values).sum(axis=-1, keepdims=True, dtype=np.int64))
    significand, shift = inverse_square_root(squares)  # GetInvSqrtQuantizedMultiplierExp
    return clip(multiply_by_quantized_multiplier(values, significand, shift + OUTPUT_BITS), -128, 127)


L2_NORMALIZATION = Registration(
    BuiltinOperator.L2_NORMALIZATION,
    _bind_l2,
    _prepare_l2,
    op_data=L2_NORMALIZATION_PARAMS,
    requests=tensors(),
    builtin_data=TFLITE_L2_NORM_PARAMS,
    max_version=2,
    types=TYPES,
    overlap=row_wise,
    versions={2: output_is("INT8")},
)
