"""Buffers that have a place already, and the gaps that they leave to others."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tflm.memory.planner import BufferRequirements

Integers = npt.NDArray[np.int64]


class PlacedBuffers:
    """Keeps placed buffers by rising offset.

    Args:
        capacity: the largest number of them.
    """

    def __init__(self, capacity: int):
        self._count = 0
        self._rows = np.zeros((4, capacity), np.int64)  # offset, end, first step, last step

    def add(self, buffer: BufferRequirements, offset: int) -> None:
        """Take note of a buffer's place."""
        at = int(self._rows[0, : self._count].searchsorted(offset, side="right"))
        self._rows[:, at + 1 : self._count + 1] = self._rows[:, at : self._count]
        self._rows[:, at] = offset, offset + buffer.size, buffer.first_time_used, buffer.last_time_used
        self._count += 1

    def lowest_gap(self, wanted: BufferRequirements) -> int:
        """The lowest offset at which a buffer is in the way of none that is alive with it."""
        floors, rooms = self._gaps(wanted)
        fits = rooms >= wanted.size
        at = int(fits.argmax()) if fits.any() else -1
        return int(floors[at])

    def tightest_gap(self, wanted: BufferRequirements) -> int:
        """The begin of the smallest gap in which a buffer fits, the lowest of several; on top of all without one."""
        floors, rooms = self._gaps(wanted)
        fits = np.flatnonzero(rooms >= wanted.size)
        at = fits[rooms[fits].argmin()] if fits.size else -1
        return int(floors[at])

    def _gaps(self, wanted: BufferRequirements) -> tuple[Integers, Integers]:
        """Where each gap between buffers alive with `wanted` begins, and its bytes; last, the top, without bytes."""
        offset, end, first, last = self._rows[:, : self._count]
        alive = (first <= wanted.last_time_used) & (last >= wanted.first_time_used)
        offset, end = offset[alive], end[alive]
        floors = np.zeros(len(end) + 1, np.int64)
        np.maximum.accumulate(end, out=floors[1:])
        np.maximum(floors, 0, out=floors)
        return floors, offset - floors[:-1]
