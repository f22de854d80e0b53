"""Writes a graph that takes new frames only: rows of each tensor are computed, read from a variable, and put together.

computed rows at the start | rows kept in a variable | new rows

The variables are resource variables. A CALL_ONCE alone would not set them at the first invoke: after `Reset()`, TFLM
fills variables with their zero points and does not run it again. So a flag, which is false in a new interpreter and
after a reset, decides whether the first values are assigned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.graph import Graph
from tflm.rewriting.streaming.kept_rows import RowPlan, Timeline, ranges_to_compute
from tflm.rewriting.streaming.time_rules import TimeRule, Track
from tflm.schedule.bands import BandStep
from tflm.schedule.normal_form import slice_of
from tflm.schedule.rows import Rows
from tflm.schema.enums import TENSOR_TYPES, BuiltinOperator, TensorType
from tflm.schema.options import (
    AssignVariableOptions,
    ConcatenationOptions,
    IfOptions,
    ReadVariableOptions,
    VarHandleOptions,
)
from tflm.schema.tables import Operator, SubGraph, Tensor

FLAG = np.array([True], np.bool_)


class StreamVariables:
    """The variables of a graph.

    Args:
        graph: the graph that operators are made for.
    """

    def __init__(self, graph: Graph):
        self._graph = graph
        names = (getattr(op.builtin_options, "shared_name", None) or "" for op in graph.operators)
        taken = {name.partition("/")[0] for name in names}
        self._prefix = next(name for name in ("stream", "stream_rows", *map(str, range(1000))) if name not in taken)
        self._values: list[npt.NDArray[Any]] = []
        self._handles: list[int] = []

    @property
    def bytes(self) -> int:
        """Size of all variables."""
        return sum(values.nbytes for values in self._values)

    def add(self, values: npt.NDArray[Any]) -> int:
        """Add a variable with its first values; returns its number."""
        self._values.append(values)
        self._handles.append(self._graph.add_resource())
        return len(self._values) - 1

    def read(self, variable: int, target: int) -> Operator:
        """An operator that copies a variable to a tensor."""
        handle = self._handles[variable]
        return self._graph.new_operator(BuiltinOperator.READ_VARIABLE, [handle], [target], ReadVariableOptions())

    def assign(self, variable: int, source: int) -> Operator:
        """An operator that copies a tensor to a variable."""
        handle = self._handles[variable]
        return self._graph.new_operator(BuiltinOperator.ASSIGN_VARIABLE, [handle, source], [], AssignVariableOptions())

    def begin(self) -> list[Operator]:
        """The operators before all others: handles, and the first values if the flag is not set."""
        flag = self.add(FLAG)
        graph = self._graph
        handles = [
            graph.new_operator(BuiltinOperator.VAR_HANDLE, [], [handle], self._name(number))
            for number, handle in enumerate(self._handles)
        ]
        is_set = graph.add_constant("", FLAG)
        started = graph.add_tensor(is_set, "started", FLAG.shape)
        nothing = graph.add_subgraph(SubGraph(name="go_on", tensors=[], inputs=(), outputs=(), operators=[]))
        first = graph.add_subgraph(self._first_values())
        options = IfOptions(then_subgraph_index=nothing, else_subgraph_index=first)
        return [*handles, self.read(flag, started), graph.new_operator(BuiltinOperator.IF, [started], [], options)]

    def _name(self, number: int) -> VarHandleOptions:
        return VarHandleOptions(container="", shared_name=f"{self._prefix}/{number}")

    def _first_values(self) -> SubGraph:
        graph = self._graph
        subgraph = SubGraph(name="begin", tensors=[], inputs=(), outputs=(), operators=[])
        assert subgraph.tensors is not None
        assert subgraph.operators is not None
        for number, values in enumerate(self._values):
            subgraph.tensors += [
                Tensor(shape=(), type=TensorType.RESOURCE, name=f"handle_{number}"),
                Tensor(
                    shape=values.shape,
                    type=TENSOR_TYPES[values.dtype],
                    buffer=graph.add_buffer(values.tobytes()),
                    name=f"value_{number}",
                ),
            ]
            handle, value = len(subgraph.tensors) - 2, len(subgraph.tensors) - 1
            subgraph.operators += [
                graph.new_operator(BuiltinOperator.VAR_HANDLE, [], [handle], self._name(number), subgraph),
                graph.new_operator(
                    BuiltinOperator.ASSIGN_VARIABLE, [handle, value], [], AssignVariableOptions(), subgraph
                ),
            ]
        return subgraph


Values = Mapping[int, npt.NDArray[Any]]
"""Elements of tensors, by their index."""


class RowsTensor(NamedTuple):
    """A tensor that holds some rows of another one."""

    rows: Rows
    tensor: int


class StreamWriter:
    """Writes the operators of a streaming graph.

    Args:
        graph: the graph, which is changed.
        timeline: where time is in its tensors.
        plan: the rows that an invoke computes and keeps.
        initial: the elements of all kept tensors in the window before the first invoke.
    """

    def __init__(self, graph: Graph, timeline: Timeline, plan: RowPlan, initial: Values):
        self._graph, self._timeline, self._plan, self._initial = graph, timeline, plan, initial
        self._variables = StreamVariables(graph)
        self._operators: list[Operator] = []
        self._parts: dict[int, list[RowsTensor]] = {}
        self._slices: dict[tuple[int, Rows], int] = {}

    def write(self, streamed: int) -> int:
        """Rewrite the graph for an input whose new frames arrive with each invoke; returns the bytes of variables."""
        graph = self._graph
        (new,) = self._plan[streamed].computed
        frames = self._add_rows(streamed, new, graph.tensors[streamed].name)
        graph.replace_input(streamed, frames)
        self._put_together(streamed, [RowsTensor(new, frames)])
        for operator, rule in zip(graph.operators, self._timeline.rules):
            if rule is None:
                inputs = [self._whole(tensor) for tensor in operator.inputs or ()]
                self._operators.append(graph.like(operator, inputs, operator.outputs or ()))
            else:
                self._compute(operator, rule)
        for tensor in graph.outputs:
            self._whole(tensor)
        begin = self._variables.begin() if self._variables.bytes else []
        graph.operators = [*begin, *self._operators]
        return self._variables.bytes

    def _track(self, tensor: int) -> Track:
        return self._timeline.tensors[tensor].track

    def _whole(self, tensor: int) -> int:
        """A tensor with all of its rows."""
        return self._rows_of(tensor, Rows(0, self._track(tensor).rows)) if tensor in self._parts else tensor

    def _compute(self, operator: Operator, rule: TimeRule) -> None:
        """Compute the ranges of rows of an operator's outputs that are not kept."""
        outputs = [output for output in operator.outputs or () if output in self._plan]
        made: dict[int, dict[Rows, RowsTensor]] = {output: {} for output in outputs}
        for rows in ranges_to_compute(self._plan, outputs):
            step = rule.step(rows)
            if rule.crops and outputs[0] not in self._graph.outputs:
                parts = [self._rows_of((operator.inputs or ())[0], step.needed[0])]
            else:
                parts = self._write(operator, step)
            for output, part in zip(operator.outputs or (), parts):
                if output in made:
                    made[output][rows] = RowsTensor(step.made, part)
        for output, written in made.items():
            computed = [self._cut(output, rows, _made_for(rows, written)) for rows in self._plan[output].computed]
            self._put_together(output, computed)

    def _write(self, operator: Operator, step: BandStep) -> list[int]:
        """Write the operator for a range of rows; returns its outputs."""
        graph, inputs = self._graph, list(operator.inputs or ())
        for place, rows in step.needed.items():
            inputs[place] = self._rows_of(inputs[place], rows)
        for place, values in step.constants.items():
            inputs[place] = graph.add_constant("", values)
        outputs = [self._output(tensor, step.made) for tensor in operator.outputs or ()]
        self._operators.append(graph.like(operator, inputs, outputs, **step.options))
        return outputs

    def _output(self, tensor: int, rows: Rows) -> int:
        """The tensor itself for all of its rows, if none is kept, or a new one."""
        is_whole = tensor in self._plan and not self._plan[tensor].kept and rows == self._all(tensor)
        return tensor if is_whole else self._add_rows(tensor, rows)

    def _all(self, tensor: int) -> Rows:
        return Rows(0, self._track(tensor).rows)

    def _put_together(self, tensor: int, computed: Sequence[RowsTensor]) -> None:
        """Join computed rows with those that are kept, and keep rows for the next invoke."""
        plan = self._plan[tensor]
        variables = {kept: self._variables.add(self._first(tensor, plan.saved(kept))) for kept in plan.kept}
        parts = list(computed)
        for kept, variable in variables.items():
            parts.append(RowsTensor(kept, self._add_rows(tensor, kept)))
            self._operators.append(self._variables.read(variable, parts[-1].tensor))
        self._parts[tensor] = [
            self._joined(tensor, rows, sorted(part for part in parts if rows.covers(part.rows))) for rows in plan.needed
        ]
        for kept, variable in variables.items():
            self._operators.append(self._variables.assign(variable, self._rows_of(tensor, plan.saved(kept))))

    def _joined(self, tensor: int, rows: Rows, parts: Sequence[RowsTensor]) -> RowsTensor:
        """A tensor with the rows of all parts."""
        if len(parts) == 1:
            return parts[0]
        whole = tensor if rows == self._all(tensor) else self._add_rows(tensor, rows)
        options = ConcatenationOptions(axis=self._track(tensor).axis)
        joined = [part.tensor for part in parts]
        self._operators.append(self._graph.new_operator(BuiltinOperator.CONCATENATION, joined, [whole], options))
        return RowsTensor(rows, whole)

    def _first(self, tensor: int, rows: Rows) -> npt.NDArray[Any]:
        track = self._track(tensor)
        indices = np.arange(rows.first * track.unit, rows.end * track.unit, dtype=np.int64)
        return np.ascontiguousarray(self._initial[tensor].take(indices, track.axis), None)

    def _rows_of(self, tensor: int, rows: Rows) -> int:
        """A tensor with these rows, which it has."""
        if (tensor, rows) not in self._slices:
            self._slices[tensor, rows] = self._cut(tensor, rows, self._parts[tensor]).tensor
        return self._slices[tensor, rows]

    def _cut(self, tensor: int, rows: Rows, parts: Sequence[RowsTensor]) -> RowsTensor:
        """These rows of the part that includes them."""
        part = next(part for part in parts if part.rows.covers(rows))
        if part.rows == rows:
            return part
        track = self._track(tensor)
        begins = [0] * len(self._graph.shape(tensor))
        begins[track.axis] = (rows.first - part.rows.first) * track.unit
        target = self._output(tensor, rows)
        self._operators.append(slice_of(self._graph, part.tensor, target, begins))
        return RowsTensor(rows, target)

    def _add_rows(self, tensor: int, rows: Rows, name: str | None = None) -> int:
        track, shape = self._track(tensor), list(self._graph.shape(tensor))
        shape[track.axis] = rows.size * track.unit
        label = f"{self._graph.tensors[tensor].name}[{rows.first}:{rows.end}]"
        return self._graph.add_tensor(tensor, label if name is None else name, shape)


def _made_for(rows: Rows, written: Mapping[Rows, RowsTensor]) -> list[RowsTensor]:
    """The parts that were computed for these rows; others may have garbage in them."""
    return [part for wanted, part in written.items() if wanted.covers(rows)]
