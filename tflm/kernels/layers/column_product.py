"""Windows times a few rows of weights, a column of taps at a time.

Where there are only a few rows of weights, it takes longer to copy windows, as `bind_product` does, than to multiply
them. Here the windows that are copied are one column wide. Each is multiplied by the weights of every column of taps,
and what belongs together, which lies on diagonals of the products, is added afterwards: in another order than that of
the depth, which integers allow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from tflm.kernels.arithmetic.numpy_calls import einsum
from tflm.kernels.host_memory import kept
from tflm.kernels.layers.geometry import Axis
from tflm.kernels.layers.integer_product import IntegerWeights
from tflm.kernels.layers.product import FACTORS_IN_A_BLOCK, Finish, Scratch, blocks
from tflm.kernels.layers.windows import bind_windows, in_turn
from tflm.kernels.registration import Run


def few_rows(weights: npt.NDArray[Any], columns: Axis) -> bool:
    """Whether there are so few rows of weights (groups, rows, row taps, column taps, depth) that this is faster."""
    groups, rows, row_taps, column_taps, depth = weights.shape
    return groups == 1 and column_taps > 1 and columns.stride == 1 and 8 * rows <= row_taps * depth


def bind_product_by_column(
    x: npt.NDArray[Any],
    rows: Axis,
    columns: Axis,
    layer: IntegerWeights,
    finish: Finish,
    y: npt.NDArray[Any],
    *,
    border: int,
) -> Run:
    """What sets y (batches, rows, columns, rows of weights) from the windows of x (batches, rows, columns, depth)."""
    channels, depth = y.shape[3], x.shape[3]
    width = columns.windows + (columns.taps - 1) * columns.dilation
    narrow = Axis(columns.size, 1, width, before=columns.before)
    fill, windows = bind_windows(x, rows, narrow, dtype=x.dtype, border=border)
    factors = kept(np.empty((rows.taps * depth, columns.taps * channels), layer.dtype))
    by_column = layer.factors.reshape(rows.taps, columns.taps, depth, channels).transpose(0, 2, 1, 3)
    steps, scratch = [], Scratch(layer.dtype)
    limit = FACTORS_IN_A_BLOCK // (width * max(factors.shape))
    for block in blocks(y.shape[:2], limit):
        seen, target = windows[block], y[block]
        patches, sums = scratch.array("patches", *seen.shape), scratch.array("sums", *target.shape)
        products = scratch.array("products", *seen.shape[:3], columns.taps, channels)
        batch, row, column, tap, channel = products.strides
        diagonals = as_strided(
            products,
            (*target.shape[:3], columns.taps, channels),
            (batch, row, column, column * columns.dilation + tap, channel),
            writeable=False,
        )
        matrices = patches.reshape(-1, factors.shape[0]), products.reshape(-1, factors.shape[1])
        steps.append((patches, seen, *matrices, diagonals, sums, finish.bind(sums, target, (1, 1, 1, channels))))

    def lay_out() -> None:
        layer.lay_out()
        np.copyto(factors.reshape(by_column.shape), by_column)
        finish.refresh()

    def multiply() -> None:
        for patches, seen, matrix, products, diagonals, sums, finish_block in steps:
            np.copyto(patches, seen)
            np.matmul(matrix, factors, out=products)
            einsum("byxtc->byxc", diagonals, out=sums)
            finish_block()

    lay_out()
    prepare = [*([] if layer.constant else [lay_out]), *([] if fill is None else [fill])]
    return in_turn(*prepare, multiply)
