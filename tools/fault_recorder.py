"""Record which functions of the package each test runs, for `tools/faults.py`; every Python process imports it.

If `RECORD` is in the environment, each process writes a file into that folder: a line "=TEST" when a test begins, then
"PATH:LINE" for each function that the test runs, where LINE is the function's first. Lines are written immediately, so
that killed processes lose nothing. Functions of kernels never run in Python: they count as run by a test that asks for
their machine code, or that writes them as C.

Modules of the package are compiled with a line in front of each function that reports its first run in a test.
A trace function would slow the tests down several times, and make their durations useless.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib.machinery
import importlib.util
import marshal
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

RECORD = "TFLM_FAULTS_RECORD"
TEST = "PYTEST_CURRENT_TEST"
PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tflm") + os.sep
COMPILED = tuple(
    os.path.join(PACKAGE, name, "")
    for name in ("compiler", os.path.join("delegates", "compiled"), "memory", "planning")
)
"""Folders of kernels, of the functions that they call, and of their loader."""

KEEPS_RESULTS = ("tflm.c.", "tflm.compiler.", "tflm.delegates.", "tflm.testing.")
"""Packages whose cached functions run once for all tests: translations and strategies take long to make again."""

UNSEEN, SAW = "_recorder_unseen", "_recorder_saw"
"""The globals of a module with the functions that no test has run yet, and with the method that reports one."""


class Recorder:
    """Records which functions of the package this process runs, each once per test."""

    def __init__(self, folder: str):
        self._folder = folder
        self._modules: list[bytearray] = []
        self._caches: list[Any] = []
        self._start()
        os.register_at_fork(after_in_child=self._start)
        sys.meta_path.insert(0, Finder(self))

    def _start(self) -> None:
        self._test = ""
        name = os.path.join(self._folder, f"{os.getpid()}-{os.urandom(4).hex()}.txt")
        self._file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC)
        self.begin()

    def begin(self) -> None:
        """Forget what was seen, and what is cached, which only the first test would make: another test begins."""
        self._seen: set[Any] = set()
        for cached in self._caches:
            cached.cache_clear()
        for unseen in self._modules:
            unseen[:] = b"\1" * len(unseen)

    def write(self, line: str, test: str = "") -> None:
        """Write a line of a test, by default of the current one."""
        test = test or os.environ.get(TEST, "").rpartition(" ")[0]
        if test != self._test:
            self._test = test
            line = f"={test}\n{line}"
        os.write(self._file, f"{line}\n".encode())

    def watch(self, module: ModuleType, path: str, lines: list[int]) -> None:
        """Give a module the globals that its functions name."""
        unseen = bytearray(b"\1" * len(lines))
        self._modules.append(unseen)

        def saw(function: int) -> None:
            unseen[function] = 0
            self.write(f"{path[len(PACKAGE) :]}:{lines[function]}")

        vars(module).update({UNSEEN: unseen, SAW: saw})

    def clear(self, module: ModuleType) -> None:
        """Run the cached functions of a module anew in each test."""
        if not module.__name__.startswith(KEEPS_RESULTS):
            self._caches += [value for value in vars(module).values() if hasattr(value, "cache_clear")]

    def saw_kernel(self, kernel: Any) -> None:
        """A test asks for a kernel's machine code."""
        if kernel not in self._seen:
            self._seen.add(kernel)
            for function in functions_of(kernel):
                self.saw_code(function.__code__)

    def saw_code(self, code: CodeType) -> None:
        """A test uses the code of a function without running it in Python."""
        if code not in self._seen and code.co_filename.startswith(PACKAGE):
            self._seen.add(code)
            self.write(f"{code.co_filename[len(PACKAGE) :]}:{code.co_firstlineno}")


# --- Modules of the package -----------------------------------------------------------------------------------------


class Finder(importlib.machinery.PathFinder):
    """Finds the modules of the package, to be loaded with reports."""

    def __init__(self, recorder: Recorder):
        self._recorder = recorder

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:  # type: ignore[override]
        """Find a module of the package; None for all others."""
        if fullname.partition(".")[0] != "tflm":
            return None
        spec = super().find_spec(fullname, path, target)
        if spec is not None and (spec.origin or "").startswith(PACKAGE) and (spec.origin or "").endswith(".py"):
            spec.loader = Loader(fullname, str(spec.origin), self._recorder)
        return spec


class Loader(importlib.machinery.SourceFileLoader):
    """Loads a module whose functions report that they run."""

    def __init__(self, fullname: str, path: str, recorder: Recorder):
        super().__init__(fullname, path)
        self._recorder = recorder

    def get_code(self, fullname: str) -> CodeType:
        """Compile the module, or read what another process has compiled."""
        path = Path(self.path)
        kept = path.parent / "__pycache__" / f"{path.stem}.recorded-{path.stat().st_mtime_ns}"
        with contextlib.suppress(OSError, ValueError, EOFError, TypeError):
            return self._with_lines(marshal.loads(kept.read_bytes()))
        tree = ast.parse(path.read_bytes())
        made = _add_reports(tree), compile(tree, self.path, "exec", dont_inherit=True)
        with contextlib.suppress(OSError):
            kept.parent.mkdir(exist_ok=True)
            own = kept.with_name(f"{kept.name}-{os.getpid()}")
            own.write_bytes(marshal.dumps(made))
            own.replace(kept)
        return self._with_lines(made)

    def _with_lines(self, made: tuple[list[int], CodeType]) -> CodeType:
        self._lines, code = made
        return code

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, and then put reports of kernels into it."""
        code = self.get_code(module.__name__)
        self._recorder.watch(module, self.path, self._lines)
        exec(code, vars(module))
        for name, report in REPORTS.get(module.__name__, {}).items():
            setattr(module, name, report(self._recorder, getattr(module, name)))
        self._recorder.clear(module)


def _add_reports(tree: ast.Module) -> list[int]:
    """Let each function report that it runs; returns the functions' first lines."""
    lines: list[int] = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            report = ast.parse(f"if {UNSEEN}[{len(lines)}]: {SAW}({len(lines)})").body[0]
            first = int(ast.get_docstring(node, clean=False) is not None)
            for each in ast.walk(report):
                ast.copy_location(each, node)
            node.body.insert(first, report)
            lines.append(min([node.lineno, *(of.lineno for of in node.decorator_list)]))
    return lines


# --- Kernels --------------------------------------------------------------------------------------------------------


def _report_addresses(recorder: Recorder, known_addresses: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(known_addresses)
    def wrapper(kernels: Iterable[Any]) -> Any:
        kernels = list(kernels)
        for kernel in kernels:
            recorder.saw_kernel(kernel)
        return known_addresses(kernels)

    return wrapper


def _report_definition(recorder: Recorder, definition: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(definition)
    def wrapper(instance: Any, *arguments: Any) -> Any:
        recorder.saw_code(instance.function.__code__)
        return definition(instance, *arguments)

    return wrapper


def _without_reports(_: Recorder, compiled: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(compiled)
    def wrapper(function: FunctionType, *signature: Any) -> Any:
        code = function.__code__
        if UNSEEN in code.co_names:  # lambdas report nothing, and several can be in a line
            code = _plain_codes(code.co_filename)[code.co_firstlineno, code.co_name]
        copy = FunctionType(code, function.__globals__, function.__name__, function.__defaults__)
        return compiled(copy, *signature)

    return wrapper


@functools.cache
def _plain_codes(path: str) -> dict[tuple[int, str], CodeType]:
    """The codes of a module's functions without reports, by first line and name."""
    whole = compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
    return {(code.co_firstlineno, code.co_name): code for code in _codes(whole)}


REPORTS: dict[str, dict[str, Callable[[Recorder, Callable[..., Any]], Callable[..., Any]]]] = {
    "tflm.compiler.machine_code": {"known_addresses": _report_addresses},
    "tflm.compiler.numba_compiler": {"_compiled": _without_reports},
    "tflm.c.source": {"_definition": _report_definition},
}
"""Functions that concern kernels, by module and name, and what wraps them."""


def functions_of(kernel: Any) -> set[FunctionType]:
    """The functions that a compiled kernel is made of, down to those that emit single instructions."""
    found: set[FunctionType] = set()
    pending = [kernel]
    while pending:
        value = pending.pop()
        if isinstance(value, type) and value.__module__.startswith(("tflm.compiler", "tflm.delegates.compiled")):
            pending += vars(value).values()
        if type(value).__name__ == "Intrinsic":
            pending.append(getattr(sys.modules.get("tflm.compiler.llvm_ir"), value.name, None))
        function = value if isinstance(value, FunctionType) else getattr(value, "function", None)
        if isinstance(function, FunctionType) and _is_compiled(function) and function not in found:
            found.add(function)
            names = {name for code in _codes(function.__code__) for name in code.co_names}
            pending += [function.__globals__.get(name) for name in names]
    return found


def _is_compiled(function: FunctionType) -> bool:
    return function.__code__.co_filename.startswith(COMPILED)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code and that of the functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


recorder = Recorder(os.environ[RECORD]) if RECORD in os.environ else None
