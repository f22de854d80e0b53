"""Functions of one number: SIN, COS, LOG, SQRT, SQUARE, EXP, NEG, CEIL, FLOOR and ROUND of float32; ABS and RSQRT also
of int8 and int16."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tflm.errors import OperatorError
from tflm.kernels.arithmetic.fixed_point import (
    QuantizedMultiplier,
    Raw,
    inverse_square_root,
    multiply_by_quantized_multiplier,
    quantize_multiplier,
    rounding_divide_by_any_pot,
    saturating_rounding_doubling_high_mul,
)
from tflm.kernels.arithmetic.requantization import OutputStage
from tflm.kernels.node import KernelContext, Node, Requests
from tflm.kernels.overlap import element_wise
from tflm.kernels.registration import Registration, Run
from tflm.kernels.requests import nothing, tensors
from tflm.kernels.support.checks import (
    require_alike,
    require_same_shape,
    require_scale,
    require_symmetric_int16,
    require_type,
    unary_tensors,
)
from tflm.kernels.support.elementwise import UnaryFunction, bind_unary
from tflm.memory.tensor import TFLITE_TYPE
from tflm.schema.enums import ELEMENT_TYPES, BuiltinOperator, TensorType
from tflm.schema.version_rules import Feature, Versions, by_input, every, input_is, quantized
from tflm.targets import BOOL, INT, INT32, EnumType, Since, Struct, Until

TYPES = (TensorType.FLOAT32,)
ABS_TYPES = (TensorType.FLOAT32, TensorType.INT8, TensorType.INT16)
RSQRT_TYPES = ABS_TYPES

RSQRT_SHIFT = 20
"""Fractional bits of an integer reciprocal root."""

OP_DATA_ABS_RSQRT = Struct(
    "OpDataAbsRsqrt",
    multiplier=INT32,
    shift=INT,
    input_offset=INT,
    output_offset=INT,
    needs_rescale=BOOL,
    input_quantization_enum=Until("39ba5a848", EnumType(largest=1)),
    input_quantization_type=Since("39ba5a848", INT),
    input_type=TFLITE_TYPE,
)


def _check(node: Node) -> None:
    unary_tensors(node, *TYPES)


def _require_equal_shapes(node: Node) -> None:
    input, output = unary_tensors(node, *TYPES)
    require_same_shape(output, input)


def _require_alike(node: Node) -> None:
    input, output = node.eval_input(0), node.eval_output(0)
    require_type(input, *TYPES)
    require_alike(output, input)


@dataclass
class Abs:
    """|x - x_zero| at the output's scale, saturated; the multiplier is None where the scales are equal."""

    multiplier: QuantizedMultiplier | None
    input_zero_point: int
    output: OutputStage

    def __call__(self, x: Raw) -> Raw:
        values = abs(x - self.input_zero_point)
        return self.output.clamp(values if self.multiplier is None else self.multiplier(values))


def _prepare_abs(context: KernelContext, node: Node) -> None:
    input, output = unary_tensors(node, *ABS_TYPES)
    # Unquantized int16 wraps: as in C, the lowest value stays unchanged.
    if input.type == TensorType.FLOAT32 or (input.type == TensorType.INT16 and input.quantization is None):
        node.op_data = np.absolute
        return
    require_symmetric_int16(input, output)
    ratio = require_scale(input) / require_scale(output)
    stage = OutputStage.whole(output.zero_point, ELEMENT_TYPES[input.type].dtype)
    node.op_data = Abs(None if ratio == 1 else QuantizedMultiplier.of(ratio), input.zero_point, stage)


@dataclass
class Rsqrt:
    """1 / sqrt(x - x_zero) of integers, saturated; the largest value for zero.

    The output's multiplier is significand * 2^shift.
    """

    significand: int
    shift: int
    input_zero_point: int
    output: OutputStage

    def __call__(self, x: Raw) -> Raw:
        values = x - self.input_zero_point
        results = self.output.clamp(self._scaled(_inverse_roots(values)))
        return np.where(values > 0, results, self.output.maximum)

    def _scaled(self, roots: Raw) -> Raw:
        shift = self.shift - RSQRT_SHIFT
        if shift >= 0:
            return multiply_by_quantized_multiplier(roots, self.significand, shift)
        product = saturating_rounding_doubling_high_mul(roots, self.significand)
        return rounding_divide_by_any_pot(product, np.asarray(-shift, np.int64))


def _inverse_roots(values: Raw) -> Raw:
    """2^RSQRT_SHIFT / sqrt(value), computed as TFLM multiplies 1 by the root."""
    significands, shifts = inverse_square_root(values)  # GetInvSqrtQuantizedMultiplierExp
    shifts += RSQRT_SHIFT
    product = saturating_rounding_doubling_high_mul(np.int64(1) << np.maximum(shifts, 0), significands)
    return np.where(shifts < 0, rounding_divide_by_any_pot(product, np.maximum(-shifts, 1)), product)


def _prepare_rsqrt(context: KernelContext, node: Node) -> None:
    input, output = unary_tensors(node, *RSQRT_TYPES)
    if input.type == TensorType.FLOAT32:
        node.op_data = lambda x: np.reciprocal(np.sqrt(x))
        return
    require_symmetric_int16(input, output)
    root = float(np.sqrt(np.float32(require_scale(input))) * np.float32(require_scale(output)))
    if root == 0:
        raise OperatorError(f"has scale {output.scale:g}, too small to divide by", tensor=output.name)
    stage = OutputStage.whole(output.zero_point, ELEMENT_TYPES[input.type].dtype)
    node.op_data = Rsqrt(*quantize_multiplier(1 / root), input.zero_point, stage)


def _bind_rsqrt(context: KernelContext, node: Node) -> Run:
    look_up = bind_unary(context, node)
    if not isinstance(node.op_data, Rsqrt):
        return look_up
    input, lowest = node.eval_input(0), node.op_data.input_zero_point

    def run() -> None:
        if (input.elements < lowest).any():
            raise OperatorError("is negative and has no reciprocal root", tensor=input.name)
        look_up()

    return run


TENSORS = tensors()


def _registration(
    operator: BuiltinOperator,
    function: UnaryFunction,
    check: Callable[[Node], object] = _check,
    max_version: int = 1,
    requests: Requests = TENSORS,
    versions: Versions | None = None,
) -> Registration:
    def prepare(context: KernelContext, node: Node) -> None:
        check(node)
        node.op_data = function

    return Registration(
        operator,
        bind_unary,
        prepare,
        requests=requests,
        max_version=max_version,
        types=TYPES,
        overlap=element_wise,
        versions=versions or {},
    )


SIN = _registration(BuiltinOperator.SIN, np.sin, versions=by_input(FLOAT16=2))
COS = _registration(BuiltinOperator.COS, np.cos, versions=by_input(FLOAT16=2))
LOG = _registration(BuiltinOperator.LOG, np.log, max_version=2, versions=by_input(INT8=2, INT16=2))
SQRT = _registration(BuiltinOperator.SQRT, np.sqrt, versions=by_input(INT8=2, INT16=2))
SQUARE = _registration(BuiltinOperator.SQUARE, np.square)
EXP = _registration(BuiltinOperator.EXP, np.exp, _require_equal_shapes, 2, versions=by_input(INT8=2, INT16=2))
CEIL = _registration(BuiltinOperator.CEIL, np.ceil, _require_equal_shapes)
ROUND = _registration(BuiltinOperator.ROUND, np.rint, _require_equal_shapes)
FLOOR = _registration(BuiltinOperator.FLOOR, np.floor, _require_alike, requests=nothing)
NEG = _registration(BuiltinOperator.NEG, np.negative, _require_alike, requests=nothing)
ABS = Registration(
    BuiltinOperator.ABS,
    bind_unary,
    _prepare_abs,
    op_data=Since("b34ced4f1", OP_DATA_ABS_RSQRT),
    requests=tensors(),
    max_version=5,
    types=ABS_TYPES,
    overlap=element_wise,
    versions={
        5: input_is("INT32"),
        3: Feature("INT16", every(input_is("INT16"), quantized(0))),
        4: Feature("INT16 without a scale", input_is("INT16")),
        2: input_is("INT8", "UINT8"),
    },
)
RSQRT = Registration(
    BuiltinOperator.RSQRT,
    _bind_rsqrt,
    _prepare_rsqrt,
    op_data=Since("b34ced4f1", OP_DATA_ABS_RSQRT),
    requests=tensors(),
    max_version=3,
    types=RSQRT_TYPES,
    overlap=element_wise,
    versions=by_input(INT16=3, INT8=2),
)
