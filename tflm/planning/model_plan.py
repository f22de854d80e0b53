"""Finds a small memory plan for a model, and writes it into the model."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import astuple, replace
from typing import Any, NamedTuple, overload

from tflm.errors import ArgumentError
from tflm.libraries import KernelLibrary, Kernels, library_for
from tflm.libraries.kernel_library import AllowedOverlap, overlap_allowed_by
from tflm.memory import PLANNERS, MemoryPlanner
from tflm.memory.planner import limited_search
from tflm.memory.several_memories import Memory
from tflm.planning.head_plan import Head, HeadPlan, TimeBudget
from tflm.planning.improved_model import SeparateMemories
from tflm.planning.memories_plan import MemoriesOptions, MemoriesPlan, plan_in_memories
from tflm.planning.operator_order import OperatorOrder, smaller_order
from tflm.planning.plan_report import ModelPlan
from tflm.releases import Releases
from tflm.runtime.micro_allocator import require_planner
from tflm.runtime.micro_measurement import SeparateArenas, measure_arena, measure_separate_arenas
from tflm.runtime.micro_measurement_report import ArenaMeasurement
from tflm.runtime.micro_op_resolver import AllOpsResolver, MicroMutableOpResolver
from tflm.schema.model import Model, require_model
from tflm.schema.patch import with_data_inside, with_operator_order, with_plan, without_plan
from tflm.schema.tables import offline_offsets
from tflm.targets import HOST, Target, require_target

PLANNERS_WITHOUT_REPORTER = "95761fcfd"
"""Since this commit, TFLM calls a planner of the application with the arguments that `memory_plan.h` has."""


@overload
def plan(
    model: Model,
    resolver: MicroMutableOpResolver | None = None,
    planner: str | MemoryPlanner = "optimal",
    *,
    memories: None = None,
    **options: Any,
) -> ModelPlan: ...


@overload
def plan(
    model: Model,
    resolver: MicroMutableOpResolver | None = None,
    planner: str | MemoryPlanner = "optimal",
    *,
    memories: Sequence[Memory | tuple[Any, ...]],
    **options: Any,
) -> MemoriesPlan: ...


def plan(  # type: ignore[misc]  # the options of the overloads are these
    model: Model,
    resolver: MicroMutableOpResolver | None = None,
    planner: str | MemoryPlanner = "optimal",
    *,
    target: Target | str | Sequence[Target | str] = HOST,
    kernels: Kernels | Sequence[Kernels] = "reference",
    in_place: bool = False,
    reorder: bool = False,
    views: bool = True,
    overlap: str | bool | None = None,
    head_ram: int | None = None,
    tail_ram: int | None = None,
    decompression_memory: int = 0,
    release: Releases | None = None,
    memories: Sequence[Memory | tuple[Any, ...]] | None = None,
) -> ModelPlan | MemoriesPlan:
    """The smallest memory plan for a model that a planner finds.

    The plan has the offset of every tensor in the head. It leaves room for scratch buffers, which the device places
    itself. An existing plan is replaced, except in a model for an Ethos-U, where Vela has compiled its offsets into
    commands.

    Args:
        model: the model to plan.
        resolver: the available operators; by default all of this package.
        planner: a name of `tflm.memory.PLANNERS`, or a planner such as `OptimalPlanner(time_limit=60)`, whose limit
            covers all searches together.
        target: the target whose scratch buffers are planned for, or several: the head then has the size of the
            target with the largest.
        kernels: the kernel library of the firmware, which determines the scratch buffers; or one for each target.
        in_place: let outputs replace inputs that are no longer needed, if the operator is element-wise and the
            kernel library is known to compute in place.
        reorder: also try another order of the operators, and use it if its head is smaller.
        views: let tensors be views of others if an operator only moves bytes: SLICE and SPLIT along the outer
            dimension, CONCATENATION and PACK, whose inputs may lie in the output, and RESHAPE. Only the optimal
            planner supports this; the others plan each tensor separately.
        overlap: True, or the name of the kernel library, to let outputs overlap inputs as far as the loops of the
            firmware's kernels allow; None for no overlap. With other kernels such a plan gives wrong answers.
        head_ram, tail_ram: bytes of the memories of head and tail, if they are separate; the result then has their
            arenas in `separate`. If only one is given, the other memory has any size.
        decompression_memory: bytes of the interpreter's memory for outputs of TFLM_DECODE, which then need no place.
        release: the firmware's TFLM release, as for `MicroInterpreter`.
        memories: several memories, such as `[("SRAM", 200 << 10, 1), ("PSRAM", 4 << 20, 6)]`: name, bytes and the cost
            of a byte that is read or written. The result is then a `MemoriesPlan`, which says where each buffer goes so
            that the traffic costs least; it is not written into the model. Needs the default planner and one target.

    Raises:
        ArgumentError: an argument is invalid, such as a path instead of a model, or an unknown planner.
        ArenaError: the model does not fit `memories`.
        TflmError: the model can't be laid out in an arena, or can't be changed.
    """
    model = with_data_inside(require_model(model))
    require_planner(planner)
    planner = PLANNERS[planner]() if isinstance(planner, str) else planner
    resolver = AllOpsResolver() if resolver is None else resolver
    parts = _parts(target, kernels, release)
    if memories is not None:
        search = limited_search(planner)
        if search is None:
            raise ArgumentError(
                "memories= has a planner of its own; omit planner=, or use an OptimalPlanner for limits"
            )
        overlaps = [require_overlap(overlap, library) for _, library in parts]
        options = MemoriesOptions(search, reorder, in_place or views, any(overlaps), overlap_allowed_by(parts))
        return _in_memories(model, resolver, memories, parts, options)
    overlaps = [require_overlap(overlap, library) for _, library in parts]
    allowed = overlap_allowed_by(parts)

    def measured(model: Model) -> list[ArenaMeasurement]:
        return [
            measure_arena(model, resolver, target=target, kernels=library, decompression_memory=decompression_memory)
            for target, library in parts
        ]

    def with_memories(found: ModelPlan) -> ModelPlan:
        if head_ram is None and tail_ram is None:
            return found
        arenas = (_largest_arenas(each, resolver, parts) for each in (model, found.model))
        return replace(found, separate=SeparateMemories(head_ram, tail_ram, *arenas))

    before = measured(model)
    compiled = _plan_of_npu(model)
    if compiled is not None:
        return with_memories(_kept(model, before, compiled))
    views = views and limited_search(planner) is not None
    alignment = math.lcm(*(library.view_alignment for _, library in parts))
    bare = without_plan(model)
    found = _smallest(
        bare,
        allowed,
        before if bare is model else measured(bare),
        measured,
        planner,
        lambda head: head.planned(planner, in_place, views, alignment, views and all(overlaps)),
        reorder,
    )
    data = with_plan(found.model, found.best.offsets)
    after = measured(Model(data))
    planned = ModelPlan(
        data=data,
        target=parts[0][0],
        head_bytes=found.best.head_bytes,
        greedy_head_bytes=found.greedy_head_bytes,
        lower_bound_bytes=found.best.lower_bound_bytes,
        proved_optimal=found.best.proved_optimal,
        offsets=tuple(found.best.offsets),
        overwritten=found.best.overwritten,
        order=found.order,
        before=_largest(before),
        after=_largest(after),
        after_by_part=tuple(after),
    )
    return with_memories(planned)


def _in_memories(
    model: Model,
    resolver: MicroMutableOpResolver,
    memories: Sequence[Memory | tuple[Any, ...]],
    parts: Sequence[tuple[Target, KernelLibrary]],
    options: MemoriesOptions,
) -> MemoriesPlan:
    if len(parts) > 1:
        raise ArgumentError("memories= is for one target; plan for each target apart")
    release = parts[0][1].release
    if not release.holds(PLANNERS_WITHOUT_REPORTER):
        raise ArgumentError(f"{release.name} does not accept memory_plan.h, which needs TFLM of 2022-09-19 or later")
    if _plan_of_npu(model) is not None:
        raise ArgumentError("the model is compiled for an Ethos-U with its memory plan, which memories= would replace")
    return plan_in_memories(model, resolver, memories, *parts[0], options)


class _Found(NamedTuple):
    """The model of the best plan, its order of operators, and the head size of the greedy planner."""

    model: Model
    best: HeadPlan
    order: OperatorOrder | None
    greedy_head_bytes: int


def _smallest(
    model: Model,
    allowed: AllowedOverlap,
    measurements: Sequence[ArenaMeasurement],
    measured: Callable[[Model], list[ArenaMeasurement]],
    planner: MemoryPlanner,
    search: Callable[[Head], HeadPlan],
    reorder: bool,
) -> _Found:
    """The smallest head among those of the model without a plan, of the reordered model, and of the greedy planner."""
    head = _head_of(model, measurements, allowed)
    budget = TimeBudget(planner, stages=3 if reorder else 1)

    def planned(head: Head) -> HeadPlan:
        with budget.next_stage():
            return search(head)

    best, order = planned(head), None
    if reorder:
        limited = limited_search(planner)
        progress = None if limited is None else limited.progress
        order = smaller_order(model, head.tensor_bytes(), head.scratch_bytes(), budget.share(), progress)
    if order is not None:
        reordered = Model(with_operator_order(model, 0, order.order))
        other = planned(_head_of(reordered, measured(reordered), allowed))
        if other.head_bytes < best.head_bytes:
            model, best = reordered, other
        else:
            order = None
    left_to_greedy = head.left_to_greedy()
    if best.head_bytes > left_to_greedy.head_bytes:
        model, best, order = head.model, left_to_greedy, None
    return _Found(model, best, order, left_to_greedy.head_bytes)


def _head_of(model: Model, measurements: Sequence[ArenaMeasurement], allowed: AllowedOverlap) -> Head:
    first, *elsewhere = (measurement.buffers for measurement in measurements)
    return Head(model, first, elsewhere, allowed)


def _parts(
    target: Target | str | Sequence[Target | str], kernels: Kernels | Sequence[Kernels], release: Releases | None
) -> list[tuple[Target, KernelLibrary]]:
    """The targets of a plan, each with its kernel library."""
    targets: list[Any] = list(target) if isinstance(target, list | tuple) else [target]
    libraries: list[Any] = list(kernels) if isinstance(kernels, list | tuple) else [kernels] * len(targets)
    if not targets or len(libraries) != len(targets):
        count = f"{len(targets)} targets, but {len(libraries)} kernel libraries"
        raise ArgumentError(f"{count}; pass one for each, or one for all")
    parts = map(require_target, targets)
    return [(part, library_for(library, part, release)) for part, library in zip(parts, libraries)]


def _largest(measurements: Sequence[ArenaMeasurement]) -> ArenaMeasurement:
    return max(measurements, key=lambda measurement: measurement.minimum_arena_bytes)


def _largest_arenas(
    model: Model, resolver: MicroMutableOpResolver, parts: Sequence[tuple[Target, KernelLibrary]]
) -> SeparateArenas:
    """Separate arenas of head and tail that are large enough on every target."""
    arenas = [measure_separate_arenas(model, resolver, target=target, kernels=library) for target, library in parts]
    return SeparateArenas(*(max(sizes) for sizes in zip(*map(astuple, arenas))))


def _kept(model: Model, measured: Sequence[ArenaMeasurement], offsets: tuple[int, ...]) -> ModelPlan:
    """The unchanged model, with the plan that it has."""
    largest = _largest(measured)
    return ModelPlan(
        data=bytes(model.data),
        target=measured[0].target,
        head_bytes=largest.head_bytes,
        greedy_head_bytes=largest.head_bytes,
        lower_bound_bytes=largest.peak.bytes,
        proved_optimal=False,
        offsets=offsets,
        overwritten={},
        order=None,
        before=largest,
        after=largest,
        after_by_part=tuple(measured),
    )


def _plan_of_npu(model: Model) -> tuple[int, ...] | None:
    """Vela's plan, which must stay because the compiled commands contain its offsets."""
    names = (model.operator_name(op) for subgraph in model.subgraphs for op in subgraph.operators or ())
    return offline_offsets(model.root) if "ethos-u" in names else None


def require_overlap(overlap: str | bool | None, library: KernelLibrary) -> bool:
    """Check an argument `overlap`: True or the name of the kernel library.

    Raises:
        ArgumentError: it names another library, or the order of the library's loops is unknown.
    """
    if overlap is None or overlap is False:
        return False
    if overlap is not True and overlap not in (library.name, re.split("[:@]", library.name)[0]):
        reason = f"overlap={overlap!r} is for another kernel library than {library.name!r}, which the firmware uses"
        raise ArgumentError(f"{reason}; use overlap={library.name!r}, or kernels={overlap!r} if it has those")
    if library.overlaps is None:
        raise ArgumentError(f"the loop order of {library.name!r} is unknown; omit overlap={overlap!r}")
    return True
