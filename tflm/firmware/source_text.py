"""The text of a C or C++ source file, without what copies of it change: a hash that survives them."""

from __future__ import annotations

import hashlib
import re

HASH_DIGITS = 10

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_LEFT_OUT = re.compile(r"^\s*#\s*(include|pragma|if defined\(|(ifndef|define)\s+\w+_H_?\s*$).*$", re.MULTILINE)
_SPACE = re.compile(r"\s+")


def text_hash(source: bytes) -> str:
    """A hash of a file without comments, white space, include lines, include guards, `#pragma` and `#if defined(`.

    Distributions change include paths, licence headers, guards and formatting; what is computed stays.
    """
    text = _COMMENT.sub("", source.decode("utf-8", "replace"))
    text = _SPACE.sub("", _LEFT_OUT.sub("", text))
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:HASH_DIGITS]
