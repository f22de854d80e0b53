"""BATCH_MATMUL: matrix products over batches, for float32, int8 and int16.

The left side is (batches..., rows, depth), the right side (batches..., depth, columns); either may have its last two
dimensions swapped ("adjoint"). Batches broadcast.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier, WideQuantizedMultiplier, quantize_multiplier
from tflm.kernels.arithmetic.requantization import OutputStage
from tflm.kernels.layers.float_product import BiasAndActivation, FloatWeights
from tflm.kernels.layers.integer_product import IntegerWeights, SumRequantizer
from tflm.kernels.layers.product import Finish, Weights, bind_product
from tflm.kernels.registration import KernelContext, Node, Registration, Run, Shape
from tflm.kernels.requests import NodeView, PersistentBuffer, Request, tensors, writable_dims
from tflm.kernels.support.checks import (
    element_count,
    require_same_type,
    require_scale,
    require_type,
    require_zero_point,
)
from tflm.memory.tensor import TFLITE_EVAL_TENSOR, TfLiteTensor, int_array_bytes
from tflm.schema.element_types import ELEMENT_TYPES
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.options import BatchMatMulOptions
from tflm.targets import BOOL, INT, INT32, POINTER, Struct

LEFT, RIGHT = range(2)
TYPES = (TensorType.FLOAT32, TensorType.INT8, TensorType.INT16)
RANKS = range(2, 6)

TFLITE_BATCH_MATMUL_PARAMS = Struct("TfLiteBatchMatMulParams", adj_x=BOOL, adj_y=BOOL, asymmetric_quantize_inputs=BOOL)
OP_DATA_BATCH_MATMUL = Struct(
    "OpDataBatchMatmul",
    quantization=POINTER,
    lhs_transposed_tensor=POINTER,
    rhs_transposed_tensor=POINTER,
    rhs_is_transposed=BOOL,
    lhs_is_constant_tensor=BOOL,
    rhs_is_constant_tensor=BOOL,
)
QUANTIZATION_OP_DATA_BATCH_MATMUL = Struct(
    "QuantizationOpDataBatchMatmul",
    output_multiplier=INT32,
    output_shift=INT,
    output_activation_min=INT32,
    output_activation_max=INT32,
    lhs_zero_point=INT32,
    rhs_zero_point=INT32,
    output_zero_point=INT32,
)


@dataclass
class OpData:
    """The multiplier (significand in Q0.31, shift) and the zero points of the integers."""

    significand: int
    shift: int
    left_zero_point: int
    right_zero_point: int
    output_zero_point: int


def _prepare(context: KernelContext, node: Node) -> None:
    node.expect(inputs=2, outputs=1)
    left, right = (context.input_tensor(node, i) for i in (LEFT, RIGHT))
    output = context.output_tensor(node, 0)
    require_type(left, *TYPES)
    for tensor in (right, output):
        require_same_type(tensor, left)
    for tensor in (left, right):
        if len(tensor.dims) not in RANKS:
            reason = f"has shape {list(tensor.dims)}, must have {RANKS[0]} to {RANKS[-1]} dimensions"
            raise OperatorError(reason, tensor=tensor.name)
    options = node.options(BatchMatMulOptions) or BatchMatMulOptions()
    if left.type != TensorType.FLOAT32:
        node.op_data = _quantization(left, right, output)
    shape = _output_shape(left, right, options)
    if len(shape) > len(output.dims) or math.prod(shape) != element_count(output):
        reason = f"has shape {list(output.dims)}, the product has {list(shape)}"
        raise OperatorError(reason, tensor=output.name)
    # The shape in the model does not count.
    context.allocate_requested(node)
    context.get_eval_output(node, 0).dims = shape


def _requests(node: NodeView) -> Iterator[Request]:
    yield from tensors(2)(node)
    if node.input(LEFT).type != TensorType.FLOAT32:
        yield quantization_request(node)
    yield from transposed_requests(node)
    yield writable_dims(node.output(0))


def quantization_request(node: NodeView) -> PersistentBuffer:
    """The constants of integers."""
    return PersistentBuffer("quantization", QUANTIZATION_OP_DATA_BATCH_MATMUL.size(node.target))


def _quantization(left: TfLiteTensor, right: TfLiteTensor, output: TfLiteTensor) -> OpData:
    if left.type == TensorType.INT16:
        for tensor in (left, right, output):
            require_zero_point(tensor, 0)
    significand, shift = quantize_multiplier(left.scale * right.scale / require_scale(output))
    return OpData(significand, shift, left.zero_point, right.zero_point, output.zero_point)


def transposed_requests(node: NodeView) -> Iterator[Request]:
    """TFLM multiplies rows by rows: what does not lie so gets a place to be transposed to."""
    options = node.options(BatchMatMulOptions)
    for index, is_transposed in ((LEFT, options.adj_x), (RIGHT, not options.adj_y)):
        if is_transposed:
            tensor = node.input(index)
            yield PersistentBuffer(f"transposed tensor {index}", TFLITE_EVAL_TENSOR.size(node.target))
            yield PersistentBuffer(f"transposed dims {index}", int_array_bytes(len(tensor.dims)))
            yield PersistentBuffer(
                f"transposed {index}", element_count(tensor) * ELEMENT_TYPES[tensor.type].dtype.itemsize
            )


def _output_shape(left: TfLiteTensor, right: TfLiteTensor, options: BatchMatMulOptions) -> tuple[int, ...]:
    rows, depth = _swapped(left.dims[-2:], options.adj_x)
    right_depth, columns = _swapped(right.dims[-2:], options.adj_y)
    if depth != right_depth:
        reason = f"has shape {list(left.dims)}, whose depth of {depth} is not that of {list(right.dims)}, {right_depth}"
        raise OperatorError(reason, tensor=left.name)
    try:
        batches = np.broadcast_shapes(left.dims[:-2], right.dims[:-2])
    except ValueError:
        reason = f"has batches {list(left.dims[:-2])}, which do not broadcast with {list(right.dims[:-2])}"
        raise OperatorError(reason, tensor=left.name) from None
    return (*batches, rows, columns)


def _swapped(pair: tuple[int, ...], swap: bool) -> tuple[int, ...]:
    return pair[::-1] if swap else pair


def _bind(context: KernelContext, node: Node) -> Run:
    left, right = (context.get_eval_input(node, i) for i in (LEFT, RIGHT))
    y = context.get_eval_output(node, 0).elements
    options = node.options(BatchMatMulOptions) or BatchMatMulOptions()
    x = left.elements.swapaxes(-1, -2) if options.adj_x else left.elements
    w = right.elements if options.adj_y else right.elements.swapaxes(-1, -2)
    x = np.broadcast_to(x, (*y.shape[:-2], *x.shape[-2:]))
    w = w.reshape(*[1] * (y.ndim - w.ndim), *w.shape)
    runs = []
    for index in np.ndindex(w.shape[:-2]):
        # All batches that one matrix of the right side belongs to.
        batches = tuple(slice(None) if size == 1 else i for i, size in zip(index, w.shape))
        layer = _layer(w[index][np.newaxis], node.op_data, y[batches], constant=right.is_constant)
        runs.append(bind_product(x[batches][np.newaxis], y[batches][np.newaxis], *layer))

    def run() -> None:
        for multiply in runs:
            multiply()

    return run if len(runs) > 1 else runs[0]


def _layer(matrix: npt.NDArray[Any], op: OpData, y: npt.NDArray[Any], constant: bool) -> tuple[Weights, Finish]:
    """The right side, (1, columns, depth), as weights; and what becomes of the sums."""
    if y.dtype == np.float32:
        positions = math.prod(y.shape[:-1])
        return FloatWeights(matrix, positions=positions, constant=constant), BiasAndActivation(
            None, np.float32(-np.inf), np.float32(np.inf)
        )
    wide = y.dtype == np.int16
    weights = IntegerWeights(
        matrix,
        None,
        x_dtype=y.dtype,
        x_zero_point=op.left_zero_point,
        weights_zero_point=op.right_zero_point,
        accumulator_bits=64 if wide else 32,
        constant=constant,
    )
    limits = np.iinfo(y.dtype)
    multiplier = (WideQuantizedMultiplier if wide else QuantizedMultiplier)(op.significand, op.shift)
    output = OutputStage(op.output_zero_point, int(limits.min), int(limits.max))
    return weights, SumRequantizer(weights, multiplier, output)


def _multiply_accumulates(inputs: Sequence[Shape], output: Shape) -> int:
    return math.prod(output) * math.prod(inputs[LEFT]) // max(math.prod(output[:-1]), 1)


BATCH_MATMUL = Registration(
    BuiltinOperator.BATCH_MATMUL,
    _bind,
    _prepare,
    op_data=OP_DATA_BATCH_MATMUL,
    requests=_requests,
    builtin_data=TFLITE_BATCH_MATMUL_PARAMS,
    max_version=4,
    types=TYPES,
    multiply_accumulates=_multiply_accumulates,
    cpp_method="AddBatchMatMul",
    since="5d542d7ed",
)
