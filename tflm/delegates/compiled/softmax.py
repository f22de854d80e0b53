"""SOFTMAX: along rows, what each element's exp is of their sum. Integers go by the numpy kernel's tables of exp."""

from __future__ import annotations

from typing import Any

import numpy as np

from tflm.delegates.compiled.casts import as_float32, as_float64
from tflm.delegates.compiled.fixed_point import one_over_one_plus
from tflm.delegates.compiled.functions import exponential
from tflm.delegates.compiled.intrinsics import leading_zeros
from tflm.delegates.compiled.language import (
    DONE,
    Float32s,
    Int8s,
    Int16s,
    Int32s,
    Int64s,
    Kernel,
    Step,
    inlined,
    kernel,
)
from tflm.kernels.arithmetic.fixed_point import INT32_MAX
from tflm.kernels.reference.softmax import ACCUMULATION_INTEGER_BITS, LARGEST_SUMS, SUM_MASK, Int16OpData, rows_of
from tflm.kernels.registration import KernelContext, Node


@inlined
def largest_of(x: Any, first: int, depth: int) -> Any:
    """The largest element of a row."""
    largest = x[first]
    for i in range(first + 1, first + depth):
        largest = x[i] if x[i] > largest else largest
    return largest


@inlined
def of_int8(
    x: Any, y: Any, exps: Any, addends: Any, rows: int, depth: int, largest_sum: int, bits: int, offset: int
) -> int:
    """Exps are Q0.31, addends of the sum Q12.19; the result has so many bits, and its smallest is -offset."""
    for first in range(0, rows * depth, depth):
        largest = largest_of(x, first, depth)
        total = 0
        for i in range(first, first + depth):
            total += addends[largest - x[i]]
        total = min(total & SUM_MASK, largest_sum)
        headroom = leading_zeros(total) - 32
        scale = one_over_one_plus((total << headroom) - (1 << 31))
        shift = 62 + ACCUMULATION_INTEGER_BITS - headroom - bits
        rounding = (1 << 30) + (1 << (shift - 1))
        for i in range(first, first + depth):
            share = (exps[largest - x[i]] * scale + rounding) >> shift
            y[i] = min(share, (1 << bits) - 1) - offset
    return DONE


@kernel
def softmax_int8(x: Int8s, y: Int8s, exps: Int64s, addends: Int64s, rows: int, depth: int, largest_sum: int) -> int:
    """From int8 to int8."""
    return of_int8(x, y, exps, addends, rows, depth, largest_sum, 8, 128)


@kernel
def softmax_int8_to_int16(
    x: Int8s, y: Int16s, exps: Int64s, addends: Int64s, rows: int, depth: int, largest_sum: int
) -> int:
    """From int8 to int16."""
    return of_int8(x, y, exps, addends, rows, depth, largest_sum, 16, 32768)


@kernel
def softmax_int16(x: Int16s, y: Int16s, exps: Int32s, inverses: Int32s, rows: int, depth: int) -> int:
    """Exps are Q0.15, their sum is Q16.15: 2^n (1 + f), where a table inverts f in steps of 2^-16."""
    for first in range(0, rows * depth, depth):
        largest = largest_of(x, first, depth)
        total = 0
        for i in range(first, first + depth):
            total += exps[largest - x[i]]
        total = min(total, INT32_MAX)
        headroom = leading_zeros(total) - 33
        scale = inverses[(((total << headroom) + (1 << 13)) >> 14) - (1 << 16)]
        shift = 30 - headroom
        for i in range(first, first + depth):
            share = (exps[largest - x[i]] * scale + (1 << (shift - 1))) >> shift
            y[i] = min(share, 32767)
    return DONE


@kernel
def softmax_float32(x: Float32s, y: Float32s, beta: Float32s, rows: int, depth: int) -> int:
    """Of floats."""
    factor = beta[0]
    for first in range(0, rows * depth, depth):
        largest = largest_of(x, first, depth)
        for i in range(first, first + depth):
            y[i] = exponential(as_float64((x[i] - largest) * factor))
        total = 0.0
        for i in range(first, first + depth):
            total += y[i]
        divisor = as_float32(total)
        for i in range(first, first + depth):
            y[i] = y[i] / divisor
    return DONE


OF_INT8: dict[str, Kernel] = {"int8": softmax_int8, "int16": softmax_int8_to_int16}
"""By the type of the output."""


def _bind(context: KernelContext, node: Node) -> list[Step] | None:
    x, y = rows_of(context, node)
    arrays: dict[str, Any] = {"x": x, "y": y, "rows": x.shape[0], "depth": x.shape[1]}
    op = node.op_data
    if x.dtype == np.float32:
        return [softmax_float32.step(**arrays, beta=np.array([op], np.float32))]
    if isinstance(op, Int16OpData):
        exps, inverses = op.exps().astype(np.int32), op.inverses().astype(np.int32)
        return [softmax_int16.step(**arrays, exps=exps, inverses=inverses)]
    tables = {"exps": op.exps(), "addends": op.addends(), "largest_sum": LARGEST_SUMS[8 * y.itemsize]}
    return [OF_INT8[y.dtype.name].step(**arrays, **tables)]


BINDINGS = {"SOFTMAX": _bind}
