"""AVERAGE_POOL_2D, MAX_POOL_2D and L2_POOL_2D: four channels of a window at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.compiler.intrinsics import elements_from
from tflm.compiler.language import DONE, Elements, Int32s, Step, inlined, kernel
from tflm.compiler.processor import Profile
from tflm.delegates.compiled.bands import work_array
from tflm.delegates.compiled.bindings import FAMILIES
from tflm.delegates.compiled.casts import as_float32, as_float64, as_int32
from tflm.kernels.layers.geometry import Axis, padding_before, window_fields
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.reference.pooling import OpDataPooling
from tflm.schema.options import Pool2DOptions


@inlined
def rounded_mean(total: int, count: int) -> int:
    """Return a sum divided by a count, rounded, with halves away from zero."""
    half = count // 2
    return (total + half) // count if total >= 0 else -((half - total) // count)


@inlined
def rounded_real_mean(total: int, count: int) -> Any:
    """Return the same, by a division of float64, which has vectors."""
    real = as_float64(total)
    return as_int32((real + np.copysign(as_float64(count // 2), real)) / as_float64(count))


STARTS: dict[str, Callable[..., Any]] = {
    "AVERAGE": lambda lowest: as_int32(0),
    "FLOAT_AVERAGE": lambda lowest: as_float32(0),
    "L2": lambda lowest: as_float32(0),
    "MAX": lambda lowest: lowest,
}
"""The result before the first element."""

COMBINATIONS: dict[str, Callable[..., Any]] = {
    "AVERAGE": lambda a, b: as_int32(a + b),
    "FLOAT_AVERAGE": lambda a, b: a + b,
    "L2": lambda a, b: a + b * b,
    "MAX": lambda a, b: b if b > a else a,
}
"""Combines the result so far with an element. The largest one ignores NaN."""

RESULTS: dict[str, Callable[..., Any]] = {
    "AVERAGE": rounded_mean,
    "REAL_AVERAGE": rounded_real_mean,
    "FLOAT_AVERAGE": lambda total, count: total / as_float32(count),
    "L2": lambda total, count: np.sqrt(total / as_float32(count)),
    "MAX": lambda total, count: total,
}
"""Computes the output from the final result and the number of elements."""

Start = Annotated[Callable[..., Any], STARTS]
Combination = Annotated[Callable[..., Any], COMBINATIONS]
Result = Annotated[Callable[..., Any], RESULTS]


class Pools(NamedTuple):
    """Windows of a pooling operator; attributes as in `Axis`."""

    x_rows: int
    x_columns: int
    channels: int
    row_taps: int
    column_taps: int
    row_stride: int
    column_stride: int
    rows_before: int
    columns_before: int
    y_rows: int
    y_columns: int


@inlined
def combined(combination: Any, x: Elements, rows: int, taps: int, x_row: int, x_step: int, start: int) -> Any:
    """Return the result of one channel of a window."""
    total = start
    for row in range(rows):
        seen = elements_from(x, row * x_row)
        for _tap in range(taps):
            total = combination(total, seen[0])
            seen = elements_from(seen, x_step)
    return total


@inlined
def four_combined(
    combination: Any, x: Elements, rows: int, taps: int, x_row: int, x_step: int, start: int
) -> tuple[Any, Any, Any, Any]:
    """Return the results of four channels of a window."""
    total0, total1, total2, total3 = start, start, start, start
    for row in range(rows):
        seen = elements_from(x, row * x_row)
        for _tap in range(taps):
            total0 = combination(total0, seen[0])
            total1 = combination(total1, seen[1])
            total2 = combination(total2, seen[2])
            total3 = combination(total3, seen[3])
            seen = elements_from(seen, x_step)
    return total0, total1, total2, total3


@inlined
def limited(value: Any, lowest: Any, highest: Any) -> Any:
    """Return the nearest number in a range; NaN remains."""
    value = lowest if value < lowest else value
    return highest if value > highest else value


@kernel
def pool(
    start_at: Start, combination: Combination, result: Result, x: Elements, y: Elements, limits: Elements, pools: Pools
) -> int:
    """Combine the elements of each window that are in the image, and clamp the results."""
    channels, lowest, highest = pools.channels, limits[0], limits[1]
    start = start_at(lowest)
    x_row = pools.x_columns * channels
    for i in range(pools.y_rows):
        top = i * pools.row_stride - pools.rows_before
        rows = min(top + pools.row_taps, pools.x_rows) - max(top, 0)
        for j in range(pools.y_columns):
            left = j * pools.column_stride - pools.columns_before
            taps = min(left + pools.column_taps, pools.x_columns) - max(left, 0)
            count = rows * taps
            window = elements_from(x, max(top, 0) * x_row + max(left, 0) * channels)
            for _four in range(channels >> 2):
                total0, total1, total2, total3 = four_combined(combination, window, rows, taps, x_row, channels, start)
                y[0] = limited(result(total0, count), lowest, highest)
                y[1] = limited(result(total1, count), lowest, highest)
                y[2] = limited(result(total2, count), lowest, highest)
                y[3] = limited(result(total3, count), lowest, highest)
                window = elements_from(window, 4)
                y = elements_from(y, 4)
            for k in range(channels & 3):
                total = combined(combination, elements_from(window, k), rows, taps, x_row, channels, start)
                y[k] = limited(result(total, count), lowest, highest)
            y = elements_from(y, channels & 3)
    return DONE


@kernel
def pool_vectors(
    start_at: Start,
    combination: Combination,
    result: Result,
    x: Elements,
    y: Elements,
    limits: Elements,
    totals: Int32s,
    pools: Pools,
) -> int:
    """Do the same with all channels of a window at a time, in vectors.

    Args:
        totals: scratch memory for the results of all channels.
    """
    channels, lowest, highest = pools.channels, limits[0], limits[1]
    x_row = pools.x_columns * channels
    for i in range(pools.y_rows):
        top = i * pools.row_stride - pools.rows_before
        rows = min(top + pools.row_taps, pools.x_rows) - max(top, 0)
        for j in range(pools.y_columns):
            left = j * pools.column_stride - pools.columns_before
            taps = min(left + pools.column_taps, pools.x_columns) - max(left, 0)
            window = elements_from(x, max(top, 0) * x_row + max(left, 0) * channels)
            for channel in range(channels):
                totals[channel] = start_at(lowest)
            for row in range(rows):
                seen = elements_from(window, row * x_row)
                for _tap in range(taps):
                    for channel in range(channels):
                        totals[channel] = combination(totals[channel], seen[channel])
                    seen = elements_from(seen, channels)
            for channel in range(channels):
                y[channel] = limited(result(totals[channel], rows * taps), lowest, highest)
            y = elements_from(y, channels)
    return DONE


LARGEST_SUM = (1 << 31) - 1


def pools_of(x: npt.NDArray[Any], rows: Axis, columns: Axis) -> Pools:
    """Return the windows of images."""
    sizes = {"y_rows": rows.windows, "y_columns": columns.windows}
    return Pools(rows.size, columns.size, x.shape[3], **window_fields(rows, columns), **sizes)


def pool_steps(
    node: Node, profile: Profile, x: npt.NDArray[Any], y: npt.NDArray[Any], rows: Axis, columns: Axis
) -> list[Step] | None:
    """Return the steps that set y to the windows of x; None if sums may wrap."""
    op: OpDataPooling = node.op_data
    is_float, kind = x.dtype == np.float32, node.operator.partition("_")[0]
    if not is_float and rows.taps * columns.taps * -int(np.iinfo(x.dtype).min) > LARGEST_SUM:
        return None
    name = "FLOAT_AVERAGE" if is_float and kind == "AVERAGE" else kind
    arguments = dict.fromkeys(("start_at", "combination", "result"), name) | {
        "limits": np.array([op.minimum, op.maximum], np.float32 if is_float else np.int32),
        "pools": pools_of(x, rows, columns),
    }
    if is_float or not profile.has_tiles:
        return [pool.step(**arguments, x=x[i], y=y[i]) for i in range(len(x))]
    arguments |= {"totals": work_array(x.shape[3], np.int32)} | (
        {"result": "REAL_AVERAGE"} if kind == "AVERAGE" else {}
    )
    return [pool_vectors.step(**arguments, x=x[i], y=y[i]) for i in range(len(x))]


def windows_of(node: Node) -> tuple[Axis, Axis]:
    """Return the windows along rows and columns."""
    x, y = node.eval_input(0).elements, node.eval_output(0).elements
    options = node.options(Pool2DOptions)
    rows, columns = (
        Axis(size, taps, count, stride, before=padding_before(count, size, taps, stride))
        for size, taps, count, stride in (
            (x.shape[1], options.filter_height, y.shape[1], options.stride_h),
            (x.shape[2], options.filter_width, y.shape[2], options.stride_w),
        )
    )
    return rows, columns


def _bind(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    return pool_steps(node, profile, node.eval_input(0).elements, node.eval_output(0).elements, *windows_of(node))


BINDINGS = dict.fromkeys(FAMILIES["pooling"], _bind)
