"""Every file that this package writes: whole or not at all, whoever else writes or reads it at the same time.

New contents are written to a temporary file in the same folder, which then replaces the old file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from contextvars import ContextVar
from pathlib import Path
from typing import Union

FilePath = Union[str, "os.PathLike[str]"]
Contents = Union[bytes, memoryview]

Approval = Callable[["Mapping[Path, Contents | None]"], None]
"""Is given contents by path (None for a file that is appended to or removed); raises an error if that is forbidden."""

approval: ContextVar[Approval | None] = ContextVar("approval", default=None)
"""The rules for the files that a command writes."""


def write_atomically(path: FilePath, data: Contents) -> None:
    """Write a file atomically, because models may be mapped to the old one. It keeps its permissions.

    Raises:
        OSError: the file can't be written; the error names `path`, and no temporary file remains.
    """
    _ask({Path(path): data})
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):  # a device or a pipe
        with _naming(path), open(path, "wb") as file:
            file.write(data)
    else:
        replace_file(path, data)


def replace_file(path: FilePath, data: Contents, private: bool = False) -> None:
    """Write a file as `write_atomically` does, without asking for approval.

    Args:
        path: the file.
        data: its contents.
        private: whether the file is for this user alone, and replaces a link or a pipe of its name.

    Raises:
        OSError: as for `write_atomically`.
    """
    part = _new_file(path, os.fspath(path), data, 0o600) if private else _staged(path, data)
    try:
        with _naming(path):
            os.replace(part, path if private else os.path.realpath(path))
    except BaseException:
        _remove(part)
        raise


def write_files(folder: FilePath, files: Mapping[str, str | Contents], obsolete: Iterable[FilePath] = ()) -> list[Path]:
    """Write files into a folder, which is created if missing, and remove others; or change nothing.

    Args:
        folder: the folder.
        files: contents by path in the folder.
        obsolete: files to remove.

    Returns:
        The full paths of the files written.

    Raises:
        OSError: a file can't be written or removed; all files are as they were, and no temporary file remains.
    """
    contents = {Path(folder, name): data.encode() if isinstance(data, str) else data for name, data in files.items()}
    staged: dict[Path, str | None] = dict.fromkeys(map(Path, obsolete))
    _ask({**dict.fromkeys(staged), **contents})
    with ExitStack() as backups, ExitStack() as undo:
        for path, data in contents.items():
            with _naming(path):
                _make_folder(os.path.dirname(os.path.realpath(path)), undo)
            staged[path] = part = _staged(path, data)
            undo.callback(_remove, part)
        for path, new in staged.items():
            with _naming(path):
                _exchange(os.path.realpath(path), new, backups, undo)
        undo.pop_all()
    return list(contents)


def append(path: FilePath, data: bytes) -> None:
    """Append to a file, which is created if missing.

    Raises:
        OSError: the file can't be written; then it ends as before.
    """
    _ask({Path(path): None})
    with _naming(path), open(path, "ab", buffering=0) as file:
        end = os.fstat(file.fileno()).st_size
        try:
            written = file.write(data)
            if written < len(data):
                file.write(data[written:])  # raises the reason
        except BaseException:
            with contextlib.suppress(OSError):
                file.truncate(end)
            raise


def _ask(contents: Mapping[Path, Contents | None]) -> None:
    approve = approval.get()
    if approve is not None:
        approve(contents)


def _staged(path: FilePath, data: Contents) -> str:
    """Write the new contents to a temporary file next to the old one, and return the temporary file."""
    name = os.path.realpath(path)  # a link remains a link
    if os.path.isdir(name):
        raise IsADirectoryError(errno.EISDIR, "is a directory; name a file", os.fspath(path))
    is_new = not os.path.exists(name)
    if not (is_new or os.access(name, os.W_OK)):
        raise PermissionError(errno.EACCES, "is write-protected", os.fspath(path))
    part = _new_file(path, name, data, 0o666)
    try:
        if not is_new:
            os.chmod(part, os.stat(name).st_mode & (stat.S_IRWXU | stat.S_IRWXG | stat.S_IRWXO))
    except BaseException:
        _remove(part)
        raise
    return part


def _new_file(path: FilePath, name: str, data: Contents, mode: int) -> str:
    """Write a temporary file next to the file `name`, which the caller knows as `path`; returns its name."""
    part = _temporary(name)
    try:
        with _naming(path), open(part, "xb", opener=lambda file, flags: os.open(file, flags, mode)) as file:
            file.write(data)
    except BaseException:
        _remove(part)
        raise
    return part


def _temporary(name: str) -> str:
    """A name in the folder of a file that no other thread or process uses."""
    return os.path.join(os.path.dirname(name), f".tflm-{os.urandom(8).hex()}.part")


def _exchange(name: str, part: str | None, backups: ExitStack, undo: ExitStack) -> None:
    """Replace a file by a temporary one, or remove it; `undo` restores it."""
    if os.path.exists(name):
        backup = _temporary(name)
        with contextlib.suppress(OSError):  # a file system without links
            os.link(name, backup)
            backups.callback(_remove, backup)
            undo.callback(os.replace, backup, name)
    else:
        undo.callback(_remove, name)
    if part is None:
        os.unlink(name)
    else:
        os.replace(part, name)


def _make_folder(folder: str, undo: ExitStack) -> None:
    """Create a folder and those that it is in, unless they exist."""
    missing = []
    while not os.path.lexists(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder):
        raise NotADirectoryError(errno.ENOTDIR, f"{folder} is not a folder")
    for each in reversed(missing):
        with contextlib.suppress(FileExistsError):  # created by another process meanwhile
            os.mkdir(each)
            undo.callback(_remove_folder, each)


def _remove(name: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(name)


def _remove_folder(name: str) -> None:
    with contextlib.suppress(OSError):
        os.rmdir(name)


@contextlib.contextmanager
def _naming(path: FilePath) -> Iterator[None]:
    """Let errors name the file that the caller knows, not a temporary one."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(path)) from None
