"""L2_NORMALIZATION along rows: divides elements by the root of the sum of their squares."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tflm.compiler.intrinsics import leading_zeros
from tflm.compiler.language import DONE, Float32s, Int8s, Step, inlined, kernel
from tflm.compiler.processor import Profile
from tflm.delegates.compiled.casts import as_float32, as_int32, as_int64
from tflm.delegates.compiled.fixed_point import LARGEST, Multiplier, clamped, high_product, scaled, wrapped
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.reference.normalization import OUTPUT_BITS, SMALLEST_NORM

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
        for i in range(first, first + depth):
            total += x[i] * x[i]
        norm = np.sqrt(total)
        smallest = as_float32(SMALLEST)
        norm = smallest if norm < smallest else norm
        for i in range(first, first + depth):
            y[i] = x[i] / norm
    return DONE


def _bind(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    x, y = node.eval_input(0).elements, node.eval_output(0).elements
    depth = x.shape[-1]
    arrays: dict[str, Any] = {"x": x, "y": y, "rows": x.size // depth if depth else 0, "depth": depth}
    if x.dtype == np.float32:
        return [normalize_float32.step(**arrays)]
    return [normalize_int8.step(**arrays, zero_point=node.op_data)]


BINDINGS = {"L2_NORMALIZATION": _bind}
