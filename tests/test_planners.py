"""The planners: plans that hold, none better than the best there is, and files of them."""

from __future__ import annotations

import bisect
import itertools
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tflm
from tflm.compiler.calls import is_available
from tflm.memory import (
    PLANNERS,
    Buffer,
    BufferRequirements,
    GreedyMemoryPlanner,
    OptimalPlanner,
    SearchLimits,
    SearchProgress,
    Stopped,
    lower_bound_bytes,
    plan_bytes,
    search_plan,
)
from tflm.memory.planners import place_greedily
from tflm.planning.bars import BodyPlacement
from tflm.planning.head_plan import TimeBudget
from tflm.planning.minimalloc_csv import read_csv, write_csv
from tflm.planning.views import Body, Piece, peak_alive
from tflm.testing import buffers, graphs

needs_compiler = pytest.mark.skipif(not is_available(), reason="needs numba (the extra `fast`)")
OBEDIENT = sorted(set(PLANNERS) - {"linear"})
"""The planners that obey offline offsets."""


def problems(largest_count: int = 12, fixed: bool = False) -> st.SearchStrategy[list[Buffer]]:
    """Few enough buffers for a search through all orders."""
    return buffers(min_count=1, max_count=largest_count, fixed=fixed, max_size=112, unused=False)


def random_graph(count: int, seed: int = 0) -> list[BufferRequirements]:
    """Buffers as a large network has them: most are used soon, some much later."""
    rng = np.random.default_rng(seed)
    sizes = 16 * rng.integers(1, 5000, count)
    lifetimes = np.where(rng.random(count) < 0.8, rng.integers(1, 6, count), rng.integers(6, 100, count))
    return [
        BufferRequirements(int(size), i // 2, i // 2 + int(life))
        for i, (size, life) in enumerate(zip(sizes, lifetimes))
    ]


def plan(name: str, buffers: Sequence[BufferRequirements]) -> list[int]:
    """Return a planner's offsets."""
    planner = PLANNERS[name]()
    for buffer in buffers:
        planner.add_buffer(*buffer)
    return [planner.get_offset_for_buffer(i) for i in range(len(buffers))]


def assert_holds(buffers: Sequence[BufferRequirements], offsets: Sequence[int]) -> None:
    """Fixed offsets are kept, and no two buffers alive together share memory, unless their fixed offsets make them."""
    table, begin = np.array([tuple(buffer) for buffer in buffers]), np.array(offsets)
    is_fixed = table[:, 3] != -1
    assert np.array_equal(begin[is_fixed], table[is_fixed, 3])
    end = begin + table[:, 0]
    for i, (size, first, last, _) in enumerate(buffers):
        together = (table[:, 1] <= last) & (table[:, 2] >= first) & (begin < end[i]) & (end > begin[i])
        together &= (table[:, 0] > 0) & ~(is_fixed & is_fixed[i])
        together[i] = False
        assert size == 0 or not together.any()


@given(problem=problems())
def test_no_planner_beats_the_lower_bound_nor_the_optimal_one(problem: list[BufferRequirements]) -> None:
    heights = {name: plan_bytes(problem, plan(name, problem)) for name in PLANNERS}
    assert lower_bound_bytes(problem) <= heights["optimal"] == min(heights.values())


def smallest_height(buffers: Sequence[BufferRequirements]) -> int:
    """The best of all orders in which buffers can be put, one by one, into the lowest gap."""
    best = sum(buffer.size for buffer in buffers) + max((buffer.offline_offset for buffer in buffers), default=0) + 1

    def put(placed: list[tuple[int, BufferRequirements]], rest: list[BufferRequirements], height: int) -> None:
        nonlocal best
        if height >= best:
            return
        if not rest:
            best = height
        for i, buffer in enumerate(rest):
            at = 0
            for offset, other in sorted(placed, key=lambda entry: entry[0]):
                if other.overlaps_in_time(buffer) and offset + other.size > at:
                    if offset - at >= buffer.size:
                        break
                    at = offset + other.size
            put([*placed, (at, buffer)], rest[:i] + rest[i + 1 :], max(height, at + buffer.size))

    fixed = [(buffer.offline_offset, buffer) for buffer in buffers if buffer.offline_offset != -1]
    put(fixed, [b for b in buffers if b.offline_offset == -1], max((at + b.size for at, b in fixed), default=0))
    return best


@given(problem=problems(largest_count=7))
def test_the_optimal_plan_is_as_small_as_the_best_of_all_orders(problem: list[BufferRequirements]) -> None:
    problem = [buffer for buffer in problem if buffer.size]
    found = search_plan(problem, SearchLimits())
    assert found.stopped is Stopped.PROVED_OPTIMAL
    assert found.head_bytes == found.lower_bound_bytes == smallest_height(problem)


@given(problem=problems(largest_count=7, fixed=True))
def test_it_is_so_around_fixed_buffers_too(problem: list[BufferRequirements]) -> None:
    problem = [buffer for buffer in problem if buffer.size]
    found = search_plan(problem, SearchLimits())
    assert found.stopped is Stopped.PROVED_OPTIMAL
    assert found.head_bytes == found.lower_bound_bytes == smallest_height(problem)


def tight_problem(count: int, seed: int) -> list[BufferRequirements]:
    """A block of memory and time cut into buffers, so that the smallest plan leaves no gap at all."""
    rng = np.random.default_rng(seed)
    pieces = [(0, 40, 0, 64)]  # first step, end, offset, top in units of 16 bytes
    while len(pieces) < count:
        first, end, low, high = pieces.pop(int(rng.integers(len(pieces))))
        if rng.random() < 0.5 and end - first > 1:
            cut = int(rng.integers(first + 1, end))
            pieces += [(first, cut, low, high), (cut, end, low, high)]
        elif high - low > 1:
            cut = int(rng.integers(low + 1, high))
            pieces += [(first, end, low, cut), (first, end, cut, high)]
        else:
            pieces.append((first, end, low, high))
    return [BufferRequirements(16 * (high - low), first, end - 1) for first, end, low, high in pieces]


@pytest.mark.parametrize("seed", range(5))
def test_equal_limits_on_steps_give_equal_plans(seed: int) -> None:
    buffers = tight_problem(60, seed)
    for steps in (1, 100, 700):
        first, second = (search_plan(buffers, SearchLimits(seconds=None, steps=steps)) for _ in range(2))
        assert first == second
        assert_holds(buffers, first.offsets)


IN_PLAIN_PYTHON = """
import json, sys
sys.modules["numba"] = None
from tflm.memory import BufferRequirements, SearchLimits, search_plan
from tflm.memory.planners import place_greedily
from tflm.compiler.calls import is_available
from tflm.planning.bars import BodyPlacement
assert not is_available()
problems = json.load(sys.stdin)
plans = [search_plan([BufferRequirements(*b) for b in p], SearchLimits(seconds=None, steps=400)) for p in problems]
json.dump([(plan.offsets, plan.steps, plan.lower_bound_bytes) for plan in plans], sys.stdout)
"""


@needs_compiler
def test_plans_are_the_same_without_a_compiler() -> None:
    problems = [tight_problem(count, seed) for count in (20, 60) for seed in range(5)]
    rows = json.dumps([[tuple(buffer) for buffer in buffers] for buffers in problems])
    run = subprocess.run(
        [sys.executable, "-c", IN_PLAIN_PYTHON], input=rows, text=True, capture_output=True, check=True
    )
    plans = [search_plan(buffers, SearchLimits(seconds=None, steps=400)) for buffers in problems]
    assert json.loads(run.stdout) == [[plan.offsets, plan.steps, plan.lower_bound_bytes] for plan in plans]
    assert sum(plan.steps for plan in plans) > 0


@needs_compiler
def test_the_hard_problems_of_minimalloc_are_solved(corpus: Path) -> None:
    files = sorted((corpus / "minimalloc").glob("*.csv"))
    assert len(files) == 11
    for file in files:
        buffers = read_csv(file.read_text())
        found = search_plan(buffers, SearchLimits(seconds=None, steps=2_000_000, capacity=1048576))
        assert found.head_bytes <= 1048576
        assert_holds(buffers, found.offsets)


def test_a_search_says_why_it_ended() -> None:
    buffers = tight_problem(60, 1)
    best = lower_bound_bytes(buffers)
    start = min(plan_bytes(buffers, plan(name, buffers)) for name in ("greedy", "best_fit", "breadth"))
    assert start > best
    for limits, reason in (
        (SearchLimits(seconds=None, steps=0), Stopped.STEP_LIMIT),
        (SearchLimits(seconds=0), Stopped.TIME_LIMIT),
        (SearchLimits(capacity=start), Stopped.CAPACITY_REACHED),
        (SearchLimits(), Stopped.PROVED_OPTIMAL),
    ):
        planner = OptimalPlanner(time_limit=limits.seconds, step_limit=limits.steps, capacity=limits.capacity)
        assert not planner.proved_optimal
        for buffer in buffers:
            planner.add_buffer(*buffer)
        assert planner.get_maximum_memory_size() <= start
        assert planner.searched is not None
        assert planner.searched.stopped is reason
        assert planner.proved_optimal == (reason is Stopped.PROVED_OPTIMAL)
    assert planner.get_maximum_memory_size() == best


def test_a_search_reports_its_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tflm.memory.plan_search.SECONDS_BETWEEN_REPORTS", 0)
    reports: list[SearchProgress] = []
    found = search_plan(tight_problem(200, 5), SearchLimits(seconds=None, steps=5000, progress=reports.append))
    assert len(reports) > 2
    assert reports[0].head_bytes > reports[-1].head_bytes
    assert {report.stage for report in reports} == {"searching"}
    for earlier, later in itertools.pairwise(reports):
        assert earlier.steps <= later.steps
        assert earlier.seconds <= later.seconds
        assert earlier.head_bytes >= later.head_bytes
        assert earlier.lower_bound_bytes <= later.lower_bound_bytes
    assert 0 < reports[-1].steps <= found.steps
    assert found.lower_bound_bytes <= found.head_bytes <= reports[-1].head_bytes
    assert reports[-1].lower_bound_bytes <= found.lower_bound_bytes


class Clock:
    """A substitute for the module `time`: its clock advances by this many seconds whenever it is read."""

    def __init__(self, step: float):
        self.now, self.step = 0.0, step

    def monotonic(self) -> float:
        self.now += self.step
        return self.now


@needs_compiler
@pytest.mark.parametrize("seconds", [0.05, 0.4])
def test_a_search_uses_the_time_that_it_is_given_and_no_more(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    clock = Clock(0.001)
    monkeypatch.setattr("tflm.memory.plan_search.time", clock)
    found = search_plan(tight_problem(250, 4), SearchLimits(seconds=seconds))
    assert found.stopped is Stopped.TIME_LIMIT
    assert found.steps > 0
    # What is compiled or read on the way is not counted: a few readings of the clock.
    assert seconds <= clock.now < seconds + 0.02


@pytest.mark.parametrize(("seconds", "left"), [(3.0, True), (2.0, False), (1.5, False), (None, True)])
def test_a_second_heuristic_is_tried_only_where_there_is_time_for_it(
    monkeypatch: pytest.MonkeyPatch, seconds: float | None, left: bool
) -> None:
    """Greedy's plan takes half a second here; another may take twice as long."""
    clock, tried = Clock(0.0), []

    def timed(buffers: Sequence[BufferRequirements]) -> list[int]:
        clock.now += 0.5
        return place_greedily(buffers)

    def counted(buffers: Sequence[BufferRequirements]) -> list[int]:
        tried.append(clock.now)
        clock.now += 1.0
        return place_greedily(buffers)

    monkeypatch.setattr("tflm.memory.plan_search.time", clock)
    monkeypatch.setattr("tflm.memory.plan_search.place_greedily", timed)
    monkeypatch.setattr("tflm.memory.plan_search.place_in_best_fit", counted)
    monkeypatch.setattr("tflm.memory.plan_search.place_by_breadth", counted)
    buffers = [BufferRequirements(16, 0, 1), BufferRequirements(32, 1, 2)]
    found = search_plan(buffers, SearchLimits(seconds=seconds))
    assert found.stopped is Stopped.PROVED_OPTIMAL
    assert tried == ([0.5, 1.5] if left else [0.5] if seconds == 2.0 else [])


def test_stages_share_what_is_left_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(0.0)
    monkeypatch.setattr("tflm.planning.head_plan.time", clock)
    planner = OptimalPlanner(time_limit=12)
    budget = TimeBudget(planner, stages=3)
    assert budget.share() == 4
    clock.now = 1.0
    with budget.next_stage():
        assert planner.time_limit == 5.5
        clock.now = 2.0
    assert planner.time_limit == 12
    assert budget.share() == 10
    clock.now = 20.0
    assert TimeBudget(planner, stages=2).share() == 6
    late = TimeBudget(planner, stages=2)
    clock.now = 40.0
    assert late.share() == 0
    assert TimeBudget(OptimalPlanner(time_limit=None), stages=2).share() is None
    assert TimeBudget(GreedyMemoryPlanner(), stages=2).share() is None


def test_a_search_for_places_of_bodies_uses_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    bodies = []
    for _ in range(24):
        size, first = 16 * int(rng.integers(1, 40)), int(rng.integers(0, 20))
        bodies.append(Body({}, size, (Piece(0, size, first, first + int(rng.integers(0, 8))),)))
    heights = []
    for seconds in (0.0, 5.0, 40.0):
        clock = Clock(0.01)
        monkeypatch.setattr("tflm.planning.bars.time", clock)
        offsets = BodyPlacement(bodies).search(16, seconds, rounds=100_000)  # no placement reaches it
        heights.append(max(offset + body.bytes for offset, body in zip(offsets, bodies)))
        assert seconds <= clock.now < seconds + 0.2
        for (a, one), (b, other) in itertools.combinations(zip(offsets, bodies), 2):
            (piece,), (later,) = one.pieces, other.pieces
            together = piece.first <= later.last and later.first <= piece.last
            assert not together or a + one.bytes <= b or b + other.bytes <= a
    assert heights == sorted(heights, reverse=True)
    assert heights[-1] >= peak_alive(bodies)


def place_greedily_plainly(buffers: Sequence[BufferRequirements]) -> list[int]:
    """Place buffers greedily, one after the other."""
    placed: list[tuple[int, int, int, int]] = []  # offset, end, first and last step
    offsets = {}
    for i in sorted(range(len(buffers)), key=lambda i: (-buffers[i].size, -i)):
        size, begin, end, _ = buffers[i]
        at = 0
        for offset, top, first, last in placed:
            if first <= end and last >= begin:
                if offset - at >= size:
                    break
                at = max(at, top)
        offsets[i] = at
        bisect.insort(placed, (at, at + size, begin, end))
    return [offsets[i] for i in range(len(buffers))]


@pytest.mark.parametrize(("count", "seed"), [(1000, 0), (1000, 1), pytest.param(10_000, 0, marks=pytest.mark.long)])
def test_greedy_plans_many_buffers_as_it_would_one_by_one(count: int, seed: int) -> None:
    buffers = random_graph(count, seed)
    assert plan("greedy", buffers) == place_greedily_plainly(buffers)


def test_ten_thousand_buffers_can_be_planned() -> None:
    buffers = random_graph(10_000)
    greedy = plan("greedy", buffers)
    assert_holds(buffers, greedy)
    found = search_plan(buffers, SearchLimits(seconds=1))
    assert_holds(buffers, found.offsets)
    assert lower_bound_bytes(buffers) <= found.lower_bound_bytes <= found.head_bytes <= plan_bytes(buffers, greedy)


@given(model=graphs(), name=st.sampled_from(sorted(PLANNERS)), seed=st.integers(0, 99))
def test_a_model_gives_the_same_with_every_planner(model: bytes, name: str, seed: int) -> None:
    outputs = []
    for planner in (name, "linear"):
        interpreter = tflm.MicroInterpreter(
            tflm.Model(model), tflm.AllOpsResolver(), bytearray(1 << 16), planner=planner
        )
        interpreter.allocate_tensors()
        x = interpreter.input(0).data
        x[...] = np.random.default_rng(seed).integers(-5, 5, x.shape).astype(x.dtype)
        interpreter.invoke()
        outputs.append([interpreter.output(i).data.copy() for i in range(interpreter.outputs_size())])
    for mine, other in zip(*outputs):
        assert np.array_equal(mine, other)


def test_planners_that_no_device_has_reserve_what_greedy_does() -> None:
    assert {PLANNERS[name].STRUCT for name in OBEDIENT} == {GreedyMemoryPlanner.STRUCT}


# Files.

identifiers = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)


@given(st.lists(st.tuples(identifiers, problems(1, fixed=True)), max_size=8, unique_by=lambda entry: entry[0]))
def test_files_of_buffers_go_round(entries: list[tuple[str, list[BufferRequirements]]]) -> None:
    named = [replace(added[0], name=name) for name, added in entries]
    assert read_csv(write_csv(named)) == named


def test_a_plan_goes_round_in_a_file() -> None:
    text = "id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,4\n"
    named = read_csv(text)
    assert write_csv(named) == text
    offsets = plan("optimal", named)
    again = read_csv(write_csv([replace(buffer, offset=offset) for buffer, offset in zip(named, offsets)]))
    assert [buffer.offline_offset for buffer in again] == offsets
    assert plan("greedy", again) == offsets


def test_columns_may_be_in_any_order_and_lines_end_as_on_any_system() -> None:
    for end in ("\n", "\r\n", "\r"):
        rows = ["size, offset,id,upper,lower", "16,-1,x,4,2", ""]
        assert read_csv(end.join(rows)) == [BufferRequirements(16, 2, 3, name="x")]


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("", 1, "column 'id' is missing"),
        ("id,lower,upper\n", 1, "column 'size' is missing"),
        ("id,lower,upper,size,colour\n", 1, "unknown column 'colour'"),
        ("id,lower,upper,size,size\n", 1, "duplicate column 'size'"),
        ("id,lower,upper,size\na,0,1,16\n\nb,0,1\n", 4, "expected 4 values, found 3"),
        ("id,lower,upper,size\na,0,1,x\n", 2, "size is 'x'"),
        ("id,lower,upper,size\na,0,1,16\nb,2,2,16\n", 3, "upper is 2, must be greater than lower, 2"),
        ("id,lower,upper,size\na,0,1,-16\n", 2, "size is -16"),
        ("id,lower,upper,size\na,0,1,999999999999999999999\n", 2, "at most"),
        ("id,lower,upper,size,offset\na,0,1,16,-2\n", 2, "offset is -2"),
        ("id,lower,upper,size\na,0,1,16\na,0,1,16\n", 3, "duplicate id 'a', first used on line 2"),
        ('id,lower,upper,size\n"a,0,1,16\n', 2, "invalid CSV"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_line(text: str, line: int, reason: str) -> None:
    with pytest.raises(tflm.PlanFileError, match=reason) as error:
        read_csv(text)
    assert error.value.line == line
