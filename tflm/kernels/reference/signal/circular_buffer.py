"""Queues of samples, which some signal operators keep from one invoke to the next."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tflm.kernels.host_memory import kept
from tflm.kernels.reference.signal.common import Values, rows_of
from tflm.kernels.requests import NodeView, PersistentBuffer
from tflm.targets import INT32, POINTER, SIZE_T, Struct

CIRCULAR_BUFFER = Struct(
    "CircularBuffer",
    capacity=SIZE_T,
    read=SIZE_T,
    write=SIZE_T,
    empty=INT32,
    buffer_size=INT32,
    buffer=POINTER,
)


def row_requests(node: NodeView, capacity: int) -> Iterator[PersistentBuffer]:
    """A circular buffer for each row of the first input, found by pointers to it and to its memory."""
    rows, _ = rows_of(node.input(0))
    yield PersistentBuffer("pointers to buffers", rows * POINTER.size(node.target))
    yield PersistentBuffer("pointers to their memory", rows * POINTER.size(node.target))
    for row in range(rows):
        yield CircularBuffer.request(node, f"row {row}", capacity)


class CircularBuffer:
    """A queue of 16-bit samples in the arena's tail.

    Args:
        data: what was asked for it.
        capacity: samples that it holds at the most.

    Attributes:
        samples: the room for them.
        state: where the oldest one is, and how many it holds.
    """

    def __init__(self, data: npt.NDArray[np.uint8], capacity: int):
        header = len(data) - 4 * capacity
        self.samples: Values = data[header : header + 2 * capacity].view(np.int16)
        self.state = kept(np.zeros(2, np.int64))
        self._capacity = capacity
        self.reset()

    @property
    def available(self) -> int:
        """How many samples it holds."""
        return int(self.state[1])

    @staticmethod
    def request(node: NodeView, name: str, capacity: int) -> PersistentBuffer:
        """What a node asks for that has one. TFLM reserves twice the room that the samples take."""
        return PersistentBuffer(name, CIRCULAR_BUFFER.size(node.target) + 4 * capacity)

    def reset(self, zeros: int = 0) -> None:
        """Hold nothing but so many zeros."""
        self.samples.fill(0)
        self.state[:] = 0, zeros

    def write(self, values: Values) -> None:
        """Take samples; there must be room for them."""
        oldest, available = self.state.tolist()
        start, count = (oldest + available) % self._capacity, len(values)
        until_end = self._capacity - start
        if count <= until_end:
            self.samples[start : start + count] = values
        else:
            self.samples[start:] = values[:until_end]
            self.samples[: count - until_end] = values[until_end:]
        self.state[1] = available + count

    def get(self, target: Values) -> None:
        """Copy the oldest samples; there must be as many."""
        start, count = int(self.state[0]), len(target)
        until_end = self._capacity - start
        if count <= until_end:
            target[...] = self.samples[start : start + count]
        else:
            target[:until_end] = self.samples[start:]
            target[until_end:] = self.samples[: count - until_end]

    def discard(self, count: int) -> None:
        """Drop the oldest samples, not more than the capacity. As in TFLM, a full buffer less none is empty."""
        oldest, available = self.state.tolist()
        self.state[:] = (oldest + count) % self._capacity, (available - count) % self._capacity
