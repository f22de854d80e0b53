"""Placed buffers and the gaps between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from tflm.memory.buffer import Buffer, Integers


class PlacedBuffers:
    """Indexes placed buffers by lifetime, to find those alive together with another without visiting all.

    A buffer that is alive for less than 2^n steps is in a cell of 2^n steps: the one in which its lifetime starts. All
    buffers that are alive together with another are in the cells that it touches and the cell before these, for each n.

    Args:
        capacity: the largest number of buffers.
    """

    def __init__(self, capacity: int):
        self._count = 0
        self._columns = np.zeros((4, capacity), np.int64)  # offset, end, first step, last step
        self._cells: dict[int, dict[int, list[int]]] = {}

    def add(self, buffer: Buffer, offset: int) -> None:
        """Add a placed buffer."""
        size, first, last, _ = buffer
        self._columns[:, self._count] = offset, offset + size, first, last
        power = (last - first).bit_length()
        self._cells.setdefault(power, {}).setdefault(first >> power, []).append(self._count)
        self._count += 1

    def lowest_gap(self, wanted: Buffer) -> int:
        """The lowest offset at which a buffer overlaps no other live buffer."""
        floors, rooms = self._gaps(wanted)
        fits = rooms >= wanted.size
        at = int(fits.argmax()) if fits.any() else -1
        return int(floors[at])

    def tightest_gap(self, wanted: Buffer) -> int:
        """The start of the smallest gap in which a buffer fits (the lowest if equal), or the top."""
        floors, rooms = self._gaps(wanted)
        fits = np.flatnonzero(rooms >= wanted.size)
        at = fits[rooms[fits].argmin()] if fits.size else -1
        return int(floors[at])

    def in_the_way(self, wanted: Buffer, offset: int) -> npt.NDArray[np.intp]:
        """Live buffers that share bytes with a buffer at an offset, in the order in which they were added."""
        near = self._near(wanted)
        start, end, first, last = self._columns[:, near]
        in_time = (first <= wanted.last_use) & (last >= wanted.first_use)
        found: npt.NDArray[np.intp] = near[in_time & (start < offset + wanted.size) & (end > offset)]
        return found

    def _gaps(self, wanted: Buffer) -> tuple[Integers, Integers]:
        """Start and size of each gap between the buffers alive with `wanted`; last the top, without a size."""
        offset, end, first, last = self._columns[:, self._near(wanted)]
        alive = (first <= wanted.last_use) & (last >= wanted.first_use)
        by_offset = offset[alive].argsort(kind="stable")
        offset, end = offset[alive][by_offset], end[alive][by_offset]
        floors = np.zeros(len(end) + 1, np.int64)
        np.maximum.accumulate(end, out=floors[1:])
        np.maximum(floors, 0, out=floors)
        return floors, offset - floors[:-1]

    def _near(self, wanted: Buffer) -> npt.NDArray[np.intp]:
        """The columns of a superset of the buffers alive with `wanted`."""
        columns: list[int] = []
        for power, cells in self._cells.items():
            touched = range((wanted.first_use >> power) - 1, (wanted.last_use >> power) + 1)
            for cell in touched if len(touched) < len(cells) else [cell for cell in cells if cell in touched]:
                columns += cells.get(cell, ())
        return np.array(columns, np.intp)


def place_in_order(
    buffers: Sequence[Buffer], order: Iterable[int], gap: Callable[[PlacedBuffers, Buffer], int]
) -> list[int]:
    """The offset of each buffer: first those that have one, then the others in the order `order`, into gaps."""
    offsets = [buffer.offset for buffer in buffers]
    placed = PlacedBuffers(len(buffers))
    for buffer in buffers:
        if buffer.is_placed:
            placed.add(buffer, buffer.offset)
    for i in order:
        if not buffers[i].is_placed:
            offsets[i] = gap(placed, buffers[i])
            placed.add(buffers[i], offsets[i])
    return offsets
