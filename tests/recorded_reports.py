"""Figures and sentences that commands print, as files in `recorded` hold them; `make figures` records them again."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from example_models import EXAMPLE

RECORDED = Path(__file__).with_name("recorded") / "reports.json"
SENTENCES = RECORDED.with_name("sentences.json")
CHECKS = RECORDED.with_name("checks.json")
INT8, FLOAT = (str(EXAMPLE / f"hello_world_{type}.tflite") for type in ("int8", "float"))

MOST = 200
"""Figures of a report that are recorded one by one; of longer reports, the sum is recorded."""

MIN_WORDS = 2
"""A line with more words is a sentence."""

NO_SENTENCE = re.compile(r'  .*\d|\d.*  |^"|ports of this machine|pyserial')
"""What is in rows of tables with numbers, in JSON, and in errors of the machine."""

VOLATILE = re.compile(r"second|version|path|folder|file|commit|cache|python|host|compiled|\bdevice\b", re.I)
"""Keys whose values depend on the machine, the day, the release of this package or the kernels in C."""

VOLATILE_TEXT = re.compile(
    r"^wrote (?!.*tflite).*$|without an interpreter.*$|[\d.,]+ samples a second|[\d.,]+ ?(s|ms|µs|us|%)(?!\w)"
    r"|\d+\.\d+\.\d\S*|/\S+|\b[0-9a-f]{7,}\b",
    re.M,
)
"""The same in texts."""


@functools.cache
def recorded(file: Path) -> dict[str, Any]:
    """All figures, or other lines, by call."""
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return found


def require_recorded(call: str, figures: list[str], file: Path = RECORDED, between: str = " ") -> None:
    """Compare the figures of a call, or other lines of it, with the recorded ones."""
    call = " ".join(call.replace(INT8, "int8").replace(FLOAT, "float").split())
    if len(figures) > MOST:
        figures = [hashlib.sha256("\n".join(figures).encode()).hexdigest()]
    known = recorded(file)
    if os.environ.get("TFLM_RECORD"):
        known[call] = between.join(figures)
        file.write_text(json.dumps(known, indent=0, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
    assert between.join(figures) == known[call]


def figures_of_document(value: Any, key: str = "") -> Iterator[str]:
    """Numbers, flags and names in a JSON document with their keys, without sentences and what is of this machine."""
    if VOLATILE.search(key):
        return
    if isinstance(value, dict):
        for name, each in sorted(value.items()):
            yield from figures_of_document(each, name)
    elif isinstance(value, list):
        for each in value:
            yield from figures_of_document(each, key)
    elif not isinstance(value, str) or re.fullmatch(r"[\w.+:-]*", value):
        yield f"{key}={value:.6g}" if isinstance(value, float) else f"{key}={value}"


def figures_of_text(text: str) -> list[str]:
    """The numbers in a text, except those of times and versions."""
    return re.findall(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?![\w.]*\w)", VOLATILE_TEXT.sub("", text))


def layout_of_text(text: str) -> str:
    """A digest of which lines are empty, and how far others are indented, but for numbers on the right."""
    lines = VOLATILE_TEXT.sub("", text).splitlines()
    indents = [None if re.match(r" *(-?\d|$)", line) else len(line) - len(line.lstrip()) for line in lines]
    is_empty = [not line.strip() for line in lines]
    return hashlib.sha256(repr([*zip(indents, is_empty)]).encode()).hexdigest()[:8]


def sentences_of_text(text: str) -> list[str]:
    """The sentences and headings in a text, without numbers, versions and names of files."""
    lines = map(str.strip, text.splitlines())
    words = (re.sub(r"\S*[\d/]\S*", "#", line).split() for line in lines if not NO_SENTENCE.search(line))
    return [" ".join(each) for each in dict.fromkeys(map(tuple, words)) if len(each) - each.count("#") > MIN_WORDS]
