"""The cost of stages with line buffers, for generated C: calls, and bytes that move."""

from __future__ import annotations

import bisect
import sys
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from tflm.graph import Graph
from tflm.kernels.overlap import OperatorFacts
from tflm.runtime.operator_facts import multiply_accumulates
from tflm.schedule.feeding import FEEDER, Feed
from tflm.schedule.kernels import Kernels, ShapedCall
from tflm.schedule.line_buffers import (
    Blocking,
    LineBufferStage,
    OtherTensors,
    RowCall,
    RowOperator,
    both_ways,
    moved_bytes,
    peak,
    row_operators,
    runs_by_rows,
    shared_bytes,
)
from tflm.schedule.liveness import Liveness
from tflm.schedule.stage_search import Tiling
from tflm.schema.model import Model

LONGEST_STAGE = 24
"""Maximum number of operators in a stage."""

CALL_WORK = 64
"""Work of a call, in moved bytes."""

FINEST = Blocking(1, 1)

NEVER = 1 << 60
"""The cost of what is impossible, in bytes."""


class BlockedStage(NamedTuple):
    """Operators `first` to `end` - 1, interleaved."""

    first: int
    end: int
    blocking: Blocking


class LeanCall(NamedTuple):
    """An operator that runs as a whole, by the slower kernels that need less scratch."""

    operator: int


class LineBufferCosts:
    """The costs of stages of the first subgraph of a model; see `CostModel`.

    Args:
        model: the model.
        kernels: what is known of its kernels.
        feed: the input that is not in RAM.

    Attributes:
        operators: how each operator computes rows; None if it does not.
        lean: for each operator whose slower kernels may run, the bytes that are needed at once while these do.
    """

    longest = LONGEST_STAGE
    limits: tuple[int, ...] = (sys.maxsize,)
    start: Tiling[BlockedStage | LeanCall] = Tiling((), 0, (0,))

    def __init__(self, model: Model, kernels: Kernels, feed: Feed | None = None):
        self._model, self._kernels, self._feed = model, kernels, feed
        self._graph = Graph(model)
        self._live = Liveness(self._graph, alignment=1)
        self.operators = row_operators(model, kernels)
        if feed is not None:
            self.operators[FEEDER] = feeder = RowOperator(model, FEEDER, kernels, (0,))
            feeder.fixed_rows = feed.rows
        self._readers = self._graph.readers()
        self.alone: Sequence[int] = [self._cost_alone(index) for index in range(len(self.operators))]
        self.lean: dict[int, int] = {}
        self._peaks: dict[BlockedStage, int] = {}
        self._works: dict[BlockedStage, int] = {}
        self._stages: dict[tuple[int, int], LineBufferStage | None] = {}

    def allow_lean(self) -> None:
        """Also consider slower kernels that need less scratch."""
        costs = {i: self._cost_alone(i, lean=True) for i in range(len(self.operators)) if self._kernels.has_lean(i)}
        self.lean = {i: cost for i, cost in costs.items() if cost < self.alone[i]}

    def lowest_peak(self) -> int:
        """The lowest peak of any choice of stages, in bytes."""
        peaks = [0]
        for end, alone in enumerate(self.alone, 1):
            lowest = max(peaks[-1], min(alone, self.lean.get(end - 1, alone)))
            for first in range(end - 1, max(end - LONGEST_STAGE, 0) - 1, -1):
                if peaks[first] < lowest and self.stage(first, end) is not None:
                    lowest = min(lowest, max(peaks[first], self.stage_peak(BlockedStage(first, end, FINEST))))
            peaks.append(lowest)
        return peaks[-1]

    def stages(self, first: int, end: int, budget: int) -> Iterator[Tiling[BlockedStage | LeanCall]]:
        """The stage with the least work within a budget, or slower kernels for a single operator."""
        if end - first == 1 and self.lean.get(first, NEVER) <= budget:
            yield Tiling((LeanCall(first),), self.lean[first], (self.macs(first),))
        chosen = self._coarsest(first, end, budget)
        if chosen is not None:
            yield Tiling((chosen,), self.stage_peak(chosen), (self._work(chosen),))

    def peak(self, stages: Sequence[BlockedStage], lean: Collection[int] = ()) -> int:
        """Bytes that are needed at once with some stages, and slower kernels for some operators."""
        inside = {index for stage in stages for index in range(stage.first, stage.end)}
        alone = (
            self.lean[index] if index in lean else peak for index, peak in enumerate(self.alone) if index not in inside
        )
        return max((*alone, *(self.stage_peak(stage) for stage in stages)), default=0)

    def stage_peak(self, chosen: BlockedStage) -> int:
        """Bytes that are needed at once in a stage."""
        if chosen not in self._peaks:
            stage, calls = self.calls(chosen)
            self._peaks[chosen] = peak(stage, calls, self._others(stage))
        return self._peaks[chosen]

    def stage(self, first: int, end: int) -> LineBufferStage | None:
        """The stage of some operators; None where one does not compute rows."""
        key = first, end
        if key not in self._stages:
            chosen = [operator for operator in self.operators[first:end] if operator is not None]
            outside = {t for t, readers in self._readers.items() if readers[-1] >= end} | set(self._graph.outputs)
            escaping = frozenset(operator.output for operator in chosen if operator.output in outside)
            is_stored = self._feed is not None and self._feed.image in escaping
            is_stage = len(chosen) == end - first and not is_stored
            self._stages[key] = LineBufferStage(first, chosen, escaping) if is_stage else None
        return self._stages[key]

    def calls(self, chosen: BlockedStage) -> tuple[LineBufferStage, list[RowCall]]:
        """A stage with its calls."""
        stage = self.stage(chosen.first, chosen.end)
        assert stage is not None
        return stage, stage.calls(chosen.blocking)

    def coarser(self, chosen: BlockedStage) -> list[BlockedStage]:
        """The stage with more rows in a call, from the most rows down."""
        blockings = self._blockings(chosen.first, chosen.end)
        return [chosen._replace(blocking=blocking) for blocking in blockings[: blockings.index(chosen.blocking)]]

    def _blockings(self, first: int, end: int) -> list[Blocking]:
        """Yields blockings, the coarsest first."""
        rows = max(operator.rows for operator in self.operators[first:end] if operator is not None)
        powers = [1 << bits for bits in range(rows.bit_length() - 1, -1, -1)]
        return [
            *(Blocking(stage_rows, rows) for stage_rows in powers),
            *(Blocking(1, rows) for rows in powers[1:]),
            FINEST,
        ]

    def _coarsest(self, first: int, end: int, budget: int) -> BlockedStage | None:
        """A stage with the least work within a budget."""
        stage = self.stage(first, end)
        if stage is None or self.stage_peak(BlockedStage(first, end, FINEST)) > budget:
            return None
        blockings = self._blockings(first, end)
        place = bisect.bisect_left(
            blockings, True, key=lambda blocking: self.stage_peak(BlockedStage(first, end, blocking)) <= budget
        )
        return BlockedStage(first, end, blockings[min(place, len(blockings) - 1)])

    def _work(self, chosen: BlockedStage) -> int:
        """Calls of a stage, and the bytes that it moves."""
        if chosen not in self._works:
            stage, calls = self.calls(chosen)
            self._works[chosen] = CALL_WORK * len(calls) + moved_bytes(stage, calls)
        return self._works[chosen]

    def _others(self, stage: LineBufferStage) -> OtherTensors:
        outside = {
            *(operator.output for operator in stage.operators),
            *([] if self._feed is None else [self._feed.tensor]),
        }
        ending = [t for t in stage.readers if t not in outside and self._live.ends_in(t, stage.end)]
        inputs = {}
        for tensor in ending:
            rows = self._graph.shape(tensor)[1]
            inputs[tensor] = rows, self._graph.tensor_bytes(tensor) // rows
        return OtherTensors(self._live.across(stage.first, stage.end), inputs)

    def macs(self, index: int) -> int:
        """Multiply-accumulates of an operator, or its elements if there are none: the work that lean kernels add."""
        operator, main = self._graph.operators[index], self._model.subgraphs[0]
        return multiply_accumulates(self._model, main, operator) or sum(map(self._graph.size, operator.outputs or ()))

    def _cost_alone(self, index: int, *, lean: bool = False) -> int:
        """Bytes that are needed at once while an operator runs as a whole."""
        if self._feed is not None and index == FEEDER:
            return NEVER
        operator = self._graph.operators[index]
        facts = OperatorFacts.of(self._model.root, self._model.subgraphs[0], operator)
        needs = self._kernels.needs(ShapedCall(0, index, facts, None, lean))
        alive = self._live.at(index) + sum(needs.scratch)
        outputs = operator.outputs or ()
        if len(outputs) != 1:
            return alive
        written = self._graph.tensor_bytes(outputs[0])
        dying = [
            (place, tensor)
            for place, tensor in enumerate(operator.inputs or ())
            if tensor in self._live.size and self._live.ends_in(tensor, index + 1)
        ]
        rows = self.operators[index]
        by_rows = rows is not None and not lean and runs_by_rows(rows, needs)
        saved = (
            shared_bytes(written, self._graph.tensor_bytes(tensor), allowed)
            for place, tensor in dying
            for allowed in (
                needs.overlaps[place],
                *needs.backwards[place : place + 1],
                *(both_ways(rows) if by_rows and rows is not None else ()),
            )
        )
        return alive - max(saved, default=0)
