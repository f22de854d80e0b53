"""Reads models from C source, where they are arrays of bytes, as `xxd -i` and TFLM's scripts write them.

Time is linear in the text: an array is looked at closely only if its first numbers are those of a model.
"""

from __future__ import annotations

import functools
import re

from tflm.bounded_reading import MAX_TEXT_BYTES
from tflm.errors import ModelError
from tflm.schema.reader import IDENTIFIER

MAX_ARRAYS = 1000
"""Only this many arrays of a file are looked at."""

_COMMENT_START = re.compile("/[*/]")
_NUMBERS = re.compile(r"\{\s*(?=[-+0-9'])")
_NAME = re.compile(r"([A-Za-z_]\w*)\s*$")
_INTEGER = re.compile(r"([-+]?)(0[xX][0-9a-fA-F]+|0[bB][01]+|[0-9]+)[uUlL]{0,3}")
_DECLARATION = 256
"""Characters before an array's numbers in which its name is looked for."""

_FIRST_NUMBERS = 1024
"""Characters with the numbers of an array that say whether it is a model."""

_CHUNK = 1 << 16


def without_comments(text: str) -> str:
    """Remove comments, in time linear in the text; an unterminated /* is left in place."""
    parts, at, after, last_end = [], 0, 0, text.rfind("*/")
    while start := _COMMENT_START.search(text, after):
        after = start.end()
        if start[0] == "//":
            end = text.find("\n", after)
            end = len(text) if end < 0 else end
        elif after <= last_end:
            end = text.index("*/", after) + 2
        else:
            continue
        parts.append(text[at : start.start()])
        at = after = end
    return "".join(parts) + text[at:]


def model_in_c(source: memoryview) -> bytes | None:
    """The bytes of the model in C source; None if the text declares no array of numbers.

    Raises:
        ModelError: no array is a model, several are, or the array is cut off; the message names them.
    """
    if len(source) > MAX_TEXT_BYTES:
        raise ModelError(f"C source of {len(source):,} bytes; at most {MAX_TEXT_BYTES:,} are read")
    text = without_comments(str(source, "latin-1"))
    names: list[str] = []
    models: list[tuple[str, int, int]] = []
    at = 0
    while len(names) < MAX_ARRAYS and (opening := _NUMBERS.search(text, at)):
        at = opening.end()
        name = _name_before(text, opening.start())
        names.append(name)
        if _begins_a_model(text[at : at + _FIRST_NUMBERS]):
            end = text.find("}", at)
            models.append((name, at, end))
            at = len(text) if end < 0 else end
    if not names:
        return None
    if len(models) != 1:
        found, named = ("several models", [model[0] for model in models]) if models else ("no model", names)
        raise ModelError(f"C source with {found} in its arrays ({_listed(named)}); name a file with one .tflite model")
    name, start, end = models[0]
    data = _bytes_in(text, start, len(text) if end < 0 else end, name)
    if end < 0:
        raise ModelError(f"C source that was cut off: no brace closes the array {name} after {len(data):,} bytes")
    return data


def _name_before(text: str, opening: int) -> str:
    """The name of the array whose initializer begins at a brace."""
    before = text[max(0, opening - _DECLARATION) : opening].rstrip("={ \t\r\n")
    declarator = before[1 + max(before.rfind(end) for end in ";{}") :]
    name = _NAME.search(declarator.partition("[")[0])
    return name[1] if name else "without a name"


def _begins_a_model(numbers: str) -> bool:
    try:
        return bytes(_byte(number) for number in numbers.partition("}")[0].split(",")[4:8]) == IDENTIFIER
    except ValueError:
        return False


def _bytes_in(text: str, start: int, end: int, name: str) -> bytes:
    """The numbers in a part of the text, which a comma may end; a chunk at a time, to use little memory."""
    data = bytearray()
    at = start
    while at < end:
        comma = text.find(",", min(at + _CHUNK, end), end)
        stop = end if comma < 0 else comma
        numbers = text[at:stop].split(",")
        if stop == end and not numbers[-1].strip():
            numbers.pop()
        try:
            data += bytes(map(_byte, numbers))
        except ValueError as error:
            raise ModelError(f"C source whose array {name} has {error} near byte {len(data):,}") from None
        at = stop + 1
    return bytes(data)


@functools.lru_cache(4096)
def _byte(number: str) -> int:
    """The value of a byte as C has it, also a negative one of a signed type."""
    match = _INTEGER.fullmatch(number.strip()) if len(number) < _DECLARATION else None
    if match is None:
        raise ValueError(f"{number.strip()[:20]!r} in place of a number")
    digits = match[2]
    octal = digits[0] == "0" and digits.isdigit()
    try:
        value = int(digits, 8 if octal else 0)
    except ValueError:
        raise ValueError(f"the invalid number {digits[:20]}") from None
    if match[1] == "-":
        value = -value
    if not -128 <= value <= 255:
        raise ValueError(f"{number.strip()[:20]}, which is not a byte,")
    return value & 255


def _listed(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
