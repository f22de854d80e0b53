"""REVERSE_V2: the elements in reverse order along neighbouring dimensions, which other operators may say."""

from __future__ import annotations

import numpy as np

from tflm.errors import OperatorError
from tflm.kernels.registration import KernelContext, Node, Registration, Run
from tflm.kernels.requests import tensors
from tflm.kernels.support.checks import element_count, require_alike, require_axis, require_type
from tflm.kernels.support.parameters import bind_by_parameters
from tflm.kernels.support.views import bind_copy
from tflm.memory.tensor import TfLiteEvalTensor
from tflm.schema.enums import BuiltinOperator, TensorType

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
    input, axis = (context.input_tensor(node, i) for i in range(2))
    output = context.output_tensor(node, 0)
    require_type(input, *TYPES)
    require_alike(output, input)
    require_type(axis, TensorType.INT32)
    rank = len(input.dims)
    if rank > MAXIMUM_RANK:
        raise OperatorError(f"has {rank} dimensions, {MAXIMUM_RANK} is the most", tensor=input.name)
    if len(axis.dims) != 1 or not 0 < element_count(axis) <= rank:
        reason = f"has shape {list(axis.dims)}, must name some of {rank} dimensions"
        raise OperatorError(reason, tensor=axis.name)


def _bind(context: KernelContext, node: Node) -> Run:
    input, axis = (context.get_eval_input(node, i) for i in range(2))
    x = input.elements
    y = context.get_eval_output(node, 0).elements.reshape(x.shape)

    def bind() -> Run:
        return bind_copy(y, np.flip(x, tuple(_reversed_axes(input, axis))))

    return bind_by_parameters([axis], bind)


def _reversed_axes(input: TfLiteEvalTensor, axis: TfLiteEvalTensor) -> range:
    axes = sorted(require_axis(number, len(input.dims), input.name) for number in axis.elements.tolist())
    neighbours = range(axes[0], axes[0] + len(axes))
    if axes != list(neighbours):
        raise OperatorError(f"names the dimensions {axes}, which must be neighbours", tensor=axis.name)
    return neighbours


REVERSE_V2 = Registration(
    BuiltinOperator.REVERSE_V2, _bind, _prepare, requests=tensors(2), max_version=3, types=TYPES, since="41a9c8a6c"
)
