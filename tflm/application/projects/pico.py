"""Projects for the Pico SDK."""

from __future__ import annotations

from tflm.application.errors import RequestError
from tflm.application.projects.build import Build

PICO_CHIPS = {"RP2040": "pico", "RP2350": "pico2"}
"""Boards of the Pico SDK, by chip."""


def pico_values(build: Build) -> dict[str, str]:
    """Values for the templates of the Pico SDK.

    Raises:
        RequestError: the board has another chip.
    """
    if build.chip not in PICO_CHIPS:
        raise RequestError("a project for pico needs a board with an RP2040 or RP2350, such as --board pico")
    return {"pico_board": build.ids.pico or PICO_CHIPS[build.chip]}
