"""Distributions of TFLM: components, modules, Arduino libraries and SDKs, with the commit in each version.

`distributions.txt` has a line for each version: name, version, its day, the commit of TFLM that its tree equals,
whether it is built with TF_LITE_STATIC_MEMORY (yes, no, or ? where the project that uses it decides), and its kernels.
Versions of a distribution are in the order of their days.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from tflm.releases.timeline import lines_of

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
