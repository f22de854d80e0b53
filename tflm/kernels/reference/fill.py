"""FILL, a tensor of one value; and SHAPE, the dimensions of a tensor as one."""

from __future__ import annotations

import numpy as np

from tflm.errors import OperatorError
from tflm.kernels.overlap import never_read
from tflm.kernels.registration import KernelContext, Node, Registration, Run
from tflm.kernels.requests import tensors
from tflm.kernels.support.checks import element_count, require_same_type, require_type
from tflm.kernels.support.views import bind_copy
from tflm.memory.tensor import TFLITE_TYPE, TfLiteTensor
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.targets import Struct

DIMS, VALUE = range(2)
FILL_TYPES = (TensorType.FLOAT32, TensorType.INT8, TensorType.INT32)
DIMS_TYPES = (TensorType.INT8, TensorType.INT16, TensorType.INT32, TensorType.INT64)

TFLITE_SHAPE_PARAMS = Struct("TfLiteShapeParams", out_type=TFLITE_TYPE)


def _prepare_fill(context: KernelContext, node: Node) -> None:
    dims, value = (context.input_tensor(node, i) for i in range(2))
    output = context.output_tensor(node, 0)
    require_type(value, *FILL_TYPES)
    require_same_type(output, value)
    if value.dims:
        raise OperatorError(f"has shape {list(value.dims)}, must be a scalar", tensor=value.name)
    _check_dims(dims, output)


def _check_dims(dims: TfLiteTensor, output: TfLiteTensor) -> None:
    require_type(dims, *DIMS_TYPES)
    if not dims.is_constant:
        raise OperatorError("must be a constant of the model", tensor=dims.name)
    if dims.dims != (len(output.dims),):
        reason = f"has shape {list(dims.dims)}, must be the {len(output.dims)} dimensions of the output"
        raise OperatorError(reason, tensor=dims.name)
    shape = dims.data.tolist()
    if shape != list(output.dims):
        raise OperatorError(f"has shape {list(output.dims)}, {dims.name!r} says {shape}", tensor=output.name)


def _bind_fill(context: KernelContext, node: Node) -> Run:
    value = context.get_eval_input(node, VALUE).elements
    return bind_copy(context.get_eval_output(node, 0).elements, value)


def _prepare_shape(context: KernelContext, node: Node) -> None:
    node.expect(inputs=1, outputs=1)
    input, output = context.get_eval_input(node, 0), context.get_eval_output(node, 0)
    require_type(output, TensorType.INT32)
    if element_count(output) != len(input.dims):
        reason = f"has shape {list(output.dims)}, must have {len(input.dims)} elements for {list(input.dims)}"
        raise OperatorError(reason, tensor=output.name)


def _bind_shape(context: KernelContext, node: Node) -> Run:
    dims = np.array(context.get_eval_input(node, 0).dims, np.int32)
    return bind_copy(context.get_eval_output(node, 0).elements.reshape(-1), dims)


FILL = Registration(
    BuiltinOperator.FILL, _bind_fill, _prepare_fill, requests=tensors(2), max_version=4, types=FILL_TYPES
)
SHAPE = Registration(
    BuiltinOperator.SHAPE, _bind_shape, _prepare_shape, builtin_data=TFLITE_SHAPE_PARAMS, overlap=never_read
)
