"""A release of TFLM: its behaviour follows from its place in the history and its build options.

`history.txt` has TFLM's history, the commits of its main branch in order: a line for each day (UTC) with commits, the
day, then its commits. Changes are declared where they apply, by the first nine digits of the commit's hash.

`distributions.txt` has components, modules, Arduino libraries and SDKs: a line for each version with name, version,
its day, the commit of TFLM that its tree equals, whether it is built with TF_LITE_STATIC_MEMORY (yes, no, or ? where
the project that uses it decides), and its kernels. Versions of a distribution are in the order of their days.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import NamedTuple

from tflm.release import TFLM_COMMIT, TFLM_DATE, TFLM_WHEEL

HASH_DIGITS = 9

WHEEL_SOURCE = "wheel"
"""The source of the tflite-micro package for Python, whose commit is unknown; later than the whole history."""

LATER = (WHEEL_SOURCE,)
"""Sources that are later than the commits of the history, in order."""


class Commit(NamedTuple):
    """A commit of TFLM's main branch.

    Attributes:
        hash: its hash in nine digits.
        date: its day, such as 2023-06-15.
    """

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


STATIC_MEMORY = "static_memory"
"""The option TF_LITE_STATIC_MEMORY, which makes tensors and nodes smaller."""

COMPRESSION = "compression"
"""The option USE_TFLM_COMPRESSION: support for compressed weights."""


@dataclass(frozen=True)
class Release:
    """TFLM as of a commit, built with some options.

    What a commit changed is not declared here. Structures, requests, operators and orders declare it themselves, each
    with the commit that it applies from, and call `holds`.

    Attributes:
        name: its name in messages and tables.
        commit: nine digits of its hash.
        date: its day.
        options: its build options, by the names of `tflm.targets.When`.
        recording: whether models run in its recording interpreter, whose allocators are larger.
        answers: the source of its operators and their arithmetic; None for that of `commit`.
        distribution: the distribution that contains it, with its kernel libraries; None for TFLM by itself.
    """

    name: str
    commit: str
    date: str
    options: frozenset[str] = frozenset({STATIC_MEMORY})
    recording: bool = False
    answers: str | None = None
    distribution: Distribution | None = None

    def __hash__(self) -> int:
        return hash((self.commit, self.options))

    def holds(self, commit: str) -> bool:
        """Whether this release includes a commit; always true for an empty one."""
        if self.commit == TFLM_COMMIT:  # without reading the history
            return commit not in LATER
        if not commit:
            return True
        return position(commit) <= position(self.commit)

    def answers_hold(self, commit: str) -> bool:
        """Whether its operators include those of a commit and compute as they have since then."""
        if self.answers is None or not commit:
            return self.holds(commit)
        return self.answers == LATER[-1] or position(commit) <= position(self.answers)

    @property
    def static_memory(self) -> bool:
        """Whether it is built with TF_LITE_STATIC_MEMORY."""
        return STATIC_MEMORY in self.options


TODAY = Release(f"TFLM {TFLM_COMMIT} of {TFLM_DATE}", TFLM_COMMIT, TFLM_DATE, answers=WHEEL_SOURCE)
"""The default of `tflm.kernels` and `tflm.runtime`: this commit, with the arithmetic of the wheel."""

WHEEL = Release(
    f"TFLM of the tflite-micro package {TFLM_WHEEL}",
    WHEEL_SOURCE,
    "2026-10-23",
    frozenset({STATIC_MEMORY, COMPRESSION}),
    recording=True,
)
"""The `tflite-micro` package for Python: with support for compressed weights, from a more recent source."""

NAMES_MOVED = (
    "TFLM's C++ names moved from tflite and the global namespace to tflite::micro: those of C between 25 and 28 "
    "September 2026, the interpreter and the resolver between 6 and 8 October. Firmware that tflm export writes "
    "compiles before and after; in other sources, write tflite::micro::MicroInterpreter."
)
"""The days are those of the packages for Python before and after."""


UMBRELLAS = frozenset({"esphome", "zephyr"})
"""Distributions for which only versions that changed TFLM or the kernel library are listed."""


class Distribution(NamedTuple):
    """A version of something that contains TFLM.

    Attributes:
        name, version: as in the file.
        date: its day; empty if unknown.
        commit: the commit of TFLM that its tree equals.
        static_memory: whether it is built with TF_LITE_STATIC_MEMORY; None if the project that uses it decides.
        kernels: the kernel library that it includes; empty if that is not one of `tflm.libraries`.
    """

    name: str
    version: str
    date: str
    commit: str
    static_memory: bool | None
    kernels: str


@functools.cache
def distributions() -> dict[str, list[Distribution]]:
    """All known versions, by the name of the distribution."""
    found: dict[str, list[Distribution]] = {}
    for line in lines_of("distributions.txt"):
        name, version, date, commit, static_memory, kernels = line.split("\t")
        option = {"yes": True, "no": False, "?": None}[static_memory]
        found.setdefault(name, []).append(
            Distribution(name, version, date.strip("-"), commit, option, kernels.strip("?"))
        )
    return found


def version_of(versions: list[Distribution], wanted: str) -> Distribution | None:
    """A version by its number, such as v1.3.3 or 1.3.3~1; None if it is not among them."""
    wanted = wanted.lower().removeprefix("v").replace("~", ".")
    named = next((version for version in versions if version.version.lower() == wanted), None)
    if named is not None or versions[0].name not in UMBRELLAS or not re.match(r"\d", wanted):
        return named
    older = [version for version in versions if _numbers(version.version) <= _numbers(wanted)]
    return max(older, key=lambda version: _numbers(version.version), default=None)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))
