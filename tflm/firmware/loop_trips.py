"""How often the loops of a kernel run, from the shapes of an operator's tensors.

Instructions of an int8 kernel depend on its data hardly at all: they are sums of how often each of its loops runs,
times what one trip takes. This counts the trips; what they take is in `tflm.firmware.instructions`. Each function here
is a path through a kernel, of TFLM's own or of CMSIS-NN (4ab83cc3c), and its trips are named by what they run over.
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
        trips: how often each of its loops runs; "call" is the kernel's frame, which runs once.
    """

    path: str
    trips: Mapping[str, int]


@dataclass(frozen=True)
class Layer:
    """What the loops of an int8 operator go by.

    Attributes:
        operator: its name.
        inputs, output: shapes.
        rows, columns: where its windows lie, if it has any.
        types: of the first input and of the output, by name.
        paddings: places before and after each dimension of a PAD's input.
    """

    operator: str
    inputs: tuple[Shape, ...]
    output: Shape
    rows: Axis = ONE_PLACE
    columns: Axis = ONE_PLACE
    types: tuple[str, str] = ("int8", "int8")
    paddings: tuple[tuple[int, int], ...] = ()

    @property
    def taps(self) -> int:
        """Places of a window."""
        return self.rows.taps * self.columns.taps

    @property
    def positions(self) -> int:
        """Windows of an image."""
        return self.rows.windows * self.columns.windows

    @property
    def dilated(self) -> bool:
        """Whether there are gaps between the places of a window."""
        return (self.rows.dilation, self.columns.dilation) != (1, 1)


Path = Callable[[Layer], LoopTrips | None]


def places_inside(axis: Axis) -> npt.NDArray[np.int64]:
    """For each window, how many of its places lie in the image."""
    first = np.arange(axis.windows, dtype=np.int64) * axis.stride - axis.before
    places = first[:, None] + np.arange(axis.taps, dtype=np.int64) * axis.dilation
    return np.asarray(((places >= 0) & (places < axis.size)).sum(1, dtype=np.int64), None)


def _rows_inside(layer: Layer) -> int:
    """Rows of windows that lie in the image, of all windows."""
    return int(places_inside(layer.rows).sum(dtype=np.int64)) * layer.columns.windows


def _taps_inside(layer: Layer) -> int:
    """Places of windows that lie in the image, of all windows."""
    return int(places_inside(layer.rows).sum(dtype=np.int64) * places_inside(layer.columns).sum(dtype=np.int64))


# --- TFLM's own kernels ------------------------------------------------------------------------------------------


def _reference_conv_2d(layer: Layer) -> LoopTrips | None:
    batches, *_, channels = layer.output
    depth = layer.inputs[1][3]
    if layer.inputs[0][3] != depth:
        return None
    outputs, inside = batches * layer.positions * channels, batches * _taps_inside(layer) * channels
    return LoopTrips(
        "conv_2d",
        {
            "call": 1,
            "positions": batches * layer.positions,
            "outputs": outputs,
            "rows of windows": outputs * layer.rows.taps,
            "taps": outputs * layer.taps,
            "taps inside": inside,
            "products": inside * depth,
        },
    )


def _reference_depthwise_conv_2d(layer: Layer) -> LoopTrips:
    batches, *_, channels = layer.output
    outputs = batches * layer.positions * channels
    return LoopTrips(
        "depthwise_conv_2d",
        {
            "call": 1,
            "positions": batches * layer.positions,
            "channels of input": batches * layer.positions * layer.inputs[0][3],
            "outputs": outputs,
            "rows of windows": outputs * layer.rows.taps,
            "taps": outputs * layer.taps,
            "taps in rows inside": batches * _rows_inside(layer) * layer.columns.taps * channels,
            "taps in columns inside": batches
            * int(places_inside(layer.columns).sum(dtype=np.int64))
            * layer.rows.windows
            * layer.rows.taps
            * channels,
            "taps inside": batches * _taps_inside(layer) * channels,
        },
    )


def _reference_fully_connected(layer: Layer) -> LoopTrips:
    outputs = math.prod(layer.output)
    return LoopTrips(
        "fully_connected",
        {
            "call": 1,
            "batches": outputs // layer.output[-1],
            "outputs": outputs,
            "products": outputs * layer.inputs[1][-1],
        },
    )


def _reference_pool(layer: Layer) -> LoopTrips:
    batches, *_, channels = layer.output
    positions = batches * layer.positions
    return LoopTrips(
        layer.operator.lower(),
        {
            "call": 1,
            "positions": positions,
            "outputs": positions * channels,
            "rows of windows": batches * _rows_inside(layer) * channels,
            "taps inside": batches * _taps_inside(layer) * channels,
        },
    )


def _softmax(layer: Layer) -> LoopTrips:
    return LoopTrips(
        "softmax",
        {"call": 1, "rows": math.prod(layer.output[:-1]), "outputs": math.prod(layer.output)},
    )


def _elementwise(layer: Layer) -> LoopTrips | None:
    if any(shape != layer.output for shape in layer.inputs):
        return None  # broadcast
    outputs = math.prod(layer.output)
    return LoopTrips(layer.operator.lower(), {"call": 1, "outputs": outputs})


def _quantize(layer: Layer) -> LoopTrips:
    """From floats, or from one integer type to another."""
    kind = "float32" if layer.types[0] == "float32" else "integers"
    return LoopTrips(f"quantize, {kind}", {"call": 1, "outputs": math.prod(layer.output)})


def _dequantize(layer: Layer) -> LoopTrips:
    return LoopTrips("dequantize", {"call": 1, "outputs": math.prod(layer.output)})


def _leaky_relu(layer: Layer) -> LoopTrips:
    return LoopTrips("leaky_relu", {"call": 1, "outputs": math.prod(layer.output)})


def _of_four(layer: Layer) -> tuple[Shape, list[tuple[int, int]]]:
    """Shape and paddings of a PAD's output in four dimensions."""
    missing = 4 - len(layer.output)
    return (1,) * missing + layer.output, [(0, 0)] * missing + list(layer.paddings)


def _reference_pad(layer: Layer) -> LoopTrips | None:
    if len(layer.output) > 4:
        return None
    (batches, rows, columns, depth), _ = _of_four(layer)
    copied = math.prod(layer.inputs[0])
    outputs = batches * rows * columns * depth
    return LoopTrips(
        "pad",
        {
            "call": 1,
            "rows": batches * rows,
            "positions": batches * rows * columns,
            "copied": copied,
            "filled": outputs - copied,
        },
    )


def _cmsis_pad(layer: Layer) -> LoopTrips | None:
    """arm_pad_s8: a row at a time where the channels stay, else each position for itself."""
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
    return LoopTrips(
        f"pad, {'rows' if whole else 'positions'}",
        {
            "call": 1,
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
        },
    )


def _in_words(inner: Shape, outer: Shape, paddings: Sequence[tuple[int, int]], whole: bool) -> bool:
    """Whether every copy of a PAD begins at a whole word on both sides."""
    return not (inner[0] % 4 or outer[0] % 4 or (not whole and paddings[3][0] % 4))


# --- CMSIS-NN ----------------------------------------------------------------------------------------------------


def _in_parts(name: str, times: int, length: int, *parts: int) -> dict[str, int]:
    """Loops over parts of a length, each over what the one before it left; also how often each is entered at all."""
    trips = {}
    for part in parts:
        count, length = divmod(length, part)
        trips[f"{name}, by {part}"] = times * count
        trips[f"{name}, by {part}, entered"] = times * (count > 0)
    return trips


def _convolve_s8(layer: Layer) -> LoopTrips | None:
    """arm_convolve_s8 with DSP: windows become columns, which two at a time meet two channels at a time."""
    batches, *_, channels = layer.output
    depth = layer.inputs[1][3]
    if layer.inputs[0][3] != depth:
        return None
    columns, column = batches * layer.positions, layer.taps * depth
    inside = batches * _taps_inside(layer)
    pairs, odd = batches * (layer.positions // 2), batches * (layer.positions % 2)
    return LoopTrips(
        "conv_2d, columns",
        {
            "call": 1,
            "columns": columns,
            "rows of windows": columns * layer.rows.taps,
            "taps inside": inside,
            **_in_parts("bytes inside", inside, depth, 64, 16, 4, 1),
            "taps outside": columns * layer.taps - inside,
            **_in_parts("bytes outside", columns * layer.taps - inside, depth, 16, 4, 1),
            **_in_parts("columns widened", columns, column, 4, 1),
            "pairs of columns": pairs,
            "pairs of columns and channels": pairs * (channels // 2),
            "pairs of columns and channels, entered": pairs * (channels > 1),
            **_in_parts("pairs of columns and channels", pairs * (channels // 2), column, 4, 1),
            "pairs of columns, odd channel": pairs * (channels % 2),
            **_in_parts("pairs of columns, odd channel", pairs * (channels % 2), column, 4, 1),
            "odd column": odd * channels,
            **_in_parts("odd column", odd * channels, column, 4, 1),
        },
    )


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


def _is_pointwise(layer: Layer) -> bool:
    unpadded = layer.rows.before == layer.columns.before == 0
    return unpadded and layer.taps == 1 and not layer.dilated and layer.inputs[0][3] == layer.inputs[1][3]


def _is_one_row(layer: Layer) -> bool:
    _, height, _, depth = layer.inputs[0]
    words = layer.columns.stride * depth % 4 == 0
    return height == layer.rows.taps == layer.columns.dilation == 1 and words and depth == layer.inputs[1][3]


def _dsp_conv_2d(layer: Layer) -> LoopTrips | None:
    return _pointwise(layer, _mat_mult_nt_t_s8) if _is_pointwise(layer) else _convolve_s8(layer)


def _pointwise(layer: Layer, products: Callable[[int, int, int, int], dict[str, int]]) -> LoopTrips:
    """arm_convolve_1x1_s8_fast: one product of matrices; or arm_convolve_1x1_s8: one for each row of the image."""
    batches, height, width, channels = layer.output
    strides = (layer.rows.stride, layer.columns.stride) != (1, 1)
    calls, rows = (batches * height, width) if strides else (1, batches * height * width)
    trips = {"call": 1, "rows of image": calls if strides else 0}
    return LoopTrips("conv_2d, 1x1", trips | products(calls, rows, channels, layer.inputs[0][3]))


def _fully_connected_as_pointwise(layer: Layer) -> Layer | None:
    """The convolution as which TFLM has CMSIS-NN run a FULLY_CONNECTED of whole words with more than two dimensions."""
    depth, channels = layer.inputs[1][-1], layer.output[-1]
    if len(layer.output) <= 2 or depth % 4:
        return None
    rows = math.prod(layer.output) // channels
    return Layer(layer.operator, ((1, 1, rows, depth), (channels, 1, 1, depth)), (1, 1, rows, channels))


def _dsp_depthwise_conv_2d(layer: Layer) -> LoopTrips:
    batches, *_, channels = layer.output
    if layer.inputs[0][3] == channels and batches == 1 and not layer.dilated:
        small = layer.rows.taps == layer.columns.taps == 3 and max(layer.rows.before, layer.columns.before) <= 1
        return _depthwise_3x3(layer) if small else _depthwise_opt(layer)
    return _depthwise_any(layer)


def _plain_depthwise_conv_2d(layer: Layer) -> LoopTrips:
    """Without DSP: the kernel for 3x3, or the one for any window."""
    trips = _dsp_depthwise_conv_2d(layer)
    return trips if trips.path == "depthwise_conv_2d, 3x3" else _depthwise_any(layer)


def _plain_fully_connected(layer: Layer) -> LoopTrips:
    """Without DSP: three channels at a time, then one at a time."""
    depth, channels = layer.inputs[1][-1], layer.output[-1]
    batches = math.prod(layer.output) // channels
    if (pointwise := _fully_connected_as_pointwise(layer)) is not None:
        return _pointwise(pointwise, _mat_mult_nt_t_s8)
    threes, left = batches * (channels // 3), batches * (channels % 3)
    trips = {"call": 1, "batches": batches, "three channels": threes, "three channels, products": threes * depth}
    return LoopTrips(
        "fully_connected", trips | {"channels left over": left, "channels left over, products": left * depth}
    )


def _depthwise_3x3(layer: Layer) -> LoopTrips:
    """arm_depthwise_conv_3x3_s8: four channels at a time; of each row of a window its left, middle and right place."""
    channels, depth = layer.output[3] // 4, layer.output[3] % 4
    rows = int(places_inside(layer.rows).sum(dtype=np.int64))
    first = np.arange(layer.columns.windows, dtype=np.int64) * layer.columns.stride - layer.columns.before
    left, right = first >= 0, layer.columns.size - first >= 3
    trips = {"call": 1, "rows": layer.rows.windows, "positions": layer.positions}
    for name, times in (("four channels", channels), ("channels left over", depth)):
        trips |= {
            name: layer.positions * times,
            f"{name}, entered": layer.positions * (times > 0),
            f"{name}, whole rows": rows * int((left & right).sum(dtype=np.int64)) * times,
            f"{name}, rows without left": rows * int((~left & right).sum(dtype=np.int64)) * times,
            f"{name}, rows without right": rows * int((left & ~right).sum(dtype=np.int64)) * times,
            f"{name}, rows of one place": rows * int((~left & ~right).sum(dtype=np.int64)) * times,
        }
    return LoopTrips("depthwise_conv_2d, 3x3", trips)


def _depthwise_opt(layer: Layer) -> LoopTrips:
    """arm_depthwise_conv_s8_opt with DSP: a column for each window, then four channels at a time."""
    channels = layer.output[3]
    rows, inside = _rows_inside(layer), _taps_inside(layer)
    outside = layer.columns.windows * (layer.rows.windows * layer.rows.taps) - rows
    beyond = rows * layer.columns.taps - inside
    return LoopTrips(
        "depthwise_conv_2d, any window",
        {
            "call": 1,
            "positions": layer.positions,
            "rows inside": rows,
            "taps inside": inside,
            **_in_parts("elements inside", inside, channels, 4, 1),
            "taps beside": beyond,
            "bytes beside": 2 * beyond * channels,
            "bytes above and below": 2 * outside * layer.columns.taps * channels,
            "four channels": layer.positions * (channels // 4),
            "four channels, entered": layer.positions * (channels > 3),
            "four channels, two taps": layer.positions * (channels // 4) * (layer.taps // 2),
            "four channels, odd tap": layer.positions * (channels // 4) * (layer.taps % 2),
            "channels left over": layer.positions * (channels % 4),
            "channels left over, entered": layer.positions * (channels % 4 > 0),
            "channels left over, taps": layer.positions * (channels % 4) * layer.taps,
        },
    )


def _depthwise_any(layer: Layer) -> LoopTrips:
    """arm_depthwise_conv_s8: four channels at a time that come of one, or one at a time."""
    batches, *_, channels = layer.output
    multiplier = channels // layer.inputs[0][3]
    fours = multiplier % 4 == 0 and batches == 1 and not layer.dilated
    outputs = channels // 4 if fours else channels
    return LoopTrips(
        f"depthwise_conv_2d, {'by fours' if fours else 'any'}",
        {
            "call": 1,
            "positions": batches * layer.positions,
            "channels of input": batches * layer.positions * layer.inputs[0][3],
            "outputs": batches * layer.positions * outputs,
            "outputs of dilated rows": batches * layer.positions * outputs * (layer.rows.dilation > 1),
            "outputs of dilated columns": batches * layer.positions * outputs * (layer.columns.dilation > 1),
            "rows inside": batches * _rows_inside(layer) * outputs,
            "taps inside": batches * _taps_inside(layer) * outputs,
        },
    )


def _dsp_fully_connected(layer: Layer) -> LoopTrips:
    depth, channels = layer.inputs[1][-1], layer.output[-1]
    batches = math.prod(layer.output) // channels
    if (pointwise := _fully_connected_as_pointwise(layer)) is not None:
        return _pointwise(pointwise, _mat_mult_nt_t_s8)
    trips = {"call": 1, "batches": batches, "pairs of channels, entered": batches * (channels > 1)}
    pairs, odd = batches * (channels // 2), batches * (channels % 2)
    trips |= {"pairs of channels": pairs, **_in_parts("pairs of channels", pairs, depth, 32, 4, 1)}  # unrolled 8 times
    return LoopTrips("fully_connected", trips | {"odd channel": odd, **_in_parts("odd channel", odd, depth, 4, 1)})


def _dsp_average_pool_2d(layer: Layer) -> LoopTrips:
    batches, *_, channels = layer.output
    positions, inside = batches * layer.positions, batches * _taps_inside(layer)
    return LoopTrips(
        "average_pool_2d",
        {
            "call": 1,
            "positions": positions,
            "outputs": positions * channels,
            "rows inside": batches * _rows_inside(layer),
            "later taps": inside - positions,
            "later elements": (inside - positions) * channels,
        },
    )


def _dsp_max_pool_2d(layer: Layer) -> LoopTrips:
    batches, *_, channels = layer.output
    positions, inside = batches * layer.positions, batches * _taps_inside(layer)
    return LoopTrips(
        "max_pool_2d",
        {
            "call": 1,
            "positions": positions,
            "rows inside": batches * _rows_inside(layer),
            "bytes copied": positions * channels,
            "later taps": inside - positions,
            **_in_parts("later elements", inside - positions, channels, 4, 1),
            **_in_parts("clamped", batches, layer.positions * channels, 4, 1),
        },
    )


def _dsp_elementwise(layer: Layer) -> LoopTrips | None:
    if any(shape != layer.output for shape in layer.inputs):
        return None
    outputs = math.prod(layer.output)
    return LoopTrips(layer.operator.lower(), {"call": 1, **_in_parts("outputs", 1, outputs, 4, 1)})


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


def _mve_columns(layer: Layer, path: str, more: Mapping[str, int]) -> LoopTrips:
    batches, *_, channels = layer.output
    depth = layer.inputs[1][3] if layer.operator == "CONV_2D" else 1
    columns, inside = batches * layer.positions, batches * _taps_inside(layer)
    outside = columns * layer.taps - inside
    return LoopTrips(
        path,
        {
            "call": 1,
            "columns": columns,
            "rows of windows": columns * layer.rows.taps,
            "taps inside": inside,
            "vectors inside": inside * _vectors(depth),
            "taps outside": outside,
            "vectors outside": outside * _vectors(depth),
            **_mve_products(batches, layer.positions, channels, layer.taps * depth),
            **more,
        },
    )


def _mve_conv_2d(layer: Layer) -> LoopTrips | None:
    if _is_pointwise(layer):
        return _pointwise(layer, _mve_products)
    if layer.inputs[0][3] != layer.inputs[1][3] or _is_one_row(layer):
        return None
    return _mve_columns(layer, "conv_2d, columns", {})


def _mve_depthwise_conv_2d(layer: Layer) -> LoopTrips:
    batches, *_, channels = layer.output
    if layer.inputs[0][3] == 1 and channels > 1:
        return _mve_columns(layer, "depthwise_conv_2d, of one channel", {"transposed": layer.taps * channels})
    if layer.inputs[0][3] != channels or batches > 1 or layer.dilated:
        return _depthwise_any(layer)
    inside = _taps_inside(layer)
    outside = layer.positions * layer.taps - inside
    blocks = [min(124, channels - start) for start in range(0, channels, 124)]  # CH_IN_BLOCK_MVE
    words = sum(_vectors(block, 4) for block in blocks)
    vectors = sum(_vectors(block) for block in blocks)
    fours, left = layer.positions // 4 * words, layer.positions % 4 * words
    return LoopTrips(
        "depthwise_conv_2d, any window",
        {
            "call": 1,
            "blocks": len(blocks),
            "positions": len(blocks) * layer.positions,
            "rows of windows": len(blocks) * layer.positions * layer.rows.taps,
            "taps inside": len(blocks) * inside,
            "vectors inside": vectors * inside,
            "taps outside": len(blocks) * outside,
            "vectors outside": vectors * outside,
            "four positions": len(blocks) * (layer.positions // 4),
            "four positions, four channels": fours,
            "four positions, four channels, taps": fours * layer.taps,
            "positions left over, four channels": left,
            "positions left over, four channels, taps": left * layer.taps,
        },
    )


def _mve_fully_connected(layer: Layer) -> LoopTrips:
    depth, channels = layer.inputs[1][-1], layer.output[-1]
    batches = math.prod(layer.output) // channels
    if (pointwise := _fully_connected_as_pointwise(layer)) is not None:
        return _pointwise(pointwise, _mve_products)
    fours, left = batches * (channels // 4), batches * (channels % 4)
    return LoopTrips(
        "fully_connected",
        {
            "call": 1,
            "batches": batches,
            "four channels": fours,
            "four channels, entered": batches * (fours > 0),
            "four channels, vectors": fours * _vectors(depth),
            "channels left over": left,
            "channels left over, entered": batches * (left > 0),
            "channels left over, vectors": left * _vectors(depth),
        },
    )


def _mve_max_pool_2d(layer: Layer) -> LoopTrips:
    batches, *_, channels = layer.output
    positions, inside, vectors = batches * layer.positions, batches * _taps_inside(layer), _vectors(channels)
    return LoopTrips(
        "max_pool_2d",
        {
            "call": 1,
            "positions": positions,
            "vectors copied": positions * vectors,
            "rows inside": batches * _rows_inside(layer),
            "later taps": inside - positions,
            "later vectors": (inside - positions) * vectors,
            "vectors clamped": batches * _vectors(layer.positions * channels),
        },
    )


def _mve_average_pool_2d(layer: Layer) -> LoopTrips:
    batches, *_, channels = layer.output
    vectors = _vectors(channels)
    positions = batches * layer.positions
    return LoopTrips(
        layer.operator.lower(),
        {
            "call": 1,
            "positions": positions,
            "vectors": positions * vectors,
            "outputs": positions * channels,
            "rows inside": batches * _rows_inside(layer) * vectors,
            "taps inside": batches * _taps_inside(layer),
            "vectors inside": batches * _taps_inside(layer) * vectors,
        },
    )


def _mve_elementwise(layer: Layer) -> LoopTrips | None:
    if any(shape != layer.output for shape in layer.inputs):
        return None
    return LoopTrips(layer.operator.lower(), {"call": 1, "vectors": _vectors(math.prod(layer.output), 4)})


_CONVERSIONS: dict[str, Path] = {"DEQUANTIZE": _dequantize, "LEAKY_RELU": _leaky_relu, "QUANTIZE": _quantize}
"""What every library leaves to TFLM's own kernels."""

_DSP: dict[str, Path] = {
    **_CONVERSIONS,
    "ADD": _dsp_elementwise,
    "AVERAGE_POOL_2D": _dsp_average_pool_2d,
    "CONV_2D": _dsp_conv_2d,
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
"""By kernels, and for CMSIS-NN by the extension, the path that an operator takes; None where it is another."""
