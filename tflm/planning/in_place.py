"""Outputs that are planned in the place of inputs that are not needed any more."""

from __future__ import annotations

from collections.abc import Mapping

from tflm.kernels import REGISTRATIONS
from tflm.runtime.micro_allocator import PlannedBuffer
from tflm.runtime.operator_facts import OPAQUE, operator_facts
from tflm.schema.model import Model
from tflm.schema.tables import Operator


def overwritten_inputs(model: Model, buffers: Mapping[int, PlannedBuffer]) -> dict[int, int]:
    """For each output that may lie on an input, the input: it is as large, and read for the last time just then.

    Only tensors of the first subgraph, by their index. No input is given to two outputs.

    Args:
        buffers: those of the subgraph's tensors that are in the head.
    """
    overwritten: dict[int, int] = {}
    kept = set(model.subgraphs[0].outputs or ())
    for operator in model.subgraphs[0].operators or ():
        for tensor in replaceable_inputs(model, operator):
            (output,) = operator.outputs or ()
            if tensor in kept or tensor not in buffers or output not in buffers:
                continue
            before, after = buffers[tensor], buffers[output]
            if before.bytes == after.bytes and before.last_use == after.first_use:
                overwritten[output] = tensor
                break
    return overwritten


def replaceable_inputs(model: Model, operator: Operator) -> list[int]:
    """The inputs in whose place the one output of an operator of the first subgraph may be, if it has their size."""
    registration = REGISTRATIONS.get(model.operator_name(operator), OPAQUE)
    if len(operator.outputs or ()) != 1:
        return []
    facts = operator_facts(model.root, model.subgraphs[0], operator)
    moves = registration.moves(facts) if registration.moves is not None else None
    overlap = registration.overlap
    if moves is not None:
        allowed = [moves[0].input] if len(moves) == 1 and moves[0].source == 0 else []
    elif overlap is not None:
        allowed = [i for i, input in enumerate(facts.inputs) if input is not None and 0 in overlap(facts, i)]
    else:
        allowed = []
    return [(operator.inputs or ())[i] for i in allowed]
