"""Checks that a memory planner's plans are valid."""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from numbers import Integral
from random import Random
from typing import NamedTuple

from hypothesis import strategies as st

from tflm.errors import ArenaError, CheckFailed
from tflm.memory.arena import ARENA_ALIGNMENT
from tflm.memory.buffer import ONLINE_PLANNED_BUFFER, UNUSED, Buffer, Place
from tflm.memory.planner import MemoryPlanner, limited_search, preserves_all_tensors
from tflm.memory.several_memories import REGION_BYTES
from tflm.targets import align_up
from tflm.testing.counterexample import EXAMPLES, aligned_table, check_examples, one_removed

SMALL_UNITS, LARGE_UNITS = 7, 1 << 17
"""Largest sizes, in units of the alignment: small ones, which are often equal, and up to 2 MiB."""

STEPS, LATE_STEPS = 6, 100


def _lifetimes(unused: bool) -> st.SearchStrategy[tuple[int, int]]:
    step = st.integers(0, STEPS)
    late = st.integers(0, LATE_STEPS)
    pairs = st.one_of(st.tuples(step, step), st.tuples(step, step), st.tuples(late, late))
    lifetimes = st.one_of(pairs, pairs, pairs, st.just((UNUSED, UNUSED))) if unused else pairs
    return lifetimes.map(lambda pair: (min(pair), max(pair)))


def _sizes(alignment: int, max_size: int | None) -> st.SearchStrategy[int]:
    largest = LARGE_UNITS if max_size is None else max_size // alignment
    small = st.integers(0, min(SMALL_UNITS, largest))
    return st.one_of(small, small, small, st.integers(0, largest)).map(lambda units: units * alignment)


def buffers(
    *,
    min_count: int = 0,
    max_count: int = 24,
    fixed: bool = False,
    alignment: int = ARENA_ALIGNMENT,
    max_size: int | None = None,
    unused: bool = True,
) -> st.SearchStrategy[list[Buffer]]:
    """Lists of buffers for a planner: many equal sizes, short lifetimes that often touch, some unused.

    Args:
        min_count, max_count: of buffers.
        fixed: whether some buffers have an offline offset, which may overlap that of another one.
        alignment: of sizes and offsets, in bytes.
        max_size: largest size in bytes, None for 2^17 times the alignment.
        unused: whether some buffers are used at no step.
    """
    online = st.just(ONLINE_PLANNED_BUFFER)
    offsets = st.one_of(online, online, st.integers(0, 12).map(lambda units: units * alignment)) if fixed else online
    buffer = st.builds(
        lambda size, life, offset: Buffer(size, life[0], life[1], offset),
        _sizes(alignment, max_size),
        _lifetimes(unused),
        offsets,
    )
    return st.lists(buffer, min_size=min_count, max_size=max_count)


WORKING_BYTES = 1 << 20


class _Problem(NamedTuple):
    """The calls of one example.

    Attributes:
        earlier: buffers that were planned before the last `init`.
        buffers: the buffers to place.
        planned_after: how many of them are added when the plan is asked for the first time.
        working_bytes: argument of `init`.
        offsets_first: whether the offsets are asked for before the size of the plan.
    """

    earlier: list[Buffer]
    buffers: list[Buffer]
    planned_after: int
    working_bytes: int = WORKING_BYTES
    offsets_first: bool = False


_buffers = functools.cache(buffers)


@st.composite
def _problems(draw: st.DrawFn, fixed: bool, alignment: int) -> _Problem:
    added = draw(_buffers(fixed=fixed, alignment=alignment))
    count = len(added)
    lengths = draw(st.sampled_from([(0, 0), (0, 5), (count, count)]))
    earlier = draw(_buffers(min_count=lengths[0], max_count=lengths[1], alignment=alignment))
    planned_after = draw(st.one_of(st.just(0), st.just(count), st.integers(0, count)))
    working_bytes = draw(st.one_of(st.just(WORKING_BYTES), st.just(WORKING_BYTES), st.integers(0, 400)))
    return _Problem(earlier, added, planned_after, working_bytes, draw(st.booleans()))


SHORT_LIFETIMES = [(first, last) for last in range(3) for first in range(last + 1)]


def _small_problems(fixed: bool, alignment: int) -> Iterator[_Problem]:
    """Every relation between the lifetimes of two or three buffers, and every neighborhood of an offline offset."""
    lifetimes = [*SHORT_LIFETIMES, (UNUSED, UNUSED)]
    for (a, b), sizes in itertools.product(itertools.product(lifetimes, repeat=2), [(1, 1), (1, 2), (2, 1), (0, 1)]):
        for offset in (ONLINE_PLANNED_BUFFER, 0, alignment, 2 * alignment) if fixed else (ONLINE_PLANNED_BUFFER,):
            pair = [Buffer(sizes[0] * alignment, *a, offset), Buffer(sizes[1] * alignment, *b)]
            yield _Problem([], pair, 2)
    if fixed:
        return
    for index, triple in enumerate(itertools.product(lifetimes, repeat=3)):
        sizes_of_three = [(1, 1, 1), (2, 1, 1), (1, 2, 3), (1, 1, 2)][index % 4]
        added = [Buffer(size * alignment, *lifetime) for size, lifetime in zip(sizes_of_three, triple)]
        yield _Problem(added[:2] if index % 3 == 0 else [], added, index % 4, offsets_first=index % 2 == 0)


def _large_problems(fixed: bool, alignment: int) -> Iterator[_Problem]:
    """Equal buffers, large ones, and more buffers, steps and bytes than numbers of 7, 8 or 16 bits may hold."""
    for units, count in ((1, 3), (1, 5), (1, 9), (1 << 17, 3)):
        yield _Problem([], [Buffer(units * alignment, 0, 1)] * count, count)
    for last in (127, 128, 255, 256, 1000, 32767, 65535, 65536):
        ends = [Buffer(alignment, 0, last), Buffer(alignment, last, last), Buffer(alignment, last - 1, last + 1)]
        yield _Problem([], ends, 3)
    if fixed:
        for units in (1 << 12, 1 << 16):
            yield _Problem([], [Buffer(alignment, 0, 1, units * alignment), Buffer(alignment, 0, 1)], 2)
    random = Random(0)
    for count in (16, 17, 32, 33, 40, 65, 130, 260):
        added = []
        for _ in range(count):
            first = random.randrange(count)
            size = random.choice([0, 1, 1, 2, 3, 7, 4096]) * alignment
            offset = random.randrange(40) * alignment if fixed and random.random() < 0.2 else ONLINE_PLANNED_BUFFER
            added.append(Buffer(size, first, first + random.choice([0, 1, 2, 40]), offset))
        yield _Problem([], added, count)


def check_planner(
    planner: MemoryPlanner | Callable[[], MemoryPlanner],
    *,
    alignment: int = ARENA_ALIGNMENT,
    max_examples: int = EXAMPLES,
    memories: Sequence[int] = (),
) -> None:
    """Check that a planner's plans are valid, on random buffers.

    Every offset is aligned and not negative. Two buffers that are alive at the same step never overlap, nor do any two
    if the planner preserves all tensors. Offline offsets are obeyed, unless the planner rejects them with `ArenaError`;
    only two of them may overlap. The size of the plan is the end of its last buffer, and at most the sum of all sizes
    if there are no offline offsets. Repeated questions have the same answer, buffers that are added later are planned
    too, `init` forgets all buffers, an unknown index raises `ArenaError` or `IndexError`, and an `add_buffer` that
    raises `ArenaError` changes nothing. The same buffers have the same plan again, unless the planner has a
    `limited_search`, and another planner of the class changes nothing.

    Args:
        planner: a class or function without arguments that returns a planner, or a planner, which is copied.
        alignment: of sizes and offsets, in bytes.
        max_examples: number of problems to try, of each kind.
        memories: bytes of several memories, for a planner such as `SeveralMemoriesPlanner`: an offset is
            `REGION_BYTES` times the index of a memory, plus the offset there. Every buffer must lie inside its memory;
            the size of the plan is that of the first memory. The planner may raise `ArenaError` only if the buffers
            together are larger than the largest memory.

    Raises:
        CheckFailed: with the smallest problem that was found.
    """
    make = planner if callable(planner) else lambda: copy.deepcopy(planner)
    for fixed in (False,) if memories else (False, True):
        check_examples(
            _problems(fixed, alignment),
            lambda problem: _Run(make, problem, alignment, memories).check(),
            max_examples,
            _smaller,
            itertools.chain(_small_problems(fixed, alignment), _large_problems(fixed, alignment)),
        )
    for count in range(3):
        _Run(make, _Problem([], [Buffer(alignment, 0, 1)] * count, count), alignment, memories).check_unknown_indices()


def _smaller(problem: _Problem) -> Iterator[_Problem]:
    """Yield the problem without each of its buffers in turn."""
    yield from (problem._replace(earlier=fewer) for fewer in one_removed(problem.earlier))
    yield from (problem._replace(buffers=fewer) for fewer in one_removed(problem.buffers))


class _Run:
    """One planner and one problem."""

    def __init__(
        self, make: Callable[[], MemoryPlanner], problem: _Problem, alignment: int, memories: Sequence[int] = ()
    ):
        self._memories = memories
        self._planner, self._other = make(), make()
        self._problem, self._alignment = problem, alignment
        self._added: list[Buffer] = []
        self._offsets: list[int] = []

    def check(self) -> None:
        """Make the calls and check every answer."""
        try:
            self._check()
        except CheckFailed:
            raise
        except Exception as error:
            refusable = self._exceeds_memories() or any(buffer.is_placed for buffer in self._problem.buffers)
            if not (isinstance(error, ArenaError) and refusable):
                self._fail(f"the planner raised {type(error).__name__}: {error}", cause=error)

    def _exceeds_memories(self) -> bool:
        """Whether a planner of several memories may refuse the buffers."""
        problem = self._problem
        totals = [sum(align_up(b.size, self._alignment) for b in added) for added in (problem.earlier, problem.buffers)]
        return bool(self._memories) and max(totals) > max(self._memories)

    def _check(self) -> None:
        problem = self._problem
        if problem.earlier:
            self._planner.init(WORKING_BYTES)
            for buffer in problem.earlier:
                self._planner.add_buffer(*buffer)
            self._answers(len(problem.earlier))
        self._planner.init(problem.working_bytes)
        if problem.planned_after == 0:
            self._check_plan()
        for count, buffer in enumerate(problem.buffers, 1):
            if not self._add(buffer):
                break
            if count == problem.planned_after:
                self._check_plan()
        self._use_other()
        self._check_plan()
        if limited_search(self._planner) is None:
            self._check_repetition()

    def _answers(self, count: int) -> tuple[int, list[int]]:
        """The size of the plan, and the offsets of buffers."""
        if not self._problem.offsets_first:
            size = self._planner.get_maximum_memory_size()
        offsets = [self._planner.get_offset_for_buffer(index) for index in range(count)]
        if self._problem.offsets_first:
            size = self._planner.get_maximum_memory_size()
        return size, offsets

    def _use_other(self) -> None:
        """Plan with another planner of the class, if there is one."""
        if self._other is not self._planner:
            self._other.init(WORKING_BYTES)
            for size in (3, 1):
                self._other.add_buffer(size * self._alignment, 0, 1)
            self._other.get_maximum_memory_size()

    def _check_repetition(self) -> None:
        """The same buffers have the same plan after another `init`."""
        self._planner.init(WORKING_BYTES)
        for buffer in self._added:
            self._planner.add_buffer(*buffer)
        _, offsets = self._answers(len(self._added))
        if offsets != self._offsets:
            self._fail(f"the offsets of the same buffers were {self._offsets}, and are {offsets} after another init()")

    def _add(self, buffer: Buffer) -> bool:
        """Add a buffer, unless the planner has not enough working memory."""
        try:
            self._planner.add_buffer(*buffer)
        except ArenaError:
            if self._problem.working_bytes == WORKING_BYTES and not buffer.is_placed:
                raise
            return False
        self._added.append(buffer)
        return True

    def _check_plan(self) -> None:
        self._offsets = []
        count = self._planner.get_buffer_count()
        if count != len(self._added):
            self._fail(f"get_buffer_count() is {count} after {len(self._added)} buffers were added")
        indices = range(len(self._added))
        size, self._offsets = self._answers(len(self._added))
        self._check_offsets()
        self._check_overlaps()
        self._check_size(size)
        for index in reversed(indices):
            again = self._planner.get_offset_for_buffer(index)
            if again != self._offsets[index]:
                self._fail(f"the offset of buffer {index} was {self._offsets[index]} and is {again} when asked again")
        if (again := self._planner.get_maximum_memory_size()) != size:
            self._fail(f"the size of the plan was {size} and is {again} when asked again")

    def _check_offsets(self) -> None:
        for index, (buffer, offset) in enumerate(zip(self._added, self._offsets)):
            if not _is_integer(offset):
                self._fail(f"the offset of buffer {index} is {offset!r}, must be an integer")
            if buffer.is_placed:
                if offset != buffer.offset:
                    self._fail(f"buffer {index} is at offset {offset}, not at its offline offset {buffer.offset}")
            elif offset < 0:
                self._fail(f"the offset of buffer {index} is negative")
            elif offset % self._alignment:
                self._fail(f"the offset of buffer {index} is not a multiple of {self._alignment}")
            elif self._memories:
                self._check_memory(index, buffer, offset)

    def _check_memory(self, index: int, buffer: Buffer, offset: int) -> None:
        """The buffer lies inside one of several memories."""
        memory, start = divmod(offset, REGION_BYTES)
        if memory >= len(self._memories):
            self._fail(f"buffer {index} is in memory {memory}; there are {len(self._memories)}", (index,))
        if buffer.size and start + buffer.size > self._memories[memory]:
            self._fail(f"buffer {index} ends at {start + buffer.size} in memory {memory}, after its end", (index,))

    def _check_overlaps(self) -> None:
        preserves = preserves_all_tensors(self._planner)
        ends = [offset + buffer.size for buffer, offset in zip(self._added, self._offsets)]
        sized = [index for index, buffer in enumerate(self._added) if buffer.size]
        for one, other in itertools.combinations(sized, 2):
            if self._offsets[one] >= ends[other] or self._offsets[other] >= ends[one]:
                continue
            a, b = self._added[one], self._added[other]
            if (preserves or a.overlaps_in_time(b)) and not (a.is_placed and b.is_placed):
                first = max(self._offsets[one], self._offsets[other])
                last = min(ends[one], ends[other]) - 1
                alive = max(a.first_use, b.first_use)
                why = "all tensors are preserved" if preserves else f"both are alive at step {alive}"
                self._fail(f"buffers {one} and {other} share bytes {first}..{last}, but {why}", (one, other))

    def _check_size(self, size: int) -> None:
        places = [self._place(index) for index in range(len(self._added))]
        ends = [0 if self._memories and place.offset >= REGION_BYTES else place.end for place in places]
        occupied = max((end for end, buffer in zip(ends, self._added) if buffer.size), default=0)
        if not occupied <= size <= max(ends, default=0):
            self._fail(f"get_maximum_memory_size() is {size}, but the last buffer ends at {occupied}")
        total = sum(align_up(buffer.size, self._alignment) for buffer in self._added)
        if size > total and not any(buffer.is_placed for buffer in self._added):
            self._fail(f"the plan takes {size} bytes, more than the {total} of all buffers one after the other")

    def check_unknown_indices(self) -> None:
        """Ask for the offsets of buffers that do not exist: the least of all faults, and so the last to be reported."""
        self.check()
        for index in (-1, len(self._added)):
            try:
                offset = self._planner.get_offset_for_buffer(index)
            except (ArenaError, IndexError):
                continue
            except Exception as error:
                self._fail(f"get_offset_for_buffer({index}) raised {type(error).__name__}, not ArenaError", cause=error)
            self._fail(
                f"get_offset_for_buffer({index}) returned {offset}, must raise ArenaError or IndexError: there is no "
                "such buffer"
            )

    def _place(self, index: int) -> Place:
        return Place(self._offsets[index], self._added[index].size)

    def _fail(self, invariant: str, marked: Sequence[int] = (), cause: Exception | None = None) -> None:
        raise CheckFailed(invariant, "\n".join(self._report(marked))) from cause

    def _report(self, marked: Sequence[int]) -> Iterator[str]:
        problem = self._problem
        if problem.earlier:
            yield "planned before init():"
            yield _table(problem.earlier, [], ())
            yield ""
        if problem.working_bytes != WORKING_BYTES:
            yield f"after init({problem.working_bytes}):"
        yield _table(self._added or problem.buffers, self._offsets, marked)
        if len(self._added) == problem.planned_after or not problem.planned_after:
            return
        yield f"the plan was asked for after {problem.planned_after} of them, and again at the end"


def _is_integer(value: object) -> bool:
    return isinstance(value, Integral)


def _table(added: Sequence[Buffer], offsets: Sequence[int], marked: Sequence[int]) -> str:
    """Buffers with their lifetimes and, if they are planned, their places."""
    rows = []
    for index, buffer in enumerate(added):
        row = [index, buffer.size, f"{buffer.first_use}..{buffer.last_use}"]
        row += [buffer.offset if buffer.is_placed else ""] if any(b.is_placed for b in added) else []
        row += [offsets[index]] if offsets else []
        rows.append([*row, "<--" if index in marked else ""])
    header = ["buffer", "bytes", "steps"]
    header += ["offline offset"] if any(buffer.is_placed for buffer in added) else []
    header += ["offset"] if offsets else []
    table = aligned_table([*header, ""], rows)
    return "\n".join(line.rstrip() for line in table.splitlines())
