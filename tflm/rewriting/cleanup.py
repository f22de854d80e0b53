"""Removes operators whose outputs are never read or that return their input; orders of dimensions.

An order is as TRANSPOSE takes it: dimension i of the output is dimension order[i] of the input.
"""

from __future__ import annotations

from collections.abc import Sequence

from tflm.graph import Graph, alike
from tflm.schema.enums import BuiltinOperator
from tflm.schema.tables import Operator

Order = tuple[int, ...]


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


def drop_unread_operators(graph: Graph) -> int:
    """Remove operators whose outputs are never read, and their constants; returns the number of operators removed."""
    read = set(graph.outputs)
    kept: list[Operator] = []
    for operator in reversed(graph.operators):
        if graph.has_state(operator) or any(tensor in read for tensor in operator.outputs or ()):
            kept.append(operator)
            read.update(operator.inputs or ())
    dropped = len(graph.operators) - len(kept)
    graph.operators = kept[::-1]
    return dropped


def drop_operators_to_no_effect(graph: Graph) -> int:
    """Remove RESHAPEs and TRANSPOSEs that are no-ops, and QUANTIZEs to the same type, scale and zero point.

    Returns:
        The number of operators removed.
    """
    return replace_by_inputs(graph, {id(op): (op.inputs or ())[0] for op in graph.operators if _is_no_op(graph, op)})


def replace_by_inputs(graph: Graph, sources: dict[int, int]) -> int:
    """Remove operators whose output equals another tensor in elements, type, shape and quantization.

    An operator that computes an output of the model stays unless the operator before it can write that output itself.

    Args:
        graph: the graph to change.
        sources: for the `id` of each such operator, the tensor that its output equals.

    Returns:
        The number of operators removed.
    """
    becomes: dict[int, int] = {}
    left_out = 0
    kept: list[Operator] = []
    for operator in graph.operators:
        outputs = operator.outputs or ()
        source = sources.get(id(operator))
        source = None if source is None else becomes.get(source, source)
        inputs = [becomes.get(tensor, tensor) for tensor in operator.inputs or ()]
        if inputs != list(operator.inputs or ()):
            operator = graph.like(operator, inputs, outputs)
        if source is not None and outputs[0] not in graph.outputs:
            becomes[outputs[0]] = source
            left_out += 1
        elif source is not None and _can_be_named(graph, kept, source):
            becomes = {tensor: outputs[0] if to == source else to for tensor, to in becomes.items()}
            becomes[source] = outputs[0]
            left_out += 1
            kept = [_renamed(graph, earlier, source, outputs[0]) for earlier in kept]
        else:
            kept.append(operator)
    graph.operators = kept
    return left_out


def _can_be_named(graph: Graph, operators: list[Operator], tensor: int) -> bool:
    """Whether an operator computes the tensor, which is neither an input nor an output of the model."""
    return tensor not in graph.outputs and any(tensor in (operator.outputs or ()) for operator in operators)


def _renamed(graph: Graph, operator: Operator, tensor: int, name: int) -> Operator:
    inputs, outputs = operator.inputs or (), operator.outputs or ()
    if tensor not in (*inputs, *outputs):
        return operator
    changed = [[name if index == tensor else index for index in side] for side in (inputs, outputs)]
    return graph.like(operator, *changed)


def _is_no_op(graph: Graph, operator: Operator) -> bool:
    if graph.has_state(operator) or not operator.inputs or not operator.outputs:
        return False
    before, after = graph.tensors[operator.inputs[0]], graph.tensors[operator.outputs[0]]
    if (before.shape, before.type) != (after.shape, after.type):
        return False
    if not alike(before.quantization, after.quantization):
        return False
    if graph.code(operator) is BuiltinOperator.QUANTIZE:
        return before.quantization is not None and bool(before.quantization.scale)
    return graph.registration(operator).only_copies or moves_nothing(graph, operator)
