"""Operators whose output may lie where an input is that is not needed any more."""

from __future__ import annotations

from collections.abc import Mapping

from tflm.micro_allocator import PlannedBuffer
from tflm.schema.model import Model
from tflm.schema.tables import Operator

COPYING = frozenset({"EXPAND_DIMS", "RESHAPE", "SQUEEZE"})
"""Operators that give the bytes of their first input as they are."""

ELEMENT_WISE = frozenset(
    {
        "ABS",
        "ADD",
        "ADD_N",
        "CAST",
        "CEIL",
        "COS",
        "DIV",
        "ELU",
        "EXP",
        "FLOOR",
        "FLOOR_DIV",
        "FLOOR_MOD",
        "HARD_SWISH",
        "LEAKY_RELU",
        "LOG",
        "LOGICAL_AND",
        "LOGICAL_NOT",
        "LOGICAL_OR",
        "LOGISTIC",
        "MAXIMUM",
        "MINIMUM",
        "MUL",
        "NEG",
        "PRELU",
        "QUANTIZE",
        "RELU",
        "RELU6",
        "ROUND",
        "RSQRT",
        "SIN",
        "SQRT",
        "SQUARE",
        "SQUARED_DIFFERENCE",
        "SUB",
        "TANH",
    }
)
"""Operators that write an element after they have read, of an input as large as the output, all that they need of it
and of those before it."""


def overwritten_inputs(model: Model, buffers: Mapping[int, PlannedBuffer]) -> dict[int, int]:
    """For each output that may lie on an input, the input: it is as large, and read for the last time just then.

    Only tensors of the first subgraph, by their index. No input is given to two outputs.

    Args:
        buffers: those of the subgraph's tensors that are in the head.
    """
    overwritten: dict[int, int] = {}
    kept = set(model.subgraphs[0].outputs or ())
    for operator in model.subgraphs[0].operators or ():
        outputs = operator.outputs or ()
        if len(outputs) != 1 or outputs[0] not in buffers:
            continue
        output = buffers[outputs[0]]
        for tensor in _candidates(model, operator):
            buffer = None if tensor in kept or tensor == outputs[0] else buffers.get(tensor)
            if buffer and buffer.bytes == output.bytes and buffer.last_use == output.first_use:
                overwritten[outputs[0]] = tensor
                break
    return overwritten


def _candidates(model: Model, operator: Operator) -> tuple[int, ...]:
    """The inputs that an operator can take in its output's place, as far as its kind decides that."""
    name, inputs = model.operator_name(operator), operator.inputs or ()
    if name in COPYING:
        return inputs[:1]
    return inputs if name in ELEMENT_WISE else ()
