"""The planner that searches for the smallest plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tflm.memory.buffer import Buffer
from tflm.memory.greedy_memory_planner import GreedyMemoryPlanner
from tflm.memory.plan_search import (
    DEFAULT_TIME_LIMIT,
    Progress,
    SearchedPlan,
    SearchLimits,
    Stopped,
    search_plan,
)


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
