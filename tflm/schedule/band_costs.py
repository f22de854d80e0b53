"""The cost of stages in bands for TFLM, joined by SLICE and CONCATENATION: arena and multiply-accumulates.

They are estimated without rewriting the model.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tflm.graph import Graph
from tflm.schedule.bands import MAXIMUM_CONCATENATED, BandOperator, BandRule, Stage, slices_in
from tflm.schedule.rows import Rows
from tflm.schedule.stage_search import Liveness, Tiling, tilings_within

LONGEST_STAGE = 16
"""Maximum number of operators in a stage."""

BUDGETS = 40
"""Number of head budgets to try, from the smallest possible head to the head without stages."""


class OperatorCosts(NamedTuple):
    """Costs of each operator of a graph, in bytes and multiply-accumulates.

    Attributes:
        tail: bytes of the tail that another operator of the same kind adds.
        scratch: bytes in the head while the operator runs.
        macs: multiply-accumulates.
        slice, concatenation: bytes of the tail that a SLICE and a CONCATENATION add.
    """

    tail: tuple[int, ...]
    scratch: tuple[int, ...]
    macs: tuple[int, ...]
    slice: int
    concatenation: int


class BandCost(NamedTuple):
    """Cost of a band: peak bytes of the head while it runs, bytes of the tail, and multiply-accumulates."""

    head: int
    tail: int
    macs: int


class BandedStage(NamedTuple):
    """Operators `first` to `end` - 1 in these bands, in execution order."""

    first: int
    end: int
    bands: tuple[Rows, ...]

    @property
    def backwards(self) -> bool:
        """Whether the last rows are computed first."""
        return self.bands[0].first > 0


class StageEstimate:
    """Computes the cost of a stage in bands.

    Args:
        stage: the stage.
        live: lifetimes of its graph's tensors.
        costs: costs of the graph's operators.
        unaliased: whether the bands of the output are copied together rather than computed in place.
    """

    def __init__(self, stage: Stage, live: Liveness, costs: OperatorCosts, unaliased: bool = False):
        self.stage = stage
        self._costs, self._unaliased = costs, unaliased
        graph = stage.graph
        self._across = live.across(stage.first, stage.end)
        self._ending = [tensor for tensor in stage.inputs if live.ends_in(tensor, stage.end)]
        made = {t for operator in graph.operators[stage.first : stage.end] for t in operator.outputs or ()}
        self._row_bytes = {t: graph.tensor_bytes(t) // graph.shape(t)[stage.axis] for t in {*stage.inputs, *made}}
        self._rows = {t: graph.shape(t)[stage.axis] for t in {*stage.inputs, *made}}
        self._macs_per_row = {
            i: costs.macs[i] // self._rows[(graph.operators[i].outputs or ())[0]] for i in range(stage.first, stage.end)
        }
        self._whole_tail = sum(costs.tail[stage.first : stage.end])
        self._whole_macs = sum(costs.macs[stage.first : stage.end])
        self._known: dict[tuple[Rows, bool], BandCost] = {}

    def within(self, head: int, backwards: bool) -> Tiling[BandedStage] | None:
        """Return the fewest bands that need at most `head` bytes of the head; None if there are none.

        Args:
            head: limit of the head, in bytes.
            backwards: whether the last rows are computed first.
        """
        rows, bands = self.stage.rows, []
        done, length = 0, rows
        while done < rows:
            length = self._longest(done, min(length * 2, rows - done), head, backwards)
            if not length:
                return None
            bands.append(_band(done, length, rows, backwards))
            done += length
        return self.of(bands, backwards) if len(bands) > 1 else None

    def of(self, bands: Sequence[Rows], backwards: bool) -> Tiling[BandedStage]:
        """Return the stage in these bands. Its cost is the number of bytes that it adds to the tail, and of
        multiply-accumulates."""
        costs = [self._cost(band, backwards) for band in bands]
        joins = concatenations(len(bands))
        head = max(cost.head for cost in costs)
        output = self._row_bytes[self.stage.output] * self.stage.rows
        if self._unaliased:
            head = max(head, self._across + 2 * output)
        tail = sum(cost.tail for cost in costs) + joins * self._costs.concatenation - self._whole_tail
        chosen = BandedStage(self.stage.first, self.stage.end, tuple(bands))
        return Tiling((chosen,), head, (tail, sum(cost.macs for cost in costs) - self._whole_macs))

    def _longest(self, done: int, rows: int, head: int, backwards: bool) -> int:
        """Return the number of rows of the longest band within `head`, at most `rows`; 0 if even one row exceeds it."""

        def fits(length: int) -> bool:
            return self._cost(_band(done, length, self.stage.rows, backwards), backwards).head <= head

        if fits(rows):
            return rows
        low, high = 0, rows
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    def _cost(self, band: Rows, backwards: bool) -> BandCost:
        key = band, backwards
        if key not in self._known:
            self._known[key] = self._work_out(band, backwards)
        return self._known[key]

    def _work_out(self, band: Rows, backwards: bool) -> BandCost:
        stage, row_bytes = self.stage, self._row_bytes
        program = stage.program(band)
        kept = self._kept_for_later(band, backwards)
        done = (stage.rows - band.end if backwards else band.first) * row_bytes[stage.output]
        base = self._across + done
        needed = dict(kept)  # rows that the current operator or later ones need; operators are visited backwards
        head, macs, tail = 0, 0, slices_in(stage, program, band) * self._costs.slice
        after = self._at_the_end(program[-1], band, backwards)
        for place in reversed(range(len(program))):
            index, step, operands = program[place]
            (output,) = stage.graph.operators[index].outputs or ()
            for operand in operands:
                before = needed.get(operand.tensor, operand.rows)
                needed[operand.tensor] = before.hull(operand.rows)
            needed.pop(output, None)
            alive = sum(self._alive_rows(t, rows, backwards) * row_bytes[t] for t, rows in needed.items())
            made = step.made.size * row_bytes[output] if place < len(program) - 1 else after
            head = max(head, base + alive + made + self._costs.scratch[index])
            macs += self._macs_per_row[index] * step.made.size
            tail += self._costs.tail[index]
        return BandCost(head, tail, macs)

    def _alive_rows(self, tensor: int, rows: Rows, backwards: bool) -> int:
        """Return the number of rows of a tensor that are in memory because some are still needed; 0 for an input that
        is also needed after the stage."""
        if tensor not in self.stage.inputs:
            return rows.size
        if tensor not in self._ending:
            return 0
        return rows.end if backwards else self._rows[tensor] - rows.first

    def _at_the_end(self, last: BandOperator, band: Rows, backwards: bool) -> int:
        """Return the bytes that the last operator of a band writes, plus a copy if garbage rows prevent computing it in
        place."""
        made, size = last.step.made, self._row_bytes[self.stage.output]
        spoils = made.end > band.end if backwards else made.first < band.first
        return (made.size + band.size * (spoils and made != band)) * size

    def _kept_for_later(self, band: Rows, backwards: bool) -> dict[int, Rows]:
        """Return the rows of the inputs that later bands need."""
        left = Rows(0, band.first) if backwards else Rows(band.end, self.stage.rows)
        if left.size <= 0:
            return {}
        return self._needed_next(left.end - 1 if backwards else left.first)

    @functools.cache  # noqa: B019  # lives as long as the search
    def _needed_next(self, row: int) -> dict[int, Rows]:
        needed: dict[int, Rows] = {}
        for _, _, operands in self.stage.program(Rows(row, row + 1)):
            for operand in operands:
                if operand.tensor in self._ending:
                    before = needed.get(operand.tensor, operand.rows)
                    needed[operand.tensor] = before.hull(operand.rows)
        return needed


def concatenations(parts: int) -> int:
    """Return the number of CONCATENATIONs that join this many parts."""
    count = 0
    while parts > 1:
        groups = -(-parts // MAXIMUM_CONCATENATED)
        count += groups - (parts % MAXIMUM_CONCATENATED == 1 and groups > 1)
        parts = groups
    return count


def _band(done: int, length: int, rows: int, backwards: bool) -> Rows:
    return Rows(rows - done - length, rows - done) if backwards else Rows(done, done + length)


def stages_of(
    graph: Graph, live: Liveness, rules: Sequence[BandRule | None], longest: int
) -> Callable[[int, int], Stage | None]:
    """Returns a function that finds the stage of operators `first` to `end` - 1, or None if they do not form one."""

    @functools.cache
    def stage(first: int, end: int) -> Stage | None:
        chosen = [rule for rule in rules[first:end] if rule is not None]
        if end - first > longest or len(chosen) != end - first:
            return None
        outputs = [(operator.outputs or ())[0] for operator in graph.operators[first:end]]
        if not all(live.is_inside(tensor, first, end) for tensor in outputs[:-1]):
            return None
        return Stage(graph, first, end, chosen)

    return stage


class BandCosts:
    """The costs of stages of a graph: bytes that they add to the tail, and multiply-accumulates; see `CostModel`.

    Args:
        graph: the graph.
        rules: the band rule of each operator, or None.
        costs: the costs of the operators.
        macs: maximum number of multiply-accumulates that stages may add.
        unaliased: see `StageEstimate`.

    Attributes:
        costs: the argument.
    """

    longest = LONGEST_STAGE

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
        self.costs, self._unaliased = costs, unaliased
        self._stage = stages_of(graph, self._live, rules, LONGEST_STAGE)
        self._estimates: dict[tuple[int, int], StageEstimate | None] = {}
        self.alone: Sequence[int] = [self._live.at(i) + costs.scratch[i] for i in range(len(graph.operators))]
        inputs = sum(self._live.size[tensor] for tensor in graph.inputs if tensor in self._live.size)
        self.start: Tiling[BandedStage] = Tiling((), inputs, (0, 0))
        self.limits: tuple[int, ...] = sys.maxsize, macs

    def tilings(self, deadline: float | None = None) -> Iterator[Tiling[BandedStage]]:
        """Return the best tilings for each of several budgets of the head, largest budget first."""
        low, high = self.start.peak, max([self.start.peak, *self.alone])
        step = max((high - low) // BUDGETS, 16)
        for budget in range(high - 16, low - 1, -step):
            if deadline is not None and time.monotonic() > deadline:
                return
            found = tilings_within(self, budget)
            if not found:
                return
            yield from found

    def stages(self, first: int, end: int, budget: int) -> Iterator[Tiling[BandedStage]]:
        """Return the stage with the fewest bands within a budget of the head, in both directions."""
        key = first, end
        if key not in self._estimates:
            stage = self._stage(first, end)
            made = None if stage is None else StageEstimate(stage, self._live, self.costs, self._unaliased)
            self._estimates[key] = made
        estimate = self._estimates[key]
        if estimate is None or self._live.across(first, end) > budget:
            return
        for backwards in (False, True):
            found = estimate.within(budget, backwards)
            if found is not None and found.peak <= budget:
                yield found

    def turned(self, stage: BandedStage, backwards: bool, head: int) -> BandedStage | None:
        """Return a stage in the given direction, within a head budget and in no more bands than before; None if
        impossible."""
        if stage.backwards == backwards:
            return stage
        estimate = self._estimates[stage.first, stage.end]
        found = estimate.within(head, backwards) if estimate is not None else None
        (turned,) = found.stages if found is not None else (None,)
        return turned if turned is not None and len(turned.bands) <= len(stage.bands) else None
