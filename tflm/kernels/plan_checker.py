"""Checks that a memory plan keeps every value while it is needed, by symbolic execution of the graph.

Each byte of the head is labelled with the value whose byte it holds. An operator checks that the bytes of its inputs
still have their labels, and labels those of its outputs. Kernels' declarations determine the rest: one that only moves
bytes moves labels, so it may leave bytes in place; one that reads and writes in a known order may overwrite what it has
read. Opaque operators, such as an NPU's command stream, are trusted with their own tensors, which may share bytes.

The check shares no code with the planners. Its cost grows with the operators, not with the bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tflm.errors import ModelError
from tflm.kernels import OPAQUE, REGISTRATIONS, Registration
from tflm.kernels.overlap import NOWHERE, Move, OperatorFacts, Overlap, TensorFacts
from tflm.memory.buffer import Place
from tflm.memory.byte_labels import NO_PLACE, Label, LabelledBytes, TensorKey, ValueBytes, part_of
from tflm.schema.options import CallOnceOptions, IfOptions, WhileOptions
from tflm.schema.tables import ONLINE, Model, Operator, broken_plan, code_name


class LostValue(NamedTuple):
    """A value that is overwritten before its last read.

    Attributes:
        tensor: the tensor with the value, as shown in messages.
        writer: the tensor or scratch buffer that overwrites it.
        operator: the operator that writes.
        reader: the later or simultaneous reader of the value.
    """

    tensor: str
    writer: str
    operator: str
    reader: str

    def __str__(self) -> str:
        when = "while it reads it" if self.operator == self.reader else f"before {self.reader} reads it"
        return f"{self.tensor} and {self.writer} share bytes: {self.operator} writes the second over the first {when}"


def findings_in_plan(model: Model, offsets: Sequence[int]) -> Iterator[ModelError]:
    """The values that a model's offline plan loses, as findings.

    Args:
        model: valid except for its plan.
        offsets: offset of each tensor, subgraph after subgraph; -1 for those that the device places itself.
    """
    for lost in lost_values(model, offline_places(model, offsets)):
        yield broken_plan(str(lost), unsound=True)


def offline_places(model: Model, offsets: Sequence[int]) -> dict[TensorKey, Place]:
    """Return the places in an offline plan, by subgraph and tensor."""
    buffers = model.buffers or []
    keys = ((i, j, t) for i, subgraph in enumerate(model.subgraphs or ()) for j, t in enumerate(subgraph.tensors or ()))
    places = {}
    for (i, j, tensor), offset in zip(keys, offsets):
        size = TensorFacts(tensor.type, tensor.shape or ()).bytes
        if offset != ONLINE and size > 0 and not buffers[tensor.buffer].data and -1 not in (tensor.shape or ()):
            places[i, j] = Place(offset, size)
    return places


def lost_values(
    model: Model,
    places: Mapping[TensorKey, Place],
    scratch: Mapping[TensorKey, Sequence[Place]] | None = None,
    overlaps: Mapping[str, Overlap] | None = None,
) -> Iterator[LostValue]:
    """Every value that a plan loses, in the order in which operators would read them; none for a safe plan.

    Args:
        model: valid except for its plan.
        places: the tensors in the head, by subgraph and tensor; all others are assumed to have separate memory.
        scratch: the scratch buffers of each operator, by subgraph and operator.
        overlaps: overlaps by operator name that replace those of the registrations, because a kernel library may read
            and write in another order.
    """
    return SymbolicRun(model, places, scratch or {}, REGISTRATIONS, overlaps or {}).lost()


class SymbolicRun:
    """A symbolic run of a model; the arguments are those of `lost_values`."""

    def __init__(
        self,
        model: Model,
        places: Mapping[TensorKey, Place],
        scratch: Mapping[TensorKey, Sequence[Place]],
        registrations: Mapping[str, Registration],
        overlaps: Mapping[str, Overlap],
    ):
        self._model, self._places, self._scratch = model, dict(places), scratch
        self._registrations, self._overlaps = registrations, overlaps
        self._subgraphs = model.subgraphs or []
        self._memory = LabelledBytes()
        self._contents: dict[TensorKey, tuple[ValueBytes, ...]] = {}
        self._values = itertools.count()
        self._lost: list[LostValue] = []
        self._overlapping_moves: set[tuple[TensorKey, TensorKey]] = set()  # read before they are overwritten
        self._codes = [self._name_and_registration(i) for i in range(len(model.operator_codes or ()))]

    def lost(self) -> Iterator[LostValue]:
        """Run the first subgraph as its caller does."""
        variables = self._lasting()
        for key in variables:
            self._make(key, None)
        for tensor in self._subgraphs[0].inputs or ():
            self._make((0, tensor), None)
        yield from self._run(0)
        for tensor in self._subgraphs[0].outputs or ():
            self._look((0, tensor), None)
        for key in variables:
            self._look(key, None)
        yield from self._found()

    def _lasting(self) -> list[TensorKey]:
        """The tensors that the next invoke reads: variables in the head that some operator uses."""
        return [
            (i, tensor)
            for i, subgraph in enumerate(self._subgraphs)
            for tensor in sorted({t for operator in subgraph.operators or () for t in operator.inputs or () if t >= 0})
            if (subgraph.tensors or [])[tensor].is_variable and (i, tensor) in self._places
        ]

    def _found(self) -> Iterator[LostValue]:
        yield from self._lost
        self._lost = []

    def _run(self, subgraph: int) -> Iterator[LostValue]:
        for index, operator in enumerate(self._subgraphs[subgraph].operators or ()):
            yield from self._run_operator((subgraph, index), operator)

    def _run_operator(self, here: TensorKey, operator: Operator) -> Iterator[LostValue]:
        if isinstance(operator.builtin_options, IfOptions):
            yield from self._run_if(here, operator, operator.builtin_options)
        elif isinstance(operator.builtin_options, WhileOptions):
            yield from self._run_while(here, operator, operator.builtin_options)
        elif isinstance(operator.builtin_options, CallOnceOptions):
            yield from self._run(operator.builtin_options.init_subgraph_index)
        else:
            self._run_kernel(here, operator)
        yield from self._found()

    def _run_kernel(self, here: TensorKey, operator: Operator) -> None:
        name, registration = self._codes[operator.opcode_index]
        scratch = self._scratch.get(here, ())
        for place in scratch:
            self._memory.write(place.offset, place.end, Label((), None, here))
        moves = registration.moves(self._facts(here, operator)) if registration.moves is not None else None
        if moves is not None:
            self._run_moves(here, operator, moves)
        elif registration.opaque:
            self._run_opaque(here, operator)
        else:
            self._compute(here, operator, self._overlaps.get(name, registration.overlap))
        for place in scratch:
            for tensor in operator.outputs or ():
                if place.meets(self._places.get((here[0], tensor), NO_PLACE)):
                    self._lose((here[0], tensor), None, here, here)

    def _compute(self, here: TensorKey, operator: Operator, overlap: Overlap | None) -> None:
        """The inputs are read, and variables and outputs written."""
        self._look_at_inputs(here, operator)
        self._look_at_overlaps(here, operator, overlap)
        tables = self._subgraphs[here[0]].tensors or []
        for tensor in operator.inputs or ():
            if tensor >= 0 and tables[tensor].is_variable:
                self._make((here[0], tensor), here)
        for tensor in operator.outputs or ():
            self._make((here[0], tensor), here)

    def _run_opaque(self, here: TensorKey, operator: Operator) -> None:
        """The operator's results may overlap its own tensors, and may leave them unchanged."""
        self._look_at_inputs(here, operator)
        own = {
            piece.value
            for tensor in (*(operator.inputs or ()), *(operator.outputs or ()))
            for piece in self._contents.get((here[0], tensor), ())
        }
        for tensor in operator.outputs or ():
            key = here[0], tensor
            value = next(self._values)
            self._contents[key] = (ValueBytes(value, 0, self._bytes(key)),)
            own.add(value)
            place = self._places.get(key)
            if place is None:
                continue
            for begin, end, label in list(self._memory.read(place.offset, place.end)):
                kept = tuple(pair for pair in label.values if pair[0] in own)
                self._memory.write(begin, end, Label(((value, place.offset), *kept), key, here))

    def _run_moves(self, here: TensorKey, operator: Operator, moves: Sequence[Move]) -> None:
        made: dict[TensorKey, list[ValueBytes]] = {}
        for move in moves:
            source = here[0], (operator.inputs or ())[move.input]
            target = here[0], (operator.outputs or ())[move.output]
            made.setdefault(target, []).extend(self._move(here, source, target, move))
        for key, pieces in made.items():
            self._contents[key] = tuple(pieces)

    def _move(self, here: TensorKey, source: TensorKey, target: TensorKey, move: Move) -> list[ValueBytes]:
        """Check the labels of the bytes to be moved, and label their target; returns the values."""
        self._look(source, here, move.source, move.source + move.size)
        pieces = part_of(self._content(source), move.source, move.size)
        place, from_place = self._places.get(target), self._places.get(source)
        if place is None:
            return pieces
        at = place.offset + move.target
        if from_place is not None:
            begin = from_place.offset + move.source
            is_safe = at == begin or (move.ascending and at < begin) or (source, target) in self._overlapping_moves
            if not is_safe and Place(at, move.size).meets(Place(begin, move.size)):
                self._lose(source, target, here, here)
        for piece in pieces:
            label = Label(((piece.value, at - piece.start),), target, here)
            for begin, end, old in list(self._memory.read(at, at + piece.bytes)):
                if label.values[0] not in old.values:
                    self._memory.write(begin, end, label)
            at += piece.bytes
        return pieces

    def _look_at_inputs(self, here: TensorKey, operator: Operator) -> None:
        for tensor in operator.inputs or ():
            if tensor >= 0:
                self._look((here[0], tensor), here)

    def _look_at_overlaps(self, here: TensorKey, operator: Operator, overlap: Overlap | None) -> None:
        """Find outputs that overlap inputs that the operator may not have read yet."""
        inputs = [(i, (here[0], tensor)) for i, tensor in enumerate(operator.inputs or ())]
        placed = [(i, key, self._places[key]) for i, key in inputs if key in self._places]
        for tensor in operator.outputs or ():
            key = here[0], tensor
            place = self._places.get(key)
            if place is None:
                continue
            for i, input, from_place in placed:
                if not place.meets(from_place):
                    continue
                allowed = overlap(self._facts(here, operator), i) if overlap is not None else NOWHERE
                if from_place.offset - place.offset not in allowed:
                    self._lose(input, key, here, here)

    # Operators that run subgraphs, after they copied the tensors one by one.

    def _run_if(self, here: TensorKey, operator: Operator, options: IfOptions) -> Iterator[LostValue]:
        inputs, outputs = (self._keys(here[0], side) for side in (operator.inputs, operator.outputs))
        for condition in inputs[:1]:
            self._look(condition, here)
        before, contents, after = self._memory, self._contents, None
        values = [next(self._values) for _ in outputs]
        lasting = {key: next(self._values) for key in self._lasting()}
        for branch in (options.then_subgraph_index, options.else_subgraph_index):
            self._memory, self._contents = before.copy(), dict(contents)
            yield from self._call(here, branch, inputs[1:])
            for result, key, value in zip(self._keys(branch, self._subgraphs[branch].outputs), outputs, values):
                self._copy(here, result, key)
                self._make(key, here, value)
            for key, value in lasting.items():  # as the branch left it
                self._look(key, here)
                self._make(key, here, value)
            if after is not None:
                self._memory.meet(after)
            after = self._memory

    def _run_while(self, here: TensorKey, operator: Operator, options: WhileOptions) -> Iterator[LostValue]:
        condition, body = options.cond_subgraph_index, options.body_subgraph_index
        inputs, outputs = (self._keys(here[0], side) for side in (operator.inputs, operator.outputs))
        self._copy_all(here, inputs, self._keys(condition, self._subgraphs[condition].inputs))
        self._copy_all(here, inputs, outputs)
        yield from self._run(condition)
        self._look_at_condition(here, condition)
        yield from self._call(here, body, outputs)
        self._copy_all(here, self._keys(body, self._subgraphs[body].outputs), outputs)
        for key in outputs:
            self._make(key, here)
        yield from self._call(here, condition, outputs)
        self._look_at_condition(here, condition)
        for key in outputs:  # the next iteration starts with them
            self._look(key, here)

    def _look_at_condition(self, here: TensorKey, condition: int) -> None:
        for key in self._keys(condition, self._subgraphs[condition].outputs)[:1]:
            self._look(key, here)

    def _call(self, here: TensorKey, subgraph: int, inputs: Sequence[TensorKey]) -> Iterator[LostValue]:
        self._copy_all(here, inputs, self._keys(subgraph, self._subgraphs[subgraph].inputs))
        yield from self._run(subgraph)

    def _copy_all(self, here: TensorKey, sources: Sequence[TensorKey], targets: Sequence[TensorKey]) -> None:
        for source, target in zip(sources, targets):
            self._copy(here, source, target)

    def _copy(self, here: TensorKey, source: TensorKey, target: TensorKey) -> None:
        size = min(self._bytes(source), self._bytes(target))
        self._contents[target] = tuple(self._move(here, source, target, Move(0, 0, 0, 0, size)))

    # Values and their labels.

    def _make(self, key: TensorKey, operator: TensorKey | None, value: int | None = None) -> None:
        """Write a new value to a tensor."""
        value = next(self._values) if value is None else value
        self._contents[key] = (ValueBytes(value, 0, self._bytes(key)),)
        place = self._places.get(key)
        if place is not None:
            self._memory.write(place.offset, place.end, Label(((value, place.offset),), key, operator))

    def _look(self, key: TensorKey, reader: TensorKey | None, begin: int = 0, end: int | None = None) -> None:
        """Record a loss if the bytes of a tensor from `begin` to `end` do not hold the value written to it."""
        place, content = self._places.get(key), self._contents.get(key)
        if place is None or content is None:
            return
        at = place.offset + begin
        for piece in part_of(content, begin, (place.bytes if end is None else end) - begin):
            wanted = piece.value, at - piece.start
            for _, _, label in self._memory.read(at, at + piece.bytes):
                if wanted not in label.values:
                    self._lose(key, label.tensor, label.operator, reader)
                    return
            at += piece.bytes

    def _lose(
        self, key: TensorKey, writer: TensorKey | None, operator: TensorKey | None, reader: TensorKey | None
    ) -> None:
        written = "a scratch buffer" if writer is None else self._tensor(writer)
        self._lost.append(LostValue(self._tensor(key), written, self._operator(operator), self._operator(reader)))

    def _content(self, key: TensorKey) -> tuple[ValueBytes, ...]:
        """The contents of a tensor; constants and unwritten tensors are separate values."""
        if key not in self._contents:
            self._contents[key] = (ValueBytes(next(self._values), 0, self._bytes(key)),)
        return self._contents[key]

    # Facts from the model.

    def _name_and_registration(self, code_index: int) -> tuple[str, Registration]:
        name = code_name((self._model.operator_codes or [])[code_index])
        return name, self._registrations.get(name, OPAQUE)

    def _facts(self, here: TensorKey, operator: Operator) -> OperatorFacts:
        return OperatorFacts.of(self._model, self._subgraphs[here[0]], operator)

    def _bytes(self, key: TensorKey) -> int:
        place = self._places.get(key)
        if place is not None:
            return place.bytes
        tensor = (self._subgraphs[key[0]].tensors or [])[key[1]]
        return TensorFacts(tensor.type, tensor.shape or ()).bytes

    def _keys(self, subgraph: int, tensors: Sequence[int] | None) -> list[TensorKey]:
        return [(subgraph, tensor) for tensor in tensors or ()]

    def _tensor(self, key: TensorKey) -> str:
        name = (self._subgraphs[key[0]].tensors or [])[key[1]].name or ""
        where = f" of subgraph {key[0]}" if key[0] else ""
        return f"tensor {key[1]}{where} ({name!r})"

    def _operator(self, here: TensorKey | None) -> str:
        if here is None:
            return "the caller"
        operator = (self._subgraphs[here[0]].operators or [])[here[1]]
        where = f" of subgraph {here[0]}" if here[0] else ""
        return f"operator {here[1]}{where} {self._codes[operator.opcode_index][0]}"
