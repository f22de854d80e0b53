"""Layers with weights: sums of products of int8, then a channel's multiplier, the zero point and the clamp."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from tflm.schema import Padding

from .example import Example, Tensor, clamp
from .fixed_point import multiply, quantize_multiplier, wrap


def requantized(total: int, channel: int, x: Tensor, weights: Tensor, example: Example) -> int:
    """The output's integer of a channel's sum."""
    y = example.output
    multiplier = quantize_multiplier(x.scale * weights.scale_of(channel) / y.scale)
    limits = y.clamp_to(example.options.fused_activation_function)
    return clamp(wrap(multiply(wrap(total), multiplier) + y.zero_point), limits)


def bias_of(example: Example, position: int, channel: int) -> int:
    """Return the bias of a channel; 0 if there is none."""
    return int(example.input(position).values.reshape(-1)[channel]) if example.has(position) else 0


def taps_of(example: Example, x: Tensor, weights: Tensor, place: tuple[int, int]) -> Iterator[tuple[int, ...]]:
    """(row of taps, column of taps, row, column) of every tap of a window that lies inside the image."""
    options = example.options
    rows, columns = weights.shape[1:3]
    strides, dilations = strides_of(options), (options.dilation_h_factor, options.dilation_w_factor)
    top, left = paddings(options.padding, x.shape[1:3], (rows, columns), strides, dilations)
    for i, j in product(range(rows), range(columns)):
        row = place[0] * options.stride_h - top + i * options.dilation_h_factor
        column = place[1] * options.stride_w - left + j * options.dilation_w_factor
        if 0 <= row < x.shape[1] and 0 <= column < x.shape[2]:
            yield i, j, row, column


def strides_of(options: Any) -> tuple[int, int]:
    """Strides along rows and columns."""
    return options.stride_h, options.stride_w


def paddings(
    padding: Padding,
    sizes: tuple[int, ...],
    taps: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
) -> tuple[int, int]:
    """Rows above and columns left of the image that the first windows cover; none where a window is too large."""
    before = []
    for size, count, stride, dilation in zip(sizes, taps, strides, dilations):
        covered = (count - 1) * dilation + 1
        windows = int((size + stride - (1 if padding == Padding.SAME else covered)) / stride)
        if windows < 0:
            return 0, 0
        before.append(max((windows - 1) * stride + covered - size, 0) // 2)
    return before[0], before[1]


def conv_2d(example: Example) -> list[int]:
    """Each output channel sees the input channels of its group."""
    x, weights, y = example.input(0), example.input(1), example.output
    depth = weights.shape[3]
    of_group = y.shape[3] // (x.shape[3] // depth)
    result = []
    for batch, row, column, channel in product(*map(range, y.shape)):
        begin = channel // of_group * depth
        total = bias_of(example, 2, channel)
        for i, j, r, c in taps_of(example, x, weights, (row, column)):
            for k in range(depth):
                total += weights[channel, i, j, k] * (x[batch, r, c, begin + k] - x.zero_point)
        result.append(requantized(total, channel, x, weights, example))
    return result


def depthwise_conv_2d(example: Example) -> list[int]:
    """Each input channel produces `depth_multiplier` output channels."""
    x, weights, y = example.input(0), example.input(1), example.output
    result = []
    for batch, row, column, channel in product(*map(range, y.shape)):
        source = channel // example.options.depth_multiplier
        total = bias_of(example, 2, channel)
        for i, j, r, c in taps_of(example, x, weights, (row, column)):
            total += weights[0, i, j, channel] * (x[batch, r, c, source] - x.zero_point)
        result.append(requantized(total, channel, x, weights, example))
    return result


def fully_connected(example: Example) -> list[int]:
    """Every row of weights times every row of the input."""
    x, weights = example.input(0), example.input(1)
    channels, depth = weights.shape
    rows = x.values.reshape(-1, depth)
    result = []
    for row in rows:
        for channel in range(channels):
            total = bias_of(example, 2, channel)
            for k in range(depth):
                total += (weights[channel, k] - weights.zero_point) * (int(row[k]) - x.zero_point)
            result.append(requantized(total, channel, x, weights, example))
    return result


def transpose_conv(example: Example) -> list[int]:
    """Every element of the input adds its multiples of the filter to the output."""
    weights, x, y, options = example.input(1), example.input(2), example.output, example.options
    top, left = paddings(options.padding, y.shape[1:3], weights.shape[1:3], strides_of(options), (1, 1))
    totals = dict.fromkeys(product(*map(range, y.shape)), 0)
    for batch, row, column, k in product(*map(range, x.shape)):
        for channel, i, j in product(*map(range, weights.shape[:3])):
            place = (batch, row * options.stride_h - top + i, column * options.stride_w - left + j, channel)
            if place in totals:
                totals[place] += weights[channel, i, j, k] * (x[batch, row, column, k] - x.zero_point)
    return [
        requantized(total + bias_of(example, 3, place[3]), place[3], x, weights, example)
        for place, total in totals.items()
    ]
