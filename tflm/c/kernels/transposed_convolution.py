"""TRANSPOSE_CONV on small processors, as an ordinary convolution for each phase of the output.

Output position o of a dimension belongs to phase (o + before) modulo stride. It uses every stride-th tap of the filter,
going forward through the input and backward through the filter.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tflm.c.kernels import windows_in_place
from tflm.c.kernels.convolution import layer_of
from tflm.c.kernels.part import Part
from tflm.c.kernels.windows_in_place import Positions
from tflm.compiler.language import Step
from tflm.delegates.compiled.movement import copy_steps
from tflm.kernels.layers.convolution import OpDataConv
from tflm.kernels.layers.geometry import Axis
from tflm.kernels.node import Node
from tflm.kernels.reference.convolution import TRANSPOSE_INPUTS


class Phase(NamedTuple):
    """A phase of one dimension.

    Attributes:
        windows: windows over the input, one for each output position of the phase.
        outputs: the output positions.
        taps: taps of the filter, in the order of the windows; empty for positions that no tap reaches.
    """

    windows: Axis
    outputs: Positions
    taps: range


def phases(axis: Axis) -> Iterator[Phase]:
    """Return the phases of a dimension that have outputs. The axis is that of a convolution from the output to the
    input."""
    for phase in range(axis.stride):
        first = (phase - axis.before) % axis.stride
        taps = range(phase, axis.taps, axis.stride)[::-1]
        if first < axis.size:
            count, before = len(range(first, axis.size, axis.stride)), max(len(taps), 1) - 1
            windows = Axis(axis.windows, before + 1, count, before=before - (first + axis.before) // axis.stride)
            yield Phase(windows, Positions(first, axis.stride), taps)


def bind(node: Node, part: Part | None = None) -> Sequence[Step] | None:
    """Bind an integer TRANSPOSE_CONV; None if sums can exceed 32 bits."""
    arrays = TRANSPOSE_INPUTS.bound(node)
    x, weights, bias, y, constant = arrays
    op: OpDataConv = node.op_data
    if not constant or op.multiplier is None or not y.size:
        return None
    filters = weights[: y.shape[3]]
    layer = layer_of(filters[np.newaxis], bias, op, op.input_zero_point)
    reference = op.layer(arrays, filters.reshape(len(filters), -1))
    without_taps = reference.outputs(np.zeros((1, 1, 1, y.shape[3]), reference.dtype)).astype(y.dtype)
    steps: list[Step] = []
    for rows, columns in itertools.product(phases(op.rows), phases(op.columns)):
        places = rows.outputs, columns.outputs
        if rows.taps and columns.taps:
            taps = np.ascontiguousarray(layer.weights[:, :, rows.taps][:, :, :, columns.taps], None)
            windows = rows.windows, columns.windows
            bound = windows_in_place.bind_layer(replace(layer, weights=taps), *windows, x, y, places, can_overlap=False)
        else:
            of_phase = y[(slice(None), *(slice(each.first, None, each.step) for each in places))]
            bound = copy_steps([(of_phase, without_taps)])
        if bound is None:
            return None
        steps += bound
    return steps
