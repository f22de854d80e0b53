"""AVERAGE_POOL_2D and MAX_POOL_2D, for float32, int8 and int16; L2_POOL_2D, the root of the mean square, for float32.

Tensors are (batches, height, width, channels). What a window covers outside the input does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.host_memory import kept
from tflm.kernels.layers.geometry import (
    TFLITE_PADDING,
    TFLITE_PADDING_VALUES,
    Axis,
    Tap,
    output_size,
    padding_before,
    taps,
)
from tflm.kernels.registration import KernelContext, Node, Registration, Run
from tflm.kernels.requests import NodeView, Request, TempInput, TempOutput, tensors, writable_dims
from tflm.kernels.support.activation import (
    TFLITE_FUSED_ACTIVATION,
    activation_range,
    fused_activation,
    quantized_activation_range,
)
from tflm.kernels.support.checks import AnyTensor, require_same_type, require_type
from tflm.memory.tensor import TfLiteTensor
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.options import Pool2DOptions
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


@dataclass
class OpData:
    """The taps of the windows along height and width, and the range of the results."""

    rows: list[Tap]
    columns: list[Tap]
    minimum: Any
    maximum: Any


def _prepare(context: KernelContext, node: Node) -> None:
    node.expect(outputs=1)  # TFLM does not count the inputs
    activation = fused_activation(node, Pool2DOptions)
    input = context.input_tensor(node, 0)
    output = context.output_tensor(node, 0)
    require_type(input, *TYPES)
    require_same_type(output, input)
    shape, rows, columns = _windows(input, node)
    if output.dims != shape:
        reason = f"has shape {list(output.dims)}, the windows give {list(shape)}"
        raise OperatorError(reason, tensor=output.name)
    if input.type == TensorType.FLOAT32:
        limits = activation_range(activation, np.float32)
    else:
        if not abs(input.scale - output.scale) <= 1e-6 or input.zero_point != output.zero_point:
            reason = f"has scale {output.scale:g} and zero point {output.zero_point}, the input has {input.scale:g}"
            raise OperatorError(f"{reason} and {input.zero_point}; they must be equal", tensor=output.name)
        limits = quantized_activation_range(activation, output)
    node.op_data = OpData(rows, columns, *limits)


def _prepare_l2(context: KernelContext, node: Node) -> None:
    node.expect(inputs=1, outputs=1)
    input = context.input_tensor(node, 0)
    output = context.get_eval_output(node, 0)
    require_type(input, *L2_TYPES)
    require_same_type(output, input)
    _require_image(output)
    shape, rows, columns = _windows(input, node)
    # The shape in the model does not count.
    context.allocate_requested(node)
    output.dims = shape
    node.op_data = OpData(rows, columns, *activation_range(fused_activation(node, Pool2DOptions), np.float32))


def _requests_of_l2(node: NodeView) -> Iterator[Request]:
    yield TempOutput(0)
    yield TempInput(0)
    yield writable_dims(node.output(0))


def _windows(input: TfLiteTensor, node: Node) -> tuple[tuple[int, ...], list[Tap], list[Tap]]:
    """The shape of the output, and the taps of its windows along height and width."""
    _require_image(input)
    options = node.options(Pool2DOptions) or Pool2DOptions()
    batches, height, width, channels = input.dims
    sizes = (height, options.filter_height, options.stride_h), (width, options.filter_width, options.stride_w)
    if options.filter_height <= 0 or options.filter_width <= 0:
        raise OperatorError(
            f"has a window of {options.filter_height} x {options.filter_width}, both must be at least 1"
        )
    shape = batches, *(output_size(options.padding, *size) for size in sizes), channels
    if min(shape) <= 0:
        raise OperatorError(f"has shape {list(input.dims)}, in which no window finds an element", tensor=input.name)
    rows, columns = (
        taps(Axis(size, window, windows, stride, before=padding_before(windows, size, window, stride)))
        for windows, (size, window, stride) in zip(shape[1:3], sizes)
    )
    return shape, rows, columns


def _require_image(tensor: AnyTensor) -> None:
    if len(tensor.dims) != 4:
        reason = f"has shape {list(tensor.dims)}; it must be (batches, height, width, channels)"
        raise OperatorError(reason, tensor=tensor.name)


def element_counts(op: OpData, shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """How many elements of the input each window covers, for an output of that shape; of its height and width."""
    _, height, width, _ = shape
    by_row, by_column = kept(np.zeros(height, np.int64)), kept(np.zeros(width, np.int64))
    for counts, axis in ((by_row, op.rows), (by_column, op.columns)):
        for tap in axis:
            counts[tap.windows] += 1
    return by_row[:, np.newaxis] * by_column


def _bind_average(context: KernelContext, node: Node) -> Run:
    x, y = context.get_eval_input(node, 0).elements, context.get_eval_output(node, 0).elements
    op: OpData = node.op_data
    return _bind_float_average(op, x, y) if y.dtype == np.float32 else _bind_integer_average(op, x, y)


def _bind_float_average(op: OpData, x: npt.NDArray[Any], y: npt.NDArray[Any]) -> Run:
    sum_up = _bind_ordered_sums(op, x, y)
    counts = _spread(element_counts(op, y.shape).astype(np.float32), y.shape)

    def run() -> None:
        sum_up()
        np.divide(y, counts, out=y)
        np.maximum(y, op.minimum, out=y)
        np.minimum(y, op.maximum, out=y)

    return run


def _bind_l2(context: KernelContext, node: Node) -> Run:
    x, y = context.get_eval_input(node, 0).elements, context.get_eval_output(node, 0).elements
    op: OpData = node.op_data
    squares = kept(np.empty_like(x))
    sum_up = _bind_ordered_sums(op, squares, y)
    counts = _spread(element_counts(op, y.shape).astype(np.float32), y.shape)

    def run() -> None:
        np.multiply(x, x, out=squares)
        sum_up()
        np.divide(y, counts, out=y)
        np.sqrt(y, out=y)
        np.maximum(y, op.minimum, out=y)
        np.minimum(y, op.maximum, out=y)

    return run


def _bind_integer_average(op: OpData, x: npt.NDArray[Any], y: npt.NDArray[Any]) -> Run:
    counts = element_counts(op, y.shape)
    limits = np.iinfo(x.dtype)
    # Below 2^24, a float32 holds every sum, and tells its quotient from the next whole number.
    largest = int(counts.max()) * -int(limits.min)
    dtype = np.float32 if largest < 2**24 else np.float64
    may_wrap = largest >= 2**31
    wide = kept(np.empty(x.shape, dtype))
    sums, scratch = (kept(np.empty(y.shape, dtype)) for _ in range(2))
    sum_up = _bind_windows(op, wide, sums, np.add, dtype(0))
    divisors, halves = (_spread(values.astype(dtype), y.shape) for values in (counts, counts // 2))
    minimum, maximum = dtype(op.minimum), dtype(op.maximum)
    clamps = (op.minimum, op.maximum) != (limits.min, limits.max)

    def run() -> None:
        np.copyto(wide, x)
        sum_up()
        if may_wrap:
            _wrap_int32(sums, scratch)
        np.copysign(halves, sums, out=scratch)
        np.add(sums, scratch, out=sums)
        if may_wrap:
            _wrap_int32(sums, scratch)
        np.divide(sums, divisors, out=sums)
        if clamps:
            np.maximum(sums, minimum, out=sums)
            np.minimum(sums, maximum, out=sums)
        np.copyto(y, sums, casting="unsafe")  # cuts the fraction off, as C's division does

    return run


def _wrap_int32(sums: npt.NDArray[Any], scratch: npt.NDArray[Any]) -> None:
    """Keep the low 32 bits of whole numbers in float64, signed; in place."""
    np.add(sums, 2.0**31, out=scratch)
    np.divide(scratch, 2.0**32, out=scratch)
    np.floor(scratch, out=scratch)
    np.multiply(scratch, 2.0**32, out=scratch)
    np.subtract(sums, scratch, out=sums)


def _bind_max(context: KernelContext, node: Node) -> Run:
    x, y = context.get_eval_input(node, 0).elements, context.get_eval_output(node, 0).elements
    op: OpData = node.op_data
    limits: Any = np.finfo(x.dtype) if x.dtype.kind == "f" else np.iinfo(x.dtype)
    find = _bind_windows(op, x, y, np.fmax, x.dtype.type(limits.min))  # nan is not larger than anything
    minimum, maximum = (x.dtype.type(limit) for limit in (op.minimum, op.maximum))
    if x.dtype.kind != "f" and (op.minimum, op.maximum) == (limits.min, limits.max):
        return find

    def run() -> None:
        find()
        np.fmax(y, minimum, out=y)
        np.minimum(y, maximum, out=y)

    return run


def _spread(values: npt.NDArray[Any], shape: tuple[int, ...]) -> Any:
    """A value for each window as an array of the output's shape; a single number where all are equal."""
    if (values == values.flat[0]).all():
        return values.flat[0]
    return kept(np.broadcast_to(values[:, :, np.newaxis], shape).copy())


Step = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function, and the arguments to call it with."""


def _bind_windows(op: OpData, x: npt.NDArray[Any], results: npt.NDArray[Any], combine: np.ufunc, start: Any) -> Run:
    """What combines the elements of each window in any order, first down the rows and then across the columns.

    Args:
        x, results: of one type.
        start: what the first element of a window that reaches over the border is combined with.
    """
    batches, height, _, channels = results.shape
    by_row = kept(np.empty((batches, height, x.shape[2], channels), x.dtype))
    steps = [
        *_steps_along(1, op.rows, x, by_row, combine, start),
        *_steps_along(2, op.columns, by_row, results, combine, start),
    ]

    def run() -> None:
        for call, arguments in steps:
            call(*arguments)

    return run


def _steps_along(
    axis: int, axis_taps: list[Tap], source: npt.NDArray[Any], target: npt.NDArray[Any], combine: np.ufunc, start: Any
) -> Iterator[Step]:
    def cut(array: npt.NDArray[Any], part: slice | int) -> npt.NDArray[Any]:
        index = (*[slice(None)] * axis, part)
        return array[index]

    if target.shape[axis] == 1:
        window = cut(source, slice(axis_taps[0].inputs.start, axis_taps[-1].inputs.stop))
        yield combine.reduce, (window, axis, None, cut(target, 0))
        return
    first, *others = axis_taps
    if first.windows == slice(0, target.shape[axis]):
        yield np.copyto, (target, cut(source, first.inputs))
    else:
        yield target.fill, (start,)
        others = axis_taps
    for tap in others:
        part = cut(target, tap.windows)
        yield combine, (part, cut(source, tap.inputs), part)


def _bind_ordered_sums(op: OpData, x: npt.NDArray[Any], sums: npt.NDArray[np.float32]) -> Run:
    """What sums up the floats of each window in the order of its elements.

    In another order, sums of large terms that cancel would differ from the reference's.
    """
    batches, _, width, channels = x.shape
    rows, columns = (slice(axis[0].inputs.start, axis[-1].inputs.stop) for axis in (op.rows, op.columns))
    # numpy adds along an axis in order, unless that is the one whose elements lie side by side.
    if sums.shape[1:3] == (1, 1) and columns == slice(0, width) and channels > 1:
        elements = x[:, rows].reshape(batches, -1, channels)
        results = sums.reshape(batches, channels)

        def run_one_window() -> None:
            np.add.reduce(elements, axis=1, out=results)

        return run_one_window
    steps = [
        (sums[:, row.windows, column.windows], x[:, row.inputs, column.inputs])
        for row in op.rows
        for column in op.columns
    ]

    def run() -> None:
        sums.fill(0)
        for target, source in steps:
            np.add(target, source, out=target)

    return run


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
)
MAX_POOL_2D = Registration(
    BuiltinOperator.MAX_POOL_2D,
    _bind_max,
    _prepare,
    op_data=OP_DATA_POOLING,
    requests=tensors(),
    builtin_data=TFLITE_POOL_PARAMS,
    max_version=3,
    types=TYPES,
)
L2_POOL_2D = Registration(
    BuiltinOperator.L2_POOL_2D,
    _bind_l2,
    _prepare_l2,
    requests=_requests_of_l2,
    builtin_data=TFLITE_POOL_PARAMS,
    types=L2_TYPES,
)
