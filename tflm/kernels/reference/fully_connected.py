"""FULLY_CONNECTED: y = activation(W x + b); BATCH_MATMUL: matrix products over batches; for float32, int8 and int16.

Weights are (rows, depth). Integer weights have one scale, or one for each row; 4-bit weights are packed two to a byte
and have one scale.

The left side of BATCH_MATMUL is (batches..., rows, depth), the right side (batches..., depth, columns); either may
have its last two dimensions swapped ("adjoint"). Batches broadcast.
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
from tflm.kernels.layers.product import (
    WEIGHT_TYPES,
    ChannelMultipliers,
    FloatLayer,
    IntegerLayer,
    LayerArrays,
    accumulator_bits,
    exact_type,
    factors,
    float_product,
    largest_distance,
    unpacked_elements,
)
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.registration import Refusal, Registration, Run, Shape
from tflm.kernels.requests import (
    PersistentBuffer,
    Request,
    ScratchBuffer,
    TempInput,
    TempOutput,
    tensors,
    writable_dims,
)
from tflm.kernels.shapes import Shapes, StaticNode, broadcast_shapes
from tflm.kernels.support.activation import (
    TFLITE_FUSED_ACTIVATION,
    activation_range,
    fused_activation,
    quantized_activation_range,
)
from tflm.kernels.support.checks import (
    element_count,
    require_same_type,
    require_scale,
    require_type,
    require_zero_point,
    shape_error,
)
from tflm.memory.tensor import TFLITE_EVAL_TENSOR, TFLITE_TYPE, TfLiteTensor, int_array_bytes
from tflm.releases.release import WHEEL_SOURCE
from tflm.schema.enums import (
    ELEMENT_TYPES,
    ActivationFunctionType,
    BuiltinOperator,
    FullyConnectedOptionsWeightsFormat,
    TensorType,
)
from tflm.schema.options import BatchMatMulOptions, FullyConnectedOptions
from tflm.schema.version_rules import (
    INT4_WEIGHTS,
    INT8_WEIGHTS,
    INT16_WEIGHTS,
    QUANTIZED_BIAS,
    Feature,
    Signature,
    asymmetric_hybrid,
    hybrid,
    hybrid_by_channel,
    input_is,
    option,
    signed,
)
from tflm.targets import BOOL, INT, INT32, POINTER, Array, EnumType, Since, Struct, When

INPUT, WEIGHTS, BIAS = range(3)

TFLITE_FULLY_CONNECTED_PARAMS = Struct(
    "TfLiteFullyConnectedParams",
    activation=TFLITE_FUSED_ACTIVATION,
    weights_format=EnumType(largest=1),
    keep_num_dims=BOOL,
    asymmetric_quantize_inputs=BOOL,
    quantized_bias_type=Since("ad8d238f9", TFLITE_TYPE),
    extension=Since(WHEEL_SOURCE, Array(POINTER, 2)),
)
OP_DATA_FULLY_CONNECTED = Struct(
    "OpDataFullyConnected",
    output_multiplier=INT32,
    output_shift=INT,
    output_activation_min=INT32,
    output_activation_max=INT32,
    input_quantized_index=INT,
    input_zero_point=INT32,
    filter_zero_point=INT32,
    output_zero_point=INT32,
    filter_buffer_index=Since("4f253e217", INT),
    per_channel_output_multiplier=Since("47b545074", POINTER),
    per_channel_output_shift=Since("47b545074", POINTER),
    is_per_channel=Since("47b545074", BOOL),
    weights_scratch_index=When("compression", INT),
    bias_scratch_index=When("compression", INT),
)

BIAS_TYPES = {
    TensorType.FLOAT32: (TensorType.FLOAT32,),
    TensorType.INT8: (TensorType.INT32,),
    TensorType.INT16: (TensorType.INT32, TensorType.INT64),
}


WITHOUT_OUTPUT_SCALE = (0, 0)
"""The multiplier that TFLM computes on x86 if it divides by a scale of 0."""


@dataclass
class OpDataFullyConnected:
    """Constants of a quantized layer.

    Attributes:
        multiplier: scales the accumulators; with a scale per row, its parts are arrays in the arena.
        input_zero_point, weights_zero_point: subtracted from input and weights.
        output: adds the zero point and clamps.
    """

    multiplier: QuantizedMultiplier
    input_zero_point: int
    weights_zero_point: int
    output: OutputStage


def _prepare_fully_connected(context: KernelContext, node: Node) -> None:
    input, weights = node.input(INPUT), node.input(WEIGHTS)
    require_type(input, *WEIGHT_TYPES)
    require_same_type(node.output(0), input)
    require_type(weights, *WEIGHT_TYPES[input.type])
    if node.has_input(BIAS):
        require_type(node.input(BIAS), *BIAS_TYPES[input.type])
    _check_shapes(node)
    if input.type != TensorType.FLOAT32:
        node.op_data = _quantization_fully_connected(context, node)


def _requests_fully_connected(node: Node) -> Iterator[Request]:
    weights = node.input(WEIGHTS)
    yield from tensor_requests(node)
    if weights.type == TensorType.INT4:
        yield ScratchBuffer("filter", element_count(weights))
    if node.input(INPUT).type != TensorType.FLOAT32:
        yield from multiplier_requests(node)


def tensor_requests(node: Node) -> Iterator[Request]:
    """The tensors that TFLM allocates."""
    yield TempInput(INPUT)
    yield TempInput(WEIGHTS)
    if node.has_input(BIAS):
        yield TempInput(BIAS)
    yield TempOutput(0)


SCALES_BY_ROW = "47b545074"
"""The commit from which weights may have a scale per row; earlier releases use the first for all, or reject the
model.
"""


def has_scale_for_each_row(weights: TfLiteTensor) -> bool:
    """Whether the weights have more than one scale."""
    return weights.quantization is not None and len(weights.quantization.scale) > 1


def multiplier_requests(node: Node) -> tuple[Request, ...]:
    """The requests for the multipliers, if the weights have a scale for each row."""
    weights = node.input(WEIGHTS)
    if not has_scale_for_each_row(weights) or not node.release.holds(SCALES_BY_ROW):
        return ()
    assert weights.quantization is not None
    return ChannelMultipliers.requests(len(weights.quantization.scale))


def _check_shapes(node: Node) -> None:
    input, weights, output = node.input(INPUT), node.input(WEIGHTS), node.output(0)
    if len(weights.dims) < 2 or 0 in weights.dims:
        raise shape_error(weights, "; weights are (rows, depth)")
    rows, depth = weights.dims[-2:]
    if not output.dims or not 0 < output.dims[-1] <= rows:
        raise shape_error(output, f", its last dimension must be the {rows} rows of the weights")
    batches = element_count(output) // output.dims[-1]
    if element_count(input) != batches * depth:
        raise shape_error(input, f"; {batches} rows of output need {batches} x {depth} elements")
    if node.has_input(BIAS) and element_count(bias := node.input(BIAS)) < output.dims[-1]:
        raise shape_error(bias, f", {output.dims[-1]} rows need one element each")


def _quantization_fully_connected(context: KernelContext, node: Node) -> OpDataFullyConnected:
    input, weights, output = node.input(INPUT), node.input(WEIGHTS), node.output(0)
    activation = fused_activation(node, FullyConnectedOptions)
    is_scaled = output.quantization is not None
    if is_scaled or node.has_input(BIAS) or activation is not ActivationFunctionType.NONE:
        require_scale(output)
    bits = accumulator_bits(node, INPUT, BIAS, node.options(FullyConnectedOptions).quantized_bias_type)
    weights_zero_point = weights.zero_point
    if has_scale_for_each_row(weights) and node.release.holds(SCALES_BY_ROW):
        multiplier = _by_row(context, node).multiplier(output.dims[-1], bits)
        weights_zero_point = 0
    else:
        kind = WideQuantizedMultiplier if bits == 64 else QuantizedMultiplier
        multiplier = kind.of(_real_multiplier(node)) if is_scaled else kind(*WITHOUT_OUTPUT_SCALE)
    output_stage = OutputStage(output.zero_point, *quantized_activation_range(activation, output))
    return OpDataFullyConnected(multiplier, input.zero_point, weights_zero_point, output_stage)


def _by_row(context: KernelContext, node: Node) -> ChannelMultipliers:
    input, weights, output = node.input(INPUT), node.input(WEIGHTS), node.output(0)
    assert weights.quantization is not None
    scales, dimension = weights.quantization.scale, weights.quantization.quantized_dimension
    if weights.type == TensorType.INT4:
        raise OperatorError("4-bit weights can't have a scale for each row", tensor=weights.name)
    if not 0 <= dimension < len(weights.dims) or weights.dims[dimension] != len(scales):
        reason = f"has {len(scales)} scales along dimension {dimension} of shape {list(weights.dims)}"
        raise OperatorError(reason, tensor=weights.name)
    if len(scales) < output.dims[-1]:
        raise OperatorError(f"has {len(scales)} scales for {output.dims[-1]} rows", tensor=weights.name)
    context.allocate_requested(node)
    multipliers = ChannelMultipliers(node, len(scales))
    if output.quantization is None:
        multipliers.significands[:], multipliers.shifts[:] = WITHOUT_OUTPUT_SCALE
    else:
        multipliers.fill(input, scales, output)
    return multipliers


def _real_multiplier(node: Node) -> float:
    """Scale of the accumulators over the scale of the output. The bias must have the scale of the accumulators."""
    input, weights, output = node.input(INPUT), node.input(WEIGHTS), node.output(0)
    if node.has_input(BIAS):
        bias = node.input(BIAS)
        difference = abs(input.scale * weights.scale - bias.scale)
        if not difference / output.scale <= 0.02:
            reason = (
                f"has scale {bias.scale:g}, the product of input and weights has {input.scale * weights.scale:g}; "
                f"they differ by more than 2 % of the output's {output.scale:g}"
            )
            raise OperatorError(reason, tensor=bias.name)
    return input.scale * weights.scale / output.scale


def bound(node: Node) -> LayerArrays:
    """x as (1, positions, depth), weights as (rows, depth), y as (1, positions, rows)."""
    weights = node.eval_input(WEIGHTS)
    bias = node.eval_input(BIAS) if node.has_input(BIAS) else None
    output = node.eval_output(0)
    rows, depth = output.dims[-1], weights.dims[-1]
    return LayerArrays(
        x=node.eval_input(INPUT).elements.reshape(1, -1, depth),
        weights=unpacked_elements(weights).reshape(-1, depth)[:rows],
        bias=None if bias is None else bias.elements.reshape(-1)[:rows],
        y=output.elements.reshape(1, -1, rows),
        constant=weights.is_constant and (bias is None or bias.is_constant),
    )


def _bind_fully_connected(context: KernelContext, node: Node) -> Run:
    arrays = bound(node)
    x, y, layer = arrays.x, arrays.y, _layer(node, arrays)

    def run() -> None:
        y[...] = layer.outputs(layer.product(layer.inputs(x), layer.weights[np.newaxis]))

    return run


def _layer(node: Node, arrays: LayerArrays) -> FloatLayer | IntegerLayer:
    if arrays.x.dtype == np.float32:
        limits = activation_range(fused_activation(node, FullyConnectedOptions), np.float32)
        return FloatLayer(arrays.weights, arrays.bias, *limits, constant=arrays.constant)
    op: OpDataFullyConnected = node.op_data
    return IntegerLayer(
        arrays.weights,
        arrays.bias,
        op.multiplier,
        op.output,
        x_dtype=arrays.x.dtype,
        x_zero_point=op.input_zero_point,
        weights_zero_point=op.weights_zero_point,
        constant=arrays.constant,
    )


def _has_row_scales(node: Node) -> bool:
    return has_scale_for_each_row(node.input(WEIGHTS))


def _is_int16(node: Node) -> bool:
    return node.input(INPUT).type == TensorType.INT16


def _is_int16_by_row(node: Node) -> bool:
    return _is_int16(node) and _has_row_scales(node)


def _output_shapes_fully_connected(node: StaticNode) -> Shapes:
    shape, (units, depth) = node.shape(0), node.ranked(1, 2)
    if node.option("keep_num_dims"):
        if not shape or shape[-1] != depth:
            raise OperatorError(f"weights have depth {depth}, the input has shape {list(shape)}")
        return [(*shape[:-1], units)]
    if depth == 0 or math.prod(shape) % depth:
        raise OperatorError(f"weights have depth {depth}, which does not divide the input of shape {list(shape)}")
    return [(math.prod(shape) // depth, units)]


def _has_sparse_weights(signature: Signature) -> bool:
    weights = signature.input(1)
    return weights is not None and weights.sparsity is not None


def _has_shuffled_weights(signature: Signature) -> bool:
    return bool(signature.option("weights_format") == FullyConnectedOptionsWeightsFormat.SHUFFLED4x16INT8)


FULLY_CONNECTED = Registration(
    BuiltinOperator.FULLY_CONNECTED,
    _bind_fully_connected,
    _prepare_fully_connected,
    op_data=OP_DATA_FULLY_CONNECTED,
    requests=_requests_fully_connected,
    refusals=(
        Refusal(_is_int16, "Hybrid models are not supported on TFLite Micro.", until="b0afe2890"),
        Refusal(_has_row_scales, "per-channel quantization not yet supported", since="71fba59b5", until=SCALES_BY_ROW),
        Refusal(_is_int16_by_row, "per-channel quantization takes int8 only", since=SCALES_BY_ROW, until="39209b412"),
    ),
    builtin_data=TFLITE_FULLY_CONNECTED_PARAMS,
    max_version=13,
    types=tuple(WEIGHT_TYPES),
    multiply_accumulates=lambda inputs, output: math.prod(output) * inputs[WEIGHTS][-1],
    weights=(WEIGHTS,),
    int8_registration=True,
    output_shapes=_output_shapes_fully_connected,
    versions={
        14: Feature("INT2 weights", input_is("INT2", index=1)),
        13: Feature("INT4 weights with INT16 activations", signed("INT16", "INT4")),
        12: hybrid_by_channel(0),
        11: QUANTIZED_BIAS,
        8: Feature("sparse weights", _has_sparse_weights),
        7: INT16_WEIGHTS,
        6: Feature("no bias input", lambda signature: len(signature.inputs) == 2),
        5: option("keep_num_dims"),
        4: INT8_WEIGHTS,
        10: INT4_WEIGHTS,
        9: asymmetric_hybrid(),
        3: hybrid(),
        2: Feature("shuffled weights", _has_shuffled_weights),
    },
)


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


def _prepare_batch_matmul(context: KernelContext, node: Node) -> None:
    left, right, output = node.expect_tensors(2)
    require_type(left, *TYPES)
    for tensor in (right, output):
        require_same_type(tensor, left)
    for tensor in (left, right):
        if len(tensor.dims) not in RANKS:
            raise shape_error(tensor, f", must have {RANKS[0]} to {RANKS[-1]} dimensions")
    options = node.options(BatchMatMulOptions)
    if left.type != TensorType.FLOAT32:
        node.op_data = _quantization_batch_matmul(left, right, output)
    shape = _output_shape(left, right, options)
    if len(shape) > len(output.dims) or math.prod(shape) != element_count(output):
        raise shape_error(output, f", the product has {list(shape)}")
    # TFLM ignores the shape in the model.
    context.allocate_requested(node)
    node.eval_output(0).dims = shape


def _requests_batch_matmul(node: Node) -> Iterator[Request]:
    yield from tensors(2)(node)
    if node.input(LEFT).type != TensorType.FLOAT32:
        yield quantization_request(node)
    yield from transposed_requests(node)
    yield writable_dims(node.output(0))


def quantization_request(node: Node) -> PersistentBuffer:
    """The request for the constants of integer types."""
    return PersistentBuffer("quantization", QUANTIZATION_OP_DATA_BATCH_MATMUL.size(node.target))


def _quantization_batch_matmul(left: TfLiteTensor, right: TfLiteTensor, output: TfLiteTensor) -> OpDataBatchMatmul:
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
        raise shape_error(left, f", whose depth of {depth} is not that of {list(right.dims)}, {right_depth}")
    try:
        batches = np.broadcast_shapes(left.dims[:-2], right.dims[:-2])
    except ValueError:
        reason = f"has batches {list(left.dims[:-2])}, which do not broadcast with {list(right.dims[:-2])}"
        raise OperatorError(reason, tensor=left.name) from None
    return (*batches, rows, columns)


def _swapped(pair: tuple[int, ...], swap: bool) -> tuple[int, ...]:
    return pair[::-1] if swap else pair


def _bind_batch_matmul(context: KernelContext, node: Node) -> Run:
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


def _multiply_accumulates_batch_matmul(inputs: Sequence[Shape], output: Shape) -> int:
    return math.prod(output) * math.prod(inputs[LEFT]) // max(math.prod(output[:-1]), 1)


def _output_shapes_batch_matmul(node: StaticNode) -> Shapes:
    first, second = node.shape(0), node.shape(1)
    rows, inner = first[-2:][::-1] if node.option("adj_x") else first[-2:]
    depth, columns = second[-2:][::-1] if node.option("adj_y") else second[-2:]
    if inner != depth:
        raise OperatorError(f"{list(first)} and {list(second)} can't be multiplied")
    return [(*broadcast_shapes([first[:-2], second[:-2]]), rows, columns)]


BATCH_MATMUL = Registration(
    BuiltinOperator.BATCH_MATMUL,
    _bind_batch_matmul,
    _prepare_batch_matmul,
    op_data=OP_DATA_BATCH_MATMUL,
    requests=_requests_batch_matmul,
    builtin_data=TFLITE_BATCH_MATMUL_PARAMS,
    max_version=4,
    types=TYPES,
    multiply_accumulates=_multiply_accumulates_batch_matmul,
    weights=(RIGHT,),
    cpp_method="AddBatchMatMul",
    since="5d542d7ed",
    output_shapes=_output_shapes_batch_matmul,
    versions={3: input_is("INT16"), 2: input_is("INT8"), 4: asymmetric_hybrid()},
)
