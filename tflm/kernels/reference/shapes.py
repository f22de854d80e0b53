"""Shapes: FILL, ZEROS_LIKE, SHAPE, BROADCAST_TO and BROADCAST_ARGS, RESHAPE, EXPAND_DIMS and SQUEEZE."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.overlap import copied, copied_in_order, never_read
from tflm.kernels.registration import Registration, Run
from tflm.kernels.requests import Reads, Request, tensors, writable_dims
from tflm.kernels.shapes import Shapes, StaticNode, from_values, require_axis, same_as_input
from tflm.kernels.support.checks import (
    AnyTensor,
    constant_integers,
    element_count,
    require_alike,
    require_one_type,
    require_rank,
    require_same_type,
    require_type,
    shape_error,
    unary_tensors,
)
from tflm.kernels.support.elementwise import Copy, Copying
from tflm.memory.tensor import TFLITE_TYPE, UNSIZED_TYPES, TfLiteEvalTensor, TfLiteTensor
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.options import ReshapeOptions, SqueezeOptions
from tflm.schema.version_rules import Feature, by_input
from tflm.targets import INT, INT32, Array, Struct

DIMS, VALUE = range(2)
FILL_TYPES = (TensorType.FLOAT32, TensorType.INT8, TensorType.INT32)
DIMS_TYPES = (TensorType.INT8, TensorType.INT16, TensorType.INT32, TensorType.INT64)

TFLITE_SHAPE_PARAMS = Struct("TfLiteShapeParams", out_type=TFLITE_TYPE)


def _prepare_fill(context: KernelContext, node: Node) -> None:
    dims, value = (node.input(i) for i in range(2))
    output = node.output(0)
    require_one_type(FILL_TYPES, value, output)
    if value.dims:
        raise shape_error(value, ", must be a scalar")
    _check_dims(dims, output)


def _check_dims(dims: TfLiteTensor, output: TfLiteTensor) -> None:
    require_type(dims, *DIMS_TYPES)
    if not dims.is_constant:
        raise OperatorError("must be a constant of the model", tensor=dims.name)
    if dims.dims != (len(output.dims),):
        raise shape_error(dims, f", must be the {len(output.dims)} dimensions of the output")
    shape = dims.data.tolist()
    if shape != list(output.dims):
        raise shape_error(output, f", {dims.name!r} says {shape}")


def _prepare_shape(context: KernelContext, node: Node) -> None:
    node.expect(inputs=1, outputs=1)
    input, output = node.eval_input(0), node.eval_output(0)
    require_type(output, TensorType.INT32)
    if element_count(output) != len(input.dims):
        raise shape_error(output, f", must have {len(input.dims)} elements for {list(input.dims)}")


FILL = Registration(
    BuiltinOperator.FILL,
    Copying(lambda node: [(node.eval_output(0).elements, node.eval_input(VALUE).elements)]),
    _prepare_fill,
    requests=tensors(2),
    max_version=4,
    types=FILL_TYPES,
    output_shapes=from_values(0),
    versions=by_input(index=1, FLOAT8=5, FLOAT16=4, INT8=3, INT16=3, BOOL=2, STRING=2),
)
SHAPE = Registration(
    BuiltinOperator.SHAPE,
    Copying(lambda node: [(node.eval_output(0).elements.reshape(-1), np.array(node.eval_input(0).dims, np.int32))]),
    _prepare_shape,
    builtin_data=TFLITE_SHAPE_PARAMS,
    overlap=never_read,
    output_shapes=lambda node: [(len(node.shape(0)),)],
    output_values=lambda node: np.array(node.shape(0), np.int64),
)


ZEROS_TYPES = (TensorType.FLOAT32, TensorType.INT8, TensorType.INT32, TensorType.INT64)


def _prepare_zeros(context: KernelContext, node: Node) -> None:
    unary_tensors(node, *ZEROS_TYPES)


def _copies_zeros(node: Node) -> list[Copy]:
    y = node.eval_output(0).elements
    return [(y, np.zeros((), y.dtype))]


ZEROS_LIKE = Registration(
    BuiltinOperator.ZEROS_LIKE,
    Copying(_copies_zeros),
    _prepare_zeros,
    requests=tensors(),
    types=ZEROS_TYPES,
    overlap=never_read,
    output_shapes=same_as_input,
)


BROADCAST_RANK = 5
BROADCAST_TO_TYPES = tuple(
    type for type in TensorType if type not in UNSIZED_TYPES | {TensorType.INT4, TensorType.RESOURCE}
)
SHAPE_TYPES = (TensorType.INT32, TensorType.INT64)


def _prepare_broadcast_to(context: KernelContext, node: Node) -> None:
    input, shape, output = node.expect_tensors(2)
    require_type(shape, *SHAPE_TYPES)
    require_one_type(BROADCAST_TO_TYPES, input, output)
    if not shape.is_constant:
        raise OperatorError("must be a constant of the model", tensor=shape.name)
    rank = require_rank(output, BROADCAST_RANK)
    if shape.dims != (rank,) or shape.data.astype(np.int32).tolist() != list(output.dims):
        raise shape_error(output, f", which is not that of {shape.name!r}")
    pairs = zip(reversed(input.dims), reversed(output.dims))
    if len(input.dims) > rank or any(n not in (1, wanted) for n, wanted in pairs):
        raise shape_error(input, f", which does not broadcast to {list(output.dims)}")


def _prepare_broadcast_args(context: KernelContext, node: Node) -> None:
    node.expect(inputs=2, outputs=1)
    shapes = [node.input(i) for i in range(2)]
    output = node.output(0)
    require_type(output, *SHAPE_TYPES)
    for tensor in (*shapes, output):
        require_same_type(tensor, output)
        if len(tensor.dims) != 1:
            raise shape_error(tensor, ", must have one dimension")


def _bind_broadcast_args(context: KernelContext, node: Node) -> Run:
    shapes = [node.eval_input(i).elements for i in range(2)]
    y = node.eval_output(0).elements

    def run() -> None:
        dims1, dims2 = (_extended(shape.astype(np.int32), y.size) for shape in shapes)  # TFLM reads 32 bits of each
        if np.any((dims1 != dims2) & (dims1 != 1) & (dims2 != 1)):
            raise OperatorError("its shapes do not broadcast: two dimensions differ, and neither is 1")
        y[...] = np.where(dims1 == 1, dims2, dims1)

    return run


def _extended(shape: npt.NDArray[np.int32], rank: int) -> npt.NDArray[np.int32]:
    """The last `rank` dimensions of a shape, with ones before its first."""
    return np.concatenate([np.ones(rank, np.int32), shape])[shape.size :]


BROADCAST_TO = Registration(
    BuiltinOperator.BROADCAST_TO,
    Copying(lambda node: [(node.eval_output(0).elements, node.eval_input(0).elements)]),
    _prepare_broadcast_to,
    requests=tensors(2),
    max_version=3,
    types=BROADCAST_TO_TYPES,
    since="afd41a759",
    output_shapes=from_values(1),
    versions={**by_input(FLOAT8=4, INT8=3, INT16=3), 2: Feature(None, lambda _: True)},
)
BROADCAST_ARGS = Registration(
    BuiltinOperator.BROADCAST_ARGS,
    _bind_broadcast_args,
    _prepare_broadcast_args,
    requests=tensors(2),
    types=SHAPE_TYPES,
    since="afd41a759",
)


MAXIMUM_DIMENSIONS = 8
"""Maximum number of dimensions in parsed options."""

EXPAND_DIMS_TYPES = (TensorType.FLOAT32, TensorType.INT8, TensorType.INT16)

TFLITE_RESHAPE_PARAMS = Struct("TfLiteReshapeParams", shape=Array(INT32, MAXIMUM_DIMENSIONS), num_dimensions=INT32)
TFLITE_SQUEEZE_PARAMS = Struct(
    "TfLiteSqueezeParams", squeeze_dims=Array(INT32, MAXIMUM_DIMENSIONS), num_squeeze_dims=INT
)


def _prepare_reshape(context: KernelContext, node: Node) -> None:
    node.expect(inputs=range(1, 3), outputs=1)
    options = node.options(ReshapeOptions)
    _require_room("new_shape", options.new_shape)
    input = node.input(0)
    output = node.eval_output(0)
    if len(node.inputs) == 1 and output.dims == (0,):
        output.dims = ()  # a scalar in files of old converters
    if -1 in output.dims:
        dims = _stretched(output, element_count(input))
        context.allocate_requested(node)
        output.dims = dims
    _check_elements(input, output)


def _requests_of_reshape(node: Node) -> Iterator[Request]:
    yield from tensors()(node)
    output = node.output(0)
    if -1 in output.dims:
        yield writable_dims(output, Reads.TYPE)


def _require_room(option: str, dimensions: tuple[int, ...] | None) -> None:
    if len(dimensions or ()) > MAXIMUM_DIMENSIONS:
        raise OperatorError(
            f"{option} has {len(dimensions or ())} dimensions, at most {MAXIMUM_DIMENSIONS} are supported"
        )


def _stretched(output: TfLiteEvalTensor, elements: int) -> tuple[int, ...]:
    """The output's shape, with the number of elements in place of its -1."""
    others = math.prod(dimension for dimension in output.dims if dimension != -1)
    if output.dims.count(-1) > 1 or others <= 0:
        raise shape_error(output, "; only one dimension can be -1, and none 0")
    return tuple(elements // others if dimension == -1 else dimension for dimension in output.dims)


def _check_elements(input: TfLiteTensor, output: AnyTensor) -> None:
    require_alike(output, input)
    if input.type == TensorType.INT4 and input.is_constant:
        raise OperatorError("is a constant of INT4, two elements to a byte, which cannot be copied", tensor=input.name)


def _prepare_expand_dims(context: KernelContext, node: Node) -> None:
    input, axis, output = node.expect_tensors(2)
    require_type(input, *EXPAND_DIMS_TYPES)
    if len(axis.dims) > 1:
        raise shape_error(axis, ", must be one number")
    (position,) = constant_integers(axis, 1)
    if position < 0:
        position += len(input.dims) + 1
    if not 0 <= position <= len(input.dims):
        raise OperatorError(f"has {len(input.dims)} dimensions, cannot add one at {position}", tensor=input.name)
    wanted = (*input.dims[:position], 1, *input.dims[position:])
    if output.dims != wanted:
        raise shape_error(output, f", must have {list(wanted)}")
    _check_elements(input, output)


def _prepare_squeeze(context: KernelContext, node: Node) -> None:
    input, output = node.expect_tensors(1)
    options = node.options(SqueezeOptions)
    _require_room("squeeze_dims", options.squeeze_dims)
    rank = len(input.dims)
    if rank > MAXIMUM_DIMENSIONS:
        raise OperatorError(f"has {rank} dimensions, at most {MAXIMUM_DIMENSIONS} are supported", tensor=input.name)
    squeezed = [axis + rank if axis < 0 else axis for axis in options.squeeze_dims or ()]
    for axis in squeezed:
        if not 0 <= axis < rank or input.dims[axis] != 1:
            raise shape_error(input, f"; only a dimension of 1 can be squeezed, {axis} is not one")
    left = [n for axis, n in enumerate(input.dims) if (axis not in squeezed if squeezed else n != 1)]
    if list(output.dims[: len(left)]) != left:
        raise shape_error(output, f", must have {left}")
    _check_elements(input, output)


RESHAPING = Copying(lambda node: [(node.eval_output(0).elements.reshape(-1), node.eval_input(0).elements.reshape(-1))])


def _reshaped(node: StaticNode) -> Shapes:
    shape = list(node.numbers(1) if node.has(1) else node.option("new_shape") or ())
    count = math.prod(node.shape(0))
    known = math.prod(dimension for dimension in shape if dimension != -1)
    if shape.count(-1) == 1 and known and count % known == 0:
        shape[shape.index(-1)] = count // known
    if -1 in shape or math.prod(shape) != count:
        raise OperatorError(f"reshapes to {shape}, which does not have the {count} elements of {list(node.shape(0))}")
    return [shape]


def _expanded(node: StaticNode) -> Shapes:
    shape = node.shape(0)
    axis = require_axis(node.numbers(1)[0], len(shape) + 1)
    return [(*shape[:axis], 1, *shape[axis:])]


def _squeezed(node: StaticNode) -> Shapes:
    shape = node.shape(0)
    axes = {require_axis(axis, len(shape)) for axis in node.option("squeeze_dims") or ()}
    axes = axes or {axis for axis, size in enumerate(shape) if size == 1}
    if any(shape[axis] != 1 for axis in axes):
        raise OperatorError(f"can squeeze dimensions of 1 only, {list(shape)} has others at {sorted(axes)}")
    return [[size for axis, size in enumerate(shape) if axis not in axes]]


RESHAPE = Registration(
    BuiltinOperator.RESHAPE,
    RESHAPING,
    _prepare_reshape,
    requests=_requests_of_reshape,
    builtin_data=TFLITE_RESHAPE_PARAMS,
    moves=copied,
    output_shapes=_reshaped,
    output_values=lambda node: node.values(0).reshape(_reshaped(node)[0]),
)
EXPAND_DIMS = Registration(
    BuiltinOperator.EXPAND_DIMS,
    RESHAPING,
    _prepare_expand_dims,
    requests=tensors(2),
    types=EXPAND_DIMS_TYPES,
    moves=copied_in_order,
    output_shapes=_expanded,
)
SQUEEZE = Registration(
    BuiltinOperator.SQUEEZE,
    RESHAPING,
    _prepare_squeeze,
    requests=tensors(),
    builtin_data=TFLITE_SQUEEZE_PARAMS,
    max_version=2,
    moves=copied,
    output_shapes=_squeezed,
    output_values=lambda node: node.values(0).reshape(_squeezed(node)[0]),
    versions=by_input(STRING=2),
)
