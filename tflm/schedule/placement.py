"""Places of stores in one memory, or in several: the data that is accessed most often goes to the first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tflm.planning.bars import BodyMember, Trailing
from tflm.planning.body_placement import BodyPlacement
from tflm.planning.views import Body
from tflm.schedule.schedule import Schedule

ROUNDS = 8
"""Changes for each store that are tried for each height that is aimed at."""

MOST_TRIED = 8
"""Stores that are tried one by one in what the busiest ones leave of a memory."""


class Location(NamedTuple):
    """A memory, by index, and bytes from its start."""

    memory: int
    offset: int


def placed(schedule: Schedule, peak: int, alignment: int) -> list[Location]:
    """Places of the stores of a schedule in one memory, of which about `peak` bytes are needed at once."""
    bodies = schedule.bodies()
    if not bodies:
        return []
    placement = BodyPlacement(bodies, trailing=schedule.trailing(), alignment=alignment)
    offsets = placement.search(max(peak, *(body.bytes for body in bodies)), rounds=ROUNDS)
    return [Location(0, offset) for offset in offsets]


def distributed(schedule: Schedule, capacities: Sequence[int], alignment: int) -> list[Location] | None:
    """Places of the stores of a schedule in several memories; None if they are not found to fit.

    Args:
        schedule: the schedule.
        capacities: bytes of the memories, the fastest first.
        alignment: of all stores, in bytes.
    """
    bodies, trailing, accessed = schedule.bodies(), schedule.trailing(), schedule.accessed_bytes()
    left = sorted(range(len(bodies)), key=lambda store: accessed[store] / max(bodies[store].bytes, 1), reverse=True)
    locations: dict[int, Location] = {}
    for memory, capacity in enumerate(capacities):
        of_memory = _Memory(bodies, trailing, capacity, alignment)
        fitting = _most_that_fit(of_memory, [store for store in left if bodies[store].bytes <= capacity])
        offsets = of_memory.pressed([*fitting]) or fitting
        locations |= {store: Location(memory, offset) for store, offset in offsets.items()}
        left = [store for store in left if store not in offsets]
    return None if left else [locations[store] for store in range(len(bodies))]


class _Memory:
    """One of several memories."""

    def __init__(self, bodies: Sequence[Body], trailing: Sequence[Trailing], capacity: int, alignment: int):
        self._bodies, self._trailing = bodies, trailing
        self._capacity, self._alignment = capacity, alignment

    def offsets(self, stores: Sequence[int]) -> dict[int, int] | None:
        """Where some stores go; None if they are not found to fit."""
        return self._searched(stores, self._capacity)

    def pressed(self, stores: Sequence[int]) -> dict[int, int] | None:
        """Where some stores go in few bytes; None if they are not found to fit."""
        return self._searched(stores, 0)

    def _searched(self, stores: Sequence[int], bound: int) -> dict[int, int] | None:
        places = {store: place for place, store in enumerate(stores)}
        chosen = [self._bodies[store] for store in stores]
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
        return dict(zip(stores, offsets)) if height <= self._capacity else None


def _at(member: BodyMember, places: dict[int, int]) -> BodyMember:
    return member._replace(body=places[member.body])


def _most_that_fit(memory: _Memory, stores: Sequence[int]) -> dict[int, int]:
    """As many of the first stores as fit, and then some of the others."""
    fitting, count, too_many = dict[int, int](), 0, len(stores) + 1
    while too_many - count > 1:
        middle = len(stores) if too_many > len(stores) and not count else (count + too_many) // 2
        offsets = memory.offsets(stores[:middle])
        if offsets is None:
            too_many = middle
        else:
            fitting, count = offsets, middle
    for store in stores[count + 1 : count + 1 + MOST_TRIED]:
        fitting = memory.offsets([*fitting, store]) or fitting
    return fitting
