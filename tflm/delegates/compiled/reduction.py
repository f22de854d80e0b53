"""MEAN, SUM, REDUCE_MAX and REDUCE_MIN; ARG_MAX and ARG_MIN: elements along some dimensions made one.

A tensor is (outer, along, inner): what comes before the dimensions that are reduced, these, and what comes after. Where
they are not neighbours, it is turned first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.delegates.compiled.casts import as_int64
from tflm.delegates.compiled.elementwise import multiplier_parts
from tflm.delegates.compiled.fixed_point import clamped, scaled, wrapped
from tflm.delegates.compiled.language import DONE, Float32s, Int8s, Int16s, Int32s, Kernel, Step, kernel
from tflm.delegates.compiled.movement import copy_steps
from tflm.errors import OperatorError
from tflm.kernels.reference.arg_min_max import check_dimension
from tflm.kernels.reference.reduce import Rescaling, check_output, resolved_axes
from tflm.kernels.registration import KernelContext, Node


@kernel
def sum_int8(
    x: Int8s,
    y: Int8s,
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
    """Sums, less the zero points of their addends, scaled. They wrap to 32 bits, as TFLM's do."""
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


sum_int16 = sum_int8.variant("sum_int16", x=Int16s, y=Int16s)


@kernel
def sum_float32(x: Float32s, y: Float32s, sums: Float32s, outer: int, along: int, inner: int, divisor: Float32s) -> int:
    """Sums of floats, which are added in order, divided."""
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
def maximum_int8(x: Int8s, y: Int8s, start: Int8s, outer: int, along: int, inner: int) -> int:
    """The largest elements; `start` where none is larger, or no number."""
    for i in range(outer):
        for k in range(inner):
            y[i * inner + k] = start[0]
        for j in range(along):
            first = (i * along + j) * inner
            for k in range(inner):
                value = y[i * inner + k]
                y[i * inner + k] = x[first + k] if x[first + k] > value else value
    return DONE


@kernel
def minimum_int8(x: Int8s, y: Int8s, start: Int8s, outer: int, along: int, inner: int) -> int:
    """The smallest elements; `start` where none is smaller, or no number."""
    for i in range(outer):
        for k in range(inner):
            y[i * inner + k] = start[0]
        for j in range(along):
            first = (i * along + j) * inner
            for k in range(inner):
                value = y[i * inner + k]
                y[i * inner + k] = x[first + k] if x[first + k] < value else value
    return DONE


maximum_float32 = maximum_int8.variant("maximum_float32", x=Float32s, y=Float32s, start=Float32s)
minimum_float32 = minimum_int8.variant("minimum_float32", x=Float32s, y=Float32s, start=Float32s)


@kernel
def place_of_maximum_int8(x: Int8s, y: Int32s, outer: int, along: int, inner: int) -> int:
    """Where the first of the largest elements is."""
    for i in range(outer):
        for k in range(inner):
            first, place = i * along * inner + k, 0
            largest = x[first]
            for j in range(1, along):
                if x[first + j * inner] > largest:
                    largest, place = x[first + j * inner], j
            y[i * inner + k] = place
    return DONE


@kernel
def place_of_minimum_int8(x: Int8s, y: Int32s, outer: int, along: int, inner: int) -> int:
    """Where the first of the smallest elements is."""
    for i in range(outer):
        for k in range(inner):
            first, place = i * along * inner + k, 0
            smallest = x[first]
            for j in range(1, along):
                if x[first + j * inner] < smallest:
                    smallest, place = x[first + j * inner], j
            y[i * inner + k] = place
    return DONE


place_of_maximum_float32 = place_of_maximum_int8.variant("place_of_maximum_float32", x=Float32s)
place_of_minimum_float32 = place_of_minimum_int8.variant("place_of_minimum_float32", x=Float32s)

SUMS: dict[str, Kernel] = {"int8": sum_int8, "int16": sum_int16}
EXTREMES: dict[tuple[str, str], tuple[Kernel, str]] = {
    ("REDUCE_MAX", "int8"): (maximum_int8, "min"),
    ("REDUCE_MAX", "float32"): (maximum_float32, "min"),
    ("REDUCE_MIN", "int8"): (minimum_int8, "max"),
    ("REDUCE_MIN", "float32"): (minimum_float32, "max"),
}
"""By operator and type, and the end of the type's range that it starts from."""

PLACES: dict[tuple[str, str], Kernel] = {
    ("ARG_MAX", "int8"): place_of_maximum_int8,
    ("ARG_MAX", "float32"): place_of_maximum_float32,
    ("ARG_MIN", "int8"): place_of_minimum_int8,
    ("ARG_MIN", "float32"): place_of_minimum_float32,
}


def _bind(context: KernelContext, node: Node) -> list[Step] | None:
    input, axis = context.get_eval_input(node, 0), context.get_eval_input(node, 1)
    output = context.get_eval_output(node, 0)
    x, y = input.elements, output.elements.reshape(-1)
    if not axis.is_constant or not x.size:
        return None
    axes = resolved_axes(axis.elements, input)
    try:
        check_output(axes, input, output)
    except OperatorError:
        return None  # it is refused when it runs
    turn, x, sizes = _turned(x, axes)
    if turn is None:
        return None
    if (node.operator, x.dtype.name) in EXTREMES:
        extreme, start = EXTREMES[node.operator, x.dtype.name]
        limits: Any = np.finfo(x.dtype) if x.dtype.kind == "f" else np.iinfo(x.dtype)
        return [*turn, extreme.step(x=x, y=y, start=np.array([getattr(limits, start)], x.dtype), **sizes)]
    divisor = sizes["along"] if node.operator == "MEAN" else 1
    if x.dtype == np.float32:
        sums = np.empty(sizes["inner"], np.float32)
        return [*turn, sum_float32.step(x=x, y=y, sums=sums, divisor=np.array([divisor], np.float32), **sizes)]
    op: Rescaling = node.op_data
    limits = np.iinfo(y.dtype)
    scaling = {
        "zero_points": sizes["along"] * op.input_zero_point,
        **multiplier_parts("", op.multiplier(divisor)),
        "zero_point": op.output_zero_point,
        "least": int(limits.min),
        "most": int(limits.max),
    }
    return [*turn, SUMS[y.dtype.name].step(x=x, y=y, sums=np.empty(sizes["inner"], np.int32), **scaling, **sizes)]


def _turned(x: npt.NDArray[Any], axes: Sequence[int]) -> tuple[list[Step] | None, npt.NDArray[Any], dict[str, int]]:
    """What makes neighbours of the dimensions that are reduced; the tensor then, and its sizes."""
    first, last = (axes[0], axes[-1] + 1) if axes else (0, 0)
    if list(axes) == list(range(first, last)):
        outer, along, inner = (math.prod(part) for part in (x.shape[:first], x.shape[first:last], x.shape[last:]))
        return [], x, {"outer": outer, "along": along, "inner": inner}
    kept = [i for i in range(x.ndim) if i not in axes]
    turned = np.empty([x.shape[i] for i in (*axes, *kept)], x.dtype)
    along = math.prod(x.shape[i] for i in axes)
    sizes = {"outer": 1, "along": along, "inner": x.size // along}
    return copy_steps([(turned, x.transpose([*axes, *kept]))]), turned, sizes


def _bind_place(context: KernelContext, node: Node) -> list[Step] | None:
    input, axis = context.get_eval_input(node, 0), context.get_eval_input(node, 1)
    output = context.get_eval_output(node, 0)
    if not axis.is_constant:
        return None
    outer, along, inner = check_dimension(input, output, axis.elements)
    place = PLACES[node.operator, input.elements.dtype.name]
    return [place.step(x=input.elements, y=output.elements, outer=outer, along=along, inner=inner)]


BINDINGS = {
    **dict.fromkeys(("MEAN", "REDUCE_MAX", "REDUCE_MIN", "SUM"), _bind),
    **dict.fromkeys(("ARG_MAX", "ARG_MIN"), _bind_place),
}
