"""Models of activations and of SOFTMAX."""

from __future__ import annotations

from hypothesis import strategies as st

from tflm.kernels import REGISTRATIONS
from tflm.schema import quantized
from tflm.testing.drawing import (
    FLOAT32,
    INT8,
    INT16,
    LARGE_SHAPE,
    Draw,
    OperatorCase,
    factors,
    float32,
    quantization,
    rescaled,
    scales,
    shapes,
)
from tflm.testing.operators.declared import DrawnOperator, large, strategy

SOFTMAX_TYPES = [(FLOAT32, FLOAT32), (INT8, INT8), (INT8, INT16), (INT16, INT16)]

OUTPUTS = {
    ("LOGISTIC", INT8): quantized(1 / 256, -128),
    ("LOG_SOFTMAX", INT8): quantized(1 / 16, 127),
    ("TANH", INT8): quantized(1 / 128),
    ("SOFTMAX", INT8, INT8): quantized(1 / 256, -128),
    ("SOFTMAX", INT8, INT16): quantized(1 / 65536, -32768),
}
"""The quantization that an output of integers must have; `SHORT` for the others."""

SHORT = quantized(1 / 32768)


@strategy("RELU", "RELU6", "LEAKY_RELU")
def relu(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Slopes of LEAKY_RELU have either sign and any size."""
    input = quantization(draw, model.type)
    model.operand(draw(shapes()), input)
    output = rescaled(draw, model.type, input)
    if model.name != "LEAKY_RELU":
        return model.result(output)
    return model.result(output, alpha=float32(draw(factors(-20, 10)) * draw(st.sampled_from([1, 1, -1, 0]))))


@strategy("LOGISTIC", "TANH")
def sigmoid(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Draw scales from ones at which almost nothing is in range to ones at which everything is."""
    (input,) = model.scaled(scales(-40, 30) | scales(-16, 2) | st.sampled_from([2.0**-12, 2.0**-11, 2.0**-10, 2.0**-4]))
    model.operand(draw(shapes()), input)
    output = OUTPUTS.get((model.name, model.type), SHORT)
    if model.type == INT8 and model.name == "TANH":
        output = draw(st.sampled_from([output, OUTPUTS["LOGISTIC", INT8]]))
    return model.result(input and output)


@strategy("LOG_SOFTMAX")
@strategy("SOFTMAX", kinds=SOFTMAX_TYPES)
def softmax(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Over rows of 1 to 40."""
    is_log = model.name == "LOG_SOFTMAX"
    (input,) = model.scaled(scales(-26, 8) | scales(-10, 2) if is_log else scales(-40, 20) | scales(-18, 4))
    model.operand((*draw(shapes(0, 3, 3)), draw(st.integers(1, 40))), input)
    output = input and OUTPUTS.get((model.name, *model.types), SHORT)
    return model.result(output, **({} if is_log else {"beta": draw(st.sampled_from([1.0, 0.5, 2.0]))}))


for operator in ("RELU", "RELU6", "LEAKY_RELU"):
    large(operator, LARGE_SHAPE, scales=(0.01, 0.02))
for operator in ("LOGISTIC", "TANH", "LOG_SOFTMAX"):
    for type in REGISTRATIONS[operator].types:
        large(operator, LARGE_SHAPE, kinds=[type], scales=(0.01, OUTPUTS.get((operator, type), SHORT)))
for types in SOFTMAX_TYPES:
    large("SOFTMAX", LARGE_SHAPE, kinds=[types], scales=(0.01, OUTPUTS.get(("SOFTMAX", *types), SHORT)), beta=1.0)
