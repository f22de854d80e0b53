"""A TFLM of some time: what holds in it follows from its place in the history, and from how it is built."""

from __future__ import annotations

from dataclasses import dataclass

from tflm.release import TFLM_COMMIT, TFLM_DATE, TFLM_WHEEL
from tflm.releases.distributions import Distribution
from tflm.releases.timeline import LATER, WHEEL_SOURCE, position

STATIC_MEMORY = "static_memory"
"""The option TF_LITE_STATIC_MEMORY, which makes tensors and nodes smaller."""

COMPRESSION = "compression"
"""The option USE_TFLM_COMPRESSION: support for compressed weights."""


@dataclass(frozen=True)
class Release:
    """TFLM as of a commit, built with some options.

    Nothing is declared here of what a commit changed. Structures, requests, operators and orders declare that
    themselves, each with the commit that it holds from, and ask `holds`.

    Attributes:
        name: what messages and tables call it.
        commit: nine digits of its hash.
        date: its day.
        options: what it is built with, as `tflm.targets.When` names it.
        recording: whether models run in its recording interpreter, whose allocators are larger.
        answers: the source whose operators it has and whose arithmetic they follow; None for that of `commit`.
        distribution: what it is contained in, whose own glue and kernel libraries it has; None for TFLM by itself.
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
        """Whether what a commit changed is so in this release; of no commit, always."""
        if self.commit == TFLM_COMMIT:  # without reading the history
            return commit not in LATER
        if not commit:
            return True
        return position(commit) <= position(self.commit)

    def answers_hold(self, commit: str) -> bool:
        """Whether it has an operator that came with a commit, and answers as operators do since then."""
        if self.answers is None or not commit:
            return self.holds(commit)
        return self.answers == LATER[-1] or position(commit) <= position(self.answers)

    @property
    def static_memory(self) -> bool:
        """Whether it is built with TF_LITE_STATIC_MEMORY."""
        return STATIC_MEMORY in self.options


TODAY = Release(f"TFLM {TFLM_COMMIT} of {TFLM_DATE}", TFLM_COMMIT, TFLM_DATE, answers=WHEEL_SOURCE)
"""What `tflm.kernels` and `tflm.runtime` follow unless asked for another: this commit, with the wheel's answers."""

WHEEL = Release(
    f"TFLM of the tflite-micro package {TFLM_WHEEL}",
    WHEEL_SOURCE,
    "2026-10-23",
    frozenset({STATIC_MEMORY, COMPRESSION}),
    recording=True,
)
"""The `tflite-micro` package for Python: with support for compressed weights, from a more recent source."""
