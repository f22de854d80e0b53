"""Poolings on small processors: four channels of a window at a time, without scratch memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.c.kernels.part import NEVER, Part, first_places
from tflm.compiler.intrinsics import elements_from, float32_from
from tflm.compiler.language import DONE, Elements, Float32s, Step, inlined, kernel
from tflm.delegates.compiled.casts import as_float32
from tflm.kernels.layers.geometry import Axis, Windows, padding_before, window_fields, windows
from tflm.kernels.node import Node
from tflm.kernels.overlap import FAR, NOWHERE, OperatorFacts
from tflm.kernels.reference.pooling import OpDataPooling
from tflm.schema.options import Pool2DOptions

NARROW_INTEGERS = True


@inlined
def rounded_mean(total: int, count: int) -> int:
    """Return a sum divided by a count, rounded, with halves away from zero."""
    half = count // 2
    return (total + half) // count if total >= 0 else -((half - total) // count)


@inlined
def maximum(total: int, count: int) -> int:
    """Return the maximum that was found."""
    return total


COMBINATIONS: dict[str, Callable[..., Any]] = {"AVERAGE": lambda a, b: a + b, "MAX": lambda a, b: b if b > a else a}
"""Combines the result so far with an element."""

RESULTS: dict[str, Callable[..., Any]] = {"AVERAGE": rounded_mean, "MAX": maximum}
"""Computes the output from the final result and the number of elements."""

Combination = Annotated[Callable[..., Any], COMBINATIONS]
Result = Annotated[Callable[..., Any], RESULTS]


class Pools(NamedTuple):
    """Windows of a pooling operator; attributes as in `Axis`.

    Attributes:
        start: the result before the first element.
        activation_min, activation_max: limits of the output.
    """

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
    start: int
    activation_min: int
    activation_max: int


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


@kernel
def pool(combination: Combination, result: Result, x: Elements, y: Elements, pools: Pools) -> int:
    """Combine the elements of each window that are in the image."""
    channels, start, activation_min, activation_max = (
        pools.channels,
        pools.start,
        pools.activation_min,
        pools.activation_max,
    )
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
                y[0] = min(max(result(total0, count), activation_min), activation_max)
                y[1] = min(max(result(total1, count), activation_min), activation_max)
                y[2] = min(max(result(total2, count), activation_min), activation_max)
                y[3] = min(max(result(total3, count), activation_min), activation_max)
                window = elements_from(window, 4)
                y = elements_from(y, 4)
            for k in range(channels & 3):
                total = combined(combination, elements_from(window, k), rows, taps, x_row, channels, start)
                y[k] = min(max(result(total, count), activation_min), activation_max)
            y = elements_from(y, channels & 3)
    return DONE


FLOAT_COMBINATIONS: dict[str, Callable[..., Any]] = {"AVERAGE": lambda a, b: a + b, "L2": lambda a, b: a + b * b}
"""By operator: combines the sum so far with a float."""

MEANS: dict[str, Callable[..., Any]] = {
    "AVERAGE": lambda total, count: total / as_float32(count),
    "L2": lambda total, count: np.sqrt(total / as_float32(count)),
}
"""By operator: the output, from the sum and the number of elements."""

FloatCombination = Annotated[Callable[..., Any], FLOAT_COMBINATIONS]
Mean = Annotated[Callable[..., Any], MEANS]


@inlined
def limited(value: Any, lowest: Any, highest: Any) -> Any:
    """Return the nearest float in a range."""
    value = lowest if value < lowest else value
    return highest if value > highest else value


@kernel
def pool_floats(
    combination: FloatCombination, mean: Mean, x: Float32s, y: Float32s, limits: Float32s, pools: Pools
) -> int:
    """Set y to means of the floats of each window that are inside the image, within limits."""
    channels, lowest, highest, start = pools.channels, limits[0], limits[1], as_float32(0)
    x_row = pools.x_columns * channels
    for i in range(pools.y_rows):
        top = i * pools.row_stride - pools.rows_before
        rows = min(top + pools.row_taps, pools.x_rows) - max(top, 0)
        for j in range(pools.y_columns):
            left = j * pools.column_stride - pools.columns_before
            taps = min(left + pools.column_taps, pools.x_columns) - max(left, 0)
            count = rows * taps
            window = float32_from(x, max(top, 0) * x_row + max(left, 0) * channels)
            for _four in range(channels >> 2):
                total0, total1, total2, total3 = four_combined(combination, window, rows, taps, x_row, channels, start)
                y[0] = limited(mean(total0, count), lowest, highest)
                y[1] = limited(mean(total1, count), lowest, highest)
                y[2] = limited(mean(total2, count), lowest, highest)
                y[3] = limited(mean(total3, count), lowest, highest)
                window = float32_from(window, 4)
                y = float32_from(y, 4)
            for k in range(channels & 3):
                total = combined(combination, float32_from(window, k), rows, taps, x_row, channels, start)
                y[k] = limited(mean(total, count), lowest, highest)
            y = float32_from(y, channels & 3)
    return DONE


def bind(node: Node, part: Part | None = None) -> Sequence[Step] | None:
    """Bind AVERAGE_POOL_2D or L2_POOL_2D, or MAX_POOL_2D of integers."""
    x, y, rows, columns = _windows(node, part)
    op: OpDataPooling = node.op_data
    kind = node.operator.partition("_")[0]
    if x.dtype == np.float32:
        if kind not in MEANS:
            return None
        limits = np.array([op.minimum, op.maximum], np.float32)
        names = {"combination": kind, "mean": kind, "limits": limits, "pools": _pools(x, rows, columns, (0, 0, 0))}
        return [pool_floats.step(**names, x=x[i], y=y[i]) for i in range(len(x))]
    if x.dtype not in (np.int8, np.int16) or rows.taps * columns.taps >= 1 << 15:
        return None
    activation_min, activation_max = int(op.minimum), int(op.maximum)
    pools = _pools(x, rows, columns, (activation_min if kind == "MAX" else 0, activation_min, activation_max))
    return [pool.step(combination=kind, result=kind, x=x[i], y=y[i], pools=pools) for i in range(len(x))]


def _windows(node: Node, part: Part | None) -> tuple[npt.NDArray[Any], npt.NDArray[Any], Axis, Axis]:
    """Return the image, the output, and the windows along rows and columns."""
    x, y = node.eval_input(0).elements, node.eval_output(0).elements
    options = node.options(Pool2DOptions)
    rows, columns = (
        Axis(size, taps, count, stride, before=padding_before(count, size, taps, stride))
        for size, taps, count, stride in (
            (x.shape[1], options.filter_height, y.shape[1], options.stride_h),
            (x.shape[2], options.filter_width, y.shape[2], options.stride_w),
        )
    )
    if part is not None:
        rows, x, y, _ = part
    return x, y, rows, columns


def _pools(x: npt.NDArray[Any], rows: Axis, columns: Axis, limits: tuple[int, int, int]) -> Pools:
    start, activation_min, activation_max = limits
    return Pools(
        x_rows=rows.size,
        x_columns=columns.size,
        channels=x.shape[3],
        **window_fields(rows, columns),
        y_rows=rows.windows,
        y_columns=columns.windows,
        start=start,
        activation_min=activation_min,
        activation_max=activation_max,
    )


def overlap(facts: OperatorFacts, both: Windows | None = None, input: int = 0) -> range:
    """Return how many bytes after the output's first byte the input may begin. Windows are as given, or as the options
    say.

    A channel of a window is written before the channels after it are read.
    """
    x, both = facts.inputs[0], both or windows(facts)
    if input or x is None or both is None or x.dims[0] != 1:
        return NOWHERE
    rows, columns = both
    step = x.dims[3] * x.itemsize
    begins = np.arange(rows.windows * columns.windows, dtype=np.int64)
    # A window's first channels must not be written over its last channels, which have not been read yet.
    reads = first_places(rows, columns)
    seen = reads < NEVER
    return range(int(((begins[seen] - reads[seen]) * step).max(initial=1 - FAR)), FAR)
