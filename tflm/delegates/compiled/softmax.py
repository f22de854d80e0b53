"""SOFTMAX along rows. Exponentials of integers come from tables, filled with the numpy kernel's functions."""

from __future__ import annotations

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
)
from tflm.compiler.processor import Profile
from tflm.delegates.compiled.casts import as_float32, as_float64, as_int32, as_int64
from tflm.delegates.compiled.fixed_point import Multiplier, clamped, multiplier_of, one_over_one_plus, scaled
from tflm.delegates.compiled.functions import exponential
from tflm.delegates.compiled.interpolation import look_up_between, share
from tflm.kernels.arithmetic.fixed_point import INT32_MAX, QuantizedMultiplier, rounding_divide_by_pot
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.reference.normalization import (
    ACCUMULATION_INTEGER_BITS,
    UINT32_MASK,
    exps_int8,
    rows_of,
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


@kernel
def softmax_float32(real_exp: RealExp, x: Float32s, y: Float32s, beta: Float32s, rows: int, depth: int) -> int:
    """Compute SOFTMAX of floats."""
    factor = beta[0]
    for first in range(0, rows * depth, depth):
        largest = largest_of(x, first, depth)
        for i in range(first, first + depth):
            y[i] = real_exp((x[i] - largest) * factor)
        total = as_float32(0)
        for i in range(first, first + depth):
            total += y[i]
        for i in range(first, first + depth):
            y[i] = y[i] / total
    return DONE


LARGEST_SUMS = {8: (1 << 29) - 1, 16: UINT32_MASK}
"""Largest sum by bits of the output."""


def _bind(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    x, y = rows_of(node)
    arrays: dict[str, Any] = {"x": x, "y": y, "rows": x.shape[0], "depth": x.shape[1]}
    op = node.op_data
    if x.dtype == np.float32:
        real_exp = "series" if profile.has_tiles else "library"
        return [softmax_float32.step(real_exp=real_exp, **arrays, beta=np.array([op], np.float32))]
    if x.dtype == np.int16:
        multiplier = multiplier_of(QuantizedMultiplier(op.significand, op.shift))
        tables = {"exps": op.exp_lut, "inverses": op.one_over_one_plus_x_lut}
        return [softmax_int16.step(**arrays, **tables, multiplier=multiplier)]
    exps = exps_int8(np.arange(256, dtype=np.int64), op).astype(np.int32)
    addends = rounding_divide_by_pot(exps, ACCUMULATION_INTEGER_BITS).astype(np.int32)
    bits = 8 * y.itemsize
    return [softmax_int8.step(**arrays, exps=exps, addends=addends, largest_sum=LARGEST_SUMS[bits], bits=bits)]


BINDINGS = {"SOFTMAX": _bind}
