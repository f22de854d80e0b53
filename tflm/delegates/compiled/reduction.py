"""MEAN, SUM, REDUCE_MAX, REDUCE_MIN and REDUCE_ALL; ARG_MAX and ARG_MIN; CUMSUM: reductions and sums along axes.

A kernel computes one output at a time, in the order of the elements, without scratch memory. It reads the axes when it
runs, because they can change from invoke to invoke. CUMSUM's tensor is (outer, along, inner): the dimensions before the
axis, the axis, and the dimensions after it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.compiler.language import DONE, REFUSED, Elements, Float32s, Int8s, Int32s, Step, inlined, kernel
from tflm.compiler.processor import Profile
from tflm.delegates.compiled.casts import as_float32, as_int32, as_int64
from tflm.delegates.compiled.fixed_point import (
    Multiplier,
    Stage,
    clamped,
    multiplier_of,
    requantization,
    scaled,
    wrapped,
)
from tflm.errors import OperatorError
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.reference.reduce import (
    AXIS,
    INPUT,
    TERM_SHIFT,
    CumsumQuantization,
    Rescaling,
    check_dimension,
    check_output,
    lowest_and_highest,
    resolved_axes,
)
from tflm.kernels.support.elementwise import as_numbers
from tflm.schema.options import CumsumOptions

COMPARISONS: dict[str, Callable[..., Any]] = {"greater": lambda a, b: a > b, "less": lambda a, b: a < b}
Comparison = Annotated[Callable[..., Any], COMPARISONS]


class Strided(NamedTuple):
    """Sizes of a reduction along any axes.

    Attributes:
        rank: number of dimensions.
        axis_count: number of axes; some may be the same.
        along: product of the sizes of all axes.
        outputs: number of outputs.
    """

    rank: int
    axis_count: int
    along: int
    outputs: int


MAX_RANK = 30
"""Maximum rank: a kernel has a bit for each dimension."""


@inlined
def set_of_axes(axes: Int32s, axis_count: int, rank: int) -> int:
    """Return a bit for each dimension that is an axis."""
    found = 0
    for k in range(axis_count):
        found |= 1 << (axes[k] + rank if axes[k] < 0 else axes[k])
    return found


@kernel
def check_axes(axes: Int32s, dims: Int32s, sizes: Strided) -> int:
    """Refuse axes that are out of range, or whose sizes do not match."""
    for k in range(sizes.axis_count):
        if axes[k] < -sizes.rank or axes[k] >= sizes.rank:
            return REFUSED
    found, product = set_of_axes(axes, sizes.axis_count, sizes.rank), 1
    for d in range(sizes.rank):
        product *= dims[d] if (found >> d) & 1 else 1
    return DONE if product == sizes.along else REFUSED


@inlined
def innermost(dimensions: int, dims: Int32s, rank: int) -> tuple[Any, Any]:
    """Return the size and the step of the innermost of some dimensions."""
    size, step, step_of_d = 0, 1, 1
    for d in range(rank - 1, -1, -1):
        if size == 0 and (dimensions >> d) & 1:
            size, step = dims[d], step_of_d
        step_of_d *= dims[d]
    return max(size, 1), step


@inlined
def offset_of(number: int, dimensions: int, dims: Int32s, rank: int) -> int:
    """Return the offset of the element with this number along some dimensions."""
    offset, step, rest = 0, 1, number
    for d in range(rank - 1, -1, -1):
        if (dimensions >> d) & 1:
            offset += rest % dims[d] * step
            rest //= dims[d]
        step *= dims[d]
    return offset


COMBINATIONS: dict[str, Callable[..., Any]] = {
    "sum": lambda total, x: total + x,
    "greater": lambda best, x: x if x > best else best,
    "less": lambda best, x: x if x < best else best,
    "all": lambda all, x: all & x,
}
"""Combines the result so far with an element. A NaN is neither greater nor less."""

RESULTS: dict[str, Callable[..., Any]] = {
    "sum": lambda total, divisor: total / divisor,
    **dict.fromkeys(("greater", "less", "all"), lambda best, divisor: best),
}
"""Computes the output from the last result and the divisor."""

Combination = Annotated[Callable[..., Any], COMBINATIONS]
Result = Annotated[Callable[..., Any], RESULTS]


@inlined
def combined_along(
    combination: Any,
    x: Elements,
    first: int,
    start: Any,
    axes: int,
    size: int,
    step: int,
    dims: Int32s,
    rank: int,
    along: int,
) -> Any:
    """Return the elements along a set of axes, the innermost of which has this size and step, combined in their
    order."""
    total = start
    for j in range(0, along, size):
        place = first + (offset_of(j, axes, dims, rank) if j > 0 else 0)
        for _i in range(size):
            total = combination(total, x[place])
            place += step
    return total


@inlined
def wrapped_sum(total: Any, x: Any) -> Any:
    """Add, wrapping to 32 bits as TFLM does."""
    return as_int32(total + x)


@kernel
def sum_integers(
    x: Elements,
    y: Elements,
    axes: Int32s,
    dims: Int32s,
    sizes: Strided,
    zero_points: int,
    multiplier: Multiplier,
    stage: Stage,
) -> int:
    """Sum up integers without the zero points of the terms, and requantize. Sums wrap to 32 bits, as in TFLM."""
    found = set_of_axes(axes, sizes.axis_count, sizes.rank)
    size, step = innermost(found, dims, sizes.rank)
    row, row_step = innermost(~found, dims, sizes.rank)
    for k in range(0, sizes.outputs, row):
        first = offset_of(k, ~found, dims, sizes.rank)
        for i in range(row):
            total = combined_along(wrapped_sum, x, first, as_int32(0), found, size, step, dims, sizes.rank, sizes.along)
            value = scaled(as_int64(total) - zero_points, multiplier)
            y[k + i] = clamped(wrapped(value + stage.zero_point), stage.activation_min, stage.activation_max)
            first += row_step
    return DONE


@kernel
def combine(
    combination: Combination,
    result: Result,
    x: Elements,
    y: Elements,
    ends: Elements,
    axes: Int32s,
    dims: Int32s,
    sizes: Strided,
) -> int:
    """Combine elements, beginning with the first of `ends`; the second is the divisor."""
    found = set_of_axes(axes, sizes.axis_count, sizes.rank)
    size, step = innermost(found, dims, sizes.rank)
    row, row_step = innermost(~found, dims, sizes.rank)
    for k in range(0, sizes.outputs, row):
        first = offset_of(k, ~found, dims, sizes.rank)
        for i in range(row):
            last = combined_along(combination, x, first, ends[0], found, size, step, dims, sizes.rank, sizes.along)
            y[k + i] = result(last, ends[1])
            first += row_step
    return DONE


def strided_by(shape: Sequence[int], axes: npt.NDArray[np.int32], outputs: int) -> dict[str, Any] | None:
    """Return the arguments for a reduction along any axes; None for too many dimensions."""
    sizes = Strided(len(shape), axes.size if shape else 0, math.prod(shape) // outputs, outputs)
    return None if len(shape) > MAX_RANK else {"axes": axes, "dims": np.array(shape, np.int32), "sizes": sizes}


def _merged(shape: Sequence[int], axes: Collection[int]) -> tuple[list[int], npt.NDArray[np.int32]]:
    """Return the shape with adjacent axes as one dimension, and other adjacent dimensions as one; and its axes."""
    dimensions = (d for d, size in enumerate(shape) if size != 1)
    groups = [(is_axis, [*group]) for is_axis, group in itertools.groupby(dimensions, lambda d: d in axes)]
    found = [i for i, (is_axis, _) in enumerate(groups) if is_axis]
    return [math.prod(shape[d] for d in group) for _, group in groups], np.array(found, np.int32)


COMBINATION_OF = {"MEAN": "sum", "SUM": "sum", "REDUCE_MAX": "greater", "REDUCE_MIN": "less", "REDUCE_ALL": "all"}
"""The combination of elements, by operator."""


def _bind(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    input, axis = node.eval_input(0), node.eval_input(1)
    output = node.eval_output(0)
    x, y = as_numbers(input.elements), as_numbers(output.elements.reshape(-1))
    if not x.size or not y.size or x.size % y.size:
        return None
    shape: Sequence[int] = x.shape
    axes = axis.elements.reshape(-1)
    if axis.is_constant:
        resolved = resolved_axes(axes, input)
        try:
            check_output(resolved, input, output)
        except OperatorError:
            return None  # numpy rejects it when it runs
        shape, axes = _merged(shape, resolved)
    strided = strided_by(shape, axes, y.size)
    if strided is None:
        return None
    checks = [] if axis.is_constant else [check_axes.step(**strided)]
    return [*checks, reduce_step(node, x, y, strided, x.size // y.size)]


def reduce_step(node: Node, x: npt.NDArray[Any], y: npt.NDArray[Any], strided: dict[str, Any], along: int) -> Step:
    """Return the step that computes y from x, each output from `along` elements of the operator's input."""
    kind, divisor = COMBINATION_OF[node.operator], along if node.operator == "MEAN" else 1
    if kind == "sum" and x.dtype != np.float32:
        return sum_integers.step(x=x, y=y, **strided, **_scaling(node.op_data, y.dtype, along, divisor))
    ends = np.array([start_of(kind, x.dtype), divisor], x.dtype)
    return combine.step(combination=kind, result=kind, x=x, y=y, ends=ends, **strided)


def start_of(combination: str, dtype: np.dtype[Any]) -> Any:
    """Return the result before the first element is combined."""
    lowest, highest = lowest_and_highest(dtype)
    return {"sum": 0, "greater": lowest, "less": highest, "all": 1}[combination]


def _scaling(op: Rescaling, dtype: np.dtype[Any], along: int, divisor: int) -> dict[str, Any]:
    """Return the arguments that requantize the sum of `along` elements, divided by the divisor."""
    return {
        "zero_points": along * op.input_zero_point,
        "multiplier": multiplier_of(op.multiplier(divisor)),
        "stage": Stage(op.output_zero_point, *lowest_and_highest(dtype)),
    }


@inlined
def size_of(dims: Int32s, first: int, end: int) -> int:
    """Return the number of elements in a range of dimensions."""
    size: int = as_int32(1)
    for i in range(first, end):
        size = as_int32(size * dims[i])
    return size


@kernel
def index_of_extreme(
    better: Comparison, x: Elements, y: Int32s, axis: Int32s, dims: Int32s, rank: int, outputs: int
) -> int:
    """Find the index of the first of the best elements along an axis."""
    dimension = axis[0] + rank if axis[0] < 0 else axis[0]
    along, inner = dims[dimension], size_of(dims, dimension + 1, rank)
    for first in range(0, outputs, inner):
        for i in range(inner):
            place = first * along + i
            best, index = x[place], 0
            for j in range(1, along):
                place += inner
                if better(x[place], best):
                    best, index = x[place], j
            y[first + i] = index
    return DONE


@kernel
def add_up_float32(
    x: Float32s, y: Float32s, axis: Int32s, dims: Int32s, rank: int, is_exclusive: int, is_reversed: int
) -> int:
    """Compute sums of floats up to each element, including it or not."""
    dimension = axis[0] + rank if axis[0] < 0 else axis[0]
    if dimension < 0 or dimension >= rank:
        return REFUSED
    outer, along, inner = size_of(dims, 0, dimension), dims[dimension], size_of(dims, dimension + 1, rank)
    for i in range(outer):
        for k in range(inner):
            total = as_float32(0)
            for j in range(along):
                place = (i * along + (along - 1 - j if is_reversed else j)) * inner + k
                before = total
                total += x[place]
                y[place] = before if is_exclusive else total
    return DONE


@kernel
def add_up_int8(
    x: Int8s,
    y: Int8s,
    axis: Int32s,
    dims: Int32s,
    rank: int,
    is_exclusive: int,
    is_reversed: int,
    input_zero_point: int,
    multiplier: Multiplier,
    stage: Stage,
) -> int:
    """Compute the same for int8, and requantize.

    Sums wrap to 32 bits.
    """
    dimension = axis[0] + rank if axis[0] < 0 else axis[0]
    if dimension < 0 or dimension >= rank:
        return REFUSED
    outer, along, inner = size_of(dims, 0, dimension), dims[dimension], size_of(dims, dimension + 1, rank)
    for i in range(outer):
        for k in range(inner):
            total = as_int32(-input_zero_point)
            for j in range(along):
                place = (i * along + (along - 1 - j if is_reversed else j)) * inner + k
                before = total
                total = as_int32(as_int64(total) + x[place] - input_zero_point)
                terms = wrapped(as_int64(before if is_exclusive else total) << TERM_SHIFT)
                y[place] = clamped(
                    wrapped(scaled(terms, multiplier) + stage.zero_point), stage.activation_min, stage.activation_max
                )
    return DONE


def _bind_index(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    input, axis = node.eval_input(0), node.eval_input(1)
    output = node.eval_output(0)
    x, y, better = input.elements, output.elements.reshape(-1), "greater" if node.operator == "ARG_MAX" else "less"
    shape: Sequence[int] = x.shape
    axes = axis.elements.reshape(-1)[:1]
    if axis.is_constant:
        shape, axes = check_dimension(input, output, axes), np.array([1], np.int32)
    if not x.size or not y.size or x.size % y.size:
        return [] if axis.is_constant else None
    strided = strided_by(shape, axes, y.size)
    if strided is None:
        return None
    checks = [] if axis.is_constant else [check_axes.step(**strided)]
    dims = strided["dims"]
    return [
        *checks,
        index_of_extreme.step(better=better, x=x, y=y, axis=axes, dims=dims, rank=dims.size, outputs=y.size),
    ]


def _bind_cumsum(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    input, axis = (node.eval_input(i) for i in (INPUT, AXIS))
    options = node.options(CumsumOptions)
    arrays: dict[str, Any] = {
        "x": input.elements,
        "y": node.eval_output(0).elements,
        "axis": axis.elements.reshape(-1),
        "dims": np.array(input.dims, np.int32),
        "rank": len(input.dims),
        "is_exclusive": bool(options.exclusive),
        "is_reversed": bool(options.reverse),
    }
    op: CumsumQuantization | None = node.op_data
    if op is None:
        return [add_up_float32.step(**arrays)]
    return [add_up_int8.step(**arrays, input_zero_point=op.input_zero_point, **requantization(op.output))]


BINDINGS = {
    **dict.fromkeys(("MEAN", "REDUCE_ALL", "REDUCE_MAX", "REDUCE_MIN", "SUM"), _bind),
    "CUMSUM": _bind_cumsum,
    **dict.fromkeys(("ARG_MAX", "ARG_MIN"), _bind_index),
}
