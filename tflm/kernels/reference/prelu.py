"""PRELU: x, or x * alpha below zero, with an alpha that broadcasts; for float32, int8 and int16 (alpha of int8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier, Raw, wrap_int32
from tflm.kernels.arithmetic.requantization import OutputStage, Requantization
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.overlap import element_wise
from tflm.kernels.registration import Registration
from tflm.kernels.requests import tensors
from tflm.kernels.support.checks import require_same_type, require_scale, require_type
from tflm.kernels.support.elementwise import bind_binary, require_broadcast
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
    """A function of integers: one multiplier (`output`) for positive values, another for products with alpha."""

    input_zero_point: int
    alpha_zero_point: int
    product: QuantizedMultiplier
    output: Requantization

    def __call__(self, x: npt.NDArray[Any], alpha: npt.NDArray[Any]) -> Raw:
        value = x.astype(np.int64) - self.input_zero_point
        product = wrap_int32(value * (alpha.astype(np.int64) - self.alpha_zero_point))
        return np.where(value >= 0, self.output(value), self.output.stage.clamp(self.product(product)))


def float_prelu(x: npt.NDArray[np.float32], alpha: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """x, or x * alpha below zero."""
    return np.where(x >= 0, x, x * alpha)


def _prepare(context: KernelContext, node: Node) -> None:
    input, alpha = node.input(0), node.input(1)
    output = node.output(0)
    require_type(input, *ALPHA_TYPES)
    require_same_type(output, input)
    require_type(alpha, ALPHA_TYPES[input.type])
    require_broadcast(input, alpha, output, MAXIMUM_RANK, MAXIMUM_RANK)
    if input.type == TensorType.FLOAT32:
        node.op_data = float_prelu
        return
    scale = require_scale(output)
    identity = QuantizedMultiplier.of(input.scale / scale)
    node.op_data = Prelu(
        input.zero_point,
        alpha.zero_point,
        QuantizedMultiplier.of(input.scale * alpha.scale / scale),
        Requantization(identity, OutputStage.whole(output.zero_point, ELEMENT_TYPES[input.type].dtype)),
    )


PRELU = Registration(
    BuiltinOperator.PRELU,
    bind_binary,
    _prepare,
    op_data=PRELU_PARAMS,
    requests=tensors(2),
    types=tuple(ALPHA_TYPES),
    overlap=element_wise,
)
