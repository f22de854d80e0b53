"""Parts of the planners, each compared with a plain restatement: gaps, sections, bounds, clocks, orders of equals."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_planners import Clock, problems, smallest_height, tight_problem
from test_planning import calling

import tflm
from tflm.errors import ArenaError, ModelError
from tflm.memory import BufferRequirements, SearchLimits, SearchProgress, Stopped, plan_bytes, search_plan
from tflm.memory.arena_planner import TfLiteMemoryPlanner, plan_as_tflite, set_order, unstable_sorted
from tflm.memory.lifetimes import InvocationStep, LifetimeBuilder, ScratchBufferRequest, SubgraphLifetimeBuilder
from tflm.memory.placement_search import (
    height_unit,
    minimum_height,
    new_search,
    pairs_alive_together,
    problem_of,
    with_longer_trail,
)
from tflm.memory.plan_search import (
    STRATEGIES,
    Reporter,
    Strategy,
    _Clock,
    _Engine,
    _falling_ranks,
    _weights,
)
from tflm.memory.planners import FEW, OffsetsPlanner, PlacedBuffers, place_by_breadth, place_greedily, place_in_best_fit
from tflm.targets import align_up
from tflm.testing.planner_check import LATE_STEPS

STEPS = range(LATE_STEPS + 1)
"""All steps at which a drawn buffer may be alive."""

sizes, steps = st.integers(0, 6), st.integers(0, 40)


@st.composite
def placed_buffers(draw: Any) -> list[tuple[BufferRequirements, int]]:
    """Buffers at places of which some are shared."""
    found = []
    for _ in range(draw(st.integers(0, 12))):
        first, last = sorted((draw(steps), draw(steps)))
        found.append((BufferRequirements(draw(sizes), first, last), draw(st.integers(0, 20))))
    return found


@pytest.mark.parametrize("few", [0, FEW])
@given(placed=placed_buffers(), size=sizes, life=st.tuples(steps, steps).map(sorted), at=st.integers(0, 20))
def test_gaps_and_obstacles_are_those_that_a_look_at_every_byte_finds(
    few: int, placed: list[tuple[BufferRequirements, int]], size: int, life: list[int], at: int
) -> None:
    wanted = BufferRequirements(size, *life)
    buffers = PlacedBuffers(len(placed))
    for buffer, offset in placed:
        buffers.add(buffer, offset)
    alive = [(buffer.size, offset) for buffer, offset in placed if buffer.overlaps_in_time(wanted)]
    in_the_way = [
        i
        for i, (buffer, offset) in enumerate(placed)
        if buffer.overlaps_in_time(wanted) and offset < at + size and at < offset + buffer.size
    ]
    assert sorted(buffers.in_the_way(wanted, at).tolist()) == in_the_way
    # A gap ends where a buffer begins, and begins at the highest end of those below.
    gaps, floor = [], 0
    for begin, length in sorted((offset, length) for length, offset in alive):
        gaps.append((begin - floor, floor))
        floor = max(floor, begin + length)
    fitting = [gap for gap in gaps if gap[0] >= size]
    with mock.patch("tflm.memory.planners.FEW", few):
        assert buffers.lowest_gap(wanted) == min((begin for _, begin in fitting), default=floor)
        assert buffers.tightest_gap(wanted) == (min(fitting)[1] if fitting else floor)


def test_a_buffer_of_one_step_does_not_meet_its_neighbours() -> None:
    buffers = PlacedBuffers(2)
    buffers.add(BufferRequirements(4, 0, 3), 0)
    buffers.add(BufferRequirements(4, 5, 9), 0)
    for step, offset in ((3, 4), (4, 0), (5, 4)):
        assert buffers.lowest_gap(BufferRequirements(4, step, step)) == offset
        assert buffers.in_the_way(BufferRequirements(4, step, step), 0).size == (offset > 0)


def filled(buffers: Sequence[BufferRequirements]) -> list[BufferRequirements]:
    return [buffer for buffer in buffers if buffer.size] or [BufferRequirements(16, 0, 0)]


def lists(values: Any, starts: Any) -> list[list[int]]:
    return [values[a:b].tolist() for a, b in itertools.pairwise(starts)]


def sharing(buffers: Sequence[BufferRequirements]) -> list[bool]:
    """Return which buffers are fixed to bytes of another one that is alive with them."""
    found = []
    for i, one in enumerate(buffers):
        others = [other for j, other in enumerate(buffers) if j != i and other.overlaps_in_time(one)]
        found.append(
            one.offline_offset != -1
            and any(
                other.offline_offset != -1
                and other.offline_offset < one.offline_offset + one.size
                and one.offline_offset < other.offline_offset + other.size
                for other in others
            )
        )
    return found


@given(problems(fixed=True).map(filled))
def test_a_problem_says_who_is_alive_with_whom(buffers: list[BufferRequirements]) -> None:
    problem = problem_of(buffers)
    count = range(len(buffers))
    fixed = [buffer.offline_offset != -1 for buffer in buffers]
    together = {(i, j) for i in count for j in count if i != j and buffers[i].overlaps_in_time(buffers[j])}
    neighbours = [[j for j in count if (i, j) in together and not (fixed[i] and fixed[j])] for i in count]
    assert lists(problem.neighbours, problem.neighbours_from) == neighbours
    assert pairs_alive_together(buffers) == len(together)
    assert problem.size.tolist() == [buffer.size for buffer in buffers]
    assert problem.fixed.tolist() == [buffer.offline_offset for buffer in buffers]
    shares = sharing(buffers)
    assert problem.counted.tolist() == [0 if shared else buffer.size for buffer, shared in zip(buffers, shares)]
    members = lists(problem.members, problem.members_from)
    assert members == [[b for b in count if problem.first[b] <= s < problem.end[b]] for s in range(len(members))]
    # Sections are those sets of buffers alive at a step that are not a part of another one, in the order of time.
    alive = [{i for i, b in enumerate(buffers) if b.first_time_used <= step <= b.last_time_used} for step in STEPS]
    largest = [group for group in alive if group and not any(group < other for other in alive)]
    assert [set(of) for of in members] == [group for group, _ in itertools.groupby(largest)]


@given(problems(fixed=True).map(filled))
def test_no_placement_is_lower_than_what_is_alive_nor_than_what_is_fixed(buffers: list[BufferRequirements]) -> None:
    alone = [buffer for buffer, shared in zip(buffers, sharing(buffers)) if not shared]
    most = max(sum(b.size for b in alone if b.first_time_used <= step <= b.last_time_used) for step in STEPS)
    ends = [buffer.offline_offset + buffer.size for buffer in buffers if buffer.offline_offset != -1]
    assert minimum_height(buffers) == max(most, *ends, 0)


@pytest.mark.parametrize(
    ("sizes", "fixed", "unit"),
    [
        ((32, 48), (-1, -1), 16),
        ((32, 64), (-1, -1), 32),
        ((32, 64), (-1, 48), 16),
        ((32, 64), (0, 1), 1),
        ((7,), (0,), 7),
    ],
)
def test_heights_are_multiples_of_what_sizes_and_offsets_are(
    sizes: Sequence[int], fixed: Sequence[int], unit: int
) -> None:
    assert height_unit(problem_of([BufferRequirements(n, 0, 1, at) for n, at in zip(sizes, fixed)])) == unit


def test_of_equal_gaps_the_lowest_is_taken_and_of_equal_buffers_the_earlier() -> None:
    held = [BufferRequirements(8, 0, 9), BufferRequirements(4, 0, 3), BufferRequirements(4, 5, 9)]
    assert place_in_best_fit(held) == [0, 8, 8]
    equals = [BufferRequirements(4, 2, 3), BufferRequirements(4, 1, 2), BufferRequirements(2, 0, 0)]
    assert place_in_best_fit(equals) == [4, 0, 0]
    assert place_greedily([BufferRequirements(4, 0, 1), BufferRequirements(4, 1, 2)]) == [4, 0]
    walls = [BufferRequirements(8, 0, 9, offset) for offset in (0, 12, 24)]
    assert place_in_best_fit([*walls, BufferRequirements(4, 1, 2)])[3] == 8


@given(problems(), st.randoms())
def test_the_best_fit_does_not_depend_on_the_order_of_buffers(buffers: list[BufferRequirements], random: Any) -> None:
    """Of different sizes or first uses; one that is alive at each step, which come first as they are, is among them."""
    throughout = BufferRequirements(4, 0, max((buffer.last_use for buffer in buffers), default=0))
    others = {(b.size, b.first_use): b for b in buffers if b.first_use and not b.is_placed}
    different = [throughout, *others.values()]
    shuffled = random.sample(range(len(different)), len(different))
    offsets = place_in_best_fit([different[i] for i in shuffled])
    assert [offsets[shuffled.index(i)] for i in range(len(different))] == place_in_best_fit(different)


@given(problems())
def test_by_breadth_the_fullest_step_is_placed_first(buffers: list[BufferRequirements]) -> None:
    def alive(step: int) -> list[int]:
        return [i for i, b in enumerate(buffers) if b.first_time_used <= step <= b.last_time_used]

    steps = sorted(STEPS, key=lambda step: -sum(buffers[i].size for i in alive(step)))
    order = list(dict.fromkeys(i for step in steps for i in sorted(alive(step), key=lambda i: -buffers[i].size)))
    placed = PlacedBuffers(len(buffers))
    offsets = [0] * len(buffers)
    for i in order:
        offsets[i] = placed.tightest_gap(buffers[i])
        placed.add(buffers[i], offsets[i])
    assert place_by_breadth(buffers) == offsets


def test_nothing_takes_no_room() -> None:
    for place in (place_greedily, place_in_best_fit, place_by_breadth):
        assert place([]) == []
    assert plan_bytes([], []) == 0
    found = search_plan([], SearchLimits())
    assert (found.offsets, found.head_bytes, found.lower_bound_bytes, found.steps) == ([], 0, 0, 0)
    assert found.stopped is Stopped.PROVED_OPTIMAL


# The search.


@given(problems(largest_count=5, fixed=True).map(filled), st.integers(0, 40))
def test_bounds_hold_wherever_a_search_is_cut_short(buffers: list[BufferRequirements], limit: int) -> None:
    smallest = smallest_height(buffers)
    found = search_plan(buffers, SearchLimits(seconds=None, steps=limit))
    assert found.lower_bound_bytes <= smallest <= found.head_bytes == plan_bytes(buffers, found.offsets)
    assert (found.stopped is Stopped.PROVED_OPTIMAL) == (found.head_bytes == found.lower_bound_bytes)
    assert found.stopped is not Stopped.STEP_LIMIT or found.steps >= limit


def gapped_problem() -> list[BufferRequirements]:
    """A fixed buffer leaves 16 bytes below it that no other one fits into, so that 112 bytes are needed, not 96."""
    table = [(16, 0, 3, 16), (32, 0, 1), (48, 2, 3), (32, 1, 2)]
    return [BufferRequirements(*row) for row in table]


def engine_of(buffers: Sequence[BufferRequirements], limits: SearchLimits | None = None) -> _Engine:
    lifetimes = np.array([b.last_time_used + 1 - b.first_time_used for b in buffers], np.int64)
    return _Engine(problem_of(buffers), lifetimes, _Clock(limits or SearchLimits(seconds=None)))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("large_below", [False, True])
def test_each_way_of_searching_finds_what_fits_and_proves_what_does_not(strategy: Strategy, large_below: bool) -> None:
    buffers = gapped_problem()
    height = smallest_height(buffers)
    assert (minimum_height(buffers), height) == (96, 112)
    engine: Any = engine_of(buffers)
    assert engine.search(height - engine.unit, strategy, 10**6, large_below) is None
    assert engine.exhausted
    found = engine.search(height, strategy, 10**6, large_below)
    assert found is not None
    assert plan_bytes(buffers, found) == height
    assert not engine.exhausted
    assert engine.search(height, strategy, 2, large_below) is None
    assert not engine.exhausted


@pytest.mark.parametrize("place", [0, 1, 3])
def test_buffers_of_equal_lifetimes_lie_in_any_order_beside_a_fixed_one(place: int) -> None:
    for sizes in (*itertools.product((1, 2), repeat=2), *itertools.product((1, 2), repeat=3)):
        buffers = [BufferRequirements(size, 0, 1, -1 if i else place) for i, size in enumerate(sizes)]
        height, engine = smallest_height(buffers), engine_of(buffers)
        for strategy, large_below in itertools.product(STRATEGIES, (False, True)):
            found = engine.search(height, strategy, 10**6, large_below)
            assert found is not None
            assert (found[0], plan_bytes(buffers, found)) == (place, height)
            held = [byte for size, at in zip(sizes, found) for byte in range(at, at + size)]
            assert len(held) == len(set(held))
            assert engine.search(height - 1, strategy, 10**6, large_below) is None


def test_a_longer_trail_keeps_what_is_on_it() -> None:
    search = new_search(problem_of(gapped_problem()))
    search.trail[:], search.trail_old[:] = np.arange(len(search.trail)), -np.arange(len(search.trail))
    longer = with_longer_trail(search)
    for before, after in ((search.trail, longer.trail), (search.trail_old, longer.trail_old)):
        assert after[: len(before)].tolist() == before.tolist()
        assert len(after) - longer.room == len(before) - search.room > 0
    assert longer._replace(room=search.room, trail=search.trail, trail_old=search.trail_old) == search


def digest(values: Iterable[int]) -> int:
    """A number that hardly any other sequence has."""
    found = 0
    for value in values:
        found = (found * 1_000_003 + value) % 2_147_483_647
    return found


def test_a_search_too_large_for_memory_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    buffers = tight_problem(60, 1)
    pairs = pairs_alive_together(buffers)
    for limit, reason in ((pairs, Stopped.STEP_LIMIT), (pairs - 1, Stopped.TOO_LARGE)):
        monkeypatch.setattr("tflm.memory.plan_search.LARGEST_NUMBER_OF_PAIRS", limit)
        assert search_plan(buffers, SearchLimits(seconds=None, steps=3)).stopped is reason


def test_a_capacity_ends_the_search_at_the_first_plan_within(monkeypatch: pytest.MonkeyPatch) -> None:
    buffers = tight_problem(60, 1)
    start = search_plan(buffers, SearchLimits(seconds=None, steps=0)).head_bytes
    for capacity in (start, start + 1, start - 16):
        found = search_plan(buffers, SearchLimits(seconds=None, steps=50_000, capacity=capacity))
        assert found.stopped is Stopped.CAPACITY_REACHED
        assert found.head_bytes <= capacity
        assert (found.steps > 0) == (capacity < start)


def test_limits_are_reached_when_they_are_met(monkeypatch: pytest.MonkeyPatch) -> None:
    time = Clock(0.0)
    monkeypatch.setattr("tflm.memory.plan_search.time", time)
    clock = _Clock(SearchLimits(seconds=2.0, steps=5))
    assert clock.limit_reached() is None
    assert clock.steps_left() == 5
    clock.steps = 4
    assert (clock.limit_reached(), clock.steps_left()) == (None, 1)
    clock.steps = 5
    assert clock.limit_reached() is Stopped.STEP_LIMIT
    assert not clock.has_time_for(0)
    clock.steps, time.now = 0, 1.5
    assert (clock.seconds(), clock.has_time_for(0.25), clock.has_time_for(0.5)) == (1.5, True, False)
    with clock.paused():
        time.now += 10
    assert clock.seconds() == 1.5
    time.now += 0.5
    assert clock.limit_reached() is Stopped.TIME_LIMIT
    free = _Clock(SearchLimits(seconds=None))
    time.now += 1e9
    assert (free.limit_reached(), free.has_time_for(1e9)) == (None, True)
    assert free.steps_left() >= 1 << 31


def test_reports_come_twice_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    time = Clock(0.0)
    monkeypatch.setattr("tflm.memory.plan_search.time", time)
    reporter = Reporter(told.append, "ordering")
    for now in (0.25, 0.5, 0.75, 1.0, 1.25, 1.75):
        time.now = now
        reporter.report(now, 1, 2, 3)
    assert told == [SearchProgress(now, 1, 2, 3, "ordering") for now in (0.5, 1.0, 1.75)]
    Reporter(None).report(0, 0, 0, 0)


def test_the_clock_is_looked_at_neither_too_often_nor_too_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    buffers = gapped_problem()
    engine = engine_of(buffers)
    time = Clock(0.0)
    monkeypatch.setattr("tflm.memory.plan_search.time", time)
    chunks = []
    for seconds in (0.0, 0.005, 0.02, 0.04, 0.05, 0.05, 0.05):
        engine._run_kernel = lambda took=seconds, **_: setattr(time, "now", time.now + took)  # type: ignore[assignment,misc,return-value]
        engine._run(None, 0)  # type: ignore[arg-type]
        chunks.append(engine._chunk)
    assert chunks == [2, 4, 4, 4, 2, 1, 1]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=8))
def test_ranks_fall_with_the_keys_and_equals_keep_their_order(keys: list[tuple[int, int]]) -> None:
    first, second = np.array(keys, np.int64).T
    ranks = _falling_ranks(first, second)
    order = sorted(range(len(keys)), key=lambda i: (-keys[i][0], -keys[i][1]))
    assert sorted(range(len(keys)), key=lambda i: -ranks[i]) == order
    assert sorted(ranks) == list(range(1, len(keys) + 1))


def test_weights_go_by_lifetime_or_by_area() -> None:
    buffers = [BufferRequirements(48, 0, 1), BufferRequirements(16, 0, 2), BufferRequirements(32, 1, 3)]
    weights = _weights(problem_of(buffers), np.array([2, 3, 3], np.int64))
    assert {name: np.argsort(-weight).tolist() for name, weight in weights.items()} == {
        "lifetime": [2, 1, 0],
        "area": [2, 0, 1],
    }


# The order of equal elements with g++ 14, for the sequence of `numbers`.


def numbers() -> Callable[[int], int]:
    """The random numbers of a plain linear congruence, below a limit."""
    state = 1

    def below(limit: int) -> int:
        nonlocal state
        state = (state * 1103515245 + 12345) % (1 << 32)
        return (state >> 16) % limit

    return below


def test_equals_are_in_the_order_of_libstdcxx() -> None:
    below = numbers()
    for count, expected in ((5, 845466455), (20, 464945917), (40, 126697486), (150, 738030617)):
        assert digest(set_order([below(3 * count) for _ in range(count)])) == expected
    for count, expected in ((16, 477032317), (17, 1550952590), (40, 1748195995), (300, 78774069)):
        keys = [below(count // 4) for _ in range(count)]
        assert digest(unstable_sorted(range(count), lambda a, b, keys=keys: keys[a] < keys[b])) == expected


# Lifetimes.


def node(
    inputs: Sequence[int], outputs: Sequence[int], called: Sequence[int] = (), intermediates: Sequence[int] = ()
) -> Any:
    return SimpleNamespace(
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        intermediates=tuple(intermediates),
        called_subgraphs=tuple(called),
    )


def graph_of(subgraphs: Sequence[tuple[int, Sequence[int], Sequence[int]]], variables: Sequence[int] = ()) -> Any:
    """A model of which only inputs, outputs and the number of tensors are known."""
    return SimpleNamespace(
        subgraphs=[
            SimpleNamespace(
                tensors=[SimpleNamespace(is_variable=i in variables) for i in range(count)],
                inputs=tuple(inputs),
                outputs=tuple(outputs),
            )
            for count, inputs, outputs in subgraphs
        ]
    )


def tensors(*byte_lengths: int) -> list[Any]:
    return [SimpleNamespace(byte_length=size, data=None, name="", type=None, dims=(size,)) for size in byte_lengths]


def test_a_tensor_that_two_operators_write_lives_from_the_first_on() -> None:
    model = graph_of([(3, [0], [2])])
    nodes = [[node([0], [1]), node([0], [1]), node([1], [2])]]
    builder = LifetimeBuilder(model, nodes, [tensors(1, 1, 1)], [frozenset()], [], None)
    builder.build()
    assert builder.lifetimes() == [(0, 2), (1, 3), (3, 3)]


@pytest.mark.parametrize(("size", "offset", "in_the_way"), [(4, 4, False), (5, 4, True), (4, 12, False), (4, 11, True)])
def test_buffers_beside_each_other_are_not_in_the_way(size: int, offset: int, in_the_way: bool) -> None:
    placed = PlacedBuffers(1)
    placed.add(BufferRequirements(4, 0, 1), 8)
    assert list(placed.in_the_way(BufferRequirements(size, 1, 2), offset)) == [0] * in_the_way


def test_steps_go_through_what_is_called() -> None:
    model = graph_of([(4, [0], [3]), (3, [0], [2])])
    nodes = [[node([0, -1], [1]), node([1], [2], [1]), node([2], [3])], [node([0], [1]), node([1], [2])]]
    requests = [ScratchBufferRequest(8, 1, 1), ScratchBufferRequest(4, 0, 1)]
    builder = LifetimeBuilder(
        model, nodes, [tensors(1, 2, 3, 0), tensors(4, 5, 6)], [frozenset(), frozenset({1})], requests, None
    )
    buffers = builder.build()
    assert [(buffer.size, buffer.tensor) for buffer in buffers] == [
        *((1, 0), (2, 1), (3, 2), (4, 4), (6, 6)),
        *((8, None), (4, None)),
    ]
    lives = [(0, 1), (1, 5), (2, 6), (6, 6), (3, 4), (4, 5), (5, 5), (5, 5), (2, 5)]
    assert builder.lifetimes() == lives
    assert [(b.first_use, b.last_use) for b in buffers] == [life for i, life in enumerate(lives) if i not in (3, 5)]
    places = [(0, None), (0, 0), (0, 1), (1, None), (1, 0), (1, 1), (0, 2)]
    assert builder.steps == [InvocationStep(*place) for place in places]


@pytest.mark.parametrize("sizes", [(0, 0), (4, 0), (0, 4)])
def test_intermediate_tensors_of_every_subgraph_are_empty(sizes: tuple[int, int]) -> None:
    model, operators = graph_of([(3, [0], [2])] * 2), [node([0], [2], intermediates=[1])]
    placed = [tensors(4, size, 4) for size in sizes]
    refusal = pytest.raises(ModelError, match="tensor 1 has a size") if any(sizes) else nullcontext()
    with refusal as error:
        LifetimeBuilder(model, [operators] * 2, placed, [frozenset()] * 2, [], None)
    assert error is None or error.value.place == f"subgraphs[{sizes.index(4)}].operators[0]"


@pytest.mark.parametrize(("offset", "placed"), [(-1, False), (0, True), (32, True)])
def test_a_variable_is_placed_only_where_a_plan_says_so(offset: int, placed: bool) -> None:
    model = graph_of([(2, [0], [0])], variables=[1])
    builder = LifetimeBuilder(model, [[]], [tensors(4, 4)], [frozenset()], [], [16, offset])
    assert [(buffer.tensor, buffer.offset) for buffer in builder.build()] == [(0, 16), (1, offset)][: 1 + placed]


def test_a_subgraph_of_its_own_has_steps_of_its_own() -> None:
    model = graph_of([(3, [0], [2])])
    nodes = [(node([0], [1]), None), (node([1], [2]), None)]
    requests = [ScratchBufferRequest(8, 0, 0), ScratchBufferRequest(8, 1, 2)]
    builder = SubgraphLifetimeBuilder(model, 0, nodes, tensors(4, 4, 4), requests, [0, -1, 16])
    lives = [(b.first_use, b.last_use, b.offset) for b in builder.build(unread_outputs_fail=False)]
    assert lives == [(0, 1, 0), (1, 2, -1), (2, 2, 16), (1, 1, -1), (3, 3, -1)]


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize(
    ("nodes", "missing", "always"),
    [
        ([node([0], [1]), node([1], [2])], "", False),
        ([node([0], [1]), node([0], [2])], "tensor 1 .*nothing reads", False),
        ([node([0], [2])], "tensor 1 .*nothing makes or reads", True),
    ],
)
def test_releases_that_plan_subgraphs_alone_refuse_tensors_without_uses(
    nodes: list[Any], missing: str, always: bool, fails: bool
) -> None:
    pairs = [(each, None) for each in nodes]
    builder = SubgraphLifetimeBuilder(graph_of([(3, [0], [2])]), 0, pairs, tensors(4, 4, 4), [], None)
    if always or (missing and fails):
        with pytest.raises(ArenaError, match=missing):
            builder.build(unread_outputs_fail=fails)
    else:
        assert len(builder.build(unread_outputs_fail=fails)) == 3


# LiteRT's places.


def test_subgraphs_lie_one_behind_the_other() -> None:
    model = calling()
    arenas = [
        align_up(max((p.offset + p.bytes for p in places.values()), default=0), 64)
        for index in range(len(model.subgraphs))
        for plan in [plan_as_tflite(model, index)]
        for places in (plan.arena, plan.persistent_arena)
    ]
    interpreter = tflm.MicroInterpreter(model, tflm.AllOpsResolver(), bytearray(1 << 14), planner="tflite")
    interpreter.allocate_tensors()
    measured = tflm.measure_arena(model, tflm.AllOpsResolver(), planner="tflite")
    ends = [buffer.offset + buffer.bytes for buffer in measured.buffers]
    assert sum(arenas) - 64 < max(ends) <= sum(arenas)
    starts = [sum(arenas[:i]) for i in (0, 2, 4)]
    assert set(starts) <= {buffer.offset for buffer in measured.buffers}


def test_offsets_of_numpy_are_integers() -> None:
    planner = OffsetsPlanner(np.array([32, 0]))  # type: ignore[arg-type]
    planner.init(0)
    for _ in range(2):
        planner.add_buffer(16, 0, 1)
    offsets = [planner.get_offset_for_buffer(i) for i in range(2)]
    assert json.dumps(offsets) == "[32, 0]"
    assert planner.get_maximum_memory_size() == 48


def test_a_plan_of_another_number_of_buffers_is_refused() -> None:
    planner = TfLiteMemoryPlanner()
    planner.init(0)
    planner.add_buffer(16, 0, 1)
    with pytest.raises(ArenaError, match="the plan has 0 offsets, the model needs 1 buffers"):
        planner.get_maximum_memory_size()
