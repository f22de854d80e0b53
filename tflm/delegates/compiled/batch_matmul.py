"""BATCH_MATMUL: products of matrices, neither of which needs to be a constant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from tflm.compiler.language import DONE, Elements, Int32s, Step, inlined, kernel
from tflm.compiler.processor import Profile
from tflm.delegates.compiled.casts import as_int32, as_int64
from tflm.delegates.compiled.fixed_point import Multiplier, clamped, multiplier_of, scaled, wrapped
from tflm.delegates.compiled.movement import copy_steps
from tflm.delegates.compiled.work_arrays import work_array
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


def _bind(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    y = node.eval_output(0).elements
    contiguous = [side if side.flags.c_contiguous else work_array(side.shape, side.dtype) for side in matrices(node)]
    copies = copy_steps(list(zip(contiguous, matrices(node))))
    if copies is None:
        return None
    x, w = contiguous
    constants = constants_of(node.op_data, y.dtype)
    if constants is None:
        return None
    places = np.stack([matrices_of(side, y.shape[:-2]) for side in contiguous], axis=1).reshape(-1)
    sizes = {"batches": len(places) // 2, "rows": x.shape[-2], "depth": x.shape[-1], "columns": w.shape[-1]}
    type = y.dtype.name
    arrays = {"x": x, "w": w, "y": y, "places": places, "sums": work_array(w.shape[-1], SUMS[type])}
    return [*copies, matmul.step(product=type, output=type, **arrays, **sizes, **constants)]


def matrices_of(tensor: npt.NDArray[Any], batches: tuple[int, ...]) -> npt.NDArray[np.int32]:
    """Return the index of a tensor's matrix for each batch."""
    count = int(np.prod(tensor.shape[:-2], dtype=np.int64))
    numbers = np.arange(count, dtype=np.int64).reshape(tensor.shape[:-2])
    return np.broadcast_to(numbers, batches).reshape(-1).astype(np.int32)


def constants_of(op: OpDataBatchMatmul, dtype: np.dtype[Any]) -> dict[str, int] | None:
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
