"""Models of operators that work element by element on broadcast inputs."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tflm.schema import (
    AddOptions,
    BuiltinOperator,
    DivOptions,
    MulOptions,
    SubOptions,
    TensorType,
    quantized,
)
from tflm.testing.drawing import (
    ACTIVATIONS,
    FLOAT32,
    INT8,
    INT16,
    INT32,
    INT64,
    Draw,
    OperatorCase,
    broadcast_shapes,
    factors,
    float32,
    scale_of,
    scales,
    shapes,
    values,
    zero_point_of,
    zero_points,
)
from tflm.testing.operators.single_operator import SingleOperator, large

COMPARISONS = (
    BuiltinOperator.EQUAL,
    BuiltinOperator.NOT_EQUAL,
    BuiltinOperator.GREATER,
    BuiltinOperator.GREATER_EQUAL,
    BuiltinOperator.LESS,
    BuiltinOperator.LESS_EQUAL,
)
LOGICAL = (BuiltinOperator.LOGICAL_AND, BuiltinOperator.LOGICAL_OR)
WITHOUT_OPTIONS = (
    BuiltinOperator.MAXIMUM,
    BuiltinOperator.MINIMUM,
    BuiltinOperator.SQUARED_DIFFERENCE,
    BuiltinOperator.FLOOR_DIV,
    BuiltinOperator.FLOOR_MOD,
    *COMPARISONS,
    *LOGICAL,
)
OPTIONS: dict[BuiltinOperator, Any] = {
    BuiltinOperator.ADD: AddOptions,
    BuiltinOperator.SUB: SubOptions,
    BuiltinOperator.MUL: MulOptions,
    BuiltinOperator.DIV: DivOptions,
    **dict.fromkeys(WITHOUT_OPTIONS),
}
OF_ANY_RANK = (
    *(BuiltinOperator.ADD, BuiltinOperator.SUB, BuiltinOperator.MUL, BuiltinOperator.DIV),
    *(BuiltinOperator.MAXIMUM, BuiltinOperator.MINIMUM),
)
"""Operators that broadcast as many dimensions as a shape of TFLM can have."""
TYPES = {
    **dict.fromkeys(OPTIONS, (FLOAT32, INT32, INT8, INT16)),
    BuiltinOperator.DIV: (FLOAT32, INT32, INT8),
    BuiltinOperator.MAXIMUM: (FLOAT32, INT32, INT8, INT16, INT64),
    BuiltinOperator.MINIMUM: (FLOAT32, INT32, INT8, INT16, INT64),
    BuiltinOperator.FLOOR_DIV: (FLOAT32,),
    BuiltinOperator.FLOOR_MOD: (FLOAT32,),
    **dict.fromkeys(COMPARISONS, (FLOAT32, INT32, INT64, INT8)),
    BuiltinOperator.EQUAL: (FLOAT32, INT32, INT64, INT8, TensorType.BOOL),
    BuiltinOperator.NOT_EQUAL: (FLOAT32, INT32, INT64, INT8, TensorType.BOOL),
    **dict.fromkeys(LOGICAL, (TensorType.BOOL,)),
}


@st.composite
def arithmetic(draw: Draw, operator: BuiltinOperator) -> OperatorCase:
    """Two inputs, or an input and a constant, with broadcasting and activations."""
    type = draw(st.sampled_from(TYPES[operator]))
    shape1, shape2 = broadcast_shapes(draw, 6 if operator in OF_ANY_RANK else 4)
    output_shape = np.broadcast_shapes(shape1, shape2)
    options = OPTIONS[operator]
    # An output much finer than the inputs is refused by ADD: the output's scale is drawn to be mostly allowed.
    scale = draw(scales(-14, -8) if operator in COMPARISONS else scales(-10, 4))
    parameters = [
        None if type not in (INT8, INT16) else quantized(float32(scale * draw(factor)), draw(zero_points(type)))
        for factor in (factors(-6, 6), factors(-6, 6), factors(-24, 12))
    ]
    first, second = values(draw, type, shape1), values(draw, type, shape2)
    if operator in COMPARISONS and type not in (FLOAT32, TensorType.BOOL) and draw(st.booleans()):
        first, second = first % 2, second % 2  # of which some are equal
    if operator == BuiltinOperator.DIV and type != FLOAT32:
        second[second == zero_point_of(parameters[1])] += 1  # TFLM crashes on a divisor of zero in INT32
    model = SingleOperator()
    model.input(type, [first], parameters[0])
    model.either(draw, second, type, parameters[1])
    boolean = operator in COMPARISONS or operator in LOGICAL
    output = (output_shape, TensorType.BOOL, None) if boolean else (output_shape, type, parameters[2])
    return model.case(operator, [output], options(fused_activation_function=draw(ACTIVATIONS)) if options else None)


def _large_quantization(operator: BuiltinOperator, type: TensorType) -> Any:
    if operator in COMPARISONS and type == INT8:
        return quantized(0.5), quantized(0.25), None
    return None if type in (INT8, INT16) else (None,) * 3


@st.composite
def prelu(draw: Draw) -> OperatorCase:
    """PRELU with an alpha of any shape that broadcasts, a constant or not."""
    type = draw(st.sampled_from([FLOAT32, INT8, INT16]))
    alpha_type = INT8 if type == INT16 else type
    shape = draw(shapes(1, 4, 5))
    alpha_shape = tuple(draw(st.sampled_from([n, 1])) for n in shape)[draw(st.integers(0, len(shape) - 1)) :]
    scale = draw(scales(-10, 4))
    parameters = [
        None if type == FLOAT32 else quantized(float32(scale * draw(factor)), draw(zero_points(kind)))
        for factor, kind in ((factors(-6, 6), type), (factors(-6, 6), alpha_type), (factors(-24, 12), type))
    ]
    model = SingleOperator()
    model.drawn(draw, type, shape, parameters[0])
    model.either(draw, values(draw, alpha_type, alpha_shape), alpha_type, parameters[1])
    return model.case(BuiltinOperator.PRELU, [(shape, type, parameters[2])])


@st.composite
def add_n(draw: Draw) -> OperatorCase:
    """ADD_N of two to six inputs."""
    type = draw(st.sampled_from([FLOAT32, INT8]))
    shape = draw(shapes(1, 4, 5))
    input = None if type == FLOAT32 else quantized(draw(scales(-10, 4)), draw(zero_points(type)))
    model = SingleOperator()
    for _ in range(draw(st.integers(2, 6))):
        model.drawn(draw, type, shape, input)
    output = input and quantized(float32(scale_of(input) * draw(factors(-18, 12))), draw(zero_points(type)))
    return model.case(BuiltinOperator.ADD_N, [(shape, type, output)])


@st.composite
def select(draw: Draw) -> OperatorCase:
    """SELECT_V2 of inputs that broadcast."""
    type = draw(st.sampled_from([FLOAT32, INT8, INT16]))
    shape = draw(shapes(1, 5, 4))
    parts = [tuple(draw(st.sampled_from([n, n, 1])) for n in shape) for _ in range(3)]
    result = np.broadcast_shapes(*parts)
    model = SingleOperator()
    for part, kind in zip(parts, (TensorType.BOOL, type, type)):
        model.drawn(draw, kind, part)
    return model.case(BuiltinOperator.SELECT_V2, [(result, type, None)])


OPERATORS = {
    **{operator.name: arithmetic(operator) for operator in OPTIONS},
    "PRELU": prelu(),
    "ADD_N": add_n(),
    "SELECT_V2": select(),
}

LARGE = {
    **{
        f"{operator.name}-{type.name}": partial(
            large,
            operator,
            (type, type, TensorType.BOOL if operator in (*COMPARISONS, *LOGICAL) else type),
            _large_quantization(operator, type),
            options() if options else None,
        )
        for operator, options in OPTIONS.items()
        for type in TYPES[operator]
    },
    **{
        f"PRELU-{type.name}": partial(large, BuiltinOperator.PRELU, (type, INT8 if type == INT16 else type, type))
        for type in (FLOAT32, INT8, INT16)
    },
    **{
        f"ADD_N-{type.name}": partial(
            large, BuiltinOperator.ADD_N, (type,) * 4, None if type == FLOAT32 else (quantized(0.5),) * 4
        )
        for type in (FLOAT32, INT8)
    },
    **{
        f"SELECT_V2-{type.name}": partial(
            large, BuiltinOperator.SELECT_V2, (TensorType.BOOL, type, type, type), (None,) * 4
        )
        for type in (FLOAT32, INT8, INT16)
    },
}
