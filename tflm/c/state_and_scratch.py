"""RAM that a bound model needs in addition to the tensors between operators: state, and scratch memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.c.binding import BoundModel, BoundOperator, BufferKey, root_of
from tflm.c.control_flow import RunOnce
from tflm.compiler.language import Kernel, Step
from tflm.delegates.compiled.work_arrays import WorkArray

Array = npt.NDArray[Any]
Written = Callable[[Kernel], Iterable[str]]
"""Returns the parameters through which a kernel writes."""


@dataclass(frozen=True)
class Persistent:
    """Memory that lasts between invokes.

    Attributes:
        name: a unique name for the planner.
        title: its name in comments.
        initial: its contents before the first invoke.
        is_tensor: whether it is a tensor of the model, which the planner knows.
    """

    name: str
    title: str
    initial: npt.NDArray[np.uint8]
    is_tensor: bool


class StateAndScratch:
    """State and scratch memory of a bound model.

    Args:
        bound: the model.
        written: returns the pointers through which a kernel writes.

    Attributes:
        persistent: memory that lasts between invokes, by key.
        scratch: the scratch buffers of each operator, by subgraph and index, in the order of its steps.
        lean_scratch: the same for operators of the first subgraph that have lean kernels.
        alignment: alignment of the RAM in bytes: the size of the largest element.
    """

    def __init__(self, bound: BoundModel, written: Written):
        self._bound = bound
        self._variables = set(self._states())
        self.scratch: dict[tuple[int, int], list[Array]] = {}
        self.lean_scratch: dict[tuple[int, int], list[Array]] = {}
        self.persistent: dict[BufferKey, Persistent] = {}
        self.alignment = 1
        for array in bound.shown():
            self._align(array)
        for state in bound.states:
            self._add_persistent(bound.tensors()[state].elements, "state", "READ_VARIABLE")
        for operators in bound.operators:
            for operator in operators:
                place = operator.subgraph, operator.index
                for action in operator.actions:
                    if isinstance(action, RunOnce):
                        self._add_persistent(action.pending, "pending", "CALL_ONCE")
                self.scratch[place] = self._add_steps(operator, written)
                if operator.lean is not None:
                    self.lean_scratch[place] = self._add_steps(operator.lean, written)

    def _states(self) -> Iterator[BufferKey]:
        """Yield variables, and outputs that operators leave unchanged in some invokes."""
        for i, subgraph in enumerate(self._bound.model.subgraphs):
            yield from ((i, j) for j, table in enumerate(subgraph.tensors or ()) if table.is_variable)
            for planned in self._bound.graph.plans[i].device:
                if planned.registration.ends_invoke:
                    yield from ((i, output) for output in planned.node.outputs)

    def _add_steps(self, operator: BoundOperator, written: Written) -> list[Array]:
        """Add the persistent memory of an operator, and return its scratch buffers."""
        name, scratch = operator.node.operator, list[Array]()
        for step in operator.steps():
            arrays = step_arrays(step)
            for parameter in arrays:
                self._add_array(scratch, name, parameter, arrays[parameter])
            for parameter in written(step.kernel):
                if parameter in arrays and arrays[parameter].nbytes and self._is_state(arrays[parameter]):
                    self._add_persistent(arrays[parameter], parameter, name)
        for call in operator.library_calls():
            for parameter, _, array in call.addresses():
                self._add_array(scratch, name, parameter, array)
        return scratch

    def _add_array(self, scratch: list[Array], operator: str, name: str, array: Array) -> None:
        self._align(array)
        if not array.nbytes:
            return
        key, buffer = self._bound.key(array), root_of(array)
        if isinstance(array, WorkArray) or key[0] == "scratch":
            if not any(buffer is one for one in scratch):
                scratch.append(buffer)
        elif key in self._variables:
            self._add_persistent(array, name, operator)

    def _align(self, array: Array) -> None:
        self.alignment = max(self.alignment, array.itemsize)

    def _is_state(self, array: Array) -> bool:
        return not isinstance(array, WorkArray) and self._bound.key(array)[0] in ("owned", "kept")

    def _add_persistent(self, array: Array, name: str, operator: str) -> None:
        key = self._bound.key(array)
        if key in self.persistent:
            return
        subgraph, tensor = key
        if isinstance(subgraph, int):
            title = self._bound.tensors(subgraph)[tensor].name
        else:
            title = f"{name.partition('.')[0]} of {operator}"
        initial = np.ascontiguousarray(root_of(array), None).reshape(-1).view(np.uint8).copy()
        self.persistent[key] = Persistent(f"{title} {len(self.persistent)}", title, initial, isinstance(subgraph, int))


def work_arrays(steps: Iterable[Step]) -> list[Array]:
    """Return the scratch memory of steps, in order."""
    arrays = (array for step in steps for array in step_arrays(step).values() if isinstance(array, WorkArray))
    return list({id(root): root for root in map(root_of, arrays)}.values())


def step_arrays(step: Step) -> dict[str, Array]:
    """Return the arrays that a step passes, by parameter."""
    return dict(zip((name for name in step.kernel.parameters if name in step.addresses), step.owners))
