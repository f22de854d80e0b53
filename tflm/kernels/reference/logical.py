"""LOGICAL_AND, LOGICAL_OR and LOGICAL_NOT."""

from __future__ import annotations

import numpy as np

from tflm.kernels.node import KernelContext, Node
from tflm.kernels.overlap import element_wise
from tflm.kernels.registration import Registration
from tflm.kernels.requests import tensors
from tflm.kernels.support.checks import require_type, unary_tensors
from tflm.kernels.support.elementwise import BinaryFunction, bind_binary, bind_unary, require_broadcast
from tflm.schema.enums import BuiltinOperator, TensorType

TYPES = (TensorType.BOOL,)

MAXIMUM_RANK = 4


def _binary(operator: BuiltinOperator, function: BinaryFunction) -> Registration:
    def prepare(context: KernelContext, node: Node) -> None:
        input1, input2, output = node.eval_input(0), node.eval_input(1), node.eval_output(0)
        for tensor in (input1, input2, output):
            require_type(tensor, *TYPES)
        require_broadcast(input1, input2, output, MAXIMUM_RANK)
        node.op_data = function

    return Registration(operator, bind_binary, prepare, types=TYPES, overlap=element_wise)


def _prepare_not(context: KernelContext, node: Node) -> None:
    unary_tensors(node, *TYPES)
    node.op_data = lambda x: x ^ 1


LOGICAL_AND = _binary(BuiltinOperator.LOGICAL_AND, np.bitwise_and)
LOGICAL_OR = _binary(BuiltinOperator.LOGICAL_OR, np.bitwise_or)
LOGICAL_NOT = Registration(
    BuiltinOperator.LOGICAL_NOT, bind_unary, _prepare_not, requests=tensors(), types=TYPES, overlap=element_wise
)
