"""Random graphs over images: convolutions, pools, PADs, additions and what else can run band by band."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from models import INT8, Draw

import tflm
from tflm.schema import (
    ActivationFunctionType,
    AddOptions,
    BuiltinOperator,
    ConcatenationOptions,
    Conv2DOptions,
    DepthwiseConv2DOptions,
    ModelBuilder,
    Padding,
    PadOptions,
    Pool2DOptions,
    SliceOptions,
    SubgraphBuilder,
    quantized,
)

Shape = tuple[int, int, int, int]

ACTIVATIONS = st.sampled_from([ActivationFunctionType.NONE, ActivationFunctionType.RELU6])


class Images:
    """Adds operators over int8 images to a subgraph.

    Attributes:
        shapes: of the images so far, by tensor.
    """

    def __init__(self, main: SubgraphBuilder, shape: Shape, seed: int = 0):
        self.main = main
        self.random = np.random.default_rng(seed)
        self.shapes: dict[int, Shape] = {}
        self.last = self._keep(main.input("x", shape, INT8, quantized(0.05, -3)), shape)

    def _keep(self, tensor: int, shape: Shape) -> int:
        self.shapes[tensor] = shape
        self.last = tensor
        return tensor

    def _image(self, shape: Shape, quantization: Any = None) -> int:
        parameters = quantization or quantized(0.05 * (1 + len(self.shapes) % 3), int(self.random.integers(-20, 20)))
        return self._keep(self.main.tensor(f"t{len(self.shapes)}", shape, INT8, parameters), shape)

    def convolution(
        self,
        x: int,
        channels: int = 0,
        taps: tuple[int, int] = (3, 3),
        strides: tuple[int, int] = (1, 1),
        dilations: tuple[int, int] = (1, 1),
        padding: Padding = Padding.SAME,
        activation: ActivationFunctionType = ActivationFunctionType.NONE,
        multiplier: int = 1,
    ) -> int:
        """CONV_2D, or with no channels DEPTHWISE_CONV_2D."""
        n, height, width, depth = self.shapes[x]
        made = channels or depth * multiplier
        kernel = (made, *taps, depth) if channels else (1, *taps, made)
        weights = self.random.integers(-127, 128, kernel).astype(np.int8)
        scales = [0.02 / np.sqrt(taps[0] * taps[1] * (depth if channels else 1))] * made
        w = self.main.constant("w", weights, quantized(scales, 0, 0 if channels else 3))
        bias = self.random.integers(-500, 500, made).astype(np.int32)
        b = self.main.constant("b", bias, quantized([0.05 * scale for scale in scales]))
        rows, columns = (windows(padding, *of) for of in zip((height, width), taps, strides, dilations))
        y = self._image((n, rows, columns, made))
        common = {
            "padding": padding,
            "stride_h": strides[0],
            "stride_w": strides[1],
            "dilation_h_factor": dilations[0],
            "dilation_w_factor": dilations[1],
            "fused_activation_function": activation,
        }
        if channels:
            self.main.operator(BuiltinOperator.CONV_2D, [x, w, b], [y], Conv2DOptions(**common), version=3)
        else:
            options = DepthwiseConv2DOptions(depth_multiplier=multiplier, **common)
            self.main.operator(BuiltinOperator.DEPTHWISE_CONV_2D, [x, w, b], [y], options, version=3)
        return y

    def pool(
        self, x: int, kind: BuiltinOperator, taps: tuple[int, int], strides: tuple[int, int], padding: Padding
    ) -> int:
        """A pool, which keeps the quantization."""
        n, height, width, depth = self.shapes[x]
        rows, columns = (windows(padding, *of, 1) for of in zip((height, width), taps, strides))
        y = self._image((n, rows, columns, depth), self._quantization(x))
        options = Pool2DOptions(
            padding=padding, stride_h=strides[0], stride_w=strides[1], filter_height=taps[0], filter_width=taps[1]
        )
        self.main.operator(kind, [x], [y], options, version=2)
        return y

    def pad(self, x: int, rows: tuple[int, int], columns: tuple[int, int]) -> int:
        """PAD with zeros."""
        n, height, width, depth = self.shapes[x]
        y = self._image((n, height + sum(rows), width + sum(columns), depth), self._quantization(x))
        paddings = self.main.constant("paddings", np.array([(0, 0), rows, columns, (0, 0)], np.int32))
        self.main.operator(BuiltinOperator.PAD, [x, paddings], [y], PadOptions(), version=2)
        return y

    def add(self, x: int, other: int) -> int:
        """ADD of two images of one shape."""
        y = self._image(self.shapes[x])
        self.main.operator(BuiltinOperator.ADD, [x, other], [y], AddOptions(), version=2)
        return y

    def cropped(self, x: int, first: int, rows: int, channel: int = 0, channels: int | None = None) -> int:
        """Some rows and channels, by SLICE."""
        n, _, width, depth = self.shapes[x]
        shape = n, rows, width, depth - channel if channels is None else channels
        y = self._image(shape, self._quantization(x))
        parts = (np.array(values, np.int32) for values in ((0, first, 0, channel), shape))
        begins, sizes = (self.main.constant("part", values) for values in parts)
        self.main.operator(BuiltinOperator.SLICE, [x, begins, sizes], [y], SliceOptions(), version=2)
        return y

    def beside(self, x: int, other: int) -> int:
        """CONCATENATION along the channels."""
        *rest, depth = self.shapes[x]
        y = self._image((*rest, depth + self.shapes[other][3]), self._quantization(x))
        self.main.operator(BuiltinOperator.CONCATENATION, [x, other], [y], ConcatenationOptions(axis=3), version=2)
        return y

    def element_wise(self, x: int) -> int:
        """RELU6, or LOGISTIC with its own quantization."""
        if self.random.integers(2):
            y = self._image(self.shapes[x], quantized(1 / 256, -128))
            self.main.operator(BuiltinOperator.LOGISTIC, [x], [y], version=2)
        else:
            y = self._image(self.shapes[x], self._quantization(x))
            self.main.operator(BuiltinOperator.RELU6, [x], [y], version=2)
        return y

    def _quantization(self, tensor: int) -> Any:
        return (self.main.table.tensors or [])[tensor].quantization


def windows(padding: Padding, size: int, taps: int, stride: int, dilation: int) -> int:
    """How many windows fit along a dimension."""
    extent = (taps - 1) * dilation + 1
    return -(-size // stride) if padding == Padding.SAME else (size - extent) // stride + 1


@st.composite
def image_graph(draw: Draw) -> bytes:
    """A model of two to eight operators over images, each fed by the last images made; of one batch mostly."""
    builder = ModelBuilder()
    batches = draw(st.sampled_from([1, 1, 1, 2]))
    shape = batches, draw(st.integers(4, 20)), draw(st.integers(2, 10)), draw(st.integers(1, 6))
    images = Images(builder.subgraph(), shape, draw(st.integers(0, 99)))
    for _ in range(draw(st.integers(2, 8))):
        _add(draw, images)
    images.main.output(images.last)
    return builder.build()


def _add(draw: Draw, images: Images) -> None:
    x = images.last
    _, height, width, depth = images.shapes[x]
    others = [t for t, shape in images.shapes.items() if shape == images.shapes[x]]
    kind = draw(st.sampled_from(["convolution", "depthwise", "pool", "pad", "add", "beside", "element"]))
    taps, strides = _pair(draw, 1, min(4, height), min(4, width)), _pair(draw, 1, 3, 3)
    padding = draw(st.sampled_from([Padding.SAME, Padding.SAME, Padding.VALID]))
    if kind in ("convolution", "depthwise"):
        dilations = _pair(draw, 1, 2, 2)
        if padding == Padding.VALID and any(
            (t - 1) * d >= size for t, d, size in zip(taps, dilations, (height, width))
        ):
            dilations = (1, 1)
        channels = draw(st.integers(1, 8)) if kind == "convolution" else 0
        multiplier = draw(st.sampled_from([1, 1, 2])) if depth < 5 else 1
        images.convolution(x, channels, taps, strides, dilations, padding, draw(ACTIVATIONS), multiplier)
    elif kind == "pool":
        code = draw(st.sampled_from([BuiltinOperator.AVERAGE_POOL_2D, BuiltinOperator.MAX_POOL_2D]))
        images.pool(x, code, taps, strides, padding)
    elif kind == "pad":
        images.pad(x, _pair(draw, 0, 3, 3), _pair(draw, 0, 2, 2))
    elif kind == "add":
        images.add(x, draw(st.sampled_from(others)))
    elif kind == "beside" and depth < 12:
        images.beside(x, x)
    else:
        images.element_wise(x)


def _pair(draw: Draw, least: int, first: int, second: int) -> tuple[int, int]:
    return draw(st.integers(least, max(first, least))), draw(st.integers(least, max(second, least)))


def shrinking_network(size: int) -> tflm.Model:
    """Four convolutions of an image of that height and width, each with smaller images than the one before."""
    builder = ModelBuilder()
    images = Images(builder.subgraph(), (1, size, size, 3))
    x = images.convolution(images.last, 8, strides=(2, 2))
    x = images.convolution(x)
    x = images.convolution(x, 16, taps=(1, 1))
    images.main.output(images.convolution(x, 4, strides=(2, 2)))
    return tflm.Model(builder.build())
