"""FULLY_CONNECTED: y = activation(W x + b), for float32, int8 and int16 activations.

Weights are (rows, depth). Integer weights have one scale, or one for each row; 4-bit weights are packed two to a byte
and have one scale.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.arithmetic.fixed_point import (
    Multiplier,
    QuantizedMultiplier,
    WideQuantizedMultiplier,
    quantize_multiplier,
)
from tflm.kernels.arithmetic.requantization import OutputStage
from tflm.kernels.layers.float_product import BiasAndActivation, FloatWeights
from tflm.kernels.layers.integer_product import IntegerWeights, SumRequantizer
from tflm.kernels.layers.per_channel import ChannelMultipliers, unpacked_elements
from tflm.kernels.layers.product import bind_product
from tflm.kernels.registration import KernelContext, Node, Registration, Run, Shape
from tflm.kernels.requests import NodeView, Refusal, Request, ScratchBuffer, TempInput, TempOutput
from tflm.kernels.support.activation import (
    TFLITE_FUSED_ACTIVATION,
    activation_range,
    fused_activation,
    quantized_activation_range,
)
from tflm.kernels.support.checks import element_count, require_same_type, require_scale, require_type
from tflm.memory.tensor import TFLITE_TYPE, TfLiteTensor
from tflm.releases.timeline import WHEEL_SOURCE
from tflm.schema.enums import ActivationFunctionType, BuiltinOperator, TensorType
from tflm.schema.options import FullyConnectedOptions
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

WEIGHT_TYPES = {
    TensorType.FLOAT32: (TensorType.FLOAT32,),
    TensorType.INT8: (TensorType.INT8, TensorType.INT4),
    TensorType.INT16: (TensorType.INT8,),
}
BIAS_TYPES = {
    TensorType.FLOAT32: (TensorType.FLOAT32,),
    TensorType.INT8: (TensorType.INT32,),
    TensorType.INT16: (TensorType.INT32, TensorType.INT64),
}


WITHOUT_OUTPUT_SCALE = (0, 0)
"""The multiplier that TFLM finds on x86 where it divides by a scale of 0."""


@dataclass
class OpData:
    """Constants of a quantized layer. The significands and shifts of one scale per row are arrays in the arena."""

    significand: int | npt.NDArray[np.int32]
    shift: int | npt.NDArray[np.int32]
    input_zero_point: int
    weights_zero_point: int
    output: OutputStage


def _prepare(context: KernelContext, node: Node) -> None:
    input = context.input_tensor(node, INPUT)
    weights = context.input_tensor(node, WEIGHTS)
    bias = context.input_tensor(node, BIAS) if node.has_input(BIAS) else None
    output = context.output_tensor(node, 0)
    require_type(input, *WEIGHT_TYPES)
    require_same_type(output, input)
    require_type(weights, *WEIGHT_TYPES[input.type])
    if bias is not None:
        require_type(bias, *BIAS_TYPES[input.type])
    _check_shapes(input, weights, bias, output)
    if input.type != TensorType.FLOAT32:
        activation = fused_activation(node, FullyConnectedOptions)
        node.op_data = _quantization(context, node, activation, input, weights, bias, output)


def _requests(node: NodeView) -> Iterator[Request]:
    weights = node.input(WEIGHTS)
    yield from tensor_requests(node)
    if weights.type == TensorType.INT4:
        yield ScratchBuffer("filter", element_count(weights))
    if node.input(INPUT).type != TensorType.FLOAT32:
        yield from multiplier_requests(node)


def tensor_requests(node: NodeView) -> Iterator[Request]:
    """The tensors that TFLM takes."""
    yield TempInput(INPUT)
    yield TempInput(WEIGHTS)
    if node.has_input(BIAS):
        yield TempInput(BIAS)
    yield TempOutput(0)


SCALES_BY_ROW = "47b545074"
"""From here on weights may have a scale for each row; before, the first one was taken for all, or they were refused."""


def has_scale_for_each_row(weights: TfLiteTensor) -> bool:
    """Whether there is more than one scale."""
    return weights.quantization is not None and len(weights.quantization.scale) > 1


def multiplier_requests(node: NodeView) -> tuple[Request, ...]:
    """Where weights have a scale for each row, the multipliers."""
    weights = node.input(WEIGHTS)
    if not has_scale_for_each_row(weights) or not node.release.holds(SCALES_BY_ROW):
        return ()
    assert weights.quantization is not None
    return ChannelMultipliers.requests(len(weights.quantization.scale))


def _check_shapes(input: TfLiteTensor, weights: TfLiteTensor, bias: TfLiteTensor | None, output: TfLiteTensor) -> None:
    if len(weights.dims) < 2 or 0 in weights.dims:
        raise OperatorError(f"has shape {list(weights.dims)}; weights are (rows, depth)", tensor=weights.name)
    rows, depth = weights.dims[-2:]
    if not output.dims or not 0 < output.dims[-1] <= rows:
        reason = f"has shape {list(output.dims)}, its last dimension must be the {rows} rows of the weights"
        raise OperatorError(reason, tensor=output.name)
    batches = element_count(output) // output.dims[-1]
    if element_count(input) != batches * depth:
        reason = f"has shape {list(input.dims)}; {batches} rows of output need {batches} x {depth} elements"
        raise OperatorError(reason, tensor=input.name)
    if bias is not None and element_count(bias) < output.dims[-1]:
        reason = f"has shape {list(bias.dims)}, {output.dims[-1]} rows need one element each"
        raise OperatorError(reason, tensor=bias.name)


def _quantization(
    context: KernelContext,
    node: Node,
    activation: ActivationFunctionType,
    input: TfLiteTensor,
    weights: TfLiteTensor,
    bias: TfLiteTensor | None,
    output: TfLiteTensor,
) -> OpData:
    is_scaled = output.quantization is not None
    if is_scaled or bias is not None or activation is not ActivationFunctionType.NONE:
        require_scale(output)
    significand: int | npt.NDArray[np.int32]
    shift: int | npt.NDArray[np.int32]
    weights_zero_point = weights.zero_point
    if has_scale_for_each_row(weights) and context.release.holds(SCALES_BY_ROW):
        multipliers = _by_row(context, node, input, weights, output)
        significand, shift = multipliers.significands, multipliers.shifts
        weights_zero_point = 0
    elif not is_scaled:
        significand, shift = WITHOUT_OUTPUT_SCALE
    else:
        significand, shift = quantize_multiplier(_real_multiplier(input, weights, bias, output))
    minimum, maximum = quantized_activation_range(activation, output)
    output_stage = OutputStage(output.zero_point, minimum, maximum)
    return OpData(significand, shift, input.zero_point, weights_zero_point, output_stage)


def _by_row(
    context: KernelContext, node: Node, input: TfLiteTensor, weights: TfLiteTensor, output: TfLiteTensor
) -> ChannelMultipliers:
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


def _real_multiplier(
    input: TfLiteTensor, weights: TfLiteTensor, bias: TfLiteTensor | None, output: TfLiteTensor
) -> float:
    """Scale of the accumulators over the scale of the output. The bias must be at the scale of the accumulators."""
    if bias is not None:
        difference = abs(input.scale * weights.scale - bias.scale)
        if not difference / output.scale <= 0.02:
            reason = (
                f"has scale {bias.scale:g}, the product of input and weights has {input.scale * weights.scale:g}; "
                f"they differ by more than 2 % of the output's {output.scale:g}"
            )
            raise OperatorError(reason, tensor=bias.name)
    return input.scale * weights.scale / output.scale


def bound(
    context: KernelContext, node: Node
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any] | None, npt.NDArray[Any], bool]:
    """Elements of input (1, positions, depth), weights (1, rows, depth), bias (None without one) and output.

    The last thing tells whether weights and bias never change.
    """
    weights = context.get_eval_input(node, WEIGHTS)
    bias = context.get_eval_input(node, BIAS) if node.has_input(BIAS) else None
    output = context.get_eval_output(node, 0)
    rows, depth = output.dims[-1], weights.dims[-1]
    x = context.get_eval_input(node, INPUT).elements.reshape(1, -1, depth)
    y = output.elements.reshape(1, -1, rows)
    w = unpacked_elements(weights).reshape(1, -1, depth)[:, :rows]
    b = None if bias is None else bias.elements.reshape(-1)[:rows]
    return x, w, b, y, weights.is_constant and (bias is None or bias.is_constant)


def multiplier(node: Node, x_dtype: np.dtype[Any], bias: npt.NDArray[Any] | None, rows: int) -> Multiplier:
    """What scales the accumulators of a quantized layer; those of 16-bit activations may have 64 bits."""
    op: OpData = node.op_data
    wide = x_dtype == np.int16 and not _accumulates_in_32_bits(node, bias)
    significand, shift = (v if isinstance(v, int) else v[:rows] for v in (op.significand, op.shift))
    return (WideQuantizedMultiplier if wide else QuantizedMultiplier)(significand, shift)


def _accumulates_in_32_bits(node: Node, bias: npt.NDArray[Any] | None) -> bool:
    if bias is not None:
        return bias.dtype == np.int32
    options = node.options(FullyConnectedOptions)
    return options is not None and options.quantized_bias_type == TensorType.INT32


def _bind(context: KernelContext, node: Node) -> Run:
    x, w, b, y, constant = bound(context, node)
    if x.dtype == np.float32:
        float_weights = FloatWeights(w, positions=y.shape[1], constant=constant)
        limits = activation_range(fused_activation(node, FullyConnectedOptions), np.float32)
        return bind_product(x, y, float_weights, BiasAndActivation(b, *limits))
    op: OpData = node.op_data
    scale = multiplier(node, x.dtype, b, y.shape[2])
    integer_weights = IntegerWeights(
        w,
        b,
        x_dtype=x.dtype,
        x_zero_point=op.input_zero_point,
        weights_zero_point=op.weights_zero_point,
        accumulator_bits=64 if isinstance(scale, WideQuantizedMultiplier) else 32,
        constant=constant,
    )
    return bind_product(x, y, integer_weights, SumRequantizer(integer_weights, scale, op.output))


def _multiply_accumulates(inputs: Sequence[Shape], output: Shape) -> int:
    return math.prod(output) * inputs[WEIGHTS][-1]


def _has_row_scales(node: NodeView) -> bool:
    return has_scale_for_each_row(node.input(WEIGHTS))


def _is_int16(node: NodeView) -> bool:
    return node.input(INPUT).type == TensorType.INT16


def _is_int16_by_row(node: NodeView) -> bool:
    return _is_int16(node) and _has_row_scales(node)


FULLY_CONNECTED = Registration(
    BuiltinOperator.FULLY_CONNECTED,
    _bind,
    _prepare,
    op_data=OP_DATA_FULLY_CONNECTED,
    requests=_requests,
    refusals=(
        Refusal(_is_int16, "Hybrid models are not supported on TFLite Micro.", until="b0afe2890"),
        Refusal(_has_row_scales, "per-channel quantization not yet supported", since="71fba59b5", until=SCALES_BY_ROW),
        Refusal(_is_int16_by_row, "per-channel quantization takes int8 only", since=SCALES_BY_ROW, until="39209b412"),
    ),
    builtin_data=TFLITE_FULLY_CONNECTED_PARAMS,
    max_version=13,
    types=tuple(WEIGHT_TYPES),
    multiply_accumulates=_multiply_accumulates,
    int8_registration=True,
)
