"""BROADCAST_TO: the input broadcast to a shape; BROADCAST_ARGS: the shape that two shapes broadcast to."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.registration import Registration, Run
from tflm.kernels.requests import tensors
from tflm.kernels.shapes import from_values
from tflm.kernels.support.checks import require_rank, require_same_type, require_type
from tflm.kernels.support.views import Copy, Copying
from tflm.memory.tensor import UNSIZED_TYPES
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.version_rules import Feature, by_input

MAXIMUM_RANK = 5
BROADCAST_TO_TYPES = tuple(
    type for type in TensorType if type not in UNSIZED_TYPES | {TensorType.INT4, TensorType.RESOURCE}
)
SHAPE_TYPES = (TensorType.INT32, TensorType.INT64)


def _prepare_broadcast_to(context: KernelContext, node: Node) -> None:
    node.expect(inputs=2, outputs=1)
    input, shape = (node.input(i) for i in range(2))
    output = node.output(0)
    require_type(shape, *SHAPE_TYPES)
    require_type(input, *BROADCAST_TO_TYPES)
    require_same_type(output, input)
    if not shape.is_constant:
        raise OperatorError("must be a constant of the model", tensor=shape.name)
    rank = require_rank(output, MAXIMUM_RANK)
    if shape.dims != (rank,) or shape.data.astype(np.int32).tolist() != list(output.dims):
        raise OperatorError(f"has shape {list(output.dims)}, which is not that of {shape.name!r}", tensor=output.name)
    pairs = zip(reversed(input.dims), reversed(output.dims))
    if len(input.dims) > rank or any(n not in (1, wanted) for n, wanted in pairs):
        reason = f"has shape {list(input.dims)}, which does not broadcast to {list(output.dims)}"
        raise OperatorError(reason, tensor=input.name)


def _copies(node: Node) -> list[Copy]:
    return [(node.eval_output(0).elements, node.eval_input(0).elements)]


def _prepare_broadcast_args(context: KernelContext, node: Node) -> None:
    node.expect(inputs=2, outputs=1)
    shapes = [node.input(i) for i in range(2)]
    output = node.output(0)
    require_type(output, *SHAPE_TYPES)
    for tensor in (*shapes, output):
        require_same_type(tensor, output)
        if len(tensor.dims) != 1:
            raise OperatorError(f"has shape {list(tensor.dims)}, must have one dimension", tensor=tensor.name)


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
    Copying(_copies),
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
