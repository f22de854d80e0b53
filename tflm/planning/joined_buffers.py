"""Tensors that may share bytes: in-place outputs, and tensors joined to one buffer each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tflm.kernels import OPAQUE, REGISTRATIONS
from tflm.kernels.overlap import FAR, OperatorFacts
from tflm.libraries.kernel_library import AllowedOverlap
from tflm.memory.arena import ARENA_ALIGNMENT
from tflm.memory.buffer import Buffer
from tflm.schema.model import Model
from tflm.schema.tables import Operator
from tflm.targets import align_up


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
    model: Model,
    index: Mapping[int, int],
    buffers: Sequence[Buffer],
    allowed: AllowedOverlap,
    overlap: bool,
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
