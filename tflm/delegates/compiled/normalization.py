"""SOFTMAX, LOG_SOFTMAX and L2_NORMALIZATION along rows.

Exponentials of integers, and functions of a single distance from the largest element of a row, come from tables, filled
with the numpy kernel's functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np

from tflm.compiler.intrinsics import leading_zeros
from tflm.compiler.language import (
    DONE,
    Elements,
    Float32s,
    Int8s,
    Int16s,
    Int32s,
    Step,
    Wide,
    inlined,
    kernel,
    unrolled,
)
from tflm.compiler.processor import Profile
from tflm.delegates.compiled.casts import as_float32, as_float64, as_int32, as_int64
from tflm.delegates.compiled.fixed_point import (
    LARGEST,
    Multiplier,
    clamped,
    high_product,
    multiplier_of,
    one_over_one_plus,
    rounding_divided,
    scaled,
    wrapped,
)
from tflm.delegates.compiled.functions import exponential, look_up_between, share
from tflm.kernels.arithmetic.fixed_point import (
    FOURTH_ROOT,
    INT32_MAX,
    LOG_2,
    LOG_WEIGHTS,
    ROOT,
    QuantizedMultiplier,
    rounding_divide_by_pot,
)
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.reference.normalization import (
    ACCUMULATION_INTEGER_BITS,
    LOG_OUTPUT_INTEGER_BITS,
    OUTPUT_BITS,
    SCALED_DIFF_INTEGER_BITS,
    SMALLEST_NORM,
    UINT32_MASK,
    exps_int8,
    rows_of,
    scaled_distances,
)


@inlined
def largest_of(x: Any, first: int, depth: int) -> Any:
    """Return the largest element of a row."""
    largest = x[first]
    for i in range(first + 1, first + depth):
        largest = x[i] if x[i] > largest else largest
    return largest


@inlined
def exp_between(distance: int, table: Any, multiplier: Multiplier) -> int:
    """Return the exponential of a negative distance, in Q0.15, interpolated in a table of 513 entries."""
    steps = as_int32(scaled(-distance, multiplier))
    return look_up_between(clamped(steps, -65535, 0) + 32767, table)


@inlined
def inverse_between(fraction: int, table: Any) -> int:
    """Return 1 / (1 + f) in Q0.15, interpolated in the same way."""
    return look_up_between(min(fraction - 32768, 32767), table)


@kernel
def softmax_int8(
    x: Int8s, y: Elements, exps: Int32s, addends: Int32s, rows: int, depth: int, largest_sum: Wide, bits: int
) -> int:
    """Compute SOFTMAX of int8 as int8 or int16.

    Sums are unsigned 32-bit integers, limited to `largest_sum`, above which all results are 0.
    """
    for first in range(0, rows * depth, depth):
        largest = largest_of(x, first, depth)
        total = as_int64(0)
        for i in range(first, first + depth):
            total += addends[largest - x[i]]
        total = min(total & UINT32_MASK, largest_sum)
        headroom = leading_zeros(total) - 32
        scale = one_over_one_plus((total << headroom) - (1 << 31))
        shift = 62 + ACCUMULATION_INTEGER_BITS - headroom - bits
        rounding = (1 << 30) + (as_int64(1) << (shift - 1))
        for i in range(first, first + depth):
            share = (exps[largest - x[i]] * scale + rounding) >> shift
            y[i] = min(share, (1 << bits) - 1) - (1 << (bits - 1))
    return DONE


@kernel
def softmax_int16(
    x: Int16s, y: Int16s, exps: Int16s, inverses: Int16s, rows: int, depth: int, multiplier: Multiplier
) -> int:
    """Exps are Q0.15, their sum is Q16.15: 2^n (1 + f), where another function inverts f in steps of 2^-16."""
    for first in range(0, rows * depth, depth):
        largest = largest_of(x, first, depth)
        total = as_int64(0)
        for i in range(first, first + depth):
            y[i] = exp_between(as_int32(largest - x[i]), exps, multiplier)
            total += y[i]
        total = min(total, INT32_MAX)
        headroom = leading_zeros(total) - 33
        scale = as_int32(inverse_between(as_int32((((total << headroom) + (1 << 13)) >> 14) - (1 << 16)), inverses))
        shift = 30 - headroom
        for i in range(first, first + depth):
            y[i] = share(y[i], scale, shift)
    return DONE


REAL_EXPS: dict[str, Callable[..., Any]] = {
    "series": lambda x: as_float32(exponential(as_float64(x))),
    "library": lambda x: np.exp(x),
}
RealExp = Annotated[Callable[..., Any], REAL_EXPS]
"""Exponentials of float32; see `recurrent`."""


@inlined
def exps_by_series(x: Any, y: Any, first: int, end: int, largest: Any, factor: Any) -> Any:
    """Set a row of y to the exponentials, which are computed in vectors, and return their sum."""
    for i in range(first, end):
        y[i] = as_float32(exponential(as_float64((x[i] - largest) * factor)))
    total = as_float32(0)
    for i in range(first, end):
        total += y[i]
    return total


@inlined
def exps_of_library(x: Any, y: Any, first: int, end: int, largest: Any, factor: Any) -> Any:
    """As `exps_by_series`, one by one."""
    total = as_float32(0)
    for i in range(first, end):
        power = np.exp((x[i] - largest) * factor)
        y[i] = power
        total += power
    return total


Exps = Annotated[Callable[..., Any], {"series": exps_by_series, "library": exps_of_library}]


@kernel
def softmax_float32(exps: Exps, x: Float32s, y: Float32s, beta: Float32s, rows: int, depth: int) -> int:
    """Compute SOFTMAX of floats."""
    factor = beta[0]
    for first in range(0, rows * depth, depth):
        total = exps(x, y, first, first + depth, largest_of(x, first, depth), factor)
        for i in range(first, first + depth):
            y[i] = y[i] / total
    return DONE


LARGEST_SUMS = {8: (1 << 29) - 1, 16: UINT32_MASK}
"""Largest sum by bits of the output."""


def _bind_softmax(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    x, y = rows_of(node)
    arrays: dict[str, Any] = {"x": x, "y": y, "rows": x.shape[0], "depth": x.shape[1]}
    op = node.op_data
    if x.dtype == np.float32:
        computed = "series" if profile.has_tiles else "library"
        return [softmax_float32.step(exps=computed, **arrays, beta=np.array([op], np.float32))]
    if x.dtype == np.int16:
        multiplier = multiplier_of(QuantizedMultiplier(op.significand, op.shift))
        tables = {"exps": op.exp_lut, "inverses": op.one_over_one_plus_x_lut}
        return [softmax_int16.step(**arrays, **tables, multiplier=multiplier)]
    exps = exps_int8(np.arange(256, dtype=np.int64), op).astype(np.int32)
    addends = rounding_divide_by_pot(exps, ACCUMULATION_INTEGER_BITS).astype(np.int32)
    bits = 8 * y.itemsize
    return [softmax_int8.step(**arrays, exps=exps, addends=addends, largest_sum=LARGEST_SUMS[bits], bits=bits)]


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


def _bind_log_softmax(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
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


FRACTION_BITS = 28
"""Fraction bits of the numbers in Newton's method."""

ONE, THREE_HALVES = 1 << FRACTION_BITS, 3 << (FRACTION_BITS - 1)

ROOT_OF_HALF = round(math.sqrt(2) / 2 * 2**31)

SMALLEST = float(SMALLEST_NORM)


@inlined
def inverse_square_root(value: int) -> tuple[int, int]:
    """Return 1 / sqrt(value) for a 32-bit value, as significand (Q0.31) and left shift; see the function of the same
    name in `tflm.kernels.arithmetic.fixed_point`."""
    shift = 11
    if value >= 1 << 29:
        value >>= 2
        shift += 1
    pairs = (leading_zeros(value) - 33) // 2 - 1
    value = as_int32(value << 2 * pairs)
    shift -= pairs
    half = ((value >> 1) + 1) >> 1
    x = as_int64(ONE)
    for _ in range(5):
        cube = min(high_product(high_product(x, x), x) << 6, LARGEST)
        x = min((high_product(THREE_HALVES, x) - high_product(half, cube)) << 3, LARGEST)
    left = max(-shift, 0)
    return high_product(x, ROOT_OF_HALF) << left, -shift - left


@kernel
def normalize_int8(x: Int8s, y: Int8s, rows: int, depth: int, zero_point: int) -> int:
    """Normalize rows of int8, in Q0.7."""
    for first in range(0, rows * depth, depth):
        total = as_int64(0)
        for i in range(first, first + depth):
            total += (x[i] - zero_point) * (x[i] - zero_point)
        square = wrapped(total)
        significand, shift = inverse_square_root(max(square, 2))
        if square < 2:
            significand, shift = as_int64(LARGEST), 0
        left, right = max(shift + OUTPUT_BITS, 0), max(-shift - OUTPUT_BITS, 0)
        for i in range(first, first + depth):
            y[i] = clamped(scaled(x[i] - zero_point, Multiplier(significand, left, right)), -128, 127)
    return DONE


@kernel
def normalize_float32(x: Float32s, y: Float32s, rows: int, depth: int) -> int:
    """Normalize rows of floats."""
    for first in range(0, rows * depth, depth):
        total = as_float32(0)
        fours_end = first + (depth & ~3)
        for i in range(first, fours_end, 4):
            for k in unrolled(4):
                total += x[i + k] * x[i + k]
        for i in range(fours_end, first + depth):
            total += x[i] * x[i]
        norm = np.sqrt(total)
        smallest = as_float32(SMALLEST)
        norm = smallest if norm < smallest else norm
        for i in range(first, first + depth):
            y[i] = x[i] / norm
    return DONE


def _bind_l2(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    x, y = node.eval_input(0).elements, node.eval_output(0).elements
    depth = x.shape[-1]
    arrays: dict[str, Any] = {"x": x, "y": y, "rows": x.size // depth if depth else 0, "depth": depth}
    if x.dtype == np.float32:
        return [normalize_float32.step(**arrays)]
    return [normalize_int8.step(**arrays, zero_point=node.op_data)]


BINDINGS = {"L2_NORMALIZATION": _bind_l2, "LOG_SOFTMAX": _bind_log_softmax, "SOFTMAX": _bind_softmax}
