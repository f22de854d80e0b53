"""Models of operators with a state, run several times."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from tflm.schema import ELEMENT_TYPES, ActivationFunctionType, TensorType
from tflm.testing.drawing import (
    FLOAT32,
    INT8,
    INT16,
    INT32,
    INT64,
    Draw,
    OperatorCase,
    factors,
    float32,
    scales,
    values,
    zero_points,
)
from tflm.testing.operators.declared import DrawnOperator, State, Weights, large, strategy

SVDF_TYPES = [(FLOAT32, FLOAT32, FLOAT32), (INT8, INT16, INT16), (INT8, INT8, INT8), (INT8, INT8, INT16)]
"""Types of the input, of the weights over time and of the state."""

SVDF_ACTIVATIONS = [ActivationFunctionType[name] for name in ("NONE", "RELU", "RELU6")]


@strategy("SVDF", kinds=SVDF_TYPES, invokes=4)
def svdf(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Floats and int8, with a state of 16 or 8 bits, or half a state of 16."""
    type, time_type, state_type = model.types
    batches, size, memory = draw(st.integers(1, 3)), draw(st.integers(0, 12)), draw(st.integers(1, 6))
    rank, units = draw(st.integers(1, 3)), draw(st.integers(1, 5))
    x, feature, time = draw(scales(-8, 0)), draw(scales(-8, 0)), draw(scales(-14, -4))
    state = float32(x * feature * draw(factors(-8, 8)))
    y = float32(state * time * draw(factors(-4, 14)))

    filters = rank * units
    bias = values(draw, FLOAT32 if type == FLOAT32 else INT16, (units,)).reshape(draw(st.sampled_from([-1, (-1, 1)])))
    model.operand((batches, size), model.quantized(x, draw(zero_points(INT8))))
    model.weights((filters, size), model.quantized(feature))
    model.constant(values(draw, time_type, (filters, memory)), model.quantized(time))
    model.constant(bias.astype(np.float32 if type == FLOAT32 else np.int32), model.quantized(state * time))
    model.variable(state_type, (batches, memory * filters), model.quantized(state, draw(zero_points(time_type))))
    output, activation = model.quantized(y, draw(zero_points(INT8))), draw(st.sampled_from(SVDF_ACTIVATIONS))
    return model.result(output, type=type, rank=rank, fused_activation_function=activation)


LSTM_TYPES = {FLOAT32: (FLOAT32, FLOAT32, FLOAT32), INT8: (INT8, INT32, INT16), INT16: (INT8, INT64, INT16)}
"""Types of the weights, biases and cells, by that of the input."""


CELL_EXPONENTS = st.integers(-16, -8) | st.integers(-60, 0)


@functools.cache
def _weight_zero_points(type: TensorType) -> st.SearchStrategy[int]:
    return st.just(0) | zero_points(type)


@strategy("UNIDIRECTIONAL_SEQUENCE_LSTM", invokes=3)
def lstm(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Draw both orders of batches and steps, with and without a clipped cell."""
    type = model.type
    weight_type, bias_type, cell_type = LSTM_TYPES[type]
    batches, steps, size, units = (draw(st.integers(1, n)) for n in (3, 5, 8, 6))
    time_major = draw(st.booleans())
    shape: tuple[int, ...] = (steps, batches, size) if time_major else (batches, steps, size)
    if draw(st.integers(0, 4)) == 0:
        shape = (*shape, draw(st.integers(1, 2)))
    x_scale, hidden_scale = draw(scales(-10, 2)), draw(_scales_and_powers(-16, -6))
    cell_scale = 2.0 ** draw(CELL_EXPONENTS) * draw(st.sampled_from([1.0, 1.0, 1.3]))

    model.input(
        type, [_small(draw, type, shape) for _ in model.invocations], model.quantized(x_scale, draw(zero_points(type)))
    )
    for i in range(1, 9):
        weights = _small(draw, weight_type, (units, shape[2] if i < 5 else units))
        parameters = model.quantized(draw(_scales_and_powers(-14, -4)), draw(_weight_zero_points(weight_type)))
        if draw(st.integers(0, 39)) == 0:
            model.input(weight_type, [weights] * len(model.invocations), parameters)
        else:
            model.constant(weights, parameters)
    biases = [_small(draw, FLOAT32 if type == FLOAT32 else INT16, (units,)) for _ in range(4)]
    hidden = model.quantized(hidden_scale, draw(zero_points(type)))
    model.omitted(3)
    for bias in biases:
        model.constant(bias.astype(ELEMENT_TYPES[bias_type].dtype), model.quantized(x_scale))
    model.omitted(2)
    model.variable(type, (batches, units), hidden)
    model.variable(cell_type, (batches, units), model.quantized(cell_scale))
    model.omitted(4)
    activation = draw(st.sampled_from([ActivationFunctionType.TANH] * 3 + list(ActivationFunctionType)))
    clip = draw(st.sampled_from([0.0, 0.0, 0.5, 3.0, 1e9]))
    options = {"fused_activation_function": activation, "cell_clip": clip, "time_major": time_major}
    options |= {"diagonal_recurrent_tensors": False}
    return model.result(hidden, shapes=[(*shape[:2], units)], **options)


@functools.cache
def _scales_and_powers(lowest: int, highest: int) -> st.SearchStrategy[float]:
    return scales(lowest, highest) | st.integers(lowest, highest).map(lambda exponent: 2.0**exponent)


def _small(draw: Draw, type: TensorType, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Values of a type; floats of about 1, where gates are neither open nor shut."""
    if type != FLOAT32:
        return values(draw, type, shape)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return rng.standard_normal(shape).astype(np.float32)


WIDE, SQUARE, BIAS, HIDDEN = (128, 512), (128, 128), (128,), (1, 128)
for type, (_, bias_type, cell_type) in LSTM_TYPES.items():
    weights = [*[Weights(WIDE)] * 4, *[Weights(SQUARE)] * 4]
    biases = [Weights(BIAS, type=bias_type)] * 4
    states = [State(HIDDEN, type=type), State(HIDDEN, type=cell_type, scale=2.0**-11)]
    operands: list[Any] = [(1, 4, 512), *weights, *[None] * 3, *biases, None, None, *states, *[None] * 4]
    shaped: dict[str, Any] = {"shapes": [(1, 4, 128)], "fused_activation_function": ActivationFunctionType.TANH}
    large("UNIDIRECTIONAL_SEQUENCE_LSTM", *operands, kinds=[type], scales=(0.01,), **shaped)

for type, time_type, _ in SVDF_TYPES[:3]:
    weights = [Weights((512, 512)), Weights((512, 16), type=time_type), Weights((256,), type=INT32, scale=0.0001)]
    operands = [(1, 512), *weights, State((1, 512 * 16), type=time_type)]
    large("SVDF", *operands, kinds=[(type, time_type)], type=type, scales=(0.01,), rank=2)
