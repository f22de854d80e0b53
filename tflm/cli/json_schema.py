"""JSON Schema (2020-12) of what `--json` prints, and `tflm json-schema`. `json_keys.csv` declares the keys.

A key is a path such as `models[].peak.bytes`: `[]` stands for each element of a list, `*` for each name, and a trailing
`?` marks an optional key. A type is `string`, `integer`, `number` (finite), `float` (a number, or a string for NaN and
infinities), `boolean`, `null`, `object`, `any` or a string in quotes; a trailing `[]` makes it a list, `|` separates
alternatives. A type such as `tflm.firmware.flash:Flash` names a dataclass or named tuple: its fields are the keys, and
the attributes in its docstring describe them. It can also name a list of figures, which declare their keys.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import importlib
import inspect
import re
import textwrap
import types
import typing
from collections.abc import Iterator, Sequence
from enum import Enum
from importlib.resources import files
from typing import Annotated, Any, NamedTuple

import numpy.typing as npt

from tflm.application.errors import OptionError
from tflm.cli.output import print_json
from tflm.cli.parameters import argument
from tflm.report import AnyFloat, Figure, json_keys, json_property

VERSION = 1
"""Version of all schemas: increased when a key is removed or changes its meaning, not when one is added."""

NOT_FINITE = ("NaN", "Infinity", "-Infinity")


TYPE_NAMES = {
    str: "string",
    int: "integer",
    float: "number",
    AnyFloat: "float",
    bool: "boolean",
    Any: "any",
    npt.NDArray[Any]: "any",
}
"""JSON types by Python type."""


class Key(NamedTuple):
    """A key of a document.

    Attributes:
        document: the commands that print it, with the option that selects the document: "fold, strip",
            "inspect --check".
        path: the path of the key.
        type: the type of its value.
        meaning: a description.
    """

    document: str
    path: str
    type: str
    meaning: str


Rows = Sequence[tuple[list[str], str, str]]
"""Split paths, with types and meanings."""


@functools.cache
def documents() -> dict[str, list[Key]]:
    """Return the keys of each document."""
    text = files("tflm.cli").joinpath("json_keys.csv").read_text(encoding="utf-8")
    found: dict[str, list[Key]] = {}
    for document, path, kind, meaning in list(csv.reader(text.splitlines()))[1:]:
        module, colon, name = kind.partition(":")
        if colon:
            keys = list(_keys(document, path, getattr(importlib.import_module(module), name), meaning))
        else:
            keys = [Key(document, path, kind, meaning)]
        found.setdefault(document, []).extend(keys)
    return found


def _keys_of_fields(document: str, path: str, record: type) -> Iterator[Key]:
    """Yield the keys of a dataclass or named tuple at a path."""
    meanings, hints = dict(_attributes(record)), typing.get_type_hints(record, include_extras=True)
    for name in json_keys(record):
        computed = getattr(record, name, None)
        if isinstance(computed, json_property):
            meaning, hint = _meaning(computed), typing.get_type_hints(computed.fget)["return"]
        else:
            meaning, hint = meanings[name], hints[name]
        yield from _keys(document, f"{path}.{name}".lstrip("."), hint, meaning)


def _meaning(computed: json_property) -> str:
    """Return the description of a computed key, from its docstring."""
    text = " ".join((inspect.getdoc(computed) or "").split())
    text = text if text[1:2].isupper() else text[:1].lower() + text[1:]
    return text.removesuffix(".").replace("None", "null")


def _attributes(record: type) -> Iterator[tuple[str, str]]:
    """Return the descriptions of a class's attributes, from its docstring."""
    _, _, section = inspect.cleandoc(record.__doc__ or "").partition("Attributes:\n")
    for entry in re.split(r"\n(?=\S)", textwrap.dedent(section)):
        names, _, meaning = " ".join(entry.split()).partition(": ")
        for name in names.split(", "):
            yield name, meaning.removesuffix(".").replace("None", "null")


def _keys(document: str, path: str, hint: Any, meaning: str) -> Iterator[Key]:
    """Yield the key of a value, or the keys inside it."""
    if isinstance(hint, list):
        yield from _keys(document, f"{path}[]", hint[0], meaning)
        return
    if isinstance(hint, tuple):
        for figure in hint:
            if figure.key:
                yield from _keys_of_figure(document, f"{path}.{figure.key}".lstrip("."), figure)
        return
    alternatives = [each for each in typing.get_args(hint) if each is not type(None)]
    is_nullable = isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
    if is_nullable:
        (hint,) = alternatives
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if _is_record(hint):
        if is_nullable:
            yield Key(document, path, "object|null", meaning)
        yield from _keys_of_fields(document, path, hint)
    elif origin in (list, tuple) and _is_record(arguments[0]):
        yield from _keys_of_fields(document, f"{path}[]", arguments[0])
    elif origin is dict:
        yield from _keys(document, f"{path}.*", arguments[1], meaning)
    else:
        yield Key(document, path, _type_name(hint) + "|null" * is_nullable, meaning)


def _keys_of_figure(document: str, path: str, figure: Figure) -> Iterator[Key]:
    """Yield the key of a figure at a path, or the keys inside it; it is optional if only some records have it."""
    first, *others = _keys(document, path, figure.hint, figure.meaning)
    mark = "" if figure.kind is None else "?"
    if first.path == path:
        first = first._replace(path=path + mark)
    elif mark or not first.path.endswith("*"):
        kind = "object[]" if first.path.startswith(f"{path}[]") else "object"
        yield Key(document, path + mark, kind, figure.meaning)
    yield from (first, *others)


def _is_record(hint: Any) -> bool:
    return dataclasses.is_dataclass(hint) or hasattr(hint, "_fields")


def _type_name(hint: Any) -> str:
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Literal:
        return "|".join(map(repr, arguments))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return "|".join(repr(member.value) for member in hint)
    return TYPE_NAMES[hint] if hint in TYPE_NAMES else f"{_type_name(arguments[0])}[]"


def commands() -> list[str]:
    """Return the commands that have `--json`."""
    return sorted({name.split()[0] for document in documents() for name in document.split(", ")})


def schema(command: str) -> dict[str, Any]:
    """Return the JSON Schema of what a command prints with `--json`; additional keys are allowed."""
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
    """Return the schema of the value at the root of all paths."""
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
        str, argument("COMMAND", f"One of {', '.join(commands())}.", show_default=False, autocompletion=commands)
    ],
) -> None:
    """Print the JSON Schema of a command's --json output.

    The schema is of version 2020-12.

    \b
    Example:
      tflm json-schema arena
    """
    if command not in commands():
        raise OptionError(f"{command!r} is not a command with --json; use one of {', '.join(commands())}")
    print_json(schema(command))
