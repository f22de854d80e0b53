"""Plan which rows of each tensor an invoke computes, and which it takes from the previous invoke.

Working backwards from the outputs, a tensor is needed in the rows that operators read for the rows that they compute.
Of these, rows that are the same as in the window before, and were needed there, are kept in variables. The others are
computed: new rows at the end, and rows next to padding at both ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from tflm.graph import Graph
from tflm.rewriting.streaming.kept_rows import Timeline, runs
from tflm.schedule.rows import Rows


class RowsOfTensor(NamedTuple):
    """The rows of a tensor in one invoke, as ranges in order.

    Attributes:
        needed: all rows that operators read.
        kept: rows taken from the previous invoke, in which they were rows `kept + shift`.
        computed: the other rows.
        shift: number of rows that a window moves by.
    """

    needed: tuple[Rows, ...]
    kept: tuple[Rows, ...]
    computed: tuple[Rows, ...]
    shift: int

    def saved(self, kept: Rows) -> Rows:
        """The rows that the next invoke finds as `kept`."""
        return Rows(kept.first + self.shift, kept.end + self.shift)


RowPlan = Mapping[int, RowsOfTensor]
"""The rows of each tensor that has rows and is read, by its index."""


def row_plan(graph: Graph, timeline: Timeline, streamed: int, keeps: bool = True) -> RowPlan:
    """The rows that each invoke computes and keeps.

    Args:
        streamed: the input whose new frames arrive with each invoke.
        keeps: False to compute all rows again, except for frames.
    """
    tensors = timeline.tensors
    needed: dict[int, set[int]] = {}

    def need(tensor: int, rows: Iterable[int]) -> None:
        needed.setdefault(tensor, set()).update(rows)

    def need_whole(indices: Sequence[int]) -> None:
        for tensor in indices:
            if tensor in tensors:
                need(tensor, range(tensors[tensor].track.rows))

    need_whole(graph.outputs)
    plan: dict[int, RowsOfTensor] = {}
    for operator, rule in reversed(list(zip(graph.operators, timeline.rules))):
        inputs, outputs = operator.inputs or (), operator.outputs or ()
        if rule is None:
            need_whole(inputs)
            continue
        read = [output for output in outputs if output in needed]
        for output in read:
            plan[output] = _divided(needed[output], timeline, output, keeps)
        for rows in ranges_to_compute(plan, read):
            for place, operand in rule.step(rows).needed.items():
                need(inputs[place], range(*operand))
    frames = tensors[streamed].track.rows
    first = min(needed.get(streamed, {frames}))
    need(streamed, range(min(first, frames - timeline.hop), frames))
    plan[streamed] = _divided(needed[streamed], timeline, streamed, True)
    return plan


def ranges_to_compute(plan: RowPlan, outputs: Sequence[int]) -> list[Rows]:
    """The ranges that an operator computes for all of its outputs."""
    return list(runs({row for output in outputs for rows in plan[output].computed for row in range(*rows)}))


def _divided(needed: Collection[int], timeline: Timeline, tensor: int, keeps: bool) -> RowsOfTensor:
    """Keep all rows that are the same as in the window before, with the rows that they pass on their way."""
    timed = timeline.tensors[tensor]
    shift = timed.shift if keeps and timed.shift is not None else 0
    held = _on_the_way(set(needed), timed.same, shift) if shift else set(needed)
    kept = {row for row in held if shift and row in timed.same and row + shift in held}
    return RowsOfTensor(tuple(runs(held)), tuple(runs(kept)), tuple(runs(held - kept)), shift)


def _on_the_way(needed: set[int], same: Collection[int], shift: int) -> set[int]:
    """The needed rows, and others that are kept only because they become needed rows in a later window."""
    held = needed | {row for row in same if min(needed) <= row <= max(needed)}
    while True:
        # A row in between must come from the window before, and go to a row that is kept.
        useless = {
            row
            for row in held - needed
            if row + shift not in held or row - shift not in held or row - shift not in same
        }
        if not useless:
            return held
        held -= useless
