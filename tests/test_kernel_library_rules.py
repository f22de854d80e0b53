"""Scratch buffers of kernel libraries on random operators, against another statement of the libraries' rules."""

from __future__ import annotations

import itertools
from math import prod
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from models import INT8, INT16, Draw
from sampling import examples

import tflm
from tflm.schema import (
    BuiltinOperator,
    Conv2DOptions,
    DepthwiseConv2DOptions,
    ModelBuilder,
    Padding,
    TensorType,
    TransposeConvOptions,
    quantized,
)

SMALL_AND_LARGE = st.integers(1, 9) | st.sampled_from([12, 16, 17, 24, 32, 40])


class Windows(NamedTuple):
    """One dimension of a convolution."""

    size: int
    taps: int
    stride: int
    dilation: int
    padded: bool

    @property
    def places(self) -> int:
        if self.padded:
            return -(-self.size // self.stride)
        return (self.size - (self.taps - 1) * self.dilation - 1) // self.stride + 1

    @property
    def before(self) -> int:
        reach = (self.places - 1) * self.stride + (self.taps - 1) * self.dilation + 1
        return max(reach - self.size, 0) // 2


class Convolution(NamedTuple):
    """A convolution of one kind and type, and the model of it."""

    batches: int
    rows: Windows
    columns: Windows
    depth: int
    channels: int
    type: TensorType

    @property
    def column(self) -> int:
        return self.depth * self.rows.taps * self.columns.taps

    @property
    def input(self) -> tuple[int, int, int, int]:
        return self.batches, self.rows.size, self.columns.size, self.depth

    @property
    def output(self) -> tuple[int, int, int, int]:
        return self.batches, self.rows.places, self.columns.places, self.channels

    def model(self, operator: BuiltinOperator) -> tflm.Model:
        builder = ModelBuilder()
        main = builder.subgraph()
        taps = self.rows.taps, self.columns.taps
        depthwise = operator == BuiltinOperator.DEPTHWISE_CONV_2D
        shape = (1, *taps, self.channels) if depthwise else (self.channels, *taps, self.depth)
        x = main.input("x", self.input, self.type, quantized(0.5))
        w = main.constant("w", np.ones(shape, np.int8), quantized(0.5))
        b = main.constant("b", np.zeros(self.channels, np.int32 if self.type == INT8 else np.int64), quantized(0.25))
        operands = [x, w, b]
        output: tuple[int, ...] = self.output
        if operator == BuiltinOperator.TRANSPOSE_CONV:
            output = self.transposed_output
            operands = [main.constant("shape", np.array(output, np.int32)), w, x, b]
        y = main.tensor("y", output, self.type, quantized(0.5))
        main.operator(operator, operands, [y], self.options(operator))
        main.output(y)
        return tflm.Model(builder.build())

    @property
    def transposed_output(self) -> tuple[int, ...]:
        rows, columns = (
            axis.size * axis.stride if axis.padded else (axis.size - 1) * axis.stride + axis.taps
            for axis in (self.rows, self.columns)
        )
        return self.batches, rows, columns, self.channels

    def options(self, operator: BuiltinOperator) -> Any:
        options: dict[str, Any] = {
            "padding": Padding.SAME if self.rows.padded else Padding.VALID,
            "stride_h": self.rows.stride,
            "stride_w": self.columns.stride,
        }
        if operator == BuiltinOperator.TRANSPOSE_CONV:
            return TransposeConvOptions(**options)
        options |= {"dilation_h_factor": self.rows.dilation, "dilation_w_factor": self.columns.dilation}
        if operator == BuiltinOperator.CONV_2D:
            return Conv2DOptions(**options)
        return DepthwiseConv2DOptions(depth_multiplier=self.channels // self.depth, **options)


@st.composite
def convolutions(draw: Draw, multiplies: bool = False) -> Convolution:
    padded = draw(st.booleans())
    rows, columns = (
        Windows(draw(sizes), draw(taps), draw(st.integers(1, 4)), draw(st.sampled_from([1, 1, 1, 2])), padded)
        for sizes, taps in (
            (st.just(1) | st.integers(1, 12), st.sampled_from([1, 1, 3, 5])),
            (st.integers(1, 30), st.sampled_from([1, 2, 3, 3, 7])),
        )
    )
    assume(rows.places > 0 and columns.places > 0)
    depth = draw(st.just(1) | SMALL_AND_LARGE)
    channels = depth * draw(st.sampled_from([1, 1, 2, 4])) if multiplies else draw(SMALL_AND_LARGE)
    return Convolution(
        draw(st.sampled_from([1, 1, 2])), rows, columns, depth, channels, draw(st.sampled_from([INT8, INT8, INT16]))
    )


def up(value: int, step: int) -> int:
    return (value + step - 1) // step * step


def cmsis_conv(c: Convolution, cpu: str) -> int:
    if c.type == INT16:
        return 8 * up(c.column, 8) if cpu == "mve" else 4 * c.column
    both = (c.rows, c.columns)
    if all(a.before == 0 and a.taps == a.dilation == 1 for a in both):
        return 0
    if cpu == "mve" and c.rows.size == c.rows.taps == c.columns.dilation == 1 and c.columns.stride * c.depth % 4 == 0:
        a = c.columns
        uneven = ((a.places - 1) * a.stride + a.taps - a.size) % 2
        right = max(1, (a.before + uneven + a.stride - 1) // a.stride) if a.before + uneven else 0
        left = max(1, (a.before + a.stride - 1) // a.stride) if a.before else 0
        if left + max(a.places - right - left, 0) + right == a.places:
            beyond = right if uneven else a.before
            return max(a.taps * c.depth + a.before * c.depth, (a.taps - 1) * c.depth + beyond * c.depth)
    return 4 * up(c.column, 16 if cpu == "mve" else 4)


def cmsis_depthwise(c: Convolution, cpu: str) -> int:
    if c.type == INT16:
        return 0
    taps = c.rows.taps * c.columns.taps
    if cpu == "mve" and c.depth == 1 and c.channels > 1:
        return cmsis_conv(c, cpu) + c.channels * taps
    if c.depth != c.channels or c.batches != 1 or c.rows.dilation * c.columns.dilation != 1:
        return 0
    if cpu == "mve":
        return 496 * taps
    if cpu == "none" or (c.rows.taps == c.columns.taps == 3 and max(c.rows.before, c.columns.before) <= 1):
        return 0
    return 2 * c.channels * taps


def cmsis_transpose(c: Convolution, cpu: str, outputs: int) -> list[int]:
    if c.type == INT16:
        return [8 * outputs]
    if max(c.rows.stride, c.columns.stride) <= 2 and c.depth > 16:
        return [4 * up(c.column, 16 if cpu == "mve" else 4), c.column * c.channels]
    width = (c.columns.size - 1) * c.columns.stride + max(c.columns.taps, c.rows.stride)
    return [4 * width * c.channels * max(c.rows.taps, c.rows.stride), 0]


def s3_conv(c: Convolution) -> int:
    (h, w), (kh, kw) = (c.rows.size, c.columns.size), (c.rows.taps, c.columns.taps)
    padded = c.rows.before or c.columns.before
    if kh == kw == c.rows.stride == c.columns.stride == 1 and not padded:
        n = up(c.depth, 8)
        return (w * h * n if c.depth % 8 else 0) + n * c.channels + (0 if w * h < 8 else 16 * n) + 64
    if kw * c.depth < 16 <= c.column:
        return 4 * c.channels + 16 + c.channels * up(c.column, 16) + 16 + up(c.column, 16) + 64
    image = (w + 2 * c.columns.before) * (h + 2 * c.rows.before) * c.depth if padded else 0
    right = max(0, c.columns.places * c.columns.stride + kw - 1 - w)
    bottom = max(0, c.rows.places * c.rows.stride + kh - 1 - h)
    bound = (w + right) * (h + bottom) * c.depth if right or bottom else 0
    return (
        image
        + kw * kh * up(c.depth, 16) * c.channels
        + up(kw * c.depth, 16) * kh * c.channels
        + bound
        + 64
        + 4 * c.channels
    )


CPUS = {"none": "cortex-m0", "dsp": "cortex-m7", "mve": "cortex-m85"}


def scratch(model: tflm.Model, part: str, kernels: str) -> list[int]:
    found = tflm.measure_arena(model, tflm.AllOpsResolver(), target=tflm.targets.PARTS[part], kernels=kernels)
    return [buffer.bytes for buffer in found.buffers if buffer.kind == "scratch"]


@pytest.mark.parametrize("cpu", CPUS)
@settings(max_examples=examples(30))
@given(plain=convolutions(), multiplied=convolutions(multiplies=True))
def test_convolutions_of_cmsis_nn(plain: Convolution, multiplied: Convolution, cpu: str) -> None:
    found = scratch(plain.model(BuiltinOperator.CONV_2D), CPUS[cpu], "cmsis-nn")
    assert found == [size for size in [cmsis_conv(plain, cpu)] if size]
    found = scratch(multiplied.model(BuiltinOperator.DEPTHWISE_CONV_2D), CPUS[cpu], "cmsis-nn")
    assert found == [size for size in [cmsis_depthwise(multiplied, cpu)] if size]
    model = plain.model(BuiltinOperator.TRANSPOSE_CONV)
    outputs = prod((model.subgraphs[0].tensors or [])[-1].shape or ())
    assert scratch(model, CPUS[cpu], "cmsis-nn") == cmsis_transpose(plain, cpu, outputs)


@st.composite
def one_row(draw: Draw) -> Convolution:
    """Of an image of one row, by windows of one row: what Helium has code of its own for, and what just misses it."""
    windows = Windows(
        draw(st.integers(1, 20)), draw(st.integers(1, 6)), draw(st.integers(1, 5)), 1, draw(st.booleans())
    )
    columns = windows._replace(dilation=draw(st.sampled_from([1, 1, 1, 2])))
    rows = Windows(draw(st.sampled_from([1, 1, 1, 2])), 1, draw(st.integers(1, 2)), 1, windows.padded)
    assume(columns.places > 0)
    return Convolution(1, rows, columns, draw(st.integers(1, 5)), draw(st.integers(1, 3)), INT8)


@settings(max_examples=examples(80))
@given(conv=one_row())
def test_windows_of_one_row_with_helium(conv: Convolution) -> None:
    found = scratch(conv.model(BuiltinOperator.CONV_2D), "cortex-m55", "cmsis-nn")
    assert found == [size for size in [cmsis_conv(conv, "mve")] if size]


@pytest.mark.parametrize("stride", [1, 2, 3, 4])
def test_windows_wider_than_their_row_with_helium(stride: int) -> None:
    """Where those that reach into the padding on either side are all, or more than there are."""
    for size, taps in itertools.product((1, 2, 3, 4, 5, 8), (3, 5, 6, 7, 9)):
        columns = Windows(size, taps, stride, 1, padded=True)
        conv = Convolution(1, Windows(1, 1, 1, 1, padded=True), columns, 4, 2, INT8)
        found = scratch(conv.model(BuiltinOperator.CONV_2D), "cortex-m55", "cmsis-nn")
        assert found == [cmsis_conv(conv, "mve")]


def valid(
    size: tuple[int, int], taps: tuple[int, int], stride: int = 1, padded: bool = False
) -> tuple[Windows, Windows]:
    """Windows along rows and columns."""
    rows, columns = (Windows(n, t, stride, 1, padded) for n, t in zip(size, taps))
    return rows, columns


@pytest.mark.parametrize(
    ("conv", "size"),
    [
        (Convolution(1, *valid((7, 7), (7, 1)), 73, 2, INT16), 4 * 511),
        (Convolution(1, *valid((7, 7), (2, 4)), 64, 2, INT16), 0),
        (Convolution(1, *valid((7, 7), (3, 3)), 57, 2, INT16), 0),
        (Convolution(1, Windows(7, 2, 1, 2, False), Windows(7, 2, 1, 1, False), 3, 2, INT16), 0),
        (Convolution(1, Windows(7, 2, 1, 1, False), Windows(7, 2, 1, 2, False), 3, 2, INT16), 0),
        (Convolution(1, *valid((7, 7), (2, 2)), 3, 2, INT16), 4 * 12),
        (Convolution(1, *valid((7, 7), (1, 1)), 3, 2, INT8), 0),
        (Convolution(1, *valid((7, 7), (1, 1), 2), 3, 2, INT8), 4 * 3),
        (Convolution(1, *valid((7, 7), (1, 2)), 3, 2, INT8), 4 * 6),
    ],
)
def test_columns_of_the_arduino_library(conv: Convolution, size: int) -> None:
    """Of int16, windows of 512 elements and more take no buffer."""
    model = conv.model(BuiltinOperator.CONV_2D)
    assert scratch(model, "cortex-m4", "arduino") == ([size] if size else [])
    small = [size] if size and conv.type == INT8 else []
    assert scratch(model, "cortex-m0", "arduino") == small


@pytest.mark.parametrize(
    ("conv", "size"),
    [
        (Convolution(1, *valid((1, 8), (1, 2)), 3, 2, INT8), 4 * 8),
        (Convolution(1, *valid((1, 9), (1, 3)), 3, 2, INT8), 4 * 16),
        (Convolution(1, *valid((1, 6), (1, 3)), 3, 2, INT8), 0),
        (Convolution(1, *valid((2, 6), (1, 3)), 3, 2, INT8), 4 * 16),
    ],
)
def test_columns_of_the_arduino_library_with_helium(conv: Convolution, size: int) -> None:
    """Windows of one row take none where they are as many as a multiple of 4; columns are rounded up to 8."""
    found = scratch(conv.model(BuiltinOperator.CONV_2D), "cortex-m55", "arduino")
    assert found == ([size] if size else [])


def p4_conv(c: Convolution) -> int:
    """Scratch of an ESP32-P4: the sums of the filter, and windows, filters or images filled up to vectors."""
    (h, w), (kh, kw) = (c.rows.size, c.columns.size), (c.rows.taps, c.columns.taps)
    top, left = c.rows.before, c.columns.before
    sums, whole_filter = 4 * c.channels, kh * kw * up(c.depth, 16) * c.channels
    if (kh, kw, c.rows.stride, c.columns.stride, top, left) == (1, 1, 1, 1, 0, 0):
        if c.depth < 16:
            return sums + 16 * c.channels + 64
        n = up(c.depth, 8)
        return (h * w * n if n != c.depth else 0) + n * c.channels + (16 * n if h * w >= 8 else 0) + 32
    if top == left == 0 and kw * c.depth >= 16:
        return whole_filter + sums + 32
    if c.column >= 16:
        return sums + c.column + 32
    filled = up(-(-16 // kw), 16)
    wide_filter = kh * kw * filled * c.channels
    if top == left == 0:
        return sums + wide_filter + h * w * filled + 32
    image = (h + 2 * top) * (w + 2 * left) * c.depth
    if image + sums <= 32 * 1024:
        return image + whole_filter + sums + 32
    row, room = (w + 2 * left) * filled, 32 * 1024 - sums - wide_filter
    at_once = 1
    while at_once < c.rows.places and ((at_once * c.rows.stride) + kh) * row <= room:
        at_once += 1
    return ((at_once - 1) * c.rows.stride + kh + 2 * top) * row + wide_filter + sums + 32


def s3_depthwise(c: Convolution) -> int:
    """Scratch of an ESP32-S3: filter and image, as int16 or with rows of padding, all or as many rows as a window."""
    (h, w), taps = (c.rows.size, c.columns.size), (c.rows.taps, c.columns.taps)
    filter, image = taps[0] * taps[1] * c.channels, h * w * c.depth
    if c.depth != c.channels:
        return 2 * (filter + image) + 32 if c.channels // c.depth % 4 == 0 else 32
    if c.depth % 8 and c.depth <= 3:
        return 32
    if c.depth % 8:
        n = up(c.depth, 8)
        places = c.rows.places * c.columns.places
        return up(up(up(2 * taps[0] * taps[1] * n, 16) + 2 * h * w * n, 16) + places * n, 16) + 12 * n + 16
    beyond = [max(0, a.places * a.stride + 2 - a.size) for a in (c.rows, c.columns)]
    around = [2 * a.before for a in (c.rows, c.columns)]
    if taps != (3, 3):
        return 2 * (filter + (image if 2 * (filter + image) <= 48 * 1024 else w * taps[0] * c.depth)) + 32
    if c.depth == 8:
        return 2 * (filter + image) + 32
    if c.depth % 16:
        n = up(c.depth, 16)
        with_border = (h + around[0] + beyond[0]) * (w + around[1] + beyond[1])
        return (9 + with_border + c.rows.places * c.columns.places) * n + 64
    more = around if any(around) else beyond
    if not any(more):
        return filter + 16
    padded = (h + more[0]) * (w + more[1]) * c.depth
    return filter + 16 + (padded if padded <= 40 * 1024 else 3 * (w + more[1]) * c.depth)


VECTORS = [
    Convolution(1, *valid((7, 9), (2, 4)), 4, 3, INT8),  # a row of a window fills a vector
    Convolution(1, *valid((7, 9), (2, 3)), 5, 3, INT8),  # lacks an element
    Convolution(1, *valid((7, 9), (2, 2)), 4, 3, INT8),  # a window fills one
    Convolution(1, *valid((7, 9), (3, 5)), 1, 3, INT8),  # lacks an element
    Convolution(1, *valid((7, 9), (2, 4), padded=True), 4, 3, INT8),
    Convolution(1, *valid((7, 9), (2, 2), padded=True), 4, 3, INT8),
    Convolution(1, *valid((7, 9), (3, 5), padded=True), 1, 3, INT8),
    Convolution(1, *valid((7, 1), (1, 1)), 15, 4, INT8),
    Convolution(1, *valid((7, 1), (1, 1)), 16, 4, INT8),
    Convolution(1, *valid((2, 4), (1, 1)), 16, 4, INT8),
    Convolution(1, *valid((2, 4), (1, 1)), 20, 4, INT8),
    Convolution(1, *valid((6, 6), (1, 1), 2), 16, 4, INT8),
    Convolution(1, *valid((174, 184), (3, 3), padded=True), 1, 8, INT8),  # image and sums are the whole cache
    Convolution(1, *valid((174, 184), (3, 3), padded=True), 1, 9, INT8),  # more than that
    Convolution(1, *valid((174, 180), (3, 3), 2, padded=True), 1, 40, INT8),
    Convolution(1, *valid((60, 700), (3, 3), padded=True), 1, 8, INT8),  # three rows do not fit
]


@pytest.mark.parametrize("conv", VECTORS, ids=lambda conv: f"{conv.input[1:]}x{conv.rows.taps, conv.columns.taps}")
def test_where_windows_just_fill_a_vector_of_esp_nn(conv: Convolution) -> None:
    model = conv.model(BuiltinOperator.CONV_2D)
    assert scratch(model, "esp32s3", "esp-nn") == [s3_conv(conv)]
    assert scratch(model, "esp32p4", "esp-nn") == [p4_conv(conv)]


@settings(max_examples=60)
@given(conv=convolutions())
def test_convolutions_of_esp_nn_on_another_chip(conv: Convolution) -> None:
    found = scratch(conv.model(BuiltinOperator.CONV_2D), "esp32p4", "esp-nn")
    assert found == ([p4_conv(conv)] if conv.type == INT8 else [])


DEPTHWISE = [
    *(
        Convolution(1, *valid((6, 7), taps, stride, padded), depth, depth, INT8)
        for depth in (1, 3, 4, 5, 8, 12, 16, 24, 32, 40)
        for taps, stride, padded in (((3, 3), 1, True), ((3, 3), 2, False), ((3, 3), 1, False), ((2, 3), 1, True))
    ),
    *(Convolution(1, *valid((6, 7), (3, 3)), 2, 2 * times, INT8) for times in (2, 3, 4, 6, 8)),
    Convolution(1, *valid((38, 62), (3, 3), padded=True), 16, 16, INT8),  # a padded image of 40 KiB
    Convolution(1, *valid((38, 63), (3, 3), padded=True), 16, 16, INT8),  # more than that
    Convolution(1, *valid((15, 204), (2, 6)), 8, 8, INT8),  # filter and image of 48 KiB, as int16
    Convolution(1, *valid((5, 613), (2, 6)), 8, 8, INT8),  # more than that
]


@pytest.mark.parametrize("conv", DEPTHWISE, ids=lambda conv: f"{conv.input[1:]}x{conv.rows.taps, conv.columns.taps}")
def test_depthwise_convolutions_of_esp_nn(conv: Convolution) -> None:
    model = conv.model(BuiltinOperator.DEPTHWISE_CONV_2D)
    assert scratch(model, "esp32s3", "esp-nn") == [s3_depthwise(conv)]
    assert scratch(model, "esp32p4", "esp-nn") == []


@settings(max_examples=30)
@given(plain=convolutions())
def test_convolutions_of_esp_nn(plain: Convolution) -> None:
    model = plain.model(BuiltinOperator.CONV_2D)
    assert scratch(model, "esp32", "esp-nn") == []
    assert scratch(model, "esp32s3", "esp-nn") == ([s3_conv(plain)] if plain.type == INT8 else [])
