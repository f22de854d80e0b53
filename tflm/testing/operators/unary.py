"""Models of functions of one number."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tflm.testing.drawing import (
    FLOAT32,
    INT8,
    INT16,
    LARGE_SHAPE,
    Draw,
    OperatorCase,
    quantization,
    rescaled,
    shapes,
    zero_point_of,
)
from tflm.testing.operators.declared import DrawnOperator, large, strategy
from tflm.testing.operators.single_operator import any_values

FLOAT_FUNCTIONS = ("SIN", "COS", "LOG", "SQRT", "SQUARE", "EXP", "NEG", "CEIL", "FLOOR", "ROUND")
FUNCTIONS = (*FLOAT_FUNCTIONS, "ABS", "RSQRT", "LOGICAL_NOT", "ELU", "HARD_SWISH", "ZEROS_LIKE")
POSITIVE = ("LOG", "SQRT", "RSQRT")


@strategy(*FUNCTIONS)
def function(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Draw inputs in a function's domain, with halves among the floats."""
    name, type = model.name, model.type
    plain = type not in (INT8, INT16) or (type == INT16 and name == "ABS" and draw(st.booleans()))
    input = None if plain else quantization(draw, type, -14, 2)
    output = None if input is None else draw(st.just(input)) if draw(st.booleans()) else rescaled(draw, type, input)
    x = any_values(draw, type, draw(shapes()))
    if type == FLOAT32:
        x.reshape(-1)[::2] = np.rint(x.reshape(-1)[::2] * 2) / 2
        x = abs(x) + np.float32(0.25) if name in POSITIVE else x
        x = np.minimum(x, np.float32(80)) if name == "EXP" else x
    elif name == "RSQRT" and input is not None and draw(st.integers(0, 5)):
        x = np.maximum(x, zero_point_of(input)).astype(x.dtype)
    model.input(type, [x], input)
    return model.result(output)


for operator in FUNCTIONS:
    large(operator, LARGE_SHAPE, scales=(0.01, 0.02))
