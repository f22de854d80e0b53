"""What functions do with the arguments that are left out, and limits: they are recorded by `make figures`."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tflm

PACKAGE = Path(tflm.__file__).parent
RECORDED = Path(__file__).with_name("recorded") / "defaults.json"
RECORDED_DECLARATIONS = Path(__file__).with_name("recorded") / "declarations.json"
MODULES = (
    *("tflm", "tflm.compat.litert", "tflm.compat.tflite_micro.runtime", "tflm.device", "tflm.testing", "tflm.releases"),
)
FOLDERS = (
    *("application", "c", "cli", "compat", "device", "evaluation", "memory", "planning", "quantization", "releases"),
    *("runtime", "schedule", "schema", "testing", "versioning"),
)
"""Folders whose numbers follow from no measurement or specification that another test compares them with."""

OF_THE_SCHEMA = {"schema/enums.py", "schema/options.py"}
"""Modules whose numbers tests/test_schema.py compares with the schema."""


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


def declarations(source: str) -> dict[str, str]:
    """What a module declares as literals: numeric constants, and the defaults of fields and parameters, by name."""

    def below(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.expr | None]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                yield from below(child, f"{prefix}{child.name}.")
            elif isinstance(child, ast.arguments):
                positional = [*child.posonlyargs, *child.args]
                optional = positional[len(positional) - len(child.defaults) :]
                given = [*zip(optional, child.defaults), *zip(child.kwonlyargs, child.kw_defaults)]
                yield from ((prefix + each.arg, value) for each, value in given)
            elif isinstance(child, ast.Assign) and not isinstance(node, ast.FunctionDef):
                yield from ((prefix + ast.unparse(target), child.value) for target in child.targets)
            elif isinstance(child, ast.AnnAssign) and not isinstance(node, ast.FunctionDef):
                yield prefix + ast.unparse(child.target), child.value

    return {
        name: ast.unparse(value)
        for name, value in below(ast.parse(source), "")
        if _is_literal(value, (int, float, str) if "." in name else (int, float))
    }


def _is_literal(value: ast.expr | None, kinds: tuple[type, ...]) -> bool:
    """Whether an expression is made of constants of some types alone."""
    leaves = [] if value is None else [each for each in ast.walk(value) if isinstance(each, ast.expr)]
    constants = [each.value for each in leaves if isinstance(each, ast.Constant)]
    inner = [each for each in leaves if isinstance(each, (ast.BinOp, ast.UnaryOp, ast.Tuple))]
    are_all = len(constants) + len(inner) == len(leaves)
    return bool(constants) and are_all and all(isinstance(each, kinds) for each in constants)


def paths_of_declarations() -> list[Path]:
    """The modules in the folders, and those beside the folders."""
    return [*PACKAGE.glob("*.py"), *(path for folder in FOLDERS for path in (PACKAGE / folder).rglob("*.py"))]


def all_declarations() -> dict[str, dict[str, str]]:
    """The literals that these modules declare, by path."""
    read = {path: declarations(path.read_text(encoding="utf-8")) for path in paths_of_declarations()}
    found = ((path.relative_to(PACKAGE).as_posix(), declared) for path, declared in read.items())
    return {path: declared for path, declared in found if declared and path not in OF_THE_SCHEMA}


def test_limits_and_defaults_are_the_recorded_ones() -> None:
    """Those that are new have no record until `make figures`."""
    found = all_declarations()
    for path, recorded in json.loads(RECORDED_DECLARATIONS.read_text(encoding="utf-8")).items():
        present = found.get(path, {})
        assert {name: present.get(name, value) for name, value in recorded.items()} == recorded, path


def test_public_functions_have_the_recorded_defaults() -> None:
    assert defaults() == json.loads(RECORDED.read_text(encoding="utf-8"))


if __name__ == "__main__":
    assert tflm.__all__
    RECORDED_DECLARATIONS.write_text(json.dumps(all_declarations(), indent=1, sort_keys=True) + "\n", encoding="utf-8")
    RECORDED.write_text(json.dumps(defaults(), indent=1, sort_keys=True) + "\n", encoding="utf-8")
