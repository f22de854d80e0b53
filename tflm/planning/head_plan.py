"""Plans a model's head for devices that place the scratch buffers themselves."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import NamedTuple

from tflm.kernels import OPAQUE, REGISTRATIONS
from tflm.kernels.overlap import FAR, NOWHERE, OperatorFacts
from tflm.libraries.kernel_library import AllowedOverlap, reference_overlap
from tflm.memory import ARENA_ALIGNMENT, lower_bound_bytes, plan_bytes
from tflm.memory.buffer import ONLINE_PLANNED_BUFFER, Buffer
from tflm.memory.plan_search import LARGEST_NUMBER_OF_PAIRS
from tflm.memory.planner import MemoryPlanner, ask_planner, limited_search, tell_planner
from tflm.memory.planners import place_greedily
from tflm.planning.bars import ROUNDS_PER_BODY, BodyMember, BodyPlacement, Trailing
from tflm.planning.views import Body, Piece, Views, last_steps, overwritten_inputs, peak_alive
from tflm.schema.model import Model
from tflm.targets import align_up


class TimeBudget:
    """Divides a time limit among stages: each gets an equal share of the time that is left.

    Args:
        planner: its time limit, if any, applies to all stages together, from now on.
        stages: number of stages.
    """

    def __init__(self, planner: MemoryPlanner, stages: int):
        self._search = limited_search(planner)
        seconds = None if self._search is None else self._search.time_limit
        self._end = None if seconds is None else time.monotonic() + seconds
        self._stages = stages

    def share(self) -> float | None:
        """The seconds of the next stage; None without a limit."""
        self._stages, stages = self._stages - 1, self._stages
        return None if self._end is None else max(0.0, self._end - time.monotonic()) / stages

    def next_stage(self) -> AbstractContextManager[None]:
        """Set the planner's time limit to the share of the next stage."""
        seconds = self.share()
        return nullcontext() if self._search is None else self._search.within(seconds)


class HeadPlan(NamedTuple):
    """A plan of the head; see `ModelPlan`."""

    offsets: list[int]
    head_bytes: int
    lower_bound_bytes: int
    proved_optimal: bool
    overwritten: dict[int, int]


class Head:
    """The buffers to place in a model's head.

    Args:
        model: the model, with its operators in the order in which they will run.
        buffers: those of its tensors, subgraph after subgraph, then the scratch buffers.
        elsewhere: the same for other targets that the plan must hold for; their tensors are the same.
        allowed: the in-place outputs that the kernels allow.
    """

    def __init__(
        self,
        model: Model,
        buffers: Sequence[Buffer],
        elsewhere: Sequence[Sequence[Buffer]] = (),
        allowed: AllowedOverlap = reference_overlap,
    ):
        self.model = model
        self._allowed = allowed
        self._tensor_count = sum(len(subgraph.tensors or ()) for subgraph in model.subgraphs)
        self._buffers = {buffer.tensor: buffer for buffer in buffers if buffer.tensor is not None}
        self._tensors = {index: _unplaced(buffer) for index, buffer in self._buffers.items()}
        self._scratch = [
            [_unplaced(buffer) for buffer in of_part if buffer.kind == "scratch"] for of_part in (buffers, *elsewhere)
        ]
        self._blocks = _largest_blocks(map(_scratch_blocks, self._scratch))

    def tensor_bytes(self) -> dict[int, int]:
        """Sizes of the first subgraph's tensors, by index."""
        return {index: align_up(buffer.size, ARENA_ALIGNMENT) for index, buffer in self._main_buffers().items()}

    def scratch_bytes(self) -> dict[int, int]:
        """Total size of each operator's scratch buffers, for a model without control flow."""
        return {block.first_use - 1: block.size for block in self._blocks}

    def planned(
        self,
        planner: MemoryPlanner,
        in_place: bool,
        views: bool = False,
        view_alignment: int = 1,
        overlap: bool = False,
    ) -> HeadPlan:
        """The best plan; `in_place` and `views` never make it larger. A planner's time limit covers all attempts
        together."""
        overwritten = overwritten_inputs(self.model, self._main_buffers(), self._allowed) if in_place else {}
        budget = TimeBudget(planner, stages=1 + bool(overwritten) + views)
        with_views = self.planned_with_views((), budget.share(), view_alignment, overlap=overlap) if views else None
        best = self._planned_unaliased(planner, overwritten, budget)
        return min((best, with_views or best), key=lambda plan: plan.head_bytes)

    def _planned_unaliased(
        self, planner: MemoryPlanner, overwritten: Mapping[int, int], budget: TimeBudget
    ) -> HeadPlan:
        with budget.next_stage():
            best = self._planned(planner, overwritten)
        if overwritten and best.head_bytes > lower_bound_bytes([*self._tensors.values(), *self._blocks]):
            with budget.next_stage():
                best = min(best, self._planned(planner, {}), key=lambda plan: plan.head_bytes)
        return best

    def planned_with_views(
        self,
        unaliased: Collection[str] = (),
        seconds: float | None = None,
        alignment: int = 1,
        rounds: int = ROUNDS_PER_BODY,
        overlap: bool = False,
    ) -> HeadPlan | None:
        """A plan in which tensors are views of others; see `Views`. None if there are no views, or too many.

        With `overlap`, outputs may overlap inputs as far as the kernels allow.
        """
        views = Views(self.model, self._main_buffers(), unaliased=unaliased, alignment=alignment)
        main = views.bodies()
        if not overlap and all(len(body.offsets) == 1 for body in main):
            return None
        if sum(len(body.pieces) for body in main) ** 2 > LARGEST_NUMBER_OF_PAIRS:
            return None
        called = [i for i in self._tensors if i not in self._main_buffers()]
        bodies = [*main, *(_body({i: 0}, self._tensors) for i in called)]
        scratch = [_scratch_body(block) for block in self._blocks]
        on_device = [_body(body.offsets, self._tensors) for body in bodies]
        bound = peak_alive([*bodies, *scratch])
        trailing = self._trailing(bodies) if overlap else []
        if trailing:
            bound = max(align_up(body.bytes, ARENA_ALIGNMENT) for body in bodies)
        placed = BodyPlacement(bodies, scratch, on_device, trailing).search(bound, seconds, rounds)
        offsets = [ONLINE_PLANNED_BUFFER] * self._tensor_count
        for body, at in zip(bodies, placed):
            for tensor, offset in body.offsets.items():
                offsets[tensor] = at + offset
        head = self._bytes_on_device(offsets)
        return HeadPlan(offsets, head, bound, head == bound, {})

    def _trailing(self, bodies: Sequence[Body]) -> list[Trailing]:
        """Outputs of the first subgraph that may overlap an input, with the minimum distance between the two."""
        steps = last_steps(self.model)
        parts = {
            tensor: BodyMember(i, offset, self._buffers[tensor].size)
            for i, body in enumerate(bodies)
            for tensor, offset in body.offsets.items()
        }
        given = set(self.model.subgraphs[0].outputs or ())
        kept = {
            i for i, body in enumerate(bodies) if given & body.offsets.keys()
        }  # the caller reads the outputs at the end
        found = []
        for index, operator in enumerate(self.model.subgraphs[0].operators or ()):
            registration = REGISTRATIONS.get(self.model.operator_name(operator), OPAQUE)
            inputs, outputs = operator.inputs or (), operator.outputs or ()
            if len(outputs) != 1 or outputs[0] not in parts:
                continue
            facts = OperatorFacts.of(self.model.root, self.model.subgraphs[0], operator)
            for i, tensor in enumerate(inputs):
                once = inputs.count(tensor) == 1 and tensor in parts and parts[tensor].body not in kept
                allowed = self._allowed(registration, facts, i) if once else NOWHERE
                if allowed.stop >= FAR:
                    found.append(Trailing(steps[index], parts[tensor], parts[outputs[0]], (allowed,)))
        return found

    def left_to_greedy(self) -> HeadPlan:
        """The plan without offsets, which leaves placement to TFLM's greedy planner."""
        offsets = [ONLINE_PLANNED_BUFFER] * self._tensor_count
        head, bound = self._bytes_on_device(offsets), lower_bound_bytes([*self._tensors.values(), *self._blocks])
        return HeadPlan(offsets, head, bound, head == bound, {})

    def _planned(self, planner: MemoryPlanner, overwritten: Mapping[int, int]) -> HeadPlan:
        groups = self._groups(overwritten)
        problem = [*(_in_one_place([self._tensors[i] for i in group]) for group in groups), *self._blocks]
        placed = _place(planner, problem)
        offsets = [ONLINE_PLANNED_BUFFER] * self._tensor_count
        for group, offset in zip(groups, placed):
            for index in group:
                offsets[index] = offset
        head, bound = self._bytes_on_device(offsets), lower_bound_bytes(problem)
        one_each = [len(scratch) for scratch in self._scratch] == [len(self._blocks)]
        search = limited_search(planner)
        searched = search is not None and search.proved_optimal and one_each
        return HeadPlan(
            offsets=offsets,
            head_bytes=head,
            lower_bound_bytes=bound,
            proved_optimal=head == bound or (searched and head == plan_bytes(problem, placed)),
            overwritten=dict(overwritten),
        )

    def _bytes_on_device(self, offsets: Sequence[int]) -> int:
        tensors = [replace(tensor, offset=offsets[index]) for index, tensor in self._tensors.items()]
        on_devices = [[*tensors, *scratch] for scratch in self._scratch]
        return max(plan_bytes(buffers, place_greedily(buffers)) for buffers in on_devices)

    def _groups(self, overwritten: Mapping[int, int]) -> list[list[int]]:
        """The groups of tensors that share one place, by index."""
        groups: dict[int, list[int]] = {}
        for index in self._tensors:
            first = index
            while first in overwritten:
                first = overwritten[first]
            groups.setdefault(first, []).append(index)
        return list(groups.values())

    def _main_buffers(self) -> dict[int, Buffer]:
        """The first subgraph's tensors in the head, by index."""
        count = len(self.model.subgraphs[0].tensors or ())
        return {index: buffer for index, buffer in self._buffers.items() if index < count}


def _unplaced(buffer: Buffer) -> Buffer:
    """A buffer for the planner, without an offset."""
    return replace(buffer, size=align_up(buffer.size, ARENA_ALIGNMENT), offset=ONLINE_PLANNED_BUFFER)


def _body(offsets: Mapping[int, int], tensors: Mapping[int, Buffer]) -> Body:
    """Tensors that share a place, with the lifetimes that a device assumes."""
    pieces = [
        Piece(offset, offset + tensors[i].size, tensors[i].first_use, tensors[i].last_use)
        for i, offset in offsets.items()
    ]
    return Body(dict(offsets), max(piece.end for piece in pieces), tuple(pieces))


def _scratch_body(block: Buffer) -> Body:
    return Body({}, block.size, (Piece(0, block.size, block.first_use, block.last_use),))


def _in_one_place(buffers: Sequence[Buffer]) -> Buffer:
    """Buffers of the same size whose lifetimes follow each other."""
    first = min(buffer.first_use for buffer in buffers)
    return Buffer(buffers[0].size, first, max(buffer.last_use for buffer in buffers))


def _scratch_blocks(scratch: Sequence[Buffer]) -> list[Buffer]:
    """Merge each operator's scratch buffers into one block.

    A device places them around the tensors in its own order; if one block fits, so do they in any order.
    """
    sizes: dict[tuple[int, int], int] = {}
    for buffer in scratch:
        lifetime = buffer.first_use, buffer.last_use
        sizes[lifetime] = sizes.get(lifetime, 0) + buffer.size
    return [Buffer(size, *lifetime) for lifetime, size in sizes.items()]


def _largest_blocks(of_parts: Iterable[Sequence[Buffer]]) -> list[Buffer]:
    """The largest block of each operator over all targets."""
    largest: dict[tuple[int, int], Buffer] = {}
    for block in itertools.chain.from_iterable(of_parts):
        lifetime = block.first_use, block.last_use
        largest[lifetime] = max(block, largest.get(lifetime, block), key=lambda block: block.size)
    return list(largest.values())


def _place(planner: MemoryPlanner, buffers: Sequence[Buffer]) -> list[int]:
    tell_planner(planner, "init", sys.maxsize)
    for buffer in buffers:
        tell_planner(planner, "add_buffer", *buffer)
    return [ask_planner(planner, "get_offset_for_buffer", i) for i in range(len(buffers))]
