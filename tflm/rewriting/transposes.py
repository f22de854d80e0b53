"""Merges and removes TRANSPOSEs, and moves them through other operators until they cancel.

PyTorch and ONNX models put an image's channels first, TFLM puts them last; converters insert a TRANSPOSE wherever the
two layouts meet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from tflm.graph import Graph
from tflm.kernels.reference.transpose import MAXIMUM_RANK, TYPES
from tflm.rewriting.cleanup import (
    Order,
    composed,
    drop_operators_to_no_effect,
    drop_unread_operators,
    inverse,
    is_identity,
    moves_nothing,
    order_of,
    transposed,
)
from tflm.rewriting.layouts import Change, flipped, run_in
from tflm.schedule.stage_search import Liveness
from tflm.schema.enums import BuiltinOperator
from tflm.schema.options import ReshapeOptions, TransposeOptions
from tflm.schema.tables import Operator

MAX_SHRUNK = 8
"""Size of the largest region whose parts, with single operators removed, are tried too."""


class Region(NamedTuple):
    """Operators that run on transposed tensors.

    Attributes:
        changes: the change to each operator, by index.
        orders: for each tensor, the TRANSPOSE from its replacement.
    """

    changes: Mapping[int, Change]
    orders: Mapping[int, Order]

    def without(self, index: int) -> Region:
        """The region without one operator."""
        return self._replace(changes={i: change for i, change in self.changes.items() if i != index})


class Cost(NamedTuple):
    """Cost of a graph; costs are compared field by field."""

    operators: int
    transposed_bytes: int


def move_transposes(graph: Graph) -> int:
    """Merge consecutive TRANSPOSEs, and run the operators between others in another layout if fewer remain.

    No rewrite increases the number of operators or the memory peak.

    Returns:
        The number of TRANSPOSEs removed or the number of moves, whichever is greater.
    """
    before = len(_transposes(graph))
    moves = int(_try(graph, None))
    while _moved_one(graph):
        moves += 1
    return max(before - len(_transposes(graph)), moves)


def reshape_instead(graph: Graph) -> int:
    """Merge a TRANSPOSE that only moves dimensions of 1 into the RESHAPE before it; returns the number merged.

    Without such a RESHAPE it stays, because a RESHAPE takes more of TFLM's arena than a TRANSPOSE.
    """
    replaced = 0
    readers, producers = graph.readers(), graph.producers()
    for place, operator in enumerate(graph.operators):
        if not moves_nothing(graph, operator):
            continue
        x, y = (operator.inputs or ())[0], (operator.outputs or ())[0]
        before = graph.operators[producers[x]] if x in producers else None
        if before is None or graph.code(before) is not BuiltinOperator.RESHAPE or graph.has_state(before):
            continue
        if readers[x] == [place] and x not in graph.outputs:
            shape = graph.add_constant("shape", np.array(graph.shape(y), np.int32))
            options = ReshapeOptions(new_shape=graph.shape(y))
            graph.operators[place] = graph.make_operator(BuiltinOperator.RESHAPE, 1, [x, shape], [y], options)
            replaced += 1
    return replaced


def _transposes(graph: Graph) -> list[Operator]:
    return [operator for operator in graph.operators if order_of(graph, operator) is not None]


def _moved_one(graph: Graph) -> bool:
    """Make the first move that pays off; returns whether there was one."""
    return any(_try(graph, region) for region in _regions(graph))


def _regions(graph: Graph) -> Iterator[Region]:
    """Regions that start after or before a TRANSPOSE, including parts of small ones."""
    for operator in _transposes(graph):
        order = order_of(graph, operator)
        assert order is not None
        ends = (((operator.outputs or ())[0], order), ((operator.inputs or ())[0], inverse(order)))
        for tensor, by in ends if not is_identity(order) else ():
            region = _grown(graph, tensor, by)
            if region.changes:
                yield region
            if 1 < len(region.changes) <= MAX_SHRUNK:
                yield from _parts(region)


def _parts(region: Region) -> Iterator[Region]:
    """Parts of a region: without operators at its end, or at its start."""
    indices = sorted(region.changes)
    for left_out in (indices[:0:-1], indices[:-1]):
        part = region
        for index in left_out:
            part = part.without(index)
            yield part


def _grown(graph: Graph, tensor: int, order: Order) -> Region:
    """All operators that can run on transposed tensors once this tensor is transposed."""
    readers, producers = graph.readers(), graph.producers()
    changes: dict[int, Change] = {}
    orders = {tensor: order}
    waiting = [tensor]
    while waiting:
        tensor = waiting.pop()
        if is_identity(orders[tensor]):
            continue
        for index in (*readers.get(tensor, ()), *([producers[tensor]] if tensor in producers else ())):
            found = flipped(graph, graph.operators[index], tensor, orders[tensor]) if index not in changes else None
            if found is None or any(orders.get(other, by) != by for other, by in found.orders.items()):
                continue
            changes[index] = found.change
            waiting += [other for other in found.orders if other not in orders]
            orders.update(found.orders)
    return Region(changes, orders)


def _try(graph: Graph, region: Region | None) -> bool:
    """Run a region on transposed tensors, or without one only merge and clean up; undo it if it does not pay off."""
    operators, cost, peak = graph.operators, _cost(graph), Liveness(graph).peak()
    graph.operators = list(operators)
    if region is None or _run_in_other_order(graph, region):
        _merge(graph)
        if _cost(graph) < cost and Liveness(graph).peak() <= peak:
            return True
    graph.operators = operators
    return False


def _merge(graph: Graph) -> None:
    """Let TRANSPOSEs read the input of the TRANSPOSE before them, and remove those that become unnecessary."""
    makers = {tensor: operator for operator in graph.operators for tensor in operator.outputs or ()}
    for place, operator in enumerate(graph.operators):
        order = order_of(graph, operator)
        before = makers.get((operator.inputs or (-1,))[0]) if order is not None else None
        first = order_of(graph, before) if before is not None else None
        if order is not None and before is not None and first is not None:
            source, output = (before.inputs or ())[0], (operator.outputs or ())[0]
            graph.operators[place] = makers[output] = _transpose(graph, source, output, composed(first, order))
    drop_operators_to_no_effect(graph)
    drop_unread_operators(graph)


def _run_in_other_order(graph: Graph, region: Region) -> bool:
    """Put TRANSPOSEs around a region and transpose its operators; returns whether TFLM supports these TRANSPOSEs."""
    names: dict[int, int] = {}
    operators: list[Operator] = []

    def transpose(source: int, output: int, order: Order) -> None:
        operators.append(_transpose(graph, source, output, order))

    for index, operator in enumerate(graph.operators):
        change = region.changes.get(index)
        if change is None:
            operators.append(operator)
            continue
        turned = {
            tensor: region.orders[tensor]
            for tensor in (*(operator.inputs or ()), *(operator.outputs or ()))
            if not is_identity(region.orders.get(tensor, ()))
        }
        for tensor, order in turned.items():
            if tensor not in names:
                shape = transposed(graph.shape(tensor), inverse(order))
                names[tensor] = graph.add_tensor(tensor, graph.tensors[tensor].name or "", shape)
                if tensor not in (operator.outputs or ()):
                    transpose(tensor, names[tensor], inverse(order))
        operators.append(run_in(graph, operator, change, names))
        for tensor in operator.outputs or ():
            if tensor in turned:
                transpose(names[tensor], tensor, turned[tensor])
    graph.operators = operators
    return all(_can_be_transposed(graph, tensor) for tensor in names)


def _can_be_transposed(graph: Graph, tensor: int) -> bool:
    return graph.tensors[tensor].type in TYPES and len(graph.shape(tensor)) <= MAXIMUM_RANK


def _transpose(graph: Graph, source: int, output: int, order: Order) -> Operator:
    by = graph.add_constant("order", np.array(order, np.int32))
    return graph.new_operator(BuiltinOperator.TRANSPOSE, [source, by], [output], TransposeOptions())


def _cost(graph: Graph) -> Cost:
    moved = [graph.tensor_bytes((operator.outputs or ())[0]) for operator in _transposes(graph)]
    return Cost(len(graph.operators), sum(moved))
