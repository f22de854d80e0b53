"""Models of RESIZE_NEAREST_NEIGHBOR, RESIZE_BILINEAR and L2_NORMALIZATION."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from tflm.schema import (
    ELEMENT_TYPES,
    BuiltinOperator,
    L2NormOptions,
    ResizeBilinearOptions,
    ResizeNearestNeighborOptions,
    TensorType,
    quantized,
)
from tflm.testing.drawing import FLOAT32, INT8, INT16, LARGE_SHAPE, Draw, OperatorCase, quantization, shapes
from tflm.testing.operators.single_operator import SingleOperator, large

TYPES = {
    BuiltinOperator.RESIZE_NEAREST_NEIGHBOR: (FLOAT32, INT8, INT16),
    BuiltinOperator.RESIZE_BILINEAR: (FLOAT32, INT8),
}


@st.composite
def resize(draw: Draw, operator: BuiltinOperator) -> OperatorCase:
    """Images made larger and smaller, sometimes to one very long line."""
    type = draw(st.sampled_from(TYPES[operator]))
    batches, depth = draw(st.integers(1, 2)), draw(st.integers(1, 4))
    height, width = (draw(st.integers(1, 8) | st.integers(1, 40)) for _ in range(2))
    wanted = [draw(st.integers(1, 12) | st.integers(1, 60)) for _ in range(2)]
    if draw(st.integers(0, 9)) == 0:
        wanted = [1, draw(st.integers(500, 3000))]
    parameters = quantization(draw, type)
    model = SingleOperator(invokes=2)
    model.drawn(draw, type, (batches, height, width, depth), parameters)
    model.constant(np.array(wanted, np.int32))
    align, half = draw(st.booleans()), draw(st.booleans())
    if operator == BuiltinOperator.RESIZE_NEAREST_NEIGHBOR:
        options: Any = ResizeNearestNeighborOptions(align_corners=align, half_pixel_centers=half)
    else:
        half = half and not align
        assume(type == FLOAT32 or all(_stays_inside(*sizes, align, half) for sizes in zip((height, width), wanted)))
        options = ResizeBilinearOptions(align_corners=align, half_pixel_centers=half)
    return model.case(operator, [((batches, *wanted, depth), type, parameters)], options)


def _stays_inside(size: int, wanted: int, align: bool, half: bool) -> bool:
    """Whether integers are interpolated within the input: TFLM's rounded scale may lead it behind the last element."""
    over, under = (size - 1, wanted - 1) if align and wanted > 1 else (size, wanted)
    scale = (1024 * over + under // 2) // under
    return (wanted - 1) * scale + (scale // 2 - 512 if half else 0) < 1024 * size


@st.composite
def l2_normalization(draw: Draw) -> OperatorCase:
    """L2_NORMALIZATION of short and long vectors, some of them all zero point."""
    type = draw(st.sampled_from([FLOAT32, INT8, INT8]))
    shape = (*draw(shapes(0, 3, 4)), draw(st.integers(1, 8) | st.integers(1, 200)))
    if draw(st.integers(0, 19)) == 0:
        shape = (draw(st.integers(1, 2)), draw(st.integers(9000, 20000)))
    parameters = quantization(draw, type)
    middle = parameters.zero_point[0] if parameters is not None and parameters.zero_point else 0
    model = SingleOperator()
    if draw(st.booleans()):
        model.drawn(draw, type, shape, parameters)
    else:
        rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        near = middle + rng.integers(-3, 4, shape) * rng.integers(0, 2, (*shape[:-1], 1))
        model.input(type, [np.clip(near, -128, 127).astype(ELEMENT_TYPES[type].dtype)], parameters)
    output = quantized(1 / 128) if type == INT8 else None
    return model.case(BuiltinOperator.L2_NORMALIZATION, [(shape, type, output)], L2NormOptions())


OPERATORS = {operator.name: resize(operator) for operator in TYPES} | {"L2_NORMALIZATION": l2_normalization()}


def _large(operator: BuiltinOperator, type: TensorType) -> OperatorCase:
    parameters = None if type == FLOAT32 else quantized(0.5)
    options = ResizeBilinearOptions if operator == BuiltinOperator.RESIZE_BILINEAR else ResizeNearestNeighborOptions
    model = SingleOperator()
    model.input(type, [np.ones(LARGE_SHAPE, ELEMENT_TYPES[type].dtype)], parameters)
    model.constant(np.array([96, 48], np.int32))
    return model.case(operator, [((1, 96, 48, 32), type, parameters)], options(half_pixel_centers=True))


LARGE = {f"{name.name}-{type.name}": partial(_large, name, type) for name, types in TYPES.items() for type in types}
LARGE |= {
    f"L2_NORMALIZATION-{type.name}": partial(
        large, BuiltinOperator.L2_NORMALIZATION, (type, type), options=L2NormOptions()
    )
    for type in (FLOAT32, INT8)
}
