"""Arena requests of kernels, declared as data.

An operator declares its C structure and, as a function of the node, its temp tensors, persistent arrays and scratch
buffers, in TFLM's order. The runtime allocates them in the arena; the kernel finds its arrays in `Node.persistent` and
its scratch buffers in `Node.scratch`, by name. A kernel library with other requirements only declares other requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import NamedTuple, Union

from tflm.memory.tensor import TfLiteTensor, int_array_bytes


class TempInput(NamedTuple):
    """Input `place` in full, in temp memory until the end of prepare."""

    place: int


class TempOutput(NamedTuple):
    """Output `place` in full, in temp memory until the end of prepare."""

    place: int


class TempIntermediate(NamedTuple):
    """Intermediate tensor `place` in full, in temp memory until the end of prepare."""

    place: int


class Released(NamedTuple):
    """A temp tensor that the kernel releases before its next request; all others live until the end of prepare."""

    temp: TempInput | TempOutput


class Reads(IntEnum):
    """Which parts of its temp tensors a kernel reads after it began to write a persistent buffer.

    TFLM checks a persistent buffer only against the head, so in the smallest arenas it overlaps the end of temp memory.
    """

    NOTHING = 0
    """Only the shape, and the fields that releasing them reads."""
    TYPE = 1
    """Also type and size."""
    DIMENSION = 2
    """Also the quantized dimension."""
    ZERO_POINTS = 3
    """Also the quantized dimension and the zero points."""


class PersistentBuffer(NamedTuple):
    """`bytes` of the tail, aligned to 16, for the lifetime of the interpreter."""

    name: str
    bytes: int
    reads: Reads = Reads.NOTHING


class ScratchBuffer(NamedTuple):
    """`bytes` of the head for the operator's use while it runs."""

    name: str
    bytes: int


Request = Union[TempInput, TempOutput, TempIntermediate, Released, PersistentBuffer, ScratchBuffer]


def always(*requests: Request) -> Callable[[object], Sequence[Request]]:
    """The same requests for every node."""
    return lambda node: requests


def nothing(node: object) -> Sequence[Request]:
    """No request."""
    return ()


def tensors(inputs: int = 1, outputs: int = 1) -> Callable[[object], Sequence[Request]]:
    """The first inputs in full, then the first outputs: what most kernels take while they prepare."""
    return always(*map(TempInput, range(inputs)), *map(TempOutput, range(outputs)))


def writable_dims(tensor: TfLiteTensor, reads: Reads = Reads.NOTHING) -> PersistentBuffer:
    """A copy of a tensor's dims, which TFLM makes before it changes them."""
    return PersistentBuffer("dims", int_array_bytes(len(tensor.dims)), reads)
