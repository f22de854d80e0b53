"""Element-wise operators whose inputs broadcast, without copies of the inputs.

A kernel is called in nested loops, once for each row in which every input is contiguous or a single element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.c.control_flow import Repeat
from tflm.c.kernels.part import Part, StepOrLoop
from tflm.compiler.language import DONE, Elements, Step, UInt8s, kernel
from tflm.delegates.compiled import arithmetic, elementwise
from tflm.delegates.compiled.bands import WorkArray
from tflm.delegates.compiled.elementwise import Function, spread_operands
from tflm.delegates.compiled.movement import copy_steps
from tflm.kernels.node import Node
from tflm.kernels.support.elementwise import broadcast_operands

Array = npt.NDArray[Any]

BindRows = Callable[[Sequence[Array]], "Sequence[Step] | None"]
"""Binds flat operands, the output last: inputs have its size or one element. Returns None if that is not supported."""


@kernel
def each_of_steps(
    function: Function, x1: Elements, x2: Elements, y: Elements, count: int, step1: int, step2: int
) -> int:
    """Set y to the function of x1 and x2. The step of an input is 1, or 0 for a single element."""
    at1 = 0
    at2 = 0
    for i in range(count):
        y[i] = function(x1[at1], x2[at2])
        at1 += step1
        at2 += step2
    return DONE


@kernel
def select_of_steps(
    condition: UInt8s, x1: Elements, x2: Elements, y: Elements, count: int, step: int, step1: int, step2: int
) -> int:
    """Set y to x1 where the condition holds and to x2 elsewhere. Steps are 1, or 0 for a single element."""
    at = 0
    at1 = 0
    at2 = 0
    for i in range(count):
        y[i] = x1[at1] if condition[at] else x2[at2]
        at += step
        at1 += step1
        at2 += step2
    return DONE


class Nest(NamedTuple):
    """Nested loops over rows.

    Attributes:
        counts: of the loops, the outermost first.
        operands: all elements of each operand, the output last.
        rows: the first row of each operand: an input has as many elements as the output, or one.
        steps: for each operand, what each loop advances it by, in elements.
    """

    counts: tuple[int, ...]
    operands: list[Array]
    rows: list[Array]
    steps: list[tuple[int, ...]]

    def repeated(self, step: Step) -> StepOrLoop:
        """Return a call on the first rows, repeated for all rows. It owns the operands, so that constants are whole."""
        if not self.counts:
            return step
        pointers = [name for name in step.kernel.parameters if name in step.addresses]
        places = [array.ctypes.data for array in self.rows]
        numbers = [places.index(owner.ctypes.data) if owner.ctypes.data in places else None for owner in step.owners]
        owners = [owner if i is None else self.operands[i] for i, owner in zip(numbers, step.owners)]
        steps = {name: self.steps[i] for name, i in zip(pointers, numbers) if i is not None}
        return Repeat(replace(step, owners=tuple(owners)), self.counts, steps)


def nest_of(inputs: Sequence[Array], y: Array) -> Nest:
    """Return the fewest loops over rows in which each input is contiguous or a single element."""
    arrays = [*(np.broadcast_to(x, y.shape) for x in inputs), y]
    found: list[tuple[int, list[int]]] = []
    for size, *steps in zip(y.shape, *([step // array.itemsize for step in array.strides] for array in arrays)):
        if size == 1:
            continue
        if found and all(before == size * step for before, step in zip(found[-1][1], steps)):
            size *= found.pop()[0]
        found.append((size, steps))
    *outer, (count, inner) = found or [(1, [1] * len(arrays))]
    operands = [array.reshape(-1) for array in (*inputs, y)]
    rows = [array[: count if step else 1] for array, step in zip(operands, inner)]
    return Nest(tuple(size for size, _ in outer), operands, rows, list(zip(*(steps for _, steps in outer))))


def broadcast(
    node: Node, count: int, bind_rows: BindRows, *, bind_whole: BindRows | None = None
) -> list[StepOrLoop] | None:
    """Bind an operator whose first `count` inputs broadcast; None if its kernels do not support it.

    Only constants are stored as broadcast; other inputs are copied at most into the output.

    Args:
        bind_rows: binds rows.
        bind_whole: binds whole tensors if each input has the output's size or one element.
    """
    inputs, y = broadcast_operands(node, count)
    if not y.size:
        return None
    if bind_whole is not None and all(x.size in (1, y.size) for x in inputs):
        return _all([], bind_whole([*(x.reshape(-1) for x in inputs), y.reshape(-1)]))
    spread = spread_operands(node, count)
    if spread is None:
        return None
    copies, operands = spread
    nest = nest_of(inputs, y)
    needs_memory = any(isinstance(operand, WorkArray) for operand in operands)
    if needs_memory or (copies and not nest.counts):
        return _in_rows(nest, inputs, y, bind_rows)
    return _all(copies, bind_rows(operands))


def _all(first: Sequence[Step], then: Sequence[Step] | None) -> list[StepOrLoop] | None:
    return None if then is None else [*first, *then]


def _in_rows(nest: Nest, inputs: list[Array], y: Array, bind_rows: BindRows) -> list[StepOrLoop] | None:
    steps, copies = bind_rows(nest.rows), list[Step]()
    if steps is None:
        number = min(range(len(inputs)), key=lambda i: nest.rows[i].size)
        if inputs[number].itemsize != y.itemsize:
            return None
        spread = y.view(inputs[number].dtype)
        copies = copy_steps([(spread, np.broadcast_to(inputs[number], y.shape))]) or []
        nest = nest_of([*inputs[:number], spread, *inputs[number + 1 :]], y)
        steps = bind_rows(nest.rows)
    return None if steps is None else [*copies, *map(nest.repeated, steps)]


def bind(node: Node, part: Part | None = None) -> Sequence[StepOrLoop] | None:
    """Bind an element-wise operator of two inputs, or SELECT_V2."""
    takes_single = elementwise.takes_single(node)

    def bind_whole(operands: Sequence[Array]) -> Sequence[Step]:
        x1, x2, y = operands
        return [elementwise.step_of_pairs(node, x1, x2, y)]

    def bind_rows(operands: Sequence[Array]) -> Sequence[Step] | None:
        *inputs, y = operands
        steps = [int(x.size == y.size) for x in inputs]
        if takes_single:
            is_linear = arithmetic.line_of(node.op_data, y.dtype) is not None
            return bind_whole(operands) if all(steps) or not is_linear else None
        if node.operator == "SELECT_V2":
            if all(steps):
                return [elementwise.step_of_select(elementwise.select, *operands)]
            named = dict(zip(("condition", "x1", "x2", "step", "step1", "step2"), (*inputs, *steps)))
            return [select_of_steps.step(**named, y=y, count=y.size)]
        if all(steps):
            return bind_whole(operands)
        whole = [x if step else np.broadcast_to(x, y.shape) for x, step in zip(inputs, steps)]
        (step,) = bind_whole([*whole, y])
        if step.kernel.function is not elementwise.each.function:
            return None
        named = dict(zip(("x1", "x2", "step1", "step2"), (*inputs, *steps)))
        return [each_of_steps.step(function=step.kernel.constants["function"], **named, y=y, count=y.size)]

    count = 3 if node.operator == "SELECT_V2" else 2
    return broadcast(node, count, bind_rows, bind_whole=bind_whole if takes_single else None)
