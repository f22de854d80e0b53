"""The subgraphs of a model with their execution plans: initialised, prepared, bound and run."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from functools import partial
from types import FrameType
from typing import Any

import numpy as np

from tflm.errors import ModelError, OperatorError, UnresolvedOperator
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.registration import Registration, Run
from tflm.libraries import REFERENCE, KernelLibrary
from tflm.memory.tensor import TfLiteEvalTensor
from tflm.runtime.delegate import Delegate, DelegateContext
from tflm.runtime.execution_plan import ExecutionPlan, PlannedNode, StandaloneRun
from tflm.runtime.micro_allocator import MicroAllocator, SubgraphAllocations
from tflm.runtime.micro_op_resolver import MicroMutableOpResolver
from tflm.runtime.micro_profiler import MicroProfiler, MicroProfilerInterface
from tflm.schema.enums import TensorType
from tflm.schema.model import Model
from tflm.schema.tables import Operator, Tensor


class MicroGraph:
    """The nodes of every subgraph, taken through their phases; then a list of callables for each subgraph.

    Args:
        model: the model.
        resolver: has the registrations of its operators.
        delegates: delegates that may claim operators, in this order.
        kernels: the kernel library of the operators.
        is_profiled: whether a profiler records every node.

    Attributes:
        model: the model.
        plans: the execution plan of each subgraph.
        allocations: tensors and nodes of each subgraph, once they are in the arena.
        subgraph_index: the subgraph whose operators are currently initialised, prepared, bound or run.
        node: the operator in its current phase; None while the model runs.

    Raises:
        ModelError: a builtin operator has options meant for custom ones.
        DelegateError: a delegate claims nodes that it cannot have; or any other exception that its `prepare` raises.
    """

    def __init__(
        self,
        model: Model,
        resolver: MicroMutableOpResolver,
        delegates: Iterable[Delegate] = (),
        kernels: KernelLibrary = REFERENCE,
        is_profiled: bool = False,
    ):
        self.model = model
        self._kernels = kernels
        self._is_profiled = is_profiled
        self._unresolved: dict[tuple[int, int], UnresolvedOperator] = {}
        self.plans = [
            ExecutionPlan(
                subgraph,
                [self._planned(resolver, i, j, operator) for j, operator in enumerate(subgraph.operators or ())],
            )
            for i, subgraph in enumerate(model.subgraphs)
        ]
        self.allocations: list[SubgraphAllocations] = []
        self.subgraph_index = 0
        self.node: Node | None = None
        self._runs: list[list[Run]] = []
        self._initialised: list[PlannedNode] = []
        for delegate in delegates:
            self.modify_with_delegate(delegate)

    def _planned(self, resolver: MicroMutableOpResolver, i: int, j: int, operator: Operator) -> PlannedNode:
        name, code = self.model.operator_name(operator), self.model.operator_code(operator)
        try:
            registration = self._kernels.registration(resolver.find_op(code))
            self._kernels.require_operator(registration, code.version)
        except UnresolvedOperator as error:
            self._unresolved[i, j] = error
            registration = Registration(name, has_state=False)
        else:
            if operator.custom_options is not None and not isinstance(registration.operator, str):
                raise ModelError(
                    f"{registration.name} is a builtin operator and cannot have custom options",
                    table="Operator",
                    field="custom_options",
                    place=f"subgraphs[{i}].operators[{j}]",
                )
        return PlannedNode(Node.of(self.model, operator, j), registration, (j,))

    def modify_with_delegate(self, delegate: Delegate) -> None:
        """Let a delegate claim nodes of every subgraph.

        Raises:
            DelegateError: it claims nodes that it cannot have; or any other exception that its `prepare` raises. The
                graph is unusable then.
        """
        for index, plan in enumerate(self.plans):
            delegate.prepare(DelegateContext(self.model, index, plan, delegate, self._is_profiled))

    def place(self, allocator: MicroAllocator) -> None:
        """Reserve the structures of every subgraph, and the parsed options of every node.

        Raises:
            UnresolvedOperator: the resolver does not have an operator, and no delegate took it.
            ModelError: the release does not know subgraphs, or a type.
        """
        allocator.require_subgraphs(self.model)
        for (i, j), error in self._unresolved.items():
            if not any(j in planned.operators and planned.delegate for planned in self.plans[i].running):
                raise error
        device = [[(planned.node, planned.registration) for planned in plan.device] for plan in self.plans]
        self.allocations = allocator.start_model_allocation(self.model, device)
        for plan, allocation in zip(self.plans, self.allocations):
            allocation.unplaced = plan.inside_device_nodes
        for nodes in device:
            for _, registration in nodes:
                if registration.builtin_data is not None:
                    allocator.allocate_builtin_data(registration.builtin_data)

    def init_subgraphs(self, context: KernelContext) -> None:
        """Run the first phase of every operator: reserve its op data, then its other initial requests."""
        tensors = weakref.proxy(context)  # the context holds this graph: a reference back would outlive both
        for plan in self.plans:
            for planned in (*plan.operators, *plan.device, *plan.running):
                planned.node.tensors = tensors

        def init(planned: PlannedNode) -> None:
            node, registration = planned.node, planned.registration
            memory = registration.memory
            size = self._kernels.layout(memory.op_data, context.target)[0] if memory.op_data is not None else 0
            if size:
                op_data = context.allocate_persistent_buffer(size)
                node.op_data = op_data if planned.delegate is None else node.op_data
            node.pending = memory.init
            self._init(context, planned)
            context.allocate_requested(node)

        self.for_each_node(init)

    def _init(self, context: KernelContext, planned: PlannedNode) -> None:
        node, registration = planned.node, planned.registration
        self._initialised.append(planned)
        if registration.init is None:
            return
        if planned.delegate is None:
            registration.init(context, node)
        else:
            kept = registration.init(context, node.op_data)
            node.op_data = node.op_data if kept is None else kept

    def prepare_subgraphs(self, context: KernelContext, finish_node: Callable[[int], None]) -> None:
        """Run the prepare phase of every operator.

        Args:
            finish_node: called after each operator, with its position in the device's plan.
        """
        position = [0] * len(self.plans)

        def prepare(planned: PlannedNode) -> None:
            node, registration = planned.node, planned.registration
            node.pending = registration.memory.prepare
            if registration.prepare is not None:
                registration.prepare(context, node)
            self._kernels.require_taken(registration, node)
            context.allocate_requested(node)
            self._check_dynamic_tensors(node)
            finish_node(position[self.subgraph_index])
            position[self.subgraph_index] += 1

        self.for_each_node(prepare)

    def prepare_host_delegates(self, context: KernelContext) -> None:
        """Initialise and prepare the nodes of delegates of the host, now that every tensor has its data."""

        def init_and_prepare(planned: PlannedNode) -> None:
            if planned.is_on_host:
                self._init(context, planned)
                if planned.registration.prepare is not None:
                    planned.registration.prepare(context, planned.node)

        self.for_each_node(init_and_prepare, running=True)

    def bind_subgraphs(self, context: KernelContext, profiler: MicroProfilerInterface | None) -> None:
        """Make every node runnable, now that all addresses are known."""
        self._runs = [[] for _ in self.allocations]

        def bind(planned: PlannedNode) -> None:
            run = bind_node(context, planned.node, planned.registration)
            if profiler is not None:
                run = _profiled(run, planned.tag, (self.subgraph_index, planned.operators[0]), profiler)
            self._runs[self.subgraph_index].append(run)

        self.for_each_node(bind, running=True)

    def standalone_run(self, guard: list[FrameType]) -> StandaloneRun | None:
        """Return the function that runs the whole model if the model is a single node of a standalone delegate;
        otherwise None."""
        nodes, runs = self.plans[0].running, self._runs[0]
        delegate = nodes[0].delegate if len(nodes) == 1 else None
        return None if delegate is None else delegate.standalone(runs[0], guard)

    @property
    def is_final(self) -> bool:
        """Whether no delegate is still preparing a node while numpy runs it."""
        return all(
            planned.delegate is None or planned.delegate.is_final(run)
            for plan, runs in zip(self.plans, self._runs)
            for planned, run in zip(plan.running, runs)
        )

    def invoke_unfinished(self) -> bool:
        """Run the first subgraph; returns `is_final` afterwards."""
        self.invoke_subgraph(0)
        return self.is_final

    def release(self, context: KernelContext) -> None:
        """Drop all bindings and free every node; nothing can run afterwards."""
        self._runs = []
        while self._initialised:
            planned = self._initialised.pop()
            if planned.registration.free is not None:
                planned.registration.free(context, planned.node)

    def invoke_subgraph(self, index: int) -> None:
        """Run the nodes of one subgraph.

        Raises:
            OperatorError: an operator fails; the message says which.
        """
        previous, self.subgraph_index = self.subgraph_index, index
        position = -1
        try:
            for position, run in enumerate(self._runs[index]):  # noqa: B007  # named in the error
                run()
        except OperatorError as error:
            planned = self.plans[index].running[position]
            error.locate(index, planned.operators[0], planned.tag)
            raise
        finally:
            self.subgraph_index = previous

    def reset_subgraphs(self, context: KernelContext) -> None:
        """Restore the state of every operator to what it was before the first invoke."""

        def reset(planned: PlannedNode) -> None:
            if planned.registration.reset is not None:
                planned.registration.reset(context, planned.node)

        self.for_each_node(reset)
        self.for_each_node(lambda planned: reset(planned) if planned.is_on_host else None, running=True)

    def reset_variable_tensors(self) -> None:
        """Set every variable tensor to zero: int8 ones to their zero point, the others to zero bytes."""
        for subgraph, allocation in zip(self.model.subgraphs, self.allocations):
            for table, tensor in zip(subgraph.tensors or (), allocation.tensors):
                if table.is_variable:
                    _reset_variable(table, tensor)

    def for_each_node(self, phase: Callable[[PlannedNode], Any], *, running: bool = False) -> None:
        """Take every node, of the device or those that run, through a phase; errors name the node.

        Args:
            phase: is called with each node, while `subgraph_index` and `node` say which it is.
        """
        planned: PlannedNode | None = None
        try:
            for self.subgraph_index, plan in enumerate(self.plans):  # noqa: B020
                for planned in plan.running if running else plan.device:
                    self.node = planned.node
                    phase(planned)
        except OperatorError as error:
            assert planned is not None
            error.locate(self.subgraph_index, planned.operators[0], planned.tag)
            raise
        finally:
            self.subgraph_index, self.node = 0, None

    def _check_dynamic_tensors(self, node: Node) -> None:
        for index in node.outputs:
            tensor = self.allocations[self.subgraph_index].tensors[index]
            if tensor.dims != (0,) and any(dimension <= 0 for dimension in tensor.dims):
                reason = f"has shape {list(tensor.dims)}; every dimension must be known and at least 1"
                raise OperatorError(reason, tensor=tensor.name)


def bind_node(context: KernelContext, node: Node, registration: Registration) -> Run:
    """Return the function that runs a node, from its registration.

    Raises:
        OperatorError: it can't be run so, or has nothing to run it.
    """
    if registration.bind is not None:
        return registration.bind(context, node)
    invoke = registration.invoke
    if invoke is None:
        raise OperatorError("its registration has neither bind nor invoke")
    return lambda: invoke(context, node)


def _profiled(run: Run, tag: str, place: tuple[int, int], profiler: MicroProfilerInterface) -> Run:
    begin = partial(profiler.begin_event, tag)
    if isinstance(profiler, MicroProfiler):
        begin = partial(profiler.begin_operator, tag, place)

    def timed() -> None:
        event = begin()
        try:
            run()
        finally:
            profiler.end_event(event)

    return timed


def _reset_variable(table: Tensor, tensor: TfLiteEvalTensor) -> None:
    zero_points = table.quantization.zero_point if table.quantization is not None else None
    value = zero_points[0] if tensor.type == TensorType.INT8 and zero_points else 0
    tensor.elements.fill(np.int64(value).astype(tensor.elements.dtype))
