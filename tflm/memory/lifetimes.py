"""Lifetimes of tensors and scratch buffers, in steps of the invocation."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tflm.errors import ArenaError, ModelError
from tflm.memory.buffer import ONLINE_PLANNED_BUFFER, UNUSED, Buffer
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


@dataclass
class ScratchBufferRequest:
    """Memory that an operator needs only while it runs."""

    bytes: int
    subgraph_index: int
    node_index: int


class NodeUses(Protocol):
    """Indices of a node's tensors, which determine lifetimes; -1 for an omitted input."""

    @property
    def inputs(self) -> tuple[int, ...]:
        """The tensors that it reads."""

    @property
    def outputs(self) -> tuple[int, ...]:
        """The tensors that it makes."""

    @property
    def intermediates(self) -> tuple[int, ...]:
        """Tensors that only have quantization."""

    @property
    def called_subgraphs(self) -> tuple[int, ...]:
        """The subgraphs that it runs."""


class InvocationStep(NamedTuple):
    """The node that runs at a step, by its index in the execution plan; None if a subgraph is entered."""

    subgraph_index: int
    node_index: int | None


class _Lifetimes:
    """First and last uses of tensors, then scratch buffers, by number; both are -1 if never reached."""

    def __init__(self, tensors: Sequence[TfLiteEvalTensor], requests: Sequence[ScratchBufferRequest]):
        self._tensors, self._requests = tensors, requests
        count = len(tensors) + len(requests)
        self._first, self._last = [UNUSED] * count, [UNUSED] * count

    def create(self, numbers: Iterable[int], step: int) -> None:
        """Alive from `step` on, unless they already are."""
        for number in numbers:
            if self._first[number] == UNUSED:
                self._first[number] = step

    def use(self, numbers: Iterable[int], step: int) -> None:
        """Alive until `step`; steps only ever rise."""
        for number in numbers:
            self._last[number] = step

    def all(self) -> list[tuple[int, int]]:
        """First and last use of each."""
        return list(zip(self._first, self._last))

    def buffers(self, placed: Sequence[int], offsets: Sequence[int], start: int = 0) -> list[Buffer]:
        """The buffers to place: some tensors, then all scratch buffers.

        Args:
            placed: the tensors, by number.
            offsets: the required offset of each tensor, or -1.
            start: number of the first tensor.
        """
        uses = self.all()
        count = len(self._tensors)
        tensors = ((i, self._tensors[i]) for i in placed)
        return [
            *(
                Buffer(t.byte_length, *uses[i], offsets[i], t.name, "tensor", t.type, t.dims, start + i)
                for i, t in tensors
            ),
            *(Buffer(r.bytes, *life, kind="scratch") for r, life in zip(self._requests, uses[count:])),
        ]


class LifetimeBuilder:
    """Computes the lifetimes of all buffers of a prepared model.

    The steps count operators through the whole invocation; an operator that runs a subgraph is followed by one step
    to enter it and by the subgraph's own operators.

    Args:
        model: the model.
        nodes: the execution plan of each subgraph.
        tensors: the eval tensors of each subgraph.
        unplaced: indices of each subgraph's tensors that are not placed.
        requests: the operators' scratch buffers.
        offline_offsets: an offset, or -1, for each tensor, subgraph after subgraph; None without an offline plan.

    Attributes:
        steps: the node of each step, after `build`.
    """

    def __init__(
        self,
        model: Model,
        nodes: Sequence[Sequence[NodeUses]],
        tensors: Sequence[Sequence[TfLiteEvalTensor]],
        unplaced: Sequence[frozenset[int]],
        requests: Sequence[ScratchBufferRequest],
        offline_offsets: Sequence[int] | None,
    ):
        self._model, self._nodes, self._tensors, self._unplaced = model, nodes, tensors, unplaced
        self.steps = [InvocationStep(0, None)]
        self._starts = list(itertools.accumulate(map(len, tensors), initial=0))
        count = self._starts[-1]
        self._offsets = [ONLINE_PLANNED_BUFFER] * count if offline_offsets is None else offline_offsets
        self._lifetimes = _Lifetimes([tensor for of_subgraph in tensors for tensor in of_subgraph], requests)
        self._scratch: dict[tuple[int, int], list[int]] = {}
        for number, request in enumerate(requests, count):
            self._scratch.setdefault((request.subgraph_index, request.node_index), []).append(number)
        self._check_intermediates()

    def build(self) -> list[Buffer]:
        """The buffers to place: tensors, subgraph after subgraph, then scratch buffers in the order of their
        requests."""
        self._mark_subgraph(0)
        return self._lifetimes.buffers(list(self._placed()), self._offsets)

    def lifetimes(self) -> list[tuple[int, int]]:
        """First and last use of every tensor and scratch buffer, after `build`."""
        return self._lifetimes.all()

    def _placed(self) -> Iterator[int]:
        """The tensors to place: no constants, and variables only with an offset in the offline plan."""
        for start, subgraph, tensors, unplaced in zip(
            self._starts, self._model.subgraphs, self._tensors, self._unplaced
        ):
            for i, (table, tensor) in enumerate(zip(subgraph.tensors or (), tensors)):
                is_planned = self._offsets[start + i] != ONLINE_PLANNED_BUFFER
                if is_planned if table.is_variable else i not in unplaced and _needs_place(tensor):
                    yield start + i

    def _check_intermediates(self) -> None:
        for i, nodes in enumerate(self._nodes):
            for j, node in enumerate(nodes):
                for tensor in node.intermediates:
                    if self._tensors[i][tensor].byte_length:
                        raise ModelError(
                            f"intermediate tensor {tensor} has a size; only empty ones, which carry quantization, "
                            "are supported",
                            table="Operator",
                            field="intermediates",
                            place=f"subgraphs[{i}].operators[{j}]",
                        )

    @property
    def _step(self) -> int:
        return len(self.steps) - 1

    def _numbers(self, subgraph: int, tensors: Iterable[int] | None) -> list[int]:
        return [self._starts[subgraph] + tensor for tensor in tensors or () if tensor >= 0]

    def _mark_subgraph(self, index: int) -> None:
        subgraph = self._model.subgraphs[index]
        self._mark_end(self._numbers(index, subgraph.inputs))
        for position, node in enumerate(self._nodes[index]):
            self.steps.append(InvocationStep(index, position))
            self._mark_node(node, index, self._scratch.get((index, position), []))
        self._mark_end(self._numbers(index, subgraph.outputs))

    def _mark_end(self, numbers: list[int]) -> None:
        self._lifetimes.create(numbers, self._step)
        self._lifetimes.use(numbers, self._step)

    def _mark_node(self, node: NodeUses, subgraph: int, scratch: list[int]) -> None:
        made = self._numbers(subgraph, node.outputs) + scratch
        self._lifetimes.create(made, self._step)
        for called in node.called_subgraphs:
            self.steps.append(InvocationStep(called, None))
            self._mark_subgraph(called)
        self._lifetimes.use(self._numbers(subgraph, node.inputs) + made, self._step)


def _needs_place(tensor: TfLiteEvalTensor) -> bool:
    return tensor.data is None and tensor.byte_length != 0


class SubgraphLifetimeBuilder:
    """Computes the lifetimes in one subgraph, for older releases of TFLM that plan each subgraph separately.

    Called subgraphs are ignored. Every plan has the scratch buffers of all subgraphs, at the steps of this subgraph's
    operators with the same indices.

    Args:
        subgraph_index: the subgraph.
        nodes, tensors: its execution plan and its eval tensors.
        requests, offline_offsets: as for `LifetimeBuilder`.

    Attributes:
        steps: the node of each step.
    """

    def __init__(
        self,
        model: Model,
        subgraph_index: int,
        nodes: Sequence[tuple[NodeUses, object]],
        tensors: Sequence[TfLiteEvalTensor],
        requests: Sequence[ScratchBufferRequest],
        offline_offsets: Sequence[int] | None,
    ):
        self._subgraph = model.subgraphs[subgraph_index]
        self._start = sum(len(subgraph.tensors or ()) for subgraph in model.subgraphs[:subgraph_index])
        self._nodes = [node for node, _ in nodes]
        self._tensors, self._requests = tensors, requests
        self._offsets = [ONLINE_PLANNED_BUFFER] * len(tensors) if offline_offsets is None else offline_offsets
        last = max((request.node_index for request in requests), default=0)
        count = max(len(self._nodes), last + 1)
        self.steps = [InvocationStep(subgraph_index, None)]
        self.steps += [InvocationStep(subgraph_index, i if i < len(self._nodes) else None) for i in range(count)]

    def build(self, *, unread_outputs_fail: bool) -> list[Buffer]:
        """The buffers to place: tensors, then scratch buffers in the order of their requests.

        Raises:
            ArenaError: a tensor is written but never read, or read but never written.
        """
        life = _Lifetimes(self._tensors, self._requests)
        life.create(self._subgraph.inputs or (), 0)
        for step, node in enumerate(self._nodes, 1):
            life.create(node.outputs, step)
            life.use((tensor for tensor in node.inputs if tensor >= 0), step)
            if not unread_outputs_fail:
                life.use(node.outputs, step)
        life.use(self._subgraph.outputs or (), len(self._nodes))
        for number, request in enumerate(self._requests, len(self._tensors)):
            life.create([number], request.node_index + 1)
            life.use([number], request.node_index + 1)
        tables, uses = self._subgraph.tensors or (), life.all()
        placed = [
            i
            for i, (table, tensor) in enumerate(zip(tables, self._tensors))
            if not table.is_variable and _needs_place(tensor)
        ]
        for i in placed:
            _require_uses(i, *uses[i])
        return life.buffers(placed, self._offsets, self._start)


def _require_uses(tensor: int, first: int, last: int) -> None:
    if last == UNUSED:
        missing = "makes or reads" if first == UNUSED else "reads"
        raise ArenaError(
            f"Logic error in memory planner, tensor {tensor} has an invalid lifetime: nothing {missing} it, which TFLM "
            "of then can't plan"
        )
