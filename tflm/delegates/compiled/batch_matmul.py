"""BATCH_MATMUL: products of matrices, neither of which needs to be a constant."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.delegates.compiled.casts import as_int32, as_int64
from tflm.delegates.compiled.elementwise import multiplier_parts
from tflm.delegates.compiled.fixed_point import clamped, scaled, wrapped
from tflm.delegates.compiled.language import DONE, Float32s, Int8s, Int16s, Int32s, Int64s, Step, kernel
from tflm.delegates.compiled.movement import copy_steps
from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier
from tflm.kernels.reference.batch_matmul import LEFT, RIGHT, OpData
from tflm.kernels.registration import KernelContext, Node
from tflm.schema.options import BatchMatMulOptions


@kernel
def matmul_float32(
    x: Float32s, w: Float32s, y: Float32s, places: Int64s, batches: int, rows: int, depth: int, columns: int
) -> int:
    """Sums of products, in order of the depth.

    Args:
        places: for each batch of y, the matrix of x and that of w, by number.
    """
    for batch in range(batches):
        of_x, of_w = places[2 * batch] * rows, places[2 * batch + 1] * depth
        for row in range(rows):
            to = (batch * rows + row) * columns
            for c in range(columns):
                y[to + c] = 0
            for d in range(depth):
                factor = x[(of_x + row) * depth + d]
                for c in range(columns):
                    y[to + c] += factor * w[(of_w + d) * columns + c]
    return DONE


@kernel
def matmul_int8(
    x: Int8s,
    w: Int8s,
    y: Int8s,
    sums: Int32s,
    places: Int64s,
    batches: int,
    rows: int,
    depth: int,
    columns: int,
    x_zero_point: int,
    w_zero_point: int,
    zero_point: int,
    significand: int,
    left: int,
    right: int,
) -> int:
    """The same of int8, in sums of 32 bits, scaled."""
    for batch in range(batches):
        of_x, of_w = places[2 * batch] * rows, places[2 * batch + 1] * depth
        for row in range(rows):
            for c in range(columns):
                sums[c] = 0
            for d in range(depth):
                factor = as_int32(x[(of_x + row) * depth + d] - x_zero_point)
                for c in range(columns):
                    sums[c] = sums[c] + factor * as_int32(w[(of_w + d) * columns + c] - w_zero_point)
            to = (batch * rows + row) * columns
            for c in range(columns):
                value = scaled(as_int64(sums[c]), significand, left, right) + zero_point
                y[to + c] = clamped(wrapped(value), -128, 127)
    return DONE


@kernel
def matmul_int16(
    x: Int16s,
    w: Int16s,
    y: Int16s,
    sums: Int64s,
    places: Int64s,
    batches: int,
    rows: int,
    depth: int,
    columns: int,
    factor: int,
    right: int,
) -> int:
    """The same of int16, in sums of 64 bits, times a factor of 15 bits, rounded once."""
    for batch in range(batches):
        of_x, of_w = places[2 * batch] * rows, places[2 * batch + 1] * depth
        for row in range(rows):
            for c in range(columns):
                sums[c] = 0
            for d in range(depth):
                of_row = x[(of_x + row) * depth + d]
                for c in range(columns):
                    sums[c] += as_int32(of_row) * as_int32(w[(of_w + d) * columns + c])
            to = (batch * rows + row) * columns
            for c in range(columns):
                value = wrapped((sums[c] * factor + (1 << (right - 1))) >> right)
                y[to + c] = clamped(value, -(1 << 15), (1 << 15) - 1)
    return DONE


def _bind(context: KernelContext, node: Node) -> list[Step] | None:
    left, right = (context.get_eval_input(node, i).elements for i in (LEFT, RIGHT))
    y = context.get_eval_output(node, 0).elements
    options = node.options(BatchMatMulOptions) or BatchMatMulOptions()
    x = left.swapaxes(-1, -2) if options.adj_x else left
    w = right.swapaxes(-1, -2) if options.adj_y else right
    (rows, depth), columns = x.shape[-2:], w.shape[-1]
    laid_out, turns = [], []
    for of in (x, w):
        contiguous = of if of.flags.c_contiguous else np.empty(of.shape, of.dtype)
        turn = [] if contiguous is of else copy_steps([(contiguous, of)])
        if turn is None:
            return None
        laid_out.append(contiguous)
        turns += turn
    places = np.stack([_matrices(of, y.shape[:-2]) for of in laid_out], axis=1)
    common: dict[str, Any] = {
        **dict(zip("xw", laid_out)),
        "y": y,
        "places": places.reshape(-1),
        "batches": len(places),
        "rows": rows,
        "depth": depth,
        "columns": columns,
    }
    step = matmul_float32.step(**common) if y.dtype == np.float32 else _integer_step(node.op_data, common)
    return None if step is None else [*turns, step]


def _matrices(of: npt.NDArray[Any], batches: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """Which matrix of a tensor belongs to each batch."""
    count = int(np.prod(of.shape[:-2], dtype=np.int64))
    numbers = np.arange(count, dtype=np.int64).reshape(of.shape[:-2])
    return np.broadcast_to(numbers, batches).reshape(-1)


def _integer_step(op: OpData, common: dict[str, Any]) -> Step | None:
    columns = common["columns"]
    if common["y"].dtype == np.int8:
        zero_points = {"x_zero_point": op.left_zero_point, "w_zero_point": op.right_zero_point}
        scaling = multiplier_parts("", QuantizedMultiplier(op.significand, op.shift))
        sums = np.empty(columns, np.int32)
        return matmul_int8.step(**common, sums=sums, **zero_points, zero_point=op.output_zero_point, **scaling)
    right = 15 - op.shift
    if not 1 <= right <= 62:
        return None
    factor = min((op.significand + (1 << 15)) >> 16, 0x7FFF)
    return matmul_int16.step(**common, sums=np.empty(columns, np.int64), factor=factor, right=right)


BINDINGS = {"BATCH_MATMUL": _bind}
