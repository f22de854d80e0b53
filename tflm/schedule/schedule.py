"""Schedules: calls whose buffers have no places yet, from which follows when each byte of a buffer is needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tflm.planning.bars import BodyMember, Trailing
from tflm.planning.views import Body, Piece, merged
from tflm.schedule.calls import BufferRegion, Call, MovedRows, RamBuffer


@dataclass
class Schedule:
    """Calls and moves in execution order.

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
                yield _Use(call.target_buffer, call.target, call.size, step, is_write=True)
                continue
            yield from (_Use(*region[:3], step, is_write=False) for region in call.inputs if region is not None)
            made = [region for region in (*call.outputs, *call.scratch) if region is not None]
            yield from (_Use(*region[:3], step, is_write=True) for region in made)
            if call.steps > 1:
                used = [region for region in (*call.inputs, *made) if region is not None]
                yield from (_Use(*region[:3], step + call.steps - 1, is_write=False) for region in used)
        yield from (_Use(*region[:3], starts[-1], is_write=False) for region in self.outputs)

    def last_uses(self) -> dict[int, int]:
        """The last call or move, by index, that uses each buffer."""
        last: dict[int, int] = {}
        for index, call in enumerate(self.calls):
            if isinstance(call, MovedRows):
                used = [call.buffer, call.target_buffer]
            else:
                regions = (*call.inputs, *call.outputs, *call.scratch)
                used = [region.buffer for region in regions if region is not None]
            last.update(dict.fromkeys(used, index))
        return last

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
