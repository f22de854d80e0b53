"""Read files in TOML."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tflm.bounded_reading import read_text
from tflm.errors import ArgumentError


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
