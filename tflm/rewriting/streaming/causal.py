"""The causal form of a network: no layer pads time, and the window begins as many frames earlier instead.

A layer that pads time at both ends looks at frames that are still to come, so rows near the end of a window differ
from those of the next one. In the causal form, its windows move back by the padding at the end, and read rows from
before the window in place of padding at its start. That is another network, with the same weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tflm.errors import StreamError
from tflm.graph import Graph
from tflm.rewriting.streaming.kept_rows import timeline
from tflm.rewriting.streaming.row_plan import RowsOfTensor
from tflm.rewriting.streaming.stream_writer import StreamWriter
from tflm.rewriting.streaming.time_axis import tracks_of
from tflm.rewriting.streaming.time_rules import TimeRule, Track
from tflm.schedule.bands import WINDOWED, windows_of
from tflm.schedule.rows import Rows
from tflm.schema.element_types import ELEMENT_TYPES
from tflm.schema.enums import BuiltinOperator, Padding
from tflm.schema.model import Model
from tflm.schema.options import PadOptions, PadV2Options
from tflm.schema.tables import Operator


def causal_form(model: Model, streamed: int, track: Track) -> tuple[Model, int]:
    """The causal form along frames at this place in an input, and the frames by which its window is longer.

    Raises:
        StreamError: a layer pads time that has no causal form; the message names it.
    """
    graph = Graph(model)
    _pad_apart(graph, streamed, track)
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


def _pad_apart(graph: Graph, streamed: int, track: Track) -> None:
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
