"""ADD, SUB, MUL and SQUARED_DIFFERENCE of quantized inputs, each of the output's size or one element."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, Union

import numpy as np
import numpy.typing as npt

from tflm.compiler.intrinsics import int8_from
from tflm.compiler.language import DONE, Elements, Int8s, Int32s, Step, inlined, kernel, unrolled
from tflm.delegates.compiled.casts import as_int32, as_int64
from tflm.delegates.compiled.fixed_point import multiplier_of
from tflm.delegates.compiled.requantization import Clamp, Limits, Requantizer, Rounding, single_requantizer
from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier
from tflm.kernels.reference.arithmetic import Addend, Product, SquaredDifference, Sum

Combined = Union[Sum, SquaredDifference]
"""Operators whose inputs are scaled to a common scale first."""

COMBINATIONS: dict[str, Callable[..., Any]] = {
    "ADD": lambda a, b: a + b,
    "SUB": lambda a, b: a - b,
    "SQUARED_DIFFERENCE": lambda a, b: as_int64(a - b) * (a - b),
}
"""The function of two terms, by operator."""

Combination = Annotated[Callable[..., Any], COMBINATIONS]


class Terms(NamedTuple):
    """Constants of a function of two scaled inputs.

    Attributes:
        size: number of elements of the output.
        step1, step2: step from one element to the next: 1, or 0 for an input of one element.
        zero_point1 ... right2: each input's zero point and multiplier, a significand and a right shift.
        left: left shift that is applied to both inputs first.
        significand, addend, shift: as in the table of `requantization`.
        activation_min, activation_max: limits of the output.
    """

    size: int
    step1: int
    step2: int
    zero_point1: int
    significand1: int
    right1: int
    zero_point2: int
    significand2: int
    right2: int
    left: int
    significand: int
    addend: int
    shift: int
    activation_min: int
    activation_max: int


@inlined
def scaled_term(value: int, significand: int, right: int) -> Any:
    """A value times a significand in Q0.31 over 2^right, rounded twice."""
    high = as_int32((as_int64(value) * significand + (1 << 30)) >> 31)
    if right:
        high = (high + (high >> 31) + (1 << (right - 1))) >> right
    return high


@kernel
def combine(
    combination: Combination, rounding: Rounding, clamp: Clamp, x1: Elements, x2: Elements, y: Elements, terms: Terms
) -> int:
    """Compute a function of two inputs after scaling both to a common scale."""
    significand1, significand2, significand = terms.significand1, terms.significand2, terms.significand
    limits = Limits(terms.activation_min, terms.activation_max)
    at1 = 0
    at2 = 0
    for i in range(terms.size):
        value1 = (x1[at1] - terms.zero_point1) << terms.left
        value2 = (x2[at2] - terms.zero_point2) << terms.left
        term1 = scaled_term(value1, significand1, terms.right1)
        term2 = scaled_term(value2, significand2, terms.right2)
        total = as_int32(combination(term1, term2))
        y[i] = clamp(rounding(total, significand, terms.addend, terms.shift), limits)
        at1 += terms.step1
        at2 += terms.step2
    return DONE


@kernel
def combine_linearly(clamp: Clamp, x1: Int8s, x2: Int8s, y: Int8s, line: Int32s, size: int) -> int:
    """Compute the sum or the difference of two inputs with constants that are exact for all pairs of elements.

    Args:
        line: factor1, factor2, addend, shift and the limits of the output; before them, the result is
            (x1 * factor1 + x2 * factor2 + addend) >> shift.
    """
    factor1, factor2, addend, shift = line[0], line[1], line[2], line[3] & 31
    activation_min, activation_max = line[4], line[5]
    limits = Limits(activation_min, activation_max)
    for _four in range(size >> 2):
        for k in unrolled(4):
            y[k] = clamp(as_int32(as_int32(x1[k] * factor1 + x2[k] * factor2 + addend) >> shift), limits)
        x1 = int8_from(x1, 4)
        x2 = int8_from(x2, 4)
        y = int8_from(y, 4)
    for k in range(size & 3):
        y[k] = clamp(as_int32(as_int32(x1[k] * factor1 + x2[k] * factor2 + addend) >> shift), limits)
    return DONE


class Factors(NamedTuple):
    """Constants of a product of two inputs; attributes as in `Terms`."""

    size: int
    step1: int
    step2: int
    zero_point1: int
    zero_point2: int
    significand: int
    addend: int
    shift: int
    activation_min: int
    activation_max: int


@kernel
def multiply(rounding: Rounding, clamp: Clamp, x1: Elements, x2: Elements, y: Elements, factors: Factors) -> int:
    """Compute the product of two inputs."""
    at1 = 0
    at2 = 0
    for i in range(factors.size):
        total = (x1[at1] - factors.zero_point1) * (x2[at2] - factors.zero_point2)
        value = rounding(total, factors.significand, factors.addend, factors.shift)
        y[i] = clamp(value, Limits(factors.activation_min, factors.activation_max))
        at1 += factors.step1
        at2 += factors.step2
    return DONE


def step_of(
    operator: str, op: Combined | Product, x1: npt.NDArray[Any], x2: npt.NDArray[Any], y: npt.NDArray[Any]
) -> Step:
    """Return the step of flat arrays; an input may have a single element."""
    arrays = {"x1": x1, "x2": x2, "y": y}
    if isinstance(op, Product):
        return _step_of_product(op, arrays)
    return _linear_step(op, arrays) or _step_of_terms(operator, op, arrays)


HIGHEST_SHIFT, LOWEST_SHIFT = 23, 13
NEARBY = sorted(itertools.product(range(-2, 3), repeat=2), key=lambda pair: abs(pair[0]) + abs(pair[1]))
"""Offsets from the rounded factors to try, the smallest first."""


@functools.lru_cache(256)
def linear_constants(op: Sum) -> tuple[int, int, int, int] | None:
    """Find constants of `combine_linearly` that are exact for all pairs of int8 elements; None if there are none."""
    elements = np.arange(-128, 128, dtype=np.int64)
    outputs = op(elements[:, np.newaxis], elements[np.newaxis]).astype(np.int64)
    is_above, is_below = outputs > op.output.stage.minimum, outputs < op.output.stage.maximum
    scale = _real(op.output.multiplier)
    slopes = [_real(each.multiplier) * 2.0**each.left_shift * scale for each in (op.addend1, op.addend2)]
    if op.combine is np.subtract:
        slopes[1] = -slopes[1]
    for shift in range(HIGHEST_SHIFT, LOWEST_SHIFT - 1, -1):
        if sum(map(abs, slopes)) * 128 * 2.0**shift >= 1 << 31:
            continue
        for nearby in NEARBY:
            factor1, factor2 = (round(slope * 2.0**shift) + each for slope, each in zip(slopes, nearby))
            products = elements[:, np.newaxis] * factor1 + elements[np.newaxis] * factor2
            low = int(((outputs << shift) - products).max(initial=-FAR, where=is_above))
            end = int((((outputs + 1) << shift) - products).min(initial=FAR, where=is_below))
            if low < end:
                addend = max(low, min(end - 1, 0)) if -FAR in (low, -end) else (low + end) // 2
                if not _fits_int32(products, addend, addend + (128 << shift)):
                    break
                return factor1, factor2, addend, shift
    return None


def _fits_int32(products: npt.NDArray[np.int64], *addends: int) -> bool:
    """Whether the sum of the products fits in 32 bits, alone and with each addend."""
    lowest, highest = int(products.min()) + min(0, *addends), int(products.max()) + max(0, *addends)
    return lowest >= -(1 << 31) and highest < 1 << 31


FAR = 1 << 40
"""Larger than all addends."""


def _real(multiplier: QuantizedMultiplier) -> float:
    real: float = math.ldexp(int(multiplier.significand), int(multiplier.shift) - 31)
    return real


def line_of(op: Any, dtype: np.dtype[Any]) -> tuple[int, int, int, int] | None:
    """Return the linear constants of an int8 sum; None for other operators, and if there are none.

    With these, each input needs the size of the output.
    """
    return linear_constants(op) if dtype == np.int8 and isinstance(op, Sum) else None


def _linear_step(op: Combined, arrays: dict[str, npt.NDArray[Any]]) -> Step | None:
    size = arrays["y"].size
    constants = line_of(op, arrays["y"].dtype) if {array.size for array in arrays.values()} == {size} else None
    if constants is None:
        return None
    stage = op.output.stage
    factor1, factor2, addend, shift = constants
    is_whole = (stage.minimum, stage.maximum) == (-128, 127)
    clamp, offset = ("int8", 128 << shift) if is_whole else ("limits", 0)
    line = np.array([factor1, factor2, addend + offset, shift, stage.minimum, stage.maximum], np.int32)
    return combine_linearly.step(clamp=clamp, **arrays, line=line, size=size)


def _sizes(arrays: dict[str, npt.NDArray[Any]]) -> dict[str, int]:
    size = arrays["y"].size
    return {"size": size, "step1": int(arrays["x1"].size == size), "step2": int(arrays["x2"].size == size)}


def _step_of_terms(operator: str, op: Combined, arrays: dict[str, npt.NDArray[Any]]) -> Step:
    dtype, limits, of_terms = arrays["y"].dtype, list[int](), dict[str, int]()
    for number, term in enumerate((op.addend1, op.addend2), 1):
        significand, _, right = multiplier_of(term.multiplier)
        of_terms |= {
            f"zero_point{number}": term.zero_point,
            f"significand{number}": significand,
            f"right{number}": right,
        }
        limits.append((_magnitude(dtype, term) << term.left_shift >> right) + 1)
    limit = sum(limits) if isinstance(op, Sum) else min(sum(limits) ** 2, 1 << 31)
    scaling = single_requantizer(op.output.multiplier, op.output.stage, limit, dtype)
    terms = Terms(**_sizes(arrays), **of_terms, left=op.addend1.left_shift, **_output(scaling))
    return combine.step(combination=operator, rounding=scaling.rounding, clamp=scaling.clamp, **arrays, terms=terms)


def _step_of_product(op: Product, arrays: dict[str, npt.NDArray[Any]]) -> Step:
    info = np.iinfo(arrays["y"].dtype)
    limit = (int(info.max) - int(info.min)) ** 2 if info.bits == 8 else int(info.min) ** 2
    scaling = single_requantizer(op.output.multiplier, op.output.stage, limit, arrays["y"].dtype)
    zero_points = {"zero_point1": op.zero_point1, "zero_point2": op.zero_point2}
    factors = Factors(**_sizes(arrays), **zero_points, **_output(scaling))
    return multiply.step(rounding=scaling.rounding, clamp=scaling.clamp, **arrays, factors=factors)


def _magnitude(dtype: np.dtype[Any], term: Addend) -> int:
    """Return the largest absolute value of an input after subtracting its zero point."""
    info = np.iinfo(dtype)
    return max(int(info.max) - term.zero_point, term.zero_point - int(info.min))


def _output(scaling: Requantizer) -> dict[str, int]:
    _, significand, addend, shift = scaling.table.tolist()
    return {
        "significand": significand,
        "addend": addend,
        "shift": shift,
        "activation_min": scaling.activation_min,
        "activation_max": scaling.activation_max,
    }
