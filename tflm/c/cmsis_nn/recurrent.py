"""Call CMSIS-NN for SVDF and UNIDIRECTIONAL_SEQUENCE_LSTM."""

from __future__ import annotations

from collections.abc import Sequence
from string import Template

import numpy as np

from tflm.c.cmsis_nn.processors import Processors
from tflm.c.cmsis_nn.structures import (
    FUNCTIONS,
    SUPPORT_FUNCTIONS,
    Array,
    activation,
    checked_call,
    context,
    dims,
    scale,
    source,
    target,
    wide_sums_fit,
)
from tflm.c.library_calls import LibraryCall, Structure, Value
from tflm.delegates.compiled.bands import work_array
from tflm.kernels.node import Node
from tflm.kernels.reference import svdf
from tflm.kernels.reference.svdf import OpDataSvdf, SvdfTensors
from tflm.kernels.reference.unidirectional_sequence_lstm import LstmTensors, OpDataLSTM
from tflm.schema.enums import TensorType
from tflm.schema.options import UnidirectionalSequenceLSTMOptions


def bind_svdf(node: Node, processors: Processors) -> Sequence[LibraryCall] | None:
    """Bind SVDF with an int16 state. With an int8 state, CMSIS-NN ignores its zero point and does not saturate to
    it."""
    t, op = SvdfTensors.of(node), node.op_data
    if t.x.dtype != np.int8 or t.time.dtype != np.int16:
        return None
    if node.eval_input(svdf.STATE).type != TensorType.INT16 or op.state_zero_point:
        return None
    (batches, filters, memory), units = t.state.shape, t.y.shape[1]
    return [
        checked_call(
            "arm_svdf_state_s16_s8",
            context(4 * batches * filters),
            context(4 * batches * units),
            _svdf_parameters(op, filters // units),
            scale(op.to_state.multiplier),
            scale(op.to_output.multiplier),
            dims(*t.x.shape),
            source("input", t.x),
            dims(batches, memory * filters),
            target("state", t.state),
            dims(*t.feature.shape),
            source("weights_feature", t.feature),
            dims(*t.time.shape),
            source("weights_time", t.time),
            dims(units),
            source("bias", t.bias),
            dims(*t.y.shape),
            target("output", t.y),
        )
    ]


def _svdf_parameters(op: OpDataSvdf, rank: int) -> Structure:
    stages = op.to_state.stage, op.to_output.stage
    limits = [activation(stage.minimum, stage.maximum) for stage in stages]
    fields: dict[str, Value] = {
        "rank": rank,
        "input_offset": op.input_zero_point,  # the function subtracts it
        "output_offset": op.to_output.stage.zero_point,
        "input_activation": limits[0],
        "output_activation": limits[1],
    }
    return Structure("cmsis_nn_svdf_params", fields)


# --- LSTM --------------------------------------------------------------------------------------------------------

STEPS = Template("""\
/* A gate: sums with the input and with the hidden state, both saturated at 16 bits, and their saturated sum. The
   library's own function saturates the second product only when it is added. */
static void lstm_gate_$kind(const $element *input, const $element *hidden, const cmsis_nn_lstm_params *lstm,
        const cmsis_nn_lstm_gate *gate, int16_t *result, int16_t *other)
{
    const int32_t size = lstm->batch_size * lstm->hidden_size;
    int32_t i;
    memset(result, 0, (size_t)size * sizeof(*result));
    memset(other, 0, (size_t)size * sizeof(*other));
    arm_nn_vec_mat_mul_result_acc_$product(input, gate->input_weights, gate->input_effective_bias, result,
            gate->input_multiplier, gate->input_shift, lstm->input_size, lstm->hidden_size, lstm->batch_size, 1);
    arm_nn_vec_mat_mul_result_acc_$product(hidden, gate->hidden_weights, gate->hidden_effective_bias, other,
            gate->hidden_multiplier, gate->hidden_shift, lstm->hidden_size, lstm->hidden_size, lstm->batch_size, 1);
    for (i = 0; i < size; ++i) {
        const int32_t sum = result[i] + other[i];
        result[i] = (int16_t)(sum < INT16_MIN ? INT16_MIN : sum > INT16_MAX ? INT16_MAX : sum);
    }
    arm_nn_activation_s16(result, result, size, 0, gate->activation_type);
}

/* Runs an LSTM. The library's own function starts every call with zero states. */
static void lstm_$kind(const $element *input, $element *output, $element *hidden, int16_t *cell,
        const cmsis_nn_lstm_params *lstm, int16_t *work)
{
    const int32_t size = lstm->batch_size * lstm->hidden_size;
    const $element *previous = hidden;
    int16_t *gate = work + size, *other = work + 2 * size;
    int32_t step;
    for (step = 0; step < lstm->time_steps; ++step) {
        lstm_gate_$kind(input, previous, lstm, &lstm->forget_gate, gate, other);
        arm_elementwise_mul_s16(gate, cell, 0, 0, cell, 0,
                lstm->forget_to_cell_multiplier, lstm->forget_to_cell_shift, INT16_MIN, INT16_MAX, size);
        lstm_gate_$kind(input, previous, lstm, &lstm->input_gate, gate, other);
        lstm_gate_$kind(input, previous, lstm, &lstm->cell_gate, work, other);
        arm_elementwise_mul_acc_s16(gate, work, 0, 0, cell, 0, lstm->input_to_cell_multiplier,
                lstm->input_to_cell_shift, -lstm->cell_clip, lstm->cell_clip, size);
        lstm_gate_$kind(input, previous, lstm, &lstm->output_gate, gate, other);
        arm_nn_activation_s16(cell, work, size, lstm->cell_scale_power + 12, ARM_TANH);
        arm_elementwise_mul_s16_$result(gate, work, output, lstm->output_offset, lstm->output_multiplier,
                lstm->output_shift, lstm->hidden_size, lstm->batch_size, 1);
        previous = output;
        input += lstm->batch_size * lstm->input_size;
        output += size;
    }
    memcpy(hidden, previous, (size_t)size * sizeof(*hidden));
}
""")

KINDS = {
    TensorType.INT8: {"kind": "s8", "element": "int8_t", "product": "s8_s16", "result": "s8"},
    TensorType.INT16: {"kind": "s16", "element": "int16_t", "product": "s16", "result": "batch_offset"},
}
"""Replacements in the C text above, by the type of the input."""

HELPERS = {f"lstm_{kind['kind']}": STEPS.substitute(kind) for kind in KINDS.values()}
"""Helper functions that the generated program defines, by name."""

GATES = {"forget_gate": 1, "input_gate": 0, "cell_gate": 3, "output_gate": 2}
"""The structure's field for each gate, and the gate's number in the operator's data."""

NO_CLIP = 32768

CELL_POWERS = range(-15, 1)
"""Supported powers of two for the scale of the cell state."""


def bind_lstm(node: Node, processors: Processors) -> Sequence[LibraryCall] | None:
    """Bind an integer UNIDIRECTIONAL_SEQUENCE_LSTM whose cell gate uses tanh and whose weights have no zero points.

    Products of the input and cell gates must fit in 16 bits, because they are added to the state before they are
    saturated.
    """
    op = node.op_data
    if not isinstance(op, OpDataLSTM):
        return None
    t = LstmTensors.of(node)
    is_supported = t.constant and op.is_tanh and op.cell_clip and op.cell_power in CELL_POWERS
    if not is_supported or any(map(any, op.weights_zero_points)) or not _gates_fit(t, op):
        return None
    if node.options(UnidirectionalSequenceLSTMOptions).time_major or t.x.shape[1] == 1:
        return [_steps(node, op, t.x, t.y, t.hidden, t.cell)]
    batches = range(t.x.shape[1])
    return [_steps(node, op, t.x[:, i], t.y[:, i], t.hidden[i], t.cell[i]) for i in batches]


def _gates_fit(t: LstmTensors, op: OpDataLSTM) -> bool:
    """Whether products with inputs and states fit the bits that CMSIS-NN uses for them."""
    return wide_sums_fit(
        np.concatenate(t.input_weights), np.concatenate(t.biases), op.input_multiplier
    ) and wide_sums_fit(np.concatenate(t.recurrent_weights), None, op.recurrent_multiplier)


def _steps(node: Node, op: OpDataLSTM, x: Array, y: Array, hidden: Array, cell: Array) -> LibraryCall:
    """Return the call for all batches, or for a single batch that is contiguous.

    Args:
        x, y, hidden, cell: the tensors; x and y have the time steps first. All have a batch dimension, or none has.
    """
    function = f"lstm_{KINDS[node.eval_input(0).type]['kind']}"
    return LibraryCall(
        function,
        (
            source("input", x),
            target("output", y),
            target("hidden_state", hidden),
            target("cell_state", cell),
            _lstm_parameters(node, op, cell.size // y.shape[-1], len(x)),
            target("gates", work_array(3 * cell.size, np.int16)),
        ),
        headers=(FUNCTIONS, SUPPORT_FUNCTIONS),
        helper=HELPERS[function],
    )


def _lstm_parameters(node: Node, op: OpDataLSTM, batches: int, steps: int) -> Structure:
    t = LstmTensors.of(node)
    fields: dict[str, Value] = {
        "time_major": 1,
        "batch_size": batches,
        "time_steps": steps,
        "input_size": t.x.shape[2],
        "hidden_size": t.y.shape[2],
        "input_offset": -op.input_zero_point,
        "forget_to_cell_multiplier": int(op.forget_cell.significand),
        "forget_to_cell_shift": int(op.forget_cell.shift),
        "input_to_cell_multiplier": int(op.input_cell.significand),
        "input_to_cell_shift": int(op.input_cell.shift),
        "cell_clip": op.cell_clip % NO_CLIP,  # 0 for none
        "cell_scale_power": op.cell_power,
        "output_multiplier": int(op.output_hidden.significand),
        "output_shift": int(op.output_hidden.shift),
        "output_offset": op.hidden_zero_point,
    }
    fields |= {name: _gate(t, op, number) for name, number in GATES.items()}
    return Structure("cmsis_nn_lstm_params", fields)


def _gate(t: LstmTensors, op: OpDataLSTM, gate: int) -> Structure:
    units = t.y.shape[2]
    from_input, from_hidden, bias = t.input_weights[gate], t.recurrent_weights[gate], t.biases[gate]
    fields: dict[str, Value] = {
        "input_multiplier": int(op.input_multiplier.significand[gate * units]),
        "input_shift": int(op.input_multiplier.shift[gate * units]),
        "input_weights": source("input_weights", from_input),
        "input_effective_bias": source("input_bias", _effective_bias(from_input, -op.input_zero_point, bias)),
        "hidden_multiplier": int(op.recurrent_multiplier.significand[gate * units]),
        "hidden_shift": int(op.recurrent_multiplier.shift[gate * units]),
        "hidden_weights": source("hidden_weights", from_hidden),
        "hidden_effective_bias": source(
            "hidden_bias", _effective_bias(from_hidden, -op.hidden_zero_point, np.zeros_like(bias))
        ),
        "bias": source("bias", bias),
        "activation_type": "ARM_TANH" if gate == GATES["cell_gate"] else "ARM_SIGMOID",
    }
    return Structure("cmsis_nn_lstm_gate", fields)


def _effective_bias(weights: Array, offset: int, bias: Array) -> Array:
    """Return the bias plus the row sums of the weights times the offset of the operand that they multiply."""
    sums: Array = weights.sum(axis=1, dtype=np.int64) * offset + bias.astype(np.int64)
    return sums.astype(bias.dtype)
