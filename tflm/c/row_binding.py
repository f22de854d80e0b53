"""Bind an operator to some rows of its output, and to the rows of its inputs that these need."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tflm.c.binding import BoundModel, BoundOperator, bind_plain
from tflm.c.control_flow import calls_in
from tflm.c.kernels import KERNELS, Part, accumulation
from tflm.c.kernels.part import StepOrLoop
from tflm.c.row_copies import BY_ROWS, ROWS, copies_of_rows, moved_copies
from tflm.compiler.language import Step
from tflm.delegates.compiled.movement import copy_steps
from tflm.errors import CompileError
from tflm.kernels import REGISTRATIONS
from tflm.kernels.layers.geometry import Axis, windows
from tflm.kernels.node import KernelContext, Node, NodeTensors
from tflm.kernels.overlap import OperatorFacts
from tflm.kernels.registration import Registration
from tflm.memory.tensor import TfLiteEvalTensor
from tflm.schedule.calls import BufferRegion, Call
from tflm.schedule.rows import Rows


def bind_small(context: KernelContext, node: Node, registration: Registration) -> Sequence[StepOrLoop] | None:
    """Return the calls of a whole operator, with kernels for small processors, or with plain kernels of the compiled
    engine."""
    small = KERNELS.get(registration.name)
    steps = None if small is None else small.bind(node, None)
    if steps is not None:
        return steps
    steps = bind_plain(context, node, registration)
    return None if steps is None or any(map(_holds_addresses, steps)) else steps


def bind_lean(context: KernelContext, node: Node, registration: Registration) -> Sequence[StepOrLoop] | None:
    """Return the calls of a whole operator with slower kernels that use less scratch memory; None if there are none."""
    small = KERNELS.get(registration.name)
    return None if small is None or small.lean is None else small.lean.bind(node, None)


def _holds_addresses(step: Step) -> bool:
    """Whether the arrays of a step contain addresses: it then owns arrays that are not arguments. Such steps cannot be
    translated to C."""
    return len(step.owners) > len(step.addresses)


class RowTensors:
    """The tensors of a node, some of which are replaced by a few of their rows.

    Args:
        tensors: the tensors of the whole node.
        inputs, outputs: the replacements, by number of the input or output.
    """

    def __init__(self, tensors: NodeTensors, inputs: dict[int, TfLiteEvalTensor], outputs: dict[int, TfLiteEvalTensor]):
        self._tensors, self._inputs, self._outputs = tensors, inputs, outputs

    def get_eval_input(self, node: Node, index: int) -> TfLiteEvalTensor:
        """Return input `index`, or its rows."""
        return self._inputs.get(index) or self._tensors.get_eval_input(node, index)

    def get_eval_output(self, node: Node, index: int) -> TfLiteEvalTensor:
        """Return output `index`, or its rows."""
        return self._outputs.get(index) or self._tensors.get_eval_output(node, index)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tensors, name)


class BoundRows(NamedTuple):
    """A call on rows, bound to its own arrays.

    Attributes:
        steps: the steps that compute the rows.
        inputs, outputs: the rows that it reads and writes, by number of the input or output.
    """

    steps: Sequence[Step]
    inputs: dict[int, TfLiteEvalTensor]
    outputs: dict[int, TfLiteEvalTensor]


class RowBinder:
    """Binds calls on rows. Calls that differ only in the position of their rows share their steps.

    Args:
        bound: the model.
    """

    def __init__(self, bound: BoundModel):
        self._bound = bound
        self._known: dict[Hashable, BoundRows] = {}

    def bind(self, operator: BoundOperator, call: Call) -> BoundRows:
        """Return the steps of a call on rows.

        Raises:
            CompileError: the kernels of the operator cannot compute rows.
        """
        axis = self._axis(operator, call)
        heights = tuple(window and window.rows for window in (*call.inputs, *call.outputs))
        of_rows = call.rows if operator.node.operator in BY_ROWS else None
        key = operator.index, axis, heights, of_rows, call.backwards, _starts_totals(call)
        if key not in self._known:
            self._known[key] = self._bind(operator, call, axis)
        return self._known[key]

    def _axis(self, operator: BoundOperator, call: Call) -> Axis | None:
        """Return the windows of the computed rows, relative to the input rows in memory; None without windows."""
        small, window = KERNELS.get(operator.node.operator), call.inputs[0]
        if small is None or not small.takes_rows or window is None or call.rows is None or call.accumulates:
            return None
        return row_axis(self._bound, operator, call.rows, window)

    def _bind(self, operator: BoundOperator, call: Call, axis: Axis | None) -> BoundRows:
        node, tensors, context = operator.node, self._bound.tensors(), self._bound.layout.context
        inputs, outputs = (
            {
                i: _rows_of(tensors[tensor], window)
                for i, (tensor, window) in enumerate(zip(indices, windows))
                if window is not None
            }
            for indices, windows in ((node.inputs, call.inputs), (node.outputs, call.outputs))
        )
        assert node.tensors is not None
        banded = replace(node, tensors=RowTensors(node.tensors, inputs, outputs))
        steps: Sequence[StepOrLoop] | None
        if call.accumulates:
            rows = tensors[node.inputs[0]].dims[ROWS]
            steps = accumulation.bind(banded, rows, is_first=_starts_totals(call), is_last=bool(outputs))
        elif node.operator in BY_ROWS:
            steps = self._copies(operator, call, inputs, outputs)
        elif axis is not None:
            part = Part(axis, inputs[0].elements, outputs[0].elements, call.backwards)
            steps = KERNELS[node.operator].bind(banded, part)
        else:
            steps = bind_small(context, banded, REGISTRATIONS[node.operator])
        if steps is None:
            raise CompileError(f"{node.operator} cannot be computed row by row; please report this model")
        return BoundRows([*calls_in(steps, Step)], inputs, outputs)

    def _copies(
        self,
        operator: BoundOperator,
        call: Call,
        inputs: Mapping[int, TfLiteEvalTensor],
        outputs: Mapping[int, TfLiteEvalTensor],
    ) -> Sequence[Step] | None:
        """Return the steps of an operator that only copies, for some rows."""
        assert call.rows is not None
        tensors, node = self._bound.tensors(), operator.node
        parts = [(node.inputs[i], of_rows, call.inputs[i]) for i, of_rows in inputs.items()]
        parts += [(node.outputs[i], of_rows, call.outputs[i]) for i, of_rows in outputs.items()]
        moves = [
            (tensors[tensor].elements, of_rows.elements, 0 if window is None else window.first_row)
            for tensor, of_rows, window in parts
        ]
        copies = copies_of_rows(self._bound, operator, call.rows)
        return None if copies is None else copy_steps(moved_copies(copies, moves))


def _starts_totals(call: Call) -> bool:
    """Whether a call combines the first rows of an input."""
    return call.accumulates and call.rows is not None and not call.rows.first


def row_axis(bound: BoundModel, operator: BoundOperator, rows: Rows, window: BufferRegion) -> Axis:
    """Return the windows of some output rows, relative to the input rows in memory."""
    subgraph = bound.model.subgraphs[operator.subgraph]
    facts = OperatorFacts.of(bound.model.root, subgraph, (subgraph.operators or [])[operator.index])
    both = windows(facts)
    assert both is not None
    whole = both[0]
    start = rows.first * whole.stride - whole.before
    return whole._replace(size=window.rows, windows=rows.size, before=window.first_row - start)


def _rows_of(tensor: TfLiteEvalTensor, window: BufferRegion) -> TfLiteEvalTensor:
    """Return a tensor with the rows of a range, in its own memory."""
    of_rows = copy.copy(tensor)
    of_rows.dims = (
        (*tensor.dims[:ROWS], window.rows, *tensor.dims[ROWS + 1 :]) if len(tensor.dims) == 4 else tensor.dims
    )
    of_rows.data = np.empty(of_rows.dims, tensor.elements.dtype)
    return of_rows
