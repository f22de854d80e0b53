"""Find a large enough arena by trying larger and larger ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from tflm.errors import ArenaExhausted
from tflm.runtime.micro_interpreter import MicroInterpreter
from tflm.runtime.micro_op_resolver import AllOpsResolver, MicroMutableOpResolver
from tflm.schema.model import Model

FIRST_ARENA_BYTES = 1 << 20
LARGEST_ARENA_BYTES = 1 << 32
GROWTH = 8

Made = TypeVar("Made")


def in_growing_arena(make: Callable[[npt.NDArray[np.uint8]], Made], first_bytes: int = FIRST_ARENA_BYTES) -> Made:
    """Return the result of `make` in the first arena that is large enough.

    Args:
        make: called with the bytes of an arena; again with more bytes while it raises `ArenaExhausted`.
        first_bytes: size of the first arena.

    Raises:
        ArenaExhausted: 4 GiB are not enough.
    """
    size = first_bytes
    while True:
        try:
            return make(np.zeros(size, np.uint8))
        except ArenaExhausted:
            if size >= LARGEST_ARENA_BYTES:
                raise
            size *= GROWTH


def ready_interpreter(
    model: Model, resolver: MicroMutableOpResolver | None = None, **settings: Any
) -> MicroInterpreter:
    """Return an interpreter with its tensors allocated, in an arena that is large enough.

    Args:
        model: the model.
        resolver: the available operators; None for all of the package.
        settings: other arguments of `MicroInterpreter`.

    Raises:
        TflmError: the model can't be run.
    """
    resolver = AllOpsResolver() if resolver is None else resolver

    def make(arena: npt.NDArray[np.uint8]) -> MicroInterpreter:
        interpreter = MicroInterpreter(model, resolver, arena, **settings)
        interpreter.allocate_tensors()
        return interpreter

    return in_growing_arena(make)
