"""Models of convolutions, FULLY_CONNECTED, BATCH_MATMUL, and of operators with a state, run several times."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from tflm.schema import ELEMENT_TYPES, TENSOR_TYPES, ActivationFunctionType, Padding, TensorType, quantized
from tflm.testing.drawing import (
    FLOAT32,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    Draw,
    OperatorCase,
    Quantization,
    factors,
    float32,
    quantization,
    scale_of,
    scales,
    sizes,
    values,
    zero_points,
)
from tflm.testing.operators.declared import DrawnOperator, strategy


@dataclass
class Geometry:
    """Windows along one dimension."""

    size: int
    taps: int
    stride: int
    dilation: int
    windows: int


def geometry(draw: Draw, padding: Padding, largest: int) -> Geometry:
    """Draw the geometry: usually the number of windows that fit, sometimes another number, which TFLM accepts as
    well."""
    taps, stride, dilation = (draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    stride, dilation = draw(st.sampled_from([(1, 1), (stride, 1), (stride, dilation)]))
    size = draw(st.integers(1, largest))
    covered = 1 if padding == Padding.SAME else (taps - 1) * dilation + 1
    fitting = max((size + stride - covered) // stride, 1)
    return Geometry(size, taps, stride, dilation, max(fitting + draw(st.sampled_from([0] * 8 + [-1, 1])), 1))


class LayerOperands:
    """Weights and bias of a layer; each of them may be an input."""

    def __init__(self, draw: Draw, model: DrawnOperator, input: Quantization, constant: bool = True):
        self.draw, self.model, self.input, self.constant = draw, model, input, constant
        self.scales: Sequence[float] = ()

    def _operand(self, elements: np.ndarray, parameters: Quantization) -> None:
        if self.constant:
            self.model.constant(elements, parameters)
        else:
            self.model.input(TENSOR_TYPES[elements.dtype], [elements], parameters)

    def weights(self, shape: tuple[int, ...], channels: int, packs: bool, packs_by_channel: bool = True) -> None:
        """Weights with one scale or one for each slice along dimension `channels`, sometimes of 4 bits."""
        draw = self.draw
        if self.model.type == FLOAT32:
            self.scales = [1.0]
            return self._operand(values(draw, FLOAT32, shape), None)
        base, by_channel = draw(scales(-12, 0)), draw(st.booleans())
        ratios = [draw(scales(-3, 3)) for _ in range(shape[channels])] if by_channel else [1.0]
        parameters = quantized([float32(base * ratio) for ratio in ratios], 0, channels)
        self.scales = parameters.scale or ()
        packs = packs and self.model.type == INT8 and (packs_by_channel or not by_channel)
        if packs and draw(st.integers(0, 3)) == 0:
            packed = values(draw, UINT8, ((math.prod(shape) + 1) // 2,))
            return self.model.constant(packed, parameters, type=TensorType.INT4, shape=shape)
        return self._operand(values(draw, INT8, shape), parameters)

    def bias(self, channels: int, widths: tuple[int, ...], by_channel: bool = False) -> None:
        """A bias; with 16-bit activations, its type has one of these widths in bits."""
        draw = self.draw
        if self.model.type == FLOAT32:
            return self._operand(values(draw, FLOAT32, (channels,)), None)
        width = draw(st.sampled_from(widths)) if self.model.type == INT16 else 32
        limit = 2 ** draw(st.integers(0, min(width - 2, 40)))
        elements = draw(st.lists(st.integers(-limit, limit - 1), min_size=channels, max_size=channels))
        parameters = quantized([scale * scale_of(self.input) for scale in self.scales[: None if by_channel else 1]])
        return self._operand(np.array(elements, f"i{width // 8}"), parameters)

    def output(self, spread: st.SearchStrategy[float]) -> Quantization:
        """The output's quantization, at a scale that is mostly near what random accumulators need."""
        of_sums = scale_of(self.input) * self.scales[0]
        return self.model.scaled(spread.map(lambda factor: of_sums * factor))[0]


SIZES = st.sampled_from([(8, 6), (8, 6), (8, 6), (70, 9)])
"""Largest image and most channels; some are too large for one block of positions."""

BIAS_WIDTHS = {"CONV_2D": (32, 64), "DEPTHWISE_CONV_2D": (64,), "TRANSPOSE_CONV": (16, 64)}


@strategy("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV")
def convolution(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Groups or depth multipliers, both paddings, strides and dilations.

    Strides of TRANSPOSE_CONV are below and above the filter's size, its outputs about of the usual size.
    """
    type, is_transposed, is_depthwise = model.type, model.name == "TRANSPOSE_CONV", model.name == "DEPTHWISE_CONV_2D"
    largest, max_channels = draw(SIZES)
    padding = draw(st.sampled_from(Padding))
    axes = [geometry(draw, padding, largest // 2 if is_transposed else largest) for _ in range(2)]
    batches, groups = (
        draw(st.sampled_from([1, 1, 1, 2])),
        1 if is_transposed else draw(st.sampled_from([1, 1, 1, 2, 3])),
    )
    depth = draw(sizes(max_channels))
    channels = groups * (depth if is_depthwise else draw(sizes(max_channels)))
    windows = [axis.windows for axis in axes]
    if is_transposed:
        overlaps = [max(axis.taps - axis.stride, 0) if padding == Padding.VALID else 0 for axis in axes]
        usual = [axis.size * axis.stride + overlap for axis, overlap in zip(axes, overlaps)]
        windows = [max(size + draw(st.sampled_from([0, 0, 0, -1, 1, 4])), 1) for size in usual]
    x_shape = (batches, *(axis.size for axis in axes), depth if is_depthwise or is_transposed else groups * depth)
    y_shape = (batches, *windows, channels)
    input = quantization(draw, type)
    layer = LayerOperands(draw, model, input, draw(st.sampled_from([True, True, True, False])))
    taps = [axis.taps for axis in axes]
    if is_transposed:
        model.constant(np.array(y_shape, np.int32))
        layer.weights((channels, *taps, depth), 0, packs=False)
        model.operand(x_shape, input)
    else:
        model.operand(x_shape, input)
        shape = (1, *taps, channels) if is_depthwise else (channels, *taps, depth)
        layer.weights(shape, 3 if is_depthwise else 0, packs=True)
    layer.constant |= draw(st.booleans())
    if draw(st.integers(0, 2)):
        layer.bias(channels, BIAS_WIDTHS[model.name])
    elif draw(st.integers(0, 3)) == 0:
        model.omitted()
    options = {"padding": padding, "stride_h": axes[0].stride, "stride_w": axes[1].stride}
    if not is_transposed:
        options |= {"dilation_h_factor": axes[0].dilation, "dilation_w_factor": axes[1].dilation}
    if is_depthwise:
        options |= {"depth_multiplier": groups}
    usual_sum = 64 if type == INT8 else 4096
    output = layer.output((factors(-30, 20) | factors(-2, 6)).map(lambda factor: usual_sum * factor))
    return model.result(output, shapes=[y_shape], **options)


@strategy("FULLY_CONNECTED")
def fully_connected(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Scales per tensor and per row, with and without a bias."""
    batches, rows, depth = draw(st.integers(1, 5)), draw(sizes(8)), draw(sizes(64))
    input = quantization(draw, model.type)
    model.operand((batches, depth), input)
    layer = LayerOperands(draw, model, input)
    layer.weights((rows, depth), 0, packs=True, packs_by_channel=False)
    if draw(st.booleans()):
        layer.bias(rows, (32, 64), by_channel=True)
    else:
        model.omitted()
    return model.result(layer.output(factors(-30, 20).map(lambda factor: 64 * factor)))


@strategy("BATCH_MATMUL", invokes=2)
def batch_matmul(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Any batches that broadcast; either side an input or a constant, or swapped."""
    rows, depth, columns = draw(st.integers(1, 6)), draw(st.integers(1, 20)), draw(st.integers(1, 6))
    batches = tuple(draw(st.lists(st.integers(1, 3), max_size=3)))
    swapped = {"adj_x": draw(st.booleans()), "adj_y": draw(st.booleans())}
    constant = draw(st.sampled_from([None, 0, 1]))
    left, right = draw(scales(-12, 2)), draw(scales(-12, 2))
    output = factors(-2, 14).map(lambda factor: left * right * factor)
    parameters = model.scaled(st.just(left), st.just(right), output)
    for i, (matrix, is_swapped) in enumerate(zip(((rows, depth), (depth, columns)), swapped.values())):
        shape = (*draw(_broadcasting(batches)), *(matrix[::-1] if is_swapped else matrix))
        (model.weights if i == constant else model.operand)(shape, parameters[i])
    return model.result(parameters[2], **swapped)


def _broadcasting(batches: tuple[int, ...]) -> st.SearchStrategy[tuple[int, ...]]:
    """Shapes that broadcast to `batches` or to less."""
    ones = st.tuples(*(st.sampled_from([size, size, 1]) for size in batches))
    return st.tuples(ones, st.sampled_from([0, 0, len(batches)])).map(lambda pair: pair[0][pair[1] :])


SVDF_TYPES = [(FLOAT32, FLOAT32, FLOAT32), (INT8, INT16, INT16), (INT8, INT8, INT8), (INT8, INT8, INT16)]
"""Types of the input, of the weights over time and of the state."""

SVDF_ACTIVATIONS = [ActivationFunctionType[name] for name in ("NONE", "RELU", "RELU6")]


@strategy("SVDF", kinds=SVDF_TYPES, invokes=4)
def svdf(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Floats and int8, with a state of 16 or 8 bits, or half a state of 16."""
    type, time_type, state_type = model.types
    batches, size, memory = draw(st.integers(1, 3)), draw(st.integers(0, 12)), draw(st.integers(1, 6))
    rank, units = draw(st.integers(1, 3)), draw(st.integers(1, 5))
    x, feature, time = draw(scales(-8, 0)), draw(scales(-8, 0)), draw(scales(-14, -4))
    state = float32(x * feature * draw(factors(-8, 8)))
    y = float32(state * time * draw(factors(-4, 14)))

    filters = rank * units
    bias = values(draw, FLOAT32 if type == FLOAT32 else INT16, (units,)).reshape(draw(st.sampled_from([-1, (-1, 1)])))
    model.operand((batches, size), model.quantized(x, draw(zero_points(INT8))))
    model.weights((filters, size), model.quantized(feature))
    model.constant(values(draw, time_type, (filters, memory)), model.quantized(time))
    model.constant(bias.astype(np.float32 if type == FLOAT32 else np.int32), model.quantized(state * time))
    model.variable(state_type, (batches, memory * filters), model.quantized(state, draw(zero_points(time_type))))
    output, activation = model.quantized(y, draw(zero_points(INT8))), draw(st.sampled_from(SVDF_ACTIVATIONS))
    return model.result(output, type=type, rank=rank, fused_activation_function=activation)


LSTM_TYPES = {FLOAT32: (FLOAT32, FLOAT32, FLOAT32), INT8: (INT8, INT32, INT16), INT16: (INT8, INT64, INT16)}
"""Types of the weights, biases and cells, by that of the input."""


CELL_EXPONENTS = st.integers(-16, -8) | st.integers(-60, 0)


@functools.cache
def _weight_zero_points(type: TensorType) -> st.SearchStrategy[int]:
    return st.just(0) | zero_points(type)


@strategy("UNIDIRECTIONAL_SEQUENCE_LSTM", invokes=3)
def lstm(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Draw both orders of batches and steps, with and without a clipped cell."""
    type = model.type
    weight_type, bias_type, cell_type = LSTM_TYPES[type]
    batches, steps, size, units = (draw(st.integers(1, n)) for n in (3, 5, 8, 6))
    time_major = draw(st.booleans())
    shape: tuple[int, ...] = (steps, batches, size) if time_major else (batches, steps, size)
    if draw(st.integers(0, 4)) == 0:
        shape = (*shape, draw(st.integers(1, 2)))
    x_scale, hidden_scale = draw(scales(-10, 2)), draw(_scales_and_powers(-16, -6))
    cell_scale = 2.0 ** draw(CELL_EXPONENTS) * draw(st.sampled_from([1.0, 1.0, 1.3]))

    model.input(
        type, [_small(draw, type, shape) for _ in model.invocations], model.quantized(x_scale, draw(zero_points(type)))
    )
    for i in range(1, 9):
        weights = _small(draw, weight_type, (units, shape[2] if i < 5 else units))
        parameters = model.quantized(draw(_scales_and_powers(-14, -4)), draw(_weight_zero_points(weight_type)))
        if draw(st.integers(0, 39)) == 0:
            model.input(weight_type, [weights] * len(model.invocations), parameters)
        else:
            model.constant(weights, parameters)
    biases = [_small(draw, FLOAT32 if type == FLOAT32 else INT16, (units,)) for _ in range(4)]
    hidden = model.quantized(hidden_scale, draw(zero_points(type)))
    model.omitted(3)
    for bias in biases:
        model.constant(bias.astype(ELEMENT_TYPES[bias_type].dtype), model.quantized(x_scale))
    model.omitted(2)
    model.variable(type, (batches, units), hidden)
    model.variable(cell_type, (batches, units), model.quantized(cell_scale))
    model.omitted(4)
    activation = draw(st.sampled_from([ActivationFunctionType.TANH] * 3 + list(ActivationFunctionType)))
    clip = draw(st.sampled_from([0.0, 0.0, 0.5, 3.0, 1e9]))
    options = {"fused_activation_function": activation, "cell_clip": clip, "time_major": time_major}
    options |= {"diagonal_recurrent_tensors": False}
    return model.result(hidden, shapes=[(*shape[:2], units)], **options)


@functools.cache
def _scales_and_powers(lowest: int, highest: int) -> st.SearchStrategy[float]:
    return scales(lowest, highest) | st.integers(lowest, highest).map(lambda exponent: 2.0**exponent)


def _small(draw: Draw, type: TensorType, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Values of a type; floats of about 1, where gates are neither open nor shut."""
    if type != FLOAT32:
        return values(draw, type, shape)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return rng.standard_normal(shape).astype(np.float32)
