"""Models of common layers, whose kernels `tflm warm` compiles if it is given no model.

A kernel depends on types, on the activation and on the size of the matrix tile that fits the channels and positions of
a layer, but on no other shape. So a few numbers of each stand for all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.schema import (
    ELEMENT_TYPES,
    ActivationFunctionType,
    AddOptions,
    BuiltinOperator,
    ConcatenationOptions,
    Conv2DOptions,
    DepthwiseConv2DOptions,
    FullyConnectedOptions,
    LeakyReluOptions,
    ModelBuilder,
    MulOptions,
    Padding,
    Pool2DOptions,
    ReducerOptions,
    ResizeNearestNeighborOptions,
    SoftmaxOptions,
    SubOptions,
    TensorType,
    TransposeConvOptions,
    quantized,
)
from tflm.schema.model import Model

CHANNELS = (4, 8, 16, 24, 32, 48, 64)
CLASSES = range(1, 9)
POSITIONS = (1, 2, 4, 5, 6, 8, 12, 15, 16, 24)

ROW, MATRIX, IMAGE, HALF_IMAGE = (1, 32), (1, 4, 8), (1, 4, 4, 8), (1, 2, 2, 8)
"""Shapes of layers for which any shape does."""

RANGES = (
    (ActivationFunctionType.NONE, False),
    (ActivationFunctionType.RELU, False),
    (ActivationFunctionType.RELU, True),
)
"""Activations of outputs, and whether the type's lowest value is zero: no range is narrower than the type then."""

UNARY: tuple[BuiltinOperator, ...] = (
    BuiltinOperator.HARD_SWISH,
    BuiltinOperator.LOGISTIC,
    BuiltinOperator.RELU,
    BuiltinOperator.RELU6,
    BuiltinOperator.TANH,
)


def common_models() -> Iterator[Model]:
    """A model for each type of activations: int8, int16, float32."""
    for type in (TensorType.INT8, TensorType.INT16, TensorType.FLOAT32):
        layers = _Layers(type)
        layers.add_products()
        layers.add_pooling()
        layers.add_element_wise()
        layers.add_movement()
        yield Model(layers.builder.build())


class _Layers:
    """Layers that share no tensors, with activations of one type."""

    def __init__(self, type: TensorType):
        self.builder = ModelBuilder(f"common layers of {type.name}")
        self.type = type
        self._main = self.builder.subgraph()

    def add_products(self) -> None:
        """Convolutions and dense layers of all tiles."""
        ranges = [each for each in RANGES if self.type == TensorType.INT8 or not each[1]]
        for activation, is_positive in ranges:
            for channels in CHANNELS:
                for positions in POSITIONS:
                    for weight in (1, 127) if is_positive else (1,):
                        self._convolution(positions, channels, activation, is_positive, weight)
                self._dense(channels, activation, is_positive)
                for stride in (1, 2):
                    self._depthwise(channels, stride, activation, is_positive)
            self._transposed(activation, is_positive)
        for channels in CLASSES:
            self._dense(channels, ActivationFunctionType.NONE, False, units=1024)

    def add_pooling(self) -> None:
        """Pooling, and means over an image."""
        options = Pool2DOptions(padding=Padding.VALID, stride_w=2, stride_h=2, filter_width=2, filter_height=2)
        for operator in (BuiltinOperator.AVERAGE_POOL_2D, BuiltinOperator.MAX_POOL_2D):
            self._add(operator, [self._input(*IMAGE)], HALF_IMAGE, options)
        axes = self._constant(np.array([1, 2], np.int32))
        self._add(BuiltinOperator.MEAN, [self._input(*IMAGE), axes], (1, 8), ReducerOptions())

    def add_element_wise(self) -> None:
        """Sums and products of two tensors, functions of one, and conversions to and from floats."""
        pairs = (
            (BuiltinOperator.ADD, AddOptions()),
            (BuiltinOperator.SUB, SubOptions()),
            (BuiltinOperator.MUL, MulOptions()),
        )
        for operator, options in pairs:
            self._add(operator, [self._input(*ROW), self._input(*ROW)], ROW, options)
        for operator in UNARY:
            has_limits = operator in (BuiltinOperator.LOGISTIC, BuiltinOperator.TANH)
            if self.type != TensorType.INT16 or has_limits:
                scale = self._scale_of_shares if has_limits else 0.05
                self._add(operator, [self._input(*ROW)], ROW, scale=scale)
        if self.type != TensorType.INT16:
            self._add(BuiltinOperator.LEAKY_RELU, [self._input(*ROW)], ROW, LeakyReluOptions(alpha=0.1))
        self._add(BuiltinOperator.SOFTMAX, [self._input(*ROW)], ROW, SoftmaxOptions(beta=1.0), self._scale_of_shares)
        if self.type != TensorType.FLOAT32:
            self._add(BuiltinOperator.QUANTIZE, [self._main.input("x", ROW, TensorType.FLOAT32)], ROW)
            y = self._main.tensor("y", ROW, TensorType.FLOAT32)
            self._main.operator(BuiltinOperator.DEQUANTIZE, [self._input(*ROW)], [y])

    def add_movement(self) -> None:
        """Copies."""
        shape = self._constant(np.array(ROW, np.int32))
        self._add(BuiltinOperator.RESHAPE, [self._input(*MATRIX), shape], ROW)
        borders = self._constant(np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32))
        self._add(BuiltinOperator.PAD, [self._input(*IMAGE), borders], (1, 6, 6, 8))
        parts = [self._input(*MATRIX), self._input(*MATRIX)]
        self._add(BuiltinOperator.CONCATENATION, parts, (1, 4, 16), ConcatenationOptions(axis=2))
        order = self._constant(np.array([0, 2, 1], np.int32))
        self._add(BuiltinOperator.TRANSPOSE, [self._input(*MATRIX), order], (1, 8, 4))
        size = self._constant(np.array([8, 8], np.int32))
        resize = BuiltinOperator.RESIZE_NEAREST_NEIGHBOR
        if self.type != TensorType.FLOAT32:
            self._add(resize, [self._input(*IMAGE), size], (1, 8, 8, 8), ResizeNearestNeighborOptions())

    @property
    def _scale_of_shares(self) -> float:
        """The scale that values from 0 to 1 must have."""
        return 2.0**-15 if self.type == TensorType.INT16 else 2.0**-8

    def _convolution(
        self, positions: int, channels: int, activation: ActivationFunctionType, is_positive: bool, weight: int
    ) -> None:
        options = Conv2DOptions(padding=Padding.SAME, stride_w=1, stride_h=1, fused_activation_function=activation)
        weights = self._weights(channels, 3, 3, 4, weight=weight)
        x = self._input(1, 1, positions, 4)
        inputs = [x, weights, self._bias(channels)]
        # With these scales and large weights, requantization to positive outputs needs two multiply-adds, not one.
        scale, shape = 0.05 if weight == 1 else 0.07, (1, 1, positions, channels)
        self._add(BuiltinOperator.CONV_2D, inputs, shape, options, scale, is_positive)

    def _dense(self, channels: int, activation: ActivationFunctionType, is_positive: bool, units: int = 16) -> None:
        options = FullyConnectedOptions(fused_activation_function=activation)
        inputs = [self._input(1, units), self._weights(channels, units), self._bias(channels)]
        self._add(BuiltinOperator.FULLY_CONNECTED, inputs, (1, channels), options, is_positive=is_positive)

    def _depthwise(self, channels: int, stride: int, activation: ActivationFunctionType, is_positive: bool) -> None:
        for multiplier in (1, channels):
            options = DepthwiseConv2DOptions(
                padding=Padding.SAME,
                stride_w=stride,
                stride_h=stride,
                depth_multiplier=multiplier,
                fused_activation_function=activation,
            )
            x, weights = self._input(1, 8, 8, channels // multiplier), self._weights(1, 3, 3, channels)
            inputs, shape = [x, weights, self._bias(channels)], (1, 8 // stride, 8 // stride, channels)
            self._add(BuiltinOperator.DEPTHWISE_CONV_2D, inputs, shape, options, is_positive=is_positive)

    def _transposed(self, activation: ActivationFunctionType, is_positive: bool) -> None:
        options = TransposeConvOptions(
            padding=Padding.VALID, stride_w=2, stride_h=2, fused_activation_function=activation
        )
        shape = self._constant(np.array([1, 8, 8, 8], np.int32))
        inputs = [shape, self._weights(8, 2, 2, 8), self._input(*IMAGE), self._bias(8)]
        self._add(BuiltinOperator.TRANSPOSE_CONV, inputs, (1, 8, 8, 8), options, is_positive=is_positive)

    def _add(
        self,
        operator: BuiltinOperator,
        inputs: list[int],
        shape: tuple[int, ...],
        options: Any = None,
        scale: float = 0.05,
        is_positive: bool = False,
    ) -> None:
        self._main.output(y := self._tensor(shape, scale, is_positive or scale == self._scale_of_shares))
        self._main.operator(operator, inputs, [y], options)

    def _input(self, *shape: int) -> int:
        return self._main.input("x", shape, self.type, self._quantization(0.05))

    def _tensor(self, shape: tuple[int, ...], scale: float, is_positive: bool) -> int:
        return self._main.tensor("y", shape, self.type, self._quantization(scale, is_positive))

    def _quantization(self, scale: float, is_positive: bool = False) -> Any:
        if self.type == TensorType.FLOAT32:
            return None
        return quantized(scale, -128 if self.type == TensorType.INT8 and is_positive else 0)

    def _weights(self, *shape: int, weight: int = 1) -> int:
        """Weights that are all the same."""
        if self.type == TensorType.FLOAT32:
            return self._constant(np.ones(shape, np.float32))
        return self._constant(np.full(shape, weight, np.int8), quantized(0.01 if weight == 1 else 0.00027))

    def _bias(self, channels: int) -> int:
        type = {TensorType.INT8: TensorType.INT32, TensorType.INT16: TensorType.INT64}.get(self.type, self.type)
        values = np.zeros(channels, ELEMENT_TYPES[type].dtype)
        return self._constant(values, None if self.type == TensorType.FLOAT32 else quantized(0.0005))

    def _constant(self, values: npt.NDArray[Any], quantization: Any = None) -> int:
        return self._main.constant("constant", values, quantization)
