"""Memory plans made beforehand and kept in a model's metadata, which TFLM and this runtime obey."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tflm.errors import ModelError
from tflm.schema.element_types import ELEMENT_TYPES
from tflm.schema.tables import Model, Operator, Tensor

METADATA_NAME = "OfflineMemoryAllocation"

VERSION = 1

HEADER_WORDS = 3
"""Version, subgraph that the plan is for (0: all of them in one list), and number of offsets; then the offsets."""

ONLINE = -1
"""The offset of a tensor that is left to the online planner."""


def offline_offsets(model: Model) -> tuple[int, ...] | None:
    """The planned offset of every tensor, subgraph after subgraph, -1 where it is left to the online planner.

    None where the model has no offline plan.

    Raises:
        ModelError: the plan is cut off, or is not for this number of tensors, or has a negative offset.
    """
    data = None
    for entry in model.metadata or ():
        if entry.name == METADATA_NAME and model.buffers:
            data = memoryview(model.buffers[entry.buffer].data or b"")
    if data is None:
        return None
    if len(data) < 4 * HEADER_WORDS:
        raise _finding(f"{len(data)} bytes are too few for its header of {HEADER_WORDS} words")
    words = np.frombuffer(data[: len(data) // 4 * 4], "<i4")
    count = int(words[HEADER_WORDS - 1])
    tensor_count = sum(len(subgraph.tensors or ()) for subgraph in model.subgraphs or ())
    if count != tensor_count:
        raise _finding(f"it has offsets for {count} tensors, the model has {tensor_count}")
    if len(words) < HEADER_WORDS + count:
        raise _finding(f"{len(data)} bytes are too few for {count} offsets")
    offsets = tuple(words[HEADER_WORDS : HEADER_WORDS + count].tolist())
    if count and min(offsets) < ONLINE:
        raise _finding(f"offset {min(offsets)} is negative; only -1 is, for a tensor that is planned online")
    return offsets


def encode_offsets(offsets: Sequence[int]) -> bytes:
    """The metadata that holds these offsets (bytes; -1 for a tensor that is left to the online planner)."""
    return np.asarray([VERSION, 0, len(offsets), *offsets], "<i4").tobytes()


def check_offline_plan(
    model: Model, called_subgraphs: Callable[[Operator], list[int]], keeps_place: Callable[[Operator], bool]
) -> None:
    """Make sure that the model's offline plan, if there is one, gives no bytes to two tensors at a time.

    Args:
        model: sound in all else: its indices lead somewhere, and its subgraphs do not run each other without an end.
        called_subgraphs: the subgraphs that an operator runs.
        keeps_place: whether the output of an operator may be its input, in the same place.

    Raises:
        ModelError: two tensors are alive at the same time in the same bytes; or as `offline_offsets`.
    """
    offsets = offline_offsets(model)
    if offsets is None or all(offset == ONLINE for offset in offsets):
        return
    lifetimes = _Lifetimes(model, offsets, called_subgraphs, keeps_place)
    overlap = first_overlap(lifetimes.placed)
    if overlap is not None:
        one, other = (lifetimes.placed[i] for i in overlap)
        raise _finding(f"tensors {one.name} and {other.name} are alive at the same time, and share bytes")


class Placed(NamedTuple):
    """Bytes that are taken from one step to another, both included."""

    first: int
    last: int
    offset: int
    bytes: int
    name: str


def first_overlap(placed: Sequence[Placed]) -> tuple[int, int] | None:
    """Two of them that take the same bytes at the same time; None where there are none.

    In the order of the steps, what is alive is kept sorted by offset; so each needs a look at its neighbours only.
    """
    events = sorted(
        (step, is_end, i)
        for i, item in enumerate(placed)
        if item.bytes
        for step, is_end in ((item.first, False), (item.last, True))
    )
    alive: list[tuple[int, int]] = []
    for _, is_end, i in events:
        item = placed[i]
        at = bisect.bisect_left(alive, (item.offset, i))
        if is_end:
            del alive[at]
            continue
        if at < len(alive) and alive[at][0] < item.offset + item.bytes:
            return alive[at][1], i
        if at and alive[at - 1][0] + placed[alive[at - 1][1]].bytes > item.offset:
            return alive[at - 1][1], i
        alive.insert(at, (item.offset, i))
    return None


class _Lifetimes:
    """The steps from when to when each tensor with a planned place is needed, as one goes through an invoke."""

    def __init__(
        self,
        model: Model,
        offsets: tuple[int, ...],
        called_subgraphs: Callable[[Operator], list[int]],
        keeps_place: Callable[[Operator], bool],
    ):
        self._model, self._offsets = model, offsets
        self._called_subgraphs, self._keeps_place = called_subgraphs, keeps_place
        counts = [len(subgraph.tensors or ()) for subgraph in model.subgraphs or ()]
        self._starts = [sum(counts[:i]) for i in range(len(counts))]
        self._step = 0
        self._first: dict[int, int] = {}
        self._last: dict[int, int] = {}
        self._same_as: dict[int, int] = {}
        self._walk(0)
        self.placed = list(self._merged())

    def _walk(self, index: int) -> None:
        start, subgraph = self._starts[index], (self._model.subgraphs or [])[index]
        self._use(start, subgraph.inputs or ())
        for operator in subgraph.operators or ():
            self._step += 1
            inputs = [tensor for tensor in operator.inputs or () if tensor >= 0]
            outputs = operator.outputs or ()
            self._use(start, outputs)
            for called in self._called_subgraphs(operator):
                self._step += 1
                self._walk(called)
            self._use(start, (*inputs, *outputs))
            if self._keeps_place(operator) and inputs and len(outputs) == 1:
                self._same_as[start + outputs[0]] = start + inputs[0]
        self._use(start, subgraph.outputs or ())

    def _use(self, start: int, tensors: Sequence[int]) -> None:
        for tensor in tensors:
            self._first.setdefault(start + tensor, self._step)
            self._last[start + tensor] = self._step

    def _merged(self) -> Iterator[Placed]:
        """Each tensor that has a place, in one with those that are kept in that place."""
        tensors = [tensor for subgraph in self._model.subgraphs or () for tensor in subgraph.tensors or ()]
        found: dict[int, Placed] = {}
        roots: dict[int, int] = {}
        for i in sorted(self._first, key=self._first.__getitem__):
            if self._offsets[i] == ONLINE or not self._needs_place(tensors[i]):
                continue
            item = self._placed(i, tensors[i])
            root = roots.get(self._same_as.get(i, i), i)
            if root in found and found[root][2:4] == item[2:4]:
                found[root] = found[root]._replace(last=max(found[root].last, item.last))
            else:
                found[i], root = item, i
            roots[i] = root
        return iter(found.values())

    def _needs_place(self, tensor: Tensor) -> bool:
        has_data = self._model.buffers is not None and bool(self._model.buffers[tensor.buffer].data)
        return not has_data and all(dimension >= 0 for dimension in tensor.shape or ())

    def _placed(self, i: int, tensor: Tensor) -> Placed:
        first, last = (0, self._step) if tensor.is_variable else (self._first[i], self._last[i])
        size = math.prod(tensor.shape or ()) * ELEMENT_TYPES[tensor.type].dtype.itemsize
        return Placed(first, last, self._offsets[i], size, f"{i} ({tensor.name or ''!r})")


def _finding(reason: str) -> ModelError:
    return ModelError(f"the offline plan is broken: {reason}", table="Metadata", field="buffer", place=METADATA_NAME)
