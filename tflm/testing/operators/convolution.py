"""Models of CONV_2D, DEPTHWISE_CONV_2D and TRANSPOSE_CONV."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tflm.schema import (
    ELEMENT_TYPES,
    TENSOR_TYPES,
    BuiltinOperator,
    Conv2DOptions,
    DepthwiseConv2DOptions,
    ModelBuilder,
    Padding,
    QuantizationParameters,
    SubgraphBuilder,
    TensorType,
    TransposeConvOptions,
    quantized,
)
from tflm.testing.drawing import (
    ACTIVATIONS,
    FLOAT32,
    INT8,
    INT16,
    INT32,
    UINT8,
    Arrays,
    Draw,
    OperatorCase,
    factors,
    float32,
    quantization,
    scales,
    sizes,
    values,
    zero_points,
)


@dataclass
class Geometry:
    """Windows along one dimension; `steps` are the fields of the options for it."""

    size: int
    taps: int
    stride: int
    dilation: int
    windows: int


def geometries(draw: Draw, padding: Padding, largest: int) -> tuple[Geometry, Geometry]:
    """Rows and columns: mostly as many windows as fit, sometimes another number, which TFLM takes as well."""
    pair = []
    for _ in range(2):
        taps, stride, dilation = (draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 3)))
        stride, dilation = draw(st.sampled_from([(1, 1), (stride, 1), (stride, dilation)]))
        size = draw(st.integers(1, largest))
        covered = 1 if padding == Padding.SAME else (taps - 1) * dilation + 1
        fitting = max((size + stride - covered) // stride, 1)
        windows = max(fitting + draw(st.sampled_from([0, 0, 0, 0, 0, 0, 0, 0, -1, 1])), 1)
        pair.append(Geometry(size, taps, stride, dilation, windows))
    return pair[0], pair[1]


@dataclass
class ConvolutionBuilder:
    """A convolution in the making: weights and bias that are constants, or inputs in turn."""

    draw: Draw
    main: SubgraphBuilder
    type: TensorType
    inputs: Arrays

    def tensor(
        self,
        name: str,
        elements: np.ndarray[Any, Any],
        parameters: QuantizationParameters | None,
        constant: bool,
        **packed: Any,
    ) -> int:
        """A constant, or an input with those elements."""
        if constant:
            return self.main.constant(name, elements, parameters, **packed)
        self.inputs.append(elements)
        return self.main.input(name, elements.shape, TENSOR_TYPES[elements.dtype], parameters)

    def weights(self, shape: tuple[int, ...], channels: int, constant: bool, packs: bool) -> tuple[int, list[float]]:
        """Weights, with one scale or one for each slice along dimension `channels`."""
        draw = self.draw
        if self.type == FLOAT32:
            return self.tensor("w", values(draw, FLOAT32, shape), None, constant), [1.0]
        base = draw(scales(-12, 0))
        factors = [draw(scales(-3, 3)) for _ in range(shape[channels])] if draw(st.booleans()) else [1.0]
        parameters = quantized([float32(base * factor) for factor in factors], 0, channels)
        if packs and self.type == INT8 and draw(st.integers(0, 3)) == 0:
            packed = values(draw, UINT8, ((math.prod(shape) + 1) // 2,))
            index = self.tensor("w", packed, parameters, True, type=TensorType.INT4, shape=shape)
        else:
            index = self.tensor("w", values(draw, INT8, shape), parameters, constant)
        return index, list(parameters.scale or ())

    def bias(self, channels: int, scale: float, bits: tuple[int, ...], constant: bool) -> list[int]:
        """The bias, if any; with 16-bit activations, its type has one of these widths in bits."""
        draw = self.draw
        if draw(st.sampled_from([False, False, True])):
            omitted: list[int] = draw(st.sampled_from([[], [], [], [-1]]))
            return omitted
        if self.type == FLOAT32:
            return [self.tensor("b", values(draw, FLOAT32, (channels,)), None, constant)]
        dtype = np.dtype(f"i{draw(st.sampled_from(bits)) // 8 if self.type == INT16 else 4}")
        limit = 2 ** draw(st.integers(0, min(8 * dtype.itemsize - 2, 40)))
        elements = draw(st.lists(st.integers(-limit, limit - 1), min_size=channels, max_size=channels))
        return [self.tensor("b", np.array(elements, dtype), quantized(scale), constant)]

    def output(self, shape: tuple[int, ...], scale: float) -> int:
        """The output, at a scale that is mostly near what random accumulators need."""
        draw = self.draw
        if self.type == FLOAT32:
            return self.main.tensor("y", shape, FLOAT32)
        y_scale = float32(scale * (64 if self.type == INT8 else 4096) * draw(factors(-30, 20) | factors(-2, 6)))
        return self.main.tensor("y", shape, self.type, quantized(y_scale, draw(zero_points(self.type))))


SIZES = st.sampled_from([(8, 6), (8, 6), (8, 6), (70, 9)])
"""Largest image and most channels; some are too large for one block of positions."""


@st.composite
def conv_2d(draw: Draw) -> OperatorCase:
    """CONV_2D in every type, with groups, both paddings, strides and dilations."""
    type = draw(st.sampled_from([FLOAT32, INT8, INT16]))
    largest, most_channels = draw(SIZES)
    padding = draw(st.sampled_from([Padding.SAME, Padding.VALID]))
    rows, columns = geometries(draw, padding, largest)
    batches, groups = draw(st.sampled_from([1, 1, 1, 2])), draw(st.sampled_from([1, 1, 1, 2, 3]))
    depth, of_group = draw(sizes(most_channels)), draw(sizes(most_channels))
    channels = groups * of_group
    builder = ModelBuilder()
    main = builder.subgraph()
    x_shape = (batches, rows.size, columns.size, groups * depth)
    x_parameters = quantization(draw, type)
    x = main.input("x", x_shape, type, x_parameters)
    layer = ConvolutionBuilder(draw, main, type, [values(draw, type, x_shape)])
    constant = draw(st.sampled_from([True, True, True, False]))
    w, w_scales = layer.weights((channels, rows.taps, columns.taps, depth), 0, constant, packs=True)
    scale = w_scales[0] * (x_parameters.scale or [1.0])[0] if x_parameters else 1.0
    bias = layer.bias(channels, scale, (32, 64), constant or draw(st.booleans()))
    y = layer.output((batches, rows.windows, columns.windows, channels), scale)
    options = Conv2DOptions(
        padding=padding,
        stride_h=rows.stride,
        stride_w=columns.stride,
        dilation_h_factor=rows.dilation,
        dilation_w_factor=columns.dilation,
        fused_activation_function=draw(ACTIVATIONS),
        quantized_bias_type=draw(st.sampled_from([FLOAT32, INT32])),
    )
    main.operator(BuiltinOperator.CONV_2D, [x, w, *bias], [y], options)
    main.output(y)
    return builder.build(), [layer.inputs]


@st.composite
def depthwise_conv_2d(draw: Draw) -> OperatorCase:
    """DEPTHWISE_CONV_2D in every type, with depth multipliers, both paddings, strides and dilations."""
    type = draw(st.sampled_from([FLOAT32, INT8, INT16]))
    largest, most_channels = draw(SIZES)
    padding = draw(st.sampled_from([Padding.SAME, Padding.VALID]))
    rows, columns = geometries(draw, padding, largest)
    batches, multiplier = draw(st.sampled_from([1, 1, 1, 2])), draw(st.sampled_from([1, 1, 1, 2, 3]))
    channels = draw(sizes(most_channels)) * multiplier
    builder = ModelBuilder()
    main = builder.subgraph()
    x_shape = (batches, rows.size, columns.size, channels // multiplier)
    x_parameters = quantization(draw, type)
    x = main.input("x", x_shape, type, x_parameters)
    layer = ConvolutionBuilder(draw, main, type, [values(draw, type, x_shape)])
    constant = draw(st.sampled_from([True, True, True, False]))
    w, w_scales = layer.weights((1, rows.taps, columns.taps, channels), 3, constant, packs=True)
    scale = w_scales[0] * (x_parameters.scale or [1.0])[0] if x_parameters else 1.0
    bias = layer.bias(channels, scale, (64,), constant or draw(st.booleans()))
    y = layer.output((batches, rows.windows, columns.windows, channels), scale)
    options = DepthwiseConv2DOptions(
        padding=padding,
        stride_h=rows.stride,
        stride_w=columns.stride,
        dilation_h_factor=rows.dilation,
        dilation_w_factor=columns.dilation,
        depth_multiplier=multiplier,
        fused_activation_function=draw(ACTIVATIONS),
    )
    main.operator(BuiltinOperator.DEPTHWISE_CONV_2D, [x, w, *bias], [y], options)
    main.output(y)
    return builder.build(), [layer.inputs]


@st.composite
def transpose_conv(draw: Draw) -> OperatorCase:
    """TRANSPOSE_CONV in every type; strides below and above the filter's size, outputs of about the usual size."""
    type = draw(st.sampled_from([FLOAT32, INT8, INT16]))
    largest, most_channels = draw(SIZES)
    padding = draw(st.sampled_from([Padding.SAME, Padding.VALID]))
    rows, columns = geometries(draw, padding, largest // 2)
    batches, depth, channels = draw(st.sampled_from([1, 1, 2])), draw(sizes(most_channels)), draw(sizes(most_channels))
    builder = ModelBuilder()
    main = builder.subgraph()
    x_shape = (batches, rows.size, columns.size, depth)
    lengths = [
        axis.size * axis.stride + (max(axis.taps - axis.stride, 0) if padding == Padding.VALID else 0)
        for axis in (rows, columns)
    ]
    y_shape = (batches, *(max(size + draw(st.sampled_from([0, 0, 0, -1, 1, 4])), 1) for size in lengths), channels)
    x_parameters = quantization(draw, type)
    shape = main.constant("shape", np.array(y_shape, np.int32))
    x = main.input("x", x_shape, type, x_parameters)
    layer = ConvolutionBuilder(draw, main, type, [values(draw, type, x_shape)])
    constant = draw(st.sampled_from([True, True, True, False]))
    w, w_scales = layer.weights((channels, rows.taps, columns.taps, depth), 0, constant, packs=False)
    scale = w_scales[0] * (x_parameters.scale or [1.0])[0] if x_parameters else 1.0
    bias = layer.bias(channels, scale, (16, 64), constant or draw(st.booleans()))
    y = layer.output(y_shape, scale)
    options = TransposeConvOptions(
        padding=padding,
        stride_h=rows.stride,
        stride_w=columns.stride,
        fused_activation_function=draw(ACTIVATIONS),
    )
    main.operator(BuiltinOperator.TRANSPOSE_CONV, [shape, w, x, *bias], [y], options)
    main.output(y)
    return builder.build(), [layer.inputs]


OPERATORS = {"CONV_2D": conv_2d(), "DEPTHWISE_CONV_2D": depthwise_conv_2d(), "TRANSPOSE_CONV": transpose_conv()}


def _large(operator: BuiltinOperator, type: TensorType) -> OperatorCase:
    """An image of 64 x 64 x 16, 3 x 3 taps; as many channels, or 32."""
    rng = np.random.default_rng(0)
    kinds: dict[BuiltinOperator, tuple[Callable[..., Any], int, int]] = {
        BuiltinOperator.CONV_2D: (Conv2DOptions, 64, 32),
        BuiltinOperator.DEPTHWISE_CONV_2D: (partial(DepthwiseConv2DOptions, depth_multiplier=1), 64, 16),
        BuiltinOperator.TRANSPOSE_CONV: (partial(TransposeConvOptions, stride_w=2), 128, 32),
    }
    options, size, channels = kinds[operator]
    shape = (1, 3, 3, 16) if operator == BuiltinOperator.DEPTHWISE_CONV_2D else (channels, 3, 3, 16)
    parameters = None if type == FLOAT32 else quantized(0.01)
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 64, 64, 16), type, parameters)
    weights = rng.integers(-9, 9, shape).astype(np.float32 if type == FLOAT32 else np.int8)
    dimension = shape.index(channels)
    by_channel = quantized([0.01 + 0.001 * i for i in range(channels)], 0, dimension)
    w = main.constant("w", weights, None if type == FLOAT32 else by_channel)
    y = main.tensor("y", (1, 64, size, channels), type, parameters)
    inputs = [-1, w, x] if operator == BuiltinOperator.TRANSPOSE_CONV else [x, w]
    main.operator(operator, inputs, [y], options(stride_h=1, **({} if size == 128 else {"stride_w": 1})))
    main.output(y)
    return builder.build(), [[rng.integers(-100, 100, (1, 64, 64, 16)).astype(ELEMENT_TYPES[type].dtype)]]


LARGE = {
    f"{operator}-{type.name}": partial(_large, BuiltinOperator[operator], type)
    for operator in OPERATORS
    for type in (FLOAT32, INT8, INT16)
}
