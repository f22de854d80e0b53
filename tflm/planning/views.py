"""Tensors that are views of others or may share bytes, and the lifetimes of their byte ranges.

SLICE, SPLIT and UNPACK along the outer dimension, and RESHAPE, output bytes that their input already has; CONCATENATION
and PACK along it join parts that can be computed in place. If a part is at its place in the whole, the operator copies
bytes onto themselves. A range of bytes is then alive from the step that computes its value to the last step that reads
it, under any tensor name.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tflm.kernels import OPAQUE, REGISTRATIONS
from tflm.kernels.overlap import FAR, OperatorFacts
from tflm.libraries.kernel_library import AllowedOverlap
from tflm.memory import ARENA_ALIGNMENT
from tflm.memory.buffer import Buffer, lower_bound_bytes
from tflm.schema.enums import ELEMENT_TYPES
from tflm.schema.model import Model
from tflm.schema.tables import Operator, called_subgraphs
from tflm.targets import align_up

LARGEST_BODY = 512
"""Maximum number of tensors that are grouped."""


class View(NamedTuple):
    """A tensor whose bytes are those of another one from `offset` on; `read` is the tensor that the operator reads."""

    part: int
    whole: int
    offset: int
    read: int


class Piece(NamedTuple):
    """A range of bytes that is needed at the steps from `first` to `last`, both included."""

    begin: int
    end: int
    first: int
    last: int


class Body(NamedTuple):
    """Tensors with fixed offsets relative to each other.

    Attributes:
        offsets: offset of each tensor from the start of the body.
        bytes: size of the body.
        pieces: its byte ranges with their lifetimes.
    """

    offsets: dict[int, int]
    bytes: int
    pieces: tuple[Piece, ...]


class _Held(NamedTuple):
    """Bytes of a tensor from `begin` on: the value computed in the tensor `source`, at its offset `place`."""

    begin: int
    bytes: int
    source: int
    place: int


def views_in(model: Model, operator: Operator) -> list[View]:
    """The parts and wholes among the tensors of an operator of the first subgraph, if it only moves bytes."""
    registration = REGISTRATIONS.get(model.operator_name(operator))
    if registration is None or registration.moves is None:
        return []
    facts = OperatorFacts.of(model.root, model.subgraphs[0], operator)
    inputs, outputs = operator.inputs or (), operator.outputs or ()
    found = []
    for move in registration.moves(facts) or ():
        source, target = inputs[move.input], outputs[move.output]
        read, made = facts.inputs[move.input], facts.outputs[move.output]
        if move.target == 0 and move.size == made.bytes:
            found.append(View(target, source, move.source, source))
        elif move.source == 0 and read is not None and move.size == read.bytes:
            found.append(View(source, target, move.target, source))
    return found


def tensor_bytes(model: Model, tensor: int) -> int:
    """Bytes of a tensor of the first subgraph in the arena."""
    table = (model.subgraphs[0].tensors or [])[tensor]
    return int(np.prod(table.shape or (), dtype=np.int64)) * ELEMENT_TYPES[table.type].dtype.itemsize


class Views:
    """Groups tensors that may lie inside each other.

    Args:
        model: the model.
        buffers: those of the first subgraph's tensors that are in the head, by index.
        unaliased: names of operators whose inputs and outputs must not share memory.
        alignment: alignment of every part, in bytes.
    """

    def __init__(
        self, model: Model, buffers: Mapping[int, Buffer], *, unaliased: Collection[str] = (), alignment: int = 1
    ):
        self._buffers = buffers
        operators = model.subgraphs[0].operators or []
        parts = {i: views_in(model, operator) for i, operator in enumerate(operators)}
        self._held = _held_values(model, parts)
        self._steps = last_steps(model)
        self._reads = _reads(operators, parts)
        self._outputs = set(model.subgraphs[0].outputs or ())
        self._members: dict[int, dict[int, int]] = {tensor: {tensor: 0} for tensor in buffers}
        self._body_of = {tensor: tensor for tensor in buffers}
        # Joins come first: if a copy remains, it is cheapest at a small part.
        for index in sorted(parts, key=lambda index: not any(part.read == part.part for part in parts[index])):
            for part in parts[index] if model.operator_name(operators[index]) not in unaliased else ():
                if part.part in buffers and part.whole in buffers and part.offset % alignment == 0:
                    self._join(index, part)

    def bodies(self) -> list[Body]:
        """The groups, with the lifetimes of their bytes."""
        return [self._body(members) for members in self._members.values()]

    def _join(self, index: int, part: View) -> None:
        """Place a part inside its whole if no value is lost; the operator then no longer reads the bytes."""
        body, other = self._body_of[part.part], self._body_of[part.whole]
        members, others = self._members[body], self._members[other]
        move = others[part.whole] + part.offset - members[part.part]
        if body == other and move != 0:
            return
        joined = others | {tensor: offset + move for tensor, offset in members.items()}
        self._reads[part.read][index] -= 1
        if len(joined) > LARGEST_BODY or self._pieces(joined) is None:
            self._reads[part.read][index] += 1
        elif body != other:
            del self._members[body]
            self._members[other] = joined
            self._body_of.update(dict.fromkeys(members, other))

    def _body(self, members: Mapping[int, int]) -> Body:
        lowest = min(members.values())
        offsets = {tensor: offset - lowest for tensor, offset in members.items()}
        size = max(offset + self._buffers[tensor].size for tensor, offset in offsets.items())
        if len(members) == 1:
            ((tensor, _),) = members.items()
            return Body(offsets, size, (Piece(0, size, *_lifetime(self._buffers[tensor])),))
        pieces = self._pieces(offsets)
        assert pieces is not None
        return Body(offsets, size, tuple(pieces))

    def _pieces(self, members: Mapping[int, int]) -> list[Piece] | None:
        """The lifetimes of a group's bytes; None if two live values would share bytes."""
        held = [
            (offset + value.begin, offset + value.begin + value.bytes, tensor, value.source, value.place - value.begin)
            for tensor, offset in members.items()
            for value in self._held[tensor]
        ]
        borders = sorted({border for begin, end, *_ in held for border in (begin, end)})
        place = {border: i for i, border in enumerate(borders)}
        values: list[dict[tuple[int, int], tuple[int, int]]] = [{} for _ in borders]
        needed = {tensor: self._needed(tensor) for tensor in members}
        for begin, end, tensor, source, shift in held:
            key, (first, last) = (source, shift - members[tensor]), needed[tensor]
            for i in range(place[begin], place[end]):
                before = values[i].get(key, (first, last))
                values[i][key] = min(before[0], first), max(before[1], last)
        pieces: list[Piece] = []
        for i, of_value in enumerate(values):
            times = sorted(of_value.values())
            if any(last >= first for (_, last), (first, _) in itertools.pairwise(times)):
                return None
            pieces += [Piece(borders[i], borders[i + 1], *time) for time in times]
        return merged(pieces)

    def _needed(self, tensor: int) -> tuple[int, int]:
        """The first step at which a tensor owns its bytes, and the last at which they are read."""
        first, last = _lifetime(self._buffers[tensor])
        if tensor in self._outputs:
            return first, last
        readers = (self._steps[index] for index, count in self._reads.get(tensor, {}).items() if count > 0)
        return first, max(readers, default=first)


def peak_alive(bodies: Sequence[Body]) -> int:
    """Maximum bytes that are needed at one step, each piece as large as it is."""
    pieces = ((end - begin, first, last) for body in bodies for begin, end, first, last in body.pieces)
    return align_up(lower_bound_bytes(pieces), ARENA_ALIGNMENT)


def _lifetime(buffer: Buffer) -> tuple[int, int]:
    first, last = buffer.first_use, buffer.last_use
    return min(first, last), max(first, last)


def merged(pieces: list[Piece]) -> list[Piece]:
    """The same, where neighbours that are needed at the same steps are one."""
    joined: list[Piece] = []
    for piece in sorted(pieces, key=lambda piece: (piece.first, piece.last, piece.begin)):
        before = joined[-1] if joined else None
        if before is not None and (before.first, before.last, before.end) == (piece.first, piece.last, piece.begin):
            joined[-1] = before._replace(end=piece.end)
        else:
            joined.append(piece)
    return joined


def _held_values(model: Model, parts: Mapping[int, Sequence[View]]) -> dict[int, list[_Held]]:
    """The values that each tensor of the first subgraph holds."""
    held = {i: [_Held(0, tensor_bytes(model, i), i, 0)] for i in range(len(model.subgraphs[0].tensors or ()))}
    for found in parts.values():
        for part, whole, offset, read in found:
            if read == whole:
                held[part] = _cut(held[whole], offset, tensor_bytes(model, part))
        joined = {part.whole for part in found if part.read == part.part and part.part != part.whole}
        for whole in joined:
            held[whole] = [
                value._replace(begin=value.begin + part.offset) for part in found for value in held[part.part]
            ]
    return held


def _cut(values: Sequence[_Held], begin: int, size: int) -> list[_Held]:
    """Values in some bytes of a tensor."""
    found = []
    for value in values:
        first, end = max(value.begin, begin), min(value.begin + value.bytes, begin + size)
        if first < end:
            found.append(_Held(first - begin, end - first, value.source, value.place + first - value.begin))
    return found


def _reads(operators: Sequence[Operator], parts: Mapping[int, Sequence[View]]) -> dict[int, dict[int, int]]:
    """For each tensor, the operators that read it, and how many times."""
    reads: dict[int, dict[int, int]] = {}
    for i, operator in enumerate(operators):
        for tensor in operator.inputs or ():
            count = sum(part.read == tensor for part in parts[i])
            reads.setdefault(tensor, {})[i] = max(count, 1)
    return reads


def last_steps(model: Model) -> list[int]:
    """For each operator of the first subgraph, its last step."""
    steps: list[int] = []

    def walk(index: int, step: int) -> int:
        for operator in model.subgraphs[index].operators or ():
            step += 1
            for called in called_subgraphs(operator):
                step = walk(called, step + 1)
            if index == 0:
                steps.append(step)
        return step

    walk(0, 0)
    return steps


def overwritten_inputs(model: Model, buffers: Mapping[int, Buffer], allowed: AllowedOverlap) -> dict[int, int]:
    """For each output that may be computed in place, the input: it has the output's size, and this is its last read.

    Only tensors of the first subgraph, by index. No input is assigned to two outputs.

    Args:
        buffers: those of the subgraph's tensors that are in the head.
        allowed: the in-place outputs that the kernels allow.
    """
    overwritten: dict[int, int] = {}
    kept = set(model.subgraphs[0].outputs or ())
    for operator in model.subgraphs[0].operators or ():
        for tensor in replaceable_inputs(model, operator, allowed):
            (output,) = operator.outputs or ()
            if tensor in kept or tensor not in buffers or output not in buffers:
                continue
            before, after = buffers[tensor], buffers[output]
            if before.size == after.size and before.last_use == after.first_use:
                overwritten[output] = tensor
                break
    return overwritten


def replaceable_inputs(model: Model, operator: Operator, allowed: AllowedOverlap) -> list[int]:
    """The inputs that an operator of the first subgraph can replace by its single output, if the sizes match."""
    registration = REGISTRATIONS.get(model.operator_name(operator), OPAQUE)
    if len(operator.outputs or ()) != 1:
        return []
    facts = OperatorFacts.of(model.root, model.subgraphs[0], operator)
    moves = registration.moves(facts) if registration.moves is not None else None
    if moves is not None:
        replaceable = [moves[0].input] if len(moves) == 1 and moves[0].source == 0 else []
    else:
        given = [i for i, input in enumerate(facts.inputs) if input is not None]
        replaceable = [i for i in given if 0 in allowed(registration, facts, i)]
    return [(operator.inputs or ())[i] for i in replaceable]


class _Shared(NamedTuple):
    """An output that may share bytes with an input, and the distance of the input after the output's start."""

    output: int
    input: int
    distance: int


def joined_buffers(
    model: Model, buffers: Sequence[Buffer], allowed: AllowedOverlap, overlap: bool
) -> list[dict[int, int]]:
    """Groups of buffers, by index, each with its offset in the group; most groups have one.

    An output joins an input that it may replace, or with `overlap` reach into, if the two then take fewer bytes
    over all steps. Buffers of a group that are alive together do not share bytes otherwise.

    Args:
        buffers: those of the tensors, then the scratch buffers.
        allowed: the in-place outputs and overlaps that the kernels allow.
    """
    group_of = [{i: 0} for i in range(len(buffers))]
    index = {buffer.tensor: i for i, buffer in enumerate(buffers) if buffer.tensor is not None}
    for shared in _shared(model, index, buffers, allowed, overlap):
        first, second = group_of[shared.output], group_of[shared.input]
        if first is second:
            continue
        shift = first[shared.output] + shared.distance - second[shared.input]
        moved = {i: offset + shift for i, offset in second.items()}
        lowest = min(*first.values(), *moved.values())
        joined = {i: offset - lowest for i, offset in (first | moved).items()}
        if _is_free(buffers, first, moved, shared) and _area(buffers, joined) < sum(
            _area(buffers, each) for each in (first, second)
        ):
            for i in joined:
                group_of[i] = joined
    return list({id(group): group for group in group_of}.values())


def joined(buffers: Sequence[Buffer], group: Mapping[int, int]) -> Buffer:
    """A buffer as large as a group, from its first step to its last, with the name of the largest."""
    members = [buffers[i] for i in group]
    return Buffer(
        max(offset + buffers[i].size for i, offset in group.items()),
        min(buffer.first_use for buffer in members),
        max(buffer.last_use for buffer in members),
        name=max(members, key=lambda buffer: buffer.size).name,
    )


def _area(buffers: Sequence[Buffer], group: Mapping[int, int]) -> int:
    whole = joined(buffers, group)
    return whole.size * (whole.last_use - whole.first_use + 1)


def _is_free(buffers: Sequence[Buffer], first: Mapping[int, int], second: Mapping[int, int], shared: _Shared) -> bool:
    """Whether no two buffers share bytes while both are alive, except the output and the input at their step."""
    for i, low in first.items():
        for j, other in second.items():
            a, b = buffers[i], buffers[j]
            is_pair = (i, j) == (shared.output, shared.input)
            last = min(a.last_use, b.last_use) - is_pair
            if last >= max(a.first_use, b.first_use) and low < other + b.size and other < low + a.size:
                return False
    return True


def _shared(
    model: Model, index: Mapping[int, int], buffers: Sequence[Buffer], allowed: AllowedOverlap, overlap: bool
) -> Iterator[_Shared]:
    """Outputs of the first subgraph that may share bytes with an input whose last reader their operator is."""
    main = model.subgraphs[0]
    kept = {*(main.outputs or ())}
    for operator in main.operators or ():
        outputs, inputs = operator.outputs or (), operator.inputs or ()
        if len(outputs) != 1 or outputs[0] not in index:
            continue
        registration = REGISTRATIONS.get(model.operator_name(operator), OPAQUE)
        replaceable = replaceable_inputs(model, operator, allowed)
        facts = OperatorFacts.of(model.root, main, operator)
        for i, tensor in enumerate(inputs):
            if tensor not in index or tensor in kept or inputs.count(tensor) > 1:
                continue
            after, before = index[outputs[0]], index[tensor]
            if buffers[before].last_use != buffers[after].first_use:
                continue
            if tensor in replaceable and buffers[before].size == buffers[after].size:
                yield _Shared(after, before, 0)
                break
            distances = allowed(registration, facts, i) if overlap else range(0)
            if distances.stop >= FAR:
                nearest = max(distances.start, buffers[after].size - buffers[before].size, 0)
                yield _Shared(after, before, align_up(nearest, ARENA_ALIGNMENT))
