"""Square roots of filter banks on small processors, without floats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tflm.c.kernels.part import Part
from tflm.compiler.intrinsics import leading_zeros
from tflm.compiler.language import DONE, Int32s, Step, UInt32s, UInt64s, inlined, kernel
from tflm.delegates.compiled.casts import as_int32, as_int64, as_uint64
from tflm.delegates.compiled.signal import LOW_32_BITS, clear_steps
from tflm.kernels.node import Node


@inlined
def small_root(value: Any) -> int:
    """Return the square root of an integer below 2^32, rounded; at most 2^16 - 1."""
    rest = as_int32(value >> as_uint64(2))
    root = 0
    bit = 1 << 28 >> (leading_zeros(as_int64(value) & LOW_32_BITS | 1) & 30)
    while bit > 0:
        if rest >= root + bit:
            rest -= root + bit
            root += 2 * bit
        root >>= 1
        bit >>= 2
    # So far, root and rest are those of a quarter of the value; they have at most 17 bits.
    rest = 4 * rest + as_int32(value & as_uint64(3))
    root *= 2
    if rest > 2 * root:
        rest -= 2 * root + 1
        root += 1
    return min(root + 1, 0xFFFF) if rest > root else root


@inlined
def large_root(value: int) -> Any:
    """Return the square root of a uint64 from 2^32 on, rounded; at most 2^32 - 1."""
    one = as_uint64(1)
    rest = value
    root = as_uint64(0)
    bit = as_uint64(1 << 62) >> as_uint64(leading_zeros(value) & 62)
    while bit > as_uint64(0):
        if rest >= root + bit:
            rest -= root + bit
            root += bit << one
        root = root >> one
        bit = bit >> as_uint64(2)
    return root + one if rest > root and root != as_uint64(0xFFFFFFFF) else root


@kernel
def square_root(x: UInt64s, scale_bits: Int32s, y: UInt32s, count: int) -> int:
    """Compute square roots, shifted right."""
    bits = scale_bits[0] & 31
    for i in range(count):
        if x[i] < as_uint64(1 << 32):
            y[i] = small_root(x[i]) >> bits
        else:
            y[i] = large_root(x[i]) >> as_uint64(bits)
    return DONE


def bind_square_root(node: Node, part: Part | None = None) -> Sequence[Step] | None:
    """Bind SignalFilterBankSquareRoot."""
    x, y = node.eval_input(0).elements.reshape(-1), node.eval_output(0).elements.reshape(-1)
    step = square_root.step(x=x, scale_bits=node.eval_input(1).elements, y=y, count=x.size)
    return [step, *clear_steps(y[x.size :])]
