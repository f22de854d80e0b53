"""Strategies for sequences of allocator calls, and the check that an allocator's answers are valid."""

from __future__ import annotations

import copy
import inspect
import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from tflm.errors import ArenaError, ArenaExhausted, CheckFailed
from tflm.memory.arena import Arena
from tflm.memory.buffer import Place
from tflm.memory.simple_memory_allocator import SimpleMemoryAllocator
from tflm.targets import align_down, align_up
from tflm.testing.counterexample import EXAMPLES, check_examples, one_removed

SMALL_ARENA_BYTES, BOUNDARY_ARENA_BYTES, MAXIMUM_ARENA_BYTES, LARGE_ARENA_BYTES = 32, 41, 400, (1 << 17) + 41
PATTERN = 0xA5
"""The byte that fills the arena before the first call; an allocator must not write to it."""


class AllocatorCall(NamedTuple):
    """A call of an allocator.

    Attributes:
        name: the method; "deallocate_temp" with an index of a live temp allocation, modulo their number, or -1 for
            an offset that was not allocated; "allocate_above" for `allocate_persistent_buffer` with a `floor`;
            "checkpoint", and "restore" for the last one that was not restored.
        arguments: its arguments.
    """

    name: str
    arguments: tuple[int, ...] = ()


def allocator_calls(
    *, min_count: int = 0, max_count: int = 16, max_size: int = 200
) -> st.SearchStrategy[list[AllocatorCall]]:
    """Sequences of calls: allocations of all alignments in head, temp and tail, releases, resets and rollbacks."""
    size = st.one_of(st.integers(-1, 32), st.integers(1, 32), st.integers(0, max_size))
    alignment = st.sampled_from([1, 2, 4, 8, 16, 32, 64, 128])

    def allocations(name: str) -> st.SearchStrategy[AllocatorCall]:
        return st.tuples(size, alignment).map(lambda arguments: AllocatorCall(name, arguments))

    resize = st.tuples(st.sampled_from([0, 0, 0, 16]), size, alignment)
    above = st.tuples(size, alignment, st.integers(0, max_size))
    weights = {
        allocations("allocate_temp"): 5,
        allocations("allocate_persistent_buffer"): 5,
        allocations("allocate_resizable_buffer"): 1,
        allocations("reserve_non_persistent_overlay_memory"): 1,
        above.map(lambda arguments: AllocatorCall("allocate_above", arguments)): 1,
        resize.map(lambda arguments: AllocatorCall("resize_buffer", arguments)): 2,
        st.sampled_from([0, 0, 0, 1, 2, -1]).map(lambda index: AllocatorCall("deallocate_temp", (index,))): 4,
        **{st.just(call): 1 for call in CALLS_WITHOUT_SIZE},
    }
    kinds = [kind for kind, weight in weights.items() for _ in range(weight)]
    calls = st.sampled_from(kinds).flatmap(lambda kind: kind)
    return st.lists(calls, min_size=min_count, max_size=max_count)


CALLS_WITHOUT_SIZE = (
    AllocatorCall("deallocate_resizable_buffer", (0,)),
    AllocatorCall("reset_temp_allocations"),
    AllocatorCall("reset_temp_allocations"),
    AllocatorCall("checkpoint"),
    AllocatorCall("checkpoint"),
    AllocatorCall("restore"),
    AllocatorCall("restore"),
)

BOUNDARY_CALLS = (
    *(AllocatorCall("allocate_temp", arguments) for arguments in [(0, 1), (5, 4), (1, 32), (23, 16)]),
    *(AllocatorCall("allocate_persistent_buffer", arguments) for arguments in [(-1, 1), (0, 16), (3, 4), (17, 32)]),
    *(AllocatorCall("allocate_resizable_buffer", arguments) for arguments in [(7, 1), (33, 16)]),
    AllocatorCall("allocate_above", (5, 4, 0)),
    AllocatorCall("deallocate_temp", (0,)),
    AllocatorCall("deallocate_temp", (-1,)),
    *sorted(set(CALLS_WITHOUT_SIZE)),
)
"""Calls around the limits of an arena of a few dozen bytes, of which all short sequences are tried."""

LARGE_CALLS = (
    *(AllocatorCall("allocate_temp", arguments) for arguments in [(70_000, 16), (1, 128)]),
    *(AllocatorCall("allocate_persistent_buffer", arguments) for arguments in [(70_000, 16), (1, 128), (3, 4)]),
    AllocatorCall("allocate_resizable_buffer", (66_000, 16)),
    AllocatorCall("deallocate_temp", (0,)),
    AllocatorCall("reset_temp_allocations"),
)
"""Calls for an arena whose offsets exceed 16 bits."""


Allocator = Any
"""An object with the methods and attributes of `SimpleMemoryAllocator`."""


def check_allocator(
    allocator: Callable[[Arena], Allocator] | SimpleMemoryAllocator, *, max_examples: int = 2 * EXAMPLES
) -> None:
    """Check the answers of an allocator to random sequences of calls.

    Always 0 <= head <= temp <= tail <= size. Every allocation is aligned, in its part of the arena, and overlaps no
    other; alignment skips less than one step. An allocation fails exactly if it does not fit, and a call that raises
    changes nothing. Temp allocations are released one by one, and a reset frees their bytes; it fails while one is
    live. The head cannot be resized under temp allocations. `restore` undoes everything since the checkpoint. The
    figures of used and available bytes agree with head, temp and tail. Nothing is written to the arena.

    Args:
        allocator: a class or function that makes an allocator of an `Arena`, or an allocator, which is copied.
        max_examples: number of sequences to try.

    Raises:
        CheckFailed: with the shortest sequence that was found.
    """
    small = st.integers(0, SMALL_ARENA_BYTES)
    calls = st.one_of(allocator_calls(min_count=8), allocator_calls(min_count=20, max_count=40, max_size=40))
    examples = st.tuples(st.one_of(small, st.integers(0, MAXIMUM_ARENA_BYTES)), calls)
    short = ((BOUNDARY_ARENA_BYTES, list(calls)) for calls in itertools.product(BOUNDARY_CALLS, repeat=3))
    large = ((LARGE_ARENA_BYTES, list(calls)) for calls in itertools.product(LARGE_CALLS, repeat=2))
    first = itertools.chain(short, large)
    check_examples(examples, lambda example: _Run(allocator, *example).check(), max_examples, _smaller, first)


def _smaller(example: tuple[int, list[AllocatorCall]]) -> Iterator[tuple[int, list[AllocatorCall]]]:
    size, calls = example
    return ((size, fewer) for fewer in one_removed(calls))


class _Model(NamedTuple):
    """The expected state of an allocator, apart from exact positions."""

    head: int = 0
    temps: tuple[Place, ...] = ()
    live: tuple[int, ...] = ()
    persistent: tuple[Place, ...] = ()


class _State(NamedTuple):
    """The observable state of an allocator."""

    head: int
    temp: int
    tail: int
    is_all_temp_deallocated: bool
    log_length: int


class _Run:
    """One allocator and one sequence of calls."""

    def __init__(self, allocator: Any, size: int, calls: list[AllocatorCall]):
        self._calls, self._history = calls, list[str]()
        if callable(allocator):
            arena = Arena(bytearray([PATTERN]) * size)
            self._name = getattr(allocator, "__name__", "allocator")
            self._allocator = allocator(arena)
            allocator(Arena(bytearray(64))).allocate_temp(
                16, 16
            )  # the second call must not change the first one's result
        else:
            self._name, self._allocator = type(allocator).__name__, copy.deepcopy(allocator)
            arena = self._allocator.arena
        self._arena, self._size = arena, arena.size
        self._written = arena.bytes.copy()
        self._model = _Model()
        self._checkpoints: list[tuple[Any, _Model, _State]] = []

    def check(self) -> None:
        """Make the calls and check every answer."""
        try:
            self._check_state()
            for call in self._calls:
                self._make(call)
                self._check_state()
        except CheckFailed:
            raise
        except Exception as error:
            self._fail(f"the allocator raised {type(error).__name__}: {error}", error)

    def _make(self, call: AllocatorCall) -> None:
        if call.name == "checkpoint":
            self._history.append(f"saved{len(self._checkpoints)} = allocator.checkpoint()")
            self._checkpoints.append((self._allocator.checkpoint(), self._model, self._state()))
        elif call.name == "restore":
            self._restore()
        elif call.name == "deallocate_temp":
            self._deallocate_temp(*call.arguments)
        else:
            getattr(self, f"_{call.name}")(*call.arguments)

    # Allocations.

    def _allocate_temp(self, size: int, alignment: int) -> None:
        before = self._state()
        start = align_up(before.temp, alignment)
        offset = self._attempt("allocate_temp", (size, alignment), size, before.tail - start)
        if offset is None:
            return
        place = Place(offset, size)
        self._check_place(place, alignment, before.temp, self._allocator.temp, "temp")
        if self._allocator.temp != start + size:
            self._fail(f"temp moved from {before.temp} to {self._allocator.temp}, must be {start + size}")
        temps, live = self._model.temps, self._model.live
        self._model = self._model._replace(temps=(*temps, place), live=(*live, offset))

    def _allocate_persistent_buffer(self, size: int, alignment: int) -> None:
        self._allocate_tail(size, alignment, self._allocator.temp)

    def _allocate_above(self, size: int, alignment: int, floor: int) -> None:
        """Allocate with a floor if the allocator supports floors. A floor below temp would let the tail overlap temp
        memory."""
        lowest = max(floor, self._allocator.head)
        method = self._allocator.allocate_persistent_buffer
        if lowest >= self._allocator.temp and "floor" in inspect.signature(method).parameters:
            self._allocate_tail(size, alignment, lowest, floor=floor)

    def _allocate_tail(self, size: int, alignment: int, lowest: int, **floor: int) -> None:
        before = self._state()
        start = align_down(before.tail - size, alignment)
        available = before.tail - align_up(lowest, alignment)
        name = "allocate_persistent_buffer"
        offset = self._attempt(name, (size, alignment), size, available, start >= lowest, **floor)
        if offset is None:
            return
        place = Place(offset, size)
        self._check_place(place, alignment, self._allocator.tail, before.tail, "the tail")
        if self._allocator.tail != start:
            self._fail(f"the tail moved from {before.tail} to {self._allocator.tail}, must be {start}")
        self._model = self._model._replace(persistent=(*self._model.persistent, place))

    def _allocate_resizable_buffer(self, size: int, alignment: int) -> None:
        offset = self._resize("allocate_resizable_buffer", (size, alignment), size)
        if offset not in (None, 0):
            self._fail(f"the resizable buffer is at {offset}, must be at 0")

    def _resize_buffer(self, offset: int, size: int, alignment: int) -> None:
        self._resize("resize_buffer", (offset, size, alignment), size, allowed=offset == 0)

    def _reserve_non_persistent_overlay_memory(self, size: int, alignment: int) -> None:
        self._resize("reserve_non_persistent_overlay_memory", (size, alignment), size)

    def _deallocate_resizable_buffer(self, offset: int) -> None:
        self._resize("deallocate_resizable_buffer", (offset,), 0)

    def _resize(self, name: str, arguments: tuple[int, ...], size: int, allowed: bool = True) -> int | None:
        """The offset that was returned, 0 for None; None if the call failed, as it had to."""
        before = self._state()
        if not allowed or before.head != before.temp:
            self._expect_error(name, arguments, "only the head can be resized, without temp allocations")
            return None
        offset = self._attempt(name, arguments, size, before.tail)
        if offset is not None:
            if (self._allocator.head, self._allocator.temp) != (size, size):
                self._fail(f"head and temp are {self._allocator.head} and {self._allocator.temp}, must be {size}")
            self._model = self._model._replace(head=size)
        return offset

    # Other calls.

    def _deallocate_temp(self, index: int) -> None:
        live = self._model.live
        if index < 0 or not live:
            unknown = max((place.end for place in self._model.temps), default=0) + 1
            self._expect_error("deallocate_temp", (unknown,), "nothing is allocated there")
            return
        offset = live[index % len(live)]
        before = self._state()
        self._call("deallocate_temp", (offset,))
        if self._allocator.temp != before.temp:
            self._fail("temp moved before reset_temp_allocations()")
        remaining = list(live)
        remaining.remove(offset)
        self._model = self._model._replace(live=tuple(remaining))

    def _reset_temp_allocations(self) -> None:
        if self._model.live:
            self._expect_error("reset_temp_allocations", (), "a temp allocation was not released")
            return
        self._call("reset_temp_allocations", ())
        if self._allocator.temp != self._allocator.head:
            self._fail(f"temp is {self._allocator.temp} after a reset, must be head = {self._allocator.head}")
        self._model = self._model._replace(temps=())

    def _restore(self) -> None:
        if not self._checkpoints:
            return
        saved, model, state = self._checkpoints.pop()
        self._history.append(f"allocator.restore(saved{len(self._checkpoints)})")
        self._allocator.restore(saved)
        self._model = model
        if self._state() != state:
            self._fail(f"restore() did not bring back the state: it was {state}, and is {self._state()}")

    # Calls and their answers.

    def _call(self, name: str, arguments: tuple[int, ...], **floor: int) -> Any:
        text = [*map(str, arguments), *(f"{key}={value}" for key, value in floor.items())]
        self._history.append(f"allocator.{name}({', '.join(text)})")
        answer = getattr(self._allocator, name)(*arguments, **floor)
        if answer is not None:
            self._history[-1] += f"  # {answer}"
        return answer

    def _attempt(
        self, name: str, arguments: tuple[int, ...], size: int, available: int, fits: bool | None = None, **floor: int
    ) -> int | None:
        """The offset that was returned, 0 for None; None if there was not enough memory, which changed nothing."""
        if size < 0:
            self._expect_error(name, arguments, "the size is negative", **floor)
            return None
        fits = size <= available if fits is None else fits
        before = self._state()
        try:
            offset = self._call(name, arguments, **floor)
        except ArenaExhausted as error:
            self._history[-1] += "  # ArenaExhausted"
            self._check_unchanged(before)
            if fits:
                self._fail(f"{size} bytes did not fit, although {available} bytes are available")
            figures = error.requested, error.available, error.missing
            if figures != (size, max(available, 0), size - available):
                self._fail(
                    f"the error says requested, available, missing = {figures}, must be {size}, {max(available, 0)}, "
                    f"{size - available}"
                )
            return None
        if not fits:
            self._fail(f"{size} bytes were allocated, but only {max(available, 0)} are available")
        return 0 if offset is None else int(offset)

    def _expect_error(self, name: str, arguments: tuple[int, ...], why: str, **floor: int) -> None:
        before = self._state()
        try:
            self._call(name, arguments, **floor)
        except ArenaError:
            self._history[-1] += "  # ArenaError"
            self._check_unchanged(before)
            return
        self._fail(f"{name} must raise ArenaError: {why}")

    # Invariants.

    def _state(self) -> _State:
        allocator = self._allocator
        log = len(getattr(allocator, "log", ()))
        return _State(allocator.head, allocator.temp, allocator.tail, bool(allocator.is_all_temp_deallocated()), log)

    def _check_unchanged(self, before: _State) -> None:
        for name, old, new in zip(_State._fields, before, self._state()):
            if old != new:
                self._fail(f"a call that failed changed {name} from {old} to {new}")

    def _check_place(self, place: Place, alignment: int, low: int, high: int, part: str) -> None:
        if place.offset % alignment:
            self._fail(f"offset {place.offset} is not a multiple of {alignment}")
        if not low <= place.offset <= place.end <= high:
            self._fail(f"bytes {place.offset}..{place.end - 1} are not in the new part of {part}, {low}..{high - 1}")
        for other in (Place(0, self._model.head), *self._model.temps, *self._model.persistent):
            if place.meets(other):
                self._fail(
                    f"bytes {place.offset}..{place.end - 1} overlap {other.offset}..{other.end - 1}, which are in use"
                )

    def _check_state(self) -> None:
        head, temp, tail, released, _ = self._state()
        if not 0 <= head <= temp <= tail <= self._size:
            self._fail(f"0 <= head <= temp <= tail <= size does not hold: 0, {head}, {temp}, {tail}, {self._size}")
        if released != (not self._model.live):
            self._fail(f"is_all_temp_deallocated() is {released} with {len(self._model.live)} live temp allocations")
        expected = {
            "get_persistent_used_bytes": self._size - tail,
            "get_non_persistent_used_bytes": temp,
            "get_used_bytes": self._size - tail + temp,
        }
        for name, figure in expected.items():
            if (answer := getattr(self._allocator, name)()) != figure:
                self._fail(f"{name}() is {answer}, must be {figure}: head {head}, temp {temp}, tail {tail}")
        for alignment in (1, 16, 64):
            figure = align_down(tail, alignment) - align_up(temp, alignment)
            if (answer := self._allocator.get_available_memory(alignment)) != figure:
                self._fail(f"get_available_memory({alignment}) is {answer}, must be {figure}: temp {temp}, tail {tail}")
        changes = self._arena.bytes != self._written
        if changes.any():
            changed = int(np.flatnonzero(changes)[0])
            self._fail(f"the allocator wrote to byte {changed} of the arena")

    def _fail(self, invariant: str, cause: Exception | None = None) -> None:
        raise CheckFailed(invariant, "\n".join(self._report())) from cause

    def _report(self) -> Iterator[str]:
        yield f"allocator = {self._name}(Arena(bytearray({self._size})))"
        yield from self._history
