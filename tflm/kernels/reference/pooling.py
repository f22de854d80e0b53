"""AVERAGE_POOL_2D and MAX_POOL_2D, for float32, int8 and int16; L2_POOL_2D, the root of the mean square, for float32.

Tensors are (batches, height, width, channels). The part of a window outside the input does not count.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.arithmetic.requantization import clip
from tflm.kernels.host_memory import track_host_array
from tflm.kernels.layers.geometry import (
    TFLITE_PADDING,
    TFLITE_PADDING_VALUES,
    Axis,
    Tap,
    behind_each_channel,
    behind_each_window,
    output_size,
    padding_before,
    pooled,
    taps,
)
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.registration import Registration, Run
from tflm.kernels.requests import Request, TempInput, TempOutput, tensors, writable_dims
from tflm.kernels.support.activation import (
    TFLITE_FUSED_ACTIVATION,
    activation_range,
    fused_activation,
    quantized_activation_range,
)
from tflm.kernels.support.checks import AnyTensor, require_one_type, shape_error
from tflm.memory.tensor import TfLiteTensor
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.options import Pool2DOptions
from tflm.schema.version_rules import INT16_ACTIVATIONS, input_is
from tflm.targets import FLOAT, INT, INT32, Struct

TYPES = (TensorType.FLOAT32, TensorType.INT8, TensorType.INT16)
L2_TYPES = (TensorType.FLOAT32,)

TFLITE_POOL_PARAMS = Struct(
    "TfLitePoolParams",
    padding=TFLITE_PADDING,
    stride_width=INT,
    stride_height=INT,
    filter_width=INT,
    filter_height=INT,
    activation=TFLITE_FUSED_ACTIVATION,
    computed=TFLITE_PADDING_VALUES,
)
OP_DATA_POOLING = Struct(
    "OpDataPooling",
    padding=TFLITE_PADDING_VALUES,
    activation_min=INT32,
    activation_max=INT32,
    activation_min_f32=FLOAT,
    activation_max_f32=FLOAT,
)


@dataclass(frozen=True)
class OpDataPooling:
    """Constants of pools.

    Attributes:
        rows, columns: the taps of the windows along height and width.
        counts: number of image elements that each window covers, (1, height, width, 1).
        minimum, maximum: bounds of the output.
    """

    rows: list[Tap]
    columns: list[Tap]
    counts: npt.NDArray[np.int32]
    minimum: Any
    maximum: Any


def _prepare(context: KernelContext, node: Node) -> None:
    node.expect(outputs=1)  # TFLM does not check the number of inputs
    activation = fused_activation(node, Pool2DOptions)
    input = node.input(0)
    output = node.output(0)
    require_one_type(TYPES, input, output)
    shape, rows, columns = _windows(input, node)
    if output.dims != shape:
        raise shape_error(output, f", the windows give {list(shape)}")
    if input.type == TensorType.FLOAT32:
        limits = activation_range(activation, np.float32)
    else:
        if not abs(input.scale - output.scale) <= 1e-6 or input.zero_point != output.zero_point:
            reason = f"has scale {output.scale:g} and zero point {output.zero_point}, the input has {input.scale:g}"
            raise OperatorError(f"{reason} and {input.zero_point}; they must be equal", tensor=output.name)
        limits = quantized_activation_range(activation, output)
    node.op_data = OpDataPooling(rows, columns, _element_counts(rows, columns, shape), *limits)


def _prepare_l2(context: KernelContext, node: Node) -> None:
    node.expect(inputs=1, outputs=1)
    input = node.input(0)
    output = node.eval_output(0)
    require_one_type(L2_TYPES, input, output)
    _require_image(output)
    shape, rows, columns = _windows(input, node)
    # TFLM ignores the shape in the model.
    context.allocate_requested(node)
    output.dims = shape
    limits = activation_range(fused_activation(node, Pool2DOptions), np.float32)
    node.op_data = OpDataPooling(rows, columns, _element_counts(rows, columns, shape), *limits)


def _requests_of_l2(node: Node) -> Iterator[Request]:
    yield TempOutput(0)
    yield TempInput(0)
    yield writable_dims(node.output(0))


def _windows(input: TfLiteTensor, node: Node) -> tuple[tuple[int, ...], list[Tap], list[Tap]]:
    """The shape of the output, and the taps of its windows along height and width."""
    _require_image(input)
    options = node.options(Pool2DOptions)
    batches, height, width, channels = input.dims
    sizes = (height, options.filter_height, options.stride_h), (width, options.filter_width, options.stride_w)
    if options.filter_height <= 0 or options.filter_width <= 0:
        raise OperatorError(
            f"has a window of {options.filter_height} x {options.filter_width}, both must be at least 1"
        )
    shape = batches, *(output_size(options.padding, *size) for size in sizes), channels
    if min(shape) <= 0:
        raise shape_error(input, ", in which no window covers an element")
    rows, columns = (
        taps(Axis(size, window, sliding_windows, stride, before=padding_before(sliding_windows, size, window, stride)))
        for sliding_windows, (size, window, stride) in zip(shape[1:3], sizes)
    )
    return shape, rows, columns


def _element_counts(rows: list[Tap], columns: list[Tap], shape: tuple[int, ...]) -> npt.NDArray[np.int32]:
    counts = [np.zeros(windows, np.int32) for windows in shape[1:3]]
    for count, axis in zip(counts, (rows, columns)):
        for tap in axis:
            count[tap.windows] += 1
    return track_host_array(np.multiply.outer(*counts)[np.newaxis, ..., np.newaxis])


def _require_image(tensor: AnyTensor) -> None:
    if len(tensor.dims) != 4:
        raise shape_error(tensor, "; it must be (batches, height, width, channels)")


def _bind(pool: Callable[[npt.NDArray[Any], OpDataPooling], npt.NDArray[Any]], node: Node) -> Run:
    x, y, op = node.eval_input(0).elements, node.eval_output(0).elements, node.op_data

    def run() -> None:
        y[...] = pool(x, op)

    return run


def _bind_average(context: KernelContext, node: Node) -> Run:
    return _bind(average_float32 if node.eval_input(0).type == TensorType.FLOAT32 else average_integers, node)


def _bind_l2(context: KernelContext, node: Node) -> Run:
    return _bind(root_mean_square, node)


def average_float32(x: npt.NDArray[np.float32], op: OpDataPooling) -> npt.NDArray[Any]:
    """AveragePool of float32."""
    return _clamped(_float_sums(x, op) / op.counts.astype(np.float32), op)


def root_mean_square(x: npt.NDArray[np.float32], op: OpDataPooling) -> npt.NDArray[Any]:
    """L2Pool of float32."""
    return _clamped(np.sqrt(_float_sums(x * x, op) / op.counts.astype(np.float32)), op)


def average_integers(x: npt.NDArray[Any], op: OpDataPooling) -> npt.NDArray[Any]:
    """AveragePool of int8 or int16: sums wrap to 32 bits, and quotients are rounded, halves away from zero."""
    sums = _reduce_windows(np.add, x.astype(np.int32), op, 0)
    sums += np.where(sums < 0, -(op.counts // 2), op.counts // 2)
    return _clamped(np.trunc(sums / op.counts), op)


def largest(x: npt.NDArray[Any], op: OpDataPooling) -> npt.NDArray[Any]:
    """MaxPool; NaN is not larger than anything."""
    limits: Any = np.finfo(x.dtype) if x.dtype == np.float32 else np.iinfo(x.dtype)
    return _clamped(_reduce_windows(np.fmax, x, op, limits.min), op)


def _clamped(values: npt.NDArray[Any], op: OpDataPooling) -> npt.NDArray[Any]:
    clamped: npt.NDArray[Any] = clip(values, op.minimum, op.maximum)
    return clamped


def _reduce_windows(combine: np.ufunc, x: npt.NDArray[Any], op: OpDataPooling, start: Any) -> npt.NDArray[Any]:
    """Combine the elements of each window, first down the rows and then across the columns."""
    for axis, taps_along_axis in ((1, op.rows), (2, op.columns)):
        results = np.full((*x.shape[:axis], op.counts.shape[axis], *x.shape[axis + 1 :]), start, x.dtype)
        for tap in taps_along_axis:
            windows = results.swapaxes(0, axis)[tap.windows]
            combine(windows, x.swapaxes(0, axis)[tap.inputs], out=windows)
        x = results
    return x


def _float_sums(x: npt.NDArray[np.float32], op: OpDataPooling) -> npt.NDArray[np.float32]:
    """Sums of each window in the reference's order; another order would differ if large terms cancel."""
    sums = np.zeros((len(x), *op.counts.shape[1:3], x.shape[3]), np.float32)
    for row, column in itertools.product(op.rows, op.columns):
        sums[:, row.windows, column.windows] += x[:, row.inputs, column.inputs]
    return sums


AVERAGE_POOL_2D = Registration(
    BuiltinOperator.AVERAGE_POOL_2D,
    _bind_average,
    _prepare,
    op_data=OP_DATA_POOLING,
    requests=tensors(),
    builtin_data=TFLITE_POOL_PARAMS,
    max_version=3,
    types=TYPES,
    int8_registration=True,
    output_shapes=pooled,
    overlap=behind_each_channel,
    versions={3: INT16_ACTIVATIONS, 2: input_is("INT8")},
)
MAX_POOL_2D = replace(
    AVERAGE_POOL_2D,
    operator=BuiltinOperator.MAX_POOL_2D,
    bind=lambda context, node: _bind(largest, node),
    int8_registration=False,
    overlap=behind_each_window,
)
L2_POOL_2D = Registration(
    BuiltinOperator.L2_POOL_2D,
    _bind_l2,
    _prepare_l2,
    requests=_requests_of_l2,
    builtin_data=TFLITE_POOL_PARAMS,
    types=L2_TYPES,
    output_shapes=pooled,
)
