"""Reads arrays in .npy and .npz files: headers first, values only after their sizes were checked.

A header may claim any shape, and a member of an archive may be a thousand times larger than the archive.
"""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from tflm.bounded_reading import require_regular
from tflm.errors import DataError
from tflm.report import short_size

Array = npt.NDArray[Any]

MAX_HEADER_BYTES = 10_000
"""Numpy's size limit for headers of untrusted files, plus the few bytes before the header."""

MAX_ARRAY_BYTES = 1 << 30
"""Maximum bytes read into memory from one file. A data set's .npy file may be larger, because it is memory-mapped."""

HEADERS: dict[tuple[int, int], Callable[..., Any]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
NUMBERS = "biufc"
"""Kinds of element types that a tensor may have."""


@dataclass(frozen=True)
class StoredArray:
    """An array in a file of which only the header was read.

    Attributes:
        path: the file.
        key: its name in an .npz file; empty for a .npy file.
        shape, dtype: from the header.
        opened: opens the stream that starts with the header.
    """

    path: Path
    key: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    opened: Callable[[], IO[bytes]]

    @property
    def name(self) -> str:
        """Its name in messages."""
        return f"{self.path}: {self.key!r}" if self.key else str(self.path)

    @property
    def nbytes(self) -> int:
        """Size of the values in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def read(self) -> Array:
        """The values.

        Raises:
            DataError: they take more than `MAX_ARRAY_BYTES`, or the file is truncated.
            OSError: the file can't be read.
        """
        require_room(self.path, [self])
        with _readable(self.path, self.key), self.opened() as stream:
            values: Array = np.lib.format.read_array(stream, allow_pickle=False)
        return values


def require_room(path: Path, arrays: Iterable[StoredArray]) -> None:
    """Check that arrays may be read into memory together.

    Raises:
        DataError: they take more than `MAX_ARRAY_BYTES`.
    """
    size = sum(array.nbytes for array in arrays)
    if size > MAX_ARRAY_BYTES:
        raise DataError(
            f"{path}: its values take {short_size(size)}; at most {short_size(MAX_ARRAY_BYTES)} are read into memory. "
            "For larger data sets, use tflm evaluate with a .npy file, which is mapped"
        )


def npy_of(array: npt.NDArray[Any]) -> bytes:
    """The contents of a .npy file with an array."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def stored_array(path: Path) -> StoredArray:
    """The array of a .npy file.

    Raises:
        DataError: it is a pipe, not a .npy file, or cut off.
        OSError: it can't be read.
    """
    require_regular(path)
    return _stored(path, "", lambda: path.open("rb"), path.stat().st_size)


def stored_arrays(path: Path) -> dict[str, StoredArray]:
    """The arrays of an .npz file, by name.

    Raises:
        DataError: it is a pipe or not an .npz file, or a member is cut off or not an array.
        OSError: it can't be read.
    """
    require_regular(path)
    with _readable(path):
        archive = zipfile.ZipFile(path)
        return {key: found for member in archive.infolist() for key, found in _member(path, archive, member)}


def _member(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Iterator[tuple[str, StoredArray]]:
    key = member.filename.removesuffix(".npy")
    if key == member.filename:
        raise DataError(f"{path}: {key!r} is not an array")
    yield key, _stored(path, key, lambda: archive.open(member), member.file_size)


def _stored(path: Path, key: str, opened: Callable[[], IO[bytes]], size: int) -> StoredArray:
    with _readable(path, key), opened() as stream:
        head = io.BytesIO(stream.read(MAX_HEADER_BYTES + 64))
        version = np.lib.format.read_magic(head)
        if version not in HEADERS:
            raise ValueError(f"version {version} of the format holds records")
        shape, _, dtype = HEADERS[version](head, max_header_size=MAX_HEADER_BYTES)
        if dtype.hasobject or any(type(size) is not int or size < 0 for size in shape):  # True is an int, too
            raise ValueError(f"it holds {dtype} of shape {list(shape)}")
    found, there = StoredArray(path, key, shape, dtype, opened), max(size - head.tell(), 0)
    if found.nbytes > there:
        what = f"{dtype} of shape {list(shape)}, {found.nbytes:,} bytes"
        raise DataError(f"{found.name}: is truncated: its header says {what}; found {there:,}")
    return found


@contextmanager
def _readable(path: Path, key: str = "") -> Iterator[None]:
    """Convert the errors of numpy, zipfile and the decompressors about invalid bytes to `DataError`."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise
        what = f"{key!r} is not an array" if key else f"is not a {path.suffix} file"
        raise DataError(f"{path}: {what} that numpy can read: {error or type(error).__name__}") from error
