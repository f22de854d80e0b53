"""Views of tensors, and operators that do nothing but copy elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.kernels.node import KernelContext, Node
from tflm.kernels.registration import Run
from tflm.kernels.support.parameters import bind_by_parameters

Copy = tuple[npt.NDArray[Any], npt.NDArray[Any]]
"""Target and source: views of one dtype; the source broadcasts to the shape of the target."""


def view_of(array: npt.NDArray[Any], slices: Sequence[slice]) -> npt.NDArray[Any]:
    """A view of a part of an array, with one slice for each dimension; also of an array without dimensions."""
    index: tuple[Any, ...] = (*slices, ...)
    view: npt.NDArray[Any] = array[index]
    return view


def as_numbers(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Truth values as unsigned bytes; other arrays unchanged.

    In C a bool is 0 or 1, and what happens to another byte is up to the compiler. This follows TFLM on x86, where
    operators work on the bytes as they are.
    """
    return x.view(np.uint8) if x.dtype == np.bool_ else x


def make_copies(copies: Sequence[Copy]) -> None:
    """Make copies. All sources are read before a target is written: a plan may put both into the same bytes."""
    values = [source.copy() for _, source in copies]
    for (target, _), value in zip(copies, values):
        target[...] = value


def bind_copies(copies: Sequence[Copy]) -> Run:
    """Bind copies that are the same in each run."""
    return lambda: make_copies(copies)


@dataclass(frozen=True)
class Copying:
    """The bind phase of an operator that does nothing but copy elements.

    Attributes:
        copies: returns the copies that run a node, in TFLM's order.
        parameters: inputs whose values decide what is copied. If one is not constant, every invoke asks for the copies.
    """

    copies: Callable[[Node], Sequence[Copy]]
    parameters: tuple[int, ...] = ()

    def fixed_copies(self, node: Node) -> Sequence[Copy] | None:
        """The copies of every invoke; None if they differ from one to the next."""
        return self.copies(node) if all(node.eval_input(i).is_constant for i in self.parameters) else None

    def __call__(self, context: KernelContext, node: Node) -> Run:
        parameters = [node.eval_input(i) for i in self.parameters]
        return bind_by_parameters(parameters, lambda: self.copies(node), make_copies)
