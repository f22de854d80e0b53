"""TRANSPOSE_CONV: each place of the input adds its multiples of the filter to the output, a stride apart.

For float32, int8 and int16 activations. Weights are (channels, rows, columns, depth). The first input, the output's
shape, is not looked at: the shape that counts is the output tensor's own.

Seen from the output, it is an ordinary convolution with a stride of 1. Every stride-th row of the output, which is one
of its phases, has windows that reach over ceil(taps / stride) rows of the input, for every stride-th row of the filter.
All phases together are one product of these windows with weights of as many times the channels.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.host_memory import kept
from tflm.kernels.layers.convolution import OpData, Operands
from tflm.kernels.layers.geometry import TFLITE_PADDING, Axis, paddings
from tflm.kernels.layers.per_channel import ChannelMultipliers
from tflm.kernels.layers.windows import in_turn, require_room
from tflm.kernels.reference.conv_2d import bind_convolution
from tflm.kernels.registration import KernelContext, Node, Registration, Run, Shape
from tflm.kernels.requests import NodeView, Request, ScratchBuffer
from tflm.kernels.support.activation import TFLITE_FUSED_ACTIVATION, activation_range, fused_activation
from tflm.kernels.support.checks import element_count
from tflm.memory.tensor import TFLITE_TYPE
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.options import TransposeConvOptions
from tflm.targets import FLOAT, INT, INT16, INT32, POINTER, UINT8, Since, Struct, When

OPERANDS = Operands(
    input=2,
    weights=1,
    bias=3,
    channels=0,
    weight_types={
        TensorType.FLOAT32: (TensorType.FLOAT32,),
        TensorType.INT8: (TensorType.INT8,),
        TensorType.INT16: (TensorType.INT8,),
    },
    bias_types={
        TensorType.FLOAT32: (TensorType.FLOAT32,),
        TensorType.INT8: (TensorType.INT32,),
        TensorType.INT16: (TensorType.INT16, TensorType.INT64),
    },
)

SCRATCH_BYTES = {TensorType.INT8: 4, TensorType.INT16: 8}
"""Bytes of TFLM's accumulator for an element of the output."""

PADDING_VALUES = Struct("PaddingValues", width=INT16, height=INT16, width_offset=INT16, height_offset=INT16)
CONV_PARAMS = Struct(
    "ConvParams",
    padding_type=UINT8,
    padding_values=PADDING_VALUES,
    stride_width=INT16,
    stride_height=INT16,
    dilation_width_factor=INT16,
    dilation_height_factor=INT16,
    input_offset=INT32,
    weights_offset=INT32,
    output_offset=INT32,
    output_multiplier=INT32,
    output_shift=INT,
    quantized_activation_min=INT32,
    quantized_activation_max=INT32,
    float_activation_min=FLOAT,
    float_activation_max=FLOAT,
)
OP_DATA_TRANSPOSE_CONV = Struct(
    "transpose_conv.cc:OpData",
    params=CONV_PARAMS,
    scratch_buffer_index=INT,
    filter_scratch_index=When("compression", INT),
    bias_scratch_index=When("compression", INT),
    bias_converted_buffer_index=Since("95ae9340e", INT),
    per_channel_output_multiplier=POINTER,
    per_channel_output_shift=POINTER,
)
TFLITE_TRANSPOSE_CONV_PARAMS = Struct(
    "TfLiteTransposeConvParams",
    padding=TFLITE_PADDING,
    stride_width=INT,
    stride_height=INT,
    activation=Since("b92a211e3", TFLITE_FUSED_ACTIVATION),
    quantized_bias_type=Since("ad8d238f9", TFLITE_TYPE),
)


@dataclass(frozen=True)
class Phases:
    """How one dimension of the output comes from windows along the input.

    Place o of the output is phase (o + before) modulo stride of window (o + before) / stride.

    Attributes:
        taps: of the filter.
        outputs: places of the output.
        windows: the windows of the input that the output sees.
    """

    taps: int
    outputs: int
    stride: int
    before: int
    windows: Axis

    @property
    def count(self) -> int:
        """Phases that differ: those beyond the filter, if there are any, are all like the first of them."""
        return min(self.stride, self.taps + 1)

    @property
    def fills_windows(self) -> bool:
        """Whether each phase has as many taps of the filter, so that no zeros are multiplied in their place."""
        return self.taps % self.stride == 0

    def contributions(self, place: int) -> Iterator[tuple[int, int]]:
        """The places of the input that are added to a place of the output, each with the tap of the filter."""
        for tap in range(self.taps):
            window, phase = divmod(place + self.before - tap, self.stride)
            if phase == 0 and 0 <= window < self.windows.size:
                yield window, tap

    def places(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """For each place of the output, the window and the phase of it."""
        window, phase = np.divmod(np.arange(self.outputs, dtype=np.intp) + self.before, self.stride)
        return window - window[0], np.minimum(phase, self.count - 1)


def phases(size: int, taps: int, outputs: int, stride: int, before: int) -> Phases:
    """The phases of one dimension; `before` is the padding of a convolution from the output to the input."""
    first, last = before // stride, (before + outputs - 1) // stride
    taps_of_window = -(-taps // stride)
    windows = Axis(size, taps_of_window, last - first + 1, before=taps_of_window - 1 - first)
    return Phases(taps, outputs, stride, before, windows)


@dataclass
class TransposeOpData(OpData):
    """What is kept from prepare to bind."""

    row_phases: Phases
    column_phases: Phases


def _prepare(context: KernelContext, node: Node) -> None:
    input, weights, output = OPERANDS.prepared(context, node)
    if weights.dims[3] != input.dims[3] or output.dims[3] > weights.dims[0]:
        reason = (
            f"has shape {list(weights.dims)}, must be (channels, rows, columns, depth) with the output's "
            f"{output.dims[3]} channels and a depth of {input.dims[3]} like the input"
        )
        raise OperatorError(reason, tensor=weights.name)
    options = node.options(TransposeConvOptions) or TransposeConvOptions()
    taps, outputs, strides = weights.dims[1:3], output.dims[1:3], (options.stride_h, options.stride_w)
    before = paddings(options.padding, outputs, taps, strides, (1, 1))
    rows, columns = (phases(*of) for of in zip(input.dims[1:3], taps, outputs, strides, before))
    blocks = math.prod((input.dims[0], *(axis.windows.windows * axis.count for axis in (rows, columns))))
    require_room(blocks * output.dims[3], input, weights, output)
    activation = fused_activation(node, TransposeConvOptions)
    quantization = None
    if input.type != TensorType.FLOAT32:
        quantization = OPERANDS.quantization(context, node, activation)
    node.op_data = TransposeOpData(rows.windows, columns.windows, quantization, activation, rows, columns)


def _requests(node: NodeView) -> Iterator[Request]:
    input, output = node.input(OPERANDS.input), node.output(0)
    yield from OPERANDS.shape_requests()
    yield from ChannelMultipliers.requests(node.input(OPERANDS.weights).dims[0])
    takes_int16 = node.release.holds("c062c1b27")
    if input.type in SCRATCH_BYTES and (input.type != TensorType.INT16 or takes_int16):
        yield ScratchBuffer("sums", element_count(output) * SCRATCH_BYTES[input.type])
    if input.type != TensorType.FLOAT32:
        yield from OPERANDS.tensor_requests(node)
        yield from wide_bias(node)


def wide_bias(node: NodeView) -> Iterator[Request]:
    """TFLM makes a copy in 64 bits of a bias of 16."""
    if node.has_input(OPERANDS.bias) and node.release.holds("95ae9340e"):
        bias = node.input(OPERANDS.bias)
        if bias.type == TensorType.INT16:
            yield ScratchBuffer("bias", 8 * element_count(bias))


def _bind(context: KernelContext, node: Node) -> Run:
    x, weights, bias, y, constant = OPERANDS.bound(context, node)
    op: TransposeOpData = node.op_data
    rows, columns, channels = op.row_phases, op.column_phases, y.shape[3]
    arrange, by_phase = bind_arrange(weights[:channels], rows, columns)
    arrange()
    copies = rows.count * columns.count
    shape = x.shape[0], rows.windows.windows, columns.windows.windows, copies * channels
    by_window = kept(np.empty(shape, y.dtype))
    multiply = bind_convolution(
        op,
        x,
        by_phase.reshape(1, -1, *by_phase.shape[3:]),
        None if bias is None else np.broadcast_to(bias, (copies, channels)),
        by_window,
        channels=channels,
        accumulator_bits=64 if x.dtype == np.int16 else 32,
        constant=constant,
    )
    gather = _bind_gather(by_window.reshape(-1, channels), y, rows, columns)
    multiply_and_gather = in_turn(multiply, gather)
    if y.dtype == np.float32 and not all(axis.fills_windows for axis in (rows, columns)):
        multiply_and_gather = in_turn(multiply_and_gather, _bind_repair(op, x, weights, bias, y))
    return multiply_and_gather if constant else in_turn(arrange, multiply_and_gather)


def _bind_repair(
    op: TransposeOpData,
    x: npt.NDArray[Any],
    weights: npt.NDArray[Any],
    bias: npt.NDArray[Any] | None,
    y: npt.NDArray[Any],
) -> Run:
    """What computes again where the result is NaN, without the zeros that phases are filled up with: inf * 0 is NaN."""
    low, high = activation_range(op.activation, np.float32)

    def result(batch: int, row: int, column: int, channel: int) -> Any:
        total = np.float32(0)
        for (at_row, row_tap), (at_column, column_tap) in itertools.product(
            op.row_phases.contributions(row), op.column_phases.contributions(column)
        ):
            for a, b in zip(x[batch, at_row, at_column], weights[channel, row_tap, column_tap]):
                total += a * b
        total += 0 if bias is None else bias[channel]
        return np.minimum(np.maximum(total, low), high)

    def repair() -> None:
        if np.isnan(y.min(initial=0)):
            for place in np.argwhere(np.isnan(y)):
                y[tuple(place)] = result(*place.tolist())

    return repair


def bind_arrange(weights: npt.NDArray[Any], rows: Phases, columns: Phases) -> tuple[Run, npt.NDArray[Any]]:
    """What sorts weights by phase, and the sorted ones.

    These have the shape (row phases, column phases, channels, row taps, column taps, depth).
    """
    channels, depth = weights.shape[0], weights.shape[3]
    row_taps, column_taps = rows.windows.taps, columns.windows.taps
    padded = kept(np.zeros((channels, row_taps * rows.count, column_taps * columns.count, depth), weights.dtype))
    inside = padded[:, : rows.taps, : columns.taps]
    # A window goes forward through the input, which is backward through the filter.
    split = padded.reshape(channels, row_taps, rows.count, column_taps, columns.count, depth)[:, ::-1, :, ::-1]
    by_phase = kept(np.empty((rows.count, columns.count, channels, row_taps, column_taps, depth), weights.dtype))

    def arrange() -> None:
        np.copyto(inside, weights)
        np.copyto(by_phase, split.transpose(2, 4, 0, 1, 3, 5))

    return arrange, by_phase


def _bind_gather(by_window: npt.NDArray[Any], y: npt.NDArray[Any], rows: Phases, columns: Phases) -> Run:
    """What brings places of the output, which lie by window and then by phase, to where they belong."""
    places = kept(places_by_window(y.shape[0], rows, columns))
    take, flat_y = by_window.take, y.reshape(-1, y.shape[3])

    def gather() -> None:
        take(places, axis=0, out=flat_y, mode="clip")

    return gather


def places_by_window(batches: int, rows: Phases, columns: Phases) -> npt.NDArray[np.intp]:
    """For each place of the output, its number where places lie by window and then by phase."""
    (row, row_phase), (column, column_phase) = rows.places(), columns.places()
    batch = np.arange(batches, dtype=np.intp)[:, np.newaxis]
    line = ((batch * rows.windows.windows + row) * columns.windows.windows)[:, :, np.newaxis] + column
    phase = row_phase[:, np.newaxis] * columns.count + column_phase
    places: npt.NDArray[np.intp] = (line * (rows.count * columns.count) + phase).reshape(-1)
    return places


def _multiply_accumulates(inputs: Sequence[Shape], output: Shape) -> int:
    return math.prod(inputs[OPERANDS.input]) * math.prod(inputs[OPERANDS.weights][:3])  # each element meets the filter


TRANSPOSE_CONV = Registration(
    BuiltinOperator.TRANSPOSE_CONV,
    _bind,
    _prepare,
    op_data=OP_DATA_TRANSPOSE_CONV,
    requests=_requests,
    builtin_data=TFLITE_TRANSPOSE_CONV_PARAMS,
    max_version=5,
    types=tuple(OPERANDS.weight_types),
    multiply_accumulates=_multiply_accumulates,
)
