"""Models of operators that go along one dimension or several."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from tflm.schema import (
    ELEMENT_TYPES,
    ArgMaxOptions,
    ArgMinOptions,
    BuiltinOperator,
    CumsumOptions,
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
    LARGE_SHAPE,
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
from tflm.testing.operators.single_operator import SingleOperator

TYPES = {
    BuiltinOperator.MEAN: (FLOAT32, INT8, INT16),
    BuiltinOperator.SUM: (FLOAT32, INT8, INT16),
    BuiltinOperator.REDUCE_MAX: (FLOAT32, INT8),
    BuiltinOperator.REDUCE_MIN: (FLOAT32, INT8),
    BuiltinOperator.REDUCE_ALL: (TensorType.BOOL,),
}

Kinds = tuple[tuple[TensorType, QuantizationParameters | None], tuple[TensorType, QuantizationParameters | None]]
"""Type and quantization of the input and of the output."""


def _case(
    draw: Draw, operator: BuiltinOperator, x: npt.NDArray[Any], axes: npt.ArrayLike, kinds: Kinds, options: Any
) -> OperatorCase:
    """An operator along axes, which are a constant or sometimes an input."""
    model = SingleOperator()
    model.input(kinds[0][0], [x], kinds[0][1])
    numbers = np.array(axes, np.int32)
    if draw(st.integers(0, 4)):
        model.constant(numbers)
    else:
        model.input(INT32, [numbers])
    return model.case(operator, [(_kept(operator, x.shape, axes, options), *kinds[1])], options)


def _kept(operator: BuiltinOperator, shape: tuple[int, ...], axes: npt.ArrayLike, options: Any) -> list[int]:
    """The shape of the output."""
    if operator == BuiltinOperator.CUMSUM:
        return list(shape)
    reduced = {axis % len(shape) for axis in np.ravel(axes).tolist()}
    keeps = getattr(options, "keep_dims", False)
    return [1 if i in reduced else size for i, size in enumerate(shape) if keeps or i not in reduced]


@st.composite
def reduction(draw: Draw, operator: BuiltinOperator) -> OperatorCase:
    """Any dimensions, counted from either end, some of them twice; sometimes as an input."""
    type = draw(st.sampled_from(TYPES[operator]))
    shape = draw(shapes(1, 4, 6))
    rank = len(shape)
    axes = draw(st.lists(st.integers(-rank, rank - 1), min_size=1, max_size=rank))
    input = None if type == TensorType.BOOL else quantization(draw, type)
    extreme = operator in (BuiltinOperator.REDUCE_MAX, BuiltinOperator.REDUCE_MIN)
    output = input if extreme or input is None else rescaled(draw, type, input)
    options = ReducerOptions(keep_dims=draw(st.booleans()))
    return _case(draw, operator, values(draw, type, shape), axes, ((type, input), (type, output)), options)


ARG_OPTIONS = {BuiltinOperator.ARG_MAX: ArgMaxOptions, BuiltinOperator.ARG_MIN: ArgMinOptions}


@st.composite
def arg_min_max(draw: Draw, operator: BuiltinOperator) -> OperatorCase:
    """Equal elements and NaNs among others; sometimes the axis is an input."""
    type = draw(st.sampled_from([FLOAT32, INT8]))
    shape = draw(shapes(1, 4, 6))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    x = values(draw, type, shape)
    if type == FLOAT32:
        flat = x.reshape(-1)
        flat[: draw(st.integers(0, 2))] = draw(st.sampled_from([np.nan, np.inf, -np.inf]))
        flat[::-2] = np.round(flat[::-2])
    return _case(draw, operator, x, axis, ((type, None), (INT32, None)), ARG_OPTIONS[operator](output_type=INT32))


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
    kinds = (type, input), (type, output)
    return _case(draw, BuiltinOperator.CUMSUM, values(draw, type, shape), axis, kinds, options)


def _large(operator: BuiltinOperator, type: TensorType, axes: npt.ArrayLike, options: Any) -> OperatorCase:
    parameters = None if type in (FLOAT32, TensorType.BOOL) else quantized(0.5, 3)
    kinds = (type, parameters), (INT32 if operator in ARG_OPTIONS else type, parameters)
    return _case(lambda _: True, operator, np.ones(LARGE_SHAPE, ELEMENT_TYPES[type].dtype), axes, kinds, options)


OPERATORS = {
    **{operator.name: reduction(operator) for operator in TYPES},
    **{operator.name: arg_min_max(operator) for operator in ARG_OPTIONS},
    "CUMSUM": cumsum(),
}

LARGE = {
    **{
        f"{operator.name}-{type.name}": partial(_large, operator, type, [1, 2], ReducerOptions(keep_dims=True))
        for operator, types in TYPES.items()
        for type in types
    },
    **{
        f"{operator.name}-{type.name}": partial(_large, operator, type, 2, options)
        for operator, options in (
            (BuiltinOperator.ARG_MAX, ArgMaxOptions(output_type=INT32)),
            (BuiltinOperator.ARG_MIN, ArgMinOptions(output_type=INT32)),
            (BuiltinOperator.CUMSUM, CumsumOptions(exclusive=True, reverse=True)),
        )
        for type in (FLOAT32, INT8)
    },
}
