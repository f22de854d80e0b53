"""Search TFLM's whole history for releases with given arena sizes, without measuring every commit.

While a model is allocated, declarations query the release for the changes that it includes. Two releases with the same
answers have the same sizes, so one measurement is valid for all commits back to the newest one that was queried.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tflm.releases import Commit, Release, distributions, history, release_at
from tflm.releases.timeline import position


@dataclass(frozen=True, eq=False)
class WatchedRelease(Release):
    """A release that records queries for its changes.

    Attributes:
        asked: the commits that were queried.
    """

    asked: set[str] = field(default_factory=set)

    __hash__ = object.__hash__  # equal only to itself, so that cached structure sizes of other releases are not reused

    def holds(self, commit: str) -> bool:
        self.asked.add(commit)
        return super().holds(commit)


class CommitRange(NamedTuple):
    """Consecutive commits of TFLM with the same answers to all queries."""

    first: Commit
    last: Commit

    def contains(self, commit: str) -> bool:
        """Whether a commit is in the span."""
        return position(self.first.hash) <= position(commit) <= position(self.last.hash)


class SpanSearch:
    """Walks back through the history, one release per span of equal commits.

    Measure a model in `release`, then read the `span` that it represents; the next iteration starts before it.
    """

    def __init__(self, static_memory: bool):
        self._static_memory = static_memory
        self._last = len(history()) - 1
        self.release = self._at(self._last)

    def __iter__(self) -> Iterator[WatchedRelease]:
        while True:
            yield self.release
            before = position(self.span.first.hash) - 1
            if before < 0:
                return
            self._last = before
            self.release = self._at(before)

    @property
    def span(self) -> CommitRange:
        """The commits with the same answers as `release`."""
        asked = [position(commit) for commit in self.release.asked if commit]
        first = max((place for place in asked if place <= self._last), default=0)
        return CommitRange(history()[first], history()[self._last])

    def _at(self, place: int) -> WatchedRelease:
        return WatchedRelease(**vars(release_at(history()[place], self._static_memory)))


def joined(spans: list[CommitRange]) -> list[CommitRange]:
    """Spans in order, with adjacent ones merged."""
    found: list[CommitRange] = []
    for span in sorted(spans, key=lambda span: position(span.first.hash)):
        if found and position(found[-1].last.hash) + 1 == position(span.first.hash):
            found[-1] = CommitRange(found[-1].first, span.last)
        else:
            found.append(span)
    return found


def contained_in(span: CommitRange, library: str, static_memory: bool) -> list[str]:
    """Distributions that contain a TFLM of a span with a kernel library: their names, first and last versions.

    All of them contain the reference kernels.
    """
    found = []
    for name, versions in distributions().items():
        numbers = [
            version.version
            for version in versions
            if span.contains(version.commit)
            and version.static_memory in (static_memory, None)
            and (library == "reference" or version.kernels in (library, ""))
            and ("." in version.version or not any("." in each.version for each in versions))
        ]
        if numbers:
            found.append(f"{name} {numbers[0]}" + (f" to {numbers[-1]}" if len(numbers) > 1 else ""))
    return found
