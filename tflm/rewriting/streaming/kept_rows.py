"""The rows of each tensor that an invoke computes, and those that it takes from the previous invoke, by tags.

A row's tag stands for everything that the row was computed from: frames by their number in time, operators by their
index, padding by its place in the window. A row of one window may replace a row of another exactly if both have the
same tag. Each tensor is tagged for two consecutive windows.

Working backwards from the outputs, a tensor is needed in the rows that operators read for the rows that they compute.
Of these, rows that are the same as in the window before, and were needed there, are kept in variables. The others are
computed: new rows at the end, and rows next to padding at both ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from tflm.graph import Graph
from tflm.rewriting.streaming.time_rules import TimeRule, Track
from tflm.schedule.rows import Rows


@dataclass(frozen=True)
class TimedTensor:
    """A tensor with rows along time.

    Attributes:
        track: where they are.
        stride: number of frames from one row to the next.
        shift: number of rows that a window moves by; None if that is not a whole number.
        same: rows of a window that are row + `shift` of the window before.
    """

    track: Track
    stride: int
    shift: int | None
    same: Collection[int]


@dataclass(frozen=True)
class Timeline:
    """A graph along time.

    Attributes:
        hop: frames from one window to the next.
        tensors: those that have rows, by index.
        rules: the rule of each operator; None for one that is computed whole.
    """

    hop: int
    tensors: Mapping[int, TimedTensor]
    rules: Sequence[TimeRule | None]


class _Tags:
    """Equal tags for equal keys."""

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {}

    def __call__(self, *key: object) -> int:
        return self._numbers.setdefault(key, len(self._numbers))


def timeline(graph: Graph, rules: Sequence[TimeRule | None], streamed: int, track: Track, hop: int) -> Timeline:
    """Tag the tensors of two consecutive windows, and compare them.

    Args:
        streamed: the input tensor that frames arrive in.
        track: its frames.
        hop: frames from one window to the next.
    """
    tag = _Tags()
    this, following = (_tagged(graph, rules, streamed, track, window * hop, tag) for window in range(2))
    tensors = {streamed: _compared(track, 1, hop, this[streamed], following[streamed])}
    for operator, rule in zip(graph.operators, rules):
        if rule is None:
            continue
        source = tensors[(operator.inputs or ())[rule.places[0]]]
        stride = source.stride * rule.stride
        for output in operator.outputs or ():
            tensors[output] = _compared(rule.track, stride, hop, this[output], following[output])
    return Timeline(hop, tensors, rules)


def _tagged(
    graph: Graph, rules: Sequence[TimeRule | None], streamed: int, track: Track, first: int, tag: _Tags
) -> dict[int, list[int]]:
    """A tag for each row of each tensor in the window that begins with the frame `first`."""
    tags = {streamed: [tag("frame", first + row) for row in range(track.rows)]}
    for index, (operator, rule) in enumerate(zip(graph.operators, rules)):
        if rule is None:
            continue
        inputs = operator.inputs or ()
        for number, output in enumerate(operator.outputs or ()):
            tags[output] = [
                tag(index, number, *(None if r.row is None else tags[inputs[r.place]][r.row] for r in rule.reads(row)))
                for row in range(rule.track.rows)
            ]
    return tags


def _compared(track: Track, stride: int, hop: int, this: Sequence[int], following: Sequence[int]) -> TimedTensor:
    if hop % stride:
        return TimedTensor(track, stride, None, ())
    shift = hop // stride
    same = {row for row in range(track.rows - shift) if following[row] == this[row + shift]}
    return TimedTensor(track, stride, shift, same)


def runs(numbers: Iterable[int]) -> Iterator[Rows]:
    """The ranges of consecutive numbers, in order."""
    for _, group in groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        yield Rows(run[0], run[-1] + 1)


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
    held = needed | set(same)
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
