"""Models of operators that go along one dimension or several."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tflm.schema import (
    ArgMaxOptions,
    ArgMinOptions,
    BuiltinOperator,
    CumsumOptions,
    ModelBuilder,
    QuantizationParameters,
    ReducerOptions,
    TensorType,
    quantized,
)
from tflm.testing.drawing import (
    FLOAT32,
    INT8,
    INT16,
    INT32,
    Draw,
    OperatorCase,
    factors,
    float32,
    quantization,
    rescaled,
    scale_of,
    shapes,
    values,
    zero_points,
)

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
def reduction(draw: Draw, operator: BuiltinOperator) -> OperatorCase:
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


def _large(operator: BuiltinOperator, type: TensorType) -> OperatorCase:
    parameters = None if type in (FLOAT32, TensorType.BOOL) else quantized(0.5)
    model = _model(operator, type, (1, 64, 64, 32), [1, 2], True, (parameters, parameters))
    dtype = {FLOAT32: np.float32, INT8: np.int8, INT16: np.int16, TensorType.BOOL: np.bool_}[type]
    return model, [[np.ones((1, 64, 64, 32), dtype)]]


ARG_OPTIONS = {BuiltinOperator.ARG_MAX: ArgMaxOptions, BuiltinOperator.ARG_MIN: ArgMinOptions}


def _one_axis(
    operator: BuiltinOperator,
    shape: tuple[int, ...],
    axis: int,
    types: tuple[TensorType, TensorType],
    parameters: Parameters,
    options: Any,
    constant: bool = True,
) -> bytes:
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", shape, types[0], parameters[0])
    index = main.constant("axis", np.array(axis, np.int32)) if constant else main.input("axis", (), INT32)
    kept = [size for i, size in enumerate(shape) if operator not in ARG_OPTIONS or i != axis % len(shape)]
    y = main.tensor("y", kept, types[1], parameters[1])
    main.operator(operator, [x, index], [y], options)
    main.output(y)
    return builder.build()


@st.composite
def arg_min_max(draw: Draw, operator: BuiltinOperator) -> OperatorCase:
    """Elements that are equal, and floats that are no numbers, among others; now and then the axis as an input."""
    type = draw(st.sampled_from([FLOAT32, INT8]))
    shape = draw(shapes(1, 4, 6))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    constant = draw(st.integers(0, 4)) > 0
    model = _one_axis(
        operator, shape, axis, (type, INT32), (None, None), ARG_OPTIONS[operator](output_type=INT32), constant
    )
    x = values(draw, type, shape)
    if type == FLOAT32:
        flat = x.reshape(-1)
        flat[: draw(st.integers(0, 2))] = draw(st.sampled_from([np.nan, np.inf, -np.inf]))
        flat[::-2] = np.round(flat[::-2])
    return model, [[x] if constant else [x, np.array(axis, np.int32)]]


@st.composite
def cumsum(draw: Draw) -> OperatorCase:
    """CUMSUM from either end; an output much finer than the input is refused."""
    type = draw(st.sampled_from([FLOAT32, INT8]))
    shape = draw(shapes(1, 4, 6) | st.tuples(st.integers(1, 2), st.integers(10, 40)))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    input = quantization(draw, type, -20, 8)
    output = None
    if input is not None:
        output = quantized(float32(scale_of(input) * draw(factors(-20, 8) | factors(-1, 4))), draw(zero_points(type)))
    options = CumsumOptions(exclusive=draw(st.booleans()), reverse=draw(st.booleans()))
    constant = draw(st.integers(0, 4)) > 0
    model = _one_axis(BuiltinOperator.CUMSUM, shape, axis, (type, type), (input, output), options, constant)
    x = values(draw, type, shape)
    return model, [[x] if constant else [x, np.array(axis, np.int32)]]


def _large_one_axis(operator: BuiltinOperator, type: TensorType, options: Any) -> OperatorCase:
    parameters = None if type == FLOAT32 else quantized(0.5, 3)
    output = INT32 if operator in ARG_OPTIONS else type
    model = _one_axis(operator, (1, 64, 64, 32), 2, (type, output), (parameters, parameters), options)
    return model, [[np.ones((1, 64, 64, 32), np.float32 if type == FLOAT32 else np.int8)]]


OPERATORS = {
    **{operator.name: reduction(operator) for operator in TYPES},
    **{operator.name: arg_min_max(operator) for operator in ARG_OPTIONS},
    "CUMSUM": cumsum(),
}

LARGE = {
    **{
        f"{operator.name}-{type.name}": partial(_large, operator, type)
        for operator, types in TYPES.items()
        for type in types
    },
    **{
        f"{operator.name}-{type.name}": partial(_large_one_axis, operator, type, options)
        for operator, options in (
            (BuiltinOperator.ARG_MAX, ArgMaxOptions(output_type=INT32)),
            (BuiltinOperator.ARG_MIN, ArgMinOptions(output_type=INT32)),
            (BuiltinOperator.CUMSUM, CumsumOptions(exclusive=True, reverse=True)),
        )
        for type in (FLOAT32, INT8)
    },
}
