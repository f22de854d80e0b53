"""Reads of variables as late as possible, so that copies of them take less memory at once."""

from __future__ import annotations

from collections.abc import Sequence

from tflm.graph import Graph
from tflm.schedule.calls import Call, Plan
from tflm.schedule.kernels import CallNeeds, Kernels, ShapedCall
from tflm.schedule.rows import Rows
from tflm.schema.enums import BuiltinOperator
from tflm.schema.model import Model
from tflm.schema.options import VarHandleOptions
from tflm.schema.verifier import called_subgraphs


def late_reads(model: Model) -> list[int]:
    """The operators of the first subgraph, by index, with each READ_VARIABLE just before its output is read.

    It stays before what may write the variable: an ASSIGN_VARIABLE of it, and operators that run subgraphs.
    """
    graph = Graph(model)
    before: dict[int, list[int]] = {}
    for index, operator in enumerate(graph.operators):
        if graph.code(operator) is BuiltinOperator.READ_VARIABLE:
            before.setdefault(_latest(graph, index), []).append(index)
    moved = {index for indices in before.values() for index in indices}
    order = []
    for index in range(len(graph.operators)):
        order += before.get(index, [])
        order += [index] if index not in moved else []
    return order


def _latest(graph: Graph, index: int) -> int:
    """The operator before which a READ_VARIABLE must run; itself if it must not move."""
    (handle,), (output,) = graph.operators[index].inputs or (), graph.operators[index].outputs or ()
    variable = _variable(graph, handle)
    for later, operator in enumerate(graph.operators[index + 1 :], index + 1):
        is_assigned = graph.code(operator) is BuiltinOperator.ASSIGN_VARIABLE
        if is_assigned and None in (variable, _variable(graph, (operator.inputs or ())[0])):
            return later
        if is_assigned and variable == _variable(graph, (operator.inputs or ())[0]):
            return later
        if output in (operator.inputs or ()) or called_subgraphs(operator):
            return later
    return index


def _variable(graph: Graph, handle: int) -> tuple[str | None, str | None] | None:
    """The container and the name of the variable of a handle; None where they are not known."""
    maker = graph.producers().get(handle)
    options = None if maker is None else graph.operators[maker].builtin_options
    return (options.container, options.shared_name) if isinstance(options, VarHandleOptions) else None


class Reordered:
    """Kernels of a model whose operators were reordered.

    Args:
        kernels: those of the model as it was.
        order: for each operator, its index in the model as it was.
    """

    def __init__(self, kernels: Kernels, order: Sequence[int]):
        self._kernels, self._order = kernels, order

    def needs(self, call: ShapedCall) -> CallNeeds:
        """What a call needs."""
        return self._kernels.needs(call._replace(operator=self._order[call.operator]) if not call.subgraph else call)

    def has_lean(self, operator: int) -> bool:
        """Whether an operator of the first subgraph has slower kernels that can take less RAM."""
        return self._kernels.has_lean(self._order[operator])

    def rows_copied(self, operator: int) -> Sequence[Rows] | None:
        """For an operator that only copies, the input rows that each output row is copied from; None for others."""
        return self._kernels.rows_copied(self._order[operator])

    def takes_rows(self, operator: int) -> bool:
        """Whether the kernel of an operator of the first subgraph can compute some rows of its output alone."""
        return self._kernels.takes_rows(self._order[operator])

    def original(self, plan: Plan) -> Plan:
        """A plan with the operators' indices in the model as it was."""
        calls = (c._replace(operator=self._order[c.operator]) if isinstance(c, Call) else c for c in plan.calls)
        stages = (Rows(self._order[first], self._order[end - 1] + 1) for first, end in plan.stages)
        return plan._replace(calls=tuple(calls), stages=tuple(stages))
