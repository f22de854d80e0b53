"""Checks that a memory planner's plans are valid."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from numbers import Integral
from typing import NamedTuple

from hypothesis import strategies as st

from tflm.errors import ArenaError, CheckFailed
from tflm.memory.arena import ARENA_ALIGNMENT
from tflm.memory.buffer import Buffer, Place
from tflm.memory.planner import MemoryPlanner, preserves_all_tensors
from tflm.targets import align_up
from tflm.testing.buffers import buffers
from tflm.testing.counterexample import EXAMPLES, aligned_table, check_examples, one_removed

WORKING_BYTES = 1 << 20


class _Problem(NamedTuple):
    """The calls of one example.

    Attributes:
        earlier: buffers that were planned before the last `init`.
        buffers: the buffers to place.
        planned_after: how many of them are added when the plan is asked for the first time.
        working_bytes: argument of `init`.
    """

    earlier: list[Buffer]
    buffers: list[Buffer]
    planned_after: int
    working_bytes: int


@st.composite
def _problems(draw: st.DrawFn, fixed: bool, alignment: int) -> _Problem:
    added = draw(buffers(fixed=fixed, alignment=alignment))
    earlier = draw(st.one_of(st.just([]), buffers(max_count=5, alignment=alignment)))
    planned_after = draw(st.one_of(st.just(0), st.integers(0, len(added))))
    working_bytes = draw(st.one_of(st.just(WORKING_BYTES), st.just(WORKING_BYTES), st.integers(0, 400)))
    return _Problem(earlier, added, planned_after, working_bytes)


def check_planner(
    planner: MemoryPlanner | Callable[[], MemoryPlanner],
    *,
    alignment: int = ARENA_ALIGNMENT,
    max_examples: int = EXAMPLES,
) -> None:
    """Check that a planner's plans are valid, on random buffers.

    Every offset is aligned and not negative. Two buffers that are alive at the same step never overlap, nor do any two
    if the planner preserves all tensors. Offline offsets are obeyed, unless the planner rejects them with `ArenaError`;
    only two of them may overlap. The size of the plan is the end of its last buffer, and at most the sum of all sizes
    if there are no offline offsets. Repeated questions have the same answer, buffers that are added later are planned
    too, `init` forgets all buffers, an unknown index raises `ArenaError` or `IndexError`, and an `add_buffer` that
    raises `ArenaError` changes nothing.

    Args:
        planner: a class or function without arguments that returns a planner, or a planner, which is copied.
        alignment: of sizes and offsets, in bytes.
        max_examples: number of problems to try, of each kind.

    Raises:
        CheckFailed: with the smallest problem that was found.
    """
    make = planner if callable(planner) else lambda: copy.deepcopy(planner)
    for fixed in (False, True):
        check_examples(
            _problems(fixed, alignment),
            lambda problem: _Run(make(), problem, alignment).check(),
            max_examples,
            _smaller,
        )


def _smaller(problem: _Problem) -> Iterator[_Problem]:
    """The problem without each of its buffers in turn."""
    yield from (problem._replace(earlier=fewer) for fewer in one_removed(problem.earlier))
    yield from (problem._replace(buffers=fewer) for fewer in one_removed(problem.buffers))


class _Run:
    """One planner and one problem."""

    def __init__(self, planner: MemoryPlanner, problem: _Problem, alignment: int):
        self._planner, self._problem, self._alignment = planner, problem, alignment
        self._added: list[Buffer] = []
        self._offsets: list[int] = []

    def check(self) -> None:
        """Make the calls and check every answer."""
        try:
            self._check()
        except CheckFailed:
            raise
        except Exception as error:
            if not (isinstance(error, ArenaError) and any(buffer.is_placed for buffer in self._problem.buffers)):
                self._fail(f"the planner raised {type(error).__name__}: {error}", cause=error)

    def _check(self) -> None:
        problem = self._problem
        if problem.earlier:
            self._planner.init(WORKING_BYTES)
            for buffer in problem.earlier:
                self._planner.add_buffer(*buffer)
            for index in range(len(problem.earlier)):
                self._planner.get_offset_for_buffer(index)
        self._planner.init(problem.working_bytes)
        self._check_plan()
        for count, buffer in enumerate(problem.buffers, 1):
            if not self._add(buffer):
                break
            if count == problem.planned_after:
                self._check_plan()
        self._check_plan()

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
        size = self._planner.get_maximum_memory_size()
        indices = range(len(self._added))
        self._offsets = [self._planner.get_offset_for_buffer(index) for index in indices]
        self._check_offsets()
        self._check_overlaps()
        self._check_size(size)
        for index in reversed(indices):
            again = self._planner.get_offset_for_buffer(index)
            if again != self._offsets[index]:
                self._fail(f"the offset of buffer {index} was {self._offsets[index]} and is {again} when asked again")
        if (again := self._planner.get_maximum_memory_size()) != size:
            self._fail(f"the size of the plan was {size} and is {again} when asked again")
        self._check_unknown_indices()

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

    def _check_overlaps(self) -> None:
        preserves = preserves_all_tensors(self._planner)
        for one, other in itertools.combinations(range(len(self._added)), 2):
            a, b = self._added[one], self._added[other]
            if (a.is_placed and b.is_placed) or not (preserves or a.overlaps_in_time(b)):
                continue
            if a.size and b.size and self._place(one).meets(self._place(other)):
                first = max(self._offsets[one], self._offsets[other])
                last = min(self._place(one).end, self._place(other).end) - 1
                alive = max(a.first_use, b.first_use)
                why = "all tensors are preserved" if preserves else f"both are alive at step {alive}"
                self._fail(f"buffers {one} and {other} share bytes {first}..{last}, but {why}", (one, other))

    def _check_size(self, size: int) -> None:
        ends = [self._place(index).end for index in range(len(self._added))]
        occupied = max((end for end, buffer in zip(ends, self._added) if buffer.size), default=0)
        if not occupied <= size <= max(ends, default=0):
            self._fail(f"get_maximum_memory_size() is {size}, but the last buffer ends at {occupied}")
        total = sum(align_up(buffer.size, self._alignment) for buffer in self._added)
        if size > total and not any(buffer.is_placed for buffer in self._added):
            self._fail(f"the plan takes {size} bytes, more than the {total} of all buffers one after the other")

    def _check_unknown_indices(self) -> None:
        for index in (-1, len(self._added)):
            try:
                offset = self._planner.get_offset_for_buffer(index)
            except (ArenaError, IndexError):
                continue
            self._fail(
                f"get_offset_for_buffer({index}) returned {offset}, must raise ArenaError: there is no such buffer"
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
