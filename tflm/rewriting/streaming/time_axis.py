"""Finds the time axis of a model's input, and follows it through the graph."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tflm.errors import ArgumentError
from tflm.graph import Graph
from tflm.kernels.shapes import require_axis
from tflm.rewriting.streaming.kept_rows import Timeline, timeline
from tflm.rewriting.streaming.row_plan import RowPlan, ranges_to_compute, row_plan
from tflm.rewriting.streaming.time_rules import TimeRule, Track, moved, time_rule
from tflm.schedule.bands import WINDOWED
from tflm.schema.enums import BuiltinOperator

CONVOLUTIONS = (BuiltinOperator.CONV_2D, BuiltinOperator.DEPTHWISE_CONV_2D)


@dataclass(frozen=True)
class Stream:
    """A way to stream a graph.

    Attributes:
        streamed: the input that frames arrive in.
        track: its frames.
        timeline: time in all tensors.
        plan: the rows that an invoke computes and keeps.
        macs: multiply-accumulates of an invoke for each operator.
    """

    streamed: int
    track: Track
    timeline: Timeline
    plan: RowPlan
    macs: Sequence[int]


def tracks_of(graph: Graph, streamed: int, track: Track) -> list[TimeRule | None]:
    """The rule of each operator if frames are at this place in an input."""
    tracks, rules = {streamed: track}, []
    for operator in graph.operators:
        rule = time_rule(graph, operator, tracks)
        rules.append(rule)
        if rule is not None:
            tracks |= dict.fromkeys(operator.outputs or (), rule.track)
    return rules


def candidates(graph: Graph, tensor: int, axis: int | None) -> list[Track]:
    """Return the possible positions of frames in an input: along each dimension, or as a RESHAPE of the input divides
    it.

    Raises:
        ArgumentError: the axis is out of range.
    """
    shape = graph.shape(tensor)
    if axis is not None and not -len(shape) <= axis < len(shape):
        raise ArgumentError(f"axis {axis} is out of range for the input's shape {list(shape)}")
    allowed = range(len(shape)) if axis is None else [require_axis(axis, len(shape))]
    found = [Track(each, 1, shape[each]) for each in allowed]
    for operator in graph.operators:
        inputs, outputs = operator.inputs or (), operator.outputs or ()
        if graph.code(operator) is BuiltinOperator.RESHAPE and inputs[0] == tensor:
            made = graph.shape(outputs[0])
            back = (moved(Track(each, 1, rows), made, shape) for each, rows in enumerate(made))
            found += [track for track in back if track is not None and track.axis in allowed]
    return [track for track in dict.fromkeys(found) if track.rows > 1]


def stream_along(graph: Graph, macs: Sequence[int], streamed: int, track: Track, hop: int) -> Stream:
    """Stream a graph with frames at this place in an input.

    Args:
        macs: multiply-accumulates of each operator for a window.
    """
    found = timeline(graph, tracks_of(graph, streamed, track), streamed, track, hop)
    plan = row_plan(graph, found, streamed)
    return Stream(streamed, track, found, plan, list(_macs(graph, found, plan, macs)))


def _macs(graph: Graph, timeline: Timeline, plan: RowPlan, macs: Sequence[int]) -> Iterator[int]:
    for operator, rule, whole in zip(graph.operators, timeline.rules, macs):
        if rule is None:
            yield whole
        else:
            read = [output for output in operator.outputs or () if output in plan]
            rows = sum(rule.step(rows).made.size for rows in ranges_to_compute(plan, read))
            yield whole * rows // max(rule.track.rows, 1)


def least_hop(graph: Graph, timeline: Timeline) -> int:
    """The smallest hop for which every convolution and pooling of several windows moves by whole rows."""
    strides = [1]
    for operator, rule in zip(graph.operators, timeline.rules):
        if rule is not None and graph.code(operator) in WINDOWED and rule.track.rows > 1:
            strides.append(timeline.tensors[(operator.outputs or ())[0]].stride)
    return math.lcm(*strides)


def convolution_out_of_step(graph: Graph, timeline: Timeline) -> int | None:
    """Return the first convolution of several windows whose rows do not move by a whole number; None if there is
    none."""
    for index, (operator, rule) in enumerate(zip(graph.operators, timeline.rules)):
        outputs: Any = operator.outputs or ()
        if rule is None or graph.code(operator) not in CONVOLUTIONS or rule.track.rows == 1:
            continue
        if timeline.tensors[outputs[0]].shift is None:
            return index
    return None
