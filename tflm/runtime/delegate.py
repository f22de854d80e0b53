"""Delegates claim nodes of a subgraph and run them with kernels of their own.

There are two kinds. A delegate of the *host* changes only how this machine computes: its operators are initialised and
prepared by their own registrations, in the model's order, and the arena is planned as without it; it binds and runs
them. A delegate for hardware *of the device* (`on_device`) also replaces the operators in the arena: they do not
prepare, tensors between them have no place, and its kernel may request persistent and scratch memory like any operator.

The calls to a delegate, in order:

1. `Delegate.prepare(context)`, for each subgraph, before anything is in the arena.
2. `init(context, params)` of its registration, for each subset, with `DelegateParams`; what it returns, or else the
   params, is `node.op_data` from then on. `prepare(context, node)` follows. For hardware of the device both happen in
   turn with the other operators; on the host, when memory is planned and every tensor has its data.
3. `bind(context, node)` returns a function that runs the subset; or `invoke(context, node)` runs it.
4. `reset(context, node)`, with those of the operators that it replaced (on the host); `free(context, node)` at the end.

Tensors that are not alive at the same time in the model's order share memory. If a delegate of the host runs operators
in another order, or all of a subset at once, buffers that would then overlap get memory of the host instead. A delegate
with `runs_in_order` needs that only if subsets are reordered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tflm.errors import DelegateError
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.registration import Bind, Registration, Run
from tflm.runtime.execution_plan import DelegateTraits, ExecutionPlan
from tflm.schema.model import Model
from tflm.schema.tables import SubGraph, Tensor


def bind_replaced(bind: Bind) -> Bind:
    """Return a bind phase that runs the replaced nodes in order, each bound by `bind`."""

    def bind_all(context: KernelContext, node: Node) -> Run:
        runs = [bind(context, replaced) for replaced, _ in node.op_data.replaced]

        def run() -> None:
            for step in runs:
                step()

        return run

    return bind_all


class Delegate(DelegateTraits):
    """Base class of delegates; subclasses implement `prepare`."""

    def prepare(self, context: DelegateContext) -> None:
        """Claim the nodes of one subgraph that it can run, with `context.replace_...`.

        Raises:
            DelegateError: the delegate fails. This and any other exception is passed on, and nothing is changed.
        """
        raise NotImplementedError(f"{self.name} has no prepare")


class DelegateContext:
    """A delegate's view of a subgraph.

    Attributes:
        model: the model.
        subgraph_index: the index of the subgraph.
        is_profiled: whether a profiler records every node, so that a delegate may prefer to claim single operators.
    """

    def __init__(
        self, model: Model, subgraph_index: int, plan: ExecutionPlan, delegate: Delegate, is_profiled: bool = False
    ):
        self.model, self.subgraph_index, self.is_profiled = model, subgraph_index, is_profiled
        self._plan, self._delegate = plan, delegate

    @property
    def subgraph(self) -> SubGraph:
        """The subgraph's table in the model."""
        return self._plan.subgraph

    @property
    def tensors(self) -> Sequence[Tensor]:
        """The tables of its tensors (`type`, `shape`, `quantization`, ...), by tensor index."""
        return self._plan.subgraph.tensors or ()

    def execution_plan(self) -> list[int]:
        """The indices of the nodes in execution order: an operator's index in the subgraph, or a higher one for nodes
        of earlier delegates."""
        return [planned.node.index for planned in self._plan.running]

    def node_and_registration(self, index: int) -> tuple[Node, Registration]:
        """A node of the execution plan, with its version, options and tensors, and its registration.

        For an operator that the resolver lacks, the registration has only a name.

        Raises:
            DelegateError: there is no such node.
        """
        for planned in self._plan.running:
            if planned.node.index == index:
                return planned.node, planned.registration
        raise DelegateError(f"{self._delegate.name} requests node {index}, which is not in the execution plan")

    def leave_to_host(self, index: int) -> None:
        """Claim an operator that no device can run, so that its own registration does not initialise or prepare it.

        For delegates of the host, before `replace_node_subsets_with_delegate_kernels`.

        Raises:
            DelegateError: there is no such operator.
        """
        self._plan.leave_to_host(index)

    def replace_node_subsets_with_delegate_kernels(
        self, registration: Registration, nodes_to_replace: Iterable[int]
    ) -> None:
        """Claim nodes: each subset that can run as one becomes one node with this registration.

        Args:
            registration: of the delegate's kernel; its `min_version` and `max_version` are those of the operators that
                it knows. See the module for what its phases are given.
            nodes_to_replace: indices from the execution plan.

        Raises:
            DelegateError: a node does not exist, belongs to another delegate, or has an unsupported version.
        """
        self._plan.replace(self._delegate, registration, nodes_to_replace)
