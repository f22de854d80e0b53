"""Views of tensors, and operators that only copy elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from tflm.kernels.node import KernelContext, Node
from tflm.kernels.registration import Run
from tflm.memory.tensor import TfLiteEvalTensor

Result = TypeVar("Result")


def bind_by_parameters(
    parameters: Sequence[TfLiteEvalTensor], prepare: Callable[[], Result], run: Callable[[Result], None]
) -> Run:
    """Bind `run`, which takes the result of `prepare` for the values of the inputs `parameters`.

    If all of them are constant, `prepare` is called, and rejects bad values, only once, here; otherwise in each run.
    """
    if not all(parameter.is_constant for parameter in parameters):
        return lambda: run(prepare())
    prepared = prepare()
    return lambda: run(prepared)


Copy = tuple[npt.NDArray[Any], npt.NDArray[Any]]
"""Target and source: views of one dtype; the source broadcasts to the shape of the target."""


def view_of(array: npt.NDArray[Any], slices: Sequence[slice]) -> npt.NDArray[Any]:
    """A view of a part of an array, with one slice for each dimension; works for zero-dimensional arrays too."""
    index: tuple[Any, ...] = (*slices, ...)
    view: npt.NDArray[Any] = array[index]
    return view


def as_numbers(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Bools as unsigned bytes; other arrays unchanged.

    A C bool other than 0 and 1 is undefined behavior; as on x86, operators compute with the stored byte.
    """
    return x.view(np.uint8) if x.dtype == np.bool_ else x


def make_copies(copies: Sequence[Copy]) -> None:
    """Run copies. Reads all sources before it writes a target, because a plan may let them overlap."""
    values = [source.copy() for _, source in copies]
    for (target, _), value in zip(copies, values):
        target[...] = value


def bind_copies(copies: Sequence[Copy]) -> Run:
    """Bind copies that are the same in each run."""
    return lambda: make_copies(copies)


@dataclass(frozen=True)
class Copying:
    """The bind phase of an operator that only copies elements.

    Attributes:
        copies: returns a node's copies, in TFLM's order.
        parameters: inputs whose values determine the copies. If one is not constant, every invoke recomputes them.
    """

    copies: Callable[[Node], Sequence[Copy]]
    parameters: tuple[int, ...] = ()

    def fixed_copies(self, node: Node) -> Sequence[Copy] | None:
        """The copies of every invoke; None if they can change between invokes."""
        return self.copies(node) if all(node.eval_input(i).is_constant for i in self.parameters) else None

    def __call__(self, context: KernelContext, node: Node) -> Run:
        parameters = [node.eval_input(i) for i in self.parameters]
        return bind_by_parameters(parameters, lambda: self.copies(node), make_copies)
