"""SignalRfft and SignalIrfft: transforms with kissfft's arithmetic, as in `tflm.kernels.reference.signal.fft`.

A row of 2n real values is transformed as n complex ones, pairs (real, imaginary), in the memory of the output. The
pairs are first permuted. Then each stage combines groups of p slots of m pairs each, in place: it divides by p (fixed
point only), multiplies all but the first slot by roots of unity (twiddle factors), and applies a butterfly to the
slots.

Types differ in how samples are divided, multiplied, halved and wrapped: kernels are given functions for these. Those of
int32 return 64 bits, so that sums do not overflow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.compiler.intrinsics import elements_from
from tflm.compiler.language import DONE, Elements, Int16s, Step, UInt16s, by_value, inlined, kernel
from tflm.compiler.processor import Profile
from tflm.delegates.compiled.casts import as_float32, as_int16, as_int32, as_int64, as_uint64
from tflm.delegates.compiled.signal import clear_steps
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.reference.signal.fft import FftOpData, KissFftrConfig

# --- Arithmetic of samples ---------------------------------------------------------------------------------------


@inlined
def times_16(sample: Any, factor: Any) -> Any:
    """Multiply by a factor in Q0.15, and round, halves up."""
    return (sample * factor + (1 << 14)) >> 15


@inlined
def rounded_32(product: Any) -> Any:
    """Round a product in Q0.62, halves up.

    Without signs, a C compiler does not know that many products fit 32 bits: it would omit the cast, then multiply 64
    bits.
    """
    return as_int64(as_int32(as_uint64(product + (1 << 30)) >> as_uint64(31)))


@inlined
def times_32(sample: Any, factor: Any) -> Any:
    """Multiply by a factor in Q0.31, and round, halves up."""
    return rounded_32(as_int64(as_int32(sample)) * factor)


@inlined
def times_float(sample: Any, factor: Any) -> Any:
    """Multiply floats."""
    return sample * factor


@inlined
def part_16(sample: Any, divisor: int) -> Any:
    """Divide by a small number."""
    return times_16(sample, 32767 // divisor)


@inlined
def part_32(sample: Any, divisor: int) -> Any:
    """Divide by a small number."""
    return times_32(sample, 2147483647 // divisor)


@inlined
def part_float(sample: Any, divisor: int) -> Any:
    """Return the sample: floats are not divided."""
    return sample


@inlined
def turned_16(real: Any, imaginary: Any, c: Any, s: Any) -> tuple[Any, Any]:
    """Multiply a pair by a root of unity."""
    return (real * c - imaginary * s + (1 << 14)) >> 15, (real * s + imaginary * c + (1 << 14)) >> 15


@inlined
def turned_32(real: Any, imaginary: Any, c: Any, s: Any) -> tuple[Any, Any]:
    """Multiply a pair by a root of unity."""
    real, imaginary = as_int64(as_int32(real)), as_int64(as_int32(imaginary))
    return rounded_32(real * c - imaginary * s), rounded_32(real * s + imaginary * c)


@inlined
def turned_float(real: Any, imaginary: Any, c: Any, s: Any) -> tuple[Any, Any]:
    """Multiply a pair by a root of unity."""
    return real * c - imaginary * s, real * s + imaginary * c


@inlined
def not_turned(real: Any, imaginary: Any, c: Any, s: Any) -> tuple[Any, Any]:
    """Return the pair: a root of 1 does not change divided integers."""
    return real, imaginary


@inlined
def halved_16(value: Any) -> Any:
    """Halve a sum, without wrapping it."""
    return value >> 1


@inlined
def halved_32(value: Any) -> Any:
    """Wrap a sum, then halve it."""
    return as_int64(as_int32(value)) >> 1


@inlined
def halved_float(value: Any) -> Any:
    """Halve a sum."""
    return value * as_float32(0.5)


@inlined
def plus_16(a: Any, b: Any, sign: int) -> Any:
    """Add or subtract, and wrap."""
    return as_int16(a + sign * b)


@inlined
def plus_32(a: Any, b: Any, sign: int) -> Any:
    """Add or subtract, and wrap."""
    return as_int64(as_int32(as_int64(a) + sign * as_int64(b)))


@inlined
def plus_float(a: Any, b: Any, sign: int) -> Any:
    """Add or subtract."""
    return as_float32(a) + as_float32(sign) * b


@inlined
def undivided(value: Any, count: int) -> Any:
    """Return a fixed-point sample: the transform has already divided it."""
    return value


@inlined
def divided_float(value: Any, count: int) -> Any:
    """Divide a float sample by the number of samples."""
    return value / as_float32(count)


TIMES = {"int16": times_16, "int32": times_32, "float32": times_float}
PARTS = {"int16": part_16, "int32": part_32, "float32": part_float}
TURNED = {"int16": turned_16, "int32": turned_32, "float32": turned_float}
FIRST_TURNED = {"int16": not_turned, "int32": not_turned, "float32": turned_float}
HALVED = {"int16": halved_16, "int32": halved_32, "float32": halved_float}
PLUS = {"int16": plus_16, "int32": plus_32, "float32": plus_float}
DIVIDED = {"int16": undivided, "int32": undivided, "float32": divided_float}
Times = Annotated[Callable[..., Any], TIMES]
Part = Annotated[Callable[..., Any], PARTS]
Turned = Annotated[Callable[..., Any], TURNED]
FirstTurned = Annotated[Callable[..., Any], FIRST_TURNED]
Halved = Annotated[Callable[..., Any], HALVED]
Plus = Annotated[Callable[..., Any], PLUS]
Divided = Annotated[Callable[..., Any], DIVIDED]


@by_value
class Numbers(NamedTuple):
    """The arithmetic of a type of samples."""

    times: Times
    part: Part
    turned: Turned
    first_turned: FirstTurned
    halved: Halved
    plus: Plus


@inlined
def same(value: Any) -> Any:
    """Return a value."""
    return value


@inlined
def negated(value: Any) -> Any:
    """Return a value with the other sign."""
    return -value


# --- Butterflies -------------------------------------------------------------------------------------------------


@inlined
def divided_pair(part: Any, y: Elements, place: int, divisor: int) -> tuple[Any, Any]:
    """Return a pair divided by a number."""
    return part(y[place], divisor), part(y[place + 1], divisor)


@inlined
def turned_pair(
    part: Any, turned: Any, y: Elements, place: int, divisor: int, roots: Elements, root: int
) -> tuple[Any, Any]:
    """Return a pair divided by a number, then times a root."""
    real, imaginary = turned(part(y[place], divisor), part(y[place + 1], divisor), roots[root], roots[root + 1])
    return real, imaginary


@inlined
def combine_2(part: Any, y: Elements, place: int, step: int, real1: Any, imaginary1: Any) -> int:
    """Apply the butterfly to two slots: the pair at `place` is not yet divided, the other one is already multiplied by
    its root."""
    real0, imaginary0 = divided_pair(part, y, place, 2)
    y[place] = real0 + real1
    y[place + 1] = imaginary0 + imaginary1
    y[place + step] = real0 - real1
    y[place + step + 1] = imaginary0 - imaginary1
    return step


@inlined
def combine_4(
    part: Any,
    upright: Any,
    y: Elements,
    place: int,
    step: int,
    real1: Any,
    imag1: Any,
    real2: Any,
    imag2: Any,
    real3: Any,
    imag3: Any,
) -> int:
    """Apply the butterfly to four slots, likewise."""
    real0, imag0 = divided_pair(part, y, place, 4)
    even_real, even_imag = real0 + real2, imag0 + imag2
    odd_real, odd_imag = real1 + real3, imag1 + imag3
    real0, imag0 = real0 - real2, imag0 - imag2
    real1, imag1 = upright(real1 - real3), upright(imag1 - imag3)
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
def stage_2(numbers: Numbers, y: Elements, roots: Elements, m: int, groups: int) -> int:
    """Combine all groups of two slots."""
    for group in range(groups):
        place = 4 * m * group
        real, imaginary = turned_pair(numbers.part, numbers.first_turned, y, place + 2 * m, 2, roots, 0)
        combine_2(numbers.part, y, place, 2 * m, real, imaginary)
        for k in range(1, m):
            real, imaginary = turned_pair(
                numbers.part, numbers.turned, y, place + 2 * (m + k), 2, roots, 2 * groups * k
            )
            combine_2(numbers.part, y, place + 2 * k, 2 * m, real, imaginary)
    return groups


@inlined
def stage_4(numbers: Numbers, upright: Any, y: Elements, roots: Elements, m: int, groups: int) -> int:
    """Combine all groups of four slots."""
    for group in range(groups):
        place = 8 * m * group
        real1, imag1 = turned_pair(numbers.part, numbers.first_turned, y, place + 2 * m, 4, roots, 0)
        real2, imag2 = turned_pair(numbers.part, numbers.first_turned, y, place + 4 * m, 4, roots, 0)
        real3, imag3 = turned_pair(numbers.part, numbers.first_turned, y, place + 6 * m, 4, roots, 0)
        combine_4(numbers.part, upright, y, place, 2 * m, real1, imag1, real2, imag2, real3, imag3)
        for k in range(1, m):
            place += 2
            real1, imag1 = turned_pair(numbers.part, numbers.turned, y, place + 2 * m, 4, roots, 2 * groups * k)
            real2, imag2 = turned_pair(numbers.part, numbers.turned, y, place + 4 * m, 4, roots, 4 * groups * k)
            real3, imag3 = turned_pair(numbers.part, numbers.turned, y, place + 6 * m, 4, roots, 6 * groups * k)
            combine_4(numbers.part, upright, y, place, 2 * m, real1, imag1, real2, imag2, real3, imag3)
    return groups


@inlined
def stage_3(numbers: Numbers, y: Elements, roots: Elements, m: int, groups: int) -> int:
    """Combine all groups of three slots. The second and third result are the sum and the difference of two terms."""
    height = roots[2 * groups * m + 1]
    for group in range(groups):
        for k in range(m):
            place = 2 * (3 * m * group + k)
            real0, imag0 = divided_pair(numbers.part, y, place, 3)
            real1, imag1 = turned_pair(numbers.part, numbers.turned, y, place + 2 * m, 3, roots, 2 * groups * k)
            real2, imag2 = turned_pair(numbers.part, numbers.turned, y, place + 4 * m, 3, roots, 4 * groups * k)
            middle_real, middle_imag = real0 - numbers.halved(real1 + real2), imag0 - numbers.halved(imag1 + imag2)
            upright_real, upright_imag = -numbers.times(imag1 - imag2, height), numbers.times(real1 - real2, height)
            y[place] = real0 + (real1 + real2)
            y[place + 1] = imag0 + (imag1 + imag2)
            y[place + 2 * m] = middle_real + upright_real
            y[place + 2 * m + 1] = middle_imag + upright_imag
            y[place + 4 * m] = middle_real - upright_real
            y[place + 4 * m + 1] = middle_imag - upright_imag
    return groups


@inlined
def combine_5(
    times: Any,
    upright: Any,
    y: Elements,
    place: int,
    step: int,
    zero: Any,
    sum1: Any,
    sum2: Any,
    other1: Any,
    other2: Any,
    c1: Any,
    s1: Any,
    c2: Any,
    s2: Any,
) -> int:
    """Compute one component of five slots, from sums of opposite slots, and from differences of the other component,
    rotated by a right angle; from the first and second fifth root of unity."""
    middle1 = zero + times(sum1, c1) + times(sum2, c2)
    middle2 = zero + times(sum1, c2) + times(sum2, c1)
    upright1 = upright(times(other1, s1) + times(other2, s2))
    upright2 = upright(times(other1, s2) - times(other2, s1))
    y[place] = zero + (sum1 + sum2)
    y[place + step] = middle1 + upright1
    y[place + 2 * step] = middle2 + upright2
    y[place + 3 * step] = middle2 - upright2
    y[place + 4 * step] = middle1 - upright1
    return step


@inlined
def stage_5(numbers: Numbers, y: Elements, roots: Elements, m: int, groups: int) -> int:
    """Combine all groups of five slots. Two pairs of results are each the sum and the difference of two terms."""
    fifth = 2 * groups * m
    c1, s1, c2, s2 = roots[fifth], roots[fifth + 1], roots[2 * fifth], roots[2 * fifth + 1]
    for group in range(groups):
        for k in range(m):
            place = 2 * (5 * m * group + k)
            real0, imag0 = divided_pair(numbers.part, y, place, 5)
            real1, imag1 = turned_pair(numbers.part, numbers.turned, y, place + 2 * m, 5, roots, 2 * groups * k)
            real2, imag2 = turned_pair(numbers.part, numbers.turned, y, place + 4 * m, 5, roots, 4 * groups * k)
            real3, imag3 = turned_pair(numbers.part, numbers.turned, y, place + 6 * m, 5, roots, 6 * groups * k)
            real4, imag4 = turned_pair(numbers.part, numbers.turned, y, place + 8 * m, 5, roots, 8 * groups * k)
            sum1, sum2, other1, other2 = real1 + real4, real2 + real3, imag1 - imag4, imag2 - imag3
            combine_5(numbers.times, negated, y, place, 2 * m, real0, sum1, sum2, other1, other2, c1, s1, c2, s2)
            sum1, sum2, other1, other2 = imag1 + imag4, imag2 + imag3, real1 - real4, real2 - real3
            combine_5(numbers.times, same, y, place + 1, 2 * m, imag0, sum1, sum2, other1, other2, c1, s1, c2, s2)
    return groups


# --- Transforms --------------------------------------------------------------------------------------------------


class Spectrum(NamedTuple):
    """Sizes of spectra.

    Attributes:
        rows: number of rows.
        samples: number of samples in a row; the input of a transform may have fewer, the rest being zero.
        bins: number of bins in a row.
        pairs: number of pairs that are transformed.
        stages: number of stages of the transform.
    """

    rows: int
    samples: int
    bins: int
    pairs: int
    stages: int


@inlined
def odd_stage(numbers: Numbers, y: Elements, roots: Elements, p: int, m: int, groups: int) -> int:
    """Combine groups of three or five slots."""
    if p == 3:
        stage_3(numbers, y, roots, m, groups)
    else:
        stage_5(numbers, y, roots, m, groups)
    return p


@inlined
def no_stage(numbers: Numbers, y: Elements, roots: Elements, p: int, m: int, groups: int) -> int:
    """Do nothing: all factors are powers of two."""
    return p


ODD_STAGES = {"none": no_stage, "odd": odd_stage}
"""The stage of odd factors, by whether the number of pairs has any: their code is long."""

OddStage = Annotated[Callable[..., Any], ODD_STAGES]


@inlined
def transform(
    odd: Any, upright: Any, numbers: Numbers, y: Elements, factors: Int16s, roots: Elements, n: int, stages: int
) -> int:
    """Transform n pairs of y, which are already permuted.

    Args:
        odd: the stage of three or five slots.
        upright: multiplies by the sign of the rotation by a right angle.
    """
    m, groups = 1, n
    for stage in range(stages):
        p = factors[stage]
        groups //= p
        if p == 4:
            stage_4(numbers, upright, y, roots, m, groups)
        elif p == 2:
            stage_2(numbers, y, roots, m, groups)
        else:
            odd(numbers, y, roots, p, m, groups)
        m *= p
    return n


@inlined
def put_in_order(x: Elements, y: Elements, orders: UInt16s, given: int, n: int) -> int:
    """Set the pairs of y to the permuted pairs of x."""
    for i in range(n):
        place = 2 * orders[i]
        y[2 * i], y[2 * i + 1] = x[place], x[place + 1]
    return n


@inlined
def put_in_order_padded(x: Elements, y: Elements, orders: UInt16s, given: int, n: int) -> int:
    """Set the pairs of y to the permuted pairs of x. Samples that x lacks are 0."""
    for i in range(n):
        place = 2 * orders[i]
        y[2 * i] = x[place] if place < given else 0
        y[2 * i + 1] = x[place + 1] if place + 1 < given else 0
    return n


ORDERS = {"padded": put_in_order_padded, "whole": put_in_order}
"""How pairs are permuted, by whether the input has all samples."""

Order = Annotated[Callable[..., Any], ORDERS]


@inlined
def separated(
    numbers: Numbers, x: Elements, pair: int, mirrored: int, roots: Elements, root: int
) -> tuple[Any, Any, Any, Any]:
    """Return a pair of a spectrum and its mirror image, with those of even and odd samples separated or joined."""
    real, imaginary = divided_pair(numbers.part, x, pair, 2)
    mirrored_real = numbers.part(x[mirrored], 2)
    mirrored_imaginary = numbers.part(numbers.plus(0, x[mirrored + 1], -1), 2)
    sum_real, sum_imaginary = real + mirrored_real, imaginary + mirrored_imaginary
    real, imaginary = real - mirrored_real, imaginary - mirrored_imaginary
    turned_real, turned_imaginary = numbers.turned(real, imaginary, roots[root], roots[root + 1])
    return (
        sum_real + turned_real,
        sum_imaginary + turned_imaginary,
        sum_real - turned_real,
        turned_imaginary - sum_imaginary,
    )


@inlined
def unravel(numbers: Numbers, y: Elements, roots: Elements, n: int) -> int:
    """Compute the spectrum of real values, n + 1 bins, from the spectrum of their pairs as complex values."""
    real, imaginary = divided_pair(numbers.part, y, 0, 2)
    y[0] = real + imaginary
    y[1] = 0
    y[2 * n] = real - imaginary
    y[2 * n + 1] = 0
    mirrored = 2 * n
    for k in range(2, n + 1, 2):
        mirrored -= 2
        real, imaginary, other_real, other_imaginary = separated(numbers, y, k, mirrored, roots, k - 2)
        y[k] = numbers.halved(real)
        y[k + 1] = numbers.halved(imaginary)
        y[mirrored] = numbers.halved(other_real)
        y[mirrored + 1] = numbers.halved(other_imaginary)
    return n


@inlined
def fold(numbers: Numbers, x: Elements, y: Elements, places: UInt16s, roots: Elements, n: int) -> int:
    """Compute the spectrum of pairs of real values as complex values from n + 1 bins, permuted: pair k is at
    `places[k]`."""
    y[0] = numbers.part(numbers.plus(x[0], x[2 * n], 1), 2)
    y[1] = numbers.part(numbers.plus(x[0], x[2 * n], -1), 2)
    for k in range(1, n // 2 + 1):
        real, imaginary, other_real, other_imaginary = separated(numbers, x, 2 * k, 2 * (n - k), roots, 2 * k - 2)
        place, other = 2 * places[k], 2 * places[n - k]
        y[place], y[place + 1] = real, imaginary
        y[other], y[other + 1] = other_real, other_imaginary
    return n


@kernel
def rfft(
    order: Order,
    odd: OddStage,
    numbers: Numbers,
    x: Elements,
    y: Elements,
    factors: Int16s,
    places: UInt16s,
    roots: Elements,
    super_twiddles: Elements,
    spectrum: Spectrum,
) -> int:
    """Compute SignalRfft.

    Args:
        factors: factors of the number of pairs, in the order of the stages.
        places: source of each pair.
        roots: all n-th roots of unity.
        super_twiddles: roots that separate the spectra of even and odd samples.
    """
    bins, n = spectrum.bins, spectrum.pairs
    for row in range(spectrum.rows):
        of_row = elements_from(y, 2 * row * bins)
        given = min(spectrum.samples, 2 * n)
        order(elements_from(x, row * spectrum.samples), of_row, places, given, n)
        transform(odd, same, numbers, of_row, factors, roots, n, spectrum.stages)
        unravel(numbers, of_row, super_twiddles, n)
        for i in range(2 * (n + 1), 2 * bins):
            of_row[i] = 0
    return DONE


@kernel
def irfft(
    odd: OddStage,
    numbers: Numbers,
    divided: Divided,
    x: Elements,
    y: Elements,
    factors: Int16s,
    places: UInt16s,
    roots: Elements,
    super_twiddles: Elements,
    spectrum: Spectrum,
) -> int:
    """Compute SignalIrfft.

    Args:
        factors: factors of the number of pairs, in the order of the stages.
        places: place of each pair.
        roots: all n-th roots of unity.
        super_twiddles: roots that separate the spectra of even and odd samples.
    """
    samples, n = spectrum.samples, spectrum.pairs
    for row in range(spectrum.rows):
        of_row = elements_from(y, row * samples)
        fold(numbers, elements_from(x, 2 * row * spectrum.bins), of_row, places, super_twiddles, n)
        transform(odd, negated, numbers, of_row, factors, roots, n, spectrum.stages)
        for i in range(2 * n):
            of_row[i] = divided(of_row[i], 2 * n)
        for i in range(2 * n, samples):
            of_row[i] = 0
    return DONE


# --- Binding -----------------------------------------------------------------------------------------------------

MAX_PAIRS = 1 << 16
"""Maximum number of pairs: places have 16 bits."""


def sources_of(config: KissFftrConfig) -> npt.NDArray[np.uint16]:
    """Return the source of each pair of the first stage: its index with the digits reversed in the bases of the
    factors."""
    places, step = np.zeros(1, np.int64), config.n
    for factor in config.factors[::-1]:
        step //= factor
        places = np.concatenate([places + digit * step for digit in range(factor)])
    return places.astype(np.uint16)


def _bind(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    """Bind SignalRfft or SignalIrfft; None for too many pairs."""
    op: FftOpData = node.op_data
    x, y, is_inverse = node.eval_input(0).elements, node.eval_output(0).elements, node.operator == "SignalIrfft"
    config = op.config(inverse=is_inverse)
    if not x.size or config.n > MAX_PAIRS:
        return None if x.size else clear_steps(y.reshape(-1))
    factors, sources, type = config.factors[::-1], sources_of(config), x.dtype.name
    (samples, bins), rows = (y, x) if is_inverse else (x, y), x.size // x.shape[-1]
    spectrum = Spectrum(rows, samples.shape[-1], bins.shape[-1] // 2, config.n, len(factors))
    is_whole = spectrum.samples >= 2 * config.n
    step = (irfft if is_inverse else rfft).step(
        odd="odd" if any(factor % 2 for factor in factors) else "none",
        **dict.fromkeys(Numbers._fields, type),
        **({"divided": type} if is_inverse else {"order": "whole" if is_whole else "padded"}),
        x=x,
        y=y,
        factors=np.array(factors, np.int16),
        places=np.argsort(sources).astype(np.uint16) if is_inverse else sources,
        roots=config.twiddles.astype(x.dtype).reshape(-1),
        super_twiddles=config.super_twiddles.astype(x.dtype).reshape(-1),
        spectrum=spectrum,
    )
    written = rows * (samples.shape[-1] if is_inverse else 2 * spectrum.bins)
    return [step, *clear_steps(y.reshape(-1)[written:])]


BINDINGS = {"SignalIrfft": _bind, "SignalRfft": _bind}
