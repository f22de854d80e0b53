"""MEAN, SUM, REDUCE_MAX, REDUCE_MIN and REDUCE_ALL; ARG_MAX and ARG_MIN: reductions along axes.

A tensor is (outer, along, inner): the dimensions before the axes, the axes, and the dimensions after them. If the axes
are not adjacent, or can change from invoke to invoke, it is transposed first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from tflm.compiler.language import DONE, REFUSED, Elements, Float32s, Int32s, Step, UInt8s, kernel
from tflm.delegates.compiled.casts import as_int64
from tflm.delegates.compiled.fixed_point import Multiplier, Stage, clamped, multiplier_of, scaled, wrapped
from tflm.delegates.compiled.movement import copy_steps
from tflm.delegates.compiled.work_arrays import work_array
from tflm.errors import OperatorError
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.reference.reduce import Rescaling, check_dimension, check_output, lowest_and_highest, resolved_axes

COMPARISONS: dict[str, Callable[..., Any]] = {"greater": lambda a, b: a > b, "less": lambda a, b: a < b}
Comparison = Annotated[Callable[..., Any], COMPARISONS]


@kernel
def bring_axes_first(
    x: Elements,
    y: Elements,
    axes: Int32s,
    dims: Int32s,
    is_axis: UInt8s,
    axis_count: int,
    rank: int,
    along: int,
    inner: int,
) -> int:
    """Transpose x to (along, inner), where `along` is the product of the sizes of all axes.

    Args:
        is_axis: scratch memory: a flag for each dimension, so that repeated axes count once.
    """
    for d in range(rank):
        is_axis[d] = 0
    for k in range(axis_count):
        if axes[k] < -rank or axes[k] >= rank:
            return REFUSED
        is_axis[axes[k] + rank if axes[k] < 0 else axes[k]] = 1
    reduced = as_int64(1)
    for d in range(rank):
        if is_axis[d]:
            reduced *= dims[d]
    if reduced != along:
        return REFUSED
    for i in range(along * inner):
        rest, row, column, row_step, column_step = i, 0, 0, 1, 1
        for d in range(rank - 1, -1, -1):
            place = rest % dims[d]
            rest //= dims[d]
            if is_axis[d]:
                row += place * row_step
                row_step *= dims[d]
            else:
                column += place * column_step
                column_step *= dims[d]
        y[row * inner + column] = x[i]
    return DONE


@kernel
def sum_integers(
    x: Elements,
    y: Elements,
    sums: Int32s,
    outer: int,
    along: int,
    inner: int,
    zero_points: int,
    multiplier: Multiplier,
    stage: Stage,
) -> int:
    """Sum up integers without the zero points of the terms, and requantize. Sums wrap to 32 bits, as in TFLM."""
    for i in range(outer):
        for k in range(inner):
            sums[k] = 0
        for j in range(along):
            first = (i * along + j) * inner
            for k in range(inner):
                sums[k] += x[first + k]
        for k in range(inner):
            value = scaled(as_int64(sums[k]) - zero_points, multiplier)
            y[i * inner + k] = clamped(wrapped(value + stage.zero_point), stage.activation_min, stage.activation_max)
    return DONE


@kernel
def sum_floats(x: Float32s, y: Float32s, sums: Float32s, outer: int, along: int, inner: int, divisor: Float32s) -> int:
    """Sum up floats in the order of the elements, and divide."""
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
    """Find the best elements; `start` if none is better. A NaN is never better."""
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
def conjunction(x: UInt8s, y: UInt8s, outer: int, along: int, inner: int) -> int:
    """Compute the conjunction of the lowest bits of bools."""
    for i in range(outer):
        for k in range(inner):
            y[i * inner + k] = 1
        for j in range(along):
            first = (i * along + j) * inner
            for k in range(inner):
                y[i * inner + k] &= x[first + k]
    return DONE


@kernel
def index_of_extreme(better: Comparison, x: Elements, y: Int32s, outer: int, along: int, inner: int) -> int:
    """Find the index of the first of the best elements."""
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
    activation_min, activation_max = lowest_and_highest(y.dtype)
    return sum_integers.step(
        x=x,
        y=y,
        sums=work_array(sizes["inner"], np.int32),
        zero_points=sizes["along"] * op.input_zero_point,
        multiplier=multiplier_of(op.multiplier(divisor)),
        zero_point=op.output_zero_point,
        activation_min=activation_min,
        activation_max=activation_max,
        **sizes,
    )


def _bind(context: KernelContext, node: Node) -> list[Step] | None:
    input, axis = node.eval_input(0), node.eval_input(1)
    output = node.eval_output(0)
    x, y = input.elements, output.elements.reshape(-1)
    if not x.size or not y.size or x.size % y.size:
        return None
    if axis.is_constant:
        axes = resolved_axes(axis.elements, input)
        try:
            check_output(axes, input, output)
        except OperatorError:
            return None  # numpy rejects it when it runs
        transpose, x, sizes = _with_adjacent_axes(x, axes)
    else:
        transpose, x, sizes = _with_axes_first(x, axis.elements.reshape(-1), y.size)
    if transpose is None:
        return None
    if node.operator in ("MEAN", "SUM"):
        return [*transpose, _bind_sum(node, x, y, sizes)]
    if node.operator == "REDUCE_ALL":
        return [*transpose, conjunction.step(x=x.view(np.uint8), y=y.view(np.uint8), **sizes)]
    lowest, highest = lowest_and_highest(x.dtype)
    better, start = ("greater", lowest) if node.operator == "REDUCE_MAX" else ("less", highest)
    return [*transpose, extreme.step(better=better, x=x, y=y, start=np.array([start], None), **sizes)]


def _with_adjacent_axes(
    x: npt.NDArray[Any], axes: Sequence[int]
) -> tuple[list[Step] | None, npt.NDArray[Any], dict[str, int]]:
    """Return the steps that transpose the tensor if necessary, the transposed tensor, and its sizes."""
    first, last = (axes[0], axes[-1] + 1) if axes else (0, 0)
    if list(axes) == list(range(first, last)):
        outer, along, inner = (math.prod(part) for part in (x.shape[:first], x.shape[first:last], x.shape[last:]))
        return [], x, {"outer": outer, "along": along, "inner": inner}
    source = x.transpose([*axes, *(i for i in range(x.ndim) if i not in axes)])
    transposed = work_array(source.shape, x.dtype)
    along = math.prod(source.shape[: len(axes)])
    return copy_steps([(transposed, source)]), transposed, {"outer": 1, "along": along, "inner": x.size // along}


def _with_axes_first(
    x: npt.NDArray[Any], axes: npt.NDArray[np.int32], inner: int
) -> tuple[list[Step], npt.NDArray[Any], dict[str, int]]:
    """Return the same for axes that can change between invokes, and an output of `inner` elements."""
    plain = x if x.dtype == np.float32 else x.view(f"i{x.itemsize}")
    first = work_array(x.size, plain.dtype)
    sizes = {"along": x.size // inner, "inner": inner}
    axis_count = axes.size if x.ndim else 0
    step = bring_axes_first.step(
        x=plain,
        y=first,
        axes=axes,
        dims=np.array(x.shape, np.int32),
        is_axis=work_array(x.ndim, np.uint8),
        axis_count=axis_count,
        rank=x.ndim,
        **sizes,
    )
    return [step], first.view(x.dtype), {"outer": 1, **sizes}


def _bind_index(context: KernelContext, node: Node) -> list[Step] | None:
    input, axis = node.eval_input(0), node.eval_input(1)
    output = node.eval_output(0)
    x, y, better = input.elements, output.elements, "greater" if node.operator == "ARG_MAX" else "less"
    transpose: list[Step] = []
    if axis.is_constant:
        sizes = dict(zip(("outer", "along", "inner"), check_dimension(input, output, axis.elements)))
    elif x.size and y.size:
        transpose, x, sizes = _with_axes_first(x, axis.elements.reshape(-1)[:1], y.size)
    else:
        return None
    return [*transpose, index_of_extreme.step(better=better, x=x, y=y, **sizes)]


BINDINGS = {
    **dict.fromkeys(("MEAN", "REDUCE_ALL", "REDUCE_MAX", "REDUCE_MIN", "SUM"), _bind),
    **dict.fromkeys(("ARG_MAX", "ARG_MIN"), _bind_index),
}
