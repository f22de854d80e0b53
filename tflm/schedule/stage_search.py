"""The search for stages: which operators run a few rows at a time, so that a model fits a memory budget.

Each operator that exceeds the budget must be in a stage that does not. The costs of stages add up, so dynamic
programming over the operators keeps the Pareto-optimal choices up to each of them. The cost of a stage depends on how
it is run: see `band_costs` for bands in TFLM, and `line_buffer_costs` for calls of generated C.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

Stage = TypeVar("Stage")

KEPT = 12
"""Maximum number of Pareto-optimal choices kept at each operator."""


@dataclass(frozen=True)
class Tiling(Generic[Stage]):
    """Stages of a model, in order, with their estimated cost.

    Attributes:
        stages: the stages; all other operators run as a whole.
        peak: bytes in use at once.
        cost: cost that the stages add, in the units of their cost model.
    """

    stages: tuple[Stage, ...]
    peak: int
    cost: tuple[int, ...]

    def followed_by(self, other: Tiling[Stage]) -> Tiling[Stage]:
        """Return the tiling of these operators and those of another tiling that follow."""
        cost = tuple(map(sum, zip(self.cost, other.cost)))
        return Tiling((*self.stages, *other.stages), max(self.peak, other.peak), cost)


class CostModel(Protocol[Stage]):
    """The costs of a model's stages.

    Attributes:
        start: the tiling of no operators.
        alone: bytes in use while each operator runs as a whole.
        longest: maximum number of operators in a stage.
        limits: maximum cost of a tiling.
    """

    start: Tiling[Stage]
    alone: Sequence[int]
    longest: int
    limits: tuple[int, ...]

    def stages(self, first: int, end: int, budget: int) -> Iterable[Tiling[Stage]]:
        """Return the ways to run operators `first` to `end` - 1 as one stage within `budget` bytes."""


def tilings_within(costs: CostModel[Stage], budget: int) -> list[Tiling[Stage]]:
    """Return the Pareto-optimal tilings that use at most `budget` bytes at once, the cheapest first."""
    exceeds = [need > budget for need in costs.alone]
    best = [[costs.start]]
    for end in range(1, len(exceeds) + 1):
        found = []
        if not exceeds[end - 1]:
            found += [replace(tiling, peak=max(tiling.peak, costs.alone[end - 1])) for tiling in best[end - 1]]
        for first in range(end - 1, max(end - costs.longest, 0) - 1, -1):
            if best[first] and any(exceeds[first:end]):
                for stage in costs.stages(first, end, budget):
                    longer = (tiling.followed_by(stage) for tiling in best[first])
                    found += [each for each in longer if all(map(int.__le__, each.cost, costs.limits))]
        best.append(_pareto_optimal(found))
    return best[-1]


def _pareto_optimal(tilings: Sequence[Tiling[Stage]]) -> list[Tiling[Stage]]:
    """The Pareto front of the tilings, by one or two costs."""
    best: list[Tiling[Stage]] = []
    for tiling in sorted(tilings, key=lambda tiling: (tiling.cost, tiling.peak)):
        if not best or tiling.cost[-1] < best[-1].cost[-1]:
            best.append(tiling)
    return best[:KEPT]
