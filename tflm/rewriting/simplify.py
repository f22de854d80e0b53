"""Simplifications with bit-identical results: remove copies, conversions and computations that have no effect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tflm.graph import Graph
from tflm.rewriting.cleanup import drop_operators_to_no_effect, drop_unread_operators, moves_nothing
from tflm.rewriting.fold import fold_pads
from tflm.rewriting.identities import drop_identities, merge_constants
from tflm.rewriting.transposes import move_transposes, reshape_instead
from tflm.schedule.stage_search import Liveness
from tflm.schema.enums import BuiltinOperator
from tflm.schema.model import Model, require_model
from tflm.schema.patch import with_data_inside
from tflm.schema.tables import METADATA_NAME, Operator


def shorten_reshape_chains(graph: Graph) -> int:
    """Let each RESHAPE read the input of the chain of RESHAPEs before it; returns the number changed.

    A chain ends at a variable, whose value may have changed when the RESHAPE runs.
    """
    makers = graph.producers()
    shortened = 0
    for place, operator in enumerate(graph.operators):
        if not _only_reshapes(graph, operator) or not graph.shape((operator.outputs or ())[0]):
            continue
        tensor = begin = (operator.inputs or ())[0]
        while begin in makers and _only_copies(graph, graph.operators[makers[begin]]):
            begin = (graph.operators[makers[begin]].inputs or ())[0]
        if begin != tensor and graph.code(operator) is BuiltinOperator.RESHAPE:
            graph.operators[place] = graph.like(operator, [begin, *(operator.inputs or ())[1:]], operator.outputs or ())
            shortened += 1
    return shortened


def _only_reshapes(graph: Graph, operator: Operator) -> bool:
    return graph.registration(operator).only_copies and bool(operator.inputs and operator.outputs)


def _only_copies(graph: Graph, operator: Operator) -> bool:
    """Whether an operator's output is always its input in another shape; false if either is a variable."""
    only_copies = _only_reshapes(graph, operator) or moves_nothing(graph, operator)
    return only_copies and not graph.has_state(operator)


PASSES: tuple[tuple[str, Callable[[Graph], int]], ...] = (
    ("RESHAPEs shortened to the start of their chain", shorten_reshape_chains),
    ("no-op operators removed", drop_operators_to_no_effect),
    ("operators that return their input removed", drop_identities),
    ("ADD, SUB and MUL of constants merged into layers", merge_constants),
    ("operators with unread outputs removed", drop_unread_operators),
    ("TRANSPOSEs merged, moved or removed", move_transposes),
    ("TRANSPOSEs of dimensions of 1 merged into RESHAPEs", reshape_instead),
)
"""Description and function of each pass, in execution order; the last pass folds PADs."""


def simplified(graph: Graph, fold: Callable[[Graph], int] = fold_pads) -> dict[str, int]:
    """Run all passes over a graph until none changes it; returns a count for each description.

    A pass is undone if the graph then has more operators or a higher memory peak.

    Args:
        graph: the graph, which is changed.
        fold: the pass that folds PADs.
    """
    passes = *PASSES, ("PADs folded into the convolutions after them", fold)
    done: Counter[str] = Counter()
    while found := {what: count for what, run in passes if (count := _run(graph, run))}:
        done.update(found)
    return {what: done[what] for what, _ in passes if done[what]}


def _run(graph: Graph, run: Callable[[Graph], int]) -> int:
    """Run a pass; returns the number of its changes."""
    before, operators, peak = graph.operators, len(graph.operators), Liveness(graph).peak()
    graph.operators = list(before)
    count = run(graph)
    if not count:
        graph.operators = before
        return 0
    after = list(graph.operators)
    drop_unread_operators(graph)
    larger = len(graph.operators) > operators or Liveness(graph).peak() > peak
    graph.operators = before if larger else after
    return 0 if larger else count


TOOLS_METADATA = frozenset({"min_runtime_version", "CONVERSION_METADATA"})
"""Metadata entries that converters write for tools."""


def strip(model: Model) -> bytes:
    """The bytes of a model without data that TFLM does not read.

    Removes names of tensors other than inputs and outputs, minima and maxima from before quantization, names of
    subgraphs, the description, converters' metadata for tools, and unused constants. Keeps a memory plan.

    Raises:
        ModelError: the model can't be written.
    """
    model = with_data_inside(require_model(model))
    graph = Graph(model)
    graph.forget_names(TOOLS_METADATA)
    plan = model.metadata(METADATA_NAME)
    if plan is not None:
        graph.add_metadata(METADATA_NAME, bytes(plan))
    return min(graph.written(), bytes(model.data), key=len)
