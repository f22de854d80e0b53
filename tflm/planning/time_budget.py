"""One time limit for all the stages of a plan."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from tflm.memory import MemoryPlanner, OptimalPlanner


class TimeBudget:
    """Seconds that stages share: each may take an equal part of what those before it left.

    Args:
        planner: whose time limit is that of all together, from now on; only an `OptimalPlanner` has one.
        stages: how many there are.
    """

    def __init__(self, planner: MemoryPlanner, stages: int):
        seconds = planner.time_limit if isinstance(planner, OptimalPlanner) else None
        self._end = None if seconds is None else time.monotonic() + seconds
        self._stages = stages

    def share(self) -> float | None:
        """The seconds of the next stage; None without a limit."""
        self._stages, stages = self._stages - 1, self._stages
        return None if self._end is None else max(0.0, self._end - time.monotonic()) / stages

    @contextmanager
    def next_stage(self, planner: MemoryPlanner) -> Iterator[None]:
        """Let the planner have the seconds of the next stage."""
        seconds = self.share()
        if isinstance(planner, OptimalPlanner):
            with planner.within(seconds):
                yield
        else:
            yield
