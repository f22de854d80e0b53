"""Queues of samples, which some signal operators keep from one invoke to the next."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tflm.kernels.host_memory import track_host_array
from tflm.kernels.node import Node
from tflm.kernels.reference.signal.common import Values, rows_of
from tflm.kernels.requests import PersistentBuffer
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


def row_requests(node: Node, capacity: int) -> Iterator[PersistentBuffer]:
    """A circular buffer for each row of the first input, with pointers to the structure and its memory."""
    rows, _ = rows_of(node.input(0))
    yield PersistentBuffer("pointers to buffers", rows * POINTER.size(node.target))
    yield PersistentBuffer("pointers to their memory", rows * POINTER.size(node.target))
    for row in range(rows):
        yield CircularBuffer.request(node, f"row {row}", capacity)


class CircularBuffer:
    """A queue of 16-bit samples in the arena's tail.

    Args:
        data: the persistent buffer that holds it.
        capacity: the largest number of samples.

    Attributes:
        samples: the memory of the samples.
        state: the place of the oldest sample, and the number of samples.
    """

    def __init__(self, data: npt.NDArray[np.uint8], capacity: int):
        header = len(data) - 4 * capacity
        self.samples: Values = data[header : header + 2 * capacity].view(np.int16)
        self.state = track_host_array(np.zeros(2, np.int64))
        self._capacity = capacity
        self.reset()

    @property
    def available(self) -> int:
        """The number of samples."""
        return int(self.state[1])

    @staticmethod
    def request(node: Node, name: str, capacity: int) -> PersistentBuffer:
        """The request for a queue. TFLM reserves twice the memory of the samples."""
        return PersistentBuffer(name, CIRCULAR_BUFFER.size(node.target) + 4 * capacity)

    def reset(self, zeros: int = 0) -> None:
        """Empty the queue, then write `count` zeros."""
        self.samples.fill(0)
        self.state[:] = 0, zeros

    def write(self, values: Values) -> None:
        """Append samples; there must be room for them."""
        self.samples[self._places(self.available, len(values))] = values
        self.state[1] += len(values)

    def get(self, count: int) -> Values:
        """The oldest samples; there must be as many."""
        return self.samples[self._places(0, count)]

    def _places(self, after: int, count: int) -> Values:
        """Indices of `count` samples, starting `after` samples after the oldest."""
        return (int(self.state[0]) + after + np.arange(count, dtype=np.intp)) % self._capacity

    def discard(self, count: int) -> None:
        """Drop the oldest samples, not more than the capacity. As in TFLM, a full buffer less none is empty."""
        oldest, available = self.state.tolist()
        self.state[:] = (oldest + count) % self._capacity, (available - count) % self._capacity
