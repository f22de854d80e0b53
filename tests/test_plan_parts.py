"""The small parts of model plans, each against a plain restatement."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tflm.kernels.overlap import FAR
from tflm.memory import BufferRequirements
from tflm.planning.bars import BodyMember, Trailing, _outside, _pieces_of, barred_pairs, bars_of
from tflm.planning.head_plan import _in_one_place, _largest_blocks, _scratch_blocks
from tflm.planning.plan_report import _moved
from tflm.planning.views import Body, Piece, _cut, _Held, merged

lives = st.tuples(st.integers(0, 4), st.integers(0, 4)).map(sorted)


@given(st.lists(st.tuples(st.integers(1, 4), lives), min_size=1, max_size=5))
def test_two_bodies_bar_each_other_where_their_bytes_would_meet(entries: list[tuple[int, Any]]) -> None:
    bodies = [Body({}, size, (Piece(0, size, *life),)) for size, life in entries]
    body, other, low, high = barred_pairs(bodies, bodies, own=0)
    found = {(a, b): (lo, hi) for a, b, lo, hi in zip(*(c.tolist() for c in (body, other, low, high)))}
    for i, (size, (first, last)) in enumerate(entries):
        for j, (length, (begin, end)) in enumerate(entries):
            together = i != j and first <= end and begin <= last
            assert found.get((i, j)) == ((1 - size, length - 1) if together else None)
    bars = bars_of([size for size, _ in entries], [(body, other, low, high)])
    assert bars.size.tolist() == [size for size, _ in entries]
    for i in range(len(entries)):
        assert sorted(bars.other[bars.start[i] : bars.start[i + 1]].tolist()) == sorted(b for a, b in found if a == i)


def test_an_output_may_trail_the_input_that_it_replaces() -> None:
    bodies = [Body({0: 0}, 16, (Piece(0, 16, 0, 1),)), Body({1: 0}, 8, (Piece(0, 8, 1, 2),))]
    trailing = [Trailing(1, BodyMember(0, 0, 16), BodyMember(1, 0, 8), (range(3, FAR),))]
    body, other, low, high = (c.tolist() for c in barred_pairs(bodies, bodies, own=0, trailing=trailing))
    found = {(a, b): (lo, hi) for a, b, lo, hi in zip(body, other, low, high)}
    assert found == {(1, 0): (-2, 15), (0, 1): (-15, 2)}


distances = st.builds(range, st.integers(-12, 12), st.integers(-12, 12), st.integers(1, 4)).filter(len)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 2), st.lists(distances, min_size=1, max_size=3))
def test_an_output_may_lie_at_any_allowed_distance(read: int, made: int, offset: int, allowed: list[range]) -> None:
    bodies = [Body({0: 0}, 8, (Piece(offset, offset + read, 0, 1),)), Body({1: 0}, 8, (Piece(0, made, 1, 2),))]
    trailing = [Trailing(1, BodyMember(0, offset, read), BodyMember(1, 0, made), tuple(allowed))]
    pairs = barred_pairs(bodies, bodies, own=0, trailing=trailing)
    bars = bars_of([8, 8], [pairs])
    for difference in range(-16, 17):  # of the offset of the output from that of the input
        meet = max(offset, difference) < min(offset + read, difference + made)
        is_allowed = any(offset - difference in of for of in allowed)
        for body, sign in ((1, 1), (0, -1)):
            of = range(bars.start[body], bars.start[body + 1])
            is_barred = any(bars.low[i] <= sign * difference <= bars.high[i] for i in of)
            assert is_barred == (meet and not is_allowed)


def test_numbers_outside_of_ranges_are_intervals_without_gaps() -> None:
    bounds = range(-3, 4)
    ranges = [range(first, stop, step) for first in bounds for stop in bounds for step in (1, 2, 3) if first < stop]
    for free, low, high in itertools.product(ranges, bounds, bounds):
        intervals = _outside([free], low, high)
        outside = [number for first, last in intervals for number in range(first, last + 1)]
        assert outside == [number for number in range(low, high + 1) if number not in free]
        both = _outside([free, range(0, 9, 4)], low, high)
        assert [n for first, last in both for n in range(first, last + 1)] == [n for n in outside if n % 4 or n < 0]
        assert all(first <= last for first, last in (*intervals, *both))


def test_pieces_are_of_a_tensor_where_they_lie_within_it() -> None:
    pieces = np.array([(4, 8, 0, 0), (3, 8, 0, 0), (4, 9, 0, 0), (5, 7, 0, 0), (4, 8, 0, 0)])
    body = np.array([1, 1, 1, 1, 0])
    assert _pieces_of(BodyMember(1, 4, 4), body, pieces).tolist() == [True, False, False, True, False]


def test_neighbouring_pieces_of_one_life_are_one() -> None:
    pieces = [Piece(4, 8, 0, 1), Piece(0, 4, 0, 1), Piece(9, 10, 0, 1), Piece(10, 12, 0, 2), Piece(12, 13, 1, 2)]
    assert merged(pieces) == [Piece(0, 8, 0, 1), *pieces[2:]]
    assert merged([]) == []


def test_a_cut_has_the_values_of_its_bytes() -> None:
    values = [_Held(0, 4, 7, 0), _Held(4, 4, 8, 2)]
    assert _cut(values, 2, 4) == [_Held(0, 2, 7, 2), _Held(2, 2, 8, 2)]
    assert _cut(values, 4, 4) == [_Held(0, 4, 8, 2)]


def test_scratch_of_an_operator_is_one_block_and_the_largest_machine_counts() -> None:
    one = _scratch_blocks([BufferRequirements(16, 1, 1), BufferRequirements(32, 1, 1), BufferRequirements(8, 2, 2)])
    assert one == [BufferRequirements(48, 1, 1), BufferRequirements(8, 2, 2)]
    other = [BufferRequirements(64, 1, 1), BufferRequirements(4, 2, 2)]
    assert _largest_blocks([one, other]) == [BufferRequirements(64, 1, 1), BufferRequirements(8, 2, 2)]
    chain = [BufferRequirements(16, 2, 3), BufferRequirements(16, 0, 2), BufferRequirements(16, 3, 5)]
    assert _in_one_place(chain) == BufferRequirements(16, 0, 5)


def test_a_report_says_which_way_a_figure_moved() -> None:
    assert _moved("head", 16, 16) == "the head stays at 16 bytes"
    assert _moved("head", 2016, 16) == "the head shrinks by 2,000 bytes"
    assert _moved("head", 16, 20) == "the head grows by 4 bytes"
