"""MEAN, SUM, REDUCE_MAX, REDUCE_MIN and REDUCE_ALL: reductions along some axes, which are an input."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier, quantize_multiplier, wrap_int32
from tflm.kernels.arithmetic.requantization import OutputStage, Requantization
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.registration import Bind, Registration, Run
from tflm.kernels.requests import Request, ScratchBuffer, TempInput, TempOutput
from tflm.kernels.shapes import reduced, require_axis
from tflm.kernels.support.checks import element_count, require_same_type, require_scale, require_type
from tflm.kernels.support.views import as_numbers, bind_by_parameters
from tflm.memory.tensor import TfLiteEvalTensor, TfLiteTensor
from tflm.releases import Release
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.version_rules import by_input
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
    """Rescales from the input's to the output's scale and zero point; the multiplier is significand * 2^shift."""

    significand: int
    shift: int
    input_zero_point: int
    output_zero_point: int

    def multiplier(self, divisor: int) -> QuantizedMultiplier:
        """The multiplier divided by a divisor; the significand is first shifted left as far as possible."""
        if divisor == 1:
            return QuantizedMultiplier(self.significand, self.shift)
        up = min(divisor.bit_length() - 1, 32, 31 + self.shift)
        return QuantizedMultiplier((self.significand << up) // divisor, self.shift - up)


def _prepare_sum(context: KernelContext, node: Node) -> None:
    input, output = _tensors(node)
    require_type(input, *SUM_TYPES)
    require_same_type(output, input)
    if input.type != TensorType.FLOAT32:
        significand, shift = quantize_multiplier(input.scale / require_scale(output))
        node.op_data = Rescaling(significand, shift, input.zero_point, output.zero_point)


def _prepare_min_max(context: KernelContext, node: Node) -> None:
    input, output = _tensors(node)
    require_type(input, *MIN_MAX_TYPES)
    require_same_type(output, input)
    if input.type == TensorType.INT8 and (input.scale, input.zero_point) != (output.scale, output.zero_point):
        reason = f"has scale {output.scale:g} and zero point {output.zero_point}, the input has {input.scale:g}"
        raise OperatorError(f"{reason} and {input.zero_point}; they must be equal", tensor=output.name)


def _prepare_all(context: KernelContext, node: Node) -> None:
    input, output = _tensors(node)
    require_type(input, *ALL_TYPES)
    require_same_type(output, input)


def _tensors(node: Node) -> tuple[TfLiteTensor, TfLiteTensor]:
    node.expect(inputs=2, outputs=1)
    input = node.input(INPUT)
    output = node.output(0)
    axis = node.input(AXIS)
    require_type(axis, TensorType.INT32)
    if axis.is_constant:
        check_output(resolved_axes(axis.data, input), input, output)
    return input, output


FIRST_TENSORS = TempInput(INPUT), TempOutput(0), TempInput(AXIS)


def _requests_of_sum(node: Node) -> Iterator[Request]:
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


def _requests_of_min_max(node: Node) -> Iterator[Request]:
    yield from second_tensors(node)
    yield from FIRST_TENSORS
    yield from _indices(node)
    if _normalizes(node.release):
        yield ScratchBuffer("normalized dims", 4 * element_count(node.input(INPUT)))


def _normalizes(release: Release) -> bool:
    """Whether the release has the buffers that TFLM added and removed two days later."""
    return release.holds("ff246bcc0") and not release.holds("2710e3f8c")


def _requests_of_all(node: Node) -> Iterator[Request]:
    yield from FIRST_TENSORS
    yield from second_tensors(node)
    yield from _indices(node)


def second_tensors(node: Node) -> Iterator[Request]:
    """TFLM allocates the temp tensors twice; that of the output only for int8."""
    yield TempInput(INPUT)
    yield TempInput(AXIS)
    if node.input(INPUT).type == TensorType.INT8:
        yield TempOutput(0)


def _indices(node: Node) -> Iterator[Request]:
    yield ScratchBuffer("place in the input", 4 * len(node.input(INPUT).dims))
    yield ScratchBuffer("resolved axes", 4 * element_count(node.input(AXIS)))


def resolved_axes(axis: npt.NDArray[Any], input: TfLiteTensor | TfLiteEvalTensor) -> tuple[int, ...]:
    """The axes from 0 on, sorted and without duplicates; none for a scalar."""
    if not input.dims:
        return ()
    return tuple(sorted({require_axis(int(a), len(input.dims), input.name) for a in axis.reshape(-1)}))


def check_output(
    axes: Sequence[int], input: TfLiteTensor | TfLiteEvalTensor, output: TfLiteTensor | TfLiteEvalTensor
) -> None:
    """Reject an output of the wrong size."""
    count = math.prod(size for i, size in enumerate(input.dims) if i not in axes)
    if element_count(output) != count:
        reason = f"has shape {list(output.dims)}; {list(input.dims)} reduced along {list(axes)} has {count} elements"
        raise OperatorError(reason, tensor=output.name)


Array = npt.NDArray[Any]
Reduction = Callable[[Array, tuple[int, ...], Any], Array]
"""A function of input, axes and op data that returns the elements of the output."""


def _bind_with(reduction: Reduction) -> Bind:
    def bind(context: KernelContext, node: Node) -> Run:
        input, axis = node.eval_input(INPUT), node.eval_input(AXIS)
        output = node.eval_output(0)
        x, y = as_numbers(input.elements), as_numbers(output.elements.reshape(-1))

        def axes() -> tuple[int, ...]:
            resolved = resolved_axes(axis.elements, input)
            check_output(resolved, input, output)
            if reduction is _mean and not x.size:
                raise OperatorError(f"has an input of shape {list(x.shape)}; the mean of no elements is undefined")
            return resolved

        def run(axes: tuple[int, ...]) -> None:
            y[...] = reduction(x, axes, node.op_data)

        return bind_by_parameters([axis], axes, run)

    return bind


def _reduced(x: Array, axes: tuple[int, ...], reduce: Callable[..., Any], **options: Any) -> Array:
    """Reduce along the axes one element after another, as the reference does.

    numpy does so for the rows of a matrix, but reduces a single column pairwise.
    """
    others = [i for i in range(x.ndim) if i not in axes]
    rows, count = (math.prod(x.shape[i] for i in part) for part in (axes, others))
    columns = np.ascontiguousarray(x.transpose([*axes, *others]).reshape(rows, count), None)
    columns = np.repeat(columns, 2, axis=1) if count == 1 else columns
    results: Array = reduce(columns, axis=0, **options)
    return results[:count]


def _sum(x: Array, axes: tuple[int, ...], op: Rescaling, divisor: int = 1) -> Array:
    if x.dtype == np.float32:
        return _reduced(x, axes, np.add.reduce) / np.float32(divisor)
    zero_points = math.prod(x.shape[i] for i in axes) * op.input_zero_point
    sums = wrap_int32(_reduced(x, axes, np.add.reduce, dtype=np.int64) - zero_points)
    return Requantization(op.multiplier(divisor), OutputStage.whole(op.output_zero_point, x.dtype))(sums)


def _mean(x: Array, axes: tuple[int, ...], op: Rescaling) -> Array:
    return _sum(x, axes, op, math.prod(x.shape[i] for i in axes))


def lowest_and_highest(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """The finite limits of a type. MAX and MIN start from them, so they ignore infinities and NaNs."""
    limits: Any = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    return dtype.type(limits.min), dtype.type(limits.max)


def _maximum(x: Array, axes: tuple[int, ...], op_data: Any) -> Array:
    return _reduced(x, axes, np.fmax.reduce, initial=lowest_and_highest(x.dtype)[0])


def _minimum(x: Array, axes: tuple[int, ...], op_data: Any) -> Array:
    return _reduced(x, axes, np.fmin.reduce, initial=lowest_and_highest(x.dtype)[1])


def _all(x: Array, axes: tuple[int, ...], op_data: Any) -> Array:
    return _reduced(x, axes, np.bitwise_and.reduce, initial=np.uint8(1))


MEAN = Registration(
    BuiltinOperator.MEAN,
    _bind_with(_mean),
    _prepare_sum,
    op_data=OP_DATA_REDUCE,
    requests=_requests_of_sum,
    builtin_data=TFLITE_REDUCER_PARAMS,
    max_version=3,
    types=SUM_TYPES,
    output_shapes=reduced,
    versions=by_input(INT16=3, INT8=2),
)
SUM = replace(
    MEAN,
    operator=BuiltinOperator.SUM,
    bind=_bind_with(_sum),
    max_version=2,
    since="32b0fe993",
    versions=by_input(INT8=2),
)
REDUCE_MAX = replace(
    MEAN,
    operator=BuiltinOperator.REDUCE_MAX,
    bind=_bind_with(_maximum),
    prepare=_prepare_min_max,
    requests=_requests_of_min_max,
    types=MIN_MAX_TYPES,
)
REDUCE_MIN = replace(REDUCE_MAX, operator=BuiltinOperator.REDUCE_MIN, bind=_bind_with(_minimum), since="3d4cdc19f")
REDUCE_ALL = replace(
    MEAN,
    operator=BuiltinOperator.REDUCE_ALL,
    bind=_bind_with(_all),
    prepare=_prepare_all,
    requests=_requests_of_all,
    max_version=1,
    types=ALL_TYPES,
    since="ef382bdaa",
    versions={},
)
