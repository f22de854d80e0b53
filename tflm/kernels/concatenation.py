"""CONCATENATION, SPLIT and SPLIT_V: tensors joined along a dimension, and parted along one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.activation import TFLITE_FUSED_ACTIVATION
from tflm.kernels.checks import (
    AnyTensor,
    constant_integers,
    require_axis,
    require_same_type,
    require_type,
    require_zero_point,
)
from tflm.kernels.registration import Bind, KernelContext, Node, Registration, Run
from tflm.memory.tensor import TfLiteEvalTensor, TfLiteTensor
from tflm.schema.enums import ActivationFunctionType, BuiltinOperator, TensorType
from tflm.schema.options import ConcatenationOptions
from tflm.targets import FLOAT, INT, INT8, INT32, POINTER, UINT16, Array, Struct, When

MAXIMUM_INPUTS = 10
MAXIMUM_RANK = 6
CONCATENATION_TYPES = (
    TensorType.FLOAT32,
    TensorType.INT8,
    TensorType.INT16,
    TensorType.INT32,
    TensorType.INT64,
    TensorType.BOOL,
)
SPLIT_TYPES = (TensorType.FLOAT32, TensorType.INT8, TensorType.INT16, TensorType.INT32)

TFLITE_CONCATENATION_PARAMS = Struct("TfLiteConcatenationParams", axis=INT, activation=TFLITE_FUSED_ACTIVATION)
TFLITE_SPLIT_PARAMS = Struct("TfLiteSplitParams", num_splits=INT)
TFLITE_SPLIT_V_PARAMS = Struct("TfLiteSplitVParams", num_splits=INT)
CONCATENATION_PARAMS = Struct(
    "ConcatenationParams",
    axis=INT8,
    input_zeropoint=POINTER,
    input_scale=POINTER,
    inputs_count=UINT16,
    output_zeropoint=INT32,
    output_scale=FLOAT,
)
OP_DATA_CONCATENATION = Struct(
    "concatenation.cc:OpData",
    params=CONCATENATION_PARAMS,
    scratch_indices=When("compression", Array(INT, MAXIMUM_INPUTS)),
)


def _prepare_concatenation(context: KernelContext, node: Node) -> None:
    """The op data is the dimension along which the inputs are joined."""
    options = node.options(ConcatenationOptions) or ConcatenationOptions()
    first = context.allocate_temp_input_tensor(node, 0)
    output = context.allocate_temp_output_tensor(node, 0)
    if options.fused_activation_function != ActivationFunctionType.NONE:
        raise OperatorError(f"can't be fused with {options.fused_activation_function.name}")
    require_type(first, *CONCATENATION_TYPES)
    require_same_type(output, first)
    if len(node.inputs) > MAXIMUM_INPUTS:
        raise OperatorError(f"takes {MAXIMUM_INPUTS} inputs at the most, not {len(node.inputs)}")
    inputs = [context.allocate_temp_input_tensor(node, i) for i in range(len(node.inputs))]
    for input in inputs:
        require_same_type(input, first)
        _check_quantization(input, output)
    if output.type == TensorType.INT16:
        require_zero_point(output, 0)
    node.op_data = require_axis(options.axis, len(output.dims), output.name)
    _check_parts(inputs, output, node.op_data)


def _check_quantization(input: TfLiteTensor, output: TfLiteTensor) -> None:
    if input.type == TensorType.INT8 and (input.scale, input.zero_point) != (output.scale, output.zero_point):
        reason = f"has scale {input.scale:g} and zero point {input.zero_point}, the output has {output.scale:g}"
        raise OperatorError(f"{reason} and {output.zero_point}; they must be equal", tensor=input.name)
    if input.type == TensorType.INT16:
        require_zero_point(input, 0)


def _check_parts(parts: Sequence[AnyTensor], whole: AnyTensor, axis: int) -> None:
    """Refuse parts that are not, side by side along `axis`, as large as the whole."""
    if len(whole.dims) > MAXIMUM_RANK:
        raise OperatorError(f"has {len(whole.dims)} dimensions, {MAXIMUM_RANK} is the most", tensor=whole.name)
    for part in parts:
        alike = [a == b for i, (a, b) in enumerate(zip(part.dims, whole.dims)) if i != axis]
        if len(part.dims) != len(whole.dims) or not all(alike):
            reason = f"has shape {list(part.dims)}, which is no part of {list(whole.dims)} along dimension {axis}"
            raise OperatorError(reason, tensor=part.name)
    together = sum(part.dims[axis] for part in parts)
    if together != whole.dims[axis]:
        reason = f"has {whole.dims[axis]} elements along dimension {axis}, its parts have {together} together"
        raise OperatorError(reason, tensor=whole.name)


def _prepare_split_v(context: KernelContext, node: Node) -> None:
    node.expect(inputs=3)
    _prepare_parts(context, node, input_index=0, axis_index=2)


def _prepare_split(context: KernelContext, node: Node) -> None:
    node.expect(inputs=2)
    _prepare_parts(context, node, input_index=1, axis_index=0)


def _prepare_parts(context: KernelContext, node: Node, input_index: int, axis_index: int) -> None:
    """The op data is the dimension along which the input is parted."""
    (axis,) = constant_integers(context.allocate_temp_input_tensor(node, axis_index), 1)
    input = context.get_eval_input(node, input_index)
    outputs = [context.get_eval_output(node, i) for i in range(len(node.outputs))]
    require_type(input, *SPLIT_TYPES)
    for output in outputs:
        require_same_type(output, input)
    node.op_data = require_axis(axis, len(input.dims), input.name)
    _check_parts(outputs, input, node.op_data)


def _rows(tensor: TfLiteEvalTensor, axis: int) -> npt.NDArray[Any]:
    """A tensor as a matrix whose rows hold what lies from `axis` on."""
    return tensor.elements.reshape(math.prod(tensor.dims[:axis]), -1)


def _bind_concatenation(context: KernelContext, node: Node) -> Run:
    inputs = [_rows(context.get_eval_input(node, i), node.op_data) for i in range(len(node.inputs))]
    y = _rows(context.get_eval_output(node, 0), node.op_data)
    concatenate = np.concatenate

    def run() -> None:
        concatenate(inputs, 1, y)

    return run


def _bind_split(input_index: int) -> Bind:
    def bind(context: KernelContext, node: Node) -> Run:
        x = _rows(context.get_eval_input(node, input_index), node.op_data)
        outputs = [_rows(context.get_eval_output(node, i), node.op_data) for i in range(len(node.outputs))]
        ends = np.cumsum([output.shape[1] for output in outputs])
        parts = [(output, x[:, end - output.shape[1] : end]) for output, end in zip(outputs, ends)]

        def run() -> None:
            for output, part in parts:
                np.copyto(output, part)

        return run

    return bind


CONCATENATION = Registration(
    BuiltinOperator.CONCATENATION,
    _bind_concatenation,
    _prepare_concatenation,
    op_data=OP_DATA_CONCATENATION,
    builtin_data=TFLITE_CONCATENATION_PARAMS,
    max_version=4,
)
SPLIT = Registration(
    BuiltinOperator.SPLIT, _bind_split(1), _prepare_split, builtin_data=TFLITE_SPLIT_PARAMS, max_version=4
)
SPLIT_V = Registration(
    BuiltinOperator.SPLIT_V, _bind_split(0), _prepare_split_v, builtin_data=TFLITE_SPLIT_V_PARAMS, max_version=2
)
