"""From when to when each tensor and scratch buffer is needed, in steps of the invocation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tflm.errors import ArenaError, ModelError
from tflm.memory.planner import ONLINE_PLANNED_BUFFER
from tflm.memory.tensor import TfLiteEvalTensor
from tflm.schema.model import Model
from tflm.targets import BOOL, INT, INT32, POINTER, SIZE_T, Since, Struct

ALLOCATION_INFO = Struct(
    "AllocationInfo",
    bytes=SIZE_T,
    output_ptr=POINTER,
    first_created=INT,
    last_used=INT,
    offline_offset=INT32,
    needs_allocating=BOOL,
)
SCRATCH_BUFFER_REQUEST = Struct(
    "internal::ScratchBufferRequest", bytes=SIZE_T, node_idx=INT, subgraph_idx=Since("8c41f9606", INT)
)

UNINITIALIZED_LIFETIME = -1


@dataclass
class ScratchBufferRequest:
    """Memory that an operator needs only while it runs."""

    bytes: int
    subgraph_index: int
    node_index: int


@dataclass
class AllocationInfo:
    """What the planner has to know of one tensor or scratch buffer.

    Attributes:
        owner: the eval tensor, or the request, whose bytes these are.
        bytes: size.
        needs_allocating: whether the planner is to place it at all; constants and variables, for two, are not.
        offline_offset: where an offline plan wants it, or -1.
        first_created, last_used: steps, both included; -1 for what is never reached from the first subgraph.
    """

    owner: TfLiteEvalTensor | ScratchBufferRequest
    bytes: int
    needs_allocating: bool
    offline_offset: int = ONLINE_PLANNED_BUFFER
    first_created: int = UNINITIALIZED_LIFETIME
    last_used: int = UNINITIALIZED_LIFETIME

    def create(self, step: int) -> None:
        """Alive from `step` on, unless it already is."""
        if self.first_created == UNINITIALIZED_LIFETIME:
            self.first_created = step

    def use(self, step: int) -> None:
        """Alive until `step`; steps only ever rise."""
        self.last_used = step


class StepNode(Protocol):
    """A node of an execution plan, as far as lifetimes depend on it; tensors by index, -1 for an input left out."""

    @property
    def inputs(self) -> tuple[int, ...]:
        """The tensors that it reads."""

    @property
    def outputs(self) -> tuple[int, ...]:
        """The tensors that it makes."""

    @property
    def intermediates(self) -> tuple[int, ...]:
        """Tensors that carry quantization only."""

    @property
    def called_subgraphs(self) -> tuple[int, ...]:
        """The subgraphs that it runs."""


class Step(NamedTuple):
    """A step of the invocation: the node that runs, by its place in the plan, or None where a subgraph is entered."""

    subgraph_index: int
    node_index: int | None


class AllocationInfoBuilder:
    """Works out the lifetimes of everything in a model that was prepared.

    The steps count operators through the whole invocation; an operator that runs a subgraph is followed by one step
    to enter it and by the subgraph's own operators.

    Args:
        model: the model.
        nodes: the execution plan of each subgraph.
        tensors: the eval tensors of each subgraph.
        unplaced: those of each subgraph, by index, that get no place.
        requests: the scratch buffers that operators asked for.
        offline_offsets: an offset, or -1, for each tensor, subgraph after subgraph; None without an offline plan.

    Attributes:
        steps: what happens at each step, once `build` has been called.
    """

    def __init__(
        self,
        model: Model,
        nodes: Sequence[Sequence[StepNode]],
        tensors: Sequence[Sequence[TfLiteEvalTensor]],
        unplaced: Sequence[frozenset[int]],
        requests: Sequence[ScratchBufferRequest],
        offline_offsets: Sequence[int] | None,
    ):
        self._model = model
        self._nodes = nodes
        self._step = 0
        self.steps: list[Step] = [Step(0, None)]
        self._tensors = [
            [
                _tensor_info(tensor, not table.is_variable and i not in without_place)
                for i, (tensor, table) in enumerate(zip(eval_tensors, subgraph.tensors or ()))
            ]
            for eval_tensors, subgraph, without_place in zip(tensors, model.subgraphs, unplaced)
        ]
        self._scratch: dict[tuple[int, int], list[AllocationInfo]] = {}
        self._infos = [info for infos in self._tensors for info in infos]
        self._check_intermediates()
        if offline_offsets is not None:
            self._apply(offline_offsets)
        for request in requests:
            info = AllocationInfo(request, request.bytes, needs_allocating=True)
            self._scratch.setdefault((request.subgraph_index, request.node_index), []).append(info)
            self._infos.append(info)

    def build(self) -> list[AllocationInfo]:
        """All tensors, subgraph after subgraph, then all scratch buffers in the order of their requests."""
        self._mark_subgraph(0)
        return self._infos

    def _check_intermediates(self) -> None:
        for i, nodes in enumerate(self._nodes):
            for j, node in enumerate(nodes):
                for tensor in node.intermediates:
                    if self._tensors[i][tensor].bytes:
                        raise ModelError(
                            f"intermediate tensor {tensor} has a size; only empty ones, which carry quantization, "
                            "are supported",
                            table="Operator",
                            field="intermediates",
                            place=f"subgraphs[{i}].operators[{j}]",
                        )

    def _apply(self, offline_offsets: Sequence[int]) -> None:
        variables = (table.is_variable for subgraph in self._model.subgraphs for table in subgraph.tensors or ())
        for info, offset, is_variable in zip(self._infos, offline_offsets, variables):
            info.offline_offset = offset
            if is_variable and offset != ONLINE_PLANNED_BUFFER:
                info.needs_allocating = True

    def _mark_subgraph(self, index: int) -> None:
        subgraph, infos = self._model.subgraphs[index], self._tensors[index]
        for tensor in subgraph.inputs or ():
            infos[tensor].create(self._step)
            infos[tensor].use(self._step)
        for position, node in enumerate(self._nodes[index]):
            self._advance(index, position)
            self._mark_node(node, infos, self._scratch.get((index, position), ()))
        for tensor in subgraph.outputs or ():
            infos[tensor].create(self._step)
            infos[tensor].use(self._step)

    def _advance(self, subgraph_index: int, node_index: int | None) -> None:
        self._step += 1
        self.steps.append(Step(subgraph_index, node_index))

    def _mark_node(self, node: StepNode, infos: Sequence[AllocationInfo], scratch: Sequence[AllocationInfo]) -> None:
        outputs = [infos[tensor] for tensor in node.outputs]
        for info in (*outputs, *scratch):
            info.create(self._step)
        for called in node.called_subgraphs:
            self._advance(called, None)
            self._mark_subgraph(called)
        inputs = [infos[tensor] for tensor in node.inputs if tensor >= 0]
        for info in (*inputs, *outputs, *scratch):
            info.use(self._step)


def _tensor_info(tensor: TfLiteEvalTensor, may_be_planned: bool) -> AllocationInfo:
    size = tensor.byte_length
    return AllocationInfo(tensor, size, needs_allocating=tensor.data is None and may_be_planned and size != 0)


class SubgraphInfoBuilder:
    """Works out the lifetimes in one subgraph, as TFLM did while it planned each subgraph on its own.

    What an operator calls is not looked at. Scratch buffers of all subgraphs are in every plan, at the steps of the
    operators of this one with the same places.

    Args:
        subgraph_index: the subgraph.
        nodes, tensors: its execution plan and its eval tensors.
        requests, offline_offsets: as for `AllocationInfoBuilder`.

    Attributes:
        steps: what happens at each step, once `build` has been called.
    """

    def __init__(
        self,
        model: Model,
        subgraph_index: int,
        nodes: Sequence[tuple[StepNode, object]],
        tensors: Sequence[TfLiteEvalTensor],
        requests: Sequence[ScratchBufferRequest],
        offline_offsets: Sequence[int] | None,
    ):
        self._subgraph = model.subgraphs[subgraph_index]
        self._nodes = [node for node, _ in nodes]
        self._infos = [
            _tensor_info(tensor, not table.is_variable) for tensor, table in zip(tensors, self._subgraph.tensors or ())
        ]
        for info, offset in zip(self._infos, offline_offsets or ()):
            info.offline_offset = offset
        self._requests = requests
        last = max((request.node_index for request in requests), default=0)
        count = max(len(self._nodes), last + 1)
        self.steps = [Step(subgraph_index, None)]
        self.steps += [Step(subgraph_index, i if i < len(self._nodes) else None) for i in range(count)]

    def build(self, *, unread_outputs_fail: bool) -> list[AllocationInfo]:
        """What is to be placed: tensors, then scratch buffers in the order of their requests.

        Raises:
            ArenaError: a tensor is made or read, but not both.
        """
        infos = self._infos
        for tensor in self._subgraph.inputs or ():
            infos[tensor].create(0)
        for step, node in enumerate(self._nodes, 1):
            for tensor in node.outputs:
                infos[tensor].create(step)
            read = [tensor for tensor in node.inputs if tensor >= 0]
            for tensor in read if unread_outputs_fail else (*read, *node.outputs):
                infos[tensor].use(step)
        for tensor in self._subgraph.outputs or ():
            infos[tensor].use(len(self._nodes))
        for i, info in enumerate(infos):
            self._check(i, info)
        scratch = [AllocationInfo(request, request.bytes, needs_allocating=True) for request in self._requests]
        for info, request in zip(scratch, self._requests):
            info.create(request.node_index + 1)
            info.use(request.node_index + 1)
        return [info for info in (*infos, *scratch) if info.needs_allocating]

    def _check(self, index: int, info: AllocationInfo) -> None:
        is_made, is_read = info.first_created >= 0, info.last_used >= 0
        if info.needs_allocating and not is_read:
            raise ArenaError(
                f"Logic error in memory planner, tensor {index} has an invalid lifetime: nothing "
                f"{'reads' if is_made else 'makes or reads'} it, which TFLM of then can't plan"
            )
