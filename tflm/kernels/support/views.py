"""Views of inputs and outputs, and what operators that only move elements run: copies from one to the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.kernels.host_memory import kept
from tflm.kernels.registration import Run

Copy = tuple[npt.NDArray[Any], npt.NDArray[Any]]
"""A target and its source, views of one shape and dtype; the source may broadcast."""


def view_of(array: npt.NDArray[Any], slices: Sequence[slice]) -> npt.NDArray[Any]:
    """A part of an array, with one slice for each dimension; a view even if there is none, where indexing copies."""
    index: tuple[Any, ...] = (*slices, ...)
    view: npt.NDArray[Any] = array[index]
    return view


class Copies:
    """What runs an operator by copies, in turn.

    Attributes:
        pairs: the copies.
    """

    __slots__ = ("pairs",)

    def __init__(self, pairs: Sequence[Copy]):
        self.pairs = tuple(pairs)

    def __call__(self) -> None:
        for target, source in self.pairs:
            target[...] = source  # half the time of np.copyto where tensors are small


def after_copies(copies: Sequence[Copy], run: Run) -> Run:
    """What makes copies, and then runs an operator on them."""
    if not copies:
        return run
    copy = Copies(copies)

    def run_after_copies() -> None:
        copy()
        run()

    return run_after_copies


def as_numbers(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Truth values as unsigned bytes; other arrays as they are.

    In C a bool is 0 or 1, and what happens to another byte is up to the compiler. This follows TFLM on x86, where
    operators work on the bytes as they are.
    """
    return x.view(np.uint8) if x.dtype == np.bool_ else x


def apart(
    x: npt.NDArray[Any], y: npt.NDArray[Any], except_in_place: bool = True
) -> tuple[npt.NDArray[Any], list[Copy]]:
    """An input that can be read again after the output was written: itself, unless a plan has both in the same bytes.

    Args:
        x, y: the input and the output, flat or of one shape.
        except_in_place: where both begin at one address, `x` is good enough.

    Returns:
        `x`, or a copy of it; and the copy with what it is of, to be made anew before each run.
    """
    begin_together = x.dtype == y.dtype and x.ctypes.data == y.ctypes.data
    if not np.may_share_memory(x, y) or (except_in_place and begin_together):
        return x, []
    copy = kept(np.array(x, x.dtype))
    return copy, [(copy, x)]


def bind_copy(target: npt.NDArray[Any], source: npt.NDArray[Any]) -> Run:
    """What copies `source` to `target`."""
    return Copies([(target, source)])


def bind_copies(copies: Sequence[Copy]) -> Run:
    """What makes all of these copies, in turn."""
    return Copies(copies)
