"""Find the tensors of a compiled model that are complete in RAM after a step, so that they can be compared on a
device."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from tflm.c.program import FED, OperatorCode, Program, Table


class TensorPlace(NamedTuple):
    """The place of a tensor of the first subgraph.

    Attributes:
        tensor: index of the tensor.
        memory, offset, bytes: its place in the model's RAM, and its size.
    """

    tensor: int
    memory: int
    offset: int
    bytes: int


class ObservedSteps(NamedTuple):
    """Steps of `NAME_step` after which an operator's outputs are complete in RAM.

    Attributes:
        first, last: the steps.
        outputs: the operator's outputs.
    """

    first: int
    last: int
    outputs: tuple[TensorPlace, ...]


def tensor_places(program: Program) -> dict[int, TensorPlace]:
    """Return the places of all tensors of the first subgraph that are complete in RAM at some time."""
    tensors, found = program.bound.tensors(), {}
    for buffer in program.plan.buffers:
        for (subgraph, i), offset in buffer.tensors:
            size = tensors[i].byte_length if not subgraph else buffer.size + 1
            if offset + size <= buffer.size:
                found[i] = TensorPlace(i, buffer.memory, buffer.offset + offset, size)
    main = program.bound.model.subgraphs[0]
    for i, (base, offset) in zip(main.inputs or (), program.inputs):
        if not isinstance(base, Table) and base is not FED:
            found[i] = TensorPlace(i, base.memory, base.offset + offset, tensors[i].byte_length)
    return found


def observed_steps(program: Program) -> Iterator[ObservedSteps]:
    """Yield the steps of operators and stages whose outputs can be observed."""
    places, first = tensor_places(program), 0
    for code, count in _steps(program):
        end = first + count
        tensors = () if code is None else code.operator.node.outputs
        outputs = tuple(places[i] for i in tensors if i in places)
        if code is not None and len(outputs) == len(tensors) and outputs:
            yield ObservedSteps(first, end - 1, outputs)
        first = end


def _steps(program: Program) -> Iterator[tuple[OperatorCode | None, int]]:
    """Yield each operator, or the last one of a stage, with its number of steps; None for rows that are moved outside
    of a stage."""
    main = program.subgraphs[0]
    for is_stage, group in itertools.groupby(
        main, lambda code: not isinstance(code, OperatorCode) or code.rows is not None
    ):
        codes = list(group)
        operators = [code for code in codes if isinstance(code, OperatorCode)]
        if is_stage:
            steps = sum(len(code.statements) if isinstance(code, OperatorCode) else 1 for code in codes)
            yield max(operators, key=lambda code: code.operator.index, default=None), steps
        else:
            yield from ((code, 1) for code in operators)
