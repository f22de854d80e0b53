"""Fewer kinds of operators that move elements: RESHAPE and SLICE in place of others that they can express."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from tflm.graph import Graph
from tflm.schema.enums import BuiltinOperator
from tflm.schema.options import ReshapeOptions, SliceOptions
from tflm.schema.tables import Operator

SPLITS = {BuiltinOperator.SPLIT: (1, 0), BuiltinOperator.SPLIT_V: (0, 2)}
"""The places of what is split and of the axis among the inputs."""
RESHAPES = (BuiltinOperator.EXPAND_DIMS, BuiltinOperator.SQUEEZE, BuiltinOperator.RESHAPE)


def normalize(graph: Graph) -> None:
    """Replace EXPAND_DIMS and SQUEEZE by RESHAPE, and STRIDED_SLICE without steps by SLICE and RESHAPE."""
    operators: list[Operator] = []
    for operator in graph.operators:
        code = graph.code(operator)
        inputs, outputs = operator.inputs or (), operator.outputs or ()
        if graph.has_state(operator):
            operators.append(operator)
        elif code in RESHAPES and graph.size(inputs[0]) == graph.size(outputs[0]):
            operators.append(reshape_to(graph, inputs[0], outputs[0]))
        elif code is BuiltinOperator.STRIDED_SLICE and (ranges := _ranges(graph, operator)) is not None:
            shape = [len(positions) for positions in ranges]
            is_shrunk = tuple(shape) != graph.shape(outputs[0])
            part = graph.add_tensor(outputs[0], None, shape) if is_shrunk else outputs[0]
            operators.append(slice_of(graph, inputs[0], part, [positions.start for positions in ranges]))
            if is_shrunk:
                operators.append(reshape_to(graph, part, outputs[0]))
        else:
            operators.append(operator)
    graph.operators = operators


def separate_parts(graph: Graph, ends: Collection[int]) -> None:
    """Replace SPLIT and SPLIT_V by a SLICE of each part where it is first read, and SLICE of a part by one.

    Args:
        graph: the graph.
        ends: tensors that are needed even if no operator reads them.
    """
    operators: list[Operator] = []
    parts: dict[int, tuple[int, list[int]]] = {}  # not yet written: the tensor that each is cut from, and where
    left: set[int] = set()

    def write(tensor: int) -> None:
        left.remove(tensor)
        operators.append(slice_of(graph, parts[tensor][0], tensor, parts[tensor][1]))

    for operator in graph.operators:
        code, inputs, outputs = graph.code(operator), operator.inputs or (), operator.outputs or ()
        if code is BuiltinOperator.SLICE and inputs[0] in parts and all(map(graph.is_constant, inputs[1:])):
            source, begins = parts[inputs[0]]
            own = graph.constant(inputs[1]).tolist()
            operators.append(slice_of(graph, source, outputs[0], [a + b for a, b in zip(begins, own)]))
            continue
        for tensor in dict.fromkeys(inputs):
            if tensor in left:
                write(tensor)
        place, axis = SPLITS.get(code, (0, 0))
        if code not in SPLITS or not graph.is_constant(inputs[axis]) or graph.tensors[inputs[place]].is_variable:
            operators.append(operator)
            continue
        source, begin = inputs[place], 0
        along = int(graph.constant(inputs[axis]).reshape(-1)[0]) % len(graph.shape(source))
        for output in outputs:
            parts[output] = source, [begin if each == along else 0 for each in range(len(graph.shape(source)))]
            begin += graph.shape(output)[along]
        left.update(outputs)
    for tensor in left.intersection(ends):
        write(tensor)
    graph.operators = operators


def reshape_to(graph: Graph, source: int, target: int) -> Operator:
    """A RESHAPE to the shape that the target has."""
    shape = graph.shape(target)
    inputs = [source, graph.add_constant("", np.array(shape, np.int32))]
    return graph.new_operator(BuiltinOperator.RESHAPE, inputs, [target], ReshapeOptions(new_shape=shape))


def slice_of(graph: Graph, source: int, target: int, begins: Sequence[int]) -> Operator:
    """A SLICE from these positions that has the shape of the target."""
    numbers = (np.array(values, np.int32) for values in (begins, graph.shape(target)))
    inputs = [source, *(graph.add_constant("", each) for each in numbers)]
    return graph.new_operator(BuiltinOperator.SLICE, inputs, [target], SliceOptions())


def _ranges(graph: Graph, operator: Operator) -> list[range] | None:
    """The positions that a STRIDED_SLICE reads in each dimension; None if they are unknown or not consecutive."""
    inputs, options = operator.inputs or (), operator.builtin_options
    shape = graph.shape(inputs[0])
    if not all(map(graph.is_constant, inputs[1:])) or any(graph.size(t) != len(shape) for t in inputs[1:]):
        return None
    flags: Any = options
    if flags is None or flags.ellipsis_mask or flags.new_axis_mask or flags.offset:
        return None
    ranges = []
    for axis, (begin, end, step) in enumerate(zip(*(graph.constant(t).tolist() for t in inputs[1:]))):
        if step != 1:
            return None
        if flags.shrink_axis_mask >> axis & 1:
            position = range(shape[axis])[begin]
            ranges.append(range(position, position + 1))
        else:
            first = None if flags.begin_mask >> axis & 1 else begin
            last = None if flags.end_mask >> axis & 1 else end
            ranges.append(range(shape[axis])[first:last])
    return ranges if all(ranges) else None
