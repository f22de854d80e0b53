"""DEPTHWISE_CONV_2D on small processors.

Windows of 3 x 3 are taken channel by channel, with the weights of one channel in registers: channel c of the output can
lie on channel c of the input, a row and a position behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.c.kernels import flat_convolution
from tflm.c.kernels.convolution import Layer, layer_of, part_of
from tflm.c.kernels.part import NEVER, Part, first_places
from tflm.c.kernels.requantization import CONSTANTS, Clamp, Rounding
from tflm.compiler.intrinsics import int8_from
from tflm.compiler.language import DONE, Elements, Int8s, Int32s, Step, inlined, kernel
from tflm.delegates.compiled.casts import as_int32
from tflm.kernels.layers.geometry import Axis, window_fields
from tflm.kernels.layers.trailing_output import Windows, windows
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.overlap import FAR, NOWHERE, OperatorFacts, TensorFacts
from tflm.kernels.reference.depthwise_conv_2d import INPUTS

NARROW_INTEGERS = True

TAPS = 3
"""Along rows and columns of the windows that have a kernel of their own."""


class Image(NamedTuple):
    """Windows of 3 x 3 over an image, whose middle row is inside of it.

    Attributes:
        x_rows, x_columns: of the image.
        row_stride, column_stride, rows_before: as in `Axis`.
        y_rows: of the output.
        left, right: whether the first and the last window of a row have a column outside of the image.
        pairs, singles: the windows between them: twice as many as pairs, whose windows are a column apart, and others.
        channels: of input and output.
        zero_point: of the input, which stands for elements outside of the image.
        least, most: of the output.
    """

    x_rows: int
    x_columns: int
    row_stride: int
    column_stride: int
    rows_before: int
    y_rows: int
    left: int
    pairs: int
    singles: int
    right: int
    channels: int
    zero_point: int
    least: int
    most: int


@kernel
def convolve_3x3(
    rounding: Rounding, clamp: Clamp, x: Int8s, border: Int8s, weights: Int8s, table: Int32s, y: Int8s, image: Image
) -> int:
    """Each channel's windows of 3 x 3 times its weights.

    Args:
        border: zero points, which stand for a row outside of the image.
        weights: nine for each channel.
        table: bias, significand, addend and shift of each channel.
    """
    channels, least, most = image.channels, image.least, image.most
    x_step = channels * image.column_stride
    x_row = channels * image.x_columns
    for channel in range(channels):
        weight = channel * TAPS * TAPS
        w0, w1, w2 = weights[weight], weights[weight + 1], weights[weight + 2]
        w3, w4, w5 = weights[weight + 3], weights[weight + 4], weights[weight + 5]
        w6, w7, w8 = weights[weight + 6], weights[weight + 7], weights[weight + 8]
        row = channel * CONSTANTS
        bias, significand, addend, shift = table[row], table[row + 1], table[row + 2], table[row + 3]
        target = channel
        middle = 1 - image.rows_before
        for _y_row in range(image.y_rows):
            at = middle * x_row + channel
            x1 = int8_from(x, at)
            if middle > 0:
                x0 = int8_from(x, at - x_row)
                step0 = x_step
            else:
                x0 = int8_from(border, 0)
                step0 = 0
            if middle < image.x_rows - 1:
                x2 = int8_from(x, at + x_row)
                step2 = x_step
            else:
                x2 = int8_from(border, 0)
                step2 = 0
            if image.left:
                total = bias + image.zero_point * (w0 + w3 + w6) + x0[0] * w1 + x0[channels] * w2
                total += x1[0] * w4 + x1[channels] * w5 + x2[0] * w7 + x2[channels] * w8
                y[target] = clamp(rounding(total, significand, addend, shift), least, most)
                target += channels
                x0 = int8_from(x0, step0 - channels if step0 else 0)
                x1 = int8_from(x1, x_step - channels)
                x2 = int8_from(x2, step2 - channels if step2 else 0)
            for _pair in range(image.pairs):
                a, b, c, d = x0[0], x0[channels], x0[2 * channels], x0[3 * channels]
                total = bias + a * w0 + b * w1 + c * w2
                following = bias + b * w0 + c * w1 + d * w2
                a, b, c, d = x1[0], x1[channels], x1[2 * channels], x1[3 * channels]
                total += a * w3 + b * w4 + c * w5
                following += b * w3 + c * w4 + d * w5
                a, b, c, d = x2[0], x2[channels], x2[2 * channels], x2[3 * channels]
                total += a * w6 + b * w7 + c * w8
                following += b * w6 + c * w7 + d * w8
                y[target] = clamp(rounding(total, significand, addend, shift), least, most)
                target += channels
                y[target] = clamp(rounding(following, significand, addend, shift), least, most)
                target += channels
                x0 = int8_from(x0, 2 * step0)
                x1 = int8_from(x1, 2 * x_step)
                x2 = int8_from(x2, 2 * step2)
            for _column in range(image.singles):
                total = bias + x0[0] * w0 + x0[channels] * w1 + x0[2 * channels] * w2
                total += x1[0] * w3 + x1[channels] * w4 + x1[2 * channels] * w5
                total += x2[0] * w6 + x2[channels] * w7 + x2[2 * channels] * w8
                y[target] = clamp(rounding(total, significand, addend, shift), least, most)
                target += channels
                x0 = int8_from(x0, step0)
                x1 = int8_from(x1, x_step)
                x2 = int8_from(x2, step2)
            if image.right:
                total = bias + image.zero_point * (w2 + w5 + w8) + x0[0] * w0 + x0[channels] * w1
                total += x1[0] * w3 + x1[channels] * w4 + x2[0] * w6 + x2[channels] * w7
                y[target] = clamp(rounding(total, significand, addend, shift), least, most)
                target += channels
            middle += image.row_stride
    return DONE


class Shape(NamedTuple):
    """Windows of any size over an image; attributes as those of `Image` and `Axis`.

    Attributes:
        copies: channels of the output for each of the input.
    """

    x_rows: int
    x_columns: int
    x_channels: int
    row_taps: int
    column_taps: int
    row_stride: int
    column_stride: int
    row_dilation: int
    column_dilation: int
    rows_before: int
    columns_before: int
    y_rows: int
    y_columns: int
    copies: int
    zero_point: int
    least: int
    most: int


@inlined
def taps_before(start: int, dilation: int) -> int:
    """How many taps of a window that begins at a place are before the image."""
    return 0 if start >= 0 else (dilation - 1 - start) // dilation


@kernel
def convolve_each(
    rounding: Rounding, clamp: Clamp, x: Elements, weights: Int8s, table: Int32s, y: Elements, shape: Shape
) -> int:
    """Each channel's windows times its weights.

    Args:
        weights: those of all channels for one tap after the other.
        table: bias, significand, addend and shift of each channel.
    """
    channels = shape.x_channels * shape.copies
    x_row = shape.x_columns * shape.x_channels
    tap_step = shape.column_dilation * shape.x_channels
    target = 0
    for i in range(shape.y_rows):
        top = i * shape.row_stride - shape.rows_before
        first_row = taps_before(top, shape.row_dilation)
        last_row = min(shape.row_taps, taps_before(top - shape.x_rows, shape.row_dilation))
        for j in range(shape.y_columns):
            left = j * shape.column_stride - shape.columns_before
            first_column = taps_before(left, shape.column_dilation)
            last_column = min(shape.column_taps, taps_before(left - shape.x_columns, shape.column_dilation))
            row = 0
            for k in range(channels):
                total = as_int32(table[row])
                weight = k
                for tap in range(shape.row_taps):
                    at = (top + tap * shape.row_dilation) * x_row + left * shape.x_channels + k // shape.copies
                    inside = tap >= first_row and tap < last_row
                    for each in range(shape.column_taps):
                        if inside and each >= first_column and each < last_column:
                            total = as_int32(total + x[at + each * tap_step] * weights[weight])
                        else:
                            total = as_int32(total + shape.zero_point * weights[weight])
                        weight += channels
                y[target] = clamp(
                    rounding(total, table[row + 1], table[row + 2], table[row + 3]), shape.least, shape.most
                )
                target += 1
                row += CONSTANTS
    return DONE


def bind(context: KernelContext, node: Node, part: Part | None = None) -> Sequence[Step] | None:
    """DEPTHWISE_CONV_2D."""
    x, weights, bias, y, constant = INPUTS.bound(node)
    op = node.op_data
    if not constant or op.multiplier is None:
        return None
    rows, x, y = part_of(part, op.rows, x, y)
    by_channel = weights[0].transpose(2, 0, 1)
    layer = layer_of(by_channel[np.newaxis, ..., np.newaxis], bias, op, op.input_zero_point)
    if x.shape[3] == 1:  # one channel is seen by all: an ordinary convolution
        return flat_convolution.bind_windows(layer, rows, op.columns, x, y)
    return bind_each(layer, rows, op.columns, x, y)


def bind_each(layer: Layer, rows: Axis, columns: Axis, x: npt.NDArray[Any], y: npt.NDArray[Any]) -> list[Step] | None:
    """The steps of a layer whose output channels each read one input channel; None where 32 bits are too few."""
    scaling = layer.requantizer(x.dtype, y.dtype)
    if scaling is None or 0 in (rows.dilation, columns.dilation):
        return None
    names: dict[str, Any] = {"rounding": scaling.rounding, "clamp": scaling.clamp, "table": scaling.table}
    limits = {"zero_point": layer.zero_point, "least": scaling.least, "most": scaling.most}
    channels = y.shape[3]
    by_channel = np.ascontiguousarray(layer.weights.reshape(channels, -1), np.int8)
    if has_own_kernel(rows, columns, x.shape[3], channels) and x.dtype == np.int8:
        image = Image(
            x_rows=rows.size,
            x_columns=columns.size,
            row_stride=rows.stride,
            column_stride=columns.stride,
            rows_before=rows.before,
            y_rows=rows.windows,
            channels=channels,
            **_columns_of(columns),
            **limits,
        )
        names["border"] = np.full(3 * channels + 1, layer.zero_point, np.int8)
        return [convolve_3x3.step(**names, x=x[i], weights=by_channel, y=y[i], image=image) for i in range(len(x))]
    shape = Shape(
        x_rows=rows.size,
        x_columns=columns.size,
        x_channels=x.shape[3],
        **window_fields(rows, columns),
        row_dilation=rows.dilation,
        column_dilation=columns.dilation,
        y_rows=rows.windows,
        y_columns=columns.windows,
        copies=channels // x.shape[3],
        **limits,
    )
    by_tap = np.ascontiguousarray(by_channel.T, None)
    return [convolve_each.step(**names, x=x[i], weights=by_tap, y=y[i], shape=shape) for i in range(len(x))]


def _columns_of(columns: Axis) -> dict[str, int]:
    left, right = int(columns.before > 0), int(columns.stop > columns.size)
    inner = columns.windows - left - right
    pairs = inner // 2 if columns.stride == 1 else 0
    return {"left": left, "pairs": pairs, "singles": inner - 2 * pairs, "right": right}


def has_own_kernel(rows: Axis, columns: Axis, x_channels: int, y_channels: int) -> bool:
    """Whether windows are of 3 x 3, and leave the image by one row or column at most."""
    if x_channels != y_channels or any((axis.taps, axis.dilation) != (TAPS, 1) for axis in (rows, columns)):
        return False
    last_row = (rows.windows - 1) * rows.stride + 1 - rows.before
    by_one = columns.before in (0, 1) and columns.stop <= columns.size + 1
    # A window that leaves the image on both sides is neither the first nor the last of its row.
    return rows.before <= 1 and last_row < rows.size and by_one and min(_columns_of(columns).values()) >= 0


def overlap(facts: OperatorFacts, both: Windows | None = None, input: int = 0) -> range:
    """How many bytes behind the output the input may begin, where windows lie as told, or as the options say."""
    x, y, both = facts.inputs[0], facts.outputs[0], both or windows(facts)
    if input or x is None or both is None or x.dims[0] != 1:
        return NOWHERE
    rows, columns = both
    if x.dims[3] == 1:
        return flat_convolution.overlap(_as_convolution(facts), both)
    if x.itemsize != 1 or not has_own_kernel(rows, columns, x.dims[3], y.dims[3]):
        return NOWHERE
    channels = y.dims[3]
    ends = np.arange(1, rows.windows * columns.windows, dtype=np.int64)
    reads = first_places(rows, columns)[ends]
    seen = reads < NEVER
    least = int((ends[seen] - reads[seen]).max(initial=1 - rows.size * columns.size))
    return range(least * channels, FAR // channels * channels, channels)


def scratch_bytes(facts: OperatorFacts, both: Windows | None = None) -> int:
    """Of four windows, for one channel that is seen by all."""
    x = facts.inputs[0]
    return (
        flat_convolution.scratch_bytes(_as_convolution(facts), both or windows(facts))
        if x is not None and x.dims[3] == 1
        else 0
    )


def _as_convolution(facts: OperatorFacts) -> OperatorFacts:
    """The facts of an ordinary convolution with these weights, (1, rows, columns, channels)."""
    x, weights, *others = facts.inputs
    assert weights is not None
    _, rows, columns, channels = weights.dims
    return OperatorFacts([x, TensorFacts(weights.type, (channels, rows, columns, 1)), *others], facts.outputs, None)
