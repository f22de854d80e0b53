"""Host memory for buffers that would overlap because delegates of the host run nodes in another order.

The arena is planned for the device, which runs operator after operator. Two buffers that are never alive together there
may share bytes. If the host runs operators in another order, or several at once, both may be alive; one of them then
gets separate memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tflm.memory.buffer import Buffer
from tflm.memory.lifetimes import InvocationStep, LifetimeBuilder, ScratchBufferRequest
from tflm.memory.planners import PlacedBuffers
from tflm.memory.tensor import TfLiteEvalTensor
from tflm.runtime.execution_plan import ExecutionPlan, PlannedNode
from tflm.schema.model import Model


def displaced_buffers(
    model: Model,
    plans: Sequence[ExecutionPlan],
    tensors: Sequence[Sequence[TfLiteEvalTensor]],
    planned: Sequence[Buffer],
    steps: Sequence[InvocationStep],
) -> list[int]:
    """Indices in `planned` of the buffers that must move out of the arena.

    Tensors that the caller sees, inputs first, stay in the arena if possible.

    Args:
        model: the model.
        plans, tensors: the execution plans and eval tensors of its subgraphs.
        planned: the head as planned for the device, scratch buffers last.
        steps: the device's node at each step.
    """
    units = [_units(plan) for plan in plans]
    if all(found == [_unit((node,)) for node in plan.device] for found, plan in zip(units, plans)):
        return []
    requests = _requests(plans, units, planned, steps)
    builder = LifetimeBuilder(model, units, tensors, [frozenset()] * len(plans), requests, None)
    builder.build()
    lifetimes = builder.lifetimes()
    always = 0, len(builder.steps)
    variables = [table.is_variable for subgraph in model.subgraphs for table in subgraph.tensors or ()]
    uses = [always if is_variable else life for is_variable, life in zip(variables, lifetimes)]
    scratch = iter(lifetimes[len(variables) :])
    needed = []
    for buffer in planned:
        first, last = next(scratch) if buffer.tensor is None else uses[buffer.tensor]
        needed.append(replace(buffer, first_use=first, last_use=last))
    starts = np.cumsum([0, *map(len, tensors)], dtype=np.int64).tolist()
    reads = [_kernel_reads(units, starts, step) for step in builder.steps]
    main = model.subgraphs[0]
    return _colliding(needed, reads, [*(main.inputs or ()), *(main.outputs or ())])


class _Unit(NamedTuple):
    """One step on the host: the device's nodes that run, and whether a delegate runs them in any order."""

    nodes: tuple[PlannedNode, ...]
    is_delegated: bool
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    intermediates: tuple[int, ...]
    called_subgraphs: tuple[int, ...]


def _unit(nodes: tuple[PlannedNode, ...], is_delegated: bool = False) -> _Unit:
    """Combine nodes into one unit with all of their inputs, outputs and called subgraphs."""
    sides = ("inputs", "outputs", "intermediates", "called_subgraphs")
    together = (tuple(i for planned in nodes for i in getattr(planned.node, side)) for side in sides)
    return _Unit(nodes, is_delegated, *together)


def _units(plan: ExecutionPlan) -> list[_Unit]:
    units = []
    for node in plan.running:
        if not node.is_on_host:
            units.append(_unit((node,)))
        elif node.delegate is not None and node.delegate.runs_in_order:
            units += [_unit((replaced,)) for replaced in node.replaced]
        else:
            units.append(_unit(node.replaced, is_delegated=True))
    return units


def _kernel_reads(units: Sequence[Sequence[_Unit]], starts: Sequence[int], step: InvocationStep) -> frozenset[int]:
    """The tensors that the kernel of a step reads, numbered through all subgraphs; none for a delegate."""
    if step.node_index is None or units[step.subgraph_index][step.node_index].is_delegated:
        return frozenset()
    inputs = units[step.subgraph_index][step.node_index].inputs
    return frozenset(starts[step.subgraph_index] + tensor for tensor in inputs if tensor >= 0)


def _requests(
    plans: Sequence[ExecutionPlan],
    units: Sequence[Sequence[_Unit]],
    planned: Sequence[Buffer],
    steps: Sequence[InvocationStep],
) -> list[ScratchBufferRequest]:
    """The scratch buffer requests, assigned to the units of their nodes."""
    unit_of = {id(node): i for found in units for i, unit in enumerate(found) for node in unit.nodes}
    requests = []
    for buffer in planned:
        if buffer.tensor is None:
            subgraph, position = steps[buffer.first_use]
            assert position is not None
            node = plans[subgraph].device[position]
            requests.append(ScratchBufferRequest(buffer.size, subgraph, unit_of[id(node)]))
    return requests


def _tensor(buffer: Buffer) -> int:
    return -1 if buffer.tensor is None else buffer.tensor


def _colliding(needed: Sequence[Buffer], reads: Sequence[frozenset[int]], shown: Sequence[int]) -> list[int]:
    """Buffers that share bytes with an earlier one while both are alive; tensors that the caller sees come first.

    As in the device's plan, a kernel may write its output in place of an input at its last read.

    Args:
        needed: the buffers of the device's plan, with their lifetimes on the host.
        reads: the tensors that a kernel reads at each step.
        shown: tensors that the caller sees.
    """

    def in_place(one: Buffer, other: Buffer) -> bool:
        before, after = (one, other) if one.first_use <= other.first_use else (other, one)
        return before.last_use == after.first_use and _tensor(before) in reads[after.first_use]

    rank = {tensor: place for place, tensor in enumerate(shown)}
    used = [i for i, buffer in enumerate(needed) if buffer.first_use >= 0]
    placed = PlacedBuffers(len(used))
    kept: list[Buffer] = []
    displaced = []
    for i in sorted(used, key=lambda i: (rank.get(_tensor(needed[i]), len(shown)), needed[i].first_use)):
        buffer = needed[i]
        if all(in_place(buffer, kept[other]) for other in placed.in_the_way(buffer, buffer.offset)):
            placed.add(buffer, buffer.offset)
            kept.append(buffer)
        else:
            displaced.append(i)
    return displaced
