"""Tilings written out, laid out on the target and planned: what each takes in truth."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tflm.kernels import Node
from tflm.libraries.kernel_library import AllowedOverlap, reference_overlap
from tflm.memory import ARENA_ALIGNMENT
from tflm.memory.buffer import Buffer
from tflm.memory.lifetimes import LifetimeBuilder, ScratchBufferRequest
from tflm.memory.tensor import TfLiteEvalTensor
from tflm.planning.head_plan import Head
from tflm.rewriting.bands import BandRule, axis_of, band_rule
from tflm.rewriting.graph import Graph
from tflm.rewriting.objective import Objective
from tflm.rewriting.operator_costs import Measure, measured_costs
from tflm.rewriting.stage import Stage, StageWriter
from tflm.rewriting.stage_search import ChosenStage, StageSearch, Tiling
from tflm.runtime.micro_measurement_report import ArenaMeasurement
from tflm.schema.model import Model
from tflm.schema.patch import with_plan
from tflm.schema.tables import Operator
from tflm.targets import align_up

MOST_TURNED = 4
"""Stages of a tiling of which both directions are tried, in all combinations."""

SLACK = 256
"""Bytes by which what is expected of an arena may be too much."""

QUICK_ROUNDS, THOROUGH_ROUNDS = 2, 60
"""Changes for each body that a plan is searched by: of any tiling, and of the best."""

SHARE_OF_SEARCH = 0.4
"""Of the time there is, what the search for tilings may take."""


class Rewritten(NamedTuple):
    """A model that was rewritten and planned.

    Attributes:
        data: the model with its plan.
        stages: that it runs in bands.
        arena: the smallest that it works in.
        ends: tensors at the ends of stages, by their index in the model before, and what they are here.
    """

    data: bytes
    stages: tuple[ChosenStage, ...]
    arena: int
    ends: dict[int, int]


class _Tried(NamedTuple):
    """A tiling that was planned: the model with the plan, and the bytes of the arena as far as they are known."""

    tiling: Tiling
    data: bytes
    ends: dict[int, int]
    arena: int


class Progress(NamedTuple):
    """How far a search is: seconds since it began, tilings that were tried, and the smallest arena so far.

    After the search, `checking` says what of the result is being checked; it is empty before.
    """

    seconds: float
    tried: int
    arena: int
    checking: str = ""


@dataclass
class Tiler:
    """Searches the smallest arena of a model by bands of rows.

    Attributes:
        model: the model.
        measured: it on the target, as `measure` gives it.
        measure: how models are measured.
        objective: what is minimized, and what "arena" means below.
        macs: multiply-accumulates that may be added.
        unaliased: names of operators whose inputs and outputs must not share memory.
        alignment: of tensors that lie in others, in bytes.
        overlap: whether outputs may reach into inputs.
        allowed: where the kernels let an output lie on an input.
        end: when to stop, as `time.monotonic` counts; None for no such limit.
        progress: is notified of each tiling that was tried.
        most_tried: tilings that are planned at most.
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
    most_tried: int = 96

    def __post_init__(self) -> None:
        self._begin, self._tried = time.monotonic(), 0
        self._graph = Graph(self.model)
        self._rules = band_rules(self._graph)
        self._search: StageSearch | None = None
        if any(self._rules):
            costs = measured_costs(self.model, self._rules, self.measured, self.measure)
            is_unaliased = "CONCATENATION" in self.unaliased
            self._search = StageSearch(self._graph, self._rules, costs, self.macs, unaliased=is_unaliased)

    def smallest(self, arena: int) -> Rewritten | None:
        """The model in the smallest arena that is found; None where nothing is smaller than `arena`."""
        best: _Tried | None = None
        for tiling in sorted(self._tilings(), key=lambda tiling: (self._expected(tiling), tiling.macs)):
            if self._is_over() or self._expected(tiling) >= arena:
                break
            for turned in self._turned(tiling):
                tried = self._try(turned, QUICK_ROUNDS)
                if tried.arena < arena:
                    best, arena = tried, tried.arena
                self._report(arena)
                if self._is_over():
                    break
        if best is None:
            return None
        return self._written(min(best, self._try(best.tiling, THOROUGH_ROUNDS), key=lambda tried: tried.arena))

    def within(self, arena: int) -> Rewritten | None:
        """The model in an arena of so many bytes, with the least work that is found; None where nothing fits."""
        for tiling in sorted(self._tilings(), key=lambda tiling: (tiling.macs, self._expected(tiling))):
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

    def _try(self, tiling: Tiling, rounds: int) -> _Tried:
        """The stages of a tiling in bands, planned; the tail is what it is expected to be."""
        self._tried += 1
        graph = Graph(self.model)
        origins = write_stages(graph, self._rules, tiling.stages)
        bare = graph.checked()
        assert self._search is not None
        scratch = [0 if origin is None else self._search.costs.scratch[origin] for origin in origins]
        head = Head(bare, _buffers(bare, scratch), allowed=self.allowed)
        plan = head.planned_with_views(self.unaliased, self._seconds_left(), self.alignment, rounds, self.overlap)
        assert plan is not None  # there are SLICEs
        data = with_plan(bare, plan.offsets)
        outputs = ((self._graph.operators[stage.end - 1].outputs or ())[0] for stage in tiling.stages)
        ends = {tensor: graph.moved.get(tensor, tensor) for tensor in outputs}
        tail = tiling.tail + self.measured.tail_bytes
        expected = self.objective.expected(plan.head_bytes, tail)
        return _Tried(tiling, data, ends, align_up(expected, ARENA_ALIGNMENT))

    def _written(self, tried: _Tried) -> Rewritten:
        arena = self.objective.measured(Model(tried.data))
        return Rewritten(tried.data, tried.tiling.stages, arena, tried.ends)

    def _tilings(self) -> list[Tiling]:
        if self._search is None:
            return []
        end = None if self.end is None else self._begin + SHARE_OF_SEARCH * (self.end - self._begin)
        return [tiling for tiling in self._search.tilings(end) if tiling.stages]

    def _expected(self, tiling: Tiling) -> int:
        return self.objective.expected(tiling.head, tiling.tail + self.measured.tail_bytes)

    def _turned(self, tiling: Tiling) -> Iterator[Tiling]:
        """The tiling with some stages in the other direction, in as many bands.

        What one stage makes from its lower end up, the next best takes from its upper end down; so stages that take
        turns come first.
        """
        assert self._search is not None
        count = min(len(tiling.stages), MOST_TURNED)
        in_turn = tuple(i % 2 == 1 for i in range(count))
        choices = sorted(
            itertools.product((False, True), repeat=count),
            key=lambda choice: sum(one != other for one, other in zip(choice, in_turn)),
        )
        for choice in choices:
            directions = (*choice, *(stage.backwards for stage in tiling.stages[count:]))
            stages = [self._search.turned(*pair, tiling.head) for pair in zip(tiling.stages, directions)]
            if None not in stages:
                yield tiling._replace(stages=tuple(stage for stage in stages if stage is not None))

    def _seconds_left(self) -> float | None:
        return None if self.end is None else max(self.end - time.monotonic(), 0.0)

    def _is_over(self) -> bool:
        if self._tried >= self.most_tried:
            return True
        return self.end is not None and time.monotonic() >= self.end

    def _report(self, arena: int) -> None:
        if self.progress is not None:
            self.progress(Progress(time.monotonic() - self._begin, self._tried, arena))


def band_rules(graph: Graph) -> list[BandRule | None]:
    """How each operator of a graph runs in bands."""
    return [band_rule(graph, operator, _axis(graph, operator)) for operator in graph.operators]


def _axis(graph: Graph, operator: Operator) -> int:
    outputs = operator.outputs or ()
    return axis_of(graph.shape(outputs[0])) if outputs else 0


def write_stages(graph: Graph, rules: Sequence[BandRule | None], stages: Sequence[ChosenStage]) -> list[int | None]:
    """Put stages into a graph, in bands; returns the operator that each came from, None for what bands need."""
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


def _buffers(model: Model, scratch: Sequence[int]) -> list[Buffer]:
    """What the head of a model has to hold, without a place yet.

    Args:
        scratch: bytes that each operator of the first subgraph needs while it runs.
    """
    tensors = [[TfLiteEvalTensor(model, tensor) for tensor in subgraph.tensors or ()] for subgraph in model.subgraphs]
    nodes = [[Node.of(model, operator) for operator in subgraph.operators or ()] for subgraph in model.subgraphs]
    requests = [ScratchBufferRequest(size, 0, node) for node, size in enumerate(scratch) if size]
    return LifetimeBuilder(model, nodes, tensors, [frozenset()] * len(nodes), requests, None).build()
