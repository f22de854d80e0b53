"""UNIDIRECTIONAL_SEQUENCE_LSTM and SVDF: products in matrix tiles, then the recurrence step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from tflm.compiler.language import (
    DONE,
    Elements,
    Float32s,
    Int8s,
    Int16s,
    Int32s,
    Kernel,
    Shift,
    Step,
    UInt16s,
    kernel,
)
from tflm.compiler.processor import uses_tiles
from tflm.delegates.compiled.casts import as_float32, as_float64, as_int32, as_int64
from tflm.delegates.compiled.fixed_point import Multiplier, clamped, multiplier_of, scaled, scaled_in_32_bits
from tflm.delegates.compiled.functions import hyperbolic_tangent, sigmoid
from tflm.delegates.compiled.images import image_of
from tflm.delegates.compiled.interpolation import sigmoid_of_steps, tanh_of_steps
from tflm.delegates.compiled.movement import copy_steps, move
from tflm.delegates.compiled.plain_products import (
    Scale,
    bind_plain_convolution,
    bind_plain_matrix,
    float_scale,
    integer_scale,
)
from tflm.delegates.compiled.products import bind_matrix, float_layer_scaling, layer_scaling
from tflm.delegates.compiled.svdf_tiles import bind_tiles
from tflm.delegates.compiled.work_arrays import work_array
from tflm.kernels.arithmetic.fixed_point import SIGMOID_TABLE, QuantizedMultiplier, wrap_int32
from tflm.kernels.arithmetic.requantization import OutputStage
from tflm.kernels.layers.geometry import Axis
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.reference import svdf
from tflm.kernels.reference.svdf import OpDataSvdf, SvdfTensors
from tflm.kernels.reference.unidirectional_sequence_lstm import (
    INT16_MAX,
    INT16_MIN,
    LstmTensors,
    OpDataFloatLSTM,
    OpDataLSTM,
    stacked,
)
from tflm.schema.enums import ActivationFunctionType
from tflm.schema.options import SVDFOptions

Matrix = Callable[..., "list[Step] | None"]
"""Binds a product, with the arguments of `quantized_matrix`."""

BindStep = Callable[[OpDataLSTM, dict[str, npt.NDArray[Any]]], "Step | None"]
"""Binds one step of an LSTM to products with the input and the hidden state, the hidden state, and the cells."""

CELL_FRACTION_BITS = 12
"""Fraction bits of a cell state in Q3.12, which is exact."""

# --- UNIDIRECTIONAL_SEQUENCE_LSTM --------------------------------------------------------------------------------


CELL_GATES: dict[str, Callable[..., Any]] = {
    "tanh": lambda gate, table: tanh_of_steps(3 * gate, table),
    "none": lambda gate, table: gate,
}
CellGate = Annotated[Callable[..., Any], CELL_GATES]
"""Functions of gates in Q3.12, with results in Q0.15, by interpolation in a small table of the sigmoid."""


@kernel
def lstm_step_integers(
    cell_gate: CellGate,
    from_input: Int16s,
    from_hidden: Int16s,
    table: UInt16s,
    hidden: Elements,
    cell: Int16s,
    batches: int,
    units: int,
    multiplier_forget: Multiplier,
    multiplier_update: Multiplier,
    multiplier_output: Multiplier,
    cell_min: int,
    cell_max: int,
    hidden_zero_point: int,
    hidden_min: int,
    hidden_max: int,
    cell_factor: int,
    cell_half: int,
    cell_shift: Shift,
) -> int:
    """Compute one step from the gates' products with the input and the hidden state, in Q3.12.

    Args:
        from_input, from_hidden: for each batch, the input, forget, output and cell gates of all units.
        cell_factor, cell_half, cell_shift: convert the cell state to steps of 1 / 12288.
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
            kept = as_int32(as_int32(cell[state]) * sigmoid_of_steps(3 * forget, table))
            kept = scaled_in_32_bits(kept, multiplier_forget)
            added = as_int32(as_int32(sigmoid_of_steps(3 * update, table)) * cell_gate(change, table))
            added = scaled_in_32_bits(added, multiplier_update)
            both = clamped(kept, INT16_MIN, INT16_MAX) + clamped(added, INT16_MIN, INT16_MAX)
            total = as_int32(clamped(both, cell_min, cell_max))
            cell[state] = total
            tanh = as_int32(tanh_of_steps(as_int32(total * cell_factor + cell_half) >> cell_shift, table))
            shown = as_int32(tanh * sigmoid_of_steps(3 * output, table))
            shown = scaled_in_32_bits(shown, multiplier_output)
            hidden[state] = clamped(as_int32(shown + hidden_zero_point), hidden_min, hidden_max)
    return DONE


REAL_SIGMOIDS: dict[str, Callable[..., Any]] = {
    "series": lambda x: as_float32(sigmoid(as_float64(x))),
    "library": lambda x: as_float32(1) / (as_float32(1) + np.exp(-x)),
}
REAL_TANHS: dict[str, Callable[..., Any]] = {
    "series": lambda x: as_float32(hyperbolic_tangent(as_float64(x))),
    "library": lambda x: np.tanh(x),
}
RealSigmoid = Annotated[Callable[..., Any], REAL_SIGMOIDS]
RealTanh = Annotated[Callable[..., Any], REAL_TANHS]
"""Functions of float32: by series in float64, which can be vectorized, or by C's library, which needs no double
precision."""


@kernel
def lstm_step_float32(
    sigmoid_of_gate: RealSigmoid,
    tanh: RealTanh,
    from_input: Float32s,
    from_hidden: Float32s,
    hidden: Float32s,
    cell: Float32s,
    clip: Float32s,
    batches: int,
    units: int,
    is_tanh: int,
) -> int:
    """Compute one step of floats. The clip is infinite if there is none."""
    limit = clip[0]
    for batch in range(batches):
        for unit in range(units):
            first, state = 4 * units * batch + unit, units * batch + unit
            update = sigmoid_of_gate(from_input[first] + from_hidden[first])
            first += units
            forget = sigmoid_of_gate(from_input[first] + from_hidden[first])
            first += units
            output = sigmoid_of_gate(from_input[first] + from_hidden[first])
            first += units
            change = from_input[first] + from_hidden[first]
            change = tanh(change) if is_tanh else change
            total = forget * cell[state] + update * change
            total = limit if total > limit else total
            total = -limit if total < -limit else total
            cell[state] = total
            hidden[state] = tanh(total) * output
    return DONE


def bind_lstm(
    context: KernelContext, node: Node, find: Matrix | None = None, bind_step: BindStep | None = None
) -> list[Step] | None:
    """Bind UNIDIRECTIONAL_SEQUENCE_LSTM.

    Args:
        find: binds its integer products with constant weights; None for `quantized_matrix`.
        bind_step: binds a step of integers, with one array for each gate; None for `lstm_step_integers`.
    """
    t, op = LstmTensors.of(node), node.op_data
    if uses_tiles() and not t.constant:
        return None
    # With tiles, the products of all steps are computed at once; without tiles, those of one step at a time.
    held = len(t.x) if uses_tiles() else 1
    is_copied = held > 1 or not t.x[0].flags.c_contiguous
    rows = work_array((held, *t.x.shape[1:]), t.x.dtype) if is_copied else t.x[:1]
    gates_type = np.float32 if t.x.dtype == np.float32 else np.int16
    sizes = (held, t.y.shape[1]), t.y.shape[1:2]
    gates, from_hidden = (work_array((*size, 4 * t.y.shape[2]), gates_type) for size in sizes)
    inputs = rows.reshape(-1, rows.shape[2])
    products = gate_products(find or quantized_matrix, t, op, inputs, gates, from_hidden)
    if products is None:
        return None
    arrays = {"from_hidden": from_hidden, "hidden": t.hidden, "cell": t.cell}
    of_input, of_hidden = products
    steps: list[Step] = []
    for i, y in enumerate(t.y):
        copy_rows = copy_steps([(rows, t.x[i : i + held])] if is_copied and i % held == 0 else [])
        copy_hidden = copy_steps([(y, t.hidden)])
        if copy_rows is None or copy_hidden is None:
            return None
        if i % held == 0:
            steps += copy_rows
            steps += of_input if is_copied else [step.with_array(rows, t.x[i]) for step in of_input]
        arrays["from_input"] = gates[i % held]
        step = None if bind_step is None else bind_step(op, arrays)
        steps += [*of_hidden, step or bind_step_of(t, op, arrays), *copy_hidden]
    return steps


def bind_step_of(t: LstmTensors, op: OpDataLSTM | OpDataFloatLSTM, arrays: dict[str, npt.NDArray[Any]]) -> Step:
    """Return one step, with the arrays that `bind_lstm` names."""
    sizes = dict(zip(("batches", "units"), t.hidden.shape))
    if isinstance(op, OpDataLSTM):
        return lstm_step_integers.step(**arrays, **sizes, **_quantized_constants(t, op))
    return lstm_step_float32.step(**arrays, **sizes, **_float_constants(op))


def gate_products(
    find: Matrix,
    t: LstmTensors,
    op: OpDataLSTM | OpDataFloatLSTM,
    rows: npt.NDArray[Any],
    gates: npt.NDArray[Any],
    from_hidden: npt.NDArray[Any],
) -> tuple[list[Step], list[Step]] | None:
    """Return the steps that compute all gates from the input, and one step's gates from the hidden state; None if not
    exact.
    """
    if not t.constant:
        return _products_by_gate(t, op, rows, gates, from_hidden)
    bias = np.concatenate(t.biases)
    if isinstance(op, OpDataFloatLSTM):
        of_input, of_hidden = np.concatenate(t.input_weights), np.concatenate(t.recurrent_weights)
        return float_matrix(rows, of_input, bias, gates), float_matrix(t.hidden, of_hidden, None, from_hidden)
    input_zeros, recurrent_zeros = op.weights_zero_points
    of_input, of_hidden = stacked(t.input_weights, input_zeros), stacked(t.recurrent_weights, recurrent_zeros)
    stage = OutputStage.whole(0, np.int16)
    find_input = find(rows, of_input, bias, op.input_zero_point, op.input_multiplier, stage, gates)
    find_hidden = find(t.hidden, of_hidden, None, op.hidden_zero_point, op.recurrent_multiplier, stage, from_hidden)
    return None if find_input is None or find_hidden is None else (find_input, find_hidden)


def _products_by_gate(
    t: LstmTensors,
    op: OpDataLSTM | OpDataFloatLSTM,
    rows: npt.NDArray[Any],
    gates: npt.NDArray[Any],
    from_hidden: npt.NDArray[Any],
) -> tuple[list[Step], list[Step]] | None:
    """Return the same for weights that may change between invokes: one gate after the other, without tiles."""
    of_input: list[Step] = []
    of_hidden: list[Step] = []
    for gate, bias in enumerate(t.biases):
        input_step = _product_of_gate(op, True, gate, rows, t.input_weights[gate], bias, gates)
        hidden_step = _product_of_gate(op, False, gate, t.hidden, t.recurrent_weights[gate], None, from_hidden)
        if input_step is None or hidden_step is None:
            return None
        of_input.append(input_step)
        of_hidden.append(hidden_step)
    return of_input, of_hidden


def _product_of_gate(
    op: OpDataLSTM | OpDataFloatLSTM,
    is_input: bool,
    gate: int,
    x: npt.NDArray[Any],
    weights: npt.NDArray[Any],
    bias: npt.NDArray[Any] | None,
    y: npt.NDArray[Any],
) -> Step | None:
    """Return the step that sets a gate's part of y (positions, units of all gates); None if not exact.

    Args:
        is_input: whether x is the input, not the hidden state.
    """
    units = len(weights)
    part = slice(gate * units, (gate + 1) * units)
    scale: Scale | None = float_scale(-np.inf, np.inf)
    zero_points = 0, 0
    if isinstance(op, OpDataLSTM):
        multiplier = op.input_multiplier if is_input else op.recurrent_multiplier
        of_gate = type(multiplier)(multiplier.significand[part], multiplier.shift[part])
        scale = integer_scale(of_gate, OutputStage.whole(0, np.int16))
        zero_point = op.input_zero_point if is_input else op.hidden_zero_point
        zero_points = zero_point, int(op.weights_zero_points[0 if is_input else 1][gate])
    if scale is None:
        return None
    (step,) = bind_plain_convolution(
        x[np.newaxis, np.newaxis],
        (Axis(1, 1, 1), Axis(len(x), 1, len(x))),
        weights[:, np.newaxis, np.newaxis],
        bias,
        scale,
        y.reshape(1, 1, -1, y.shape[-1])[..., part],
        zero_points=zero_points,
    )
    return step


def float_matrix(
    x: npt.NDArray[Any], weights: npt.NDArray[Any], bias: npt.NDArray[Any] | None, y: npt.NDArray[Any]
) -> list[Step]:
    """Return the steps that set y (positions, rows of weights) to x (positions, depth) times weights, plus the bias."""
    if not uses_tiles():
        return bind_plain_matrix(x, weights, bias, float_scale(-np.inf, np.inf), y)
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
    """Return the steps that set y (positions, rows of weights) to x (positions, depth) times weights; None if not
    exact."""
    if not uses_tiles():
        scale = integer_scale(multiplier, output)
        return None if scale is None else bind_plain_matrix(x, weights, bias, scale, y, zero_points=(zero_point, 0))
    image = image_of(x.dtype, zero_point, bytes_allowed=weights.dtype == np.int8)
    scaling = layer_scaling(multiplier, output, weights[np.newaxis], bias, image, y.dtype)
    return None if scaling is None else bind_matrix(x, weights, image, scaling, y)


def _float_constants(op: OpDataFloatLSTM) -> dict[str, Any]:
    functions = dict.fromkeys(("sigmoid_of_gate", "tanh"), "series" if uses_tiles() else "library")
    return {**functions, "clip": np.array([op.cell_clip], None), "is_tanh": op.is_tanh}


def _quantized_constants(t: LstmTensors, op: OpDataLSTM) -> dict[str, Any]:
    limits = np.iinfo(t.hidden.dtype)
    return {
        **cell_functions(op),
        "multiplier_forget": multiplier_of(op.forget_cell),
        "multiplier_update": multiplier_of(op.input_cell),
        "multiplier_output": multiplier_of(op.output_hidden),
        # The state saturates at 16 bits, then at the clip: at the smaller limit, that is.
        "cell_min": max(INT16_MIN, -op.cell_clip),
        "cell_max": min(INT16_MAX, op.cell_clip),
        "hidden_zero_point": op.hidden_zero_point,
        "hidden_min": int(limits.min),
        "hidden_max": int(limits.max),
    }


def cell_functions(op: OpDataLSTM) -> dict[str, Any]:
    """Return the functions and arguments of a step that uses a small table in place of those of all results."""
    left = op.cell_power + CELL_FRACTION_BITS
    right = max(-left, 0) & 31  # larger counts are undefined in C; this follows x86
    factor, half = (3 << (left & 31), 0) if left >= 0 else (3, 1 << ((-left - 1) & 31))
    return {
        "cell_gate": "tanh" if op.is_tanh else "none",
        "table": SIGMOID_TABLE.astype(np.uint16),
        "cell_factor": int(wrap_int32(factor)),
        "cell_half": int(wrap_int32(half)),
        "cell_shift": right,
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
    multiplier: Multiplier,
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
            result = scaled(sum_of_products, multiplier) + zero_point
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
    """Do the same for floats, added in order and clamped."""
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
"""For each activation that clamps floats: lowest and highest value, and the result for NaN."""


def _bind_svdf(context: KernelContext, node: Node) -> list[Step] | None:
    t = SvdfTensors.of(node)
    if uses_tiles() and not node.eval_input(svdf.WEIGHTS_FEATURE).is_constant:
        return None
    newest = work_array(t.state.shape[:2], t.time.dtype)
    return _float_svdf(node, t, newest) if t.x.dtype == np.float32 else _quantized_svdf(node, t, newest)


def _float_svdf(node: Node, t: SvdfTensors, newest: npt.NDArray[Any]) -> list[Step] | None:
    limits = SVDF_LIMITS.get(node.options(SVDFOptions).fused_activation_function)
    if limits is None:
        return None
    find = float_matrix(t.x, t.feature, None, newest)
    return [*find, *_remember(svdf_float32, t, newest, limits=np.array(limits, np.float32))]


def _quantized_svdf(node: Node, t: SvdfTensors, newest: npt.NDArray[Any]) -> list[Step] | None:
    op: OpDataSvdf = node.op_data
    multiplier, stage = op.to_state.multiplier, op.to_state.stage
    if not stage.minimum <= op.state_zero_point <= stage.maximum:
        return None
    find = quantized_matrix(t.x, t.feature, None, op.input_zero_point, multiplier, stage, newest)
    if find is None:
        return None
    is_constant = all(node.eval_input(i).is_constant for i in (svdf.WEIGHTS_TIME, svdf.BIAS))
    tiles, done = bind_tiles(t, newest, op) if uses_tiles() and is_constant else ([], 0)
    constants: dict[str, Any] = {
        "state_zero_point": op.state_zero_point,
        "zero_point": op.to_output.stage.zero_point,
        "multiplier": multiplier_of(op.to_output.multiplier),
    }
    rest = _from_unit(t, newest, done) if done else [(t, newest)]
    return [*find, *tiles, *(step for part in rest for step in _remember(svdf_integers, *part, **constants))]


def _from_unit(t: SvdfTensors, newest: npt.NDArray[Any], first: int) -> Iterator[tuple[SvdfTensors, npt.NDArray[Any]]]:
    """Return the tensors and the newest values of each batch, from a unit on; none if there are no more units."""
    filters = first * (newest.shape[1] // t.y.shape[1])
    for batch in range(len(t.y)) if first < t.y.shape[1] else ():
        of_batch = slice(batch, batch + 1)
        part = replace(
            t,
            time=t.time[filters:],
            bias=t.bias[first:],
            state=t.state[of_batch, filters:],
            y=t.y[of_batch, first:],
        )
        yield part, newest[of_batch, filters:]


def _remember(kernel: Kernel, t: SvdfTensors, newest: npt.NDArray[Any], **constants: Any) -> list[Step]:
    """Return the steps that shift the state of contiguous tensors, and then store the newest values and filter them."""
    batches, filters, memory = t.state.shape
    units, state = t.y.shape[1], t.state.reshape(-1)
    sizes = {"batches": batches, "units": units, "rank": filters // units, "memory": memory}
    arrays = {"newest": newest, "weights": t.time, "bias": t.bias, "state": state, "y": t.y}
    forget = move.step(target=state, source=state[1:], count=state.nbytes - state.itemsize)
    return [forget, kernel.step(**arrays, **sizes, **constants)]


BINDINGS = {"SVDF": _bind_svdf, "UNIDIRECTIONAL_SEQUENCE_LSTM": bind_lstm}
