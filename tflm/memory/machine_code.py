"""Functions over flat arrays, compiled by numba where it is installed (the extra `fast`), else run by Python."""

from __future__ import annotations

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
