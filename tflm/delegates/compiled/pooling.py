"""AVERAGE_POOL_2D, MAX_POOL_2D and L2_POOL_2D: windows over images, all channels of one at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.delegates.compiled.casts import as_float32, as_float64, as_int64
from tflm.delegates.compiled.fixed_point import clamped
from tflm.delegates.compiled.language import (
    DONE,
    Float32s,
    Int8s,
    Int16s,
    Int32s,
    Kernel,
    Step,
    inlined,
    kernel,
)
from tflm.kernels.layers.geometry import Tap
from tflm.kernels.registration import KernelContext, Node


@inlined
def add_window(x: Any, image: int, rows: Any, columns: Any, row: int, column: int, shape: Any, sums: Any) -> int:
    """Set the sums to those of a window's elements, channel by channel; gives how many it has."""
    width, channels = shape[1], shape[2]
    for c in range(channels):
        sums[c] = 0
    for i in range(rows[2 * row], rows[2 * row + 1]):
        for j in range(columns[2 * column], columns[2 * column + 1]):
            pixel = ((image + i) * width + j) * channels
            for c in range(channels):
                sums[c] += x[pixel + c]
    taken: int = (rows[2 * row + 1] - rows[2 * row]) * (columns[2 * column + 1] - columns[2 * column])
    return taken


@kernel
def average_int8(
    x: Int8s, y: Int8s, rows: Int32s, columns: Int32s, shape: Int32s, sums: Int32s, least: int, most: int
) -> int:
    """Averages, rounded, halves away from zero."""
    height, channels = shape[0], shape[2]
    to = 0
    for image in range(0, shape[3] * height, height):
        for row in range(shape[4]):
            for column in range(shape[5]):
                count = add_window(x, image, rows, columns, row, column, shape, sums)
                half, divisor = as_float64(count // 2), as_float64(count)
                for c in range(channels):
                    total = as_float64(sums[c])
                    y[to + c] = clamped(as_int64((total + np.copysign(half, total)) / divisor), least, most)
                to += channels
    return DONE


average_int16 = average_int8.variant("average_int16", x=Int16s, y=Int16s)


@kernel
def average_float32(
    x: Float32s, y: Float32s, rows: Int32s, columns: Int32s, shape: Int32s, sums: Float32s, limits: Float32s
) -> int:
    """Of floats, which are added in order."""
    least, most = limits[0], limits[1]
    height, channels = shape[0], shape[2]
    to = 0
    for image in range(0, shape[3] * height, height):
        for row in range(shape[4]):
            for column in range(shape[5]):
                count = as_float32(add_window(x, image, rows, columns, row, column, shape, sums))
                for c in range(channels):
                    value = sums[c] / count
                    value = least if value < least else value
                    y[to + c] = most if value > most else value
                to += channels
    return DONE


@kernel
def largest_int8(x: Int8s, y: Int8s, rows: Int32s, columns: Int32s, shape: Int32s, limits: Int8s) -> int:
    """The largest element; the least one that there may be where there is none, or it is no number."""
    least, most = limits[0], limits[1]
    height, width, channels = shape[0], shape[1], shape[2]
    to = 0
    for image in range(0, shape[3] * height, height):
        for row in range(shape[4]):
            for column in range(shape[5]):
                for c in range(channels):
                    y[to + c] = least
                for i in range(rows[2 * row], rows[2 * row + 1]):
                    for j in range(columns[2 * column], columns[2 * column + 1]):
                        pixel = ((image + i) * width + j) * channels
                        for c in range(channels):
                            y[to + c] = x[pixel + c] if x[pixel + c] > y[to + c] else y[to + c]
                for c in range(channels):
                    y[to + c] = most if y[to + c] > most else y[to + c]
                to += channels
    return DONE


largest_int16 = largest_int8.variant("largest_int16", x=Int16s, y=Int16s, limits=Int16s)
largest_float32 = largest_int8.variant("largest_float32", x=Float32s, y=Float32s, limits=Float32s)


AVERAGES: dict[str, tuple[Kernel, npt.DTypeLike]] = {
    "int8": (average_int8, np.int32),
    "int16": (average_int16, np.int32),
    "float32": (average_float32, np.float32),
}
LARGEST: dict[str, Kernel] = {"int8": largest_int8, "int16": largest_int16, "float32": largest_float32}
"""By type; and what the sums are."""


def _bind_average(context: KernelContext, node: Node) -> list[Step] | None:
    x, y = context.get_eval_input(node, 0).elements, context.get_eval_output(node, 0).elements
    kernel_of_type, of_sums = AVERAGES[y.dtype.name]
    limits: dict[str, Any] = {"least": node.op_data.minimum, "most": node.op_data.maximum}
    if y.dtype == np.float32:
        limits = {"limits": np.array([*limits.values()], np.float32)}
    elif x.shape[1] * x.shape[2] >= 1 << 16:
        return None  # sums of int16 may wrap
    return [kernel_of_type.step(x=x, y=y, **_windows(x, y, node), sums=np.empty(x.shape[3], of_sums), **limits)]


def _bind_largest(context: KernelContext, node: Node) -> list[Step] | None:
    x, y = context.get_eval_input(node, 0).elements, context.get_eval_output(node, 0).elements
    limits = np.array([node.op_data.minimum, node.op_data.maximum], y.dtype)
    return [LARGEST[y.dtype.name].step(x=x, y=y, **_windows(x, y, node), limits=limits)]


def _windows(x: npt.NDArray[Any], y: npt.NDArray[Any], node: Node) -> dict[str, npt.NDArray[Any]]:
    """Where windows begin and end along both dimensions; and the sizes of the input, the batches, the output."""
    rows, columns = _ranges(node.op_data.rows, y.shape[1]), _ranges(node.op_data.columns, y.shape[2])
    shape = np.array([*x.shape[1:], x.shape[0], *y.shape[1:3]], np.int32)
    return {"rows": rows, "columns": columns, "shape": shape}


def _ranges(taps: list[Tap], count: int) -> npt.NDArray[np.int32]:
    """The elements of the input that each window covers: the first, and the one behind the last."""
    ranges = np.zeros((count, 2), np.int32)
    covered: list[list[int]] = [[] for _ in range(count)]
    for tap in taps:
        for window, element in zip(range(count)[tap.windows], range(tap.inputs.stop)[tap.inputs]):
            covered[window].append(element)
    for window, elements in enumerate(covered):
        ranges[window] = (min(elements), max(elements) + 1) if elements else (0, 0)
    return ranges.reshape(-1)


BINDINGS = {"AVERAGE_POOL_2D": _bind_average, "MAX_POOL_2D": _bind_largest}
