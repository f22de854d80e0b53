"""What public functions do with the arguments that are left out: their defaults are recorded by `make figures`."""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tflm

RECORDED = Path(__file__).with_name("recorded") / "defaults.json"
MODULES = (
    *("tflm", "tflm.compat.litert", "tflm.compat.tflite_micro.runtime", "tflm.device", "tflm.testing", "tflm.releases"),
)


def functions() -> Iterator[tuple[str, Any]]:
    """Public functions, and constructors and methods of public classes, by name."""
    for module in map(importlib.import_module, MODULES):
        own = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
        for name in getattr(module, "__all__", [name for name in own if name[0] != "_"]):
            value = getattr(module, name)
            if inspect.isclass(value):
                methods = inspect.getmembers(value, inspect.isfunction)
                yield from ((f"{module.__name__}.{name}.{each}", method) for each, method in methods if each[0] != "_")
                yield f"{module.__name__}.{name}", value.__init__
            elif inspect.isfunction(value):
                yield f"{module.__name__}.{name}", value


def defaults() -> dict[str, dict[str, str]]:
    """The defaults of public functions that have any, by function and parameter."""
    found: dict[str, dict[str, str]] = {}
    for name, function in functions():
        try:
            parameters = inspect.signature(function).parameters.values()
        except ValueError:  # of a class of C
            continue
        given = {each.name: _text(each.default) for each in parameters if each.default not in (None, each.empty)}
        found |= {name: given} if given else {}
    return found


def _text(default: Any) -> str:
    """A default without the address of an object."""
    return repr(default) if isinstance(default, (bool, int, float, str, tuple, type(None))) else type(default).__name__


def test_public_functions_have_the_recorded_defaults() -> None:
    assert defaults() == json.loads(RECORDED.read_text(encoding="utf-8"))


if __name__ == "__main__":
    assert tflm.__all__
    RECORDED.write_text(json.dumps(defaults(), indent=1, sort_keys=True) + "\n", encoding="utf-8")
