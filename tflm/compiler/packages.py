"""Where the packages are that machine code is made with."""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder

from tflm.compiler.compiler_main import is_working_directory

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
