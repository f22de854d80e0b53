"""Work arrays: memory that the steps of one operator set before they read it, and that nothing reads afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


class WorkArray(np.ndarray[Any, np.dtype[Any]]):
    """An array that holds nothing before the first step of its operator. Its views are work arrays too."""


def work_array(shape: int | Sequence[int], dtype: npt.DTypeLike) -> WorkArray:
    """A work array, contiguous, with elements that are not set."""
    return np.empty(shape, dtype).view(WorkArray)
