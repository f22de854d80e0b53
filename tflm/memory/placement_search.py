"""Depth-first search for a placement of buffers within a capacity.

The search builds placements from the bottom up. Every placement can be pressed down until each buffer lies on offset 0
or on another buffer, and such a placement is built by taking its buffers by rising offset; so only those are searched.
At each node the buffer with the lowest *support* (the top of what lies below it so far) is either placed there, or
*held*: it will lie higher, on a buffer that is not placed yet. The ideas of bounds by section of time, of canonical
placements and of splitting the problem where no open buffer crosses are those of M. Moffitt, "MiniMalloc: A Lightweight
Memory Allocator for Hardware-Accelerated Machine Learning" (ASPLOS 2023). Here a held buffer carries what its being
held implies: it must lie on a neighbour that gets in its way, so the lowest top of such neighbours bounds its offset,
and where no neighbour can get in its way the node fails.

The search itself is a kernel (see `tflm.compiler.language`): functions over flat arrays and integers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tflm.compiler.language import inlined, kernel
from tflm.memory.buffer import ONLINE_PLANNED_BUFFER, Buffer, Floats, Integers, lower_bound_bytes, table_of


class Problem(NamedTuple):
    """Buffers, and the sections of time that they are alive in.

    Only sections are kept whose buffers are not all alive in another one, too.

    Attributes:
        size: bytes of each buffer, above 0.
        counted: the same, or 0 for a buffer that shares memory with another by their fixed offsets.
        fixed: its required offset, or -1.
        first, end: each buffer is alive in the sections from `first` to `end` - 1.
        neighbours, neighbours_from: the buffers alive at a common time with buffer b, from `neighbours_from[b]` to
            `neighbours_from[b + 1]`. Two buffers that are both fixed are not neighbours.
        members, members_from: likewise the buffers alive in a section.
    """

    size: Integers
    counted: Integers
    fixed: Integers
    first: Integers
    end: Integers
    neighbours: Integers
    neighbours_from: Integers
    members: Integers
    members_from: Integers


def problem_of(buffers: Sequence[Buffer]) -> Problem:
    """The problem of placing buffers. No buffer is empty, and none ends before it begins."""
    table = table_of(buffers)
    size, fixed = table[:, 0].copy(), table[:, 3].copy()
    first, end = _sections(table[:, 1], table[:, 2])
    is_fixed = fixed != ONLINE_PLANNED_BUFFER
    neighbours = []
    for i in range(len(size)):
        others = (first < end[i]) & (first[i] < end)
        others[i] = False
        if is_fixed[i]:
            others &= ~is_fixed
        neighbours.append(np.flatnonzero(others))
    members = [np.flatnonzero((first <= section) & (section < end)) for section in range(int(end.max()))]
    counted = np.where(_share_memory(buffers), 0, size)
    return Problem(size, counted, fixed, first, end, *_flat(neighbours), *_flat(members))


def minimum_height(buffers: Sequence[Buffer]) -> int:
    """A lower bound of any placement: bytes alive at once, and the ends of fixed buffers."""
    alone = [buffer for buffer, shares in zip(buffers, _share_memory(buffers)) if not shares]
    ends = [buffer.offset + buffer.size for buffer in buffers if buffer.is_placed]
    return max(lower_bound_bytes(alone), *ends, 0)


def height_unit(problem: Problem) -> int:
    """A common divisor of the heights of all placements that cannot be compacted."""
    return math.gcd(*problem.size.tolist(), *(offset for offset in problem.fixed.tolist() if offset > 0))


def pairs_alive_together(buffers: Sequence[Buffer]) -> int:
    """The number of pairs of buffers that are alive at a common step, each counted twice."""
    table = table_of(buffers)
    first, last = np.sort(table[:, 1]), np.sort(table[:, 2])
    begun = first.searchsorted(table[:, 2], side="right")
    over = last.searchsorted(table[:, 1], side="left")
    return int((begun - over - 1).sum(dtype=np.int64))


def _share_memory(buffers: Sequence[Buffer]) -> list[bool]:
    """Return which buffers are fixed to bytes in which another simultaneously alive buffer is fixed, too."""
    fixed = [buffer for buffer in buffers if buffer.is_placed]
    table = table_of(fixed)
    first, last, begin, end = table[:, 1], table[:, 2], table[:, 3], table[:, 3] + table[:, 0]

    def shares(size: int, first_step: int, last_step: int, offset: int) -> bool:
        together = (first <= last_step) & (first_step <= last) & (begin < offset + size) & (offset < end)
        return bool(np.count_nonzero(together) > 1)

    return [buffer.is_placed and shares(*buffer) for buffer in buffers]


def _sections(first_step: Integers, last_step: Integers) -> tuple[Integers, Integers]:
    """Return the first section of each buffer, and the one after its last.

    A section is a step at which some buffer is alive for the first time and, before another one is, some buffer for
    the last time.
    """
    firsts = np.unique(first_step)
    firsts_so_far = np.searchsorted(firsts, np.unique(last_step), side="right").astype(np.int64)
    steps = firsts[np.unique(firsts_so_far) - 1]
    return np.searchsorted(steps, first_step, side="left"), np.searchsorted(steps, last_step, side="right")


def _flat(lists: Sequence[Integers]) -> tuple[Integers, Integers]:
    """Concatenate lists; returns the array and the start of each."""
    starts = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(entries) for entries in lists], out=starts[1:])
    return np.concatenate([*lists, np.zeros(0, np.int64)]), starts


UNFINISHED, FOUND, INFEASIBLE, TRAIL_IS_FULL = 0, 1, 2, 3
"""Results of `run`."""

PLACED = -1
"""The lowest offset of a buffer that is placed already."""

NO_FRAME = -1
FAR = 1 << 62


class Search(NamedTuple):
    """The state of a search. A frame is the state after a placement; frame 0 is the empty placement.

    Attributes:
        buffers, sections: how many the problem has.
        room: the length of the trail up to which there is room for another step.
        state: `support`, `minimum`, `urgency`, `unplaced` and `top`, one behind the other.
        support: the top of what lies below a buffer; its offset, once it is placed.
        minimum: the lowest offset that a buffer may still have, more than its support where it is held, and -1 once it
            is placed.
        urgency: bytes of the section that is the fullest of those that a buffer is alive in.
        unplaced: bytes of the buffers of a section that are yet to be placed.
        top: the top of those of a section that are.
        trail, trail_old: positions of the state that were changed, and what they held, for going back.
        stamp: at which step a position was last put on the trail.
        order: a permutation of the buffers in which those that a frame has to place are one segment.
        low, high: the segment of each frame, from `low` to `high` - 1.
        tried: the buffer whose placement led from a frame to the next.
        back_to: the frame at which to try something else when a frame fails. It is an earlier one than the frame
            before where others solved an independent part in between.
        mark: length of the trail when a frame began.
        waiting: the first of the parts that are to be solved after the one of this frame, or -1.
        used_parts: number of entries in the lists of parts that this frame and those below it made.
        part_low, part_high, part_back_to, part_next: low, high, back_to, and next part of each independent part of
            the problem.
        weight: which of the buffers with the same support to place first: the one with the most.
        blame: how often each buffer had a share in a failure.
        reach: a number for each section, while parts are told from each other.
        counts, sorted_order: likewise two for each buffer.
        progress: the frame, the number of steps since the start, the length of the trail.
    """

    buffers: int
    sections: int
    room: int
    state: Integers
    support: Integers
    minimum: Integers
    urgency: Integers
    unplaced: Integers
    top: Integers
    trail: Integers
    trail_old: Integers
    stamp: Integers
    order: Integers
    low: Integers
    high: Integers
    tried: Integers
    back_to: Integers
    mark: Integers
    waiting: Integers
    used_parts: Integers
    part_low: Integers
    part_high: Integers
    part_back_to: Integers
    part_next: Integers
    weight: Floats
    blame: Floats
    reach: Integers
    counts: Integers
    sorted_order: Integers
    progress: Integers


class Rules(NamedTuple):
    """The rules of a search.

    Attributes:
        capacity: most bytes of the placement.
        by_urgency: whether the tightest section decides, before the weight, between buffers with the same support.
            It is recomputed when the problem is divided.
        large_below: whether the larger of two adjacent buffers with the same lifetime must be the lower one. This
            loses no solution, since they can be swapped; searches end sooner when there
            is no placement, and may end later when there is.
    """

    capacity: int
    by_urgency: bool
    large_below: bool


def new_search(problem: Problem) -> Search:
    """Memory for searches of a problem."""
    buffers, sections = len(problem.size), len(problem.members_from) - 1

    def integers(count: int) -> Integers:
        return np.zeros(count, np.int64)

    frames, parts = buffers + 1, 2 * sections + 2
    state = integers(3 * buffers + 2 * sections)
    support, minimum, urgency = state[: 3 * buffers].reshape(3, buffers)
    unplaced, top = state[3 * buffers :].reshape(2, sections)
    return Search(
        buffers=buffers,
        sections=sections,
        room=7 * len(state),
        state=state,
        support=support,
        minimum=minimum,
        urgency=urgency,
        unplaced=unplaced,
        top=top,
        trail=integers(8 * len(state)),
        trail_old=integers(8 * len(state)),
        stamp=integers(len(state)),
        order=integers(buffers),
        low=integers(frames),
        high=integers(frames),
        tried=integers(frames),
        back_to=integers(frames),
        mark=integers(frames),
        waiting=integers(frames),
        used_parts=integers(frames),
        part_low=integers(parts),
        part_high=integers(parts),
        part_back_to=integers(parts),
        part_next=integers(parts),
        weight=np.zeros(buffers, np.float64),
        blame=np.zeros(buffers, np.float64),
        reach=integers(sections),
        counts=integers(frames),
        sorted_order=integers(buffers),
        progress=integers(3),
    )


def with_longer_trail(search: Search) -> Search:
    """The same search with twice the room on its trail."""
    return search._replace(
        room=search.room + len(search.trail),
        trail=np.concatenate([search.trail, search.trail]),
        trail_old=np.concatenate([search.trail_old, search.trail_old]),
    )


def start(problem: Problem, search: Search) -> None:
    """Restart the search at the root, with no buffer placed."""
    search.state[:] = 0
    search.support[:] = search.minimum[:] = np.maximum(problem.fixed, 0)
    first_members = problem.members_from[:-1].astype(np.intp)  # reduceat refuses 64-bit indices on a 32-bit machine
    search.unplaced[:] = np.add.reduceat(problem.counted[problem.members], first_members, dtype=np.int64)
    search.order[:] = np.arange(len(search.order), dtype=np.int64)
    search.blame[:] = 0
    search.stamp[:] = -1
    search.progress[:] = NO_FRAME, 0, 0
    search.low[0], search.high[0] = 0, len(problem.size)
    search.back_to[0] = search.waiting[0] = NO_FRAME
    search.mark[0] = search.used_parts[0] = 0


@kernel
def run(problem: Problem, search: Search, rules: Rules, step_limit: int) -> int:
    """Search until a placement is found (in `support`), none exists, or `step_limit` steps were made.

    A step places or holds a buffer.
    """
    k = search.progress[0]
    if k == NO_FRAME:
        k = 0
        _rate_urgency(problem, search, rules, 0, search.buffers)
        _divide(problem, search, rules, 0, NO_FRAME)
    while True:
        if search.progress[1] >= step_limit:
            search.progress[0] = k
            return UNFINISHED
        if search.progress[2] > search.room:
            search.progress[0] = k
            return TRAIL_IS_FULL
        b = _next_buffer(problem, search, rules, k)
        fits = False
        if b >= 0:
            search.progress[1] += 1
            search.tried[k] = b
            search.mark[k + 1] = search.progress[2]
            fits = _place(problem, search, rules, k, b)
        if fits:
            k += 1
            if not _divide(problem, search, rules, k, k - 1):
                search.progress[0] = k
                return FOUND
            continue
        back = k if b >= 0 else search.back_to[k]
        while True:
            if back == NO_FRAME:
                return INFEASIBLE
            k = back
            _go_back(search, k)
            search.progress[1] += 1
            if _hold(problem, search, rules, k, search.tried[k]):
                break
            back = search.back_to[k]


@inlined
def _set(search: Search, position: int, value: int) -> None:
    if search.stamp[position] != search.progress[1]:
        search.stamp[position] = search.progress[1]
        entry = search.progress[2]
        search.trail[entry] = position
        search.trail_old[entry] = search.state[position]
        search.progress[2] += 1
    search.state[position] = value


@inlined
def _go_back(search: Search, k: int) -> None:
    """Undo everything since frame `k` was left."""
    for entry in range(search.progress[2] - 1, search.mark[k + 1] - 1, -1):
        search.state[search.trail[entry]] = search.trail_old[entry]
    search.progress[2] = search.mark[k + 1]


@inlined
def _next_buffer(problem: Problem, search: Search, rules: Rules, k: int) -> int:
    """Return the buffer with the lowest support among those that may be placed on it; -1 if there is none."""
    support, minimum, urgency = search.support, search.minimum, search.urgency
    best = -1
    for i in range(search.low[k], search.high[k]):
        b = search.order[i]
        if minimum[b] != support[b]:
            continue
        if best >= 0:
            if support[b] != support[best]:
                if support[b] > support[best]:
                    continue
            elif urgency[b] != urgency[best]:
                if urgency[b] < urgency[best]:
                    continue
            elif search.weight[b] <= search.weight[best]:
                continue
        best = b
    return best


@inlined
def _place(problem: Problem, search: Search, rules: Rules, k: int, b: int) -> bool:
    """Place a buffer on its support, which leads to frame `k` + 1; False if that cannot be completed."""
    n, m = search.buffers, search.sections
    support, minimum, unplaced, top = search.support, search.minimum, search.unplaced, search.top
    height = support[b] + problem.size[b]
    if height > rules.capacity:
        return False
    _set(search, n + b, PLACED)
    for section in range(problem.first[b], problem.end[b]):
        _set(search, 3 * n + section, unplaced[section] - problem.counted[b])
        if height > top[section]:
            _set(search, 3 * n + m + section, height)
    low, high = problem.first[b], problem.end[b]
    for i in range(problem.neighbours_from[b], problem.neighbours_from[b + 1]):
        other = problem.neighbours[i]
        if minimum[other] == PLACED or support[other] >= height:
            continue
        if problem.fixed[other] >= 0 or height + problem.size[other] > rules.capacity:
            search.blame[other] += 1
            return False
        _set(search, other, height)
        if minimum[other] < height:
            _set(search, n + other, height + _is_wrong_way_round(problem, rules, b, other))
        low = min(low, problem.first[other])
        high = max(high, problem.end[other])
    return _deduce(problem, search, rules, k, low, high)


@inlined
def _is_wrong_way_round(problem: Problem, rules: Rules, below: int, above: int) -> bool:
    """Whether two buffers are to be stacked only the other way round."""
    return (
        rules.large_below
        and problem.size[above] > problem.size[below]
        and problem.first[above] == problem.first[below]
        and problem.end[above] == problem.end[below]
        and problem.fixed[below] < 0
    )


@inlined
def _hold(problem: Problem, search: Search, rules: Rules, k: int, b: int) -> bool:
    """Hold a buffer: assume that it, and all equal ones, lie above their support; False if impossible."""
    n = search.buffers
    support, minimum = search.support, search.minimum
    _set(search, n + b, support[b] + 1)
    for i in range(search.low[k], search.high[k]):
        other = search.order[i]
        if (
            problem.size[other] == problem.size[b]
            and problem.first[other] == problem.first[b]
            and problem.end[other] == problem.end[b]
            and support[other] == support[b]
            and minimum[other] == support[b]
            and problem.fixed[other] < 0
        ):
            _set(search, n + other, support[other] + 1)
    return _deduce(problem, search, rules, k, problem.first[b], problem.end[b])


@inlined
def _deduce(problem: Problem, search: Search, rules: Rules, k: int, low: int, high: int) -> bool:
    """Raise the least offsets of held buffers as far as follows; False if a buffer no longer fits.

    Frame `k` determines the affected buffers. The sections from `low` to `high` have changed.
    """
    n = search.buffers
    support, minimum = search.support, search.minimum
    changed = True
    while changed:
        changed = False
        for i in range(search.low[k], search.high[k]):
            b = search.order[i]
            if minimum[b] == support[b] or minimum[b] == PLACED:
                continue
            offset = _lowest_perch(problem, minimum, b, support[b] + problem.size[b])
            if problem.fixed[b] >= 0 or offset + problem.size[b] > rules.capacity:
                search.blame[b] += 1
                return False
            if offset <= minimum[b]:
                continue
            _set(search, n + b, offset)
            low = min(low, problem.first[b])
            high = max(high, problem.end[b])
            changed = True
    return _sections_fit(problem, search, rules, low, high)


@inlined
def _lowest_perch(problem: Problem, minimum: Integers, b: int, height: int) -> int:
    """The lowest top that a neighbour can have which begins below `height`, and so keeps a held buffer off its support.

    Without such a neighbour the buffer could be pressed down, and the placement is not one that is searched.
    """
    perch = FAR
    for i in range(problem.neighbours_from[b], problem.neighbours_from[b + 1]):
        other = problem.neighbours[i]
        if minimum[other] != PLACED and minimum[other] < height:
            perch = min(perch, minimum[other] + problem.size[other])
    return perch


@inlined
def _sections_fit(problem: Problem, search: Search, rules: Rules, low: int, high: int) -> bool:
    """Whether the unplaced buffers of each section would fit above its floor if they were fluid."""
    minimum, unplaced, top = search.minimum, search.unplaced, search.top
    for section in range(low, high):
        if unplaced[section] == 0:
            continue
        floor = FAR
        for i in range(problem.members_from[section], problem.members_from[section + 1]):
            offset = minimum[problem.members[i]]
            if offset != PLACED and offset < floor:
                floor = offset
        if max(floor, top[section]) + unplaced[section] > rules.capacity:
            for i in range(problem.members_from[section], problem.members_from[section + 1]):
                if minimum[problem.members[i]] != PLACED:
                    search.blame[problem.members[i]] += 1
            return False
    return True


@inlined
def _divide(problem: Problem, search: Search, rules: Rules, k: int, before: int) -> bool:
    """Assign a new frame its part of the problem; False if everything is solved.

    The buffers of the frame before that are still unplaced may fall apart into parts without a common section. Each
    is solved on its own, and when one can't be, that is because of the last placement: no other part is to blame.
    """
    if before != NO_FRAME:
        search.low[k], search.high[k] = search.low[before], _drop(search, before)
        search.back_to[k], search.waiting[k] = before, search.waiting[before]
        search.used_parts[k] = search.used_parts[before]
    found = _separate(problem, search, k, before)
    if found == 1:
        return True
    for i in range(search.used_parts[k] - found, search.used_parts[k]):
        _rate_urgency(problem, search, rules, search.part_low[i], search.part_high[i])
    part = search.waiting[k]
    if part < 0:
        return False
    search.low[k], search.high[k] = search.part_low[part], search.part_high[part]
    search.back_to[k], search.waiting[k] = search.part_back_to[part], search.part_next[part]
    return True


@inlined
def _drop(search: Search, before: int) -> int:
    """Move the buffer that was placed in a frame to the end of its segment; returns the end without it."""
    end: int = search.high[before] - 1
    for i in range(search.low[before], end):
        if search.order[i] == search.tried[before]:
            search.order[i] = search.order[end]
            search.order[end] = search.tried[before]
            break
    return end


@inlined
def _separate(problem: Problem, search: Search, k: int, before: int) -> int:
    """Sort the segment of a frame by parts, and record them if there are several; returns their number."""
    low, high = search.low[k], search.high[k]
    reach, counts, sorted_order = search.reach, search.counts, search.sorted_order
    first, last = search.sections, 0
    for i in range(low, high):
        first = min(first, problem.first[search.order[i]])
        last = max(last, problem.end[search.order[i]])
    for section in range(first, last):
        reach[section] = 0
    for i in range(low, high):
        b = search.order[i]
        reach[problem.first[b]] = max(reach[problem.first[b]], problem.end[b])
    found = 0
    end = 0
    for section in range(first, last):
        if reach[section] > 0 and section >= end:
            found += 1
        end = max(end, reach[section])
        reach[section] = found  # from here on: the number of the part
    if found <= 1:
        return found
    for part in range(found + 1):
        counts[part] = 0
    for i in range(low, high):
        counts[reach[problem.first[search.order[i]]]] += 1
    for part in range(1, found + 1):
        counts[part] += counts[part - 1]
    for part in range(found):
        entry = search.used_parts[k]
        search.part_low[entry] = low + counts[part]
        search.part_high[entry] = low + counts[part + 1]
        search.part_back_to[entry] = before
        search.part_next[entry] = search.waiting[k]
        search.waiting[k] = entry
        search.used_parts[k] += 1
    for i in range(low, high):
        part = reach[problem.first[search.order[i]]] - 1
        sorted_order[counts[part]] = search.order[i]
        counts[part] += 1
    for i in range(low, high):
        search.order[i] = sorted_order[i - low]
    return found


@inlined
def _rate_urgency(problem: Problem, search: Search, rules: Rules, low: int, high: int) -> None:
    if not rules.by_urgency:
        return
    n = search.buffers
    unplaced = search.unplaced
    for i in range(low, high):
        b = search.order[i]
        fullest = 0
        for section in range(problem.first[b], problem.end[b]):
            fullest = max(fullest, unplaced[section])
        _set(search, 2 * n + b, fullest)
