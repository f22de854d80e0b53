"""SQUARED_DIFFERENCE of two inputs that broadcast, for float32, int32, int8 and int16."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier, Raw, wrap_int32
from tflm.kernels.arithmetic.requantization import OutputStage, Requantization
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.overlap import element_wise
from tflm.kernels.reference.arithmetic import ARITHMETIC_PARAMS, TYPES, Addend, prepared_tensors
from tflm.kernels.registration import Registration
from tflm.kernels.requests import tensors
from tflm.kernels.support.checks import require_scale, require_symmetric_int16
from tflm.kernels.support.elementwise import bind_binary
from tflm.memory.tensor import TfLiteTensor
from tflm.schema.element_types import ELEMENT_TYPES
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.version_rules import by_input
from tflm.targets import BOOL, Struct

MAXIMUM_RANK = 4
LEFT_SHIFTS = {TensorType.INT8: 7, TensorType.INT16: 0}

OP_DATA_SQUARED_DIFFERENCE = Struct(
    "squared_difference.cc:OpData", requires_broadcast=BOOL, arithmetic_params=ARITHMETIC_PARAMS
)


@dataclass(frozen=True)
class SquaredDifference:
    """The square of a quantized difference; difference and square wrap to 32 bits."""

    addend1: Addend
    addend2: Addend
    output: Requantization

    def __call__(self, x1: npt.NDArray[Any], x2: npt.NDArray[Any]) -> Raw:
        difference = self.addend1(x1) - self.addend2(x2)
        return self.output(wrap_int32(difference * difference))


def squared_difference(x1: npt.NDArray[Any], x2: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The square of the difference of unquantized numbers; integers wrap."""
    result: npt.NDArray[Any] = np.square(x1 - x2)
    return result


def _prepare(context: KernelContext, node: Node) -> None:
    node.expect(inputs=2)
    input1, input2, output = prepared_tensors(node, TYPES, MAXIMUM_RANK)
    node.op_data = _quantized(input1, input2, output) if output.type in LEFT_SHIFTS else squared_difference


def _quantized(input1: TfLiteTensor, input2: TfLiteTensor, output: TfLiteTensor) -> SquaredDifference:
    left_shift = LEFT_SHIFTS[output.type]
    require_symmetric_int16(input1, input2, output)
    twice_largest = 2 * max(require_scale(input1), require_scale(input2))
    # The reference multiplies the output's scale by the power of two in float32.
    divisor = float(np.float32(2 ** (2 * left_shift)) * np.float32(require_scale(output)))
    multiplier = QuantizedMultiplier.of(twice_largest * twice_largest / divisor)
    result = Requantization(multiplier, OutputStage.whole(output.zero_point, ELEMENT_TYPES[output.type].dtype))
    return SquaredDifference(
        Addend.of(input1, left_shift, input1.scale / twice_largest),
        Addend.of(input2, left_shift, input2.scale / twice_largest),
        result,
    )


SQUARED_DIFFERENCE = Registration(
    BuiltinOperator.SQUARED_DIFFERENCE,
    bind_binary,
    _prepare,
    op_data=OP_DATA_SQUARED_DIFFERENCE,
    requests=tensors(2),
    max_version=3,
    types=TYPES,
    overlap=element_wise,
    since="8b9d46929",
    versions=by_input(INT8=2),
)
