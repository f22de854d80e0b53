"""A release of TFLM: its behaviour follows from its place in the history and its build options."""

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
