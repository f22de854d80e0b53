"""The build files of projects: templates in `files/`, in a folder for each kind of project.

`@name` is replaced by a value. A template whose result is empty is not written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.abc import Traversable


class FileTemplate(Template):
    """A template whose names start with @, because $ has a meaning in most of these files."""

    delimiter = "@"


def rendered(kind: str, values: Mapping[str, str], *without: str) -> dict[str, str]:
    """The templates of a folder, filled in, by path."""
    found = {}
    for path, text in _templates(files("tflm.application.projects").joinpath("files", *kind.split("/")), ""):
        source = values.get("source_folder", "main/")
        filled = FileTemplate(text).substitute(values).rstrip() + "\n"
        if path not in without and filled.strip():
            found[path.replace("main/", source)] = filled
    return found


def _templates(folder: Traversable, path: str) -> Iterator[tuple[str, str]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _templates(entry, f"{path}{entry.name}/")
        else:
            yield f"{path}{entry.name}", entry.read_text(encoding="utf-8")
