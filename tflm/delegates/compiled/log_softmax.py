"""LOG_SOFTMAX along rows. Functions of a single distance from the largest element of a row come from tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import numpy as np

from tflm.compiler.intrinsics import leading_zeros
from tflm.compiler.language import DONE, Float32s, Int8s, Int32s, Step, inlined, kernel
from tflm.compiler.processor import Profile
from tflm.delegates.compiled.casts import as_float32, as_float64, as_int32, as_int64
from tflm.delegates.compiled.fixed_point import (
    LARGEST,
    clamped,
    high_product,
    one_over_one_plus,
    rounding_divided,
)
from tflm.delegates.compiled.softmax import RealExp, largest_of
from tflm.kernels.arithmetic.fixed_point import (
    FOURTH_ROOT,
    LOG_2,
    LOG_WEIGHTS,
    ROOT,
    rounding_divide_by_pot,
)
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.reference.normalization import (
    ACCUMULATION_INTEGER_BITS,
    LOG_OUTPUT_INTEGER_BITS,
    SCALED_DIFF_INTEGER_BITS,
    exps_int8,
    rows_of,
    scaled_distances,
)

WEIGHT_N, WEIGHT_D, WEIGHT_I, WEIGHT_F = LOG_WEIGHTS

UNIT = 1 << (30 - SCALED_DIFF_INTEGER_BITS)
"""1 with one integer bit more than the result."""

OUTPUT_SHIFT = 31 - SCALED_DIFF_INTEGER_BITS - LOG_OUTPUT_INTEGER_BITS
"""Right shift from Q5.26 to the 8-bit output in Q4.4."""

ZERO_POINT = 127


@inlined
def log_of_sum(total: int) -> int:
    """Return log(x) in Q5.26 for x >= 1 in Q12.19; see `log_from_one`."""
    zeros = leading_zeros(total) - 32
    other_zeros = leading_zeros(high_product(total, ROOT)) - 33
    n = max(
        (ACCUMULATION_INTEGER_BITS - zeros) * UNIT + UNIT // 4,
        (ACCUMULATION_INTEGER_BITS - other_zeros) * UNIT - UNIT // 4,
    )
    r = min(high_product(as_int64(total) << (zeros - 1), ROOT) << 1, as_int64(total) << other_zeros, LARGEST)
    q = as_int64(as_int32(r) - FOURTH_ROOT) << 1
    square = high_product(q, q)
    numerator = high_product(q, r) + high_product(high_product(q, square), WEIGHT_N)
    average = (r + FOURTH_ROOT + 1) >> 1
    denominator_minus_one = high_product(average, WEIGHT_I + q + high_product(WEIGHT_D, square))
    denominator_minus_one += high_product(WEIGHT_F, q)
    fraction = rounding_divided(numerator, SCALED_DIFF_INTEGER_BITS + 1)
    logarithm = high_product(n, LOG_2) + high_product(fraction, one_over_one_plus(denominator_minus_one))
    return min(logarithm << 1, LARGEST)


@kernel
def log_softmax_int8(x: Int8s, y: Int8s, scaled: Int32s, addends: Int32s, rows: int, depth: int) -> int:
    """Compute LOG_SOFTMAX of int8, in Q4.4 with zero point 127.

    Args:
        scaled: by distance from the largest element: the negative distance in Q5.26.
        addends: its exponential, in Q12.19.
    """
    for first in range(0, rows * depth, depth):
        largest = largest_of(x, first, depth)
        total = as_int64(0)
        for i in range(first, first + depth):
            total += addends[largest - x[i]]
        logarithm = log_of_sum(min(total, LARGEST))
        for i in range(first, first + depth):
            value = rounding_divided(as_int64(scaled[largest - x[i]]) - logarithm, OUTPUT_SHIFT)
            y[i] = clamped(value + ZERO_POINT, -128, 127)
    return DONE


REAL_LOGS: dict[str, Callable[..., Any]] = {
    "series": lambda x: as_float32(np.log(as_float64(x))),
    "library": lambda x: np.log(x),
}
RealLog = Annotated[Callable[..., Any], REAL_LOGS]
"""Logarithms of float32; see `recurrent`."""


@kernel
def log_softmax_float32(real_exp: RealExp, real_log: RealLog, x: Float32s, y: Float32s, rows: int, depth: int) -> int:
    """Compute LOG_SOFTMAX of floats."""
    for first in range(0, rows * depth, depth):
        largest = largest_of(x, first, depth)
        total = as_float32(0)
        for i in range(first, first + depth):
            total += real_exp(x[i] - largest)
        logarithm = real_log(total)
        for i in range(first, first + depth):
            y[i] = x[i] - largest - logarithm
    return DONE


def _bind(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    if not node.eval_input(0).dims:
        return []  # TFLM finds no elements along the last dimension of a scalar
    x, y = rows_of(node)
    arrays: dict[str, Any] = {"x": x, "y": y, "rows": x.shape[0], "depth": x.shape[1]}
    if x.dtype == np.float32:
        by = "series" if profile.has_tiles else "library"
        return [log_softmax_float32.step(real_exp=by, real_log=by, **arrays)]
    distances, op = np.arange(256, dtype=np.int64), node.op_data
    addends = rounding_divide_by_pot(exps_int8(distances, op), ACCUMULATION_INTEGER_BITS)
    tables = {"scaled": scaled_distances(distances, op), "addends": addends}
    return [log_softmax_int8.step(**arrays, **{name: table.astype(np.int32) for name, table in tables.items()})]


BINDINGS = {"LOG_SOFTMAX": _bind}
