"""Models that kernels' instructions are fitted to: int8 layers of random shapes, one or several side by side."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import tflm
from tflm.kernels.layers.geometry import output_size
from tflm.schema import (
    ActivationFunctionType,
    AddOptions,
    ArgMaxOptions,
    ArgMinOptions,
    BuiltinOperator,
    Conv2DOptions,
    DepthwiseConv2DOptions,
    FullyConnectedOptions,
    LeakyReluOptions,
    MirrorPadOptions,
    MulOptions,
    Padding,
    PadOptions,
    Pool2DOptions,
    QuantizationParameters,
    ReducerOptions,
    SoftmaxOptions,
    TensorType,
)
from tflm.schema.builder import SubgraphBuilder

TAPS = [(1, 1), (1, 1), (3, 3), (3, 3), (3, 3), (5, 5), (2, 2), (1, 3), (3, 1), (10, 4), (10, 8)]
CHANNELS = [1, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]
ACTIVATIONS = [ActivationFunctionType.NONE, ActivationFunctionType.RELU, ActivationFunctionType.RELU6]
WEIGHTS: dict[TensorType, tuple[Any, Any]] = {
    TensorType.INT8: (np.int8, np.int32),
    TensorType.INT16: (np.int8, np.int64),
    TensorType.FLOAT32: (np.float32, np.float32),
}
"""Types of weights and biases, by that of the input."""

Values = Callable[[np.random.Generator, tuple[int, ...]], Any]
"""Draws weights of a shape."""

ENCODED: dict[str, Values] = {
    "pruned": lambda rng, shape: rng.integers(-127, 128, shape) * (rng.random(shape) < 0.4),
    "look_up": lambda rng, shape: rng.choice([-90, -60, -31, -3, 17, 46, 80, 111], shape),
    "huffman": lambda rng, shape: np.clip(np.rint(rng.normal(0, 12, shape)), -127, 127),
}
"""Weights that each encoding is the shortest for."""

SIDE_BY_SIDE = 4
"""Layers of every other model: compilers make a kernel that is called once for its arguments."""


def training_models() -> Iterator[tuple[str, tflm.Model]]:
    """Models with their names; always the same ones."""
    for operator, kind, make, count in TRAINING:
        yield from _models(f"{operator.lower()}_{kind.name.lower()}", operator, kind, make, count)
    yield from _models("depthwise_3x3", "DEPTHWISE_CONV_2D", TensorType.INT8, _scaled_windows, MOST)
    for operator, kinds in REDUCED_ROWS.items():
        for kind in kinds:
            yield from _models(f"{operator.lower()}_rows_{kind.name.lower()}", operator, kind, _reduced_rows, FEW)
    for encoding, values in ENCODED.items():
        for operator, make, count in (("CONV_2D", _convolution, FEW), ("FULLY_CONNECTED", _fully_connected, MANY)):
            name = f"{operator.lower()}_{encoding}"
            for each, model in _models(name, operator, TensorType.INT8, make, count, values):
                yield each, tflm.compress(model).model


def _models(
    name: str,
    operator: str,
    kind: TensorType,
    make: Callable[[Layer], int],
    count: int,
    values: Values | None = None,
) -> Iterator[tuple[str, tflm.Model]]:
    draw = random.Random(name)
    for number in range(count):
        builder = tflm.ModelBuilder()
        graph = builder.subgraph()
        for place in range(1 if number % 2 else SIDE_BY_SIDE):
            graph.output(make(Layer(draw, graph, place, BuiltinOperator[operator], kind, values)))
        yield f"{name}_{number}", tflm.Model(builder.build())


class Layer(NamedTuple):
    """What a layer is made with.

    Attributes:
        draw: of its shape.
        graph: that it is added to.
        place: its number in the graph.
        operator: what it is.
        type: of its input and output.
        values: its weights; any of the type by default.
    """

    draw: random.Random
    graph: SubgraphBuilder
    place: int
    operator: BuiltinOperator
    type: TensorType
    values: Values | None = None

    def input(self, name: str, shape: tuple[int, ...], scale: float, zero_point: int = 0) -> int:
        """Add an input."""
        quantization = self._quantized(scale, zero_point)
        return self.graph.input(f"{name}_{self.place}", shape, self.type, quantization=quantization)

    def output(self, shape: tuple[int, ...], scale: float, zero_point: int = 0) -> int:
        """Add the tensor that it computes."""
        quantization = self._quantized(scale, zero_point)
        return self.graph.tensor(f"y_{self.place}", shape, self.type, quantization=quantization)

    def _quantized(self, scale: float, zero_point: int = 0) -> QuantizationParameters | None:
        """Integers of 16 bits have no zero point; floats, bools and larger integers have no quantization."""
        if self.type not in (TensorType.INT8, TensorType.INT16):
            return None
        return tflm.quantized(scale, zero_point if self.type == TensorType.INT8 else 0)

    def weights(self, shape: tuple[int, ...], channels: int) -> list[int]:
        """Add weights and biases."""
        weights, bias = WEIGHTS[self.type]
        rng = np.random.default_rng(0)
        drawn = rng.integers(-127, 128, shape) if self.values is None else self.values(rng, shape)
        values = drawn.astype(weights)
        zeros = np.zeros(channels, bias)
        return [
            self.graph.constant(f"weights_{self.place}", values, quantization=self._quantized(0.02)),
            self.graph.constant(f"bias_{self.place}", zeros, quantization=self._quantized(0.0004)),
        ]


def _convolution(layer: Layer, taps: tuple[int, int] | None = None, scale: float = 0.05) -> int:
    """CONV_2D or DEPTHWISE_CONV_2D, with any taps by default, and with this scale of the output."""
    draw, is_depthwise = layer.draw, layer.operator == BuiltinOperator.DEPTHWISE_CONV_2D
    taps = taps or draw.choice(TAPS)
    size, sizes, stride, padding = _window(draw, taps)
    depth, channels = draw.choice(CHANNELS), draw.choice(CHANNELS)
    copies = draw.choice([1, 1, 1, 2, 3, 4])
    channels = depth * copies if is_depthwise else channels
    x = layer.input("x", (1, *size, depth), 0.02, draw.choice([-128, 3]))
    weights = layer.weights((1, *taps, channels) if is_depthwise else (channels, *taps, depth), channels)
    y = layer.output((1, *sizes, channels), scale, draw.choice([-128, 3]))
    kind = DepthwiseConv2DOptions if is_depthwise else Conv2DOptions
    activation = draw.choice(ACTIVATIONS)
    options = kind(padding=padding, stride_h=stride, stride_w=stride, fused_activation_function=activation)
    if padding == Padding.SAME and stride == 1:
        options.dilation_h_factor = options.dilation_w_factor = draw.choice([1, 1, 1, 2])
    if isinstance(options, DepthwiseConv2DOptions):
        options.depth_multiplier = copies
    layer.graph.operator(layer.operator, [x, *weights], [y], options)
    return y


def _scaled_windows(layer: Layer) -> int:
    """DEPTHWISE_CONV_2D of 3 x 3 with a scale for which sums may have to be corrected before they are shifted."""
    return _convolution(layer, (3, 3), layer.draw.choice([0.05, 0.15, 0.25]))


def _pool(layer: Layer) -> int:
    draw, taps = layer.draw, layer.draw.choice(TAPS)
    size, sizes, stride, padding = _window(draw, taps)
    depth, zero_point = draw.choice(CHANNELS), draw.choice([-128, 3])
    x, y = layer.input("x", (1, *size, depth), 0.02, zero_point), layer.output((1, *sizes, depth), 0.02, zero_point)
    options = Pool2DOptions(
        padding=padding,
        stride_h=stride,
        stride_w=stride,
        filter_height=taps[0],
        filter_width=taps[1],
        fused_activation_function=draw.choice(ACTIVATIONS),
    )
    layer.graph.operator(layer.operator, [x], [y], options)
    return y


def _window(draw: random.Random, taps: tuple[int, int]) -> tuple[tuple[int, ...], tuple[int, ...], int, Padding]:
    """Sizes of an input and its output, stride and padding."""
    stride, padding = draw.choice([1, 1, 2]), draw.choice([Padding.SAME, Padding.VALID])
    rows, columns = (draw.randint(max(count, 3), 20) for count in taps)
    if draw.random() < 0.5:  # a program may compute an image a row at a time
        rows = taps[0] if padding == Padding.VALID else draw.randint(1, taps[0])
    size = rows, columns
    return size, tuple(output_size(padding, *each, stride) for each in zip(size, taps)), stride, padding


def _transpose(layer: Layer) -> int:
    draw = layer.draw
    shape, order = [draw.randint(1, 12) for _ in range(draw.randint(2, 4))], list[int]()
    while order == sorted(order):
        order = draw.sample(range(len(shape)), len(shape))
    x = layer.input("x", tuple(shape), 0.02, 3)
    y = layer.output(tuple(shape[d] for d in order), 0.02, 3)
    numbers = layer.graph.constant(f"order_{layer.place}", np.array(order, np.int32))
    layer.graph.operator(layer.operator, [x, numbers], [y])
    return y


def _fully_connected(layer: Layer) -> int:
    draw = layer.draw
    depth, channels, vectors = draw.randint(1, 700), draw.randint(1, 130), draw.choice([1, 1, 1, 2, 5, 9])
    x = layer.input("x", (vectors, depth), 0.02, 3)
    y = layer.output((vectors, channels), 0.05, draw.choice([-128, 3]))
    options = FullyConnectedOptions(fused_activation_function=draw.choice(ACTIVATIONS))
    layer.graph.operator(layer.operator, [x, *layer.weights((channels, depth), channels)], [y], options)
    return y


def _element_wise(layer: Layer) -> int:
    """ADD or MUL of tensors of one shape."""
    draw = layer.draw
    shape = (1, draw.randint(1, 20), draw.randint(1, 20), draw.choice(CHANNELS))
    tensors = [layer.input(f"x{i}", shape, 0.02 + i / 100) for i in (0, 1)]
    y = layer.output(shape, 0.05, draw.choice([-128, 3]))
    kind = AddOptions if layer.operator == BuiltinOperator.ADD else MulOptions
    layer.graph.operator(layer.operator, tensors, [y], kind(fused_activation_function=draw.choice(ACTIVATIONS)))
    return y


TO_BOOL = ("EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "LOGICAL_AND", "LOGICAL_OR")


def _broadcast(layer: Layer) -> int:
    """An operator of inputs, each of which lacks some dimensions."""
    draw, graph, name = layer.draw, layer.graph, layer.operator.name
    shape = (1, draw.randint(2, 12), draw.randint(2, 12), draw.choice(CHANNELS[2:]))
    shapes = (*shape[:1], 1, *shape[2:]), draw.choice([(*shape[:3], 1), (*shape[:2], 1, shape[3])])
    tensors = [layer.input(f"x{i}", each, 0.1) for i, each in enumerate(shapes)]
    if name == "SELECT_V2":
        tensors.insert(0, graph.input(f"condition_{layer.place}", shape, TensorType.BOOL))
    to_bool = name in TO_BOOL
    y = graph.tensor(f"y_{layer.place}", shape, TensorType.BOOL) if to_bool else layer.output(shape, 0.1)
    graph.operator(layer.operator, tensors, [y])
    return y


def _moved(layer: Layer) -> int:
    """SLICE, MIRROR_PAD or REVERSE_V2 with positions that are inputs."""
    draw, graph, name = layer.draw, layer.graph, layer.operator.name
    shape = (1, draw.randint(3, 12), draw.randint(3, 12), draw.choice(CHANNELS[2:]))
    counts: dict[str, list[tuple[int, ...]]] = {"SLICE": [(4,), (4,)], "MIRROR_PAD": [(4, 2)], "REVERSE_V2": [(1,)]}
    x = layer.input("x", shape, 0.1, 3)
    positions = [graph.input(f"p{i}_{layer.place}", count, TensorType.INT32) for i, count in enumerate(counts[name])]
    grown = {"SLICE": -1, "MIRROR_PAD": 2, "REVERSE_V2": 0}[name]
    y = layer.output((1, shape[1] + grown, *shape[2:]), 0.1, 3)
    graph.operator(layer.operator, [x, *positions], [y], MirrorPadOptions() if name == "MIRROR_PAD" else None)
    return y


def _softmax(layer: Layer) -> int:
    shape = (layer.draw.choice([1, 1, 3, 20]), layer.draw.randint(2, 60))
    x, y = layer.input("x", shape, 0.1), layer.output(shape, 1 / 256, -128)
    layer.graph.operator(layer.operator, [x], [y], SoftmaxOptions(beta=1.0))
    return y


def _pad(layer: Layer) -> int:
    draw = layer.draw
    shape = (1, draw.randint(1, 20), draw.randint(1, 20), draw.choice(CHANNELS))
    paddings = [(0, 0), (draw.randint(0, 2), draw.randint(0, 2)), (draw.randint(0, 2), draw.randint(0, 2)), (0, 0)]
    x = layer.input("x", shape, 0.1, 3)
    amounts = layer.graph.constant(f"paddings_{layer.place}", np.array(paddings, np.int32))
    y = layer.output(tuple(size + sum(pair) for size, pair in zip(shape, paddings)), 0.1, 3)
    layer.graph.operator(layer.operator, [x, amounts], [y], PadOptions())
    return y


def _reduction(layer: Layer) -> int:
    """MEAN or another reduction, along axes that are adjacent or not."""
    draw = layer.draw
    shape = (draw.choice([1, 1, 3]), draw.randint(1, 12), draw.randint(1, 12), draw.choice(CHANNELS))
    axes = draw.choice([(1, 2), (1, 2), (1,), (2,), (3,), (1, 3), (0, 2)])
    x = layer.input("x", shape, 0.1, 3)
    numbers = layer.graph.constant(f"axes_{layer.place}", np.array(axes, np.int32))
    y = layer.output(tuple(1 if d in axes else size for d, size in enumerate(shape)), 0.1, 3)
    layer.graph.operator(layer.operator, [x, numbers], [y], ReducerOptions(keep_dims=True))
    return y


def _index_of_extreme(layer: Layer) -> int:
    """ARG_MAX or ARG_MIN, along any axis."""
    draw = layer.draw
    shape = (draw.choice([1, 1, 3]), draw.randint(1, 12), draw.choice(CHANNELS))
    axis = draw.randrange(3)
    x = layer.input("x", shape, 0.1, 3)
    number = layer.graph.constant(f"axis_{layer.place}", np.array([axis], np.int32))
    y = layer.graph.tensor(f"y_{layer.place}", shape[:axis] + shape[axis + 1 :], TensorType.INT32)
    options = ArgMaxOptions() if layer.operator == BuiltinOperator.ARG_MAX else ArgMinOptions()
    layer.graph.operator(layer.operator, [x, number], [y], options)
    return y


def _reduced_rows(layer: Layer) -> int:
    """PAD along the channels, and a reduction of all rows that keeps no image with the least RAM."""
    draw, graph, name = layer.draw, layer.graph, layer.operator.name
    shape = (1, draw.randint(4, 16), draw.randint(1, 12), draw.choice(CHANNELS[1:]))
    padded = (*shape[:3], 2 * shape[3])
    x = layer.input("x", shape, 0.1, 3)
    paddings = np.array([(0, 0), (0, 0), (0, 0), (0, shape[3])], np.int32)
    image = layer.output(padded, 0.1, 3)
    graph.operator(BuiltinOperator.PAD, [x, graph.constant(f"paddings_{layer.place}", paddings)], [image], PadOptions())
    axes = (1, 2) if name.endswith("POOL_2D") else draw.choice([(1, 2), (1, 2), (1,), (1, 3), (1, 2, 3)])
    y = layer.output(tuple(1 if d in axes else size for d, size in enumerate(padded)), 0.1, 3)
    if name.endswith("POOL_2D"):
        options = Pool2DOptions(
            padding=Padding.VALID, filter_height=shape[1], filter_width=shape[2], stride_h=1, stride_w=1
        )
        graph.operator(layer.operator, [image], [y], options)
    else:
        numbers = graph.constant(f"axes_{layer.place}", np.array(axes, np.int32))
        graph.operator(layer.operator, [image, numbers], [y], ReducerOptions(keep_dims=True))
    return y


def _changed(layer: Layer) -> int:
    """LEAKY_RELU or LOGISTIC."""
    draw = layer.draw
    shape = (1, draw.randint(1, 20), draw.choice(CHANNELS))
    x, y = layer.input("x", shape, 0.02), layer.output(shape, 1 / 256, -128)
    options = LeakyReluOptions(alpha=0.3) if layer.operator == BuiltinOperator.LEAKY_RELU else None
    layer.graph.operator(layer.operator, [x], [y], options)
    return y


FLOATS_AND_INTEGERS = TensorType.FLOAT32, TensorType.INT8, TensorType.INT16
REDUCED_ROWS = {
    **dict.fromkeys(("MEAN", "SUM", "AVERAGE_POOL_2D", "MAX_POOL_2D"), FLOATS_AND_INTEGERS),
    **dict.fromkeys(("REDUCE_MAX", "REDUCE_MIN"), FLOATS_AND_INTEGERS[:2]),
}
"""Operators that combine rows with totals, with their types."""

MOST, MANY, FEW, SOME = 64, 24, 8, 2
TRAINING: list[tuple[str, TensorType, Callable[[Layer], int], int]] = [
    ("CONV_2D", TensorType.INT8, _convolution, MOST),
    ("CONV_2D", TensorType.INT16, _convolution, MANY),
    ("CONV_2D", TensorType.FLOAT32, _convolution, MANY),
    ("DEPTHWISE_CONV_2D", TensorType.INT8, _convolution, MOST),
    ("DEPTHWISE_CONV_2D", TensorType.INT16, _convolution, FEW),
    ("DEPTHWISE_CONV_2D", TensorType.FLOAT32, _convolution, FEW),
    ("AVERAGE_POOL_2D", TensorType.INT8, _pool, FEW),
    ("AVERAGE_POOL_2D", TensorType.FLOAT32, _pool, FEW),
    ("MAX_POOL_2D", TensorType.INT8, _pool, FEW),
    ("FULLY_CONNECTED", TensorType.INT8, _fully_connected, MANY),
    ("FULLY_CONNECTED", TensorType.FLOAT32, _fully_connected, FEW),
    ("ADD", TensorType.INT8, _element_wise, FEW),
    ("ADD", TensorType.FLOAT32, _element_wise, FEW),
    ("MUL", TensorType.INT8, _element_wise, FEW),
    ("SOFTMAX", TensorType.INT8, _softmax, FEW),
    ("PAD", TensorType.INT8, _pad, FEW),
    ("TRANSPOSE", TensorType.INT8, _transpose, FEW),
    ("TRANSPOSE", TensorType.INT16, _transpose, FEW),
    ("TRANSPOSE", TensorType.FLOAT32, _transpose, FEW),
    ("MEAN", TensorType.INT8, _reduction, FEW),
    ("MEAN", TensorType.FLOAT32, _reduction, FEW),
    ("SUM", TensorType.INT8, _reduction, FEW),
    ("SUM", TensorType.INT16, _reduction, FEW),
    ("REDUCE_MAX", TensorType.INT8, _reduction, FEW),
    *(
        (operator, kind, _index_of_extreme, FEW)
        for operator in ("ARG_MAX", "ARG_MIN")
        for kind in FLOATS_AND_INTEGERS[:2]
    ),
    ("LEAKY_RELU", TensorType.INT8, _changed, FEW),
    ("LEAKY_RELU", TensorType.INT16, _changed, FEW),
    ("LOGISTIC", TensorType.INT8, _changed, FEW),
    *(
        (operator, kind, _broadcast, SOME)
        for operator in ("MAXIMUM", "MINIMUM", "SELECT_V2")
        for kind in (TensorType.FLOAT32, TensorType.INT8, TensorType.INT16)
    ),
    *(
        (operator, TensorType.FLOAT32, _broadcast, SOME)
        for operator in ("DIV", "FLOOR_DIV", "FLOOR_MOD", "PRELU", "SQUARED_DIFFERENCE", *TO_BOOL[:6])
    ),
    *((operator, TensorType.BOOL, _broadcast, SOME) for operator in TO_BOOL[6:]),
    *(
        (operator, kind, _moved, SOME)
        for operator in ("MIRROR_PAD", "REVERSE_V2", "SLICE")
        for kind in (TensorType.FLOAT32, TensorType.INT8)
    ),
]
"""Operators with the types of their tensors, what makes them, and how many models have them."""
