"""Models of QUANTIZE and DEQUANTIZE."""

from __future__ import annotations

from functools import partial

from hypothesis import strategies as st

from tflm.schema import BuiltinOperator
from tflm.testing.drawing import FLOAT32, INT8, INT16, INT32, UINT8, Draw, OperatorCase, quantization, rescaled
from tflm.testing.operators.single_operator import large, unary

QUANTIZE_TYPES = [
    (FLOAT32, INT8),
    (FLOAT32, INT16),
    (INT32, INT8),
    (INT32, INT16),
    (INT16, INT8),
    (INT16, INT16),
    (INT16, INT32),
    (INT8, INT8),
    (INT8, UINT8),
    (INT8, INT16),
    (INT8, INT32),
    (UINT8, INT8),
]


@st.composite
def quantize(draw: Draw) -> OperatorCase:
    """QUANTIZE for every pair of types."""
    types = draw(st.sampled_from(QUANTIZE_TYPES))
    input = quantization(draw, types[0])
    return unary(BuiltinOperator.QUANTIZE, draw, types, (input, rescaled(draw, types[1], input)))


@st.composite
def dequantize(draw: Draw) -> OperatorCase:
    """DEQUANTIZE from every type."""
    type = draw(st.sampled_from([INT8, UINT8, INT16]))
    return unary(BuiltinOperator.DEQUANTIZE, draw, (type, FLOAT32), (quantization(draw, type, -60, 60), None))


OPERATORS = {"QUANTIZE": quantize(), "DEQUANTIZE": dequantize()}

LARGE = {
    **{f"QUANTIZE-{a.name}-{b.name}": partial(large, BuiltinOperator.QUANTIZE, (a, b)) for a, b in QUANTIZE_TYPES},
    **{f"DEQUANTIZE-{a.name}": partial(large, BuiltinOperator.DEQUANTIZE, (a, FLOAT32)) for a in (INT8, UINT8, INT16)},
}
