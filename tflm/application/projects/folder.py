"""The folder of a project."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from tflm.atomic_write import write_atomically


def origin_of_project(command_line: Sequence[str]) -> str:
    """The command that made a project, without local folders."""
    words = [Path(word).name if Path(word).is_absolute() else word for word in command_line[1:]]
    return shlex.join(["tflm", *words])


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> list[Path]:
    """Write files by their paths in a folder, which is created if missing; returns their full paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / name for name in files]
    for path, content in zip(written, files.values()):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content.encode() if isinstance(content, str) else content)
    return written
