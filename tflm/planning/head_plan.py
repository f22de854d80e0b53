"""Plans the head of a model for a device that places the scratch buffers itself."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tflm.memory import (
    ARENA_ALIGNMENT,
    BufferRequirements,
    MemoryPlanner,
    OptimalPlanner,
    lower_bound_bytes,
    plan_bytes,
)
from tflm.memory.greedy_memory_planner import place_greedily
from tflm.memory.planner import ONLINE_PLANNED_BUFFER
from tflm.micro_allocator import PlannedBuffer
from tflm.planning.in_place import overwritten_inputs
from tflm.schema.model import Model
from tflm.targets import align_up


class HeadPlan(NamedTuple):
    """A plan of the head; see `ModelPlan`."""

    offsets: list[int]
    head_bytes: int
    lower_bound_bytes: int
    proved_optimal: bool
    overwritten: dict[int, int]


class Head:
    """What has to be placed in the head of a model.

    Args:
        model: the model, with its operators in the order in which they will run.
        buffers: those of its tensors, subgraph after subgraph, then the scratch buffers.
    """

    def __init__(self, model: Model, buffers: Sequence[PlannedBuffer]):
        self.model = model
        self._tensor_count = sum(len(subgraph.tensors or ()) for subgraph in model.subgraphs)
        self._buffers = {buffer.tensor: buffer for buffer in buffers if buffer.tensor is not None}
        self._tensors = {index: _requirements(buffer) for index, buffer in self._buffers.items()}
        self._scratch = [_requirements(buffer) for buffer in buffers if buffer.kind == "scratch"]

    def tensor_bytes(self) -> dict[int, int]:
        """Sizes of the first subgraph's tensors, by index."""
        return {index: align_up(buffer.bytes, ARENA_ALIGNMENT) for index, buffer in self._main_buffers().items()}

    def scratch_bytes(self) -> dict[int, int]:
        """Sizes of the scratch buffers of each operator together, for a model without operators that run others."""
        return {block.first_time_used - 1: block.size for block in _scratch_blocks(self._scratch)}

    def planned(self, planner: MemoryPlanner, in_place: bool) -> HeadPlan:
        """The best plan; with `in_place` it is no larger than without."""
        plain_bound = lower_bound_bytes([*self._tensors.values(), *self._scratch])
        overwritten = overwritten_inputs(self.model, self._main_buffers()) if in_place else {}
        best = self._planned(planner, overwritten)
        if overwritten and best.head_bytes > plain_bound:
            best = min(best, self._planned(planner, {}), key=lambda plan: plan.head_bytes)
        return best

    def left_to_greedy(self) -> HeadPlan:
        """The plan that has no offsets."""
        buffers = [*self._tensors.values(), *self._scratch]
        head, bound = plan_bytes(buffers, place_greedily(buffers)), lower_bound_bytes(buffers)
        return HeadPlan([ONLINE_PLANNED_BUFFER] * self._tensor_count, head, bound, head == bound, {})

    def _planned(self, planner: MemoryPlanner, overwritten: Mapping[int, int]) -> HeadPlan:
        groups = self._groups(overwritten)
        blocks = _scratch_blocks(self._scratch)
        problem = [*(_in_one_place([self._tensors[i] for i in group]) for group in groups), *blocks]
        placed = _place(planner, problem)
        offsets = [ONLINE_PLANNED_BUFFER] * self._tensor_count
        for group, offset in zip(groups, placed):
            for index in group:
                offsets[index] = offset
        tensors = [tensor._replace(offline_offset=offsets[index]) for index, tensor in self._tensors.items()]
        on_device = [*tensors, *self._scratch]
        head, bound = plan_bytes(on_device, place_greedily(on_device)), lower_bound_bytes(problem)
        searched = isinstance(planner, OptimalPlanner) and planner.proved_optimal and len(blocks) == len(self._scratch)
        return HeadPlan(
            offsets=offsets,
            head_bytes=head,
            lower_bound_bytes=bound,
            proved_optimal=head == bound or (searched and head == plan_bytes(problem, placed)),
            overwritten=dict(overwritten),
        )

    def _groups(self, overwritten: Mapping[int, int]) -> list[list[int]]:
        """The tensors that lie in one place, by index."""
        groups: dict[int, list[int]] = {}
        for index in self._tensors:
            first = index
            while first in overwritten:
                first = overwritten[first]
            groups.setdefault(first, []).append(index)
        return list(groups.values())

    def _main_buffers(self) -> dict[int, PlannedBuffer]:
        """The first subgraph's tensors in the head, by index."""
        count = len(self.model.subgraphs[0].tensors or ())
        return {index: buffer for index, buffer in self._buffers.items() if index < count}


def _requirements(buffer: PlannedBuffer) -> BufferRequirements:
    return BufferRequirements(align_up(buffer.bytes, ARENA_ALIGNMENT), buffer.first_use, buffer.last_use)


def _in_one_place(buffers: Sequence[BufferRequirements]) -> BufferRequirements:
    """Buffers of one size of which each begins when another ends."""
    first = min(buffer.first_time_used for buffer in buffers)
    return BufferRequirements(buffers[0].size, first, max(buffer.last_time_used for buffer in buffers))


def _scratch_blocks(scratch: Sequence[BufferRequirements]) -> list[BufferRequirements]:
    """The scratch buffers of each operator as one.

    A device places them around the tensors in an order of its own. Where there is room for all of them in one piece,
    any order finds it.
    """
    sizes: dict[tuple[int, int], int] = {}
    for buffer in scratch:
        lifetime = buffer.first_time_used, buffer.last_time_used
        sizes[lifetime] = sizes.get(lifetime, 0) + buffer.size
    return [BufferRequirements(size, *lifetime) for lifetime, size in sizes.items()]


def _place(planner: MemoryPlanner, buffers: Sequence[BufferRequirements]) -> list[int]:
    planner.init(sys.maxsize)
    for buffer in buffers:
        planner.add_buffer(*buffer)
    return [planner.get_offset_for_buffer(i) for i in range(len(buffers))]
