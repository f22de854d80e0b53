"""Two sums in 64 bits, and the two numbers in 32 bits whose products are added to them.

Where one instruction multiplies 32 bits by 32 and adds to 64, it adds to both sums: the upper one stands above the
lower one, which is positive and has 24 bits. Other processors multiply the two numbers one by one, and each sum
has 32 bits.
"""

from __future__ import annotations

from typing import Any

from tflm.compiler.intrinsics import LONG_MULTIPLY
from tflm.compiler.language import inlined
from tflm.delegates.compiled.casts import as_int32, as_int64

NARROW_INTEGERS = True

WORD_UPPER = 24
"""Bits below the upper of two sums of products of weights, of two channels, with an element."""

LARGEST_WORD_SUM = 1 << WORD_UPPER - 1
"""Such a sum is below this, which is added to the lower one."""

OUTER_BYTES = -0xFFFF01
"""A mask of the lowest and the highest byte of a word."""


@inlined
def with_word(sums: int, word: int, element: int) -> Any:
    """Two sums with the products of the lowest byte of a word, which has no sign, and the highest one."""
    if LONG_MULTIPLY:
        return sums + as_int64(word & OUTER_BYTES) * element
    return _both(as_int32(sums) + (word & 0xFF) * element, as_int32(sums >> 32) + (word >> 24) * element)


@inlined
def turned(word: int) -> Any:
    """A word with its halves exchanged."""
    return as_int32((as_int64(word) << 16) | ((word >> 16) & 0xFFFF))


@inlined
def lower_sum(sums: int, bits: int) -> Any:
    """The lower of two sums, of so many bits."""
    if LONG_MULTIPLY:
        return as_int32(sums & ((1 << bits) - 1))
    return as_int32(sums)


@inlined
def upper_sum(sums: int, bits: int) -> Any:
    """The upper of two sums, above so many bits."""
    if LONG_MULTIPLY:
        return as_int32(sums >> bits)
    return as_int32(sums >> 32)


@inlined
def _both(lower: int, upper: int) -> Any:
    return (as_int64(upper) << 32) | (as_int64(lower) & 0xFFFFFFFF)
