"""The folder of a project."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path


def origin_of_project(command_line: Sequence[str]) -> str:
    """The command that made a project, without local folders."""
    words = [Path(word).name if Path(word).is_absolute() else word for word in command_line[1:]]
    return shlex.join(["tflm", *words])
