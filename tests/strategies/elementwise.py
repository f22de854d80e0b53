"""Models of operators that work element by element on broadcast inputs."""

from __future__ import annotations

from functools import partial

import numpy as np
from hypothesis import strategies as st
from models import (
    ACTIVATIONS,
    FLOAT32,
    INT8,
    INT16,
    INT32,
    INT64,
    Case,
    Draw,
    broadcast_shapes,
    factors,
    float32,
    large,
    scales,
    values,
    zero_points,
)

from tflm.schema import AddOptions, BuiltinOperator, DivOptions, ModelBuilder, MulOptions, SubOptions, quantized

OPTIONS = {
    BuiltinOperator.ADD: AddOptions,
    BuiltinOperator.SUB: SubOptions,
    BuiltinOperator.MUL: MulOptions,
    BuiltinOperator.DIV: DivOptions,
    BuiltinOperator.MAXIMUM: None,
    BuiltinOperator.MINIMUM: None,
}
TYPES = {
    **dict.fromkeys(OPTIONS, (FLOAT32, INT32, INT8, INT16)),
    BuiltinOperator.DIV: (FLOAT32, INT32, INT8),
    BuiltinOperator.MAXIMUM: (FLOAT32, INT32, INT8, INT16, INT64),
    BuiltinOperator.MINIMUM: (FLOAT32, INT32, INT8, INT16, INT64),
}


@st.composite
def arithmetic(draw: Draw, operator: BuiltinOperator) -> Case:
    """Two inputs, or an input and a constant, with broadcasting and activations."""
    type = draw(st.sampled_from(TYPES[operator]))
    shape1, shape2 = broadcast_shapes(draw)
    output_shape = np.broadcast_shapes(shape1, shape2)
    options = OPTIONS[operator]
    # An output much finer than the inputs is refused by ADD: the output's scale is drawn to be mostly allowed.
    scale = draw(scales(-10, 4))
    parameters = [
        None if type in (FLOAT32, INT32, INT64) else quantized(float32(scale * draw(factor)), draw(zero_points(type)))
        for factor in (factors(-6, 6), factors(-6, 6), factors(-24, 12))
    ]
    builder = ModelBuilder()
    main = builder.subgraph()
    a = main.input("a", shape1, type, parameters[0])
    inputs = [values(draw, type, shape1)]
    second = values(draw, type, shape2)
    if operator == BuiltinOperator.DIV and type != FLOAT32:
        zero = 0 if parameters[1] is None else parameters[1].zero_point[0]
        second[second == zero] += 1  # which TFLM does not survive in INT32
    if draw(st.booleans()):
        b = main.constant("b", second, parameters[1])
    else:
        b = main.input("b", shape2, type, parameters[1])
        inputs.append(second)
    y = main.tensor("y", output_shape, type, parameters[2])
    main.operator(operator, [a, b], [y], options(fused_activation_function=draw(ACTIVATIONS)) if options else None)
    main.output(y)
    return builder.build(), [inputs]


OPERATORS = {operator.name: arithmetic(operator) for operator in OPTIONS}

LARGE = {
    f"{operator.name}-{type.name}": partial(
        large,
        operator,
        (type,) * 3,
        (None,) * 3 if type in (INT32, INT64) else None,
        options() if options else None,
    )
    for operator, options in OPTIONS.items()
    for type in TYPES[operator]
}
