"""Stages: operators that take turns, each computing the rows that the next ones are about to read.

Of a tensor inside a stage only the rows that are still to be read exist, in a window that rolls down the tensor. No row
is computed twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tflm.schedule.row_operators import RowOperator
from tflm.schedule.rows import Rows
from tflm.schedule.schedule import BufferRegion, MovedRows

NO_ROW = 1 << 30
"""After all rows."""


class Grain(NamedTuple):
    """How many rows are computed in one call.

    Attributes:
        band: rows of the outputs of the stage that are finished before the next are begun.
        most: rows in any call.
    """

    band: int
    most: int


class RowCall(NamedTuple):
    """Rows of the output of an operator, by its place in the stage."""

    place: int
    rows: Rows


class RollingStage:
    """Operators `first` to `end` - 1 of a model in turns.

    Args:
        first: the first operator.
        operators: the operators.
        escaping: tensors that are read after the stage as well.

    Attributes:
        inner: tensors that exist in windows only, with the place of the operator that computes them.
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

    def calls(self, grain: Grain) -> list[RowCall]:
        """The calls in their order."""
        made = [0] * len(self.operators)
        calls: list[RowCall] = []

        def advance(place: int, end: int) -> None:
            operator = self.operators[place]
            while made[place] < end:
                rows = Rows(made[place], min(made[place] + grain.most, end))
                for producer in self._before[place]:
                    advance(producer, operator.needed(rows).end)
                made[place] = rows.end
                calls.append(RowCall(place, rows))

        bands = -(-max(self.operators[place].rows for place in self._ends) // grain.band)
        for band in range(1, bands + 1):
            for place in self._ends:
                advance(place, -(-self.operators[place].rows * band // bands))
        for place in self._escaping:  # rows that no operator of the stage reads
            advance(place, self.operators[place].rows)
        return calls


class RowCount:
    """Which rows of the tensors of a stage exist and are still to be read, call after call.

    Attributes:
        made: for each operator, how many rows of its output exist or existed.
        unread: for each tensor that is read, the first row that is still to be read.
    """

    def __init__(self, stage: RollingStage):
        self._stage = stage
        self.made = [0] * len(stage.operators)
        self.unread = dict.fromkeys(stage.readers, 0)

    def run(self, call: RowCall) -> None:
        """Count a call."""
        self.made[call.place] = call.rows.end
        for tensor in self._stage.operators[call.place].inputs.values():
            self.unread[tensor] = min([self._next_row(place) for place in self._stage.readers[tensor]])

    def _next_row(self, place: int) -> int:
        """The first row of its inputs that an operator still reads; of one that is done, a row that is not there."""
        operator, done = self._stage.operators[place], self.made[place]
        return operator.first_needed(done) if done < operator.rows else NO_ROW


def capacities(stage: RollingStage, calls: Sequence[RowCall]) -> dict[int, int]:
    """For each tensor inside the stage, how many of its rows there must be room for."""
    count = RowCount(stage)
    most = dict.fromkeys(stage.inner, 0)
    for call in calls:
        output = stage.operators[call.place].output
        if output in most:
            most[output] = max(most[output], call.rows.end - min(count.unread[output], call.rows.first))
        count.run(call)
    return most


class LineBuffer:
    """Rows of a tensor in a buffer that has room for some of them.

    Args:
        buffer: by index.
        row_bytes: bytes of a row.
        room: how many rows there is room for.
    """

    def __init__(self, buffer: int, row_bytes: int, room: int):
        self._buffer, self._row_bytes, self._room = buffer, row_bytes, room
        self._first = 0

    def region(self, rows: Rows) -> BufferRegion:
        """Where some rows are."""
        offset = (rows.first - self._first) * self._row_bytes
        return BufferRegion(self._buffer, offset, rows.size * self._row_bytes, rows.first, rows.size)

    def make_room(self, rows: Rows, unread: int) -> list[MovedRows]:
        """What moves before some rows are written, of which and of those before them `unread` is the first needed."""
        if rows.end - self._first <= self._room:
            return []
        kept = Rows(min(unread, rows.first), rows.first)
        source = (kept.first - self._first) * self._row_bytes
        self._first = kept.first
        return [MovedRows(self._buffer, source, 0, kept.size * self._row_bytes)] if kept.size else []


def moved_bytes(stage: RollingStage, calls: Sequence[RowCall]) -> int:
    """Bytes that move inside windows."""
    sizes = {tensor: stage.operators[place].row_bytes for tensor, place in stage.inner.items()}
    rolling = {tensor: LineBuffer(0, sizes[tensor], rows) for tensor, rows in capacities(stage, calls).items()}
    count = RowCount(stage)
    moved = 0
    for call in calls:
        output = stage.operators[call.place].output
        if output in rolling:
            moved += sum(shift.size for shift in rolling[output].make_room(call.rows, count.unread[output]))
        count.run(call)
    return moved


class Around(NamedTuple):
    """What lies in RAM beside the windows while a stage runs.

    Attributes:
        across: bytes that are there all the time.
        inputs: tensors that come to their end in the stage, with their numbers of rows and bytes of a row.
    """

    across: int
    inputs: Mapping[int, tuple[int, int]]


def peak(stage: RollingStage, calls: Sequence[RowCall], around: Around) -> int:
    """About how many bytes are needed at once, if each value takes those that it needs and no others."""
    count = RowCount(stage)
    sizes = {tensor: stage.operators[place].row_bytes for tensor, place in stage.inner.items()}
    sizes |= {tensor: size for tensor, (_, size) in around.inputs.items()}
    alive = around.across + sum(rows * size for rows, size in around.inputs.values())
    highest = alive
    for call in calls:
        operator = stage.operators[call.place]
        before = {tensor: count.unread[tensor] for tensor in operator.inputs.values() if tensor in sizes}
        count.run(call)
        made = call.rows.size * operator.row_bytes
        needs = operator.needs(call.rows)
        dead = dict.fromkeys(before, 0)
        for tensor in before:
            rows = around.inputs[tensor][0] if tensor in around.inputs else count.made[stage.inner[tensor]]
            dead[tensor] = max(min(count.unread[tensor], rows) - before[tensor], 0) * sizes[tensor]
        saved = [
            shared_bytes(made, dead[tensor], needs.overlaps[place])
            for place, tensor in operator.inputs.items()
            if tensor in dead
        ]
        highest = max(highest, alive + made - max(saved, default=0) + sum(needs.scratch))
        alive += made - sum(dead.values())
    return highest


def shared_bytes(written: int, dying: int, distances: range) -> int:
    """Bytes that an output can have in common with an input of which some bytes are read for the last time.

    Args:
        written, dying: bytes of the output, and those of the input.
        distances: by which the input may begin behind the output.
    """
    if distances.start >= distances.stop:
        return 0
    behind, before = max(distances.start, 0), max(1 - distances.stop, 0)
    return max(dying + written - max(dying + behind, written + before), 0)
