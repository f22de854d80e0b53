"""TFLite's ArenaPlanner, with which LiteRT, the large interpreter, places the tensors of a subgraph.

It computes lifetimes by reference counting, lets some outputs share an input's memory, and places the largest tensors
first, each into the best fitting gap. Steps are indices of operators in the subgraph.

TFLite's source does not define an order for tensors of the same size that start at the same operator. This module
follows LiteRT's own build, so that offsets are equal. Its sort is not stable, so all tensors and
comparisons matter: a resource handle is not a variable there. It has a lifetime like any other tensor, and is only
placed in the persistent arena.

The order of equal elements follows from libstdc++'s `unordered_set` and `sort`, with which LiteRT is built: a set
inserts a new element first unless its bucket has others, and the sort is not stable for more than 16 elements.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from tflm.memory.buffer import Buffer, Place
from tflm.memory.lifetimes import ScratchBufferRequest
from tflm.memory.planners import GreedyMemoryPlanner, OffsetsPlanner
from tflm.schema.enums import ELEMENT_TYPES, BuiltinOperator, TensorType
from tflm.schema.model import Model
from tflm.schema.tables import Operator, SubGraph, Tensor, builtin_code
from tflm.targets import align_up

TENSOR_ALIGNMENT = 64
SMALLEST_SHARED_BYTES = 5
"""Minimum size for sharing; smaller tensors are often placeholders that were not resized yet."""

SHARED_INPUTS = 3
"""Maximum number of inputs of an operator that may be shared."""

UNCHANGED = {
    BuiltinOperator.RESHAPE: (0,),
    BuiltinOperator.SQUEEZE: (0,),
    BuiltinOperator.EXPAND_DIMS: (0,),
    BuiltinOperator.BITCAST: (0,),
}
"""Operators whose output has the bytes of an input, with that input."""

OVERWRITING = {
    BuiltinOperator.ADD: (0, 1),
    BuiltinOperator.SUB: (0, 1),
    BuiltinOperator.MUL: (0, 1),
    BuiltinOperator.DIV: (0, 1),
    BuiltinOperator.SOFTMAX: (0,),
    BuiltinOperator.DYNAMIC_UPDATE_SLICE: (0,),
}
"""Operators whose output may replace an input that no other operator reads, with those inputs."""


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
    """Offsets of a subgraph's tensors, by index.

    Attributes:
        arena: tensors and temporaries.
        persistent_arena: variables and resource handles.
    """

    arena: dict[int, Place] = field(default_factory=dict)
    persistent_arena: dict[int, Place] = field(default_factory=dict)


class _Lifetime(NamedTuple):
    first: int
    last: float


class _Placed(NamedTuple):
    place: Place
    lifetime: _Lifetime


def plan_as_tflite(
    model: Model, subgraph_index: int = 0, *, temporaries: Iterable[Temporary] = (), preserve_all_tensors: bool = False
) -> ArenaPlan:
    """Place the tensors of a subgraph as LiteRT does; all shapes must be known.

    Args:
        temporaries: memory that its kernels request besides the tensors.
        preserve_all_tensors: keep every tensor until the end, without sharing.
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
            plan.arena[tensor] = Place(plan.arena[roots[tensor]].offset, self._bytes[tensor])
        return plan

    def _in_order(self, lifetimes: dict[int, _Lifetime]) -> list[int]:
        """Tensors that are alive all the time come first, then larger ones, then earlier ones."""

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
        """Reference counts of tensors; a tensor that shares another's memory counts for that one."""
        kept = [*(self._subgraph.outputs or ()), *self._variables, *(self._subgraph.inputs or ())]
        read = [roots.get(tensor, tensor) for operator in self._operators for tensor in _present(operator.inputs)]
        counts = dict.fromkeys(self._bytes, 0)
        for tensor in (*_present(kept), *read):
            counts[tensor] += 1
        return counts

    def _shared_places(self) -> dict[int, int]:
        """For each tensor that shares memory, the tensor at the root of the chain."""
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
        """The lifetime of each tensor, in the order in which tensors are first used."""
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
    """Memory in which tensors with disjoint lifetimes may share bytes."""

    def __init__(self) -> None:
        self._placed: list[_Placed] = []

    def allocate(self, size: int, lifetime: _Lifetime) -> Place:
        """Allocate in the smallest gap that is large enough (the lowest if equal), or at the end."""
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
            # As in TFLite, the size of a gap is measured from its aligned start, but its unaligned start is stored.
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


BUCKET_COUNTS = (13, 29, 59, 127, 257, 541, 1109, 2357, 5087, 10273, 20753, 42043, 85229, 172933)
"""Bucket counts of a growing set, which takes the next count when it has as many elements as buckets."""

INSERTION_SORTED = 16
"""Ranges up to this size are left to the final insertion sort."""

Less = Callable[[int, int], bool]


def set_order(values: Iterable[int]) -> list[int]:
    """Distinct numbers from 0 in the iteration order of an `unordered_set<int>` that they were inserted into."""
    order: list[int] = []
    buckets = BUCKET_COUNTS[0]
    for value in values:
        if value in order:
            continue
        if len(order) + 1 > buckets:
            buckets = BUCKET_COUNTS[bisect_left(BUCKET_COUNTS, buckets) + 1]
            rehashed: list[int] = []
            for element in order:
                _put_first(rehashed, element, buckets)
            order = rehashed
        _put_first(order, value, buckets)
    return order


def _put_first(order: list[int], value: int, buckets: int) -> None:
    """Insert before the other elements of its bucket, or at the front if the bucket is empty."""
    same = (place for place, other in enumerate(order) if other % buckets == value % buckets)
    order.insert(next(same, 0), value)


def unstable_sorted(values: Iterable[int], less: Less) -> list[int]:
    """The values as `std::sort` orders them: quicksort with the median of three, then insertions.

    The fallback to heap sort for repeated bad partitions is not implemented.
    """
    items = list(values)
    _partition_all(items, 0, len(items), less)
    for place in range(1, len(items)):
        item, free = items[place], place
        while free > 0 and less(item, items[free - 1]):
            items[free] = items[free - 1]
            free -= 1
        items[free] = item
    return items


def _partition_all(items: list[int], first: int, last: int, less: Less) -> None:
    while last - first > INSERTION_SORTED:
        _median_to_first(items, first, (first + 1, first + (last - first) // 2, last - 1), less)
        cut = _partition(items, first + 1, last, first, less)
        _partition_all(items, cut, last, less)
        last = cut


def _median_to_first(items: list[int], first: int, places: tuple[int, int, int], less: Less) -> None:
    a, b, c = places
    if less(items[a], items[b]):
        median = b if less(items[b], items[c]) else c if less(items[a], items[c]) else a
    else:
        median = a if less(items[a], items[c]) else c if less(items[b], items[c]) else b
    items[first], items[median] = items[median], items[first]


def _partition(items: list[int], low: int, high: int, pivot: int, less: Less) -> int:
    while True:
        while less(items[low], items[pivot]):
            low += 1
        high -= 1
        while less(items[pivot], items[high]):
            high -= 1
        if low >= high:
            return low
        items[low], items[high] = items[high], items[low]
        low += 1


class TfLiteMemoryPlanner(OffsetsPlanner):
    """Puts each tensor where LiteRT would, with TFLM's scratch buffers as its operators' temporaries.

    It uses ArenaPlanner's lifetimes instead of those of `add_buffer`: outputs share places with inputs, and offsets are
    multiples of 64. Subgraphs have separate memory, one after the other. On a device such a plan is stored in the
    model, so the arena has TFLM's greedy planner.
    """

    STRUCT = GreedyMemoryPlanner.STRUCT

    def __init__(self) -> None:
        super().__init__(())

    def set_model(self, model: Model, buffers: Sequence[Buffer], requests: Sequence[ScratchBufferRequest]) -> None:
        """Announce the buffers that `add_buffer` will be called for, in that order.

        Args:
            buffers: the buffers to place, scratch buffers last.
            requests: the requests of the scratch buffers.
        """
        scratch = len(buffers) - len(requests)
        places: dict[tuple[bool, int], int] = {}  # scratch buffers and tensors, by number
        base = first_tensor = 0
        for index, subgraph in enumerate(model.subgraphs):
            count = len(subgraph.tensors or ())
            own = [(i, request) for i, request in enumerate(requests, scratch) if request.subgraph_index == index]
            temporaries = [Temporary(r.node_index, number, r.bytes) for number, (_, r) in enumerate(own, count)]
            keys = [*((False, first_tensor + i) for i in range(count)), *((True, i) for i, _ in own)]
            plan = plan_as_tflite(model, index, temporaries=temporaries)
            for arena in (plan.arena, plan.persistent_arena):
                places |= {keys[tensor]: base + place.offset for tensor, place in arena.items()}
                base += align_up(max((place.end for place in arena.values()), default=0), TENSOR_ALIGNMENT)
            first_tensor += count
        keyed = ((True, i) if buffer.tensor is None else (False, buffer.tensor) for i, buffer in enumerate(buffers))
        # Tensors that no operator uses have neither a place nor a value.
        self.offsets = [places.get(key, 0) for key in keyed]
