"""Windows of images times weights, with the windows read where they lie: no memory to hold them in, but more loads.

Elements are multiplied by the weights of four channels at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.c.kernels.convolution import Layer, layer_of
from tflm.c.kernels.encoded import is_encoded
from tflm.c.kernels.part import NEVER, Part, first_places
from tflm.c.kernels.requantization import CONSTANTS, Clamp, Rounding
from tflm.compiler.intrinsics import elements_from, int8_from, int32_from
from tflm.compiler.language import DONE, Elements, Int8s, Int32s, Step, kernel
from tflm.kernels.layers.convolution import OpDataConv
from tflm.kernels.layers.geometry import Axis, window_fields
from tflm.kernels.layers.trailing_output import Windows, windows
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.overlap import FAR, NOWHERE, OperatorFacts
from tflm.kernels.reference import conv_2d

NARROW_INTEGERS = True

CHANNELS = 4
"""Whose weights are multiplied at a time, and follow each other."""


class Shape(NamedTuple):
    """The windows of a convolution; attributes as in `Axis`.

    Attributes:
        x_step, y_step: elements from a column to the next.
        depth: channels of the input that are read, in one run.
        channels: of the output.
        zero_point: of the input.
        least, most: of the output.
    """

    x_rows: int
    x_columns: int
    x_step: int
    depth: int
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
    y_step: int
    channels: int
    zero_point: int
    least: int
    most: int


@kernel
def convolve_in_place(
    rounding: Rounding, clamp: Clamp, x: Elements, weights: Int8s, table: Int32s, y: Elements, shape: Shape
) -> int:
    """Windows times weights, with sums of 32 bits. Taps outside of the image are left out.

    Args:
        weights: for four channels at a time, those of each element of the windows.
        table: bias, significand, addend and shift of each channel.
    """
    depth, zero_point, least, most = shape.depth, shape.zero_point, shape.least, shape.most
    place = 0
    for i in range(shape.y_rows):
        for j in range(shape.y_columns):
            left = j * shape.column_stride - shape.columns_before
            of_four, entry = int8_from(weights, 0), int32_from(table, 0)
            for channel in range(0, shape.channels, CHANNELS):
                sum0, sum1, sum2, sum3 = entry[0], entry[4], entry[8], entry[12]
                row = i * shape.row_stride - shape.rows_before
                for _tap in range(shape.row_taps):
                    has_row = row >= 0 and row < shape.x_rows
                    column = left
                    for _beside in range(shape.column_taps):
                        if has_row and column >= 0 and column < shape.x_columns:
                            seen = elements_from(x, (row * shape.x_columns + column) * shape.x_step)
                            for k in range(depth):
                                element = seen[k] - zero_point
                                sum0 += element * of_four[CHANNELS * k]
                                sum1 += element * of_four[CHANNELS * k + 1]
                                sum2 += element * of_four[CHANNELS * k + 2]
                                sum3 += element * of_four[CHANNELS * k + 3]
                        of_four = int8_from(of_four, CHANNELS * depth)
                        column += shape.column_dilation
                    row += shape.row_dilation
                last = shape.channels - 1
                y[place + min(channel + 3, last)] = clamp(rounding(sum3, entry[13], entry[14], entry[15]), least, most)
                y[place + min(channel + 2, last)] = clamp(rounding(sum2, entry[9], entry[10], entry[11]), least, most)
                y[place + min(channel + 1, last)] = clamp(rounding(sum1, entry[5], entry[6], entry[7]), least, most)
                y[place + channel] = clamp(rounding(sum0, entry[1], entry[2], entry[3]), least, most)
                entry = int32_from(entry, CHANNELS * CONSTANTS)
            place += shape.y_step
    return DONE


def bind_conv_2d(context: KernelContext, node: Node, part: Part | None = None) -> Sequence[Step] | None:
    """CONV_2D of integers; None where 32 bits do not hold the sums, or weights are encoded and would be decoded."""
    x, weights, bias, y, constant = conv_2d.INPUTS.bound(node)
    op: OpDataConv = node.op_data
    if not constant or op.multiplier is None or is_encoded(node.eval_input(conv_2d.INPUTS.weights).elements):
        return None
    groups = x.shape[3] // weights.shape[3]
    layer = layer_of(weights[: y.shape[3]].reshape(groups, -1, *weights.shape[1:]), bias, op, op.input_zero_point)
    return bind_layer(layer, op.rows, op.columns, x, y)


def bind_layer(layer: Layer, rows: Axis, columns: Axis, x: npt.NDArray[Any], y: npt.NDArray[Any]) -> list[Step] | None:
    """The steps that set y to the windows of x times the weights of a layer; arguments as those of `convolution`."""
    scaling = layer.requantizer(x.dtype, y.dtype)
    # The zero point is taken off elements, so that sums get farther.
    farthest = (abs(layer.zero_point) - int(np.iinfo(x.dtype).min)) * layer.magnitudes() + abs(layer.bias)
    if scaling is None or farthest.max() >= 1 << 31:
        return None
    groups, channels, *_, depth = layer.weights.shape
    # Elements outside of the image are the zero point, which is taken off the others.
    biases = layer.zero_point * layer.weights.astype(np.int64).reshape(groups * channels, -1).sum(
        axis=1, dtype=np.int64
    )
    quadruples = -(-channels // CHANNELS)
    tables = np.zeros((groups, quadruples * CHANNELS, CONSTANTS), np.int32)
    tables[:, :channels] = scaling.table.reshape(groups, channels, CONSTANTS)
    tables[:, :channels, 0] += biases.reshape(groups, channels).astype(np.int32)
    filled = np.zeros((groups, quadruples * CHANNELS, layer.weights[0, 0].size), np.int8)
    filled[:, :channels] = layer.weights.reshape(groups, channels, -1)
    by_four = filled.reshape(groups, quadruples, CHANNELS, -1).transpose(0, 1, 3, 2)
    shape = Shape(
        x_rows=rows.size,
        x_columns=columns.size,
        x_step=x.shape[3],
        depth=depth,
        **window_fields(rows, columns),
        row_dilation=rows.dilation,
        column_dilation=columns.dilation,
        y_rows=rows.windows,
        y_columns=columns.windows,
        y_step=y.shape[3],
        channels=channels,
        zero_point=layer.zero_point,
        least=scaling.least,
        most=scaling.most,
    )
    return [
        convolve_in_place.step(
            rounding=scaling.rounding,
            clamp=scaling.clamp,
            x=x[batch].reshape(-1)[group * depth :],
            weights=np.ascontiguousarray(by_four[group], None),
            table=tables[group],
            y=y[batch].reshape(-1)[group * channels :],
            shape=shape,
        )
        for batch in range(len(x))
        for group in range(groups)
    ]


def overlap(facts: OperatorFacts, both: Windows | None = None, input: int = 0) -> range:
    """How many bytes behind the output the input may begin: a window is read again for every four channels."""
    x, y, both = facts.inputs[0], facts.outputs[0], both or windows(facts)
    weights = facts.inputs[1]
    if input or x is None or weights is None or both is None or x.dims[0] != 1 or weights.dims[3] != x.dims[3]:
        return NOWHERE
    reads = first_places(*both)
    seen = reads < NEVER
    ends = np.arange(1, len(reads) + 1, dtype=np.int64)
    distances = ends[seen] * (y.dims[3] * y.itemsize) - reads[seen] * (x.dims[3] * x.itemsize)
    return range(int(distances.max(initial=1 - FAR)), FAR)
