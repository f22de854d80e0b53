"""Checks that the calls of a plan find the values that they need, by running them on tags instead of numbers.

Each byte of RAM holds a tag: which byte of which tensor it is. A call looks whether all rows that its windows reach
have their tags, and writes those of its output. The check shares no code with the planner.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.kernels import OPAQUE, REGISTRATIONS
from tflm.kernels.layers.geometry import Axis
from tflm.kernels.layers.trailing_output import windows
from tflm.kernels.overlap import Move, OperatorFacts, TensorFacts
from tflm.memory.byte_labels import TensorKey
from tflm.schedule.kernels import CallNeeds, Kernels, ShapedCall
from tflm.schedule.lasting import lasting_tensors
from tflm.schedule.schedule import BufferRegion, Call, MovedRows, Plan
from tflm.schema.model import Model
from tflm.schema.tables import Operator, Tensor
from tflm.schema.verifier import called_subgraphs

Tags = npt.NDArray[np.int64]

NOTHING = 0
"""The tag of bytes whose value nobody needs."""


def lost_values(model: Model, plan: Plan, kernels: Kernels) -> Iterator[str]:
    """Every value that a plan loses, in the order in which calls miss them; none for a sound plan."""
    return _Run(model, plan, kernels).lost()


class _Run:
    """One run of a plan on tags."""

    def __init__(self, model: Model, plan: Plan, kernels: Kernels):
        self._model, self._plan, self._kernels = model, plan, kernels
        self._main = model.subgraphs[0]
        starts = list(itertools.accumulate(plan.memories, initial=0))
        self._begins = [starts[buffer.memory] + buffer.offset for buffer in plan.buffers]
        self._memory = np.full(plan.ram_bytes, NOTHING, np.int64)
        self._bases = _bases(model)
        self._lasting = lasting_tensors(model)
        self._moved: dict[int, Tags] = {}
        self._places = {
            key: begin + offset for begin, buffer in zip(self._begins, plan.buffers) for key, offset in buffer.tensors
        }
        self._registrations = [
            REGISTRATIONS.get(model.operator_name(operator), OPAQUE) for operator in self._main.operators or ()
        ]

    def lost(self) -> Iterator[str]:
        """Run everything."""
        for buffer in self._plan.buffers:
            if not 0 <= buffer.offset <= self._plan.memories[buffer.memory] - buffer.size:
                yield f"{buffer.name} does not fit its memory"
        for index, operator in enumerate(self._main.operators or ()):
            self._follow_moves(index, operator)
        lasting = self._write_lasting()
        for tensor in self._main.inputs or ():
            self._write_whole(tensor)
        for call in self._plan.calls:
            if isinstance(call, MovedRows):
                self._move(call)
            else:
                yield from self._run(call)
        for tensor in self._main.outputs or ():
            yield from self._look_at_whole(tensor, "the caller")
        for place, tags, name in lasting:
            if (self._memory[place : place + len(tags)] != tags).any():
                yield f"{name} does not last until the next invoke"

    # What is in memory.

    def _write_lasting(self) -> list[tuple[int, Tags, str]]:
        """Tag what stays from invoke to invoke: variables, and buffers that are no tensor's and used throughout."""
        last = max((buffer.last_step for buffer in self._plan.buffers), default=0)
        lasting = []
        for number, buffer in enumerate(self._plan.buffers):
            lasts = any(tensor in self._lasting[subgraph] for (subgraph, tensor), _ in buffer.tensors)
            if lasts or (not buffer.tensors and (buffer.first_step, buffer.last_step) == (0, last)):
                key = buffer.tensors[0][0] if buffer.tensors else None
                base = -1 - number * self._plan.ram_bytes if key is None else self._bases[key]
                tags = np.arange(base, base + buffer.size, dtype=np.int64)
                begin = self._begins[number]
                self._memory[begin : begin + buffer.size] = tags
                lasting.append((begin, tags, buffer.name))
        return lasting

    def _write_whole(self, tensor: int) -> None:
        place = self._places.get((0, tensor))
        if place is not None:
            tags = self._tags(tensor, 0, self._facts(tensor).bytes)
            self._memory[place : place + len(tags)] = tags

    def _look_at_whole(self, tensor: int, reader: str) -> Iterator[str]:
        place = self._places.get((0, tensor))
        if place is not None:
            yield from self._look(tensor, place, 0, self._facts(tensor).bytes, reader)

    def _look(self, tensor: int, place: int, begin: int, end: int, reader: str) -> Iterator[str]:
        """Whether bytes of a tensor are at a place."""
        found = self._memory[place : place + end - begin]
        if place < 0 or len(found) != end - begin or (found != self._tags(tensor, begin, end)).any():
            yield f"{reader} does not find bytes {begin} to {end} of tensor {tensor}"

    def _tags(self, tensor: int, begin: int, end: int) -> Tags:
        if tensor in self._moved:
            return self._moved[tensor][begin:end]
        base = self._bases[0, tensor]
        return np.arange(base + begin, base + end, dtype=np.int64)

    def _follow_moves(self, index: int, operator: Operator) -> None:
        """The tags of outputs that are bytes of inputs."""
        registration = self._registrations[index]
        moves = registration.moves(self._operator_facts(operator)) if registration.moves is not None else None
        inputs, outputs = operator.inputs or (), operator.outputs or ()
        for output in outputs if moves is not None else ():
            self._moved[output] = np.full(self._facts(output).bytes, NOTHING, np.int64)
        for move in moves or ():
            tags = self._tags(inputs[move.input], move.source, move.source + move.size)
            self._moved[outputs[move.output]][move.target : move.target + move.size] = tags

    # Calls.

    def _move(self, move: MovedRows) -> None:
        begin = self._begins[move.buffer]
        moved = self._memory[begin + move.source : begin + move.source + move.size].copy()
        self._memory[begin + move.target : begin + move.target + move.size] = moved

    def _run(self, call: Call) -> Iterator[str]:
        operator = (self._main.operators or [])[call.operator]
        name = f"operator {call.operator} {self._registrations[call.operator].name}, rows {call.rows}"
        for place, tensor in enumerate(operator.inputs or ()):
            yield from self._look_at_input(call, place, tensor, name)
        registration = self._registrations[call.operator]
        moves = registration.moves(self._operator_facts(operator)) if registration.moves and call.rows is None else None
        if moves is not None:
            yield from self._run_moves(call, operator, moves, name)
            return
        yield from self._look_at_places(call, operator, name)
        for region in call.scratch:
            self._overwrite(region.buffer)
        for subgraph in called_subgraphs(operator):
            self._overwrite_subgraph(subgraph)
        for tensor, window in zip(operator.outputs or (), call.outputs):
            if window is not None:
                if call.rows is not None and (window.first_row, window.rows) != (call.rows.first, call.rows.size):
                    yield f"{name} writes rows {window.first_row} on"
                begin = self._address(window)
                first, size = self._bytes(tensor, window)
                self._memory[begin : begin + size] = self._tags(tensor, first, first + size)

    def _run_moves(self, call: Call, operator: Operator, moves: Sequence[Move], name: str) -> Iterator[str]:
        """An operator that moves bytes, one move after the other: each to where its bytes are, or elsewhere."""
        inputs, outputs = operator.inputs or (), operator.outputs or ()
        for move in moves:
            read, written = call.inputs[move.input], call.outputs[move.output]
            if written is None:
                continue
            target = _Bytes(self._address(written) + move.target, move.size)
            if read is not None:
                source = _Bytes(self._address(read) + move.source, move.size)
                yield from self._look(inputs[move.input], source.begin, move.source, move.source + move.size, name)
                is_behind = move.ascending and target.begin < source.begin
                if source.begin != target.begin and source.meets(target) and not is_behind:
                    yield f"{name} moves bytes over others that it has yet to move"
            tags = self._tags(outputs[move.output], move.target, move.target + move.size)
            self._memory[target.begin : target.begin + target.size] = tags

    def _look_at_input(self, call: Call, place: int, tensor: int, name: str) -> Iterator[str]:
        window = call.inputs[place]
        if window is None:
            if (0, tensor) in self._places:
                yield f"{name} has no window on tensor {tensor}"
            return
        first, size = self._bytes(tensor, window)
        yield from self._look(tensor, self._address(window), first, first + size, name)
        missing = self._rows_read(call, tensor) - set(range(window.first_row, window.first_row + window.rows))
        if missing:
            yield f"{name} has no rows {sorted(missing)} of tensor {tensor}"

    def _rows_read(self, call: Call, tensor: int) -> set[int]:
        """The rows of an input that a call reads, tap by tap."""
        facts = self._operator_facts((self._main.operators or [])[call.operator])
        height = _height(self._facts(tensor))
        if call.rows is None:
            return set(range(height))
        both = windows(facts)
        axis = both[0] if both is not None else Axis(height, 1, height)
        read = {
            row * axis.stride + tap * axis.dilation - axis.before
            for row in range(*call.rows)
            for tap in range(axis.taps)
        }
        return {row for row in read if 0 <= row < height}

    def _look_at_places(self, call: Call, operator: Operator, name: str) -> Iterator[str]:
        """Whether outputs and scratch lie only where they may."""
        written = [
            (window, tensor) for window, tensor in zip(call.outputs, operator.outputs or ()) if window is not None
        ]
        read = [(i, t, w) for i, (t, w) in enumerate(zip(operator.inputs or (), call.inputs)) if w is not None]
        outputs = [_Bytes(self._address(window), self._bytes(tensor, window)[1]) for window, tensor in written]
        scratch = [_Bytes(self._begins[x.buffer], self._plan.buffers[x.buffer].size) for x in call.scratch]
        needs = self._needs(call, operator)
        if len(scratch) != len(needs.scratch) or any(of.size < size for of, size in zip(scratch, needs.scratch)):
            yield f"{name} has {[of.size for of in scratch]} bytes of scratch, but needs {list(needs.scratch)}"
        for i, tensor, window in read:
            place = _Bytes(self._address(window), self._bytes(tensor, window)[1])
            if any(place.meets(other) for other in scratch):
                yield f"{name} writes scratch over tensor {tensor}"
            for output in outputs:
                if place.meets(output) and not (len(outputs) == 1 and place.begin - output.begin in needs.overlaps[i]):
                    yield f"{name} writes its output over tensor {tensor} while it reads it"
        together = [*outputs, *scratch]
        for i, one in enumerate(together):
            if any(one.meets(other) for other in together[:i]):
                yield f"{name} writes two outputs or scratch buffers to the same bytes"

    def _needs(self, call: Call, operator: Operator) -> CallNeeds:
        facts = self._operator_facts(operator)
        if call.rows is None:
            return self._kernels.needs(ShapedCall(0, call.operator, facts, None))
        inputs = [
            facts.inputs[i] if window is None else _with_rows(facts.inputs[i], window.rows)
            for i, window in enumerate(call.inputs)
        ]
        both = windows(facts)
        if both is not None:
            window = call.inputs[0]
            assert window is not None
            axis = both[0]
            before = window.first_row - (call.rows.first * axis.stride - axis.before)
            both = axis._replace(size=window.rows, windows=call.rows.size, before=before), both[1]
        outputs = [_with_rows(facts.outputs[0], call.rows.size)]
        shaped = OperatorFacts(inputs, [facts for facts in outputs if facts is not None], facts.options)
        return self._kernels.needs(ShapedCall(0, call.operator, shaped, both))

    def _overwrite(self, number: int) -> None:
        begin = self._begins[number]
        self._memory[begin : begin + self._plan.buffers[number].size] = NOTHING

    def _overwrite_subgraph(self, subgraph: int) -> None:
        """All that a subgraph may write, and those that it runs."""
        for number, buffer in enumerate(self._plan.buffers):
            if any(key[0] == subgraph and key[1] not in self._lasting[subgraph] for key, _ in buffer.tensors):
                self._overwrite(number)
        for operator in self._model.subgraphs[subgraph].operators or ():
            for called in called_subgraphs(operator):
                self._overwrite_subgraph(called)

    # Sizes.

    def _address(self, window: BufferRegion) -> int:
        return self._begins[window.buffer] + window.offset

    def _bytes(self, tensor: int, window: BufferRegion) -> tuple[int, int]:
        """The first byte of a window on a tensor, and how many there are."""
        facts = self._facts(tensor)
        row = facts.bytes // max(_height(facts), 1)
        return window.first_row * row, window.rows * row

    def _table(self, key: TensorKey) -> Tensor:
        return (self._model.subgraphs[key[0]].tensors or [])[key[1]]

    def _facts(self, tensor: int) -> TensorFacts:
        table = self._table((0, tensor))
        return TensorFacts(table.type, table.shape or ())

    def _operator_facts(self, operator: Operator) -> OperatorFacts:
        return OperatorFacts.of(self._model.root, self._main, operator)


class _Bytes(NamedTuple):
    """Bytes of RAM."""

    begin: int
    size: int

    def meets(self, other: _Bytes) -> bool:
        """Whether they have a byte in common."""
        return max(self.begin, other.begin) < min(self.begin + self.size, other.begin + other.size)


def _bases(model: Model) -> dict[TensorKey, int]:
    """The tag of the first byte of each tensor."""
    bases, base = {}, NOTHING + 1
    for i, subgraph in enumerate(model.subgraphs):
        for j, table in enumerate(subgraph.tensors or ()):
            bases[i, j] = base
            base += TensorFacts(table.type, table.shape or ()).bytes
    return bases


def _height(facts: TensorFacts) -> int:
    return facts.dims[1] if len(facts.dims) == 4 else 1


def _with_rows(facts: TensorFacts | None, rows: int) -> TensorFacts | None:
    return None if facts is None else facts._replace(dims=(facts.dims[0], rows, *facts.dims[2:]))
