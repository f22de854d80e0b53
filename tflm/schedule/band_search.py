"""Evaluate tilings exactly: rewrite the model, lay it out on the target and plan it."""

from __future__ import annotations

import functools
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tflm.graph import Graph
from tflm.libraries.kernel_library import AllowedOverlap, reference_overlap
from tflm.memory import ARENA_ALIGNMENT
from tflm.planning.head_plan import Head
from tflm.runtime.micro_measurement_report import ArenaMeasurement
from tflm.schedule.band_costs import BandCosts, BandedStage
from tflm.schedule.bands import BandRule, Stage, StageWriter, axis_of, band_rule
from tflm.schedule.operator_costs import Measure, Objective, measured_costs
from tflm.schedule.stage_search import Tiling, lifetimes_of
from tflm.schema.model import Model
from tflm.schema.patch import with_plan
from tflm.schema.tables import Operator
from tflm.targets import align_up

MAXIMUM_TURNED = 4
"""Maximum number of stages of a tiling whose directions are tried in all combinations."""

SLACK = 256
"""Maximum error by which the estimate may exceed the arena, in bytes."""

QUICK_ROUNDS, THOROUGH_ROUNDS = 2, 60
"""Changes per body in the search for a plan: for any tiling, and for the best one."""

SHARE_OF_SEARCH = 0.4
"""Share of the time limit for the search for tilings."""


class Rewritten(NamedTuple):
    """A model that was rewritten and planned.

    Attributes:
        data: the model with its plan.
        stages: the stages that it runs in bands.
        arena: size of the smallest arena that it works in.
        ends: indices of the tensors at the ends of stages: in the original model, and in this one.
    """

    data: bytes
    stages: tuple[BandedStage, ...]
    arena: int
    ends: dict[int, int]


class _Tried(NamedTuple):
    """A planned tiling: the model with the plan, and the size of its arena, if known."""

    tiling: Tiling[BandedStage]
    data: bytes
    ends: dict[int, int]
    arena: int


class Progress(NamedTuple):
    """Progress of a search: seconds since it began, tilings tried, and the smallest arena so far.

    After the search, `checking` names the check in progress; it is empty before.
    """

    seconds: float
    tried: int
    arena: int
    checking: str = ""


@dataclass
class Tiler:
    """Searches for the smallest arena in which a model can run in bands of rows.

    Attributes:
        model: the model.
        measured: its measurement on the target, from `measure`.
        measure: measures models.
        objective: the size to minimize, called "arena" below.
        macs: maximum number of multiply-accumulates to add.
        unaliased: names of operators whose inputs and outputs must not share memory.
        alignment: alignment of views, in bytes.
        overlap: whether outputs may overlap inputs.
        allowed: the in-place outputs that the kernels allow.
        end: when to stop, on the clock `time.monotonic`; None for no time limit.
        progress: called after each tiling.
        maximum_tried: maximum number of tilings that are planned.
    """

    model: Model
    measured: ArenaMeasurement
    measure: Measure
    objective: Objective
    macs: int
    unaliased: Sequence[str] = ()
    alignment: int = 1
    overlap: bool = False
    allowed: AllowedOverlap = reference_overlap
    end: float | None = None
    progress: Callable[[Progress], None] | None = None
    maximum_tried: int = 96

    def __post_init__(self) -> None:
        self._begin, self._tried = time.monotonic(), 0
        self._smallest: _Tried | None = None
        self._graph = Graph(self.model)
        self._rules = band_rules(self._graph)
        self._search: BandCosts | None = None
        if any(self._rules):
            costs = measured_costs(self.model, self._rules, self.measured, self.measure)
            is_unaliased = "CONCATENATION" in self.unaliased
            self._search = BandCosts(self._graph, self._rules, costs, self.macs, unaliased=is_unaliased)

    def smallest(self, arena: int) -> Rewritten | None:
        """Return the model with the smallest arena found, including those that `within` tried; None if none is smaller
        than `arena`.

        Includes what `within` tried before.
        """
        self._tried = 0
        for tiling in sorted(self._tilings, key=lambda tiling: (self._expected(tiling), tiling.cost[1])):
            if self._is_over() or self._expected(tiling) >= self._smallest_arena(arena):
                break
            for turned in self._turned(tiling):
                self._try(turned, QUICK_ROUNDS)
                self._report(self._smallest_arena(arena))
                if self._is_over():
                    break
        best = self._smallest
        if best is None or best.arena >= arena:
            return None
        return self._written(min(best, self._try(best.tiling, THOROUGH_ROUNDS), key=lambda tried: tried.arena))

    def within(self, arena: int) -> Rewritten | None:
        """The model with the least extra work found that fits an arena of this size; None if none fits."""
        self._tried = 0
        for tiling in sorted(self._tilings, key=lambda tiling: (tiling.cost[1], self._expected(tiling))):
            if self._is_over():
                return None
            if self._expected(tiling) > arena + SLACK:
                continue
            for turned in self._turned(tiling):
                tried = self._try(turned, QUICK_ROUNDS)
                self._report(tried.arena)
                if tried.arena <= arena + SLACK:
                    made = self._written(tried)
                    if made.arena <= arena:
                        return made
                if self._is_over():
                    break
        return None

    def _try(self, tiling: Tiling[BandedStage], rounds: int) -> _Tried:
        """Rewrite and plan a tiling. The size of the tail is estimated."""
        self._tried += 1
        graph = Graph(self.model)
        origins = write_stages(graph, self._rules, tiling.stages)
        bare = graph.checked()
        assert self._search is not None
        scratch = [0 if origin is None else self._search.costs.scratch[origin] for origin in origins]
        head = Head(bare, lifetimes_of(bare, scratch).build(), allowed=self.allowed)
        plan = head.planned_with_views(self.unaliased, self._seconds_left(), self.alignment, rounds, self.overlap)
        assert plan is not None  # the tiling contains SLICEs
        data = with_plan(bare, plan.offsets)
        outputs = ((self._graph.operators[stage.end - 1].outputs or ())[0] for stage in tiling.stages)
        ends = {tensor: graph.moved.get(tensor, tensor) for tensor in outputs}
        tail = tiling.cost[0] + self.measured.tail_bytes
        expected = self.objective.expected(plan.head_bytes, tail)
        tried = _Tried(tiling, data, ends, align_up(expected, ARENA_ALIGNMENT))
        if tried.arena < self._smallest_arena(sys.maxsize):
            self._smallest = tried
        return tried

    def _smallest_arena(self, otherwise: int) -> int:
        """Return the smallest arena that was tried, or `otherwise` if that is smaller."""
        return otherwise if self._smallest is None else min(otherwise, self._smallest.arena)

    def _written(self, tried: _Tried) -> Rewritten:
        arena = self.objective.measured(Model(tried.data))
        return Rewritten(tried.data, tried.tiling.stages, arena, tried.ends)

    @functools.cached_property
    def _tilings(self) -> list[Tiling[BandedStage]]:
        if self._search is None:
            return []
        end = None if self.end is None else self._begin + SHARE_OF_SEARCH * (self.end - self._begin)
        return [tiling for tiling in self._search.tilings(end) if tiling.stages]

    def _expected(self, tiling: Tiling[BandedStage]) -> int:
        return self.objective.expected(tiling.peak, tiling.cost[0] + self.measured.tail_bytes)

    def _turned(self, tiling: Tiling[BandedStage]) -> Iterator[Tiling[BandedStage]]:
        """Yield the tiling with some stages in the other direction, in at most as many bands.

        A stage that produces rows upwards works well with a next stage that consumes them downwards, so alternating
        directions come first.
        """
        assert self._search is not None
        count = min(len(tiling.stages), MAXIMUM_TURNED)
        in_turn = tuple(i % 2 == 1 for i in range(count))
        choices = sorted(
            itertools.product((False, True), repeat=count),
            key=lambda choice: sum(one != other for one, other in zip(choice, in_turn)),
        )
        for choice in choices:
            directions = (*choice, *(stage.backwards for stage in tiling.stages[count:]))
            stages = [self._search.turned(*pair, tiling.peak) for pair in zip(tiling.stages, directions)]
            if None not in stages:
                yield replace(tiling, stages=tuple(stage for stage in stages if stage is not None))

    def _seconds_left(self) -> float | None:
        return None if self.end is None else max(self.end - time.monotonic(), 0.0)

    def _is_over(self) -> bool:
        if self._tried >= self.maximum_tried:
            return True
        return self.end is not None and time.monotonic() >= self.end

    def _report(self, arena: int) -> None:
        if self.progress is not None:
            self.progress(Progress(time.monotonic() - self._begin, self._tried, arena))


def band_rules(graph: Graph) -> list[BandRule | None]:
    """The band rule of each operator of a graph."""
    return [band_rule(graph, operator, _axis(graph, operator)) for operator in graph.operators]


def _axis(graph: Graph, operator: Operator) -> int:
    outputs = operator.outputs or ()
    return axis_of(graph.shape(outputs[0])) if outputs else 0


def write_stages(graph: Graph, rules: Sequence[BandRule | None], stages: Sequence[BandedStage]) -> list[int | None]:
    """Replace stages in a graph by bands; returns each new operator's original, None for operators that bands add."""
    writer = StageWriter(graph)
    position = 0
    for first, end, bands in stages:
        writer.copy(position, first)
        chosen = [rule for rule in rules[first:end] if rule is not None]
        writer.write(Stage(graph, first, end, chosen), bands)
        position = end
    writer.copy(position, len(graph.operators))
    graph.operators = writer.operators
    return writer.origins
