"""Functions of one number: SIN, COS, LOG, SQRT, SQUARE, EXP, NEG, CEIL, FLOOR and ROUND of float32, ABS and RSQRT.

ABS and RSQRT take int8 and int16 too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
    wrap_int32,
)
from tflm.kernels.arithmetic.lookup import bind_lookup
from tflm.kernels.host_memory import kept
from tflm.kernels.overlap import element_wise
from tflm.kernels.registration import Bind, KernelContext, Node, Registration, Run
from tflm.kernels.requests import Requests, nothing, tensors
from tflm.kernels.support.checks import require_alike, require_scale, require_type, require_zero_point
from tflm.memory.tensor import TFLITE_TYPE, TfLiteTensor
from tflm.schema.element_types import ELEMENT_TYPES
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.targets import BOOL, INT, INT32, EnumType, Since, Struct, Until

TYPES = (TensorType.FLOAT32,)
ABS_TYPES = (TensorType.FLOAT32, TensorType.INT8, TensorType.INT16)
RSQRT_TYPES = ABS_TYPES

RSQRT_SHIFT = 20
"""Bits by which a reciprocal root is kept larger while it is an integer."""

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


def _prepare(context: KernelContext, node: Node) -> None:
    node.expect(inputs=1, outputs=1)
    input = context.input_tensor(node, 0)
    output = context.output_tensor(node, 0)
    require_type(input, *TYPES)
    require_alike(output, input)


def _prepare_with_equal_shapes(context: KernelContext, node: Node) -> None:
    _prepare(context, node)
    input, output = context.get_eval_input(node, 0), context.get_eval_output(node, 0)
    if input.dims != output.dims:
        reason = f"has shape {list(output.dims)}, the input has {list(input.dims)}; they must be equal"
        raise OperatorError(reason, tensor=output.name)


def _prepare_without_tensors(context: KernelContext, node: Node) -> None:
    input, output = context.get_eval_input(node, 0), context.get_eval_output(node, 0)
    require_type(input, *TYPES)
    require_alike(output, input)


def _bind_float(ufunc: Callable[..., Any]) -> Bind:
    def bind(context: KernelContext, node: Node) -> Run:
        x = context.get_eval_input(node, 0).elements.reshape(-1)
        y = context.get_eval_output(node, 0).elements.reshape(-1)

        def run() -> None:
            ufunc(x, out=y)

        return run

    return bind


@dataclass
class Abs:
    """|x - x_zero| at the output's scale, saturated; the multiplier is None where the scales are equal."""

    multiplier: QuantizedMultiplier | None
    input_zero_point: int
    output_zero_point: int
    limits: np.iinfo[Any]

    def __call__(self, x: Raw) -> Raw:
        values = abs(x - self.input_zero_point)
        if self.multiplier is not None:
            self.multiplier.scale(values, kept(np.empty_like(values)))
        return np.clip(wrap_int32(values + self.output_zero_point), self.limits.min, self.limits.max)


def _prepare_abs(context: KernelContext, node: Node) -> None:
    input, output = _quantized_tensors(context, node, ABS_TYPES)
    if input.type == TensorType.INT16 and input.quantization is None:
        node.op_data = lambda x: abs(x).astype(np.int16)  # plain numbers: the lowest stays, as it does in C
    elif input.type != TensorType.FLOAT32:
        for tensor in (input, output):
            if tensor.type == TensorType.INT16:
                require_zero_point(tensor, 0)
        ratio = require_scale(input) / require_scale(output)
        limits = np.iinfo(np.int8 if input.type == TensorType.INT8 else np.int16)
        multiplier = None if ratio == 1 else QuantizedMultiplier.of(ratio)
        node.op_data = Abs(multiplier, input.zero_point, output.zero_point, limits)


def _quantized_tensors(
    context: KernelContext, node: Node, types: tuple[TensorType, ...]
) -> tuple[TfLiteTensor, TfLiteTensor]:
    node.expect(inputs=1, outputs=1)
    input = context.input_tensor(node, 0)
    output = context.output_tensor(node, 0)
    require_type(input, *types)
    require_alike(output, input)
    return input, output


def _bind_abs(context: KernelContext, node: Node) -> Run:
    x, y = context.get_eval_input(node, 0).elements, context.get_eval_output(node, 0).elements
    if x.dtype == np.float32:
        return _bind_float(np.absolute)(context, node)
    return bind_lookup(x, y, node.op_data)


@dataclass
class Rsqrt:
    """1 / sqrt(x - x_zero) of integers, saturated; the largest value for zero."""

    significand: int
    shift: int
    input_zero_point: int
    output_zero_point: int
    limits: np.iinfo[Any]

    def __call__(self, x: Raw) -> Raw:
        values = x - self.input_zero_point
        scaled = self._scaled(_inverse_roots(values))
        results = np.clip(wrap_int32(scaled + self.output_zero_point), self.limits.min, self.limits.max)
        return np.where(values > 0, results, self.limits.max)

    def _scaled(self, roots: Raw) -> Raw:
        shift = self.shift - RSQRT_SHIFT
        if shift >= 0:
            return multiply_by_quantized_multiplier(roots, self.significand, shift)
        product = saturating_rounding_doubling_high_mul(roots, self.significand)
        return rounding_divide_by_any_pot(product, np.asarray(-shift, np.int64))


def _inverse_roots(values: Raw) -> Raw:
    """1 / sqrt(value), times 2^RSQRT_SHIFT, as TFLM multiplies 1 by it."""
    significands, shifts = inverse_square_root(values)
    shifts += RSQRT_SHIFT
    product = saturating_rounding_doubling_high_mul(np.int64(1) << np.maximum(shifts, 0), significands)
    return np.where(shifts < 0, rounding_divide_by_any_pot(product, np.maximum(-shifts, 1)), product)


def _prepare_rsqrt(context: KernelContext, node: Node) -> None:
    input, output = _quantized_tensors(context, node, RSQRT_TYPES)
    if input.type != TensorType.FLOAT32:
        if input.type == TensorType.INT16:
            for tensor in (input, output):
                require_zero_point(tensor, 0)
        root = float(np.sqrt(np.float32(require_scale(input))) * np.float32(require_scale(output)))
        if root == 0:
            raise OperatorError(f"has scale {output.scale:g}, too small to divide by", tensor=output.name)
        limits = np.iinfo(ELEMENT_TYPES[input.type].dtype)
        node.op_data = Rsqrt(*quantize_multiplier(1 / root), input.zero_point, output.zero_point, limits)


def _bind_rsqrt(context: KernelContext, node: Node) -> Run:
    input = context.get_eval_input(node, 0)
    x, y = input.elements, context.get_eval_output(node, 0).elements
    if x.dtype == np.float32:
        return _bind_float(_float_rsqrt)(context, node)
    look_up, lowest = bind_lookup(x, y, node.op_data), node.op_data.input_zero_point

    def run() -> None:
        if x.min() < lowest:
            raise OperatorError("has no reciprocal root: it is negative", tensor=input.name)
        look_up()

    return run


def _float_rsqrt(x: Any, out: Any) -> None:
    np.sqrt(x, out=out)
    np.reciprocal(out, out=out)


TENSORS = tensors()


def _registration(
    operator: BuiltinOperator,
    ufunc: Callable[..., Any],
    prepare: Callable[[KernelContext, Node], None] = _prepare,
    max_version: int = 1,
    requests: Requests = TENSORS,
) -> Registration:
    return Registration(
        operator,
        _bind_float(ufunc),
        prepare,
        requests=requests,
        max_version=max_version,
        types=TYPES,
        overlap=element_wise,
    )


SIN = _registration(BuiltinOperator.SIN, np.sin)
COS = _registration(BuiltinOperator.COS, np.cos)
LOG = _registration(BuiltinOperator.LOG, np.log, max_version=2)
SQRT = _registration(BuiltinOperator.SQRT, np.sqrt)
SQUARE = _registration(BuiltinOperator.SQUARE, np.square)
EXP = _registration(BuiltinOperator.EXP, np.exp, _prepare_with_equal_shapes, 2)
CEIL = _registration(BuiltinOperator.CEIL, np.ceil, _prepare_with_equal_shapes)
ROUND = _registration(BuiltinOperator.ROUND, np.rint, _prepare_with_equal_shapes)
FLOOR = _registration(BuiltinOperator.FLOOR, np.floor, _prepare_without_tensors, requests=nothing)
NEG = _registration(BuiltinOperator.NEG, np.negative, _prepare_without_tensors, requests=nothing)
ABS = Registration(
    BuiltinOperator.ABS,
    _bind_abs,
    _prepare_abs,
    op_data=Since("b34ced4f1", OP_DATA_ABS_RSQRT),
    requests=tensors(),
    max_version=5,
    types=ABS_TYPES,
    overlap=element_wise,
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
)
