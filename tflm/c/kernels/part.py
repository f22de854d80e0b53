"""Calls of small kernels: what they are bound to, and what a planner must know of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.compiler.language import Step
from tflm.kernels.layers.geometry import Axis
from tflm.kernels.layers.trailing_output import Windows
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.overlap import NOWHERE, OperatorFacts


class Part(NamedTuple):
    """Rows of an operator's output, and the rows of its input that a call computes them from.

    Attributes:
        rows: windows along the rows that x holds; they begin `before` rows before the first of these.
        x: (batches, rows, columns, channels), at its place in memory.
        y: the same of the rows that are computed.
        backwards: whether the last window is computed first.
    """

    rows: Axis
    x: npt.NDArray[Any]
    y: npt.NDArray[Any]
    backwards: bool = False


Bind = Callable[[KernelContext, Node, "Part | None"], "Sequence[Step] | None"]
"""The steps that compute a part of an operator, or all of it; None where the kernels do not cover it."""


class SmallKernel(NamedTuple):
    """Kernels of an operator.

    Attributes:
        bind: binds them.
        scratch_bytes: of memory that a call writes before it reads it: of the facts with the shapes of the call, and
            where its windows lie.
        overlap: for an input of these facts, how many bytes behind the output it may begin where the two share bytes.
            The range can have a step. None for kernels that are called once, element by element.
        takes_rows: whether a call can compute some rows alone.
        lean: other kernels, which take less of that memory and are slower.
        overlap_backwards: as `overlap`, of calls that compute the last window first; None if there are none.
    """

    bind: Bind
    scratch_bytes: Callable[[OperatorFacts, Windows | None], int]
    overlap: Callable[[OperatorFacts, Windows | None, int], range] | None
    takes_rows: bool
    lean: SmallKernel | None = None
    overlap_backwards: Callable[[OperatorFacts, Windows | None, int], range] | None = None


def no_kernels(context: KernelContext, node: Node, part: Part | None) -> None:
    """No kernels but those that all processors have."""


def no_scratch(facts: OperatorFacts, windows: Windows | None) -> int:
    """No memory but that of tensors."""
    return 0


def no_overlap(facts: OperatorFacts, windows: Windows | None, input: int) -> range:
    """No common byte is allowed."""
    return NOWHERE


NEVER = np.int64(1) << np.int64(60)
"""The place of what is not read."""


def first_places(rows: Axis, columns: Axis) -> npt.NDArray[np.int64]:
    """For each window, row by row, the first place of the image that it or any later window reads."""
    places = _first_inside(rows)[:, np.newaxis] * columns.size + np.minimum(_first_inside(columns), columns.size)
    places[_first_inside(rows) >= rows.size] = NEVER
    flat: npt.NDArray[np.int64] = np.minimum.accumulate(places.reshape(-1)[::-1])[::-1]
    return flat


def _first_inside(axis: Axis) -> npt.NDArray[np.int64]:
    starts = np.arange(axis.windows, dtype=np.int64) * axis.stride - axis.before
    skipped = -(-np.maximum(-starts, 0) // max(axis.dilation, 1))
    return np.where(skipped < axis.taps, starts + skipped * axis.dilation, axis.size)
