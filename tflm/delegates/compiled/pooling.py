"""AVERAGE_POOL_2D, MAX_POOL_2D and L2_POOL_2D: windows over images, with all channels of a window at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from tflm.compiler.language import DONE, Elements, Float32s, Int32s, Step, inlined, kernel
from tflm.compiler.processor import Profile
from tflm.delegates.compiled.casts import as_float32, as_float64, as_int64
from tflm.delegates.compiled.work_arrays import work_array
from tflm.kernels.layers.geometry import Tap
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.reference.pooling import OpDataPooling


@inlined
def add_window(x: Any, image: int, rows: Any, columns: Any, row: int, column: int, shape: Any, sums: Any) -> int:
    """Set the sums to those of a window's elements, channel by channel, and return the number of elements."""
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


@inlined
def rounded_mean(total: Any, count: int) -> Any:
    """Return the mean of integers, rounded, with halves away from zero."""
    wide = as_float64(total)
    return as_int64((wide + np.copysign(as_float64(count // 2), wide)) / as_float64(count))


MEANS: dict[str, Callable[..., Any]] = {
    "integers": rounded_mean,
    "float32": lambda total, count: total / as_float32(count),
}
Mean = Annotated[Callable[..., Any], MEANS]


@kernel
def average(
    mean: Mean, x: Elements, y: Elements, rows: Int32s, columns: Int32s, shape: Int32s, sums: Elements, limits: Elements
) -> int:
    """Compute means of elements, which are added in order, and clamp them."""
    activation_min, activation_max = limits[0], limits[1]
    height, channels = shape[0], shape[2]
    to = 0
    for image in range(0, shape[3] * height, height):
        for row in range(shape[4]):
            for column in range(shape[5]):
                count = add_window(x, image, rows, columns, row, column, shape, sums)
                for c in range(channels):
                    value = mean(sums[c], count)
                    value = activation_min if value < activation_min else value
                    y[to + c] = activation_max if value > activation_max else value
                to += channels
    return DONE


@kernel
def largest(x: Elements, y: Elements, rows: Int32s, columns: Int32s, shape: Int32s, limits: Elements) -> int:
    """Compute the largest element that is not NaN, and clamp it."""
    activation_min, activation_max = limits[0], limits[1]
    height, width, channels = shape[0], shape[1], shape[2]
    to = 0
    for image in range(0, shape[3] * height, height):
        for row in range(shape[4]):
            for column in range(shape[5]):
                for c in range(channels):
                    y[to + c] = activation_min
                for i in range(rows[2 * row], rows[2 * row + 1]):
                    for j in range(columns[2 * column], columns[2 * column + 1]):
                        pixel = ((image + i) * width + j) * channels
                        for c in range(channels):
                            y[to + c] = x[pixel + c] if x[pixel + c] > y[to + c] else y[to + c]
                for c in range(channels):
                    y[to + c] = activation_max if y[to + c] > activation_max else y[to + c]
                to += channels
    return DONE


@kernel
def root_mean_square(
    x: Float32s, y: Float32s, rows: Int32s, columns: Int32s, shape: Int32s, sums: Float32s, limits: Float32s
) -> int:
    """Compute roots of the means of squares, which are added in order, and clamp them."""
    activation_min, activation_max = limits[0], limits[1]
    height, width, channels = shape[0], shape[1], shape[2]
    to = 0
    for image in range(0, shape[3] * height, height):
        for row in range(shape[4]):
            for column in range(shape[5]):
                for c in range(channels):
                    sums[c] = 0
                for i in range(rows[2 * row], rows[2 * row + 1]):
                    for j in range(columns[2 * column], columns[2 * column + 1]):
                        pixel = ((image + i) * width + j) * channels
                        for c in range(channels):
                            sums[c] += x[pixel + c] * x[pixel + c]
                count = (rows[2 * row + 1] - rows[2 * row]) * (columns[2 * column + 1] - columns[2 * column])
                for c in range(channels):
                    value = np.sqrt(sums[c] / as_float32(count))
                    value = activation_min if value < activation_min else value
                    y[to + c] = activation_max if value > activation_max else value
                to += channels
    return DONE


def _bind_average(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    x, y = node.eval_input(0).elements, node.eval_output(0).elements
    is_float = y.dtype == np.float32
    if not is_float and x.shape[1] * x.shape[2] >= 1 << 16:
        return None  # sums of int16 may wrap
    sums = work_array(x.shape[3], np.float32 if is_float else np.int32)
    return [average.step(mean="float32" if is_float else "integers", sums=sums, **_arrays(x, y, node))]


def _bind_root_mean_square(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    x, y = node.eval_input(0).elements, node.eval_output(0).elements
    return [root_mean_square.step(sums=work_array(x.shape[3], np.float32), **_arrays(x, y, node))]


def _bind_largest(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    x, y = node.eval_input(0).elements, node.eval_output(0).elements
    return [largest.step(**_arrays(x, y, node))]


def _arrays(x: npt.NDArray[Any], y: npt.NDArray[Any], node: Node) -> dict[str, npt.NDArray[Any]]:
    """Return the common arguments: start and end of windows in both dimensions; sizes of input, batches and output."""
    op: OpDataPooling = node.op_data
    rows, columns = _ranges(op.rows, y.shape[1]), _ranges(op.columns, y.shape[2])
    shape = np.array([*x.shape[1:], x.shape[0], *y.shape[1:3]], np.int32)
    limits = np.array([op.minimum, op.maximum], y.dtype)
    return {"x": x, "y": y, "rows": rows, "columns": columns, "shape": shape, "limits": limits}


def _ranges(taps: list[Tap], count: int) -> npt.NDArray[np.int32]:
    """Return the range of input elements that each window covers."""
    ranges = np.zeros((count, 2), np.int32)
    covered: list[list[int]] = [[] for _ in range(count)]
    for tap in taps:
        for window, element in zip(range(count)[tap.windows], range(tap.inputs.stop)[tap.inputs]):
            covered[window].append(element)
    for window, elements in enumerate(covered):
        ranges[window] = (min(elements), max(elements) + 1) if elements else (0, 0)
    return ranges.reshape(-1)


BINDINGS = {"AVERAGE_POOL_2D": _bind_average, "L2_POOL_2D": _bind_root_mean_square, "MAX_POOL_2D": _bind_largest}
