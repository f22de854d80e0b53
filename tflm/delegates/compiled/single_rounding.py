"""Search for constants of a fast requantization, and prove them at every step of the output.

The output is a monotone function of the sum with at most 256 values. Another monotone function is equal to it if its
values change at the same sums.
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
"""Number of bits below the high half of a product."""

FRACTION = 8
"""Left shift of sums, so that a fraction can be added to negative ones as a correction."""

NEARBY = (0, -1, 1, -2, 2, -3, 3, -4, 4, -5, 5)
"""Offsets from the rounded significand to try, the smallest first."""

NEAR = 60
"""Largest offset to try for sums with a correction."""

FAR = 1 << 62


class Constants(NamedTuple):
    """Constants of a channel: an offset of its sums, and its entries in the table of `requantization` after the
    bias."""

    offset: int
    significand: int
    addend: int
    below: int

    def outputs(self, sums: Integers, shift: int, fraction: int) -> Integers:
        """Return the outputs for sums, before the clamp."""
        scaled = (sums + self.offset) << fraction
        scaled = scaled + np.where(scaled < 0, self.below, 0)
        high: Integers = ((scaled * self.significand) >> WORD) + self.addend
        return high >> shift


class Points(NamedTuple):
    """Sums with limits of their output: at least `values`, or from index `lower` on, less than `values`."""

    sums: Integers
    values: Integers
    lower: int

    def bounds(self, significand: int, shift: int, fraction: int = 0) -> tuple[int, int]:
        """Return the range (end exclusive) of the result for a sum of 0, in units of 2^-32, before the shift."""
        needed = (self.values << (shift + WORD)) - (self.sums << fraction) * significand
        return int(needed[: self.lower].max(initial=-FAR)), int(needed[self.lower :].min(initial=FAR))

    def where(self, chosen: npt.NDArray[np.bool_]) -> Points:
        """Return some of the points."""
        return Points(self.sums[chosen], self.values[chosen], int(np.count_nonzero(chosen[: self.lower])))

    def hold(self, outputs: Integers) -> bool:
        """Whether these outputs satisfy the limits of all points."""
        return bool((outputs >= self.values)[: self.lower].all() and (outputs < self.values)[self.lower :].all())


class Channel(NamedTuple):
    """The requantization of a channel.

    Attributes:
        significand, exponent: the channel's multiplier, with the significand in Q0.31.
        zero_point, activation_min, activation_max: zero point and limits of the output.
        low, high: range of sums, inclusive.
    """

    significand: int
    exponent: int
    zero_point: int
    activation_min: int
    activation_max: int
    low: int
    high: int

    @functools.lru_cache(1 << 12)  # noqa: B019  # of a few hundred bytes each
    def points(self) -> Points | None:
        """Return the sums just before and after each step of the output; None if sums can exceed 32 bits."""
        right, left = max(-self.exponent, 0), max(self.exponent, 0)
        if right > 31 or left > 30 or self._largest(0) << left > LARGEST:
            return None
        outputs = np.arange(self.activation_min + 1, self.activation_max + 1, dtype=np.int64)
        # Halves of negative numbers are rounded down.
        is_below = (outputs <= self.zero_point) & (right > 0)
        products = ((outputs - self.zero_point) << right) - (1 << right >> 1) + is_below
        products = np.clip(products, -1 << 31, 1 << 31)  # sums do not grow
        first = -(((1 << 30) - (products << 31)) // (max(self.significand, 1) << left))
        inner = (first > self.low) & (first <= self.high)
        low, high = (self.activation_min + int(np.count_nonzero(first <= edge)) for edge in (self.low, self.high))
        sums, values = first[inner].tolist(), outputs[inner].tolist()
        begin, end = (
            [(self.low, low)] * (low > self.activation_min),
            [(self.high, high + 1)] * (high < self.activation_max),
        )
        points = [*begin, *zip(sums, values), *((each - 1, value) for each, value in zip(sums, values)), *end]
        table = np.array(points, np.int64).reshape(-1, 2)
        return Points(table[:, 0], table[:, 1], len(begin) + len(sums))

    def _largest(self, offset: int) -> int:
        """Return an exclusive bound of the absolute value of a sum with an offset."""
        return max(-self.low, self.high) + abs(offset)

    def significands(self, shift: int) -> Iterator[int]:
        """Yield significands to try with a right shift after the multiplication; none if they exceed 31 bits."""
        exact = self.significand * 2.0 ** (self.exponent + 1 + shift)
        if exact < LARGEST - len(NEARBY):
            yield from (max(round(exact) + nearby, 0) for nearby in NEARBY)

    def fitted(self, shift: int) -> Constants | None:
        """Find constants with which ((sum + offset) * significand / 2^32 + addend) / 2^shift, rounded down, is the
        output."""
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
        """Find constants that do the same with (sum + offset) * 2^8, plus `below` if that is negative, in place of sum
        + offset."""
        points = self.points()
        if (
            points is None
            or self._largest(NEAR) >= 1 << (31 - FRACTION)
            or not self.activation_min <= self.zero_point <= self.activation_max
        ):
            return None
        is_below = points.sums < 0
        lower, upper = points.where(is_below), points.where(~is_below)
        # The offset decides which sums count as negative.
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
        """Whether the outputs satisfy all points, and all values fit in 32 bits."""
        largest = (self._largest(made.offset) << fraction) + abs(made.below)
        fits = largest <= LARGEST and (largest * made.significand >> WORD) + abs(made.addend) + 1 <= LARGEST
        return fits and points.hold(made.outputs(points.sums, shift, fraction))


ZERO = np.array([0, 0, 1, 1], np.int64)
"""Limits of the outputs at the sums nearest to the offset, without the zero point: at least the first, less than the
second."""


def first_multiple(factor: int, modulus: int, low: int, high: int) -> int | None:
    """Return the smallest k for which k * factor modulo a number is in a range; None if there is none."""
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
