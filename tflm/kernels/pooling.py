"""AVERAGE_POOL_2D and MAX_POOL_2D, for float32, int8 and int16.

Tensors are (batches, height, width, channels). What a window covers outside the input does not count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.activation import (
    TFLITE_FUSED_ACTIVATION,
    activation_range,
    fused_activation,
    quantized_activation_range,
)
from tflm.kernels.checks import require_same_type, require_type
from tflm.kernels.padding import TFLITE_PADDING, TFLITE_PADDING_VALUES, output_size, padding_before
from tflm.kernels.registration import KernelContext, Node, Registration, Run
from tflm.kernels.taps import Tap, taps
from tflm.memory.tensor import TfLiteTensor
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.options import Pool2DOptions
from tflm.targets import FLOAT, INT, INT32, Struct

TYPES = (TensorType.FLOAT32, TensorType.INT8, TensorType.INT16)

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


@dataclass
class OpData:
    """The taps of the windows along height and width, and the range of the results."""

    rows: list[Tap]
    columns: list[Tap]
    minimum: Any
    maximum: Any


def prepare_pool(context: KernelContext, node: Node) -> None:
    """Check a pool and find its windows; the op data are an `OpData`."""
    node.expect(inputs=1, outputs=1)
    options = node.options(Pool2DOptions) or Pool2DOptions()
    activation = fused_activation(node, Pool2DOptions)
    input = context.allocate_temp_input_tensor(node, 0)
    output = context.allocate_temp_output_tensor(node, 0)
    require_type(input, *TYPES)
    require_same_type(output, input)
    rows, columns = _windows(input, output, options)
    if input.type == TensorType.FLOAT32:
        limits = activation_range(activation, np.float32)
    else:
        if not abs(input.scale - output.scale) <= 1e-6 or input.zero_point != output.zero_point:
            reason = f"has scale {output.scale:g} and zero point {output.zero_point}, the input has {input.scale:g}"
            raise OperatorError(f"{reason} and {input.zero_point}; they must be equal", tensor=output.name)
        limits = quantized_activation_range(activation, output)
    node.op_data = OpData(rows, columns, *limits)


def _windows(input: TfLiteTensor, output: TfLiteTensor, options: Pool2DOptions) -> tuple[list[Tap], list[Tap]]:
    for tensor in (input, output):
        if len(tensor.dims) != 4:
            reason = f"has shape {list(tensor.dims)}; it must be (batches, height, width, channels)"
            raise OperatorError(reason, tensor=tensor.name)
    batches, height, width, channels = input.dims
    sizes = (height, options.filter_height, options.stride_h), (width, options.filter_width, options.stride_w)
    if options.filter_height <= 0 or options.filter_width <= 0:
        raise OperatorError(
            f"has a window of {options.filter_height} x {options.filter_width}, both must be at least 1"
        )
    shape = [batches, *(output_size(options.padding, *size) for size in sizes), channels]
    if list(output.dims) != shape or 0 in shape:
        raise OperatorError(f"has shape {list(output.dims)}, the windows give {shape}", tensor=output.name)
    rows, columns = (
        taps(size, windows, window, stride, padding_before(windows, size, window, stride))
        for windows, (size, window, stride) in zip(shape[1:3], sizes)
    )
    return rows, columns


def element_counts(op: OpData, shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """How many elements of the input each window covers, for an output of that shape; of its height and width."""
    _, height, width, _ = shape
    by_row, by_column = np.zeros(height, np.int64), np.zeros(width, np.int64)
    for counts, axis in ((by_row, op.rows), (by_column, op.columns)):
        for tap in axis:
            counts[tap.windows] += 1
    return by_row[:, np.newaxis] * by_column


def _bind_average(context: KernelContext, node: Node) -> Run:
    x, y = context.get_eval_input(node, 0).elements, context.get_eval_output(node, 0).elements
    op: OpData = node.op_data
    counts = element_counts(op, y.shape)
    if y.dtype == np.float32:
        sum_up, sums = bind_ordered_sums(op, x, y.shape)
        divisors = _spread(counts.astype(np.float32), y.shape)
        halves = None
    else:
        largest = int(counts.max()) * -int(np.iinfo(x.dtype).min)
        # Below 2^22, a float32 tells a quotient of whole numbers from the next whole number.
        dtype = np.float32 if largest < 2**22 else np.float64
        sum_up, sums = bind_windows(op, x, y.shape, np.add, dtype, 0)
        divisors, halves = _spread(counts.astype(dtype), y.shape), _spread((counts // 2).astype(dtype), y.shape)
    scratch = np.empty_like(sums)
    minimum, maximum = (sums.dtype.type(limit) for limit in (op.minimum, op.maximum))

    def run() -> None:
        sum_up()
        if halves is not None:
            np.copysign(halves, sums, out=scratch)
            np.add(sums, scratch, out=sums)
        np.divide(sums, divisors, out=sums)
        if halves is not None:
            np.trunc(sums, out=sums)
        np.maximum(sums, minimum, out=sums)
        np.minimum(sums, maximum, out=sums)
        np.copyto(y, sums, casting="unsafe")

    return run


def _spread(values: npt.NDArray[Any], shape: tuple[int, ...]) -> Any:
    """A value for each window as an array of the output's shape; a single number where all are equal."""
    if (values == values.flat[0]).all():
        return values.flat[0]
    return np.ascontiguousarray(np.broadcast_to(values[:, :, np.newaxis], shape))


def bind_windows(
    op: OpData, x: npt.NDArray[Any], shape: tuple[int, ...], combine: np.ufunc, dtype: npt.DTypeLike, start: Any
) -> tuple[Run, npt.NDArray[Any]]:
    """What combines all elements of each window, and the array that it fills; rows first, then columns.

    Args:
        shape: of the output.
        combine: a function of two numbers that may be applied in any order.
        dtype: in which it is worked out.
        start: what the first element is combined with.
    """
    batches, height, _, channels = shape
    wide = x if x.dtype == dtype else np.empty(x.shape, dtype)
    by_row, results = np.empty((batches, height, x.shape[2], channels), dtype), np.empty(shape, dtype)
    down = [(by_row[:, tap.windows], wide[:, tap.inputs]) for tap in op.rows]
    across = [(results[:, :, tap.windows], by_row[:, :, tap.inputs]) for tap in op.columns]

    def run() -> None:
        if wide is not x:
            np.copyto(wide, x)
        by_row.fill(start)
        results.fill(start)
        for target, source in down:
            combine(target, source, out=target)
        for target, source in across:
            combine(target, source, out=target)

    return run, results


def bind_ordered_sums(op: OpData, x: npt.NDArray[Any], shape: tuple[int, ...]) -> tuple[Run, npt.NDArray[np.float32]]:
    """What sums up the floats of each window in the order of its elements, and the array that it fills.

    In another order, sums of large terms that cancel would differ from the reference's.
    """
    sums = np.empty(shape, np.float32)
    steps = [
        (sums[:, row.windows, column.windows], x[:, row.inputs, column.inputs])
        for row in op.rows
        for column in op.columns
    ]

    def run() -> None:
        sums.fill(0)
        for target, source in steps:
            np.add(target, source, out=target)

    return run, sums


def _bind_max(context: KernelContext, node: Node) -> Run:
    x, y = context.get_eval_input(node, 0).elements, context.get_eval_output(node, 0).elements
    op: OpData = node.op_data
    lowest = np.finfo(x.dtype).min if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    find, results = bind_windows(op, x, y.shape, np.fmax if x.dtype.kind == "f" else np.maximum, x.dtype, lowest)
    minimum, maximum = (x.dtype.type(limit) for limit in (op.minimum, op.maximum))

    def run() -> None:
        find()
        np.maximum(results, minimum, out=results)
        np.minimum(results, maximum, out=y)

    return run


AVERAGE_POOL_2D = Registration(
    BuiltinOperator.AVERAGE_POOL_2D,
    _bind_average,
    prepare_pool,
    op_data=OP_DATA_POOLING,
    builtin_data=TFLITE_POOL_PARAMS,
    max_version=3,
)
MAX_POOL_2D = Registration(
    BuiltinOperator.MAX_POOL_2D,
    _bind_max,
    prepare_pool,
    op_data=OP_DATA_POOLING,
    builtin_data=TFLITE_POOL_PARAMS,
    max_version=3,
)
