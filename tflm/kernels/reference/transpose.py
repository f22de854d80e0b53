"""TRANSPOSE: the same elements with the dimensions in another order."""

from __future__ import annotations

from tflm.errors import OperatorError
from tflm.kernels.registration import KernelContext, Node, Registration, Run
from tflm.kernels.requests import tensors
from tflm.kernels.support.checks import constant_integers, require_same_type, require_type
from tflm.kernels.support.views import bind_copy
from tflm.schema.enums import BuiltinOperator, TensorType

MAXIMUM_RANK = 5
TYPES = (TensorType.FLOAT32, TensorType.INT8, TensorType.INT16)


def _prepare(context: KernelContext, node: Node) -> None:
    """The op data is the dimension of the input that each of the output is."""
    node.expect(inputs=2, outputs=1)
    input, order = context.input_tensor(node, 0), context.input_tensor(node, 1)
    output = context.output_tensor(node, 0)
    require_type(input, *TYPES)
    require_same_type(output, input)
    rank = len(input.dims)
    if rank > MAXIMUM_RANK:
        raise OperatorError(f"has {rank} dimensions, {MAXIMUM_RANK} is the most", tensor=input.name)
    if order.dims != (rank,):
        raise OperatorError(f"has shape {list(order.dims)}, must have {[rank]}", tensor=order.name)
    axes = constant_integers(order, rank)
    if sorted(axes) != list(range(rank)):
        raise OperatorError(f"is {axes}; each dimension from 0 to {rank - 1} must be there once", tensor=order.name)
    shape = [input.dims[axis] for axis in axes]
    if [*shape, *(1 for _ in output.dims[rank:])] != list(output.dims):
        raise OperatorError(f"has shape {list(output.dims)}, the input gives {shape}", tensor=output.name)
    node.op_data = axes


def _bind(context: KernelContext, node: Node) -> Run:
    source = context.get_eval_input(node, 0).elements.transpose(node.op_data)
    return bind_copy(context.get_eval_output(node, 0).elements.reshape(source.shape), source)


TRANSPOSE = Registration(
    BuiltinOperator.TRANSPOSE, _bind, _prepare, requests=tensors(2), max_version=6, types=TYPES, since="560fd3d1d"
)
