"""REVERSE_V2: reverses the elements along adjacent dimensions, which are an input."""

from __future__ import annotations

import numpy as np

from tflm.errors import OperatorError
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.registration import Registration
from tflm.kernels.requests import tensors
from tflm.kernels.shapes import require_axis, same_as_input
from tflm.kernels.support.checks import element_count, require_alike, require_rank, require_type
from tflm.kernels.support.views import Copy, Copying
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.version_rules import by_input

MAXIMUM_RANK = 6
TYPES = (
    TensorType.FLOAT32,
    TensorType.INT8,
    TensorType.UINT8,
    TensorType.INT16,
    TensorType.INT32,
    TensorType.INT64,
    TensorType.BOOL,
)


def _prepare(context: KernelContext, node: Node) -> None:
    node.expect(inputs=2, outputs=1)
    input, axis = (node.input(i) for i in range(2))
    output = node.output(0)
    require_type(input, *TYPES)
    require_alike(output, input)
    require_type(axis, TensorType.INT32)
    rank = require_rank(input, MAXIMUM_RANK)
    if len(axis.dims) != 1 or not 0 < element_count(axis) <= rank:
        reason = f"has shape {list(axis.dims)}, must name some of {rank} dimensions"
        raise OperatorError(reason, tensor=axis.name)


def _copies(node: Node) -> list[Copy]:
    input, axis = (node.eval_input(i) for i in range(2))
    axes = tuple(sorted(require_axis(number, len(input.dims), input.name) for number in axis.elements.tolist()))
    if axes != tuple(range(axes[0], axes[0] + len(axes))):
        raise OperatorError(f"has the axes {list(axes)}, which must be adjacent", tensor=axis.name)
    return [(node.eval_output(0).elements.reshape(input.dims), np.flip(input.elements, axes))]


REVERSE_V2 = Registration(
    BuiltinOperator.REVERSE_V2,
    Copying(_copies, parameters=(1,)),
    _prepare,
    requests=tensors(2),
    max_version=3,
    types=TYPES,
    since="41a9c8a6c",
    output_shapes=same_as_input,
    versions=by_input(FLOAT8=4, INT8=3, BOOL=2),
)
