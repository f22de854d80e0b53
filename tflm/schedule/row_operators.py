"""Operators that compute some rows of their output: the rows of inputs that these take.

Where they compute the rows in order, forwards or backwards, their output may lie on their input.
"""

from __future__ import annotations

from collections.abc import Sequence

from tflm.graph import Graph
from tflm.kernels import OPAQUE, REGISTRATIONS
from tflm.kernels.layers.geometry import Axis, effective_size
from tflm.kernels.layers.trailing_output import Windows, windows
from tflm.kernels.overlap import FAR, OperatorFacts, TensorFacts
from tflm.runtime.operator_facts import multiply_accumulates
from tflm.schedule.bands import PADS, ROWS, band_rule
from tflm.schedule.kernels import CallNeeds, Kernels, ShapedCall
from tflm.schedule.rows import Rows
from tflm.schema.model import Model


class RowOperator:
    """An operator with one output, each row of which comes from some consecutive rows of its inputs.

    Args:
        model: the model.
        index: which operator of the first subgraph.
        kernels: what is known of its kernel.
        places: the inputs that are read row by row, by their place; all others are read as a whole.
        copied: the rows of the inputs that each row of the output takes, for an operator that only copies.

    Attributes:
        output, rows, row_bytes: the output, how many rows it has, and bytes of one.
        inputs: the tensors that are read row by row, by place.
        facts: what the model says of the whole operator.
        registration: its registration.
        macs: multiply-accumulates of the whole operator.
        fixed_rows: rows of each call, if the caller determines that; the last call has the rest.
    """

    fixed_rows: int | None = None

    def __init__(
        self,
        model: Model,
        index: int,
        kernels: Kernels,
        places: Sequence[int],
        copied: Sequence[Rows] | None = None,
    ):
        main = model.subgraphs[0]
        operator = (main.operators or [])[index]
        self.index = index
        self.facts = OperatorFacts.of(model.root, main, operator)
        (self.output,) = operator.outputs or ()
        self.inputs = {place: (operator.inputs or ())[place] for place in places}
        self.rows = self.facts.outputs[0].dims[ROWS]
        self.row_bytes = self.facts.outputs[0].bytes // self.rows
        self.registration = REGISTRATIONS.get(model.operator_name(operator), OPAQUE)
        self._kernels = kernels
        self._windows = windows(self.facts)
        self._needs: dict[Rows, CallNeeds] = {}
        self._needs_of_shape: dict[tuple[int, Axis | None], CallNeeds] = {}
        single = copied or [self._needed(row) for row in range(self.rows)]
        self._first, self._end = [rows.first for rows in single], [rows.end for rows in single]
        self.macs = multiply_accumulates(model, main, operator)

    def needed(self, rows: Rows) -> Rows:
        """The rows of each input that some rows of the output take."""
        return Rows(self._first[rows.first], self._end[rows.end - 1])

    def first_needed(self, row: int) -> int:
        """The first row of each input that a row of the output and those after it take."""
        return self._first[row]

    def _needed(self, row: int) -> Rows:
        if self._windows is None:
            return Rows(row, row + 1)
        axis = self._windows[0]
        first = row * axis.stride - axis.before
        end = first + effective_size(axis.taps, axis.dilation)
        return Rows(min(max(first, 0), axis.size - 1), max(min(end, axis.size), 1))

    def needs(self, rows: Rows) -> CallNeeds:
        """What a call that computes some rows needs."""
        if rows not in self._needs:
            both = self._windows_of(rows)
            key = rows.size, None if both is None else both[0]
            if key not in self._needs_of_shape:
                self._needs_of_shape[key] = self._kernels.needs(self._shaped(rows, both))
            self._needs[rows] = self._needs_of_shape[key]
        return self._needs[rows]

    def _shaped(self, rows: Rows, both: Windows | None) -> ShapedCall:
        read = self.needed(rows).size
        inputs = [
            _with_rows(facts, read) if facts is not None and place in self.inputs else facts
            for place, facts in enumerate(self.facts.inputs)
        ]
        facts = self.facts._replace(inputs=inputs, outputs=[_with_rows(self.facts.outputs[0], rows.size)])
        return ShapedCall(0, self.index, facts, both)

    def _windows_of(self, rows: Rows) -> Windows | None:
        if self._windows is None:
            return None
        axis, columns = self._windows
        read = self.needed(rows)
        before = read.first - (rows.first * axis.stride - axis.before)
        return axis._replace(size=read.size, windows=rows.size, before=before), columns


def _with_rows(facts: TensorFacts, rows: int) -> TensorFacts:
    dims = list(facts.dims)
    dims[ROWS] = rows
    return facts._replace(dims=tuple(dims))


def row_operators(model: Model, kernels: Kernels) -> list[RowOperator | None]:
    """For each operator of the first subgraph, how it computes rows; None if it does not."""
    graph = Graph(model)
    return [_row_operator(model, graph, index, kernels) for index in range(len(graph.operators))]


def _row_operator(model: Model, graph: Graph, index: int, kernels: Kernels) -> RowOperator | None:
    operator = graph.operators[index]
    copied = kernels.rows_copied(index)
    if copied is not None:
        inputs = enumerate(operator.inputs or ())
        images = [place for place, tensor in inputs if tensor >= 0 and not graph.is_constant(tensor)]
        is_plain = not any(graph.tensors[(operator.inputs or ())[place]].is_variable for place in images)
        return RowOperator(model, index, kernels, images, copied) if is_plain else None
    if graph.code(operator) in PADS or not kernels.takes_rows(index):
        return None
    rule = band_rule(graph, operator, ROWS)
    return None if rule is None else RowOperator(model, index, kernels, tuple(rule(Rows(0, 1)).needed))


# --- In place ---------------------------------------------------------------------------------------------------


def row_blocks(rows: int, size: int, *, backwards: bool) -> list[Rows]:
    """Rows in blocks of at most `size`, in the order in which they are computed."""
    blocks = [Rows(first, min(first + size, rows)) for first in range(0, rows, size)]
    return blocks[::-1] if backwards else blocks


def runs_by_rows(operator: RowOperator, needs: CallNeeds) -> bool:
    """Whether an operator can run row by row in the scratch that it needs as a whole."""
    single = [operator.needs(Rows(row, row + 1)).scratch for row in {0, operator.rows // 2, operator.rows - 1}]
    return len(operator.inputs) == 1 and all(
        len(scratch) == len(needs.scratch) and all(part <= whole for part, whole in zip(scratch, needs.scratch))
        for scratch in single
    )


def distances(operator: RowOperator, size: int, *, backwards: bool) -> range:
    """How many bytes behind the output the input may begin, if no block is written over rows that are yet to be read.

    Args:
        operator: which reads one input row by row.
        size: rows of a block.
        backwards: whether the last rows are computed first.
    """
    (place,) = operator.inputs
    facts = operator.facts.inputs[place]
    assert facts is not None
    read_row, written_row = facts.bytes // facts.dims[1], operator.row_bytes
    blocks = row_blocks(operator.rows, size, backwards=backwards)
    if backwards:
        above = max(operator.needed(rows).end * read_row - rows.first * written_row for rows in blocks)
        return range(-FAR, 1 - above)
    below = max(rows.end * written_row - operator.needed(rows).first * read_row for rows in blocks)
    return range(below, FAR)


def both_ways(operator: RowOperator) -> tuple[range, range]:
    """The distances for single rows, forwards and backwards."""
    return distances(operator, 1, backwards=False), distances(operator, 1, backwards=True)


def blocks_at(operator: RowOperator, distance: int) -> list[Rows]:
    """The fewest blocks in which an operator can run if its input starts `distance` bytes after its output."""
    for size in sorted({-(-operator.rows // count) for count in range(1, operator.rows + 1)}, reverse=True):
        for backwards in (False, True):
            if distance in distances(operator, size, backwards=backwards):
                return row_blocks(operator.rows, size, backwards=backwards)
    raise ValueError(f"operator {operator.index} does not run in place with its input {distance} bytes behind")
