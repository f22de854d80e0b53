"""What the signal operators share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.host_memory import kept
from tflm.kernels.support.checks import AnyTensor, element_count
from tflm.schema.flexbuffer import FlexbufferMap

Values = npt.NDArray[Any]


def options_by_place(custom_options: memoryview, *names: str) -> dict[str, int]:
    """The custom options of a node, all 32-bit integers.

    Args:
        custom_options: the bytes of a flexbuffer.
        names: of all options in alphabetical order. As in TFLM, they only say which place is whose.

    Raises:
        OperatorError: the options are no map, or have no such place.
    """
    options = FlexbufferMap(custom_options)
    return {name: options.element_as_int32(place) for place, name in enumerate(names)}


def require_rank(tensor: AnyTensor, rank: int) -> None:
    """Refuse a tensor of any other number of dimensions."""
    if len(tensor.dims) != rank:
        raise OperatorError(f"has shape {list(tensor.dims)}, must have {rank} dimensions", tensor=tensor.name)


def require_room(tensor: AnyTensor, needed: int, available: int) -> None:
    """Refuse a tensor from or to which more elements go than are available in it."""
    if needed > available:
        reason = f"has shape {list(tensor.dims)}, too small: {needed} elements are needed, there are {available}"
        raise OperatorError(reason, tensor=tensor.name)


def rows_of(tensor: AnyTensor) -> tuple[int, int]:
    """How many rows a tensor has, and how long they are. Refuses a scalar, and rows of nothing."""
    if not tensor.dims or not tensor.dims[-1]:
        raise OperatorError(f"has shape {list(tensor.dims)}, must have rows of samples", tensor=tensor.name)
    return element_count(tensor) // tensor.dims[-1], tensor.dims[-1]


def require_channels(options: dict[str, int]) -> int:
    """The option `num_channels`; refuses a negative one."""
    count = options["num_channels"]
    if count < 0:
        raise OperatorError(f"num_channels is {count}, must not be negative")
    return count


class Program:
    """Calls that are worked out once and made in each invoke: numpy functions over arrays that stay where they are."""

    def __init__(self) -> None:
        self._calls: list[tuple[Callable[..., object], tuple[Any, ...]]] = []

    def call(self, function: Callable[..., object], *arguments: Any) -> None:
        """Add a call. The last argument of a numpy function is its output."""
        self._calls.append((function, arguments))
        for argument in arguments:
            if isinstance(argument, np.ndarray):
                kept(argument)

    def copy(self, target: Values, source: Values) -> None:
        """Add a copy, which casts as C does."""
        self.call(kept(target).__setitem__, ..., source)

    def larger(self, x: Values, y: Values, target: Values) -> None:
        """Add the larger one of each two integers."""
        self.call(np.fmax, x, y, target)  # numpy's maximum takes its output by name only, which is slower

    def smaller(self, x: Values, y: Values, target: Values) -> None:
        """Add the smaller one of each two integers."""
        self.call(np.fmin, x, y, target)

    def gather(self, target: Values, source: Values, indices: npt.NDArray[np.intp]) -> None:
        """Add the copy of elements, all of one dimension, by their indices."""
        self.call(kept(source).take, indices, None, target, "clip")

    def gather_pairs(self, target: Values, source: Values, indices: npt.NDArray[np.intp]) -> None:
        """Add the copy of pairs of elements, by the indices of the pairs."""
        pair = np.dtype({2: np.uint32, 4: np.uint64, 8: np.complex128}[source.itemsize])
        self.gather(target.view(pair), source.view(pair), indices.reshape(-1))

    def clear(self, *targets: Values) -> None:
        """Add zeros for what an operator leaves of its outputs: TFLM leaves there whatever was."""
        for target in targets:
            if target.size:
                self.call(target.fill, 0)

    def run(self) -> None:
        """Make the calls."""
        for function, arguments in self._calls:
            function(*arguments)
