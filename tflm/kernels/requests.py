"""What a kernel asks of the arena, as data: a declaration apart from what the kernel computes.

An operator declares its C structure and, as a function of the node, what else it takes: temp tensors, persistent arrays
and scratch buffers, in TFLM's order. The runtime takes all of that from the arena; the kernel finds its arrays in
`Node.persistent` and its scratch buffers in `Node.scratch`, by name. A kernel library that asks for other memory gives
another declaration, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import NamedTuple, Union

from tflm.memory.tensor import TfLiteTensor, int_array_bytes


class TempInput(NamedTuple):
    """Input `place` in full, in temp memory until the operator has prepared."""

    place: int


class TempOutput(NamedTuple):
    """Output `place` in full, in temp memory until the operator has prepared."""

    place: int


class TempIntermediate(NamedTuple):
    """Intermediate tensor `place` in full, in temp memory until the operator has prepared."""

    place: int


class Released(NamedTuple):
    """A temp tensor that the kernel gives back before its next request; the others are held to the end."""

    temp: TempInput | TempOutput


class Reads(IntEnum):
    """What a kernel still reads of the temp tensors that it holds, once it has begun to write a persistent buffer.

    TFLM checks a persistent buffer against the head alone: in the smallest arenas it lies over the end of temp memory.
    """

    NOTHING = 0
    """Only their shape, and what giving them back looks at."""
    TYPE = 1
    """Their type and size as well."""
    DIMENSION = 2
    """The dimension that they are quantized along as well."""
    ZERO_POINTS = 3
    """That dimension and their zero points as well."""


class PersistentBuffer(NamedTuple):
    """`bytes` of the tail, aligned to 16, for as long as the model is there."""

    name: str
    bytes: int
    reads: Reads = Reads.NOTHING


class ScratchBuffer(NamedTuple):
    """`bytes` of the head that are the operator's own while it runs."""

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
