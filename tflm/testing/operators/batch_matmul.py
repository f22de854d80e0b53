"""Models of products of matrices over batches."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tflm.schema import (
    ELEMENT_TYPES,
    BatchMatMulOptions,
    BuiltinOperator,
    QuantizationParameters,
    TensorType,
    quantized,
)
from tflm.testing.drawing import FLOAT32, INT8, INT16, Draw, OperatorCase, factors, float32, scales, values, zero_points
from tflm.testing.operators.single_operator import SingleOperator

TYPES = (FLOAT32, INT8, INT16)


@st.composite
def batch_matmul(draw: Draw) -> OperatorCase:
    """BATCH_MATMUL of any batches that broadcast; either side an input or a constant, or swapped."""
    type = draw(st.sampled_from(TYPES))
    rows, depth, columns = draw(st.integers(1, 6)), draw(st.integers(1, 20)), draw(st.integers(1, 6))
    batches = tuple(draw(st.lists(st.integers(1, 3), max_size=3)))
    sides = [draw(_broadcasting(batches)) for _ in range(2)]
    options = BatchMatMulOptions(adj_x=draw(st.booleans()), adj_y=draw(st.booleans()))
    shapes = (
        (*sides[0], *((depth, rows) if options.adj_x else (rows, depth))),
        (*sides[1], *((columns, depth) if options.adj_y else (depth, columns))),
    )
    parameters = _parameters(draw, type)
    node = SingleOperator(invokes=2)
    constant = draw(st.sampled_from([None, 0, 1]))
    for i, shape in enumerate(shapes):
        if i == constant:
            node.constant(values(draw, type, shape), parameters[i])
        else:
            node.drawn(draw, type, shape, parameters[i])
    output = np.broadcast_shapes(*sides)
    return node.case(BuiltinOperator.BATCH_MATMUL, [((*output, rows, columns), type, parameters[2])], options)


def _broadcasting(batches: tuple[int, ...]) -> st.SearchStrategy[tuple[int, ...]]:
    """Shapes that broadcast to `batches` or to less."""
    ones = st.tuples(*(st.sampled_from([size, size, 1]) for size in batches))
    return st.tuples(ones, st.sampled_from([0, 0, len(batches)])).map(lambda pair: pair[0][pair[1] :])


def _parameters(draw: Draw, type: TensorType) -> list[QuantizationParameters | None]:
    if type == FLOAT32:
        return [None] * 3
    left, right = draw(scales(-12, 2)), draw(scales(-12, 2))
    points = [draw(zero_points(INT8)) if type == INT8 else 0 for _ in range(3)]
    scale = float32(left * right * draw(factors(-2, 14)))
    return [quantized(s, p) for s, p in zip((left, right, scale), points)]


def _large(type: TensorType) -> OperatorCase:
    """Two batches of 64 x 512 times 512 x 256, both inputs."""
    dtype: Any = ELEMENT_TYPES[type].dtype
    parameters = None if type == FLOAT32 else quantized(0.01)
    node = SingleOperator()
    for shape in ((2, 64, 512), (2, 512, 256)):
        node.input(type, [np.ones(shape, dtype)], parameters)
    return node.case(BuiltinOperator.BATCH_MATMUL, [((2, 64, 256), type, parameters)], BatchMatMulOptions())


OPERATORS = {"BATCH_MATMUL": batch_matmul()}

LARGE = {f"BATCH_MATMUL-{type.name}": partial(_large, type) for type in TYPES}
