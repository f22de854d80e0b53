"""One time limit for all the stages of a plan."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext

from tflm.memory.planner import MemoryPlanner, limited_search


class TimeBudget:
    """Seconds that stages share: each may take an equal part of what those before it left.

    Args:
        planner: whose time limit, if it has one, is that of all together, from now on.
        stages: how many there are.
    """

    def __init__(self, planner: MemoryPlanner, stages: int):
        self._search = limited_search(planner)
        seconds = None if self._search is None else self._search.time_limit
        self._end = None if seconds is None else time.monotonic() + seconds
        self._stages = stages

    def share(self) -> float | None:
        """The seconds of the next stage; None without a limit."""
        self._stages, stages = self._stages - 1, self._stages
        return None if self._end is None else max(0.0, self._end - time.monotonic()) / stages

    def next_stage(self) -> AbstractContextManager[None]:
        """Let the planner have the seconds of the next stage."""
        seconds = self.share()
        return nullcontext() if self._search is None else self._search.within(seconds)
