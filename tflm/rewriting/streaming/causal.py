"""The time axis of a network, and its causal form: no layer pads time, the window begins as many frames earlier.

A layer that pads time at both ends looks at frames that are still to come, so rows near the end of a window differ
from those of the next one. In the causal form, its windows move back by the padding at the end, and read rows from
before the window in place of padding at its start. That is another network, with the same weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tflm.errors import ArgumentError, StreamError
from tflm.graph import Graph
from tflm.kernels.shapes import require_axis
from tflm.rewriting.streaming.kept_rows import RowPlan, RowsOfTensor, Timeline, ranges_to_compute, row_plan, timeline
from tflm.rewriting.streaming.stream_writer import StreamWriter
from tflm.rewriting.streaming.time_rules import TimeRule, Track, moved, time_rule
from tflm.schedule.bands import WINDOWED, windows_of
from tflm.schedule.rows import Rows
from tflm.schema.enums import ELEMENT_TYPES, BuiltinOperator, Padding
from tflm.schema.model import Model
from tflm.schema.options import PadOptions, PadV2Options
from tflm.schema.tables import Operator

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


def minimum_hop(graph: Graph, timeline: Timeline) -> int:
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


def causal_form(model: Model, streamed: int, track: Track) -> tuple[Model, int]:
    """The causal form along frames at this place in an input, and the frames by which its window is longer.

    Raises:
        StreamError: a layer pads time that has no causal form; the message names it.
    """
    graph = Graph(model)
    _pad_separately(graph, streamed, track)
    rules = [_moved_back(rule) for rule in tracks_of(graph, streamed, track)]
    timed = timeline(graph, rules, streamed, track, 1)
    earlier = _rows_before(graph, rules)
    plan = {}
    for tensor, found in timed.tensors.items():
        whole = (Rows(-earlier.get(tensor, 0), found.track.rows),)
        plan[tensor] = RowsOfTensor(whole, (), whole, 0)
    StreamWriter(graph, timed, plan, {}).write(streamed)
    return Model(graph.written()), earlier.get(streamed, 0)


def _moved_back(rule: TimeRule | None) -> TimeRule | None:
    return rule if rule is None or rule.causal is None else rule._replace(step=rule.causal)


def _rows_before(graph: Graph, rules: Sequence[TimeRule | None]) -> Mapping[int, int]:
    """How many rows from before the window are read of each tensor."""
    earlier: dict[int, int] = {}
    for operator, rule in reversed(list(zip(graph.operators, rules))):
        if rule is None:
            continue
        first = -max(earlier.get(output, 0) for output in operator.outputs or ())
        for place, rows in rule.step(Rows(first, rule.track.rows)).needed.items():
            tensor = (operator.inputs or ())[place]
            earlier[tensor] = max(earlier.get(tensor, 0), -rows.first)
    return earlier


def _pad_separately(graph: Graph, streamed: int, track: Track) -> None:
    """Let a PAD do the padding of layers that pad both time and the other dimension of an image."""
    operators: list[Operator] = []
    for index, (operator, rule) in enumerate(zip(graph.operators, tracks_of(graph, streamed, track))):
        options: Any = operator.builtin_options
        if rule is not None and graph.code(operator) in WINDOWED:
            axes = windows_of(graph, operator, options)
            assert axes is not None
            if axes[2 - rule.track.axis].leaves_image:
                if graph.code(operator) is BuiltinOperator.AVERAGE_POOL_2D:
                    raise StreamError(
                        f"operator {index} (AVERAGE_POOL_2D) leaves out padding of two dimensions, which has no causal "
                        "form; stream the model without --causal, or pool without padding"
                    )
                borders = [(axis.before, max(axis.stop - axis.size, 0)) for axis in axes]
                padded = _padded(graph, operator, borders)
                operators.append(padded)
                inputs = [*(padded.outputs or ()), *(operator.inputs or ())[1:]]
                operator = graph.like(operator, inputs, operator.outputs or (), padding=Padding.VALID)
        operators.append(operator)
    graph.operators = operators


def _padded(graph: Graph, operator: Operator, borders: Sequence[tuple[int, int]]) -> Operator:
    """Return a PAD of the image that an operator reads, with the padding that the operator omits."""
    image = (operator.inputs or ())[0]
    shape = graph.shape(image)
    paddings = np.array([(0, 0), *borders, (0, 0)], np.int32)
    padded = graph.add_tensor(image, None, [size + sum(border) for size, border in zip(shape, paddings.tolist())])
    inputs = [image, graph.add_constant("", paddings)]
    if graph.code(operator) is not BuiltinOperator.MAX_POOL_2D:
        return graph.new_operator(BuiltinOperator.PAD, inputs, [padded], PadOptions())
    table = graph.tensors[image]
    dtype = ELEMENT_TYPES[table.type].dtype
    lowest = np.array([np.finfo(dtype).min if dtype.kind == "f" else np.iinfo(dtype).min], dtype)
    inputs.append(graph.add_constant("", lowest, table.quantization))
    return graph.new_operator(BuiltinOperator.PADV2, inputs, [padded], PadV2Options())
