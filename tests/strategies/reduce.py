"""Models of operators that reduce dimensions."""

from __future__ import annotations

from functools import partial

import numpy as np
from hypothesis import strategies as st
from models import FLOAT32, INT8, INT16, Case, Draw, quantization, rescaled, shapes, values

from tflm.schema import BuiltinOperator, ModelBuilder, QuantizationParameters, ReducerOptions, TensorType, quantized

TYPES = {
    BuiltinOperator.MEAN: (FLOAT32, INT8, INT16),
    BuiltinOperator.SUM: (FLOAT32, INT8, INT16),
    BuiltinOperator.REDUCE_MAX: (FLOAT32, INT8),
    BuiltinOperator.REDUCE_MIN: (FLOAT32, INT8),
    BuiltinOperator.REDUCE_ALL: (TensorType.BOOL,),
}

Parameters = tuple[QuantizationParameters | None, QuantizationParameters | None]


def _model(
    operator: BuiltinOperator,
    type: TensorType,
    shape: tuple[int, ...],
    axes: list[int],
    keep_dims: bool,
    parameters: Parameters,
    constant: bool = True,
) -> bytes:
    reduced = {axis % len(shape) for axis in axes}
    kept = [1 if i in reduced else size for i, size in enumerate(shape) if keep_dims or i not in reduced]
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", shape, type, parameters[0])
    numbers = np.array(axes, np.int32)
    axis = main.constant("axis", numbers) if constant else main.input("axis", numbers.shape, TensorType.INT32)
    y = main.tensor("y", kept, type, parameters[1])
    main.operator(operator, [x, axis], [y], ReducerOptions(keep_dims=keep_dims))
    main.output(y)
    return builder.build()


@st.composite
def reduction(draw: Draw, operator: BuiltinOperator) -> Case:
    """Any dimensions, named from either end and some of them twice; now and then as an input."""
    type = draw(st.sampled_from(TYPES[operator]))
    shape = draw(shapes(1, 4, 6))
    rank = len(shape)
    axes = draw(st.lists(st.integers(-rank, rank - 1), min_size=1, max_size=rank))
    input = None if type == TensorType.BOOL else quantization(draw, type)
    extreme = operator in (BuiltinOperator.REDUCE_MAX, BuiltinOperator.REDUCE_MIN)
    output = input if extreme or input is None else rescaled(draw, type, input)
    constant = draw(st.integers(0, 4)) > 0
    model = _model(operator, type, shape, axes, draw(st.booleans()), (input, output), constant)
    inputs = [values(draw, type, shape)]
    return model, [inputs if constant else [*inputs, np.array(axes, np.int32)]]


def _large(operator: BuiltinOperator, type: TensorType) -> Case:
    parameters = None if type in (FLOAT32, TensorType.BOOL) else quantized(0.5)
    model = _model(operator, type, (1, 64, 64, 32), [1, 2], True, (parameters, parameters))
    dtype = {FLOAT32: np.float32, INT8: np.int8, INT16: np.int16, TensorType.BOOL: np.bool_}[type]
    return model, [[np.ones((1, 64, 64, 32), dtype)]]


OPERATORS = {operator.name: reduction(operator) for operator in TYPES}

LARGE = {
    f"{operator.name}-{type.name}": partial(_large, operator, type)
    for operator, types in TYPES.items()
    for type in types
}
