"""TRANSPOSE: the same elements with the dimensions in another order."""

from __future__ import annotations

from tflm.errors import OperatorError
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.registration import Registration
from tflm.kernels.requests import tensors
from tflm.kernels.shapes import Shapes, StaticNode
from tflm.kernels.support.checks import constant_integers, require_rank, require_same_type, require_type
from tflm.kernels.support.views import Copy, Copying
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.version_rules import Feature, either, input_is, rank_above

MAXIMUM_RANK = 5
TYPES = (TensorType.FLOAT32, TensorType.INT8, TensorType.INT16)


def _prepare(context: KernelContext, node: Node) -> None:
    """The op data are the axes of the input in the order of the output."""
    node.expect(inputs=2, outputs=1)
    input, order = node.input(0), node.input(1)
    output = node.output(0)
    require_type(input, *TYPES)
    require_same_type(output, input)
    rank = require_rank(input, MAXIMUM_RANK)
    if order.dims != (rank,):
        raise OperatorError(f"has shape {list(order.dims)}, must have {[rank]}", tensor=order.name)
    axes = constant_integers(order, rank)
    if sorted(axes) != list(range(rank)):
        raise OperatorError(f"is {axes}; each dimension from 0 to {rank - 1} must occur once", tensor=order.name)
    shape = [input.dims[axis] for axis in axes]
    if [*shape, *(1 for _ in output.dims[rank:])] != list(output.dims):
        raise OperatorError(f"has shape {list(output.dims)}, must have {shape}", tensor=output.name)
    node.op_data = axes


def _copies(node: Node) -> list[Copy]:
    source = node.eval_input(0).elements.transpose(node.op_data)
    return [(node.eval_output(0).elements.reshape(source.shape), source)]


def _output_shapes(node: StaticNode) -> Shapes:
    return [[node.shape(0)[axis] for axis in node.numbers(1)]]


TRANSPOSE = Registration(
    BuiltinOperator.TRANSPOSE,
    Copying(_copies),
    _prepare,
    requests=tensors(2),
    max_version=6,
    types=TYPES,
    since="560fd3d1d",
    output_shapes=_output_shapes,
    versions={
        9: input_is("FLOAT16"),
        8: Feature("more than 6 dimensions, and BFLOAT16", either(rank_above(6), input_is("BFLOAT16"))),
        7: input_is("INT4"),
        6: Feature("6 dimensions", rank_above(5)),
        5: input_is("INT16"),
        4: Feature("5 dimensions", rank_above(4)),
        3: input_is("BOOL"),
        2: input_is("INT8"),
    },
)
