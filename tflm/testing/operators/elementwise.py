"""Models of operators that work element by element on broadcast inputs."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tflm.schema import TensorType, quantized
from tflm.testing.drawing import (
    FLOAT32,
    INT8,
    INT16,
    LARGE_SHAPE,
    Draw,
    OperatorCase,
    broadcast_shapes,
    factors,
    float32,
    scales,
    shapes,
    values,
    zero_point_of,
    zero_points,
)
from tflm.testing.operators.declared import DrawnOperator, large, strategy

BOOL = TensorType.BOOL
OF_ANY_RANK = ("ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM")
"""Operators that broadcast the maximum number of dimensions of a shape in TFLM."""
COMPARISONS = ("EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL")
TO_BOOL = (*COMPARISONS, "LOGICAL_AND", "LOGICAL_OR")
BINARY = (*OF_ANY_RANK, "SQUARED_DIFFERENCE", "FLOOR_DIV", "FLOOR_MOD", *TO_BOOL)


@strategy(*BINARY)
def binary(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Two inputs, or an input and a constant, with broadcasting and activations."""
    name, type = model.name, model.type
    # An output much finer than the inputs is refused by ADD: the output's scale is drawn to be mostly allowed.
    scale = draw(scales(-14, -8) if name in COMPARISONS else scales(-10, 4))
    parameters = [
        None if type not in (INT8, INT16) else quantized(float32(scale * draw(factor)), draw(zero_points(type)))
        for factor in (factors(-6, 6), factors(-6, 6), factors(-24, 12))
    ]
    first, second = (values(draw, type, shape) for shape in broadcast_shapes(draw, 6 if name in OF_ANY_RANK else 4))
    if name in COMPARISONS and type not in (FLOAT32, BOOL) and draw(st.booleans()):
        first, second = first % 2, second % 2  # of which some are equal
    if name == "DIV" and type != FLOAT32:
        second[second == zero_point_of(parameters[1])] += 1  # TFLM crashes on a divisor of zero in INT32
    model.input(type, [first], parameters[0])
    model.either(draw, second, type, parameters[1])
    if name in TO_BOOL:
        return model.result(type=BOOL)
    return model.result(parameters[2])


@strategy("PRELU")
def prelu(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """An alpha of any shape that broadcasts, a constant or not."""
    alpha_type = INT8 if model.type == INT16 else model.type
    shape = draw(shapes(1, 4, 5))
    alpha_shape = tuple(draw(st.sampled_from([n, 1])) for n in shape)[draw(st.integers(0, len(shape) - 1)) :]
    scale = draw(scales(-10, 4))
    input, output = model.scaled(*(factor.map(lambda f: f * scale) for factor in (factors(-6, 6), factors(-24, 12))))
    alpha = input and quantized(float32(scale * draw(factors(-6, 6))), draw(zero_points(alpha_type)))
    model.operand(shape, input)
    model.either(draw, values(draw, alpha_type, alpha_shape), alpha_type, alpha)
    return model.result(output)


@strategy("ADD_N")
def add_n(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Two to six inputs."""
    shape, scale = draw(shapes(1, 4, 5)), draw(scales(-10, 4))
    input, output = model.scaled(st.just(scale), factors(-18, 12).map(lambda factor: factor * scale))
    for _ in range(draw(st.integers(2, 6))):
        model.operand(shape, input)
    return model.result(output)


@strategy("SELECT_V2")
def select(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Three inputs that broadcast."""
    shape = draw(shapes(1, 5, 4))
    for type in (BOOL, model.type, model.type):
        model.operand([draw(st.sampled_from([n, n, 1])) for n in shape], type=type)
    return model.result()


for operator in BINARY:
    by_type = (0.5, 0.25) if operator in COMPARISONS else (0.01, 0.02, 0.03)
    large(operator, LARGE_SHAPE, LARGE_SHAPE, scales=by_type, type=BOOL if operator in TO_BOOL else None)
large("PRELU", LARGE_SHAPE, LARGE_SHAPE, kinds=[FLOAT32, INT8, (INT16, INT8, INT16)], scales=(0.01, 0.02, 0.03))
large("ADD_N", LARGE_SHAPE, LARGE_SHAPE, LARGE_SHAPE)
large("SELECT_V2", np.ones(LARGE_SHAPE, np.bool_), LARGE_SHAPE, LARGE_SHAPE, scales=(None,))
