"""The cache of machine code: object files of kernels.

The name of a file contains a hash of its inputs: the sources that the kernel reaches, compiler and processor.
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from contextlib import AbstractContextManager
from importlib.machinery import PathFinder
from pathlib import Path
from types import FunctionType

import llvmlite
import numpy as np

from tflm.compiler import cached_files
from tflm.compiler.compiler_main import is_working_directory
from tflm.compiler.host import host
from tflm.compiler.language import Kernel, called
from tflm.compiler.processor import processor

PACKAGES = ("tflm", "numpy", "flatbuffers", "llvmlite", "numba")
"""The packages that the compiler process imports besides the standard library."""


def package_file(name: str) -> str | None:
    """The absolute path of a package's `__init__`; None if it is not installed.

    A package that is loaded is taken as it is. One that is not is searched for as an import would, except in the
    working directory, which may hold anybody's files.
    """
    loaded: str | None = getattr(sys.modules.get(name), "__file__", None)
    if loaded:
        return os.path.abspath(loaded)
    spec = PathFinder.find_spec(name, [entry for entry in sys.path if not is_working_directory(entry)])
    return os.path.abspath(spec.origin) if spec is not None and spec.origin else None


COMPILER_SOURCES = [Path(__file__).with_name(name) for name in ("compiler.py", "llvm_ir.py", "numba_compiler.py")]


def read(kernel: Kernel) -> bytes | None:
    """Return the object file of a kernel; None if it is not in the cache."""
    return cached_files.read(_name(kernel))


def write(kernel: Kernel, made: bytes) -> None:
    """Store the object file of a kernel, if possible."""
    cached_files.write(_name(kernel), made)


def locked(kernel: Kernel) -> AbstractContextManager[None]:
    """Let one process at a time compile a kernel."""
    return cached_files.locked(_name(kernel))


def _name(kernel: Kernel) -> str:
    return f"{kernel.function_name}-{key(kernel)}"


def key(kernel: Kernel) -> str:
    """Return a hash of everything that determines the machine code of a kernel."""
    made_from = hashlib.sha256(_environment())
    made_from.update(repr((kernel.name, list(kernel.parameters.items()))).encode())
    for text in sorted(_sources(kernel)):
        made_from.update(text)
    return made_from.hexdigest()[:24]


@functools.cache
def _environment() -> bytes:
    versions = (llvmlite.__version__, _numba_version(), sys.version_info[:2])
    return repr((versions, host().triple, *processor())).encode()


def _numba_version() -> bytes:
    """Return a text that identifies numba's version. Importing numba, or reading package metadata, would be slower than
    all the rest."""
    file = package_file("numba")
    if file is None:
        raise FileNotFoundError("numba is not installed")
    return Path(file).with_name("_version.py").read_bytes()


def _sources(kernel: Kernel) -> set[bytes]:
    """Return the text of all modules that a kernel's code comes from, and the constants that it names."""
    package = kernel.function.__module__.partition(".")[0]
    pending = [kernel.function, *kernel.functions.values()]
    texts, seen = {_text(path) for path in COMPILER_SOURCES}, set(pending)
    while pending:
        function = pending.pop()
        texts.add(_text(Path(function.__code__.co_filename)))
        for name, value in called(function):
            if isinstance(value, FunctionType) and value.__module__.partition(".")[0] == package:
                if value not in seen:
                    seen.add(value)
                    pending.append(value)
            elif isinstance(value, (int, float, str, tuple, dict, np.generic)):
                texts.add(f"{name}={value!r}".encode())
    return texts


@functools.cache
def _text(path: Path) -> bytes:
    return path.read_bytes()
