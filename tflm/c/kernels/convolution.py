"""CONV_2D and FULLY_CONNECTED on small processors, with an im2col tile of four windows.

`im2col` and `wide_windows` contain the kernels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.c.kernels.im2col import CHANNELS, DEPTH, FOUR, WIDE_DEPTH, WINDOWS, Shape, convolve_int8, order_of
from tflm.c.kernels.part import NEVER, Part, first_places
from tflm.c.kernels.wide_windows import convolve_int16
from tflm.compiler.language import Step
from tflm.delegates.compiled.bands import work_array
from tflm.delegates.compiled.requantization import CONSTANTS, Requantizer, requantizer, wide_requantizer
from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier
from tflm.kernels.arithmetic.requantization import OutputStage
from tflm.kernels.layers.geometry import Axis, Windows, window_fields, windows
from tflm.kernels.overlap import FAR, NOWHERE, OperatorFacts

KERNELS = {np.dtype(np.int8): convolve_int8, np.dtype(np.int16): convolve_int16}


@dataclass(frozen=True)
class Layer:
    """Weights and quantization of an integer layer.

    Attributes:
        weights: (groups, channels, row taps, column taps, depth), with their zero point subtracted.
        bias: one for each channel of each group.
        multiplier: one for all channels, or one for each.
        output: the output's zero point and limits.
        zero_point: zero point of the input.
    """

    weights: npt.NDArray[Any]
    bias: npt.NDArray[np.int64]
    multiplier: QuantizedMultiplier
    output: OutputStage
    zero_point: int

    def magnitudes(self) -> npt.NDArray[np.int64]:
        """Return the sum of the absolute weights of each channel."""
        magnitudes: npt.NDArray[np.int64] = self._by_channel(abs(self.weights.astype(np.int64)))
        return magnitudes

    def requantizer(self, x_dtype: np.dtype[Any], y_dtype: np.dtype[Any]) -> Requantizer | None:
        """Return the requantizer of sums of products with elements that still contain their zero point."""
        bias = self._bias_with_zero_point()
        return requantizer(self.multiplier, self.output, bias, self._limits(x_dtype, bias), y_dtype)

    def centred_requantizer(self, x_dtype: np.dtype[Any], y_dtype: np.dtype[Any]) -> Requantizer | None:
        """Return the requantizer of sums of products with elements without their zero point."""
        # Each partial sum must fit into 32 bits.
        largest = abs(self.zero_point) - int(np.iinfo(x_dtype).min)
        if (largest * self.magnitudes()).max(initial=0) >= 1 << 31:
            return None
        middle = self._bias_with_zero_point()
        limits = self._limits(x_dtype, middle)
        return requantizer(self.multiplier, self.output, self.bias, limits, y_dtype, middle)

    def _bias_with_zero_point(self) -> npt.NDArray[np.int64]:
        return self.bias - self.zero_point * self._by_channel(self.weights.astype(np.int64))

    def _limits(self, x_dtype: np.dtype[Any], bias: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return upper bounds of the absolute values of each channel's sums, with the bias."""
        return -int(np.iinfo(x_dtype).min) * self.magnitudes() + abs(bias)

    def requantizer_of_runs(self, x_dtype: np.dtype[Any], y_dtype: np.dtype[Any]) -> Requantizer | None:
        """Like `requantizer`; for 16-bit inputs, also a requantizer of 64-bit sums."""
        narrow = self.requantizer(x_dtype, y_dtype)
        if narrow is not None or x_dtype != np.int16 or self.zero_point:
            return narrow
        limits = (self.magnitudes() << 15) + abs(self.bias)
        return wide_requantizer(self.multiplier, self.output, self.bias, limits)

    def _by_channel(self, weights: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        sums: npt.NDArray[np.int64] = weights.reshape(len(self.bias), -1).sum(axis=1, dtype=np.int64)
        return sums


def bind_layer(layer: Layer, rows: Axis, columns: Axis, x: npt.NDArray[Any], y: npt.NDArray[Any]) -> list[Step] | None:
    """Return the steps that set y to the windows of x times the weights of a layer; None if sums can exceed 32 bits.

    Args:
        x: (batches, rows, columns, channels of all groups).
        y: (batches, rows, columns, channels of all groups).
    """
    scaling = layer.requantizer(x.dtype, y.dtype)
    if scaling is None:
        return None
    groups, channels, *_, depth = layer.weights.shape
    shape = shape_of(rows, columns, depth, channels, layer.zero_point, scaling, x.shape[3], y.shape[3])
    weights = layer.weights.reshape(groups, channels, -1)
    if x.dtype == np.int8:
        weights = weights[..., order_of(weights.shape[2], shape.run, shape.fours)]
    packed = packed_weights(weights, depth_of_round(x.itemsize))
    shape = shape._replace(products=packed.shape[2], is_packed=int(pairs_below(packed, 1 << 15)))
    tables = tables_of_pairs(scaling, groups, channels)
    tile = work_array((packed.shape[2], WINDOWS // 2), np.int32).view(np.int16)
    arrays = {"tile": tile, "shape": shape}
    names = {"rounding": scaling.rounding, "clamp": scaling.clamp}
    multiply = KERNELS[x.dtype]
    return [
        multiply.step(
            **names,
            x=x[batch].reshape(-1)[group * depth :],
            weights=packed[group].reshape(-1).view(np.int32 if x.dtype == np.int8 else np.int8),
            table=tables[group],
            y=y[batch].reshape(-1)[group * channels :],
            **arrays,
        )
        for batch in range(len(x))
        for group in range(groups)
    ]


def depth_of_round(itemsize: int) -> int:
    """Return the number of products of each channel in a round of the innermost loop."""
    return DEPTH if itemsize == 1 else WIDE_DEPTH


def packed_weights(weights: npt.NDArray[Any], depth: int) -> npt.NDArray[np.int8]:
    """Pack weights (groups, channels, products) as (groups, pairs of channels, products, 2), padded with zeros.

    Args:
        depth: products are padded to a multiple of this.
    """
    groups, channels, products = weights.shape
    pairs, rounds = -(-channels // CHANNELS), -(-products // depth)
    filled = np.zeros((groups, pairs * CHANNELS, rounds * depth), np.int8)
    filled[:, :channels, :products] = weights
    by_pair = filled.reshape(groups, pairs, CHANNELS, rounds * depth).transpose(0, 1, 3, 2)
    return np.ascontiguousarray(by_pair, None)


def tables_of_pairs(scaling: Requantizer, groups: int, channels: int) -> npt.NDArray[np.int32]:
    """Return the tables of channels (groups, channels, constants), padded to pairs of channels."""
    tables = np.zeros((groups, -(-channels // CHANNELS) * CHANNELS, CONSTANTS), np.int32)
    tables[:, :channels] = scaling.table.reshape(groups, channels, CONSTANTS)
    return tables


def pairs_below(packed: npt.NDArray[np.int8], limit: int) -> bool:
    """Whether the sum of the two products of a round stays below a limit, for any 8-bit elements.

    Args:
        packed: as `packed_weights` returns them.
    """
    pairs = abs(packed.astype(np.int32)).reshape(*packed.shape[:2], -1, DEPTH, CHANNELS).sum(axis=3, dtype=np.int32)
    return bool(pairs.max(initial=0) * 128 < limit)


def shape_of(
    rows: Axis,
    columns: Axis,
    depth: int,
    channels: int,
    zero_point: int,
    scaling: Requantizer,
    x_step: int,
    y_step: int,
    *,
    in_order: bool = False,
) -> Shape:
    """Return the shape of a layer.

    Args:
        in_order: whether elements are stored in their own order.
        others: as the attributes of `Shape`.
    """
    count = rows.windows * columns.windows
    groups = -(-count // WINDOWS)
    backward = runs_backward(rows, columns, x_step, y_step)
    has_runs = columns.dilation == 1 and x_step == depth
    run = columns.taps * depth if has_runs else depth
    fours = 0 if in_order else run // 4
    is_even = fours > 0 and depth % 4 == 0
    return Shape(
        x_rows=rows.size,
        x_columns=columns.size,
        x_step=x_step,
        depth=depth,
        **window_fields(rows, columns),
        row_dilation=rows.dilation,
        column_dilation=columns.dilation,
        windows=count,
        y_columns=columns.windows,
        first=(groups - 1) * WINDOWS if backward else 0,
        step=-WINDOWS if backward else WINDOWS,
        groups=groups,
        y_step=y_step,
        channels=channels,
        products=rows.taps * columns.taps * depth,
        is_pointwise=int(is_even and is_pointwise(rows, columns)),
        has_runs=int(has_runs),
        run=run,
        fours=fours,
        singles=rows.taps * (columns.taps * depth // run) * fours * FOUR,
        is_packed=0,
        is_even=int(is_even),
        zero_point=zero_point,
        activation_min=scaling.activation_min,
        activation_max=scaling.activation_max,
    )


def runs_backward(rows: Axis, columns: Axis, x_step: int, y_step: int) -> bool:
    """Whether windows are computed from the last to the first, because each writes more elements than it reads."""
    return is_pointwise(rows, columns) and y_step > x_step


def is_pointwise(rows: Axis, columns: Axis) -> bool:
    """Whether window i is element i of the image."""
    return all((axis.taps, axis.stride, axis.before, axis.windows) == (1, 1, 0, axis.size) for axis in (rows, columns))


def overlap(facts: OperatorFacts, both: Windows | None = None, input: int = 0) -> range:
    """Return how many bytes after the output's first byte the input may begin. Windows are as given, or as the options
    say."""
    x, y, both = facts.inputs[0], facts.outputs[0], both or windows(facts)
    weights = facts.inputs[1]
    if input or x is None or weights is None or both is None or x.dims[0] != 1 or weights.dims[3] != x.dims[3]:
        return NOWHERE
    rows, columns = both
    x_step, y_step = x.dims[3] * x.itemsize, y.dims[3] * y.itemsize
    count = rows.windows * columns.windows
    if count <= WINDOWS:
        return range(-FAR, FAR)
    if runs_backward(rows, columns, x_step, y_step):
        return range(-FAR, WINDOWS * (y_step - x_step) + 1)
    ends = np.arange(WINDOWS, count, WINDOWS, dtype=np.int64)
    reads = first_places(rows, columns)[ends]
    seen = reads < NEVER
    distances = ends[seen] * y_step - reads[seen] * x_step
    return range(int(distances.max(initial=1 - FAR)), FAR)


def scratch_bytes(facts: OperatorFacts, both: Windows | None = None) -> int:
    """Return the size of the im2col tile of four windows."""
    x, weights = facts.inputs[:2]
    assert x is not None
    assert weights is not None
    return scratch_of(math.prod(weights.dims[1:]), x.itemsize)


def scratch_of(products: int, itemsize: int) -> int:
    """Return the size of an im2col tile of four windows, each with this number of elements."""
    depth = depth_of_round(itemsize)
    return -(-products // depth) * depth * WINDOWS * 2


def part_of(part: Part | None, rows: Axis, x: npt.NDArray[Any], y: npt.NDArray[Any]) -> Part:
    """Return the requested part, or the whole operator if there is none."""
    return Part(rows, x, y) if part is None else part


def layer_of(weights: npt.NDArray[Any], bias: npt.NDArray[Any] | None, op: Any, zero_point: int) -> Layer:
    """Return the layer of weights (groups, channels, ...), with the multiplier and the output stage of an operator's
    data."""
    channels = weights.shape[0] * weights.shape[1]
    values = np.zeros(channels, np.int64) if bias is None else np.asarray(bias, None).reshape(-1).astype(np.int64)
    return Layer(weights, values, op.multiplier, op.output, zero_point)
