"""Calls of kernels on regions of buffers, and a plan: calls in order, and buffers that have places."""

from __future__ import annotations

from typing import NamedTuple

from tflm.memory.byte_labels import TensorKey
from tflm.schedule.rows import Rows


class RamBuffer(NamedTuple):
    """Memory that is placed in one piece: a tensor, tensors that share its bytes, rows of a tensor, or scratch.

    Attributes:
        name: shown in reports.
        size: in bytes.
        tensors: those in it, with where each begins; of a line buffer, the tensor at 0.
        scratch_of: the subgraph and the operator that use it as scratch.
        memory, offset: its place; the memories are numbered.
        first_step, last_step: the steps between which it is used: 0 is before the first call.
    """

    name: str
    size: int
    tensors: tuple[tuple[TensorKey, int], ...] = ()
    scratch_of: tuple[int, int] | None = None
    memory: int = 0
    offset: int = 0
    first_step: int = 0
    last_step: int = 0


class BufferRegion(NamedTuple):
    """Consecutive rows of a tensor in a buffer; a whole tensor is all its rows.

    Attributes:
        buffer: by index.
        offset, bytes: where in the buffer.
        first_row, rows: which rows, and how many.
    """

    buffer: int
    offset: int
    bytes: int
    first_row: int
    rows: int


class Call(NamedTuple):
    """A call of an operator's kernel.

    Attributes:
        operator: index in the first subgraph.
        rows: of the output that it computes; None for all of them, of all outputs.
        inputs: one for each input; None for constants and for inputs that are left out.
        outputs: one for each output; of the rows that are computed.
        scratch: buffers that only this call uses, in the order in which they were requested.
        overlaps: for each input, how many bytes it may begin behind the output where the two share bytes, in ranges.
        steps: of the invocation that it takes, more than one if it runs subgraphs.
        lean: whether the slower kernels that need less scratch are called.
        backwards: whether the last window is computed first.
    """

    operator: int
    rows: Rows | None
    inputs: tuple[BufferRegion | None, ...]
    outputs: tuple[BufferRegion | None, ...]
    scratch: tuple[BufferRegion, ...]
    overlaps: tuple[tuple[range, ...], ...]
    steps: int = 1
    lean: bool = False
    backwards: bool = False


class MovedRows(NamedTuple):
    """Bytes that move as by memmove: rows that the next call or the next invoke reads again.

    Attributes:
        buffer: which they are in, by index.
        source, target: where they are, and where they move to.
        size: how many.
        into: the buffer that they move to, by index; None for the same one.
    """

    buffer: int
    source: int
    target: int
    size: int
    into: int | None = None

    @property
    def target_buffer(self) -> int:
        """The buffer that the bytes move to."""
        return self.buffer if self.into is None else self.into

    @property
    def steps(self) -> int:
        """Steps of the invocation that it takes."""
        return 1


class Plan(NamedTuple):
    """A compiled model's memory, and the calls that use it.

    Attributes:
        memories: bytes that are used of each memory.
        buffers: what is in them.
        calls: in the order in which they run.
        stages: interleaved operators that compute a few rows at a time.
    """

    memories: tuple[int, ...]
    buffers: tuple[RamBuffer, ...]
    calls: tuple[Call | MovedRows, ...]
    stages: tuple[Rows, ...] = ()

    @property
    def ram_bytes(self) -> int:
        """Bytes of all memories."""
        return sum(self.memories)
