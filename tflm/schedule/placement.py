"""Places of buffers in one memory, or in several: the data that is accessed most often goes to the first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tflm.planning.bars import BodyMember, Trailing
from tflm.planning.body_placement import BodyPlacement
from tflm.planning.views import Body
from tflm.schedule.schedule import Schedule

ROUNDS = 8
"""Changes tried per buffer for each target height."""

MAXIMUM_TRIED = 8
"""Maximum number of buffers tried one by one in the space that the busiest ones leave in a memory."""


class Location(NamedTuple):
    """A memory, by index, and bytes from its start."""

    memory: int
    offset: int


def placed(schedule: Schedule, peak: int, alignment: int) -> list[Location]:
    """Places of the buffers of a schedule in one memory, of which about `peak` bytes are needed at once."""
    bodies = schedule.bodies()
    if not bodies:
        return []
    placement = BodyPlacement(bodies, trailing=schedule.trailing(), alignment=alignment)
    offsets = placement.search(max(peak, *(body.bytes for body in bodies)), rounds=ROUNDS)
    return [Location(0, offset) for offset in offsets]


def distributed(schedule: Schedule, capacities: Sequence[int], alignment: int) -> list[Location] | None:
    """Places of the buffers of a schedule in several memories; None if they are not found to fit.

    Args:
        schedule: the schedule.
        capacities: bytes of the memories, the fastest first.
        alignment: of all buffers, in bytes.
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
    """As many of the first buffers as fit, and then some of the others."""
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
