"""UNIDIRECTIONAL_SEQUENCE_LSTM and SVDF: products of matrices, then the recurrence step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, NamedTuple

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
    Step,
    UInt16s,
    inlined,
    kernel,
)
from tflm.compiler.processor import Profile
from tflm.delegates.compiled.bands import work_array
from tflm.delegates.compiled.casts import as_float32, as_float64, as_int16, as_int32, as_int64
from tflm.delegates.compiled.fixed_point import Multiplier, clamped, multiplier_of, scaled
from tflm.delegates.compiled.functions import hyperbolic_tangent, sigmoid, sigmoid_of_steps, tanh_of_steps
from tflm.delegates.compiled.images import image_of
from tflm.delegates.compiled.movement import copy_steps, move
from tflm.delegates.compiled.plain_products import PlainProduct, Scale, float_scale, integer_scale
from tflm.delegates.compiled.products import bind_matrix, float_layer_scaling, layer_scaling
from tflm.delegates.compiled.requantization import (
    CONSTANTS,
    NO_BIAS,
    Clamp,
    Limits,
    Requantizer,
    Rounding,
    single_requantizer,
    stepwise_requantizer,
)
from tflm.delegates.compiled.svdf_tiles import bind_tiles
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

CELL_FRACTION_BITS = 12
"""Fraction bits of a cell state in Q3.12, which is exact."""

# --- UNIDIRECTIONAL_SEQUENCE_LSTM --------------------------------------------------------------------------------


LARGEST_PRODUCT = -INT16_MIN * INT16_MAX
"""Largest product of an int16 and a gate's value in Q0.15."""


class Cells(NamedTuple):
    """Sizes and constants of an LSTM's cells.

    Attributes:
        batches, units: number of batches and of units.
        forget_significand ... output_shift: multipliers from products of gates and states to the scales of the cell and
            of the hidden state, as in the table of `requantization`.
        cell_min, cell_max: limits of the cell.
        factor, half, right: convert the cell to steps of 1 / 12288.
        hidden_min, hidden_max: limits of the hidden state.
    """

    batches: int
    units: int
    forget_significand: int
    forget_addend: int
    forget_shift: int
    update_significand: int
    update_addend: int
    update_shift: int
    output_significand: int
    output_addend: int
    output_shift: int
    cell_min: int
    cell_max: int
    factor: int
    half: int
    right: int
    hidden_min: int
    hidden_max: int


@inlined
def gate(from_input: Any, from_hidden: Any, place: int) -> Any:
    """Return the input of a gate's function, in Q3.12."""
    total = from_input[place] + from_hidden[place]
    # Saturate at 0x7FFF, or at its complement if the sum is negative.
    return total if total == as_int16(total) else (total >> 31) ^ INT16_MAX


CELL_GATES: dict[str, Callable[..., Any]] = {
    "tanh": lambda change, table: tanh_of_steps(3 * change, table),
    "none": lambda change, table: change,
}
CellGate = Annotated[Callable[..., Any], CELL_GATES]

SATURATIONS: dict[str, Callable[..., Any]] = {
    "int16": lambda value: min(max(value, INT16_MIN), INT16_MAX),
    "none": lambda value: value,
}
Saturation = Annotated[Callable[..., Any], SATURATIONS]


@kernel
def lstm_step(
    cell_gate: CellGate,
    saturation: Saturation,
    rounding: Rounding,
    output_rounding: Rounding,
    clamp: Clamp,
    from_input: Int16s,
    from_hidden: Int16s,
    table: UInt16s,
    hidden: Elements,
    cell: Int16s,
    cells: Cells,
) -> int:
    """Compute one step from the gates' products with the input and the hidden state, in Q3.12.

    Args:
        from_input, from_hidden: for each batch, the input, forget, output and cell gates of all units.
    """
    units, state, place = cells.units, 0, 0
    cell_min, cell_max = cells.cell_min, cells.cell_max
    factor, half, right = cells.factor, cells.half, cells.right
    for _batch in range(cells.batches):
        for _unit in range(units):
            update = sigmoid_of_steps(3 * gate(from_input, from_hidden, place), table)
            forget = sigmoid_of_steps(3 * gate(from_input, from_hidden, place + units), table)
            shown = sigmoid_of_steps(3 * gate(from_input, from_hidden, place + 2 * units), table)
            change = cell_gate(gate(from_input, from_hidden, place + 3 * units), table)
            kept = rounding(cell[state] * forget, cells.forget_significand, cells.forget_addend, cells.forget_shift)
            added = rounding(update * change, cells.update_significand, cells.update_addend, cells.update_shift)
            total = min(max(saturation(kept) + saturation(added), cell_min), cell_max)
            cell[state] = total
            product = tanh_of_steps(as_int32(total * factor + half) >> right, table) * shown
            value = output_rounding(product, cells.output_significand, cells.output_addend, cells.output_shift)
            hidden[state] = clamp(value, Limits(cells.hidden_min, cells.hidden_max))
            state += 1
            place += 1
        place += 3 * units
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


def _bind_lstm(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    return lstm_steps(node, profile, partial(quantized_matrix, profile=profile))


def lstm_steps(node: Node, profile: Profile, find: Matrix) -> list[Step] | None:
    """Return the steps of UNIDIRECTIONAL_SEQUENCE_LSTM.

    Args:
        find: binds its integer products with constant weights.
    """
    t, op = LstmTensors.of(node), node.op_data
    if profile.has_tiles and not t.constant:
        return None
    # With tiles, the products of all steps are computed at once; without tiles, those of one step at a time.
    held = len(t.x) if profile.has_tiles else 1
    is_copied = held > 1 or not t.x[0].flags.c_contiguous
    rows = work_array((held, *t.x.shape[1:]), t.x.dtype) if is_copied else t.x[:1]
    gates_type = np.float32 if t.x.dtype == np.float32 else np.int16
    sizes = (held, t.y.shape[1]), t.y.shape[1:2]
    gates, from_hidden = (work_array((*size, 4 * t.y.shape[2]), gates_type) for size in sizes)
    inputs = rows.reshape(-1, rows.shape[2])
    products = gate_products(profile, find, t, op, inputs, gates, from_hidden)
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
        steps += [*of_hidden, step_of(op, arrays, profile), *copy_hidden]
    return steps


def step_of(op: OpDataLSTM | OpDataFloatLSTM, arrays: dict[str, npt.NDArray[Any]], profile: Profile) -> Step:
    """Return one step, with the arrays that `bind_lstm` names."""
    if isinstance(op, OpDataLSTM):
        return _integer_step(op, arrays)
    sizes = dict(zip(("batches", "units"), arrays["hidden"].shape))
    return lstm_step_float32.step(**arrays, **sizes, **_float_constants(op, profile))


def gate_products(
    profile: Profile,
    find: Matrix,
    t: LstmTensors,
    op: OpDataLSTM | OpDataFloatLSTM,
    rows: npt.NDArray[Any],
    gates: npt.NDArray[Any],
    from_hidden: npt.NDArray[Any],
) -> tuple[list[Step], list[Step]] | None:
    """Return the steps that compute all gates from the input, and one step's gates from the hidden state; None if not
    exact."""
    if not t.constant:
        return _products_by_gate(t, op, rows, gates, from_hidden)
    bias = np.concatenate(t.biases)
    if isinstance(op, OpDataFloatLSTM):
        of_input, of_hidden = np.concatenate(t.input_weights), np.concatenate(t.recurrent_weights)
        gates_of_input = float_matrix(rows, of_input, bias, gates, profile)
        return gates_of_input, float_matrix(t.hidden, of_hidden, None, from_hidden, profile)
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
    of_gates = y.reshape(1, 1, -1, y.shape[-1])[..., part]
    by_tap, plain_x = weights[:, np.newaxis, np.newaxis], x[np.newaxis, np.newaxis]
    plain = PlainProduct(plain_x, by_tap, bias, scale, of_gates, zero_points)
    (step,) = plain.convolution((Axis(1, 1, 1), Axis(len(x), 1, len(x))))
    return step


def float_matrix(
    x: npt.NDArray[Any], weights: npt.NDArray[Any], bias: npt.NDArray[Any] | None, y: npt.NDArray[Any], profile: Profile
) -> list[Step]:
    """Return the steps that set y (positions, rows of weights) to x (positions, depth) times weights, plus the bias."""
    if not profile.has_tiles:
        return PlainProduct(x, weights, bias, float_scale(-np.inf, np.inf), y).matrix()
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
    profile: Profile,
) -> list[Step] | None:
    """Return the steps that set y (positions, rows of weights) to x (positions, depth) times weights; None if not
    exact."""
    if not profile.has_tiles:
        scale = integer_scale(multiplier, output)
        return None if scale is None else PlainProduct(x, weights, bias, scale, y, (zero_point, 0)).matrix()
    image = image_of(x.dtype, zero_point, bytes_allowed=weights.dtype == np.int8)
    scaling = layer_scaling(multiplier, output, weights[np.newaxis], bias, image, y.dtype)
    return None if scaling is None else bind_matrix(x, weights, image, scaling, y)


def _float_constants(op: OpDataFloatLSTM, profile: Profile) -> dict[str, Any]:
    functions = dict.fromkeys(("sigmoid_of_gate", "tanh"), "series" if profile.has_tiles else "library")
    return {**functions, "clip": np.array([op.cell_clip], None), "is_tanh": op.is_tanh}


def _single(multiplier: QuantizedMultiplier, stage: OutputStage, dtype: npt.DTypeLike) -> Requantizer:
    """Return the requantizer of products of two int16."""
    return single_requantizer(multiplier, stage, 1 << 30, np.dtype(dtype))


def _constants_of(name: str, scaling: Requantizer) -> dict[str, int]:
    _, significand, addend, shift = scaling.table.tolist()
    return {f"{name}_significand": significand, f"{name}_addend": addend, f"{name}_shift": shift}


def _saturation(rounding: str, *multipliers: QuantizedMultiplier) -> str:
    """Return the clamp of scaled products of two int16; none if no product needs one."""
    if rounding == "stepwise":  # products may wrap, and those of the extremes be small
        return "int16"
    extremes = np.array([-LARGEST_PRODUCT, LARGEST_PRODUCT], np.int64)
    scaled = np.concatenate([multiplier(extremes) for multiplier in multipliers])
    return "none" if scaled.min() >= INT16_MIN and scaled.max() <= INT16_MAX else "int16"


def _integer_step(op: OpDataLSTM, arrays: dict[str, npt.NDArray[Any]]) -> Step:
    hidden = arrays["hidden"]
    # Not the limits of the whole type, whose clamp expects an offset.
    products = OutputStage(0, INT16_MIN + 1, INT16_MAX)
    forget, update = (_single(multiplier, products, np.int16) for multiplier in (op.forget_cell, op.input_cell))
    if forget.rounding != update.rounding:
        forget, update = (stepwise_requantizer(each, products, NO_BIAS) for each in (op.forget_cell, op.input_cell))
    output = _single(op.output_hidden, OutputStage.whole(op.hidden_zero_point, hidden.dtype), hidden.dtype)
    batches, units = hidden.shape
    cells = Cells(
        batches=batches,
        units=units,
        **_constants_of("forget", forget),
        **_constants_of("update", update),
        **_constants_of("output", output),
        # The state saturates at 16 bits, then at the clip; the smaller limit has the same effect as both.
        cell_min=max(INT16_MIN, -op.cell_clip),
        cell_max=min(INT16_MAX, op.cell_clip),
        **_steps_of_cell(op.cell_power),
        hidden_min=output.activation_min,
        hidden_max=output.activation_max,
    )
    return lstm_step.step(
        cell_gate="tanh" if op.is_tanh else "none",
        saturation=_saturation(forget.rounding, op.forget_cell, op.input_cell),
        rounding=forget.rounding,
        output_rounding=output.rounding,
        clamp=output.clamp,
        **arrays,
        table=SIGMOID_TABLE.astype(np.uint16),
        cells=cells,
    )


def _steps_of_cell(power: int) -> dict[str, int]:
    """Return the constants that convert a cell in Q(power) to steps of 1 / 12288."""
    left = power + CELL_FRACTION_BITS
    right = max(-left, 0) & 31  # larger counts are undefined in C; this follows x86
    factor, half = (3 << (left & 31), 0) if left >= 0 else (3, 1 << ((-left - 1) & 31))
    return {"factor": int(wrap_int32(factor)), "half": int(wrap_int32(half)), "right": right}


# --- SVDF --------------------------------------------------------------------------------------------------------


class Memory(NamedTuple):
    """Sizes and constants of an SVDF.

    Attributes:
        batches, units, rank: number of batches, of units, and of filters in a unit.
        size: number of values in the state of each filter.
        zero_point: zero point of the state.
        activation_min, activation_max: limits of the output.
    """

    batches: int
    units: int
    rank: int
    size: int
    zero_point: int
    activation_min: int
    activation_max: int


@kernel
def filter_over_time(
    rounding: Rounding,
    clamp: Clamp,
    newest: Elements,
    weights: Elements,
    table: Int32s,
    state: Elements,
    y: Int8s,
    memory: Memory,
) -> int:
    """Shift the newest value of each filter into its state, and filter the state of each unit over time.

    Sums wrap to 32 bits, as in TFLM.

    Args:
        newest: one value for each filter, without the zero point.
        weights: weights over time, for each filter.
        table: bias, significand, addend and shift of each unit.
        state: the values of each filter, the oldest first.
    """
    older, activation_min, activation_max = memory.size - 1, memory.activation_min, memory.activation_max
    limits = Limits(activation_min, activation_max)
    value = 0
    at = 0
    target = 0
    for _batch in range(memory.batches):
        weight = 0
        row = 0
        for _unit in range(memory.units):
            total = table[row]
            for _rank in range(memory.rank):
                for _i in range(older):
                    state[at] = state[at + 1]
                    total = as_int32(as_int64(total) + as_int64(state[at]) * weights[weight])
                    at += 1
                    weight += 1
                state[at] = newest[value] + memory.zero_point
                total = as_int32(as_int64(total) + as_int64(state[at]) * weights[weight])
                at += 1
                weight += 1
                value += 1
            y[target] = clamp(rounding(total, table[row + 1], table[row + 2], table[row + 3]), limits)
            target += 1
            row += CONSTANTS
    return DONE


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
                total = as_int32(as_int64(total) + as_int32(state[row + i]) * as_int32(weights[weight + i]))
                of_weights = as_int32(as_int64(of_weights) + weights[weight + i])
            sum_of_products = as_int64(bias[unit]) + total - as_int64(of_weights) * state_zero_point
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


def _bind_svdf(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    t = SvdfTensors.of(node)
    if profile.has_tiles and not node.eval_input(svdf.WEIGHTS_FEATURE).is_constant:
        return None
    newest = work_array(t.state.shape[:2], t.time.dtype)
    bind = _float_svdf if t.x.dtype == np.float32 else _quantized_svdf
    return bind(node, t, newest, profile)


def _float_svdf(node: Node, t: SvdfTensors, newest: npt.NDArray[Any], profile: Profile) -> list[Step] | None:
    limits = SVDF_LIMITS.get(node.options(SVDFOptions).fused_activation_function)
    if limits is None:
        return None
    find = float_matrix(t.x, t.feature, None, newest, profile)
    return [*find, *_remember(svdf_float32, t, newest, limits=np.array(limits, np.float32))]


def _quantized_svdf(node: Node, t: SvdfTensors, newest: npt.NDArray[Any], profile: Profile) -> list[Step] | None:
    op: OpDataSvdf = node.op_data
    multiplier, stage = op.to_state.multiplier, op.to_state.stage
    if not stage.minimum <= op.state_zero_point <= stage.maximum:
        return None
    find = quantized_matrix(t.x, t.feature, None, op.input_zero_point, multiplier, stage, newest, profile)
    if find is None:
        return None
    is_constant = all(node.eval_input(i).is_constant for i in (svdf.WEIGHTS_TIME, svdf.BIAS))
    tiles, done = bind_tiles(t, newest, op) if profile.has_tiles and is_constant else ([], 0)
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


BINDINGS = {"SVDF": _bind_svdf, "UNIDIRECTIONAL_SEQUENCE_LSTM": _bind_lstm}
