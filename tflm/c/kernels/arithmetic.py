"""ADD, SUB and MUL of integers on small processors, without look-up tables."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.c.kernels import broadcasts
from tflm.c.kernels.broadcasts import broadcast
from tflm.c.kernels.part import Part, StepOrLoop
from tflm.compiler.intrinsics import int8_from
from tflm.compiler.language import DONE, Elements, Int8s, Step, inlined, kernel, unrolled
from tflm.delegates.compiled.casts import as_int32, as_int64
from tflm.delegates.compiled.fixed_point import multiplier_of
from tflm.delegates.compiled.requantization import Clamp, Requantizer, Rounding, exact_requantizer
from tflm.kernels.arithmetic.requantization import Requantization
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.reference.arithmetic import Addend, Product, Sum

NARROW_INTEGERS = True

COMBINATIONS: dict[str, Callable[..., Any]] = {"ADD": lambda a, b: a + b, "SUB": lambda a, b: a - b}
"""The function of two terms, by operator."""

Combination = Annotated[Callable[..., Any], COMBINATIONS]


class Terms(NamedTuple):
    """Constants of a sum or difference of two inputs.

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
    """Compute the sum or the difference of two inputs after scaling both to a common scale."""
    significand1, significand2, significand = terms.significand1, terms.significand2, terms.significand
    at1 = 0
    at2 = 0
    for i in range(terms.size):
        value1 = (x1[at1] - terms.zero_point1) << terms.left
        value2 = (x2[at2] - terms.zero_point2) << terms.left
        term1 = scaled_term(value1, significand1, terms.right1)
        term2 = scaled_term(value2, significand2, terms.right2)
        total = as_int32(combination(term1, term2))
        y[i] = clamp(
            rounding(total, significand, terms.addend, terms.shift), terms.activation_min, terms.activation_max
        )
        at1 += terms.step1
        at2 += terms.step2
    return DONE


class Line(NamedTuple):
    """A linear function of the elements of two inputs.

    Attributes:
        size: number of elements of each.
        factor1, factor2, addend, shift: the result is (x1 * factor1 + x2 * factor2 + addend) >> shift.
        activation_min, activation_max: limits of the output.
    """

    size: int
    factor1: int
    factor2: int
    addend: int
    shift: int
    activation_min: int
    activation_max: int


@kernel
def combine_linearly(clamp: Clamp, x1: Int8s, x2: Int8s, y: Int8s, line: Line) -> int:
    """Compute the sum or the difference of two inputs with constants that are exact for all pairs of elements."""
    factor1, factor2, addend, shift = line.factor1, line.factor2, line.addend, line.shift
    for _four in range(line.size >> 2):
        for k in unrolled(4):
            y[k] = clamp(
                (x1[k] * factor1 + x2[k] * factor2 + addend) >> shift, line.activation_min, line.activation_max
            )
        x1 = int8_from(x1, 4)
        x2 = int8_from(x2, 4)
        y = int8_from(y, 4)
    for k in range(line.size & 3):
        y[k] = clamp((x1[k] * factor1 + x2[k] * factor2 + addend) >> shift, line.activation_min, line.activation_max)
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
        y[i] = clamp(value, factors.activation_min, factors.activation_max)
        at1 += factors.step1
        at2 += factors.step2
    return DONE


def _requantizer(output: Requantization, limit: int, dtype: np.dtype[Any]) -> Requantizer | None:
    """Return the requantizer of integers up to a limit."""
    return exact_requantizer(output.multiplier, output.stage, np.zeros(1, np.int64), np.array([limit], np.int64), dtype)


def bind(context: KernelContext, node: Node, part: Part | None = None) -> Sequence[StepOrLoop] | None:
    """Bind ADD, SUB or MUL."""
    op, dtype = node.op_data, node.eval_output(0).elements.dtype
    if not isinstance(op, (Sum, Product)) or dtype not in (np.int8, np.int16):
        return broadcasts.bind(context, node)

    def bind_whole(operands: Sequence[npt.NDArray[Any]]) -> Sequence[Step] | None:
        x1, x2, y = operands
        arrays = {"x1": x1, "x2": x2, "y": y}
        steps = {"size": y.size, "step1": int(x1.size == y.size), "step2": int(x2.size == y.size)}
        return _bind_sum(node.operator, op, arrays, steps) if isinstance(op, Sum) else _bind_product(op, arrays, steps)

    def bind_rows(operands: Sequence[npt.NDArray[Any]]) -> Sequence[Step] | None:
        is_spread = len({operand.size for operand in operands}) > 1
        is_linear = isinstance(op, Sum) and dtype == np.int8 and linear_constants(op) is not None
        return None if is_spread and is_linear else bind_whole(operands)

    return broadcast(node, 2, bind_rows, bind_whole=bind_whole) or broadcasts.bind(context, node)


HIGHEST_SHIFT, LEAST_SHIFT = 23, 12
NEARBY = sorted(itertools.product(range(-2, 3), repeat=2), key=lambda pair: abs(pair[0]) + abs(pair[1]))
"""Offsets from the rounded factors to try, the smallest first."""


@functools.lru_cache(256)
def linear_constants(op: Sum) -> tuple[int, int, int, int] | None:
    """Find constants of `Line` that are exact for all pairs of int8 elements; None if there are none."""
    elements = np.arange(-128, 128, dtype=np.int64)
    outputs = op(elements[:, np.newaxis], elements[np.newaxis]).astype(np.int64)
    is_above, is_below = outputs > op.output.stage.minimum, outputs < op.output.stage.maximum
    scale = _real(op.output.multiplier)
    slopes = [_real(each.multiplier) * 2.0**each.left_shift * scale for each in (op.addend1, op.addend2)]
    if op.combine is np.subtract:
        slopes[1] = -slopes[1]
    for shift in range(HIGHEST_SHIFT, LEAST_SHIFT, -1):
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


def _real(multiplier: Any) -> float:
    real: float = math.ldexp(int(multiplier.significand), int(multiplier.shift) - 31)
    return real


def _bind_linear(op: Sum, arrays: dict[str, npt.NDArray[Any]]) -> list[Step] | None:
    """Return the step of an int8 sum that has exact linear constants."""
    constants = linear_constants(op) if {len(array) for array in arrays.values()} == {arrays["y"].size} else None
    if constants is None or any(array.dtype != np.int8 for array in arrays.values()):
        return None
    stage = op.output.stage
    factor1, factor2, addend, shift = constants
    is_whole = (stage.minimum, stage.maximum) == (-128, 127)
    clamp, offset = ("int8", 128 << shift) if is_whole else ("limits", 0)
    line = Line(arrays["y"].size, factor1, factor2, addend + offset, shift, stage.minimum, stage.maximum)
    return [combine_linearly.step(clamp=clamp, **arrays, line=line)]


def _bind_sum(operator: str, op: Sum, arrays: dict[str, npt.NDArray[Any]], steps: dict[str, int]) -> list[Step] | None:
    linear = _bind_linear(op, arrays) if arrays["y"].dtype == np.int8 else None
    if linear is not None:
        return linear
    limit = 0
    of_terms: dict[str, int] = {}
    for number, term in enumerate((op.addend1, op.addend2), 1):
        significand, left, right = multiplier_of(term.multiplier)
        largest = _magnitude(arrays["y"].dtype, term) << term.left_shift
        if left or right > 31 or largest >= 1 << 31:
            return None
        of_terms |= {
            f"zero_point{number}": term.zero_point,
            f"significand{number}": significand,
            f"right{number}": right,
        }
        limit += (largest >> right) + 1
    scaling = _requantizer(op.output, limit, arrays["y"].dtype)
    if scaling is None:
        return None
    terms = Terms(**steps, **of_terms, left=op.addend1.left_shift, **_output(scaling))
    names = {"combination": operator, "rounding": scaling.rounding, "clamp": scaling.clamp}
    return [combine.step(**names, **arrays, terms=terms)]


def _bind_product(op: Product, arrays: dict[str, npt.NDArray[Any]], steps: dict[str, int]) -> list[Step] | None:
    info = np.iinfo(arrays["y"].dtype)
    limit = (int(info.max) - int(info.min)) ** 2 if arrays["y"].dtype == np.int8 else int(info.min) ** 2
    scaling = _requantizer(op.output, limit, arrays["y"].dtype)
    if scaling is None or (arrays["y"].dtype == np.int16 and (op.zero_point1 or op.zero_point2)):
        return None
    factors = Factors(**steps, zero_point1=op.zero_point1, zero_point2=op.zero_point2, **_output(scaling))
    return [multiply.step(rounding=scaling.rounding, clamp=scaling.clamp, **arrays, factors=factors)]


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
