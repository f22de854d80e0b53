"""Checks that the calls of a plan find the values that they need, by symbolic execution; see `kernels.plan_checker`.

A call checks that its input regions hold all rows that it reads, and labels the rows of its output. The check shares no
code with the planner.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.kernels import REGISTRATIONS
from tflm.kernels.layers.geometry import Axis, windows
from tflm.kernels.overlap import NOWHERE, OperatorFacts, TensorFacts
from tflm.kernels.plan_checker import SymbolicRun
from tflm.memory.buffer import Place
from tflm.memory.byte_labels import Label, TensorKey, ValueBytes, part_of
from tflm.schedule.calls import BufferRegion, Call, CallNeeds, Kernels, MovedRows, Plan, RamBuffer, ShapedCall
from tflm.schedule.rows import Rows
from tflm.schema.enums import ELEMENT_TYPES
from tflm.schema.model import Model
from tflm.schema.tables import Operator, called_subgraphs


def values_lost_in_calls(
    model: Model, plan: Plan, kernels: Kernels, states: Mapping[int, int] | None = None
) -> Iterator[str]:
    """Return the values that a plan loses, in the order in which calls miss them; empty for a sound plan.

    Args:
        model, plan, kernels: the plan, and the model and kernels that it was made for.
        states: variables, each with the tensor whose value it must have after an invoke.
    """
    return _Calls(model, plan, kernels, states or {}).problems()


class _Calls(SymbolicRun):
    """One symbolic run of a plan."""

    def __init__(self, model: Model, plan: Plan, kernels: Kernels, states: Mapping[int, int]):
        starts = list(itertools.accumulate(plan.memories, initial=0))
        self._plan, self._kernels, self._states = plan, kernels, states
        # For each operator, the number of rows combined so far, and the value that stands for their totals.
        self._totals: dict[int, tuple[int, int]] = {}
        self._begins = [starts[buffer.memory] + buffer.offset for buffer in plan.buffers]
        self._root = model.root
        self._main = model.subgraphs[0].operators or []
        places: dict[TensorKey, Place] = {}
        scratch: dict[TensorKey, list[Place]] = {}
        for begin, buffer in zip(self._begins, plan.buffers):
            for (subgraph, tensor), offset in buffer.tensors:
                table = (model.subgraphs[subgraph].tensors or [])[tensor]
                size = TensorFacts(table.type, table.shape or ()).bytes
                places[subgraph, tensor] = Place(begin + offset, size)
            if buffer.scratch_of is not None and buffer.scratch_of[0]:
                scratch.setdefault(buffer.scratch_of, []).append(Place(begin, buffer.size))
        super().__init__(model.root, places, scratch, REGISTRATIONS, {})

    def problems(self) -> Iterator[str]:
        """Run all calls, and yield the problems found."""
        for buffer in self._plan.buffers:
            if not 0 <= buffer.offset <= self._plan.memories[buffer.memory] - buffer.size:
                yield f"{buffer.name} exceeds its memory"
        lasting = self._lasting()
        kept = [(begin, buffer) for begin, buffer in zip(self._begins, self._plan.buffers) if self._is_kept(buffer)]
        values = [next(self._values) for _ in kept]
        for value, (begin, buffer) in zip(values, kept):
            self._memory.write(begin, begin + buffer.size, Label(((value, begin),), None, None))
        main = self._subgraphs[0]
        first = dict(self._places)
        for key in (*lasting, *((0, tensor) for tensor in (*(main.inputs or ()), *self._states))):
            self._make(key, None)
        self._follow_moves()
        for call in self._plan.calls:
            if isinstance(call, MovedRows):
                self._move_rows(call)
            else:
                yield from self._call_problems(call)
        for key in (*((0, tensor) for tensor in main.outputs or ()), *lasting):
            self._look(key, None)
        for state, source in self._states.items():
            self._places[0, source] = first[0, state]
            self._look((0, source), None)
        yield from map(str, self._found())
        for value, (begin, buffer) in zip(values, kept):
            labels = self._memory.read(begin, begin + buffer.size)
            if any((value, begin) not in label.values for _, _, label in labels):
                yield f"{buffer.name} is overwritten before the next invoke"

    def _lasting(self) -> list[TensorKey]:
        """Return variables, and outputs of operators that may end an invoke: the next invoke reads these."""
        found = []
        for i, subgraph in enumerate(self._subgraphs):
            found += [
                (i, j)
                for j, table in enumerate(subgraph.tensors or ())
                if table.is_variable and not (i == 0 and j in self._states)
            ]
            for operator in subgraph.operators or ():
                if self._codes[operator.opcode_index][1].ends_invoke:
                    found += [(i, output) for output in operator.outputs or ()]
        return [key for key in dict.fromkeys(found) if key in self._places]

    def _follow_moves(self) -> None:
        """Derive the outputs of operators that only move bytes from their inputs' values, whether or not they are
        called."""
        for index, operator in enumerate(self._main):
            for output in operator.outputs or ():
                self._content((0, output))
            for output, pieces in self._moved(index, operator).items():
                self._contents[0, output] = tuple(pieces)

    def _moved(self, index: int, operator: Operator) -> dict[int, list[ValueBytes]]:
        """Return the values of outputs that consist of bytes of inputs."""
        moves = self._codes[operator.opcode_index][1].moves
        found: dict[int, list[ValueBytes]] = {}
        for move in (moves(self._facts((0, index), operator)) if moves is not None else None) or ():
            content = self._content((0, (operator.inputs or ())[move.input]))
            found.setdefault((operator.outputs or ())[move.output], []).extend(part_of(content, move.source, move.size))
        return found

    def _is_kept(self, buffer: RamBuffer) -> bool:
        """Whether a buffer belongs to no tensor and is in use throughout, so that it lasts between invokes."""
        last = max(each.last_step for each in self._plan.buffers)
        return not buffer.tensors and (buffer.first_step, buffer.last_step) == (0, last)

    # Calls.

    def _move_rows(self, move: MovedRows) -> None:
        begin = self._begins[move.buffer] + move.source
        distance = self._begins[move.target_buffer] + move.target - begin
        for first, end, label in list(self._memory.read(begin, begin + move.size)):
            values = tuple((value, start + distance) for value, start in label.values)
            self._memory.write(first + distance, end + distance, label._replace(values=values))

    def _call_problems(self, call: Call) -> Iterator[str]:
        operator, here = self._main[call.operator], (0, call.operator)
        name = f"{self._operator(here)}, rows {call.rows}"
        for place, tensor in enumerate(operator.inputs or ()):
            yield from self._input_problems(call, place, (0, tensor), name)
        if (call.rows is None and self._moved(call.operator, operator)) or called_subgraphs(operator):
            tensors = *(operator.inputs or ()), *(operator.outputs or ())
            for tensor, region in zip(tensors, (*call.inputs, *call.outputs)):
                if region is not None:
                    self._places[0, tensor] = self._bytes_of((0, tensor), region)
            if call.steps == 1:
                self._overlapping_moves = set(self._allowed_overlaps(call, operator))
            yield from map(str, self._run_operator(here, operator))
            self._follow_moves()
            return
        yield from self._placement_problems(call, operator, name)
        if call.accumulates:
            yield from self._totals_problems(call, operator, name)
        for region in () if call.accumulates else call.scratch:
            begin = self._begins[region.buffer]
            self._memory.write(begin, begin + self._plan.buffers[region.buffer].size, Label((), None, here))
        for tensor, region in zip(operator.outputs or (), call.outputs):
            if region is not None:
                yield from self._write_rows(call, (0, tensor), region, name)

    def _totals_problems(self, call: Call, operator: Operator, name: str) -> Iterator[str]:
        """Yield rows that are not combined in order, once each, with the totals of the rows before."""
        assert call.rows is not None
        done, before = self._totals.get(call.operator, (0, -1))
        if call.rows.first != done:
            yield f"{name} are combined after {done} rows"
        if (call.rows.end == self._height((0, (operator.inputs or ())[0]))) != (call.outputs[0] is not None):
            yield f"{name} computes the output too early, or never"
        self._totals[call.operator] = call.rows.end, next(self._values)
        for region in call.scratch:
            begin, end = self._begins[region.buffer], self._begins[region.buffer] + region.bytes
            if done and any((before, begin) not in label.values for _, _, label in self._memory.read(begin, end)):
                yield f"{name} finds the totals of {done} rows overwritten"
            value = self._totals[call.operator][1], begin
            self._memory.write(begin, end, Label((value,), None, (0, call.operator)))

    def _input_problems(self, call: Call, place: int, key: TensorKey, name: str) -> Iterator[str]:
        region = call.inputs[place]
        if region is None:
            if key in self._places:
                yield f"{name} has no region of {self._tensor(key)}"
            return
        taken = self._bytes_of(key, region)
        first = region.first_row * self._row_bytes(key)
        self._places[key] = Place(taken.offset - first, self._bytes(key))
        self._look(key, (0, call.operator), first, first + taken.bytes)
        yield from map(str, self._found())
        missing = self._rows_read(call, key) - set(range(region.first_row, region.first_row + region.rows))
        if missing:
            yield f"{name} has no rows {sorted(missing)} of {self._tensor(key)}"

    def _rows_read(self, call: Call, key: TensorKey) -> set[int]:
        """Return the rows of an input that a call reads, tap by tap."""
        height = self._height(key)
        if call.rows is None:
            return set(range(height))
        operator = self._main[call.operator]
        name = self._codes[operator.opcode_index][1].name
        if call.accumulates:
            return set(range(*call.rows))
        if name == "TRANSPOSE":
            stays = self._integers((operator.inputs or ())[1])[1] == 1
            return set(range(*call.rows)) if stays else set(range(height))
        if name in ("PAD", "PADV2", "SLICE", "STRIDED_SLICE"):
            first, step = self._moved_rows(operator, name, height)
            return {row for row in (first + step * wanted for wanted in range(*call.rows)) if 0 <= row < height}
        both = windows(self._facts((0, call.operator), operator))
        axis = both[0] if both is not None else Axis(height, 1, height)
        read = {
            row * axis.stride + tap * axis.dilation - axis.before
            for row in range(*call.rows)
            for tap in range(axis.taps)
        }
        return {row for row in read if 0 <= row < height}

    def _moved_rows(self, operator: Operator, name: str, height: int) -> tuple[int, int]:
        """Return the row of the input that the first row of the output is copied from, and the step to the next."""
        inputs = operator.inputs or ()
        if name in ("PAD", "PADV2"):
            return -int(self._integers(inputs[1])[2]), 1
        first = int(self._integers(inputs[1])[1])
        if name == "SLICE":
            return first, 1
        step = int(self._integers(inputs[3])[1])
        if getattr(operator.builtin_options, "begin_mask", 0) & 2:
            first = 0 if step > 0 else height - 1
        return first % height, step

    def _integers(self, tensor: int) -> npt.NDArray[Any]:
        """Return the elements of a constant."""
        table = (self._subgraphs[0].tensors or [])[tensor]
        data = (self._root.buffers or [])[table.buffer or 0].data
        assert data is not None
        return np.frombuffer(data, ELEMENT_TYPES[table.type].dtype)

    def _write_rows(self, call: Call, key: TensorKey, region: BufferRegion, name: str) -> Iterator[str]:
        rows = Rows(0, self._height(key)) if call.accumulates or call.rows is None else call.rows
        if (region.first_row, region.rows) != (rows.first, rows.size):
            yield f"{name} writes rows {region.first_row} on"
        at, size = self._bytes_of(key, region)
        for piece in part_of(self._content(key), region.first_row * self._row_bytes(key), size):
            label = Label(((piece.value, at - piece.start),), key, (0, call.operator))
            self._memory.write(at, at + piece.bytes, label)
            at += piece.bytes

    def _allowed_overlaps(self, call: Call, operator: Operator) -> Iterator[tuple[TensorKey, TensorKey]]:
        """Return the inputs that the kernel allows to overlap outputs, each with the output."""
        needs, outputs = self._needs(call, operator), operator.outputs or ()
        written = self._places.get((0, outputs[0])) if len(outputs) == 1 else None
        for tensor, allowed in zip(operator.inputs or (), needs.overlaps):
            read = self._places.get((0, tensor))
            if read is not None and written is not None and read.offset - written.offset in allowed:
                yield (0, tensor), (0, outputs[0])

    def _placement_problems(self, call: Call, operator: Operator, name: str) -> Iterator[str]:
        """Yield outputs and scratch buffers in places where they must not be."""
        outputs = [self._bytes_of((0, t), x) for t, x in zip(operator.outputs or (), call.outputs) if x is not None]
        scratch = [Place(self._begins[x.buffer], self._plan.buffers[x.buffer].size) for x in call.scratch]
        needs = self._needs(call, operator)
        overlaps = needs.backwards if call.backwards else needs.overlaps
        if len(scratch) != len(needs.scratch) or any(x.bytes < size for x, size in zip(scratch, needs.scratch)):
            yield f"{name} has {[x.bytes for x in scratch]} bytes of scratch, but needs {list(needs.scratch)}"
        for i, (tensor, region) in enumerate(zip(operator.inputs or (), call.inputs)):
            if region is None:
                continue
            read = self._bytes_of((0, tensor), region)
            if any(read.meets(other) for other in scratch):
                yield f"{name} writes scratch over {self._tensor((0, tensor))}"
            for output in outputs:
                is_allowed = len(outputs) == 1 and read.offset - output.offset in overlaps[i]
                if read.meets(output) and not is_allowed:
                    yield f"{name} writes its output over {self._tensor((0, tensor))} while it reads it"
        if any(one.meets(other) for one, other in itertools.combinations([*outputs, *scratch], 2)):
            yield f"{name} writes two outputs or scratch buffers to the same bytes"

    def _needs(self, call: Call, operator: Operator) -> CallNeeds:
        facts = self._facts((0, call.operator), operator)
        if call.rows is None:
            return self._kernels.needs(ShapedCall(0, call.operator, facts, None, call.lean))
        if call.accumulates:
            return CallNeeds((self._kernels.totals_bytes(call.operator),), (NOWHERE,) * len(facts.inputs))
        both, region = windows(facts), call.inputs[0]
        if both is not None:
            assert region is not None
            axis = both[0]
            before = region.first_row - (call.rows.first * axis.stride - axis.before)
            both = axis._replace(size=region.rows, windows=call.rows.size, before=before), both[1]
        inputs = [x if r is None or x is None else _with_rows(x, r.rows) for x, r in zip(facts.inputs, call.inputs)]
        shaped = OperatorFacts(inputs, [_with_rows(facts.outputs[0], call.rows.size)], facts.options)
        return self._kernels.needs(ShapedCall(0, call.operator, shaped, both))

    # Sizes.

    def _bytes_of(self, key: TensorKey, region: BufferRegion) -> Place:
        """Return the bytes of the rows in a region."""
        return Place(self._begins[region.buffer] + region.offset, region.rows * self._row_bytes(key))

    def _shape(self, key: TensorKey) -> Sequence[int]:
        return (self._subgraphs[key[0]].tensors or [])[key[1]].shape or ()

    def _height(self, key: TensorKey) -> int:
        shape = self._shape(key)
        return shape[1] if len(shape) == 4 else 1

    def _row_bytes(self, key: TensorKey) -> int:
        table = (self._subgraphs[key[0]].tensors or [])[key[1]]
        return TensorFacts(table.type, table.shape or ()).bytes // max(self._height(key), 1)


def _with_rows(facts: TensorFacts, rows: int) -> TensorFacts:
    return facts._replace(dims=(facts.dims[0], rows, *facts.dims[2:]))
