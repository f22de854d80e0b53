"""Record which functions of the package each test runs, for `tools/faults.py`; every Python process imports it.

If `RECORD` is in the environment, each process writes a file into that folder: a line "=TEST" when a test begins, then
"PATH:LINE" for each function that the test runs, where LINE is the function's first. Lines are written immediately, so
that killed processes lose nothing. Functions of kernels never run in Python: they count as run by a test that asks for
their machine code, or that writes them as C.
"""

from __future__ import annotations

import os
import sys
import threading
from types import CodeType, FrameType, FunctionType
from typing import Any

RECORD = "TFLM_FAULTS_RECORD"
TEST = "PYTEST_CURRENT_TEST"
PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tflm") + os.sep
COMPILED = tuple(
    os.path.join(PACKAGE, name, "")
    for name in ("compiler", os.path.join("delegates", "compiled"), "memory", "planning")
)
"""Folders of kernels, of the functions that they call, and of their loader."""

SOURCE_OF_C = os.path.join(PACKAGE, "c", "source.py")


class Recorder:
    """Records which functions of the package this process runs, each once per test."""

    def __init__(self, folder: str):
        self._folder = folder
        self._start()
        os.register_at_fork(after_in_child=self._start)
        threading.settrace(self._trace)
        sys.settrace(self._trace)

    def _start(self) -> None:
        self._seen: set[Any] = set()
        self._test = ""
        name = os.path.join(self._folder, f"{os.getpid()}-{os.urandom(4).hex()}.txt")
        self._file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC)

    def begin(self) -> None:
        """Forget what was seen: another test begins. Python stops tracing when a trace function of a test raises."""
        self._seen.clear()
        sys.settrace(self._trace)

    def write(self, line: str, test: str = "") -> None:
        """Write a line of a test, by default of the current one."""
        test = test or os.environ.get(TEST, "").rpartition(" ")[0]
        if test != self._test:
            self._test = test
            line = f"={test}\n{line}"
        os.write(self._file, f"{line}\n".encode())

    def _trace(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if code.co_name == "known_addresses" and code.co_filename.startswith(COMPILED):
            for kernel in frame.f_locals.get("kernels", ()):  # a list: `addresses` may be given a generator
                self._saw_kernel(kernel)
        if code.co_name == "_definition" and code.co_filename == SOURCE_OF_C:
            self._saw(frame.f_locals["instance"].function.__code__)
        self._saw(code)

    def _saw_kernel(self, kernel: Any) -> None:
        if kernel not in self._seen:
            self._seen.add(kernel)
            for function in functions_of(kernel):
                self._saw(function.__code__)

    def _saw(self, code: CodeType) -> None:
        if code in self._seen:
            return
        self._seen.add(code)
        if code.co_filename.startswith(PACKAGE):
            self.write(f"{code.co_filename[len(PACKAGE) :]}:{code.co_firstlineno}")


def functions_of(kernel: Any) -> set[FunctionType]:
    """The functions that a compiled kernel is made of, down to those that emit single instructions."""
    found: set[FunctionType] = set()
    pending = [kernel]
    while pending:
        value = pending.pop()
        if isinstance(value, type) and value.__module__.startswith(("tflm.compiler", "tflm.delegates.compiled")):
            pending += vars(value).values()
        if type(value).__name__ == "Intrinsic":
            pending.append(getattr(sys.modules.get("tflm.compiler.vectors"), value.name, None))
        function = value if isinstance(value, FunctionType) else getattr(value, "function", None)
        if isinstance(function, FunctionType) and _is_compiled(function) and function not in found:
            found.add(function)
            names = {name for code in _codes(function.__code__) for name in code.co_names}
            pending += [function.__globals__.get(name) for name in names]
    return found


def _is_compiled(function: FunctionType) -> bool:
    return function.__code__.co_filename.startswith(COMPILED)


def _codes(code: CodeType) -> list[CodeType]:
    """A function's code and that of the functions inside it."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return [code, *(below for of in inner for below in _codes(of))]


recorder = Recorder(os.environ[RECORD]) if RECORD in os.environ else None
