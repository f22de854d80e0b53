"""How large an arena must be, worked out without one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tflm.errors import ArenaExhausted
from tflm.memory import ARENA_ALIGNMENT, Allocation, PlacingPlanner
from tflm.micro_allocator import (
    PLANNER_WORKING_SPACE,
    LoggingMicroAllocator,
    MicroAllocator,
    PlannedBuffer,
    Planner,
    RecordedAllocation,
    RecordedAllocationType,
    RecordingMicroAllocator,
)
from tflm.micro_interpreter import Layout, lay_out
from tflm.micro_op_resolver import MicroMutableOpResolver
from tflm.schema.model import Model
from tflm.targets import HOST, Target, align_up

FIRST_ARENA_BYTES = 1 << 20
LARGEST_ARENA_BYTES = 1 << 32


@dataclass(frozen=True)
class Peak:
    """The step at which most bytes of the head are needed at once.

    Attributes:
        operator: name of the operator that runs then; empty for the step that fills the inputs.
        subgraph_index, operator_index: its place in the model; the index is None where no operator runs.
        step: number of the step, as in the buffers' first and last use.
        bytes: sum of the buffers alive, each rounded up to 16: no plan can make the head smaller.
        buffers: the buffers alive, the largest first.
    """

    operator: str
    subgraph_index: int
    operator_index: int | None
    step: int
    bytes: int
    buffers: list[PlannedBuffer]


@dataclass(frozen=True)
class ArenaMeasurement:
    """What a model needs of an arena on a target, in bytes.

    Attributes:
        target: the machine.
        arena_used_bytes: what the call of that name gives on it, once the model is allocated.
        head_bytes, tail_bytes: its two parts.
        minimum_arena_bytes: the smallest multiple of 16 in which the model can be allocated. It is more than
            `arena_used_bytes` where the most is needed while operators prepare, or while memory is planned.
        records: what the tail is used for, as TFLM's recording allocator counts it on the target.
        temp_bytes: how far temp memory reaches from the start of the arena while operators prepare. The head takes its
            place afterwards.
        buffers: every tensor and scratch buffer in the head.
        steps: the operator that runs at each step, by name; empty where inputs are filled or a subgraph is entered.
        peak: the operator at which memory peaks, and what is alive there.
    """

    target: Target
    arena_used_bytes: int
    head_bytes: int
    tail_bytes: int
    minimum_arena_bytes: int
    temp_bytes: int
    records: dict[RecordedAllocationType, RecordedAllocation]
    buffers: list[PlannedBuffer]
    steps: list[str]
    peak: Peak


def measure_arena(
    model: Model, resolver: MicroMutableOpResolver, *, target: Target = HOST, planner: Planner = "greedy"
) -> ArenaMeasurement:
    """What a model needs of an arena. None is needed to ask: it is laid out in memory that is given back at once.

    Args:
        model, resolver, target, planner: as for `MicroInterpreter`.

    Raises:
        TflmError: the model can't be laid out in an arena of any size.
    """
    size = FIRST_ARENA_BYTES
    while True:
        try:
            with np.errstate(all="ignore"):
                return _measured_in(size, model, resolver, target, planner)
        except ArenaExhausted:
            if size >= LARGEST_ARENA_BYTES:
                raise
            size *= 8


def _measured_in(
    size: int, model: Model, resolver: MicroMutableOpResolver, target: Target, planner: Planner
) -> ArenaMeasurement:
    plain = LoggingMicroAllocator(np.zeros(size, np.uint8), planner, target)
    layout = lay_out(model, resolver, plain)
    head, tail = plain.head_bytes, plain.tail_bytes
    minimum = _minimum_arena_bytes(plain.log, size, _working_bytes(plain, len(layout.planned)))
    recording = RecordingMicroAllocator(np.zeros(size, np.uint8), planner, target)
    lay_out(model, resolver, recording)
    return ArenaMeasurement(
        target=target,
        arena_used_bytes=head + tail,
        head_bytes=head,
        tail_bytes=tail,
        minimum_arena_bytes=minimum,
        temp_bytes=_temp_bytes(plain.log),
        records=recording.records,
        buffers=layout.planned,
        steps=[_operator_at(layout, step) for step in range(len(layout.steps))],
        peak=_peak(layout),
    )


def _working_bytes(allocator: MicroAllocator, buffer_count: int) -> int:
    """Bytes of the arena that the planner's own tables take while it plans."""
    planner = allocator.planner
    return planner.WORKING_BYTES_PER_BUFFER * buffer_count if isinstance(planner, PlacingPlanner) else 0


def _minimum_arena_bytes(log: Sequence[Allocation], size: int, working_bytes: int) -> int:
    """The smallest arena, a multiple of 16, in which the allocations of a log would all have succeeded.

    Offsets in the tail count from its end, whatever the size, so each allocation asks for what then is below it in
    head and temp, and above it in the tail. The planner is given all that is left, but needs only `working_bytes`,
    between borders that are both rounded to the arena's alignment.
    """
    needed = low = high = 0
    for allocation in log:
        if allocation.section == "tail":
            high = size - allocation.offset
        elif allocation.what == PLANNER_WORKING_SPACE:
            needed = max(needed, allocation.offset + working_bytes + align_up(high, ARENA_ALIGNMENT))
        else:
            low = allocation.offset + allocation.size
        needed = max(needed, low + high)
    return align_up(needed, ARENA_ALIGNMENT)


def _temp_bytes(log: Sequence[Allocation]) -> int:
    ends = (a.offset + a.size for a in log if a.section == "temp" and a.what != PLANNER_WORKING_SPACE)
    return max(ends, default=0)


def _operator_at(layout: Layout, step: int) -> str:
    subgraph_index, node_index = layout.steps[step]
    if node_index is None:
        return ""
    node, _ = layout.graph.allocations[subgraph_index].nodes[node_index]
    return node.operator


def _peak(layout: Layout) -> Peak:
    def alive_at(step: int) -> list[PlannedBuffer]:
        return [buffer for buffer in layout.planned if buffer.first_use <= step <= buffer.last_use]

    def aligned_bytes(step: int) -> int:
        return sum(align_up(buffer.bytes, ARENA_ALIGNMENT) for buffer in alive_at(step))

    step = max(range(len(layout.steps)), key=aligned_bytes)
    subgraph_index, node_index = layout.steps[step]
    operator = _operator_at(layout, step)
    buffers = sorted(alive_at(step), key=lambda buffer: -buffer.bytes)
    return Peak(operator, subgraph_index, node_index, step, aligned_bytes(step), buffers)
