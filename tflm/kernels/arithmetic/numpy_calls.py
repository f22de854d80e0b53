"""Cheaper calls of numpy: on arrays of a few hundred elements, call overhead exceeds the arithmetic.

`clip` and `einsum` are numpy's C implementations. They are private, so this module falls back to the public functions
where a numpy version lacks them. The Python wrapper of `clip` takes twice as long as the C function; that of `einsum`
allocates a dictionary in each call.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

__all__ = ["clip", "einsum", "scalar"]

Function = TypeVar("Function", bound=Callable[..., Any])


def private(module: str, name: str, public: Function) -> Function:
    """A function from one of numpy's private modules, or the equivalent public one if it does not exist."""
    try:
        function: Function = getattr(import_module(module), name)
    except (ImportError, AttributeError):
        return public
    return function


clip = private("numpy._core.umath", "clip", np.clip)
einsum = private("numpy._core.multiarray", "c_einsum", np.einsum)


def scalar(value: float, dtype: npt.DTypeLike = np.int64) -> npt.NDArray[Any]:
    """A number as a zero-dimensional array, which numpy combines with arrays twice as fast as a number."""
    return np.array(value, dtype)
