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

from tflm.schema import AddOptions, BuiltinOperator, ModelBuilder, MulOptions, quantized


@st.composite
def arithmetic(draw: Draw, operator: BuiltinOperator) -> Case:
    """ADD or MUL of two inputs, or of an input and a constant, with broadcasting and activations."""
    type = draw(st.sampled_from([FLOAT32, INT32, INT8, INT16]))
    shape1, shape2 = broadcast_shapes(draw)
    output_shape = np.broadcast_shapes(shape1, shape2)
    kind = {BuiltinOperator.ADD: AddOptions, BuiltinOperator.MUL: MulOptions}[operator]
    # An output much finer than the inputs is refused by ADD: the output's scale is drawn to be mostly allowed.
    scale = draw(scales(-10, 4))
    parameters = [
        None if type in (FLOAT32, INT32) else quantized(float32(scale * draw(factor)), draw(zero_points(type)))
        for factor in (factors(-6, 6), factors(-6, 6), factors(-24, 12))
    ]
    builder = ModelBuilder()
    main = builder.subgraph()
    a = main.input("a", shape1, type, parameters[0])
    inputs = [values(draw, type, shape1)]
    second = values(draw, type, shape2)
    if draw(st.booleans()):
        b = main.constant("b", second, parameters[1])
    else:
        b = main.input("b", shape2, type, parameters[1])
        inputs.append(second)
    y = main.tensor("y", output_shape, type, parameters[2])
    main.operator(operator, [a, b], [y], kind(fused_activation_function=draw(ACTIVATIONS)))
    main.output(y)
    return builder.build(), [inputs]


OPERATORS = {"ADD": arithmetic(BuiltinOperator.ADD), "MUL": arithmetic(BuiltinOperator.MUL)}

LARGE = {
    f"{operator.name}-{type.name}": partial(
        large, operator, (type,) * 3, (None,) * 3 if type == INT32 else None, options()
    )
    for operator, options in ((BuiltinOperator.ADD, AddOptions), (BuiltinOperator.MUL, MulOptions))
    for type in (FLOAT32, INT32)
}
