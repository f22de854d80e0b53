"""CONV_2D, DEPTHWISE_CONV_2D, FULLY_CONNECTED and TRANSPOSE_CONV without tiles: one product after the other.

The kernels read weights in the model's layout, and work on any processor. `Windows` describes the windows over the
image, `Layer` the layout of weights and channels, and the constants of the requantization.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.compiler.language import DONE, Bounds, Elements, Int8s, Int32s, Kernel, Step, inlined, kernel
from tflm.delegates.compiled.casts import as_float32, as_int32, as_int64
from tflm.delegates.compiled.fixed_point import Multiplier, Stage, clamped, scaled, wrapped
from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier, WideQuantizedMultiplier, reduced_significand
from tflm.kernels.arithmetic.requantization import OutputStage
from tflm.kernels.layers.geometry import Axis, window_fields

Positive = Annotated[int, Bounds(1, (1 << 31) - 1)]

MAX_RIGHT = 62
"""Maximum right shift of a wide product."""


class Windows(NamedTuple):
    """Windows over images; attributes as in `Axis`.

    Attributes:
        batches: number of images.
        x_step, y_step: step from one position to the next.
        y_channels: number of channels of a position in y.
    """

    batches: int
    x_rows: int
    x_columns: int
    x_step: int
    y_rows: int
    y_columns: int
    y_step: int
    y_channels: int
    row_taps: int
    column_taps: int
    row_stride: Positive
    column_stride: Positive
    row_dilation: int
    column_dilation: int
    rows_before: int
    columns_before: int


class Layer(NamedTuple):
    """The layout of a layer's weights, and its zero points.

    Attributes:
        depth: number of input channels that an output channel reads.
        group: number of output channels that read the same input channels.
        channel_step, tap_step: step from the weights of a channel, and of a tap, to those of the next.
        x_zero_point, weights_zero_point, zero_point: zero points of input, weights and output.
        bias_step, scale_step: 1 if each channel has its own bias, and its own multiplier; 0 if all share one.
        together: number of channels that are computed at a time, which read the same input channels; at most
            `TOGETHER`.
    """

    depth: int
    group: Positive
    channel_step: int
    tap_step: int
    x_zero_point: int
    weights_zero_point: int
    zero_point: int
    bias_step: int
    scale_step: int
    together: Positive


TOGETHER = 4
"""Maximum number of output channels that are computed at a time. They share each element of the input."""


# --- Sums --------------------------------------------------------------------------------------------------------

STARTS: dict[str, Callable[..., Any]] = {
    "float32": lambda: as_float32(0.0),
    "int32": lambda: as_int32(0),
    "int64": lambda: as_int64(0),
}
Start = Annotated[Callable[..., Any], STARTS]


@inlined
def add_float32(total: Any, x: Any, weight: Any, x_zero_point: int, weights_zero_point: int) -> Any:
    """Add a product to a sum."""
    return total + x * weight


@inlined
def add_int32(total: Any, x: Any, weight: Any, x_zero_point: int, weights_zero_point: int) -> Any:
    """Add a product to a sum that wraps to 32 bits."""
    return as_int32(as_int64(total) + as_int32(x - x_zero_point) * as_int32(weight - weights_zero_point))


@inlined
def add_int64(total: Any, x: Any, weight: Any, x_zero_point: int, weights_zero_point: int) -> Any:
    """Add a product to a 64-bit sum."""
    return total + as_int64(as_int32(x - x_zero_point)) * as_int32(weight - weights_zero_point)


@inlined
def add_symmetric(total: Any, x: Any, weight: Any, x_zero_point: int, weights_zero_point: int) -> Any:
    """Add a product as `add_int32` does, for weights without zero point."""
    return as_int32(as_int64(total) + as_int32(x - x_zero_point) * weight)


ADDITIONS = {"float32": add_float32, "int32": add_int32, "symmetric": add_symmetric, "int64": add_int64}
Addition = Annotated[Callable[..., Any], ADDITIONS]

# --- Outputs -----------------------------------------------------------------------------------------------------


@inlined
def activated(total: Any, bias: Any, significand: int, shift: int, stage: Stage) -> Any:
    """Add the bias to a sum of floats, and clamp it; NaN remains."""
    value = total + bias
    value = stage.activation_min if value < stage.activation_min else value
    return stage.activation_max if value > stage.activation_max else value


@inlined
def requantized(total: Any, bias: Any, significand: int, shift: int, stage: Stage) -> int:
    """Requantize a 32-bit sum, rounding twice; `shift` is to the left, or to the right if negative."""
    value = scaled(wrapped(as_int64(total) + bias), Multiplier(significand, max(shift, 0) & 31, max(-shift, 0) & 31))
    return clamped(wrapped(value + stage.zero_point), stage.activation_min, stage.activation_max)


@inlined
def requantized_wide(total: Any, bias: Any, significand: int, shift: int, stage: Stage) -> int:
    """Requantize a 64-bit sum with a 15-bit significand, rounding once; `shift` is to the right, at least 1."""
    value = wrapped(((total + bias) * significand + (as_int64(1) << (shift - 1))) >> shift)
    return clamped(wrapped(value + stage.zero_point), stage.activation_min, stage.activation_max)


OUTPUTS: dict[str, Callable[..., Any]] = {"float32": activated, "int32": requantized, "int64": requantized_wide}
Output = Annotated[Callable[..., Any], OUTPUTS]


@inlined
def add_products(
    add: Any,
    total0: Any,
    total1: Any,
    total2: Any,
    total3: Any,
    x: Any,
    weights: Any,
    seen: int,
    weight: int,
    layer: Any,
) -> tuple[Any, Any, Any, Any]:
    """Add the products of a tap to the sums of all channels; with a single channel, the other sums do not change."""
    x_zero_point, weights_zero_point, step = layer.x_zero_point, layer.weights_zero_point, layer.channel_step
    if layer.together > 1:
        third, fourth = weight + min(2, layer.together - 1) * step, weight + (layer.together - 1) * step
        for k in range(layer.depth):
            value = x[seen + k]
            total0 = add(total0, value, weights[weight + k], x_zero_point, weights_zero_point)
            total1 = add(total1, value, weights[weight + step + k], x_zero_point, weights_zero_point)
            total2 = add(total2, value, weights[third + k], x_zero_point, weights_zero_point)
            total3 = add(total3, value, weights[fourth + k], x_zero_point, weights_zero_point)
    else:
        for k in range(layer.depth):
            total0 = add(total0, x[seen + k], weights[weight + k], x_zero_point, weights_zero_point)
    return total0, total1, total2, total3


# --- Kernels -----------------------------------------------------------------------------------------------------


@kernel
def convolve(
    start: Start,
    add: Addition,
    output: Output,
    windows: Windows,
    layer: Layer,
    x: Elements,
    weights: Elements,
    bias: Elements,
    significands: Int32s,
    shifts: Int8s,
    limits: Elements,
    y: Elements,
) -> int:
    """Compute sums of products of windows and weights, in the order of the window. Taps outside of the image are
    omitted.

    Args:
        bias, significands, shifts: one for each channel, or one for all.
        limits: minimum and maximum of the output.
    """
    activation_min, activation_max = limits[0], limits[1]
    for batch in range(windows.batches):
        for row in range(windows.y_rows):
            for column in range(windows.y_columns):
                above = row * windows.row_stride - windows.rows_before
                left = column * windows.column_stride - windows.columns_before
                to = ((batch * windows.y_rows + row) * windows.y_columns + column) * windows.y_step
                for block in range(0, windows.y_channels, layer.together):
                    channel = min(block, windows.y_channels - layer.together)
                    first = channel // layer.group * layer.depth
                    total0, total1, total2, total3 = start(), start(), start(), start()
                    for i in range(windows.row_taps):
                        line = above + i * windows.row_dilation
                        if line >= 0 and line < windows.x_rows:
                            for j in range(windows.column_taps):
                                place = left + j * windows.column_dilation
                                if place >= 0 and place < windows.x_columns:
                                    position = (batch * windows.x_rows + line) * windows.x_columns + place
                                    seen = position * windows.x_step + first
                                    tap = i * windows.column_taps + j
                                    weight = channel * layer.channel_step + tap * layer.tap_step
                                    total0, total1, total2, total3 = add_products(
                                        add, total0, total1, total2, total3, x, weights, seen, weight, layer
                                    )
                    for each in range(channel, channel + layer.together):
                        y[to + each] = output(
                            total0,
                            bias[each * layer.bias_step],
                            significands[each * layer.scale_step],
                            shifts[each * layer.scale_step],
                            Stage(layer.zero_point, activation_min, activation_max),
                        )
                        total0, total1, total2 = total1, total2, total3
    return DONE


@kernel
def convolve_transposed(
    start: Start,
    add: Addition,
    output: Output,
    windows: Windows,
    layer: Layer,
    x: Elements,
    weights: Elements,
    bias: Elements,
    significands: Int32s,
    shifts: Int8s,
    limits: Elements,
    y: Elements,
) -> int:
    """Compute the same for windows over the output, one for each position of the input, in the order of the input."""
    activation_min, activation_max = limits[0], limits[1]
    for batch in range(windows.batches):
        for row in range(windows.y_rows):
            for column in range(windows.y_columns):
                to = ((batch * windows.y_rows + row) * windows.y_columns + column) * windows.y_step
                for block in range(0, windows.y_channels, layer.together):
                    channel = min(block, windows.y_channels - layer.together)
                    total0, total1, total2, total3 = start(), start(), start(), start()
                    for i in range(windows.row_taps - 1, -1, -1):
                        above = row + windows.rows_before - i
                        line = above // windows.row_stride
                        if line >= 0 and line < windows.x_rows and line * windows.row_stride == above:
                            for j in range(windows.column_taps - 1, -1, -1):
                                left = column + windows.columns_before - j
                                place = left // windows.column_stride
                                if place >= 0 and place < windows.x_columns and place * windows.column_stride == left:
                                    position = (batch * windows.x_rows + line) * windows.x_columns + place
                                    seen = position * windows.x_step
                                    tap = i * windows.column_taps + j
                                    weight = channel * layer.channel_step + tap * layer.tap_step
                                    total0, total1, total2, total3 = add_products(
                                        add, total0, total1, total2, total3, x, weights, seen, weight, layer
                                    )
                    for each in range(channel, channel + layer.together):
                        y[to + each] = output(
                            total0,
                            bias[each * layer.bias_step],
                            significands[each * layer.scale_step],
                            shifts[each * layer.scale_step],
                            Stage(layer.zero_point, activation_min, activation_max),
                        )
                        total0, total1, total2 = total1, total2, total3
    return DONE


class Scale(NamedTuple):
    """Constants of the requantization.

    Attributes:
        sums: type of the sums.
        limits: minimum and maximum of the output.
        significands, shifts: one for each channel, or one for all.
        zero_point: zero point of the output.
    """

    sums: str
    limits: npt.NDArray[Any]
    significands: npt.NDArray[np.int32]
    shifts: npt.NDArray[np.int8]
    zero_point: int = 0


def integer_scale(multiplier: QuantizedMultiplier, stage: OutputStage) -> Scale | None:
    """Return the scale of integer sums; None if the shift of a wide multiplier is out of range."""
    limits = np.array([stage.minimum, stage.maximum], np.int32)
    shift = np.atleast_1d(np.asarray(multiplier.shift, np.int64))
    significand = np.atleast_1d(np.asarray(multiplier.significand, np.int64))
    if isinstance(multiplier, WideQuantizedMultiplier):
        right = 15 - shift
        if right.min() < 1 or right.max() > MAX_RIGHT:
            return None
        reduced = reduced_significand(significand).astype(np.int32)
        return Scale("int64", limits, reduced, right.astype(np.int8), stage.zero_point)
    shift = (np.maximum(shift, 0) & 31) - np.minimum(np.maximum(-shift, 0), 31)
    return Scale("int32", limits, significand.astype(np.int32), shift.astype(np.int8), stage.zero_point)


def float_scale(activation_min: Any, activation_max: Any) -> Scale:
    """Return the scale of float sums, which is only clamping."""
    return Scale(
        "float32", np.array([activation_min, activation_max], np.float32), np.zeros(1, np.int32), np.zeros(1, np.int8)
    )


class PlainProduct(NamedTuple):
    """Operands of the kernels: y is the scaled sum of a bias and of products of x and weights.

    Attributes:
        x, y: (batches, rows, columns, channels), contiguous; y may have a larger step from column to column.
        weights: (channels, rows, columns, depth), contiguous.
        bias: one for each channel, or None.
        zero_points: zero points of x and of the weights.
    """

    x: npt.NDArray[Any]
    weights: npt.NDArray[Any]
    bias: npt.NDArray[Any] | None
    scale: Scale
    y: npt.NDArray[Any]
    zero_points: tuple[int, int] = (0, 0)

    def convolution(self, axes: tuple[Axis, Axis], by_channel: bool = False) -> list[Step]:
        """Return the step that sets y to the windows of x times weights.

        Args:
            axes: the windows along rows and columns.
            by_channel: each channel of x has its own weights, (1, rows, columns, channels).
        """
        weights, channels, x_channels = self.weights, self.y.shape[3], self.x.shape[3]
        if by_channel:
            depth, group, steps = 1, channels // x_channels, (1, weights.shape[3])
        else:
            depth = weights.shape[3]
            groups = x_channels // depth if depth else 1
            group, steps = channels // groups, (weights[0].size, depth)
        sizes = axes[0].windows, axes[1].windows
        return [self._step(convolve, self._windows(axes, sizes), self._layer(depth, group, steps))]

    def transposed_convolution(self, axes: tuple[Axis, Axis]) -> list[Step]:
        """Return the step of a transposed convolution; the axes are those of a convolution from y to x."""
        depth = self.weights.shape[3]
        layer = self._layer(depth, self.y.shape[3], (self.weights[0].size, depth))
        return [self._step(convolve_transposed, self._windows(axes, self.y.shape[1:3]), layer)]

    def matrix(self) -> list[Step]:
        """Return the step of a matrix product: y (positions, rows of weights) is x (positions, depth) times weights."""
        positions = Axis(len(self.x), 1, len(self.x))
        of_image = self._replace(
            x=self.x[np.newaxis, np.newaxis],
            weights=self.weights[:, np.newaxis, np.newaxis],
            y=self.y.reshape(1, 1, -1, len(self.weights)),
        )
        return of_image.convolution((Axis(1, 1, 1), positions))

    def _windows(self, axes: tuple[Axis, Axis], y_size: Sequence[int]) -> Windows:
        rows, columns = axes
        steps = {"y_step": self.y.strides[2] // self.y.itemsize, "y_channels": self.y.shape[3]}
        dilations = {"row_dilation": rows.dilation, "column_dilation": columns.dilation}
        sizes = dict(zip(Windows._fields, (*self.x.shape, *y_size)))
        return Windows(**sizes, **steps, **dilations, **window_fields(rows, columns))

    def _layer(self, depth: int, group: int, steps: tuple[int, int]) -> Layer:
        has_bias, has_scales = self.bias is not None, self.scale.significands.size > 1
        channels = self.y.shape[3]
        together = min(max(channels, 1), TOGETHER) if group == channels or group % TOGETHER == 0 else 1
        zero_points = *self.zero_points, self.scale.zero_point
        return Layer(depth, group, *steps, *zero_points, int(has_bias), int(has_scales), together)

    def _step(self, kernel: Kernel, windows: Windows, layer: Layer) -> Step:
        scale, bias = self.scale, self.bias
        no_bias = np.zeros(1, np.float32 if scale.sums == "float32" else np.int32)
        return kernel.step(
            start=scale.sums,
            add="symmetric" if scale.sums == "int32" and not layer.weights_zero_point else scale.sums,
            output=scale.sums,
            windows=windows,
            layer=layer,
            x=self.x,
            weights=self.weights,
            bias=no_bias if bias is None else bias,
            significands=scale.significands,
            shifts=scale.shifts,
            limits=scale.limits,
            y=self.y,
        )
