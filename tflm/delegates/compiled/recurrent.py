"""UNIDIRECTIONAL_SEQUENCE_LSTM and SVDF: products in matrix tiles, then the recurrence step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.compiler.language import DONE, Elements, Float32s, Int8s, Int16s, Int32s, Step, kernel
from tflm.delegates.compiled.casts import as_float32, as_float64, as_int32, as_int64
from tflm.delegates.compiled.elementwise import multiplier_parts
from tflm.delegates.compiled.fixed_point import clamped, scaled
from tflm.delegates.compiled.functions import hyperbolic_tangent, sigmoid
from tflm.delegates.compiled.images import aligned, image_of
from tflm.delegates.compiled.movement import copy_steps, move
from tflm.delegates.compiled.products import bind_matrix, float_layer_scaling, layer_scaling
from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier
from tflm.kernels.arithmetic.requantization import OutputStage
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.reference import svdf
from tflm.kernels.reference.svdf import SvdfTensors
from tflm.kernels.reference.unidirectional_sequence_lstm import (
    INT16_MAX,
    INT16_MIN,
    LstmTensors,
    OpDataFloatLSTM,
    OpDataLSTM,
    cell_gate_table,
    sigmoid_table,
    stacked,
    tanh_table,
)
from tflm.schema.enums import ActivationFunctionType
from tflm.schema.options import SVDFOptions

LOW_16_BITS = 0xFFFF

# --- UNIDIRECTIONAL_SEQUENCE_LSTM --------------------------------------------------------------------------------


@kernel
def lstm_step_integers(
    from_input: Int16s,
    from_hidden: Int16s,
    functions: Int16s,
    tanh_of_cell: Int16s,
    hidden: Elements,
    cell: Int16s,
    batches: int,
    units: int,
    significand_forget: int,
    left_forget: int,
    right_forget: int,
    significand_update: int,
    left_update: int,
    right_update: int,
    significand_output: int,
    left_output: int,
    right_output: int,
    cell_least: int,
    cell_most: int,
    hidden_zero_point: int,
    hidden_least: int,
    hidden_most: int,
) -> int:
    """One step, from the gates' products with the input and the hidden state, in Q3.12.

    Args:
        from_input, from_hidden: for each batch, the input, forget, output and cell gates of all units.
        functions: sigmoid of each Q3.12 by its bits; then the function of the cell gate. In Q0.15.
        tanh_of_cell: tanh in Q0.15 of each state of a cell by its bits.
    """
    for batch in range(batches):
        for unit in range(units):
            first, state = 4 * units * batch + unit, units * batch + unit
            update = clamped(as_int64(from_input[first]) + from_hidden[first], INT16_MIN, INT16_MAX)
            first += units
            forget = clamped(as_int64(from_input[first]) + from_hidden[first], INT16_MIN, INT16_MAX)
            first += units
            output = clamped(as_int64(from_input[first]) + from_hidden[first], INT16_MIN, INT16_MAX)
            first += units
            change = clamped(as_int64(from_input[first]) + from_hidden[first], INT16_MIN, INT16_MAX)
            kept = as_int64(cell[state]) * functions[forget & LOW_16_BITS]
            kept = clamped(scaled(kept, significand_forget, left_forget, right_forget), INT16_MIN, INT16_MAX)
            added = as_int64(functions[update & LOW_16_BITS]) * functions[(change & LOW_16_BITS) + LOW_16_BITS + 1]
            added = clamped(scaled(added, significand_update, left_update, right_update), INT16_MIN, INT16_MAX)
            total = clamped(kept + added, cell_least, cell_most)
            cell[state] = total
            shown = as_int64(tanh_of_cell[total & LOW_16_BITS]) * functions[output & LOW_16_BITS]
            shown = scaled(shown, significand_output, left_output, right_output) + hidden_zero_point
            hidden[state] = clamped(shown, hidden_least, hidden_most)
    return DONE


@kernel
def lstm_step_float32(
    from_input: Float32s,
    from_hidden: Float32s,
    hidden: Float32s,
    cell: Float32s,
    clip: Float32s,
    batches: int,
    units: int,
    is_tanh: int,
) -> int:
    """One step of floats. The clip is infinite for none."""
    limit = clip[0]
    for batch in range(batches):
        for unit in range(units):
            first, state = 4 * units * batch + unit, units * batch + unit
            update = as_float32(sigmoid(as_float64(from_input[first] + from_hidden[first])))
            first += units
            forget = as_float32(sigmoid(as_float64(from_input[first] + from_hidden[first])))
            first += units
            output = as_float32(sigmoid(as_float64(from_input[first] + from_hidden[first])))
            first += units
            change = from_input[first] + from_hidden[first]
            change = as_float32(hyperbolic_tangent(as_float64(change))) if is_tanh else change
            total = forget * cell[state] + update * change
            total = limit if total > limit else total
            total = -limit if total < -limit else total
            cell[state] = total
            hidden[state] = as_float32(hyperbolic_tangent(as_float64(total))) * output
    return DONE


def _bind_lstm(context: KernelContext, node: Node) -> list[Step] | None:
    t, op = LstmTensors.of(node), node.op_data
    if not t.constant:
        return None
    rows, hidden, cell = aligned(t.x.shape, t.x.dtype), t.hidden, t.cell
    gates_type = np.float32 if t.x.dtype == np.float32 else np.int16
    gates, from_hidden = (aligned((*size, 4 * t.y.shape[2]), gates_type) for size in (t.y.shape[:2], t.y.shape[1:2]))
    products = _gate_products(t, op, rows.reshape(-1, rows.shape[2]), gates, from_hidden)
    copy_rows = copy_steps([(rows, t.x)])
    if products is None or copy_rows is None:
        return None
    arrays = {"from_hidden": from_hidden, "hidden": hidden, "cell": cell}
    sizes = dict(zip(("batches", "units"), hidden.shape))
    is_integer = isinstance(op, OpDataLSTM)
    constants = _quantized_constants(t, op) if is_integer else _float_constants(op)
    step = lstm_step_integers if is_integer else lstm_step_float32
    of_input, of_hidden = products
    steps = [*copy_rows, *of_input]
    for gate, y in zip(gates, t.y):
        copy_hidden = copy_steps([(y, hidden)])
        if copy_hidden is None:
            return None
        steps += [*of_hidden, step.step(from_input=gate, **arrays, **sizes, **constants), *copy_hidden]
    return steps


def _gate_products(
    t: LstmTensors,
    op: OpDataLSTM | OpDataFloatLSTM,
    rows: npt.NDArray[Any],
    gates: npt.NDArray[Any],
    from_hidden: npt.NDArray[Any],
) -> tuple[list[Step], list[Step]] | None:
    """The steps that compute all gates from the input, and one step's gates from the hidden state; None if not
    exact.
    """
    bias = np.concatenate(t.biases)
    if isinstance(op, OpDataFloatLSTM):
        of_input, of_hidden = np.concatenate(t.input_weights), np.concatenate(t.recurrent_weights)
        return float_matrix(rows, of_input, bias, gates), float_matrix(t.hidden, of_hidden, None, from_hidden)
    input_zeros, recurrent_zeros = op.weights_zero_points
    of_input, of_hidden = stacked(t.input_weights, input_zeros), stacked(t.recurrent_weights, recurrent_zeros)
    stage = OutputStage.whole(0, np.int16)
    find_input = quantized_matrix(rows, of_input, bias, op.input_zero_point, op.input_multiplier, stage, gates)
    find_hidden = quantized_matrix(
        t.hidden, of_hidden, None, op.hidden_zero_point, op.recurrent_multiplier, stage, from_hidden
    )
    return None if find_input is None or find_hidden is None else (find_input, find_hidden)


def float_matrix(
    x: npt.NDArray[Any], weights: npt.NDArray[Any], bias: npt.NDArray[Any] | None, y: npt.NDArray[Any]
) -> list[Step]:
    """The steps that set y (positions, rows of weights) to x (positions, depth) times weights, plus the bias."""
    scaling = float_layer_scaling(weights[np.newaxis], bias, ActivationFunctionType.NONE)
    return bind_matrix(x, weights, image_of(x.dtype, 0, bytes_allowed=True), scaling, y)


def quantized_matrix(
    x: npt.NDArray[Any],
    weights: npt.NDArray[Any],
    bias: npt.NDArray[Any] | None,
    zero_point: int,
    multiplier: QuantizedMultiplier,
    output: OutputStage,
    y: npt.NDArray[Any],
) -> list[Step] | None:
    """The steps that set y (positions, rows of weights) to x (positions, depth) times weights; None if not exact."""
    image = image_of(x.dtype, zero_point, bytes_allowed=weights.dtype == np.int8)
    scaling = layer_scaling(multiplier, output, weights[np.newaxis], bias, image, y.dtype)
    return None if scaling is None else bind_matrix(x, weights, image, scaling, y)


def _float_constants(op: OpDataFloatLSTM) -> dict[str, Any]:
    return {"clip": np.array([op.cell_clip], None), "is_tanh": op.is_tanh}


def _quantized_constants(t: LstmTensors, op: OpDataLSTM) -> dict[str, Any]:
    limits = np.iinfo(t.hidden.dtype)
    functions = [sigmoid_table(), cell_gate_table(op.is_tanh)]
    return {
        "functions": np.concatenate(functions).astype(np.int16),
        "tanh_of_cell": tanh_table(op.cell_power).astype(np.int16),
        **multiplier_parts("_forget", op.forget_cell),
        **multiplier_parts("_update", op.input_cell),
        **multiplier_parts("_output", op.output_hidden),
        # The state saturates at 16 bits, then at the clip: combined, at the smaller limit.
        "cell_least": max(INT16_MIN, -op.cell_clip),
        "cell_most": min(INT16_MAX, op.cell_clip),
        "hidden_zero_point": op.hidden_zero_point,
        "hidden_least": int(limits.min),
        "hidden_most": int(limits.max),
    }


# --- SVDF --------------------------------------------------------------------------------------------------------


@kernel
def svdf_integers(
    newest: Elements,
    weights: Elements,
    bias: Int32s,
    state: Elements,
    y: Int8s,
    batches: int,
    units: int,
    rank: int,
    memory: int,
    state_zero_point: int,
    significand: int,
    left: int,
    right: int,
    zero_point: int,
) -> int:
    """Store the newest value of each filter, and filter the state of each unit over time, in 32 bits."""
    filters, of_unit = units * rank, rank * memory
    for i in range(batches * filters):
        state[i * memory + memory - 1] = newest[i] + state_zero_point
    for batch in range(batches):
        for unit in range(units):
            weight, row = unit * of_unit, (batch * units + unit) * of_unit
            total, of_weights = as_int32(0), as_int32(0)
            for i in range(of_unit):
                total = as_int32(total + as_int32(state[row + i]) * as_int32(weights[weight + i]))
                of_weights = as_int32(of_weights + weights[weight + i])
            sum_of_products = bias[unit] + as_int64(total) - as_int64(of_weights) * state_zero_point
            result = scaled(sum_of_products, significand, left, right) + zero_point
            y[batch * units + unit] = clamped(result, -128, 127)
    return DONE


@kernel
def svdf_float32(
    newest: Float32s,
    weights: Float32s,
    bias: Float32s,
    state: Float32s,
    y: Float32s,
    limits: Float32s,
    batches: int,
    units: int,
    rank: int,
    memory: int,
) -> int:
    """The same for floats, added in order, and clamped."""
    for i in range(batches * units * rank):
        state[i * memory + memory - 1] = newest[i]
    for batch in range(batches):
        for unit in range(units):
            total = bias[unit]
            for of_rank in range(rank):
                weight = (unit * rank + of_rank) * memory
                row = batch * units * rank * memory + weight
                of_filter = state[row] * weights[weight]
                for i in range(1, memory):
                    of_filter += state[row + i] * weights[weight + i]
                total += of_filter
            total = limits[2] if total != total else total
            total = limits[0] if total < limits[0] else total
            y[batch * units + unit] = limits[1] if total > limits[1] else total
    return DONE


SVDF_LIMITS = {
    ActivationFunctionType.NONE: (-np.inf, np.inf, np.nan),
    ActivationFunctionType.RELU: (0, np.inf, 0),
    ActivationFunctionType.RELU_N1_TO_1: (-1, 1, 1),
    ActivationFunctionType.RELU6: (0, 6, 6),
}
"""Of floats, for each activation that is a clamp: lowest and highest value, and what becomes of NaN."""


def _bind_svdf(context: KernelContext, node: Node) -> list[Step] | None:
    t, op = SvdfTensors.of(node), node.op_data
    batches, filters, memory = t.state.shape
    if not node.eval_input(svdf.WEIGHTS_FEATURE).is_constant:
        return None
    newest = aligned((batches, filters), t.time.dtype)
    find: list[Step] | None
    if t.x.dtype == np.float32:
        limits = SVDF_LIMITS.get(node.options(SVDFOptions).fused_activation_function)
        if limits is None:
            return None
        find = float_matrix(t.x, t.feature, None, newest)
        constants: dict[str, Any] = {"limits": np.array(limits, np.float32)}
    else:
        multiplier, stage = op.to_state.multiplier, op.to_state.stage
        if not stage.minimum <= op.state_zero_point <= stage.maximum:
            return None
        find = quantized_matrix(t.x, t.feature, None, op.input_zero_point, multiplier, stage, newest)
        constants = {"state_zero_point": op.state_zero_point, "zero_point": op.to_output.stage.zero_point}
        constants |= multiplier_parts("", op.to_output.multiplier)
    if find is None:
        return None
    units, state = t.y.shape[1], t.state.reshape(-1)
    sizes = {"batches": batches, "units": units, "rank": filters // units, "memory": memory}
    arrays = {"newest": newest, "weights": t.time, "bias": t.bias, "state": state, "y": t.y}
    forget = move.step(target=state, source=state[1:], count=state.nbytes - state.itemsize)
    remember = svdf_float32 if t.x.dtype == np.float32 else svdf_integers
    return [*find, forget, remember.step(**arrays, **sizes, **constants)]


BINDINGS = {"SVDF": _bind_svdf, "UNIDIRECTIONAL_SEQUENCE_LSTM": _bind_lstm}
