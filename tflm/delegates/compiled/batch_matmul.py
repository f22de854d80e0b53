"""BATCH_MATMUL: products of matrices, neither of which needs to be a constant.

The engine computes a row of outputs at a time, in vectors; plain kernels compute each output by itself, in registers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.compiler.intrinsics import elements_from
from tflm.compiler.language import DONE, Elements, Int32s, Shift, Step, inlined, kernel
from tflm.compiler.processor import Profile
from tflm.delegates.compiled.bands import work_array
from tflm.delegates.compiled.casts import as_float32, as_int32, as_int64
from tflm.delegates.compiled.fixed_point import Multiplier, clamped, multiplier_of, scaled, wrapped
from tflm.delegates.compiled.movement import copy_steps
from tflm.kernels.arithmetic.fixed_point import reduced_significand
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.reference.fully_connected import OpDataBatchMatmul, matrices

PRODUCTS: dict[str, Callable[..., Any]] = {
    "float32": lambda x, w, x_zero_point, w_zero_point: x * w,
    "int8": lambda x, w, x_zero_point, w_zero_point: as_int64(as_int32(x - x_zero_point) * as_int32(w - w_zero_point)),
    "int16": lambda x, w, x_zero_point, w_zero_point: as_int32(x) * as_int32(w),
}
Product = Annotated[Callable[..., Any], PRODUCTS]


@inlined
def requantized_int8(total: Any, significand: int, left: int, right: int, zero_point: int) -> int:
    """Requantize a 32-bit sum, rounding twice."""
    return clamped(wrapped(scaled(as_int64(total), Multiplier(significand, left, right)) + zero_point), -128, 127)


@inlined
def requantized_int16(total: Any, factor: int, left: int, right: int, zero_point: int) -> int:
    """Requantize a 64-bit sum with a 15-bit significand, rounding once."""
    return clamped(wrapped((total * factor + (as_int64(1) << (right - 1))) >> right), -(1 << 15), (1 << 15) - 1)


OUTPUTS: dict[str, Callable[..., Any]] = {
    "float32": lambda total, significand, left, right, zero_point: total,
    "int8": requantized_int8,
    "int16": requantized_int16,
}
Output = Annotated[Callable[..., Any], OUTPUTS]

SUMS = {"float32": np.float32, "int8": np.int32, "int16": np.int64}
"""Types of the sums, by type of the output."""


@kernel
def matmul(
    product: Product,
    output: Output,
    x: Elements,
    w: Elements,
    y: Elements,
    sums: Elements,
    places: Int32s,
    batches: int,
    rows: int,
    depth: int,
    columns: int,
    x_zero_point: int,
    w_zero_point: int,
    significand: int,
    left: int,
    right: int,
    zero_point: int,
) -> int:
    """Compute sums of products, in the order of the depth, and requantize them.

    Args:
        places: for each batch of y, the indices of its matrices in x and w.
    """
    for batch in range(batches):
        of_x, of_w = places[2 * batch] * rows, places[2 * batch + 1] * depth
        for row in range(rows):
            for c in range(columns):
                sums[c] = 0
            for d in range(depth):
                factor = x[(of_x + row) * depth + d]
                for c in range(columns):
                    sums[c] += product(factor, w[(of_w + d) * columns + c], x_zero_point, w_zero_point)
            to = (batch * rows + row) * columns
            for c in range(columns):
                y[to + c] = output(sums[c], significand, left, right, zero_point)
    return DONE


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


DOT_PRODUCTS: dict[str, Callable[..., Any]] = {"float32": floats, "int8": narrow_sum, "int16": wide_sum}
"""By type of the output."""

DotProduct = Annotated[Callable[..., Any], DOT_PRODUCTS]

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
    total: DotProduct, output: Output, x: Elements, w: Elements, y: Elements, places: Int32s, shape: Matrices
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


def _bind(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    (x, w), y = matrices(node), node.eval_output(0).elements
    constants = _constants_of(node.op_data, y.dtype)
    if constants is None:
        return None
    places = np.stack([_matrices_of(side, y.shape[:-2]) for side in (x, w)], axis=1).reshape(-1)
    arrays: dict[str, npt.NDArray[Any]] = {"x": x, "w": w, "y": y, "places": places}
    is_narrow = y.dtype != np.int8 or x.shape[-1] <= LONGEST_NARROW_SUM
    bind = _bind_outputs if profile is Profile.PLAIN and is_narrow else _bind_rows
    return bind(arrays, constants)


def _bind_outputs(arrays: dict[str, npt.NDArray[Any]], constants: dict[str, int]) -> list[Step]:
    """Return the step that computes each output by itself, from matrices in either order of their dimensions."""
    x, w, kind = arrays["x"], arrays["w"], arrays["y"].dtype.name
    x_row, x_step, w_step, w_column = (
        step // side.itemsize for side, steps in ((x, x.strides), (w, w.strides)) for step in steps[-2:]
    )
    shape = Matrices(
        batches=len(arrays["places"]) // 2,
        rows=x.shape[-2],
        depth=x.shape[-1],
        columns=w.shape[-1],
        x_size=math.prod(x.shape[-2:]),
        w_size=math.prod(w.shape[-2:]),
        x_row=x_row,
        x_step=x_step,
        w_column=w_column,
        w_step=w_step,
        **constants,
    )
    return [multiply_matrices.step(total=kind, output=kind, **arrays, shape=shape)]


def _bind_rows(arrays: dict[str, npt.NDArray[Any]], constants: dict[str, int]) -> list[Step] | None:
    """Return the steps that compute a row of outputs at a time."""
    sides, type = [arrays["x"], arrays["w"]], arrays["y"].dtype.name
    contiguous = [side if side.flags.c_contiguous else work_array(side.shape, side.dtype) for side in sides]
    copies = copy_steps(list(zip(contiguous, sides)))
    if copies is None:
        return None
    x, w = contiguous
    sizes = {"batches": len(arrays["places"]) // 2, "rows": x.shape[-2], "depth": x.shape[-1], "columns": w.shape[-1]}
    arrays = {**arrays, "x": x, "w": w, "sums": work_array(w.shape[-1], SUMS[type])}
    return [*copies, matmul.step(product=type, output=type, **arrays, **sizes, **constants)]


def _matrices_of(tensor: npt.NDArray[Any], batches: tuple[int, ...]) -> npt.NDArray[np.int32]:
    """Return the index of a tensor's matrix for each batch."""
    count = int(np.prod(tensor.shape[:-2], dtype=np.int64))
    numbers = np.arange(count, dtype=np.int64).reshape(tensor.shape[:-2])
    return np.broadcast_to(numbers, batches).reshape(-1).astype(np.int32)


def _constants_of(op: OpDataBatchMatmul, dtype: np.dtype[Any]) -> dict[str, int] | None:
    """Return zero points and multiplier; None if the kernel does not support the shift."""
    names = "x_zero_point", "w_zero_point", "zero_point", "significand", "left", "right"
    if dtype == np.float32:
        return dict.fromkeys(names, 0)
    scaling: tuple[int, int, int] = multiplier_of(op.multiplier)
    if dtype == np.int16:
        scaling = int(reduced_significand(op.multiplier.significand)), 0, 15 - int(op.multiplier.shift)
        if not 1 <= scaling[2] <= 62:
            return None
    return dict(zip(names, (op.left_zero_point, op.right_zero_point, op.output_zero_point, *scaling)))


BINDINGS = {"BATCH_MATMUL": _bind}
