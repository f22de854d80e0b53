"""Constants of a short requantization, found by search and proved at every step of the output.

The output grows with the sum, and has at most 256 values. A shorter function that grows as well gives the same outputs
if it steps at the same sums.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]

LARGEST = (1 << 31) - 1
WORD = 32
"""Bits below the high half of a product."""

FRACTION = 8
"""Bits that a sum is shifted to the left by, where negative ones have a correction of less than one."""

NEARBY = (0, -1, 1, -2, 2, -3, 3, -4, 4, -5, 5)
"""Significands that are tried, from the nearest one."""

NEAR = 60
"""The largest offset that is tried for sums with a correction."""

FAR = 1 << 62


class Constants(NamedTuple):
    """Of a channel: what is added to its sums, and what the table of `requantization` has behind the bias."""

    offset: int
    significand: int
    addend: int
    below: int

    def outputs(self, sums: Integers, shift: int, fraction: int) -> Integers:
        """The outputs of sums, before the clamp."""
        scaled = (sums + self.offset) << fraction
        scaled = scaled + np.where(scaled < 0, self.below, 0)
        high: Integers = ((scaled * self.significand) >> WORD) + self.addend
        return high >> shift


class Points(NamedTuple):
    """Sums at which an output must be at least a value, and, from `lower` on, those at which it must be less."""

    sums: Integers
    values: Integers
    lower: int

    def bounds(self, significand: int, shift: int, fraction: int = 0) -> tuple[int, int]:
        """What a sum of 0 must become in units of 2^-32, before the shift: from the first to below the second."""
        needed = (self.values << (shift + WORD)) - (self.sums << fraction) * significand
        return int(needed[: self.lower].max(initial=-FAR)), int(needed[self.lower :].min(initial=FAR))

    def where(self, chosen: npt.NDArray[np.bool_]) -> Points:
        """Some of the points."""
        return Points(self.sums[chosen], self.values[chosen], int(np.count_nonzero(chosen[: self.lower])))

    def hold(self, outputs: Integers) -> bool:
        """Whether these are the outputs of the sums."""
        return bool((outputs >= self.values)[: self.lower].all() and (outputs < self.values)[self.lower :].all())


class Channel(NamedTuple):
    """How a channel's sums become outputs.

    Attributes:
        significand, exponent: of its multiplier, in Q0.31.
        zero_point, least, most: of the output.
        low, high: the range of sums, both ends included.
    """

    significand: int
    exponent: int
    zero_point: int
    least: int
    most: int
    low: int
    high: int

    @functools.lru_cache(1 << 12)  # noqa: B019  # of a few hundred bytes each
    def points(self) -> Points | None:
        """The sums before and behind each step of the output; None where 32 bits do not hold the sums."""
        right, left = max(-self.exponent, 0), max(self.exponent, 0)
        if right > 31 or left > 30 or self._largest(0) << left > LARGEST:
            return None
        outputs = np.arange(self.least + 1, self.most + 1, dtype=np.int64)
        # Halves of numbers below zero are rounded down.
        is_below = (outputs <= self.zero_point) & (right > 0)
        products = ((outputs - self.zero_point) << right) - (1 << right >> 1) + is_below
        products = np.clip(products, -1 << 31, 1 << 31)  # sums do not grow
        first = -(((1 << 30) - (products << 31)) // (max(self.significand, 1) << left))
        inner = (first > self.low) & (first <= self.high)
        low, high = (self.least + int(np.count_nonzero(first <= edge)) for edge in (self.low, self.high))
        sums, values = first[inner].tolist(), outputs[inner].tolist()
        begin, end = [(self.low, low)] * (low > self.least), [(self.high, high + 1)] * (high < self.most)
        points = [*begin, *zip(sums, values), *((each - 1, value) for each, value in zip(sums, values)), *end]
        table = np.array(points, np.int64).reshape(-1, 2)
        return Points(table[:, 0], table[:, 1], len(begin) + len(sums))

    def _largest(self, offset: int) -> int:
        """The largest absolute value of a sum with an offset, of which less than that can be added."""
        return max(-self.low, self.high) + abs(offset)

    def significands(self, shift: int) -> Iterator[int]:
        """Those for a shift to the right after the multiplication; none where 31 bits do not hold them."""
        exact = self.significand * 2.0 ** (self.exponent + 1 + shift)
        if exact < LARGEST - len(NEARBY):
            yield from (max(round(exact) + nearby, 0) for nearby in NEARBY)

    def fitted(self, shift: int) -> Constants | None:
        """Constants such that ((sum + offset) * significand / 2^32 + addend) / 2^shift, rounded down, is the output."""
        points = self.points()
        for significand in self.significands(shift) if points else ():
            assert points is not None
            low, end = points.bounds(significand, shift)
            offset = first_multiple(significand, 1 << WORD, low, end - 1) if low < end else None
            if offset is not None:
                made = Constants(offset, significand, -((offset * significand - low) >> WORD), 0)
                if self._holds(made, points, shift, 0):
                    return made
        return None

    def fitted_away(self, shift: int) -> Constants | None:
        """The same with (sum + offset) * 2^8, plus `below` where that is negative, in place of sum + offset."""
        points = self.points()
        if (
            points is None
            or self._largest(NEAR) >= 1 << (31 - FRACTION)
            or not self.least <= self.zero_point <= self.most
        ):
            return None
        is_below = points.sums < 0
        lower, upper = points.where(is_below), points.where(~is_below)
        # The offset decides which sums are negative.
        first = max(-int(upper.sums.min(initial=NEAR)), -NEAR)
        last = min(-int(lower.sums.max(initial=-NEAR)) - 1, NEAR)
        for significand in self.significands(shift - FRACTION):
            low, end = upper.bounds(significand, shift, FRACTION)
            low_below, end_below = lower.bounds(significand, shift, FRACTION)
            for offset in range(first, last + 1):
                start = (offset << FRACTION) * significand
                addend = -((start - (low_below if low == -FAR else low)) >> WORD)
                total = start + (addend << WORD)
                if total < end:
                    is_exact = low_below <= total < end_below
                    below = 0 if is_exact else -((total - low_below) // max(significand, 1))
                    made = Constants(offset, significand, addend, below)
                    zero = Points(np.array([-offset, -offset - 1] * 2, np.int64), self.zero_point + ZERO, 2)
                    zero = zero.where((zero.sums >= self.low) & (zero.sums <= self.high))
                    is_right = zero.hold(made.outputs(zero.sums, shift, FRACTION))
                    if is_right and self._holds(made, points, shift, FRACTION):
                        return made
        return None

    def _holds(self, made: Constants, points: Points, shift: int, fraction: int) -> bool:
        """Whether outputs step where they must, and 32 bits hold all that is computed."""
        largest = (self._largest(made.offset) << fraction) + abs(made.below)
        fits = largest <= LARGEST and (largest * made.significand >> WORD) + abs(made.addend) + 1 <= LARGEST
        return fits and points.hold(made.outputs(points.sums, shift, fraction))


ZERO = np.array([0, 0, 1, 1], np.int64)
"""Outputs that the sums nearest to the offset have at least, and less than that, without the zero point."""


def first_multiple(factor: int, modulus: int, low: int, high: int) -> int | None:
    """The least multiple of a factor, divided by it, that is in a range modulo a number; None if there is none."""
    if high - low >= modulus - 1:
        return 0
    low, high = low % modulus, high % modulus
    if low == 0 or low > high:
        return 0
    factor %= modulus
    if factor == 0:
        return None
    if 2 * factor > modulus:
        return first_multiple(modulus - factor, modulus, -high, -low)
    count = -(-low // factor)
    if count * factor <= high:
        return count
    turns = first_multiple(modulus % factor, factor, -high, -low)
    return None if turns is None else -(-(low + modulus * turns) // factor)
