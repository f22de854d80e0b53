"""What convolutions share: their tensors, their weights, and quantization by channel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.arithmetic.fixed_point import Multiplier, QuantizedMultiplier, WideQuantizedMultiplier
from tflm.kernels.arithmetic.requantization import OutputStage
from tflm.kernels.layers.float_product import BiasAndActivation, FloatWeights
from tflm.kernels.layers.geometry import TFLITE_PADDING_VALUES, Axis
from tflm.kernels.layers.integer_product import IntegerWeights, SumRequantizer
from tflm.kernels.layers.per_channel import ChannelMultipliers, require_scale_for_each_channel, unpacked_elements
from tflm.kernels.layers.product import Finish
from tflm.kernels.registration import KernelContext, Node
from tflm.kernels.requests import NodeView, Request, TempInput, TempOutput
from tflm.kernels.support.activation import activation_range, quantized_activation_range
from tflm.kernels.support.checks import element_count, require_same_type, require_scale, require_type
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


class Operands(NamedTuple):
    """Which inputs a convolution takes, of which types.

    Attributes:
        input, weights, bias: their places among the inputs. The bias, the last one, may be left out.
        channels: the dimension of the weights that counts output channels.
        weight_types, bias_types: what goes with each type of input.
    """

    input: int
    weights: int
    bias: int
    channels: int
    weight_types: dict[TensorType, tuple[TensorType, ...]]
    bias_types: dict[TensorType, tuple[TensorType, ...]]

    def prepared(self, context: KernelContext, node: Node) -> tuple[TfLiteTensor, TfLiteTensor, TfLiteTensor]:
        """Input, weights and output, checked for what all convolutions need of them."""
        node.expect(inputs=range(self.bias, self.bias + 2), outputs=1)
        output = context.output_tensor(node, 0)
        input = context.input_tensor(node, self.input)
        weights = context.input_tensor(node, self.weights)
        require_type(input, *self.weight_types)
        require_same_type(output, input)
        require_type(weights, *self.weight_types[input.type])
        for tensor in (input, weights, output):
            if len(tensor.dims) != 4 or 0 in tensor.dims:
                reason = f"has shape {list(tensor.dims)}; convolutions take 4 dimensions, none of them 0"
                raise OperatorError(reason, tensor=tensor.name)
        if input.dims[0] != output.dims[0]:
            reason = f"has shape {list(output.dims)}, must have as many batches as the input's {list(input.dims)}"
            raise OperatorError(reason, tensor=output.name)
        self._check_bias(context, node, input, output)
        return input, weights, output

    def _check_bias(self, context: KernelContext, node: Node, input: TfLiteTensor, output: TfLiteTensor) -> None:
        if not node.has_input(self.bias):
            return
        bias = context.get_eval_input(node, self.bias)
        require_type(bias, *self.bias_types[input.type])
        if element_count(bias) < output.dims[3]:
            reason = f"has shape {list(bias.dims)}, {output.dims[3]} channels need one element each"
            raise OperatorError(reason, tensor=bias.name)

    def tensor_requests(self, node: NodeView) -> Iterator[Request]:
        """The tensors that TFLM takes to compute the quantization."""
        yield TempInput(self.input)
        yield TempInput(self.weights)
        if node.has_input(self.bias):
            yield TempInput(self.bias)
        yield TempOutput(0)

    def shape_requests(self) -> tuple[Request, ...]:
        """The tensors that it takes before, for their shapes."""
        return TempOutput(0), TempInput(self.input), TempInput(self.weights)

    def quantization(
        self,
        context: KernelContext,
        node: Node,
        activation: ActivationFunctionType,
    ) -> Quantization | None:
        """Fill the multipliers of each channel, in the arena; None for floats."""
        input = context.input_tensor(node, self.input)
        weights = context.input_tensor(node, self.weights)
        output = context.output_tensor(node, 0)
        if input.type == TensorType.FLOAT32:
            return None
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
        # The zero points of 16-bit activations are left out.
        zero_points = (input.zero_point, output.zero_point) if input.type == TensorType.INT8 else (0, 0)
        return Quantization(multipliers, zero_points[0], OutputStage(zero_points[1], *limits))

    def bound(
        self, context: KernelContext, node: Node
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any] | None, npt.NDArray[Any], bool]:
        """Elements of input, weights, bias (one for each channel; None if it is left out) and output.

        The last thing tells whether weights and bias never change.
        """
        weights = context.get_eval_input(node, self.weights)
        output = context.get_eval_output(node, 0)
        bias, constant = None, weights.is_constant
        if node.has_input(self.bias):
            tensor = context.get_eval_input(node, self.bias)
            bias, constant = tensor.elements.reshape(-1)[: output.dims[3]], constant and tensor.is_constant
        x = context.get_eval_input(node, self.input).elements
        return x, unpacked_elements(weights), bias, output.elements, constant


@dataclass
class Quantization:
    """Constants of a quantized convolution.

    Attributes:
        multipliers: of each channel, in the arena.
        input_zero_point: taken off the input.
        output: how results become the output's integers.
    """

    multipliers: ChannelMultipliers
    input_zero_point: int
    output: OutputStage

    def multiplier(self, channels: int, copies: int, accumulator_bits: int) -> Multiplier:
        """That of sums, for `copies` runs of all channels."""
        significands, shifts = (
            np.tile(values[:channels], copies) for values in (self.multipliers.significands, self.multipliers.shifts)
        )
        return (WideQuantizedMultiplier if accumulator_bits == 64 else QuantizedMultiplier)(significands, shifts)


@dataclass
class OpData:
    """What a convolution keeps from prepare to bind; `quantization` is None for floats."""

    rows: Axis
    columns: Axis
    quantization: Quantization | None
    activation: ActivationFunctionType

    @property
    def border(self) -> int:
        """What a window sees outside of the input: what stands for zero."""
        return 0 if self.quantization is None else self.quantization.input_zero_point


def layer_weights(
    op: OpData,
    weights: npt.NDArray[Any],
    bias: npt.NDArray[Any] | None,
    *,
    x_dtype: np.dtype[Any],
    accumulator_bits: int,
    positions: int,
    constant: bool,
) -> FloatWeights | IntegerWeights:
    """The weights of a convolution as products take them.

    Args:
        weights: (groups, rows, depth...), a view.
        bias: one for each of all rows, a view, or None.
        positions: at how many positions the weights are multiplied.
        constant: whether neither weights nor bias ever change.
    """
    if op.quantization is None:
        return FloatWeights(weights, positions=positions, constant=constant)
    return IntegerWeights(
        weights,
        bias,
        x_dtype=x_dtype,
        x_zero_point=op.quantization.input_zero_point,
        accumulator_bits=accumulator_bits,
        constant=constant,
    )


def layer_finish(
    op: OpData,
    weights: FloatWeights | IntegerWeights,
    bias: npt.NDArray[Any] | None,
    *,
    channels: int,
    copies: int = 1,
    accumulator_bits: int,
) -> Finish:
    """What a convolution makes of its sums.

    Args:
        channels: of the output.
        copies: how often the rows of weights have all channels, one run of them after the other.
    """
    if op.quantization is None or isinstance(weights, FloatWeights):
        return BiasAndActivation(bias, *activation_range(op.activation, np.float32))
    multiplier = op.quantization.multiplier(channels, copies, accumulator_bits)
    return SumRequantizer(weights, multiplier, op.quantization.output)
