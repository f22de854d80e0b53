"""Memory of the host that operators keep for themselves, outside the arena and the model.

Weights as floats, tables and the like: a kernel declares each such array where it makes it, with `track_host_array`.
While an account is open, it counts what was declared in its context, for as long as the arrays are there.
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

    A view counts as the array that it looks into; one of the arena or of the model is not counted. What is gone by the
    time that the operator is ready was working memory of a moment, and does not count in the end.

    Raises:
        OperatorError: with it, operators keep more than the limit of the open account.
    """
    account = _open_account.get()
    if account is not None:
        account.add(array)
    return array


class HostMemory:
    """An account of the arrays that operators keep.

    Args:
        arena_bytes, model_bytes: sizes of the arena and of the model's file, which decide the limit.

    Attributes:
        limit: `MULTIPLE` times arena and file, and `ALWAYS_ALLOWED` bytes.
        bytes: of the arrays that are there.
    """

    def __init__(self, arena_bytes: int, model_bytes: int):
        self.limit = MULTIPLE * (arena_bytes + model_bytes) + ALWAYS_ALLOWED
        self.bytes = 0
        self._arrays: dict[int, ref[npt.NDArray[Any]]] = {}

    @contextmanager
    def open(self) -> Iterator[None]:
        """Count what is declared in this context from here on."""
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
                f"operators keep {self.bytes} bytes of the host's memory, more than the limit of {self.limit} for this "
                "model and arena; the model uses the same tensors too often"
            )
