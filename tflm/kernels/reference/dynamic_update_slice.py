"""DYNAMIC_UPDATE_SLICE: the first input with a slice replaced; the start of the slice is an input as well.

A slice that extends beyond the input is shifted to fit.
"""

from __future__ import annotations

from tflm.errors import OperatorError
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.overlap import first_in_its_place
from tflm.kernels.registration import Registration
from tflm.kernels.requests import tensors
from tflm.kernels.shapes import same_as_input
from tflm.kernels.support.checks import element_count, require_alike, require_rank, require_same_type, require_type
from tflm.kernels.support.views import Copy, Copying, view_of
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.version_rules import Feature, by_input, input_is

TYPES = (TensorType.FLOAT32, TensorType.INT8, TensorType.INT16, TensorType.INT32)
MAXIMUM_RANK = 6
START = 2


def _prepare(context: KernelContext, node: Node) -> None:
    node.expect(inputs=3, outputs=1)
    operand, update, start = (node.input(i) for i in range(3))
    output = node.output(0)
    require_type(operand, *TYPES)
    require_same_type(update, operand)
    require_type(start, TensorType.INT32, TensorType.INT64)
    require_alike(output, operand)
    rank = require_rank(operand, MAXIMUM_RANK)
    if start.dims != (rank,):
        reason = f"has shape {list(start.dims)}, must have one number for each of {rank} dimensions"
        raise OperatorError(reason, tensor=start.name)
    if len(update.dims) != rank or any(part > size for part, size in zip(update.dims, operand.dims)):
        reason = f"has shape {list(update.dims)}, which is not a slice of {list(operand.dims)}"
        raise OperatorError(reason, tensor=update.name)


def _copies(node: Node) -> list[Copy]:
    operand, update, start = (node.eval_input(i) for i in range(3))
    y = node.eval_output(0).elements.reshape(operand.dims)
    if element_count(update) == element_count(operand):
        return [(y, update.elements)]
    first = [min(max(i, 0), size - n) for i, n, size in zip(start.elements.tolist(), update.dims, operand.dims)]
    slices = [slice(i, i + n) for i, n in zip(first, update.dims)]
    return [(y, operand.elements), (view_of(y, slices), update.elements)]


DYNAMIC_UPDATE_SLICE = Registration(
    BuiltinOperator.DYNAMIC_UPDATE_SLICE,
    Copying(_copies, parameters=(START,)),
    _prepare,
    requests=tensors(3),
    max_version=4,
    types=TYPES,
    overlap=first_in_its_place,
    since="62cbc8e3e",
    output_shapes=same_as_input,
    versions={
        **by_input(BFLOAT16=6, INT4=5, INT16=4, FLOAT16=3),
        2: Feature("INT64 indices", input_is("INT64", index=2)),
    },
)
