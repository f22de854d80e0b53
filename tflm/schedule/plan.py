"""Plans for a compiled model: the smallest RAM found, or few calls within a RAM limit."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tflm.errors import CompileError, RewriteError
from tflm.graph import Graph, reordered
from tflm.schedule.call_checker import values_lost_in_calls
from tflm.schedule.calls import Call, CallNeeds, Kernels, Plan, RamBuffer, ShapedCall
from tflm.schedule.line_buffers import FINEST, BlockedStage, Feed, LeanCall, LineBufferCosts
from tflm.schedule.lowering import Lowering, RamRequirements
from tflm.schedule.rows import Rows
from tflm.schedule.schedule import Location, Schedule, distributed, placed
from tflm.schedule.stage_search import tilings_within
from tflm.schema.enums import BuiltinOperator
from tflm.schema.model import Model
from tflm.schema.tables import called_subgraphs, variable_of
from tflm.targets import align_up


def late_reads(model: Model) -> list[int]:
    """Return the operators of the first subgraph, by index, with each READ_VARIABLE just before the first reader of its
    output.

    It stays before operators that may write the variable: its ASSIGN_VARIABLE, and operators that run subgraphs.
    """
    graph = Graph(model)
    before: dict[int, list[int]] = {}
    for index, operator in enumerate(graph.operators):
        if graph.code(operator) is BuiltinOperator.READ_VARIABLE:
            before.setdefault(_latest(graph, index), []).append(index)
    moved = {index for indices in before.values() for index in indices}
    order = []
    for index in range(len(graph.operators)):
        order += before.get(index, [])
        order += [index] if index not in moved else []
    return order


def _latest(graph: Graph, index: int) -> int:
    """Return the operator before which a READ_VARIABLE must run; the READ_VARIABLE itself if it must not move."""
    (handle,), (output,) = graph.operators[index].inputs or (), graph.operators[index].outputs or ()
    variable = _variable(graph, handle)
    for later, operator in enumerate(graph.operators[index + 1 :], index + 1):
        is_assigned = graph.code(operator) is BuiltinOperator.ASSIGN_VARIABLE
        if is_assigned and None in (variable, _variable(graph, (operator.inputs or ())[0])):
            return later
        if is_assigned and variable == _variable(graph, (operator.inputs or ())[0]):
            return later
        if output in (operator.inputs or ()) or called_subgraphs(operator):
            return later
    return index


def _variable(graph: Graph, handle: int) -> tuple[str, str] | None:
    """Return container and name of the variable of a handle; None if they are unknown."""
    maker = graph.producers().get(handle)
    return None if maker is None else variable_of(graph.operators[maker])


class Reordered(Kernels):
    """The kernels of a model with reordered operators.

    Args:
        kernels: the kernels of the original model.
        order: for each operator, its index in the original model.
    """

    def __init__(self, kernels: Kernels, order: Sequence[int]):
        self._kernels, self._order = kernels, order

    def needs(self, call: ShapedCall) -> CallNeeds:
        return self._kernels.needs(call._replace(operator=self._order[call.operator]) if not call.subgraph else call)

    def has_lean(self, operator: int) -> bool:
        return self._kernels.has_lean(self._order[operator])

    def rows_copied(self, operator: int) -> Sequence[Rows] | None:
        return self._kernels.rows_copied(self._order[operator])

    def totals_bytes(self, operator: int) -> int:
        return self._kernels.totals_bytes(self._order[operator])

    def takes_rows(self, operator: int) -> bool:
        return self._kernels.takes_rows(self._order[operator])

    def original(self, plan: Plan) -> Plan:
        """Return a plan with the operators' indices in the original model."""
        calls = (c._replace(operator=self._order[c.operator]) if isinstance(c, Call) else c for c in plan.calls)
        stages = (Rows(self._order[first], self._order[end - 1] + 1) for first, end in plan.stages)
        return plan._replace(calls=tuple(calls), stages=tuple(stages))


RAM_ALIGNMENT = 16
"""Alignment of the total size of all buffers, in bytes."""

SLACK = 1
"""Percentage by which a plan may exceed the smallest one found if it has fewer calls."""

SHARES_OF_PEAK = (1.0, 1.01, 1.02, 1.03, 1.04, 1.06, 1.08, 1.1, 1.12, 1.15, 1.2, 1.25, 1.3, 1.4, 1.5, 1.6, 1.8, 2.0)
"""Memory budgets of the stage search, as shares of the lowest peak."""

SHARES_OF_RAM = (1.0, 0.98, 0.96, 0.94, 0.92, 0.9, 0.88, 0.85, 0.82, 0.78, 0.74, 0.7, 0.6)
"""Memory budgets of the stage search, as shares of the RAM limit."""

ANY_SIZE = 1 << 40
"""A RAM limit that no plan exceeds."""

SPEED, MINIMUM_RAM = OPTIMIZATIONS = "speed", "ram"
"""Values of the option `optimize`."""

ANY_RAM = RamRequirements()

LEAN_SHARE = 1.1
"""Maximum RAM for the fastest kernels, relative to the least RAM."""

TOO_LARGE = 1 << 62
"""The size assumed for a rejected plan."""


def plan(
    model: Model,
    kernels: Kernels,
    requirements: RamRequirements = ANY_RAM,
    *,
    ram_bytes: int | None = None,
    memories: Sequence[int] = (),
    optimize: str | None = None,
    max_bytes: Callable[[], int] | None = None,
) -> Plan:
    """Plan the memory of a compiled model.

    Args:
        model: the model.
        kernels: the facts about its kernels.
        requirements: what the RAM has to hold besides the tensors.
        ram_bytes: the RAM limit; the plan is then the one with the fewest calls and moves among those found to fit. If
            none fits, or without a limit, the plan is the smallest one found, or hardly larger.
        memories: sizes in bytes of several memories, the fastest first, in place of `ram_bytes`: the plan then has few
            calls and fits, and the first memories contain the data that is accessed most.
        optimize: "speed" uses the fastest kernels in the fewest calls, with as much RAM as they need; "ram" uses the
            least RAM with any kernels; None uses the fastest kernels that need at most a tenth more than that.
        max_bytes: returns the size that a plan should not exceed if slower kernels avoid that.

    Raises:
        CompileError: no plan was found that fits the memories.
        RewriteError: every plan loses a value, which is a bug of this package.
    """
    order = late_reads(model)
    known = Reordered(kernels, order)
    model = reordered(model, order)
    search = _Search(model, known, requirements)
    if memories:
        return known.original(search.in_memories(memories))
    return known.original(search.optimized(ram_bytes, optimize, max_bytes or (lambda: ANY_SIZE)))


class Variant(NamedTuple):
    """A way to run a model.

    Attributes:
        stages: interleaved operators.
        by_rows: other operators that may run row by row, in place.
        lean: other operators that use slower kernels with less scratch.
    """

    stages: tuple[BlockedStage, ...]
    by_rows: frozenset[int]
    lean: frozenset[int]


class _Search:
    """Plans tilings of a model; the arguments are those of `plan`."""

    def __init__(self, model: Model, kernels: Kernels, requirements: RamRequirements):
        self._model, self._kernels, self._requirements = model, kernels, requirements
        self._stages = LineBufferCosts(model, kernels, requirements.feed)
        self._known: dict[Variant, Plan] = {}
        self._lean_limit: Callable[[float], float] = float
        self._rejected: set[Variant] = set()

    def optimized(self, ram_bytes: int | None, optimize: str | None, max_bytes: Callable[[], int]) -> Plan:
        """Return a sound plan, with slower kernels if they pay; see `plan`."""
        if optimize == SPEED and ram_bytes is None:
            return self.sound(ANY_SIZE)
        fast = self.sound(ram_bytes)
        self._stages.allow_lean()
        if not self._stages.lean:
            return fast
        share = 1.0 if optimize == MINIMUM_RAM else LEAN_SHARE
        limit = max_bytes() if ram_bytes is None else ram_bytes
        if fast.ram_bytes <= min(self._stages.lowest_peak() * share, limit):
            return fast
        self._lean_limit = lambda size: min(size * share, limit)
        lean = self.sound(ram_bytes)
        return fast if fast.ram_bytes <= max(lean.ram_bytes, self._lean_limit(lean.ram_bytes)) else lean

    def sound(self, ram_bytes: int | None) -> Plan:
        """Return the first plan that loses no value, from those of `within`, and then of `smallest`."""
        while True:
            fitting = self.within(ram_bytes) if ram_bytes is not None else None
            found = fitting or self.smallest(ram_bytes)
            lost = self._lost(found)
            if lost is None:
                return found
            losing = {variant for variant, known in self._known.items() if known == found}
            if losing <= self._rejected:
                raise RewriteError(f"the plan loses a value: {lost}")
            self._rejected |= losing

    def _lost(self, found: Plan) -> str | None:
        """Return the value that a plan loses; None for a sound plan."""
        return next(values_lost_in_calls(self._model, found, self._kernels, self._requirements.states), None)

    def within(self, ram_bytes: int) -> Plan | None:
        """Return a plan that fits, with few calls; None if none is found."""
        for share in SHARES_OF_RAM:
            tilings = tilings_within(self._stages, int(ram_bytes * share))
            if not tilings:
                return None
            for variant in self._variants(tilings[0].stages):
                if self._size(variant) <= ram_bytes:
                    return self._coarsened(variant, ram_bytes)
        return None

    def smallest(self, ram_bytes: int | None) -> Plan:
        """Return the smallest plan found, or a hardly larger one with fewer calls, which fits if the smallest one
        does."""
        best = min(self._variants(()), key=self._size)
        peak = self._stages.lowest_peak()
        for share in SHARES_OF_PEAK:
            if align_up(int(peak * share), RAM_ALIGNMENT) >= self._size(best):
                break
            for tiling in tilings_within(self._stages, int(peak * share)):
                best = min((best, *self._variants(tiling.stages)), key=self._size)
        if best in self._rejected:
            best = min(self._known, key=self._size)
        size = self._size(best)
        if size == TOO_LARGE and self._requirements.feed is not None:
            raise CompileError(self._why_not_fed(self._requirements.feed))
        best = self._faster(best, self._lean_limit(size))
        size = self._size(best)
        larger = size * (100 + SLACK) // 100
        return self._coarsened(best, larger if ram_bytes is None else max(min(larger, ram_bytes), size))

    def _why_not_fed(self, feed: Feed) -> str:
        """Return the error that names the operator that needs the whole image."""
        operators = self._model.subgraphs[0].operators or []
        whole = [
            index
            for index, operator in enumerate(operators)
            if feed.image in (operator.inputs or ()) and self._stages.operators[index] is None
        ]
        if not whole:
            return "the image is needed whole; compile the model without feeding rows"
        name = self._model.operator_name(operators[whole[0]])
        return (
            f"rows of the input cannot be fed: operator {whole[0] - 1} ({name}) needs the whole image; "
            "compile the model without feeding rows"
        )

    def in_memories(self, capacities: Sequence[int]) -> Plan:
        """Return a plan with few calls that fits several memories."""
        usable = [capacity // RAM_ALIGNMENT * RAM_ALIGNMENT for capacity in capacities]
        tilings = (
            tiling for share in SHARES_OF_RAM for tiling in tilings_within(self._stages, int(sum(usable) * share))
        )
        variants = (variant for tiling in tilings for variant in self._variants(tiling.stages))
        for variant in filter(self._is_possible, dict.fromkeys(variants)):
            lowering, schedule = self._lowered(variant)
            locations = distributed(schedule, usable, self._requirements.alignment)
            if locations is not None:
                planned = _plan(lowering.in_places(locations), locations, variant.stages)
                if self._lost(planned) is None:
                    return planned
        sizes = ", ".join(f"{capacity:,}" for capacity in capacities)
        raise CompileError(f"no plan was found that fits memories of {sizes} bytes")

    def _variants(self, chosen: tuple[BlockedStage | LeanCall, ...]) -> list[Variant]:
        """Yield some stages with the rows that the search found, or one at a time, and with other operators row by
        row."""
        stages = tuple(each for each in chosen if isinstance(each, BlockedStage))
        lean = frozenset(each.operator for each in chosen if isinstance(each, LeanCall))
        finest = tuple(stage._replace(blocking=FINEST) for stage in stages)
        none, all = frozenset[int](), frozenset(range(len(self._stages.operators)))
        return [Variant(each, by_rows, lean) for each in dict.fromkeys((stages, finest)) for by_rows in (none, all)]

    def _size(self, variant: Variant) -> int:
        return self._planned(variant).ram_bytes if self._is_possible(variant) else TOO_LARGE

    def _is_possible(self, variant: Variant) -> bool:
        """Whether a variant is not rejected, and only a stage reads an input that is not in RAM."""
        if variant in self._rejected:
            return False
        image = None if self._requirements.feed is None else self._requirements.feed.image
        first = [self._stages.stage(stage.first, stage.end) for stage in variant.stages[:1]]
        return image is None or any(stage is not None and image in stage.inner for stage in first)

    def _faster(self, variant: Variant, ram_bytes: float) -> Variant:
        """Return the variant with faster kernels for as many operators as fit."""
        for operator in sorted(variant.lean, key=self._stages.macs, reverse=True):
            faster = variant._replace(lean=variant.lean - {operator})
            if self._size(faster) <= ram_bytes:
                variant = faster
        return variant

    def _coarsened(self, variant: Variant, ram_bytes: int) -> Plan:
        """Return the plan with as many rows in each call as fit."""
        for place, stage in enumerate(variant.stages):
            coarser = [
                variant._replace(stages=(*variant.stages[:place], each, *variant.stages[place + 1 :]))
                for each in self._stages.coarser(stage)
            ]
            fitting = bisect.bisect_left(coarser, True, key=lambda each: self._size(each) <= ram_bytes)
            variant = (*coarser, variant)[fitting]
        for operator in sorted(self._split(variant)):
            fewer = variant._replace(by_rows=variant.by_rows - {operator})
            if self._size(fewer) <= ram_bytes:
                variant = fewer
        return self._planned(variant)

    def _split(self, variant: Variant) -> frozenset[int]:
        """Return the operators outside of stages that run row by row."""
        inside = {index for stage in variant.stages for index in range(stage.first, stage.end)}
        calls = self._planned(variant).calls
        return frozenset(call.operator for call in calls if isinstance(call, Call) and call.rows) - inside

    def _planned(self, variant: Variant) -> Plan:
        if variant not in self._known:
            lowering, schedule = self._lowered(variant)
            locations = placed(schedule, self._stages.peak(variant.stages, variant.lean), self._requirements.alignment)
            self._known[variant] = _plan(lowering.in_places(locations), locations, variant.stages)
        return self._known[variant]

    def _lowered(self, variant: Variant) -> tuple[Lowering, Schedule]:
        lowering = Lowering(
            self._model, self._kernels, self._stages.operators, variant.by_rows, self._requirements, variant.lean
        )
        return lowering, lowering.in_stages([self._stages.calls(stage) for stage in variant.stages])


def _plan(schedule: Schedule, locations: Sequence[Location], stages: Sequence[BlockedStage]) -> Plan:
    buffers = _buffers(schedule, locations)
    count = 1 + max((location.memory for location in locations), default=0)
    ends = [max((b.offset + b.size for b in buffers if b.memory == memory), default=0) for memory in range(count)]
    return Plan(
        memories=tuple(align_up(end, RAM_ALIGNMENT) for end in ends),
        buffers=buffers,
        calls=tuple(schedule.calls),
        stages=tuple(Rows(stage.first, stage.end) for stage in stages),
    )


def _buffers(schedule: Schedule, locations: Sequence[Location]) -> tuple[RamBuffer, ...]:
    return tuple(
        buffer._replace(
            memory=location.memory,
            offset=location.offset,
            first_step=min((piece.first for piece in body.pieces), default=0),
            last_step=max((piece.last for piece in body.pieces), default=0),
        )
        for buffer, body, location in zip(schedule.buffers, schedule.bodies(), locations)
    )
