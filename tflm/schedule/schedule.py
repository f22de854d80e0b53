"""The order in which a model runs, and the memory that each call reads and writes.

A schedule is a list of calls and moves on regions of buffers, from which follows when each byte of a buffer is needed.
A plan is a schedule whose buffers have offsets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tflm.memory.byte_labels import TensorKey
from tflm.planning.bars import BodyMember, Trailing
from tflm.planning.views import Body, Piece, merged
from tflm.schedule.rows import Rows


class RamBuffer(NamedTuple):
    """Memory that is placed in one piece: a tensor, tensors that lie in each other, rows of a tensor, or scratch.

    Attributes:
        name: for people.
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
    """

    operator: int
    rows: Rows | None
    inputs: tuple[BufferRegion | None, ...]
    outputs: tuple[BufferRegion | None, ...]
    scratch: tuple[BufferRegion, ...]
    overlaps: tuple[tuple[range, ...], ...]
    steps: int = 1


class MovedRows(NamedTuple):
    """Bytes of a buffer that move inside it, as by memmove: rows that the next call reads again."""

    buffer: int
    source: int
    target: int
    size: int

    @property
    def steps(self) -> int:
        """Steps of the invocation that it takes."""
        return 1


@dataclass
class Schedule:
    """Calls and moves in the order in which they call.

    Attributes:
        buffers: all memory.
        calls: the calls and moves.
        inputs: regions that hold values before the first step.
        outputs: regions whose values are needed after the last step.
        alive: further uses of buffers as a whole: (buffer, first step, last step).
    """

    buffers: list[RamBuffer] = field(default_factory=list)
    calls: list[Call | MovedRows] = field(default_factory=list)
    inputs: list[BufferRegion] = field(default_factory=list)
    outputs: list[BufferRegion] = field(default_factory=list)
    alive: list[tuple[int, int, int]] = field(default_factory=list)

    def add(self, buffer: RamBuffer) -> int:
        """Add a buffer; returns its index."""
        self.buffers.append(buffer)
        return len(self.buffers) - 1

    def starts(self) -> list[int]:
        """The first step of each call, then the step after the last one. Step 0 is before all of them."""
        starts = [1]
        for call in self.calls:
            starts.append(starts[-1] + call.steps)
        return starts

    def bodies(self) -> list[Body]:
        """Each buffer with the steps at which its bytes are needed."""
        uses: list[list[_Use]] = [[] for _ in self.buffers]
        for use in self._uses():
            uses[use.buffer].append(use)
        pieces = [_pieces(of_buffer) for of_buffer in uses]
        for buffer, first, last in self.alive:
            pieces[buffer].append(Piece(0, self.buffers[buffer].size, first, last))
        return [Body({}, buffer.size, tuple(merged(of_buffer))) for buffer, of_buffer in zip(self.buffers, pieces)]

    def accessed_bytes(self) -> list[int]:
        """For each buffer, the bytes that are read and written in an invoke."""
        accessed = [0] * len(self.buffers)
        for use in self._uses():
            accessed[use.buffer] += use.bytes
        return accessed

    def _uses(self) -> Iterator[_Use]:
        """All reads and writes, step by step, what is read at a step before what is written."""
        yield from (_Use(*region[:3], 0, is_write=True) for region in self.inputs)
        starts = self.starts()
        for call, step in zip(self.calls, starts):
            if isinstance(call, MovedRows):
                yield _Use(call.buffer, call.source, call.size, step, is_write=False)
                yield _Use(call.buffer, call.target, call.size, step, is_write=True)
                continue
            yield from (_Use(*region[:3], step, is_write=False) for region in call.inputs if region is not None)
            made = [region for region in (*call.outputs, *call.scratch) if region is not None]
            yield from (_Use(*region[:3], step, is_write=True) for region in made)
            if call.steps > 1:
                used = [region for region in (*call.inputs, *made) if region is not None]
                yield from (_Use(*region[:3], step + call.steps - 1, is_write=False) for region in used)
        yield from (_Use(*region[:3], starts[-1], is_write=False) for region in self.outputs)

    def trailing(self) -> list[Trailing]:
        """The outputs of calls that may reach into inputs."""
        return [
            Trailing(step, BodyMember(*input[:3]), BodyMember(*output[:3]), allowed)
            for call, step in zip(self.calls, self.starts())
            if isinstance(call, Call)
            for input, output, allowed in _overlapping(call)
        ]


class _Use(NamedTuple):
    buffer: int
    offset: int
    bytes: int
    step: int
    is_write: bool


def _overlapping(call: Call) -> Iterator[tuple[BufferRegion, BufferRegion, tuple[range, ...]]]:
    """The inputs that the output of a call may reach into, each with the output and the distances."""
    outputs = [region for region in call.outputs if region is not None]
    buffers = [region.buffer for region in (*call.inputs, *outputs) if region is not None]
    if len(call.outputs) != 1 or len(outputs) != 1 or call.steps != 1:
        return
    for input, ranges in zip(call.inputs, call.overlaps):
        allowed = tuple(distances for distances in ranges if distances.start < distances.stop)
        if input is not None and allowed and buffers.count(input.buffer) == 1:
            yield input, outputs[0], allowed


def _pieces(uses: Sequence[_Use]) -> list[Piece]:
    """When the bytes of a buffer are needed: each value from when it is written until it is read for the last time."""
    borders = sorted({border for use in uses for border in (use.offset, use.offset + use.bytes)})
    place = {border: i for i, border in enumerate(borders)}
    life: list[tuple[int, int] | None] = [None] * len(borders)
    pieces: list[Piece] = []
    for use in uses:
        for i in range(place[use.offset], place[use.offset + use.bytes]):
            before = life[i]
            if not use.is_write:
                life[i] = (0 if before is None else before[0], use.step)
                continue
            if before is not None:
                pieces.append(Piece(borders[i], borders[i + 1], *before))
            life[i] = use.step, use.step
    pieces += [Piece(borders[i], borders[i + 1], *steps) for i, steps in enumerate(life) if steps is not None]
    return pieces


class Plan(NamedTuple):
    """A compiled model's memory, and the calls that use it.

    Attributes:
        memories: bytes that are used of each memory.
        buffers: what is in them.
        calls: in the order in which they run.
        stages: operators that run in bands of rows, in turns.
    """

    memories: tuple[int, ...]
    buffers: tuple[RamBuffer, ...]
    calls: tuple[Call | MovedRows, ...]
    stages: tuple[Rows, ...] = ()

    @property
    def ram_bytes(self) -> int:
        """Bytes of all memories."""
        return sum(self.memories)
