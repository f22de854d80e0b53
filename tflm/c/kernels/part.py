"""Kernels for small processors: the interface for binding them, and their memory needs for planners."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Union

import numpy as np
import numpy.typing as npt

from tflm.c.control_flow import Repeat
from tflm.compiler.language import Step
from tflm.kernels.layers.geometry import Axis, Windows
from tflm.kernels.node import Node
from tflm.kernels.overlap import NOWHERE, OperatorFacts


class Part(NamedTuple):
    """Rows of an operator's output, and the input rows that a call computes them from.

    Attributes:
        rows: windows along the rows of x; the first window begins `before` rows before the first row of x.
        x: (batches, rows, columns, channels), a view of the input.
        y: the same for the computed rows of the output.
        backwards: whether the last window is computed first.
    """

    rows: Axis
    x: npt.NDArray[Any]
    y: npt.NDArray[Any]
    backwards: bool = False


StepOrLoop = Union[Step, Repeat[Step]]
"""A call of a kernel, once or in nested loops."""

Bind = Callable[[Node, "Part | None"], "Sequence[StepOrLoop] | None"]
"""Returns the calls that compute a part of an operator, or all of it; None if the kernels do not support it."""


class SmallKernel(NamedTuple):
    """The kernels of an operator.

    Attributes:
        bind: binds the operator.
        scratch_bytes: returns the size of the scratch memory of a call with windows, given the facts with the call's
            shapes, and the windows. Other calls take what is bound for the whole operator.
        overlap: returns how many bytes after the output's first byte an input may begin if they share bytes. The range
            can have a step. None for kernels that are called once, element by element.
        takes_rows: whether a call can compute only some rows.
        lean: slower kernels that use less scratch memory.
        overlap_backwards: the same as `overlap` for calls that compute the last window first; None if there are none.
    """

    bind: Bind
    scratch_bytes: Callable[[OperatorFacts, Windows | None], int]
    overlap: Callable[[OperatorFacts, Windows | None, int], range] | None
    takes_rows: bool
    lean: SmallKernel | None = None
    overlap_backwards: Callable[[OperatorFacts, Windows | None, int], range] | None = None


def no_kernels(node: Node, part: Part | None) -> None:
    """Return None: the operator has only the kernels of the compiled engine."""


def no_scratch(facts: OperatorFacts, windows: Windows | None) -> int:
    """Return 0: the kernels use no scratch memory."""
    return 0


def no_overlap(facts: OperatorFacts, windows: Windows | None, input: int) -> range:
    """Return the empty range: inputs and outputs may not overlap."""
    return NOWHERE


NEVER = np.int64(1) << np.int64(60)
"""Position of an element that is never read."""


def first_places(rows: Axis, columns: Axis) -> npt.NDArray[np.int64]:
    """Return, for each window, row by row, the first element of the image that it or any later window reads."""
    places = _first_inside(rows)[:, np.newaxis] * columns.size + np.minimum(_first_inside(columns), columns.size)
    places[_first_inside(rows) >= rows.size] = NEVER
    flat: npt.NDArray[np.int64] = np.minimum.accumulate(places.reshape(-1)[::-1])[::-1]
    return flat


def _first_inside(axis: Axis) -> npt.NDArray[np.int64]:
    starts = np.arange(axis.windows, dtype=np.int64) * axis.stride - axis.before
    skipped = -(-np.maximum(-starts, 0) // max(axis.dilation, 1))
    return np.where(skipped < axis.taps, starts + skipped * axis.dilation, axis.size)
