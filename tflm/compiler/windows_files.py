"""Cache files on Windows: their folder, their owner, and locks."""

from __future__ import annotations

import errno
import importlib
import os
from pathlib import Path
from typing import Any

LOCKED_BYTES = 1
"""The length of the range that is locked, from the start of the file; it may lie beyond the file's end."""


def caches() -> Path:
    """Return the folder in which programs keep the caches of this user.

    Raises:
        RuntimeError: the user has no home.
    """
    given = Path(os.environ.get("LOCALAPPDATA", ""))
    return given if given.is_absolute() else Path.home() / "AppData" / "Local"


def is_own(status: os.stat_result) -> bool:
    """Return True: modes have no meaning here. The access control list of the user's folder decides who may write."""
    return True


def open_at_once(path: str, flags: int) -> int:
    """Open a file without converting line endings. Windows has no FIFOs in folders that could block."""
    return os.open(path, flags | getattr(os, "O_BINARY", 0), 0o600)


def try_lock(descriptor: int) -> bool:
    """Lock a file unless another process has locked it, and return whether it was locked.

    Raises:
        OSError: the file system has no locks.
    """
    try:
        _locking(descriptor, "LK_NBLCK")
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EDEADLK):
            raise
        return False
    return True


def unlock(descriptor: int) -> None:
    """Release the lock of a file."""
    _locking(descriptor, "LK_UNLCK")


def _locking(descriptor: int, mode: str) -> None:
    msvcrt: Any = importlib.import_module("msvcrt")  # type checkers know its names on Windows only
    os.lseek(descriptor, 0, os.SEEK_SET)
    msvcrt.locking(descriptor, getattr(msvcrt, mode), LOCKED_BYTES)
