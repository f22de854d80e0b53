"""What makes calls of numpy cheap: for arrays of some hundred elements, the calls take longer than the arithmetic.

`clip` and `einsum` are numpy's own as they are in C. The Python around `clip` takes twice as long as it; that around
`einsum` leaves a dictionary behind with each call, until Python's list of free ones is full.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numpy._core.multiarray import c_einsum as einsum
from numpy._core.umath import clip  # type: ignore[attr-defined]  # numpy declares no types for it

__all__ = ["clip", "einsum", "scalar"]


def scalar(value: float, dtype: npt.DTypeLike = np.int64) -> npt.NDArray[Any]:
    """A number as an array without dimensions: beside an array, numpy takes it in half the time of a number."""
    return np.array(value, dtype)
