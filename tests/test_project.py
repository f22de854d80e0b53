"""Rules of the project: layers, documentation, and the cost of a plain import."""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import inspect
import pkgutil
import re
import shlex
import subprocess
import sys
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType

import outcomes
import pytest

import tflm
from tflm import hooks
from tflm.hooks import Hook
from tflm.kernels import FAMILIES

PACKAGE = Path(tflm.__file__).parent
ROOT = Path(__file__).parents[1]

LAYERS = [
    "errors",
    "hooks",
    "bounded_reading",
    "atomic_write",
    "release",
    "releases",
    "report",
    "arena_page",
    "schema",
    "targets",
    "compiler",
    "memory",
    "kernels.host_memory",
    "kernels.overlap",
    "kernels.requests",
    "kernels.node",
    "kernels.shapes",
    "kernels.registration",
    "kernels",
    "kernels.arithmetic",
    "kernels.support",
    "kernels.layers",
    "kernels.reference",
    "kernels.plan_checker",
    "versioning",
    "graph",
    "libraries",
    "boards",
    "runtime",
    "delegates",
    "firmware",
    "planning",
    "schedule",
    "rewriting",
    "evaluation",
    "device",
    "c",
    "quantization",
    "testing",
    "application",
    "compat",
    "cli",
]
"""From the bottom up; the package itself stands on top. A module belongs to the longest name that it begins with."""


def modules() -> list[ModuleType]:
    """Every module of the package."""
    names = [name for _, name, _ in pkgutil.walk_packages([str(PACKAGE)], "tflm.") if not name.endswith("__main__")]
    return [tflm, *(importlib.import_module(name) for name in names)]


def layer_of(module: str) -> int:
    """Place of a module, such as tflm.memory.arena, among the layers."""
    inside = module.removeprefix("tflm").removeprefix(".")
    names = [name for name in LAYERS if f"{inside}.".startswith(f"{name}.")]
    return LAYERS.index(max(names, key=len)) if names else len(LAYERS)


def test_nothing_imports_from_a_layer_above_its_own() -> None:
    found = [(name, module) for name, source in IMPORTS.items() for module in imported_by(source)]
    assert [(name, module) for name, module in found if layer_of(module) > layer_of(name)] == []


@functools.cache
def imported_by(source: str) -> list[str]:
    """Return the modules of the package that a module imports, in any form."""
    imported = []
    for node in statements(ast.parse(source).body):
        if isinstance(node, ast.Import):
            imported += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported += [f"{node.module}.{alias.name}" for alias in node.names]
    return [name for name in imported if name.startswith("tflm.") and layer_of(name) < len(LAYERS)]


def statements(block: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The statements of a block and of all blocks inside it."""
    for statement in block:
        yield statement
        for name in ("body", "handlers", "cases", "orelse", "finalbody"):
            yield from statements(getattr(statement, name, ()))


@pytest.mark.parametrize(
    "form", ["from tflm import planning", "import tflm.planning as p", "from tflm.planning import plan"]
)
def test_an_import_from_above_is_seen_in_every_form(form: str) -> None:
    assert any(layer_of(module) > layer_of("tflm.memory.arena") for module in imported_by(form))


IMPORTS = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path.read_text()
    for path in sorted(PACKAGE.rglob("*.py"))
}
"""The source of each module."""


def cycles(sources: Mapping[str, str]) -> list[set[str]]:
    """Modules that import each other, wherever the import stands: also inside functions and for types alone.

    `from package import name` counts for the module `name`, if there is one, or else for the package itself. What the
    package `tflm` imports later, by name, is left out: everything below is imported by way of it.
    """
    imported = {
        name: {found for each in imported_by(source) if (found := module_of(each, sources)) not in (None, name)}
        for name, source in sources.items()
    }
    reached: dict[str, set[str]] = {}
    for start in sources:
        reached[start], pending = set(), [start]
        while pending:
            new = imported[pending.pop()] - reached[start]
            reached[start] |= new
            pending += new
    return [cycle for name in sources if (cycle := {other for other in reached[name] if name in reached[other]})]


def module_of(name: str, modules: Container[str]) -> str | None:
    """The module that an imported name is, or is in."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name or None


CHECKERS = "tflm.kernels.plan_checker", "tflm.schedule.call_checker"
PLANNERS = "planner", "search", "placement", "lifetimes", "liveness", "lowering", "costs", "line_buffers", "planning"
"""Parts of the names of modules that plan memory."""


@pytest.mark.parametrize("checker", CHECKERS)
def test_a_checker_shares_nothing_with_planners(checker: str) -> None:
    reached, pending = {checker}, [checker]
    while pending:
        found = {module_of(each, IMPORTS) for each in imported_by(IMPORTS[pending.pop()])} - reached
        packages = {f"tflm.{name}" for name in ("memory", "planning", "schedule", "c")}
        pending += [name for name in found if name and any(name.startswith(f"{p}.") for p in packages)]
        reached |= {name for name in found if name}
    assert "tflm.memory.byte_labels" in reached
    assert [name for name in reached if any(part in name for part in PLANNERS)] == []


def unimported(source: str) -> set[str]:
    """Modules that a source names by attributes, as `tflm.memory.tensor`, but does not import itself."""
    if re.search(r"^(?!\s*(from|import) ).*\btflm\.\w+\.\w", source, re.MULTILINE) is None:
        return set()
    named = {dotted(node) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)}
    found = {name for name in named if name.count(".") > 1 and name in IMPORTS}
    return found - {module_of(name, IMPORTS) for name in imported_by(source)}


def dotted(node: ast.expr) -> str:
    """A name with its attributes, such as tflm.memory.tensor; for attributes of anything else, an empty text."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


@pytest.mark.parametrize("folder", ["tests", "tools", "examples", "web"])
def test_every_file_imports_the_modules_that_it_names(folder: str) -> None:
    found = {path.name: unimported(path.read_text()) for path in sorted((ROOT / folder).rglob("*.py"))}
    assert {name: modules for name, modules in found.items() if modules} == {}


@pytest.mark.parametrize(
    "form", ["import tflm", "import tflm.memory.arena", "from tflm.memory.tensor import TFLITE_TENSOR"]
)
def test_a_module_that_is_named_but_not_imported_is_seen(form: str) -> None:
    missing = set() if "tensor" in form else {"tflm.memory.tensor"}
    assert unimported(f"{form}\nprint(tflm.memory.tensor.TFLITE_TENSOR)") == missing


def test_no_modules_import_each_other() -> None:
    assert cycles(IMPORTS) == []


@pytest.mark.parametrize("form", ["{}", "def f():\n    {}", "if TYPE_CHECKING:\n    {}"])
def test_a_cycle_is_seen_wherever_an_import_stands(form: str) -> None:
    one, other = "from tflm.schema import reader", "from tflm.schema.tables import Model"
    sources = {"tflm.schema.tables": one, "tflm.schema.reader": form.format(other), "tflm.schema": ""}
    assert cycles(sources) == [{"tflm.schema.tables", "tflm.schema.reader"}] * 2


def folders(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """The folders and modules of the package that each of them imports, wherever an import stands, or names in a text,
    from which a module may be imported.
    """
    found: dict[str, set[str]] = {}
    for name, source in sources.items():
        folder, *_ = name.removeprefix("tflm").removeprefix(".").split(".")
        named = re.findall(r"""["'](tflm\.\w+)[\w.]*(?::\w+)?["']""", source)
        modules = [*imported_by(source), *(each for each in named if layer_of(each) < len(LAYERS))]
        found.setdefault(folder, set()).update(each.split(".")[1] for each in modules)
    return {folder: imported - {folder} for folder, imported in found.items()}


def test_folders_import_in_one_direction() -> None:
    drawn = folders(IMPORTS)
    order = list(dict.fromkeys(name.split(".")[0] for name in LAYERS))
    assert set(order) == drawn.keys() - {"", "__main__"}
    back = [(folder, each) for folder in order for each in drawn[folder] if order.index(each) > order.index(folder)]
    assert back == []


def test_what_the_package_offers_is_imported_from_its_module() -> None:
    """The package imports the application layer for its users; only the command is in a higher layer."""
    below = {name: source for name, source in IMPORTS.items() if name != "tflm" and not name.startswith("tflm.cli")}
    assert [name for name, source in below.items() if re.search(r"^\s*import tflm$", source, re.MULTILINE)] == []


@pytest.mark.parametrize("form", ["{}", "def f():\n    {}", "if TYPE_CHECKING:\n    {}"])
@pytest.mark.parametrize("named", ["from tflm.kernels import Node", "import_module('tflm.kernels.node')"])
def test_folders_are_seen_wherever_an_import_stands(form: str, named: str) -> None:
    sources = {"tflm.memory.arena": form.format(named), "tflm.memory.buffer": ""}
    assert folders(sources) == {"memory": {"kernels"}}


MOST_PARAMETERS = 7
"""Of a function that is neither a command, whose parameters are its options, nor one that the package offers."""

MOST_OF_KERNELS = {"c/kernels": 20, "delegates/compiled": 19, "delegates/flex": 10, "kernels/layers": 8}
"""The same of functions in folders with kernels, whose parameters are the names in generated C; never more."""

OTHERS_INTERFACES = "compat"


def parameters_of(function: ast.FunctionDef) -> list[str]:
    """Names of a function's parameters, without the object of a method."""
    named = function.args
    every = [each.arg for each in (*named.posonlyargs, *named.args, *named.kwonlyargs)]
    return [name for name in every if name not in ("self", "cls")]


def offered(path: Path) -> set[int]:
    """The lines of the functions in a file that are commands or offered by the package, or create what it offers."""
    lines = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef) and (node.name in tflm.__all__ or path.parent.name == "cli"):
            lines.add(node.lineno)
        if isinstance(node, ast.ClassDef) and node.name in tflm.__all__:
            lines |= {each.lineno for each in node.body if getattr(each, "name", "") == "__init__"}
    return lines


def test_parameters_that_travel_together_are_records() -> None:
    found: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        folder = path.parent.relative_to(PACKAGE).as_posix()
        most = MOST_OF_KERNELS.get(folder, MOST_PARAMETERS)
        functions = (n for n in statements(ast.parse(path.read_text()).body) if isinstance(n, ast.FunctionDef))
        for node in () if folder.startswith(OTHERS_INTERFACES) else functions:
            if len(parameters_of(node)) > most and node.lineno not in offered(path):
                found.setdefault(folder, []).append(f"{path.name}: {node.name} has {len(parameters_of(node))}")
    assert found == {}


HOOKS = {"plan_findings", "version_findings", "needed_version", "model_html", "default_delegates"}
"""The calls from a lower layer to a higher one; no more are allowed."""


def test_every_hook_has_a_provider() -> None:
    provided = {name: hook for name, hook in vars(hooks).items() if isinstance(hook, Hook)}
    assert provided.keys() == HOOKS
    assert all(callable(hook.function()) for hook in provided.values())


def test_every_public_name_has_a_docstring() -> None:
    assert [f"{module.__name__}: {name}" for module in modules() for name in undocumented_in(module)] == []


def undocumented_in(module: ModuleType) -> list[str]:
    """The names of a module, and of members of its classes, that have no docstring."""
    undocumented = [module.__name__] if not module.__doc__ else []
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        if not (inspect.isclass(value) or inspect.isfunction(value)):
            continue
        if not inspect.getdoc(value):
            undocumented.append(name)
        if inspect.isclass(value):
            members = {n: m for n, m in vars(value).items() if not n.startswith("_")}
            callables = {n: m for n, m in members.items() if inspect.isfunction(m) or isinstance(m, property)}
            undocumented += [f"{name}.{n}" for n in callables if not inspect.getdoc(getattr(value, n))]
    return undocumented


def test_everything_in_all_is_there() -> None:
    assert all(hasattr(tflm, name) for name in tflm.__all__)
    assert tflm.__all__ == sorted(tflm.__all__, key=lambda name: (name.islower(), name))


RUNS_A_MODEL = """
import os, sys
os.environ["TFLM_COMPILED"] = "0"
before = set(sys.modules)
import tflm
model = tflm.Model.from_file(sys.argv[1])
tflm.verify(model.data), tflm.measure_arena(model, tflm.AllOpsResolver()), tflm.plan(model)
interpreter = tflm.MicroInterpreter(model, tflm.AllOpsResolver(), bytearray(1 << 14))
interpreter.allocate_tensors()
interpreter.invoke()
print(*{name.partition(".")[0] for name in set(sys.modules) - before})
"""


def test_a_model_is_checked_planned_and_run_with_numpy_alone() -> None:
    model = str(ROOT / "examples" / "hello_world" / "hello_world_int8.tflite")
    answer = subprocess.check_output([sys.executable, "-I", "-c", RUNS_A_MODEL, model], text=True)
    loaded = set(answer.split())
    assert loaded - sys.stdlib_module_names == {"tflm", "numpy"}


def test_the_page_needs_nothing_of_the_command() -> None:
    script = "import sys; sys.path.append('web'); import session; print(*sys.modules)"
    command = [sys.executable, "-c", script]
    loaded = set(subprocess.check_output(command, text=True, cwd=ROOT).split())
    assert "tflm.application.arena" in loaded
    assert not loaded & {"tflm.cli", "typer", "click", "rich"}


def test_kernels_are_imported_when_a_model_asks_for_them() -> None:
    script = "import sys, tflm; tflm.AllOpsResolver(); print(*sys.modules)"
    loaded = set(subprocess.check_output([sys.executable, "-I", "-c", script], text=True).split())
    assert not loaded & {f"tflm.kernels.reference.{family}" for family in FAMILIES if family != "ethos_u"}


@pytest.mark.parametrize(
    ("counted", "message"),
    [([True, False], None), ([False, False, True], "1 of 3 models ran, expected 50%"), ([], "no model was counted")],
    ids=["enough", "too few", "none"],
)
def test_a_test_that_takes_refusals_fails_where_too_few_models_run(counted: list[bool], message: str | None) -> None:
    for ran in counted:
        outcomes.count(ran)
    with contextlib.nullcontext() if message is None else pytest.raises(AssertionError, match=message):
        outcomes.check(0.5)


def test_importing_the_package_imports_its_modules_later() -> None:
    script = "import sys, tflm; print(*(name for name in sys.modules if name.partition('.')[0] in ('tflm', 'numpy')))"
    loaded = subprocess.check_output([sys.executable, "-I", "-c", script], text=True).split()
    assert set(loaded) == {"tflm", "tflm.hooks"}


def test_each_name_of_all_is_that_of_its_module() -> None:
    assert {name for names in tflm._LATER.values() for name in names} | set(tflm._PACKAGES) >= set(tflm.__all__) - {
        "__version__"
    }
    assert set(tflm.__all__) <= set(dir(tflm))


def test_a_test_that_ends_its_process_fails_alone(tmp_path: Path) -> None:
    """Tests after it are run, and it is not run a second time."""
    (tmp_path / "conftest.py").write_text(
        "from crashed_tests import pytest_handlecrashitem\n"
        "from pytest_costs import pytest_addoption, register as pytest_configure\n"
    )
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {Path(__file__).parent}\nmarkers = long")
    many = "import os, pytest\n@pytest.mark.parametrize('i', range(20))\ndef test(i): assert "
    for module in range(4):
        (tmp_path / f"test_{module}.py").write_text(f"{many}{module} or i != 1 or os._exit(1)")
    options = (ROOT / "pyproject.toml").read_text().split('addopts = """')[1].split('"""')[0]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:hypothesispytest",
        *shlex.split(options),
    ]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "1 failed, 79 passed" in answer.stdout
