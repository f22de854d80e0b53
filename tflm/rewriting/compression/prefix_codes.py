"""Huffman codes, and the tables with which TFLM's DECODE looks them up."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

MAX_INDEX_BITS = 15
"""An entry has 4 bits for the number of index bits that belong to its code."""

WORD_BITS = 32
"""The decoder reads words of this size."""


class PrefixCode(NamedTuple):
    """A canonical Huffman code; arrays have one element per symbol, in the order of the codes.

    Attributes:
        symbols: indices into the counts that the code was made for, by increasing length of the code.
        lengths: bits of each code; 0 if there is only one symbol.
        codes: the codes, in their lowest bits.
    """

    symbols: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    codes: npt.NDArray[np.int64]


def huffman_code(counts: Sequence[int]) -> PrefixCode:
    """Return the code with the fewest bits for symbols that occur `counts` times, each at least once."""
    lengths = np.array(_code_lengths(counts), np.int64)
    symbols = np.argsort(lengths, kind="stable")
    lengths = lengths[symbols]
    codes = np.zeros(len(symbols), np.int64)
    for i in range(1, len(symbols)):
        codes[i] = (codes[i - 1] + 1) << (lengths[i] - lengths[i - 1])
    return PrefixCode(symbols, lengths, codes)


def _code_lengths(counts: Sequence[int]) -> list[int]:
    """The depth of each symbol in the Huffman tree."""
    parents = [0] * (2 * len(counts) - 1)
    heap = [(count, i) for i, count in enumerate(counts)]
    heapq.heapify(heap)
    for node in range(len(counts), len(parents)):
        (one, i), (other, j) = heapq.heappop(heap), heapq.heappop(heap)
        parents[i] = parents[j] = node
        heapq.heappush(heap, (one + other, node))
    depths = [0] * len(parents)
    for node in reversed(range(len(parents) - 1)):
        depths[node] = depths[parents[node]] + 1
    return depths[: len(counts)]


class LookUpTables(NamedTuple):
    """The tables of a code, one after the other.

    Attributes:
        entries: see `tflm.kernels.reference.decode`.
        first_bits: index bits of the first table.
    """

    entries: list[int]
    first_bits: int


def look_up_tables(code: PrefixCode, values: Sequence[int], entry_bits: int) -> LookUpTables:
    """Return the tables that map each code to the value of its symbol.

    Each table's index has as many bits as the shortest code that is left. So no entry is repeated, which makes the
    tables as small as possible, and no bits are read that belong to the next code.

    Args:
        code: the code.
        values: the value of each symbol, in the order of the codes; not negative.
        entry_bits: size of an entry, 16 or 32.
    """
    entries: list[int] = []
    flag, shift = 1 << (entry_bits - 1), entry_bits - 5

    def add(first: int, end: int, used: int) -> tuple[int, int]:
        """Add the table for the codes [first, end), which share their first `used` bits; returns start and bits."""
        bits = min(max(int(code.lengths[first]) - used, 1), MAX_INDEX_BITS)
        start, size = len(entries), 1 << bits
        entries.extend([0] * size)
        low = first
        for index in range(size):
            length = int(code.lengths[low]) - used if low < end else 0
            if length <= bits:
                symbol = min(low, end - 1)
                entries[start + index] = flag | max(length, 0) << shift | values[symbol]
                low += 1
                continue
            high = low
            while high < end and int(code.codes[high]) >> (int(code.lengths[high]) - used - bits) & (size - 1) == index:
                high += 1
            table, below = add(low, high, used + bits)
            entries[start + index] = (below - 1) << shift | table - (start + index)
            low = high
        return start, bits

    _, first_bits = add(0, len(code.symbols), 0)
    return LookUpTables(entries, first_bits)


def packed_codes(code: PrefixCode, symbols: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """Return the codes of symbols, from the highest bit of each byte, with zeros up to the next word.

    There is at least one word, which the decoder reads in any case.
    """
    places = np.empty(len(code.symbols), np.int64)
    places[code.symbols] = np.arange(len(places), dtype=np.int64)
    lengths, codes = code.lengths[places[symbols]], code.codes[places[symbols]]
    ends = np.cumsum(lengths, dtype=np.int64)
    total = int(ends[-1])
    bits = np.zeros(max(-(-total // WORD_BITS), 1) * WORD_BITS, np.uint8)
    for bit in range(int(lengths.max())):
        has_bit = lengths > bit
        bits[ends[has_bit] - 1 - bit] = codes[has_bit] >> bit & 1
    return np.packbits(bits)
