"""Memory of the host for what would be in another's way, where delegates of the host run nodes in their own order.

The arena is planned for the device, which runs operator after operator. Two buffers that are not alive together there
may share bytes; where the host runs things in another order, or several operators at once, they may be alive together
after all. One of them then gets memory of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tflm.memory.lifetimes import AllocationInfoBuilder, ScratchBufferRequest, Step
from tflm.memory.placed_buffers import PlacedBuffers
from tflm.memory.planner import BufferRequirements
from tflm.memory.tensor import TfLiteEvalTensor
from tflm.runtime.execution_plan import ExecutionPlan, PlannedNode
from tflm.runtime.micro_allocator import PlannedBuffer
from tflm.schema.model import Model


def displaced_buffers(
    model: Model,
    plans: Sequence[ExecutionPlan],
    tensors: Sequence[Sequence[TfLiteEvalTensor]],
    planned: Sequence[PlannedBuffer],
    steps: Sequence[Step],
) -> list[int]:
    """Which buffers of the arena's plan have to be elsewhere, by their place in `planned`.

    Tensors that the caller sees, inputs first, stay in the arena where they can.

    Args:
        model: the model.
        plans, tensors: the execution plans and eval tensors of its subgraphs.
        planned: the head as it was planned for the device, scratch buffers last.
        steps: what the device does at each step.
    """
    units = [_units(plan) for plan in plans]
    if all(found == [_Unit((node,), False) for node in plan.device] for found, plan in zip(units, plans)):
        return []
    builder = AllocationInfoBuilder(
        model, units, tensors, [frozenset()] * len(plans), _requests(plans, units, planned, steps), None
    )
    infos = builder.build()
    tensor_count = sum(map(len, tensors))
    scratch = iter(infos[tensor_count:])
    uses = [infos[buffer.tensor] if buffer.tensor is not None else next(scratch) for buffer in planned]
    variables = [table.is_variable for subgraph in model.subgraphs for table in subgraph.tensors or ()]
    for buffer, info in zip(planned, uses):
        if buffer.tensor is not None and variables[buffer.tensor]:
            info.first_created, info.last_used = 0, len(builder.steps)
    starts = np.cumsum([0, *map(len, tensors)], dtype=np.int64).tolist()
    reads = [_kernel_reads(units, starts, step) for step in builder.steps]
    lifetimes = [(info.first_created, info.last_used) for info in uses]
    main = model.subgraphs[0]
    return _colliding(planned, lifetimes, reads, [*(main.inputs or ()), *(main.outputs or ())])


class _Unit(NamedTuple):
    """What happens in one step: the nodes of the device that run then, and whether a delegate runs them as it likes."""

    nodes: tuple[PlannedNode, ...]
    is_delegated: bool

    @property
    def inputs(self) -> tuple[int, ...]:
        """The tensors that any of the nodes reads."""
        return tuple(tensor for planned in self.nodes for tensor in planned.node.inputs)

    @property
    def outputs(self) -> tuple[int, ...]:
        """The tensors that any of the nodes makes."""
        return tuple(tensor for planned in self.nodes for tensor in planned.node.outputs)

    @property
    def intermediates(self) -> tuple[int, ...]:
        """The tensors of the nodes that carry quantization only."""
        return tuple(tensor for planned in self.nodes for tensor in planned.node.intermediates)

    @property
    def called_subgraphs(self) -> tuple[int, ...]:
        """The subgraphs that the nodes run."""
        return tuple(index for planned in self.nodes for index in planned.node.called_subgraphs)


def _units(plan: ExecutionPlan) -> list[_Unit]:
    units = []
    for node in plan.running:
        if not node.is_on_host:
            units.append(_Unit((node,), False))
        elif node.delegate is not None and node.delegate.runs_in_order:
            units += [_Unit((replaced,), False) for replaced in node.replaced]
        else:
            units.append(_Unit(node.replaced, True))
    return units


def _kernel_reads(units: Sequence[Sequence[_Unit]], starts: Sequence[int], step: Step) -> frozenset[int]:
    """The tensors that the kernel of a step reads, counted through all subgraphs; none where a delegate runs."""
    if step.node_index is None or units[step.subgraph_index][step.node_index].is_delegated:
        return frozenset()
    inputs = units[step.subgraph_index][step.node_index].inputs
    return frozenset(starts[step.subgraph_index] + tensor for tensor in inputs if tensor >= 0)


def _requests(
    plans: Sequence[ExecutionPlan],
    units: Sequence[Sequence[_Unit]],
    planned: Sequence[PlannedBuffer],
    steps: Sequence[Step],
) -> list[ScratchBufferRequest]:
    """The scratch buffers, as those of the units that their nodes run in."""
    unit_of = {id(node): i for found in units for i, unit in enumerate(found) for node in unit.nodes}
    requests = []
    for buffer in planned:
        if buffer.tensor is None:
            subgraph, position = steps[buffer.first_use]
            assert position is not None
            node = plans[subgraph].device[position]
            requests.append(ScratchBufferRequest(buffer.bytes, subgraph, unit_of[id(node)]))
    return requests


def _tensor(buffer: PlannedBuffer) -> int:
    return -1 if buffer.tensor is None else buffer.tensor


def _colliding(
    planned: Sequence[PlannedBuffer],
    lifetimes: Sequence[tuple[int, int]],
    reads: Sequence[frozenset[int]],
    shown: Sequence[int],
) -> list[int]:
    """Those that share bytes with one before them while both are needed: what the caller sees comes first.

    A kernel may make its output in place of an input that nobody reads later, as the device's plan has it.

    Args:
        reads: the tensors that a kernel reads at each step.
        shown: tensors that the caller sees.
    """

    def in_place(i: int, other: int) -> bool:
        before, after = (i, other) if lifetimes[i][0] <= lifetimes[other][0] else (other, i)
        step = lifetimes[after][0]
        return lifetimes[before][1] == step and _tensor(planned[before]) in reads[step]

    rank = {tensor: place for place, tensor in enumerate(shown)}
    used = [i for i in range(len(planned)) if lifetimes[i][0] >= 0]
    placed = PlacedBuffers(len(used))
    kept: list[int] = []
    displaced = []
    for i in sorted(used, key=lambda i: (rank.get(_tensor(planned[i]), len(shown)), lifetimes[i][0])):
        needed = BufferRequirements(planned[i].bytes, *lifetimes[i])
        if all(in_place(i, kept[other]) for other in placed.in_the_way(needed, planned[i].offset)):
            placed.add(needed, planned[i].offset)
            kept.append(i)
        else:
            displaced.append(i)
    return displaced
