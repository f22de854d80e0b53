"""List files of a source tree, and hash C and C++ files independently of typical edits of copies."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Set
from pathlib import Path

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
