"""Files that are whole or not there: written beside their place, then moved to it."""

from __future__ import annotations

import contextlib
import errno
import os


def write_atomically(path: str | os.PathLike[str], data: bytes | memoryview) -> None:
    """Write a file, which may be one that models are mapped to: it must not be cut short.

    Raises:
        OSError: it can't be written; the error names `path`, and nothing is left behind.
    """
    name = os.path.realpath(path)  # a link stays one
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
