"""In-place outputs: planned at the offset of inputs that are no longer needed."""

from __future__ import annotations

from collections.abc import Mapping

from tflm.kernels import OPAQUE, REGISTRATIONS
from tflm.kernels.overlap import OperatorFacts
from tflm.libraries.kernel_library import AllowedOverlap
from tflm.memory.buffer import Buffer
from tflm.schema.model import Model
from tflm.schema.tables import Operator


def overwritten_inputs(model: Model, buffers: Mapping[int, Buffer], allowed: AllowedOverlap) -> dict[int, int]:
    """For each output that may be computed in place, the input: it has the output's size, and this is its last read.

    Only tensors of the first subgraph, by index. No input is assigned to two outputs.

    Args:
        buffers: those of the subgraph's tensors that are in the head.
        allowed: the in-place outputs that the kernels allow.
    """
    overwritten: dict[int, int] = {}
    kept = set(model.subgraphs[0].outputs or ())
    for operator in model.subgraphs[0].operators or ():
        for tensor in replaceable_inputs(model, operator, allowed):
            (output,) = operator.outputs or ()
            if tensor in kept or tensor not in buffers or output not in buffers:
                continue
            before, after = buffers[tensor], buffers[output]
            if before.size == after.size and before.last_use == after.first_use:
                overwritten[output] = tensor
                break
    return overwritten


def replaceable_inputs(model: Model, operator: Operator, allowed: AllowedOverlap) -> list[int]:
    """The inputs that an operator of the first subgraph can replace by its single output, if the sizes match."""
    registration = REGISTRATIONS.get(model.operator_name(operator), OPAQUE)
    if len(operator.outputs or ()) != 1:
        return []
    facts = OperatorFacts.of(model.root, model.subgraphs[0], operator)
    moves = registration.moves(facts) if registration.moves is not None else None
    if moves is not None:
        replaceable = [moves[0].input] if len(moves) == 1 and moves[0].source == 0 else []
    else:
        given = [i for i, input in enumerate(facts.inputs) if input is not None]
        replaceable = [i for i in given if 0 in allowed(registration, facts, i)]
    return [(operator.inputs or ())[i] for i in replaceable]
