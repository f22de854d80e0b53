"""Calls of kernels on regions of buffers, what a planner needs to know about kernels, and a plan: the calls in order,
and the buffers with their places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tflm.kernels.layers.geometry import Windows
from tflm.kernels.overlap import OperatorFacts
from tflm.memory.byte_labels import TensorKey
from tflm.schedule.rows import Rows


class RamBuffer(NamedTuple):
    """A contiguous block of memory: a tensor, tensors that share its bytes, rows of a tensor, or scratch.

    Attributes:
        name: shown in reports.
        size: in bytes.
        tensors: its tensors with their offsets; for a line buffer, the tensor at offset 0.
        scratch_of: the subgraph and the operator whose scratch it is.
        memory, offset: number of the memory, and the offset in it.
        first_step, last_step: the steps between which it is in use; 0 is before the first call.
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
    """Consecutive rows of a tensor in a buffer, or all rows of a whole tensor.

    Attributes:
        buffer: index of the buffer.
        offset, bytes: the bytes in the buffer.
        first_row, rows: the first row, and their number.
    """

    buffer: int
    offset: int
    bytes: int
    first_row: int
    rows: int


class Call(NamedTuple):
    """A call of an operator's kernel.

    Attributes:
        operator: index of the operator in the first subgraph.
        rows: the rows of the output to compute; None for all of them, of all outputs.
        inputs: a region for each input; None for constants and for missing inputs.
        outputs: a region for each output, with the computed rows.
        scratch: buffers that only this call uses, in the order in which the kernel requests them.
        overlaps: for each input, the allowed distances in bytes from the start of the output to that of the input if
            they share bytes, as ranges.
        steps: number of steps of the invocation; more than one if it runs subgraphs.
        lean: whether the slower kernels with less scratch are used.
        backwards: whether the last window is computed first.
        accumulates: whether the call combines rows of the input with totals in the scratch buffers, which last until
            the operator's next call. `rows` are then rows of the input, and only the last call has an output.
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
    accumulates: bool = False


class MovedRows(NamedTuple):
    """A memmove of rows that the next call or the next invoke reads again.

    Attributes:
        buffer: index of the buffer that contains them.
        source, target: their offsets before and after the move.
        size: number of bytes.
        into: index of the buffer that they move to; None for the same one.
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
        """Number of steps of the invocation."""
        return 1


class Plan(NamedTuple):
    """The memory of a compiled model, and the calls that use it.

    Attributes:
        memories: number of bytes that are used in each memory.
        buffers: the buffers in these memories.
        calls: the calls in execution order.
        stages: interleaved operators that compute a few rows at a time.
    """

    memories: tuple[int, ...]
    buffers: tuple[RamBuffer, ...]
    calls: tuple[Call | MovedRows, ...]
    stages: tuple[Rows, ...] = ()

    @property
    def ram_bytes(self) -> int:
        """Total size of all memories in bytes."""
        return sum(self.memories)


class ShapedCall(NamedTuple):
    """A call before its memory is planned.

    Attributes:
        subgraph, operator: the operator.
        facts: tensors with the shapes of the call.
        windows: the windows along rows and columns; None for a whole operator, or one without windows.
        lean: whether the slower kernels with less scratch are used, which compute the whole operator.
    """

    subgraph: int
    operator: int
    facts: OperatorFacts
    windows: Windows | None
    lean: bool = False


class CallNeeds(NamedTuple):
    """The memory needs of a call.

    Attributes:
        scratch: sizes in bytes of buffers that it writes before it reads them.
        overlaps: for each input, the allowed distances in bytes from the start of the output to that of the input if
            they share bytes.
        backwards: the same if the last window is computed first; empty for kernels that cannot do that.
    """

    scratch: tuple[int, ...]
    overlaps: tuple[range, ...]
    backwards: tuple[range, ...] = ()


class Kernels(Protocol):
    """What a planner needs to know about kernels."""

    def needs(self, call: ShapedCall) -> CallNeeds:
        """Return the memory needs of a call."""

    def has_lean(self, operator: int) -> bool:
        """Whether an operator of the first subgraph has slower kernels that use less RAM."""

    def rows_copied(self, operator: int) -> Sequence[Rows] | None:
        """Return the input rows that each output row is copied from; None if the operator does more than copy."""

    def totals_bytes(self, operator: int) -> int:
        """Return the size of the totals of an operator that combines all rows of its input, and can do so in several
        calls; 0 for other operators."""

    def takes_rows(self, operator: int) -> bool:
        """Whether the kernel of an operator of the first subgraph can compute a few rows of its output."""
