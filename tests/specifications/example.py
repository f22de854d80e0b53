"""A model of one operator, as specifications read it: numbers by name, tensors as integers in order."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from models import Arrays

import tflm
from tflm.schema import ActivationFunctionType, TensorType

from .fixed_point import round_half_away


class Example:
    """The operator of a model, and what its inputs hold."""

    def __init__(self, data: bytes, inputs: Arrays):
        self.model = tflm.Model(data)
        self.subgraph = self.model.subgraphs[0]
        (self.operator,) = self.subgraph.operators or ()
        self._given = dict(zip(self.subgraph.inputs or (), inputs))

    @cached_property
    def options(self) -> Any:
        """The table of options."""
        return self.operator.builtin_options

    def has(self, position: int) -> bool:
        """Whether an input is present."""
        inputs = self.operator.inputs or ()
        return position < len(inputs) and inputs[position] >= 0

    def input(self, position: int) -> Tensor:
        """Return an input of the operator with its values. Variables start at their zero point."""
        index = (self.operator.inputs or ())[position]
        table = (self.subgraph.tensors or [])[index]
        tensor = Tensor(table)
        if index in self._given:
            tensor.values = self._given[index]
        elif table.is_variable:
            tensor.values = np.full(tensor.shape, tensor.zero_point if table.type == TensorType.INT8 else 0, np.int64)
        else:
            tensor.values = tensor.constant(self.model.constant(table) or b"")
        return tensor

    @cached_property
    def output(self) -> Tensor:
        """The first output, without values."""
        return Tensor((self.subgraph.tensors or [])[(self.operator.outputs or ())[0]])


class Tensor:
    """A tensor's shape, quantization and values."""

    def __init__(self, table: Any):
        self.type: TensorType = table.type
        self.shape: tuple[int, ...] = table.shape or ()
        quantization = table.quantization
        self.scales: tuple[float, ...] = (quantization and quantization.scale) or ()
        self.zero_points: tuple[int, ...] = (quantization and quantization.zero_point) or ()
        self.values: Any = None

    @property
    def scale(self) -> float:
        """The first scale."""
        return self.scales[0]

    @property
    def zero_point(self) -> int:
        """Return the first zero point; 0 if there is none."""
        return self.zero_points[0] if self.zero_points else 0

    def scale_of(self, channel: int) -> float:
        """The scale of one channel of weights."""
        return self.scales[channel] if len(self.scales) > 1 else self.scales[0]

    def __getitem__(self, place: tuple[int, ...]) -> int:
        return int(self.values[place])

    def constant(self, data: bytes | memoryview) -> Any:
        """The numbers of constant bytes; those of 4 bits lie two in a byte, the low half first."""
        if self.type == TensorType.INT4:
            nibbles = [nibble for byte in bytes(data) for nibble in (byte & 15, byte >> 4)]
            signed = [nibble - 16 if nibble > 7 else nibble for nibble in nibbles]
            return np.array(signed[: int(np.prod(self.shape))]).reshape(self.shape)
        return np.frombuffer(data, tflm.schema.ELEMENT_TYPES[self.type].dtype).reshape(self.shape)

    def clamp_to(self, activation: ActivationFunctionType) -> tuple[int, int]:
        """The range that a fused activation leaves of this int8 output."""

        def quantized(real: float) -> int:
            return self.zero_point + round_half_away(float(np.float32(real) / np.float32(self.scale)))

        low, high = -128, 127
        if activation == ActivationFunctionType.RELU:
            low = max(low, quantized(0))
        elif activation == ActivationFunctionType.RELU6:
            low, high = max(low, quantized(0)), min(high, quantized(6))
        elif activation == ActivationFunctionType.RELU_N1_TO_1:
            low, high = max(low, quantized(-1)), min(high, quantized(1))
        return low, high


def clamp(value: int, limits: tuple[int, int]) -> int:
    """The value, or the limit that it is beyond."""
    return min(max(value, limits[0]), limits[1])
