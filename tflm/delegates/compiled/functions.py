"""Functions for kernels. Real ones are in float64 for float32 results, and have no branches, so that loops can be
vectorized. Those of int16 interpolate in TFLM's small tables, for kernels without a table of all results."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tflm.compiler.intrinsics import float64_of_bits
from tflm.compiler.language import inlined
from tflm.delegates.compiled.casts import as_int32, as_int64, as_uint64
from tflm.delegates.compiled.fixed_point import LARGEST

MIN_EXPONENT, MAX_EXPONENT = -150.0, 130.0
"""Powers of two beyond which a float32 is zero or infinity."""

LOG2_E, LN_2 = 1 / math.log(2), math.log(2)
FRACTION_BITS, BIAS = 52, 1023
"""Fraction bits and exponent bias of float64."""

SMALL = 1 / 32
"""Below this, tanh uses its series, because exp(x) - 1 would lose too many digits."""


@inlined
def exponential(x: Any) -> Any:
    """Return exp(x), with a relative error of 1e-11; 0 and infinity as in float32. NaN stays NaN."""
    power = x * LOG2_E
    power = MIN_EXPONENT if power < MIN_EXPONENT else power
    power = MAX_EXPONENT if power > MAX_EXPONENT else power
    whole = np.floor(power + 0.5)
    r = (power - whole) * LN_2
    tail = 1 / 120 + r * (1 / 720 + r * (1 / 5040 + r * (1 / 40320 + r * (1 / 362880))))
    fraction = 1 + r * (1 + r * (1 / 2 + r * (1 / 6 + r * (1 / 24 + r * tail))))
    bits = as_uint64(as_int64(whole) + BIAS) << as_uint64(FRACTION_BITS)
    return fraction * float64_of_bits(as_int64(bits))


@inlined
def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))"""
    return 1 / (1 + exponential(-x))


@inlined
def hyperbolic_tangent(x: Any) -> Any:
    """tanh(x)"""
    magnitude = abs(x)
    e = exponential(-2 * magnitude)
    quotient = (1 - e) / (1 + e)
    square = x * x
    series = magnitude * (1 + square * (-1 / 3 + square * (2 / 15 - square * (17 / 315))))
    return np.copysign(series if magnitude < SMALL else quotient, x)


@inlined
def exponential_minus_one(x: Any) -> Any:
    """exp(x) - 1"""
    series = x * (1 + x * (1 / 2 + x * (1 / 6 + x * (1 / 24 + x * (1 / 120)))))
    return series if abs(x) < SMALL else exponential(x) - 1


LAST_ENTRY = 255


@inlined
def interpolated(steps: int, table: Any, bits: int, end: int) -> int:
    """Return `SIGMOID_TABLE` at `steps` / 2^bits, in Q0.(16 + bits), and `end` from its last entry on."""
    place = steps >> bits
    if place >= LAST_ENTRY:
        return end
    low, fraction = as_int32(table[place]), steps & ((1 << bits) - 1)
    between: int = (low << bits) + fraction * (table[place + 1] - low)
    return between


@inlined
def sigmoid_of_steps(steps: int, table: Any) -> int:
    """Return the sigmoid in Q0.15 of a number in steps of 1 / 12288."""
    q25 = interpolated(abs(max(steps, -LARGEST)), table, 9, 0x7FFF << 10)
    value = (q25 + (1 << 9)) >> 10
    return (1 << 15) - value if steps < 0 else value


@inlined
def tanh_of_steps(steps: int, table: Any) -> int:
    """Return tanh in Q0.15 of a number in steps of 1 / 12288: 2 sigmoid(2x) - 1."""
    q24 = interpolated(abs(max(steps, -LARGEST)), table, 8, 0xFFFF << 8)
    value = (q24 - (1 << 23) + (1 << 7)) >> 8
    return -value if steps < 0 else value


@inlined
def look_up_between(value: int, table: Any) -> int:
    """Return the value of a table of 513 entries for an int16, interpolated between two entries."""
    place = 256 + (value >> 7)
    low = as_int32(table[place])
    between: int = low + (((table[place + 1] - low) * (value & 0x7F) + 64) >> 7)
    return between


@inlined
def share(part: int, inverse: int, shift: int) -> int:
    """A part of a sum, times what the sum's inverse is, both in Q0.15, divided by 2^shift and rounded."""
    return min((part * inverse + (1 << (shift - 1))) >> shift, 32767)
