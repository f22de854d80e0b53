"""Tilings written out, laid out on the target and planned: what each takes in truth."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tflm.memory import ARENA_ALIGNMENT
from tflm.memory.lifetimes import AllocationInfoBuilder, ScratchBufferRequest
from tflm.memory.tensor import TfLiteEvalTensor
from tflm.planning.head_plan import Head
from tflm.rewriting.bands import BandRule, axis_of, band_rule
from tflm.rewriting.graph import Graph
from tflm.rewriting.operator_costs import Measure, measured_costs
from tflm.rewriting.stage import Stage, StageWriter
from tflm.rewriting.stage_search import ChosenStage, StageSearch, Tiling
from tflm.runtime.micro_allocator import PlannedBuffer
from tflm.runtime.micro_measurement import ArenaMeasurement
from tflm.schema.model import Model
from tflm.schema.offline_plan import METADATA_NAME, encode_offsets
from tflm.schema.patch import with_metadata
from tflm.schema.tables import Operator
from tflm.schema.verifier import called_subgraphs
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


class Tiler:
    """Searches the smallest arena of a model by bands of rows.

    Args:
        model: the model.
        measured: it on the target, as `measure` gives it.
        measure: how models are measured.
        macs: multiply-accumulates that may be added.
        apart: names of operators whose inputs and outputs are kept apart.
        alignment: of tensors that lie in others, in bytes.
        overlap: whether outputs may reach into inputs, as the reference kernels' loops allow it.
        most_tried: tilings that are planned at the most.
        end: when to stop, as `time.monotonic` counts; None for no such limit.
        progress: is told of each tiling that was tried.
    """

    def __init__(
        self,
        model: Model,
        measured: ArenaMeasurement,
        measure: Measure,
        macs: int,
        *,
        apart: Sequence[str] = (),
        alignment: int = 1,
        overlap: bool = False,
        most_tried: int = 96,
        end: float | None = None,
        progress: Callable[[Progress], None] | None = None,
    ):
        self._model, self._measured, self._measure = model, measured, measure
        self._apart, self._alignment, self._overlap = apart, alignment, overlap
        self._begin, self._end, self._progress = time.monotonic(), end, progress
        self._graph = Graph(model)
        self._rules = band_rules(self._graph)
        self._tried, self._most_tried = 0, most_tried
        self._search: StageSearch | None = None
        if any(self._rules):
            costs = measured_costs(model, self._rules, measured, measure)
            is_apart = "CONCATENATION" in apart
            self._search = StageSearch(self._graph, self._rules, costs, macs, apart=is_apart)

    def smallest(self, arena: int) -> Rewritten | None:
        """The model in the smallest arena that is found; None where nothing is smaller than `arena`."""
        best: _Tried | None = None
        for tiling in sorted(self._tilings(), key=lambda tiling: (tiling.total, tiling.macs)):
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
        for tiling in sorted(self._tilings(), key=lambda tiling: (tiling.macs, tiling.total)):
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
        graph = Graph(self._model)
        origins = write_stages(graph, self._rules, tiling.stages)
        bare = graph.checked()
        assert self._search is not None
        scratch = [0 if origin is None else self._search.costs.scratch[origin] for origin in origins]
        head = Head(bare, _buffers(bare, scratch))
        plan = head.planned_with_views(self._apart, self._seconds_left(), self._alignment, rounds, self._overlap)
        assert plan is not None  # there are SLICEs
        data = with_metadata(bare, METADATA_NAME, encode_offsets(plan.offsets))
        outputs = ((self._graph.operators[stage.end - 1].outputs or ())[0] for stage in tiling.stages)
        ends = {tensor: graph.moved.get(tensor, tensor) for tensor in outputs}
        tail = tiling.tail + self._measured.tail_bytes
        return _Tried(tiling, data, ends, align_up(plan.head_bytes + tail, ARENA_ALIGNMENT))

    def _written(self, tried: _Tried) -> Rewritten:
        arena = self._measure(Model(tried.data)).minimum_arena_bytes
        return Rewritten(tried.data, tried.tiling.stages, arena, tried.ends)

    def _tilings(self) -> list[Tiling]:
        if self._search is None:
            return []
        end = None if self._end is None else self._begin + SHARE_OF_SEARCH * (self._end - self._begin)
        return [tiling for tiling in self._search.tilings(end) if tiling.stages]

    def _expected(self, tiling: Tiling) -> int:
        return tiling.total + self._measured.tail_bytes

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
            stages = [self._search.turned(*of, tiling.head) for of in zip(tiling.stages, directions)]
            if None not in stages:
                yield tiling._replace(stages=tuple(stage for stage in stages if stage is not None))

    def _seconds_left(self) -> float | None:
        return None if self._end is None else max(self._end - time.monotonic(), 0.0)

    def _is_over(self) -> bool:
        if self._tried >= self._most_tried:
            return True
        return self._end is not None and time.monotonic() >= self._end

    def _report(self, arena: int) -> None:
        if self._progress is not None:
            self._progress(Progress(time.monotonic() - self._begin, self._tried, arena))


def band_rules(graph: Graph) -> list[BandRule | None]:
    """How each operator of a graph runs in bands."""
    return [band_rule(graph, operator, _axis(graph, operator)) for operator in graph.operators]


def _axis(graph: Graph, operator: Operator) -> int:
    outputs = operator.outputs or ()
    return axis_of(graph.shape(outputs[0])) if outputs else 0


def write_stages(graph: Graph, rules: Sequence[BandRule | None], stages: Sequence[ChosenStage]) -> list[int | None]:
    """Put stages into a graph, in bands; gives the operator that each came from, None for what bands need."""
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


class _Node(NamedTuple):
    """An operator, as far as the lives of tensors depend on it."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    intermediates: tuple[int, ...]
    called_subgraphs: tuple[int, ...]


def _node(operator: Operator) -> _Node:
    sides = operator.inputs or (), operator.outputs or (), operator.intermediates or ()
    return _Node(*sides, tuple(called_subgraphs(operator)))


def _buffers(model: Model, scratch: Sequence[int]) -> list[PlannedBuffer]:
    """What the head of a model has to hold, without a place yet.

    Args:
        scratch: bytes that each operator of the first subgraph needs while it runs.
    """
    tensors = [[TfLiteEvalTensor(model, tensor) for tensor in of.tensors or ()] for of in model.subgraphs]
    nodes = [[_node(operator) for operator in of.operators or ()] for of in model.subgraphs]
    requests = [ScratchBufferRequest(size, 0, node) for node, size in enumerate(scratch) if size]
    infos = AllocationInfoBuilder(model, nodes, tensors, [frozenset()] * len(nodes), requests, None).build()
    buffers = []
    for i, info in enumerate(infos):
        if info.needs_allocating:
            is_tensor = isinstance(info.owner, TfLiteEvalTensor)
            place = 0, info.bytes, info.first_created, info.last_used
            kind = "tensor" if is_tensor else "scratch"
            buffers.append(PlannedBuffer("", kind, *place, tensor=i if is_tensor else None))
    return buffers
