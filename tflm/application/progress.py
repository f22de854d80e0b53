"""Report progress, independently of how it is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

Progress = Callable[[str, int], AbstractContextManager[Callable[[], None]]]
"""Takes a description and the number of steps; yields a function to call after each step."""


@contextmanager
def silent(what: str, total: int) -> Iterator[Callable[[], None]]:
    """Progress that is not shown."""
    yield lambda: None
