"""What operators that only move elements run: copies from views of their inputs to views of their outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy.typing as npt

from tflm.kernels.registration import Run
from tflm.memory.tensor import TfLiteEvalTensor

Copy = tuple[npt.NDArray[Any], npt.NDArray[Any]]
"""A target and its source, views of one shape and dtype; the source may broadcast."""


def view_of(array: npt.NDArray[Any], slices: Sequence[slice]) -> npt.NDArray[Any]:
    """A part of an array, with one slice for each dimension; a view even if there is none, where indexing copies."""
    index: tuple[Any, ...] = (*slices, ...)
    view: npt.NDArray[Any] = array[index]
    return view


def bind_copy(target: npt.NDArray[Any], source: npt.NDArray[Any]) -> Run:
    """What copies `source` to `target`."""

    def run() -> None:
        target[...] = source  # half the time of np.copyto where tensors are small

    return run


def bind_copies(copies: Sequence[Copy]) -> Run:
    """What makes all of these copies, in turn."""
    if len(copies) == 1:
        return bind_copy(*copies[0])

    def run() -> None:
        for target, source in copies:
            target[...] = source

    return run


def bind_by_parameters(parameters: Sequence[TfLiteEvalTensor], bind: Callable[[], Run]) -> Run:
    """What runs an operator whose views depend on the elements of `parameters`.

    Where all of those are constants of the model, `bind` is called once; else it is called in each run, and what it
    refuses is refused then.
    """
    if all(parameter.offset is None for parameter in parameters):
        return bind()

    def run() -> None:
        bind()()

    return run
