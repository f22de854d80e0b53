"""Queues of samples, which some signal operators keep from one invoke to the next."""

from __future__ import annotations

import numpy as np

from tflm.kernels.registration import KernelContext
from tflm.kernels.signal.common import Values
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


class CircularBuffer:
    """A queue of 16-bit samples in the arena's tail.

    Args:
        capacity: samples that it holds at the most. TFLM reserves twice the room.

    Attributes:
        available: how many samples it holds.
    """

    def __init__(self, context: KernelContext, capacity: int):
        header = CIRCULAR_BUFFER.size(context.target)
        data = context.allocate_persistent_buffer(header + 4 * capacity)
        self._samples: Values = data[header : header + 2 * capacity].view(np.int16)
        self._capacity = capacity
        self.reset()

    def reset(self, zeros: int = 0) -> None:
        """Hold nothing but so many zeros."""
        self._samples.fill(0)
        self._start, self.available = 0, zeros

    def write(self, values: Values) -> None:
        """Take samples; there must be room for them."""
        start, count = (self._start + self.available) % self._capacity, len(values)
        until_end = self._capacity - start
        if count <= until_end:
            self._samples[start : start + count] = values
        else:
            self._samples[start:] = values[:until_end]
            self._samples[: count - until_end] = values[until_end:]
        self.available += count

    def get(self, target: Values) -> None:
        """Copy the oldest samples; there must be as many."""
        start, count = self._start, len(target)
        until_end = self._capacity - start
        if count <= until_end:
            target[...] = self._samples[start : start + count]
        else:
            target[:until_end] = self._samples[start:]
            target[until_end:] = self._samples[: count - until_end]

    def discard(self, count: int) -> None:
        """Drop the oldest samples, not more than the capacity. As in TFLM, a full buffer less none is empty."""
        self._start = (self._start + count) % self._capacity
        self.available = (self.available - count) % self._capacity
