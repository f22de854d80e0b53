"""What a delegate is: it looks at the nodes of a subgraph, takes some, and runs them by a kernel of its own.

Two kinds of delegates. One of the *host* changes how this machine computes, and nothing of the device: every operator
that it takes is initialised and prepared by its own registration, in the model's order, and the arena is planned as
without it; only binding and running are the delegate's. One that stands for hardware *of the device* (`on_device`)
replaces the operators in the arena, too: they do not prepare, tensors between them have no place, and its own kernel
may ask for persistent and scratch memory as any operator.

In order, what happens to a delegate:

1. `Delegate.prepare(context)`, for each subgraph, before anything is in the arena.
2. `init(context, params)` of its registration, for each subset, with `DelegateParams`; what it returns, or else the
   params, is `node.op_data` from then on. `prepare(context, node)` follows. For hardware of the device both happen in
   turn with the other operators; on the host, when memory is planned and every tensor has its data.
3. `bind(context, node)` gives what runs the subset; or `invoke(context, node)` runs it.
4. `reset(context, node)`, with those of the operators that it replaced (on the host); `free(context, node)` at the end.

Memory of tensors that are not alive at the same time in the model's order is shared. Where a delegate of the host runs
operators in another order, or all of a subset at once, tensors and scratch buffers that would then be in each other's
way are given memory of the host, not of the arena. A delegate with `runs_in_order` needs that only where subsets change
places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tflm.errors import DelegateError
from tflm.kernels.registration import Bind, KernelContext, Node, Registration, Run
from tflm.runtime.execution_plan import ExecutionPlan
from tflm.runtime.turn import Turn
from tflm.schema.model import Model
from tflm.schema.tables import SubGraph, Tensor


def bind_replaced(bind: Bind) -> Bind:
    """The phase of a delegate's node that runs what it replaces, one after the other, each as `bind` says."""

    def bind_all(context: KernelContext, node: Node) -> Run:
        runs = [bind(context, replaced) for replaced, _ in node.op_data.replaced]

        def run() -> None:
            for step in runs:
                step()

        return run

    return bind_all


class Delegate:
    """Takes nodes of a graph and runs them. Derive from it, and write `prepare`.

    Attributes:
        on_device: whether it stands for hardware of the device, so that the arena changes with it.
        runs_in_order: whether its kernels run the replaced nodes of a subset one after the other, in the order of
            `DelegateParams.replaced`, each reading and writing no other memory than its own kernel would.
    """

    on_device: bool = False
    runs_in_order: bool = False

    @property
    def name(self) -> str:
        """Its name in messages."""
        return type(self).__name__

    def prepare(self, context: DelegateContext) -> None:
        """Look at the nodes of one subgraph, and take those that it can run by `context.replace_...`.

        Raises:
            DelegateError: or anything else, which is passed on; then nothing was changed.
        """
        raise NotImplementedError(f"{self.name} has no prepare")

    def direct_invoke(self, run: Run, turn: Turn) -> Run | None:
        """What `MicroInterpreter.invoke` becomes where one node of this delegate is all that an invoke runs.

        None, the default, has `run` called like that of any node: the turn taken, numpy silenced, errors located,
        `InvokeAborted` caught. What is given instead is called with nothing around it, and must do of that what it
        needs: raise `turn.refusal("invoke")` where `turn.flag[0]` is set, and set it for as long as the lock that
        Python threads share is not held without a break.

        Args:
            run: what the node's `bind` gave.
            turn: shared by all calls that may not overlap.
        """
        return None


class DelegateContext:
    """What a delegate sees of a subgraph.

    Attributes:
        model: the model.
        subgraph_index: which of its subgraphs.
        is_profiled: whether a profiler is told of every node that runs; a delegate may then take operators one by one.
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
        """The tables of its tensors (`type`, `shape`, `quantization`, ...), by the indices that nodes have."""
        return self._plan.subgraph.tensors or ()

    def execution_plan(self) -> list[int]:
        """The nodes in the order in which they run, by index: an operator's is its place in the subgraph.

        Indices above those are nodes of delegates that had their turn before.
        """
        return [planned.node.index for planned in self._plan.running]

    def node_and_registration(self, index: int) -> tuple[Node, Registration]:
        """A node of the execution plan, with its version, options and tensors, and its registration.

        That of an operator which the resolver lacks has the operator's name, and nothing else.

        Raises:
            DelegateError: there is no such node.
        """
        for planned in self._plan.running:
            if planned.node.index == index:
                return planned.node, planned.registration
        raise DelegateError(f"{self._delegate.name} asks for node {index}, which is not in the execution plan")

    def leave_to_host(self, index: int) -> None:
        """Take an operator that no device can run: it is neither initialised nor prepared by its own registration.

        For delegates of the host; they take it by `replace_node_subsets_with_delegate_kernels` then.

        Raises:
            DelegateError: there is no such operator.
        """
        self._plan.leave_to_host(index)

    def replace_node_subsets_with_delegate_kernels(
        self, registration: Registration, nodes_to_replace: Iterable[int]
    ) -> None:
        """Take nodes: each subset of them that can run at once becomes one node with this registration.

        Args:
            registration: of the delegate's kernel; its `min_version` and `max_version` are those of the operators that
                it knows. See the module for what its phases are given.
            nodes_to_replace: indices of the execution plan.

        Raises:
            DelegateError: a node is not there, or another delegate's, or of a version that the registration lacks.
        """
        self._plan.replace(self._delegate, registration, nodes_to_replace)


DEFAULT_DELEGATES: list[Callable[[Model], Iterable[Delegate]]] = []
"""What gives the delegates of an interpreter that is not told which: filled by `tflm.delegates`."""
