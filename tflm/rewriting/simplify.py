"""Small rewrites that keep every bit: what copies, converts or computes to no effect is left out."""

from __future__ import annotations

from collections.abc import Callable

from tflm.rewriting.fold import fold_pads
from tflm.rewriting.graph import Graph
from tflm.schema.enums import BuiltinOperator
from tflm.schema.tables import Operator


def drop_unread_operators(graph: Graph) -> int:
    """Leave out operators whose outputs nobody reads; gives how many. Their constants go with them."""
    read = set(graph.outputs)
    kept: list[Operator] = []
    for operator in reversed(graph.operators):
        if graph.has_state(operator) or any(tensor in read for tensor in operator.outputs or ()):
            kept.append(operator)
            read.update(operator.inputs or ())
    dropped = len(graph.operators) - len(kept)
    graph.operators = kept[::-1]
    return dropped


def shorten_reshape_chains(graph: Graph) -> int:
    """Let each RESHAPE read what the chain of such operators before it began with; gives how many do so.

    A chain ends at a variable, which may hold something else by the time at which the RESHAPE runs.
    """
    makers = graph.producers()
    shortened = 0
    for place, operator in enumerate(graph.operators):
        if not graph.registration(operator).only_copies or not graph.shape((operator.outputs or ())[0]):
            continue
        tensor = begin = (operator.inputs or ())[0]
        while begin in makers and _only_copies(graph, graph.operators[makers[begin]]):
            begin = (graph.operators[makers[begin]].inputs or ())[0]
        if begin != tensor and graph.code(operator) is BuiltinOperator.RESHAPE:
            graph.operators[place] = graph.like(operator, [begin, *(operator.inputs or ())[1:]], operator.outputs or ())
            shortened += 1
    return shortened


def drop_operators_to_no_effect(graph: Graph) -> int:
    """Leave out RESHAPE to the same shape and QUANTIZE to the same type, scale and zero point; gives how many."""
    outputs = set(graph.outputs)
    becomes: dict[int, int] = {}
    kept = []
    for operator in graph.operators:
        inputs = [becomes.get(tensor, tensor) for tensor in operator.inputs or ()]
        if inputs != list(operator.inputs or ()):
            operator = graph.like(operator, inputs, operator.outputs or ())
        if _has_no_effect(graph, operator) and (operator.outputs or ())[0] not in outputs:
            becomes[(operator.outputs or ())[0]] = inputs[0]
        else:
            kept.append(operator)
    graph.operators = kept
    return len(becomes)


def _only_copies(graph: Graph, operator: Operator) -> bool:
    """Whether an operator's output is its input in another shape, at any time: neither is a variable."""
    return graph.registration(operator).only_copies and not graph.has_state(operator)


def _has_no_effect(graph: Graph, operator: Operator) -> bool:
    only_copies = graph.registration(operator).only_copies
    if graph.has_state(operator) or (not only_copies and graph.code(operator) is not BuiltinOperator.QUANTIZE):
        return False
    before, after = graph.tensors[(operator.inputs or ())[0]], graph.tensors[(operator.outputs or ())[0]]
    if (before.shape, before.type) != (after.shape, after.type):
        return False
    if only_copies:
        return True
    one, other = before.quantization, after.quantization
    same = one is not None and other is not None and (one.scale, one.zero_point) == (other.scale, other.zero_point)
    return same and bool(one is not None and one.scale)


PASSES: tuple[tuple[str, Callable[[Graph], int]], ...] = (
    ("PADs folded into the convolutions behind them", fold_pads),
    ("RESHAPEs that read the begin of their chain", shorten_reshape_chains),
    ("operators to no effect left out", drop_operators_to_no_effect),
    ("operators whose outputs nobody reads left out", drop_unread_operators),
)
"""What each pass has done, and the pass; in the order in which they run."""


def simplified(graph: Graph) -> dict[str, int]:
    """Run all passes over a graph; gives what was done, how often."""
    done = {what: run(graph) for what, run in PASSES}
    return {what: count for what, count in done.items() if count}
