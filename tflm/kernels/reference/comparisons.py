"""Comparisons, MAXIMUM and MINIMUM, LOGICAL_AND, LOGICAL_OR and LOGICAL_NOT, and SELECT_V2; inputs broadcast.

Comparisons take quantized integers as the real numbers that they represent, to 31 bits, and all others directly.
MAXIMUM and MINIMUM compare integers as stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier, Raw
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.overlap import element_wise
from tflm.kernels.registration import Registration, Run
from tflm.kernels.requests import tensors
from tflm.kernels.shapes import broadcast
from tflm.kernels.support.checks import (
    AnyTensor,
    element_count,
    require_one_type,
    require_scale,
    require_type,
    shape_error,
    unary_tensors,
)
from tflm.kernels.support.elementwise import (
    RANK_4D,
    RANK_OF_A_SHAPE,
    BinaryFunction,
    bind_binary,
    bind_unary,
    require_broadcast,
)
from tflm.memory.tensor import TfLiteTensor
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.version_rules import BEYOND_FOUR_DIMENSIONS, INT16_ACTIVATIONS, Versions, by_input, input_is
from tflm.targets import BOOL, INT, INT32, Struct, Until

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


def _prepare_comparison(context: KernelContext, node: Node) -> None:
    input1, input2 = node.input(0), node.input(1)
    output = node.eval_output(0)
    require_one_type(TYPES[node.operator], input1, input2)
    require_type(output, *OUTPUT_TYPES)
    require_broadcast(input1, input2, output, RANK_4D)
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


def _registration_comparison(operator: BuiltinOperator, max_version: int, versions: Versions) -> Registration:
    return Registration(
        operator,
        bind_binary,
        _prepare_comparison,
        op_data=OP_DATA_COMPARISON,
        requests=tensors(2, 0),
        max_version=max_version,
        types=TYPES[operator.name],
        overlap=element_wise,
        versions=versions,
    )


EQUAL = _registration_comparison(BuiltinOperator.EQUAL, 4, by_input(INT16=5, STRING=3, INT8=2))
NOT_EQUAL = _registration_comparison(BuiltinOperator.NOT_EQUAL, 3, by_input(INT16=4, STRING=3, INT8=2))
GREATER = _registration_comparison(BuiltinOperator.GREATER, 2, by_input(INT8=2))
GREATER_EQUAL = _registration_comparison(BuiltinOperator.GREATER_EQUAL, 3, by_input(INT16=3, INT8=2))
LESS = _registration_comparison(BuiltinOperator.LESS, 3, by_input(INT16=3, INT8=2))
LESS_EQUAL = _registration_comparison(BuiltinOperator.LESS_EQUAL, 3, by_input(INT8=2))


EXTREME_TYPES = (TensorType.FLOAT32, TensorType.INT8, TensorType.INT16, TensorType.INT32, TensorType.INT64)


EXTREME_VERSIONS: Versions = {4: INT16_ACTIVATIONS, 3: BEYOND_FOUR_DIMENSIONS, 2: input_is("INT8")}


def larger(x1: npt.NDArray[Any], x2: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """x1 if it is larger, else x2; also for NaN, 0 and -0."""
    return np.where(x1 > x2, x1, x2)


def smaller(x1: npt.NDArray[Any], x2: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """x1 if it is smaller, else x2; also for NaN, 0 and -0."""
    return np.where(x1 < x2, x1, x2)


def _registration_extreme(operator: BuiltinOperator, function: BinaryFunction) -> Registration:
    def prepare(context: KernelContext, node: Node) -> None:
        input1, input2, output = node.eval_input(0), node.eval_input(1), node.eval_output(0)
        require_one_type(EXTREME_TYPES, output, input1, input2)
        require_broadcast(input1, input2, output)
        node.op_data = function

    return Registration(
        operator,
        bind_binary,
        prepare,
        max_version=4,
        types=EXTREME_TYPES,
        overlap=element_wise,
        versions=EXTREME_VERSIONS,
    )


MAXIMUM = _registration_extreme(BuiltinOperator.MAXIMUM, larger)
MINIMUM = _registration_extreme(BuiltinOperator.MINIMUM, smaller)


LOGICAL_TYPES = (TensorType.BOOL,)


def _binary(operator: BuiltinOperator, function: BinaryFunction) -> Registration:
    def prepare(context: KernelContext, node: Node) -> None:
        input1, input2, output = node.eval_input(0), node.eval_input(1), node.eval_output(0)
        for tensor in (input1, input2, output):
            require_type(tensor, *LOGICAL_TYPES)
        require_broadcast(input1, input2, output, RANK_4D)
        node.op_data = function

    return Registration(operator, bind_binary, prepare, types=LOGICAL_TYPES, overlap=element_wise)


def _prepare_not(context: KernelContext, node: Node) -> None:
    unary_tensors(node, *LOGICAL_TYPES)
    node.op_data = lambda x: x ^ 1


LOGICAL_AND = _binary(BuiltinOperator.LOGICAL_AND, np.bitwise_and)
LOGICAL_OR = _binary(BuiltinOperator.LOGICAL_OR, np.bitwise_or)
LOGICAL_NOT = Registration(
    BuiltinOperator.LOGICAL_NOT, bind_unary, _prepare_not, requests=tensors(), types=LOGICAL_TYPES, overlap=element_wise
)


SELECT_RANK = 5
SELECT_TYPES = (TensorType.FLOAT32, TensorType.INT8, TensorType.INT16)

OP_DATA_SELECT = Struct(
    "select.cc:OpData", requires_broadcast=BOOL, has_low_rank_input_condition=Until("2b7a4ad62", BOOL)
)


def _prepare_select(context: KernelContext, node: Node) -> None:
    condition, x, y, output = node.expect_tensors(3)
    require_type(condition, TensorType.BOOL)
    require_one_type(SELECT_TYPES, x, y, output)
    _check_shapes([condition, x, y], output)


def _check_shapes(inputs: list[AnyTensor], output: AnyTensor) -> None:
    try:
        shape = np.broadcast_shapes(*(input.dims for input in inputs))
    except ValueError:
        shapes = ", ".join(str(list(input.dims)) for input in inputs)
        raise OperatorError(f"can't broadcast its inputs of shapes {shapes}") from None
    one_each = all(element_count(tensor) == 1 for tensor in (*inputs, output))
    limit = RANK_OF_A_SHAPE if len({input.dims for input in inputs}) == 1 else SELECT_RANK
    if len(shape) > limit or (output.dims != shape and not one_each):
        raise shape_error(output, f", must have {list(shape)}")


def _bind_select(context: KernelContext, node: Node) -> Run:
    condition, x, y = (node.eval_input(i).elements for i in range(3))
    output = node.eval_output(0).elements.reshape(np.broadcast_shapes(condition.shape, x.shape, y.shape))

    def run() -> None:
        output[...] = np.where(condition, x, y)

    return run


SELECT_V2 = Registration(
    BuiltinOperator.SELECT_V2,
    _bind_select,
    _prepare_select,
    op_data=OP_DATA_SELECT,
    requests=tensors(3),
    max_version=2,
    types=SELECT_TYPES,
    since="286aeb5ff",
    output_shapes=broadcast,
    versions=by_input(UINT32=2),
)
