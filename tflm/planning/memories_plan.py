"""Plans of a model's buffers in several memories, and as C++ a custom planner with a table for stock TFLM."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from string import Template
from typing import Any

from tflm.atomic_write import write_files
from tflm.errors import ArenaError, ArgumentError
from tflm.libraries import KernelLibrary
from tflm.libraries.kernel_library import AllowedOverlap, reference_overlap
from tflm.memory.arena import ARENA_ALIGNMENT
from tflm.memory.buffer import ONLINE_PLANNED_BUFFER, Buffer
from tflm.memory.planner import LimitedSearch, SearchProgress
from tflm.memory.several_memories import (
    Memory,
    SeveralMemoriesPlanner,
    Spot,
    by_size,
    place_in_memories,
    require_memories,
)
from tflm.planning.head_plan import Head
from tflm.planning.operator_order import OperatorOrder, smaller_order
from tflm.planning.views import joined, joined_buffers
from tflm.report import in_one_line
from tflm.runtime.micro_measurement import measure_arena
from tflm.runtime.micro_measurement_report import ArenaMeasurement
from tflm.runtime.micro_op_resolver import MicroMutableOpResolver
from tflm.runtime.traffic import buffer_traffic, traffic
from tflm.schema.model import Model
from tflm.schema.patch import with_operator_order, without_plan
from tflm.targets import Target, align_up

HEADER = Template("""\
// Made by tflm.plan(model, memories=...). The places of the model's tensors and scratch buffers in these memories:
//   $listed
// The first of them is the arena, with TFLM's own data at its end:
//   alignas(16) uint8_t arena[k${camel}ArenaBytes];
//   ${camel}MemoryPlan plan($example);
//   MicroAllocator* allocator = MicroAllocator::Create(arena, sizeof arena, &plan);
//   MicroInterpreter interpreter(model, resolver, allocator);
#ifndef ${guard}_MEMORY_PLAN_H_
#define ${guard}_MEMORY_PLAN_H_

#include <cstddef>
#include <cstdint>

#include "tensorflow/lite/micro/memory_planner/micro_memory_planner.h"
#include "tensorflow/lite/micro/micro_log.h"

$constants

// TFLM's names were in tflite and in the global namespace, and moved to tflite::micro in September and October 2026.
namespace tflite {
namespace micro {
namespace exported {

// The methods do not say override, because older releases of TFLM lack preserves_all_tensors().
class ${camel}MemoryPlan : public MicroMemoryPlanner {
 public:
  // All memories must be aligned to 16 bytes, and on a 64-bit machine lie within 2 GiB.
  explicit ${camel}MemoryPlan($parameters) : memories_{$arguments}, count_(0) {}

  TfLiteStatus Init(unsigned char*, int) {
    count_ = 0;
    return kTfLiteOk;
  }

  TfLiteStatus AddBuffer(int size, int first, int last) {
    if (count_ >= kBuffers || Table()[count_].size != size || Table()[count_].first != first ||
        Table()[count_].last != last) {
      return Refuse(kStale);
    }
    ++count_;
    return kTfLiteOk;
  }

  // The plan takes the place of an offline plan in the model.
  TfLiteStatus AddBuffer(int size, int first, int last, int) { return AddBuffer(size, first, last); }

  size_t GetMaximumMemorySize() { return $head; }

  int GetBufferCount() { return count_; }

  // TFLM adds the offset to the start of the arena, so one to another memory is the distance between the two.
  TfLiteStatus GetOffsetForBuffer(int index, int* offset) {
    if (count_ != kBuffers || index < 0 || index >= kBuffers) {
      return Refuse(kStale);
    }
    const uintptr_t memory = reinterpret_cast<uintptr_t>(memories_[Table()[index].memory]);
    const intptr_t distance = static_cast<intptr_t>(memory - reinterpret_cast<uintptr_t>(memories_[0]));
    const intptr_t place = distance + Table()[index].offset;
    *offset = static_cast<int>(place);
    if (memory % 16 != 0 || *offset != place) {
      return Refuse("memory_plan.h: a memory is not aligned to 16 bytes, or more than 2 GiB from the arena");
    }
    return kTfLiteOk;
  }

  bool preserves_all_tensors() const { return false; }

  // Why AllocateTensors() failed, or null; TFLM's own messages are lost with TF_LITE_STRIP_ERROR_STRINGS.
  const char* error() const { return error_; }

 private:
  struct Buffer {
    int memory, offset, size, first, last;
  };
  enum { kBuffers = $count };
  static constexpr const char* kStale =
      "memory_plan.h is for other buffers: the model, the kernels or TFLM changed; run tflm plan again";

  // The buffers in the order in which TFLM asks for them.
  static const Buffer* Table() {
    static constexpr Buffer table[] = {
$table
    };
    return table;
  }

  TfLiteStatus Refuse(const char* error) {
    error_ = error;
    MicroPrintf("%s", error);
    return kTfLiteError;
  }

  uint8_t* const memories_[$memories];
  int count_;
  const char* error_ = nullptr;
};

}  // namespace exported
}  // namespace micro
}  // namespace tflite

using tflite::micro::exported::${camel}MemoryPlan;

#endif  // ${guard}_MEMORY_PLAN_H_
""")


def memory_plan_header(
    name: str,
    buffers: Sequence[Buffer],
    spots: Sequence[Spot],
    memories: Sequence[str],
    sizes: Sequence[int],
    head: int,
) -> str:
    """The text of `memory_plan.h`.

    Args:
        name: an identifier in lower case.
        buffers, spots: the buffers, and their places.
        memories: names of the memories, that of the arena first.
        sizes: bytes that the plan needs of each; of the first, the arena.
        head: bytes of the arena that buffers take.
    """
    camel = "".join(word.capitalize() for word in name.split("_"))
    others = range(1, len(memories))
    rows = (
        f"        {{{spot.memory}, {spot.offset}, {buffer.size}, {buffer.first_use}, {buffer.last_use}}},"
        for buffer, spot in zip(buffers, spots)
    )
    constants = [f"constexpr unsigned int k{camel}ArenaBytes = {sizes[0]};"]
    constants += [f"constexpr unsigned int k{camel}Memory{i}Bytes = {sizes[i]};" for i in others]
    return HEADER.substitute(
        camel=camel,
        guard=name.upper(),
        listed=", ".join(in_one_line(memory) for memory in memories),
        example=", ".join(["arena", *(f"memory_{i}" for i in others)]),
        parameters=", ".join(["uint8_t* arena", *(f"uint8_t* memory_{i}" for i in others)]),
        arguments=", ".join(["arena", *(f"memory_{i}" for i in others)]),
        constants="\n".join(constants),
        head=head,
        count=len(buffers),
        memories=len(memories),
        table="\n".join(rows) or "        {0, 0, 0, 0, 0},",
    )


EFFORT_GROWTH = 4
EFFORTS = tuple(EFFORT_GROWTH**i for i in range(6))
"""The work of each round of the search, relative to the first. The search ends with a proof or at the time limit."""


@dataclass(frozen=True)
class MemoryShare:
    """The contents of a memory in a plan.

    Attributes:
        name: name of the memory.
        bytes: its size.
        cost: cost of a byte that is read or written.
        rate: megabytes that it reads or writes in a second; None if unknown.
        used_bytes: bytes that the plan uses, including the tail if it is in this memory.
        buffer_bytes: bytes of tensors and scratch buffers.
        traffic_bytes: bytes that an invoke reads and writes, counting each operator's tensors once.
        written_bytes: bytes that an invoke writes.
        has_tail: whether this memory contains the arena, with the tail at its end.
    """

    name: str
    bytes: int
    cost: float
    rate: float | None
    used_bytes: int
    buffer_bytes: int
    traffic_bytes: int
    written_bytes: int
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
        lower_bound: no plan costs less, for this order of operators and these tensors that share bytes.
        rival_traffic: bytes that simple plans read and write in each memory: "all in NAME", "head in NAME" and "largest
            first"; None where they do not fit.
        names: of the buffers.
        data: the model that the plan is for; not the given one if its operators were reordered.
        order: how the operators of the first subgraph were reordered, or None.
        interrupted: whether Ctrl-C ended the search; the plan is the best until then.
    """

    memories: tuple[MemoryShare, ...]
    buffers: tuple[Buffer, ...]
    spots: tuple[Spot, ...]
    traffic: tuple[int, ...]
    home: int
    arena_bytes: int
    cost: float
    lower_bound: float
    rival_traffic: dict[str, tuple[int, ...] | None]
    names: tuple[str, ...]
    data: bytes = field(repr=False)
    order: OperatorOrder | None = None
    interrupted: bool = False

    @property
    def model(self) -> Model:
        """The model that the plan is for."""
        return Model(self.data)

    @property
    def rivals(self) -> dict[str, float | None]:
        """Costs of simple plans; see `rival_traffic`."""
        return {
            name: None if moved is None else sum(b * each.cost for b, each in zip(moved, self.memories))
            for name, moved in self.rival_traffic.items()
        }

    @property
    def proved_optimal(self) -> bool:
        """Whether no plan costs less; see `lower_bound`."""
        return self.cost <= self.lower_bound

    @property
    def others(self) -> tuple[MemoryShare, ...]:
        """The memories without the arena, in the order in which `MicroAllocator` and the exported planner take them."""
        return tuple(share for i, share in enumerate(self.memories) if i != self.home)

    def planner(self) -> SeveralMemoriesPlanner:
        """The planner for `MicroAllocator(bytearray(plan.arena_bytes), plan.planner(), memories=[...])`.

        It raises `ArenaError` for other buffers than those of the plan.
        """
        given = [Memory(share.name, share.bytes, share.cost, share.rate) for share in self.memories]
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
        """Write `memory_plan.h` into a folder, which is created, and a changed model as NAME.tflite; returns paths."""
        model = {f"{name}.tflite": self.data} if self.order is not None else {}
        return write_files(folder, {"memory_plan.h": self.header(name), **model})


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


@dataclass(frozen=True)
class MemoriesOptions:
    """The changes that a plan may make, see `tflm.plan`; `search` has the time limit, `allowed` the overlaps."""

    search: LimitedSearch
    reorder: bool = False
    joins: bool = False
    overlap: bool = False
    allowed: AllowedOverlap = reference_overlap


class _Problem:
    """A model's buffers, of which some may be joined, and where they may go.

    Args:
        model, resolver, target, library: see `plan_in_memories`.
        order: how its operators were reordered.
    """

    def __init__(
        self,
        model: Model,
        resolver: MicroMutableOpResolver,
        target: Target,
        library: KernelLibrary,
        order: OperatorOrder | None = None,
    ):
        self.model, self.order = model, order
        self._measure = partial(measure_arena, model, resolver, target=target, kernels=library)
        recorder = _Recorder([Memory("all", (1 << 31) - 1)])
        self.measured = self._measure(planner=recorder)
        self.asked = recorder.asked
        both = buffer_traffic(model, self.measured)
        self.moved, self.written = [sum(each) for each in both], [written for _, written in both]
        tail = traffic(model, self.measured)
        self.in_tail, self.written_in_tail = tail.tail_read_bytes + tail.tail_written_bytes, tail.tail_written_bytes
        self.named = [
            replace(b, size=align_up(asked.size, ARENA_ALIGNMENT), offset=ONLINE_PLANNED_BUFFER)
            for asked, b in zip(self.asked, self.measured.buffers)
        ]
        self.groups = [{i: 0} for i in range(len(self.asked))]

    def joined(self, options: MemoriesOptions) -> _Problem | None:
        """The same with buffers that share bytes; None if none can."""
        other = copy.copy(self)
        other.groups = joined_buffers(self.model, self.named, options.allowed, options.overlap)
        return other if len(other.groups) < len(self.groups) else None

    def plan(self, memories: Sequence[Memory], effort: int) -> MemoriesPlan:
        """The cheapest plan, with the tail in any of the memories.

        Raises:
            ArenaError: the model does not fit them.
        """
        found: list[MemoriesPlan] = []
        failures: list[ArenaError] = []
        for home in range(len(memories)):
            try:
                found.append(self._with_tail_in(home, memories, effort))
            except ArenaError as error:
                failures.append(error)
        if not found:
            raise failures[0]
        bound = min(plan.lower_bound for plan in found)
        return replace(min(found, key=lambda plan: plan.cost), lower_bound=bound)

    def _with_tail_in(self, home: int, memories: Sequence[Memory], effort: int) -> MemoriesPlan:
        memory, moved = memories[home], self.moved
        room = memory.bytes - align_up(self.measured.tail_bytes, ARENA_ALIGNMENT)
        if room < 0:
            raise _missing("tail", memory, self.measured.tail_bytes)
        rooms = list(memories)
        rooms[home] = Memory(f"{memory.name} next to the tail", room, memory.cost)
        bodies = [joined(self.named, group) for group in self.groups]
        placement = place_in_memories(bodies, [sum(moved[i] for i in group) for group in self.groups], rooms, effort)
        spots = [Spot(0, 0)] * len(self.asked)
        for group, spot in zip(self.groups, placement.spots):
            for i, offset in group.items():
                spots[i] = Spot(spot.memory, spot.offset + offset)
        arena = self._measure(planner=_planner(memories, home, self.asked, spots)).minimum_arena_bytes
        if arena > memory.bytes:
            raise _missing("arena", memory, arena)
        ends = [0] * len(memories)
        for buffer, spot in zip(self.asked, spots):
            ends[spot.memory] = max(ends[spot.memory], spot.offset + buffer.size)
        moved_in, written_in = (
            [sum(b for b, spot in zip(of_buffers, spots) if spot.memory == i) for i in range(len(memories))]
            for of_buffers in (moved, self.written)
        )
        return MemoriesPlan(
            memories=tuple(
                MemoryShare(
                    *each,
                    used_bytes=arena if i == home else ends[i],
                    buffer_bytes=ends[i],
                    traffic_bytes=moved_in[i] + self.in_tail * (i == home),
                    written_bytes=written_in[i] + self.written_in_tail * (i == home),
                    has_tail=i == home,
                )
                for i, each in enumerate(memories)
            ),
            buffers=tuple(self.asked),
            names=tuple(buffer.name for buffer in self.named),
            spots=tuple(spots),
            traffic=tuple(moved),
            home=home,
            arena_bytes=arena,
            cost=placement.cost + self.in_tail * memory.cost,
            lower_bound=placement.lower_bound + self.in_tail * memory.cost,
            rival_traffic={},
            data=bytes(self.model.data),
            order=self.order,
        )


def plan_in_memories(
    model: Model,
    resolver: MicroMutableOpResolver,
    memories: Sequence[Any],
    target: Target,
    library: KernelLibrary,
    options: MemoriesOptions,
) -> MemoriesPlan:
    """See `tflm.plan`; the library has its release.

    Raises:
        ArgumentError: the memories are invalid.
        ArenaError: the model does not fit them.
        TflmError: the model can't be laid out in an arena.
    """
    begin = time.monotonic()
    given = require_memories([_memory(each) for each in memories])
    first = _Problem(model, resolver, target, library)
    problems = [first, *_reordered(first, resolver, target, library, options)]
    if options.joins or options.overlap:
        problems += [other for problem in problems if (other := problem.joined(options)) is not None]
    rivals = _rivals(given, first.asked, first.moved, first.in_tail, first.measured)
    best: MemoriesPlan | None = None
    try:
        for effort in EFFORTS:
            round_begin = time.monotonic()
            found = _best_of(problems, given, effort)
            if best is None or found.cost < best.cost:
                best = found
            now = time.monotonic()
            if options.search.progress is not None:
                stage = "weighted traffic"
                options.search.progress(
                    SearchProgress(now - begin, effort, int(best.cost), int(best.lower_bound), stage)
                )
            limit = options.search.time_limit
            next_end = now + EFFORT_GROWTH * (now - round_begin)
            if best.proved_optimal or limit is None or next_end - begin > limit:
                break
    except KeyboardInterrupt:
        if best is None:
            raise
        best = replace(best, interrupted=True)
    assert best is not None
    return replace(best, rival_traffic=rivals)


def _best_of(problems: Sequence[_Problem], memories: Sequence[Memory], effort: int) -> MemoriesPlan:
    found: list[MemoriesPlan] = []
    failures: list[ArenaError] = []
    for problem in problems:
        try:
            found.append(problem.plan(memories, effort))
        except ArenaError as error:
            failures.append(error)
    if not found:
        raise failures[0]
    return min(found, key=lambda plan: plan.cost)


def _reordered(
    problem: _Problem,
    resolver: MicroMutableOpResolver,
    target: Target,
    library: KernelLibrary,
    options: MemoriesOptions,
) -> Iterator[_Problem]:
    if not options.reorder:
        return
    head = Head(problem.model, problem.measured.buffers)
    limit = options.search.time_limit
    seconds = None if limit is None else limit / 3
    order = smaller_order(problem.model, head.tensor_bytes(), head.scratch_bytes(), seconds)
    if order is not None:
        yield _Problem(
            Model(with_operator_order(without_plan(problem.model), 0, order.order)), resolver, target, library, order
        )


def _missing(part: str, memory: Memory, requested: int) -> ArenaError:
    return ArenaError(
        f"the {part} takes {requested:,} bytes, {requested - memory.bytes:,} more than {memory.name} has; "
        "use a larger memory"
    )


def _memory(value: Any) -> Memory:
    if isinstance(value, Memory):
        return value
    if isinstance(value, (tuple, list)) and 2 <= len(value) <= 4 and isinstance(value[0], str):
        return Memory(*value)
    raise ArgumentError(f"a memory is tflm.Memory(name, bytes, cost, rate) or such a tuple, not {value!r}")


def _rivals(
    memories: Sequence[Memory],
    buffers: Sequence[Buffer],
    moved: Sequence[int],
    in_tail: int,
    measured: ArenaMeasurement,
) -> dict[str, tuple[int, ...] | None]:
    """Traffic of simple plans in each memory: everything, or the head, in one; the largest buffers in the cheapest."""
    total, tail = sum(moved), align_up(measured.tail_bytes, ARENA_ALIGNMENT)
    by_cost = sorted(range(len(memories)), key=lambda i: memories[i].cost)

    def traffic(*parts: tuple[int, int]) -> tuple[int, ...]:
        return tuple(sum(bytes for place, bytes in parts if place == i) for i in range(len(memories)))

    def cost(moves: Sequence[int]) -> float:
        return sum(bytes * memory.cost for bytes, memory in zip(moves, memories))

    found: dict[str, tuple[int, ...] | None] = {}
    for i, memory in enumerate(memories):
        whole = measured.minimum_arena_bytes <= memory.bytes
        found[f"all in {memory.name}"] = traffic((i, total + in_tail)) if whole else None
        tails = [j for j in by_cost if j != i and tail <= memories[j].bytes]
        head = measured.head_bytes <= memory.bytes and bool(tails)
        found[f"head in {memory.name}"] = traffic((i, total), (tails[0], in_tail)) if head else None
    largest = []
    for home in by_cost:
        rooms = [memories[i]._replace(bytes=memories[i].bytes - tail * (i == home)) for i in by_cost]
        spots = by_size(buffers, rooms) if memories[home].bytes > tail else None
        if spots is not None:
            places = [(by_cost[spot.memory], bytes) for spot, bytes in zip(spots, moved)]
            largest.append(traffic(*places, (home, in_tail)))
    found["largest first"] = min(largest, key=cost, default=None)
    return found
