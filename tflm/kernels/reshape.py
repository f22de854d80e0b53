"""RESHAPE: the same elements under another shape. The shape that counts is the output tensor's own."""

from __future__ import annotations

import math

import numpy as np

from tflm.errors import OperatorError
from tflm.kernels.checks import element_count, require_alike
from tflm.kernels.registration import KernelContext, Node, Registration, Run
from tflm.memory.tensor import TfLiteEvalTensor
from tflm.schema.enums import BuiltinOperator
from tflm.targets import INT32, Array, Struct

TFLITE_RESHAPE_PARAMS = Struct("TfLiteReshapeParams", shape=Array(INT32, 8), num_dimensions=INT32)


def _prepare(context: KernelContext, node: Node) -> None:
    node.expect(inputs=range(1, 3), outputs=1)
    input = context.allocate_temp_input_tensor(node, 0)
    context.allocate_temp_output_tensor(node, 0)
    output = context.get_eval_output(node, 0)
    if len(node.inputs) == 1 and output.dims == (0,):
        output.dims = ()  # how old writers say scalar
    if -1 in output.dims:
        context.make_dims_writable(output)
        output.dims = _stretched(output, element_count(input))
    require_alike(output, input)


def _stretched(output: TfLiteEvalTensor, elements: int) -> tuple[int, ...]:
    """The output's shape, with its one dimension of -1 made as large as the elements need."""
    others = math.prod(dimension for dimension in output.dims if dimension != -1)
    if output.dims.count(-1) > 1 or others <= 0:
        reason = f"has shape {list(output.dims)}; one dimension at the most can be left open, none can be 0"
        raise OperatorError(reason, tensor=output.name)
    return tuple(elements // others if dimension == -1 else dimension for dimension in output.dims)


def _bind(context: KernelContext, node: Node) -> Run:
    x = context.get_eval_input(node, 0).elements.reshape(-1)
    y = context.get_eval_output(node, 0).elements.reshape(-1)

    def run() -> None:
        np.copyto(y, x)

    return run


RESHAPE = Registration(BuiltinOperator.RESHAPE, _bind, _prepare, builtin_data=TFLITE_RESHAPE_PARAMS)
