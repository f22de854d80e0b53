"""Functions over flat arrays, compiled by numba where it is installed (the extra `fast`), else run by Python."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def _compiler() -> Any:
    try:
        return importlib.import_module("numba")
    except ImportError:
        return None


NUMBA = _compiler()
"""The compiler, or None."""


def compiled(function: Function) -> Function:
    """The function as machine code, kept on disk so that it is compiled once; unchanged where there is no compiler.

    What it computes is the same either way.
    """
    if NUMBA is None:
        return function
    try:
        made: Function = NUMBA.njit(cache=True)(function)
    except RuntimeError:  # there is no folder that it could be kept in
        made = NUMBA.njit(function)
    return made


MOST_ATTEMPTS = 100
"""More than the functions, each with its types, that one call compiles."""


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a compiled function, though its machine code may find no room on disk.

    numba then raises an error as soon as it has compiled one of the functions, which the next attempt finds in memory.
    """
    for _ in range(MOST_ATTEMPTS):
        with contextlib.suppress(OSError):
            return function(*arguments)
    return function(*arguments)
