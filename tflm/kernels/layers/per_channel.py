"""Per-channel quantization: multipliers of each output channel in the arena; unpacking of 4-bit weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier, WideQuantizedMultiplier, quantize_multiplier
from tflm.kernels.node import Node
from tflm.kernels.requests import PersistentBuffer
from tflm.memory.tensor import TfLiteEvalTensor, TfLiteTensor
from tflm.schema.enums import TensorType

TypesByInput = dict[TensorType, tuple[TensorType, ...]]
"""Allowed types of a tensor, by the type of the input."""

WEIGHT_TYPES: TypesByInput = {
    TensorType.FLOAT32: (TensorType.FLOAT32,),
    TensorType.INT8: (TensorType.INT8, TensorType.INT4),
    TensorType.INT16: (TensorType.INT8,),
}

MULTIPLIER, SHIFT = "per_channel_output_multiplier", "per_channel_output_shift"


class ChannelMultipliers:
    """Arrays in the arena: a significand (Q0.31) and a power of two for each channel."""

    def __init__(self, node: Node, channels: int):
        self.significands, self.shifts = (node.array(name, channels, np.int32) for name in (MULTIPLIER, SHIFT))

    @staticmethod
    def requests(channels: int) -> tuple[PersistentBuffer, PersistentBuffer]:
        """The requests for these arrays."""
        return PersistentBuffer(MULTIPLIER, 4 * channels), PersistentBuffer(SHIFT, 4 * channels)

    def fill(self, input: TfLiteTensor, scales: Sequence[float], output: TfLiteTensor) -> None:
        """Compute the multipliers from the scales of input, weights and output."""
        for i, scale in enumerate(scales):
            self.significands[i], self.shifts[i] = quantize_multiplier(input.scale * scale / output.scale)

    def multiplier(self, channels: int, accumulator_bits: int) -> QuantizedMultiplier:
        """The multiplier of the accumulators, for the first channels."""
        kind = WideQuantizedMultiplier if accumulator_bits == 64 else QuantizedMultiplier
        return kind(self.significands[:channels], self.shifts[:channels])


def accumulator_bits(node: Node, input: int, bias: int, without_bias: TensorType) -> int:
    """Bits of an accumulator: 64 for 16-bit activations, unless the bias (or the options, without one) says 32; else
    32.
    """
    if node.input(input).type != TensorType.INT16:
        return 32
    bias_type = node.input(bias).type if node.has_input(bias) else without_bias
    return 32 if bias_type == TensorType.INT32 else 64


def require_scale_for_each_channel(weights: TfLiteTensor, channels: int) -> None:
    """Reject weights that lack one scale for each of `channels`, along a dimension of that size."""
    assert weights.quantization is not None
    scales, dimension = weights.quantization.scale, weights.quantization.quantized_dimension
    if not 0 <= dimension < len(weights.dims) or not len(scales) == weights.dims[dimension] == channels:
        reason = (
            f"has {len(scales)} scales along dimension {dimension} of shape {list(weights.dims)}; "
            f"{channels} channels need one each"
        )
        raise OperatorError(reason, tensor=weights.name)


def unpacked_elements(weights: TfLiteEvalTensor) -> npt.NDArray[Any]:
    """The elements of weights in their shape; 4-bit weights are unpacked into a new array."""
    data = weights.elements
    if weights.type == TensorType.INT4 and weights.is_constant:
        data = unpack_int4(data, math.prod(weights.dims))
    return data.reshape(weights.dims)


def unpack_int4(packed: npt.NDArray[np.int8], count: int) -> npt.NDArray[np.int8]:
    """Unpack the first `count` signed 4-bit elements, two to a byte with the low half first, to int8."""
    low = np.left_shift(packed, 4) >> 4
    return np.stack([low, packed >> 4], axis=-1).reshape(-1)[:count]
