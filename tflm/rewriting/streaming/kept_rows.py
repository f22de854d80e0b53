"""The rows of each tensor that are the same rows in the next window, by tags.

A row's tag stands for everything that the row was computed from: frames by their number in time, operators by their
index, padding by its place in the window. A row of one window may replace a row of another exactly if both have the
same tag. Each tensor is tagged for two consecutive windows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

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
