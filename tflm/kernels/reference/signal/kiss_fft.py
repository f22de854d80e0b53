"""Fourier transforms with the arithmetic of the kissfft library, bit for bit.

A transform of n complex values is split by the factors of n into stages. Each stage divides its values by its factor
(fixed-point only, so that sums don't overflow), multiplies them by roots of unity, and adds and subtracts them: the
"butterfly". All values of a stage go through each step together.

Complex values lie as pairs (real, imaginary). The values of a stage lie in the order (slot, rest, position): slots are
what a butterfly takes together, positions count within the transforms that the stages before have made.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.arithmetic.numpy_calls import scalar
from tflm.kernels.reference.signal.common import Program, Values
from tflm.targets import INT, POINTER, Array, Struct, Target

KISS_FFT_STATE = Struct("kiss_fft_state", nfft=INT, inverse=INT, factors=Array(INT, 64))
KISS_FFTR_STATE = Struct("kiss_fftr_state", substate=POINTER, tmpbuf=POINTER, super_twiddles=POINTER)


MATRICES = {
    2: np.array([[1, 1], [1, -1]], np.complex128),
    4: np.array([[1, 1, 1, 1], [1, -1j, -1, 1j], [1, -1, 1, -1], [1, 1j, -1, -1j]], np.complex128),
}
"""What a transform of so many values multiplies them by, where that turns and adds but rounds nothing."""


class Samples:
    """The arithmetic of samples, which is that of floats here and of fixed-point numbers in derived classes.

    The methods add calls to a program and give the array where it will leave the result.

    Args:
        dtype: of a sample.
        added: the type of a sum that is halved.

    Attributes:
        passed_on: the type from one stage to the next: of samples, or of integers of which the bits of a sample count.
    """

    def __init__(self, dtype: npt.DTypeLike, added: npt.DTypeLike):
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.passed_on = self.dtype
        self.added: np.dtype[Any] = np.dtype(added)

    def roots(self, angles: Sequence[float]) -> Values:
        """cos and sin of angles in radians, as an array of pairs."""
        return _cos_and_sin(angles).astype(self.dtype)

    def divided(self, program: Program, x: Values, divisor: int) -> Values:
        """x / divisor in fixed-point; floats stay as they are."""
        return x

    def in_halves(self, program: Program, x: Values) -> Values:
        """x / 2, of a type that holds the sum of two of them; x may be integers of which the bits of a sample count."""
        return self.divided(program, self.low_bits(x), 2)

    def scaled(self, program: Program, x: Values, factor: Values) -> Values:
        """x times a sample."""
        products = np.empty(x.shape, self.dtype)
        program.call(np.multiply, x, np.asarray(factor, self.dtype), products)
        return products

    def turned(self, program: Program, x: Values, roots: Values) -> Values:
        """Complex products of x, in pairs, and as many roots, an array of pairs."""
        return _complex_products(program, x, roots)

    def turned_slots(self, program: Program, x: Values, roots: Values, first: int) -> Values:
        """x, which was divided, with all but its first elements turned; the roots of these are 1."""
        joined = np.empty(x.shape, self.dtype)
        program.copy(joined[:first], x[:first])
        program.copy(joined[first:], self.turned(program, x[first:], roots[first // 2 :]))
        return joined

    def low_bits(self, x: Values) -> Values:
        """Samples, as a view of integers of which their bits count."""
        return x.view(self.dtype)[:: x.itemsize // self.dtype.itemsize]

    def halved(self, program: Program, x: Values) -> Values:
        """x / 2 in place, rounded down in fixed-point."""
        program.call(np.multiply, x, scalar(0.5, x.dtype), x)
        return x


class FixedPoint(Samples):
    """Integers with all their bits but the sign behind the point; what does not fit wraps.

    The factors of a product are doubled, so that its upper half is the sample that it rounds to.

    Args:
        wide: the type of factors and products.
    """

    def __init__(self, dtype: npt.DTypeLike, added: npt.DTypeLike, wide: npt.DTypeLike):
        super().__init__(dtype, added)
        self.one = int(np.iinfo(self.dtype).max)
        self._wide: np.dtype[Any] = np.dtype(wide)

    def roots(self, angles: Sequence[float]) -> Values:
        return np.floor(0.5 + self.one * _cos_and_sin(angles)).astype(self.dtype)

    def divided(self, program: Program, x: Values, divisor: int) -> Values:
        return self.scaled(program, x, scalar(self.one // divisor, self.dtype))

    def scaled(self, program: Program, x: Values, factor: Values) -> Values:
        products = np.empty(x.shape, self._wide)
        program.copy(products, x)
        program.call(np.multiply, products, np.asarray(self._doubled(factor), self._wide), products)
        return self._rounded(program, products)

    def turned(self, program: Program, x: Values, roots: Values) -> Values:
        operands = np.empty(x.shape, self._wide)
        program.copy(operands, x)
        return self._rounded(program, _complex_products(program, operands, self._doubled(roots)))

    def turned_slots(self, program: Program, x: Values, roots: Values, first: int) -> Values:
        # The largest sample stands for 1, and is so close to it that nothing changes that was divided.
        is_one = roots[first // 2 :] == roots[0]
        return x if is_one.all() else self.turned(program, x, roots)

    def halved(self, program: Program, x: Values) -> Values:
        program.call(np.right_shift, x, scalar(1, x.dtype), x)
        return x

    def _doubled(self, factors: Values) -> Values:
        return factors.astype(self._wide) * 2

    def _rounded(self, program: Program, products: Values) -> Values:
        """The samples that products, which are overwritten, round to."""
        program.call(np.add, products, scalar(1 << (8 * self.dtype.itemsize - 1), self._wide), products)
        return products.view(self.dtype)[1::2]


class FixedPoint16(FixedPoint):
    """16-bit numbers, whose complex products are exact in floats of 64 bits, and sums of these too."""

    def __init__(self) -> None:
        super().__init__(np.int16, added=np.int32, wide=np.int32)
        self.passed_on = np.dtype(np.intp)  # the index of what they are, divided

    def combined(self, program: Program, x: Values, roots: Values, matrix: Values) -> Values:
        """The butterflies of a stage whose sums are products with a matrix.

        Args:
            x: samples, of whichever type.

        Returns:
            The type that is passed on.
        """
        divided = np.empty((len(matrix), x.size // (2 * len(matrix))), np.complex128)
        products, result = np.empty_like(divided), np.empty(x.size, self.passed_on)
        floats = divided.reshape(-1).view(np.float64)
        self._divide(program, x, len(matrix), floats)
        if not (roots == roots[0]).all():  # see `FixedPoint.turned_slots`
            program.call(np.multiply, divided, _as_complex(roots).reshape(divided.shape) / (self.one + 1), divided)
            program.call(np.add, floats, scalar(0.5, np.float64), floats)
            program.call(np.floor, floats, floats)
        program.call(np.dot, matrix, divided, products)
        program.copy(result, products.reshape(-1).view(np.float64))
        return result

    def in_halves(self, program: Program, x: Values) -> Values:
        floats = np.empty(x.size, np.float64)
        self._divide(program, x, 2, floats)
        return floats

    def _divide(self, program: Program, x: Values, divisor: int, floats: Values) -> None:
        if x.dtype != self.passed_on:
            samples, x = x, np.empty(x.size, self.passed_on)
            program.copy(x, samples)
        program.call(_divided(self.one // divisor).take, x, None, floats, "wrap")

    def turned(self, program: Program, x: Values, roots: Values) -> Values:
        if x.dtype != np.float64:
            samples, x = x, np.empty(x.size, np.float64)
            program.copy(x, samples)
        operands, products = x.view(np.complex128), np.empty(x.size // 2, np.complex128)
        floats = products.view(np.float64)
        program.call(np.multiply, operands, _as_complex(roots) / (self.one + 1), products)
        # Beside 2^36 the last bit is worth 2^-16: the 16 bits above the 16 lowest ones are the integer part.
        program.call(np.add, floats, scalar(1.5 * 2**36 + 0.5, np.float64), floats)
        return floats.view(self.dtype)[1::4]


INT16 = FixedPoint16()
INT32 = FixedPoint(np.int32, added=np.int32, wide=np.int64)
FLOAT32 = Samples(np.float32, added=np.float32)


@functools.cache
def _divided(factor: int) -> Values:
    """Every 16-bit sample by its bits, times a factor of 16 bits, rounded to a sample, as a float."""
    samples = np.arange(1 << 16, dtype=np.uint16).view(np.int16).astype(np.int64)
    divided: Values = (2 * factor * samples + (1 << 15) >> 16).astype(np.float64)
    return divided


def _as_complex(pairs: Values) -> Values:
    numbers: Values = pairs.astype(np.float64).reshape(-1).view(np.complex128)
    return numbers


def _cos_and_sin(angles: Sequence[float]) -> Values:
    return np.array([(math.cos(angle), math.sin(angle)) for angle in angles], np.float64).reshape(-1, 2)


def _complex_products(program: Program, x: Values, y: Values) -> Values:
    """Products of x, in pairs, and constants y of the same type, an array of pairs."""
    by_real, by_imaginary = (np.repeat(y[:, part], 2) for part in (0, 1))
    of_real, of_imaginary, products = (np.empty(x.shape, x.dtype) for _ in range(3))
    program.call(np.multiply, x, by_real, of_real)
    program.call(np.multiply, x, by_imaginary, of_imaginary)
    program.call(np.subtract, of_real[0::2], of_imaginary[1::2], products[0::2])
    program.call(np.add, of_imaginary[0::2], of_real[1::2], products[1::2])
    return products


def real_transform_bytes(samples: Samples, length: int, target: Target) -> int:
    """Bytes of memory that kissfft needs for a transform of `length` real values, an even number."""
    n, pair = length // 2, 2 * samples.dtype.itemsize
    return KISS_FFTR_STATE.size(target) + KISS_FFT_STATE.size(target) + pair * (n + n * 3 // 2)


class ComplexTransform:
    """The transform of rows of n complex values each, as a part of a program.

    Args:
        values: the rows, as pairs in one dimension. They are not changed.
        inverse: whether the roots of unity turn the other way round.

    Attributes:
        output: rows of pairs, in one dimension, of the type that is passed on.
    """

    def __init__(self, program: Program, samples: Samples, values: Values, n: int, *, inverse: bool):
        self._program, self._samples, self._inverse = program, samples, inverse
        sign = 1 if inverse else -1
        self._roots = samples.roots([sign * 2 * math.pi * i / n for i in range(n)])
        rows = values.size // (2 * n)
        if rows > 1:
            values = self._moved(values, np.arange(rows * n, dtype=np.intp).reshape(rows, n).T)
        rest, positions = rows * n, 1
        for factor in reversed(factors(n)):
            rest //= factor
            values = self._stage(values, factor, rest, positions)
            if rest > 1:  # the slots of the next stage come first
                values = self._moved(
                    values, np.arange(rows * n, dtype=np.intp).reshape(factor, rest, positions).swapaxes(0, 1)
                )
            positions *= factor
        self.output = values

    def _moved(self, values: Values, order: npt.NDArray[np.intp]) -> Values:
        moved = np.empty_like(values)
        self._program.gather_pairs(moved, values, order)
        return moved

    def _stage(self, values: Values, factor: int, rest: int, positions: int) -> Values:
        """Divide, multiply by roots of unity, and combine the slots."""
        samples, n = self._samples, len(self._roots)
        steps = np.multiply.outer(np.arange(factor, dtype=np.intp), np.arange(positions, dtype=np.intp)) * (
            n // (factor * positions)
        )
        roots = self._roots[np.broadcast_to(steps[:, None], (factor, rest, positions)).reshape(-1)]
        if factor in MATRICES and isinstance(samples, FixedPoint16):
            matrix = MATRICES[factor]
            return samples.combined(self._program, values, roots, matrix.conj() if self._inverse else matrix)
        divided = samples.divided(self._program, samples.low_bits(values), factor)
        turned = samples.turned_slots(self._program, divided, roots, 2 * rest * positions)
        combined = np.empty(values.shape, samples.dtype)
        combine = {2: self._combine_2, 3: self._combine_3, 4: self._combine_4, 5: self._combine_5}[factor]
        combine(turned.reshape(factor, -1), combined)
        return combined

    def _combine_2(self, x: Values, combined: Values) -> None:
        y = np.split(combined, 2)
        self._program.call(np.add, x[0], x[1], y[0])
        self._program.call(np.subtract, x[0], x[1], y[1])

    def _combine_3(self, x: Values, combined: Values) -> None:
        y = np.split(combined, 3)
        call, samples = self._program.call, self._samples
        sums, differences, middle = (np.empty_like(y[0]) for _ in range(3))
        call(np.add, x[1], x[2], sums)
        call(np.subtract, x[1], x[2], differences)
        call(np.add, x[0], sums, y[0])
        call(np.subtract, x[0], samples.halved(self._program, sums), middle)
        height = samples.scaled(self._program, differences, self._roots[len(self._roots) // 3, 1])
        self._add_upright(middle, height, y[1], y[2])

    def _combine_4(self, x: Values, combined: Values) -> None:
        call = self._program.call
        work = np.empty((2, 2, x.shape[1]), combined.dtype)
        even, odd = work.reshape(2, -1)
        call(np.add, x[0], x[2], work[0, 0])
        call(np.add, x[1], x[3], work[1, 0])
        call(np.subtract, x[0], x[2], work[0, 1])
        # The difference of the odd slots, turned by a right angle.
        turned = work[1, 1]
        a, b = (x[3], x[1]) if self._inverse else (x[1], x[3])
        call(np.subtract, a[1::2], b[1::2], turned[0::2])
        call(np.subtract, b[0::2], a[0::2], turned[1::2])
        call(np.add, even, odd, combined[: even.size])
        call(np.subtract, even, odd, combined[even.size :])

    def _combine_5(self, x: Values, combined: Values) -> None:
        y = np.split(combined, 5)
        call, samples, program = self._program.call, self._samples, self._program
        sums, differences = ([np.empty_like(y[0]) for _ in range(2)] for _ in range(2))
        for i in range(2):
            call(np.add, x[1 + i], x[4 - i], sums[i])
            call(np.subtract, x[1 + i], x[4 - i], differences[i])
        call(np.add, sums[0], sums[1], y[0])
        call(np.add, x[0], y[0], y[0])
        roots = [self._roots[i * len(self._roots) // 5] for i in (1, 2)]
        for i, combine in enumerate((np.add, np.subtract)):
            a, b = roots[i], roots[1 - i]
            middle, height = (np.empty_like(y[0]) for _ in range(2))
            call(np.add, x[0], samples.scaled(program, sums[0], a[0]), middle)
            call(np.add, middle, samples.scaled(program, sums[1], b[0]), middle)
            upright = [samples.scaled(program, differences[j], root[1]) for j, root in enumerate((a, b))]
            call(combine, *upright, height)
            self._add_upright(middle, height, y[1 + i], y[4 - i])

    def _add_upright(self, x: Values, height: Values, above: Values, below: Values) -> None:
        """above = x + i * height, below = x - i * height"""
        call = self._program.call
        call(np.subtract, x[0::2], height[1::2], above[0::2])
        call(np.add, x[1::2], height[0::2], above[1::2])
        call(np.add, x[0::2], height[1::2], below[0::2])
        call(np.subtract, x[1::2], height[0::2], below[1::2])


class RealTransform:
    """The transform of rows of real values, as a part of a program.

    Args:
        values: the rows, in one dimension. They are not changed.
        length: of a row; half of it has no prime factors but 2, 3 and 5.
    """

    def __init__(self, program: Program, samples: Samples, values: Values, length: int):
        self._program, self._samples = program, samples
        self._n, self._rows = length // 2, values.size // length
        self._parts = self._unravelled(ComplexTransform(program, samples, values, self._n, inverse=False).output)

    def write(self, output: Values, row_length: int) -> None:
        """Add the copy of length / 2 + 1 bins of each row; rows are `row_length` bins apart. Zeros fill the output."""
        n, rows = self._n, self._rows
        row, bin = np.divmod(np.arange(rows * row_length, dtype=np.intp), max(row_length, 1))
        is_upper = 2 * bin >= n
        pair = np.where(is_upper, n // 2 + 1 + n - bin, bin) * rows + row
        indices = np.full(output.size, self._parts.size - 1, np.intp)
        real, imaginary = indices[0 : 2 * bin.size : 2], indices[1 : 2 * bin.size : 2]
        np.copyto(real, 2 * pair, where=bin <= n)
        np.copyto(imaginary, 2 * pair + 1, where=(bin > 0) & (bin < n))
        self._program.gather(output, self._parts, indices)

    def _unravelled(self, values: Values) -> Values:
        """The spectrum of rows of real values, from that of their pairs taken for complex values.

        Returns:
            Bins 0 to n / 2 of all rows, row by row within a bin; then bins n to n / 2; then a zero.
        """
        program, samples, rows = self._program, self._samples, self._rows
        count = 2 * (self._n // 2 + 1) * rows
        both = samples.in_halves(program, self._with_mirrored(values))
        x, mirrored = both[:count], both[count:]
        sums, differences = (np.empty(count, both.dtype) for _ in range(2))
        program.call(np.add, x, mirrored, sums)
        program.call(np.subtract, x, mirrored, differences)
        turned = samples.turned(program, differences, np.repeat(half_roots(samples, self._n, -1), rows, axis=0))
        # The reference adds 16-bit samples as 32-bit integers before it halves the sum.
        a, b = (np.empty(count, samples.added) for _ in range(2))
        program.copy(a, sums)
        program.copy(b, turned)
        doubled = np.empty(2 * count, samples.added)
        program.call(np.add, a, b, doubled[:count])
        program.call(np.subtract, a[0::2], b[0::2], doubled[count::2])
        program.call(np.subtract, b[1::2], a[1::2], doubled[count + 1 :: 2])
        parts = np.zeros(2 * count + 1, samples.dtype)
        program.copy(parts[:-1], samples.halved(program, doubled))
        first = np.empty(2 * rows, samples.dtype)
        program.copy(first, x[: 2 * rows])
        real, imaginary = first[0::2], first[1::2]  # sums of the even and of the odd values
        program.call(np.add, real, imaginary, parts[0 : 2 * rows : 2])
        program.call(np.subtract, real, imaginary, parts[count : count + 2 * rows : 2])
        return parts

    def _with_mirrored(self, values: Values) -> Values:
        """Bins 0 to n / 2, and then the conjugates of bins n to n / 2, row by row within a bin."""
        n = self._n
        bins = np.arange(n // 2 + 1, dtype=np.intp)
        order = np.stack([bins, (n - bins) % n])[:, :, None] + n * np.arange(self._rows, dtype=np.intp)
        both = np.empty(2 * order.size, values.dtype)
        self._program.gather_pairs(both, values, order)
        mirrored = both[order.size + 1 :: 2]
        self._program.call(np.negative, mirrored, mirrored)
        return both


class InverseRealTransform:
    """The rows of real values that have these spectra, as a part of a program.

    Args:
        values: the spectra as pairs, in one dimension. They are not changed.
        row_length: bins from one spectrum to the next; of each, length / 2 + 1 bins count.
        length: of a row; half of it has no prime factors but 2, 3 and 5.

    Attributes:
        output: rows of `length` real values, in one dimension; floats are `length` times too large.
    """

    def __init__(self, program: Program, samples: Samples, values: Values, row_length: int, length: int):
        self._program, self._samples = program, samples
        self._n, self._rows = length // 2, values.size // (2 * row_length)
        starts = np.arange(self._rows, dtype=np.intp) * row_length
        folded = self._folded(values, starts)
        self.output = samples.low_bits(ComplexTransform(program, samples, folded, self._n, inverse=True).output)

    def _folded(self, values: Values, starts: npt.NDArray[np.intp]) -> Values:
        """The spectra of pairs of values taken for complex ones: n bins, row by row."""
        program, samples, n, rows = self._program, self._samples, self._n, self._rows
        bins = np.arange(1, n // 2 + 1, dtype=np.intp)
        count = 2 * bins.size * rows
        both = np.empty(2 * count, samples.dtype)
        program.gather_pairs(both, values, np.stack([bins, n - bins])[:, :, None] + starts)
        program.call(np.negative, both[count + 1 :: 2], both[count + 1 :: 2])
        divided = samples.divided(program, both, 2)
        sums, differences = (np.empty(count, samples.dtype) for _ in range(2))
        program.call(np.add, divided[:count], divided[count:], sums)
        program.call(np.subtract, divided[:count], divided[count:], differences)
        turned = samples.turned(program, differences, np.repeat(half_roots(samples, n, 1)[1:], rows, axis=0))
        first, folded = 2 * rows, np.empty(2 * rows + 2 * count, samples.dtype)
        program.copy(folded[:first], samples.divided(program, self._ends(values, starts), 2))
        lower, upper = folded[first : first + count], folded[first + count :]
        program.call(np.add, sums, turned, lower)
        program.call(np.subtract, sums, turned, upper)
        program.call(np.negative, upper[1::2], upper[1::2])
        bin = np.arange(n, dtype=np.intp)
        slot = np.where(2 * bin >= n, bins.size + n - bin, bin)
        slot[0] = 0
        ordered = np.empty(2 * n * rows, samples.dtype)
        program.gather_pairs(ordered, folded, slot * rows + np.arange(rows, dtype=np.intp)[:, None])
        return ordered

    def _ends(self, values: Values, starts: npt.NDArray[np.intp]) -> Values:
        """Sum and difference of the real parts of the first and the last bin of each row."""
        ends = 2 * np.concatenate([starts, starts + self._n])
        real, pairs = (np.empty(ends.size, self._samples.dtype) for _ in range(2))
        self._program.gather(real, values, ends)
        first, last = np.split(real, 2)
        self._program.call(np.add, first, last, pairs[0::2])
        self._program.call(np.subtract, first, last, pairs[1::2])
        return pairs


def half_roots(samples: Samples, n: int, sign: int) -> Values:
    """The roots by which the two halves of a real spectrum are taken apart, or put together: bins 0 to n / 2."""
    return samples.roots([sign * math.pi * (k / n + 0.5) for k in range(n // 2 + 1)])


def factors(n: int) -> list[int]:
    """The factors of n: fours, then a two, threes, fives; the last one is that of the first stage.

    Raises:
        OperatorError: there are others, or none; for these TFLM has no memory.
    """
    found, rest = [], n
    for factor in (4, 2, 3, 5):
        while rest and rest % factor == 0:
            found.append(factor)
            rest //= factor
    if not found or rest > 1:
        reason = f"transforms {2 * n} values at a time; half of that must be a product of 2, 3 and 5"
        raise OperatorError(reason)
    return found
