"""Finds a small memory plan for a model, and writes it into the model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tflm.errors import ArgumentError
from tflm.libraries import REFERENCE, KernelLibrary, Kernels, library_for
from tflm.memory import PLANNERS, MemoryPlanner, OptimalPlanner
from tflm.memory.planner import ONLINE_PLANNED_BUFFER
from tflm.planning.head_plan import Head, HeadPlan
from tflm.planning.improved_model import ImprovedModel
from tflm.planning.operator_order import OperatorOrder, smaller_order
from tflm.planning.time_budget import TimeBudget
from tflm.releases import Releases
from tflm.runtime.micro_allocator import require_planner
from tflm.runtime.micro_measurement import ArenaMeasurement, measure_arena
from tflm.runtime.micro_op_resolver import AllOpsResolver, MicroMutableOpResolver
from tflm.schema.model import Model, require_model
from tflm.schema.offline_plan import METADATA_NAME, encode_offsets, offline_offsets
from tflm.schema.patch import with_data_inside, with_metadata, with_operator_order
from tflm.targets import HOST, Target, require_target


@dataclass(frozen=True)
class ModelPlan(ImprovedModel):
    """A memory plan for a model; sizes in bytes.

    Attributes:
        data: the model with the plan in its metadata. TFLM and this runtime obey it.
        target: the machine that it was made for. On others, scratch buffers may have other sizes, and the head too.
        head_bytes: size of the head with this plan.
        greedy_head_bytes: size of the head that TFLM's own planner makes of the model as it was.
        lower_bound_bytes: the largest sum of buffers that are alive at the same operator, each rounded up to 16: with
            these operators in this order, and these tensors in each other's place, no plan is smaller.
        proved_optimal: whether no plan is smaller than this one, in that sense.
        offsets: of each tensor, subgraph after subgraph; -1 for what has no place in the head, such as constants, and
            for all if no plan was found that is smaller than greedy's.
        overwritten: for each tensor of the first subgraph that lies on an input of its operator, that input.
        order: how the operators of the first subgraph were reordered, or None.
        before, after: what the model needs of an arena as it was, with the plan that it had if any; and with this plan.
            Where the plan is for several machines, on the one that needs the largest.
        after_by_part: what it needs with this plan on each of the machines.
    """

    data: bytes
    target: Target
    head_bytes: int
    greedy_head_bytes: int
    lower_bound_bytes: int
    proved_optimal: bool
    offsets: tuple[int, ...]
    overwritten: dict[int, int]
    order: OperatorOrder | None
    before: ArenaMeasurement
    after: ArenaMeasurement
    after_by_part: tuple[ArenaMeasurement, ...]

    def __repr__(self) -> str:
        head = f"head {self.head_bytes} bytes, greedy {self.greedy_head_bytes}"
        proof = "proved optimal" if self.proved_optimal else f"at least {self.lower_bound_bytes}"
        return f"ModelPlan({head}, {proof}, {self.minimum_arena_bytes} bytes needed on {self.target.name})"

    def _repr_html_(self) -> str:
        from tflm.planning.plan_report import shown  # only notebooks ask
        from tflm.runtime.micro_measurement_report import picture

        drawn = {"previous": self.before, "new": self.after} if self.gains else {"memory": self.after}
        return shown(self).html() + picture(**drawn)

    @property
    def gains(self) -> bool:
        """Whether head or smallest arena are smaller than those of the model as it was."""
        return self.head_bytes < self.before.head_bytes or self.minimum_arena_bytes < self.minimum_arena_bytes_before


def plan(
    model: Model,
    resolver: MicroMutableOpResolver | None = None,
    planner: str | MemoryPlanner = "optimal",
    *,
    target: Target | Sequence[Target] = HOST,
    kernels: Kernels | Sequence[Kernels] = "reference",
    in_place: bool = False,
    reorder: bool = False,
    views: bool = True,
    overlap: str | None = None,
    release: Releases | None = None,
) -> ModelPlan:
    """The smallest memory plan for a model that a planner finds.

    The plan has the offset of every tensor in the head. Scratch buffers can't be part of it: the device places them
    itself, around the tensors; that is foreseen. A plan that the model has already is replaced; only that of a model
    for an Ethos-U stays, for Vela has compiled its offsets into commands.

    Args:
        model: what to plan.
        resolver: the operators that there are; every one of this package, if it is not given.
        planner: a name of `tflm.memory.PLANNERS`, or a planner such as `OptimalPlanner(time_limit=60)`, whose limit is
            one for all searches together.
        target: the machine whose scratch buffers count; or several, for which the plan is to hold: the head is then
            as large as on the one that needs the largest.
        kernels: the kernel library that the firmware is built with, whose scratch buffers they are; or one for each of
            the machines.
        in_place: let outputs take the place of inputs that are not needed any more, where the operator computes each
            element from those at its place. Safe with TFLM's reference kernels and with those of this package.
        reorder: also try another order of the operators, and take it if its head is smaller.
        views: let tensors lie inside others where an operator gives bytes that there are already: SLICE and SPLIT along
            the outer dimension, CONCATENATION and PACK, whose inputs may lie in the output, and RESHAPE. The optimal
            planner does that; the others plan each tensor for itself.
        overlap: the kernel library by whose order of loops the outputs of convolutions may reach into their inputs,
            "reference", if the firmware has that; None for none. With other kernels such a plan gives wrong answers.
        release: the TFLM that the firmware has, as for `MicroInterpreter`.

    Raises:
        ArgumentError: an argument is not what it should be, such as a path for a model; or no planner has that name.
        TflmError: the model can't be laid out in an arena, or not be changed.
    """
    model = with_data_inside(require_model(model))
    require_planner(planner)
    planner = PLANNERS[planner]() if isinstance(planner, str) else planner
    resolver = AllOpsResolver() if resolver is None else resolver
    parts = _parts(target, kernels, release)
    overlaps = [require_overlap(overlap, library) for _, library in parts]

    def measured(model: Model) -> list[ArenaMeasurement]:
        return [measure_arena(model, resolver, target=target, kernels=library) for target, library in parts]

    before = measured(model)
    compiled = _plan_of_npu(model)
    if compiled is not None:
        return _kept(model, before, compiled)
    views = views and isinstance(planner, OptimalPlanner)
    alignment = math.lcm(*(library.view_alignment for _, library in parts))
    bare = _without_plan(model)
    found = _smallest(
        bare,
        before if bare is model else measured(bare),
        measured,
        planner,
        lambda head: head.planned(planner, in_place, views, alignment, views and all(overlaps)),
        reorder,
    )
    data = with_metadata(found.model, METADATA_NAME, encode_offsets(found.best.offsets))
    after = measured(Model(data))
    return ModelPlan(
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


class _Found(NamedTuple):
    """The model that the best plan is of, its operators in an order, and the head that greedy leaves."""

    model: Model
    best: HeadPlan
    order: OperatorOrder | None
    greedy_head_bytes: int


def _smallest(
    model: Model,
    measurements: Sequence[ArenaMeasurement],
    measured: Callable[[Model], list[ArenaMeasurement]],
    planner: MemoryPlanner,
    search: Callable[[Head], HeadPlan],
    reorder: bool,
) -> _Found:
    """The smallest head of those of a model without a plan, of the model in another order, and what greedy makes."""
    head = _head_of(model, measurements)
    budget = TimeBudget(planner, stages=3 if reorder else 1)

    def planned(head: Head) -> HeadPlan:
        with budget.next_stage(planner):
            return search(head)

    best, order = planned(head), None
    if reorder:
        progress = planner.progress if isinstance(planner, OptimalPlanner) else None
        order = smaller_order(model, head.tensor_bytes(), head.scratch_bytes(), budget.share(), progress)
    if order is not None:
        reordered = Model(with_operator_order(model, 0, order.order))
        other = planned(_head_of(reordered, measured(reordered)))
        if other.head_bytes < best.head_bytes:
            model, best = reordered, other
        else:
            order = None
    left_to_greedy = head.left_to_greedy()
    if best.head_bytes > left_to_greedy.head_bytes:
        model, best, order = head.model, left_to_greedy, None
    return _Found(model, best, order, left_to_greedy.head_bytes)


def _head_of(model: Model, measurements: Sequence[ArenaMeasurement]) -> Head:
    first, *elsewhere = (measurement.buffers for measurement in measurements)
    return Head(model, first, elsewhere)


def _parts(
    target: Target | Sequence[Target], kernels: Kernels | Sequence[Kernels], release: Releases | None
) -> list[tuple[Target, KernelLibrary]]:
    """The machines that a plan is for, each with its kernel library."""
    targets: list[Any] = list(target) if isinstance(target, list | tuple) else [target]
    libraries: list[Any] = list(kernels) if isinstance(kernels, list | tuple) else [kernels] * len(targets)
    if not targets or len(libraries) != len(targets):
        count = f"{len(targets)} targets have {len(libraries)} kernel libraries"
        raise ArgumentError(f"{count}; each needs one, or all the same one")
    return [(require_target(part), library_for(library, part, release)) for part, library in zip(targets, libraries)]


def _largest(measurements: Sequence[ArenaMeasurement]) -> ArenaMeasurement:
    return max(measurements, key=lambda measurement: measurement.minimum_arena_bytes)


def _kept(model: Model, measured: Sequence[ArenaMeasurement], offsets: tuple[int, ...]) -> ModelPlan:
    """The model as it is, with the plan that it has."""
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
    """The plan that Vela made, where it is part of what it compiled: its commands have the offsets in them."""
    names = (model.operator_name(op) for subgraph in model.subgraphs for op in subgraph.operators or ())
    return offline_offsets(model.root) if "ethos-u" in names else None


def require_overlap(overlap: str | None, library: KernelLibrary) -> bool:
    """Whether outputs may reach into inputs, as the loops of a library named `overlap` allow it.

    Raises:
        ArgumentError: the firmware has another library; or its order of loops is not known.
    """
    if overlap is None:
        return False
    if overlap != REFERENCE.name or library.name != overlap:
        reason = (
            f"overlap={overlap!r} goes with kernels={REFERENCE.name!r} alone: it is the order of those kernels' loops"
        )
        raise ArgumentError(f"{reason}, not of {library.name!r}")
    return True


def _without_plan(model: Model) -> Model:
    """The model, whose own plan, if there is one, leaves everything to the device."""
    if model.metadata(METADATA_NAME) is None:
        return model
    count = sum(len(subgraph.tensors or ()) for subgraph in model.subgraphs)
    return Model(with_metadata(model, METADATA_NAME, encode_offsets([ONLINE_PLANNED_BUFFER] * count)))
