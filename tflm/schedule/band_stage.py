"""A stage: consecutive operators that run once for each band of rows of the last operator's output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tflm.graph import Graph
from tflm.schedule.bands import BandRule, BandStep, axis_of
from tflm.schedule.rows import Rows
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.options import ConcatenationOptions, SliceOptions
from tflm.schema.tables import Operator

MAXIMUM_CONCATENATED = 10
"""Maximum number of inputs of TFLM's CONCATENATION."""

SLICE_VERSIONS = {TensorType.INT8: 2, TensorType.INT16: 4}
CONCATENATION_VERSIONS = {TensorType.INT8: 2, TensorType.INT16: 3}


class Operand(NamedTuple):
    """Rows that an operator of a stage reads: `rows` of `tensor`, its input number `place`."""

    place: int
    tensor: int
    rows: Rows


class BandOperator(NamedTuple):
    """An operator in a band: its index in the graph, its changes for the band, and the rows that it reads."""

    operator: int
    step: BandStep
    operands: tuple[Operand, ...]


class Stage:
    """Operators `first` to `end` - 1 of a graph; only the last one's output is read by other operators.

    Args:
        graph: the graph, which is not changed.
        rules: the band rule of each operator.

    Attributes:
        inputs: non-constant tensors that the stage reads from earlier operators.
        output: the last operator's output.
        rows: rows of the output, along `axis`.
    """

    def __init__(self, graph: Graph, first: int, end: int, rules: Sequence[BandRule]):
        self.graph, self.first, self.end = graph, first, end
        self._rules = rules
        operators = graph.operators[first:end]
        (self.output,) = operators[-1].outputs or ()
        made = {tensor for operator in operators for tensor in operator.outputs or ()}
        read = dict.fromkeys(t for op in operators for t in op.inputs or () if t >= 0 and t not in made)
        self.inputs = tuple(tensor for tensor in read if not graph.is_constant(tensor))
        self.axis = axis_of(graph.shape(self.output))
        self.rows = graph.shape(self.output)[self.axis]

    def program(self, wanted: Rows) -> list[BandOperator]:
        """Return the operators that compute some rows of the output, in order."""
        needed = {self.output: wanted}
        program = []
        for index in reversed(range(self.first, self.end)):
            operator = self.graph.operators[index]
            (output,) = operator.outputs or ()
            step = self._rules[index - self.first](needed[output])
            inputs = operator.inputs or ()
            operands = tuple(Operand(place, inputs[place], rows) for place, rows in step.needed.items())
            for operand in operands:
                before = needed.get(operand.tensor, operand.rows)
                needed[operand.tensor] = before.hull(operand.rows)
            program.append(BandOperator(index, step, operands))
        return program[::-1]


class StageWriter:
    """Writes stages in bands as a new list of operators.

    Args:
        graph: the graph that new tensors are added to.

    Attributes:
        operators: the operators written so far, in order.
        origins: for each of them, the index of its original in the graph; None for operators that bands add.
    """

    def __init__(self, graph: Graph):
        self._graph = graph
        self.operators: list[Operator] = []
        self.origins: list[int | None] = []

    def copy(self, first: int, end: int) -> None:
        """Write operators unchanged."""
        self.operators += self._graph.operators[first:end]
        self.origins += range(first, end)

    def _add(self, operator: Operator, origin: int | None = None) -> None:
        self.operators.append(operator)
        self.origins.append(origin)

    def write(self, stage: Stage, bands: Sequence[Rows]) -> None:
        """Write a stage; the bands run in the order in which they are given."""
        parts = {band: self._write_band(stage, stage.program(band), band) for band in bands}
        self._concatenate(stage, [parts[band] for band in sorted(parts)], sorted(parts))

    def _write_band(self, stage: Stage, program: Sequence[BandOperator], band: Rows) -> int:
        graph = self._graph
        made = {t: (t, Rows(0, graph.shape(t)[stage.axis])) for t in stage.inputs}
        sliced: dict[tuple[int, Rows], int] = {}

        def rows_of(tensor: int, rows: Rows) -> int:
            whole, has = made[tensor]
            if has == rows:
                return whole
            if (tensor, rows) not in sliced:
                sliced[tensor, rows] = self._slice(stage, tensor, rows, whole, rows.first - has.first)
            return sliced[tensor, rows]

        for index, step, operands in program:
            operator = graph.operators[index]
            inputs = list(operator.inputs or ())
            for operand in operands:
                inputs[operand.place] = rows_of(operand.tensor, operand.rows)
            for place, values in step.constants.items():
                inputs[place] = graph.add_constant("", values)
            (output,) = operator.outputs or ()
            part = self._add_rows(stage, output, step.made)
            self._add(graph.like(operator, inputs, [part], **step.options), index)
            made[output] = part, step.made
        return rows_of(stage.output, band)

    def _add_rows(self, stage: Stage, tensor: int, rows: Rows) -> int:
        shape = list(self._graph.shape(tensor))
        shape[stage.axis] = rows.size
        return self._graph.add_tensor(tensor, f"{tensor}[{rows.first}:{rows.end}]", shape)

    def _slice(self, stage: Stage, tensor: int, rows: Rows, whole: int, first: int) -> int:
        graph = self._graph
        part = self._add_rows(stage, tensor, rows)
        begin = np.zeros(4, np.int32)
        begin[stage.axis] = first
        inputs = [whole, graph.add_constant("", begin), graph.add_constant("", np.array(graph.shape(part), np.int32))]
        version = SLICE_VERSIONS.get(graph.tensors[tensor].type, 1)
        self._add(graph.make_operator(BuiltinOperator.SLICE, version, inputs, [part], SliceOptions()))
        return part

    def _concatenate(self, stage: Stage, parts: list[int], bands: list[Rows]) -> None:
        """Concatenate parts, in several levels if there are more than CONCATENATION supports."""
        while len(parts) > MAXIMUM_CONCATENATED:
            groups = range(0, len(parts), MAXIMUM_CONCATENATED)
            larger = [Rows(bands[i].first, bands[i : i + MAXIMUM_CONCATENATED][-1].end) for i in groups]
            outputs = [
                self._join(stage, parts[i : i + MAXIMUM_CONCATENATED], self._add_rows(stage, stage.output, rows))
                for i, rows in zip(groups, larger)
            ]
            parts, bands = outputs, larger
        self._join(stage, parts, stage.output)

    def _join(self, stage: Stage, parts: Sequence[int], output: int) -> int:
        if len(parts) == 1:
            return parts[0]
        version = CONCATENATION_VERSIONS.get(self._graph.tensors[output].type, 1)
        options = ConcatenationOptions(axis=stage.axis)
        code = BuiltinOperator.CONCATENATION
        self._add(self._graph.make_operator(code, version, parts, [output], options))
        return output


def slices_in(stage: Stage, program: Sequence[BandOperator], band: Rows) -> int:
    """Number of SLICEs in a band."""
    made = {t: Rows(0, stage.graph.shape(t)[stage.axis]) for t in stage.inputs}
    sliced: set[tuple[int, Rows]] = set()
    for index, step, operands in program:
        sliced.update((operand.tensor, operand.rows) for operand in operands if made[operand.tensor] != operand.rows)
        (output,) = stage.graph.operators[index].outputs or ()
        made[output] = step.made
    return len(sliced) + int(made[stage.output] != band)
