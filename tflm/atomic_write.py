"""Atomic writes: a file is written next to its destination, then renamed."""

from __future__ import annotations

import contextlib
import errno
import os


def write_atomically(path: str | os.PathLike[str], data: bytes | memoryview) -> None:
    """Write a file atomically, because models may be mapped to the old one.

    Raises:
        OSError: the file can't be written; the error names `path`, and no temporary file remains.
    """
    name = os.path.realpath(path)  # a link remains a link
    if os.path.isdir(name):
        raise IsADirectoryError(errno.EISDIR, "is a directory; name a file", os.fspath(path))
    if os.path.exists(name) and not os.path.isfile(name):  # a device or a pipe
        with open(name, "wb") as file:
            file.write(data)
        return
    part = f"{name}.{os.getpid()}.part"
    try:
        with open(part, "xb") as file:
            file.write(data)
        os.replace(part, name)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise type(error)(error.errno, error.strerror, os.fspath(path)) from None
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise
