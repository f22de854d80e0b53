"""CONV_2D, FULLY_CONNECTED and TRANSPOSE_CONV: windows of an image times weights, in matrix tiles."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.compiler.language import DONE, REFUSED, Elements, Float32s, Int32s, Step, kernel
from tflm.compiler.processor import Profile, processor
from tflm.delegates.compiled.bands import bands_of, together, work_array
from tflm.delegates.compiled.images import Image, image_of
from tflm.delegates.compiled.phases import by_phase, phases, places_by_window
from tflm.delegates.compiled.plain_products import PlainProduct, Scale, float_scale, integer_scale
from tflm.delegates.compiled.scaling import Scaling, copied, float_scaling, integer_scaling, largest_result
from tflm.delegates.compiled.tiles import channel_order, lanes, product
from tflm.delegates.compiled.vector_products import dot_products, has_few_channels, vector_product
from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier, WideQuantizedMultiplier
from tflm.kernels.arithmetic.requantization import OutputStage
from tflm.kernels.layers.convolution import OpDataConv
from tflm.kernels.layers.geometry import Axis, Windows
from tflm.kernels.layers.product import LayerArrays
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.reference import fully_connected
from tflm.kernels.reference.convolution import CONV_INPUTS, TRANSPOSE_INPUTS
from tflm.kernels.support.activation import activation_range, fused_activation
from tflm.schema.enums import ActivationFunctionType
from tflm.schema.options import FullyConnectedOptions

MAX_JOINED = 16

EPILOGUE_UNITS = 4
"""How many units of products take as long as the epilogue of a vector."""


def windows_to_join(columns: Axis, weights: npt.NDArray[Any], lanes: int, unit_elements: int) -> int:
    """How many windows along the columns are best joined to one, which has the channels of all of them.

    Layers with few channels then fill vectors; outside of its own window, a channel has weights of zero.

    Args:
        weights: (groups, rows of weights, taps of the rows, taps of the columns, depth).
        lanes: of a vector of channels.
        unit_elements: elements of the depth that are multiplied at a time.
    """
    groups, channels, row_taps, _, depth = weights.shape
    if groups > 1 or columns.dilation != 1:
        return 1

    def cost(count: int) -> float:
        """The cost of one of the windows."""
        vectors = -(-count * channels // lanes)
        units = -(-joined(columns, count).taps * depth // unit_elements)
        units_of_vectors: float = vectors * (row_taps * units + EPILOGUE_UNITS) / count
        return units_of_vectors

    return min((count for count in range(1, MAX_JOINED + 1) if columns.windows % count == 0), key=cost)


def joined(columns: Axis, count: int) -> Axis:
    """The columns when `count` windows are joined to one."""
    taps = columns.taps + (count - 1) * columns.stride
    return columns._replace(taps=taps, windows=columns.windows // count, stride=columns.stride * count)


def weights_of_joined(columns: Axis, weights: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
    """Weights (1, rows of weights, taps of the rows, taps of the columns, depth) of joined windows."""
    _, channels, row_taps, taps, depth = weights.shape
    made = np.zeros((count, channels, row_taps, joined(columns, count).taps, depth), weights.dtype)
    for window, own in enumerate(made):
        start = window * columns.stride
        own[:, :, start : start + taps] = weights[0]
    return made.reshape(1, count * channels, *made.shape[2:])


UNIT_ELEMENTS = {"bytes": 4, "pairs": 2, "float": 1}
"""Number of elements in a unit of 32 bits."""

WEIGHTS: dict[str, type[np.generic]] = {"bytes": np.int8, "pairs": np.int16, "float": np.float32}
"""Types of weights, by unit."""

EVERY_TILE = 1 << 40

SPLIT, LONG_CHAIN = 2, 8
"""Number of register sets among which a small tile distributes its units, to shorten chains of dependent sums."""


class Shape(NamedTuple):
    """Size of a tile: positions, and vectors of channels."""

    rows: int
    vectors: int


def tile_shapes(unit: str, bits: int) -> dict[int, tuple[int, ...]]:
    """Return the available tiles: numbers of positions, by number of vectors of channels.

    Args:
        unit: unit of the inputs.
        bits: bits of an output.
    """
    if lanes() == 16:
        of_one = (1, 4, 8, 12) if unit == "bytes" else (1, 4, 8)
        of_three = {3: (1, 4, 8)} if bits == 8 else {}
        return {4: (1, 4, 5, 6), 2: (1, 4, 8), 1: of_one, **of_three}
    if processor().is_arm64:  # it has 32 registers, too
        return {4: (1, 4, 5, 6), 2: (1, 4, 8), 1: (1, 4, 8)}
    return {2: (1, 4), 1: (1, 4, 6)}


def blocks_of(channels: int, positions: int, shapes: dict[int, tuple[int, ...]]) -> Iterator[tuple[int, int, Shape]]:
    """Divide channels into blocks of tiles: (first channel, number of blocks, tile), the last channels first.

    A block may write beyond its channels into the next position, whose channels are written later.
    """
    width, largest = lanes(), max(shapes)
    whole = channels // (largest * width)
    rest = channels - whole * largest * width
    if rest:
        vectors = min(count for count in shapes if count * width >= rest)
        yield whole * largest * width, 1, Shape(_rows(shapes[vectors], positions), vectors)
    if whole:
        yield 0, whole, Shape(_rows(shapes[largest], positions), largest)


def _rows(choices: tuple[int, ...], positions: int) -> int:
    """Return the number of positions of the cheapest tile, including some overhead for each tile."""
    return min((rows for rows in choices if rows <= positions), key=lambda rows: -(-positions // rows) * (rows + 1.5))


class ImageWindows(NamedTuple):
    """The inputs of products.

    Attributes:
        fill: the steps that fill the image.
        image: the padded image, or the input itself.
        offsets: offset of each position, in bytes.
        segments: offsets of the runs of elements from the position, in bytes.
        run: number of elements in each run.
    """

    fill: list[Step]
    image: npt.NDArray[Any]
    offsets: npt.NDArray[np.int64]
    segments: npt.NDArray[np.int64]
    run: int


def windows_of(x: npt.NDArray[Any], rows: Axis, columns: Axis, image: Image, depth: int) -> ImageWindows:
    """Return the windows of x (batches, rows, columns, channels), which read the first `depth` channels."""
    batches, _, _, channels = x.shape
    fill: list[Step] = []
    leaves = rows.leaves_image or columns.leaves_image
    itemsize = image.dtype.itemsize
    joined = columns.dilation == 1 and depth == channels
    run = columns.taps * depth if joined else depth
    whole_units = run % UNIT_ELEMENTS[image.unit] == 0
    if image.is_copy and not leaves and whole_units:
        held = x.view(image.dtype)
        top, left = rows.start, columns.start
    else:
        fill, held = image.padded(x, rows, columns, channels)
        top, left = 0, 0
    batch, row, column, _ = held.strides
    place = np.arange(batches, dtype=np.int64)[:, None, None] * batch
    place = place + (top + np.arange(rows.windows, dtype=np.int64)[:, None] * rows.stride) * row
    place = place + (left + np.arange(columns.windows, dtype=np.int64) * columns.stride) * column
    segments = (np.arange(rows.taps, dtype=np.int64) * rows.dilation * row)[:, None]
    if not joined:
        segments = segments + np.arange(columns.taps, dtype=np.int64) * columns.dilation * column
    segments = segments.reshape(-1)
    if whole_units and len(segments) > 1 and (np.diff(segments) == run * itemsize).all():
        run, segments = run * len(segments), segments[:1]
    return ImageWindows(fill, held, place.reshape(-1), segments, run)


def _window_in_place(x: npt.NDArray[Any], rows: Axis, columns: Axis, image: Image, depth: int) -> ImageWindows | None:
    """Return the only window of x if it is a run of whole units, and the image would only flip them."""
    if len(x) * rows.windows * columns.windows != 1 or not image.unflipped.is_copy:
        return None
    windows = windows_of(x, rows, columns, image.unflipped, depth)
    return windows if not windows.fill and len(windows.segments) == 1 else None


def bind_product(
    x: npt.NDArray[Any], axes: Windows, weights: npt.NDArray[Any], image: Image, scaling: Scaling, y: npt.NDArray[Any]
) -> list[Step]:
    """Return the steps that set y to the windows of x times weights, scaled.

    Args:
        x: (batches, rows, columns, channels); the first groups * depth channels are read.
        weights: (groups, rows of weights, taps of the rows, taps of the columns, depth).
        y: (batches, rows, columns, groups * rows of weights), contiguous.
    """
    joins, (rows, columns) = 1, axes
    if image.unit != "float":  # its zeros times infinity would be NaN
        joins = windows_to_join(columns, weights, lanes(), UNIT_ELEMENTS[image.unit])
    if joins > 1:
        weights, columns = weights_of_joined(columns, weights, joins), joined(columns, joins)
        scaling = scaling.repeated(joins)
    groups, count, *_, depth = weights.shape
    in_place = _window_in_place(x, rows, columns, image, depth)
    if in_place is not None:
        of_vector = _Product(in_place, weights, image, scaling, y)
        return [step for group in range(groups) for step in of_vector.vector_steps(group)]
    windows = windows_of(x, rows, columns, image, depth)
    of_tiles = _Product(windows, weights, image, scaling, y)
    blocks = list(blocks_of(count, len(windows.offsets), tile_shapes(image.unit, scaling.bits)))
    steps = (step for group in range(groups) for block in blocks for step in of_tiles.steps(group, *block))
    return [*windows.fill, *steps]


class _Product(NamedTuple):
    """The arguments of `bind_product`, with the windows of the input."""

    windows: ImageWindows
    weights: npt.NDArray[Any]
    image: Image
    scaling: Scaling
    y: npt.NDArray[Any]

    def steps(self, group: int, first: int, blocks: int, tile: Shape) -> list[Step]:
        """Compute `blocks` blocks of a tile's channels, from channel `first` of a group, in bands of positions."""
        windows, weights, image, scaling, y = self
        groups, count, *_, depth = weights.shape
        size = tile.vectors * lanes()
        kernel = product.of(
            unit=image.unit,
            rows=tile.rows,
            vectors=tile.vectors,
            split=SPLIT if tile.rows * tile.vectors < LONG_CHAIN and image.unit != "float" else 1,
            form=scaling.form,
        )
        y_step = groups * count * y.itemsize
        products = len(windows.segments) * self.units * blocks * tile.vectors
        of_blocks = self._blocks(group, first, blocks, tile)
        steps = (
            kernel.step(
                image=windows.image.ctypes.data + group * depth * image.dtype.itemsize,
                offsets=windows.offsets[band],
                positions=band.stop - band.start,
                segments=len(windows.segments),
                segment_offsets=windows.segments,
                units=self.units,
                **of_blocks,
                y=y.ctypes.data + (group * count + first) * y.itemsize + band.start * y_step,
                y_step=y_step,
                direct=self._direct_tiles(first, size, tile, band.stop - band.start),
                limits=scaling.limits,
            ).owning(windows.image, y)
            for band in bands_of(len(windows.offsets), products, tile.rows)
        )
        return together(list(steps))

    @property
    def units(self) -> int:
        """Number of units in each run."""
        return -(-self.windows.run // UNIT_ELEMENTS[self.image.unit])

    def _blocks(self, group: int, first: int, blocks: int, tile: Shape) -> dict[str, Any]:
        """Return the arguments for blocks of a tile's channels, from channel `first` of a group."""
        windows, weights, image, scaling, y = self
        count = weights.shape[1]
        order = channel_order(tile.vectors, scaling.bits)
        channels = first + np.arange(blocks, dtype=np.int64)[:, None, None] * order.size + order
        channels = np.where(channels < count, channels, -1).reshape(-1, lanes())
        by_segment = weights[group].reshape(count, len(windows.segments), windows.run)
        in_model = np.where(channels < 0, -1, channels + group * count)
        packed = _packed(by_segment, channels.reshape(blocks, tile.vectors, -1), self.units, image)
        return {
            "channels": scaling.with_weights(packed, in_model, blocks),
            "blocks": blocks,
            "valid": min(count - first, order.size) * y.itemsize,
        }

    def vector_steps(self, group: int) -> list[Step]:
        """Return the steps of a group with a single window, which is read in place."""
        windows, weights, image, scaling, y = self
        count, depth = weights.shape[1], weights.shape[-1]
        place = int(windows.offsets[0] + windows.segments[0]) + group * depth * image.x_dtype.itemsize
        x = windows.image.ctypes.data + place
        if image.unit != "float" and has_few_channels(count, self.units):
            kernel = dot_products.of(unit=image.unit, flip=image.flip, channels=count, form=scaling.form)
            of_channels, first_y = self._few_channels(group), group * count * y.itemsize
            return [
                kernel.step(x=x, **of_channels, y=y.ctypes.data + first_y, limits=scaling.limits).owning(
                    windows.image, y
                )
            ]
        steps = []
        for first, blocks, tile in blocks_of(count, 1, tile_shapes(image.unit, scaling.bits)):
            kernel = vector_product.of(unit=image.unit, flip=image.flip, vectors=tile.vectors, form=scaling.form)
            of_blocks, first_y = self._blocks(group, first, blocks, tile), (group * count + first) * y.itemsize
            flips = np.full(4 * lanes(), image.flip, np.uint8)
            arguments = {"x": x, "flips": flips, "units": self.units, **of_blocks, "y": y.ctypes.data + first_y}
            step = kernel.step(**arguments, limits=scaling.limits)
            steps.append(step.owning(windows.image, y))
        return steps

    def _few_channels(self, group: int) -> dict[str, Any]:
        """Return the arguments of `dot_products` for the channels of a group."""
        run, (_, weights, image, scaling, y) = self.windows.run, self
        count, held = weights.shape[1], lanes() * UNIT_ELEMENTS[image.unit]
        vectors = -(-run // held)
        packed = np.zeros((vectors, count, held), WEIGHTS[image.unit])
        by_channel = weights[group].reshape(count, run)
        whole, rest = np.split(by_channel, [(vectors - 1) * held], axis=1)
        packed[:-1] = whole.reshape(count, vectors - 1, held).transpose(1, 0, 2)
        packed[-1, :, held - rest.shape[1] :] = rest
        lane = np.arange(lanes(), dtype=np.int64)
        in_model = np.where(lane < count, lane + group * count, -1)[np.newaxis]
        return {
            "count": vectors,
            "last": (run - held) * image.x_dtype.itemsize,
            "weights": copied(packed),
            "bias": scaling.first_sums(in_model),
            "constants": scaling.constants(in_model),
            "valid": count * y.itemsize,
        }

    def _direct_tiles(self, first: int, block: int, tile: Shape, positions: int) -> int:
        """Return the number of tiles that may write whole vectors beyond their channels, because later tiles overwrite
        them.

        Args:
            positions: positions of the band. The last one must not write to the next band.
        """
        groups, count = self.weights.shape[:2]
        if first + block <= count:
            return EVERY_TILE
        if groups > 1:
            return 0
        y_step = count * self.y.itemsize
        room = positions * y_step - (first + block) * self.y.itemsize
        direct: int = max(room // y_step + 1, 0) // tile.rows
        return direct


def bind_matrix(
    x: npt.NDArray[Any], weights: npt.NDArray[Any], image: Image, scaling: Scaling, y: npt.NDArray[Any]
) -> list[Step]:
    """Return the steps that set y (positions, rows of weights), contiguous, to x (positions, depth) times weights,
    scaled."""
    positions = Axis(len(x), 1, len(x))
    by_tap = weights.reshape(1, len(weights), 1, 1, -1)
    return bind_product(x[np.newaxis, np.newaxis], (Axis(1, 1, 1), positions), by_tap, image, scaling, y)


def _packed(by_segment: npt.NDArray[Any], channels: npt.NDArray[np.intp], units: int, image: Image) -> npt.NDArray[Any]:
    """Pack weights (channels, segments, run) as (blocks, segments, units, vectors, lanes, elements of a unit)."""
    elements = UNIT_ELEMENTS[image.unit]
    count, segments, run = by_segment.shape
    padded = np.zeros((count + 1, segments, units * elements), WEIGHTS[image.unit])
    padded[:count, :, :run] = by_segment
    chosen = padded.reshape(count + 1, segments, units, elements)[channels]  # -1 selects the last one, which is zero
    return copied(chosen.transpose(0, 3, 4, 1, 2, 5))


# --- Operators ---------------------------------------------------------------------------------------------------


def sums_fit(weights: npt.NDArray[Any], x_dtype: np.dtype[Any]) -> bool:
    """Whether every sum of products of a channel (the first two dimensions) fits in 32 bits."""
    return -int(np.iinfo(x_dtype).min) * int(largest_sums(weights).max(initial=0)) < 2**31


def largest_sums(weights: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the sum of the absolute weights of each channel (the first two dimensions)."""
    absolute = abs(weights.astype(np.int64)).reshape(weights.shape[0] * weights.shape[1], -1)
    sums: npt.NDArray[np.int64] = absolute.sum(axis=1, dtype=np.int64)
    return sums


def layer_scaling(
    multiplier: QuantizedMultiplier,
    output: OutputStage,
    weights: npt.NDArray[Any],
    bias: npt.NDArray[Any] | None,
    image: Image,
    y_dtype: np.dtype[Any],
) -> Scaling | None:
    """Return the scaling of a layer with integer weights; None if it cannot be shown to be exact.

    Args:
        weights: (groups, rows, ...).
        bias: one for each row of all groups, or None.
    """
    if isinstance(multiplier, WideQuantizedMultiplier) and not sums_fit(weights, image.x_dtype):
        return None
    count = weights.shape[0] * weights.shape[1]
    total = -image.border * weights.reshape(count, -1).sum(axis=1, dtype=np.int64)
    reach, range_of_x = largest_sums(weights), np.iinfo(image.x_dtype)
    reach *= range_of_x.max - range_of_x.min
    offsets = np.zeros(count, np.int64) if bias is None else np.asarray(bias, None).reshape(-1).astype(np.int64)
    total += offsets
    if output.zero_point and largest_result(multiplier, reach + abs(offsets)) + abs(output.zero_point) >= 2**31:
        return None
    sums = offsets - reach, offsets + reach
    return integer_scaling(multiplier, output, total, sums, y_dtype)


def float_layer_scaling(
    weights: npt.NDArray[Any], bias: npt.NDArray[Any] | None, activation: ActivationFunctionType
) -> Scaling:
    """Return the scaling of a layer with float weights (groups, rows, ...)."""
    count = weights.shape[0] * weights.shape[1]
    addends = np.zeros(count, np.float32) if bias is None else np.asarray(bias, np.float32).reshape(-1)
    return float_scaling(addends, *activation_range(activation, np.float32))


def convolution_scaling(
    op: OpDataConv,
    weights: npt.NDArray[Any],
    bias: npt.NDArray[Any] | None,
    image: Image,
    y_dtype: np.dtype[Any],
    copies: int = 1,
) -> Scaling | None:
    """Return the scaling of a convolution; arguments as in `bind_convolution`."""
    if op.multiplier is None or op.output is None:
        return float_layer_scaling(weights, bias, op.activation)
    parts = (np.tile(part, copies) for part in (op.multiplier.significand, op.multiplier.shift))
    return layer_scaling(type(op.multiplier)(*parts), op.output, weights, bias, image, y_dtype)


def bind_convolution(op: OpDataConv, axes: Windows, arrays: LayerArrays, copies: int = 1) -> list[Step] | None:
    """Return the steps that set y to the windows of x times weights; None if they cannot be shown to be exact.

    Args:
        axes: the windows along rows and columns.
        arrays: x: (batches, rows, columns, channels); the first groups * depth channels are read. weights: (groups,
            rows of weights, taps of the rows, taps of the columns, depth). bias: one for each row of weights, or None.
            y: (batches, rows, columns, rows of weights).
        copies: number of times that the rows of weights repeat all channels.
    """
    x, weights, bias, y, _ = arrays
    image = image_of(x.dtype, op.input_zero_point, bytes_allowed=True)
    scaling = convolution_scaling(op, weights, bias, image, y.dtype, copies)
    return None if scaling is None else bind_product(x, axes, weights, image, scaling, y)


def convolution_scale(op: OpDataConv) -> Scale | None:
    """Return the scale of a convolution without tiles; None if it cannot be shown to be exact."""
    if op.multiplier is None or op.output is None:
        return float_scale(*activation_range(op.activation, np.float32))
    return integer_scale(op.multiplier, op.output)


def plain_convolution(op: OpDataConv, arrays: LayerArrays, by_channel: bool = False) -> list[Step] | None:
    """Return the steps of a convolution without tiles; arguments as in `PlainProduct`."""
    scale, (x, weights, bias, y, _) = convolution_scale(op), arrays
    if scale is None:
        return None
    plain = PlainProduct(x, weights, bias, scale, y, (op.input_zero_point, 0))
    return plain.convolution((op.rows, op.columns), by_channel)


def _bind_conv_2d(context: KernelContext, node: Node, profile: Profile) -> Sequence[Step] | None:
    arrays = CONV_INPUTS.bound(node)
    x, weights, _, y, constant = arrays
    if np.may_share_memory(x, y):
        return None
    op: OpDataConv = node.op_data
    if not profile.has_tiles:
        return plain_convolution(op, arrays._replace(weights=weights[: y.shape[3]]))
    if not constant:
        return None
    by_group = weights[: y.shape[3]].reshape(x.shape[3] // weights.shape[3], -1, *weights.shape[1:])
    return bind_convolution(op, (op.rows, op.columns), arrays._replace(weights=by_group))


def _bind_fully_connected(context: KernelContext, node: Node, profile: Profile) -> Sequence[Step] | None:
    x, weights, bias, y, constant = fully_connected.bound(node)
    if not profile.has_tiles:
        return _plain_fully_connected(node)
    if not constant:
        return None
    weights = weights[np.newaxis]
    scaling: Scaling | None
    if x.dtype == np.float32:
        image = image_of(x.dtype, 0, bytes_allowed=True)
        scaling = float_layer_scaling(weights, bias, fused_activation(node, FullyConnectedOptions))
    else:
        op: fully_connected.OpDataFullyConnected = node.op_data
        image = image_of(x.dtype, op.input_zero_point, bytes_allowed=not op.weights_zero_point)
        weights = weights.astype(np.int16) - np.int16(op.weights_zero_point)
        scaling = layer_scaling(op.multiplier, op.output, weights, bias, image, y.dtype)
    if scaling is None:
        return None
    return bind_matrix(x[0], weights[0], image, scaling, y)


def _plain_fully_connected(node: Node) -> list[Step] | None:
    x, weights, bias, y, _ = fully_connected.bound(node)
    if x.dtype == np.float32:
        scale = float_scale(*activation_range(fused_activation(node, FullyConnectedOptions), np.float32))
        return PlainProduct(x[0], weights, bias, scale, y[0]).matrix()
    op: fully_connected.OpDataFullyConnected = node.op_data
    integer = integer_scale(op.multiplier, op.output)
    if integer is None:
        return None
    zero_points = op.input_zero_point, op.weights_zero_point
    return PlainProduct(x[0], weights, bias, integer, y[0], zero_points).matrix()


@kernel
def take_rows(source: Elements, places: Int32s, count: int, size: int, target: Elements) -> int:
    """Set row i of the target to row places[i] of the source."""
    for i in range(count):
        begin = places[i] * size
        for j in range(size):
            target[i * size + j] = source[begin + j]
    return DONE


def _bind_transpose_conv(context: KernelContext, node: Node, profile: Profile) -> Sequence[Step] | None:
    x, weights, bias, y, constant = TRANSPOSE_INPUTS.bound(node)
    op: OpDataConv = node.op_data
    if not profile.has_tiles:
        scale = convolution_scale(op)
        if scale is None or np.may_share_memory(x, y):
            return None
        plain = PlainProduct(x, weights[: y.shape[3]], bias, scale, y, (op.input_zero_point, 0))
        return plain.transposed_convolution((op.rows, op.columns))
    rows, columns, channels = phases(op.rows), phases(op.columns), y.shape[3]
    copies, windows = rows.count * columns.count, (rows.windows, columns.windows)
    shape = (x.shape[0], *(axis.windows for axis in windows), copies * channels)
    if not constant or math.prod(shape) > 64 * (x.size + weights.size + y.size) + (1 << 20):
        return None
    by_window = work_array(shape, y.dtype)
    of_phases = by_phase(weights[:channels], rows, columns)[np.newaxis]
    biases = None if bias is None else np.broadcast_to(bias, (copies, channels))
    multiply = bind_convolution(op, windows, LayerArrays(x, of_phases, biases, by_window, constant), copies)
    if multiply is None:
        return None
    places = places_by_window(y.shape[0], rows, columns).astype(np.int32)
    gather = take_rows.step(source=by_window, places=places, count=len(places), size=channels, target=y)
    steps = [*multiply, gather]
    if y.dtype == np.float32 and not (rows.fills_windows and columns.fills_windows):
        steps.append(refuse_nans.step(y=y, count=y.size))
    return steps


@kernel
def refuse_nans(y: Float32s, count: int) -> int:
    """Leave NaN results to numpy: infinity times a zero that pads a phase is NaN."""
    for i in range(count):
        if y[i] != y[i]:
            return REFUSED
    return DONE


BINDINGS = {"CONV_2D": _bind_conv_2d, "FULLY_CONNECTED": _bind_fully_connected, "TRANSPOSE_CONV": _bind_transpose_conv}
