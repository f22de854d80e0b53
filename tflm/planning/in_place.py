"""Outputs that are planned in the place of inputs that are not needed any more."""

from __future__ import annotations

from collections.abc import Mapping

from tflm.micro_allocator import PlannedBuffer
from tflm.schema.in_place import replaceable_inputs
from tflm.schema.model import Model
from tflm.schema.verifier import builtin_code


def overwritten_inputs(model: Model, buffers: Mapping[int, PlannedBuffer]) -> dict[int, int]:
    """For each output that may lie on an input, the input: it is as large, and read for the last time just then.

    Only tensors of the first subgraph, by their index. No input is given to two outputs.

    Args:
        buffers: those of the subgraph's tensors that are in the head.
    """
    overwritten: dict[int, int] = {}
    kept = set(model.subgraphs[0].outputs or ())
    for operator in model.subgraphs[0].operators or ():
        for tensor in replaceable_inputs(builtin_code(model.operator_code(operator)), operator):
            (output,) = operator.outputs or ()
            if tensor in kept or tensor not in buffers or output not in buffers:
                continue
            before, after = buffers[tensor], buffers[output]
            if before.bytes == after.bytes and before.last_use == after.first_use:
                overwritten[output] = tensor
                break
    return overwritten
