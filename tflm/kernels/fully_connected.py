"""FULLY_CONNECTED: y = activation(W x + b), for float32, int8 and int16 activations.

Weights are (rows, depth). Integer weights have one scale, or one for each row; 4-bit weights are packed two to a byte
and have one scale.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.activation import (
    TFLITE_FUSED_ACTIVATION,
    activation_range,
    fused_activation,
    quantized_activation_range,
)
from tflm.kernels.checks import element_count, require_same_type, require_scale, require_type
from tflm.kernels.fixed_point import QuantizedMultiplier, WideQuantizedMultiplier, quantize_multiplier
from tflm.kernels.float_product import BiasAndActivation, FloatWeights
from tflm.kernels.integer_product import IntegerWeights, OutputStage, SumRequantizer
from tflm.kernels.per_channel import ChannelMultipliers, unpacked_elements
from tflm.kernels.product import bind_product
from tflm.kernels.registration import KernelContext, Node, Registration, Run
from tflm.memory.tensor import TFLITE_TYPE, TfLiteEvalTensor, TfLiteTensor
from tflm.schema.enums import ActivationFunctionType, BuiltinOperator, TensorType
from tflm.schema.options import FullyConnectedOptions
from tflm.targets import BOOL, INT, INT32, POINTER, Array, EnumType, Struct, When

INPUT, WEIGHTS, BIAS = range(3)

TFLITE_FULLY_CONNECTED_PARAMS = Struct(
    "TfLiteFullyConnectedParams",
    activation=TFLITE_FUSED_ACTIVATION,
    weights_format=EnumType(largest=1),
    keep_num_dims=BOOL,
    asymmetric_quantize_inputs=BOOL,
    quantized_bias_type=TFLITE_TYPE,
    extension=When("fully_connected_extension", Array(POINTER, 2)),
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
    filter_buffer_index=INT,
    per_channel_output_multiplier=POINTER,
    per_channel_output_shift=POINTER,
    is_per_channel=BOOL,
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


@dataclass
class OpData:
    """Constants of a quantized layer. The significands and shifts of one scale per row are arrays in the arena."""

    significand: int | npt.NDArray[np.int32]
    shift: int | npt.NDArray[np.int32]
    input_zero_point: int
    weights_zero_point: int
    output: OutputStage


def _prepare(context: KernelContext, node: Node) -> None:
    input = context.allocate_temp_input_tensor(node, INPUT)
    weights = context.allocate_temp_input_tensor(node, WEIGHTS)
    bias = context.allocate_temp_input_tensor(node, BIAS) if node.has_input(BIAS) else None
    output = context.allocate_temp_output_tensor(node, 0)
    require_type(input, *WEIGHT_TYPES)
    require_same_type(output, input)
    require_type(weights, *WEIGHT_TYPES[input.type])
    if bias is not None:
        require_type(bias, *BIAS_TYPES[input.type])
    _check_shapes(input, weights, bias, output)
    if weights.type == TensorType.INT4:
        context.request_scratch_buffer_in_arena(element_count(weights))
    if input.type != TensorType.FLOAT32:
        node.op_data = _quantization(
            context, fused_activation(node, FullyConnectedOptions), input, weights, bias, output
        )


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
    activation: ActivationFunctionType,
    input: TfLiteTensor,
    weights: TfLiteTensor,
    bias: TfLiteTensor | None,
    output: TfLiteTensor,
) -> OpData:
    require_scale(output)
    significand: int | npt.NDArray[np.int32]
    shift: int | npt.NDArray[np.int32]
    weights_zero_point = weights.zero_point
    if weights.quantization is not None and len(weights.quantization.scale) > 1:
        multipliers = _by_row(context, input, weights, output)
        significand, shift = multipliers.significands, multipliers.shifts
        weights_zero_point = 0
    else:
        significand, shift = quantize_multiplier(_real_multiplier(input, weights, bias, output))
    minimum, maximum = quantized_activation_range(activation, output)
    output_stage = OutputStage(output.zero_point, minimum, maximum)
    return OpData(significand, shift, input.zero_point, weights_zero_point, output_stage)


def _by_row(
    context: KernelContext, input: TfLiteTensor, weights: TfLiteTensor, output: TfLiteTensor
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
    multipliers = ChannelMultipliers(context, len(scales))
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


def _bind(context: KernelContext, node: Node) -> Run:
    input = context.get_eval_input(node, INPUT)
    weights = context.get_eval_input(node, WEIGHTS)
    bias = context.get_eval_input(node, BIAS) if node.has_input(BIAS) else None
    output = context.get_eval_output(node, 0)
    rows, depth = output.dims[-1], weights.dims[-1]
    x = input.elements.reshape(1, -1, depth)
    y = output.elements.reshape(1, -1, rows)
    w = unpacked_elements(weights).reshape(1, -1, depth)[:, :rows]
    b = None if bias is None else bias.elements.reshape(-1)[:rows]
    constant = weights.offset is None and (bias is None or bias.offset is None)
    if input.type == TensorType.FLOAT32:
        float_weights = FloatWeights(w, positions=y.shape[1], constant=constant)
        limits = activation_range(fused_activation(node, FullyConnectedOptions), np.float32)
        return bind_product(x, y, float_weights, BiasAndActivation(b, *limits))
    wide = input.type == TensorType.INT16 and not _accumulates_in_32_bits(node, bias)
    op: OpData = node.op_data
    integer_weights = IntegerWeights(
        w,
        b,
        x_dtype=x.dtype,
        x_zero_point=op.input_zero_point,
        weights_zero_point=op.weights_zero_point,
        accumulator_bits=64 if wide else 32,
        constant=constant,
    )
    significand, shift = (v if isinstance(v, int) else v[:rows] for v in (op.significand, op.shift))
    multiplier = (WideQuantizedMultiplier if wide else QuantizedMultiplier)(significand, shift)
    return bind_product(x, y, integer_weights, SumRequantizer(integer_weights, multiplier, op.output))


def _accumulates_in_32_bits(node: Node, bias: TfLiteEvalTensor | None) -> bool:
    if bias is not None:
        return bias.type == TensorType.INT32
    options = node.options(FullyConnectedOptions)
    return options is not None and options.quantized_bias_type == TensorType.INT32


FULLY_CONNECTED = Registration(
    BuiltinOperator.FULLY_CONNECTED,
    _bind,
    _prepare,
    op_data=OP_DATA_FULLY_CONNECTED,
    builtin_data=TFLITE_FULLY_CONNECTED_PARAMS,
    max_version=13,
    types=tuple(WEIGHT_TYPES),
)
