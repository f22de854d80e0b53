"""Plans of a model's buffers in several memories, for stock TFLM with a planner of one's own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tflm.atomic_write import write_files
from tflm.errors import ArenaError, ArenaExhausted, ArgumentError
from tflm.libraries import KernelLibrary
from tflm.memory.arena import ARENA_ALIGNMENT
from tflm.memory.buffer import Buffer
from tflm.memory.several_memories import (
    Memory,
    Placement,
    SeveralMemoriesPlanner,
    Spot,
    by_size,
    place_in_memories,
    require_memories,
)
from tflm.planning.memory_plan_header import memory_plan_header
from tflm.runtime.micro_measurement import measure_arena
from tflm.runtime.micro_measurement_report import ArenaMeasurement
from tflm.runtime.micro_op_resolver import MicroMutableOpResolver
from tflm.runtime.traffic import buffer_traffic, traffic
from tflm.schema.model import Model
from tflm.targets import Target, align_up


@dataclass(frozen=True)
class MemoryShare:
    """What a plan puts into a memory.

    Attributes:
        name, bytes, cost: of the memory.
        used_bytes: what it needs, with the tail if that is there.
        buffer_bytes: of that, tensors and scratch buffers.
        traffic_bytes: bytes that an invoke reads and writes there, counting each operator's tensors once.
        has_tail: whether the arena is there, at whose end the tail is.
    """

    name: str
    bytes: int
    cost: float
    used_bytes: int
    buffer_bytes: int
    traffic_bytes: int
    has_tail: bool


@dataclass(frozen=True)
class MemoriesPlan:
    """The places of a model's buffers in several memories.

    Attributes:
        memories: what each has, in the given order.
        buffers: the buffers as TFLM asks for them, in order, with sizes that are multiples of 16.
        spots: the memory, by index, and the offset there of each buffer.
        traffic: bytes of each buffer that an invoke reads and writes.
        home: index of the memory with the arena, in which the tail is.
        arena_bytes: the smallest arena there.
        cost: bytes read and written in each memory times its cost, with the tail.
        lower_bound: no plan with the tail in that memory costs less.
        rivals: what simple plans cost: "all in NAME", "head in NAME" and "largest first"; None where they do not fit.
    """

    memories: tuple[MemoryShare, ...]
    buffers: tuple[Buffer, ...]
    spots: tuple[Spot, ...]
    traffic: tuple[int, ...]
    home: int
    arena_bytes: int
    cost: float
    lower_bound: float
    rivals: dict[str, float | None]

    @property
    def proved_optimal(self) -> bool:
        """Whether no plan with the tail in the same memory costs less."""
        return self.cost <= self.lower_bound

    @property
    def others(self) -> tuple[MemoryShare, ...]:
        """The memories without the arena, in the order in which `MicroAllocator` and the exported planner take them."""
        return tuple(share for i, share in enumerate(self.memories) if i != self.home)

    def planner(self) -> SeveralMemoriesPlanner:
        """The planner for `MicroAllocator(bytearray(plan.arena_bytes), plan.planner(), memories=[...])`.

        It raises `ArenaError` for other buffers than those of the plan.
        """
        given = [Memory(share.name, share.bytes, share.cost) for share in self.memories]
        return _planner(given, self.home, self.buffers, self.spots)

    def header(self, name: str = "model") -> str:
        """The text of `memory_plan.h`, with a class derived from TFLM's `MicroMemoryPlanner`.

        Args:
            name: an identifier in lower case, the prefix of names in the header.
        """
        shares = [self.memories[self.home], *self.others]
        places = _order(len(self.memories), self.home)
        spots = [Spot(places.index(spot.memory), spot.offset) for spot in self.spots]
        used = [share.buffer_bytes for share in shares]
        return memory_plan_header(
            name, self.buffers, spots, [share.name for share in shares], [self.arena_bytes, *used[1:]], used[0]
        )

    def write(self, folder: str | os.PathLike[str], name: str = "model") -> list[Path]:
        """Write `memory_plan.h` into a folder, which is created; returns the path."""
        return write_files(folder, {"memory_plan.h": self.header(name)})


def _order(count: int, home: int) -> list[int]:
    """The memories with that of the arena first."""
    return [home, *(i for i in range(count) if i != home)]


def _planner(
    memories: Sequence[Memory], home: int, buffers: Sequence[Buffer], spots: Sequence[Spot]
) -> SeveralMemoriesPlanner:
    places = _order(len(memories), home)
    moved = [Spot(places.index(spot.memory), spot.offset) for spot in spots]
    return SeveralMemoriesPlanner([memories[i] for i in places], buffers, moved)


class _Recorder(SeveralMemoriesPlanner):
    """A planner of one large memory that notes what TFLM asks for."""

    def add_buffer(self, size: int, first_time_used: int, last_time_used: int, offline_offset: int = -1) -> None:
        super().add_buffer(size, first_time_used, last_time_used)

    @property
    def asked(self) -> list[Buffer]:
        """The buffers, as they were added."""
        return self._buffers


def plan_in_memories(
    model: Model,
    resolver: MicroMutableOpResolver,
    memories: Sequence[Any],
    target: Target,
    library: KernelLibrary,
) -> MemoriesPlan:
    """See `tflm.plan`; the library has its release.

    Raises:
        ArgumentError: the memories are invalid.
        ArenaError: the model does not fit them.
        TflmError: the model can't be laid out in an arena.
    """
    given = require_memories([_memory(each) for each in memories])
    recorder = _Recorder([Memory("all", (1 << 31) - 1)])
    measured = measure_arena(model, resolver, target=target, kernels=library, planner=recorder)
    named = [replace(asked, name=b.name) for asked, b in zip(recorder.asked, measured.buffers)]
    moved = buffer_traffic(model, measured)
    in_tail = _tail_traffic(model, measured)
    found: list[tuple[float, int, Placement, ArenaMeasurement]] = []
    failures: list[ArenaError] = []
    for home, memory in enumerate(given):
        room = memory.bytes - align_up(measured.tail_bytes, ARENA_ALIGNMENT)
        if room < 0:
            failures.append(_missing("tail", memory, measured.tail_bytes))
            continue
        rooms = [each._replace(bytes=room) if i == home else each for i, each in enumerate(given)]
        try:
            placement = place_in_memories(named, moved, rooms)
        except ArenaError as error:
            failures.append(error)
            continue
        planner = _planner(given, home, recorder.asked, placement.spots)
        arena = measure_arena(model, resolver, target=target, kernels=library, planner=planner)
        if arena.minimum_arena_bytes > memory.bytes:
            failures.append(
                ArenaExhausted(
                    f"the arena in {memory.name}", requested=arena.minimum_arena_bytes, available=memory.bytes
                )
            )
            continue
        found.append((placement.cost + in_tail * memory.cost, home, placement, arena))
    if not found:
        raise failures[0]
    cost, home, placement, arena = min(found, key=lambda each: each[:2])
    ends = [0] * len(given)
    for buffer, spot in zip(recorder.asked, placement.spots):
        ends[spot.memory] = max(ends[spot.memory], spot.offset + buffer.size)
    return MemoriesPlan(
        memories=tuple(
            MemoryShare(
                *memory,
                used_bytes=arena.minimum_arena_bytes if i == home else ends[i],
                buffer_bytes=ends[i],
                traffic_bytes=sum(b for b, spot in zip(moved, placement.spots) if spot.memory == i)
                + in_tail * (i == home),
                has_tail=i == home,
            )
            for i, memory in enumerate(given)
        ),
        buffers=tuple(recorder.asked),
        spots=placement.spots,
        traffic=tuple(moved),
        home=home,
        arena_bytes=arena.minimum_arena_bytes,
        cost=cost,
        lower_bound=placement.lower_bound + in_tail * given[home].cost,
        rivals=_rivals(given, recorder.asked, moved, in_tail, measured),
    )


def _missing(part: str, memory: Memory, requested: int) -> ArenaError:
    return ArenaExhausted(f"the {part} in {memory.name}", requested=requested, available=memory.bytes)


def _memory(value: Any) -> Memory:
    if isinstance(value, Memory):
        return value
    if isinstance(value, (tuple, list)) and 2 <= len(value) <= 3 and isinstance(value[0], str):
        return Memory(*value)
    raise ArgumentError(f"a memory is tflm.Memory(name, bytes, cost) or such a tuple, not {value!r}")


def _tail_traffic(model: Model, measured: ArenaMeasurement) -> int:
    moved = traffic(model, measured)
    return moved.tail_read_bytes + moved.tail_written_bytes


def _rivals(
    memories: Sequence[Memory],
    buffers: Sequence[Buffer],
    moved: Sequence[int],
    in_tail: int,
    measured: ArenaMeasurement,
) -> dict[str, float | None]:
    """What simple plans cost: everything, or the head alone, in each memory; the largest buffers in the cheapest."""
    total, tail = sum(moved), align_up(measured.tail_bytes, ARENA_ALIGNMENT)
    costs: dict[str, float | None] = {}
    cheap_first = sorted(memories, key=lambda memory: memory.cost)
    for memory in memories:
        whole = measured.minimum_arena_bytes <= memory.bytes
        costs[f"all in {memory.name}"] = (total + in_tail) * memory.cost if whole else None
        tails = [other.cost for other in memories if other is not memory and tail <= other.bytes]
        head = measured.head_bytes <= memory.bytes and bool(tails)
        costs[f"head in {memory.name}"] = total * memory.cost + in_tail * min(tails) if head else None
    largest: list[float] = []
    for home in cheap_first:
        rooms = [m._replace(bytes=m.bytes - tail) if m is home else m for m in cheap_first]
        spots = by_size(buffers, rooms) if home.bytes > tail else None
        if spots is not None:
            moves = zip(moved, spots)
            largest.append(sum(b * cheap_first[s.memory].cost for b, s in moves) + in_tail * home.cost)
    costs["largest first"] = min(largest, default=None)
    return costs
