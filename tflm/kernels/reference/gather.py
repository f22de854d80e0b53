"""GATHER, GATHER_ND and EMBEDDING_LOOKUP: slices of an input, at indices that may come from other operators.

Each takes rows of a table, (rows, elements of a slice). Elements are float32 or int8; the rows that EMBEDDING_LOOKUP
takes from a table of int8 may become float32.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.host_memory import kept
from tflm.kernels.registration import KernelContext, Node, Registration, Run
from tflm.kernels.requests import NodeView, PersistentBuffer, Reads, Request, tensors, writable_dims
from tflm.kernels.support.checks import element_count, require_axis, require_same_type, require_type, require_zero_point
from tflm.memory.tensor import TfLiteEvalTensor, TfLiteTensor
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.options import GatherOptions
from tflm.targets import FLOAT, INT, SIZE_T, Struct

TYPES = (TensorType.FLOAT32, TensorType.INT8)
LONGEST_INDEX = 5
"""Numbers that an index of GATHER_ND can have."""

TFLITE_GATHER_PARAMS = Struct("TfLiteGatherParams", axis=INT, batch_dims=INT)
EMBEDDING_LOOKUP_OP_DATA = Struct("embedding_lookup.cc:OpData", scale=FLOAT, num_columns=SIZE_T)


def _prepare_gather(context: KernelContext, node: Node) -> None:
    """The op data are the dimension that is indexed, and how many before it are common to input and indices."""
    node.expect(inputs=2, outputs=1)
    input, indices = (context.input_tensor(node, i) for i in range(2))
    require_type(indices, TensorType.INT32)
    require_type(input, *TYPES)
    options = node.options(GatherOptions) or GatherOptions()
    axis = require_axis(options.axis, len(input.dims), input.name)
    batch_dims = options.batch_dims + (len(indices.dims) if options.batch_dims < 0 else 0)
    if not 0 <= batch_dims <= min(axis, len(indices.dims)):
        reason = f"has {options.batch_dims} batch dimensions; must be the first of {axis} before the one indexed"
        raise OperatorError(reason, tensor=indices.name)
    if input.dims[:batch_dims] != indices.dims[:batch_dims]:
        reason = f"has shape {list(indices.dims)}, must begin with {list(input.dims[:batch_dims])}"
        raise OperatorError(reason, tensor=indices.name)
    _shape_output(context, node, input, (*input.dims[:axis], *indices.dims[batch_dims:], *input.dims[axis + 1 :]))
    node.op_data = axis, batch_dims


def _shape_output(context: KernelContext, node: Node, input: TfLiteTensor, dims: tuple[int, ...]) -> None:
    """Give the output its shape: that in the model does not count, but must have room for so many dimensions."""
    output = context.get_eval_output(node, 0)
    require_same_type(output, input)
    if len(output.dims) < len(dims):
        raise OperatorError(f"has shape {list(output.dims)}, must have {list(dims)}", tensor=output.name)
    context.allocate_requested(node)
    output.dims = dims


def _requests(node: NodeView) -> Iterator[Request]:
    yield from tensors(2)(node)
    yield writable_dims(node.output(0))


def _requests_of_gather_nd(node: NodeView) -> Iterator[Request]:
    yield from tensors(2)(node)
    if node.release.holds("1d810cac7"):
        yield writable_dims(node.output(0))


def _bind_gather(context: KernelContext, node: Node) -> Run:
    input, indices = (context.get_eval_input(node, i) for i in range(2))
    axis, batch_dims = node.op_data
    batches, outer = math.prod(input.dims[:batch_dims]), math.prod(input.dims[batch_dims:axis])
    size, inner = input.dims[axis], math.prod(input.dims[axis + 1 :])
    positions = indices.elements.reshape(batches, 1, math.prod(indices.dims[batch_dims:]))
    rows = kept(np.empty((batches, outer, positions.shape[2]), np.intp))
    first_rows = kept(np.empty_like(rows))
    first_rows[...] = (
        np.arange(0, batches * outer * size, size, dtype=np.intp).reshape(batches, outer, 1) if size else 0
    )
    starts_at_zero = batches * outer == 1

    def find_rows() -> None:
        _require_inside(positions, size, indices.name)
        np.copyto(rows, positions)
        if not starts_at_zero:
            np.add(rows, first_rows, out=rows)

    table = input.elements.reshape(batches * outer * size, inner)
    y = context.get_eval_output(node, 0).elements.reshape(*rows.shape, inner)
    return _bind_take(indices, find_rows, table, rows, y)


def _require_inside(indices: npt.NDArray[Any], size: int, name: str) -> None:
    lowest, highest = indices.min(initial=0), indices.max(initial=-1)
    if lowest < 0 or highest >= size:
        outside = lowest if lowest < 0 else highest
        raise OperatorError(f"has the index {outside}, must be from 0 to {size - 1}", tensor=name)


def _bind_take(
    indices: TfLiteEvalTensor,
    find_rows: Run,
    table: npt.NDArray[Any],
    rows: npt.NDArray[np.intp],
    y: npt.NDArray[Any],
) -> Run:
    """What sets y[...] to table[rows[...]].

    Args:
        find_rows: sets the rows from the indices, and refuses them if a row is not in the table.
    """

    def take() -> None:
        table.take(rows, axis=0, out=y, mode="clip")

    if indices.is_constant:
        find_rows()
        return take

    def run() -> None:
        find_rows()
        take()

    return run


def _prepare_gather_nd(context: KernelContext, node: Node) -> None:
    node.expect(inputs=2, outputs=1)
    input, indices = (context.input_tensor(node, i) for i in range(2))
    require_type(input, *TYPES)
    require_type(indices, TensorType.INT32)
    for tensor in (input, indices):
        if not tensor.dims:
            raise OperatorError("is a scalar, must have a dimension", tensor=tensor.name)
    if 0 in input.dims:
        raise OperatorError(f"has shape {list(input.dims)}: no elements", tensor=input.name)
    length = indices.dims[-1]
    if length > min(len(input.dims), LONGEST_INDEX):
        reason = f"has indices of {length} numbers, for {len(input.dims)} dimensions; {LONGEST_INDEX} is the most"
        raise OperatorError(reason, tensor=indices.name)
    _shape_output(context, node, input, (*indices.dims[:-1], *input.dims[length:]))


def _bind_gather_nd(context: KernelContext, node: Node) -> Run:
    input, indices = (context.get_eval_input(node, i) for i in range(2))
    length = indices.dims[-1]
    inner = math.prod(input.dims[length:])
    table = input.elements.reshape(-1, inner)
    rows, products = (kept(np.zeros(math.prod(indices.dims[:-1]), np.intp)) for _ in range(2))
    numbers = indices.elements.reshape(rows.size, length)
    strides = [(numbers[:, i], math.prod(input.dims[i + 1 : length])) for i in range(length)]

    def find_rows() -> None:
        rows.fill(0)
        for column, stride in strides:
            np.copyto(products, column)
            np.multiply(products, stride, out=products)
            np.add(rows, products, out=rows)
        # As in TFLM, a number may be out of its dimension as long as the slice is in the input.
        if rows.min(initial=0) < 0 or rows.max(initial=-1) >= len(table):
            raise OperatorError(f"has an index that is not in shape {list(input.dims)}", tensor=indices.name)

    return _bind_take(indices, find_rows, table, rows, context.get_eval_output(node, 0).elements.reshape(-1, inner))


def _prepare_embedding_lookup(context: KernelContext, node: Node) -> None:
    """The op data is the scale of rows that become floats, or None."""
    node.expect(inputs=2, outputs=1)
    lookup, value = (context.input_tensor(node, i) for i in range(2))
    output = context.get_eval_output(node, 0)
    require_type(lookup, TensorType.INT32)
    require_type(value, *TYPES)
    require_type(output, *({TensorType.FLOAT32, value.type}))
    if len(lookup.dims) != 1:
        raise OperatorError(f"has shape {list(lookup.dims)}, must have one dimension", tensor=lookup.name)
    if len(value.dims) < 2 or value.dims[0] == 0:
        reason = f"has shape {list(value.dims)}, must have rows, and at least two dimensions"
        raise OperatorError(reason, tensor=value.name)
    node.op_data = None
    if value.type != output.type:
        require_zero_point(value, 0)
        node.op_data = np.float32(value.scale)
    dims = (*lookup.dims, *value.dims[1:])
    if len(output.dims) < len(dims) or any(n != 1 for n in output.dims[len(dims) :]):
        raise OperatorError(f"has shape {list(output.dims)}, must have {list(dims)}", tensor=output.name)
    if element_count(output) < math.prod(dims):
        raise OperatorError(f"has shape {list(output.dims)}, too small for {list(dims)}", tensor=output.name)
    context.allocate_requested(node)
    output.dims = (*dims, *output.dims[len(dims) :])


def _requests_of_lookup(node: NodeView) -> Iterator[Request]:
    yield from tensors(2)(node)
    yield writable_dims(node.output(0), Reads.TYPE)
    yield PersistentBuffer(EMBEDDING_LOOKUP_OP_DATA.name, EMBEDDING_LOOKUP_OP_DATA.size(node.target, node.release))


def _bind_embedding_lookup(context: KernelContext, node: Node) -> Run:
    lookup, value = (context.get_eval_input(node, i) for i in range(2))
    table = value.elements.reshape(value.dims[0], math.prod(value.dims[1:]))
    y = context.get_eval_output(node, 0).elements.reshape(lookup.dims[0], table.shape[1])
    rows = kept(np.empty(lookup.dims, np.intp))

    def find_rows() -> None:
        _require_inside(lookup.elements, len(table), lookup.name)
        np.copyto(rows, lookup.elements)

    scale = node.op_data
    if scale is None:
        return _bind_take(lookup, find_rows, table, rows, y)
    taken = kept(np.empty(y.shape, table.dtype))
    take = _bind_take(lookup, find_rows, table, rows, taken)

    def run() -> None:
        take()
        np.copyto(y, taken)
        np.multiply(y, scale, out=y)

    return run


EMBEDDING_LOOKUP = Registration(
    BuiltinOperator.EMBEDDING_LOOKUP,
    _bind_embedding_lookup,
    _prepare_embedding_lookup,
    requests=_requests_of_lookup,
    max_version=4,
    types=TYPES,
    since="aa945a0fc",
)
GATHER = Registration(
    BuiltinOperator.GATHER,
    _bind_gather,
    _prepare_gather,
    requests=_requests,
    builtin_data=TFLITE_GATHER_PARAMS,
    max_version=7,
    types=TYPES,
    since="dd3db3d81",
)
GATHER_ND = Registration(
    BuiltinOperator.GATHER_ND,
    _bind_gather_nd,
    _prepare_gather_nd,
    requests=_requests_of_gather_nd,
    max_version=5,
    types=TYPES,
    since="15c609314",
)
