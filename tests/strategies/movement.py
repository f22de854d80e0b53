"""Models of operators that move elements."""

from __future__ import annotations

from functools import partial

import numpy as np
from hypothesis import strategies as st
from models import FLOAT32, INT8, INT16, INT32, Case, Draw, large, shapes, values

from tflm.schema import BuiltinOperator, ModelBuilder


@st.composite
def reshape(draw: Draw) -> Case:
    """RESHAPE of any type, with or without the shape as an input, one dimension left open at times."""
    type = draw(st.sampled_from([FLOAT32, INT8, INT16, INT32]))
    shape = draw(shapes())
    target = list(draw(st.permutations([*shape, 1])))
    if draw(st.booleans()):
        target[draw(st.integers(0, len(target) - 1))] = -1
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", shape, type)
    inputs = [x]
    if draw(st.booleans()):
        inputs.append(main.constant("shape", np.array(target, np.int32)))
    y = main.tensor("y", target, type)
    main.operator(BuiltinOperator.RESHAPE, inputs, [y])
    # The wheel reads shapes of outputs from the model, where a dimension of -1 stays: give a tensor behind it.
    flat = main.tensor("flat", (int(np.prod(shape)),), type)
    main.operator(BuiltinOperator.RESHAPE, [y], [flat])
    main.output(flat)
    return builder.build(), [[values(draw, type, shape)]]


OPERATORS = {"RESHAPE": reshape()}

LARGE = {"RESHAPE": partial(large, BuiltinOperator.RESHAPE, (INT8, INT8))}
