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
from tflm.kernels.arithmetic.requantization import AccumulatorRequantization, OutputStage
from tflm.kernels.host_memory import track_host_array
from tflm.kernels.layers.product import exact_type, factors, float_product, largest_distance
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.registration import Registration, Run, Shape
from tflm.kernels.requests import PersistentBuffer, Request, tensors, writable_dims
from tflm.kernels.shapes import Shapes, StaticNode, broadcast_shapes
from tflm.kernels.support.checks import (
    element_count,
    require_same_type,
    require_scale,
    require_type,
    require_zero_point,
)
from tflm.memory.tensor import TFLITE_EVAL_TENSOR, TfLiteTensor, int_array_bytes
from tflm.schema.enums import ELEMENT_TYPES, BuiltinOperator, TensorType
from tflm.schema.options import BatchMatMulOptions
from tflm.schema.version_rules import asymmetric_hybrid, input_is
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


@dataclass(frozen=True)
class OpDataBatchMatmul:
    """Constants of integer types: the multiplier of sums of products, and the zero points."""

    multiplier: QuantizedMultiplier
    left_zero_point: int
    right_zero_point: int
    output_zero_point: int


def _prepare(context: KernelContext, node: Node) -> None:
    node.expect(inputs=2, outputs=1)
    left, right = (node.input(i) for i in (LEFT, RIGHT))
    output = node.output(0)
    require_type(left, *TYPES)
    for tensor in (right, output):
        require_same_type(tensor, left)
    for tensor in (left, right):
        if len(tensor.dims) not in RANKS:
            reason = f"has shape {list(tensor.dims)}, must have {RANKS[0]} to {RANKS[-1]} dimensions"
            raise OperatorError(reason, tensor=tensor.name)
    options = node.options(BatchMatMulOptions)
    if left.type != TensorType.FLOAT32:
        node.op_data = _quantization(left, right, output)
    shape = _output_shape(left, right, options)
    if len(shape) > len(output.dims) or math.prod(shape) != element_count(output):
        reason = f"has shape {list(output.dims)}, the product has {list(shape)}"
        raise OperatorError(reason, tensor=output.name)
    # TFLM ignores the shape in the model.
    context.allocate_requested(node)
    node.eval_output(0).dims = shape


def _requests(node: Node) -> Iterator[Request]:
    yield from tensors(2)(node)
    if node.input(LEFT).type != TensorType.FLOAT32:
        yield quantization_request(node)
    yield from transposed_requests(node)
    yield writable_dims(node.output(0))


def quantization_request(node: Node) -> PersistentBuffer:
    """The request for the constants of integer types."""
    return PersistentBuffer("quantization", QUANTIZATION_OP_DATA_BATCH_MATMUL.size(node.target))


def _quantization(left: TfLiteTensor, right: TfLiteTensor, output: TfLiteTensor) -> OpDataBatchMatmul:
    if left.type == TensorType.INT16:
        for tensor in (left, right, output):
            require_zero_point(tensor, 0)
    kind = WideQuantizedMultiplier if left.type == TensorType.INT16 else QuantizedMultiplier
    multiplier = kind(*quantize_multiplier(left.scale * right.scale / require_scale(output)))
    return OpDataBatchMatmul(multiplier, left.zero_point, right.zero_point, output.zero_point)


def transposed_requests(node: Node) -> Iterator[Request]:
    """TFLM multiplies rows by rows, so a side in another layout gets a buffer for its transpose."""
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
    (x, w), op, y = matrices(node), node.op_data, node.eval_output(0).elements
    if y.dtype == np.float32:

        def run() -> None:
            y[...] = float_product(x, w)

        return run
    right_zero_point, stage = op.right_zero_point, OutputStage.whole(op.output_zero_point, y.dtype)
    largest = largest_distance(x.dtype, op.left_zero_point) * largest_distance(w.dtype, right_zero_point) * x.shape[-1]
    exact, requantize = exact_type(largest), AccumulatorRequantization(op.multiplier, stage, largest)
    is_constant = node.eval_input(RIGHT).is_constant
    constant = track_host_array(factors(w, right_zero_point, exact)) if is_constant else None

    def run_integers() -> None:
        right = factors(w, right_zero_point, exact) if constant is None else constant
        sums = np.matmul(factors(x, op.left_zero_point, exact), right)
        y[...] = requantize(sums.astype(requantize.dtype))

    return run_integers


def matrices(node: Node) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Views of both sides, (batches..., rows, depth) and (batches..., depth, columns)."""
    left, right = (node.eval_input(i).elements for i in (LEFT, RIGHT))
    options = node.options(BatchMatMulOptions)
    return (left.swapaxes(-1, -2) if options.adj_x else left, right.swapaxes(-1, -2) if options.adj_y else right)


def _multiply_accumulates(inputs: Sequence[Shape], output: Shape) -> int:
    return math.prod(output) * math.prod(inputs[LEFT]) // max(math.prod(output[:-1]), 1)


def _output_shapes(node: StaticNode) -> Shapes:
    first, second = node.shape(0), node.shape(1)
    rows, inner = first[-2:][::-1] if node.option("adj_x") else first[-2:]
    depth, columns = second[-2:][::-1] if node.option("adj_y") else second[-2:]
    if inner != depth:
        raise OperatorError(f"{list(first)} and {list(second)} can't be multiplied")
    return [(*broadcast_shapes([first[:-2], second[:-2]]), rows, columns)]


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
    weights=(RIGHT,),
    cpp_method="AddBatchMatMul",
    since="5d542d7ed",
    output_shapes=_output_shapes,
    versions={3: input_is("INT16"), 2: input_is("INT8"), 4: asymmetric_hybrid()},
)
