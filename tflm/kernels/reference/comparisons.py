"""EQUAL, NOT_EQUAL, GREATER, GREATER_EQUAL, LESS and LESS_EQUAL of two inputs that broadcast.

Quantized integers are compared as the real numbers that they stand for, to 31 bits; other numbers as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier, Raw
from tflm.kernels.overlap import element_wise
from tflm.kernels.registration import KernelContext, Node, Registration, Run
from tflm.kernels.requests import tensors
from tflm.kernels.support.broadcasting import require_broadcast
from tflm.kernels.support.checks import require_same_type, require_scale, require_type
from tflm.kernels.support.elementwise import bind_binary, bind_ufunc, operands
from tflm.memory.tensor import TfLiteTensor
from tflm.schema.enums import BuiltinOperator, TensorType
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
"""Quantized integers are shifted left by so many bits before they are scaled."""

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
"""TFLM writes truth values as bytes, whatever the output is. Larger elements would get no value."""


@dataclass(frozen=True)
class Comparison:
    """A comparison of quantized integers, each scaled by its own scale."""

    ufunc: np.ufunc
    zero_points: tuple[int, int]
    multipliers: tuple[QuantizedMultiplier, QuantizedMultiplier]

    def __call__(self, a: Raw, b: Raw, scratch: Raw) -> npt.NDArray[Any]:
        for values, zero_point, multiplier in zip((a, b), self.zero_points, self.multipliers):
            np.subtract(values, zero_point, out=values)
            np.left_shift(values, LEFT_SHIFT, out=values)
            multiplier.scale(values, scratch)
        result: npt.NDArray[Any] = self.ufunc(a, b)
        return result


def _prepare(context: KernelContext, node: Node) -> None:
    input1, input2 = context.input_tensor(node, 0), context.input_tensor(node, 1)
    output = context.get_eval_output(node, 0)
    require_type(input1, *TYPES[node.operator])
    require_same_type(input2, input1)
    require_type(output, *OUTPUT_TYPES)
    require_broadcast(input1, input2, output, MAXIMUM_RANK)
    if input1.type == TensorType.INT8:
        node.op_data = Comparison(
            UFUNCS[node.operator],
            (input1.zero_point, input2.zero_point),
            (QuantizedMultiplier.of(_scale_below_one(input1)), QuantizedMultiplier.of(_scale_below_one(input2))),
        )


def _scale_below_one(tensor: TfLiteTensor) -> float:
    scale = require_scale(tensor)
    if scale >= 1:
        raise OperatorError(f"has scale {scale:g}; only scales below 1 can be compared", tensor=tensor.name)
    return scale


def _bind(context: KernelContext, node: Node) -> Run:
    ops = operands(context, node)
    truths = ops._replace(y=ops.y.view(np.bool_))
    if isinstance(node.op_data, Comparison):
        return bind_binary(truths, node.op_data)
    if node.operator == "NOT_EQUAL" and context.get_eval_input(node, 0).type == TensorType.BOOL:
        return bind_ufunc(ops._replace(y=ops.y.view(np.uint8)), np.bitwise_xor)  # C takes the difference of the bytes
    return bind_ufunc(truths, UFUNCS[node.operator])


def _registration(operator: BuiltinOperator, max_version: int) -> Registration:
    return Registration(
        operator,
        _bind,
        _prepare,
        op_data=OP_DATA_COMPARISON,
        requests=tensors(2, 0),
        max_version=max_version,
        types=TYPES[operator.name],
        overlap=element_wise,
    )


EQUAL = _registration(BuiltinOperator.EQUAL, 4)
NOT_EQUAL = _registration(BuiltinOperator.NOT_EQUAL, 3)
GREATER = _registration(BuiltinOperator.GREATER, 2)
GREATER_EQUAL = _registration(BuiltinOperator.GREATER_EQUAL, 3)
LESS = _registration(BuiltinOperator.LESS, 3)
LESS_EQUAL = _registration(BuiltinOperator.LESS_EQUAL, 3)
