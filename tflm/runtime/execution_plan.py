"""The execution plan of a subgraph: its nodes in order, with those that delegates replaced.

A subgraph has two lists of nodes. The device's nodes have structures in the arena, are prepared, and determine the
lifetimes of tensors: the operators of the model, except those claimed by a delegate for hardware of the device. The
running nodes are bound and run on the host: the same nodes, with one for each subset that a delegate of the host
claimed.

A delegate claims nodes, which are grouped into subsets that can each run as one, as TFLite partitions a graph.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import NamedTuple

from tflm.errors import DelegateError
from tflm.kernels.node import Node
from tflm.kernels.registration import Registration, Run
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


class StandaloneRun(NamedTuple):
    """A run in two parts, guarded by the frames of a `ReentrancyGuard`.

    `start` returns 0 if it ran everything, a negative number if there are frames, otherwise a status to call `finish`
    with; the frame of its caller then holds the guard, and the caller releases it.
    """

    start: Callable[[], int]
    finish: Callable[[int], None]


class DelegateTraits:
    """Properties of a delegate that the execution plan depends on.

    Attributes:
        on_device: whether it represents hardware of the device, so that it changes the arena.
        runs_in_order: whether its kernels run the replaced nodes of a subset one after the other, in the order of
            `DelegateParams.replaced`, each reading and writing no other memory than its own kernel would.
    """

    on_device: bool = False
    runs_in_order: bool = False

    @property
    def name(self) -> str:
        """Its name in messages."""
        return type(self).__name__

    def standalone(self, run: Run, guard: list[FrameType]) -> StandaloneRun | None:
        """The parts of the function from a node's `bind`, if it silences numpy and names the operator that failed.

        If a model consists of one such node, `MicroInterpreter.invoke` calls the parts directly.
        """
        return None

    def is_final(self, run: Run) -> bool:
        """Whether the function from a node's `bind` stays as it is, so that `standalone` need not be asked again."""
        return True


@dataclass(frozen=True)
class PlannedNode:
    """A node of an execution plan.

    Attributes:
        node, registration: the node and the registration with its phases.
        operators: indices of the operators that it represents in the model's subgraph, in the model's order.
        delegate: the delegate that owns it; None for an operator that no delegate claimed.
        replaced: the nodes that a delegate's node replaces, in execution order.
    """

    node: Node
    registration: Registration
    operators: tuple[int, ...]
    delegate: DelegateTraits | None = None
    replaced: tuple[PlannedNode, ...] = ()

    @property
    def is_on_host(self) -> bool:
        """Whether it belongs to a delegate of the host, so that the arena has only the replaced nodes."""
        return self.delegate is not None and not self.delegate.on_device

    @property
    def tag(self) -> str:
        """Its name, with those of the operators that it replaces: `Compiled(ADD, RELU)`."""
        if self.delegate is None:
            return self.node.operator
        return f"{self.node.operator}({', '.join(planned.node.operator for planned in self.replaced)})"


@dataclass(frozen=True)
class DelegateParams:
    """The contents of a delegate's node, passed to the `init` of its registration.

    Attributes:
        delegate: the delegate.
        nodes_to_replace: indices of the operators in the model's subgraph, in execution order.
        input_tensors: indices of the tensors that it reads, including constants, in ascending order.
        output_tensors: indices of the tensors that it computes for other nodes, in ascending order.
        replaced: the nodes with their registrations, in the same order. For a delegate of the host, they are prepared
            before its own node: `node.op_data` is the data of the operator's kernel, and
            `registration.bind(context, node)` returns a function that runs the operator alone.
    """

    delegate: DelegateTraits
    nodes_to_replace: tuple[int, ...]
    input_tensors: tuple[int, ...]
    output_tensors: tuple[int, ...]
    replaced: tuple[tuple[Node, Registration], ...]


@dataclass
class _Claim:
    """Operators that a delegate claims."""

    delegate: DelegateTraits
    registration: Registration
    operators: frozenset[int]


@dataclass
class ExecutionPlan:
    """The nodes of one subgraph.

    Args:
        subgraph: the subgraph of the model.
        operators: its operators, each a node, in the model's order.

    Attributes:
        device: the nodes in the arena, in the order in which lifetimes are counted.
        running: the nodes that are bound and run, in the order in which they run.
    """

    subgraph: SubGraph
    operators: list[PlannedNode]
    device: list[PlannedNode] = field(init=False)
    running: list[PlannedNode] = field(init=False)

    def __post_init__(self) -> None:
        self._claims: list[_Claim] = []
        operators = [(planned.node, planned.registration) for planned in self.operators]
        self._dependencies = DependencyGraph(self.subgraph, operators)
        self._plan()

    def replace(self, delegate: DelegateTraits, registration: Registration, operators: Iterable[int]) -> None:
        """Assign operators, by their indices in the model, to a delegate.

        Raises:
            DelegateError: one does not exist, belongs to another delegate, or has an unsupported version.
        """
        claim = _Claim(delegate, registration, frozenset(operators))
        for index in sorted(claim.operators):
            self._check(claim, index)
        if claim.operators:
            self._claims.append(claim)
            self._plan()

    def leave_to_host(self, index: int) -> None:
        """Mark an operator that no device runs, so that it takes no arena.

        Raises:
            DelegateError: there is no such operator.
        """
        if not 0 <= index < len(self.operators):
            raise DelegateError(f"operator index {index} is out of range, there are {len(self.operators)}")
        planned = self.operators[index]
        self.operators[index] = replace(planned, registration=Registration(planned.node.operator, has_state=False))
        self._plan()

    @property
    def inside_device_nodes(self) -> frozenset[int]:
        """Indices of the tensors that only hardware of the device accesses."""
        nodes = [planned for planned in self.device if planned.delegate is not None]
        made = {tensor for planned in nodes for replaced in planned.replaced for tensor in replaced.node.outputs}
        return frozenset(made.difference(*(planned.node.outputs for planned in nodes)))

    def _check(self, claim: _Claim, index: int) -> None:
        name, count = claim.delegate.name, len(self.operators)
        holders = [planned for planned in self.running if planned.delegate is not None]
        holder = next((planned for planned in holders if index in (planned.node.index, *planned.operators)), None)
        if holder is not None:
            raise DelegateError(f"{name} can't take node {index}: {holder.node.operator} already has it")
        if not 0 <= index < count:
            raise DelegateError(f"{name} can't take node {index}: there are {count}, counted from 0")
        node, known = self.operators[index].node, claim.registration
        if not known.min_version <= node.version <= known.max_version:
            raise DelegateError(
                f"{name} can't take node {index}: it is {node.operator} version {node.version}, and the registration "
                f"{known.name} has versions {known.min_version} to {known.max_version}"
            )

    def _plan(self) -> None:
        """Delegates for hardware of the device come first; those of the host do not change the arena."""
        self.device = list(self.operators)
        for claim in self._claims:
            if claim.delegate.on_device:
                self.device = self._replaced(self.device, claim)
        self.running = list(self.device)
        for claim in self._claims:
            if not claim.delegate.on_device:
                self.running = self._replaced(self.running, claim)

    def _replaced(self, nodes: list[PlannedNode], claim: _Claim) -> list[PlannedNode]:
        taken = [claim.operators.issuperset(planned.operators) for planned in nodes]
        after: list[PlannedNode] = []
        for positions in self._dependencies.node_subsets([planned.operators for planned in nodes], taken):
            subset = [nodes[i] for i in positions]
            after += [self._delegate_node(subset, claim)] if taken[positions[0]] else subset
        return after

    def _delegate_node(self, subset: Sequence[PlannedNode], claim: _Claim) -> PlannedNode:
        places = tuple(planned.operators[0] for planned in subset)
        inputs, outputs = self._dependencies.tensors_of(places)
        params = DelegateParams(
            claim.delegate, places, inputs, outputs, tuple((planned.node, planned.registration) for planned in subset)
        )
        node = Node(
            operator=claim.registration.name,
            index=len(self.operators) + places[0],
            inputs=inputs,
            outputs=outputs,
            intermediates=(),
            builtin_options=None,
            custom_options=memoryview(b""),
            called_subgraphs=tuple(i for planned in subset for i in planned.node.called_subgraphs),
            op_data=params,
        )
        return PlannedNode(node, claim.registration, tuple(sorted(places)), claim.delegate, tuple(subset))
