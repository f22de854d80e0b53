"""SignalRfft and SignalIrfft: transforms with kissfft's arithmetic, as in `tflm.kernels.reference.signal.fft`.

A row of 2n real values is transformed as n complex ones, pairs (real, imaginary), in stages. A stage of factor f
divides its values by f (fixed point only), multiplies all but the first of its f slots by roots of unity (twiddle
factors), applies a butterfly to the slots, and permutes them for the next stage. Slots have m = n / f pairs each.

Fixed-point samples are computed in integers twice as wide. Types differ in how a product is rounded to a sample, how a
sum wraps, and how it is halved: kernels are given three functions for these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from tflm.compiler.language import DONE, Elements, Int32s, Int64s, Step, inlined, kernel
from tflm.delegates.compiled.casts import as_float32, as_int16, as_int32, as_int64
from tflm.delegates.compiled.signal import clear_steps
from tflm.delegates.compiled.work_arrays import work_array
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.reference.signal.fft import FftOpData, KissFftrConfig

# --- Arithmetic of samples ---------------------------------------------------------------------------------------


@inlined
def rounded_16(product: Any) -> Any:
    """Round a product of two Q0.15 to Q0.15, halves up."""
    return as_int32(as_int16(as_int32(as_int32(product) + (1 << 14)) >> 15))


@inlined
def wrapped_16(value: Any) -> Any:
    """Wrap a sum to a sample."""
    return as_int32(as_int16(value))


@inlined
def halved_16(value: Any) -> Any:
    """Halve a sum, without wrapping it."""
    return as_int32(as_int16(value >> 1))


@inlined
def rounded_32(product: Any) -> Any:
    """Round a product of two Q0.31 to Q0.31, halves up."""
    return as_int64(as_int32((product + (1 << 30)) >> 31))


@inlined
def wrapped_32(value: Any) -> Any:
    """Wrap a sum to a sample."""
    return as_int64(as_int32(value))


@inlined
def halved_32(value: Any) -> Any:
    """Wrap a sum, then halve it."""
    return as_int64(as_int32(value)) >> 1


@inlined
def unchanged(value: Any) -> Any:
    """Return a product or sum of floats."""
    return value


@inlined
def halved_float(value: Any) -> Any:
    """Halve a sum."""
    return value * as_float32(0.5)


@inlined
def undivided(value: Any, _count: int) -> Any:
    """Return a fixed-point sample: the transform has already divided it."""
    return value


@inlined
def divided_float(value: Any, count: int) -> Any:
    """Divide a float sample by the number of samples."""
    return value / as_float32(count)


# --- Butterflies -------------------------------------------------------------------------------------------------


@inlined
def divide(rounded: Any, x: Any, y: Any, factor: Any, count: int) -> int:
    """Set the first pairs of y to those of x times a factor."""
    for i in range(2 * count):
        y[i] = rounded(x[i] * factor)
    return count


@inlined
def divide_and_turn(rounded: Any, x: Any, roots: Any, y: Any, factor: Any, root: int, first: int, last: int) -> int:
    """Set further pairs of y to those of x times a factor, and then times their roots, which start at `root`."""
    for i in range(first, last):
        real, imaginary = rounded(x[2 * i] * factor), rounded(x[2 * i + 1] * factor)
        c, s = roots[root + 2 * i], roots[root + 2 * i + 1]
        y[2 * i] = rounded(real * c - imaginary * s)
        y[2 * i + 1] = rounded(real * s + imaginary * c)
    return last


@inlined
def add_and_subtract(wrapped: Any, x: Any, y: Any, a: int, b: int, m: int) -> int:
    """Set slots a and b of y to the sum and the difference of these slots of x."""
    for i in range(2 * m):
        left, right = x[2 * m * a + i], x[2 * m * b + i]
        y[2 * m * a + i] = wrapped(left + right)
        y[2 * m * b + i] = wrapped(left - right)
    return m


@inlined
def add_and_subtract_upright(wrapped: Any, x: Any, y: Any, a: int, b: int, sign: Any, m: int) -> int:
    """Do the same with slot b multiplied by i, or by -i if the sign is negative."""
    for i in range(m):
        to_a, to_b = 2 * m * a + 2 * i, 2 * m * b + 2 * i
        real, imaginary = x[to_b + 1] * sign, x[to_b] * sign
        left_real, left_imaginary = x[to_a], x[to_a + 1]
        y[to_a], y[to_a + 1] = wrapped(left_real - real), wrapped(left_imaginary + imaginary)
        y[to_b], y[to_b + 1] = wrapped(left_real + real), wrapped(left_imaginary - imaginary)
    return m


@inlined
def combine_3(rounded: Any, wrapped: Any, halved: Any, x: Any, y: Any, height: Any, m: int) -> int:
    """Apply the butterfly to three slots. The second and third results are the sum and the difference of two terms."""
    for i in range(m):
        for part in range(2):
            at, other = 2 * i + part, 2 * i + 1 - part
            total = wrapped(x[2 * m + at] + x[4 * m + at])
            upright = rounded(wrapped(x[2 * m + other] - x[4 * m + other]) * height)
            upright = upright if part else -upright
            middle = x[at] - halved(total)
            y[at] = wrapped(x[at] + total)
            y[2 * m + at] = wrapped(middle + upright)
            y[4 * m + at] = wrapped(middle - upright)
    return m


@inlined
def combine_5(rounded: Any, wrapped: Any, x: Any, y: Any, c1: Any, s1: Any, c2: Any, s2: Any, m: int) -> int:
    """Apply the butterfly to five slots, with two roots of unity. Two pairs of results are each the sum and the
    difference of two terms."""
    for i in range(m):
        for part in range(2):
            at, other = 2 * i + part, 2 * i + 1 - part
            sum1, sum2 = wrapped(x[2 * m + at] + x[8 * m + at]), wrapped(x[4 * m + at] + x[6 * m + at])
            difference1 = wrapped(x[2 * m + other] - x[8 * m + other])
            difference2 = wrapped(x[4 * m + other] - x[6 * m + other])
            middle1 = x[at] + rounded(sum1 * c1) + rounded(sum2 * c2)
            middle2 = x[at] + rounded(sum1 * c2) + rounded(sum2 * c1)
            upright1 = rounded(difference1 * s1) + rounded(difference2 * s2)
            upright2 = rounded(difference1 * s2) - rounded(difference2 * s1)
            upright1, upright2 = (upright1, upright2) if part else (-upright1, -upright2)
            y[at] = wrapped(x[at] + wrapped(sum1 + sum2))
            y[2 * m + at] = wrapped(middle1 + upright1)
            y[8 * m + at] = wrapped(middle1 - upright1)
            y[4 * m + at] = wrapped(middle2 + upright2)
            y[6 * m + at] = wrapped(middle2 - upright2)
    return m


@inlined
def order_pairs(x: Any, y: Any, orders: Any, first: int, n: int) -> int:
    """Set the pairs of y to permuted pairs of x; the permutation starts at `first`."""
    for i in range(n):
        pair = 2 * as_int64(orders[first + i])
        y[2 * i], y[2 * i + 1] = x[pair], x[pair + 1]
    return n


# --- Transforms --------------------------------------------------------------------------------------------------

INVERSE, HEIGHT_3, ROOTS_5 = 0, 6, 7
"""Indices of further constants, after the divisors: the sign of i, the sine of a third of a circle, and cosine and sine
of a fifth and of two fifths of a circle."""


@inlined
def transform(
    rounded: Any,
    wrapped: Any,
    halved: Any,
    x: Any,
    y: Any,
    stages: Any,
    roots: Any,
    constants: Any,
    orders: Any,
    n: int,
) -> Any:
    """Transform n pairs of x, and return the array with the result: x, or y, the other one being scratch memory.

    Args:
        stages: the number of stages, and their factors.
        roots: for each stage, n pairs.
        constants: 1 / factor, for factors up to 5, and further constants.
        orders: for each stage, the source of each pair.
    """
    for stage in range(stages[0]):
        factor = stages[1 + stage]
        m, first = n // factor, n * stage
        divide(rounded, x, y, constants[factor], m)
        divide_and_turn(rounded, x, roots, y, constants[factor], 2 * first, m, n)
        if factor == 4:
            add_and_subtract(wrapped, y, x, 0, 2, m)
            add_and_subtract(wrapped, y, x, 1, 3, m)
            add_and_subtract(wrapped, x, y, 0, 1, m)
            add_and_subtract_upright(wrapped, x, y, 2, 3, constants[INVERSE], m)
            x, y = y, x
        elif factor == 2:
            add_and_subtract(wrapped, y, x, 0, 1, m)
        elif factor == 3:
            combine_3(rounded, wrapped, halved, y, x, constants[HEIGHT_3], m)
        else:
            c1, s1, c2, s2 = constants[ROOTS_5], constants[ROOTS_5 + 1], constants[ROOTS_5 + 2], constants[ROOTS_5 + 3]
            combine_5(rounded, wrapped, y, x, c1, s1, c2, s2, m)
        order_pairs(x, y, orders, first, n)
        x, y = y, x
    return x


@inlined
def mirrored_sums(
    rounded: Any, wrapped: Any, x: Any, place: int, mirrored: int, roots: Any, k: int, half: Any
) -> tuple[Any, Any, Any, Any]:
    """Return half the sum of bin k and its conjugated mirror image, and half their difference times a root of unity.

    Both results have a real and an imaginary part; `place` and `mirrored` are the indices of the bins.
    """
    real, imaginary = rounded(x[place] * half), rounded(x[place + 1] * half)
    mirrored_real, mirrored_imaginary = rounded(x[mirrored] * half), rounded(wrapped(-x[mirrored + 1]) * half)
    sum_real, sum_imaginary = real + mirrored_real, imaginary + mirrored_imaginary
    real, imaginary = real - mirrored_real, imaginary - mirrored_imaginary
    c, s = roots[2 * k - 2], roots[2 * k - 1]
    return sum_real, sum_imaginary, rounded(real * c - imaginary * s), rounded(real * s + imaginary * c)


@inlined
def unravel(rounded: Any, wrapped: Any, halved: Any, x: Any, roots: Any, half: Any, y: Any, to: int, n: int) -> int:
    """Compute the spectrum of real values, n + 1 bins from index `to`, from the spectrum of their pairs as complex
    values."""
    real, imaginary = rounded(x[0] * half), rounded(x[1] * half)
    y[to], y[to + 1] = wrapped(real + imaginary), 0
    y[to + 2 * n], y[to + 2 * n + 1] = wrapped(real - imaginary), 0
    for k in range(1, n // 2 + 1):
        mirrored = 2 * (n - k)
        sum_real, sum_imaginary, turned_real, turned_imaginary = mirrored_sums(
            rounded, wrapped, x, 2 * k, mirrored, roots, k, half
        )
        y[to + 2 * k] = halved(sum_real + turned_real)
        y[to + 2 * k + 1] = halved(sum_imaginary + turned_imaginary)
        y[to + mirrored] = halved(sum_real - turned_real)
        y[to + mirrored + 1] = halved(turned_imaginary - sum_imaginary)
    return n


@inlined
def fold(rounded: Any, wrapped: Any, x: Any, start: int, roots: Any, half: Any, y: Any, n: int) -> int:
    """Compute the spectrum of pairs of real values as complex values from n + 1 bins of x, from index `start`."""
    first, last = x[start], x[start + 2 * n]
    y[0], y[1] = rounded(wrapped(first + last) * half), rounded(wrapped(first - last) * half)
    for k in range(1, n // 2 + 1):
        mirrored = 2 * (n - k)
        sum_real, sum_imaginary, turned_real, turned_imaginary = mirrored_sums(
            rounded, wrapped, x, start + 2 * k, start + mirrored, roots, k, half
        )
        y[2 * k], y[2 * k + 1] = wrapped(sum_real + turned_real), wrapped(sum_imaginary + turned_imaginary)
        y[mirrored], y[mirrored + 1] = wrapped(sum_real - turned_real), wrapped(turned_imaginary - sum_imaginary)
    return n


ROUNDED = {"int16": rounded_16, "int32": rounded_32, "float32": unchanged}
WRAPPED = {"int16": wrapped_16, "int32": wrapped_32, "float32": unchanged}
HALVED = {"int16": halved_16, "int32": halved_32, "float32": halved_float}
DIVIDED = {"int16": undivided, "int32": undivided, "float32": divided_float}

Rounded = Annotated[Callable[..., Any], ROUNDED]
Wrapped = Annotated[Callable[..., Any], WRAPPED]
Halved = Annotated[Callable[..., Any], HALVED]
Divided = Annotated[Callable[..., Any], DIVIDED]


@kernel
def rfft(
    rounded: Rounded,
    wrapped: Wrapped,
    halved: Halved,
    x: Elements,
    y: Elements,
    work: Elements,
    spare: Elements,
    stages: Int64s,
    roots: Elements,
    constants: Elements,
    orders: Int32s,
    super_twiddles: Elements,
    shape: Int64s,
) -> int:
    """Compute SignalRfft. The shape contains: rows, samples in a row of x, bins in a row of y, pairs of a transform."""
    n, given = shape[3], min(shape[1], 2 * shape[3])
    for row in range(shape[0]):
        for i in range(given):
            work[i] = x[row * shape[1] + i]
        for i in range(given, 2 * n):
            work[i] = 0
        values = transform(rounded, wrapped, halved, work, spare, stages, roots, constants, orders, n)
        unravel(rounded, wrapped, halved, values, super_twiddles, constants[2], y, 2 * row * shape[2], n)
        for i in range(2 * (n + 1), 2 * shape[2]):
            y[2 * row * shape[2] + i] = 0
    return DONE


@kernel
def irfft(
    rounded: Rounded,
    wrapped: Wrapped,
    halved: Halved,
    divided: Divided,
    x: Elements,
    y: Elements,
    work: Elements,
    spare: Elements,
    stages: Int64s,
    roots: Elements,
    constants: Elements,
    orders: Int32s,
    super_twiddles: Elements,
    shape: Int64s,
) -> int:
    """Compute SignalIrfft. The shape contains: rows, bins in a row of x, samples in a row of y, pairs of a
    transform."""
    n = shape[3]
    for row in range(shape[0]):
        fold(rounded, wrapped, x, 2 * row * shape[1], super_twiddles, constants[2], work, n)
        values = transform(rounded, wrapped, halved, work, spare, stages, roots, constants, orders, n)
        for i in range(2 * n):
            y[row * shape[2] + i] = divided(values[i], 2 * n)
        for i in range(2 * n, shape[2]):
            y[row * shape[2] + i] = 0
    return DONE


LANES: dict[str, npt.DTypeLike] = {"int16": np.int32, "int32": np.int64, "float32": np.float32}
"""The type in which samples are computed."""

SLOTS_OF_4 = (0, 2, 1, 3)
"""Slots of the results of a butterfly of four."""


def _bind_rfft(context: KernelContext, node: Node) -> list[Step] | None:
    op: FftOpData = node.op_data
    input, output = node.eval_input(0), node.eval_output(0)
    x, y = input.elements, output.elements.reshape(-1)
    if not x.size:
        return clear_steps(y)
    rows, bins, type = x.size // x.shape[-1], output.dims[-1] // 2, x.dtype.name
    shape = np.array([rows, x.shape[-1], bins, op.length // 2], np.int64)
    arguments = _constants(op.config(inverse=False), LANES[type])
    step = rfft.step(rounded=type, wrapped=type, halved=type, x=x, y=y, **arguments, shape=shape)
    return [step, *clear_steps(y[2 * rows * bins :])]


def _bind_irfft(context: KernelContext, node: Node) -> list[Step] | None:
    op: FftOpData = node.op_data
    x, y = node.eval_input(0).elements, node.eval_output(0).elements
    if not x.size:
        return clear_steps(y.reshape(-1))
    rows, type = x.size // x.shape[-1], x.dtype.name
    shape = np.array([rows, x.shape[-1] // 2, y.shape[-1], op.length // 2], np.int64)
    arguments = _constants(op.config(inverse=True), LANES[type])
    step = irfft.step(rounded=type, wrapped=type, halved=type, divided=type, x=x, y=y, **arguments, shape=shape)
    return [step, *clear_steps(y.reshape(-1)[rows * y.shape[-1] :])]


def _constants(config: KissFftrConfig, lane: npt.DTypeLike) -> dict[str, npt.NDArray[Any]]:
    """Return everything that a transform needs except its input, its output and their shape."""
    n, unit = config.n, config.twiddles
    stages = config.factors[::-1]
    roots, orders = np.empty((len(stages), n, 2), lane), np.empty((len(stages), n), np.int32)
    rest, positions = n, 1
    for stage, factor in enumerate(stages):
        rest //= factor
        steps = np.multiply.outer(np.arange(factor, dtype=np.intp), np.arange(positions, dtype=np.intp)) * (
            n // (factor * positions)
        )
        roots[stage] = unit[np.broadcast_to(steps[:, np.newaxis], (factor, rest, positions)).reshape(-1)]
        pairs = np.arange(n, dtype=np.intp).reshape(factor, rest, positions)
        orders[stage] = (pairs[SLOTS_OF_4, ...] if factor == 4 else pairs).swapaxes(0, 1).reshape(-1)
        positions *= factor
    divisors = range(1, 6) if config.scalar.fraction_bits else [1] * 5  # floats are divided at the end
    parts = [config.scalar.samp_max // divisor for divisor in divisors]
    sign = 1 if config.inverse else -1
    return {
        "work": work_array(2 * n, lane),
        "spare": work_array(2 * n, lane),
        "stages": np.array([len(stages), *stages], np.int64),
        "roots": roots.reshape(-1),
        "constants": np.array([sign, *parts, unit[n // 3, 1], *unit[n // 5], *unit[2 * n // 5]], lane),
        "orders": orders.reshape(-1),
        "super_twiddles": config.super_twiddles.astype(lane).reshape(-1),
    }


BINDINGS = {"SignalIrfft": _bind_irfft, "SignalRfft": _bind_rfft}
