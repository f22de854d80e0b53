"""GATHER, GATHER_ND and EMBEDDING_LOOKUP: slices of the first input, at indices given by the second. EMBEDDING_LOOKUP
takes the indices first, and can dequantize the rows of an int8 table to float32."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.host_memory import track_host_array
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.registration import Registration, Run
from tflm.kernels.requests import PersistentBuffer, Reads, Request, tensors, writable_dims
from tflm.kernels.shapes import Shapes, StaticNode, Values, require_axis
from tflm.kernels.support.checks import element_count, require_same_type, require_type, require_zero_point, shape_error
from tflm.kernels.support.elementwise import bind_by_parameters
from tflm.memory.tensor import TfLiteTensor
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.options import GatherOptions
from tflm.schema.version_rules import INT16_INDICES, Feature, Signature, by_input, either, input_is, option, scales_of
from tflm.targets import FLOAT, INT, SIZE_T, Struct

TYPES = (TensorType.FLOAT32, TensorType.INT8)
LONGEST_INDEX = 5
"""Maximum number of dimensions that GATHER_ND indexes."""

Array = npt.NDArray[Any]

TFLITE_GATHER_PARAMS = Struct("TfLiteGatherParams", axis=INT, batch_dims=INT)
EMBEDDING_LOOKUP_OP_DATA = Struct("embedding_lookup.cc:OpData", scale=FLOAT, num_columns=SIZE_T)


def _prepare_gather(context: KernelContext, node: Node) -> None:
    """The op data are the indexed axis, and the number of leading dimensions that input and indices share."""
    node.expect(inputs=2, outputs=1)
    input, indices = (node.input(i) for i in range(2))
    require_type(indices, TensorType.INT32)
    require_type(input, *TYPES)
    options = node.options(GatherOptions)
    axis = require_axis(options.axis, len(input.dims), input.name)
    batch_dims = options.batch_dims + (len(indices.dims) if options.batch_dims < 0 else 0)
    if not 0 <= batch_dims <= min(axis, len(indices.dims)):
        reason = f"has {options.batch_dims} batch dimensions; must be the first of {axis} before the one indexed"
        raise OperatorError(reason, tensor=indices.name)
    if input.dims[:batch_dims] != indices.dims[:batch_dims]:
        raise shape_error(indices, f", must begin with {list(input.dims[:batch_dims])}")
    _shape_output(context, node, input, (*input.dims[:axis], *indices.dims[batch_dims:], *input.dims[axis + 1 :]))
    node.op_data = axis, batch_dims


def _shape_output(context: KernelContext, node: Node, input: TfLiteTensor, dims: tuple[int, ...]) -> None:
    """Set the output's shape. The shape in the model is ignored, but must have room for these dimensions."""
    output = node.eval_output(0)
    require_same_type(output, input)
    if len(output.dims) < len(dims):
        raise shape_error(output, f", must have {list(dims)}")
    context.allocate_requested(node)
    output.dims = dims


def _requests(node: Node) -> Iterator[Request]:
    yield from tensors(2)(node)
    yield writable_dims(node.output(0))


def _requests_of_gather_nd(node: Node) -> Iterator[Request]:
    yield from tensors(2)(node)
    if node.release.holds("1d810cac7"):
        yield writable_dims(node.output(0))


def _bind_gather(context: KernelContext, node: Node) -> Run:
    input, indices = (node.eval_input(i) for i in range(2))
    axis, batch_dims = node.op_data
    batches, outer = math.prod(input.dims[:batch_dims]), math.prod(input.dims[batch_dims:axis])
    size, inner = input.dims[axis], math.prod(input.dims[axis + 1 :])
    x = input.elements.reshape(batches, outer, size, inner)
    numbers = indices.elements.reshape(batches, math.prod(indices.dims[batch_dims:]))
    y = node.eval_output(0).elements.reshape(batches, outer, numbers.shape[1], inner)
    batch = np.arange(batches, dtype=np.intp)[:, np.newaxis]

    def run(positions: Array) -> None:
        y[...] = x[batch, :, positions].swapaxes(1, 2)

    return bind_by_parameters([indices], lambda: _inside(numbers, size, indices.name), run)


def _inside(indices: Array, size: int, name: str) -> Array:
    """The indices; raises `OperatorError` if one is out of range."""
    lowest, highest = indices.min(initial=0), indices.max(initial=-1)
    if lowest < 0 or highest >= size:
        outside = lowest if lowest < 0 else highest
        raise OperatorError(f"has the index {outside}, must be from 0 to {size - 1}", tensor=name)
    return indices


def _prepare_gather_nd(context: KernelContext, node: Node) -> None:
    node.expect(inputs=2, outputs=1)
    input, indices = (node.input(i) for i in range(2))
    require_type(input, *TYPES)
    require_type(indices, TensorType.INT32)
    for tensor in (input, indices):
        if not tensor.dims:
            raise OperatorError("is a scalar, must have a dimension", tensor=tensor.name)
    if 0 in input.dims:
        raise shape_error(input, ": no elements")
    length = indices.dims[-1]
    if length > min(len(input.dims), LONGEST_INDEX):
        reason = (
            f"has indices of {length} numbers, for {len(input.dims)} dimensions; at most {LONGEST_INDEX} are supported"
        )
        raise OperatorError(reason, tensor=indices.name)
    _shape_output(context, node, input, (*indices.dims[:-1], *input.dims[length:]))


def _bind_gather_nd(context: KernelContext, node: Node) -> Run:
    input, indices = (node.eval_input(i) for i in range(2))
    length = indices.dims[-1]
    table = input.elements.reshape(math.prod(input.dims[:length]), math.prod(input.dims[length:]))
    y = node.eval_output(0).elements.reshape(-1, table.shape[1])
    numbers = indices.elements.reshape(len(y), length)
    strides = np.array([math.prod(input.dims[i + 1 : length]) for i in range(length)], np.int64)

    def rows() -> Array:
        found: Array = track_host_array(numbers.astype(np.int64) @ strides)
        # As in TFLM, an index may exceed its dimension as long as the slice lies in the input.
        if found.min(initial=0) < 0 or found.max(initial=-1) >= len(table):
            raise OperatorError(f"has an index that is not in shape {list(input.dims)}", tensor=indices.name)
        return found

    def run(rows: Array) -> None:
        y[...] = table[rows]

    return bind_by_parameters([indices], rows, run)


def _prepare_embedding_lookup(context: KernelContext, node: Node) -> None:
    """The op data is the scale if the table is dequantized, otherwise None."""
    node.expect(inputs=2, outputs=1)
    lookup, value = (node.input(i) for i in range(2))
    output = node.eval_output(0)
    require_type(lookup, TensorType.INT32)
    require_type(value, *TYPES)
    require_type(output, *({TensorType.FLOAT32, value.type}))
    if len(lookup.dims) != 1:
        raise shape_error(lookup, ", must have one dimension")
    if len(value.dims) < 2 or value.dims[0] == 0:
        raise shape_error(value, ", must have rows, and at least two dimensions")
    node.op_data = None
    if value.type != output.type:
        require_zero_point(value, 0)
        node.op_data = np.float32(value.scale)
    dims = (*lookup.dims, *value.dims[1:])
    if len(output.dims) < len(dims) or any(n != 1 for n in output.dims[len(dims) :]):
        raise shape_error(output, f", must have {list(dims)}")
    if element_count(output) < math.prod(dims):
        raise shape_error(output, f", too small for {list(dims)}")
    context.allocate_requested(node)
    output.dims = (*dims, *output.dims[len(dims) :])


def _requests_of_lookup(node: Node) -> Iterator[Request]:
    yield from tensors(2)(node)
    yield writable_dims(node.output(0), Reads.TYPE)
    yield PersistentBuffer(EMBEDDING_LOOKUP_OP_DATA.name, EMBEDDING_LOOKUP_OP_DATA.size(node.target, node.release))


def _bind_embedding_lookup(context: KernelContext, node: Node) -> Run:
    lookup, value = (node.eval_input(i) for i in range(2))
    table, scale = value.elements.reshape(value.dims[0], math.prod(value.dims[1:])), node.op_data
    y = node.eval_output(0).elements.reshape(lookup.dims[0], table.shape[1])

    def run(rows: Array) -> None:
        y[...] = table[rows] if scale is None else table[rows] * scale

    return bind_by_parameters([lookup], lambda: _inside(lookup.elements, len(table), lookup.name), run)


def _gathered(node: StaticNode) -> Shapes:
    shape, indices = node.shape(0), node.shape(1)
    axis, batches = require_axis(node.option("axis"), len(shape)), node.option("batch_dims")
    return [(*shape[:axis], *indices[batches:], *shape[axis + 1 :])]


def _gathered_values(node: StaticNode) -> Values:
    values, indices = node.values(0), node.values(1)
    batches = len(indices.shape[: node.option("batch_dims")])
    axis = require_axis(node.option("axis"), values.ndim) - batches
    found = [np.take(values[batch], indices[batch], axis) for batch in np.ndindex(values.shape[:batches])]
    return np.array(found, values.dtype).reshape(_gathered(node)[0])


def _has_scale_for_each_row(signature: Signature) -> bool:
    return len(scales_of(signature.input(1))) > 1 and signature.has_scale_for_each_slice(1, 0)


EMBEDDING_LOOKUP = Registration(
    BuiltinOperator.EMBEDDING_LOOKUP,
    _bind_embedding_lookup,
    _prepare_embedding_lookup,
    requests=_requests_of_lookup,
    max_version=4,
    types=TYPES,
    since="aa945a0fc",
    versions={
        4: Feature("INT4 tables and a scale for each row", either(input_is("INT4", index=1), _has_scale_for_each_row)),
        5: Feature("INT2 tables", input_is("INT2", index=1)),
    },
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
    output_shapes=_gathered,
    output_values=_gathered_values,
    versions={
        **by_input(FLOAT8=8, INT4=7),
        6: INT16_INDICES,
        5: option("batch_dims"),
        **by_input(INT16=4, BOOL=3, INT8=2),
    },
)
GATHER_ND = Registration(
    BuiltinOperator.GATHER_ND,
    _bind_gather_nd,
    _prepare_gather_nd,
    requests=_requests_of_gather_nd,
    max_version=5,
    types=TYPES,
    since="15c609314",
    versions={**by_input(FLOAT8=6, BOOL=5), 4: INT16_INDICES, **by_input(INT16=3, STRING=2)},
)
