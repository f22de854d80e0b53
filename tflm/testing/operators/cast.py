"""Models of CAST."""

from __future__ import annotations

from functools import partial

import numpy as np
from hypothesis import strategies as st

from tflm.schema import BuiltinOperator, TensorType
from tflm.testing.drawing import FLOAT32, INT8, INT16, INT32, Draw, OperatorCase
from tflm.testing.operators.single_operator import large, unary

TYPES = (FLOAT32, INT8, INT16, INT32, TensorType.UINT32, TensorType.BOOL)

ODD_FLOATS = (0.5, -0.5, 2.0**31, -(2.0**31), 2.0**32, 1e30, np.inf, -np.inf, np.nan)


@st.composite
def cast(draw: Draw) -> OperatorCase:
    """From each type to each; floats beyond any integer among them, and none at all."""
    types = draw(st.sampled_from([(a, b) for a in TYPES for b in TYPES]))
    model, [[x]] = unary(BuiltinOperator.CAST, draw, types, (None, None))
    if types[0] == FLOAT32:
        x *= np.float32(2.0 ** draw(st.integers(-10, 60)))
        x.reshape(-1)[0] = draw(st.sampled_from(ODD_FLOATS))
    return model, [[x]]


OPERATORS = {"CAST": cast()}

LARGE = {
    f"CAST-{a.name}-{b.name}": partial(large, BuiltinOperator.CAST, (a, b), (None, None)) for a in TYPES for b in TYPES
}
