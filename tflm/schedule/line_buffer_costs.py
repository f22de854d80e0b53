"""The cost of stages with line buffers: calls, and bytes that move."""

from __future__ import annotations

import bisect
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tflm.graph import Graph
from tflm.kernels.overlap import OperatorFacts
from tflm.schedule.in_place import both_ways, runs_by_rows
from tflm.schedule.kernels import Kernels, ShapedCall
from tflm.schedule.line_buffers import Around, Grain, RollingStage, RowCall, moved_bytes, peak, shared_bytes
from tflm.schedule.liveness import Liveness
from tflm.schedule.row_operators import row_operators
from tflm.schedule.stage_search import Tiling
from tflm.schema.model import Model

LONGEST_STAGE = 24
"""Operators in a stage at most."""

CALL_WORK = 64
"""Work of a call, as much as moving so many bytes."""

FINEST = Grain(1, 1)


class ChosenStage(NamedTuple):
    """Operators `first` to `end` - 1, which take turns."""

    first: int
    end: int
    grain: Grain


class LineBufferCosts:
    """The costs of stages of the first subgraph of a model; see `CostModel`.

    Args:
        model: the model.
        kernels: what is known of its kernels.

    Attributes:
        operators: how each operator computes rows; None if it does not.
    """

    longest = LONGEST_STAGE
    limits: tuple[int, ...] = (sys.maxsize,)
    start: Tiling[ChosenStage] = Tiling((), 0, (0,))

    def __init__(self, model: Model, kernels: Kernels):
        self._model, self._kernels = model, kernels
        self._graph = Graph(model)
        self._live = Liveness(self._graph, alignment=1)
        self.operators = row_operators(model, kernels)
        self._readers = self._graph.readers()
        self.alone: Sequence[int] = [self._cost_alone(index) for index in range(len(self.operators))]
        self._peaks: dict[ChosenStage, int] = {}
        self._works: dict[ChosenStage, int] = {}
        self._stages: dict[tuple[int, int], RollingStage | None] = {}

    def least_peak(self) -> int:
        """The fewest bytes at once that any stages need."""
        count = len(self.alone)
        least = [0] + [1 << 60] * count
        for end in range(1, count + 1):
            least[end] = max(least[end - 1], self.alone[end - 1])
            for first in range(end - 1, max(end - LONGEST_STAGE, 0) - 1, -1):
                if least[first] < least[end] and self.stage(first, end) is not None:
                    least[end] = min(least[end], max(least[first], self.stage_peak(ChosenStage(first, end, FINEST))))
        return least[count]

    def stages(self, first: int, end: int, budget: int) -> Iterator[Tiling[ChosenStage]]:
        """The stage with the least work within a budget."""
        chosen = self._coarsest(first, end, budget)
        if chosen is not None:
            yield Tiling((chosen,), self.stage_peak(chosen), (self._work(chosen),))

    def peak(self, stages: Sequence[ChosenStage]) -> int:
        """Bytes that are needed at once with some stages."""
        inside = {index for stage in stages for index in range(stage.first, stage.end)}
        alone = (peak for index, peak in enumerate(self.alone) if index not in inside)
        return max((*alone, *(self.stage_peak(stage) for stage in stages)), default=0)

    def stage_peak(self, chosen: ChosenStage) -> int:
        """Bytes that are needed at once in a stage."""
        if chosen not in self._peaks:
            stage, calls = self.calls(chosen)
            self._peaks[chosen] = peak(stage, calls, self._around(stage))
        return self._peaks[chosen]

    def stage(self, first: int, end: int) -> RollingStage | None:
        """The stage of some operators; None where one does not compute rows."""
        key = first, end
        if key not in self._stages:
            chosen = [operator for operator in self.operators[first:end] if operator is not None]
            outside = {t for t, of in self._readers.items() if of[-1] >= end} | set(self._graph.outputs)
            escaping = frozenset(operator.output for operator in chosen if operator.output in outside)
            self._stages[key] = RollingStage(first, chosen, escaping) if len(chosen) == end - first else None
        return self._stages[key]

    def rolling(self, first: int, end: int) -> RollingStage:
        """The stage of some operators, all of which compute rows."""
        stage = self.stage(first, end)
        assert stage is not None
        return stage

    def calls(self, chosen: ChosenStage) -> tuple[RollingStage, list[RowCall]]:
        """A stage with its calls."""
        stage = self.rolling(chosen.first, chosen.end)
        return stage, stage.calls(chosen.grain)

    def coarser(self, chosen: ChosenStage) -> list[ChosenStage]:
        """The stage with more rows in a call, from the most rows down."""
        grains = self._grains(chosen.first, chosen.end)
        return [chosen._replace(grain=grain) for grain in grains[: grains.index(chosen.grain)]]

    def _grains(self, first: int, end: int) -> list[Grain]:
        """From coarse to fine."""
        rows = max(operator.rows for operator in self.rolling(first, end).operators)
        powers = [1 << bits for bits in range(rows.bit_length() - 1, -1, -1)]
        return [*(Grain(band, rows) for band in powers), *(Grain(1, most) for most in powers[1:]), FINEST]

    def _coarsest(self, first: int, end: int, budget: int) -> ChosenStage | None:
        """A stage with the least work within a budget."""
        stage = self.stage(first, end)
        if stage is None or self.stage_peak(ChosenStage(first, end, FINEST)) > budget:
            return None
        grains = self._grains(first, end)
        place = bisect.bisect_left(
            grains, True, key=lambda grain: self.stage_peak(ChosenStage(first, end, grain)) <= budget
        )
        return ChosenStage(first, end, grains[min(place, len(grains) - 1)])

    def _work(self, chosen: ChosenStage) -> int:
        """Calls of a stage, and the bytes that it moves."""
        if chosen not in self._works:
            stage, calls = self.calls(chosen)
            self._works[chosen] = CALL_WORK * len(calls) + moved_bytes(stage, calls)
        return self._works[chosen]

    def _around(self, stage: RollingStage) -> Around:
        made = {operator.output for operator in stage.operators}
        ending = [t for t in stage.readers if t not in made and self._live.ends_in(t, stage.end)]
        inputs = {}
        for tensor in ending:
            rows = self._graph.shape(tensor)[1]
            inputs[tensor] = rows, self._graph.tensor_bytes(tensor) // rows
        return Around(self._live.across(stage.first, stage.end), inputs)

    def _cost_alone(self, index: int) -> int:
        """Bytes that are needed at once while an operator runs as a whole."""
        operator = self._graph.operators[index]
        facts = OperatorFacts.of(self._model.root, self._model.subgraphs[0], operator)
        needs = self._kernels.needs(ShapedCall(0, index, facts, None))
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
        by_rows = rows is not None and runs_by_rows(rows, needs)
        saved = (
            shared_bytes(written, self._graph.tensor_bytes(tensor), allowed)
            for place, tensor in dying
            for allowed in (needs.overlaps[place], *(both_ways(rows) if by_rows and rows is not None else ()))
        )
        return alive - max(saved, default=0)
