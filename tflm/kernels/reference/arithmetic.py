"""ADD, SUB, MUL and DIV with a fused activation, for float32, int32, int8 and (but for DIV) int16; inputs broadcast."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.arithmetic.fixed_point import (
    QuantizedMultiplier,
    Raw,
    count_leading_zeros_32,
    quantize_multiplier,
    reciprocal,
    rounding_divide_by_any_pot,
    saturating_rounding_doubling_high_mul,
)
from tflm.kernels.arithmetic.numpy_calls import clip, scalar
from tflm.kernels.arithmetic.requantization import OutputStage, Requantization
from tflm.kernels.overlap import element_wise
from tflm.kernels.registration import Bind, KernelContext, Node, Registration, Run
from tflm.kernels.requests import tensors
from tflm.kernels.support.activation import (
    TFLITE_FUSED_ACTIVATION,
    activation_range,
    fused_activation,
    quantized_activation_range,
)
from tflm.kernels.support.broadcasting import MAXIMUM_RANK, require_broadcast
from tflm.kernels.support.checks import require_same_type, require_scale, require_type, require_zero_point
from tflm.kernels.support.elementwise import Operands, bind_binary, bind_ufunc, operands
from tflm.kernels.support.precision import SCALES
from tflm.memory.tensor import TfLiteTensor
from tflm.schema.enums import ActivationFunctionType, BuiltinOperator, TensorType
from tflm.schema.options import AddOptions, DivOptions, MulOptions, SubOptions
from tflm.targets import BOOL, FLOAT, INT, INT16, INT32, INT64, UINT8, Array, Struct

TYPES = (TensorType.FLOAT32, TensorType.INT32, TensorType.INT8, TensorType.INT16)
DIV_TYPES = (TensorType.FLOAT32, TensorType.INT32, TensorType.INT8)

TFLITE_ADD_PARAMS = Struct("TfLiteAddParams", activation=TFLITE_FUSED_ACTIVATION, pot_scale_int16=BOOL)
TFLITE_SUB_PARAMS = Struct("TfLiteSubParams", activation=TFLITE_FUSED_ACTIVATION, pot_scale_int16=BOOL)
TFLITE_MUL_PARAMS = Struct("TfLiteMulParams", activation=TFLITE_FUSED_ACTIVATION)
TFLITE_DIV_PARAMS = Struct("TfLiteDivParams", activation=TFLITE_FUSED_ACTIVATION)

_FIELDS_OF_A_SUM = {
    "requires_broadcast": BOOL,
    "input1_shift": INT,
    "input2_shift": INT,
    "output_activation_min": INT32,
    "output_activation_max": INT32,
    "input1_multiplier": INT32,
    "input2_multiplier": INT32,
    "output_multiplier": INT32,
    "output_shift": INT,
    "left_shift": INT,
    "input1_offset": INT32,
    "input2_offset": INT32,
    "output_offset": INT32,
}
_FIELDS_OF_A_PRODUCT = {
    "input1_zero_point": INT32,
    "input2_zero_point": INT32,
    "output_activation_min": INT32,
    "output_activation_max": INT32,
    "output_zero_point": INT32,
    "output_multiplier": INT32,
    "output_shift": INT,
}
_FLOAT_RANGE = {"output_activation_min_f32": FLOAT, "output_activation_max_f32": FLOAT}

ARITHMETIC_PARAMS = Struct(
    "ArithmeticParams",
    broadcast_category=UINT8,
    input1_offset=INT32,
    input2_offset=INT32,
    output_offset=INT32,
    output_multiplier=INT32,
    output_shift=INT,
    left_shift=INT,
    input1_multiplier=INT32,
    input1_shift=INT,
    input2_multiplier=INT32,
    input2_shift=INT,
    quantized_activation_min=INT32,
    quantized_activation_max=INT32,
    float_activation_min=FLOAT,
    float_activation_max=FLOAT,
    int64_activation_min=INT64,
    int64_activation_max=INT64,
    int16_activation_min=INT16,
    int16_activation_max=INT16,
    broadcast_shape=Array(INT, 5),
)
OP_DATA_ADD = Struct("OpDataAdd", **_FIELDS_OF_A_SUM, **_FLOAT_RANGE)
OP_DATA_SUB = Struct("OpDataSub", **_FIELDS_OF_A_SUM)
OP_DATA_MUL = Struct("OpDataMul", **_FIELDS_OF_A_PRODUCT, **_FLOAT_RANGE)
OP_DATA_DIV = Struct("OpDataDiv", **_FIELDS_OF_A_PRODUCT)


@dataclass(frozen=True)
class Term:
    """One input of a quantized sum: (x - zero_point) * 2^left_shift, times its scale over twice the larger scale."""

    zero_point: int
    left_shift: int
    multiplier: QuantizedMultiplier

    def rescale(self, values: Raw, scratch: Raw) -> None:
        """Bring values of the input to the scale of the sum, in place."""
        np.subtract(values, self.zero_point, out=values)
        np.left_shift(values, self.left_shift, out=values)
        self.multiplier.scale(values, scratch)


@dataclass(frozen=True)
class Sum:
    """A quantized sum or difference."""

    term1: Term
    term2: Term
    combine: np.ufunc
    output: Requantization

    def __call__(self, a: Raw, b: Raw, scratch: Raw) -> Raw:
        self.term1.rescale(a, scratch)
        self.term2.rescale(b, scratch)
        self.combine(a, b, out=a)
        return self.output.in_place(a, scratch)


@dataclass(frozen=True)
class Product:
    """A quantized product."""

    zero_point1: int
    zero_point2: int
    output: Requantization

    def __call__(self, a: Raw, b: Raw, scratch: Raw) -> Raw:
        np.subtract(a, self.zero_point1, out=a)
        np.subtract(b, self.zero_point2, out=b)
        np.multiply(a, b, out=a)
        return self.output.in_place(a, scratch)


@dataclass(frozen=True)
class Quotient:
    """A quantized quotient: the dividend, shifted left as far as it goes, times the reciprocal of the divisor.

    The output's multiplier is significand * 2^shift.
    """

    zero_point1: int
    zero_point2: int
    significand: int
    shift: int
    output: OutputStage

    def __call__(self, a: Raw, b: Raw, scratch: Raw) -> Raw:
        divisor = b - self.zero_point2
        dividend = np.where(divisor < 0, self.zero_point1 - a, a - self.zero_point1)
        inverse, inverse_bits = reciprocal(abs(divisor), 31)
        headroom = count_leading_zeros_32(np.where(dividend < 0, ~dividend, dividend)) - 1
        quotient = saturating_rounding_doubling_high_mul(np.left_shift(dividend, headroom), inverse)
        scaled = saturating_rounding_doubling_high_mul(quotient, self.significand)
        return self.output.clamp(rounding_divide_by_any_pot(scaled, inverse_bits + headroom - self.shift))


def prepared_tensors(
    context: KernelContext, node: Node, types: tuple[TensorType, ...] = TYPES, maximum_rank: int = MAXIMUM_RANK
) -> tuple[TfLiteTensor, TfLiteTensor, TfLiteTensor]:
    """Two inputs and an output of one of those types, which broadcast."""
    node.expect(outputs=1)  # TFLM leaves further inputs alone, but for operators that count them
    input1 = context.input_tensor(node, 0)
    input2 = context.input_tensor(node, 1)
    output = context.output_tensor(node, 0)
    require_type(input1, *types)
    require_same_type(input2, input1)
    require_same_type(output, input1)
    require_broadcast(input1, input2, output, maximum_rank)
    return input1, input2, output


def _require_plain_numbers(*tensors: TfLiteTensor) -> None:
    for tensor in tensors:
        if tensor.quantization is not None:
            raise OperatorError("is quantized INT32; only plain numbers are supported", tensor=tensor.name)


def _prepare_add(context: KernelContext, node: Node) -> None:
    input1, input2, output = prepared_tensors(context, node)
    activation = fused_activation(node, AddOptions)
    if output.type == TensorType.INT32:
        _require_plain_numbers(input1, input2)
        node.op_data = activation_range(ActivationFunctionType.NONE, np.int32)  # TFLM leaves the activation out
    elif output.type == TensorType.FLOAT32:
        node.op_data = activation_range(activation, np.float32)
    else:
        node.op_data = _sum_of_terms(input1, input2, output, activation, np.add, np.float64)


def _prepare_sub(context: KernelContext, node: Node) -> None:
    input1, input2, output = prepared_tensors(context, node)
    activation = fused_activation(node, SubOptions)
    if output.type == TensorType.INT32:
        _require_plain_numbers(input1, input2, output)
        node.op_data = activation_range(activation, np.int32)
    elif output.type == TensorType.FLOAT32:
        node.op_data = activation_range(activation, np.float32)
    else:
        node.op_data = _sum_of_terms(input1, input2, output, activation, np.subtract, SCALES.number(context.release))


def _sum_of_terms(
    input1: TfLiteTensor,
    input2: TfLiteTensor,
    output: TfLiteTensor,
    activation: ActivationFunctionType,
    combine: np.ufunc,
    number: type[np.float32] | type[np.float64],
) -> Sum:
    left_shift = 15 if output.type == TensorType.INT16 else 20
    scales = [number(require_scale(tensor)) for tensor in (input1, input2, output)]
    twice_largest = 2 * max(scales[:2])
    terms = [
        Term(input.zero_point, left_shift, QuantizedMultiplier.of(float(scale / twice_largest)))
        for input, scale in zip((input1, input2), scales)
    ]
    real = float(twice_largest / (2**left_shift * scales[2]))
    significand, shift = quantize_multiplier(real)
    if not real < 1 or shift > 0:
        reason = f"has scale {output.scale:g}, too small for scales {input1.scale:g} and {input2.scale:g} of the inputs"
        raise OperatorError(reason, tensor=output.name)
    stage = OutputStage(output.zero_point, *quantized_activation_range(activation, output))
    return Sum(terms[0], terms[1], combine, Requantization(QuantizedMultiplier(significand, shift), stage))


def _prepare_mul(context: KernelContext, node: Node) -> None:
    node.expect(inputs=2)
    input1, input2, output = prepared_tensors(context, node)
    activation = fused_activation(node, MulOptions)
    if output.type in (TensorType.FLOAT32, TensorType.INT32):
        dtype = np.float32 if output.type == TensorType.FLOAT32 else np.int32
        node.op_data = activation_range(activation, dtype)
        return
    stage = OutputStage(output.zero_point, *quantized_activation_range(activation, output))
    if output.type == TensorType.INT16:
        for tensor in (input1, input2, output):
            require_zero_point(tensor, 0)
    real = input1.scale * input2.scale / require_scale(output)
    result = Requantization(QuantizedMultiplier.of(real), stage)
    node.op_data = Product(input1.zero_point, input2.zero_point, result)


def _prepare_div(context: KernelContext, node: Node) -> None:
    input1, input2, output = prepared_tensors(context, node, DIV_TYPES)
    activation = fused_activation(node, DivOptions)
    if output.type != TensorType.INT8:
        if output.type == TensorType.INT32:
            _require_plain_numbers(input1, input2)
        dtype = np.float32 if output.type == TensorType.FLOAT32 else np.int32
        node.op_data = activation_range(activation, dtype)
        return
    significand, shift = quantize_multiplier(input1.scale / (require_scale(input2) * require_scale(output)))
    stage = OutputStage(output.zero_point, *quantized_activation_range(activation, output))
    node.op_data = Quotient(input1.zero_point, input2.zero_point, significand, shift, stage)


def _bind_with(bind_plain: Callable[[Operands, Any, Any], Run]) -> Bind:
    def bind(context: KernelContext, node: Node) -> Run:
        ops = operands(context, node)
        if ops.y.dtype in (np.float32, np.int32):
            return bind_plain(ops, *node.op_data)
        return bind_binary(ops, node.op_data)

    return bind


def _bind_plain(ufunc: np.ufunc) -> Callable[[Operands, Any, Any], Run]:
    """One numpy function and a clamp; integers wrap."""

    def bind(ops: Operands, minimum: Any, maximum: Any) -> Run:
        x1, x2, y = ops.x1, ops.x2, ops.y
        if _is_whole_range(y.dtype, minimum, maximum):
            return bind_ufunc(ops, ufunc)

        def run() -> None:
            ops.refresh()
            ufunc(x1, x2, out=y)
            np.maximum(y, minimum, out=y)
            np.minimum(y, maximum, out=y)

        return run

    return bind


def _is_whole_range(dtype: np.dtype[Any], minimum: Any, maximum: Any) -> bool:
    """Whether integers need no clamp."""
    return dtype.kind == "i" and (minimum, maximum) == (np.iinfo(dtype).min, np.iinfo(dtype).max)


def _bind_plain_div(ops: Operands, minimum: Any, maximum: Any) -> Run:
    if ops.y.dtype == np.float32:
        return _bind_plain(np.divide)(ops, minimum, maximum)

    checked = ops.constant2 and bool(ops.x2.all())
    lowest, highest = scalar(minimum, np.float64), scalar(maximum, np.float64)

    def quotient(a: npt.NDArray[Any], b: npt.NDArray[Any], scratch: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if not checked and not b.all():
            raise OperatorError("divides by zero")
        # A quotient of 32-bit integers differs from any whole number by 2^-31 or not at all: float64 tells. What lies
        # behind the point is cut off when it becomes an integer again.
        np.divide(a, b, a)
        clip(a, lowest, highest, a)
        return a

    return bind_binary(ops, quotient, np.float64)


ADD = Registration(
    BuiltinOperator.ADD,
    _bind_with(_bind_plain(np.add)),
    _prepare_add,
    op_data=OP_DATA_ADD,
    requests=tensors(2),
    builtin_data=TFLITE_ADD_PARAMS,
    max_version=5,
    types=TYPES,
    overlap=element_wise,
    int8_registration=True,
)
SUB = Registration(
    BuiltinOperator.SUB,
    _bind_with(_bind_plain(np.subtract)),
    _prepare_sub,
    op_data=OP_DATA_SUB,
    requests=tensors(2),
    builtin_data=TFLITE_SUB_PARAMS,
    max_version=5,
    types=TYPES,
    overlap=element_wise,
)
MUL = Registration(
    BuiltinOperator.MUL,
    _bind_with(_bind_plain(np.multiply)),
    _prepare_mul,
    op_data=OP_DATA_MUL,
    requests=tensors(2),
    builtin_data=TFLITE_MUL_PARAMS,
    max_version=7,
    types=TYPES,
    overlap=element_wise,
    int8_registration=True,
)
DIV = Registration(
    BuiltinOperator.DIV,
    _bind_with(_bind_plain_div),
    _prepare_div,
    op_data=OP_DATA_DIV,
    requests=tensors(2),
    builtin_data=TFLITE_DIV_PARAMS,
    max_version=2,
    types=DIV_TYPES,
    overlap=element_wise,
    since="32b0fe993",
)
