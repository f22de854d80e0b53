"""Lower a model to a schedule: operators become calls, and tensors become buffers."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from tflm.kernels import OPAQUE, REGISTRATIONS
from tflm.kernels.overlap import NOWHERE, OperatorFacts, TensorFacts
from tflm.memory.buffer import UNUSED, Buffer
from tflm.planning.views import Views, last_steps
from tflm.schedule.calls import BufferRegion, Call, CallNeeds, Kernels, MovedRows, RamBuffer, ShapedCall
from tflm.schedule.line_buffers import (
    Feed,
    LineBuffer,
    LineBufferStage,
    RowCall,
    RowOperator,
    RowProgress,
    blocks_at,
    both_ways,
    capacities,
    runs_by_rows,
)
from tflm.schedule.rows import Rows
from tflm.schedule.schedule import Location, Schedule
from tflm.schedule.stage_search import lasting_tensors, lifetimes_of
from tflm.schedule.states import States, followed
from tflm.schema.model import Model
from tflm.schema.tables import Operator

VIEW_ALIGNMENT = 4
"""Default alignment in bytes of tensors inside of other tensors."""


class RamRequirements(NamedTuple):
    """What a program needs of its RAM besides its tensors.

    Attributes:
        persistent: sizes of buffers that last between invokes, by name; variable tensors need not be listed.
        alignment: alignment of all buffers, in bytes.
        states: variables that take the values of other tensors at the end of an invoke.
        feed: the input whose rows the caller passes a few at a time; it is then not in RAM.
        view_alignment: alignment of tensors inside of other tensors, in bytes.
    """

    persistent: Mapping[str, int] = MappingProxyType({})
    alignment: int = 4
    states: States = MappingProxyType({})
    feed: Feed | None = None
    view_alignment: int = VIEW_ALIGNMENT


class Lowering:
    """Builds the schedule of a model.

    Args:
        model: the model.
        kernels: the facts about its kernels.
        operators: the rules by which each operator of the first subgraph computes rows; None if it cannot.
        by_rows: operators outside of stages that may run row by row, in place.
        requirements: what else the RAM has to hold.
        lean: operators outside of stages that use slower kernels with less scratch.
    """

    def __init__(
        self,
        model: Model,
        kernels: Kernels,
        operators: Sequence[RowOperator | None],
        by_rows: Collection[int],
        requirements: RamRequirements,
        lean: Collection[int] = (),
    ):
        self._model, self._kernels, self._operators = model, kernels, operators
        self._by_rows, self._lean = by_rows, lean
        lifetimes = lifetimes_of(model)
        keys = [(i, j) for i, subgraph in enumerate(model.subgraphs) for j in range(len(subgraph.tensors or ()))]
        built = {keys[buffer.tensor]: buffer for buffer in lifetimes.build() if buffer.tensor is not None}
        self._buffers = {key: buffer for key, buffer in built.items() if buffer.first_use != UNUSED}
        self._steps = lifetimes.steps
        self._ends = last_steps(model)
        self._begins = [step for step, (subgraph, node) in enumerate(self._steps) if not subgraph and node is not None]
        self.schedule = Schedule()
        self._regions: dict[int, BufferRegion] = {}
        self._scratch_buffers: dict[int, list[int]] = {}
        self._persistent, _, self._states, feed, self._view_alignment = requirements
        self._fed = None if feed is None else feed.tensor

    def in_stages(self, stages: Sequence[tuple[LineBufferStage, Sequence[RowCall]]]) -> Schedule:
        """Return the schedule with some stages, in order. Each of the other operators runs in one call."""
        lasting = lasting_tensors(self._model)
        lasting[0] -= self._states.keys()
        inner = {tensor for stage, _ in stages for tensor in stage.inner}
        alone = {tensor for stage, _ in stages for tensor in self._moved(stage)} | lasting[0]
        self._add_tensors(inner, alone)
        self._add_variables()
        position = 0
        for stage, calls in stages:
            self._add_operators(position, stage.first)
            self._add_stage(stage, calls)
            position = stage.end
        self._add_operators(position, len(self._model.subgraphs[0].operators or ()))
        self._add_updates()
        self._add_called()
        self._add_persistent(lasting)
        return self.schedule

    def _add_variables(self) -> None:
        """The variable tensors of all subgraphs."""
        for i, subgraph in enumerate(self._model.subgraphs):
            for j, table in enumerate(subgraph.tensors or ()):
                if table.is_variable and not (i == 0 and j in self._states):
                    facts = TensorFacts(table.type, table.shape or ())
                    number = self.schedule.add(RamBuffer(table.name or "", facts.bytes, (((i, j), 0),)))
                    if i == 0:
                        self._regions[j] = BufferRegion(number, 0, facts.bytes, 0, _rows(facts))

    def _moved(self, stage: LineBufferStage) -> list[int]:
        """Yield tensors of operators that only copy, and that a stage runs row by row."""
        return [
            tensor
            for operator in stage.operators
            if operator.registration.moves is not None
            for tensor in (operator.output, *operator.inputs.values())
        ]

    def _add_operators(self, first: int, end: int) -> None:
        for index, operator in enumerate((self._model.subgraphs[0].operators or [])[first:end], first):
            if not self._is_done_already(operator):
                self.schedule.calls.append(self._call(index, operator))

    def _add_stage(self, stage: LineBufferStage, calls: Sequence[RowCall]) -> None:
        sizes = {operator.output: operator.row_bytes for operator in stage.operators}
        line_buffers = {
            tensor: LineBuffer(self._add_window(tensor, rows * sizes[tensor]), sizes[tensor], rows)
            for tensor, rows in capacities(stage, calls).items()
        }
        progress = RowProgress(stage)
        for call in calls:
            operator = stage.operators[call.place]
            if operator.output in line_buffers:
                self.schedule.calls += line_buffers[operator.output].make_room(
                    call.rows, progress.unread[operator.output]
                )
            self.schedule.calls.append(self._row_call(operator, call.rows, line_buffers))
            progress.advance(call)

    def _add_window(self, tensor: int, size: int) -> int:
        name = self._buffers[0, tensor].name
        return self.schedule.add(RamBuffer(f"rows of {name}", size, (((0, tensor), 0),)))

    def _row_call(self, operator: RowOperator, rows: Rows, line_buffers: Mapping[int, LineBuffer]) -> Call:
        def region(tensor: int, rows: Rows) -> BufferRegion | None:
            if tensor == self._fed:
                return None
            return (
                line_buffers[tensor].region(rows) if tensor in line_buffers else _rows_of(self._regions[tensor], rows)
            )

        needs = operator.needs(rows)
        read = operator.needed(rows)
        totals = (operator.totals_bytes,) if operator.totals_bytes else ()
        output = region(operator.output, rows) if not totals else None
        if totals and rows.end == operator.rows:
            output = self._regions[operator.output]
        return Call(
            operator=operator.index,
            rows=rows,
            inputs=tuple(
                region(operator.inputs[place], read) if place in operator.inputs else None
                for place in range(len(operator.facts.inputs))
            ),
            outputs=(output,),
            scratch=self._scratch(operator.index, totals or needs.scratch),
            overlaps=tuple((allowed,) for allowed in needs.overlaps),
            accumulates=bool(totals),
        )

    def _add_tensors(self, inner: Collection[int], alone: Collection[int]) -> None:
        """Add the tensors of the first subgraph except `inner` ones. They share memory where possible, unless
        `alone`."""
        main = self._model.subgraphs[0]
        buffers = {
            tensor: buffer
            for (subgraph, tensor), buffer in self._buffers.items()
            if subgraph == 0 and tensor not in inner and tensor != self._fed
        } | self._states_before()
        alone = {*alone, *self._lone_states(buffers, alone)}
        for offsets in [*self._bodies(buffers, alone), *({tensor: 0} for tensor in buffers if tensor in alone)]:
            members = tuple(((0, tensor), offset) for tensor, offset in offsets.items())
            size = max(offset + buffers[tensor].size for tensor, offset in offsets.items())
            number = self.schedule.add(RamBuffer(buffers[members[0][0][1]].name, size, members))
            for tensor, offset in offsets.items():
                self._regions[tensor] = BufferRegion(number, offset, buffers[tensor].size, 0, _rows(buffers[tensor]))
        before, after = (*(main.inputs or ()), *self._states), (*(main.outputs or ()), *self._states)
        self.schedule.inputs += [self._regions[tensor] for tensor in before if tensor in self._regions]
        self.schedule.outputs += [self._regions[tensor] for tensor in after if tensor in self._regions]

    def _bodies(self, buffers: Mapping[int, Buffer], alone: Collection[int]) -> list[dict[int, int]]:
        """Return groups of tensors that may share memory, with their offsets."""
        shared = {tensor: buffer for tensor, buffer in buffers.items() if tensor not in alone}
        return [body.offsets for body in Views(self._model, shared, alignment=self._view_alignment).bodies()]

    def _lone_states(self, buffers: Mapping[int, Buffer], alone: Collection[int]) -> set[int]:
        """Yield states that would overwrite an output, or share memory with another state."""
        outputs, lone = set(self._model.subgraphs[0].outputs or ()), set[int]()
        for offsets in self._bodies(buffers, alone) if self._states else ():
            states = [tensor for tensor in offsets if tensor in self._states]
            lone.update(states if outputs & offsets.keys() else states[1:])
        return lone

    def _states_before(self) -> dict[int, Buffer]:
        """Return the states as tensors that exist from the start until their last read."""
        main, found = self._model.subgraphs[0], dict[int, Buffer]()
        for state in self._states:
            table = (main.tensors or [])[state]
            facts = TensorFacts(table.type, table.shape or ())
            readers = [i for i, operator in enumerate(main.operators or ()) if state in (operator.inputs or ())]
            last = max((self._ends[index] for index in readers), default=0)
            found[state] = Buffer(facts.bytes, 0, last, name=table.name or "", dims=facts.dims, tensor=state)
        return found

    def _add_updates(self) -> None:
        """Add the moves that give each state its next value once nothing reads its memory any more."""
        schedule = self.schedule
        in_order = sorted(self._states, key=lambda state: -len(followed(self._states, state)))
        updates = [(self._regions[state], self._regions[self._states[state]]) for state in in_order]
        # Moves to other buffers come first, because moves inside of a buffer may overwrite their source.
        for state, source in sorted(updates, key=lambda update: update[0].buffer == update[1].buffer):
            last = schedule.last_uses()
            position = 1 + max(last.get(state.buffer, -1), last.get(source.buffer, -1))
            into = None if state.buffer == source.buffer else state.buffer
            if into is not None or source.offset != state.offset:
                move = MovedRows(source.buffer, source.offset, state.offset, state.bytes, into)
                schedule.calls.insert(position, move)

    def _is_done_already(self, operator: Operator) -> bool:
        """Whether an operator copies bytes onto themselves."""
        registration = REGISTRATIONS.get(self._model.operator_name(operator), OPAQUE)
        facts = OperatorFacts.of(self._model.root, self._model.subgraphs[0], operator)
        moves = registration.moves(facts) if registration.moves is not None else None
        inputs, outputs = operator.inputs or (), operator.outputs or ()
        if moves is None:
            return False
        regions = [
            (self._regions.get(inputs[move.input]), self._regions.get(outputs[move.output]), move) for move in moves
        ]
        return all(
            source is not None
            and target is not None
            and source.buffer == target.buffer
            and source.offset + move.source == target.offset + move.target
            for source, target, move in regions
        )

    def _call(self, index: int, operator: Operator) -> Call:
        facts = OperatorFacts.of(self._model.root, self._model.subgraphs[0], operator)
        lean = index in self._lean
        needs = self._kernels.needs(ShapedCall(0, index, facts, None, lean))
        return Call(
            operator=index,
            rows=None,
            inputs=tuple(self._regions.get(tensor) for tensor in operator.inputs or ()),
            outputs=tuple(self._regions.get(tensor) for tensor in operator.outputs or ()),
            scratch=self._scratch(index, needs.scratch),
            overlaps=self._overlaps(index, needs),
            steps=1 + self._ends[index] - self._begins[index],
            lean=lean,
        )

    def _overlaps(self, index: int, needs: CallNeeds) -> tuple[tuple[range, ...], ...]:
        """Return the allowed offsets of an operator's inputs, including those that need running backwards or row by
        row."""
        overlaps: list[tuple[range, ...]] = [*itertools.zip_longest(needs.overlaps, needs.backwards, fillvalue=NOWHERE)]
        operator = None if index in self._lean else self._operators[index]
        if index in self._by_rows and operator is not None and runs_by_rows(operator, needs):
            (place,) = operator.inputs
            overlaps[place] += both_ways(operator)
        return tuple(overlaps)

    def in_places(self, locations: Sequence[Location]) -> Schedule:
        """Return the schedule in which operators run row by row if the places of their buffers require it."""
        calls: list[Call | MovedRows] = []
        for call in self.schedule.calls:
            calls += self._split(call, locations) if isinstance(call, Call) and call.rows is None else [call]
        return replace(self.schedule, calls=calls)

    def _split(self, call: Call, locations: Sequence[Location]) -> list[Call]:
        """Return the calls that an operator needs with these places of its buffers: one call, or calls on rows."""
        operator = self._operators[call.operator]
        if operator is None or len(operator.inputs) != 1:
            return [call]
        (place,) = operator.inputs
        input, output = call.inputs[place], call.outputs[0]
        if input is None or output is None:
            return [call]
        (memory, begin), (other, written) = (locations[region.buffer] for region in (input, output))
        begin, written = begin + input.offset, written + output.offset
        unaliased = memory != other or begin + input.bytes <= written or written + output.bytes <= begin
        forwards, backwards, *_ = call.overlaps[place]
        if unaliased or begin - written in forwards:
            return [call]
        if begin - written in backwards:
            return [self._block(call, Rows(0, operator.rows))._replace(backwards=True)]
        return [self._block(call, rows) for rows in blocks_at(operator, begin - written)]

    def _block(self, call: Call, rows: Rows) -> Call:
        operator = self._operators[call.operator]
        assert operator is not None
        (place,) = operator.inputs
        inputs = list(call.inputs)
        inputs[place] = _rows_of(self._regions[operator.inputs[place]], operator.needed(rows))
        outputs = (_rows_of(self._regions[operator.output], rows),)
        return call._replace(rows=rows, inputs=tuple(inputs), outputs=outputs)

    def _scratch(self, index: int, sizes: Sequence[int]) -> tuple[BufferRegion, ...]:
        """Return the scratch buffers of an operator, which all its calls share."""
        buffers, known = self.schedule.buffers, self._scratch_buffers.setdefault(index, [])
        while len(known) < len(sizes):
            known.append(self.schedule.add(RamBuffer(f"scratch of operator {index}", 0, scratch_of=(0, index))))
        for number, size in zip(known, sizes):
            buffers[number] = buffers[number]._replace(size=max(buffers[number].size, size))
        return tuple(BufferRegion(number, 0, size, 0, 1) for number, size in zip(known, sizes))

    def _add_called(self) -> None:
        """Add the tensors and the scratch buffers of subgraphs that operators run."""
        starts = {
            self._begins[call.operator]: start
            for call, start in zip(self.schedule.calls, self.schedule.starts())
            if isinstance(call, Call)
        }

        def step_of(step: int) -> int:
            begin = max(begin for begin in starts if begin <= step)
            return starts[begin] + step - begin

        for (subgraph, tensor), buffer in self._buffers.items():
            if subgraph:
                number = self.schedule.add(RamBuffer(buffer.name, buffer.size, (((subgraph, tensor), 0),)))
                self.schedule.alive.append((number, step_of(buffer.first_use), step_of(buffer.last_use)))
        uses: dict[tuple[int, int], list[int]] = {}
        for step, (subgraph, node) in enumerate(self._steps):
            if subgraph and node is not None:
                uses.setdefault((subgraph, node), []).append(step_of(step))
        for (subgraph, node), steps in uses.items():
            for size in self._called_scratch(subgraph, node):
                name = f"scratch of operator {node} of subgraph {subgraph}"
                number = self.schedule.add(RamBuffer(name, size, scratch_of=(subgraph, node)))
                self.schedule.alive.append((number, steps[0], steps[-1]))

    def _called_scratch(self, subgraph: int, node: int) -> tuple[int, ...]:
        table = self._model.subgraphs[subgraph]
        facts = OperatorFacts.of(self._model.root, table, (table.operators or [])[node])
        return self._kernels.needs(ShapedCall(subgraph, node, facts, None)).scratch

    def _add_persistent(self, lasting: Sequence[Collection[int]]) -> None:
        """Add the buffers that last between invokes."""
        end = self.schedule.starts()[-1]
        for number, buffer in enumerate(self.schedule.buffers):
            if any(tensor in lasting[subgraph] for (subgraph, tensor), _ in buffer.tensors):
                self.schedule.alive.append((number, 0, end))
        for name, size in self._persistent.items():
            self.schedule.alive.append((self.schedule.add(RamBuffer(name, size)), 0, end))


def _rows_of(whole: BufferRegion, rows: Rows) -> BufferRegion:
    row = whole.bytes // whole.rows
    return BufferRegion(whole.buffer, whole.offset + rows.first * row, rows.size * row, rows.first, rows.size)


def _rows(tensor: Buffer | TensorFacts) -> int:
    return tensor.dims[1] if len(tensor.dims) == 4 else 1
