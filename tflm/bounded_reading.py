"""Reads files with a size limit: larger files are rejected instead of loaded."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import Any, BinaryIO

from tflm.errors import ArgumentError, DataError

MAX_TEXT_BYTES = 128 << 20
"""Limit for a table, a log or a document: a hundred thousand rows of a thousand numbers."""

MAX_MODEL_BYTES = (1 << 31) - 1
"""Limit for a model: offsets in a flatbuffer have 31 bits."""

BLOCK_BYTES = 1 << 20


def require_regular(path: str | os.PathLike[str]) -> None:
    """Check that a file can be opened without waiting, and read more than once.

    Raises:
        DataError: it is a pipe, a socket or a device.
        OSError: there is no such file.
    """
    mode = os.stat(path).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # to open a folder is an error that says so
        raise DataError(f"{os.fspath(path)}: not a regular file; write the data of a pipe or device to a file first")


def read_at_most(path: str | os.PathLike[str], limit: int) -> bytes:
    """The bytes of a file or a pipe.

    Raises:
        DataError: it has more than `limit` bytes.
        OSError: it can't be read.
    """
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        if stat.S_ISREG(status.st_mode) and status.st_size > limit:
            raise _too_large(path, f"{status.st_size:,}", limit)
        return read_stream(file, limit, os.fspath(path))


def read_stream(file: BinaryIO, limit: int, name: str) -> bytes:
    """The bytes of a stream, to its end.

    Raises:
        DataError: it has more than `limit` bytes.
        OSError: it can't be read.
    """
    parts, total = [], 0
    while part := file.read(min(BLOCK_BYTES, limit + 1 - total)):
        parts.append(part)
        total += len(part)
        if total > limit:
            raise _too_large(name, f"more than {limit:,}", limit)
    return b"".join(parts)


def read_text(path: str | os.PathLike[str], errors: str = "strict") -> str:
    """The text of a file in UTF-8.

    Raises:
        DataError: it is not UTF-8, or has more than `MAX_TEXT_BYTES`.
        OSError: it can't be read.
    """
    try:
        return read_at_most(path, MAX_TEXT_BYTES).decode("utf-8-sig", errors)
    except UnicodeDecodeError as error:
        raise DataError(f"{os.fspath(path)}: is not UTF-8 text: {error.reason} at byte {error.start:,}") from None


def _too_large(path: str | os.PathLike[str], size: str, limit: int) -> DataError:
    return DataError(f"{os.fspath(path)}: has {size} bytes; at most {limit:,} are read")


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a file.

    Raises:
        ArgumentError: it is not TOML; the message has the line.
        DataError: it is too large.
        OSError: it can't be read.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib  # of the extra `cli`
    try:
        return tomllib.loads(read_text(path))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ArgumentError(f"{path} is not TOML: {error}") from None
