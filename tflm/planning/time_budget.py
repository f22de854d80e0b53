"""A time limit that the stages of planning share."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext

from tflm.memory.planner import MemoryPlanner, limited_search


class TimeBudget:
    """Divides a time limit among stages: each gets an equal share of the time that is left.

    Args:
        planner: its time limit, if any, applies to all stages together, from now on.
        stages: number of stages.
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
        """Set the planner's time limit to the share of the next stage."""
        seconds = self.share()
        return nullcontext() if self._search is None else self._search.within(seconds)
