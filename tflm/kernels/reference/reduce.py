"""MEAN, SUM, REDUCE_MAX, REDUCE_MIN and REDUCE_ALL: all elements along some dimensions made one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier, quantize_multiplier, wrap_int32
from tflm.kernels.arithmetic.requantization import OutputStage, Requantization
from tflm.kernels.host_memory import kept
from tflm.kernels.registration import Bind, KernelContext, Node, Registration, Run
from tflm.kernels.requests import NodeView, Request, Requests, ScratchBuffer, TempInput, TempOutput
from tflm.kernels.support.checks import element_count, require_axis, require_same_type, require_scale, require_type
from tflm.kernels.support.parameters import bind_by_parameters
from tflm.kernels.support.views import as_numbers
from tflm.memory.tensor import TfLiteEvalTensor, TfLiteTensor
from tflm.releases import Release
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.targets import BOOL, FLOAT, INT, INT32, Since, Struct, Until

INPUT, AXIS = range(2)
SUM_TYPES = (TensorType.FLOAT32, TensorType.INT8, TensorType.INT16)
MIN_MAX_TYPES = (TensorType.FLOAT32, TensorType.INT8)
ALL_TYPES = (TensorType.BOOL,)

TFLITE_REDUCER_PARAMS = Struct("TfLiteReducerParams", keep_dims=BOOL)
OP_DATA_REDUCE = Struct(
    "OpDataReduce",
    multiplier=INT32,
    shift=INT,
    scratch_accumulator_idx=INT,
    scratch_resolved_axis_idx=INT,
    scratch_input_iter_idx=Since("0efdd51a3", INT),
    input_zp=INT,
    input_scale=FLOAT,
    output_zp=INT,
    output_scale=FLOAT,
    num_output_elements=INT,
    num_axis=Since("79b493ae2", INT),
    temp_index_idx=Since("ff246bcc0", Until("2710e3f8c", INT)),
    normalized_dims_idx=Since("ff246bcc0", Until("2710e3f8c", INT)),
)


@dataclass
class Rescaling:
    """From the scale and zero point of the input to those of the output: significand * 2^shift."""

    significand: int
    shift: int
    input_zero_point: int
    output_zero_point: int

    def multiplier(self, divisor: int) -> QuantizedMultiplier:
        """The multiplier with a division taken in: it is shifted left first, as far as it may be."""
        if divisor == 1:
            return QuantizedMultiplier(self.significand, self.shift)
        up = min(divisor.bit_length() - 1, 32, 31 + self.shift)
        return QuantizedMultiplier((self.significand << up) // divisor, self.shift - up)


def _prepare_sum(context: KernelContext, node: Node) -> None:
    input, output = _tensors(context, node)
    require_type(input, *SUM_TYPES)
    require_same_type(output, input)
    if input.type != TensorType.FLOAT32:
        significand, shift = quantize_multiplier(input.scale / require_scale(output))
        node.op_data = Rescaling(significand, shift, input.zero_point, output.zero_point)


def _prepare_min_max(context: KernelContext, node: Node) -> None:
    input, output = _tensors(context, node)
    require_type(input, *MIN_MAX_TYPES)
    require_same_type(output, input)
    if input.type == TensorType.INT8 and (input.scale, input.zero_point) != (output.scale, output.zero_point):
        reason = f"has scale {output.scale:g} and zero point {output.zero_point}, the input has {input.scale:g}"
        raise OperatorError(f"{reason} and {input.zero_point}; they must be equal", tensor=output.name)


def _prepare_all(context: KernelContext, node: Node) -> None:
    input, output = _tensors(context, node)
    require_type(input, *ALL_TYPES)
    require_same_type(output, input)


def _tensors(context: KernelContext, node: Node) -> tuple[TfLiteTensor, TfLiteTensor]:
    node.expect(inputs=2, outputs=1)
    input = context.input_tensor(node, INPUT)
    output = context.output_tensor(node, 0)
    axis = context.input_tensor(node, AXIS)
    require_type(axis, TensorType.INT32)
    if axis.is_constant:
        check_output(resolved_axes(axis.data, input), input, output)
    return input, output


FIRST_TENSORS = TempInput(INPUT), TempOutput(0), TempInput(AXIS)


def _requests_of_sum(node: NodeView) -> Iterator[Request]:
    if _normalizes(node.release):
        yield from (TempInput(INPUT), TempInput(AXIS), TempOutput(0))
    else:
        yield from FIRST_TENSORS if node.release.holds("79b493ae2") else FIRST_TENSORS[:2]
    types = SUM_TYPES if node.release.holds("5124fe335") else (TensorType.INT8,)
    if node.input(INPUT).type in types and node.input(INPUT).type != TensorType.FLOAT32:
        yield ScratchBuffer("sums", 4 * element_count(node.output(0)))
    if node.release.holds("0efdd51a3"):
        yield from _indices(node)
    elif _normalizes(node.release):
        yield ScratchBuffer("place in the input", 4 * element_count(node.output(0)))
        yield ScratchBuffer("sums again", 4 * element_count(node.output(0)))
        yield ScratchBuffer("resolved axes", 4 * element_count(node.input(AXIS)))
        yield ScratchBuffer("normalized dims", 4 * element_count(node.input(INPUT)))
    yield from second_tensors(node)


def _requests_of_min_max(node: NodeView) -> Iterator[Request]:
    yield from second_tensors(node)
    yield from FIRST_TENSORS
    yield from _indices(node)
    if _normalizes(node.release):
        yield ScratchBuffer("normalized dims", 4 * element_count(node.input(INPUT)))


def _normalizes(release: Release) -> bool:
    """Whether it is of the two days in which there were buffers for what was then taken back."""
    return release.holds("ff246bcc0") and not release.holds("2710e3f8c")


def _requests_of_all(node: NodeView) -> Iterator[Request]:
    yield from FIRST_TENSORS
    yield from second_tensors(node)
    yield from _indices(node)


def second_tensors(node: NodeView) -> Iterator[Request]:
    """TFLM takes the tensors twice, the output only for int8."""
    yield TempInput(INPUT)
    yield TempInput(AXIS)
    if node.input(INPUT).type == TensorType.INT8:
        yield TempOutput(0)


def _indices(node: NodeView) -> Iterator[Request]:
    yield ScratchBuffer("place in the input", 4 * len(node.input(INPUT).dims))
    yield ScratchBuffer("resolved axes", 4 * element_count(node.input(AXIS)))


def resolved_axes(axis: npt.NDArray[Any], input: TfLiteTensor | TfLiteEvalTensor) -> tuple[int, ...]:
    """Dimensions as they are counted from 0, in order and each once; none for a scalar."""
    if not input.dims:
        return ()
    return tuple(sorted({require_axis(int(a), len(input.dims), input.name) for a in axis.reshape(-1)}))


def check_output(
    axes: Sequence[int], input: TfLiteTensor | TfLiteEvalTensor, output: TfLiteTensor | TfLiteEvalTensor
) -> None:
    """Refuse an output that has not one element for each that is left."""
    count = math.prod(size for i, size in enumerate(input.dims) if i not in axes)
    if element_count(output) != count:
        reason = f"has shape {list(output.dims)}; {list(input.dims)} reduced along {list(axes)} has {count} elements"
        raise OperatorError(reason, tensor=output.name)


class Columns:
    """A copy of the input as a matrix: a column for each element of the output, a row for each that it is made of.

    numpy adds up the rows of a matrix one after the other, as the reference does, but a single column pairwise: there
    are two columns at least.
    """

    def __init__(self, x: npt.NDArray[Any], axes: Sequence[int], dtype: npt.DTypeLike):
        others = [i for i in range(x.ndim) if i not in axes]
        self.rows = math.prod(x.shape[i] for i in axes)
        self.count = math.prod(x.shape[i] for i in others)
        self.matrix = kept(np.zeros((self.rows, max(self.count, 2)), dtype))
        self._source: npt.NDArray[Any]
        self._target: npt.NDArray[Any]
        if self.count == 1:
            self._target, self._source = self.matrix[:, 0], x.reshape(-1)
        else:
            self._source = x.transpose([*axes, *others])
            self._target = self.matrix.reshape(self._source.shape)
        self._results = kept(np.empty(self.matrix.shape[1], dtype))

    def reduced(self, reduce: Callable[..., Any]) -> npt.NDArray[Any]:
        """The rows made one; valid until the next call."""
        np.copyto(self._target, self._source)
        reduce(self.matrix, axis=0, out=self._results)
        return self._results[: self.count]


BindAxes = Callable[[npt.NDArray[Any], npt.NDArray[Any], tuple[int, ...], Any], Run]
"""From input, output, dimensions and op data to what runs the operator."""


def _bind_with(bind_axes: BindAxes) -> Bind:
    """Dimensions that are no constant are looked at in each run."""

    def bind(context: KernelContext, node: Node) -> Run:
        input, axis = context.get_eval_input(node, INPUT), context.get_eval_input(node, AXIS)
        output = context.get_eval_output(node, 0)
        x, y, op_data = input.elements, output.elements.reshape(-1), node.op_data

        def bind_resolved() -> Run:
            axes = resolved_axes(axis.elements, input)
            check_output(axes, input, output)
            return bind_axes(x, y, axes, op_data)

        return bind_by_parameters([axis], bind_resolved)

    return bind


def _bind_sum(is_mean: bool) -> BindAxes:
    def bind(x: npt.NDArray[Any], y: npt.NDArray[Any], axes: tuple[int, ...], op_data: Any) -> Run:
        if is_mean and not x.size:
            raise OperatorError(f"has an input of shape {list(x.shape)}; there is no mean of no elements")
        if x.dtype == np.float32:
            columns = Columns(x, axes, np.float32)
            divisor = np.float32(columns.rows if is_mean else 1)

            def run() -> None:
                np.divide(columns.reduced(np.add.reduce), divisor, out=y)

            return run
        return _bind_quantized_sum(Columns(x, axes, np.int64), y, op_data, is_mean)

    return bind


def _bind_quantized_sum(columns: Columns, y: npt.NDArray[Any], op: Rescaling, is_mean: bool) -> Run:
    multiplier = op.multiplier(columns.rows if is_mean else 1)
    zero_points = columns.rows * op.input_zero_point
    requantize = Requantization(multiplier, OutputStage.whole(op.output_zero_point, y.dtype)).in_place
    scratch = kept(np.empty(y.shape, np.int64))

    def run() -> None:
        sums = columns.reduced(np.add.reduce)
        np.subtract(sums, zero_points, out=sums)
        np.copyto(y, requantize(wrap_int32(sums), scratch), casting="unsafe")

    return run


def _bind_extreme(ufunc: np.ufunc, start: str) -> BindAxes:
    """The first value is that of the type's other end: an infinity beyond it does not count, nor does a nan."""

    def bind(x: npt.NDArray[Any], y: npt.NDArray[Any], axes: tuple[int, ...], op_data: Any) -> Run:
        columns = Columns(x, axes, x.dtype)
        limits: Any = np.finfo(x.dtype) if x.dtype.kind == "f" else np.iinfo(x.dtype)
        reduce = partial(ufunc.reduce, initial=x.dtype.type(getattr(limits, start)))

        def run() -> None:
            np.copyto(y, columns.reduced(reduce))

        return run

    return bind


def _bind_all(x: npt.NDArray[Any], y: npt.NDArray[Any], axes: tuple[int, ...], op_data: Any) -> Run:
    columns, y = Columns(as_numbers(x), axes, np.uint8), as_numbers(y)
    reduce = partial(np.bitwise_and.reduce, initial=np.uint8(1))

    def run() -> None:
        np.copyto(y, columns.reduced(reduce))

    return run


def _registration(
    operator: BuiltinOperator,
    prepare: Callable[[KernelContext, Node], None],
    requests: Requests,
    bind_axes: BindAxes,
    max_version: int,
    types: tuple[TensorType, ...],
    since: str = "",
) -> Registration:
    return Registration(
        operator,
        _bind_with(bind_axes),
        prepare,
        op_data=OP_DATA_REDUCE,
        requests=requests,
        builtin_data=TFLITE_REDUCER_PARAMS,
        max_version=max_version,
        types=types,
        since=since,
    )


MEAN = _registration(BuiltinOperator.MEAN, _prepare_sum, _requests_of_sum, _bind_sum(is_mean=True), 3, SUM_TYPES)
SUM = _registration(
    BuiltinOperator.SUM, _prepare_sum, _requests_of_sum, _bind_sum(is_mean=False), 2, SUM_TYPES, since="32b0fe993"
)
REDUCE_MAX = _registration(
    BuiltinOperator.REDUCE_MAX, _prepare_min_max, _requests_of_min_max, _bind_extreme(np.fmax, "min"), 3, MIN_MAX_TYPES
)
REDUCE_MIN = _registration(
    BuiltinOperator.REDUCE_MIN,
    _prepare_min_max,
    _requests_of_min_max,
    _bind_extreme(np.fmin, "max"),
    3,
    MIN_MAX_TYPES,
    since="3d4cdc19f",
)
REDUCE_ALL = _registration(
    BuiltinOperator.REDUCE_ALL, _prepare_all, _requests_of_all, _bind_all, 1, ALL_TYPES, since="ef382bdaa"
)
