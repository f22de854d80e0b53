"""Accounting of the host memory that operators keep outside the arena and the model.

A kernel declares each array that it keeps, such as weights as floats or a table, with `track_host_array`. An open
account counts the arrays declared in its context for as long as they are alive.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar
from weakref import ref

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError

MULTIPLE = 64
ALWAYS_ALLOWED = 64 << 20

Array = TypeVar("Array", bound=npt.NDArray[Any])

_open_account: ContextVar[HostMemory | None] = ContextVar("_open_account", default=None)


def track_host_array(array: Array) -> Array:
    """Declare an array that an operator keeps, and return it.

    A view counts as its base array; views of the arena or the model do not count. Neither do temporary arrays that are
    freed before the operator is ready.

    Raises:
        OperatorError: the operators keep more than the limit of the open account.
    """
    account = _open_account.get()
    if account is not None:
        account.add(array)
    return array


class HostMemory:
    """Counts the arrays that operators keep.

    Args:
        arena_bytes, model_bytes: sizes of the arena and the model file, which determine the limit.

    Attributes:
        limit: `MULTIPLE` times arena and file, and `ALWAYS_ALLOWED` bytes.
        bytes: total size of the arrays that are alive.
    """

    def __init__(self, arena_bytes: int, model_bytes: int):
        self.limit = MULTIPLE * (arena_bytes + model_bytes) + ALWAYS_ALLOWED
        self.bytes = 0
        self._arrays: dict[int, ref[npt.NDArray[Any]]] = {}

    @contextmanager
    def open(self) -> Iterator[None]:
        """Count arrays declared in this context from now on."""
        token = _open_account.set(self)
        try:
            yield
        finally:
            _open_account.reset(token)

    def add(self, array: npt.NDArray[Any]) -> None:
        """Count an array; see `track_host_array`."""
        while isinstance(array.base, np.ndarray):
            array = array.base
        key, size = id(array), array.nbytes
        if array.base is not None or key in self._arrays:
            return

        def forget(_: object) -> None:
            del self._arrays[key]
            self.bytes -= size

        self._arrays[key] = ref(array, forget)
        self.bytes += size
        if self.bytes > self.limit:
            raise OperatorError(
                f"operators keep {self.bytes} bytes of host memory, more than the limit of {self.limit} for this "
                "model and arena; the model uses the same tensors too often"
            )
