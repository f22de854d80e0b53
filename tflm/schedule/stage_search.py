"""Search for stages and bands: the lowest cost of staying within a budget for the head.

For each budget, every operator that exceeds it must be in a stage whose bands do not. The costs of stages, bytes of the
tail and multiply-accumulates, add up, so dynamic programming over the operators keeps the Pareto-optimal choices up to
each operator. The smallest arena is that of the budget with the smallest sum of head and tail.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tflm.graph import Graph
from tflm.schedule.bands import BandRule
from tflm.schedule.estimates import Liveness, OperatorCosts, StageCost, StageEstimate, stages_of
from tflm.schedule.rows import Rows

LONGEST_STAGE = 16
"""Most operators in a stage."""

BUDGETS = 40
"""Number of head budgets tried, from the least possible to the head without stages."""

KEPT = 12
"""Most Pareto-optimal choices kept at each operator."""


class ChosenStage(NamedTuple):
    """Operators `first` to `end` - 1 in these bands, in execution order."""

    first: int
    end: int
    bands: tuple[Rows, ...]

    @property
    def backwards(self) -> bool:
        """Whether the last rows come first."""
        return self.bands[0].first > 0


class Tiling(NamedTuple):
    """Stages for a graph, with their estimated cost.

    Attributes:
        stages: the stages, in order.
        head: bytes of the head.
        tail: additional bytes of the tail, compared with the graph without stages.
        macs: additional multiply-accumulates.
    """

    stages: tuple[ChosenStage, ...]
    head: int
    tail: int
    macs: int


class StageSearch:
    """Searches stages for a graph.

    Args:
        graph: the graph.
        rules: the band rule of each operator, or None.
        costs: costs of the operators.
        macs: most multiply-accumulates that stages may add.
        unaliased: see `StageEstimate`.

    Attributes:
        costs: the argument.
    """

    def __init__(
        self,
        graph: Graph,
        rules: Sequence[BandRule | None],
        costs: OperatorCosts,
        macs: int,
        *,
        unaliased: bool = False,
    ):
        self._live = Liveness(graph)
        self.costs, self._macs, self._unaliased = costs, macs, unaliased
        self._stage = stages_of(graph, self._live, rules, LONGEST_STAGE)
        self._estimates: dict[tuple[int, int], StageEstimate | None] = {}
        self._alone = [self._live.at(i) + costs.scratch[i] for i in range(len(graph.operators))]
        self._input = sum(self._live.size[tensor] for tensor in graph.inputs if tensor in self._live.size)

    @property
    def head_as_it_is(self) -> int:
        """Peak bytes of the head without stages."""
        return max([self._input, *self._alone])

    def tilings(self, deadline: float | None = None) -> Iterator[Tiling]:
        """The best tiling for each of many budgets, largest budget first."""
        low, high = self._input, self.head_as_it_is
        step = max((high - low) // BUDGETS, 16)
        for budget in range(high - 16, low - 1, -step):
            if deadline is not None and time.monotonic() > deadline:
                return
            found = self.within(budget)
            if not found:
                return
            yield from found

    def within(self, head: int) -> list[Tiling]:
        """Tilings within a head budget: the smallest tail for each amount of extra work."""
        count = len(self._alone)
        ways: list[list[Tiling]] = [[] for _ in range(count + 1)]
        ways[0] = [Tiling((), self._input, 0, 0)]
        too_much = [need > head for need in self._alone]
        for i in range(count):
            ways[i] = _best_of(ways[i])
            if not ways[i]:
                continue
            if not too_much[i]:
                ways[i + 1] += [way._replace(head=max(way.head, self._alone[i])) for way in ways[i]]
            for end in range(i + 1, min(i + LONGEST_STAGE, count) + 1):
                if any(too_much[i:end]):
                    for cost in self._costs_of(i, end, head):
                        chosen = ChosenStage(i, end, cost.bands)
                        ways[end] += [_with(way, chosen, cost) for way in ways[i] if way.macs + cost.macs <= self._macs]
        return _best_of(ways[count])

    def turned(self, stage: ChosenStage, backwards: bool, head: int) -> ChosenStage | None:
        """A stage in the given direction, within a head budget and in no more bands than before; None if impossible."""
        if stage.backwards == backwards:
            return stage
        estimate = self._estimates[stage.first, stage.end]
        cost = estimate.within(head, backwards) if estimate is not None else None
        return stage._replace(bands=cost.bands) if cost is not None and len(cost.bands) <= len(stage.bands) else None

    def _costs_of(self, first: int, end: int, head: int) -> Iterator[StageCost]:
        key = first, end
        if key not in self._estimates:
            stage = self._stage(first, end)
            made = None if stage is None else StageEstimate(stage, self._live, self.costs, self._unaliased)
            self._estimates[key] = made
        estimate = self._estimates[key]
        if estimate is None or self._live.across(first, end) > head:
            return
        for backwards in (False, True):
            cost = estimate.within(head, backwards)
            if cost is not None and cost.head <= head:
                yield cost


def _with(way: Tiling, stage: ChosenStage, cost: StageCost) -> Tiling:
    stages = (*way.stages, stage)
    return Tiling(stages, max(way.head, cost.head), way.tail + cost.tail, way.macs + cost.macs)


def _best_of(ways: Sequence[Tiling]) -> list[Tiling]:
    """The Pareto-optimal choices of tail and work, by increasing tail."""
    best: list[Tiling] = []
    for way in sorted(ways, key=lambda way: (way.tail, way.macs, way.head)):
        if not best or way.macs < best[-1].macs:
            best.append(way)
    return best[:KEPT]
