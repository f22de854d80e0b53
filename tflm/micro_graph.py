"""The subgraphs of a model that is laid out in an arena: initialised, prepared, bound and run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tflm.errors import ModelError, OperatorError
from tflm.kernels.registration import KernelContext, Node, Registration, Run
from tflm.memory.tensor import TfLiteEvalTensor
from tflm.micro_allocator import MicroAllocator, SubgraphAllocations
from tflm.micro_op_resolver import MicroMutableOpResolver
from tflm.micro_profiler import MicroProfilerInterface
from tflm.schema.enums import TensorType
from tflm.schema.model import Model
from tflm.schema.tables import Tensor


class MicroGraph:
    """The nodes of every subgraph, taken through their phases; then a list of callables for each subgraph.

    Attributes:
        model: the model.
        allocations: tensors and nodes of each subgraph.
        subgraph_index: the subgraph whose operators are initialised, prepared, bound or run just now.
        node: the operator that is taken through a phase just now; None while the model runs.
    """

    def __init__(self, model: Model, allocations: list[SubgraphAllocations]):
        self.model = model
        self.allocations = allocations
        self.subgraph_index = 0
        self.node: Node | None = None
        self._runs: list[list[Run]] = []

    def make_nodes(self, resolver: MicroMutableOpResolver, allocator: MicroAllocator) -> None:
        """Find the registration of every operator, and reserve its parsed options.

        Raises:
            UnresolvedOperator: the resolver does not have an operator.
            ModelError: a builtin operator has options meant for custom ones.
        """
        for i, (subgraph, allocation) in enumerate(zip(self.model.subgraphs, self.allocations)):
            for j, operator in enumerate(subgraph.operators or ()):
                registration = resolver.find_op(self.model.operator_code(operator))
                if operator.custom_options is not None and not isinstance(registration.operator, str):
                    raise ModelError(
                        f"{registration.name} is a builtin operator, and can't have custom options",
                        table="Operator",
                        field="custom_options",
                        place=f"subgraphs[{i}].operators[{j}]",
                    )
                if registration.builtin_data is not None:
                    allocator.allocate_builtin_data(registration.builtin_data)
                node = Node(
                    operator=registration.name,
                    index=j,
                    inputs=operator.inputs or (),
                    outputs=operator.outputs or (),
                    intermediates=operator.intermediates or (),
                    builtin_options=operator.builtin_options,
                    custom_options=memoryview(operator.custom_options or b""),
                )
                allocation.nodes.append((node, registration))

    def init_subgraphs(self, context: KernelContext) -> None:
        """Run the first phase of every operator: reserve its op data, then what else it needs to begin with."""

        def init(node: Node, registration: Registration) -> None:
            size = registration.op_data.size(context.target) if registration.op_data is not None else 0
            if size:
                node.op_data = context.allocate_persistent_buffer(size)
            if registration.init is not None:
                registration.init(context, node)

        self._for_each_node(init)

    def prepare_subgraphs(self, context: KernelContext, finish_node: Callable[[int], None]) -> None:
        """Let every operator check its tensors and ask for memory; `finish_node` is called after each."""

        def prepare(node: Node, registration: Registration) -> None:
            if registration.prepare is not None:
                registration.prepare(context, node)
            self._check_dynamic_tensors(node)
            finish_node(node.index)

        self._for_each_node(prepare)

    def bind_subgraphs(self, context: KernelContext, profiler: MicroProfilerInterface | None) -> None:
        """Make every operator runnable, now that all addresses are known."""
        self._runs = [[] for _ in self.allocations]

        def bind(node: Node, registration: Registration) -> None:
            run = _bind(context, node, registration)
            if profiler is not None:
                run = _profiled(run, node.operator, profiler)
            self._runs[self.subgraph_index].append(run)

        self._for_each_node(bind)

    def invoke_subgraph(self, index: int) -> None:
        """Run the operators of one subgraph.

        Raises:
            OperatorError: an operator can't go on; the message says which.
        """
        previous, self.subgraph_index = self.subgraph_index, index
        position = -1
        try:
            for position, run in enumerate(self._runs[index]):  # noqa: B007  # named in the error
                run()
        except OperatorError as error:
            error.locate(index, position, self.allocations[index].nodes[position][0].operator)
            raise
        finally:
            self.subgraph_index = previous

    def reset_subgraphs(self, context: KernelContext) -> None:
        """Put the state of every operator back to what it was before the first invoke."""

        def reset(node: Node, registration: Registration) -> None:
            if registration.reset is not None:
                registration.reset(context, node)

        self._for_each_node(reset)

    def reset_variable_tensors(self) -> None:
        """Set every variable tensor to zero: int8 ones to their zero point, the others to zero bytes."""
        for subgraph, allocation in zip(self.model.subgraphs, self.allocations):
            for table, tensor in zip(subgraph.tensors or (), allocation.tensors):
                if table.is_variable:
                    _reset_variable(table, tensor)

    def _for_each_node(self, phase: Callable[[Node, Registration], None]) -> None:
        """Take every node through a phase; an error that one raises is told where the node stands."""
        try:
            for self.subgraph_index, allocation in enumerate(self.allocations):  # noqa: B020
                for self.node, registration in allocation.nodes:
                    phase(self.node, registration)
        except OperatorError as error:
            assert self.node is not None
            error.locate(self.subgraph_index, self.node.index, self.node.operator)
            raise
        finally:
            self.subgraph_index, self.node = 0, None

    def _check_dynamic_tensors(self, node: Node) -> None:
        for index in node.outputs:
            tensor = self.allocations[self.subgraph_index].tensors[index]
            if tensor.dims != (0,) and any(dimension <= 0 for dimension in tensor.dims):
                reason = f"has shape {list(tensor.dims)}; every dimension must be known and at least 1"
                raise OperatorError(reason, tensor=tensor.name)


def _bind(context: KernelContext, node: Node, registration: Registration) -> Run:
    if registration.bind is not None:
        return registration.bind(context, node)
    invoke = registration.invoke
    if invoke is None:
        raise OperatorError("its registration has neither bind nor invoke")
    return lambda: invoke(context, node)


def _profiled(run: Run, tag: str, profiler: MicroProfilerInterface) -> Run:
    def timed() -> None:
        event = profiler.begin_event(tag)
        try:
            run()
        finally:
            profiler.end_event(event)

    return timed


def _reset_variable(table: Tensor, tensor: TfLiteEvalTensor) -> None:
    zero_points = table.quantization.zero_point if table.quantization is not None else None
    value = zero_points[0] if tensor.type == TensorType.INT8 and zero_points else 0
    tensor.elements.fill(np.int64(value).astype(tensor.elements.dtype))
