"""The caller's buffer, seen as bytes with offsets. Byte 0 counts as aligned, wherever the host put it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import ArenaError

ARENA_ALIGNMENT = 16
"""Alignment in bytes of tensors, scratch buffers and everything that a kernel requests."""


class Arena:
    """A view of the caller's memory. Nothing is copied: what is written through it is in the caller's buffer.

    Args:
        buffer: a writable, contiguous object with the buffer protocol (bytearray, memoryview, numpy array, mmap).

    Raises:
        ArenaError: it is read-only, not contiguous, or not a buffer.
    """

    def __init__(self, buffer: Any):
        try:
            view = memoryview(buffer)
        except (TypeError, ValueError, BufferError):
            raise ArenaError(
                f"an arena is a writable buffer such as bytearray(2048), not {type(buffer).__name__}"
            ) from None
        if view.readonly:
            raise ArenaError(f"the arena is read-only ({type(buffer).__name__}); use a bytearray")
        if not view.c_contiguous:
            raise ArenaError("the arena is not contiguous; use one block of memory")
        if "O" in view.format:
            raise ArenaError("the arena holds Python objects; use a buffer of bytes or numbers")
        flat = view.cast("B") if view.nbytes else bytearray()
        self.bytes: npt.NDArray[np.uint8] = np.frombuffer(flat, np.uint8)

    def __repr__(self) -> str:
        return f"Arena({self.size} bytes)"

    @property
    def size(self) -> int:
        """Bytes in the arena."""
        return self.bytes.size

    def view(self, offset: int, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """The bytes from `offset` on as an array of `dtype` and `shape`."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        return self._at(offset, size).view(dtype).reshape(shape)

    def _at(self, offset: int, size: int) -> npt.NDArray[np.uint8]:
        return self.bytes[offset : offset + size]


class SpreadArena(Arena):
    """An arena with further memories, for a plan whose offsets lead into them.

    Args:
        buffer: the arena.
        others: the further memories, whose first offsets are 1, 2, ... times `distance`.
        distance: larger than any memory.

    Raises:
        ArenaError: as for an `Arena`.
    """

    def __init__(self, buffer: Any, others: Sequence[Any], distance: int):
        super().__init__(buffer)
        self.others = [Arena(other) for other in others]
        self._distance = distance

    def _at(self, offset: int, size: int) -> npt.NDArray[np.uint8]:
        memory, start = divmod(offset, self._distance)
        return (self, *self.others)[memory].bytes[start : start + size]
