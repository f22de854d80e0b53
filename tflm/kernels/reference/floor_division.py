"""FLOOR_DIV and FLOOR_MOD of two inputs that broadcast, for float32."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.overlap import element_wise
from tflm.kernels.reference.arithmetic import prepared_tensors
from tflm.kernels.registration import Registration
from tflm.kernels.requests import tensors
from tflm.kernels.support.elementwise import bind_binary
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.version_rules import by_input

Floats = npt.NDArray[np.float32]

TYPES = (TensorType.FLOAT32,)

MAXIMUM_RANK = 4


def _prepare_floor_div(context: KernelContext, node: Node) -> None:
    node.expect(inputs=2)
    _, divisor, _ = prepared_tensors(node, TYPES, MAXIMUM_RANK)

    def floor_div(x1: Floats, x2: Floats) -> npt.NDArray[np.float64]:
        if not x2.all():
            raise OperatorError("has a zero among the divisors", tensor=divisor.name)
        return np.floor(np.divide(x1, x2, dtype=np.float64))

    node.op_data = floor_div


def _prepare_floor_mod(context: KernelContext, node: Node) -> None:
    node.expect(inputs=2)
    prepared_tensors(node, TYPES, MAXIMUM_RANK)
    node.op_data = np.mod


FLOOR_DIV = Registration(
    BuiltinOperator.FLOOR_DIV,
    bind_binary,
    _prepare_floor_div,
    requests=tensors(2),
    max_version=3,
    types=TYPES,
    overlap=element_wise,
    versions=by_input(INT16=3, INT8=3, FLOAT32=2),
)
FLOOR_MOD = Registration(
    BuiltinOperator.FLOOR_MOD,
    bind_binary,
    _prepare_floor_mod,
    requests=tensors(2),
    max_version=2,
    types=TYPES,
    overlap=element_wise,
    versions=by_input(INT16=2, INT8=2),
)
