"""Orders of dimensions, as TRANSPOSE takes them: dimension i of the output is dimension order[i] of the input."""

from __future__ import annotations

from collections.abc import Sequence

from tflm.graph import Graph, alike
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.tables import Operator

Order = tuple[int, ...]

TRANSPOSED_TYPES = (TensorType.FLOAT32, TensorType.INT8, TensorType.INT16)
MAXIMUM_RANK = 5


def order_of(graph: Graph, operator: Operator) -> Order | None:
    """The order of a TRANSPOSE without requantization; None for any other operator."""
    inputs, outputs = operator.inputs or (), operator.outputs or ()
    if graph.code(operator) is not BuiltinOperator.TRANSPOSE or graph.has_state(operator):
        return None
    if len(inputs) != 2 or len(outputs) != 1 or inputs[0] < 0 or not graph.is_constant(inputs[1]):
        return None
    before, after = graph.tensors[inputs[0]], graph.tensors[outputs[0]]
    order = tuple(int(axis) for axis in graph.constant(inputs[1]).reshape(-1))
    if sorted(order) != list(range(len(graph.shape(inputs[0])))):
        return None
    moves = before.type == after.type and alike(before.quantization, after.quantization)
    return order if moves and transposed(graph.shape(inputs[0]), order) == graph.shape(outputs[0]) else None


def transposed(shape: Sequence[int], order: Order) -> tuple[int, ...]:
    """The shape of the output."""
    return tuple(shape[axis] for axis in order)


def inverse(order: Order) -> Order:
    """The order that undoes this one."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def composed(first: Order, second: Order) -> Order:
    """The order of a TRANSPOSE equal to two in sequence."""
    return tuple(first[axis] for axis in second)


def is_identity(order: Order) -> bool:
    """Whether the order is the identity."""
    return order == tuple(range(len(order)))


def moves_nothing(graph: Graph, operator: Operator) -> bool:
    """Whether the TRANSPOSE moves only dimensions of 1, so that its output has the same bytes as its input."""
    order = order_of(graph, operator)
    if order is None:
        return False
    shape = graph.shape((operator.inputs or ())[0])
    moved = [axis for axis in order if shape[axis] != 1]
    return moved == sorted(moved)
