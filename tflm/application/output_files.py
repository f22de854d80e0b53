"""Decide which files a command may write: new ones, and those that tflm wrote and that have not changed since.

The cache folder remembers which files were written, by hashes of path and contents.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from pathlib import Path

from tflm.application.errors import OptionError
from tflm.atomic_write import Contents, approval
from tflm.bounded_reading import BLOCK_BYTES
from tflm.compiler import cached_files

RECORD = "written"
"""File of the cache: for each file that was written, the hashes of its path and its contents."""

HASH_BYTES = 16
MAX_RECORDED = 8192
"""Files that are remembered, the latest ones."""

NAMED = 3
"""Files that an error names."""


class Written(Enum):
    """The kind of output that a parameter of a command names; marks the parameter's annotation."""

    FILE = "a file"
    MODEL = "a model, which may replace the one that it is made from"
    FOLDER = "a folder, into which files are written"
    UPDATED = "a file that is appended to or changed in place"


class OutputRules:
    """The files that a command reads, and the rules for what it may write; calling it returns an `approval`.

    Args:
        inputs: files that the command reads, which are never replaced.
        force: whether files may be replaced that tflm did not write, and the model itself by a new one.
    """

    def __init__(self, inputs: Iterable[Path] = (), force: bool = False):
        self.inputs = list(inputs)
        self.force = force
        self._models: list[Path] = []
        self._required: list[str] = []

    def require(self, path: Path, kind: Written) -> None:
        """Check an output before the work begins, as far as that is possible without its contents.

        Raises:
            OptionError: it is an input, or tflm did not write it.
            OSError: its folder does not exist or is not writable, or it is a folder where a file is expected.
        """
        if kind is Written.FOLDER:
            if path.exists() and not path.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, "is not a folder; pass a folder", str(path))
            return
        if kind is Written.MODEL:
            self._models.append(path)
        self._require_no_input(path)
        if os.path.realpath(path) in self._required:
            raise OptionError(f"{path} is named for two outputs")
        self._required.append(os.path.realpath(path))
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "is a directory; name a file", str(path))
        folder = path.resolve().parent
        if not folder.is_dir():
            raise FileNotFoundError(errno.ENOENT, f"no folder {folder}; create it first", str(path))
        if not (path.exists() or os.access(folder, os.W_OK)):
            raise PermissionError(errno.EACCES, f"the folder {folder} is not writable", str(path))
        if kind is not Written.UPDATED and path.is_file() and not self.force and not _is_recorded(path):
            raise OptionError(_refusal([path]))

    def __call__(self, contents: Mapping[Path, Contents | None]) -> None:
        """Check files before they are written, and remember them.

        Raises:
            OptionError: one is an input; or it has other contents, and tflm did not write them.
        """
        for path in contents:
            self._require_no_input(path)
        entries = {path: _entry(path, data) for path, data in contents.items() if data is not None}
        if not self.force:
            found = {path: _entry_of_file(path) for path in entries if path.is_file()}
            known = _recorded()
            foreign = [path for path, entry in found.items() if entry != entries[path] and entry not in known]
            if foreign:
                raise OptionError(_refusal(foreign))
        _record(entries.values())

    def _require_no_input(self, path: Path) -> None:
        if not any(is_same_file(path, each) for each in self.inputs):
            return
        if path not in self._models:
            raise OptionError(f"{path} is an input of this command; name another file for the output")
        if not self.force:
            raise OptionError(f"{path} is the model itself; --force replaces it")


def note_input(path: Path) -> None:
    """Let the running command, if any, never replace a file that it reads."""
    rules = approval.get()
    if isinstance(rules, OutputRules):
        rules.inputs.append(path)


def obsolete_files(folder: Path, kept: Collection[Path]) -> list[Path]:
    """Files in a folder that a command wrote earlier, and the running one does not write; none without a command.

    Raises:
        OptionError: one was changed since.
    """
    rules = approval.get()
    if not isinstance(rules, OutputRules):
        return []
    known = _recorded()
    paths = {entry[:HASH_BYTES] for entry in known}
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path not in kept)
    former = [path for path in files if _path_hash(path) in paths]
    changed = [path for path in former if _entry_of_file(path) not in known]
    if changed and not rules.force:
        raise OptionError(f"{_names(changed)} would be removed, but changed since tflm wrote it; --force removes it")
    return former


def is_same_file(path: Path, other: Path) -> bool:
    """Whether two paths lead to one file, through links, too."""
    return path.exists() and other.exists() and path.samefile(other)


def _refusal(paths: list[Path]) -> str:
    return f"{_names(paths)} exists, and tflm did not write it, or it changed since; --force replaces it"


def _names(paths: list[Path]) -> str:
    more = f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
    return f"{', '.join(map(str, paths[:NAMED]))}{more}"


# --- The record ------------------------------------------------------------------------------------------------------


def _is_recorded(path: Path) -> bool:
    return _entry_of_file(path) in _recorded()


def _recorded() -> list[bytes]:
    record = cached_files.read(RECORD) or b""
    return [record[at : at + 2 * HASH_BYTES] for at in range(0, len(record), 2 * HASH_BYTES)]


def _record(entries: Iterable[bytes]) -> None:
    """Remember files, before they are written: nothing is lost if they never are."""
    latest = list(entries)
    if not latest:
        return
    with cached_files.locked(RECORD):
        earlier = [entry for entry in _recorded() if entry not in latest]
        cached_files.write(RECORD, b"".join([*earlier, *latest][-MAX_RECORDED:]))


def _entry_of_file(path: Path) -> bytes:
    with path.open("rb") as file:
        return _path_hash(path) + _hash(iter(lambda: file.read(BLOCK_BYTES), b""))


def _entry(path: Path, data: Contents) -> bytes:
    return _path_hash(path) + _hash([data])


def _path_hash(path: Path) -> bytes:
    return _hash([os.fsencode(os.path.realpath(path))])


def _hash(blocks: Iterable[Contents]) -> bytes:
    return cached_files.sha256(blocks)[:HASH_BYTES]
