"""Work arrays: memory that one operator's steps write before they read it, and that nothing reads afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


class WorkArray(np.ndarray[Any, np.dtype[Any]]):
    """An array without contents before the first step of its operator. Its views are work arrays too."""


def work_array(shape: int | Sequence[int], dtype: npt.DTypeLike) -> WorkArray:
    """Return a contiguous work array with undefined elements."""
    return np.empty(shape, dtype).view(WorkArray)
