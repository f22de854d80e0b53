"""MAXIMUM and MINIMUM of two inputs that broadcast, for float32 and integers; integers are compared as stored."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.kernels.node import KernelContext, Node
from tflm.kernels.overlap import element_wise
from tflm.kernels.registration import Registration
from tflm.kernels.support.checks import require_same_type, require_type
from tflm.kernels.support.elementwise import BinaryFunction, bind_binary, require_broadcast
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.version_rules import BEYOND_FOUR_DIMENSIONS, INT16_ACTIVATIONS, Versions, input_is

TYPES = (TensorType.FLOAT32, TensorType.INT8, TensorType.INT16, TensorType.INT32, TensorType.INT64)


VERSIONS: Versions = {4: INT16_ACTIVATIONS, 3: BEYOND_FOUR_DIMENSIONS, 2: input_is("INT8")}


def larger(x1: npt.NDArray[Any], x2: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """x1 if it is larger, else x2; also for NaN, 0 and -0."""
    return np.where(x1 > x2, x1, x2)


def smaller(x1: npt.NDArray[Any], x2: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """x1 if it is smaller, else x2; also for NaN, 0 and -0."""
    return np.where(x1 < x2, x1, x2)


def _registration(operator: BuiltinOperator, function: BinaryFunction) -> Registration:
    def prepare(context: KernelContext, node: Node) -> None:
        input1, input2, output = node.eval_input(0), node.eval_input(1), node.eval_output(0)
        require_type(output, *TYPES)
        require_same_type(input1, output)
        require_same_type(input2, output)
        require_broadcast(input1, input2, output)
        node.op_data = function

    return Registration(
        operator, bind_binary, prepare, max_version=4, types=TYPES, overlap=element_wise, versions=VERSIONS
    )


MAXIMUM = _registration(BuiltinOperator.MAXIMUM, larger)
MINIMUM = _registration(BuiltinOperator.MINIMUM, smaller)
