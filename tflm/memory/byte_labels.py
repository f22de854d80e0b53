"""Labels that record which value each byte of the head holds."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tflm.memory.buffer import Place

TensorKey = tuple[int, int]
"""Subgraph and tensor."""


NO_PLACE = Place(0, 0)


class ValueBytes(NamedTuple):
    """Consecutive bytes of a value."""

    value: int
    start: int
    bytes: int


class Label(NamedTuple):
    """The contents of some bytes, and the operator that wrote them.

    Attributes:
        values: pairs of a value and the address that its first byte would have; several if an opaque operator may have
            kept the old contents.
        tensor: the tensor of the bytes; None for a scratch buffer.
        operator: the operator that wrote them; None for filled inputs.
    """

    values: tuple[tuple[int, int], ...]
    tensor: TensorKey | None
    operator: TensorKey | None


class LabelledBytes:
    """The labels of all bytes: each applies from its start to the start of the next."""

    def __init__(self) -> None:
        self._starts = [0]
        self._labels = [Label((), None, None)]

    def copy(self) -> LabelledBytes:
        """Another memory of the same contents."""
        other = LabelledBytes()
        other._starts, other._labels = list(self._starts), list(self._labels)
        return other

    def write(self, begin: int, end: int, label: Label) -> None:
        """Put a label on the bytes from `begin` to `end`."""
        if begin >= end:
            return
        first = bisect.bisect_left(self._starts, begin)
        last = bisect.bisect_right(self._starts, end) - 1
        starts, labels = [begin], [label]
        if self._starts[last] != end:
            starts.append(end)
            labels.append(self._labels[last])
            last += 1
        self._starts[first:last] = starts
        self._labels[first:last] = labels

    def read(self, begin: int, end: int) -> Iterator[tuple[int, int, Label]]:
        """The labels of the bytes from `begin` to `end`, each with its start and end."""
        i = bisect.bisect_right(self._starts, begin) - 1
        while begin < end:
            stop = self._starts[i + 1] if i + 1 < len(self._starts) else end
            yield begin, min(stop, end), self._labels[i]
            begin, i = stop, i + 1

    def meet(self, other: LabelledBytes) -> None:
        """Intersect each label's values with those of another memory."""
        borders = sorted({*self._starts, *other._starts})
        labels = []
        for border in borders:
            a, b = (m._labels[bisect.bisect_right(m._starts, border) - 1] for m in (self, other))
            values = tuple(value for value in a.values if value in b.values)
            labels.append((b if values != b.values else a)._replace(values=values))
        self._starts, self._labels = borders, labels


def part_of(content: Sequence[ValueBytes], begin: int, size: int) -> list[ValueBytes]:
    """The bytes of a content from `begin` on."""
    found = []
    for piece in content:
        first, last = max(begin, 0), min(begin + size, piece.bytes)
        if first < last:
            found.append(ValueBytes(piece.value, piece.start + first, last - first))
        begin -= piece.bytes
    return found
