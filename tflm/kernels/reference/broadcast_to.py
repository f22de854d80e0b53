"""BROADCAST_TO: an input repeated along dimensions of 1; BROADCAST_ARGS: the shape that two shapes broadcast to."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.host_memory import kept
from tflm.kernels.registration import KernelContext, Node, Registration, Run
from tflm.kernels.requests import tensors
from tflm.kernels.support.checks import require_same_type, require_type
from tflm.kernels.support.views import Copy, bind_copy
from tflm.memory.tensor import UNSIZED_TYPES, TfLiteEvalTensor
from tflm.schema.enums import BuiltinOperator, TensorType

MAXIMUM_RANK = 5
BROADCAST_TO_TYPES = tuple(
    type for type in TensorType if type not in UNSIZED_TYPES | {TensorType.INT4, TensorType.RESOURCE}
)
SHAPE_TYPES = (TensorType.INT32, TensorType.INT64)


def _prepare_broadcast_to(context: KernelContext, node: Node) -> None:
    node.expect(inputs=2, outputs=1)
    input, shape = (context.input_tensor(node, i) for i in range(2))
    output = context.output_tensor(node, 0)
    require_type(shape, *SHAPE_TYPES)
    require_type(input, *BROADCAST_TO_TYPES)
    require_same_type(output, input)
    if not shape.is_constant:
        raise OperatorError("must be a constant of the model", tensor=shape.name)
    rank = len(output.dims)
    if rank > MAXIMUM_RANK:
        raise OperatorError(f"has {rank} dimensions, {MAXIMUM_RANK} is the most", tensor=output.name)
    if shape.dims != (rank,) or shape.data.astype(np.int32).tolist() != list(output.dims):
        raise OperatorError(f"has shape {list(output.dims)}, {shape.name!r} says another", tensor=output.name)
    pairs = zip(reversed(input.dims), reversed(output.dims))
    if len(input.dims) > rank or any(n not in (1, wanted) for n, wanted in pairs):
        reason = f"has shape {list(input.dims)}, which does not broadcast to {list(output.dims)}"
        raise OperatorError(reason, tensor=input.name)


def _bind_broadcast_to(context: KernelContext, node: Node) -> Run:
    return bind_copy(context.get_eval_output(node, 0).elements, context.get_eval_input(node, 0).elements)


def _prepare_broadcast_args(context: KernelContext, node: Node) -> None:
    node.expect(inputs=2, outputs=1)
    shapes = [context.input_tensor(node, i) for i in range(2)]
    output = context.output_tensor(node, 0)
    require_type(output, *SHAPE_TYPES)
    for tensor in (*shapes, output):
        require_same_type(tensor, output)
        if len(tensor.dims) != 1:
            raise OperatorError(f"has shape {list(tensor.dims)}, must have one dimension", tensor=tensor.name)


def _bind_broadcast_args(context: KernelContext, node: Node) -> Run:
    shapes = [context.get_eval_input(node, i) for i in range(2)]
    y = context.get_eval_output(node, 0).elements
    # Ones before the first dimension of a shorter shape; and 32 bits of each dimension, as TFLM takes them.
    dims1, dims2, result = (kept(np.ones(y.shape, np.int32)) for _ in range(3))
    ends = [_matched_ends(dims, shape) for dims, shape in zip((dims1, dims2), shapes)]
    given, different = (kept(np.empty(y.shape, np.bool_)) for _ in range(2))

    def run() -> None:
        for dims, numbers in ends:
            dims[...] = numbers
        result[...] = dims2
        np.copyto(result, dims1, where=np.not_equal(dims1, 1, out=given))
        np.not_equal(result, dims2, out=different)
        if np.logical_and(different, np.not_equal(dims2, 1, out=given), out=different).any():
            raise OperatorError("its shapes do not broadcast: two dimensions differ, and neither is 1")
        y[...] = result

    return run


def _matched_ends(dims: npt.NDArray[np.int32], shape: TfLiteEvalTensor) -> Copy:
    count = min(dims.size, shape.elements.size)
    return dims[dims.size - count :], shape.elements[shape.elements.size - count :]


BROADCAST_TO = Registration(
    BuiltinOperator.BROADCAST_TO,
    _bind_broadcast_to,
    _prepare_broadcast_to,
    requests=tensors(2),
    max_version=3,
    types=BROADCAST_TO_TYPES,
    since="afd41a759",
)
BROADCAST_ARGS = Registration(
    BuiltinOperator.BROADCAST_ARGS,
    _bind_broadcast_args,
    _prepare_broadcast_args,
    requests=tensors(2),
    types=SHAPE_TYPES,
    since="afd41a759",
)
