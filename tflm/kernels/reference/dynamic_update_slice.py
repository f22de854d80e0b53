"""DYNAMIC_UPDATE_SLICE: an input in which a slice is replaced, from an index that may come from another operator.

The elements are float32, int8, int16 or int32. A slice that would reach beyond the input is moved inside.
"""

from __future__ import annotations

from tflm.errors import OperatorError
from tflm.kernels.overlap import first_in_its_place
from tflm.kernels.registration import KernelContext, Node, Registration, Run
from tflm.kernels.requests import tensors
from tflm.kernels.support.checks import element_count, require_alike, require_same_type, require_type
from tflm.kernels.support.parameters import bind_by_parameters
from tflm.kernels.support.views import bind_copies, bind_copy, view_of
from tflm.schema.enums import BuiltinOperator, TensorType

TYPES = (TensorType.FLOAT32, TensorType.INT8, TensorType.INT16, TensorType.INT32)
MAXIMUM_RANK = 6


def _prepare(context: KernelContext, node: Node) -> None:
    node.expect(inputs=3, outputs=1)
    operand, update, start = (context.input_tensor(node, i) for i in range(3))
    output = context.output_tensor(node, 0)
    require_type(operand, *TYPES)
    require_same_type(update, operand)
    require_type(start, TensorType.INT32, TensorType.INT64)
    require_alike(output, operand)
    rank = len(operand.dims)
    if rank > MAXIMUM_RANK:
        raise OperatorError(f"has {rank} dimensions, {MAXIMUM_RANK} is the most", tensor=operand.name)
    if start.dims != (rank,):
        reason = f"has shape {list(start.dims)}, must have one number for each of {rank} dimensions"
        raise OperatorError(reason, tensor=start.name)
    if len(update.dims) != rank or any(part > size for part, size in zip(update.dims, operand.dims)):
        reason = f"has shape {list(update.dims)}, which is no slice of {list(operand.dims)}"
        raise OperatorError(reason, tensor=update.name)


def _bind(context: KernelContext, node: Node) -> Run:
    operand, update, start = (context.get_eval_input(node, i) for i in range(3))
    y = context.get_eval_output(node, 0).elements.reshape(operand.dims)
    if element_count(update) == element_count(operand):
        return bind_copy(y, update.elements)

    def bind() -> Run:
        slices = []
        for first, part, size in zip(start.elements.tolist(), update.dims, operand.dims):
            inside = min(max(first, 0), size - part)
            slices.append(slice(inside, inside + part))
        return bind_copies([(y, operand.elements), (view_of(y, slices), update.elements)])

    return bind_by_parameters([start], bind)


DYNAMIC_UPDATE_SLICE = Registration(
    BuiltinOperator.DYNAMIC_UPDATE_SLICE,
    _bind,
    _prepare,
    requests=tensors(3),
    max_version=4,
    types=TYPES,
    overlap=first_in_its_place,
    since="62cbc8e3e",
)
