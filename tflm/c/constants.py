"""Constants as C: literals and tables. Also breaks long lines of code."""

from __future__ import annotations

import bisect
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.c.values import C_TYPES as NUMBER_TYPES

LINE_LENGTH = 120

C_TYPES = {**NUMBER_TYPES, "bool": "uint8_t", "complex64": "float"}
"""The C type of an element, by the name of its dtype. A complex number is two floats."""


def c_type(dtype: np.dtype[Any]) -> str:
    """Return the C type of an element; that of a byte if C has no such type."""
    return C_TYPES.get(dtype.name, "uint8_t")


def integer_literal(value: int) -> str:
    """Format an integer of any type up to 64 bits."""
    if value == -(2**31):
        return "INT32_MIN"
    if value == -(2**63):
        return "INT64_MIN"
    if -(2**31) < value < 2**31:
        return str(value)
    if value < 2**32 and value > 0:
        return f"{value}u"
    return f"INT64_C({value})" if value < 2**63 else f"UINT64_C({value})"


def float_literal(value: float, suffix: str) -> str:
    """Format a float as the shortest decimal number that C reads as the same value; "f" marks a float32."""
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    if suffix:
        value_text = str(np.float32(value))
        return (value_text if "." in value_text or "e" in value_text else value_text + ".0") + suffix
    return repr(float(value))


def table_definition(name: str, values: npt.NDArray[Any]) -> str:
    """Return the definition of a `static const` array."""
    if values.dtype.kind == "c":
        values = values.view(np.float32)
    kind = c_type(values.dtype)
    if kind == "uint8_t":
        values = values.view(np.uint8)
    if values.dtype.kind == "f":
        suffix = "f" if values.dtype == np.float32 else ""
        literals = [float_literal(value, suffix) for value in values.tolist()]
    else:
        literal = str if values.dtype.itemsize < 4 else integer_literal
        literals = list(map(literal, values.tolist()))
    body = "\n".join(lines_of(literals))
    return f"static const {kind} {name}[{len(literals)}] = {{\n{body}\n}};\n"


def lines_of(words: Iterable[str], indent: str = "    ") -> Iterator[str]:
    """Return words on indented lines, with a comma after each word."""
    words = list(words)
    ends = list(itertools.accumulate(len(word) + 2 for word in words))  # with the comma, and the space after it
    begin = before = 0
    while begin < len(words):
        end = max(bisect.bisect_right(ends, before + LINE_LENGTH - len(indent) + 1), begin + 1)
        yield f"{indent}{', '.join(words[begin:end])},"
        begin, before = end, ends[end - 1]


BREAKS = re.compile(r", | && | \|\| | \+ ")
"""Places where a line of C may be broken."""


def short_lines(text: str) -> str:
    """Break lines of code with more than `LINE_LENGTH` characters."""
    return "\n".join(piece for line in text.split("\n") for piece in _pieces(line))


def _pieces(line: str) -> Iterator[str]:
    """Yield the pieces of a line; the line itself if it is short."""
    indent = " " * (len(line) - len(line.lstrip()) + 8)
    is_code = not line.lstrip().startswith("#") and not any(mark in line for mark in ('"', "/*", "*/", "\\"))
    while is_code and len(line) > LINE_LENGTH:
        places = [found.end() for found in BREAKS.finditer(line, len(indent)) if found.end() <= LINE_LENGTH]
        if not places:
            break
        yield line[: places[-1]].rstrip()
        line = indent + line[places[-1] :]
    yield line


def wrapped(first: str, words: Sequence[str], last: str) -> Iterator[str]:
    """Return a call or initializer on one line, or on several if it is too long."""
    line = first + ", ".join(words) + last
    if len(line) <= LINE_LENGTH:
        yield line
        return
    indent = " " * (len(first) - len(first.lstrip()) + 8)
    yield first.rstrip()
    line = ""
    for i, word in enumerate(words):
        word += "," if i < len(words) - 1 else last
        if line and len(indent) + len(line) + 1 + len(word) > LINE_LENGTH:
            yield indent + line
            line = ""
        line += f" {word}" if line else word
    yield indent + line
