"""L2_NORMALIZATION: along the last dimension, elements over the root of the sum of their squares.

Elements are float32 or int8. An int8 output has scale 1/128 and zero point 0, whatever the tensor's quantization says.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.arithmetic.fixed_point import (
    Raw,
    inverse_square_root,
    multiply_by_quantized_multiplier,
    wrap_int32,
)
from tflm.kernels.arithmetic.numpy_calls import clip, einsum
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.overlap import row_wise
from tflm.kernels.registration import Registration, Run
from tflm.kernels.requests import tensors
from tflm.kernels.support.activation import TFLITE_FUSED_ACTIVATION, fused_activation
from tflm.kernels.support.checks import require_same_type, require_type
from tflm.schema.enums import ActivationFunctionType, BuiltinOperator, TensorType
from tflm.schema.options import L2NormOptions
from tflm.schema.version_rules import output_is
from tflm.targets import INT32, Struct

MAXIMUM_RANK = 4
SMALLEST_NORM = np.float32(1e-6)
OUTPUT_BITS = 7
"""The output is in Q0.7."""

TYPES = (TensorType.FLOAT32, TensorType.INT8)

TFLITE_L2_NORM_PARAMS = Struct("TfLiteL2NormParams", activation=TFLITE_FUSED_ACTIVATION)
L2_NORMALIZATION_PARAMS = Struct("L2NormalizationParams", input_zero_point=INT32)


def _prepare(context: KernelContext, node: Node) -> None:
    """The op data is the input's zero point."""
    node.expect(inputs=1, outputs=1)
    input = node.input(0)
    output = node.output(0)
    require_type(output, *TYPES)
    require_same_type(input, output)
    if not 1 <= len(input.dims) <= MAXIMUM_RANK:
        raise OperatorError(
            f"has shape {list(input.dims)}, must have 1 to {MAXIMUM_RANK} dimensions", tensor=input.name
        )
    if output.dims != input.dims:
        reason = f"has shape {list(output.dims)}, must have the input's {list(input.dims)}"
        raise OperatorError(reason, tensor=output.name)
    if fused_activation(node, L2NormOptions) != ActivationFunctionType.NONE:
        raise OperatorError("has a fused activation function, none is supported")
    node.op_data = input.zero_point


def _bind(context: KernelContext, node: Node) -> Run:
    x, y, zero_point = node.eval_input(0).elements, node.eval_output(0).elements, node.op_data

    def run() -> None:
        y[...] = normalized_float32(x) if x.dtype == np.float32 else normalized_int8(x, zero_point)

    return run


def normalized_float32(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """x over its norm along the last dimension."""
    norms = np.sqrt(einsum("...d,...d->...", x, x))[..., np.newaxis]
    with np.errstate(invalid="ignore"):  # an infinite norm
        quotients: npt.NDArray[np.float32] = x / np.maximum(norms, SMALLEST_NORM)
    return quotients


def normalized_int8(x: npt.NDArray[np.int8], zero_point: int) -> Raw:
    """The same in Q0.7, with the reciprocal of the norm as a quantized multiplier."""
    values = x.astype(np.int64) - zero_point
    squares = wrap_int32((values * values).sum(axis=-1, keepdims=True, dtype=np.int64))
    significand, shift = inverse_square_root(squares)  # GetInvSqrtQuantizedMultiplierExp
    return clip(multiply_by_quantized_multiplier(values, significand, shift + OUTPUT_BITS), -128, 127)


L2_NORMALIZATION = Registration(
    BuiltinOperator.L2_NORMALIZATION,
    _bind,
    _prepare,
    op_data=L2_NORMALIZATION_PARAMS,
    requests=tensors(),
    builtin_data=TFLITE_L2_NORM_PARAMS,
    max_version=2,
    types=TYPES,
    overlap=row_wise,
    versions={2: output_is("INT8")},
)
