"""TFLite's ArenaPlanner: where the large interpreter, LiteRT, puts the tensors of a subgraph.

It counts references to learn how long a tensor lives, lets some outputs share an input's place, and puts the largest
tensor first into the gap that fits best. Steps are the places of operators in their subgraph.

Tensors of one size that begin at the same operator stand in no order that TFLite's source says. Which of them comes
first is followed as LiteRT's own build has it (see `native_order`), so that offsets are equal to its. Its sort is not
stable, so that every tensor counts, and how it compares: a handle of a resource is no variable to it. It has a lifetime
like any other tensor, and only its place is in the persistent arena.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from tflm.memory.buffer import Place
from tflm.memory.native_order import set_order, unstable_sorted
from tflm.schema.element_types import ELEMENT_TYPES
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.model import Model
from tflm.schema.tables import Operator, SubGraph, Tensor
from tflm.schema.verifier import builtin_code
from tflm.targets import align_up

TENSOR_ALIGNMENT = 64
SMALLEST_SHARED_BYTES = 5
"""Smaller ones are often placeholders of tensors that were not resized yet."""

SHARED_INPUTS = 3
"""How many of an operator's inputs may be shared, at most."""

UNCHANGED = {
    BuiltinOperator.RESHAPE: (0,),
    BuiltinOperator.SQUEEZE: (0,),
    BuiltinOperator.EXPAND_DIMS: (0,),
    BuiltinOperator.BITCAST: (0,),
}
"""Operators whose output has the bytes of an input, and that input."""

OVERWRITING = {
    BuiltinOperator.ADD: (0, 1),
    BuiltinOperator.SUB: (0, 1),
    BuiltinOperator.MUL: (0, 1),
    BuiltinOperator.DIV: (0, 1),
    BuiltinOperator.SOFTMAX: (0,),
    BuiltinOperator.DYNAMIC_UPDATE_SLICE: (0,),
}
"""Operators whose output may lie on an input that nobody else reads, and those inputs."""


class Temporary(NamedTuple):
    """Memory that a kernel of LiteRT needs while its operator runs.

    Attributes:
        node: the operator.
        tensor: its index; temporaries are numbered after the model's own tensors.
        bytes: size.
    """

    node: int
    tensor: int
    bytes: int


@dataclass
class ArenaPlan:
    """Places of a subgraph's tensors, by index; `high_water_mark` is the size of the arena that they share.

    Attributes:
        arena: tensors and temporaries that are there for a part of the invoke, or for all of it.
        persistent_arena: variables, and handles of resources.
    """

    arena: dict[int, Place] = field(default_factory=dict)
    persistent_arena: dict[int, Place] = field(default_factory=dict)

    @property
    def arena_bytes(self) -> int:
        """Bytes of the arena, to the end of its last tensor."""
        return max((place.end for place in self.arena.values()), default=0)


class _Lifetime(NamedTuple):
    first: int
    last: float


class _Placed(NamedTuple):
    place: Place
    lifetime: _Lifetime


def plan_as_tflite(
    model: Model,
    subgraph_index: int = 0,
    *,
    temporaries: Iterable[Temporary] = (),
    preserve_all_tensors: bool = False,
) -> ArenaPlan:
    """Where LiteRT puts the tensors of a subgraph whose shapes are all known.

    Args:
        temporaries: memory that its kernels request besides the tensors.
        preserve_all_tensors: no tensor is given up before the end, and none shares another's place.
    """
    return _Planner(model, model.subgraphs[subgraph_index], tuple(temporaries), preserve_all_tensors).plan()


class _Planner:
    """Plans one subgraph."""

    def __init__(self, model: Model, subgraph: SubGraph, temporaries: tuple[Temporary, ...], preserves: bool):
        self._model, self._subgraph, self._preserves = model, subgraph, preserves
        self._tensors: Sequence[Tensor] = subgraph.tensors or ()
        self._operators: Sequence[Operator] = subgraph.operators or ()
        self._temporaries = temporaries
        self._bytes = {index: _bytes(tensor) for index, tensor in enumerate(self._tensors)}
        self._bytes |= {temporary.tensor: temporary.bytes for temporary in temporaries}
        self._constants = {i for i, tensor in enumerate(self._tensors) if model.constant(tensor) is not None}
        handles = {i for i, tensor in enumerate(self._tensors) if tensor.type is TensorType.RESOURCE}
        self._variables = {i for i, tensor in enumerate(self._tensors) if tensor.is_variable} - self._constants
        self._persistent = self._variables | (handles - self._constants)

    def plan(self) -> ArenaPlan:
        roots = {} if self._preserves else self._shared_places()
        lifetimes = self._lifetimes(roots)
        arena, persistent = _Arena(), _Arena()
        plan = ArenaPlan()
        for tensor in self._in_order(lifetimes):
            if tensor in self._persistent:
                place = persistent.allocate(self._bytes[tensor], _Lifetime(lifetimes[tensor].first, inf))
                plan.persistent_arena[tensor] = place
            elif tensor not in roots:
                plan.arena[tensor] = arena.allocate(self._bytes[tensor], lifetimes[tensor])
        for tensor in lifetimes.keys() & roots.keys():
            where = plan.persistent_arena if roots[tensor] in self._persistent else plan.arena
            where[tensor] = Place(where[roots[tensor]].offset, self._bytes[tensor])
        return plan

    def _in_order(self, lifetimes: dict[int, _Lifetime]) -> list[int]:
        """What is there all the time comes first, then the largest, then what is there first."""

        def less(a: int, b: int) -> bool:
            whole_a, whole_b = (lifetimes[tensor] == _Lifetime(0, inf) for tensor in (a, b))
            if whole_a or whole_b:
                return whole_a and (not whole_b or a < b)
            key_a, key_b = ((-self._bytes[tensor], lifetimes[tensor].first) for tensor in (a, b))
            return key_a < key_b

        met: list[list[int]] = [[] for _ in self._operators] or [[]]
        met[0] += [*sorted(self._variables), *_present(self._subgraph.inputs)]
        for tensors, operator in zip(met, self._operators):
            tensors += _present(operator.outputs)
        for temporary in self._temporaries:
            met[temporary.node].append(temporary.tensor)
        collected = (tensor for tensors in met for tensor in set_order(tensors) if tensor in lifetimes)
        return unstable_sorted(collected, less)

    def _references(self, roots: dict[int, int]) -> dict[int, int]:
        """How often each tensor is needed; what shares another's place counts for that one."""
        kept = [*(self._subgraph.outputs or ()), *self._variables, *(self._subgraph.inputs or ())]
        read = [roots.get(tensor, tensor) for operator in self._operators for tensor in _present(operator.inputs)]
        counts = dict.fromkeys(self._bytes, 0)
        for tensor in (*_present(kept), *read):
            counts[tensor] += 1
        return counts

    def _shared_places(self) -> dict[int, int]:
        """For each tensor that lies on another, the one at the root of that chain."""
        counts = self._references({})
        roots: dict[int, int] = {}
        for operator in self._operators:
            if not operator.outputs:
                continue
            code = builtin_code(self._model.operator_code(operator))
            changes = code not in UNCHANGED
            output = operator.outputs[0]
            for position in OVERWRITING.get(code, ()) if changes else UNCHANGED[code]:
                inputs = (operator.inputs or ())[:SHARED_INPUTS]
                if position >= len(inputs) or inputs[position] < 0:
                    continue
                if self._may_share(inputs[position], output, changes, counts):
                    root = roots.get(inputs[position], inputs[position])
                    if not changes or counts[root] <= 1:
                        roots[output] = root
                    break
        return roots

    def _may_share(self, input: int, output: int, changes: bool, counts: dict[int, int]) -> bool:
        if input in self._constants or input in self._persistent or output in self._persistent:
            return False
        if input in (self._subgraph.inputs or ()) or output in (self._subgraph.outputs or ()):
            return False
        if not changes:
            return True
        return self._bytes[input] == self._bytes[output] >= SMALLEST_SHARED_BYTES and counts[input] <= 1

    def _lifetimes(self, roots: dict[int, int]) -> dict[int, _Lifetime]:
        """The steps at which each tensor must be there, in the order in which tensors are met."""
        counts = self._references(roots)
        first = dict.fromkeys((*sorted(self._variables), *_present(self._subgraph.inputs)), 0)
        last: dict[int, int] = {}
        for step, operator in enumerate(self._operators):
            for tensor in _present(operator.outputs):
                first.setdefault(tensor, step)
            for temporary in self._temporaries:
                if temporary.node == step:
                    first[temporary.tensor] = step
                    last[temporary.tensor] = step
            for tensor in _present(operator.inputs):
                tensor = roots.get(tensor, tensor)
                counts[tensor] -= 1
                if counts[tensor] == 0:
                    last[tensor] = step
        if self._preserves:
            last = {}
        return {
            tensor: _Lifetime(step, last.get(tensor, inf))
            for tensor, step in first.items()
            if tensor not in self._constants
        }


class _Arena:
    """Memory in which tensors that are not there at the same step may share bytes."""

    def __init__(self) -> None:
        self._placed: list[_Placed] = []

    def allocate(self, size: int, lifetime: _Lifetime) -> Place:
        """The smallest gap that is large enough, the lowest one of equals, or the end."""
        offset = 0 if size == 0 else self._best_fit(size, lifetime)
        place = Place(offset, size)
        if size:
            self._placed.append(_Placed(place, lifetime))
            self._placed.sort(key=lambda placed: placed.place.offset)
        return place

    def _best_fit(self, size: int, lifetime: _Lifetime) -> int:
        best, fit, end = None, inf, 0
        for placed in self._placed:
            if placed.lifetime.last < lifetime.first or placed.lifetime.first > lifetime.last:
                continue
            start, gap_end = align_up(end, TENSOR_ALIGNMENT), placed.place.offset
            # As in TFLite, a gap is judged from its aligned start, and remembered from the other one.
            if start + size <= gap_end and gap_end - start < fit:
                best, fit = start, gap_end - end
            end = max(end, placed.place.end)
            if fit == 0:
                break
        return align_up(end, TENSOR_ALIGNMENT) if best is None else best


def _present(tensors: Iterable[int] | None) -> Iterable[int]:
    return (tensor for tensor in tensors or () if tensor >= 0)


def _bytes(tensor: Tensor) -> int:
    elements = 1
    for dimension in tensor.shape or ():
        elements *= max(dimension, 0)
    return elements * ELEMENT_TYPES[tensor.type].dtype.itemsize
