"""Models of pools."""

from __future__ import annotations

from hypothesis import strategies as st

from tflm.schema import Padding
from tflm.testing.drawing import LARGE_SHAPE, Draw, OperatorCase, quantization, sizes
from tflm.testing.operators.declared import DrawnOperator, large, strategy

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
