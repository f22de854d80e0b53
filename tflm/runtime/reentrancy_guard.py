"""Rejects calls into an arena that is already in use by another call."""

from __future__ import annotations

from tflm.errors import InterpreterError


class ReentrancyGuard:
    """Held for the duration of a call. A second call fails at once instead of waiting.

    Attributes:
        tokens: a list with one token, while no call is in progress. `pop` and `append` are atomic, and faster than the
            methods of a lock.
    """

    def __init__(self) -> None:
        self.tokens: list[None] = [None]

    def acquire(self, call: str) -> None:
        """Begin a call.

        Raises:
            InterpreterError: another call is in progress.
        """
        try:
            self.tokens.pop()
        except IndexError:
            raise self.error(call) from None

    def release(self) -> None:
        """End a call."""
        self.tokens.append(None)

    def error(self, call: str) -> InterpreterError:
        """The error for a call during another one."""
        return InterpreterError(
            f"{call} while another call is in progress in this arena, in another thread or in an operator that "
            "calls back; use a separate interpreter and arena for each thread"
        )
