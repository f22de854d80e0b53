"""Estimates the arena and work of a stage in bands without rewriting the model."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tflm.graph import Graph
from tflm.memory import ARENA_ALIGNMENT
from tflm.schedule.bands import BandRule
from tflm.schedule.rows import Rows
from tflm.schedule.stage import MAXIMUM_CONCATENATED, BandOperator, Stage, slices_in
from tflm.targets import align_up


class OperatorCosts(NamedTuple):
    """Costs of each operator of a graph, in bytes and multiply-accumulates.

    Attributes:
        tail: bytes of the tail that another operator of the same kind takes.
        scratch: bytes that it needs in the head while it runs.
        macs: multiply-accumulates.
        slice, concatenation: bytes of the tail of a SLICE and of a CONCATENATION.
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


class StageCost(NamedTuple):
    """A stage in bands: the bands in the order in which they run, and their cost.

    Attributes:
        head: peak bytes of the head.
        tail: additional bytes of the tail.
        macs: additional multiply-accumulates.
    """

    bands: tuple[Rows, ...]
    head: int
    tail: int
    macs: int


class Liveness:
    """Which tensors of a graph are needed when its operators run one after the other.

    Args:
        graph: the graph.
        alignment: that sizes of tensors are rounded up to, in bytes.
    """

    def __init__(self, graph: Graph, alignment: int = ARENA_ALIGNMENT):
        self._graph = graph
        readers = graph.readers()
        over = len(graph.operators)
        outputs = set(graph.outputs)
        made = dict.fromkeys(graph.inputs, -1) | graph.producers()
        plain = [t for t in made if not graph.tensors[t].is_variable]
        self._life = {t: (made[t], over if t in outputs else max(readers.get(t, [made[t]]))) for t in plain}
        self._readers = readers
        self.size = {t: align_up(graph.tensor_bytes(t), alignment) for t in plain}

    def at(self, index: int) -> int:
        """Bytes needed while an operator runs."""
        return sum(self.size[t] for t, (first, last) in self._life.items() if first <= index <= last)

    def across(self, first: int, end: int) -> int:
        """Bytes of tensors that are computed before some operators and needed after them."""
        return sum(self.size[t] for t, (made, last) in self._life.items() if made < first and last >= end)

    def ends_in(self, tensor: int, end: int) -> bool:
        """Whether a tensor is not needed from an operator on."""
        return self._life[tensor][1] < end

    def is_inside(self, tensor: int, first: int, end: int) -> bool:
        """Whether a tensor is computed and needed only among some operators."""
        made, last = self._life.get(tensor, (-1, len(self._graph.operators)))
        return first <= made and last < end


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
            i: costs.macs[i] // max(graph.shape((graph.operators[i].outputs or ())[0])[stage.axis], 1)
            for i in range(stage.first, stage.end)
        }
        self._whole_tail = sum(costs.tail[stage.first : stage.end])
        self._whole_macs = sum(costs.macs[stage.first : stage.end])
        self._known: dict[tuple[Rows, bool], BandCost] = {}

    def within(self, head: int, backwards: bool) -> StageCost | None:
        """The fewest bands that stay within a number of bytes of the head; None if there are none.

        Args:
            head: bytes.
            backwards: whether the last rows come first.
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

    def of(self, bands: Sequence[Rows], backwards: bool) -> StageCost:
        """The cost of the stage in these bands."""
        costs = [self._cost(band, backwards) for band in bands]
        joins = concatenations(len(bands))
        head = max(cost.head for cost in costs)
        output = self._row_bytes[self.stage.output] * self.stage.rows
        if self._unaliased:
            head = max(head, self._across + 2 * output)
        tail = sum(cost.tail for cost in costs) + joins * self._costs.concatenation - self._whole_tail
        return StageCost(tuple(bands), head, tail, sum(cost.macs for cost in costs) - self._whole_macs)

    def _longest(self, done: int, most: int, head: int, backwards: bool) -> int:
        """Rows of the longest band within `head`, at most `rows`; 0 if even one row exceeds it."""

        def fits(length: int) -> bool:
            return self._cost(_band(done, length, self.stage.rows, backwards), backwards).head <= head

        if fits(most):
            return most
        low, high = 0, most
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
        needed = dict(kept)  # rows needed at or after the current operator, going backwards
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
        """Rows of a tensor that take memory while some are still needed; 0 for an input that is needed after the
        stage.
        """
        if tensor not in self.stage.inputs:
            return rows.size
        if tensor not in self._ending:
            return 0
        return rows.end if backwards else self._rows[tensor] - rows.first

    def _at_the_end(self, last: BandOperator, band: Rows, backwards: bool) -> int:
        """Bytes that the last operator of a band writes, plus a copy if garbage prevents computing it in place."""
        made, size = last.step.made, self._row_bytes[self.stage.output]
        spoils = made.end > band.end if backwards else made.first < band.first
        return (made.size + band.size * (spoils and made != band)) * size

    def _kept_for_later(self, band: Rows, backwards: bool) -> dict[int, Rows]:
        """Rows of the inputs that later bands need."""
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
    """Number of CONCATENATIONs that join this many parts."""
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
