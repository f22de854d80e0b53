"""A version of a kernel library, and what holds in it."""

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
        name: the library's tag, or the commit where there is none.
        order: all versions of the library, oldest first.
    """

    name: str
    order: tuple[str, ...]

    def since(self, name: str) -> bool:
        """Whether it is that version or a later one, so that what came with that one holds."""
        return self.order.index(name) <= self.order.index(self.name)

    def before(self, name: str) -> bool:
        """Whether it is older than that version."""
        return not self.since(name)

    def latest(self, changes: Mapping[str, T]) -> T:
        """Of declarations by the version that each came with, oldest first, the one that holds."""
        return [change for name, change in changes.items() if self.since(name)][-1]


def version_named(library: str, name: str, order: Sequence[str], others: Mapping[str, str] | None = None) -> Version:
    """The version of that name; a leading `v` makes no difference, nor do further digits of a commit's hash.

    Args:
        library: what messages call it.
        others: other names of versions, such as the commits of tags.

    Raises:
        ArgumentError: the library has no such version; the message lists those that it has.
    """
    known = {**{each: each for each in order}, **(others or {})}
    for each, version in known.items():
        if name.removeprefix("v") == each.removeprefix("v") or (len(each) > 6 and name.startswith(each)):
            return Version(version, tuple(order))
    raise ArgumentError(f"unknown version {name!r} of {library}; use one of {', '.join(order)}")
