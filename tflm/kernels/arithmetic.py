"""ADD and MUL with a fused activation, for float32, int32, int8 and int16; inputs broadcast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.activation import (
    TFLITE_FUSED_ACTIVATION,
    activation_range,
    fused_activation,
    quantized_activation_range,
)
from tflm.kernels.broadcasting import broadcast, require_broadcast
from tflm.kernels.checks import require_same_type, require_scale, require_type, require_zero_point
from tflm.kernels.fixed_point import QuantizedMultiplier, Raw, quantize_multiplier
from tflm.kernels.integer_product import Requantizer
from tflm.kernels.registration import KernelContext, Node, Registration, Run
from tflm.memory.tensor import TfLiteTensor
from tflm.schema.enums import ActivationFunctionType, BuiltinOperator, TensorType
from tflm.schema.options import AddOptions, MulOptions
from tflm.targets import BOOL, FLOAT, INT, INT32, Struct

TYPES = (TensorType.FLOAT32, TensorType.INT32, TensorType.INT8, TensorType.INT16)

TFLITE_ADD_PARAMS = Struct("TfLiteAddParams", activation=TFLITE_FUSED_ACTIVATION, pot_scale_int16=BOOL)
TFLITE_MUL_PARAMS = Struct("TfLiteMulParams", activation=TFLITE_FUSED_ACTIVATION)
OP_DATA_ADD = Struct(
    "OpDataAdd",
    requires_broadcast=BOOL,
    input1_shift=INT,
    input2_shift=INT,
    output_activation_min=INT32,
    output_activation_max=INT32,
    input1_multiplier=INT32,
    input2_multiplier=INT32,
    output_multiplier=INT32,
    output_shift=INT,
    left_shift=INT,
    input1_offset=INT32,
    input2_offset=INT32,
    output_offset=INT32,
    output_activation_min_f32=FLOAT,
    output_activation_max_f32=FLOAT,
)
OP_DATA_MUL = Struct(
    "OpDataMul",
    input1_zero_point=INT32,
    input2_zero_point=INT32,
    output_activation_min=INT32,
    output_activation_max=INT32,
    output_zero_point=INT32,
    output_multiplier=INT32,
    output_shift=INT,
    output_activation_min_f32=FLOAT,
    output_activation_max_f32=FLOAT,
)


@dataclass
class Term:
    """One input of a quantized sum: (x - zero_point) * 2^left_shift, times its scale over twice the larger scale."""

    zero_point: int
    left_shift: int
    multiplier: QuantizedMultiplier


@dataclass
class Output:
    """The output of a quantized operator: its multiplier, zero point and range."""

    multiplier: QuantizedMultiplier
    zero_point: int
    minimum: int
    maximum: int


def _prepared_tensors(context: KernelContext, node: Node) -> tuple[TfLiteTensor, TfLiteTensor, TfLiteTensor]:
    node.expect(inputs=2, outputs=1)
    input1 = context.allocate_temp_input_tensor(node, 0)
    input2 = context.allocate_temp_input_tensor(node, 1)
    output = context.allocate_temp_output_tensor(node, 0)
    require_type(input1, *TYPES)
    require_same_type(input2, input1)
    require_same_type(output, input1)
    require_broadcast(input1, input2, output)
    return input1, input2, output


def _prepare_add(context: KernelContext, node: Node) -> None:
    input1, input2, output = _prepared_tensors(context, node)
    activation = fused_activation(node, AddOptions)
    if output.type == TensorType.INT32:
        for input in (input1, input2):
            if input.quantization is not None:
                raise OperatorError("is quantized INT32; only plain numbers can be added", tensor=input.name)
        node.op_data = activation_range(ActivationFunctionType.NONE, np.int32)  # TFLM leaves the activation out
    elif output.type == TensorType.FLOAT32:
        node.op_data = activation_range(activation, np.float32)
    else:
        node.op_data = _sum_of_terms(input1, input2, output, activation)


def _sum_of_terms(
    input1: TfLiteTensor, input2: TfLiteTensor, output: TfLiteTensor, activation: ActivationFunctionType
) -> tuple[Term, Term, Output]:
    left_shift = 15 if output.type == TensorType.INT16 else 20
    scales = [require_scale(tensor) for tensor in (input1, input2, output)]
    twice_largest = 2 * max(scales[:2])
    terms = [
        Term(input.zero_point, left_shift, QuantizedMultiplier.of(input.scale / twice_largest))
        for input in (input1, input2)
    ]
    real = twice_largest / (2**left_shift * output.scale)
    significand, shift = quantize_multiplier(real)
    if not real < 1 or shift > 0:
        reason = f"has scale {output.scale:g}, too small for a sum of scales {input1.scale:g} and {input2.scale:g}"
        raise OperatorError(reason, tensor=output.name)
    limits = quantized_activation_range(activation, output)
    return terms[0], terms[1], Output(QuantizedMultiplier(significand, shift), output.zero_point, *limits)


def _prepare_mul(context: KernelContext, node: Node) -> None:
    input1, input2, output = _prepared_tensors(context, node)
    activation = fused_activation(node, MulOptions)
    if output.type in (TensorType.FLOAT32, TensorType.INT32):
        dtype = np.float32 if output.type == TensorType.FLOAT32 else np.int32
        node.op_data = activation_range(activation, dtype)
        return
    limits = quantized_activation_range(activation, output)
    if output.type == TensorType.INT16:
        for tensor in (input1, input2, output):
            require_zero_point(tensor, 0)
    real = input1.scale * input2.scale / require_scale(output)
    zero_points = input1.zero_point, input2.zero_point
    node.op_data = *zero_points, Output(QuantizedMultiplier.of(real), output.zero_point, *limits)


def _bind_add(context: KernelContext, node: Node) -> Run:
    x1, x2, y = _broadcast_tensors(context, node)
    if y.dtype in (np.float32, np.int32):
        return _bind_plain(np.add, x1, x2, y, *node.op_data)
    term1, term2, output = node.op_data
    sums, addends, scratch = (np.empty(y.shape, np.int64) for _ in range(3))
    requantize = Requantizer(y.shape, output.multiplier, output.zero_point, output.minimum, output.maximum)

    def run() -> None:
        _rescale(x1, term1, sums, scratch)
        _rescale(x2, term2, addends, scratch)
        np.add(sums, addends, out=sums)
        requantize(sums, y)

    return run


def _rescale(x: npt.NDArray[Any], term: Term, values: Raw, scratch: Raw) -> None:
    np.subtract(x, term.zero_point, out=values, dtype=np.int64)
    np.left_shift(values, term.left_shift, out=values)
    term.multiplier.scale(values, scratch)


def _bind_mul(context: KernelContext, node: Node) -> Run:
    x1, x2, y = _broadcast_tensors(context, node)
    if y.dtype in (np.float32, np.int32):
        return _bind_plain(np.multiply, x1, x2, y, *node.op_data)
    zero_point1, zero_point2, output = node.op_data
    products, factors = (np.empty(y.shape, np.int64) for _ in range(2))
    requantize = Requantizer(y.shape, output.multiplier, output.zero_point, output.minimum, output.maximum)

    def run() -> None:
        np.subtract(x1, zero_point1, out=products, dtype=np.int64)
        np.subtract(x2, zero_point2, out=factors, dtype=np.int64)
        np.multiply(products, factors, out=products)
        requantize(products, y)

    return run


def _broadcast_tensors(
    context: KernelContext, node: Node
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    return broadcast(context.get_eval_input(node, 0), context.get_eval_input(node, 1), context.get_eval_output(node, 0))


def _bind_plain(
    ufunc: np.ufunc,
    x1: npt.NDArray[Any],
    x2: npt.NDArray[Any],
    y: npt.NDArray[Any],
    minimum: Any,
    maximum: Any,
) -> Run:
    """One numpy function and a clamp; integers wrap."""

    def run() -> None:
        ufunc(x1, x2, out=y)
        np.maximum(y, minimum, out=y)
        np.minimum(y, maximum, out=y)

    return run


ADD = Registration(
    BuiltinOperator.ADD, _bind_add, _prepare_add, op_data=OP_DATA_ADD, builtin_data=TFLITE_ADD_PARAMS, max_version=5
)
MUL = Registration(
    BuiltinOperator.MUL, _bind_mul, _prepare_mul, op_data=OP_DATA_MUL, builtin_data=TFLITE_MUL_PARAMS, max_version=7
)
