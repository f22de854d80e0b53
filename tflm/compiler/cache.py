"""The cache of machine code: object files that earlier processes left.

They are in the user's cache folder (`$TFLM_CACHE_DIR`, or tflm in `$XDG_CACHE_HOME` or ~/.cache), a file for each
kernel. Its name has a hash of what it was made from: the sources that the kernel reaches, compiler and processor. A
file begins with the hash of its contents. It is used only if that is right, and folder and file belong to the user.
Whatever is wrong with a file or a folder is a miss, never an error.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType

import llvmlite
import llvmlite.binding as llvm
import numpy as np

from tflm.compiler.language import Intrinsic, Kernel, called
from tflm.compiler.packages import package_file
from tflm.compiler.processor import processor

CACHE_VARIABLE = "TFLM_CACHE_DIR"

MOST_BYTES = 1 << 26
"""No object file is larger, and no more is read."""

VECTORS = Path(__file__).with_name("vectors.py")
COMPILER_SOURCES = [Path(__file__).with_name(name) for name in ("compiler.py", "entry.py", "numba_compiler.py")]


# --- Files -------------------------------------------------------------------------------------------------------


@functools.cache
def cache_folder() -> Path | None:
    """The user's own folder; None where there is none that can be trusted and written."""
    try:
        folder = _named_folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder if _is_own(os.stat(folder)) and os.access(folder, os.W_OK | os.X_OK) else None
    except (OSError, RuntimeError, ValueError):  # RuntimeError: the user has no home
        return None


def _named_folder() -> Path:
    """The folder that the environment names, which must not depend on the working directory unless it is ours."""
    given = os.environ.get(CACHE_VARIABLE)
    if given:
        return Path(given).absolute()
    caches = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not caches.is_absolute():
        caches = Path.home() / ".cache"
    if not caches.is_absolute():
        raise ValueError(f"{caches} is not absolute")
    return caches / "tflm"


def read(kernel: Kernel) -> bytes | None:
    """The object file of a kernel; None if no file holds it."""
    folder = cache_folder()
    if folder is None:
        return None
    try:
        with open(_path(folder, kernel), "rb", opener=_open_at_once) as file:
            status = os.fstat(file.fileno())
            if not _is_own(status) or not stat.S_ISREG(status.st_mode):
                return None
            digest, made = file.read(32), file.read(MOST_BYTES)
    except OSError:
        return None
    return made if hashlib.sha256(made).digest() == digest else None


def write(kernel: Kernel, made: bytes) -> None:
    """Keep the object file of a kernel, if that can be done."""
    folder = cache_folder()
    if folder is None:
        return
    with contextlib.suppress(OSError):
        _write_atomically(_path(folder, kernel), hashlib.sha256(made).digest() + made)


def _path(folder: Path, kernel: Kernel) -> Path:
    return folder / f"{kernel.function_name}-{key(kernel)}"


def _write_atomically(path: Path, data: bytes) -> None:
    """Write a whole file, or none."""
    descriptor, name = tempfile.mkstemp(dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


# --- What systems differ in --------------------------------------------------------------------------------------


def _is_own(status: os.stat_result) -> bool:
    """Whether the user owns it, and nobody else may write there."""
    return status.st_uid == os.getuid() and not status.st_mode & 0o022


def _open_at_once(path: str, flags: int) -> int:
    """Open what may be a FIFO, which would otherwise wait for its other end."""
    return os.open(path, flags | os.O_NONBLOCK, 0o600)


_locks: set[int] = set()
"""Descriptors of lock files that are open. A fork has them, too, and would keep its parent's lock."""


@contextlib.contextmanager
def locked() -> Iterator[None]:
    """One process at a time, where the folder lets a file be locked; else all at once, which costs time only."""
    descriptor = _open_lock()
    try:
        if descriptor is not None:
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        if descriptor in _locks:
            _locks.remove(descriptor)
            with contextlib.suppress(OSError):  # closing is not enough while a fork has the descriptor
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


def _open_lock() -> int | None:
    folder = cache_folder()
    if folder is None:
        return None
    try:
        descriptor = _open_at_once(str(folder / "lock"), os.O_RDONLY | os.O_CREAT)
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


os.register_at_fork(after_in_child=_close_locks)


# --- What machine code is made from ------------------------------------------------------------------------------


def key(kernel: Kernel) -> str:
    """A hash of all that decides the machine code of a kernel."""
    made_from = hashlib.sha256(_environment())
    made_from.update(repr((kernel.name, list(kernel.parameters.items()))).encode())
    for text in sorted(_sources(kernel)):
        made_from.update(text)
    return made_from.hexdigest()[:24]


@functools.cache
def _environment() -> bytes:
    versions = (llvmlite.__version__, _numba_version(), sys.version_info[:2])
    return repr((versions, llvm.get_process_triple(), *processor())).encode()


def _numba_version() -> bytes:
    """What says numba's version; to import it, or the metadata of packages, would take longer than all the rest."""
    file = package_file("numba")
    if file is None:
        raise FileNotFoundError("numba is not installed")
    return Path(file).with_name("_version.py").read_bytes()


def _sources(kernel: Kernel) -> set[bytes]:
    """The text of all modules that a kernel's code comes from, and the constants that it names."""
    package = kernel.function.__module__.partition(".")[0]
    pending = [kernel.function, *kernel.functions.values()]
    texts, seen = {_text(path) for path in COMPILER_SOURCES}, set(pending)
    while pending:
        function = pending.pop()
        texts.add(_text(Path(function.__code__.co_filename)))
        for name, value in called(function):
            if isinstance(value, FunctionType) and value.__module__.partition(".")[0] == package:
                if value not in seen:
                    seen.add(value)
                    pending.append(value)
            elif isinstance(value, Intrinsic):
                texts.add(_text(VECTORS))
            elif isinstance(value, (int, float, str, tuple, dict, np.generic)):
                texts.add(f"{name}={value!r}".encode())
    return texts


@functools.cache
def _text(path: Path) -> bytes:
    return path.read_bytes()
