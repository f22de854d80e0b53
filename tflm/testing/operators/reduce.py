"""Models of operators that go along one dimension or several."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from tflm.schema import TensorType
from tflm.testing.drawing import (
    FLOAT32,
    INT32,
    LARGE_SHAPE,
    Draw,
    OperatorCase,
    factors,
    quantization,
    rescaled,
    scales,
    shapes,
    values,
)
from tflm.testing.operators.declared import DrawnOperator, large, strategy

REDUCTIONS = ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_ALL")


def _axes(draw: Draw, model: DrawnOperator, axes: npt.ArrayLike) -> None:
    """Dimensions: a constant, or sometimes an input."""
    numbers = np.array(axes, np.int32)
    if draw(st.integers(0, 4)):
        model.constant(numbers)
    else:
        model.input(INT32, [numbers])


@strategy(*REDUCTIONS)
def reduction(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Any dimensions, counted from either end, some of them twice; sometimes as an input."""
    shape = draw(shapes(1, 4, 6))
    rank = len(shape)
    input = None if model.type == TensorType.BOOL else quantization(draw, model.type)
    model.operand(shape, input)
    _axes(draw, model, draw(st.lists(st.integers(-rank, rank - 1), min_size=1, max_size=rank)))
    is_extreme = model.name in ("REDUCE_MAX", "REDUCE_MIN")
    return model.result(input if is_extreme or input is None else rescaled(draw, model.type, input))


@strategy("ARG_MAX", "ARG_MIN")
def arg_min_max(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Equal elements and NaNs among others; sometimes the axis is an input."""
    x = values(draw, model.type, draw(shapes(1, 4, 6)))
    if model.type == FLOAT32:
        flat = x.reshape(-1)
        flat[: draw(st.integers(0, 2))] = draw(st.sampled_from([np.nan, np.inf, -np.inf]))
        flat[::-2] = np.round(flat[::-2])
    model.input(model.type, [x])
    _axes(draw, model, draw(st.integers(-x.ndim, x.ndim - 1)))
    return model.result(type=INT32, output_type=INT32)


@strategy("CUMSUM")
def cumsum(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Draw sums from both ends. An output with a much finer scale than the input is rejected."""
    shape = draw(shapes(1, 4, 6) | st.tuples(st.integers(1, 2), st.integers(10, 40)))
    scale, factor = draw(scales(-20, 8)), draw(factors(-20, 8) | factors(-1, 4))
    input, output = model.scaled(st.just(scale), st.just(scale * factor))
    model.operand(shape, input)
    _axes(draw, model, draw(st.integers(-len(shape), len(shape) - 1)))
    return model.result(output)


for operator in REDUCTIONS:
    large(operator, LARGE_SHAPE, [1, 2], keep_dims=True)
for operator in ("ARG_MAX", "ARG_MIN"):
    large(operator, LARGE_SHAPE, 2, type=INT32, output_type=INT32)
large("CUMSUM", LARGE_SHAPE, 2, exclusive=True, reverse=True)
