"""MAXIMUM and MINIMUM of two inputs that broadcast, for float32 and integers; the stored numbers are compared."""

from __future__ import annotations

import numpy as np

from tflm.kernels.host_memory import kept
from tflm.kernels.overlap import element_wise
from tflm.kernels.registration import Bind, KernelContext, Node, Registration, Run
from tflm.kernels.support.broadcasting import require_broadcast
from tflm.kernels.support.checks import require_same_type, require_type
from tflm.kernels.support.elementwise import bind_ufunc, operands
from tflm.schema.enums import BuiltinOperator, TensorType

TYPES = (TensorType.FLOAT32, TensorType.INT8, TensorType.INT16, TensorType.INT32, TensorType.INT64)


def _prepare(context: KernelContext, node: Node) -> None:
    input1, input2 = context.get_eval_input(node, 0), context.get_eval_input(node, 1)
    output = context.get_eval_output(node, 0)
    require_type(output, *TYPES)
    require_same_type(input1, output)
    require_same_type(input2, output)
    require_broadcast(input1, input2, output)


def _bind_with(choose: np.ufunc, compare: np.ufunc) -> Bind:
    """The chosen integers. Of floats the first input where the comparison holds, else the second: for nan and -0."""

    def bind(context: KernelContext, node: Node) -> Run:
        ops = operands(context, node)
        if ops.y.dtype.kind != "f":
            return bind_ufunc(ops, choose)
        first, second = kept(np.empty((2, *ops.y.shape), np.bool_))

        def run() -> None:
            ops.refresh()
            compare(ops.x1, ops.x2, out=first)
            np.logical_not(first, out=second)
            np.copyto(ops.y, ops.x1, where=first)  # in two parts, since the output may lie on either input
            np.copyto(ops.y, ops.x2, where=second)

        return run

    return bind


MAXIMUM = Registration(
    BuiltinOperator.MAXIMUM,
    _bind_with(np.maximum, np.greater),
    _prepare,
    max_version=4,
    types=TYPES,
    overlap=element_wise,
)
MINIMUM = Registration(
    BuiltinOperator.MINIMUM, _bind_with(np.minimum, np.less), _prepare, max_version=4, types=TYPES, overlap=element_wise
)
