"""L2_NORMALIZATION: along the last dimension, elements over the root of the sum of their squares.

Elements are float32, or int8: these give int8 at a scale of 1/128 and zero point 0, whatever the output's may be.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.arithmetic.fixed_point import inverse_square_root, wrap_int32
from tflm.kernels.arithmetic.numpy_calls import einsum
from tflm.kernels.host_memory import kept
from tflm.kernels.layers.product import Scratch, blocks
from tflm.kernels.layers.windows import in_turn
from tflm.kernels.overlap import row_wise
from tflm.kernels.registration import KernelContext, Node, Registration, Run
from tflm.kernels.requests import tensors
from tflm.kernels.support.activation import TFLITE_FUSED_ACTIVATION, fused_activation
from tflm.kernels.support.checks import require_same_type, require_type
from tflm.kernels.support.views import apart
from tflm.schema.enums import ActivationFunctionType, BuiltinOperator, TensorType
from tflm.schema.options import L2NormOptions
from tflm.targets import INT32, Struct

MAXIMUM_RANK = 4
SMALLEST_NORM = np.float32(1e-6)
OUTPUT_BITS = 7
"""The output is in Q0.7."""

ELEMENTS_IN_A_BLOCK = 1 << 13
ROWS_IN_A_BLOCK = 1 << 8

TYPES = (TensorType.FLOAT32, TensorType.INT8)

TFLITE_L2_NORM_PARAMS = Struct("TfLiteL2NormParams", activation=TFLITE_FUSED_ACTIVATION)
L2_NORMALIZATION_PARAMS = Struct("L2NormalizationParams", input_zero_point=INT32)


def _prepare(context: KernelContext, node: Node) -> None:
    """The op data is the input's zero point."""
    node.expect(inputs=1, outputs=1)
    input = context.input_tensor(node, 0)
    output = context.output_tensor(node, 0)
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
    x, y = (t.elements for t in (context.get_eval_input(node, 0), context.get_eval_output(node, 0)))
    x, y = (a.reshape(-1, a.shape[-1]) if a.size else a.reshape(0, 0) for a in (x, y))
    if x.dtype == np.float32:
        return _bind_float(x, y)
    scratch = Scratch(np.dtype(np.int64))
    rows = min(max(ELEMENTS_IN_A_BLOCK // max(x.shape[1], 1), 1), ROWS_IN_A_BLOCK)
    return in_turn(*(_bind_int8(x[block], y[block], node.op_data, scratch) for block in blocks(x.shape[:1], rows)))


def _bind_float(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> Run:
    norms = kept(np.empty(len(x), np.float32))
    column = norms[:, np.newaxis]
    x, copies = apart(x, y, except_in_place=False)

    def run() -> None:
        for copy, original in copies:
            np.copyto(copy, original)
        einsum("rd,rd->r", x, x, out=norms)
        np.sqrt(norms, out=norms)
        np.maximum(norms, SMALLEST_NORM, out=norms)
        np.copyto(y, column)
        with np.errstate(invalid="ignore"):  # an infinite element has no direction
            np.divide(x, y, out=y)

    return run


def _bind_int8(x: npt.NDArray[Any], y: npt.NDArray[Any], zero_point: int, scratch: Scratch) -> Run:
    values, work, factors, halves, rights = (
        scratch.array(name, *x.shape) for name in ("values", "work", "factors", "halves", "rights")
    )
    sums = scratch.array("sums", len(x))
    is_single = len(x) == 1

    def run() -> None:
        np.copyto(values, x)
        np.subtract(values, zero_point, out=values)
        np.multiply(values, values, out=work)
        np.add.reduce(work, axis=1, out=sums)
        wrap_int32(sums)
        significand, shift = inverse_square_root(int(sums[0]) if is_single else sums[:, np.newaxis])
        left = np.maximum(shift + OUTPUT_BITS, 0)
        right = left - (shift + OUTPUT_BITS)
        np.copyto(factors, significand << left)
        np.copyto(halves, (1 << right) >> 1)
        np.copyto(rights, right)
        np.multiply(values, factors, out=values)
        np.add(values, 1 << 30, out=values)
        np.right_shift(values, 31, out=values)
        # Where it is shifted at all, half is rounded away from zero: the sign of a negative value, -1, is taken off.
        np.right_shift(values, 63, out=work)
        np.minimum(halves, 1, out=factors)
        np.multiply(work, factors, out=work)
        np.add(values, work, out=values)
        np.add(values, halves, out=values)
        np.right_shift(values, rights, out=values)
        np.maximum(values, -128, out=values)
        np.minimum(values, 127, out=values)
        np.copyto(y, values, casting="unsafe")

    return run


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
)
