"""Packed accumulation: two sums in 64 bits, and two numbers in 32 bits whose products are added to them.

If one instruction multiplies 32 bits by 32 and adds the product to 64 bits, it adds to both sums: the lower sum is
positive and has 24 bits, the upper one is above it. Other processors multiply the two numbers separately, and each sum
has 32 bits.
"""

from __future__ import annotations

from typing import Any

from tflm.compiler.intrinsics import LONG_MULTIPLY
from tflm.compiler.language import inlined
from tflm.delegates.compiled.casts import as_int32, as_int64

WORD_UPPER = 24
"""Number of bits below the upper of two sums of products of an element with the weights of two channels."""

LARGEST_WORD_SUM = 1 << WORD_UPPER - 1
"""Exclusive bound of such a sum. It is added to the lower one, to make it positive."""

OUTER_BYTES = -0xFFFF01
"""Mask of the lowest and the highest byte of a word."""


@inlined
def with_word(sums: int, word: int, element: int) -> Any:
    """Add the products of a word's lowest byte, which is unsigned, and highest byte with an element to two packed
    sums."""
    if LONG_MULTIPLY:
        return sums + as_int64(word & OUTER_BYTES) * element
    return _both(as_int32(sums) + (word & 0xFF) * element, as_int32(sums >> 32) + (word >> 24) * element)


@inlined
def turned(word: int) -> Any:
    """Return a word rotated by 16 bits."""
    return as_int32((as_int64(word) << 16) | ((word >> 16) & 0xFFFF))


@inlined
def lower_sum(sums: int, bits: int) -> Any:
    """Return the lower of two packed sums, of this many bits."""
    if LONG_MULTIPLY:
        return as_int32(sums & ((1 << bits) - 1))
    return as_int32(sums)


@inlined
def upper_sum(sums: int, bits: int) -> Any:
    """Return the upper of two packed sums, above this many bits."""
    if LONG_MULTIPLY:
        return as_int32(sums >> bits)
    return as_int32(sums >> 32)


@inlined
def _both(lower: int, upper: int) -> Any:
    return (as_int64(upper) << 32) | (as_int64(lower) & 0xFFFFFFFF)
