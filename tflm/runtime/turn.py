"""One call at a time: what keeps calls from overlapping in an arena."""

from __future__ import annotations

import threading

from tflm.errors import InterpreterError


class Turn:
    """Held by a call while it is under way: who comes second is refused, not made to wait.

    Attributes:
        flag: one byte, 1 while a call is under way. Compiled code that runs with the interpreter lock held may look at
            it, set it and clear it without anything else; everybody else uses `take` and `give_back`.
    """

    def __init__(self) -> None:
        self.flag = bytearray(1)
        self._lock = threading.Lock()

    def take(self, call: str) -> None:
        """Begin a call.

        Raises:
            InterpreterError: another one is under way.
        """
        if not self._lock.acquire(blocking=False):
            raise self.refusal(call)
        if self.flag[0]:
            self._lock.release()
            raise self.refusal(call)
        self.flag[0] = 1

    def give_back(self) -> None:
        """End the call."""
        self.flag[0] = 0
        self._lock.release()

    def refusal(self, call: str) -> InterpreterError:
        """The error for a call that came second."""
        return InterpreterError(
            f"{call} while another call is under way in this arena, in another thread or in an operator that "
            "calls back; give each thread an interpreter and an arena of its own"
        )
