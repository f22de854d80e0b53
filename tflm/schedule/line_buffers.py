"""Stages with line buffers: interleaved operators, each of which computes the rows that the next ones read.

A line buffer contains the rows of a stage's inner tensor that have not been read for the last time. No row is computed
twice. If the caller passes rows of an input a few at a time, an operator copies them to a line buffer.
"""

from __future__ import annotations

import bisect
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from tflm.errors import ArgumentError, CompileError
from tflm.graph import Graph, multiply_accumulates
from tflm.kernels import OPAQUE, REGISTRATIONS
from tflm.kernels.layers.geometry import Axis, Windows, effective_size, windows
from tflm.kernels.overlap import FAR, NOWHERE, OperatorFacts, TensorFacts
from tflm.schedule.bands import PADS, ROWS, band_rule, is_image
from tflm.schedule.calls import BufferRegion, CallNeeds, Kernels, MovedRows, ShapedCall
from tflm.schedule.rows import Rows
from tflm.schedule.stage_search import Liveness, Tiling
from tflm.schema.enums import BuiltinOperator
from tflm.schema.model import Model
from tflm.schema.options import CastOptions

FEEDER = 0
"""Index of the operator that copies rows: a CAST to the same type, the first operator of the model."""


class Feed(NamedTuple):
    """An input that is fed in rows.

    Attributes:
        number: number of the input.
        tensor: tensor of the input, which is not in RAM.
        image: the tensor that rows are copied to.
        rows: number of rows in a call; the last call has the rest.
        height: number of rows of the input.
    """

    number: int
    tensor: int
    image: int
    rows: int
    height: int

    @property
    def calls(self) -> int:
        """Number of calls for the whole input."""
        return -(-self.height // self.rows)


def with_feeder(model: Model, rows: int) -> tuple[Model, Feed]:
    """Return the model with an operator that copies rows of its largest image.

    Raises:
        ArgumentError: the number of rows is out of range.
        CompileError: no input is an image.
    """
    graph = Graph(model)
    images = [tensor for tensor in graph.inputs if len(graph.shape(tensor)) == 4 and graph.shape(tensor)[:1] == (1,)]
    if not images:
        shapes = ", ".join(str(list(graph.shape(tensor))) for tensor in graph.inputs)
        raise CompileError(
            f"no input is an image of one batch that could be fed rows at a time (found {shapes}); compile the model "
            "with its whole input"
        )
    tensor = max(images, key=graph.tensor_bytes)
    height = graph.shape(tensor)[1]
    if isinstance(rows, bool) or not isinstance(rows, int) or not 1 <= rows <= height:
        raise ArgumentError(f"invalid number of rows {rows!r} (expected 1 to {height}, the height of the input)")
    if tensor in graph.outputs:
        raise CompileError(
            "the image is an output as well, so it must be in RAM; compile the model without feeding rows"
        )
    kind = graph.tensors[tensor].type
    image = graph.add_tensor(tensor, graph.tensors[tensor].name, graph.shape(tensor))
    operators = [
        graph.like(
            operator, [image if each == tensor else each for each in operator.inputs or ()], operator.outputs or ()
        )
        for operator in graph.operators
    ]
    options = CastOptions(in_data_type=kind, out_data_type=kind)
    graph.operators = [graph.make_operator(BuiltinOperator.CAST, 1, [tensor], [image], options), *operators]
    return graph.model(model.checks), Feed(graph.inputs.index(tensor), tensor, image, rows, height)


class RowOperator:
    """An operator with one output, each row of which depends on consecutive rows of its inputs.

    Args:
        model: the model.
        index: index of the operator in the first subgraph.
        kernels: the facts about its kernel.
        places: positions of the inputs that are read row by row; all others are read as a whole.
        copied: for an operator that only copies, the input rows of each output row.

    Attributes:
        output, rows, row_bytes: the output, its number of rows, and the size of a row.
        inputs: the tensors that are read row by row, by position.
        facts: the facts about the whole operator.
        registration: its registration.
        macs: multiply-accumulates of the whole operator.
        fixed_rows: number of rows in each call, if the caller determines that; the last call has the rest.
        totals_bytes: size of the totals that calls combine rows of the input with; 0 for operators whose rows are those
            of the output.
    """

    fixed_rows: int | None = None
    totals_bytes = 0

    def __init__(
        self, model: Model, index: int, kernels: Kernels, places: Sequence[int], copied: Sequence[Rows] | None = None
    ):
        main = model.subgraphs[0]
        operator = (main.operators or [])[index]
        self.index = index
        self.facts = OperatorFacts.of(model.root, main, operator)
        (self.output,) = operator.outputs or ()
        self.inputs = {place: (operator.inputs or ())[place] for place in places}
        self.registration = REGISTRATIONS.get(model.operator_name(operator), OPAQUE)
        self._kernels = kernels
        self._windows = windows(self.facts)
        self._needs: dict[Rows, CallNeeds] = {}
        self._needs_of_shape: dict[tuple[int, Axis | None], CallNeeds] = {}
        single = copied or [self._needed(row) for row in range(self.facts.outputs[0].dims[ROWS])]
        self.rows = len(single)
        self.row_bytes = self.facts.outputs[0].bytes // self.rows
        self._first, self._end = [rows.first for rows in single], [rows.end for rows in single]
        self.macs = multiply_accumulates(model, main, operator)

    def needed(self, rows: Rows) -> Rows:
        """Return the rows of each input that some rows of the output need."""
        return Rows(self._first[rows.first], self._end[rows.end - 1])

    def first_needed(self, row: int) -> int:
        """Return the first row of each input that a row of the output or a later one needs."""
        return self._first[row]

    def _needed(self, row: int) -> Rows:
        if self._windows is None:
            return Rows(row, row + 1)
        axis = self._windows[0]
        first = row * axis.stride - axis.before
        end = first + effective_size(axis.taps, axis.dilation)
        return Rows(max(first, 0), min(end, axis.size))

    def needs(self, rows: Rows) -> CallNeeds:
        """Return the memory needs of a call that computes some rows."""
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


class RowAccumulator(RowOperator):
    """An operator that combines the rows of an input with totals, and computes its output after the last one.

    Its rows are those of the input. The output is in memory as a whole.
    """

    def __init__(self, model: Model, index: int, kernels: Kernels):
        (image, *_) = (model.subgraphs[0].operators or [])[index].inputs or ()
        rows = ((model.subgraphs[0].tensors or [])[image].shape or ())[ROWS]
        super().__init__(model, index, kernels, (0,), [Rows(row, row + 1) for row in range(rows)])
        self.totals_bytes, self.row_bytes = kernels.totals_bytes(index), 0

    def needs(self, rows: Rows) -> CallNeeds:
        """Return the memory needs of a call, besides the totals."""
        return CallNeeds((), (NOWHERE,) * len(self.facts.inputs))


def _with_rows(facts: TensorFacts, rows: int) -> TensorFacts:
    dims = list(facts.dims)
    dims[ROWS] = rows
    return facts._replace(dims=tuple(dims))


def row_operators(model: Model, kernels: Kernels) -> list[RowOperator | None]:
    """Return, for each operator of the first subgraph, the rules by which it computes rows; None if it cannot."""
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
    if kernels.totals_bytes(index):
        (image, *_) = operator.inputs or ()
        return RowAccumulator(model, index, kernels) if is_image(graph, image, ROWS) else None
    if graph.code(operator) in PADS or not kernels.takes_rows(index):
        return None
    rule = band_rule(graph, operator, ROWS)
    return None if rule is None else RowOperator(model, index, kernels, tuple(rule(Rows(0, 1)).needed))


# --- In place ---------------------------------------------------------------------------------------------------


def row_blocks(rows: int, size: int, *, backwards: bool) -> list[Rows]:
    """Return rows in blocks of at most `size`, in the order in which they are computed."""
    blocks = [Rows(first, min(first + size, rows)) for first in range(0, rows, size)]
    return blocks[::-1] if backwards else blocks


def runs_by_rows(operator: RowOperator, needs: CallNeeds) -> bool:
    """Whether an operator can run row by row with the scratch that it needs as a whole."""
    single = [operator.needs(Rows(row, row + 1)).scratch for row in {0, operator.rows // 2, operator.rows - 1}]
    return (
        len(operator.inputs) == 1
        and not operator.totals_bytes
        and all(
            len(scratch) == len(needs.scratch) and all(part <= whole for part, whole in zip(scratch, needs.scratch))
            for scratch in single
        )
    )


def distances(operator: RowOperator, size: int, *, backwards: bool) -> range:
    """Return the allowed distances in bytes from the start of the output to that of the input, so that no block
    overwrites rows that will still be read.

    Args:
        operator: an operator that reads one input row by row.
        size: number of rows in a block.
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
    """Return the distances for single rows, forwards and backwards."""
    return distances(operator, 1, backwards=False), distances(operator, 1, backwards=True)


def blocks_at(operator: RowOperator, distance: int) -> list[Rows]:
    """Return the fewest blocks in which an operator can run if its input starts `distance` bytes after its output."""
    for size in sorted({-(-operator.rows // count) for count in range(1, operator.rows + 1)}, reverse=True):
        for backwards in (False, True):
            if distance in distances(operator, size, backwards=backwards):
                return row_blocks(operator.rows, size, backwards=backwards)
    raise ValueError(f"operator {operator.index} cannot run in place with its input {distance} bytes after its output")


NO_ROW = 1 << 30
"""A row number greater than all others."""


class Blocking(NamedTuple):
    """The number of rows that are computed at a time.

    Attributes:
        stage_rows: rows of the stage's outputs that are finished before the next ones are begun.
        call_rows: maximum number of rows in a call.
    """

    stage_rows: int
    call_rows: int


class RowCall(NamedTuple):
    """Rows of the output of an operator, given by its position in the stage."""

    place: int
    rows: Rows


class LineBufferStage:
    """Operators `first` to `end` - 1 of a model, interleaved.

    Args:
        first: the first operator.
        operators: the operators.
        escaping: tensors that are also read after the stage.

    Attributes:
        inner: tensors that exist only in line buffers, with the position of the operator that computes them.
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
        """Return the calls in order."""
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
        for place in self._escaping:  # rows that only later operators read
            advance(place, self.operators[place].rows)
        return calls


class RowProgress:
    """Tracks which rows of a stage's tensors exist, and which will still be read.

    Attributes:
        computed: for each operator, the number of output rows computed so far.
        unread: for each tensor that is read, the first row that will still be read.
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
        """Return the first row of its inputs that an operator still reads; if it has finished, a row after all
        others."""
        operator, done = self._stage.operators[place], self.computed[place]
        return operator.first_needed(done) if done < operator.rows else NO_ROW


def capacities(stage: LineBufferStage, calls: Sequence[RowCall]) -> dict[int, int]:
    """Return the number of rows that the line buffer of each inner tensor must hold."""
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
        buffer: index of the buffer.
        row_bytes: size of a row in bytes.
        capacity: the number of rows that it can hold.
    """

    def __init__(self, buffer: int, row_bytes: int, capacity: int):
        self._buffer, self._row_bytes, self._capacity = buffer, row_bytes, capacity
        self._first = 0

    def region(self, rows: Rows) -> BufferRegion:
        """Return the region of the buffer that contains some rows."""
        offset = (rows.first - self._first) * self._row_bytes
        return BufferRegion(self._buffer, offset, rows.size * self._row_bytes, rows.first, rows.size)

    def make_room(self, rows: Rows, unread: int) -> list[MovedRows]:
        """Return the move of unread rows to the start before new rows are written. `unread` is the first row to
        keep."""
        if rows.end - self._first <= self._capacity:
            return []
        kept = Rows(min(unread, rows.first), rows.first)
        source = (kept.first - self._first) * self._row_bytes
        self._first = kept.first
        return [MovedRows(self._buffer, source, 0, kept.size * self._row_bytes)] if kept.size else []


def moved_bytes(stage: LineBufferStage, calls: Sequence[RowCall]) -> int:
    """Return the number of bytes that move inside line buffers."""
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
    """Tensors outside of line buffers that are in RAM while a stage runs.

    Attributes:
        live_through: total size of those that are needed after the stage.
        dying: those whose last reader is in the stage, with their number of rows and the size of a row.
    """

    live_through: int
    dying: Mapping[int, tuple[int, int]]


def peak(stage: LineBufferStage, calls: Sequence[RowCall], others: OtherTensors) -> int:
    """The estimated number of bytes that are needed at once, without fragmentation."""
    progress = RowProgress(stage)
    sizes = {tensor: stage.operators[place].row_bytes for tensor, place in stage.inner.items()}
    sizes |= {tensor: size for tensor, (_, size) in others.dying.items()}
    alive = others.live_through + sum(rows * size for rows, size in others.dying.values())
    alive += sum(each.totals_bytes + each.facts.outputs[0].bytes for each in stage.operators if each.totals_bytes)
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
    """Return the number of bytes that an output can share with an input whose last reads happen in the same call.

    Args:
        written, dying: sizes of the output and of the input.
        distances: allowed distances from the start of the output to that of the input.
    """
    if distances.start >= distances.stop:
        return 0
    behind, before = max(distances.start, 0), max(1 - distances.stop, 0)
    return max(dying + written - max(dying + behind, written + before), 0)


LONGEST_STAGE = 24
"""Maximum number of operators in a stage."""

CALL_WORK = 64
"""Work of a call, expressed as a number of moved bytes."""

FINEST = Blocking(1, 1)

NEVER = 1 << 60
"""The cost of an impossible choice, in bytes."""


class BlockedStage(NamedTuple):
    """Operators `first` to `end` - 1, interleaved."""

    first: int
    end: int
    blocking: Blocking


class LeanCall(NamedTuple):
    """An operator that runs as a whole with the slower kernels that need less scratch."""

    operator: int


class LineBufferCosts:
    """The costs of stages of the first subgraph of a model; see `CostModel`.

    Args:
        model: the model.
        kernels: the facts about its kernels.
        feed: the input that is not in RAM.

    Attributes:
        operators: how each operator computes rows; None if it does not.
        lean: for each operator that may use slower kernels, the bytes that are in use while these run.
    """

    longest = LONGEST_STAGE
    limits: tuple[int, ...] = (sys.maxsize,)
    start: Tiling[BlockedStage | LeanCall] = Tiling((), 0, (0,))

    def __init__(self, model: Model, kernels: Kernels, feed: Feed | None = None):
        self._model, self._kernels, self._feed = model, kernels, feed
        self._graph = Graph(model)
        self._live = Liveness(self._graph, alignment=1)
        self.operators = row_operators(model, kernels)
        if feed is not None:
            self.operators[FEEDER] = feeder = RowOperator(model, FEEDER, kernels, (0,))
            feeder.fixed_rows = feed.rows
        self._readers = self._graph.readers()
        self.alone: Sequence[int] = [self._cost_alone(index) for index in range(len(self.operators))]
        self.lean: dict[int, int] = {}
        self._peaks: dict[BlockedStage, int] = {}
        self._works: dict[BlockedStage, int] = {}
        self._stages: dict[tuple[int, int], LineBufferStage | None] = {}

    def allow_lean(self) -> None:
        """Also consider slower kernels that need less scratch."""
        costs = {i: self._cost_alone(i, lean=True) for i in range(len(self.operators)) if self._kernels.has_lean(i)}
        self.lean = {i: cost for i, cost in costs.items() if cost < self.alone[i]}

    def lowest_peak(self) -> int:
        """Return the lowest peak of any choice of stages, in bytes."""
        peaks = [0]
        for end, alone in enumerate(self.alone, 1):
            lowest = max(peaks[-1], min(alone, self.lean.get(end - 1, alone)))
            for first in range(end - 1, max(end - LONGEST_STAGE, 0) - 1, -1):
                if peaks[first] < lowest and self.stage(first, end) is not None:
                    lowest = min(lowest, max(peaks[first], self.stage_peak(BlockedStage(first, end, FINEST))))
            peaks.append(lowest)
        return peaks[-1]

    def stages(self, first: int, end: int, budget: int) -> Iterator[Tiling[BlockedStage | LeanCall]]:
        """Return the stage with the least work within a budget, or slower kernels for a single operator."""
        if end - first == 1 and self.lean.get(first, NEVER) <= budget:
            yield Tiling((LeanCall(first),), self.lean[first], (self.macs(first),))
        chosen = self._coarsest(first, end, budget)
        if chosen is not None:
            yield Tiling((chosen,), self.stage_peak(chosen), (self._work(chosen),))

    def peak(self, stages: Sequence[BlockedStage], lean: Collection[int] = ()) -> int:
        """Return the bytes that are in use at once with some stages, and with slower kernels for some operators."""
        inside = {index for stage in stages for index in range(stage.first, stage.end)}
        alone = (
            self.lean[index] if index in lean else peak for index, peak in enumerate(self.alone) if index not in inside
        )
        return max((*alone, *(self.stage_peak(stage) for stage in stages)), default=0)

    def stage_peak(self, chosen: BlockedStage) -> int:
        """Return the bytes that are in use at once in a stage."""
        if chosen not in self._peaks:
            stage, calls = self.calls(chosen)
            self._peaks[chosen] = peak(stage, calls, self._others(stage))
        return self._peaks[chosen]

    def stage(self, first: int, end: int) -> LineBufferStage | None:
        """Return the stage of some operators; None if one of them cannot compute rows."""
        key = first, end
        if key not in self._stages:
            chosen = [operator for operator in self.operators[first:end] if operator is not None]
            outside = {t for t, readers in self._readers.items() if readers[-1] >= end} | set(self._graph.outputs)
            escaping = frozenset(operator.output for operator in chosen if operator.output in outside)
            is_stored = self._feed is not None and self._feed.image in escaping
            is_stage = len(chosen) == end - first and not is_stored
            stage = LineBufferStage(first, chosen, escaping) if is_stage else None
            # Only later stages and operators can read an output that is computed after the last row.
            is_read = stage is not None and any(each.totals_bytes and each.output in stage.readers for each in chosen)
            self._stages[key] = None if is_read else stage
        return self._stages[key]

    def calls(self, chosen: BlockedStage) -> tuple[LineBufferStage, list[RowCall]]:
        """Return a stage with its calls."""
        stage = self.stage(chosen.first, chosen.end)
        assert stage is not None
        return stage, stage.calls(chosen.blocking)

    def coarser(self, chosen: BlockedStage) -> list[BlockedStage]:
        """Yield the stage with more rows in a call, the most rows first."""
        blockings = self._blockings(chosen.first, chosen.end)
        return [chosen._replace(blocking=blocking) for blocking in blockings[: blockings.index(chosen.blocking)]]

    def _blockings(self, first: int, end: int) -> list[Blocking]:
        """Yield blockings, the coarsest first."""
        rows = max(operator.rows for operator in self.operators[first:end] if operator is not None)
        powers = [1 << bits for bits in range(rows.bit_length() - 1, -1, -1)]
        return [
            *(Blocking(stage_rows, rows) for stage_rows in powers),
            *(Blocking(1, rows) for rows in powers[1:]),
            FINEST,
        ]

    def _coarsest(self, first: int, end: int, budget: int) -> BlockedStage | None:
        """Return the stage with the least work within a budget."""
        stage = self.stage(first, end)
        if stage is None or self._has_needless_totals(stage, budget):
            return None
        if self.stage_peak(BlockedStage(first, end, FINEST)) > budget:
            return None
        blockings = self._blockings(first, end)
        place = bisect.bisect_left(
            blockings, True, key=lambda blocking: self.stage_peak(BlockedStage(first, end, blocking)) <= budget
        )
        return BlockedStage(first, end, blockings[min(place, len(blockings) - 1)])

    def _has_needless_totals(self, stage: LineBufferStage, budget: int) -> bool:
        """Whether an operator combines rows with totals although its whole input fits."""
        is_fed = self._feed is not None
        return not is_fed and any(each.totals_bytes and self.alone[each.index] <= budget for each in stage.operators)

    def _work(self, chosen: BlockedStage) -> int:
        """Return the work of a stage: its calls and moved bytes."""
        if chosen not in self._works:
            stage, calls = self.calls(chosen)
            self._works[chosen] = CALL_WORK * len(calls) + moved_bytes(stage, calls)
        return self._works[chosen]

    def _others(self, stage: LineBufferStage) -> OtherTensors:
        outside = {
            *(operator.output for operator in stage.operators),
            *([] if self._feed is None else [self._feed.tensor]),
        }
        ending = [t for t in stage.readers if t not in outside and self._live.ends_in(t, stage.end)]
        inputs = {}
        for tensor in ending:
            rows = self._graph.shape(tensor)[1]
            inputs[tensor] = rows, self._graph.tensor_bytes(tensor) // rows
        return OtherTensors(self._live.across(stage.first, stage.end), inputs)

    def macs(self, index: int) -> int:
        """Return the multiply-accumulates of an operator, or its number of elements if there are none: the work that
        slower kernels add."""
        operator, main = self._graph.operators[index], self._model.subgraphs[0]
        return multiply_accumulates(self._model, main, operator) or sum(map(self._graph.size, operator.outputs or ()))

    def _cost_alone(self, index: int, *, lean: bool = False) -> int:
        """Return the bytes that are in use while an operator runs as a whole."""
        if self._feed is not None and index == FEEDER:
            return NEVER
        operator = self._graph.operators[index]
        facts = OperatorFacts.of(self._model.root, self._model.subgraphs[0], operator)
        needs = self._kernels.needs(ShapedCall(0, index, facts, None, lean))
        alive = self._live.at(index) + sum(needs.scratch)
        outputs = operator.outputs or ()
        if len(outputs) != 1:
            return alive
        written = self._graph.tensor_bytes(outputs[0])
        dying = [
            (place, tensor)
            for place, tensor in enumerate(operator.inputs or ())
            if tensor in self._live.size and self._live.ends_in(tensor, index + 1)
        ]
        rows = self.operators[index]
        by_rows = rows is not None and not lean and runs_by_rows(rows, needs)
        saved = (
            shared_bytes(written, self._graph.tensor_bytes(tensor), allowed)
            for place, tensor in dying
            for allowed in (
                needs.overlaps[place],
                *needs.backwards[place : place + 1],
                *(both_ways(rows) if by_rows and rows is not None else ()),
            )
        )
        return alive - max(saved, default=0)
