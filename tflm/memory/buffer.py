"""The buffers of the head: size, lifetime and place of each tensor and scratch buffer."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.schema.enums import TensorType

ONLINE_PLANNED_BUFFER = -1
"""The offset of a buffer that the planner has to place."""

UNUSED = -1
"""First and last use of a buffer that no operator reached from the first subgraph uses."""

Integers = Annotated[npt.NDArray[np.int64], "int64"]
Floats = Annotated[npt.NDArray[np.float64], "float64"]
"""Arrays, and their types for compiled functions."""


class Place(NamedTuple):
    """A range of the head: start and size in bytes, without alignment."""

    offset: int
    bytes: int

    @property
    def end(self) -> int:
        """The offset after the range."""
        return self.offset + self.bytes

    def meets(self, other: Place) -> bool:
        """Whether the ranges have a common byte."""
        return max(self.offset, other.offset) < min(self.end, other.end)


@dataclass(frozen=True)
class Buffer:
    """A tensor or scratch buffer: its size, its lifetime and its place in the head.

    Iterating over it yields the four arguments of `MemoryPlanner.add_buffer`.

    Attributes:
        size: in bytes; without alignment in a measurement, a multiple of 16 for planners.
        first_use, last_use: the steps of the invocation between which it is alive, both included. Step 0 fills the
            inputs, each operator is one more.
        offset: from the start of the head, in bytes; -1 if the planner chooses it.
        name: of the tensor, or of the operator whose scratch it is.
        kind: "tensor" or "scratch".
        type, dims: of a tensor; None and () for scratch.
        tensor: its index, numbered through all subgraphs as in offline plans; None for scratch.
    """

    size: int
    first_use: int
    last_use: int
    offset: int = ONLINE_PLANNED_BUFFER
    name: str = ""
    kind: str = "tensor"
    type: TensorType | None = None
    dims: tuple[int, ...] = ()
    tensor: int | None = None

    def __iter__(self) -> Iterator[int]:
        return iter((self.size, self.first_use, self.last_use, self.offset))

    @property
    def place(self) -> Place:
        """The bytes of the head that it occupies."""
        return Place(self.offset, self.size)

    @property
    def bytes(self) -> int:
        """The size."""
        return self.size

    @property
    def first_time_used(self) -> int:
        """The first use, as TFLM's planners call it."""
        return self.first_use

    @property
    def last_time_used(self) -> int:
        """The last use, as TFLM's planners call it."""
        return self.last_use

    @property
    def offline_offset(self) -> int:
        """The offset, as TFLM's planners call it."""
        return self.offset

    @property
    def is_placed(self) -> bool:
        """Whether it has an offset."""
        return self.offset != ONLINE_PLANNED_BUFFER

    def overlaps_in_time(self, other: Buffer) -> bool:
        """Whether there is a step at which both are alive."""
        return self.first_use <= other.last_use and other.first_use <= self.last_use


def table_of(buffers: Sequence[Buffer]) -> Integers:
    """Size, first use, last use and offset of each buffer, a row for each."""
    return np.array([tuple(buffer) for buffer in buffers], np.int64).reshape(-1, 4)


def plan_bytes(buffers: Sequence[Buffer], offsets: Sequence[int]) -> int:
    """Bytes that a plan occupies, from offset 0 to the end of the last buffer."""
    return max((offset + buffer.size for offset, buffer in zip(offsets, buffers)), default=0)


def lower_bound_bytes(buffers: Iterable[Iterable[int]]) -> int:
    """The largest sum of the sizes of buffers that are alive at the same step: no plan can be smaller.

    Args:
        buffers: the buffers, or the size, first use and last use of each.
    """
    changes: dict[int, int] = {}
    for size, first, last, *_ in buffers:
        changes[first] = changes.get(first, 0) + size
        changes[last + 1] = changes.get(last + 1, 0) - size
    return max(itertools.accumulate(changes[step] for step in sorted(changes)), default=0)
