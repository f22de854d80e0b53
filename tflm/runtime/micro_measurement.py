"""Computes the arena that a model needs, without an arena."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.libraries import KernelLibrary, Kernels, library_for
from tflm.memory import ARENA_ALIGNMENT, Allocation, Arena
from tflm.memory.buffer import Buffer
from tflm.releases import Releases
from tflm.runtime.delegate import Delegate
from tflm.runtime.growing_arena import in_growing_arena
from tflm.runtime.micro_allocator import PLANNER_WORKING_SPACE, Planner, require_planner
from tflm.runtime.micro_graph import MicroGraph
from tflm.runtime.micro_interpreter import Layout, lay_out
from tflm.runtime.micro_measurement_report import ArenaMeasurement, KernelsRefusal, Peak
from tflm.runtime.micro_op_resolver import AllOpsResolver, MicroMutableOpResolver, require_resolver
from tflm.runtime.recording_micro_allocator import LoggingMicroAllocator, RecordingMicroAllocator
from tflm.schema.model import Model, require_model
from tflm.targets import HOST, Target, align_up, require_target

SEPARATE_ALLOCATORS_BYTES = 1024
"""Upper bound on the bytes that a second allocator's objects add."""


def measure_arena(
    model: Model,
    resolver: MicroMutableOpResolver,
    *,
    target: Target | str = HOST,
    kernels: Kernels = "reference",
    planner: Planner = "greedy",
    delegates: Sequence[Delegate] = (),
    resource_variables: int | None = None,
    decompression_memory: int = 0,
    release: Releases | None = None,
) -> ArenaMeasurement:
    """Measure the arena that a model needs, by laying it out in temporary memory.

    Args:
        model, resolver, target, kernels, planner: as for `MicroInterpreter`.
        delegates: delegates that may claim operators. Only those for hardware of the device affect the arena.
        resource_variables: the firmware's capacity for resource variables; None for the number in the model.
        decompression_memory: bytes of the interpreter's memory for outputs of TFLM_DECODE, outside the arena.
        release: as for `MicroInterpreter`.

    Raises:
        ArgumentError: an argument is invalid, such as a path instead of a model.
        TflmError: the model can't be laid out in an arena of any size.
    """
    require_model(model)
    require_resolver(resolver)
    part = require_target(target)
    library = library_for(kernels, part, release)
    require_planner(planner)

    def measured_in(arena: npt.NDArray[np.uint8]) -> ArenaMeasurement:
        others = [np.zeros(memory.bytes, np.uint8) for memory in getattr(planner, "memories", ())[1:]]
        plain = LoggingMicroAllocator(arena, planner, part, kernels=library, memories=others)
        decompression_arena = Arena(bytearray(decompression_memory)) if decompression_memory else None
        graph = MicroGraph(model, resolver, delegates, library)
        layout = lay_out(graph, plain, decompression_memory=decompression_arena, resource_variables=resource_variables)
        recording = RecordingMicroAllocator(arena, planner, part, kernels=library, memories=others)
        recording.repeat(plain)
        return _measurement(layout, plain, recording)

    with np.errstate(all="ignore"):
        return in_growing_arena(measured_in)


def _measurement(layout: Layout, plain: LoggingMicroAllocator, recording: RecordingMicroAllocator) -> ArenaMeasurement:
    main = layout.graph.model.subgraphs[0]
    return ArenaMeasurement(
        target=plain.target,
        kernels=plain.kernels,
        arena_used_bytes=plain.used_bytes(),
        head_bytes=plain.head_bytes,
        tail_bytes=plain.tail_bytes,
        minimum_arena_bytes=_minimum_arena_bytes(plain.log, plain.arena_bytes, plain.planner_bytes),
        temp_bytes=_temp_bytes(plain.log),
        records=recording.records,
        buffers=layout.planned,
        steps=[_operator_at(layout, step) for step in range(len(layout.steps))],
        places=list(layout.steps),
        peak=_peak(layout),
        npu_bytes=_npu_bytes(layout.graph.model, layout.planned),
        inputs=tuple(main.inputs or ()),
        outputs=tuple(main.outputs or ()),
        recording_tail_bytes=recording.tail_bytes,
    )


@dataclass(frozen=True)
class SeparateArenas:
    """The smallest arenas in which a model can be allocated with its tail in a separate memory, in bytes.

    Attributes:
        head_arena_bytes: the arena for head and temp, which operators work in.
        tail_arena_bytes: the persistent arena.
    """

    head_arena_bytes: int
    tail_arena_bytes: int


def measure_separate_arenas(
    model: Model,
    resolver: MicroMutableOpResolver,
    *,
    target: Target | str = HOST,
    kernels: Kernels = "reference",
    planner: Planner = "greedy",
) -> SeparateArenas:
    """Measure a model with head and tail in separate memories: `MicroAllocator(..., persistent_arena=...)`.

    Args:
        model, resolver, target, kernels, planner: as for `MicroInterpreter`.

    Raises:
        ArgumentError: an argument is invalid.
        TflmError: the model can't be laid out in arenas of any size.
    """
    part = require_target(target)
    library = library_for(kernels, part)
    size = measure_arena(model, resolver, target=part, kernels=library, planner=planner).minimum_arena_bytes
    size += SEPARATE_ALLOCATORS_BYTES
    head, tail = np.zeros(size, np.uint8), np.zeros(size, np.uint8)
    allocator = LoggingMicroAllocator(head, planner, part, kernels=library, persistent_arena=tail)
    with np.errstate(all="ignore"):
        lay_out(MicroGraph(model, resolver, (), library), allocator)
    return SeparateArenas(
        _minimum_arena_bytes(allocator.head_log, size, allocator.planner_bytes),
        _minimum_arena_bytes(allocator.log, size, allocator.planner_bytes),
    )


def _minimum_arena_bytes(log: Sequence[Allocation], size: int, planner_bytes: Sequence[int]) -> int:
    """The smallest arena, a multiple of 16, in which the allocations of a log would all have succeeded.

    Offsets in the tail are relative to its end. An allocation in head or temp therefore needs its own end plus the
    current tail; one in the tail needs the tail including itself plus everything below its `floor`. The planner gets
    all free memory, but needs only its `planner_bytes` between limits rounded to the arena's alignment.
    """
    needed = high = 0
    tables = iter(planner_bytes)
    for allocation in log:
        if allocation.section == "tail":
            high = size - allocation.offset
            needed = max(needed, allocation.floor + high)
        elif allocation.what == PLANNER_WORKING_SPACE:
            needed = max(needed, allocation.offset + next(tables) + align_up(high, ARENA_ALIGNMENT))
        else:
            needed = max(needed, allocation.offset + allocation.size + high)
    return align_up(needed, ARENA_ALIGNMENT)


def _temp_bytes(log: Sequence[Allocation]) -> int:
    ends = (a.offset + a.size for a in log if a.section == "temp" and a.what != PLANNER_WORKING_SPACE)
    return max(ends, default=0)


def _npu_bytes(model: Model, planned: Sequence[Buffer]) -> int:
    """Bytes of the head in the memory of any `ethos-u` operator: the tensors at its inputs 2 and 3."""
    starts = itertools.accumulate((len(subgraph.tensors or ()) for subgraph in model.subgraphs), initial=0)
    scratch = {
        start + tensor
        for start, subgraph in zip(starts, model.subgraphs)
        for operator in subgraph.operators or ()
        if model.operator_name(operator) == "ethos-u"
        for tensor in (operator.inputs or ())[2:4]
    }
    return covered_bytes(buffer for buffer in planned if buffer.tensor in scratch)


def covered_bytes(buffers: Iterable[Buffer], alignment: int = 1) -> int:
    """Bytes of the head that buffers cover, each rounded up; shared bytes count once."""
    total = end = 0
    for offset, stop in sorted((b.offset, b.offset + align_up(b.size, alignment)) for b in buffers):
        total += max(stop - max(offset, end), 0)
        end = max(end, stop)
    return total


def _operator_at(layout: Layout, step: int) -> str:
    subgraph_index, node_index = layout.steps[step]
    if node_index is None:
        return ""
    node, _ = layout.graph.allocations[subgraph_index].nodes[node_index]
    return node.operator


def _peak(layout: Layout) -> Peak:
    """The first step at which live buffers cover the most bytes of the head.

    The sum of sizes is an upper bound, so only few steps are computed exactly: the one with the largest sum, then those
    whose sum exceeds the best result.
    """
    used = [buffer for buffer in layout.planned if buffer.last_use >= 0]
    sums = _alive_bytes(used, len(layout.steps)).tolist()
    step = max(range(len(sums)), key=sums.__getitem__)
    peak_bytes = covered_bytes(_alive_at(used, step), ARENA_ALIGNMENT)
    for at, alive in alive_at_each_step(used, len(sums)):
        if (sums[at], -at) > (peak_bytes, -step):
            covered = covered_bytes(alive, ARENA_ALIGNMENT)
            if (covered, -at) > (peak_bytes, -step):
                step, peak_bytes = at, covered
    subgraph_index, node_index = layout.steps[step]
    largest_first = sorted(_alive_at(used, step), key=lambda buffer: -buffer.size)
    return Peak(_operator_at(layout, step), subgraph_index, node_index, step, peak_bytes, largest_first)


def _alive_at(buffers: Iterable[Buffer], step: int) -> list[Buffer]:
    return [buffer for buffer in buffers if buffer.first_use <= step <= buffer.last_use]


def _alive_bytes(buffers: Sequence[Buffer], step_count: int) -> npt.NDArray[np.int64]:
    """For each step, the sum of the sizes of live buffers, each rounded up."""
    changes = np.zeros(step_count + 1, np.int64)
    sizes = np.asarray([align_up(buffer.size, ARENA_ALIGNMENT) for buffer in buffers], np.int64)
    np.add.at(changes, np.asarray([buffer.first_use for buffer in buffers], np.intp), sizes)
    np.subtract.at(changes, np.asarray([buffer.last_use + 1 for buffer in buffers], np.intp), sizes)
    return np.cumsum(changes[:-1], dtype=np.int64)


def alive_at_each_step(buffers: Sequence[Buffer], step_count: int) -> Iterator[tuple[int, Iterable[Buffer]]]:
    """Yields the live buffers of each step; the list is valid until the next step."""
    alive: dict[int, Buffer] = {}
    begin: list[list[int]] = [[] for _ in range(step_count)]
    end: list[list[int]] = [[] for _ in range(step_count)]
    for i, buffer in enumerate(buffers):
        begin[buffer.first_use].append(i)
        end[buffer.last_use].append(i)
    for step in range(step_count):
        alive.update((i, buffers[i]) for i in begin[step])
        yield step, alive.values()
        for i in end[step]:
            del alive[i]


def arena_with(
    model: Model, target: Target, library: KernelLibrary, *, planner: Planner = "greedy"
) -> ArenaMeasurement | KernelsRefusal:
    """Measure a model with a kernel library, or return why the library cannot run it.

    Raises:
        TflmError: no library can run the model.
    """
    operators = (operator for subgraph in model.subgraphs for operator in subgraph.operators or ())
    lacking = library.lacking(map(model.operator_name, operators))
    if lacking:
        return KernelsRefusal(library, f"lacks {', '.join(lacking)}")
    try:
        return measure_arena(model, AllOpsResolver(), target=target, kernels=library, planner=planner)
    except OperatorError as error:
        return KernelsRefusal(library, str(error))
