"""Signal operators on small processors: the spectrum of int16, computed in place, and square roots without floats.

As in kissfft, 2n real values are transformed as n complex pairs. The pairs are first permuted. Then each stage combines
groups of p slots of m pairs each, in place: it divides by p, multiplies all but the first slot by roots of unity
(twiddle factors), and applies a butterfly to the slots. A root of 1 does not change the divided values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.c.kernels.part import Part
from tflm.compiler.intrinsics import int16_from, leading_zeros
from tflm.compiler.language import DONE, Int16s, Int32s, Step, UInt32s, UInt64s, inlined, kernel
from tflm.delegates.compiled.casts import as_int16, as_int32, as_uint64
from tflm.delegates.compiled.signal import clear_steps
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.reference.signal.fft import FftOpData, KissFftrConfig

NARROW_INTEGERS = True

HALF = 32767 // 2
"""1/2 in Q0.15, with kissfft's value."""


class Spectrum(NamedTuple):
    """Sizes of spectra.

    Attributes:
        rows: number of rows.
        given: number of samples in a row of the input; the rest is zero.
        bins: number of bins in a row of the output.
        pairs: number of pairs that are transformed.
        stages: number of stages of the transform.
    """

    rows: int
    given: int
    bins: int
    pairs: int
    stages: int


@inlined
def times(sample: int, factor: int) -> Any:
    """Return a sample times a factor in Q0.15, rounded, halves up."""
    return (sample * factor + (1 << 14)) >> 15


@inlined
def turned(y: Int16s, place: int, factor: int, roots: Int16s, root: int) -> tuple[Any, Any]:
    """Return a pair times a factor, then times a root."""
    real = times(y[place], factor)
    imaginary = times(y[place + 1], factor)
    c = roots[root]
    s = roots[root + 1]
    return (real * c - imaginary * s + (1 << 14)) >> 15, (real * s + imaginary * c + (1 << 14)) >> 15


@inlined
def divided(y: Int16s, place: int, factor: int) -> tuple[Any, Any]:
    """Return a pair times a factor."""
    return times(y[place], factor), times(y[place + 1], factor)


@inlined
def combine_2(y: Int16s, place: int, step: int, real1: int, imaginary1: int) -> int:
    """Apply the butterfly to two slots: the pair at `place` is not yet divided, the other one is already multiplied by
    its root."""
    real0, imaginary0 = divided(y, place, HALF)
    y[place] = real0 + real1
    y[place + 1] = imaginary0 + imaginary1
    y[place + step] = real0 - real1
    y[place + step + 1] = imaginary0 - imaginary1
    return step


@inlined
def combine_4(
    y: Int16s, place: int, step: int, real1: int, imag1: int, real2: int, imag2: int, real3: int, imag3: int
) -> int:
    """Apply the butterfly to four slots, likewise."""
    real0, imag0 = divided(y, place, 32767 // 4)
    even_real, even_imag = real0 + real2, imag0 + imag2
    odd_real, odd_imag = real1 + real3, imag1 + imag3
    real0, imag0 = real0 - real2, imag0 - imag2
    real1, imag1 = real1 - real3, imag1 - imag3
    y[place] = even_real + odd_real
    y[place + 1] = even_imag + odd_imag
    y[place + step] = real0 + imag1
    y[place + step + 1] = imag0 - real1
    y[place + 2 * step] = even_real - odd_real
    y[place + 2 * step + 1] = even_imag - odd_imag
    y[place + 3 * step] = real0 - imag1
    y[place + 3 * step + 1] = imag0 + real1
    return step


@inlined
def stage_2(y: Int16s, roots: Int16s, m: int, groups: int) -> int:
    """Combine all groups of two slots."""
    for group in range(groups):
        place = 4 * m * group
        real, imaginary = divided(y, place + 2 * m, HALF)
        combine_2(y, place, 2 * m, real, imaginary)
        for k in range(1, m):
            real, imaginary = turned(y, place + 2 * (m + k), HALF, roots, 2 * groups * k)
            combine_2(y, place + 2 * k, 2 * m, real, imaginary)
    return groups


@inlined
def stage_4(y: Int16s, roots: Int16s, m: int, groups: int) -> int:
    """Combine all groups of four slots."""
    for group in range(groups):
        place = 8 * m * group
        real1, imag1 = divided(y, place + 2 * m, 32767 // 4)
        real2, imag2 = divided(y, place + 4 * m, 32767 // 4)
        real3, imag3 = divided(y, place + 6 * m, 32767 // 4)
        combine_4(y, place, 2 * m, real1, imag1, real2, imag2, real3, imag3)
        for k in range(1, m):
            place += 2
            real1, imag1 = turned(y, place + 2 * m, 32767 // 4, roots, 2 * groups * k)
            real2, imag2 = turned(y, place + 4 * m, 32767 // 4, roots, 4 * groups * k)
            real3, imag3 = turned(y, place + 6 * m, 32767 // 4, roots, 6 * groups * k)
            combine_4(y, place, 2 * m, real1, imag1, real2, imag2, real3, imag3)
    return groups


@inlined
def stage_3(y: Int16s, roots: Int16s, m: int, groups: int) -> int:
    """Combine all groups of three slots. The second and third result are the sum and the difference of two terms."""
    height = roots[2 * groups * m + 1]
    for group in range(groups):
        for k in range(m):
            place = 2 * (3 * m * group + k)
            real0, imag0 = divided(y, place, 32767 // 3)
            real1, imag1 = turned(y, place + 2 * m, 32767 // 3, roots, 2 * groups * k)
            real2, imag2 = turned(y, place + 4 * m, 32767 // 3, roots, 4 * groups * k)
            middle_real, middle_imag = real0 - ((real1 + real2) >> 1), imag0 - ((imag1 + imag2) >> 1)
            upright_real, upright_imag = -times(imag1 - imag2, height), times(real1 - real2, height)
            y[place] = real0 + real1 + real2
            y[place + 1] = imag0 + imag1 + imag2
            y[place + 2 * m] = middle_real + upright_real
            y[place + 2 * m + 1] = middle_imag + upright_imag
            y[place + 4 * m] = middle_real - upright_real
            y[place + 4 * m + 1] = middle_imag - upright_imag
    return groups


@inlined
def combine_5(
    y: Int16s,
    place: int,
    step: int,
    zero: int,
    sum1: int,
    sum2: int,
    other1: int,
    other2: int,
    sign: int,
    roots: Int16s,
    fifth: int,
) -> int:
    """Compute one component of five slots, from sums of opposite slots, and from differences of the other component,
    rotated by a right angle."""
    c1, s1, c2, s2 = roots[fifth], roots[fifth + 1], roots[2 * fifth], roots[2 * fifth + 1]
    middle1 = zero + times(sum1, c1) + times(sum2, c2)
    middle2 = zero + times(sum1, c2) + times(sum2, c1)
    upright1 = sign * (times(other1, s1) + times(other2, s2))
    upright2 = sign * (times(other1, s2) - times(other2, s1))
    y[place] = zero + sum1 + sum2
    y[place + step] = middle1 + upright1
    y[place + 2 * step] = middle2 + upright2
    y[place + 3 * step] = middle2 - upright2
    y[place + 4 * step] = middle1 - upright1
    return step


@inlined
def stage_5(y: Int16s, roots: Int16s, m: int, groups: int) -> int:
    """Combine all groups of five slots. Two pairs of results are each the sum and the difference of two terms."""
    fifth = 2 * groups * m
    for group in range(groups):
        for k in range(m):
            place = 2 * (5 * m * group + k)
            real0, imag0 = divided(y, place, 32767 // 5)
            real1, imag1 = turned(y, place + 2 * m, 32767 // 5, roots, 2 * groups * k)
            real2, imag2 = turned(y, place + 4 * m, 32767 // 5, roots, 4 * groups * k)
            real3, imag3 = turned(y, place + 6 * m, 32767 // 5, roots, 6 * groups * k)
            real4, imag4 = turned(y, place + 8 * m, 32767 // 5, roots, 8 * groups * k)
            sum1, sum2, other1, other2 = real1 + real4, real2 + real3, imag1 - imag4, imag2 - imag3
            combine_5(y, place, 2 * m, real0, sum1, sum2, other1, other2, -1, roots, fifth)
            sum1, sum2, other1, other2 = imag1 + imag4, imag2 + imag3, real1 - real4, real2 - real3
            combine_5(y, place + 1, 2 * m, imag0, sum1, sum2, other1, other2, 1, roots, fifth)
    return groups


@inlined
def odd_stage(y: Int16s, roots: Int16s, p: int, m: int, groups: int) -> int:
    """Combine groups of three or five slots."""
    if p == 3:
        stage_3(y, roots, m, groups)
    else:
        stage_5(y, roots, m, groups)
    return p


@inlined
def no_stage(y: Int16s, roots: Int16s, p: int, m: int, groups: int) -> int:
    """Do nothing: all factors are powers of two."""
    return p


ODD_STAGES: dict[str, Callable[..., Any]] = {"none": no_stage, "odd": odd_stage}
"""Function for odd factors, by whether the number of pairs has any."""

OddStage = Annotated[Callable[..., Any], ODD_STAGES]


@inlined
def put_in_order(x: Int16s, y: Int16s, orders: Int16s, given: int, n: int) -> int:
    """Set the pairs of y to the permuted pairs of x. Samples that x lacks are 0."""
    for i in range(n):
        place = 2 * orders[i]
        y[2 * i] = x[place] if place < given else 0
        y[2 * i + 1] = x[place + 1] if place + 1 < given else 0
    return n


@inlined
def unravel(y: Int16s, roots: Int16s, n: int) -> int:
    """Compute the spectrum of real values, n + 1 bins, from the spectrum of their pairs as complex values."""
    real, imaginary = divided(y, 0, HALF)
    y[0] = real + imaginary
    y[1] = 0
    y[2 * n] = real - imaginary
    y[2 * n + 1] = 0
    mirrored = 2 * n
    for k in range(2, n + 1, 2):
        mirrored -= 2
        real, imaginary = divided(y, k, HALF)
        mirrored_real = times(y[mirrored], HALF)
        mirrored_imaginary = times(as_int16(-y[mirrored + 1]), HALF)
        sum_real, sum_imaginary = real + mirrored_real, imaginary + mirrored_imaginary
        real, imaginary = real - mirrored_real, imaginary - mirrored_imaginary
        c, s = roots[k - 2], roots[k - 1]
        turned_real = as_int16((real * c - imaginary * s + (1 << 14)) >> 15)
        turned_imaginary = as_int16((real * s + imaginary * c + (1 << 14)) >> 15)
        y[k] = (sum_real + turned_real) >> 1
        y[k + 1] = (sum_imaginary + turned_imaginary) >> 1
        y[mirrored] = (sum_real - turned_real) >> 1
        y[mirrored + 1] = (turned_imaginary - sum_imaginary) >> 1
    return n


@kernel
def rfft(
    odd: OddStage,
    x: Int16s,
    y: Int16s,
    factors: Int16s,
    orders: Int16s,
    roots: Int16s,
    super_twiddles: Int16s,
    spectrum: Spectrum,
) -> int:
    """Compute SignalRfft of int16.

    Args:
        factors: factors of the number of pairs, in the order of the stages.
        orders: source of each pair.
        roots: all n-th roots of unity, in Q0.15.
        super_twiddles: roots that separate the spectra of even and odd samples.
    """
    n = spectrum.pairs
    for row in range(spectrum.rows):
        of_row = int16_from(y, 2 * row * spectrum.bins)
        put_in_order(int16_from(x, row * spectrum.given), of_row, orders, min(spectrum.given, 2 * n), n)
        m, groups = 1, n
        for stage in range(spectrum.stages):
            p = factors[stage]
            groups //= p
            if p == 4:
                stage_4(of_row, roots, m, groups)
            elif p == 2:
                stage_2(of_row, roots, m, groups)
            else:
                odd(of_row, roots, p, m, groups)
            m *= p
        unravel(of_row, super_twiddles, n)
        for i in range(2 * (n + 1), 2 * spectrum.bins):
            of_row[i] = 0
    return DONE


def order_of(config: KissFftrConfig) -> npt.NDArray[np.int16]:
    """Return the source of each pair of the first stage: its index with the digits reversed in the bases of the
    factors."""
    places, step = np.zeros(1, np.int64), config.n
    for factor in config.factors[::-1]:
        step //= factor
        places = np.concatenate([places + digit * step for digit in range(factor)])
    return places.astype(np.int16)


def bind_rfft(context: KernelContext, node: Node, part: Part | None = None) -> Sequence[Step] | None:
    """Bind SignalRfft of int16; None for other types, and for more pairs than fit in an int16."""
    op: FftOpData = node.op_data
    input, output = node.eval_input(0), node.eval_output(0)
    x, y = input.elements, output.elements.reshape(-1)
    config = op.config(inverse=False)
    if x.dtype != np.int16 or not x.size or config.n >= 1 << 14:
        return None
    rows, bins, factors = x.size // x.shape[-1], output.dims[-1] // 2, config.factors[::-1]
    step = rfft.step(
        odd="odd" if max(factors) == 5 or 3 in factors else "none",
        x=x,
        y=y,
        factors=np.array(factors, np.int16),
        orders=order_of(config),
        roots=config.twiddles.reshape(-1),
        super_twiddles=config.super_twiddles.reshape(-1),
        spectrum=Spectrum(rows, x.shape[-1], bins, config.n, len(factors)),
    )
    return [step, *clear_steps(y[2 * rows * bins :])]


# --- Square roots ------------------------------------------------------------------------------------------------


@inlined
def small_root(value: int, places: int) -> int:
    """Return the square root of an integer below 2^30, rounded; `places` is the position of its highest set bit."""
    rest = value
    root = 0
    bit = 1 << (places & 30)
    while bit > 0:
        if rest >= root + bit:
            rest -= root + bit
            root += 2 * bit
        root >>= 1
        bit >>= 2
    return root + 1 if rest > root else root


@inlined
def large_root(value: int, places: int) -> Any:
    """Return the square root of any uint64; never rounded up from the largest value of 16 or of 32 bits."""
    one = as_uint64(1)
    rest = value
    root = as_uint64(0)
    bit = one << as_uint64(places & 62)
    while bit > as_uint64(0):
        if rest >= root + bit:
            rest -= root + bit
            root += bit << one
        root = root >> one
        bit = bit >> as_uint64(2)
    rounds_up = rest > root and root != as_uint64(0xFFFF) and root != as_uint64(0xFFFFFFFF)
    return root + one if rounds_up else root


@kernel
def square_root(x: UInt64s, scale_bits: Int32s, y: UInt32s, count: int) -> int:
    """Compute square roots, shifted right."""
    bits = scale_bits[0] & 31
    for i in range(count):
        places = 63 - leading_zeros(x[i])
        if places < 30:
            y[i] = small_root(as_int32(x[i]), places) >> bits
        else:
            y[i] = large_root(x[i], places) >> as_uint64(bits)
    return DONE


def bind_square_root(context: KernelContext, node: Node, part: Part | None = None) -> Sequence[Step] | None:
    """Bind SignalFilterBankSquareRoot."""
    x, y = node.eval_input(0).elements.reshape(-1), node.eval_output(0).elements.reshape(-1)
    step = square_root.step(x=x, scale_bits=node.eval_input(1).elements, y=y, count=x.size)
    return [step, *clear_steps(y[x.size :])]
