"""Files in the user's cache folder, written by earlier processes.

It is `$TFLM_CACHE_DIR`, or tflm in the system's folder for caches. A file begins with the hash of its contents. It is
used only if the hash is right, and folder and file belong to the user. Any problem with a file or a folder counts as a
cache miss, never as an error.
"""

from __future__ import annotations

import contextlib
import functools
import os
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from tflm.atomic_write import Contents, replace_file

if sys.platform == "win32":
    from tflm.compiler import windows_files as files
else:
    from tflm.compiler import posix_files as files

CACHE_VARIABLE = "TFLM_CACHE_DIR"

MAX_BYTES = 1 << 26
"""Maximum size of a file; no more is read."""


@functools.cache
def cache_folder() -> Path | None:
    """Return the user's own folder; None if there is none that can be trusted and written."""
    try:
        folder = _named_folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder if files.is_own(os.stat(folder)) and os.access(folder, os.W_OK | os.X_OK) else None
    except (OSError, RuntimeError, ValueError):  # RuntimeError: the user has no home
        return None


def _named_folder() -> Path:
    """Return the folder that the environment names. It must be absolute unless the user owns the working directory."""
    given = os.environ.get(CACHE_VARIABLE)
    if given:
        return Path(given).absolute()
    caches = files.caches()
    if not caches.is_absolute():
        raise ValueError(f"{caches} is not absolute")
    return caches / "tflm"


def sha256(blocks: Iterable[Contents]) -> bytes:
    """Return the SHA-256 of blocks of bytes, one after the other."""
    import hashlib  # loads OpenSSL

    digest = hashlib.sha256()
    for block in blocks:
        digest.update(block)
    return digest.digest()


def read(name: str) -> bytes | None:
    """Return the contents of a file; None if there is none that can be trusted."""
    folder = cache_folder()
    if folder is None:
        return None
    try:
        with open(folder / name, "rb", opener=files.open_at_once) as file:
            status = os.fstat(file.fileno())
            if not files.is_own(status) or not stat.S_ISREG(status.st_mode):
                return None
            digest, contents = file.read(32), file.read(MAX_BYTES)
    except OSError:
        return None
    return contents if sha256([contents]) == digest else None


def write(name: str, contents: bytes) -> None:
    """Store a file, if possible."""
    folder = cache_folder()
    if folder is None:
        return
    with contextlib.suppress(OSError):
        replace_file(folder / name, sha256([contents]) + contents, private=True)


# --- Locks -----------------------------------------------------------------------------------------------------------


_locks: set[int] = set()
"""Descriptors of open lock files. A fork inherits them, and would keep its parent's lock."""


SECONDS_TO_WAIT, POLL_SECONDS = 20.0, 0.02
"""How long to wait for another process, which holds a lock while it compiles one kernel, and the polling interval."""

LOCKS = 16
"""Number of lock files: enough that processes seldom wait for each other's files."""


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Let one process at a time use a file. If files cannot be locked, all may: that only costs time.

    Args:
        name: name of the file, which shares its lock with a sixteenth of all files.
    """
    descriptor = _open_lock(lock_of(name))
    try:
        if descriptor is not None:
            with contextlib.suppress(OSError):
                _wait_for_lock(descriptor)
        yield
    finally:
        if descriptor in _locks:
            _locks.remove(descriptor)
            with contextlib.suppress(OSError):
                files.unlock(descriptor)
            os.close(descriptor)


def _wait_for_lock(descriptor: int) -> None:
    """Take a lock, or go on without it after `SECONDS_TO_WAIT`: its holder may be stopped.

    Raises:
        OSError: the file system has no locks.
    """
    begin = time.monotonic()
    while not files.try_lock(descriptor):
        if time.monotonic() - begin > SECONDS_TO_WAIT:
            from logging import getLogger  # slow to import, and seldom needed

            getLogger(__name__).warning(
                "another process has held a lock in %s for %g s, perhaps because it is stopped; "
                "this one compiles its kernels without waiting any longer",
                cache_folder(),
                SECONDS_TO_WAIT,
            )
            return
        time.sleep(POLL_SECONDS)


def lock_of(name: str) -> str:
    """Return the name of a file's lock."""
    return f"lock-{sum(name.encode()) % LOCKS}"


def _open_lock(name: str) -> int | None:
    folder = cache_folder()
    if folder is None:
        return None
    try:
        descriptor = files.open_at_once(str(folder / name), os.O_RDONLY | os.O_CREAT)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    _locks.add(descriptor)
    return descriptor


def _close_locks() -> None:
    while _locks:
        os.close(_locks.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_locks)
