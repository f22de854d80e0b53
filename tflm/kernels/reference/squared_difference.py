"""SQUARED_DIFFERENCE of two inputs that broadcast, for float32, int32, int8 and int16."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier, Raw, wrap_int32
from tflm.kernels.arithmetic.requantization import OutputStage, Requantization
from tflm.kernels.overlap import element_wise
from tflm.kernels.reference.arithmetic import ARITHMETIC_PARAMS, TYPES, Term, prepared_tensors
from tflm.kernels.registration import KernelContext, Node, Registration, Run
from tflm.kernels.requests import tensors
from tflm.kernels.support.checks import require_scale, require_zero_point
from tflm.kernels.support.elementwise import bind_binary, operands
from tflm.memory.tensor import TfLiteTensor
from tflm.schema.element_types import ELEMENT_TYPES
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.targets import BOOL, Struct

MAXIMUM_RANK = 4
LEFT_SHIFTS = {TensorType.INT8: 7, TensorType.INT16: 0}

OP_DATA_SQUARED_DIFFERENCE = Struct(
    "squared_difference.cc:OpData", requires_broadcast=BOOL, arithmetic_params=ARITHMETIC_PARAMS
)


@dataclass(frozen=True)
class SquaredDifference:
    """The square of a quantized difference; difference and square wrap to 32 bits."""

    term1: Term
    term2: Term
    output: Requantization

    def __call__(self, a: Raw, b: Raw, scratch: Raw) -> Raw:
        self.term1.rescale(a, scratch)
        self.term2.rescale(b, scratch)
        np.subtract(a, b, out=a)
        np.multiply(a, a, out=a)
        return self.output.in_place(wrap_int32(a), scratch)


def _prepare(context: KernelContext, node: Node) -> None:
    node.expect(inputs=2)
    input1, input2, output = prepared_tensors(context, node, TYPES, MAXIMUM_RANK)
    if output.type in LEFT_SHIFTS:
        node.op_data = _quantized(input1, input2, output)


def _quantized(input1: TfLiteTensor, input2: TfLiteTensor, output: TfLiteTensor) -> SquaredDifference:
    left_shift = LEFT_SHIFTS[output.type]
    if output.type == TensorType.INT16:
        for tensor in (input1, input2, output):
            require_zero_point(tensor, 0)
    twice_largest = 2 * max(require_scale(input1), require_scale(input2))
    terms = [
        Term(input.zero_point, left_shift, QuantizedMultiplier.of(input.scale / twice_largest))
        for input in (input1, input2)
    ]
    # The reference multiplies the output's scale by the power of two in float32.
    divisor = float(np.float32(2 ** (2 * left_shift)) * np.float32(require_scale(output)))
    multiplier = QuantizedMultiplier.of(twice_largest * twice_largest / divisor)
    result = Requantization(multiplier, OutputStage.whole(output.zero_point, ELEMENT_TYPES[output.type].dtype))
    return SquaredDifference(terms[0], terms[1], result)


def _bind(context: KernelContext, node: Node) -> Run:
    ops = operands(context, node)
    if isinstance(node.op_data, SquaredDifference):
        return bind_binary(ops, node.op_data)

    def run() -> None:
        ops.refresh()
        np.subtract(ops.x1, ops.x2, out=ops.y)
        np.multiply(ops.y, ops.y, out=ops.y)

    return run


SQUARED_DIFFERENCE = Registration(
    BuiltinOperator.SQUARED_DIFFERENCE,
    _bind,
    _prepare,
    op_data=OP_DATA_SQUARED_DIFFERENCE,
    requests=tensors(2),
    max_version=3,
    types=TYPES,
    overlap=element_wise,
    since="8b9d46929",
)
