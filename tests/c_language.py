"""Kernels that use every statement, operator and type of the kernel language, for tests of the translation to C."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from tflm.compiler.intrinsics import move_bytes
from tflm.compiler.language import (
    DONE,
    REFUSED,
    Address,
    Bounds,
    Float32s,
    Int8s,
    Int32s,
    Int64s,
    Shift,
    Wide,
    by_value,
    inlined,
    kernel,
)
from tflm.delegates.compiled.casts import as_float32, as_int32, as_int64, as_uint64

Percent = Annotated[int, Bounds(0, 100)]


class Geometry(NamedTuple):
    """A record with fields of several types."""

    rows: int
    share: Percent
    offset: Wide
    weights: Int8s


@inlined
def divided(a: int, b: int) -> tuple[int, int]:
    """Two results of a function."""
    return a // b, a % b


@kernel
def divide(x: Int32s, y: Int32s, quotients: Int32s, remainders: Int32s, count: int) -> int:
    """Quotients are rounded down, remainders have the sign of the divisor."""
    for i in range(count):
        quotient, remainder = divided(x[i], y[i])
        quotients[i] = quotient
        remainders[i] = remainder
    return DONE


@kernel
def shift(x: Int32s, y: Int64s, amount: Shift, far: int, count: int) -> int:
    """Shifts of negative numbers, by constants and by variables, also beyond the bits that a number has."""
    for i in range(count):
        y[4 * i] = as_int64(x[i]) << 3
        y[4 * i + 1] = (x[i] >> 5) + (as_int64(x[i]) >> far)
        y[4 * i + 2] = as_int64(x[i]) << amount
        y[4 * i + 3] = (x[i] >> amount) + (as_int64(1) << amount)
    return DONE


@kernel
def reassign(x: Int32s, y: Int32s, z: Int32s, amount: int, count: int) -> int:
    """Assignments that compute from the old value."""
    for i in range(count):
        quotient = x[i]
        quotient //= y[i]
        remainder = as_int64(x[i])
        remainder %= y[i]
        bits = x[i]
        bits >>= amount
        bits |= y[i]
        bits &= -6
        bits ^= amount
        product = y[i]
        product *= amount
        product -= quotient
        z[4 * i], z[4 * i + 1], z[4 * i + 2], z[4 * i + 3] = quotient, remainder, bits, product
        z[4 * i] //= y[i]
    return DONE


@kernel
def decide(x: Int32s, y: Int32s, count: int) -> int:
    """Branches, chained comparisons, truth values as numbers, loops that end early."""
    negative, kept = 0, True
    for i in range(count):
        negative += x[i] < 0
        if -5 <= x[i] < 5 and not (kept and x[i] == 2):
            kind = 1
        elif x[i] > 1000 or x[i] < -1000:
            kind = 2
            if x[i] > 2000:
                continue
        else:
            kind = 3
        y[i] = kind if negative > 1 else -kind
    i = count
    while True:
        i -= 1
        if i < 0 or x[i] == 7:
            break
        y[i] += 10
    if negative == count:
        return REFUSED
    return DONE


@kernel
def count_down(x: Int32s, y: Int32s, first: int, last: int, step: int) -> int:
    """Loops backwards, and by other steps; their bounds do not change with what they are computed from."""
    place = 0
    for i in range(last - 1, first - 1, -2):
        y[place] = x[i]
        place += 1
    for i in range(first, last, step):
        y[place] = x[i] * i
        place += 1
    for _ in range(y[0] % 3):
        y[0] += 1
    return DONE


@inlined
def longer(x: Int32s, y: Int32s, by_y: int) -> Int32s:
    """One of two pointers."""
    if by_y:
        return y
    return x


@kernel
def swap(x: Int32s, y: Int32s, count: int) -> int:
    """Several assignments at once, of elements, numbers and pointers."""
    for i in range(0, count - 1, 2):
        x[i], x[i + 1] = x[i + 1], x[i]
    low, high = 0, count - 1
    while low < high:
        y[low], y[high] = y[high], x[low]
        low, high = low + 1, high - 1
    a, b = x, y
    a, b = b, a
    chosen = longer(a, b, count % 2)
    chosen[0] = -1
    return DONE


@kernel
def wrap(x: Int32s, y: Int32s, z: Int64s, factor: int, count: int) -> int:
    """Sums of 32 and of 64 bits wrap where casts say so; others have 64 bits if a term has."""
    total = as_int32(0)
    wide = 0
    for i in range(count):
        total = as_int32(as_int64(total) * 31 + x[i] * as_int64(factor) - (as_int64(x[i]) << 7))
        wide += as_int64(x[i] >> 2) * x[i] * 5 >> 9
        y[i] = total
        y[i] += as_int64(x[i])
        z[i] = as_int64(as_uint64(wide) * as_uint64(wide))
    return DONE


@kernel
def use_record(geometry: Geometry, x: Int8s, y: Int64s) -> int:
    """Fields of all types."""
    for row in range(geometry.rows):
        y[row] = geometry.offset + x[row] * geometry.weights[row] * geometry.share
    return DONE


@kernel
def move_in_bytes(target: Address, source: Address, count: int) -> int:
    """Addresses with offsets."""
    move_bytes(target + 2, source + 2 * count, 2 * count)
    return DONE


@kernel
def mix(x: Float32s, y: Float32s, factor: float, count: int) -> int:
    """Arithmetic of float32, of float64, and of both with integers."""
    total = as_float32(0.0)
    for i in range(count):
        total += x[i] * x[i]
        y[4 * i] = total
        y[4 * i + 1] = x[i] * factor + i
        y[4 * i + 2] = max(x[i], 0.25) - min(x[i] / 3, total)
        y[4 * i + 3] = abs(x[i]) if x[i] < 0.7 else -x[i]
    return DONE


@by_value
class Line(NamedTuple):
    """A record that functions hand on."""

    slope: int
    start: int


@inlined
def on_line(x: int, line: Line) -> int:
    """Use the fields."""
    return x * line.slope + line.start


@inlined
def twice_on_line(x: int, line: Line) -> int:
    """Hand the record on, and make another one of its fields."""
    below = line.start - 1
    lower = Line(line.slope, below)
    return on_line(x, line) + on_line(x, lower) + on_line(x, Line(x, line.slope + 1))


@kernel
def pass_by_value(x: Int32s, y: Int64s, slope: int, count: int) -> int:
    """Records that are passed by value, of constants and of variables."""
    first = x[0]
    line = Line(slope, first)
    for i in range(count):
        y[i] = twice_on_line(x[i], line) - on_line(i, Line(3, x[i]))
    return DONE


KERNELS = [divide, shift, decide, count_down, swap, wrap, use_record, pass_by_value, move_in_bytes, mix]


@kernel
def add_up_and_down(x: Int8s, y: Int32s, count: int) -> int:
    """Sums that only rise, only fall, or do both, divided as only numbers without a sign may be by shifts."""
    rises = 0
    falls = 0
    both = 0
    for i in range(count):
        small = x[i] & 15
        rises += small
        falls -= small
        both += x[i]
        both -= small
        y[4 * i] = rises // 4
        y[4 * i + 1] = falls // 4
        y[4 * i + 2] = both % 8
        y[4 * i + 3] = falls % 8
    return DONE
