"""Rejects calls into an arena that is already in use by another call.

A signal handler may raise an exception between any two instructions, so that no `finally` is certain to run. A call is
therefore known by its frame: once that has ended, so has the call, whether or not it said so.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from types import FrameType

from tflm.errors import InterpreterError


class ReentrancyGuard:
    """Held for the duration of a call. A second call fails at once instead of waiting.

    Attributes:
        frames: those that called `acquire`. The first holds the guard, unless it has ended. `append`, `remove` and
            `pop` are atomic, and faster than the methods of a lock.
    """

    def __init__(self) -> None:
        self.frames: list[FrameType] = []

    def acquire(self, call: str) -> None:
        """Begin a call, which ends with `release`, or when the function that calls this has ended.

        Raises:
            InterpreterError: another call is in progress.
        """
        frame = sys._getframe(1)
        self.frames.append(frame)
        while (first := self.frames[0]) is not frame:
            if _is_running(first):
                self.frames.remove(frame)
                raise self.error(call)
            self._forget(first)

    def release(self) -> None:
        """End the call in progress."""
        self.frames.pop(0)

    def forget_ended(self, call: str) -> None:
        """Forget calls that an exception ended before their `release`.

        Raises:
            InterpreterError: a call is in progress.
        """
        for frame in list(self.frames):
            if _is_running(frame):
                raise self.error(call)
            self._forget(frame)

    def _forget(self, frame: FrameType) -> None:
        with suppress(ValueError):  # another thread did
            self.frames.remove(frame)

    def error(self, call: str) -> InterpreterError:
        """The error for a call during another one."""
        return InterpreterError(
            f"{call} while another call is in progress in this arena, in another thread or in an operator that "
            "calls back; use a separate interpreter and arena for each thread"
        )


def _is_running(frame: FrameType) -> bool:
    """Whether a function has not ended yet. One that has loses its variables, which only a debugger could show."""
    try:
        frame.clear()
    except RuntimeError:
        return True
    return False
