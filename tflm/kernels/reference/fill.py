"""FILL: a tensor filled with one value; SHAPE: the dimensions of a tensor."""

from __future__ import annotations

import numpy as np

from tflm.errors import OperatorError
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.overlap import never_read
from tflm.kernels.registration import Registration
from tflm.kernels.requests import tensors
from tflm.kernels.shapes import from_values
from tflm.kernels.support.checks import element_count, require_same_type, require_type
from tflm.kernels.support.views import Copy, Copying
from tflm.memory.tensor import TFLITE_TYPE, TfLiteTensor
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.version_rules import by_input
from tflm.targets import Struct

DIMS, VALUE = range(2)
FILL_TYPES = (TensorType.FLOAT32, TensorType.INT8, TensorType.INT32)
DIMS_TYPES = (TensorType.INT8, TensorType.INT16, TensorType.INT32, TensorType.INT64)

TFLITE_SHAPE_PARAMS = Struct("TfLiteShapeParams", out_type=TFLITE_TYPE)


def _prepare_fill(context: KernelContext, node: Node) -> None:
    dims, value = (node.input(i) for i in range(2))
    output = node.output(0)
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


def _copies_of_fill(node: Node) -> list[Copy]:
    return [(node.eval_output(0).elements, node.eval_input(VALUE).elements)]


def _prepare_shape(context: KernelContext, node: Node) -> None:
    node.expect(inputs=1, outputs=1)
    input, output = node.eval_input(0), node.eval_output(0)
    require_type(output, TensorType.INT32)
    if element_count(output) != len(input.dims):
        reason = f"has shape {list(output.dims)}, must have {len(input.dims)} elements for {list(input.dims)}"
        raise OperatorError(reason, tensor=output.name)


def _copies_of_shape(node: Node) -> list[Copy]:
    return [(node.eval_output(0).elements.reshape(-1), np.array(node.eval_input(0).dims, np.int32))]


FILL = Registration(
    BuiltinOperator.FILL,
    Copying(_copies_of_fill),
    _prepare_fill,
    requests=tensors(2),
    max_version=4,
    types=FILL_TYPES,
    output_shapes=from_values(0),
    versions=by_input(index=1, FLOAT8=5, FLOAT16=4, INT8=3, INT16=3, BOOL=2, STRING=2),
)
SHAPE = Registration(
    BuiltinOperator.SHAPE,
    Copying(_copies_of_shape),
    _prepare_shape,
    builtin_data=TFLITE_SHAPE_PARAMS,
    overlap=never_read,
    output_shapes=lambda node: [(len(node.shape(0)),)],
    output_values=lambda node: np.array(node.shape(0), np.int64),
)
