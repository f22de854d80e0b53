"""Trip counts of a kernel's loops, from the shapes of an operator's tensors.

The instructions of an int8 kernel hardly depend on its data: they are the sum over its loops of trip count times
instructions per trip. This module counts trips; `tflm.firmware.instructions` has the instructions per trip. Each
function is a path through a kernel of TFLM or CMSIS-NN (4ab83cc3c); trips are named by what their loop iterates over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.kernels.layers.geometry import Axis

Shape = tuple[int, ...]

ONE_PLACE = Axis(1, 1, 1)


class LoopTrips(NamedTuple):
    """A path through a kernel.

    Attributes:
        path: its name.
        trips: trip count of each of its loops; "call" is the code outside loops, which runs once.
    """

    path: str
    trips: Mapping[str, int]


@dataclass(frozen=True)
class LoopShape:
    """The parameters that determine the loops of an int8 operator.

    Attributes:
        operator: its name.
        inputs, output: shapes.
        rows, columns: its windows, if any.
        types: type names of the first input and the output.
        paddings: padding before and after each dimension of a PAD's input.
        decoding: trips of the loops of a TFLM_DECODE, by loop, which depend on its codes.
    """

    operator: str
    inputs: tuple[Shape, ...]
    output: Shape
    rows: Axis = ONE_PLACE
    columns: Axis = ONE_PLACE
    types: tuple[str, str] = ("int8", "int8")
    paddings: tuple[tuple[int, int], ...] = ()
    decoding: tuple[tuple[str, int], ...] = ()

    @property
    def taps(self) -> int:
        """Taps of a window."""
        return self.rows.taps * self.columns.taps

    @property
    def windows(self) -> int:
        """Windows of an image."""
        return self.rows.windows * self.columns.windows

    @property
    def batches(self) -> int:
        """Images."""
        return self.output[0]

    @property
    def positions(self) -> int:
        """Windows of all images."""
        return self.batches * self.windows

    @property
    def rows_inside(self) -> int:
        """Rows of windows that lie in the image, over all windows."""
        return self.batches * _inside(self.rows) * self.columns.windows

    @property
    def columns_inside(self) -> int:
        """Columns of windows that lie in the image, over all windows."""
        return self.batches * _inside(self.columns) * self.rows.windows

    @property
    def taps_inside(self) -> int:
        """Taps that lie in the image, over all windows."""
        return self.batches * _inside(self.rows) * _inside(self.columns)

    @property
    def channels(self) -> int:
        """Elements along the output's last dimension."""
        return self.output[-1]

    @property
    def outputs(self) -> int:
        """Elements of the output."""
        return math.prod(self.output)

    @property
    def vectors(self) -> int:
        """Rows of the output's last dimension."""
        return self.outputs // self.channels

    @property
    def broadcasts(self) -> bool:
        """Whether an input has another shape than the output."""
        return any(shape != self.output for shape in self.inputs)

    @property
    def depth(self) -> int:
        """Products per tap of a filter, or per row of weights."""
        return self.inputs[1][-1]

    @property
    def dilated(self) -> bool:
        """Whether there are gaps between the taps of a window."""
        return (self.rows.dilation, self.columns.dilation) != (1, 1)


Path = Callable[[LoopShape], LoopTrips | None]


def _path(name: str, trips: Mapping[str, int]) -> LoopTrips:
    return LoopTrips(name, {"call": 1, **trips})


def places_inside(axis: Axis) -> npt.NDArray[np.int64]:
    """For each window, the number of its taps that lie in the image."""
    first = np.arange(axis.windows, dtype=np.int64) * axis.stride - axis.before
    places = first[:, None] + np.arange(axis.taps, dtype=np.int64) * axis.dilation
    return np.asarray(((places >= 0) & (places < axis.size)).sum(1, dtype=np.int64), None)


def _inside(axis: Axis) -> int:
    return int(places_inside(axis).sum(dtype=np.int64))


# --- TFLM's own kernels ------------------------------------------------------------------------------------------


def _reference_conv_2d(layer: LoopShape) -> LoopTrips | None:
    if layer.inputs[0][3] != layer.depth:
        return None
    trips = {
        "positions": layer.positions,
        "outputs": layer.outputs,
        "rows of windows": layer.outputs * layer.rows.taps,
        "taps": layer.outputs * layer.taps,
        "taps inside": layer.taps_inside * layer.channels,
        "products": layer.taps_inside * layer.channels * layer.depth,
    }
    return _path("conv_2d", trips)


def _reference_depthwise_conv_2d(layer: LoopShape) -> LoopTrips:
    trips = {
        "positions": layer.positions,
        "channels of input": layer.positions * layer.inputs[0][3],
        "outputs": layer.outputs,
        "rows of windows": layer.outputs * layer.rows.taps,
        "taps": layer.outputs * layer.taps,
        "taps in rows inside": layer.rows_inside * layer.columns.taps * layer.channels,
        "taps in columns inside": layer.columns_inside * layer.rows.taps * layer.channels,
        "taps inside": layer.taps_inside * layer.channels,
    }
    return _path("depthwise_conv_2d", trips)


def _reference_fully_connected(layer: LoopShape) -> LoopTrips:
    trips = {"batches": layer.vectors, "outputs": layer.outputs, "products": layer.outputs * layer.depth}
    return _path("fully_connected", trips)


def _reference_pool(layer: LoopShape) -> LoopTrips:
    trips = {
        "positions": layer.positions,
        "outputs": layer.outputs,
        "rows of windows": layer.rows_inside * layer.channels,
        "taps inside": layer.taps_inside * layer.channels,
    }
    return _path(layer.operator.lower(), trips)


def _softmax(layer: LoopShape) -> LoopTrips:
    return _path("softmax", {"rows": math.prod(layer.output[:-1]), "outputs": layer.outputs})


def _elementwise(layer: LoopShape) -> LoopTrips | None:
    return None if layer.broadcasts else _by_output(layer)


def _by_output(layer: LoopShape) -> LoopTrips:
    return _path(layer.operator.lower(), {"outputs": layer.outputs})


def _quantize(layer: LoopShape) -> LoopTrips:
    """From floats, or from one integer type to another."""
    kind = "float32" if layer.types[0] == "float32" else "integers"
    return _path(f"quantize, {kind}", {"outputs": layer.outputs})


def _of_four(layer: LoopShape) -> tuple[Shape, list[tuple[int, int]]]:
    """Shape and paddings of a PAD's output in four dimensions."""
    missing = 4 - len(layer.output)
    return (1,) * missing + layer.output, [(0, 0)] * missing + list(layer.paddings)


def _reference_pad(layer: LoopShape) -> LoopTrips | None:
    if len(layer.output) > 4:
        return None
    (batches, rows, columns, _), _ = _of_four(layer)
    copied = math.prod(layer.inputs[0])
    trips = {
        "rows": batches * rows,
        "positions": batches * rows * columns,
        "copied": copied,
        "filled": layer.outputs - copied,
    }
    return _path("pad", trips)


def _cmsis_pad(layer: LoopShape) -> LoopTrips | None:
    """arm_pad_s8: a row at a time if channels are not padded, else one position at a time."""
    if len(layer.output) > 4:
        return None
    (_, _, columns, depth), paddings = _of_four(layer)
    batches, rows, width, channels = (1,) * (4 - len(layer.inputs[0])) + layer.inputs[0]
    lines = batches * rows
    whole = channels == depth
    fills = {  # bytes of a fill, and how often it happens
        "batches": [(size * math.prod(layer.output[-3:]), 1) for size in paddings[0]],
        "rows": [(size * columns * depth, batches) for size in paddings[1]],
        "columns": [(size * depth, lines) for size in paddings[2]],
        "channels": [] if whole else [(size, lines * width) for size in paddings[3]],
    }
    sizes = [piece for pieces in fills.values() for piece in pieces]
    copies, copied = (lines, width * channels) if whole else (lines * width, channels)
    trips = {
        "batches": batches,
        "rows": lines,
        "positions": 0 if whole else lines * width,
        "fills": sum(times for size, times in sizes if size),
        "filled, by 4": sum(size // 4 * times for size, times in sizes),
        "filled, by 1": sum(size % 4 * times for size, times in sizes),
        **_in_parts("copied", copies, copied, 16, 4, 1),
        "copied": copies * copied,
        "copied, unaligned": copies
        * copied
        * (not _in_words(layer.inputs[0][-1:], layer.output[-1:], paddings, whole)),
    }
    return _path(f"pad, {'rows' if whole else 'positions'}", trips)


def _in_words(inner: Shape, outer: Shape, paddings: Sequence[tuple[int, int]], whole: bool) -> bool:
    """Whether every copy of a PAD begins at a whole word on both sides."""
    return not (inner[0] % 4 or outer[0] % 4 or (not whole and paddings[3][0] % 4))


# --- CMSIS-NN ----------------------------------------------------------------------------------------------------


def _in_parts(name: str, times: int, length: int, *parts: int) -> dict[str, int]:
    """Nested divisions of a length, each for the remainder of the previous one; also counts how often each loop is
    entered."""
    trips = {}
    for part in parts:
        count, length = divmod(length, part)
        trips[f"{name}, by {part}"] = times * count
        trips[f"{name}, by {part}, entered"] = times * (count > 0)
    return trips


def _convolve_s8(layer: LoopShape) -> LoopTrips | None:
    """arm_convolve_s8 with DSP: windows become columns, which two at a time meet two channels at a time."""
    depth, channels = layer.depth, layer.channels
    if layer.inputs[0][3] != depth:
        return None
    column, outside = layer.taps * depth, layer.positions * layer.taps - layer.taps_inside
    pairs, odd = layer.batches * (layer.windows // 2), layer.batches * (layer.windows % 2)
    trips = {
        "columns": layer.positions,
        "rows of windows": layer.positions * layer.rows.taps,
        "taps inside": layer.taps_inside,
        **_in_parts("bytes inside", layer.taps_inside, depth, 64, 16, 4, 1),
        "taps outside": outside,
        **_in_parts("bytes outside", outside, depth, 16, 4, 1),
        **_in_parts("columns widened", layer.positions, column, 4, 1),
        "pairs of columns": pairs,
        "pairs of columns and channels": pairs * (channels // 2),
        "pairs of columns and channels, entered": pairs * (channels > 1),
        **_in_parts("pairs of columns and channels", pairs * (channels // 2), column, 4, 1),
        "pairs of columns, odd channel": pairs * (channels % 2),
        **_in_parts("pairs of columns, odd channel", pairs * (channels % 2), column, 4, 1),
        "odd column": odd * channels,
        **_in_parts("odd column", odd * channels, column, 4, 1),
    }
    return _path("conv_2d, columns", trips)


def _mat_mult_nt_t_s8(calls: int, rows: int, channels: int, depth: int) -> dict[str, int]:
    """arm_nn_mat_mult_nt_t_s8 with DSP: two rows at a time meet two channels at a time."""
    pairs, both, last = channels // 2, rows // 2, rows % 2
    trips = {
        "pairs of channels": calls * pairs,
        "pairs of channels, entered": calls * (pairs > 0),
        "pairs of channels, sum": calls * pairs * depth,
        "pairs of rows, entered": calls * pairs * (both > 0),
    }
    for name, times in (("pairs of rows", calls * pairs * both), ("odd row", calls * pairs * last)):
        trips |= {name: times, **_in_parts(name, times, depth, 16, 4, 1)}
    odd = calls * (channels % 2)
    return trips | {"odd channel": odd, "odd channel, rows": odd * rows, "odd channel, products": odd * rows * depth}


def _is_pointwise(layer: LoopShape) -> bool:
    unpadded = layer.rows.before == layer.columns.before == 0
    return unpadded and layer.taps == 1 and not layer.dilated and layer.inputs[0][3] == layer.depth


def _is_one_row(layer: LoopShape) -> bool:
    _, height, _, depth = layer.inputs[0]
    words = layer.columns.stride * depth % 4 == 0
    return height == layer.rows.taps == layer.columns.dilation == 1 and words and depth == layer.depth


def _pointwise(layer: LoopShape, products: Callable[[int, int, int, int], dict[str, int]]) -> LoopTrips:
    """arm_convolve_1x1_s8_fast: one product of matrices; or arm_convolve_1x1_s8: one for each row of the image."""
    batches, height, width, channels = layer.output
    strides = (layer.rows.stride, layer.columns.stride) != (1, 1)
    calls, rows = (batches * height, width) if strides else (1, batches * height * width)
    trips = {"call": 1, "rows of image": calls if strides else 0}
    return LoopTrips("conv_2d, 1x1", trips | products(calls, rows, channels, layer.inputs[0][3]))


def _fully_connected_as_pointwise(layer: LoopShape) -> LoopShape | None:
    """FULLY_CONNECTED of whole words with more than two dimensions, which TFLM runs as a 1x1 convolution in
    CMSIS-NN."""
    depth, channels = layer.depth, layer.output[-1]
    if len(layer.output) <= 2 or depth % 4:
        return None
    rows = layer.outputs // channels
    return LoopShape(layer.operator, ((1, 1, rows, depth), (channels, 1, 1, depth)), (1, 1, rows, channels))


def _dsp_depthwise_conv_2d(layer: LoopShape) -> LoopTrips:
    if layer.inputs[0][3] == layer.channels and layer.batches == 1 and not layer.dilated:
        small = layer.rows.taps == layer.columns.taps == 3 and max(layer.rows.before, layer.columns.before) <= 1
        return _depthwise_3x3(layer) if small else _depthwise_opt(layer)
    return _depthwise_any(layer)


def _plain_depthwise_conv_2d(layer: LoopShape) -> LoopTrips:
    """Without DSP: the kernel for 3x3, or the one for any window."""
    trips = _dsp_depthwise_conv_2d(layer)
    return trips if trips.path == "depthwise_conv_2d, 3x3" else _depthwise_any(layer)


def _plain_fully_connected(layer: LoopShape) -> LoopTrips:
    """Without DSP: three channels at a time, then one at a time."""
    if (pointwise := _fully_connected_as_pointwise(layer)) is not None:
        return _pointwise(pointwise, _mat_mult_nt_t_s8)
    threes, left = layer.vectors * (layer.channels // 3), layer.vectors * (layer.channels % 3)
    trips = {
        "batches": layer.vectors,
        "three channels": threes,
        "three channels, products": threes * layer.depth,
        "channels left over": left,
        "channels left over, products": left * layer.depth,
    }
    return _path("fully_connected", trips)


def _depthwise_3x3(layer: LoopShape) -> LoopTrips:
    """arm_depthwise_conv_3x3_s8: four channels at a time, and the left, middle and right tap of each row of a
    window."""
    rows = _inside(layer.rows)
    first = np.arange(layer.columns.windows, dtype=np.int64) * layer.columns.stride - layer.columns.before
    left, right = first >= 0, layer.columns.size - first >= 3
    trips = {"rows": layer.rows.windows, "positions": layer.positions}
    for name, times in (("four channels", layer.channels // 4), ("channels left over", layer.channels % 4)):
        trips |= {
            name: layer.positions * times,
            f"{name}, entered": layer.positions * (times > 0),
            f"{name}, whole rows": rows * int((left & right).sum(dtype=np.int64)) * times,
            f"{name}, rows without left": rows * int((~left & right).sum(dtype=np.int64)) * times,
            f"{name}, rows without right": rows * int((left & ~right).sum(dtype=np.int64)) * times,
            f"{name}, rows of one place": rows * int((~left & ~right).sum(dtype=np.int64)) * times,
        }
    return _path("depthwise_conv_2d, 3x3", trips)


def _depthwise_opt(layer: LoopShape) -> LoopTrips:
    """arm_depthwise_conv_s8_opt with DSP, for one image: a column for each window, then four channels at a time."""
    channels, rows, inside = layer.channels, layer.rows_inside, layer.taps_inside
    fours, left = layer.positions * (channels // 4), layer.positions * (channels % 4)
    beside, rows_outside = rows * layer.columns.taps - inside, layer.positions * layer.rows.taps - rows
    trips = {
        "positions": layer.positions,
        "rows inside": rows,
        "taps inside": inside,
        **_in_parts("elements inside", inside, channels, 4, 1),
        "taps beside": beside,
        "bytes beside": 2 * beside * channels,
        "bytes above and below": 2 * rows_outside * layer.columns.taps * channels,
        "four channels": fours,
        "four channels, entered": layer.positions * (channels > 3),
        "four channels, two taps": fours * (layer.taps // 2),
        "four channels, odd tap": fours * (layer.taps % 2),
        "channels left over": left,
        "channels left over, entered": layer.positions * (channels % 4 > 0),
        "channels left over, taps": left * layer.taps,
    }
    return _path("depthwise_conv_2d, any window", trips)


def _depthwise_any(layer: LoopShape) -> LoopTrips:
    """arm_depthwise_conv_s8: four output channels of an input channel at a time, or one."""
    multiplier = layer.channels // layer.inputs[0][3]
    fours = multiplier % 4 == 0 and layer.batches == 1 and not layer.dilated
    outputs = layer.channels // 4 if fours else layer.channels
    trips = {
        "positions": layer.positions,
        "channels of input": layer.positions * layer.inputs[0][3],
        "outputs": layer.positions * outputs,
        "outputs of dilated rows": layer.positions * outputs * (layer.rows.dilation > 1),
        "outputs of dilated columns": layer.positions * outputs * (layer.columns.dilation > 1),
        "rows inside": layer.rows_inside * outputs,
        "taps inside": layer.taps_inside * outputs,
    }
    return _path(f"depthwise_conv_2d, {'by fours' if fours else 'any'}", trips)


def _dsp_fully_connected(layer: LoopShape) -> LoopTrips:
    if (pointwise := _fully_connected_as_pointwise(layer)) is not None:
        return _pointwise(pointwise, _mat_mult_nt_t_s8)
    pairs, odd = layer.vectors * (layer.channels // 2), layer.vectors * (layer.channels % 2)
    trips = {
        "batches": layer.vectors,
        "pairs of channels, entered": layer.vectors * (layer.channels > 1),
        "pairs of channels": pairs,
        **_in_parts("pairs of channels", pairs, layer.depth, 32, 4, 1),  # unrolled 8 times
        "odd channel": odd,
        **_in_parts("odd channel", odd, layer.depth, 4, 1),
    }
    return _path("fully_connected", trips)


def _dsp_average_pool_2d(layer: LoopShape) -> LoopTrips:
    later = layer.taps_inside - layer.positions
    trips = {
        "positions": layer.positions,
        "outputs": layer.outputs,
        "rows inside": layer.rows_inside,
        "later taps": later,
        "later elements": later * layer.channels,
    }
    return _path("average_pool_2d", trips)


def _dsp_max_pool_2d(layer: LoopShape) -> LoopTrips:
    later = layer.taps_inside - layer.positions
    trips = {
        "positions": layer.positions,
        "rows inside": layer.rows_inside,
        "bytes copied": layer.outputs,
        "later taps": later,
        **_in_parts("later elements", later, layer.channels, 4, 1),
        **_in_parts("clamped", layer.batches, layer.windows * layer.channels, 4, 1),
    }
    return _path("max_pool_2d", trips)


def _dsp_elementwise(layer: LoopShape) -> LoopTrips | None:
    return None if layer.broadcasts else _path(layer.operator.lower(), _in_parts("outputs", 1, layer.outputs, 4, 1))


# --- CMSIS-NN with Helium ----------------------------------------------------------------------------------------


def _vectors(length: int, lanes: int = 16) -> int:
    return -(-length // lanes)


def _mve_products(calls: int, rows: int, channels: int, depth: int) -> dict[str, int]:
    """arm_nn_mat_mult_nt_t_s8 with Helium: four rows at a time, then one at a time."""
    fours, left = calls * (rows // 4) * channels, calls * (rows % 4) * channels
    return {
        "four rows": calls * (rows // 4),
        "four rows, channels": fours,
        "four rows, vectors": fours * _vectors(depth),
        "rows left over": calls * (rows % 4),
        "rows left over, channels": left,
        "rows left over, vectors": left * _vectors(depth),
        "rows left over, four channels": calls * (rows % 4) * (channels // 4),
        "rows left over, odd channels": calls * (rows % 4) * (channels % 4),
        "rows left over, odd channels, entered": calls * (rows % 4) * (channels % 4 > 0),
        "rows left over, entered": calls * (rows % 4 > 0),
    }


def _mve_columns(layer: LoopShape, path: str, depth: int, more: Mapping[str, int]) -> LoopTrips:
    outside = layer.positions * layer.taps - layer.taps_inside
    trips = {
        "columns": layer.positions,
        "rows of windows": layer.positions * layer.rows.taps,
        "taps inside": layer.taps_inside,
        "vectors inside": layer.taps_inside * _vectors(depth),
        "taps outside": outside,
        "vectors outside": outside * _vectors(depth),
        **_mve_products(layer.batches, layer.windows, layer.channels, layer.taps * depth),
        **more,
    }
    return _path(path, trips)


def _mve_conv_2d(layer: LoopShape) -> LoopTrips | None:
    if _is_pointwise(layer):
        return _pointwise(layer, _mve_products)
    if layer.inputs[0][3] != layer.depth or _is_one_row(layer):
        return None
    return _mve_columns(layer, "conv_2d, columns", layer.depth, {})


def _mve_depthwise_conv_2d(layer: LoopShape) -> LoopTrips:
    if layer.inputs[0][3] == 1 and layer.channels > 1:
        more = {"transposed": layer.taps * layer.channels}
        return _mve_columns(layer, "depthwise_conv_2d, of one channel", 1, more)
    if layer.inputs[0][3] != layer.channels or layer.batches > 1 or layer.dilated:
        return _depthwise_any(layer)
    inside, outside = layer.taps_inside, layer.positions * layer.taps - layer.taps_inside
    sizes = [min(124, layer.channels - start) for start in range(0, layer.channels, 124)]  # CH_IN_BLOCK_MVE
    blocks, words = len(sizes), sum(_vectors(size, 4) for size in sizes)
    vectors = sum(_vectors(size) for size in sizes)
    fours, left = layer.positions // 4 * words, layer.positions % 4 * words
    trips = {
        "blocks": blocks,
        "positions": blocks * layer.positions,
        "rows of windows": blocks * layer.positions * layer.rows.taps,
        "taps inside": blocks * inside,
        "vectors inside": vectors * inside,
        "taps outside": blocks * outside,
        "vectors outside": vectors * outside,
        "four positions": blocks * (layer.positions // 4),
        "four positions, four channels": fours,
        "four positions, four channels, taps": fours * layer.taps,
        "positions left over, four channels": left,
        "positions left over, four channels, taps": left * layer.taps,
    }
    return _path("depthwise_conv_2d, any window", trips)


def _mve_fully_connected(layer: LoopShape) -> LoopTrips:
    if (pointwise := _fully_connected_as_pointwise(layer)) is not None:
        return _pointwise(pointwise, _mve_products)
    trips = {"batches": layer.vectors}
    for name, times in (("four channels", layer.channels // 4), ("channels left over", layer.channels % 4)):
        trips |= {
            name: layer.vectors * times,
            f"{name}, entered": layer.vectors * (times > 0),
            f"{name}, vectors": layer.vectors * times * _vectors(layer.depth),
        }
    return _path("fully_connected", trips)


def _mve_max_pool_2d(layer: LoopShape) -> LoopTrips:
    later, vectors = layer.taps_inside - layer.positions, _vectors(layer.channels)
    trips = {
        "positions": layer.positions,
        "vectors copied": layer.positions * vectors,
        "rows inside": layer.rows_inside,
        "later taps": later,
        "later vectors": later * vectors,
        "vectors clamped": layer.batches * _vectors(layer.windows * layer.channels),
    }
    return _path("max_pool_2d", trips)


def _mve_average_pool_2d(layer: LoopShape) -> LoopTrips:
    vectors = _vectors(layer.channels)
    trips = {
        "positions": layer.positions,
        "vectors": layer.positions * vectors,
        "outputs": layer.outputs,
        "rows inside": layer.rows_inside * vectors,
        "taps inside": layer.taps_inside,
        "vectors inside": layer.taps_inside * vectors,
    }
    return _path("average_pool_2d", trips)


def _mve_elementwise(layer: LoopShape) -> LoopTrips | None:
    return None if layer.broadcasts else _path(layer.operator.lower(), {"vectors": _vectors(layer.outputs, 4)})


_CONVERSIONS: dict[str, Path] = {
    "DEQUANTIZE": _by_output,
    "LEAKY_RELU": _by_output,
    "QUANTIZE": _quantize,
    "TFLM_DECODE": lambda layer: _path("tflm_decode", dict(layer.decoding)),
}
"""Operators that every library leaves to TFLM's own kernels."""

_DSP: dict[str, Path] = {
    **_CONVERSIONS,
    "ADD": _dsp_elementwise,
    "AVERAGE_POOL_2D": _dsp_average_pool_2d,
    "CONV_2D": lambda layer: _pointwise(layer, _mat_mult_nt_t_s8) if _is_pointwise(layer) else _convolve_s8(layer),
    "DEPTHWISE_CONV_2D": _dsp_depthwise_conv_2d,
    "FULLY_CONNECTED": _dsp_fully_connected,
    "MAX_POOL_2D": _dsp_max_pool_2d,
    "MUL": _dsp_elementwise,
    "PAD": _cmsis_pad,
    "SOFTMAX": _softmax,
}

PATHS: dict[str, dict[str, Path]] = {
    "reference": {
        **_CONVERSIONS,
        "ADD": _elementwise,
        "AVERAGE_POOL_2D": _reference_pool,
        "CONV_2D": _reference_conv_2d,
        "DEPTHWISE_CONV_2D": _reference_depthwise_conv_2d,
        "FULLY_CONNECTED": _reference_fully_connected,
        "MAX_POOL_2D": _reference_pool,
        "MUL": _elementwise,
        "PAD": _reference_pad,
        "SOFTMAX": _softmax,
    },
    "cmsis-nn/none": {
        **_DSP,
        "AVERAGE_POOL_2D": _reference_pool,
        "DEPTHWISE_CONV_2D": _plain_depthwise_conv_2d,
        "FULLY_CONNECTED": _plain_fully_connected,
    },
    "cmsis-nn/dsp": _DSP,
    "cmsis-nn/mve": {
        **_CONVERSIONS,
        "ADD": _mve_elementwise,
        "AVERAGE_POOL_2D": _mve_average_pool_2d,
        "CONV_2D": _mve_conv_2d,
        "DEPTHWISE_CONV_2D": _mve_depthwise_conv_2d,
        "FULLY_CONNECTED": _mve_fully_connected,
        "MAX_POOL_2D": _mve_max_pool_2d,
        "MUL": _mve_elementwise,
        "PAD": _cmsis_pad,
        "SOFTMAX": _softmax,
    },
}
"""The path of an operator, by kernel library and, for CMSIS-NN, extension; None if it has no formula."""
