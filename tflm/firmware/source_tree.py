"""Find the TFLM, CMSIS-NN and ESP-NN in a firmware's source tree.

Files are recognized by the hash of their text, independent of their location and include paths. Each hash belongs to a
span of versions; the versions that match most files are those of the copy. The package contains only hashes of the
sources (from `tools/source_hashes.py`).

Files are hashed independently of typical edits of copies.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from tflm.errors import ArgumentError
from tflm.libraries.cmsis_nn_scratch import VERSIONS as CMSIS_NN_VERSIONS
from tflm.libraries.esp_nn_scratch import VERSIONS as ESP_NN_VERSIONS
from tflm.releases import history
from tflm.report import json_property
from tflm.schema.c_array import without_comments

HASH_DIGITS = 10
LEFT_OUT = frozenset({".git", ".hg", ".svn", "__pycache__", "node_modules", ".venv"})
"""Folders that hold no sources of a firmware."""

_LEFT_OUT = re.compile(r"^[^\S\n]*#\s*(include|pragma|if defined\(|(ifndef|define)\s+\w+_H_?\s*$).*$", re.MULTILINE)
_SPACE = re.compile(r"\s+")


def text_hash(source: bytes) -> str:
    """A hash of a file without comments, white space, include lines, include guards, `#pragma` and `#if defined(`.

    Distributions change include paths, licence headers, guards and formatting; the code itself stays the same.
    """
    text = without_comments(source.decode("utf-8", "replace"))
    text = _SPACE.sub("", _LEFT_OUT.sub("", text))
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:HASH_DIGITS]


def files_below(folder: Path, is_wanted: Callable[[str], bool], left_out: Set[str] = frozenset()) -> Iterator[str]:
    """Paths of files below a folder whose names match, in sorted order; `left_out` names further folders to skip."""
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in LEFT_OUT | left_out)
        for name in filter(is_wanted, sorted(files)):
            yield Path(place, name).relative_to(folder).as_posix()


PROJECTS = ("tflm", "cmsis-nn", "esp-nn")
LARGEST_SOURCE = 4 << 20
"""Maximum bytes read from a source file; TFLM's largest has 1 MB."""

FEWEST_FILES = 3
"""Minimum number of files that count as a copy of a project; fewer may be a coincidence."""


class VersionRange(NamedTuple):
    """The versions of a file with the same text, as indices into `versions_of`."""

    hash: str
    first: int
    last: int


class KnownFile(NamedTuple):
    """A file of a project."""

    path: tuple[str, ...]
    spans: tuple[VersionRange, ...]


@dataclass(frozen=True)
class Modified:
    """A file that differs from the version found.

    Attributes:
        path: relative to the searched folder.
        first: the first version with this text; None if it was changed locally.
        last: the last one.
    """

    path: str
    first: str | None = None
    last: str | None = None


@dataclass(frozen=True)
class SourceCopy:
    """A copy of a project in a source tree.

    Attributes:
        project: "tflm", "cmsis-nn" or "esp-nn".
        folder: the folder of all its files, relative to the searched one.
        first: the first version that matches most files: a commit of TFLM, or a library's tag or commit.
        last: the last one.
        contiguous: whether all versions between these match, too; reverted changes make gaps.
        files: number of files recognized by their path.
        matching: number of these with the text of the versions found.
        modified: the others.
    """

    project: str
    folder: str
    first: str
    last: str
    contiguous: bool
    files: int
    matching: int
    modified: tuple[Modified, ...]

    @json_property
    def confidence(self) -> float:
        """The share of its files that match."""
        return self.matching / self.files


@functools.cache
def versions_of(project: str) -> tuple[str, ...]:
    """The versions of a project that are known, oldest first."""
    if project == "tflm":
        return tuple(commit.hash for commit in history())
    return CMSIS_NN_VERSIONS if project == "cmsis-nn" else ESP_NN_VERSIONS


def source_copies(folder: Path) -> list[SourceCopy]:
    """The copies of TFLM and of kernel libraries below a folder, the largest of each project first.

    Raises:
        ArgumentError: it is not a folder.
    """
    if not folder.is_dir():
        raise ArgumentError(f"{folder} is not a folder; name the root of the firmware's sources")
    found: dict[tuple[str, str], dict[str, KnownFile]] = {}
    for path in _source_paths(folder):
        known = _recognized(path)
        if known is not None:
            project, root, file = known
            found.setdefault((project, root), {})[path] = file
    copies = [_copy(folder, project, files) for (project, _), files in _merged(found).items()]
    return sorted(copies, key=lambda copy: (PROJECTS.index(copy.project), -copy.files, copy.folder))


# --- Which files -------------------------------------------------------------------------------------------------


@functools.cache
def _known_files() -> dict[str, list[tuple[str, KnownFile]]]:
    """Project and file, by the file name without its suffix, which distributions change from .cc to .cpp."""
    from importlib import resources

    found: dict[str, list[tuple[str, KnownFile]]] = {}
    for project in PROJECTS:
        text = resources.files(__package__).joinpath(f"sources_{project.replace('-', '_')}.txt").read_text("ascii")
        for line in text.splitlines():
            path, *spans = line.split()
            file = KnownFile(_parts(path), tuple(map(_span, spans)))
            found.setdefault(file.path[-1], []).append((project, file))
    return found


def _span(text: str) -> VersionRange:
    digits, _, versions = text.partition(":")
    first, _, last = versions.partition("-")
    return VersionRange(digits, int(first), int(last))


def _parts(path: str) -> tuple[str, ...]:
    *folders, name = PurePosixPath(path).parts
    stem, dot, ending = name.rpartition(".")
    return (*folders, f"{stem}{dot}{'cc' if ending == 'cpp' else ending}")


def _source_paths(folder: Path) -> Iterator[str]:
    known = _known_files()
    return files_below(folder, lambda name: _parts(name)[-1] in known)


def _recognized(path: str) -> tuple[str, str, KnownFile] | None:
    """Project, root of the copy and file of a path: the known path with the longest common suffix."""
    parts = _parts(path)
    candidates = _known_files()[parts[-1]]
    shared, project, file = max(((_shared(parts, file.path), project, file) for project, file in candidates))
    if shared < 2 and (len(candidates) > 1 or project == "tflm"):
        return None
    return project, "/".join(parts[: len(parts) - shared]), file


def _shared(path: Sequence[str], known: Sequence[str]) -> int:
    count = 0
    for one, other in zip(reversed(path), reversed(known)):
        if one != other:
            break
        count += 1
    return count


def _merged(found: dict[tuple[str, str], dict[str, KnownFile]]) -> dict[tuple[str, str], dict[str, KnownFile]]:
    """Copies with all their files; files outside a project's root are assigned to the nearest one."""
    sizes = Counter({key: len(files) for key, files in found.items()})
    merged: dict[tuple[str, str], dict[str, KnownFile]] = {}
    for project in PROJECTS:
        roots = [root for (owner, root), size in sizes.most_common() if owner == project]
        largest = [root for root in roots if 10 * sizes[project, root] >= sizes[project, roots[0]]]
        for root in roots:
            nearest = max(largest, key=lambda other: _common_folders(root, other))
            merged.setdefault((project, nearest), {}).update(found[project, root])
    return {key: files for key, files in merged.items() if len(files) >= FEWEST_FILES}


def _common_folders(one: str, other: str) -> int:
    return _shared(one.split("/")[::-1], other.split("/")[::-1])


# --- Which version -----------------------------------------------------------------------------------------------


def _copy(folder: Path, project: str, files: dict[str, KnownFile]) -> SourceCopy:
    hashes = {path: _hash_of(folder / path) for path in files}
    agreeing = [0] * len(versions_of(project))
    for path, file in files.items():
        for span in file.spans:
            if span.hash == hashes[path]:
                for place in range(span.first, span.last + 1):
                    agreeing[place] += 1
    highest = max(agreeing)
    best = [place for place, count in enumerate(agreeing) if count == highest]
    modified = tuple(
        _modified(project, path, hashes[path], file)
        for path, file in files.items()
        if not any(span.hash == hashes[path] and span.first <= best[-1] <= span.last for span in file.spans)
    )
    return SourceCopy(
        project=project,
        folder=os.path.commonpath([os.path.dirname(path) for path in files]),
        first=versions_of(project)[best[0]],
        last=versions_of(project)[best[-1]],
        contiguous=len(best) == best[-1] - best[0] + 1,
        files=len(files),
        matching=len(files) - len(modified),
        modified=modified,
    )


def _modified(project: str, path: str, text: str, file: KnownFile) -> Modified:
    for span in reversed(file.spans):
        if span.hash == text:
            names = versions_of(project)
            return Modified(path, names[span.first], names[span.last])
    return Modified(path)


def _hash_of(path: Path) -> str:
    try:
        if not path.is_file() or path.stat().st_size > LARGEST_SOURCE:
            return ""
        return text_hash(path.read_bytes())
    except OSError:
        return ""
