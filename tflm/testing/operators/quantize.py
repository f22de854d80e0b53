"""Models of CAST, QUANTIZE and DEQUANTIZE."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import strategies as st

from tflm.kernels import REGISTRATIONS
from tflm.kernels.reference.quantize import OUTPUT_TYPES
from tflm.schema import quantized
from tflm.testing.drawing import FLOAT32, LARGE_SHAPE, Draw, OperatorCase, quantization, rescaled, shapes, values
from tflm.testing.operators.declared import DrawnOperator, large, strategy

ODD_FLOATS = (0.5, -0.5, 2.0**31, -(2.0**31), 2.0**32, 1e30, np.inf, -np.inf, np.nan)
CASTS = list(itertools.product(REGISTRATIONS["CAST"].types, repeat=2))
QUANTIZATIONS = [(input, output) for input, outputs in OUTPUT_TYPES.items() for output in outputs]
DEQUANTIZATIONS = [(input, FLOAT32) for input in REGISTRATIONS["DEQUANTIZE"].types]


@strategy("CAST", kinds=CASTS)
def cast(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Draw casts from each type to each type, with floats outside of all integers, and without elements."""
    x = values(draw, model.type, draw(shapes()))
    if model.type == FLOAT32:
        x *= np.float32(2.0 ** draw(st.integers(-10, 60)))
        x.reshape(-1)[0] = draw(st.sampled_from(ODD_FLOATS))
    model.input(model.type, [x])
    return model.result()


@strategy("QUANTIZE", kinds=QUANTIZATIONS)
def quantize(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Every pair of types."""
    input = quantization(draw, model.type)
    model.operand(draw(shapes()), input)
    return model.result(rescaled(draw, model.types[1], input))


@strategy("DEQUANTIZE", kinds=DEQUANTIZATIONS)
def dequantize(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Every type."""
    model.operand(draw(shapes()), quantization(draw, model.type, -60, 60))
    return model.result()


large("CAST", LARGE_SHAPE, kinds=CASTS, scales=(None,))
large("QUANTIZE", LARGE_SHAPE, kinds=QUANTIZATIONS, scales=(quantized(0.01), quantized(0.02)))
large("DEQUANTIZE", LARGE_SHAPE, kinds=DEQUANTIZATIONS, scales=(0.01,))
