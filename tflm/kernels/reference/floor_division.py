"""FLOOR_DIV and FLOOR_MOD of two inputs that broadcast, for float32."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.overlap import element_wise
from tflm.kernels.reference.arithmetic import prepared_tensors
from tflm.kernels.registration import KernelContext, Node, Registration, Run
from tflm.kernels.requests import tensors
from tflm.kernels.support.elementwise import bind_binary, bind_ufunc, operands
from tflm.schema.enums import BuiltinOperator, TensorType

TYPES = (TensorType.FLOAT32,)

MAXIMUM_RANK = 4


def _prepare(context: KernelContext, node: Node) -> None:
    node.expect(inputs=2)
    prepared_tensors(context, node, TYPES, MAXIMUM_RANK)


def _bind_floor_div(context: KernelContext, node: Node) -> Run:
    divisor = context.get_eval_input(node, 1)

    def quotient(
        a: npt.NDArray[np.float64], b: npt.NDArray[np.float64], scratch: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.float64]:
        if not b.all():
            raise OperatorError("has a zero among the divisors", tensor=divisor.name)
        np.divide(a, b, out=a)
        return np.floor(a, out=a)

    return bind_binary(operands(context, node), quotient, np.float64)  # quotients are worked out in float64


def _bind_floor_mod(context: KernelContext, node: Node) -> Run:
    return bind_ufunc(operands(context, node), np.mod)


FLOOR_DIV = Registration(
    BuiltinOperator.FLOOR_DIV,
    _bind_floor_div,
    _prepare,
    requests=tensors(2),
    max_version=3,
    types=TYPES,
    overlap=element_wise,
)
FLOOR_MOD = Registration(
    BuiltinOperator.FLOOR_MOD,
    _bind_floor_mod,
    _prepare,
    requests=tensors(2),
    max_version=2,
    types=TYPES,
    overlap=element_wise,
)
