"""How much memory of the host operators keep for themselves, beside the arena and the model."""

from __future__ import annotations

import gc
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.registration import KernelContext, Node, Registration, Run
from tflm.memory.tensor import TfLiteEvalTensor
from tflm.schema.layout import Table

MULTIPLE = 64
ALWAYS_ALLOWED = 64 << 20

SHARED_WITH_OTHERS = (Node, Registration, TfLiteEvalTensor, Table, ModuleType, type)
"""What an operator may hold on to without it being its own."""


class HostMemory:
    """Adds up the arrays that bound operators keep: weights as floats, tables, sums of a block and the like.

    Args:
        arena_bytes, model_bytes: sizes of the arena and of the model's file, which decide the limit.
        context: what operators are given; what only it leads to is not theirs.

    Attributes:
        limit: `MULTIPLE` times arena and file, and `ALWAYS_ALLOWED` bytes.
        bytes: of the arrays so far.
    """

    def __init__(self, arena_bytes: int, model_bytes: int, context: KernelContext):
        self.limit = MULTIPLE * (arena_bytes + model_bytes) + ALWAYS_ALLOWED
        self.bytes = 0
        self._seen: dict[int, Any] = {id(context): context}

    def add(self, run: Run | list[npt.NDArray[Any]]) -> None:
        """Add what a bound operator keeps, or arrays.

        Raises:
            OperatorError: that is more than the limit, together with what others keep.
        """
        pending: list[Any] = [run]
        while pending:
            thing = pending.pop()
            if id(thing) in self._seen or isinstance(thing, SHARED_WITH_OTHERS):
                continue
            if isinstance(thing, np.ndarray):
                self.bytes += thing.nbytes if thing.base is None else 0
                pending.append(thing.base)
            elif isinstance(thing, FunctionType):
                pending += (thing.__closure__, thing.__defaults__, thing.__kwdefaults__)
            elif referents := gc.get_referents(thing):
                pending += referents
            else:
                continue
            self._seen[id(thing)] = thing
        if self.bytes > self.limit:
            raise OperatorError(
                f"with it, operators keep {self.bytes} bytes of the host's memory, more than the {self.limit} that "
                "go with this model and arena; the model uses the same tensors too often"
            )
