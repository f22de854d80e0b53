"""SVDF and UNIDIRECTIONAL_SEQUENCE_LSTM on small processors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.c.kernels.convolution import Layer
from tflm.c.kernels.dense import bind_vectors, bind_wide_vectors
from tflm.c.kernels.part import Part
from tflm.compiler.language import Step
from tflm.compiler.processor import Profile
from tflm.delegates.compiled import recurrent
from tflm.delegates.compiled.bands import work_array
from tflm.delegates.compiled.fixed_point import LARGEST
from tflm.delegates.compiled.movement import copy_steps
from tflm.delegates.compiled.requantization import requantizer
from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier
from tflm.kernels.arithmetic.requantization import OutputStage
from tflm.kernels.layers.geometry import Windows
from tflm.kernels.node import Node
from tflm.kernels.overlap import FAR, NOWHERE, OperatorFacts, in_order
from tflm.kernels.reference import svdf
from tflm.kernels.reference.svdf import OpDataSvdf, SvdfTensors
from tflm.kernels.reference.unidirectional_sequence_lstm import LstmTensors, OpDataFloatLSTM, OpDataLSTM
from tflm.schema.options import UnidirectionalSequenceLSTMOptions


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
    values = np.zeros(len(weights), np.int64) if bias is None else np.asarray(bias, np.int64)
    layer = Layer(weights[np.newaxis, :, np.newaxis, np.newaxis], values, multiplier, output, zero_point)
    bind = bind_vectors if x.dtype == np.int8 else bind_wide_vectors
    steps = bind(layer, x, y.reshape(-1, len(weights)))
    if steps is not None:
        return steps
    return recurrent.quantized_matrix(x, weights, bias, zero_point, multiplier, output, y, Profile.PLAIN)


def bind_lstm(node: Node, part: Part | None = None) -> Sequence[Step] | None:
    """Bind an integer UNIDIRECTIONAL_SEQUENCE_LSTM."""
    if node.eval_input(0).elements.dtype == np.float32:
        return None
    return recurrent.lstm_steps(node, Profile.PLAIN, matrix)


PARTS = 2
"""Number of groups into which the units of an LSTM are divided. A step computes one group at a time, so that scratch
memory holds the products of only one."""


def bind_lstm_in_parts(node: Node, part: Part | None = None) -> Sequence[Step] | None:
    """Bind UNIDIRECTIONAL_SEQUENCE_LSTM with products for one batch and one group of units at a time."""
    t, units = LstmTensors.of(node), node.eval_output(0).elements.shape[-1]
    size = -(-units // PARTS)
    parts = [slice(first, min(first + size, units)) for first in range(0, units, size)]
    tile = [work_array((1, 4 * size), np.float32 if t.x.dtype == np.float32 else np.int16) for _ in range(2)]
    batches = range(t.y.shape[1])
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
    products = recurrent.gate_products(Profile.PLAIN, matrix, of_units, op, t.x[0, rows], *gates)
    if products is None:
        return None
    arrays = dict(zip(("from_input", "from_hidden"), gates))
    arrays |= {"hidden": t.y[0, rows, units], "cell": of_units.cell}
    return [*products[0], *products[1], recurrent.step_of(op, arrays, Profile.PLAIN)]


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


def bind_svdf(node: Node, part: Part | None = None) -> Sequence[Step] | None:
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
    find = matrix(t.x, t.feature, None, op.input_zero_point, op.to_state.multiplier, stage, newest)
    of_unit = t.time.reshape(units, -1).astype(np.int64)
    bias = t.bias.astype(np.int64) - op.state_zero_point * of_unit.sum(axis=1, dtype=np.int64)
    limits = np.minimum(
        -int(np.iinfo(t.state.dtype).min) * abs(of_unit).sum(axis=1, dtype=np.int64) + abs(bias), LARGEST
    )
    scaling = requantizer(op.to_output.multiplier, op.to_output.stage, bias, limits, t.y.dtype)
    if find is None or scaling is None or not stage.minimum <= op.state_zero_point <= stage.maximum:
        return None
    memory = recurrent.Memory(
        batches, units, filters // units, size, op.state_zero_point, scaling.activation_min, scaling.activation_max
    )
    remember = recurrent.filter_over_time.step(
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
