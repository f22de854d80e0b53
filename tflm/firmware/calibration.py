"""Calibrations: how many cycles a board takes for each estimated one, by kind of operator."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tflm.errors import FirmwareError

FORMAT = "tflm calibration 1"


class Calibration(NamedTuple):
    """Times of a board.

    Attributes:
        target, kernels: what was measured.
        mhz: the clock.
        cycles: measured cycles for each cycle of the manual's table, by operator.
    """

    target: str
    kernels: str
    mhz: float
    cycles: Mapping[str, float]

    def text(self) -> str:
        """The contents of a file."""
        return json.dumps({"format": FORMAT, **self._asdict()}, indent=2) + "\n"

    @classmethod
    def read(cls, path: Path) -> Calibration:
        """Read a file.

        Raises:
            FirmwareError: it is not a calibration.
            OSError: it cannot be read.
        """
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
            found = cls(raw["target"], raw["kernels"], float(raw["mhz"]), raw["cycles"])
            is_valid = raw["format"] == FORMAT and all(float(each) > 0 for each in found.cycles.values())
        except (ValueError, TypeError, KeyError, AttributeError):
            is_valid = False
        if not is_valid:
            raise FirmwareError(f"{path}: not a calibration; tflm device calibrate writes one")
        return found
