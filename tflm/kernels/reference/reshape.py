"""RESHAPE, EXPAND_DIMS and SQUEEZE: the same elements under another shape, which is the output tensor's own."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tflm.errors import OperatorError
from tflm.kernels.overlap import copied, copied_in_order
from tflm.kernels.registration import KernelContext, Node, Registration, Run
from tflm.kernels.requests import NodeView, Reads, Request, tensors, writable_dims
from tflm.kernels.support.checks import AnyTensor, constant_integers, element_count, require_alike, require_type
from tflm.kernels.support.views import bind_copy
from tflm.memory.tensor import TfLiteEvalTensor, TfLiteTensor
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.options import ReshapeOptions, SqueezeOptions
from tflm.targets import INT, INT32, Array, Struct

MAXIMUM_DIMENSIONS = 8
"""Dimensions that there is room for in parsed options."""

EXPAND_DIMS_TYPES = (TensorType.FLOAT32, TensorType.INT8, TensorType.INT16)

TFLITE_RESHAPE_PARAMS = Struct("TfLiteReshapeParams", shape=Array(INT32, MAXIMUM_DIMENSIONS), num_dimensions=INT32)
TFLITE_SQUEEZE_PARAMS = Struct(
    "TfLiteSqueezeParams", squeeze_dims=Array(INT32, MAXIMUM_DIMENSIONS), num_squeeze_dims=INT
)


def _prepare_reshape(context: KernelContext, node: Node) -> None:
    node.expect(inputs=range(1, 3), outputs=1)
    options = node.options(ReshapeOptions) or ReshapeOptions()
    _require_room("new_shape", options.new_shape)
    input = context.input_tensor(node, 0)
    output = context.get_eval_output(node, 0)
    if len(node.inputs) == 1 and output.dims == (0,):
        output.dims = ()  # how old writers say scalar
    if -1 in output.dims:
        dims = _stretched(output, element_count(input))
        context.allocate_requested(node)
        output.dims = dims
    _check_elements(input, output)


def _requests_of_reshape(node: NodeView) -> Iterator[Request]:
    yield from tensors()(node)
    output = node.output(0)
    if -1 in output.dims:
        yield writable_dims(output, Reads.TYPE)


def _require_room(option: str, dimensions: tuple[int, ...] | None) -> None:
    if len(dimensions or ()) > MAXIMUM_DIMENSIONS:
        raise OperatorError(f"{option} has {len(dimensions or ())} dimensions, {MAXIMUM_DIMENSIONS} is the most")


def _stretched(output: TfLiteEvalTensor, elements: int) -> tuple[int, ...]:
    """The output's shape, with its one dimension of -1 made as large as the elements need."""
    others = math.prod(dimension for dimension in output.dims if dimension != -1)
    if output.dims.count(-1) > 1 or others <= 0:
        reason = f"has shape {list(output.dims)}; one dimension at the most can be left open, none can be 0"
        raise OperatorError(reason, tensor=output.name)
    return tuple(elements // others if dimension == -1 else dimension for dimension in output.dims)


def _check_elements(input: TfLiteTensor, output: AnyTensor) -> None:
    require_alike(output, input)
    if input.type == TensorType.INT4 and input.is_constant:
        raise OperatorError("is a constant of INT4, two elements to a byte, which can't be copied", tensor=input.name)


def _prepare_expand_dims(context: KernelContext, node: Node) -> None:
    node.expect(inputs=2, outputs=1)
    input, axis = (context.input_tensor(node, i) for i in range(2))
    output = context.output_tensor(node, 0)
    require_type(input, *EXPAND_DIMS_TYPES)
    if len(axis.dims) > 1:
        raise OperatorError(f"has shape {list(axis.dims)}, must be one number", tensor=axis.name)
    (position,) = constant_integers(axis, 1)
    if position < 0:
        position += len(input.dims) + 1
    if not 0 <= position <= len(input.dims):
        raise OperatorError(f"has {len(input.dims)} dimensions, none can be added at {position}", tensor=input.name)
    wanted = (*input.dims[:position], 1, *input.dims[position:])
    if output.dims != wanted:
        raise OperatorError(f"has shape {list(output.dims)}, must have {list(wanted)}", tensor=output.name)
    _check_elements(input, output)


def _prepare_squeeze(context: KernelContext, node: Node) -> None:
    node.expect(inputs=1, outputs=1)
    input = context.input_tensor(node, 0)
    output = context.output_tensor(node, 0)
    options = node.options(SqueezeOptions) or SqueezeOptions()
    _require_room("squeeze_dims", options.squeeze_dims)
    rank = len(input.dims)
    if rank > MAXIMUM_DIMENSIONS:
        raise OperatorError(f"has {rank} dimensions, {MAXIMUM_DIMENSIONS} is the most", tensor=input.name)
    squeezed = [axis + rank if axis < 0 else axis for axis in options.squeeze_dims or ()]
    for axis in squeezed:
        if not 0 <= axis < rank or input.dims[axis] != 1:
            reason = f"has shape {list(input.dims)}; only a dimension of 1 can be squeezed, {axis} is none"
            raise OperatorError(reason, tensor=input.name)
    left = [n for axis, n in enumerate(input.dims) if (axis not in squeezed if squeezed else n != 1)]
    if list(output.dims[: len(left)]) != left:
        raise OperatorError(f"has shape {list(output.dims)}, must have {left}", tensor=output.name)
    _check_elements(input, output)


def _bind(context: KernelContext, node: Node) -> Run:
    x, y = context.get_eval_input(node, 0), context.get_eval_output(node, 0)
    return bind_copy(y.elements.reshape(-1), x.elements.reshape(-1))


RESHAPE = Registration(
    BuiltinOperator.RESHAPE,
    _bind,
    _prepare_reshape,
    requests=_requests_of_reshape,
    builtin_data=TFLITE_RESHAPE_PARAMS,
    moves=copied,
)
EXPAND_DIMS = Registration(
    BuiltinOperator.EXPAND_DIMS,
    _bind,
    _prepare_expand_dims,
    requests=tensors(2),
    types=EXPAND_DIMS_TYPES,
    moves=copied_in_order,
)
SQUEEZE = Registration(
    BuiltinOperator.SQUEEZE,
    _bind,
    _prepare_squeeze,
    requests=tensors(),
    builtin_data=TFLITE_SQUEEZE_PARAMS,
    max_version=2,
    moves=copied,
)
