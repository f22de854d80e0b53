"""What `--json` prints: its keys, declared in `json_keys.csv`, as JSON Schema of 2020-12, and `tflm json-schema`.

A key is written as a path: `models[].peak.bytes`; `[]` is each element of a list, `*` each name, and `?` at the end
marks a key that may be absent. A type is `string`, `integer`, `number` (finite), `float` (a number, or one of the
strings for those that JSON lacks), `boolean`, `null`, `object`, `any` or a string in quotes; `[]` makes it a list, `|`
is or.
"""

from __future__ import annotations

import csv
import functools
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Annotated, Any, NamedTuple

import typer

from tflm.cli.command_line import print_json

VERSION = 1
"""Of all schemas: goes up where a key goes or changes what it holds, not where one is added."""

NOT_FINITE = ("NaN", "Infinity", "-Infinity")


class Key(NamedTuple):
    """A key of a document.

    Attributes:
        document: the commands that print it, with the option that makes it another document: "fold, strip",
            "inspect --check".
        path: where it is.
        type: what it holds.
        meaning: in words.
    """

    document: str
    path: str
    type: str
    meaning: str


Rows = Sequence[tuple[list[str], str, str]]
"""Paths in steps, with types and meanings."""


@functools.cache
def documents() -> dict[str, list[Key]]:
    """The keys of each document."""
    text = files("tflm.cli").joinpath("json_keys.csv").read_text(encoding="utf-8")
    found: dict[str, list[Key]] = {}
    for row in list(csv.reader(text.splitlines()))[1:]:
        key = Key(*row)
        found.setdefault(key.document, []).append(key)
    return found


def commands() -> list[str]:
    """The commands that have `--json`."""
    return sorted({name.split()[0] for document in documents() for name in document.split(", ")})


def schema(command: str) -> dict[str, Any]:
    """The JSON Schema of what a command prints with `--json`; there may be more keys than it has."""
    found = [
        _schema_of([(_steps(key.path), key.type, key.meaning) for key in keys])
        for document, keys in documents().items()
        if command in (name.split()[0] for name in document.split(", "))
    ]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:pytflm:json:{command}:{VERSION}",
        "title": f"tflm {command} --json",
        **(found[0] if len(found) == 1 else {"anyOf": found}),
    }


def _steps(path: str) -> list[str]:
    return re.findall(r"\[\]|[^.\[\]]+", path)


def _schema_of(rows: Rows) -> dict[str, Any]:
    """Of the value that all paths begin at."""
    result: dict[str, Any] = {"type": "object"}
    inner: dict[str, list[tuple[list[str], str, str]]] = {}
    for steps, kind, meaning in rows:
        if steps:
            inner.setdefault(steps[0].removesuffix("?"), []).append((steps[1:], kind, meaning))
        else:
            result = {**_type_schema(kind), "description": meaning}
    if "[]" in inner:
        return result | {"type": "array", "items": _schema_of(inner["[]"])}
    if "*" in inner:
        return result | {"additionalProperties": _schema_of(inner["*"])}
    if not inner:
        return result
    optional = {steps[0].removesuffix("?") for steps, _, _ in rows if steps and steps[0].endswith("?")}
    properties = {name: _schema_of(of_name) for name, of_name in inner.items()}
    return result | {"properties": properties, "required": [name for name in inner if name not in optional]}


def _type_schema(text: str) -> dict[str, Any]:
    kinds = text.split("|")
    if len(kinds) > 1:
        return {"anyOf": [_type_schema(kind) for kind in kinds]}
    if text.endswith("[]"):
        return {"type": "array", "items": _type_schema(text.removesuffix("[]"))}
    if text.startswith("'"):
        return {"const": text.strip("'")}
    if text == "float":
        return {"anyOf": [{"type": "number"}, {"enum": list(NOT_FINITE)}]}
    return {} if text == "any" else {"type": text}


def json_schema(
    command: Annotated[
        str,
        typer.Argument(
            metavar="COMMAND", help=f"One of {', '.join(commands())}.", show_default=False, autocompletion=commands
        ),
    ],
) -> None:
    """Print the JSON Schema of what a command prints.

    The schema, of 2020-12, is that of the document that --json prints.

    \b
    Example:
      tflm json-schema arena
    """
    if command not in commands():
        raise typer.BadParameter(f"{command!r} has no --json; these have: {', '.join(commands())}")
    print_json(schema(command))
