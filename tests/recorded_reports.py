"""Figures that commands print, as `recorded/reports.json` holds them; `make figures` records them again."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).with_name("recorded") / "reports.json"
EXAMPLES = Path(__file__).parents[1] / "examples" / "hello_world"
INT8, FLOAT = (str(EXAMPLES / f"hello_world_{type}.tflite") for type in ("int8", "float"))

MOST = 200
"""Figures of a report that are recorded one by one; of longer reports, the sum is recorded."""

VOLATILE = re.compile(r"second|version|path|folder|file|commit|cache|python|host|compiled|\bdevice\b", re.I)
"""Keys whose values depend on the machine, the day, the release of this package or the kernels in C."""

VOLATILE_TEXT = re.compile(
    r"^wrote (?!.*tflite).*$|without an interpreter.*$|[\d.,]+ samples a second|[\d.,]+ ?(s|ms|µs|us|%)(?!\w)"
    r"|\d+\.\d+\.\d\S*|/\S+|\b[0-9a-f]{7,}\b",
    re.M,
)
"""The same in texts."""


@functools.cache
def recorded() -> dict[str, Any]:
    """All figures, by call."""
    found: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.exists() else {}
    return found


def require_recorded(call: str, figures: list[str]) -> None:
    """Compare the figures of a call with the recorded ones."""
    call = " ".join(call.replace(INT8, "int8").replace(FLOAT, "float").split())
    if len(figures) > MOST:
        figures = [hashlib.sha256("\n".join(figures).encode()).hexdigest()]
    if os.environ.get("TFLM_RECORD"):
        recorded()[call] = " ".join(figures)
        RECORDED.write_text(json.dumps(recorded(), indent=0, sort_keys=True) + "\n", encoding="utf-8")
    assert " ".join(figures) == recorded()[call]


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
