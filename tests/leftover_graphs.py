"""Random graphs with what converters leave in them: TRANSPOSEs, conversions there and back, needless operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from models import FLOAT32, INT8, Draw

import tflm
from tflm.graph import Graph
from tflm.schema import (
    AddOptions,
    BuiltinOperator,
    ConcatenationOptions,
    ModelBuilder,
    MulOptions,
    Padding,
    PadOptions,
    Pool2DOptions,
    ReducerOptions,
    SliceOptions,
    SplitOptions,
    TensorType,
    quantized,
)
from tflm.schema.tables import Operator

Shape = tuple[int, ...]

ALIKE = quantized(0.05, 3)
LARGEST = 2000


class Leftovers:
    """Adds operators to a subgraph whose integers all have one scale.

    Attributes:
        shapes: of the tensors so far.
        last: the tensor that was made last.
    """

    def __init__(self, shape: Shape, type: TensorType, seed: int = 0):
        self.builder = ModelBuilder()
        self.main = self.builder.subgraph()
        self.type = type
        self.random = np.random.default_rng(seed)
        self.shapes: dict[int, Shape] = {}
        self.last = self.main.input("x", shape, type, self.quantization(type))
        self.shapes[self.last] = shape

    def quantization(self, type: TensorType) -> Any:
        return None if type == FLOAT32 else ALIKE

    def new(self, shape: Sequence[int], type: TensorType | None = None) -> int:
        type = type or self.type
        self.last = self.main.tensor(f"t{len(self.shapes)}", tuple(shape), type, self.quantization(type))
        self.shapes[self.last] = tuple(shape)
        return self.last

    def numbers(self, values: Any) -> int:
        return self.main.constant("numbers", np.array(values, np.int32))

    def constant(self, shape: Shape) -> int:
        values = self.random.integers(-90, 90, shape)
        elements = values.astype(np.int8) if self.type == INT8 else (values / 16).astype(np.float32)
        return self.main.constant("c", elements, self.quantization(self.type))

    def operator(self, code: BuiltinOperator, inputs: list[int], shape: Sequence[int], options: Any = None) -> int:
        y = self.new(shape)
        self.main.operator(code, inputs, [y], options)
        return y

    def transpose(self, x: int, order: Sequence[int]) -> int:
        shape = [self.shapes[x][axis] for axis in order]
        return self.operator(BuiltinOperator.TRANSPOSE, [x, self.numbers(order)], shape)

    def with_constant(self, x: int, shape: Shape) -> int:
        options = self.random.choice([AddOptions(), MulOptions()])  # type: ignore[arg-type]
        code = BuiltinOperator.ADD if isinstance(options, AddOptions) else BuiltinOperator.MUL
        return self.operator(code, [x, self.constant(shape)], self.shapes[x], options)

    def reduce(self, code: BuiltinOperator, x: int, axes: Sequence[int], keep_dims: bool) -> int:
        shape = [1 if i in axes else n for i, n in enumerate(self.shapes[x]) if keep_dims or i not in axes]
        return self.operator(code, [x, self.numbers(axes)], shape, ReducerOptions(keep_dims=keep_dims))

    def pool(self, code: BuiltinOperator, x: int, window: tuple[int, int], stride: tuple[int, int]) -> int:
        batches, height, width, channels = self.shapes[x]
        shape = (batches, -(-height // stride[0]), -(-width // stride[1]), channels)
        options = Pool2DOptions(
            padding=Padding.SAME,
            stride_h=stride[0],
            stride_w=stride[1],
            filter_height=window[0],
            filter_width=window[1],
        )
        return self.operator(code, [x], shape, options)

    def concatenate(self, tensors: list[int], axis: int) -> int:
        """Tensors of one shape."""
        shape = list(self.shapes[tensors[0]])
        shape[axis] *= len(tensors)
        return self.operator(BuiltinOperator.CONCATENATION, tensors, shape, ConcatenationOptions(axis=axis))

    def split(self, x: int, axis: int, parts: int) -> list[int]:
        shape = list(self.shapes[x])
        shape[axis] //= parts
        made = [self.new(shape) for _ in range(parts)]
        options = SplitOptions(num_splits=parts)
        self.main.operator(BuiltinOperator.SPLIT, [self.numbers(axis), x], made, options)
        return made

    def pad(self, x: int, paddings: list[tuple[int, int]]) -> int:
        shape = [size + sum(pair) for size, pair in zip(self.shapes[x], paddings)]
        return self.operator(BuiltinOperator.PAD, [x, self.numbers(paddings)], shape, PadOptions())

    def slice(self, x: int, begin: list[int], size: list[int]) -> int:
        return self.operator(BuiltinOperator.SLICE, [x, self.numbers(begin), self.numbers(size)], size, SliceOptions())

    def there_and_back(self, x: int) -> int:
        """DEQUANTIZE and QUANTIZE; a RESHAPE to the same shape where the elements are floats already."""
        shape = self.shapes[x]
        if self.type == FLOAT32:
            return self.operator(BuiltinOperator.RESHAPE, [x, self.numbers(shape)], shape)
        real = self.main.tensor("real", shape, FLOAT32)
        self.main.operator(BuiltinOperator.DEQUANTIZE, [x], [real])
        y = self.new(shape)
        self.main.operator(BuiltinOperator.QUANTIZE, [real], [y])
        return y

    def build(self, outputs: Sequence[int]) -> bytes:
        self.main.output(*outputs)
        return self.builder.build()


KINDS = ("there", "there", "around", "around", "beside", "unary", "unary", "constant", "binary", "reduce", "pool")
MORE_KINDS = ("concatenate", "split", "pad", "slice", "there and back")


@st.composite
def leftover_graph(draw: Draw) -> bytes:
    """A model of up to twelve steps from any tensor before; TRANSPOSEs alone or around others."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=2, max_size=4)))
    graph = Leftovers(shape, draw(st.sampled_from([FLOAT32, INT8])), draw(st.integers(0, 9)))
    for _ in range(draw(st.integers(1, 12))):
        recent = sorted(graph.shapes)[-draw(st.sampled_from([1, 1, 1, 4])) :]
        _step(graph, draw, draw(st.sampled_from(recent)), 1)
    everything = sorted(graph.shapes)
    others = draw(st.lists(st.sampled_from(everything[1:]), max_size=2, unique=True))
    return graph.build(list(dict.fromkeys([graph.last, *others])))


def _step(graph: Leftovers, draw: Draw, x: int, depth: int) -> None:
    shape = graph.shapes[x]
    kind = draw(st.sampled_from((*KINDS, *MORE_KINDS)))
    axis = draw(st.integers(0, len(shape) - 1)) if shape else 0
    if not shape:
        graph.operator(BuiltinOperator.RELU, [x], shape)
    elif kind == "there":
        graph.transpose(x, draw(st.permutations(range(len(shape)))))
    elif kind == "around" and depth:
        order = draw(st.permutations(range(len(shape))))
        graph.transpose(x, order)
        for _ in range(draw(st.integers(1, 3))):
            _step(graph, draw, graph.last, 0)
        if len(graph.shapes[graph.last]) == len(shape):
            graph.transpose(graph.last, np.argsort(order).tolist())
    elif kind == "beside":
        order = draw(st.permutations(range(len(shape))))
        turned = [graph.transpose(tensor, order) for tensor in (x, graph.operator(BuiltinOperator.RELU, [x], shape))]
        graph.operator(BuiltinOperator.ADD, turned, graph.shapes[turned[0]], AddOptions())
    elif kind == "constant":
        ones = tuple(draw(st.sampled_from([n, 1])) for n in shape)
        graph.with_constant(x, ones[draw(st.integers(0, len(shape) - 1)) :])
    elif kind == "binary":
        same = [tensor for tensor, of in graph.shapes.items() if of == shape]
        code, options = draw(st.sampled_from([(BuiltinOperator.ADD, AddOptions()), (BuiltinOperator.MAXIMUM, None)]))
        graph.operator(code, [x, draw(st.sampled_from(same))], shape, options)
    elif kind == "reduce":
        codes = (BuiltinOperator.MEAN, BuiltinOperator.SUM, BuiltinOperator.REDUCE_MAX)
        axes = draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, max_size=len(shape), unique=True))
        graph.reduce(draw(st.sampled_from(codes)), x, axes, draw(st.booleans()) or len(axes) == len(shape))
    elif kind == "pool" and len(shape) == 4:
        code = draw(st.sampled_from([BuiltinOperator.MAX_POOL_2D, BuiltinOperator.AVERAGE_POOL_2D]))
        pairs = st.tuples(st.integers(1, 2), st.integers(1, 3))
        graph.pool(code, x, draw(pairs), draw(pairs))
    elif kind == "concatenate" and np.prod(shape) < LARGEST:
        graph.concatenate(draw(st.sampled_from([[x, x], [x, graph.constant(shape)]])), axis)
    elif kind == "split" and shape[axis] % 2 == 0:
        graph.split(x, axis, 2)
    elif kind == "pad" and len(shape) <= 4 and np.prod(shape) < LARGEST:
        graph.pad(x, [draw(st.sampled_from([(0, 0), (1, 0), (0, 2)])) for _ in shape])
    elif kind == "slice":
        begin = [draw(st.integers(0, n - 1)) for n in shape]
        graph.slice(x, begin, [draw(st.integers(1, n - first)) for n, first in zip(shape, begin)])
    elif kind == "there and back":
        graph.there_and_back(x)
    else:
        graph.operator(BuiltinOperator.RELU, [x], shape)


def with_leftovers(draw: Draw, model: bytes) -> bytes:
    """Draw a model in which operators that change nothing follow some of the tensors."""
    graph = Graph(tflm.Model(model))
    operators = []
    names: dict[int, int] = {}
    for operator in graph.operators:
        inputs = [names.get(tensor, tensor) for tensor in operator.inputs or ()]
        operators.append(graph.like(operator, inputs, operator.outputs or ()))
        for tensor in operator.outputs or ():
            kind = draw(st.sampled_from(["none", "transposes", "conversions", "reshapes"]))
            if kind != "none" and tensor not in graph.outputs:
                there, back = _pair_of(graph, draw, tensor, kind)
                operators += [there, back]
                names[tensor] = (back.outputs or ())[0]
    graph.operators = operators
    return graph.build()


def _pair_of(graph: Graph, draw: Draw, tensor: int, kind: str) -> tuple[Operator, Operator]:
    """Two operators of which the second undoes the first."""
    shape = graph.shape(tensor)
    order = draw(st.permutations(range(len(shape))))
    through = {
        "transposes": tuple(shape[axis] for axis in order),
        "reshapes": (graph.size(tensor),),
        "conversions": shape,
    }
    middle, end = (graph.add_tensor(tensor, kind, of) for of in (through[kind], shape))
    if kind == "conversions":
        graph.tensors[middle].type, graph.tensors[middle].quantization = FLOAT32, None
        codes, numbers = (BuiltinOperator.DEQUANTIZE, BuiltinOperator.QUANTIZE), [None, None]
    elif kind == "reshapes":
        codes, numbers = (BuiltinOperator.RESHAPE,) * 2, [np.array(of, np.int32) for of in (through[kind], shape)]
    else:
        codes, numbers = (BuiltinOperator.TRANSPOSE,) * 2, [np.array(of, np.int32) for of in (order, np.argsort(order))]
    made = [
        graph.make_operator(code, 2, [source, *([] if by is None else [graph.add_constant("", by)])], [output])
        for code, by, source, output in zip(codes, numbers, (tensor, middle), (middle, end))
    ]
    return made[0], made[1]
