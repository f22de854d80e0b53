"""Models of operators with a state, run several times."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from tflm.schema import ELEMENT_TYPES, ActivationFunctionType, BuiltinOperator, TensorType, quantized
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
from tflm.testing.operators.declared import LARGE, DrawnOperator, options_of, strategy
from tflm.testing.operators.single_operator import Quantization, SingleOperator

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

    def scaled(scale: float, zero_point: int = 0) -> Quantization:
        return None if type == FLOAT32 else quantized(scale, zero_point)

    filters = rank * units
    bias = values(draw, FLOAT32 if type == FLOAT32 else INT16, (units,)).reshape(draw(st.sampled_from([-1, (-1, 1)])))
    model.operand((batches, size), scaled(x, draw(zero_points(INT8))))
    model.weights((filters, size), scaled(feature))
    model.constant(values(draw, time_type, (filters, memory)), scaled(time))
    model.constant(bias.astype(np.float32 if type == FLOAT32 else np.int32), scaled(state * time))
    model.variable(state_type, (batches, memory * filters), scaled(state, draw(zero_points(time_type))))
    output, activation = scaled(y, draw(zero_points(INT8))), draw(st.sampled_from(SVDF_ACTIVATIONS))
    return model.result(output, type=type, rank=rank, fused_activation_function=activation)


LSTM_TYPES = {FLOAT32: (FLOAT32, FLOAT32, FLOAT32), INT8: (INT8, INT32, INT16), INT16: (INT8, INT64, INT16)}
"""Types of the weights, biases and cells, by that of the input."""


@strategy("UNIDIRECTIONAL_SEQUENCE_LSTM", invokes=3)
def lstm(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Draw both orders of batches and steps, with and without a clipped cell."""
    type = model.type
    weight_type, *_ = LSTM_TYPES[type]
    batches, steps, size, units = (draw(st.integers(1, n)) for n in (3, 5, 8, 6))
    time_major = draw(st.booleans())
    shape: tuple[int, ...] = (steps, batches, size) if time_major else (batches, steps, size)
    if draw(st.integers(0, 4)) == 0:
        shape = (*shape, draw(st.integers(1, 2)))
    x_scale, hidden_scale = draw(scales(-10, 2)), draw(_scales_and_powers(-16, -6))
    cell_scale = 2.0 ** draw(st.integers(-16, -8) | st.integers(-60, 0)) * draw(st.sampled_from([1.0, 1.0, 1.3]))

    def scaled(scale: float, zero_point: int = 0) -> Quantization:
        return None if type == FLOAT32 else quantized(float32(scale), zero_point)

    model.input(type, [_small(draw, type, shape) for _ in model.invocations], scaled(x_scale, draw(zero_points(type))))
    for i in range(1, 9):
        weights = _small(draw, weight_type, (units, shape[2] if i < 5 else units))
        parameters = scaled(draw(_scales_and_powers(-14, -4)), draw(st.just(0) | zero_points(weight_type)))
        if draw(st.integers(0, 39)) == 0:
            model.input(weight_type, [weights] * len(model.invocations), parameters)
        else:
            model.constant(weights, parameters)
    biases = [_small(draw, FLOAT32 if type == FLOAT32 else INT16, (units,)) for _ in range(4)]
    hidden = scaled(hidden_scale, draw(zero_points(type)))
    _biases_and_states(model, type, [(bias, scaled(x_scale)) for bias in biases], batches, hidden, scaled(cell_scale))
    activation = draw(st.sampled_from([ActivationFunctionType.TANH] * 3 + list(ActivationFunctionType)))
    clip = draw(st.sampled_from([0.0, 0.0, 0.5, 3.0, 1e9]))
    options = {"fused_activation_function": activation, "cell_clip": clip, "time_major": time_major}
    options |= {"diagonal_recurrent_tensors": False}
    return model.result(hidden, shapes=[(*shape[:2], units)], **options)


def _biases_and_states(
    model: SingleOperator,
    type: TensorType,
    biases: Sequence[tuple[npt.NDArray[Any], Quantization]],
    batches: int,
    hidden: Quantization,
    cell: Quantization,
) -> None:
    """The operands of an LSTM after its eight weights."""
    _, bias_type, cell_type = LSTM_TYPES[type]
    for _ in range(3):
        model.omitted()
    for bias, parameters in biases:
        model.constant(bias.astype(ELEMENT_TYPES[bias_type].dtype), parameters)
    for _ in range(2):
        model.omitted()
    units = len(biases[0][0])
    model.variable(type, (batches, units), hidden)
    model.variable(cell_type, (batches, units), cell)
    for _ in range(4):
        model.omitted()


def _scales_and_powers(lowest: int, highest: int) -> st.SearchStrategy[float]:
    return scales(lowest, highest) | st.integers(lowest, highest).map(lambda exponent: 2.0**exponent)


def _small(draw: Draw, type: TensorType, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Values of a type; floats of about 1, where gates are neither open nor shut."""
    if type != FLOAT32:
        return values(draw, type, shape)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return rng.standard_normal(shape).astype(np.float32)


def _ones(type: TensorType, *shape: int) -> npt.NDArray[Any]:
    return np.ones(shape, ELEMENT_TYPES[type].dtype)


def _large_lstm(type: TensorType) -> OperatorCase:
    """128 units over 4 steps of 512 inputs."""
    scale = None if type == FLOAT32 else quantized(0.01)
    model = SingleOperator()
    model.input(type, [_ones(type, 1, 4, 512)], scale)
    for i in range(8):
        model.constant(_ones(LSTM_TYPES[type][0], 128, 512 if i < 4 else 128), scale)
    _biases_and_states(model, type, [(np.ones(128), scale)] * 4, 1, scale, scale and quantized(2.0**-11))
    options = options_of("UNIDIRECTIONAL_SEQUENCE_LSTM", fused_activation_function=ActivationFunctionType.TANH)
    return model.case(BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_LSTM, [((1, 4, 128), type, scale)], options)


def _large_svdf(type: TensorType, time_type: TensorType) -> OperatorCase:
    """512 filters over 512 inputs, remembered for 16 steps."""
    scale = None if type == FLOAT32 else quantized(0.01)
    model = SingleOperator()
    model.input(type, [_ones(type, 1, 512)], scale)
    model.constant(_ones(type, 512, 512), scale)
    model.constant(_ones(time_type, 512, 16), scale)
    model.constant(_ones(FLOAT32 if type == FLOAT32 else INT32, 256), scale and quantized(0.0001))
    model.variable(time_type, (1, 512 * 16), scale)
    return model.case(BuiltinOperator.SVDF, [((1, 256), type, scale)], options_of("SVDF", rank=2))


LARGE |= {f"UNIDIRECTIONAL_SEQUENCE_LSTM-{type.name}": partial(_large_lstm, type) for type in LSTM_TYPES}
LARGE |= {f"SVDF-{a.name}-{b.name}": partial(_large_svdf, a, b) for a, b, _ in SVDF_TYPES[:3]}
