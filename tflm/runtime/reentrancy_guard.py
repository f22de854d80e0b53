"""Rejects calls into an arena that is already in use by another call."""

from __future__ import annotations

import functools
import threading

from tflm.errors import InterpreterError


class ReentrancyGuard:
    """Held for the duration of a call. A second call fails at once instead of waiting."""

    def __init__(self) -> None:
        lock = threading.Lock()
        self.try_acquire = functools.partial(lock.acquire, False)
        """Begins a call and returns True, or returns False if another one is in progress."""
        self.release = lock.release
        """Ends the call."""

    def acquire(self, call: str) -> None:
        """Begin a call.

        Raises:
            InterpreterError: another call is in progress.
        """
        if not self.try_acquire():
            raise self.error(call)

    def error(self, call: str) -> InterpreterError:
        """The error for a call during another one."""
        return InterpreterError(
            f"{call} while another call is in progress in this arena, in another thread or in an operator that "
            "calls back; use a separate interpreter and arena for each thread"
        )
