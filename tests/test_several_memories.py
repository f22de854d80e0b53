"""Buffers in several memories: the least traffic, the same answers, and refusals of a plan for something else."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from example_models import INT8_MODEL
from hypothesis import given, settings
from hypothesis import strategies as st
from image_graphs import image_graph, shrinking_network
from recorded_reports import CHECKS, require_recorded
from sampling import examples
from test_planners import tight_problem

import tflm
from tflm.errors import ArenaError, ArenaExhausted, ArgumentError
from tflm.memory import OptimalPlanner, several_memories
from tflm.memory.buffer import Buffer
from tflm.memory.plan_search import SearchLimits, search_plan
from tflm.memory.several_memories import (
    REGION_BYTES,
    Memory,
    SeveralMemoriesPlanner,
    Spot,
    by_size,
    place_in_memories,
)
from tflm.planning.memories_plan import memory_plan_header
from tflm.testing import CheckFailed, check_planner, graphs
from tflm.testing.planner_check import buffers

MODEL = shrinking_network(32)
RESOLVER = tflm.AllOpsResolver()


def cheapest(buffers: Sequence[Buffer], moved: Sequence[int], memories: Sequence[Memory]) -> float | None:
    """The least cost of all assignments that can be placed, by trying all of them."""
    costs, known = [], dict[tuple[Any, ...], int]()
    for assignment in itertools.product(range(len(memories)), repeat=len(buffers)):
        groups = [[b for b, at in zip(buffers, assignment) if at == memory] for memory in range(len(memories))]
        for group in groups:
            if tuple(group) not in known:
                known[tuple(group)] = search_plan(group, SearchLimits(seconds=None)).head_bytes
        heights = [known[tuple(group)] for group in groups]
        if all(height <= memory.bytes for height, memory in zip(heights, memories)):
            costs.append(sum(bytes * memories[at].cost for bytes, at in zip(moved, assignment)))
    return min(costs, default=None)


MEMORIES = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 9)), min_size=1, max_size=3)


@given(buffers(max_count=4, max_size=96), MEMORIES, st.lists(st.integers(0, 50), min_size=5, max_size=5))
def test_no_placement_costs_less(added: list[Buffer], sizes: list[tuple[int, int]], moved: list[int]) -> None:
    memories = [Memory(f"M{i}", units * 16, cost) for i, (units, cost) in enumerate(sizes)]
    added = [Buffer(b.size, max(b.first_use, 0), max(b.last_use, 0)) for b in added]
    moved = [bytes if buffer.size else 0 for bytes, buffer in zip(moved, added)]
    least = cheapest(added, moved, memories)
    if least is None:
        with pytest.raises(ArenaError):
            place_in_memories(added, moved, memories)
        return
    found = place_in_memories(added, moved, memories)
    assert found.proved_optimal
    assert found.cost == least


@given(buffers(max_count=24), st.integers(1, 40))
def test_a_bounded_search_knows_its_bound_and_is_never_worse_than_by_size(added: list[Buffer], units: int) -> None:
    moved = [1 + 7 * b.size * (b.last_use % 3) for b in added]
    memories = [Memory("fast", units * 16, 1), Memory("slow", 1 << 30, 6)]
    exact = place_in_memories(added, moved, memories)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(several_memories, "MAX_STATES", 2)
        bounded = place_in_memories(added, moved, memories)
    assert bounded.lower_bound <= exact.cost <= bounded.cost
    largest = by_size(added, memories)
    assert largest is not None
    assert bounded.cost <= sum(b * memories[s.memory].cost for b, s in zip(moved, largest))


def test_a_bounded_search_that_misses_the_best_does_not_say_that_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, problems = np.random.default_rng(0), []
    for _ in range(20):
        columns = rng.integers(1, 8, 10) * 16, rng.integers(0, 8, 10), rng.integers(0, 5, 10)
        added = [Buffer(size, first, first + life) for size, first, life in zip(*(each.tolist() for each in columns))]
        memories = [Memory("fast", int(rng.integers(3, 12)) * 16, 1), Memory("slow", 1 << 20, 6)]
        problems.append((added, rng.integers(1, 500, 10).tolist(), memories))
    exact = [place_in_memories(*problem).cost for problem in problems]
    monkeypatch.setattr(several_memories, "MAX_STATES", 1)
    bounded = [place_in_memories(*problem) for problem in problems]
    assert all(found.lower_bound <= cost <= found.cost for found, cost in zip(bounded, exact))
    assert any(cost < found.cost for found, cost in zip(bounded, exact))


def test_a_memory_is_too_small_only_where_the_bound_says_so() -> None:
    tight = tight_problem(60, 1)  # cut from a block of 1024 bytes
    assert several_memories._within(tight, 1024, steps=0) == (None, False)
    assert several_memories._within(tight, 1023, steps=0) == (None, True)


def test_a_buffer_that_fits_nowhere_is_named() -> None:
    memories = [Memory("SRAM", 64), Memory("PSRAM", 96)]
    with pytest.raises(ArenaError, match=r"'big' \(128 bytes\) fits none of SRAM \(64 bytes\), PSRAM \(96 bytes\)"):
        place_in_memories([Buffer(128, 0, 1, name="big")], [1], memories)
    with pytest.raises(ArenaError, match="192 bytes are alive together"):
        place_in_memories([Buffer(64, 0, 1)] * 3, [1] * 3, memories)


@pytest.mark.parametrize(
    ("memories", "reason"),
    [
        ([], "at least one memory"),
        ([("SRAM", 0)], "has 0 bytes"),
        ([("SRAM", 1 << 31)], "less than 2 GiB"),
        ([("SRAM", 64, -1)], "costs -1"),
        ([("SRAM", 64, 0)], "costs 0"),
        ([("SRAM", 64, float("nan"))], "costs nan"),
        ([("SRAM", 64, 1, 0)], "has a rate of 0"),
        ([("SRAM", 64, 1, float("inf"))], "has a rate of inf"),
        ([("SRAM", 1 << 20), ("SRAM", 64)], "two memories are called 'SRAM'"),
        (["SRAM"], "not 'SRAM'"),
    ],
)
def test_invalid_memories_are_refused(memories: list[Any], reason: str) -> None:
    with pytest.raises(ArgumentError, match=reason):
        tflm.plan(MODEL, memories=memories)


def test_a_plan_for_several_memories_refuses_what_it_cannot_do() -> None:
    with pytest.raises(ArgumentError, match="one target"):
        tflm.plan(MODEL, memories=[("A", 1 << 20)], target=[tflm.targets.HOST, tflm.targets.CORTEX_M])
    with pytest.raises(ArgumentError, match="omit planner="):
        tflm.plan(MODEL, planner="greedy", memories=[("A", 1 << 20)])
    with pytest.raises(ArgumentError, match="2022-09-19 or later"):
        tflm.plan(MODEL, memories=[("A", 1 << 20)], release="2022-09-01")
    assert tflm.plan(MODEL, memories=[("A", 1 << 20)], release="2022-09-20").proved_optimal
    with pytest.raises(ArenaError, match=r"the tail takes .* more than A has; use a larger memory"):
        tflm.plan(MODEL, memories=[("A", 16)])


def test_ctrl_c_keeps_the_best_plan_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(several_memories, "MAX_STATES", 1)

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    memories = [("fast", 7 << 10, 1), ("slow", 1 << 20, 6)]
    found = tflm.plan(MODEL, planner=OptimalPlanner(progress=interrupt), memories=memories)
    assert found.interrupted
    longer = tflm.plan(MODEL, planner=OptimalPlanner(time_limit=60), memories=memories)
    assert longer.proved_optimal
    assert longer.cost <= found.cost


@pytest.mark.parametrize("share", [0.2, 0.4, 0.6])
@pytest.mark.parametrize(
    ("options", "kernels"),
    [({"in_place": True}, "reference"), ({"overlap": True}, "reference"), ({"overlap": True}, "cmsis-nn")],
)
def test_buffers_that_share_bytes_cost_no_more_and_answer_the_same(
    share: float, options: dict[str, bool], kernels: str
) -> None:
    """The check of values that an interpreter makes knows no planner."""
    on: dict[str, Any] = {"target": "cortex-m4", "kernels": kernels}
    whole = tflm.measure_arena(MODEL, RESOLVER, **on).minimum_arena_bytes
    memories = [("fast", int(whole * share), 1), ("slow", whole, 6)]
    plain = tflm.plan(MODEL, memories=memories, views=False, **on)
    found = tflm.plan(MODEL, memories=memories, **options, **on)
    assert found.cost <= plain.cost
    others = [bytearray(each.used_bytes) for each in found.others]
    allocator = tflm.MicroAllocator(bytearray(found.arena_bytes), found.planner(), memories=others, **on)
    assert (answer(MODEL, allocator) == answer(MODEL, bytearray(1 << 20))).all()


def test_an_overlap_needs_less_of_the_fast_memory() -> None:
    assert any(_cost(size, overlap=True) < 0.9 * _cost(size, views=False) for size in range(3 << 10, 9 << 10, 512))


def _cost(fast: int, **options: bool) -> float:
    return tflm.plan(MODEL, target="cortex-m4", memories=[("fast", fast, 1), ("slow", 1 << 20, 6)], **options).cost


def test_other_kernels_refuse_buffers_that_share_bytes() -> None:
    """Overlaps that are safe with TFLM's kernels may lose values with others, whose loops differ."""
    on: dict[str, Any] = {"target": "cortex-m4"}
    sizes = [("fast", size, 1) for size in range(3 << 10, 9 << 10, 512)]
    plans = [tflm.plan(MODEL, memories=[size, ("slow", 1 << 20, 6)], overlap=True, **on) for size in sizes]
    refused = 0
    for found in plans:
        others = [bytearray(each.used_bytes) for each in found.others]
        allocator = tflm.MicroAllocator(
            bytearray(1 << 20), found.planner(), "cortex-m4", kernels="arduino", memories=others
        )
        try:
            answer(MODEL, allocator)
        except ArenaError:
            refused += 1
    assert refused


@settings(max_examples=examples(25))
@given(image_graph() | graphs(), st.sampled_from([0.15, 0.3, 0.5, 0.8]), st.booleans())
def test_no_simple_plan_of_a_random_model_costs_less(data: bytes, share: float, overlap: bool) -> None:
    model = tflm.Model(data)
    whole = tflm.measure_arena(model, RESOLVER)
    fast = whole.tail_bytes + ROOM_TO_PREPARE + int(whole.head_bytes * share)
    found = tflm.plan(model, memories=[("fast", fast, 1), ("slow", 1 << 24, 6)], overlap=overlap)
    assert found.proved_optimal
    assert all(rival is None or found.cost <= rival for rival in found.rivals.values())


ROOM_TO_PREPARE = 8 << 10
"""What TFLM takes of the arena, besides the tail, while operators prepare."""


def answer(model: tflm.Model, allocator: tflm.MicroAllocator | bytearray) -> np.ndarray[Any, Any]:
    interpreter = tflm.MicroInterpreter(model, RESOLVER, allocator)
    interpreter.allocate_tensors()
    for _ in range(2):
        x = interpreter.input(0).data
        x[...] = np.random.default_rng(7).integers(-100, 100, x.shape).astype(x.dtype)
        interpreter.invoke()
    return np.array(interpreter.output(0).data)


def test_a_memory_that_holds_the_tail_alone_holds_no_arena() -> None:
    """Operators need more of it while they prepare."""
    with pytest.raises(ArenaError, match=r"^the tail takes [\d,]+ bytes, ") as caught:
        tflm.plan(MODEL, memories=[("A", 16)])
    tail = -(-int(str(caught.value).split()[3].replace(",", "")) // 16) * 16
    with pytest.raises(ArenaError, match="fits none of A next to the tail"):
        tflm.plan(MODEL, memories=[("A", tail)])
    found = tflm.plan(MODEL, memories=[("A", tail, 1), ("B", 1 << 20, 2)])
    assert [each.has_tail for each in found.memories] == [False, True]
    assert all(each.used_bytes <= each.bytes for each in found.memories)


@pytest.mark.parametrize("share", [0.6, 0.3])
def test_an_interpreter_runs_the_plan_in_memories_of_its_own(share: float) -> None:
    whole = tflm.measure_arena(MODEL, RESOLVER).minimum_arena_bytes
    found = tflm.plan(MODEL, memories=[("fast", int(whole * share), 1), ("slow", whole, 6), ("slowest", whole, 9)])
    assert found.proved_optimal
    assert all(rival is None or found.cost <= rival for rival in found.rivals.values())
    assert sum(each.cost * each.traffic_bytes for each in found.memories) == found.cost
    total = sum(each.traffic_bytes for each in found.memories)
    assert all(moved is None or sum(moved) == total for moved in found.rival_traffic.values())
    assert found.rival_traffic["all in slowest"] == (0, 0, total)
    others = [bytearray(each.used_bytes) for each in found.others]
    allocator = tflm.MicroAllocator(bytearray(found.arena_bytes), found.planner(), memories=others)
    assert (answer(MODEL, allocator) == answer(MODEL, bytearray(whole))).all()
    assert any(map(any, others)) == any(each.used_bytes for each in found.others)
    short = [bytearray(each.used_bytes - 16) if each.used_bytes else bytearray() for each in found.others]
    with pytest.raises(ArenaExhausted, match="the buffers in"):
        answer(MODEL, tflm.MicroAllocator(bytearray(found.arena_bytes), found.planner(), memories=short))
    with pytest.raises(ArenaExhausted):
        answer(MODEL, tflm.MicroAllocator(bytearray(found.arena_bytes - 16), found.planner(), memories=others))


def test_one_memory_that_is_large_enough_has_the_offsets_of_tflm() -> None:
    measured = tflm.measure_arena(MODEL, RESOLVER)
    found = tflm.plan(MODEL, memories=[("SRAM", 1 << 20)])
    assert [spot.offset for spot in found.spots] == [buffer.offset for buffer in measured.buffers]
    assert found.arena_bytes <= measured.minimum_arena_bytes


def test_a_plan_for_something_else_is_refused() -> None:
    found = tflm.plan(MODEL, memories=[("A", 1 << 20)])
    for other in (tflm.Model.from_file(INT8_MODEL), shrinking_network(16)):
        with pytest.raises(ArenaError, match=r"run tflm\.plan again"):
            answer(other, tflm.MicroAllocator(bytearray(1 << 20), found.planner()))


def test_an_allocator_needs_the_memories_of_its_planner() -> None:
    found = tflm.plan(MODEL, memories=[("A", 20 << 10, 1), ("B", 1 << 20, 2)])
    with pytest.raises(ArgumentError, match="uses 1 memories besides the arena"):
        tflm.MicroAllocator(bytearray(1 << 20), found.planner())
    with pytest.raises(ArgumentError, match=r"\(none\), but memories= has 1"):
        tflm.MicroAllocator(bytearray(1 << 20), memories=[bytearray(16)])


def test_the_header_has_a_row_for_each_buffer(tmp_path: Path) -> None:
    found = tflm.plan(MODEL, memories=[("fast", 4 << 10, 1), ("SRAM", 20 << 10, 2), ("PS\\RAM\n", 1 << 20, 3)])
    (path,) = found.write(tmp_path / "made", "my_model")
    text = path.read_text()
    assert "class MyModelMemoryPlan : public MicroMemoryPlanner" in text
    assert f"kBuffers = {len(found.buffers)}" in text
    rows = [tuple(map(int, row.split(", "))) for row in re.findall(r"^        \{(.*)\},$", text, re.MULTILINE)]
    places = {"SRAM": 0, "fast": 1, "PS\\RAM\n": 2}  # that of the arena comes first
    assert rows == [
        (places[found.memories[spot.memory].name], spot.offset, *list(buffer)[:3])
        for spot, buffer in zip(found.spots, found.buffers)
    ]
    ends = [max((at + size for memory, at, size, *_ in rows if memory == place), default=0) for place in range(3)]
    sizes = list(map(int, re.findall(r"constexpr unsigned int kMyModel\w+Bytes = (\d+);", text)))
    assert sizes == [found.arena_bytes, *ends[1:]]
    assert f"GetMaximumMemorySize() {{ return {ends[0]}; }}" in text
    assert "//   SRAM, fast, PS_RAM_\n" in text
    without = memory_plan_header("none", [], [], ["SRAM"], [0], 0)
    assert "enum { kBuffers = 0 };" in without
    assert without.count("        {0, 0, 0, 0, 0},\n") == 1  # C++ has no empty arrays


def test_a_model_in_another_order_is_written_beside_its_header(tmp_path: Path) -> None:
    found: Any = tflm.plan(MODEL, memories=[("SRAM", 1 << 20)])
    paths = replace(found, order=object()).write(tmp_path, "net")
    assert {path.name: path.read_bytes() for path in paths} == {
        "memory_plan.h": found.header("net").encode(),
        "net.tflite": found.data,
    }


SIZES = [Memory("A", 1 << 12), Memory("B", 1 << 20, 3), Memory("C", 1 << 28, 9)]


def test_check_planner_accepts_a_planner_of_several_memories(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(several_memories, "MAX_STATES", 4)  # of the largest problems
    monkeypatch.setattr(several_memories, "MAX_EXPANSIONS", 500)
    check_planner(lambda: SeveralMemoriesPlanner(SIZES), memories=[m.bytes for m in SIZES], max_examples=examples(10))


Change = Callable[[list[Buffer], list[Spot]], list[Spot]]


def faulty(change: Change) -> Callable[[], SeveralMemoriesPlanner]:
    """A planner whose places are changed."""

    class Faulty(SeveralMemoriesPlanner):
        def _spots(self, buffers: Sequence[Buffer]) -> list[Spot]:
            return change(self._buffers, list(super()._spots(buffers)))

    return lambda: Faulty(SIZES)


def one(index: int, **changes: int) -> Change:
    """Change the place of one buffer, counted from the end where negative."""

    def change(_: list[Buffer], spots: list[Spot]) -> list[Spot]:
        if len(spots) > max(index, -index - 1):
            spots[index] = spots[index]._replace(**changes)
        return spots

    return change


def each(place: Callable[[int, Buffer, Spot], Spot]) -> Change:
    return lambda added, spots: [place(i, *both) for i, both in enumerate(zip(added, spots))]


FAULTS: list[Change] = [
    *(one(index, memory=memory) for index in (0, 1, -1) for memory in (-1, 3, 7)),
    *(one(index, offset=offset) for index in (0, 1, -1) for offset in (8, -16, 1 << 28, (1 << 12) - 8)),
    one(0, memory=0, offset=1 << 12),
    one(1, memory=1, offset=1 << 20),
    *(each(lambda i, b, s, m=m: Spot(m, 0)) for m in range(3)),  # type: ignore[misc]
    each(lambda i, b, s: Spot(0, s.offset)),
    each(lambda i, b, s: Spot(i % 2, s.offset)),
    each(lambda i, b, s: s._replace(offset=s.offset + 4)),
    each(lambda i, b, s: s._replace(offset=s.offset // 2)),
    each(lambda i, b, s: s._replace(offset=SIZES[s.memory].bytes)),
    each(lambda i, b, s: s._replace(memory=s.memory + 1)),
    each(lambda i, b, s: s._replace(memory=s.memory - 1)),
    lambda added, spots: spots[::-1],
]


@pytest.mark.usefixtures("unshrunk")
@pytest.mark.parametrize("fault", range(len(FAULTS)))
def test_check_planner_reports_planted_faults_as_recorded(fault: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(several_memories, "MAX_STATES", 4)
    with pytest.raises(CheckFailed) as found:
        check_planner(faulty(FAULTS[fault]), memories=[m.bytes for m in SIZES], max_examples=30)
    require_recorded(f"planner of memories: {fault}", str(found.value).splitlines(), CHECKS, "\n")


@pytest.mark.usefixtures("unshrunk")
def test_a_memory_that_is_missing_is_reported_as_recorded() -> None:
    class Beyond(SeveralMemoriesPlanner):
        def get_offset_for_buffer(self, index: int) -> int:
            return len(SIZES) * REGION_BYTES

    with pytest.raises(CheckFailed, match=f"is in memory {len(SIZES)}; there are {len(SIZES)}") as found:
        check_planner(lambda: Beyond(SIZES), memories=[m.bytes for m in SIZES], max_examples=10)
    require_recorded("planner of memories: missing", str(found.value).splitlines(), CHECKS, "\n")


@pytest.mark.usefixtures("unshrunk")
def test_check_planner_finds_a_wrong_size_and_a_refusal_of_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(several_memories, "MAX_STATES", 4)

    class Sum(SeveralMemoriesPlanner):
        def get_maximum_memory_size(self) -> int:
            return sum(self.used_bytes())

    class Refuses(SeveralMemoriesPlanner):
        def add_buffer(self, size: int, *arguments: int) -> None:
            if size > 64:
                raise ArenaError("too large")
            super().add_buffer(size, *arguments)

    for wrong in (Sum, Refuses):
        with pytest.raises(CheckFailed):
            check_planner(lambda wrong=wrong: wrong(SIZES), memories=[m.bytes for m in SIZES])  # type: ignore[misc]
    assert max(m.bytes for m in SIZES) < REGION_BYTES
