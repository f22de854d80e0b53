"""The precision in which a TFLM release multiplies and divides scales: float32 or, for some time, double."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tflm.releases import Release
from tflm.releases.timeline import WHEEL_SOURCE


class Precision(NamedTuple):
    """When scales were doubles: from one commit until its revert, and again in the wheel's source."""

    since: str
    until: str

    def number(self, release: Release) -> type[np.float32] | type[np.float64]:
        """The type for the release's arithmetic on scales."""
        holds = release.answers_hold
        if holds(WHEEL_SOURCE) or (holds(self.since) and not holds(self.until)):
            return np.float64
        return np.float32


SCALES = Precision("d5d82e25f", "b29826661")
"""The precision of RELU, SUB and SVDF."""

SCALES_OF_LEAKY_RELU = Precision("3bede6679", "4aa157e5e")
