"""Buffers in several memories, so that the traffic to slow memories is small.

Dynamic programming over the buffers, in the order in which they begin, first decides which memory each goes to, for the
bytes that are alive together: later choices depend only on the memories of the buffers that are still alive. These
costs guide a best-first search, which yields assignments by rising cost. The first one whose buffers can be placed in
each memory has the least traffic.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tflm.errors import ArenaError, ArgumentError
from tflm.memory.arena import ARENA_ALIGNMENT
from tflm.memory.buffer import ONLINE_PLANNED_BUFFER, Buffer, lower_bound_bytes, plan_bytes
from tflm.memory.planner import PlacingPlanner
from tflm.memory.planners import PlacedBuffers, place_greedily
from tflm.targets import align_down, align_up

REGION_BYTES = 1 << 32
"""Distance between the offsets of one memory and those of the next, in a plan of several."""

MAX_STATES = 2048
"""Assignments of the buffers that are alive, of which the cheapest are kept."""

MAX_EXPANSIONS = 20_000
MAX_PLACED = 32
"""Assignments for which a placement is searched."""

STEPS = 5000
"""Limit on steps of the search for a placement of one assignment in one memory."""


class Memory(NamedTuple):
    """A memory for buffers.

    Attributes:
        name: for messages.
        bytes: its size.
        cost: of one byte that is read or written there, relative to those of others.
        rate: bytes that can be read or written in a second, for reports; None if unknown.
    """

    name: str
    bytes: int
    cost: float = 1.0
    rate: float | None = None


class Spot(NamedTuple):
    """A memory, by index, and bytes from its start."""

    memory: int
    offset: int


@dataclass(frozen=True)
class Placement:
    """Buffers in several memories.

    Attributes:
        spots: of each buffer.
        cost: bytes that are read and written in each memory, times its cost.
        lower_bound: no placement costs less.
    """

    spots: tuple[Spot, ...]
    cost: float
    lower_bound: float

    @property
    def proved_optimal(self) -> bool:
        """Whether no placement costs less."""
        return self.cost <= self.lower_bound


def require_memories(memories: Sequence[Memory]) -> list[Memory]:
    """Return the memories if a plan can use them.

    Raises:
        ArgumentError: there are none, two of one name, or one without bytes, cost or rate.
    """
    names = [memory.name for memory in memories]
    if not names:
        raise ArgumentError("a plan needs at least one memory, such as tflm.Memory('SRAM', 200 << 10)")
    for memory in memories:
        if memory.bytes < ARENA_ALIGNMENT:
            raise ArgumentError(f"memory {memory.name!r} has {memory.bytes} bytes; must be {ARENA_ALIGNMENT} or more")
        if memory.bytes >= 1 << 31:
            raise ArgumentError(f"memory {memory.name!r} has {memory.bytes} bytes; must be less than 2 GiB")
        if not 0 < memory.cost < float("inf"):
            raise ArgumentError(f"memory {memory.name!r} costs {memory.cost} a byte; must be a number above 0")
        if memory.rate is not None and not 0 < memory.rate < float("inf"):
            raise ArgumentError(f"memory {memory.name!r} has a rate of {memory.rate}; must be a number above 0")
        if names.count(memory.name) > 1:
            raise ArgumentError(f"two memories are called {memory.name!r}; each needs a name of its own")
    return list(memories)


def place_in_memories(
    buffers: Sequence[Buffer], traffic: Sequence[int], memories: Sequence[Memory], effort: int = 1
) -> Placement:
    """Place buffers in memories so that the traffic costs little; the least where `proved_optimal`.

    Args:
        buffers: with sizes and lifetimes; offline offsets are ignored.
        traffic: bytes of each buffer that are read and written.
        memories: which may be in any order.
        effort: how many times the usual number of assignments and steps may be tried.

    Raises:
        ArenaError: they do not fit, or no placement was found that does.
    """
    sized = [_sized(buffer) for buffer in buffers]
    traffic = [bytes if buffer.size else 0 for bytes, buffer in zip(traffic, buffers)]
    rooms = [align_down(memory.bytes, ARENA_ALIGNMENT) for memory in memories]
    _require_rooms(sized, memories, rooms)
    costs = [memory.cost for memory in memories]
    search = _Assignments(sized, traffic, rooms, costs, effort)
    found, bound = _cheapest(sized, search, rooms, effort)
    known = [*([found] if found is not None else []), *_simple(sized, traffic, rooms, costs)]
    if not known:
        raise ArenaError(
            f"no placement of {len(buffers)} buffers was found in {_listed(memories)}; "
            f"{lower_bound_bytes(sized)} bytes are alive together: use larger memories"
        )

    def cost(spots: Sequence[Spot]) -> float:
        return sum(bytes * costs[spot.memory] for bytes, spot in zip(traffic, spots))

    best = min(known, key=cost)
    return Placement(tuple(best), cost(best), min(bound, cost(best)))


def _sized(buffer: Buffer) -> Buffer:
    first, last = sorted((buffer.first_use, buffer.last_use))
    return Buffer(align_up(buffer.size, ARENA_ALIGNMENT), first, last, name=buffer.name)


def _require_rooms(buffers: Sequence[Buffer], memories: Sequence[Memory], rooms: Sequence[int]) -> None:
    largest = max(rooms)
    for i, buffer in enumerate(buffers):
        if buffer.size > largest:
            raise ArenaError(
                f"buffer {i} {buffer.name!r} ({buffer.size} bytes) fits none of {_listed(memories)}; use a larger "
                "memory, or make the tensor smaller with tflm tile"
            )
    alive = lower_bound_bytes(buffers)
    if alive > sum(rooms):
        raise ArenaError(
            f"{alive} bytes are alive together, more than {_listed(memories)} have; use a larger memory, or reduce "
            "them with tflm tile"
        )


def _listed(memories: Sequence[Memory]) -> str:
    return ", ".join(f"{memory.name} ({memory.bytes} bytes)" for memory in memories)


class _Assignments:
    """Assignments of buffers to memories by rising cost, in which bytes alive together fit each memory.

    Attributes:
        bound: no assignment costs less.
        is_complete: whether all assignments are considered.
    """

    def __init__(
        self,
        buffers: Sequence[Buffer],
        traffic: Sequence[int],
        rooms: Sequence[int],
        costs: Sequence[float],
        effort: int,
    ):
        self._buffers, self._traffic, self._rooms, self._costs = buffers, traffic, rooms, costs
        self._max_states, self._max_expansions = MAX_STATES * effort, MAX_EXPANSIONS * effort
        self._order = sorted((i for i, b in enumerate(buffers) if b.size), key=lambda i: (buffers[i].first_use, i))
        self._alive_at = list(self._alive())
        self.is_complete = True
        self.bound = float("inf")
        self._layers: list[dict[tuple[int, ...], float]] = [{(): 0.0}]
        for position in range(len(self._order)):
            self._layers.append(self._next_layer(position))
        self._rest: list[dict[tuple[int, ...], float]] = [{} for _ in self._layers]
        self._rest[-1] = dict.fromkeys(self._layers[-1], 0.0)
        for position in reversed(range(len(self._order))):
            for state in self._layers[position]:
                rests = [
                    cost + self._rest[position + 1][later]
                    for _, cost, later in self._choices(position, state)
                    if later in self._rest[position + 1]
                ]
                if rests:
                    self._rest[position][state] = min(rests)
        self.bound = min(self.bound, self._rest[0].get((), float("inf")))

    def _alive(self) -> Iterator[list[int]]:
        """For each position, the buffers that were assigned before it and are alive there."""
        alive: list[int] = []
        for i in self._order:
            alive = [other for other in alive if self._buffers[other].last_use >= self._buffers[i].first_use]
            yield alive
            alive = [*alive, i]
        yield []

    def _choices(self, position: int, state: tuple[int, ...]) -> Iterator[tuple[int, float, tuple[int, ...]]]:
        """Memories for the buffer at a position, each with its cost and the state after it."""
        this = self._order[position]
        alive, later = self._alive_at[position], self._alive_at[position + 1]
        where = dict(zip(alive, state))
        for memory, room in enumerate(self._rooms):
            taken = sum(self._buffers[i].size for i in alive if where[i] == memory)
            if taken + self._buffers[this].size <= room:
                there = where | {this: memory}
                yield memory, self._traffic[this] * self._costs[memory], tuple(there[i] for i in later)

    def _next_layer(self, position: int) -> dict[tuple[int, ...], float]:
        layer: dict[tuple[int, ...], float] = {}
        for state, so_far in self._layers[position].items():
            for _, cost, later in self._choices(position, state):
                layer[later] = min(layer.get(later, float("inf")), so_far + cost)
        if len(layer) > self._max_states:
            kept = sorted(layer.items(), key=lambda item: (item[1], item[0]))
            rest = min(self._costs) * sum(self._traffic[i] for i in self._order[position + 1 :])
            self.bound = min(self.bound, kept[self._max_states][1] + rest)
            self.is_complete = False
            layer = dict(kept[: self._max_states])
        return layer

    def by_rising_cost(self) -> Iterator[tuple[float, dict[int, int]]]:
        """Yield the cost of each assignment and the memory of each buffer that is not empty."""
        numbers = itertools.count()
        heap: list[tuple[float, int, int, float, tuple[int, ...], tuple[int, ...]]] = []
        if () in self._rest[0]:
            heap.append((self._rest[0][()], 0, next(numbers), 0.0, (), ()))
        expansions = 0
        while heap and expansions < self._max_expansions:
            total, depth, _, so_far, state, chosen = heapq.heappop(heap)
            position, expansions = -depth, expansions + 1
            if position == len(self._order):
                yield total, dict(zip(self._order, chosen))
                continue
            for memory, cost, later in self._choices(position, state):
                rest = self._rest[position + 1].get(later)
                if rest is not None:
                    entry = so_far + cost + rest, depth - 1, next(numbers), so_far + cost, later, (*chosen, memory)
                    heapq.heappush(heap, entry)


def _cheapest(
    buffers: Sequence[Buffer], search: _Assignments, rooms: Sequence[int], effort: int
) -> tuple[list[Spot] | None, float]:
    """The cheapest assignment that is found to fit, and a lower bound of the cost of any."""
    impossible: list[tuple[int, frozenset[int]]] = []
    bound, last, tried = None, search.bound, 0
    for cost, memory_of in search.by_rising_cost():
        last = cost
        groups = [frozenset(i for i, at in memory_of.items() if at == memory) for memory in range(len(rooms))]
        if any(groups[memory] >= group for memory, group in impossible):
            continue
        spots, proved = _placed(buffers, groups, rooms, impossible, STEPS * effort)
        if spots is not None:
            return spots, (cost if bound is None else bound) if search.is_complete else search.bound
        if not proved and bound is None:
            bound = cost
        tried += 1
        if tried == MAX_PLACED * effort:
            break
    return None, (last if bound is None else bound) if search.is_complete else search.bound


def _placed(
    buffers: Sequence[Buffer],
    groups: Sequence[frozenset[int]],
    rooms: Sequence[int],
    impossible: list[tuple[int, frozenset[int]]],
    steps: int,
) -> tuple[list[Spot] | None, bool]:
    """Return the place of each buffer, or None if the search found none, and whether that answer is proved."""
    spots = [Spot(0, 0)] * len(buffers)
    for memory, (group, room) in enumerate(zip(groups, rooms)):
        members = sorted(group)
        offsets, proved = _within([buffers[i] for i in members], room, steps)
        if offsets is None:
            if proved:
                impossible.append((memory, group))
            return None, proved
        for i, offset in zip(members, offsets):
            spots[i] = Spot(memory, offset)
    return spots, True


def _within(buffers: Sequence[Buffer], room: int, steps: int = STEPS) -> tuple[list[int] | None, bool]:
    """Offsets within a memory, greedy ones if these fit; None if not found, and whether that is proved."""
    offsets = place_greedily(buffers)
    if plan_bytes(buffers, offsets) <= room:
        return offsets, True
    from tflm.memory.plan_search import SearchLimits, search_plan  # rarely needed

    found = search_plan(buffers, SearchLimits(seconds=None, steps=steps, capacity=room))
    if found.head_bytes <= room:
        return found.offsets, True
    return None, found.lower_bound_bytes > room


def _simple(
    buffers: Sequence[Buffer], traffic: Sequence[int], rooms: Sequence[int], costs: Sequence[float]
) -> Iterator[list[Spot]]:
    """Plans that a search must not be worse than: all in one memory, and the largest or busiest buffers first."""
    cheap_first = sorted(range(len(rooms)), key=lambda memory: costs[memory])
    for memory, room in enumerate(rooms):
        offsets, _ = _within(buffers, room)
        if offsets is not None:
            yield [Spot(memory, offset) for offset in offsets]
    for keys in ([-b.size for b in buffers], [-bytes / max(b.size, 1) for b, bytes in zip(buffers, traffic)]):
        spots = _one_by_one(buffers, sorted(range(len(buffers)), key=keys.__getitem__), rooms, cheap_first)
        if spots is not None:
            yield spots


def _one_by_one(
    buffers: Sequence[Buffer], order: Sequence[int], rooms: Sequence[int], memories: Sequence[int]
) -> list[Spot] | None:
    """Put each buffer into the first memory with room left; None if one fits nowhere."""
    placed = [PlacedBuffers(len(buffers)) for _ in rooms]
    spots = [Spot(0, 0)] * len(buffers)
    for i in order:
        gaps = ((memory, placed[memory].lowest_gap(buffers[i])) for memory in memories)
        spot = next((Spot(*gap) for gap in gaps if gap[1] + buffers[i].size <= rooms[gap[0]]), None)
        if spot is None:
            return None
        placed[spot.memory].add(buffers[i], spot.offset)
        spots[i] = spot
    return spots


def by_size(buffers: Sequence[Buffer], memories: Sequence[Memory]) -> list[Spot] | None:
    """Place the largest buffers first, each in the first memory where it fits; None if one fits nowhere."""
    sized = [_sized(buffer) for buffer in buffers]
    rooms = [align_down(memory.bytes, ARENA_ALIGNMENT) for memory in memories]
    order = sorted(range(len(sized)), key=lambda i: (-sized[i].size, -i))
    return _one_by_one(sized, order, rooms, range(len(rooms)))


class SeveralMemoriesPlanner(PlacingPlanner):
    """Places buffers in several memories, by a table or by `place_in_memories`.

    The offset of a buffer in memory k is its offset there plus k times `REGION_BYTES`. Memory 0 holds the arena, with
    the tail at its end.

    Args:
        memories: the memory of the arena first.
        table: the buffers that TFLM must ask for, in order; None to plan whatever it asks for, each byte counted once.
        spots: their places, with a table.
    """

    def __init__(self, memories: Sequence[Memory], table: Sequence[Buffer] | None = None, spots: Sequence[Spot] = ()):
        super().__init__()
        self.memories = tuple(require_memories(memories))
        self._table, self._planned = table, tuple(spots)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({_listed(self.memories)})"

    def add_buffer(
        self, size: int, first_time_used: int, last_time_used: int, offline_offset: int = ONLINE_PLANNED_BUFFER
    ) -> None:
        asked, index = Buffer(size, first_time_used, last_time_used), len(self._buffers)
        if self._table is None:
            if offline_offset != ONLINE_PLANNED_BUFFER:
                raise ArenaError("a plan of several memories has no offline offsets")
        elif index >= len(self._table) or tuple(asked) != tuple(self._table[index]):
            self._refuse()
        super().add_buffer(size, first_time_used, last_time_used)

    def get_maximum_memory_size(self) -> int:
        return self.used_bytes()[0]

    def place(self, buffers: Sequence[Buffer]) -> list[int]:
        """Place buffers; returns their offsets."""
        return [spot.memory * REGION_BYTES + spot.offset for spot in self._spots(buffers)]

    def used_bytes(self) -> list[int]:
        """Bytes of each memory that the buffers take."""
        ends = [0] * len(self.memories)
        for buffer, place in zip(self._buffers, self._placed()):
            memory, offset = divmod(place, REGION_BYTES)
            ends[memory] = max(ends[memory], offset + buffer.size)
        return ends

    def _spots(self, buffers: Sequence[Buffer]) -> Sequence[Spot]:
        if self._table is None:
            return place_in_memories(buffers, [buffer.size for buffer in buffers], self.memories).spots
        if len(buffers) != len(self._table):
            self._refuse()
        return self._planned

    def _refuse(self) -> None:
        raise ArenaError(
            "the plan of several memories is not for these buffers: the model, the kernels or TFLM's release changed; "
            "run tflm.plan again"
        )
