"""What makes calls of numpy cheap: for arrays of some hundred elements, the calls take longer than the arithmetic.

`clip` and `einsum` are numpy's own as they are in C, where this numpy has them in their places: those are not part of
its interface. The Python around `clip` takes twice as long as it; that around `einsum` leaves a dictionary behind with
each call, until Python's list of free ones is full.
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
    """A function from one of numpy's private modules, or the public one with the same results where it is not there."""
    try:
        function: Function = getattr(import_module(module), name)
    except (ImportError, AttributeError):
        return public
    return function


clip = private("numpy._core.umath", "clip", np.clip)
einsum = private("numpy._core.multiarray", "c_einsum", np.einsum)


def scalar(value: float, dtype: npt.DTypeLike = np.int64) -> npt.NDArray[Any]:
    """A number as an array without dimensions: beside an array, numpy takes it in half the time of a number."""
    return np.array(value, dtype)
