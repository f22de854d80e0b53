"""The folder of a project."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from tflm.application.machine import MachineOptions

SHORT = ("-b", "-t", "-k")
"""The short names of --board, --target and --kernels."""


def origin_of_project(command_line: Sequence[str], on: MachineOptions) -> str:
    """The command that made a project, without local folders.

    Its last options are those that hold, whether the command line or a project's settings have them.
    """
    held = {"--board": on.board, "--target": on.target, "--sdk": on.sdk, "--kernels": on.kernels, "--tflm": on.release}
    held["--reserve"] = on.reserve
    typed = iter(command_line[1:])
    words = []
    for word in typed:
        name = word.partition("=")[0]
        if name in (*held, "--source", *SHORT):
            if name == word:
                next(typed, None)
        elif word[:2] not in SHORT:
            words.append(word)
    words += [word for name, value in held.items() if value is not None for word in (name, str(value))]
    return shlex.join(["tflm", *(Path(word).name if Path(word).is_absolute() else word for word in words)])
