"""LOGICAL_AND, LOGICAL_OR and LOGICAL_NOT."""

from __future__ import annotations

import numpy as np

from tflm.kernels.arithmetic.numpy_calls import scalar
from tflm.kernels.overlap import element_wise
from tflm.kernels.registration import Bind, KernelContext, Node, Registration, Run
from tflm.kernels.requests import tensors
from tflm.kernels.support.broadcasting import require_broadcast
from tflm.kernels.support.checks import require_alike, require_type
from tflm.kernels.support.elementwise import bind_ufunc, operands
from tflm.kernels.support.views import as_numbers
from tflm.schema.enums import BuiltinOperator, TensorType

TYPES = (TensorType.BOOL,)

MAXIMUM_RANK = 4

TRUE = scalar(1, np.uint8)


def _prepare_binary(context: KernelContext, node: Node) -> None:
    input1, input2 = context.get_eval_input(node, 0), context.get_eval_input(node, 1)
    output = context.get_eval_output(node, 0)
    for tensor in (input1, input2, output):
        require_type(tensor, *TYPES)
    require_broadcast(input1, input2, output, MAXIMUM_RANK)


def _bind_binary(ufunc: np.ufunc) -> Bind:
    def bind(context: KernelContext, node: Node) -> Run:
        return bind_ufunc(operands(context, node), ufunc)

    return bind


def _prepare_not(context: KernelContext, node: Node) -> None:
    node.expect(inputs=1, outputs=1)
    input = context.input_tensor(node, 0)
    output = context.output_tensor(node, 0)
    require_type(input, *TYPES)
    require_alike(output, input)


def _bind_not(context: KernelContext, node: Node) -> Run:
    both = context.get_eval_input(node, 0), context.get_eval_output(node, 0)
    x, y = (as_numbers(tensor.elements.reshape(-1)) for tensor in both)

    def run() -> None:
        np.bitwise_xor(x, TRUE, out=y)

    return run


LOGICAL_AND = Registration(
    BuiltinOperator.LOGICAL_AND, _bind_binary(np.bitwise_and), _prepare_binary, types=TYPES, overlap=element_wise
)
LOGICAL_OR = Registration(
    BuiltinOperator.LOGICAL_OR, _bind_binary(np.bitwise_or), _prepare_binary, types=TYPES, overlap=element_wise
)
LOGICAL_NOT = Registration(
    BuiltinOperator.LOGICAL_NOT,
    _bind_not,
    _prepare_not,
    requests=tensors(),
    types=TYPES,
    overlap=element_wise,
)
