"""SVDF and UNIDIRECTIONAL_SEQUENCE_LSTM on small processors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.c.kernels.convolution import Layer
from tflm.c.kernels.dense import bind_vectors
from tflm.c.kernels.part import Part
from tflm.compiler.language import DONE, Elements, Int8s, Int16s, Int32s, Step, UInt16s, inlined, kernel
from tflm.compiler.processor import without_tiles
from tflm.delegates.compiled import recurrent
from tflm.delegates.compiled.casts import as_int16, as_int32, as_int64
from tflm.delegates.compiled.fixed_point import LARGEST
from tflm.delegates.compiled.interpolation import sigmoid_of_steps, tanh_of_steps
from tflm.delegates.compiled.movement import copy_steps
from tflm.delegates.compiled.requantization import (
    CONSTANTS,
    Clamp,
    Requantizer,
    Rounding,
    exact_requantizer,
    requantizer,
)
from tflm.delegates.compiled.work_arrays import work_array
from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier
from tflm.kernels.arithmetic.requantization import OutputStage
from tflm.kernels.layers.geometry import Windows
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.overlap import FAR, NOWHERE, OperatorFacts, in_order
from tflm.kernels.reference import svdf
from tflm.kernels.reference.svdf import OpDataSvdf, SvdfTensors
from tflm.kernels.reference.unidirectional_sequence_lstm import (
    INT16_MAX,
    INT16_MIN,
    LstmTensors,
    OpDataFloatLSTM,
    OpDataLSTM,
)
from tflm.schema.options import UnidirectionalSequenceLSTMOptions

NARROW_INTEGERS = True


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
            y[target] = clamp(
                rounding(total, table[row + 1], table[row + 2], table[row + 3]), activation_min, activation_max
            )
            target += 1
            row += CONSTANTS
    return DONE


def matrix(
    x: npt.NDArray[Any],
    weights: npt.NDArray[Any],
    bias: npt.NDArray[Any] | None,
    zero_point: int,
    multiplier: QuantizedMultiplier,
    output: OutputStage,
    y: npt.NDArray[Any],
) -> list[Step] | None:
    """Return the steps that set y (positions, rows of weights) to x (positions, depth) times weights; None if they
    would not be exact."""
    if x.dtype == np.int8:
        values = np.zeros(len(weights), np.int64) if bias is None else np.asarray(bias, np.int64)
        layer = Layer(weights[np.newaxis, :, np.newaxis, np.newaxis], values, multiplier, output, zero_point)
        steps = bind_vectors(layer, x, y.reshape(-1, len(weights)))
        if steps is not None:
            return steps
    return recurrent.quantized_matrix(x, weights, bias, zero_point, multiplier, output, y)


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
    """Compute one step from the gates' products with the input and the hidden state; see
    `recurrent.lstm_step_integers`."""
    units, state, place = cells.units, 0, 0
    cell_min, cell_max, factor, half, right = (
        cells.cell_min,
        cells.cell_max,
        cells.factor,
        cells.half,
        cells.right,
    )
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
            hidden[state] = clamp(value, cells.hidden_min, cells.hidden_max)
            state += 1
            place += 1
        place += 3 * units
    return DONE


def _single(multiplier: QuantizedMultiplier, stage: OutputStage, dtype: npt.DTypeLike) -> Requantizer | None:
    """Return the requantizer of products of two int16."""
    return exact_requantizer(multiplier, stage, np.zeros(1, np.int64), np.array([1 << 30], np.int64), np.dtype(dtype))


def _constants_of(name: str, scaling: Requantizer) -> dict[str, int]:
    _, significand, addend, shift = scaling.table.tolist()
    return {f"{name}_significand": significand, f"{name}_addend": addend, f"{name}_shift": shift}


def _saturation(*multipliers: QuantizedMultiplier) -> str:
    """Return the clamp of scaled products of two int16; none if no product needs one."""
    extremes = np.array([-LARGEST_PRODUCT, LARGEST_PRODUCT], np.int64)
    scaled = np.concatenate([multiplier(extremes) for multiplier in multipliers])
    return "none" if scaled.min() >= INT16_MIN and scaled.max() <= INT16_MAX else "int16"


def bind_step(op: OpDataLSTM, arrays: dict[str, npt.NDArray[Any]]) -> Step | None:
    """Return one step of an LSTM's cells; None if its multipliers are too large.

    Args:
        arrays: the products with the input and the hidden state, the hidden state, and the cells.
    """
    hidden = arrays["hidden"]
    # Not the limits of the whole type, whose clamp expects an offset.
    products = OutputStage(0, INT16_MIN + 1, INT16_MAX)
    forget, update = (_single(multiplier, products, np.int16) for multiplier in (op.forget_cell, op.input_cell))
    output = _single(op.output_hidden, OutputStage.whole(op.hidden_zero_point, hidden.dtype), hidden.dtype)
    if forget is None or update is None or output is None or forget.rounding != update.rounding:
        return None
    functions = recurrent.cell_functions(op)
    batches, units = hidden.shape
    cells = Cells(
        batches=batches,
        units=units,
        **_constants_of("forget", forget),
        **_constants_of("update", update),
        **_constants_of("output", output),
        cell_min=max(INT16_MIN, -op.cell_clip),
        cell_max=min(INT16_MAX, op.cell_clip),
        factor=functions["cell_factor"],
        half=functions["cell_half"],
        right=functions["cell_shift"],
        hidden_min=output.activation_min,
        hidden_max=output.activation_max,
    )
    return lstm_step.step(
        cell_gate=functions["cell_gate"],
        saturation=_saturation(op.forget_cell, op.input_cell),
        rounding=forget.rounding,
        output_rounding=output.rounding,
        clamp=output.clamp,
        **arrays,
        table=functions["table"],
        cells=cells,
    )


def bind_lstm(context: KernelContext, node: Node, part: Part | None = None) -> Sequence[Step] | None:
    """Bind an integer UNIDIRECTIONAL_SEQUENCE_LSTM."""
    if node.eval_input(0).elements.dtype != np.int8:
        return None
    with without_tiles():
        return recurrent.bind_lstm(context, node, matrix, bind_step)


PARTS = 2
"""Number of groups into which the units of an LSTM are divided. A step computes one group at a time, so that scratch
memory holds the products of only one."""


def bind_lstm_in_parts(context: KernelContext, node: Node, part: Part | None = None) -> Sequence[Step] | None:
    """Bind UNIDIRECTIONAL_SEQUENCE_LSTM with products for one batch and one group of units at a time."""
    t, units = LstmTensors.of(node), node.eval_output(0).elements.shape[-1]
    size = -(-units // PARTS)
    parts = [slice(first, min(first + size, units)) for first in range(0, units, size)]
    tile = [work_array((1, 4 * size), np.float32 if t.x.dtype == np.float32 else np.int16) for _ in range(2)]
    batches = range(t.y.shape[1])
    with without_tiles():
        bound = [[_bind_units(t, node.op_data, batch, of_part, tile) for of_part in parts] for batch in batches]
    places = [(i, batch) for i in range(len(t.y)) for batch in batches]
    if not node.options(UnidirectionalSequenceLSTMOptions).time_major:
        places.sort(key=lambda place: place[1])
    steps: list[Step] = []
    for i, batch in places:
        for of_part, of_first in zip(parts, bound[batch]):
            if of_first is None:
                return None
            x, y = (t.x[0, batch], t.x[i, batch]), (t.y[0, batch, of_part], t.y[i, batch, of_part])
            steps += [step.with_array(*x).with_array(*y) for step in of_first]
        steps += copy_steps([(t.hidden[batch], t.y[i, batch])]) or []
    return steps


def _bind_units(
    t: LstmTensors, op: OpDataLSTM | OpDataFloatLSTM, batch: int, units: slice, tile: Sequence[npt.NDArray[Any]]
) -> list[Step] | None:
    """Return the first step of a group of units of a batch. It sets only this group's output.

    Args:
        tile: scratch memory for the products with the weights of all gates: of the input, and of the hidden state.
    """
    rows = slice(batch, batch + 1)
    of_units = replace(
        t,
        hidden=t.hidden[rows],
        cell=t.cell[rows, units],
        input_weights=[each[units] for each in t.input_weights],
        recurrent_weights=[each[units] for each in t.recurrent_weights],
        biases=[each[units] for each in t.biases],
    )
    if isinstance(op, OpDataLSTM):
        op = replace(
            op,
            input_multiplier=_of_units(op.input_multiplier, t.y.shape[2], units),
            recurrent_multiplier=_of_units(op.recurrent_multiplier, t.y.shape[2], units),
        )
    gates = [each[:, : 4 * (units.stop - units.start)] for each in tile]
    products = recurrent.gate_products(matrix, of_units, op, t.x[0, rows], *gates)
    if products is None:
        return None
    arrays = dict(zip(("from_input", "from_hidden"), gates))
    arrays |= {"hidden": t.y[0, rows, units], "cell": of_units.cell}
    step = bind_step(op, arrays) if isinstance(op, OpDataLSTM) and t.x.dtype == np.int8 else None
    return [
        *products[0],
        *products[1],
        step or recurrent.bind_step_of(replace(of_units, hidden=arrays["hidden"]), op, arrays),
    ]


def _of_units(multiplier: QuantizedMultiplier, units: int, part: slice) -> QuantizedMultiplier:
    """Return the multipliers for a group of units of each gate."""
    significand, shift = (
        each.reshape(4, units)[:, part].reshape(-1) for each in (multiplier.significand, multiplier.shift)
    )
    return type(multiplier)(significand, shift)


def overlap_of_parts(facts: OperatorFacts, windows: Windows | None, input: int) -> range:
    """Return the overlap that is allowed if each output row is written before the last read of the same input row."""
    x, y = facts.inputs[0], facts.outputs[0]
    if input or x is None:
        return NOWHERE
    rows = x.dims[0] * x.dims[1]
    read, written = x.dims[2] * x.itemsize, y.bytes // rows
    return range(max(written, rows * written - (rows - 1) * read), FAR)


def lstm_overlap(facts: OperatorFacts, windows: Windows | None, input: int) -> range:
    """Return the overlap that is allowed if each step reads its input, then writes its output."""
    x, y, options = facts.inputs[0], facts.outputs[0], facts.options
    if input or x is None:
        return NOWHERE
    is_time_major = isinstance(options, UnidirectionalSequenceLSTMOptions) and options.time_major
    steps, batches = x.dims[:2] if is_time_major else x.dims[1::-1]
    if not is_time_major and batches > 1 < steps:
        return NOWHERE
    return in_order(steps, batches * x.dims[2] * x.itemsize, y.bytes // steps)


def bind_svdf(context: KernelContext, node: Node, part: Part | None = None) -> Sequence[Step] | None:
    """Bind an integer SVDF."""
    t = SvdfTensors.of(node)
    if t.x.dtype != np.int8 or not all(
        node.eval_input(i).is_constant for i in (svdf.WEIGHTS_FEATURE, svdf.WEIGHTS_TIME, svdf.BIAS)
    ):
        return None
    op: OpDataSvdf = node.op_data
    batches, filters, size = t.state.shape
    units = t.y.shape[1]
    stage = op.to_state.stage
    newest = work_array((batches, filters), t.time.dtype)
    with without_tiles():
        find = matrix(t.x, t.feature, None, op.input_zero_point, op.to_state.multiplier, stage, newest)
    of_unit = t.time.reshape(units, -1).astype(np.int64)
    bias = t.bias.astype(np.int64) - op.state_zero_point * of_unit.sum(axis=1, dtype=np.int64)
    limits = np.minimum(
        -int(np.iinfo(t.state.dtype).min) * abs(of_unit).sum(axis=1, dtype=np.int64) + abs(bias), LARGEST
    )
    scaling = requantizer(op.to_output.multiplier, op.to_output.stage, bias, limits, t.y.dtype)
    if find is None or scaling is None or not stage.minimum <= op.state_zero_point <= stage.maximum:
        return None
    memory = Memory(
        batches, units, filters // units, size, op.state_zero_point, scaling.activation_min, scaling.activation_max
    )
    remember = filter_over_time.step(
        rounding=scaling.rounding,
        clamp=scaling.clamp,
        newest=newest,
        weights=t.time,
        table=scaling.table,
        state=t.state.reshape(-1),
        y=t.y,
        memory=memory,
    )
    return [*find, remember]


def scratch_bytes(facts: OperatorFacts, windows: Windows | None) -> int:
    """Return the size of the newest values of all filters."""
    x, feature, time = facts.inputs[:3]
    assert x is not None
    assert feature is not None
    assert time is not None
    return x.dims[0] * feature.dims[0] * time.itemsize
