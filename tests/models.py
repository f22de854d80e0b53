"""Random graphs, and the types, scales, shapes and values of `tflm.testing` that tests draw."""

from __future__ import annotations

import numpy as np

from tflm.schema import (
    ELEMENT_TYPES,
    AddOptions,
    BuiltinOperator,
    CallOnceOptions,
    ModelBuilder,
    TensorType,
    VarHandleOptions,
    quantized,
)
from tflm.testing.drawing import (
    ACTIVATIONS,
    FLOAT32,
    INT8,
    INT16,
    INT32,
    INT64,
    LARGE_SHAPE,
    UINT8,
    Arrays,
    Draw,
    broadcast_shapes,
    factors,
    float32,
    quantization,
    rescaled,
    scales,
    shapes,
    values,
    zero_points,
)
from tflm.testing.drawing import (
    OperatorCase as Case,
)

__all__ = [
    "ACTIVATIONS",
    "FLOAT32",
    "INT16",
    "INT32",
    "INT64",
    "INT8",
    "LARGE_SHAPE",
    "UINT8",
    "Arrays",
    "Draw",
    "broadcast_shapes",
    "factors",
    "float32",
    "quantization",
    "rescaled",
    "scales",
    "shapes",
    "values",
    "zero_points",
    "Case",
    "counter",
]


def counter(type: TensorType, width: int, with_init: bool) -> bytes:
    """y = state + x, state = y; the state begins at zero, or at 2 by way of a subgraph that is called once."""
    parameters = None if type == FLOAT32 else quantized(0.5, 3)
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, width), type, parameters)
    handle = main.tensor("handle", (1,), TensorType.RESOURCE)
    state = main.tensor("state", (1, width), type, parameters)
    y = main.tensor("y", (1, width), type, parameters)
    if with_init:
        main.operator(BuiltinOperator.CALL_ONCE, [], [], CallOnceOptions(init_subgraph_index=1))
    main.operator(BuiltinOperator.VAR_HANDLE, [], [handle], VarHandleOptions(container="", shared_name="state"))
    main.operator(BuiltinOperator.READ_VARIABLE, [handle], [state])
    main.operator(BuiltinOperator.ADD, [state, x], [y], AddOptions())
    main.operator(BuiltinOperator.ASSIGN_VARIABLE, [handle, y], [])
    main.output(y)
    if with_init:
        init = builder.subgraph("init")
        initial = init.constant("initial", np.full((1, width), 2, ELEMENT_TYPES[type].dtype), parameters)
        handle = init.tensor("handle", (1,), TensorType.RESOURCE)
        init.operator(BuiltinOperator.VAR_HANDLE, [], [handle], VarHandleOptions(container="", shared_name="state"))
        init.operator(BuiltinOperator.ASSIGN_VARIABLE, [handle, initial], [])
    return builder.build()
