"""What a bound model needs in RAM beside the tensors that its operators exchange: state, and memory to work in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.c.binding import ArenaRegions, BoundModel, Once
from tflm.compiler.language import Kernel, Step
from tflm.delegates.compiled.work_arrays import WorkArray

Array = npt.NDArray[Any]
Written = Callable[[Kernel], Iterable[str]]
"""The parameters through which a kernel writes."""


@dataclass(frozen=True)
class Persistent:
    """Memory that stays from one invoke to the next.

    Attributes:
        name: unlike all others, for the planner.
        title: for people.
        initial: what it holds before the first invoke.
        is_tensor: whether it is a tensor of the model, which the planner knows.
    """

    name: str
    title: str
    initial: npt.NDArray[np.uint8]
    is_tensor: bool


class Demands:
    """What a bound model needs beside its tensors.

    Args:
        bound: the model.
        written: the pointers through which a kernel writes.

    Attributes:
        persistent: what stays from one invoke to the next, by key.
        work: the memory that each operator works in, by subgraph and index, in the order of its steps.
        alignment: of the RAM, in bytes: that of the largest element.
    """

    def __init__(self, bound: BoundModel, written: Written):
        self._bound = bound
        tensors = {
            (subgraph, i): tensor.elements
            for subgraph in range(len(bound.operators))
            for i, tensor in enumerate(bound.tensors(subgraph))
            if tensor.offset is not None and tensor.byte_length
        }
        kept = {("kept", i): array for i, array in enumerate(bound.persistent) if array.nbytes}
        scratch = {
            ("scratch", i): bound.arena[buffer.offset : buffer.offset + buffer.size]
            for i, buffer in enumerate(bound.layout.planned)
            if buffer.tensor is None
        }
        self._contents: dict[Any, Array] = {**tensors, **kept, **scratch}
        self._regions = ArenaRegions(bound.arena, self._contents)
        self._variables = {key for key in tensors if self._is_variable(*key)} | self._states()
        self.work: dict[tuple[int, int], list[Array]] = {}
        self.persistent: dict[Any, Persistent] = {}
        self.alignment = 1
        for array in bound.shown():
            self._align(array)
        for operators in bound.operators:
            for operator in operators:
                self._add_pending(action.pending for action in operator.actions if isinstance(action, Once))
                place = operator.subgraph, operator.index
                for step in operator.steps():
                    self._add_step(place, operator.node.operator, step, written)
                for call in operator.library_calls():
                    for name, _, array in call.addresses():
                        self._add_array(place, operator.node.operator, name, array)

    def _is_variable(self, subgraph: int, tensor: int) -> bool:
        return bool((self._bound.model.subgraphs[subgraph].tensors or [])[tensor].is_variable)

    def _states(self) -> set[tuple[int, int]]:
        """Outputs in which an operator keeps what it had in earlier invokes."""
        return {
            (subgraph, output)
            for subgraph, plan in enumerate(self._bound.graph.plans)
            for planned in plan.device
            if planned.registration.ends_invoke
            for output in planned.node.outputs
        }

    def key(self, array: Array) -> Any:
        """What identifies the memory that an array is in."""
        if array in self._regions:
            return self._regions.find(array)
        return "owned", root_of(array).ctypes.data

    def content(self, array: Array) -> Array:
        """All of the memory that an array is in: a tensor, what an operator keeps, or an array."""
        return self._contents.get(self.key(array), root_of(array))

    def _add_pending(self, arrays: Iterable[Array]) -> None:
        for array in arrays:
            self._add_persistent(array, "pending", "CALL_ONCE")

    def _add_step(self, place: tuple[int, int], operator: str, step: Step, written: Written) -> None:
        arrays = step_arrays(step)
        for name in arrays:
            self._add_array(place, operator, name, arrays[name])
        for name in written(step.kernel):
            if name in arrays and arrays[name].nbytes and self._is_state(arrays[name]):
                self._add_persistent(arrays[name], name, operator)

    def _add_array(self, place: tuple[int, int], operator: str, name: str, array: Array) -> None:
        self._align(array)
        if isinstance(array, WorkArray) or self._is_scratch(array):
            self._add_work(place, array)
        elif array.nbytes and self.key(array) in self._variables:
            self._add_persistent(array, name, operator)

    def _align(self, array: Array) -> None:
        self.alignment = max(self.alignment, array.itemsize)

    def _is_scratch(self, array: Array) -> bool:
        return bool(array.nbytes) and self.key(array)[0] == "scratch"

    def _is_state(self, array: Array) -> bool:
        return not isinstance(array, WorkArray) and self.key(array)[0] in ("owned", "kept")

    def _add_work(self, place: tuple[int, int], array: Array) -> None:
        content = root_of(array) if isinstance(array, WorkArray) else self.content(array)
        known = self.work.setdefault(place, [])
        if content.nbytes and not any(content.ctypes.data == one.ctypes.data for one in known):
            known.append(content)

    def _add_persistent(self, array: Array, name: str, operator: str) -> None:
        key, content = self.key(array), self.content(array)
        if key in self.persistent:
            return
        is_tensor = key[0] not in ("owned", "kept")
        title = self._bound.tensors(key[0])[key[1]].name if is_tensor else f"{name.partition('.')[0]} of {operator}"
        initial = np.ascontiguousarray(content, None).reshape(-1).view(np.uint8).copy()
        self.persistent[key] = Persistent(f"{title} {len(self.persistent)}", title, initial, is_tensor)


def root_of(array: Array) -> Array:
    """The array that owns the memory of another."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def work_arrays(steps: Iterable[Step]) -> list[Array]:
    """The memory that steps work in, in order."""
    arrays = (array for step in steps for array in step_arrays(step).values() if isinstance(array, WorkArray))
    roots = {root.ctypes.data: root for root in map(root_of, arrays)}
    return list(roots.values())


def step_arrays(step: Step) -> dict[str, Array]:
    """The arrays that a step passes, by parameter."""
    return dict(zip(_addressed(step), step.owners))


def _addressed(step: Step) -> Iterator[str]:
    return (name for name in step.kernel.parameters if name in step.addresses)
