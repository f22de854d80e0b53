"""MEAN, SUM, REDUCE_MAX and REDUCE_MIN; ARG_MAX and ARG_MIN: reductions along constant axes.

A tensor is (outer, along, inner): the dimensions before the axes, the axes, and the dimensions after them. If the axes
are not adjacent, it is transposed first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from tflm.compiler.language import DONE, Elements, Float32s, Int32s, Step, kernel
from tflm.delegates.compiled.casts import as_int64
from tflm.delegates.compiled.elementwise import multiplier_parts
from tflm.delegates.compiled.fixed_point import clamped, scaled, wrapped
from tflm.delegates.compiled.movement import copy_steps
from tflm.delegates.compiled.work_arrays import work_array
from tflm.errors import OperatorError
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.reference.arg_min_max import check_dimension
from tflm.kernels.reference.reduce import Rescaling, check_output, lowest_and_highest, resolved_axes

COMPARISONS: dict[str, Callable[..., Any]] = {"greater": lambda a, b: a > b, "less": lambda a, b: a < b}
Comparison = Annotated[Callable[..., Any], COMPARISONS]


@kernel
def sum_integers(
    x: Elements,
    y: Elements,
    sums: Int32s,
    outer: int,
    along: int,
    inner: int,
    zero_points: int,
    significand: int,
    left: int,
    right: int,
    zero_point: int,
    least: int,
    most: int,
) -> int:
    """Sums less the zero points of their terms, requantized. They wrap to 32 bits, as TFLM's do."""
    for i in range(outer):
        for k in range(inner):
            sums[k] = 0
        for j in range(along):
            first = (i * along + j) * inner
            for k in range(inner):
                sums[k] += x[first + k]
        for k in range(inner):
            value = scaled(as_int64(sums[k]) - zero_points, significand, left, right)
            y[i * inner + k] = clamped(wrapped(value + zero_point), least, most)
    return DONE


@kernel
def sum_floats(x: Float32s, y: Float32s, sums: Float32s, outer: int, along: int, inner: int, divisor: Float32s) -> int:
    """Sums in the order of the elements, divided."""
    count = divisor[0]
    for i in range(outer):
        for k in range(inner):
            sums[k] = 0
        for j in range(along):
            first = (i * along + j) * inner
            for k in range(inner):
                sums[k] += x[first + k]
        for k in range(inner):
            y[i * inner + k] = sums[k] / count
    return DONE


@kernel
def extreme(better: Comparison, x: Elements, y: Elements, start: Elements, outer: int, along: int, inner: int) -> int:
    """The best elements; `start` where none is better. A NaN never is."""
    for i in range(outer):
        for k in range(inner):
            y[i * inner + k] = start[0]
        for j in range(along):
            first = (i * along + j) * inner
            for k in range(inner):
                value = y[i * inner + k]
                y[i * inner + k] = x[first + k] if better(x[first + k], value) else value
    return DONE


@kernel
def index_of_extreme(better: Comparison, x: Elements, y: Int32s, outer: int, along: int, inner: int) -> int:
    """Indices of the first of the best elements."""
    for i in range(outer):
        for k in range(inner):
            first, index = i * along * inner + k, 0
            best = x[first]
            for j in range(1, along):
                if better(x[first + j * inner], best):
                    best, index = x[first + j * inner], j
            y[i * inner + k] = index
    return DONE


def _bind_sum(node: Node, x: npt.NDArray[Any], y: npt.NDArray[Any], sizes: dict[str, int]) -> Step:
    divisor = sizes["along"] if node.operator == "MEAN" else 1
    if x.dtype == np.float32:
        sums = work_array(sizes["inner"], np.float32)
        return sum_floats.step(x=x, y=y, sums=sums, divisor=np.array([divisor], np.float32), **sizes)
    op: Rescaling = node.op_data
    least, most = lowest_and_highest(y.dtype)
    return sum_integers.step(
        x=x,
        y=y,
        sums=work_array(sizes["inner"], np.int32),
        zero_points=sizes["along"] * op.input_zero_point,
        **multiplier_parts("", op.multiplier(divisor)),
        zero_point=op.output_zero_point,
        least=least,
        most=most,
        **sizes,
    )


def _bind(context: KernelContext, node: Node) -> list[Step] | None:
    input, axis = node.eval_input(0), node.eval_input(1)
    output = node.eval_output(0)
    x, y = input.elements, output.elements.reshape(-1)
    if not axis.is_constant or not x.size:
        return None
    axes = resolved_axes(axis.elements, input)
    try:
        check_output(axes, input, output)
    except OperatorError:
        return None  # numpy rejects it when it runs
    transpose, x, sizes = _with_adjacent_axes(x, axes)
    if transpose is None:
        return None
    if node.operator in ("MEAN", "SUM"):
        return [*transpose, _bind_sum(node, x, y, sizes)]
    lowest, highest = lowest_and_highest(x.dtype)
    better, start = ("greater", lowest) if node.operator == "REDUCE_MAX" else ("less", highest)
    return [*transpose, extreme.step(better=better, x=x, y=y, start=np.array([start], None), **sizes)]


def _with_adjacent_axes(
    x: npt.NDArray[Any], axes: Sequence[int]
) -> tuple[list[Step] | None, npt.NDArray[Any], dict[str, int]]:
    """The steps that transpose the tensor if necessary, the tensor after that, and its sizes."""
    first, last = (axes[0], axes[-1] + 1) if axes else (0, 0)
    if list(axes) == list(range(first, last)):
        outer, along, inner = (math.prod(part) for part in (x.shape[:first], x.shape[first:last], x.shape[last:]))
        return [], x, {"outer": outer, "along": along, "inner": inner}
    source = x.transpose([*axes, *(i for i in range(x.ndim) if i not in axes)])
    transposed = work_array(source.shape, x.dtype)
    along = math.prod(source.shape[: len(axes)])
    return copy_steps([(transposed, source)]), transposed, {"outer": 1, "along": along, "inner": x.size // along}


def _bind_index(context: KernelContext, node: Node) -> list[Step] | None:
    input, axis = node.eval_input(0), node.eval_input(1)
    output = node.eval_output(0)
    if not axis.is_constant:
        return None
    sizes = dict(zip(("outer", "along", "inner"), check_dimension(input, output, axis.elements)))
    better = "greater" if node.operator == "ARG_MAX" else "less"
    return [index_of_extreme.step(better=better, x=input.elements, y=output.elements, **sizes)]


BINDINGS = {
    **dict.fromkeys(("MEAN", "REDUCE_MAX", "REDUCE_MIN", "SUM"), _bind),
    **dict.fromkeys(("ARG_MAX", "ARG_MIN"), _bind_index),
}
