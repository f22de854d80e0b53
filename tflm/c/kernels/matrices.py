"""BATCH_MATMUL on small processors: each output by itself, from matrices in either order of their dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.c.kernels.part import Part
from tflm.compiler.intrinsics import elements_from
from tflm.compiler.language import DONE, Elements, Int32s, Shift, Step, inlined, kernel
from tflm.delegates.compiled import batch_matmul
from tflm.delegates.compiled.batch_matmul import Output
from tflm.delegates.compiled.casts import as_float32, as_int64
from tflm.kernels.node import Node
from tflm.kernels.reference.fully_connected import matrices


@inlined
def floats(x: Any, w: Any, depth: int, x_step: int, w_step: int, x_zero_point: int, w_zero_point: int) -> Any:
    """The sum of products of floats, in order."""
    total = as_float32(0)
    for d in range(depth):
        total += x[d * x_step] * w[d * w_step]
    return total


@inlined
def narrow_sum(x: Any, w: Any, depth: int, x_step: int, w_step: int, x_zero_point: int, w_zero_point: int) -> Any:
    """The sum of products of int8, in 32 bits."""
    total = 0
    for d in range(depth):
        total += (x[d * x_step] - x_zero_point) * (w[d * w_step] - w_zero_point)
    return total


@inlined
def wide_sum(x: Any, w: Any, depth: int, x_step: int, w_step: int, x_zero_point: int, w_zero_point: int) -> Any:
    """The sum of products of int16, in 64 bits."""
    total = as_int64(0)
    for d in range(depth):
        total += as_int64(x[d * x_step]) * w[d * w_step]
    return total


SUMS: dict[str, Callable[..., Any]] = {"float32": floats, "int8": narrow_sum, "int16": wide_sum}
"""By type of the output."""

Sum = Annotated[Callable[..., Any], SUMS]

LONGEST_NARROW_SUM = (1 << 31) // 255**2
"""Products of int8 without their zero points that 32 bits hold."""


class Matrices(NamedTuple):
    """Matrices that are multiplied.

    Attributes:
        batches: of the output.
        rows, depth, columns: x has rows of this depth, w has columns of it.
        x_size, w_size: elements of a matrix.
        x_row, x_step: elements from one row to the next, and from one element of a row to the next.
        w_column, w_step: the same of columns.
    """

    batches: int
    rows: int
    depth: int
    columns: int
    x_size: int
    w_size: int
    x_row: int
    x_step: int
    w_column: int
    w_step: int
    x_zero_point: int
    w_zero_point: int
    significand: int
    left: Shift
    right: Shift
    zero_point: int


@kernel
def multiply_matrices(
    total: Sum, output: Output, x: Elements, w: Elements, y: Elements, places: Int32s, shape: Matrices
) -> int:
    """Set y to sums of products, requantized.

    Args:
        places: for each batch of y, the indices of its matrices of x and w.
    """
    for batch in range(shape.batches):
        of_x = elements_from(x, places[2 * batch] * shape.x_size)
        for _ in range(shape.rows):
            of_w = elements_from(w, places[2 * batch + 1] * shape.w_size)
            for c in range(shape.columns):
                found = total(
                    of_x, of_w, shape.depth, shape.x_step, shape.w_step, shape.x_zero_point, shape.w_zero_point
                )
                y[c] = output(found, shape.significand, shape.left, shape.right, shape.zero_point)
                of_w = elements_from(of_w, shape.w_column)
            of_x = elements_from(of_x, shape.x_row)
            y = elements_from(y, shape.columns)
    return DONE


def bind(node: Node, part: Part | None = None) -> Sequence[Step] | None:
    """Bind BATCH_MATMUL."""
    (x, w), y = matrices(node), node.eval_output(0).elements
    constants = batch_matmul.constants_of(node.op_data, y.dtype)
    depth = x.shape[-1]
    if constants is None or (y.dtype == np.int8 and depth > LONGEST_NARROW_SUM):
        return None
    places = np.stack([batch_matmul.matrices_of(side, y.shape[:-2]) for side in (x, w)], axis=1).reshape(-1)
    x_row, x_step, w_step, w_column = (
        step // side.itemsize for side, steps in ((x, x.strides), (w, w.strides)) for step in steps[-2:]
    )
    shape = Matrices(
        batches=len(places) // 2,
        rows=x.shape[-2],
        depth=depth,
        columns=w.shape[-1],
        x_size=math.prod(x.shape[-2:]),
        w_size=math.prod(w.shape[-2:]),
        x_row=x_row,
        x_step=x_step,
        w_column=w_column,
        w_step=w_step,
        **constants,
    )
    arrays: dict[str, npt.NDArray[Any]] = {"x": x, "w": w, "y": y, "places": places}
    kind = y.dtype.name
    return [multiply_matrices.step(total=kind, output=kind, **arrays, shape=shape)]
