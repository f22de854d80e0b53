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


def rendered(folders: tuple[str, ...], values: Mapping[str, str], sources: str, *without: str) -> dict[str, str]:
    """The templates of folders, filled in, by path; those in `main/` go to the folder of the sources."""
    found = {}
    for folder in folders:
        for path, text in _templates(_folder(folder), ""):
            filled = FileTemplate(text).substitute(values).rstrip() + "\n"
            if path not in without and filled.strip():
                found[path.replace("main/", sources)] = filled
    return found


def console(name: str) -> str:
    """A template of `console.h`, which has no values."""
    return _folder("console").joinpath(f"{name}.h").read_text(encoding="utf-8")


def wire(name: str, values: Mapping[str, str]) -> str:
    """The wire of a firmware that serves, filled in."""
    return FileTemplate(_folder("wire").joinpath(f"{name}.h").read_text(encoding="utf-8")).substitute(values)


def _folder(name: str) -> Traversable:
    return files("tflm.application.projects").joinpath("files", *name.split("/"))


def _templates(folder: Traversable, path: str) -> Iterator[tuple[str, str]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _templates(entry, f"{path}{entry.name}/")
        else:
            yield f"{path}{entry.name}", entry.read_text(encoding="utf-8")
