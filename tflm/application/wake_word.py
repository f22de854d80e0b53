"""The arena that ESPHome needs for a wake word: manifests, the JSON document and the report."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tflm.application.errors import RequestError
from tflm.atomic_write import replace_file
from tflm.firmware.wake_word import Need, size_for_all
from tflm.report import NUMBER, TEXT, Figure, Report, Table, document_of, json_key, with_thousands


def figures(model: Path, target: str, needs: list[Need]) -> dict[str, Any]:
    """Return the JSON document."""
    sizes = {"tensor_arena_size": size_for_all(needs), "releases": [document_of(need, NEED_FIGURES) for need in needs]}
    return {"model": model, "target": target, **sizes}


def _findings(need: Need) -> list[str]:
    """Return what else behaves differently there, without duplicates."""
    return list(dict.fromkeys(f"{finding.operator} {finding.effect.text}" for finding in need.findings))


def _esphome_versions(need: Need) -> str:
    return f"{need.first_esphome} to {need.last_esphome}" if need.last_esphome else f"{need.first_esphome} on"


def _versions(need: Need) -> str:
    first, last = need.esp_nn[0], need.esp_nn[-1]
    return first if first == last else f"{first} to {last}"


NEED_FIGURES = (
    Figure("ESPHome", TEXT, _esphome_versions),
    json_key("first_esphome", str, "the first release of ESPHome"),
    json_key("last_esphome", str | None, "the last one; null if it is the newest known one"),
    Figure("esp-tflite-micro", TEXT, "component").as_key(
        str, "the version of esp-tflite-micro that they have", "esp_tflite_micro"
    ),
    Figure("ESP-NN", TEXT, _versions),
    json_key("esp_nn", list[str], "versions of ESP-NN that need the same size"),
    json_key(
        "pinned",
        bool,
        "whether ESPHome names the version of ESP-NN; otherwise it is the newest when a firmware is built",
        "is_pinned",
    ),
    Figure("tensor_arena_size", NUMBER, lambda need: need.tensor_arena_size or "refused"),
    json_key("tensor_arena_size", int | None, "the smallest that works there; null if the model is rejected"),
    json_key("refused", str, "why it is refused; empty otherwise"),
    Figure("known issues", TEXT, lambda need: ", ".join(_findings(need))),
    json_key("findings", list[str], "what else behaves differently there: operator and effect", _findings),
)
"""The figures of a group of releases; sizes in bytes."""


def report(title: str, target: str, needs: list[Need]) -> Report:
    """Report a row for each group of releases."""
    table = Table.of("", needs, *NEED_FIGURES)
    size = size_for_all(needs)
    notes = [
        "If several versions of ESP-NN are listed, ESPHome uses the newest one when a firmware is built.",
        "In ESPHome 2026.4, only the beta 2026.4.0b2 contained ESP-NN 1.2.1; 2026.4.0 reverted to 1.1.2.",
        "tflm check explains what behaves differently: --kernels esp-nn@VERSION --tflm 'esphome RELEASE'.",
    ]
    notes += dict.fromkeys(f"refused: {need.refused}" for need in needs if need.refused)
    facts = [
        ("works in all of these releases", "nothing" if size is None else f"tensor_arena_size {with_thousands(size)}")
    ]
    return Report(f"{title} in ESPHome's micro_wake_word on {target}", facts, [table], notes)


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


class ManifestUpdate(NamedTuple):
    """A manifest, and the size that its model needs.

    Attributes:
        manifest: as it was read.
        size: the `tensor_arena_size` that is needed; None if there is none.
        written: whether it was written.
    """

    manifest: Manifest
    size: int | None
    written: bool

    @property
    def enough(self) -> bool:
        """Whether the model can be loaded with the size that the manifest had."""
        return self.size is not None and self.manifest.size is not None and self.manifest.size >= self.size

    def notes(self) -> Iterator[str]:
        """Describe the update in notes."""
        path, had, size = self.manifest.path, self.manifest.size, self.size
        has = "no tensor_arena_size" if had is None else f"tensor_arena_size {had:,}"
        if size is None:
            return
        if had is None or had < size:
            yield (
                f"{path} had {has}: with less than {size:,}, the model fails to load, and ESPHome logs that its "
                "tensors cannot be allocated."
            )
        elif had > size:
            yield f"{path} had {has}: {had - size:,} bytes of RAM more than the model needs."
        else:
            yield f"{path} had {has}, which is exact."
        if self.written:
            yield f"wrote tensor_arena_size {size:,} to {path}; the rest of the file is unchanged."


MANIFEST_FIGURES = (
    json_key("path", str, "the file", "manifest.path"),
    json_key("tensor_arena_size", int | None, "the size that it had before; null if it had none", "manifest.size"),
    json_key("enough", bool, "whether that was enough"),
    json_key("written", bool, "whether the needed size was written to it"),
)
"""The figures of a manifest."""


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
