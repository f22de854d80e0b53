"""Projects for the Arduino IDE: a sketch."""

from __future__ import annotations

from tflm.application.errors import RequestError
from tflm.application.projects.build import Build
from tflm.application.projects.parts import pinned

ARDUINO_FIRST = "#include <Chirale_TensorFlowLite.h>\n"


def arduino_values(build: Build) -> dict[str, str]:
    """Values for the templates of a sketch.

    Raises:
        RequestError: the board is not one of Arduino's.
    """
    fqbn = build.ids.fqbn
    if not fqbn:
        raise RequestError("a project for arduino needs an Arduino board; name it with --board")
    return {"fqbn": fqbn, "core": pinned(":".join(fqbn.split(":")[:2]))}
