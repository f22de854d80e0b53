"""Stages with line buffers: interleaved operators, each of which computes the rows that the next ones read.

A line buffer holds the rows of a tensor inside a stage that are still to be read. No row is computed twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tflm.schedule.calls import BufferRegion, MovedRows
from tflm.schedule.row_operators import RowOperator
from tflm.schedule.rows import Rows

NO_ROW = 1 << 30
"""A row after all others."""


class Blocking(NamedTuple):
    """How many rows are computed at a time.

    Attributes:
        stage_rows: rows of the stage's outputs that are finished before the next ones are begun.
        call_rows: maximum number of rows in a call.
    """

    stage_rows: int
    call_rows: int


class RowCall(NamedTuple):
    """Rows of the output of an operator, by its place in the stage."""

    place: int
    rows: Rows


class LineBufferStage:
    """Operators `first` to `end` - 1 of a model, interleaved.

    Args:
        first: the first operator.
        operators: the operators.
        escaping: tensors that are read after the stage as well.

    Attributes:
        inner: tensors that exist in line buffers only, with the place of the operator that computes them.
    """

    def __init__(self, first: int, operators: Sequence[RowOperator], escaping: frozenset[int]):
        self.first, self.end = first, first + len(operators)
        self.operators = operators
        producers = {operator.output: place for place, operator in enumerate(operators)}
        read = {tensor for operator in operators for tensor in operator.inputs.values()}
        self._ends = [place for place, operator in enumerate(operators) if operator.output not in read]
        self._escaping = [place for place, operator in enumerate(operators) if operator.output in escaping]
        self.inner = {t: place for t, place in producers.items() if t in read and t not in escaping}
        self._before = [
            [producers[tensor] for tensor in operator.inputs.values() if tensor in producers] for operator in operators
        ]
        self.readers: dict[int, list[int]] = {}
        for place, operator in enumerate(operators):
            for tensor in dict.fromkeys(operator.inputs.values()):
                self.readers.setdefault(tensor, []).append(place)

    def calls(self, blocking: Blocking) -> list[RowCall]:
        """The calls in their order."""
        computed = [0] * len(self.operators)
        calls: list[RowCall] = []

        def advance(place: int, end: int) -> None:
            operator, call_rows = self.operators[place], blocking.call_rows
            if operator.fixed_rows is not None:
                call_rows = operator.fixed_rows
                end = min(-(-end // call_rows) * call_rows, operator.rows)
            while computed[place] < end:
                rows = Rows(computed[place], min(computed[place] + call_rows, end))
                for producer in self._before[place]:
                    advance(producer, operator.needed(rows).end)
                computed[place] = rows.end
                calls.append(RowCall(place, rows))

        bands = -(-max(self.operators[place].rows for place in self._ends) // blocking.stage_rows)
        for band in range(1, bands + 1):
            for place in self._ends:
                advance(place, -(-self.operators[place].rows * band // bands))
        for place in self._escaping:  # rows that no operator of the stage reads
            advance(place, self.operators[place].rows)
        return calls


class RowProgress:
    """Which rows of the tensors of a stage exist and are still to be read, call after call.

    Attributes:
        computed: for each operator, how many rows of its output have been computed.
        unread: for each tensor that is read, the first row that is still to be read.
    """

    def __init__(self, stage: LineBufferStage):
        self._stage = stage
        self.computed = [0] * len(stage.operators)
        self.unread = dict.fromkeys(stage.readers, 0)

    def advance(self, call: RowCall) -> None:
        """Update the progress after a call."""
        self.computed[call.place] = call.rows.end
        for tensor in self._stage.operators[call.place].inputs.values():
            self.unread[tensor] = min([self._next_row(place) for place in self._stage.readers[tensor]])

    def _next_row(self, place: int) -> int:
        """The first row of its inputs that an operator still reads; of one that is done, a row that is not there."""
        operator, done = self._stage.operators[place], self.computed[place]
        return operator.first_needed(done) if done < operator.rows else NO_ROW


def capacities(stage: LineBufferStage, calls: Sequence[RowCall]) -> dict[int, int]:
    """For each tensor inside the stage, the number of rows that its line buffer must hold."""
    progress = RowProgress(stage)
    rows = dict.fromkeys(stage.inner, 0)
    for call in calls:
        output = stage.operators[call.place].output
        if output in rows:
            rows[output] = max(rows[output], call.rows.end - min(progress.unread[output], call.rows.first))
        progress.advance(call)
    return rows


class LineBuffer:
    """A buffer that holds consecutive rows of a tensor.

    Args:
        buffer: by index.
        row_bytes: bytes of a row.
        capacity: the number of rows that it can hold.
    """

    def __init__(self, buffer: int, row_bytes: int, capacity: int):
        self._buffer, self._row_bytes, self._capacity = buffer, row_bytes, capacity
        self._first = 0

    def region(self, rows: Rows) -> BufferRegion:
        """The region of the buffer that holds some rows."""
        offset = (rows.first - self._first) * self._row_bytes
        return BufferRegion(self._buffer, offset, rows.size * self._row_bytes, rows.first, rows.size)

    def make_room(self, rows: Rows, unread: int) -> list[MovedRows]:
        """The move of unread rows to the start before others are written; `unread` is the first row to keep."""
        if rows.end - self._first <= self._capacity:
            return []
        kept = Rows(min(unread, rows.first), rows.first)
        source = (kept.first - self._first) * self._row_bytes
        self._first = kept.first
        return [MovedRows(self._buffer, source, 0, kept.size * self._row_bytes)] if kept.size else []


def moved_bytes(stage: LineBufferStage, calls: Sequence[RowCall]) -> int:
    """Bytes that move inside line buffers."""
    sizes = {tensor: stage.operators[place].row_bytes for tensor, place in stage.inner.items()}
    buffers = {tensor: LineBuffer(0, sizes[tensor], rows) for tensor, rows in capacities(stage, calls).items()}
    progress = RowProgress(stage)
    moved = 0
    for call in calls:
        output = stage.operators[call.place].output
        if output in buffers:
            moved += sum(move.size for move in buffers[output].make_room(call.rows, progress.unread[output]))
        progress.advance(call)
    return moved


class OtherTensors(NamedTuple):
    """Tensors in RAM besides the line buffers while a stage runs.

    Attributes:
        live_through: bytes of those that are needed after the stage.
        dying: those whose last reader is in the stage, with their number of rows and bytes of a row.
    """

    live_through: int
    dying: Mapping[int, tuple[int, int]]


def peak(stage: LineBufferStage, calls: Sequence[RowCall], others: OtherTensors) -> int:
    """The estimated number of bytes that are needed at once, without fragmentation."""
    progress = RowProgress(stage)
    sizes = {tensor: stage.operators[place].row_bytes for tensor, place in stage.inner.items()}
    sizes |= {tensor: size for tensor, (_, size) in others.dying.items()}
    alive = others.live_through + sum(rows * size for rows, size in others.dying.values())
    highest = alive
    for call in calls:
        operator = stage.operators[call.place]
        before = {tensor: progress.unread[tensor] for tensor in operator.inputs.values() if tensor in sizes}
        progress.advance(call)
        made = call.rows.size * operator.row_bytes
        needs = operator.needs(call.rows)
        dead = dict.fromkeys(before, 0)
        for tensor in before:
            rows = others.dying[tensor][0] if tensor in others.dying else progress.computed[stage.inner[tensor]]
            dead[tensor] = max(min(progress.unread[tensor], rows) - before[tensor], 0) * sizes[tensor]
        saved = [
            shared_bytes(made, dead[tensor], needs.overlaps[place])
            for place, tensor in operator.inputs.items()
            if tensor in dead
        ]
        highest = max(highest, alive + made - max(saved, default=0) + sum(needs.scratch))
        alive += made - sum(dead.values())
    return highest


def shared_bytes(written: int, dying: int, distances: range) -> int:
    """Bytes that an output can share with an input, some bytes of which are read for the last time.

    Args:
        written, dying: bytes of the output, and those of the input.
        distances: how far after the output the input may begin.
    """
    if distances.start >= distances.stop:
        return 0
    behind, before = max(distances.start, 0), max(1 - distances.stop, 0)
    return max(dying + written - max(dying + behind, written + before), 0)
