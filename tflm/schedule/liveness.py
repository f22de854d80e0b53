"""Compute when the tensors of a model are alive if its operators run one after the other."""

from __future__ import annotations

from collections.abc import Sequence

from tflm.graph import Graph
from tflm.kernels import OPAQUE, REGISTRATIONS, Node
from tflm.memory import ARENA_ALIGNMENT
from tflm.memory.lifetimes import LifetimeBuilder, ScratchBufferRequest
from tflm.memory.tensor import TfLiteEvalTensor
from tflm.schema.model import Model
from tflm.targets import align_up


def lifetimes_of(model: Model, scratch: Sequence[int] = ()) -> LifetimeBuilder:
    """Return the lifetimes of the tensors of all subgraphs, except variables.

    Args:
        model: the model.
        scratch: scratch bytes of each operator of the first subgraph.
    """
    tensors = [[TfLiteEvalTensor(model, tensor) for tensor in subgraph.tensors or ()] for subgraph in model.subgraphs]
    nodes = [[Node.of(model, operator) for operator in subgraph.operators or ()] for subgraph in model.subgraphs]
    requests = [ScratchBufferRequest(size, 0, node) for node, size in enumerate(scratch) if size]
    return LifetimeBuilder(model, nodes, tensors, [frozenset()] * len(nodes), requests, None)


def lasting_tensors(model: Model) -> list[set[int]]:
    """Return, for each subgraph, its variables, and the outputs of operators that may end an invoke: the next invoke
    reads these."""
    lasting = []
    for subgraph in model.subgraphs:
        variables = {i for i, table in enumerate(subgraph.tensors or ()) if table.is_variable}
        enders = [
            operator
            for operator in subgraph.operators or ()
            if REGISTRATIONS.get(model.operator_name(operator), OPAQUE).ends_invoke
        ]
        lasting.append(variables.union(*(operator.outputs or () for operator in enders)))
    return lasting


class Liveness:
    """The tensors of a graph that are needed at each operator, if operators run one after the other.

    Args:
        graph: the graph.
        alignment: sizes of tensors are rounded up to a multiple of this, in bytes.
    """

    def __init__(self, graph: Graph, alignment: int = ARENA_ALIGNMENT):
        self._graph = graph
        readers = graph.readers()
        over = len(graph.operators)
        outputs = set(graph.outputs)
        made = dict.fromkeys(graph.inputs, -1) | graph.producers()
        plain = [t for t in made if not graph.tensors[t].is_variable]
        self._life = {t: (made[t], over if t in outputs else max(readers.get(t, [made[t]]))) for t in plain}
        self._readers = readers
        self.size = {t: align_up(graph.tensor_bytes(t), alignment) for t in plain}

    def at(self, index: int) -> int:
        """Return the bytes that are needed while an operator runs."""
        return sum(self.size[t] for t, (first, last) in self._life.items() if first <= index <= last)

    def across(self, first: int, end: int) -> int:
        """Return the size of tensors that are computed before some operators and needed after them."""
        return sum(self.size[t] for t, (made, last) in self._life.items() if made < first and last >= end)

    def ends_in(self, tensor: int, end: int) -> bool:
        """Whether no operator from `end` on needs a tensor."""
        return self._life[tensor][1] < end

    def is_inside(self, tensor: int, first: int, end: int) -> bool:
        """Whether a tensor is computed and needed only among some operators."""
        made, last = self._life.get(tensor, (-1, len(self._graph.operators)))
        return first <= made and last < end
