"""Versions of a kernel library, in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tflm.errors import ArgumentError

T = TypeVar("T")


@dataclass(frozen=True)
class Version:
    """A version of a library.

    Attributes:
        name: the library's tag, or the commit if it has none.
        order: all versions of the library, oldest first.
    """

    name: str
    order: tuple[str, ...]

    def since(self, name: str) -> bool:
        """Whether it is that version or a later one."""
        return self.order.index(name) <= self.order.index(self.name)

    def before(self, name: str) -> bool:
        """Whether it is older than that version."""
        return not self.since(name)

    def latest(self, changes: Mapping[str, T]) -> T:
        """The declaration in effect, from declarations by the version that introduced each, oldest first."""
        return [change for name, change in changes.items() if self.since(name)][-1]


def version_named(library: str, name: str, order: Sequence[str], others: Mapping[str, str] | None = None) -> Version:
    """Find a version by name; ignores a leading `v` and further digits of a commit's hash.

    Args:
        library: its name in messages.
        others: other names of versions, such as the commits of tags.

    Raises:
        ArgumentError: the version is unknown; the message lists the known ones.
    """
    known = {**{each: each for each in order}, **(others or {})}
    for each, version in known.items():
        if name.removeprefix("v") == each.removeprefix("v") or (len(each) > 6 and name.startswith(each)):
            return Version(version, tuple(order))
    raise ArgumentError(f"unknown version {name!r} of {library}; use one of {', '.join(order)}")
