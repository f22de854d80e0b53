"""TFLM's history: the commits of its main branch in order, with their days.

Changes are declared where they apply, by the first nine digits of the commit's hash; this module orders the commits.
`history.txt` has a line for each day (UTC) with commits: the day, then its commits.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

HASH_DIGITS = 9

WHEEL_SOURCE = "wheel"
"""The source of the tflite-micro package for Python, whose commit is unknown; later than the whole history."""

LATER = (WHEEL_SOURCE,)
"""Sources that are later than the commits of the history, in order."""


class Commit(NamedTuple):
    """A commit: nine digits of its hash, and its day, such as 2023-06-15."""

    hash: str
    date: str


def lines_of(file: str) -> list[str]:
    """The lines of a file of this folder."""
    from importlib import resources  # imported late: slow, and not needed for the default release

    return resources.files(__package__).joinpath(file).read_text("ascii").splitlines()


@functools.cache
def history() -> tuple[Commit, ...]:
    """Every commit of the main branch, the first one first."""
    days = (line.split() for line in lines_of("history.txt"))
    return tuple(Commit(commit, day) for day, *commits in days for commit in commits)


@functools.cache
def _positions() -> dict[str, int]:
    return {commit: i for i, commit in enumerate((*(commit.hash for commit in history()), *LATER))}


def position(commit: str) -> int:
    """The place of a commit, by its nine digits, or of a later source in the history.

    Raises:
        KeyError: it is unknown.
    """
    return _positions()[commit]
