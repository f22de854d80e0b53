"""Models of pools, of resized images and of L2_NORMALIZATION."""

from __future__ import annotations

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from tflm.schema import ELEMENT_TYPES, Padding, quantized
from tflm.testing.drawing import (
    FLOAT32,
    INT8,
    LARGE_SHAPE,
    Draw,
    OperatorCase,
    quantization,
    shapes,
    sizes,
    zero_point_of,
)
from tflm.testing.operators.declared import WITHOUT_ACTIVATION, DrawnOperator, large, strategy

POOLS = ("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D")


@strategy(*POOLS)
def pool(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Windows up to beyond the input where padding allows it."""
    shape = draw(st.tuples(st.integers(1, 2), st.integers(1, 9), st.integers(1, 9), sizes(5)))
    padding = draw(st.sampled_from(Padding))
    windows = shape[1:3]
    if draw(st.integers(0, 3)):
        windows = [draw(st.integers(1, size + (0 if padding == Padding.VALID else 3))) for size in windows]
    strides = {f"stride_{axis}": draw(st.integers(1, 4)) for axis in "hw"}
    parameters = quantization(draw, model.type, -20, 4)
    model.operand(shape, parameters)
    return model.result(parameters, padding=padding, filter_height=windows[0], filter_width=windows[1], **strides)


for operator in POOLS:
    large(operator, LARGE_SHAPE, filter_height=3, filter_width=3, stride_h=1, stride_w=1)


@strategy("RESIZE_NEAREST_NEIGHBOR", "RESIZE_BILINEAR", invokes=2)
def resize(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Images made larger and smaller, sometimes to one very long line."""
    batches, depth = draw(st.integers(1, 2)), draw(st.integers(1, 4))
    sizes = [draw(st.integers(1, 8) | st.integers(1, 40)) for _ in range(2)]
    wanted = [draw(st.integers(1, 12) | st.integers(1, 60)) for _ in range(2)]
    if draw(st.integers(0, 9)) == 0:
        wanted = [1, draw(st.integers(500, 3000))]
    parameters = quantization(draw, model.type)
    model.operand((batches, *sizes, depth), parameters)
    model.constant(np.array(wanted, np.int32))
    align, half = draw(st.booleans()), draw(st.booleans())
    if model.name == "RESIZE_BILINEAR":
        half = half and not align
        assume(model.type == FLOAT32 or all(_stays_inside(*pair, align, half) for pair in zip(sizes, wanted)))
    return model.result(parameters, align_corners=align, half_pixel_centers=half)


def _stays_inside(size: int, wanted: int, align: bool, half: bool) -> bool:
    """Whether integers are interpolated within the input: TFLM's rounded scale may lead past the last element."""
    over, under = (size - 1, wanted - 1) if align and wanted > 1 else (size, wanted)
    scale = (1024 * over + under // 2) // under
    return (wanted - 1) * scale + (scale // 2 - 512 if half else 0) < 1024 * size


@strategy("L2_NORMALIZATION")
def l2_normalization(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Short and long vectors, some of them all zero point."""
    shape = (*draw(shapes(0, 3, 4)), draw(st.integers(1, 8) | st.integers(1, 200)))
    if draw(st.integers(0, 19)) == 0:
        shape = (draw(st.integers(1, 2)), draw(st.integers(9000, 20000)))
    parameters = quantization(draw, model.type)
    if draw(st.booleans()):
        model.operand(shape, parameters)
    else:
        rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        near = zero_point_of(parameters) + rng.integers(-3, 4, shape) * rng.integers(0, 2, (*shape[:-1], 1))
        model.input(model.type, [np.clip(near, -128, 127).astype(ELEMENT_TYPES[model.type].dtype)], parameters)
    return model.result(quantized(1 / 128) if model.type == INT8 else None, **WITHOUT_ACTIVATION)


for operator in ("RESIZE_NEAREST_NEIGHBOR", "RESIZE_BILINEAR"):
    large(operator, LARGE_SHAPE, [96, 48], half_pixel_centers=True)
large("L2_NORMALIZATION", LARGE_SHAPE, scales=(0.01, 0.02))
