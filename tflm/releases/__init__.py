"""Every TFLM since 2021: its releases by commit, by date, and by the distributions that contain it.

A release is a commit of TFLM with the options it is built with. What a commit changed is declared where it
applies: by `tflm.targets.Since` and `Until` in structures, and by `release.holds(commit)` in requests and orders.
"""

from __future__ import annotations

import datetime
import functools
import re
import warnings
from typing import Union

from tflm.errors import ArgumentError, VersionAssumed
from tflm.release import TFLM_COMMIT
from tflm.releases.release import (
    COMPRESSION,
    HASH_DIGITS,
    NAMES_MOVED,
    STATIC_MEMORY,
    TODAY,
    WHEEL,
    Commit,
    Distribution,
    Release,
    distributions,
    history,
    version_of,
)

Releases = Union[str, Release]
"""A release, or a name of one for `by_name`."""

MINIMUM_HASH_DIGITS = 6

WITHOUT_STATIC_MEMORY = ", without static memory"
"""The end of the name of a release that is built without TF_LITE_STATIC_MEMORY."""


def by_name(name: str, *, static_memory: bool = True) -> Release:
    """The TFLM of a commit, of a day, or of a distribution that contains it.

    Args:
        name: a commit of TFLM's main branch by six or more digits of its hash; a day, month or year such as
            "2023-06-15", "2023-06" or "2023", for the newest commit up to its end; a distribution with its version,
            such as "esp-tflite-micro 1.3.3", "zephyr 3.7", "chirale 2.0.0" or "esphome 2025.5", or without one, for
            the newest; "wheel", for the tflite-micro package for Python; or the name of a `Release`.
        static_memory: whether it is built with TF_LITE_STATIC_MEMORY. Ignored for a distribution that determines it.

    Raises:
        ArgumentError: the release is unknown; the message lists the known ones.
    """
    words = name.partition("(")[0].strip().lower().split()
    static_memory &= WITHOUT_STATIC_MEMORY not in name
    if not words:
        raise _unknown(name)
    if words == [WHEEL.commit] or name == WHEEL.name:
        return WHEEL
    if words[0] == "tflm":
        words = words[1:2] or words
    versions = distributions().get(words[0])
    if versions is not None:
        return _of_distribution(name, versions, words[1:], static_memory)
    if len(words) > 1:
        raise _unknown(name)
    if re.fullmatch(r"\d{4}(-\d{2}){0,2}", words[0]):
        try:
            datetime.date.fromisoformat(f"{words[0]}-01-01"[:10])
        except ValueError:
            raise _unknown(name) from None
        return release_at(_newest_until(words[0]), static_memory)
    if re.fullmatch(f"[0-9a-f]{{{MINIMUM_HASH_DIGITS},40}}", words[0]):
        return release_at(_commit(words[0]), static_memory)
    raise _unknown(name)


def require_release(value: Releases) -> Release:
    """A release as it is, or by its name.

    Raises:
        ArgumentError: it is neither, or the name is unknown.
    """
    if isinstance(value, str):
        return by_name(value)
    if not isinstance(value, Release):
        raise ArgumentError(f"{value!r} is not a release of TFLM; tflm.releases.by_name('{TFLM_COMMIT}') returns one")
    return value


def release_at(commit: Commit, static_memory: bool) -> Release:
    """TFLM as of a commit, built with TF_LITE_STATIC_MEMORY or without."""
    name = f"TFLM {commit.hash} of {commit.date}" + ("" if static_memory else WITHOUT_STATIC_MEMORY)
    return Release(name, commit.hash, commit.date, frozenset({STATIC_MEMORY} if static_memory else ()))


def _of_distribution(name: str, versions: list[Distribution], words: list[str], static_memory: bool) -> Release:
    found = version_of(versions, " ".join(words)) if words else versions[-1]
    if found is None:
        known = ", ".join(version.version for version in versions)
        raise ArgumentError(f"no version of {versions[0].name} is known as {' '.join(words)!r}; use one of {known}")
    own = static_memory if found.static_memory is None else found.static_memory
    plain = release_at(_commit(found.commit), own)
    name = f"{found.name} {found.version} ({plain.name})"
    return Release(name, plain.commit, plain.date, plain.options, distribution=found)


def _newest_until(date: str) -> Commit:
    """The newest commit up to the end of a day, month or year; warns if that is after the known history."""
    first, last = history()[0], history()[-1]
    if date > last.date:
        warnings.warn(
            f"the known history of TFLM ends on {last.date}, before {date}: using commit {last.hash}. "
            f"release='{WHEEL.commit}' is the TFLM of the tflite-micro package, of {WHEEL.date}",
            VersionAssumed,
            stacklevel=2,
        )
    found = [commit for commit in history() if commit.date[: len(date)] <= date]
    if not found:
        raise ArgumentError(f"TFLM's history begins on {first.date}, after {date}; name a later day")
    return found[-1]


@functools.cache
def _commit(digits: str) -> Commit:
    found = [commit for commit in history() if commit.hash.startswith(digits[:HASH_DIGITS])]
    if len(found) != 1:
        few = "no commit" if not found else f"{len(found)} commits"
        raise ArgumentError(
            f"{few} of TFLM's main branch, {history()[0].date} to {history()[-1].date}, begin with {digits!r}; "
            "name a commit of it, or a day"
        )
    return found[0]


def _unknown(name: str) -> ArgumentError:
    return ArgumentError(
        f"unknown release {name!r}; there are commits of TFLM ({TFLM_COMMIT}), days (2023-06), wheel, and, "
        f"with a version, {', '.join(distributions())}"
    )


__all__ = [
    "COMPRESSION",
    "NAMES_MOVED",
    "STATIC_MEMORY",
    "TODAY",
    "WHEEL",
    "Commit",
    "Distribution",
    "Release",
    "Releases",
    "by_name",
    "distributions",
    "history",
    "release_at",
    "require_release",
]
