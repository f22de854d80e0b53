"""Rejects calls into an arena that is already in use by another call."""

from __future__ import annotations

from tflm.errors import InterpreterError


class ReentrancyGuard:
    """Held for the duration of a call. A second call fails at once instead of waiting.

    It is a list with one token. `pop` and `append` are atomic, and faster than the methods of a lock.
    """

    def __init__(self) -> None:
        tokens: list[None] = [None]
        self.take = tokens.pop
        """Begins a call. Raises IndexError if another one is in progress."""
        self.put_back = tokens.append
        """Ends the call, given None."""

    def acquire(self, call: str) -> None:
        """Begin a call.

        Raises:
            InterpreterError: another call is in progress.
        """
        try:
            self.take()
        except IndexError:
            raise self.error(call) from None

    def release(self) -> None:
        """End a call."""
        self.put_back(None)

    def error(self, call: str) -> InterpreterError:
        """The error for a call during another one."""
        return InterpreterError(
            f"{call} while another call is in progress in this arena, in another thread or in an operator that "
            "calls back; use a separate interpreter and arena for each thread"
        )
