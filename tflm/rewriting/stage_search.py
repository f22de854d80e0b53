"""The search for stages and bands: for a budget of the head, the least that it costs to stay within it.

For each budget, every operator that needs more has to be in a stage whose bands do not. What stages cost adds up, in
bytes of the tail and in work; so a table over the operators, in their order, holds the ways to have come so far of
which none is better in both. The smallest arena is that of the budget with the smallest sum of head and tail.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tflm.rewriting.bands import BandRule
from tflm.rewriting.estimates import Liveness, OperatorCosts, StageCost, StageEstimate, stages_of
from tflm.rewriting.graph import Graph
from tflm.rewriting.rows import Rows

LONGEST_STAGE = 16
"""Operators in a stage at most."""

BUDGETS = 40
"""Heads that are tried, from the least that is needed to what is needed without stages."""

KEPT = 12
"""Ways to have come so far that are kept at each operator."""


class ChosenStage(NamedTuple):
    """Operators `first` to `end` - 1 in these bands, which run in this order."""

    first: int
    end: int
    bands: tuple[Rows, ...]

    @property
    def backwards(self) -> bool:
        """Whether the last rows come first."""
        return self.bands[0].first > 0


class Tiling(NamedTuple):
    """Stages for a graph, with what is expected of them.

    Attributes:
        stages: in order.
        head: bytes of the head.
        tail: bytes of the tail beyond those that the graph has without stages.
        macs: multiply-accumulates beyond those.
    """

    stages: tuple[ChosenStage, ...]
    head: int
    tail: int
    macs: int


class StageSearch:
    """Searches stages for a graph.

    Args:
        graph: the graph.
        rules: how each operator runs in bands, or None.
        costs: what each takes.
        macs: multiply-accumulates that stages may add.
        unaliased: see `StageEstimate`.

    Attributes:
        costs: as given.
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
        """The most bytes that are needed at once without stages."""
        return max([self._input, *self._alone])

    def tilings(self, deadline: float | None = None) -> Iterator[Tiling]:
        """What was found for each of many budgets, from the largest down."""
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
        """Stages with which the head stays within so many bytes: those with the least tail, for any amount of work."""
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
        """A stage in one of the directions, within a head and in no more bands than it has; None if there is no way."""
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
    """Those of which no other has less tail and no more work, by rising tail."""
    best: list[Tiling] = []
    for way in sorted(ways, key=lambda way: (way.tail, way.macs, way.head)):
        if not best or way.macs < best[-1].macs:
            best.append(way)
    return best[:KEPT]
