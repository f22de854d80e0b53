"""EQUAL, NOT_EQUAL, GREATER, GREATER_EQUAL, LESS and LESS_EQUAL of two inputs that broadcast.

Quantized integers are compared as the real numbers that they represent, to 31 bits; all others directly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier, Raw
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.overlap import element_wise
from tflm.kernels.registration import Registration
from tflm.kernels.requests import tensors
from tflm.kernels.support.checks import require_same_type, require_scale, require_type
from tflm.kernels.support.elementwise import bind_binary, require_broadcast
from tflm.memory.tensor import TfLiteTensor
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.version_rules import Versions, by_input
from tflm.targets import BOOL, INT, INT32, Struct

ORDERED_TYPES = (TensorType.FLOAT32, TensorType.INT32, TensorType.INT64, TensorType.INT8)
TYPES = {
    **dict.fromkeys(("EQUAL", "NOT_EQUAL"), (*ORDERED_TYPES, TensorType.BOOL)),
    **dict.fromkeys(("GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"), ORDERED_TYPES),
}
UFUNCS: dict[str, np.ufunc] = {
    "EQUAL": np.equal,
    "NOT_EQUAL": np.not_equal,
    "GREATER": np.greater,
    "GREATER_EQUAL": np.greater_equal,
    "LESS": np.less,
    "LESS_EQUAL": np.less_equal,
}

MAXIMUM_RANK = 4
LEFT_SHIFT = 8
"""Quantized integers are shifted left by this many bits before scaling."""

COMPARISON_PARAMS = Struct(
    "ComparisonParams",
    left_shift=INT,
    input1_offset=INT32,
    input1_multiplier=INT32,
    input1_shift=INT,
    input2_offset=INT32,
    input2_multiplier=INT32,
    input2_shift=INT,
    is_broadcast=BOOL,
)

OP_DATA_COMPARISON = Struct("comparisons.cc:OpData", params=COMPARISON_PARAMS)


OUTPUT_TYPES = (TensorType.BOOL, TensorType.INT8, TensorType.UINT8)
"""TFLM writes bools as bytes, regardless of the output's type. Larger elements would stay unset."""


@dataclass(frozen=True)
class QuantizedNumber:
    """An input of a comparison as the real number that it represents; the multiplier is its scale."""

    zero_point: int
    multiplier: QuantizedMultiplier

    def __call__(self, x: npt.NDArray[np.int8]) -> Raw:
        """MultiplyByQuantizedMultiplierSmallerThanOneExp((x - zero_point) << LEFT_SHIFT)."""
        return self.multiplier((x.astype(np.int64) - self.zero_point) << LEFT_SHIFT)


@dataclass(frozen=True)
class Comparison:
    """A comparison of quantized integers, each scaled by its own scale."""

    compare: np.ufunc
    number1: QuantizedNumber
    number2: QuantizedNumber

    def __call__(self, x1: npt.NDArray[np.int8], x2: npt.NDArray[np.int8]) -> npt.NDArray[np.bool_]:
        result: npt.NDArray[np.bool_] = self.compare(self.number1(x1), self.number2(x2))
        return result


def _prepare(context: KernelContext, node: Node) -> None:
    input1, input2 = node.input(0), node.input(1)
    output = node.eval_output(0)
    require_type(input1, *TYPES[node.operator])
    require_same_type(input2, input1)
    require_type(output, *OUTPUT_TYPES)
    require_broadcast(input1, input2, output, MAXIMUM_RANK)
    compare = UFUNCS[node.operator]
    if input1.type == TensorType.INT8:
        node.op_data = Comparison(compare, _quantized_number(input1), _quantized_number(input2))
    elif input1.type == TensorType.BOOL and node.operator == "NOT_EQUAL":
        node.op_data = np.bitwise_xor  # C takes the difference of the bytes
    else:
        node.op_data = compare


def _quantized_number(tensor: TfLiteTensor) -> QuantizedNumber:
    scale = require_scale(tensor)
    if scale >= 1:
        raise OperatorError(f"has scale {scale:g}; only scales below 1 can be compared", tensor=tensor.name)
    return QuantizedNumber(tensor.zero_point, QuantizedMultiplier.of(scale))


def _registration(operator: BuiltinOperator, max_version: int, versions: Versions) -> Registration:
    return Registration(
        operator,
        bind_binary,
        _prepare,
        op_data=OP_DATA_COMPARISON,
        requests=tensors(2, 0),
        max_version=max_version,
        types=TYPES[operator.name],
        overlap=element_wise,
        versions=versions,
    )


EQUAL = _registration(BuiltinOperator.EQUAL, 4, by_input(INT16=5, STRING=3, INT8=2))
NOT_EQUAL = _registration(BuiltinOperator.NOT_EQUAL, 3, by_input(INT16=4, STRING=3, INT8=2))
GREATER = _registration(BuiltinOperator.GREATER, 2, by_input(INT8=2))
GREATER_EQUAL = _registration(BuiltinOperator.GREATER_EQUAL, 3, by_input(INT16=3, INT8=2))
LESS = _registration(BuiltinOperator.LESS, 3, by_input(INT16=3, INT8=2))
LESS_EQUAL = _registration(BuiltinOperator.LESS_EQUAL, 3, by_input(INT8=2))
