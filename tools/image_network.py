"""An int8 image network with random weights: an example whose arena shrinks with plans and row bands."""

from __future__ import annotations

import numpy as np

from tflm.schema import (
    ActivationFunctionType,
    BuiltinOperator,
    BuiltinOptions,
    Conv2DOptions,
    DepthwiseConv2DOptions,
    FullyConnectedOptions,
    ModelBuilder,
    Padding,
    Pool2DOptions,
    ReshapeOptions,
    SoftmaxOptions,
    SubgraphBuilder,
    TensorType,
    quantized,
)

SIDE = 96
FIRST_CHANNELS = 8
BLOCKS = ((16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2))
"""Channels and stride of each pair of a depthwise and a pointwise convolution."""
CLASSES = 3
SCALE = 0.05
RELU6 = ActivationFunctionType.RELU6


class _Layers:
    """Adds layers, each on the output of the previous one."""

    def __init__(self, main: SubgraphBuilder):
        self._main = main
        self._random = np.random.default_rng(0)
        self._count = 0
        self.shape: tuple[int, ...] = (1, SIDE, SIDE, 1)
        self.last = main.input("image", self.shape, TensorType.INT8, quantized(SCALE))

    def convolution(self, channels: int, taps: int, stride: int) -> None:
        """A convolution with a bias, and ReLU6."""
        weights = self._weights((channels, taps, taps, self.shape[-1]))
        options = Conv2DOptions(padding=Padding.SAME, stride_w=stride, stride_h=stride, fused_activation_function=RELU6)
        self._add(BuiltinOperator.CONV_2D, [weights, self._bias(channels)], self._strided(stride, channels), options)

    def depthwise(self, stride: int) -> None:
        """A depthwise convolution of three by three pixels, with a bias and ReLU6."""
        channels = self.shape[-1]
        weights = self._weights((1, 3, 3, channels))
        options = DepthwiseConv2DOptions(
            padding=Padding.SAME, stride_w=stride, stride_h=stride, depth_multiplier=1, fused_activation_function=RELU6
        )
        operands = [weights, self._bias(channels)]
        self._add(BuiltinOperator.DEPTHWISE_CONV_2D, operands, self._strided(stride, channels), options)

    def classify(self, classes: int) -> None:
        """Global average pooling, a fully connected layer, and SOFTMAX."""
        _, height, width, channels = self.shape
        pool = Pool2DOptions(padding=Padding.VALID, stride_w=1, stride_h=1, filter_width=width, filter_height=height)
        self._add(BuiltinOperator.AVERAGE_POOL_2D, [], (1, 1, 1, channels), pool)
        self._add(BuiltinOperator.RESHAPE, [], (1, channels), ReshapeOptions(new_shape=(1, channels)))
        operands = [self._weights((classes, channels)), self._bias(classes)]
        self._add(BuiltinOperator.FULLY_CONNECTED, operands, (1, classes), FullyConnectedOptions())
        made = self._main.tensor("shares", (1, classes), TensorType.INT8, quantized(1 / 256, -128))
        self._main.operator(BuiltinOperator.SOFTMAX, [self.last], [made], SoftmaxOptions(beta=1.0))
        self._main.output(made)

    def _strided(self, stride: int, channels: int) -> tuple[int, ...]:
        _, height, width, _ = self.shape
        return 1, -(-height // stride), -(-width // stride), channels

    def _weights(self, shape: tuple[int, ...]) -> int:
        return self._main.constant("weights", self._random.integers(-127, 128, shape, np.int8), quantized(0.01))

    def _bias(self, count: int) -> int:
        values = self._random.integers(-999, 1000, count, np.int32)
        return self._main.constant("bias", values, quantized(0.01 * SCALE))

    def _add(
        self, code: BuiltinOperator, constants: list[int], shape: tuple[int, ...], options: BuiltinOptions
    ) -> None:
        made = self._main.tensor(f"{code.name.lower()}_{self._count}", shape, TensorType.INT8, quantized(SCALE))
        self._count += 1
        self._main.operator(code, [self.last, *constants], [made], options)
        self.last, self.shape = made, shape


def image_network() -> bytes:
    """The model's file."""
    builder = ModelBuilder("an image network with random weights")
    layers = _Layers(builder.subgraph())
    layers.convolution(FIRST_CHANNELS, 3, 2)
    for channels, stride in BLOCKS:
        layers.depthwise(stride)
        layers.convolution(channels, 1, 1)
    layers.classify(CLASSES)
    return builder.build()
