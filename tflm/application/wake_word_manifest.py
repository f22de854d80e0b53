"""The `tensor_arena_size` in the manifest of a microWakeWord model, a JSON file that ESPHome reads."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tflm.application.errors import RequestError
from tflm.atomic_write import replace_file

SECTION, KEY = "micro", "tensor_arena_size"

BLANKS = re.compile(r"[ \t\r\n]*")


class TextRange(NamedTuple):
    """A piece of text."""

    begin: int
    end: int


@dataclass(frozen=True)
class Manifest:
    """A manifest.

    Attributes:
        path: the file.
        text: its full text.
        size: its `tensor_arena_size`, in bytes; None if it has none.
    """

    path: Path
    text: str
    size: int | None

    def with_size(self, size: int) -> str:
        """The text with another size, otherwise unchanged."""
        section = _members(self.text, 0)[SECTION]
        members = _members(self.text, section.begin)
        if KEY in members:
            begin, end = members[KEY]
            return f"{self.text[:begin]}{size}{self.text[end:]}"
        begin = section.begin + 1
        blanks = BLANKS.match(self.text, begin)
        before = "" if blanks is None else blanks.group()
        separator = f",{before or ' '}" if members else ""
        at = begin + len(before)
        return f'{self.text[:at]}"{KEY}": {size}{separator}{self.text[at:]}'

    def write(self, size: int) -> None:
        """Replace the size in the file.

        Raises:
            OSError: the file can't be written; it is left unchanged.
        """
        replace_file(self.path, self.with_size(size).encode())


def read_manifest(path: Path) -> Manifest:
    """Read a manifest from its file.

    Raises:
        OSError: it can't be read.
        RequestError: it is not the manifest of a microWakeWord model; the message says what is wrong.
    """
    try:
        text = path.read_bytes().decode()
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{path}: not a JSON file: {error}") from None
    section = content.get(SECTION) if isinstance(content, dict) else None
    if not isinstance(section, dict):
        raise RequestError(f'{path}: not the manifest of a microWakeWord model: it has no object "{SECTION}"')
    size = section.get(KEY)
    if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 0):
        raise RequestError(f"{path}: {SECTION}.{KEY} is {json.dumps(size)}; it must be a number of bytes")
    return Manifest(path, text, size)


def _members(text: str, begin: int) -> dict[str, TextRange]:
    """The spans of an object's values, by key; for a duplicate key the last one, as in JSON readers."""
    return dict(_pairs(text, _after_blanks(text, begin) + 1))


def _pairs(text: str, at: int) -> Iterator[tuple[str, TextRange]]:
    """The members of an object whose text is known to be valid, starting after its brace."""
    decoder = json.JSONDecoder()
    at = _after_blanks(text, at)
    while text[at] != "}":
        key, at = decoder.raw_decode(text, at)
        begin = _after_blanks(text, _after_blanks(text, at) + 1)  # after the colon
        _, end = decoder.raw_decode(text, begin)
        yield key, TextRange(begin, end)
        at = _after_blanks(text, end)
        if text[at] == ",":
            at = _after_blanks(text, at + 1)


def _after_blanks(text: str, at: int) -> int:
    found = BLANKS.match(text, at)
    return at if found is None else found.end()
