"""SVDF and the products of UNIDIRECTIONAL_SEQUENCE_LSTM on small processors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.c.kernels.convolution import Layer
from tflm.c.kernels.dense import bind_vectors
from tflm.c.kernels.part import Part
from tflm.c.kernels.requantization import CONSTANTS, Clamp, Rounding, requantizer
from tflm.compiler.language import DONE, Elements, Int8s, Int32s, Step, kernel
from tflm.compiler.processor import without_tiles
from tflm.delegates.compiled import recurrent
from tflm.delegates.compiled.casts import as_int32, as_int64
from tflm.delegates.compiled.fixed_point import LARGEST
from tflm.delegates.compiled.work_arrays import work_array
from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier
from tflm.kernels.arithmetic.requantization import OutputStage
from tflm.kernels.layers.trailing_output import Windows
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.overlap import OperatorFacts
from tflm.kernels.reference import svdf
from tflm.kernels.reference.svdf import OpDataSvdf, SvdfTensors

NARROW_INTEGERS = True


class Memory(NamedTuple):
    """What an SVDF remembers.

    Attributes:
        batches, units, rank: filters of a unit.
        size: values that each filter remembers.
        zero_point: of these.
        least, most: of the output.
    """

    batches: int
    units: int
    rank: int
    size: int
    zero_point: int
    least: int
    most: int


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
    """Forget the oldest value of each filter for the newest, and filter what each unit remembers over time.

    Sums wrap to 32 bits, as TFLM's do.

    Args:
        newest: of each filter, without the zero point.
        weights: over time, of each filter.
        table: bias, significand, addend and shift of each unit.
        state: the values of each filter, the oldest first.
    """
    older, least, most = memory.size - 1, memory.least, memory.most
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
            y[target] = clamp(rounding(total, table[row + 1], table[row + 2], table[row + 3]), least, most)
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
    """The steps that set y (positions, rows of weights) to x (positions, depth) times weights; None if not exact."""
    if x.dtype == np.int8:
        values = np.zeros(len(weights), np.int64) if bias is None else np.asarray(bias, np.int64)
        layer = Layer(weights[np.newaxis, :, np.newaxis, np.newaxis], values, multiplier, output, zero_point)
        steps = bind_vectors(layer, x, y.reshape(-1, len(weights)))
        if steps is not None:
            return steps
    return recurrent.quantized_matrix(x, weights, bias, zero_point, multiplier, output, y)


def bind_lstm(context: KernelContext, node: Node, part: Part | None = None) -> Sequence[Step] | None:
    """UNIDIRECTIONAL_SEQUENCE_LSTM of integers."""
    if node.eval_input(0).elements.dtype != np.int8:
        return None
    with without_tiles():
        return recurrent.bind_lstm(context, node, matrix)


def bind_svdf(context: KernelContext, node: Node, part: Part | None = None) -> Sequence[Step] | None:
    """SVDF of integers."""
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
    memory = Memory(batches, units, filters // units, size, op.state_zero_point, scaling.least, scaling.most)
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
    """Of the newest values of all filters."""
    x, feature, time = facts.inputs[:3]
    assert x is not None
    assert feature is not None
    assert time is not None
    return x.dims[0] * feature.dims[0] * time.itemsize
