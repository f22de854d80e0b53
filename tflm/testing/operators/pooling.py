"""Models of pools."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from tflm.schema import ELEMENT_TYPES, BuiltinOperator, Padding, Pool2DOptions, TensorType, quantized
from tflm.testing.drawing import (
    ACTIVATIONS,
    FLOAT32,
    INT8,
    INT16,
    LARGE_SHAPE,
    Draw,
    OperatorCase,
    quantization,
    sizes,
    values,
)
from tflm.testing.operators.single_operator import Quantization, SingleOperator

AVERAGE, MAX, L2 = BuiltinOperator.AVERAGE_POOL_2D, BuiltinOperator.MAX_POOL_2D, BuiltinOperator.L2_POOL_2D
TYPES = {AVERAGE: (FLOAT32, INT8, INT16), MAX: (FLOAT32, INT8, INT16), L2: (FLOAT32,)}


def _case(
    operator: BuiltinOperator, type: TensorType, x: npt.NDArray[Any], quantization: Quantization, options: Pool2DOptions
) -> OperatorCase:
    windows = options.filter_height, options.filter_width
    strides = options.stride_h, options.stride_w
    covered = [1 if options.padding == Padding.SAME else window for window in windows]
    size = [(n + s - c) // s for n, s, c in zip(x.shape[1:3], strides, covered)]
    model = SingleOperator()
    model.input(type, [x], quantization)
    return model.case(operator, [((x.shape[0], *size, x.shape[3]), type, quantization)], options)


@st.composite
def pool(draw: Draw, operator: BuiltinOperator) -> OperatorCase:
    """A pool with windows up to beyond the input where padding allows it."""
    type = draw(st.sampled_from(TYPES[operator]))
    shape = tuple(draw(st.tuples(st.integers(1, 2), st.integers(1, 9), st.integers(1, 9), sizes(5))))
    padding = draw(st.sampled_from(Padding))
    limits = [n if padding == Padding.VALID else n + 3 for n in shape[1:3]]
    whole = draw(st.integers(0, 3)) == 0
    options = Pool2DOptions(
        padding=padding,
        filter_height=shape[1] if whole else draw(st.integers(1, limits[0])),
        filter_width=shape[2] if whole else draw(st.integers(1, limits[1])),
        stride_h=draw(st.integers(1, 4)),
        stride_w=draw(st.integers(1, 4)),
        fused_activation_function=draw(ACTIVATIONS),
    )
    return _case(operator, type, values(draw, type, shape), quantization(draw, type, -20, 4), options)


def _large(operator: BuiltinOperator, type: TensorType) -> OperatorCase:
    options = Pool2DOptions(filter_height=3, filter_width=3, stride_h=1, stride_w=1)
    x = np.ones(LARGE_SHAPE, ELEMENT_TYPES[type].dtype)
    return _case(operator, type, x, None if type == FLOAT32 else quantized(0.5), options)


OPERATORS = {operator.name: pool(operator) for operator in TYPES}

LARGE = {
    f"{operator.name}-{type.name}": partial(_large, operator, type)
    for operator, types in TYPES.items()
    for type in types
}
