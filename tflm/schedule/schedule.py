"""Schedules: calls with buffers that are not placed yet, from which the lifetime of each byte of a buffer follows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tflm.planning.bars import BodyMember, BodyPlacement, Trailing
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
        alive: additional uses of whole buffers: (buffer, first step, last step).
    """

    buffers: list[RamBuffer] = field(default_factory=list)
    calls: list[Call | MovedRows] = field(default_factory=list)
    inputs: list[BufferRegion] = field(default_factory=list)
    outputs: list[BufferRegion] = field(default_factory=list)
    alive: list[tuple[int, int, int]] = field(default_factory=list)

    def add(self, buffer: RamBuffer) -> int:
        """Add a buffer, and return its index."""
        self.buffers.append(buffer)
        return len(self.buffers) - 1

    def starts(self) -> list[int]:
        """Return the first step of each call, then the step after the last one. Step 0 is before all calls."""
        starts = [1]
        for call in self.calls:
            starts.append(starts[-1] + call.steps)
        return starts

    def bodies(self) -> list[Body]:
        """Return each buffer with the steps at which its bytes are needed."""
        uses: list[list[_Use]] = [[] for _ in self.buffers]
        for use in self._uses():
            uses[use.buffer].append(use)
        pieces = [_pieces(of_buffer) for of_buffer in uses]
        for buffer, first, last in self.alive:
            pieces[buffer].append(Piece(0, self.buffers[buffer].size, first, last))
        return [Body({}, buffer.size, tuple(merged(of_buffer))) for buffer, of_buffer in zip(self.buffers, pieces)]

    def accessed_bytes(self) -> list[int]:
        """Return, for each buffer, the number of bytes read and written in an invoke."""
        accessed = [0] * len(self.buffers)
        for use in self._uses():
            accessed[use.buffer] += use.bytes
        return accessed

    def _uses(self) -> Iterator[_Use]:
        """Yield all reads and writes by step; the reads of a step come before its writes."""
        yield from (_Use(*region[:3], 0, is_write=True) for region in self.inputs)
        starts = self.starts()
        for call, step in zip(self.calls, starts):
            if isinstance(call, MovedRows):
                yield _Use(call.buffer, call.source, call.size, step, is_write=False)
                yield _Use(call.target_buffer, call.target, call.size, step, is_write=True)
                continue
            yield from (_Use(*region[:3], step, is_write=False) for region in call.inputs if region is not None)
            if call.accumulates and call.rows is not None and call.rows.first:
                yield from (_Use(*region[:3], step, is_write=False) for region in call.scratch)
            made = [region for region in (*call.outputs, *call.scratch) if region is not None]
            yield from (_Use(*region[:3], step, is_write=True) for region in made)
            if call.steps > 1:
                used = [region for region in (*call.inputs, *made) if region is not None]
                yield from (_Use(*region[:3], step + call.steps - 1, is_write=False) for region in used)
        yield from (_Use(*region[:3], starts[-1], is_write=False) for region in self.outputs)

    def last_uses(self) -> dict[int, int]:
        """Return the index of the last call or move that uses each buffer."""
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
        """Return the outputs of calls that may overlap inputs."""
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
    """Return the inputs that the output of a call may overlap, each with the output and the distances."""
    outputs = [region for region in call.outputs if region is not None]
    buffers = [region.buffer for region in (*call.inputs, *outputs) if region is not None]
    if len(call.outputs) != 1 or len(outputs) != 1 or call.steps != 1:
        return
    for input, ranges in zip(call.inputs, call.overlaps):
        allowed = tuple(distances for distances in ranges if distances.start < distances.stop)
        if input is not None and allowed and buffers.count(input.buffer) == 1:
            yield input, outputs[0], allowed


def _pieces(uses: Sequence[_Use]) -> list[Piece]:
    """Return when the bytes of a buffer are needed: for each value, from its write to its last read."""
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


ROUNDS = 8
"""Changes tried per buffer for each target height."""

MAXIMUM_TRIED = 8
"""Maximum number of buffers to try one by one in the space that the most accessed ones leave in a memory."""


class Location(NamedTuple):
    """The index of a memory, and an offset in bytes."""

    memory: int
    offset: int


def placed(schedule: Schedule, peak: int, alignment: int) -> list[Location]:
    """Place the buffers of a schedule in one memory; about `peak` bytes are needed at once."""
    bodies = schedule.bodies()
    if not bodies:
        return []
    placement = BodyPlacement(bodies, trailing=schedule.trailing(), alignment=alignment)
    offsets = placement.search(max(peak, *(body.bytes for body in bodies)), rounds=ROUNDS)
    return [Location(0, offset) for offset in offsets]


def distributed(schedule: Schedule, capacities: Sequence[int], alignment: int) -> list[Location] | None:
    """Place the buffers of a schedule in several memories; None if no placement is found.

    Args:
        schedule: the schedule.
        capacities: sizes of the memories in bytes, the fastest first.
        alignment: alignment of all buffers, in bytes.
    """
    bodies, trailing, accessed = schedule.bodies(), schedule.trailing(), schedule.accessed_bytes()
    left = sorted(range(len(bodies)), key=lambda buffer: accessed[buffer] / max(bodies[buffer].bytes, 1), reverse=True)
    locations: dict[int, Location] = {}
    for memory, capacity in enumerate(capacities):
        one = _Memory(bodies, trailing, capacity, alignment)
        fitting = _fitting(one, capacity, [buffer for buffer in left if bodies[buffer].bytes <= capacity])
        offsets = one.offsets([*fitting], 0) or fitting
        locations |= {buffer: Location(memory, offset) for buffer, offset in offsets.items()}
        left = [buffer for buffer in left if buffer not in offsets]
    return None if left else [locations[buffer] for buffer in range(len(bodies))]


class _Memory:
    """One of several memories."""

    def __init__(self, bodies: Sequence[Body], trailing: Sequence[Trailing], capacity: int, alignment: int):
        self._bodies, self._trailing = bodies, trailing
        self._capacity, self._alignment = capacity, alignment

    def offsets(self, buffers: Sequence[int], bound: int) -> dict[int, int] | None:
        """Offsets of some buffers, in `bound` bytes or the fewest found; None if no placement is found."""
        places = {buffer: place for place, buffer in enumerate(buffers)}
        chosen = [self._bodies[buffer] for buffer in buffers]
        if not chosen:
            return {}
        inside = [
            each._replace(input=_at(each.input, places), output=_at(each.output, places))
            for each in self._trailing
            if each.input.body in places and each.output.body in places
        ]
        placement = BodyPlacement(chosen, trailing=inside, alignment=self._alignment)
        offsets = placement.search(max(bound, *(body.bytes for body in chosen)), rounds=ROUNDS)
        height = max(offset + body.bytes for offset, body in zip(offsets, chosen))
        return dict(zip(buffers, offsets)) if height <= self._capacity else None


def _at(member: BodyMember, places: dict[int, int]) -> BodyMember:
    return member._replace(body=places[member.body])


def _fitting(memory: _Memory, capacity: int, buffers: Sequence[int]) -> dict[int, int]:
    """Return as many of the first buffers as fit, and then some of the others."""
    fitting, count, too_many = dict[int, int](), 0, len(buffers) + 1
    while too_many - count > 1:
        middle = len(buffers) if too_many > len(buffers) and not count else (count + too_many) // 2
        offsets = memory.offsets(buffers[:middle], capacity)
        if offsets is None:
            too_many = middle
        else:
            fitting, count = offsets, middle
    for buffer in buffers[count + 1 : count + 1 + MAXIMUM_TRIED]:
        fitting = memory.offsets([*fitting, buffer], capacity) or fitting
    return fitting
