"""What a compiled model does: calls of kernels on rows of tensors, with all memory planned."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from tflm.kernels.layers.trailing_output import Windows
from tflm.kernels.overlap import OperatorFacts
from tflm.memory.byte_labels import TensorKey
from tflm.schedule.rows import Rows


class Window(NamedTuple):
    """Consecutive rows of a tensor in a buffer; a whole tensor is all its rows.

    Attributes:
        buffer: index into the plan's buffers.
        offset: bytes from the start of the buffer to the first of the rows.
        first_row: which row of the tensor that is.
        rows: how many rows there are.
    """

    buffer: int
    offset: int
    first_row: int
    rows: int


class Call(NamedTuple):
    """One run of an operator's kernel.

    Attributes:
        operator: index in the first subgraph.
        rows: of the output that it computes; None for all of them, of all outputs.
        inputs: one for each input; None for constants and for inputs that are left out.
        outputs: one for each output; of the rows that are computed.
        scratch: buffers that only this call uses, by index, in the order in which they were requested.
    """

    operator: int
    rows: Rows | None
    inputs: tuple[Window | None, ...]
    outputs: tuple[Window | None, ...]
    scratch: tuple[int, ...]


class Move(NamedTuple):
    """Bytes of a buffer that move inside it, as by memmove: rows that the next band reads again."""

    buffer: int
    source: int
    target: int
    size: int


class PlannedBuffer(NamedTuple):
    """Memory of a tensor, of a window of its rows, of tensors that lie in each other, or of scratch.

    Attributes:
        name: for people.
        offset: from the start of its memory, in bytes.
        size: in bytes.
        first_call, last_call: the steps between which it is used: 0 is before the first call, call i is step i + 1.
        tensors: those in it, with where each begins.
        memory: in which memory it is; 0 if there is but one.
    """

    name: str
    offset: int
    size: int
    first_call: int
    last_call: int
    tensors: tuple[tuple[TensorKey, int], ...] = ()
    memory: int = 0


class ShapedCall(NamedTuple):
    """A call before its memory is planned.

    Attributes:
        subgraph, operator: which operator.
        facts: tensors with the shapes of the call.
        windows: where windows lie along rows and columns; None for a whole operator, or one without windows.
    """

    subgraph: int
    operator: int
    facts: OperatorFacts
    windows: Windows | None


class CallNeeds(NamedTuple):
    """What a kernel needs for a call.

    Attributes:
        scratch: bytes of buffers that it writes before it reads them.
        overlaps: for each input, how many bytes behind the output it may begin where the two share bytes.
    """

    scratch: tuple[int, ...]
    overlaps: tuple[range, ...]


class Kernels(Protocol):
    """What a planner has to know of kernels."""

    def needs(self, call: ShapedCall) -> CallNeeds:
        """What a call needs."""

    def takes_rows(self, operator: int) -> bool:
        """Whether the kernel of an operator of the first subgraph can compute some rows of its output alone."""


class Plan(NamedTuple):
    """A compiled model's memory, and the calls that use it.

    Attributes:
        memories: bytes that are used of each memory.
        buffers: what is in them.
        calls: in the order in which they run.
        stages: operators that run in bands of rows, in turns.
    """

    memories: tuple[int, ...]
    buffers: tuple[PlannedBuffer, ...]
    calls: tuple[Call | Move, ...]
    stages: tuple[Rows, ...] = ()

    @property
    def ram_bytes(self) -> int:
        """Bytes of all memories."""
        return sum(self.memories)
