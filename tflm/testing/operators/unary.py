"""Models of functions of one number."""

from __future__ import annotations

from functools import partial

import numpy as np
from hypothesis import strategies as st

from tflm.schema import BuiltinOperator, TensorType
from tflm.testing.drawing import (
    FLOAT32,
    INT8,
    INT16,
    INT32,
    INT64,
    Draw,
    OperatorCase,
    quantization,
    rescaled,
    zero_point_of,
)
from tflm.testing.operators.single_operator import large, unary

FLOAT_ONLY = ("SIN", "COS", "LOG", "SQRT", "SQUARE", "EXP", "NEG", "CEIL", "FLOOR", "ROUND")
TYPES = {
    **dict.fromkeys(FLOAT_ONLY, (FLOAT32,)),
    "ABS": (FLOAT32, INT8, INT16),
    "RSQRT": (FLOAT32, INT8, INT16),
    "LOGICAL_NOT": (TensorType.BOOL,),
    "ELU": (FLOAT32, INT8),
    "HARD_SWISH": (FLOAT32, INT8),
    "ZEROS_LIKE": (FLOAT32, INT8, INT32, INT64),
}
POSITIVE = ("LOG", "SQRT", "RSQRT")


@st.composite
def function(draw: Draw, operator: str) -> OperatorCase:
    """A function where it is defined; halves among the floats."""
    type = draw(st.sampled_from(TYPES[operator]))
    plain = type not in (INT8, INT16) or (type == INT16 and operator == "ABS" and draw(st.booleans()))
    input = None if plain else quantization(draw, type, -14, 2)
    output = None if input is None else draw(st.just(input)) if draw(st.booleans()) else rescaled(draw, type, input)
    model, [[x]] = unary(BuiltinOperator[operator], draw, (type, type), (input, output))
    if type == FLOAT32:
        x.reshape(-1)[::2] = np.rint(x.reshape(-1)[::2] * 2) / 2
        x = abs(x) + np.float32(0.25) if operator in POSITIVE else x
        x = np.minimum(x, np.float32(80)) if operator == "EXP" else x
    elif operator == "RSQRT" and input is not None and draw(st.integers(0, 5)):
        x = np.maximum(x, zero_point_of(input)).astype(x.dtype)
    return model, [[x]]


OPERATORS = {operator: function(operator) for operator in TYPES}

LARGE = {
    f"{operator}-{type.name}": partial(
        large,
        BuiltinOperator[operator],
        (type, type),
        None if type in (INT8, INT16) else (None, None),
    )
    for operator, types in TYPES.items()
    for type in types
}
