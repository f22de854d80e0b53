"""UNIDIRECTIONAL_SEQUENCE_LSTM and SVDF: products in matrix tiles, and what becomes of them step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.delegates.compiled.casts import as_float32, as_float64, as_int32, as_int64
from tflm.delegates.compiled.elementwise import multiplier_parts
from tflm.delegates.compiled.fixed_point import clamped, scaled
from tflm.delegates.compiled.functions import hyperbolic_tangent, sigmoid
from tflm.delegates.compiled.images import aligned, image_of
from tflm.delegates.compiled.language import (
    DONE,
    Float32s,
    Int8s,
    Int16s,
    Int32s,
    Kernel,
    Step,
    kernel,
)
from tflm.delegates.compiled.movement import copy_steps, move
from tflm.delegates.compiled.products import bind_matrix, float_layer_scaling, layer_scaling
from tflm.kernels.arithmetic.fixed_point import Multiplier, QuantizedMultiplier, WideQuantizedMultiplier
from tflm.kernels.arithmetic.requantization import OutputStage
from tflm.kernels.reference import svdf
from tflm.kernels.reference.unidirectional_sequence_lstm import (
    LEAST,
    MOST,
    Multipliers,
    OpData,
    Tensors,
    gate_table,
    table_of_tanh,
)
from tflm.kernels.registration import KernelContext, Node
from tflm.schema.enums import ActivationFunctionType
from tflm.schema.options import SVDFOptions

LOW_16_BITS = 0xFFFF

# --- UNIDIRECTIONAL_SEQUENCE_LSTM --------------------------------------------------------------------------------


@kernel
def lstm_step_int8(
    from_input: Int16s,
    from_hidden: Int16s,
    functions: Int16s,
    tanh_of_cell: Int16s,
    hidden: Int8s,
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
    """One step, from what the gates make of the input and of the hidden state, in Q3.12.

    Args:
        from_input, from_hidden: for each batch, the input, forget, output and cell gates of all units.
        functions: sigmoid of each Q3.12 by its bits; then the function of the cell gate. In Q0.15.
        tanh_of_cell: tanh in Q0.15 of each state of a cell by its bits.
    """
    for batch in range(batches):
        for unit in range(units):
            first, state = 4 * units * batch + unit, units * batch + unit
            update = clamped(as_int64(from_input[first]) + from_hidden[first], LEAST, MOST)
            first += units
            forget = clamped(as_int64(from_input[first]) + from_hidden[first], LEAST, MOST)
            first += units
            output = clamped(as_int64(from_input[first]) + from_hidden[first], LEAST, MOST)
            first += units
            change = clamped(as_int64(from_input[first]) + from_hidden[first], LEAST, MOST)
            kept = as_int64(cell[state]) * functions[forget & LOW_16_BITS]
            kept = clamped(scaled(kept, significand_forget, left_forget, right_forget), LEAST, MOST)
            added = as_int64(functions[update & LOW_16_BITS]) * functions[(change & LOW_16_BITS) + LOW_16_BITS + 1]
            added = clamped(scaled(added, significand_update, left_update, right_update), LEAST, MOST)
            total = clamped(kept + added, cell_least, cell_most)
            cell[state] = total
            shown = as_int64(tanh_of_cell[total & LOW_16_BITS]) * functions[output & LOW_16_BITS]
            shown = scaled(shown, significand_output, left_output, right_output) + hidden_zero_point
            hidden[state] = clamped(shown, hidden_least, hidden_most)
    return DONE


lstm_step_int16 = lstm_step_int8.variant("lstm_step_int16", hidden=Int16s)


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
    """One step of floats. The clip is 0 for none."""
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
            if limit > 0:
                total = limit if total > limit else total
                total = -limit if total < -limit else total
            cell[state] = total
            hidden[state] = as_float32(hyperbolic_tangent(as_float64(total))) * output
    return DONE


LSTM_STEPS: dict[str, Kernel] = {"int8": lstm_step_int8, "int16": lstm_step_int16}
"""By type of the hidden state."""


def _bind_lstm(context: KernelContext, node: Node) -> list[Step] | None:
    t = Tensors(context, node)
    if not t.constant:
        return None
    dtype = np.float32 if t.x.dtype == np.float32 else np.int16
    gates = aligned((t.steps, t.batches, 4 * t.units), dtype)
    from_hidden = aligned((t.batches, 4 * t.units), dtype)
    products = _gate_products(t, node, gates, from_hidden)
    rows = copy_steps([(t.rows.reshape(t.x.shape), t.x)])
    if products is None or rows is None:
        return None
    of_input, of_hidden = products
    common: dict[str, Any] = {
        "from_hidden": from_hidden,
        "hidden": t.hidden,
        "cell": t.cell,
        "batches": t.batches,
        "units": t.units,
    }
    step: Kernel = lstm_step_float32
    if isinstance(node.op_data, OpData):
        step = LSTM_STEPS[t.hidden.dtype.name]
        common |= _quantized_constants(t, node.op_data)
    else:
        common |= {"clip": np.array([max(t.cell_clip, 0)], np.float32), "is_tanh": t.is_tanh}
    steps = [*rows, *of_input]
    for gate, y in zip(gates, t.y):
        shown = copy_steps([(y, t.hidden)])
        if shown is None:
            return None
        steps += [*of_hidden, step.step(from_input=gate, **common), *shown]
    return steps


def _gate_products(
    t: Tensors, node: Node, gates: npt.NDArray[Any], from_hidden: npt.NDArray[Any]
) -> tuple[list[Step], list[Step]] | None:
    """What sets the gates of all steps from the input, and those of one from the hidden state; None if not exact."""
    if isinstance(node.op_data, OpData):
        op = node.op_data
        of_input = _quantized_product(
            t.rows, t.input_weights, t.biases, op.input_zero_point, op.input_multipliers, gates
        )
        of_hidden = _quantized_product(
            t.hidden, t.recurrent_weights, None, op.hidden_zero_point, op.recurrent_multipliers, from_hidden
        )
        return None if of_input is None or of_hidden is None else (of_input, of_hidden)
    image = image_of(t.x.dtype, 0, bytes_allowed=True)
    none = ActivationFunctionType.NONE
    of_input = bind_matrix(
        t.rows, t.input_weights, image, float_layer_scaling(t.input_weights[np.newaxis], t.biases, none), gates
    )
    of_hidden = bind_matrix(
        t.hidden,
        t.recurrent_weights,
        image,
        float_layer_scaling(t.recurrent_weights[np.newaxis], None, none),
        from_hidden,
    )
    return of_input, of_hidden


def _quantized_product(
    x: npt.NDArray[Any],
    weights: npt.NDArray[Any],
    bias: npt.NDArray[Any] | None,
    zero_point: int,
    multipliers: Multipliers,
    y: npt.NDArray[Any],
) -> list[Step] | None:
    """The stacked gates of each row of x, saturated to Q3.12."""
    significands, shifts = (np.repeat(column, len(weights) // 4) for column in zip(*multipliers))
    kind = WideQuantizedMultiplier if x.dtype == np.int16 else QuantizedMultiplier
    return quantized_matrix(x, weights, bias, zero_point, kind(significands, shifts), OutputStage(0, LEAST, MOST), y)


def quantized_matrix(
    x: npt.NDArray[Any],
    weights: npt.NDArray[Any],
    bias: npt.NDArray[Any] | None,
    zero_point: int,
    multiplier: Multiplier,
    output: OutputStage,
    y: npt.NDArray[Any],
) -> list[Step] | None:
    """The steps that set y (positions, rows of weights) to x (positions, depth) times weights; None if not exact."""
    image = image_of(x.dtype, zero_point, bytes_allowed=weights.dtype == np.int8)
    scaling = layer_scaling(multiplier, output, weights[np.newaxis], bias, image, y.dtype)
    return None if scaling is None else bind_matrix(x, weights, image, scaling, y)


def _quantized_constants(t: Tensors, op: OpData) -> dict[str, Any]:
    limits = np.iinfo(t.hidden.dtype)
    # The state saturates at 16 bits, and then at the clip: together at whichever is nearer.
    clip = -LEAST if op.cell_clip is None else op.cell_clip
    return {
        "functions": gate_table(t.is_tanh).astype(np.int16),
        "tanh_of_cell": table_of_tanh(op.cell_power).astype(np.int16),
        **multiplier_parts("_forget", op.forget),
        **multiplier_parts("_update", op.update),
        **multiplier_parts("_output", op.output),
        "cell_least": max(LEAST, -clip),
        "cell_most": min(MOST, clip),
        "hidden_zero_point": op.hidden_zero_point,
        "hidden_least": int(limits.min),
        "hidden_most": int(limits.max),
    }


# --- SVDF --------------------------------------------------------------------------------------------------------


@kernel
def svdf_int16(
    newest: Int16s,
    weights: Int16s,
    bias: Int32s,
    state: Int16s,
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
    """Remember the newest value of each filter, and filter what each unit remembers over time, in 32 bits."""
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


svdf_int8 = svdf_int16.variant("svdf_int8", newest=Int8s, weights=Int8s, state=Int8s)


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
    """The same of floats, which are added in order, and clamped."""
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


SVDF_KERNELS: dict[str, Kernel] = {"int8": svdf_int8, "int16": svdf_int16, "float32": svdf_float32}
"""By type of the weights over time."""

SVDF_LIMITS = {
    ActivationFunctionType.NONE: (-np.inf, np.inf, np.nan),
    ActivationFunctionType.RELU: (0, np.inf, 0),
    ActivationFunctionType.RELU_N1_TO_1: (-1, 1, 1),
    ActivationFunctionType.RELU6: (0, 6, 6),
}
"""Of floats, for each activation that is a clamp: lowest and highest value, and what becomes of NaN."""


def _bind_svdf(context: KernelContext, node: Node) -> list[Step] | None:
    tensors = [context.get_eval_input(node, i) for i in range(5)]
    x, feature, time, bias, state = (tensor.elements for tensor in tensors)
    y = context.get_eval_output(node, 0).elements
    if not tensors[svdf.WEIGHTS_FEATURE].is_constant:
        return None
    (filters, memory), (batches, units) = time.shape, y.shape
    state = state.reshape(-1).view(time.dtype)[: state.size]
    newest = aligned((batches, filters), time.dtype)
    see: list[Step] | None
    if x.dtype == np.float32:
        activation = (node.options(SVDFOptions) or SVDFOptions()).fused_activation_function
        if activation not in SVDF_LIMITS:
            return None
        scaling = float_layer_scaling(feature[np.newaxis], None, ActivationFunctionType.NONE)
        see = bind_matrix(x, feature, image_of(x.dtype, 0, bytes_allowed=True), scaling, newest)
        constants: dict[str, Any] = {"limits": np.array(SVDF_LIMITS[activation], np.float32)}
    else:
        op: svdf.OpData = node.op_data
        limits = np.iinfo(time.dtype)
        stage = OutputStage(0, int(limits.min), int(limits.max))
        see = quantized_matrix(x, feature, None, op.input_zero_point, op.to_state, stage, newest)
        zero_point = int(np.array(op.state_zero_point, np.int64).astype(time.dtype))
        if zero_point != op.state_zero_point:
            return None
        constants = {
            "state_zero_point": zero_point,
            **multiplier_parts("", op.to_output),
            "zero_point": op.output_zero_point,
        }
    if see is None:
        return None
    sizes = {"batches": batches, "units": units, "rank": filters // units, "memory": memory}
    arrays = {"newest": newest, "weights": time, "bias": bias, "state": state, "y": y}
    forget = move.step(target=state, source=state[1:], count=state.nbytes - state.itemsize)
    return [*see, forget, SVDF_KERNELS[time.dtype.name].step(**arrays, **sizes, **constants)]


BINDINGS = {"SVDF": _bind_svdf, "UNIDIRECTIONAL_SEQUENCE_LSTM": _bind_lstm}
