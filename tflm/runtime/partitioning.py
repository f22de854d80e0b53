"""Groups the nodes that a delegate claims into subsets that can each run as one, as TFLite partitions a graph."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence

from tflm.kernels.node import Node
from tflm.kernels.registration import Registration
from tflm.schema.tables import SubGraph


class DependencyGraph:
    """Dependencies between the operators of a subgraph.

    An operator depends on the operators that compute its inputs. Those with state (variables, control flow,
    registrations with `shares_state`) keep the model's order; one that may end the invoke depends on all before it, and
    all after it depend on it.

    Args:
        subgraph: the subgraph of the model.
        operators: its operators, in the model's order.

    Attributes:
        waits_for: for each operator, the indices of those that must run before it.
    """

    def __init__(self, subgraph: SubGraph, operators: Sequence[tuple[Node, Registration]]):
        self._nodes = [node for node, _ in operators]
        self._outputs = frozenset(subgraph.outputs or ())
        self._users: dict[int, set[int]] = {}
        for i, node in enumerate(self._nodes):
            for tensor in node.inputs:
                self._users.setdefault(tensor, set()).add(i)
        variables = frozenset(i for i, table in enumerate(subgraph.tensors or ()) if table.is_variable)
        self.waits_for = self._data_dependencies()
        self._keep_order([i for i, operator in enumerate(operators) if _has_state(*operator, variables)])
        self._keep_barriers([registration.ends_invoke for _, registration in operators])

    def _data_dependencies(self) -> list[set[int]]:
        maker: dict[int, int] = {}
        waits_for = []
        for i, node in enumerate(self._nodes):
            waits_for.append({maker[tensor] for tensor in node.inputs if tensor in maker})
            maker.update(dict.fromkeys(node.outputs, i))
        return waits_for

    def _keep_order(self, places: Sequence[int]) -> None:
        for before, after in itertools.pairwise(places):
            self.waits_for[after].add(before)

    def _keep_barriers(self, is_barrier: Sequence[bool]) -> None:
        last: list[int] = []
        since: list[int] = []
        for i, ends_invoke in enumerate(is_barrier):
            self.waits_for[i].update(last)
            if ends_invoke:
                self.waits_for[i].update(since)
                last, since = [i], []
            else:
                since.append(i)

    def tensors_of(self, places: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The input and output tensors of these operators as a group, in ascending order."""
        inside = set(places)
        made = {tensor for i in places for tensor in self._nodes[i].outputs}
        read = {tensor for i in places for tensor in self._nodes[i].inputs if tensor >= 0}
        for_others = {tensor for tensor in made if tensor in self._outputs or self._users.get(tensor, set()) - inside}
        return tuple(sorted(read - made)), tuple(sorted(for_others))

    def node_subsets(self, nodes: Sequence[Sequence[int]], is_taken: Sequence[bool]) -> Iterator[list[int]]:
        """Subsets that run one after the other: each gathers all nodes of one kind whose inputs are ready by then.

        The first node that is ready determines the kind of a subset, so kinds alternate; no subset depends on a later
        one.

        Args:
            nodes: the operators of each node, in an order in which they can run.
            is_taken: the kind of each.

        Yields:
            positions in `nodes`, rising.
        """
        node_of = {operator: i for i, operators in enumerate(nodes) for operator in operators}
        waits: list[set[int]] = []
        followers: list[list[int]] = [[] for _ in nodes]
        for i, operators in enumerate(nodes):
            waits.append({node_of[before] for operator in operators for before in self.waits_for[operator]} - {i})
            for before in waits[i]:
                followers[before].append(i)
        missing = [len(before) for before in waits]
        ready: dict[bool, list[int]] = {False: [], True: []}
        for i, count in enumerate(missing):
            if not count:
                ready[is_taken[i]].append(i)
        while ready[False] or ready[True]:
            kind = min((heap[0], kind) for kind, heap in ready.items() if heap)[1]
            subset = []
            while ready[kind]:
                i = heapq.heappop(ready[kind])
                subset.append(i)
                for follower in followers[i]:
                    missing[follower] -= 1
                    if not missing[follower]:
                        heapq.heappush(ready[is_taken[follower]], follower)
            yield sorted(subset)


def _has_state(node: Node, registration: Registration, variables: frozenset[int]) -> bool:
    uses_variables = not variables.isdisjoint((*node.inputs, *node.outputs))
    return registration.shares_state or bool(node.called_subgraphs) or uses_variables
