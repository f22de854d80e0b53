"""PRELU: x, or x * alpha below zero, with an alpha that broadcasts; for float32, int8 and int16 (alpha of int8)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier, Raw, wrap_int32
from tflm.kernels.arithmetic.requantization import OutputStage, Requantization
from tflm.kernels.host_memory import kept
from tflm.kernels.overlap import element_wise
from tflm.kernels.registration import KernelContext, Node, Registration, Run
from tflm.kernels.requests import tensors
from tflm.kernels.support.broadcasting import require_broadcast
from tflm.kernels.support.checks import require_same_type, require_scale, require_type
from tflm.kernels.support.elementwise import bind_binary, operands
from tflm.schema.element_types import ELEMENT_TYPES
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.targets import INT, INT32, Struct

ALPHA_TYPES = {
    TensorType.FLOAT32: TensorType.FLOAT32,
    TensorType.INT8: TensorType.INT8,
    TensorType.INT16: TensorType.INT8,
}
MAXIMUM_RANK = 4

PRELU_PARAMS = Struct(
    "PreluParams",
    input_offset=INT32,
    alpha_offset=INT32,
    output_offset=INT32,
    output_multiplier_1=INT32,
    output_shift_1=INT,
    output_multiplier_2=INT32,
    output_shift_2=INT,
)


@dataclass(frozen=True)
class Prelu:
    """A function of integers: one multiplier for what is positive, another for products with alpha."""

    input_zero_point: int
    alpha_zero_point: int
    product: QuantizedMultiplier
    output: Requantization

    def __call__(self, a: Raw, b: Raw, scratch: Raw) -> Raw:
        np.subtract(a, self.input_zero_point, out=a)
        np.subtract(b, self.alpha_zero_point, out=b)
        np.multiply(a, b, out=b)
        self.product.scale(wrap_int32(b), scratch)
        negative = a < 0
        self.output.multiplier.scale(a, scratch)
        np.copyto(a, b, where=negative)
        return self.output.stage.clamp(a)


def _prepare(context: KernelContext, node: Node) -> None:
    input, alpha = context.input_tensor(node, 0), context.input_tensor(node, 1)
    output = context.output_tensor(node, 0)
    require_type(input, *ALPHA_TYPES)
    require_same_type(output, input)
    require_type(alpha, ALPHA_TYPES[input.type])
    require_broadcast(input, alpha, output, MAXIMUM_RANK, MAXIMUM_RANK)
    if input.type != TensorType.FLOAT32:
        scale = require_scale(output)
        identity = QuantizedMultiplier.of(input.scale / scale)
        node.op_data = Prelu(
            input.zero_point,
            alpha.zero_point,
            QuantizedMultiplier.of(input.scale * alpha.scale / scale),
            Requantization(identity, OutputStage.whole(output.zero_point, ELEMENT_TYPES[input.type].dtype)),
        )


def _bind(context: KernelContext, node: Node) -> Run:
    ops = operands(context, node)
    if isinstance(node.op_data, Prelu):
        return bind_binary(ops, node.op_data)
    positive, negative = kept(np.empty((2, *ops.y.shape), np.bool_))

    def run() -> None:
        ops.refresh()
        np.greater_equal(ops.x1, 0, out=positive)
        np.logical_not(positive, out=negative)
        np.multiply(ops.x1, ops.x2, out=ops.y, where=negative)  # in two parts: the output may lie on an input
        np.copyto(ops.y, ops.x1, where=positive)

    return run


PRELU = Registration(
    BuiltinOperator.PRELU,
    _bind,
    _prepare,
    op_data=PRELU_PARAMS,
    requests=tensors(2),
    types=tuple(ALPHA_TYPES),
    overlap=element_wise,
)
