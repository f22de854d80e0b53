"""Search for a small plan, from the best heuristic plan down to one that is proved optimal."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.compiler.calls import as_function
from tflm.memory import placement_search
from tflm.memory.buffer import Buffer, Integers, plan_bytes
from tflm.memory.placement_search import Problem, height_unit, minimum_height, pairs_alive_together, problem_of
from tflm.memory.planner import SearchProgress
from tflm.memory.planners import GreedyMemoryPlanner, place_by_breadth, place_greedily, place_in_best_fit

DEFAULT_TIME_LIMIT = 10.0
"""Default time limit of a search, in seconds."""

SECONDS_BETWEEN_CLOCKS = 0.01
SECONDS_BETWEEN_REPORTS = 0.5
LARGEST_NUMBER_OF_PAIRS = 1 << 26
"""Maximum number of pairs of buffers alive together for which a search is attempted; bounds its memory."""


class Stopped(str, Enum):
    """Why a search ended."""

    PROVED_OPTIMAL = "no smaller plan exists"
    CAPACITY_REACHED = "the plan fits the requested capacity"
    TIME_LIMIT = "the time limit was reached"
    STEP_LIMIT = "the limit on search steps was reached"
    TOO_LARGE = "there are too many buffers to search"


Progress = Callable[[SearchProgress], None]
"""Called about twice a second during a search."""


class Reporter:
    """Reports the progress of a search, about twice a second.

    Args:
        progress: the function to call, or None.
        stage: see `SearchProgress`.
    """

    def __init__(self, progress: Progress | None, stage: str = "searching"):
        self._progress, self._stage = progress, stage
        self._reported = time.monotonic()

    def report(self, seconds: float, steps: int, head_bytes: int, lower_bound_bytes: int) -> None:
        """Report if it is due."""
        now = time.monotonic()
        if self._progress is not None and now - self._reported >= SECONDS_BETWEEN_REPORTS:
            self._reported = now
            self._progress(SearchProgress(seconds, steps, head_bytes, lower_bound_bytes, self._stage))


class SearchLimits(NamedTuple):
    """Limits that end a search before the smallest plan is found.

    Attributes:
        seconds: time limit, or None.
        steps: limit on search steps, or None. With this one alone, a plan does not depend on the machine.
        capacity: target size in bytes: the first plan that is not larger ends the search.
        progress: called about twice a second during the search.
    """

    seconds: float | None = DEFAULT_TIME_LIMIT
    steps: int | None = None
    capacity: int = 0
    progress: Progress | None = None


class SearchedPlan(NamedTuple):
    """The result of a search.

    Attributes:
        offsets: offset of each buffer, in bytes.
        head_bytes: the plan's size.
        lower_bound_bytes: no plan is smaller than this; equal to `head_bytes` if that is proved to be the smallest.
        steps: number of search steps; 0 if a heuristic's plan was already optimal.
        stopped: why the search ended.
    """

    offsets: list[int]
    head_bytes: int
    lower_bound_bytes: int
    steps: int
    stopped: Stopped


class Strategy(NamedTuple):
    """A strategy: which of several buffers with equal support a search places first.

    Attributes:
        order: "lifetime" (the longest, then the largest area), "area" (the largest area), or "blame" (the largest share
            in the failures of earlier searches, with a random part).
        by_urgency: see `Rules`.
    """

    order: str
    by_urgency: bool


STRATEGIES = (
    Strategy("lifetime", by_urgency=False),
    Strategy("lifetime", by_urgency=True),
    Strategy("area", by_urgency=True),
    Strategy("blame", by_urgency=False),
)
"""The strategies, tried in turn. Searches vary in length by orders of magnitude, so many short ones come first."""

FIRST_STEPS_PER_BUFFER = 4
"""Length of the first searches."""

SHARES = (0.0, 0.5, 0.75, 0.9)
"""Heights to try in turn, from the lower bound (0) to the next below the best plan (1)."""

BLAME_KEPT = 0.5
"""Decay of blame between searches."""

TIE_BREAK = 1e-6
"""Random part of blame."""


def search_plan(buffers: Sequence[Buffer], limits: SearchLimits) -> SearchedPlan:
    """Search the best plan within limits; it is never larger than the greedy planner's.

    Equal buffers and step limits return equal plans, unless a time limit is reached.
    """
    clock = _Clock(limits)
    buffers = [_in_time_order(buffer) for buffer in buffers]
    offsets = place_greedily(buffers)
    usual = 2 * clock.seconds()
    for place in (place_in_best_fit, place_by_breadth):
        if clock.has_time_for(usual):
            offsets = min(offsets, place(buffers), key=lambda plan: plan_bytes(buffers, plan))
    filled = [i for i, buffer in enumerate(buffers) if buffer.size]
    descent = _Descent([buffers[i] for i in filled], [offsets[i] for i in filled], clock)
    stopped = descent.run()
    for i, offset in zip(filled, descent.offsets):
        offsets[i] = offset
    return SearchedPlan(offsets, plan_bytes(buffers, offsets), descent.bound, clock.steps, stopped)


def _in_time_order(buffer: Buffer) -> Buffer:
    """Swap first and last use if they are reversed, so that the buffer is alive in between."""
    size, first, last, offset = buffer
    return Buffer(size, min(first, last), max(first, last), offset)


class _Clock:
    """Counts steps and time against their limits, and reports progress."""

    def __init__(self, limits: SearchLimits):
        self.limits = limits
        self.steps = 0
        self._begin = time.monotonic()
        self._reporter = Reporter(limits.progress)

    def limit_reached(self) -> Stopped | None:
        """The limit that was reached, if any."""
        if self.limits.steps is not None and self.steps >= self.limits.steps:
            return Stopped.STEP_LIMIT
        if self.limits.seconds is not None and self.seconds() >= self.limits.seconds:
            return Stopped.TIME_LIMIT
        return None

    def seconds(self) -> float:
        """How long it has run."""
        return time.monotonic() - self._begin

    def has_time_for(self, seconds: float) -> bool:
        """Return whether this much time is left, in seconds, and at least one step."""
        has_time = self.limits.seconds is None or self.seconds() + seconds < self.limits.seconds
        return has_time and self.limit_reached() is None

    def steps_left(self) -> int:
        """How many steps may still be made."""
        return sys.maxsize if self.limits.steps is None else self.limits.steps - self.steps

    def report(self, height: int, bound: int) -> None:
        """Report the progress if it is due."""
        self._reporter.report(self.seconds(), self.steps, height, bound)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Exclude the time spent in this context."""
        begin = time.monotonic()
        yield
        self._begin += time.monotonic() - begin


class _Descent:
    """Searches for successively lower plans of non-empty buffers.

    Attributes:
        offsets, height: the best plan so far.
        bound: the lower bound.
    """

    def __init__(self, buffers: Sequence[Buffer], offsets: list[int], clock: _Clock):
        self.offsets = offsets
        self.height = plan_bytes(buffers, offsets)
        self.bound = minimum_height(buffers)
        self._buffers = buffers
        self._clock = clock

    def run(self) -> Stopped:
        """Search until a limit is reached or no plan can be lower; returns which."""
        stopped = self._end()
        if stopped is not None:
            return stopped
        if pairs_alive_together(self._buffers) > LARGEST_NUMBER_OF_PAIRS:
            return Stopped.TOO_LARGE
        lifetimes = np.array([buffer.last_use + 1 - buffer.first_use for buffer in self._buffers], np.int64)
        engine = _Engine(problem_of(self._buffers), lifetimes, self._clock)
        shares = SHARES if self._clock.limits.capacity < self.bound else SHARES[:1]
        rounds = itertools.count()
        while stopped is None:
            stopped = self._round(engine, shares, next(rounds))
        return stopped

    def _round(self, engine: _Engine, shares: Sequence[float], number: int) -> Stopped | None:
        """Try all heights with all strategies, each for twice as many steps as in the previous round."""
        steps = FIRST_STEPS_PER_BUFFER * len(self._buffers) << number
        for share, strategy in itertools.product(shares, STRATEGIES):
            self._try(engine, strategy, share, steps, large_below=number % 2 == 1)
            stopped = self._end()
            if stopped is not None:
                return stopped
        return None

    def _end(self) -> Stopped | None:
        if self.height <= self.bound:
            return Stopped.PROVED_OPTIMAL
        if self.height <= self._clock.limits.capacity:
            return Stopped.CAPACITY_REACHED
        return self._clock.limit_reached()

    def _try(self, engine: _Engine, strategy: Strategy, share: float, steps: int, large_below: bool) -> None:
        low = max(self.bound, self._clock.limits.capacity)
        high = self.height - engine.unit
        target = max(low, int(low + share * (high - low))) // engine.unit * engine.unit
        offsets = engine.search(target, strategy, steps, large_below)
        if offsets is not None:
            self.offsets = offsets
            self.height = plan_bytes(self._buffers, offsets)
        elif engine.exhausted:
            self.bound = max(self.bound, target + engine.unit)
        self._clock.report(self.height, self.bound)


class _Engine:
    """Runs searches of one problem, and accumulates the blame for failures.

    Attributes:
        unit: all heights are multiples of this.
        exhausted: whether the last search ended because no placement exists.
    """

    def __init__(self, problem: Problem, lifetimes: Integers, clock: _Clock):
        self.unit = height_unit(problem)
        self.exhausted = False
        self._problem = problem
        self._clock = clock
        self._memory = placement_search.new_search(problem)
        self._weights = _weights(problem, lifetimes)
        self._blame: npt.NDArray[np.float64] = np.zeros(len(problem.size), np.float64)
        self._chance = np.random.default_rng(0)
        self._chunk = 1
        with clock.paused():
            self._run_kernel = as_function(placement_search.run)  # it may compile the engine

    def search(self, capacity: int, strategy: Strategy, steps: int, large_below: bool) -> list[int] | None:
        """The offsets of a placement within `capacity`; None if none was found within the steps."""
        code = placement_search
        rules = code.Rules(capacity, strategy.by_urgency, large_below)
        if strategy.order == "blame":
            self._memory.weight[:] = self._blame + TIE_BREAK * self._chance.random(len(self._blame))
        else:
            self._memory.weight[:] = self._weights[strategy.order]
        code.start(self._problem, self._memory)
        done, outcome = 0, code.UNFINISHED
        while outcome in (code.UNFINISHED, code.TRAIL_IS_FULL) and done < steps:
            if self._clock.limit_reached() is not None:
                break
            if outcome == code.TRAIL_IS_FULL:
                self._memory = code.with_longer_trail(self._memory)
            outcome = self._run(rules, min(steps, done + min(self._chunk, self._clock.steps_left())))
            self._clock.steps += int(self._memory.progress[1]) - done
            done = int(self._memory.progress[1])
        self._blame = BLAME_KEPT * self._blame + self._memory.blame
        self.exhausted = outcome == code.INFEASIBLE
        return self._memory.support.tolist() if outcome == code.FOUND else None

    def _run(self, rules: placement_search.Rules, step_limit: int) -> int:
        """Continue the search, checking the clock at reasonable intervals."""
        begin = time.monotonic()
        outcome = self._run_kernel(problem=self._problem, search=self._memory, rules=rules, step_limit=step_limit)
        seconds = time.monotonic() - begin
        if seconds < SECONDS_BETWEEN_CLOCKS:
            self._chunk *= 2
        elif seconds > 4 * SECONDS_BETWEEN_CLOCKS and self._chunk > 1:
            self._chunk //= 2
        return outcome


def _weights(problem: Problem, lifetime: Integers) -> dict[str, npt.NDArray[np.float64]]:
    """Weights of the buffers for each order that does not depend on earlier searches."""
    area = lifetime * problem.size
    return {"lifetime": _falling_ranks(lifetime, area), "area": _falling_ranks(area, lifetime)}


def _falling_ranks(*keys: Integers) -> npt.NDArray[np.float64]:
    """Ranks, highest for the buffer with the largest first key, then second key; of equals, for the first."""
    ranks = np.empty(len(keys[0]), np.float64)
    ranks[np.lexsort([-key for key in reversed(keys)])] = np.arange(len(ranks), 0, -1, dtype=np.float64)
    return ranks


class OptimalPlanner(GreedyMemoryPlanner):
    """Plans with `search_plan`.

    Args:
        time_limit: seconds, None without a limit. The time starts when a search is ready to run.
        step_limit: the largest number of search steps. With `time_limit=None`, equal models have equal plans.
        capacity: target size in bytes: the search ends at the first plan that is not larger.
        progress: called about twice a second during the search.

    Attributes:
        searched: the full result, with the reason why the search ended; None before a search.
    """

    def __init__(
        self,
        *,
        time_limit: float | None = DEFAULT_TIME_LIMIT,
        step_limit: int | None = None,
        capacity: int = 0,
        progress: Progress | None = None,
    ):
        super().__init__()
        self._limits = SearchLimits(time_limit, step_limit, capacity, progress)
        self.searched: SearchedPlan | None = None
        self.place = self._search

    @property
    def limited_search(self) -> OptimalPlanner:
        """The planner itself."""
        return self

    @property
    def time_limit(self) -> float | None:
        """Seconds, None without a limit."""
        return self._limits.seconds

    @property
    def progress(self) -> Progress | None:
        """Called with the progress of a search."""
        return self._limits.progress

    @contextmanager
    def within(self, seconds: float | None) -> Iterator[None]:
        """Apply another time limit until the context ends."""
        limits, self._limits = self._limits, self._limits._replace(seconds=seconds)
        try:
            yield
        finally:
            self._limits = limits

    @property
    def proved_optimal(self) -> bool:
        """Whether the plan is proved to be the smallest."""
        return self.searched is not None and self.searched.stopped is Stopped.PROVED_OPTIMAL

    def _search(self, buffers: Sequence[Buffer]) -> list[int]:
        self.searched = search_plan(buffers, self._limits)
        return self.searched.offsets
