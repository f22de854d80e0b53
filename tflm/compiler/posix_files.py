"""Cache files on POSIX systems: their folder, their owner, and locks."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path


def caches() -> Path:
    """Return the folder in which programs keep the caches of this user.

    Raises:
        RuntimeError: the user has no home.
    """
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if given.is_absolute():
        return given
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")


def is_own(status: os.stat_result) -> bool:
    """Whether a file belongs to the user, and nobody else may write it."""
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def open_at_once(path: str, flags: int) -> int:
    """Open a file that may be a FIFO, without waiting for its other end."""
    return os.open(path, flags | os.O_NONBLOCK, 0o600)


def try_lock(descriptor: int) -> bool:
    """Lock a file unless another process has locked it, and return whether it was locked.

    Raises:
        OSError: the file system has no locks.
    """
    import fcntl  # a browser's Python lacks it, and locks nothing

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(descriptor: int) -> None:
    """Release the lock of a file. Closing the file is not enough while a fork has its descriptor."""
    import fcntl

    fcntl.flock(descriptor, fcntl.LOCK_UN)
