"""Code that all convolutions share: their tensors, weights and per-channel quantization."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier
from tflm.kernels.arithmetic.requantization import OutputStage
from tflm.kernels.layers.geometry import TFLITE_PADDING_VALUES, Axis, axes, image_elements, require_room
from tflm.kernels.layers.product import (
    WEIGHT_TYPES,
    ChannelMultipliers,
    FloatLayer,
    IntegerLayer,
    LayerArrays,
    TypesByInput,
    require_scale_for_each_channel,
    unpacked_elements,
)
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.requests import Request, TempInput, TempOutput
from tflm.kernels.support.activation import activation_range, quantized_activation_range
from tflm.kernels.support.checks import element_count, require_one_type, require_scale, require_type, shape_error
from tflm.memory.tensor import TfLiteTensor
from tflm.schema.enums import ActivationFunctionType, TensorType
from tflm.targets import INT, INT32, POINTER, Since, Struct, When

OP_DATA_CONV = Struct(
    "OpDataConv",
    padding=TFLITE_PADDING_VALUES,
    input_zero_point=INT32,
    filter_zero_point=INT32,
    output_zero_point=INT32,
    output_multiplier=INT32,
    output_shift=INT,
    per_channel_output_multiplier=POINTER,
    per_channel_output_shift=POINTER,
    output_activation_min=INT32,
    output_activation_max=INT32,
    filter_buffer_index=Since("df704e135", INT),
    weights_scratch_index=When("compression", INT),
    bias_scratch_index=When("compression", INT),
)


class ConvolutionInputs(NamedTuple):
    """The inputs of a convolution and their types.

    Attributes:
        input, weights, bias: their indices. The bias, the last input, may be omitted.
        channels: the dimension of the weights that counts output channels.
        weight_types, bias_types: allowed types, by the type of the input.
    """

    input: int
    weights: int
    bias: int
    channels: int
    bias_types: TypesByInput
    weight_types: TypesByInput = WEIGHT_TYPES

    def prepared(self, node: Node) -> tuple[TfLiteTensor, TfLiteTensor, TfLiteTensor]:
        """The input, weights and output, after the checks that all convolutions need."""
        node.expect(inputs=range(self.bias, self.bias + 2), outputs=1)
        output = node.output(0)
        input = node.input(self.input)
        weights = node.input(self.weights)
        require_one_type(self.weight_types, input, output)
        require_type(weights, *self.weight_types[input.type])
        for tensor in (input, weights, output):
            if len(tensor.dims) != 4 or 0 in tensor.dims:
                raise shape_error(tensor, "; must have 4 dimensions, none of them 0")
        if input.dims[0] != output.dims[0]:
            raise shape_error(output, f", must have as many batches as the input's {list(input.dims)}")
        self._check_bias(node, input, output)
        return input, weights, output

    def _check_bias(self, node: Node, input: TfLiteTensor, output: TfLiteTensor) -> None:
        if not node.has_input(self.bias):
            return
        bias = node.eval_input(self.bias)
        require_type(bias, *self.bias_types[input.type])
        if element_count(bias) < output.dims[3]:
            raise shape_error(bias, f", {output.dims[3]} channels need one element each")

    def tensor_requests(self, node: Node) -> Iterator[Request]:
        """The tensors that TFLM allocates to compute the quantization."""
        yield TempInput(self.input)
        yield TempInput(self.weights)
        if node.has_input(self.bias):
            yield TempInput(self.bias)
        yield TempOutput(0)

    def shape_requests(self) -> tuple[Request, ...]:
        """The tensors that it allocates before that, for their shapes."""
        return TempOutput(0), TempInput(self.input), TempInput(self.weights)

    def axes(self, node: Node, options: Any, copies: int = 1) -> tuple[Axis, Axis]:
        """The windows along rows and columns; each channel of the input is used `copies` times."""
        input, weights, output = node.input(self.input), node.input(self.weights), node.output(0)
        strides, dilations = (
            (options.stride_h, options.stride_w),
            (options.dilation_h_factor, options.dilation_w_factor),
        )
        rows, columns = axes(options.padding, input.dims[1:3], weights.dims[1:3], output.dims[1:3], strides, dilations)
        require_room(copies * image_elements(rows, columns, input), input, weights, output)
        return rows, columns

    def op_data(
        self,
        context: KernelContext,
        node: Node,
        axes: tuple[Axis, Axis],
        activation: ActivationFunctionType,
        accumulator_bits: int,
    ) -> OpDataConv:
        """The operator's data; also writes each channel's multiplier to the arena."""
        input, weights, output = node.input(self.input), node.input(self.weights), node.output(0)
        if input.type == TensorType.FLOAT32:
            return OpDataConv(*axes, activation)
        for tensor in (input, weights, output):
            require_scale(tensor)
        assert weights.quantization is not None
        scales, channels = weights.quantization.scale, weights.dims[self.channels]
        if len(scales) == 1:
            scales *= channels
        else:
            require_scale_for_each_channel(weights, channels)
        context.allocate_requested(node)
        multipliers = ChannelMultipliers(node, channels)
        multipliers.fill(input, scales, output)
        limits = quantized_activation_range(activation, output)
        # TFLM ignores the zero points of 16-bit activations.
        zero_points = (input.zero_point, output.zero_point) if input.type == TensorType.INT8 else (0, 0)
        multiplier = multipliers.multiplier(output.dims[3], accumulator_bits)
        return OpDataConv(*axes, activation, multiplier, OutputStage(zero_points[1], *limits), zero_points[0])

    def bound(self, node: Node) -> LayerArrays:
        """The tensors' elements in their shapes; the bias has one element for each channel of the output."""
        weights = node.eval_input(self.weights)
        y = node.eval_output(0).elements
        bias, constant = None, weights.is_constant
        if node.has_input(self.bias):
            tensor = node.eval_input(self.bias)
            bias, constant = tensor.elements.reshape(-1)[: y.shape[3]], constant and tensor.is_constant
        return LayerArrays(node.eval_input(self.input).elements, unpacked_elements(weights), bias, y, constant)


@dataclass
class OpDataConv:
    """Data that a convolution keeps from prepare to bind.

    Attributes:
        rows, columns: the windows.
        activation: the fused activation function.
        multiplier: scales the accumulators of each channel; None for floats.
        output: adds the zero point and clamps; None for floats.
        input_zero_point: subtracted from the input, and the value of padding.
    """

    rows: Axis
    columns: Axis
    activation: ActivationFunctionType
    multiplier: QuantizedMultiplier | None = None
    output: OutputStage | None = None
    input_zero_point: int = 0

    def layer(self, arrays: LayerArrays, weights: npt.NDArray[Any]) -> FloatLayer | IntegerLayer:
        """The layer for these arrays, with weights as (channels, depth)."""
        if self.multiplier is None or self.output is None:
            limits = activation_range(self.activation, np.float32)
            return FloatLayer(weights, arrays.bias, *limits, constant=arrays.constant)
        return IntegerLayer(
            weights,
            arrays.bias,
            self.multiplier,
            self.output,
            x_dtype=arrays.x.dtype,
            x_zero_point=self.input_zero_point,
            constant=arrays.constant,
        )


LARGEST_PRODUCT = 1 << 16
"""Maximum number of window elements multiplied at once; windows can have many times the elements of their image."""


def convolve(
    seen: npt.NDArray[Any], layer: FloatLayer | IntegerLayer, weights: npt.NDArray[Any], groups: int = 1
) -> npt.NDArray[Any]:
    """The outputs (batches, rows, columns, channels) of windows times weights.

    Args:
        seen: (batches, rows, columns, row taps, column taps, channels); these fall into groups.
        weights: (channels, row taps * column taps * depth).
    """
    axis = int(np.argmax(seen.shape[:3]))
    if seen.size > LARGEST_PRODUCT and seen.shape[axis] > 1:
        halves = np.array_split(seen, 2, axis)
        return np.concatenate([convolve(half, layer, weights, groups) for half in halves], axis)
    channels = len(weights)
    by_group = weights.reshape(groups, channels // groups, -1)
    depth = by_group.shape[2] // math.prod(seen.shape[3:5])
    patches = seen[..., : groups * depth].reshape(-1, *seen.shape[3:5], groups, depth)
    patches = patches.transpose(3, 0, 1, 2, 4).reshape(groups, -1, by_group.shape[2])
    sums = layer.product(patches, by_group)
    return layer.outputs(sums.swapaxes(0, 1).reshape(*seen.shape[:3], channels))
