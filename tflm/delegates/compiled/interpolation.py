"""Functions of int16 by interpolation in TFLM's small tables, for kernels without a table of all results."""

from __future__ import annotations

from typing import Any

from tflm.compiler.language import inlined
from tflm.delegates.compiled.casts import as_int32
from tflm.delegates.compiled.fixed_point import LARGEST

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
