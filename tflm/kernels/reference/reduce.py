"""MEAN, SUM, REDUCE_MAX, REDUCE_MIN, REDUCE_ALL, ARG_MAX, ARG_MIN and CUMSUM, along axes that are an input.

ARG_MAX and ARG_MIN find the first largest or smallest element. Comparisons with NaN are false: a NaN as first element
wins, any other is skipped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier, quantize_multiplier, wrap_int32
from tflm.kernels.arithmetic.requantization import OutputStage, Requantization
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.registration import Bind, Refusal, Registration, Run
from tflm.kernels.requests import PersistentBuffer, Request, ScratchBuffer, TempInput, TempOutput, tensors
from tflm.kernels.shapes import Shapes, StaticNode, reduced, require_axis, same_as_input
from tflm.kernels.support.checks import (
    AnyTensor,
    element_count,
    require_one_type,
    require_same_type,
    require_scale,
    require_type,
    shape_error,
)
from tflm.kernels.support.elementwise import as_numbers, bind_by_parameters
from tflm.memory.tensor import TFLITE_TYPE, TfLiteEvalTensor, TfLiteTensor
from tflm.releases import Release
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.options import CumsumOptions
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
    require_one_type(SUM_TYPES, input, output)
    if input.type != TensorType.FLOAT32:
        significand, shift = quantize_multiplier(input.scale / require_scale(output))
        node.op_data = Rescaling(significand, shift, input.zero_point, output.zero_point)


def _prepare_min_max(context: KernelContext, node: Node) -> None:
    input, output = _tensors(node)
    require_one_type(MIN_MAX_TYPES, input, output)
    if input.type == TensorType.INT8 and (input.scale, input.zero_point) != (output.scale, output.zero_point):
        reason = f"has scale {output.scale:g} and zero point {output.zero_point}, the input has {input.scale:g}"
        raise OperatorError(f"{reason} and {input.zero_point}; they must be equal", tensor=output.name)


def _prepare_all(context: KernelContext, node: Node) -> None:
    input, output = _tensors(node)
    require_one_type(ALL_TYPES, input, output)


def _tensors(node: Node) -> tuple[TfLiteTensor, TfLiteTensor]:
    input, axis, output = node.expect_tensors(2)
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
        raise shape_error(output, f"; {list(input.dims)} reduced along {list(axes)} has {count} elements")


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


ARG_TYPES = (TensorType.FLOAT32, TensorType.INT8)


TFLITE_ARG_MAX_PARAMS = Struct("TfLiteArgMaxParams", output_type=TFLITE_TYPE)
TFLITE_ARG_MIN_PARAMS = Struct("TfLiteArgMinParams", output_type=TFLITE_TYPE)


def _prepare_arg(context: KernelContext, node: Node) -> None:
    input, axis = (node.eval_input(index) for index in (INPUT, AXIS))
    output = node.eval_output(0)
    require_type(input, *ARG_TYPES)
    require_type(axis, TensorType.INT32)
    require_type(output, TensorType.INT32)
    if element_count(axis) == 0:
        raise shape_error(axis, "; must have one element, the axis")
    if axis.data is not None:
        check_dimension(input, output, axis.data)


def check_dimension(input: AnyTensor, output: AnyTensor, axis: npt.NDArray[Any]) -> tuple[int, int, int]:
    """Check input and output; returns the sizes of the input before, along and after the axis."""
    dimension = require_axis(int(axis.reshape(-1)[0]), len(input.dims), input.name)
    before, along, after = (
        math.prod(sizes) for sizes in (input.dims[:dimension], input.dims[dimension:][:1], input.dims[dimension + 1 :])
    )
    if along == 0:
        raise shape_error(input, f": no element along dimension {dimension}")
    if element_count(output) != before * after:
        reason = f"has shape {list(output.dims)}; {list(input.dims)} without dimension {dimension} has {before * after}"
        raise OperatorError(f"{reason} elements", tensor=output.name)
    return before, along, after


def _bind_with_arg(find: Callable[..., Any], worst: np.float32) -> Bind:
    """Bind `np.argmax` or `np.argmin`; `worst` is the float that replaces a NaN to be skipped."""

    def bind(context: KernelContext, node: Node) -> Run:
        input, axis = (node.eval_input(index) for index in (INPUT, AXIS))
        output = node.eval_output(0)

        def run(sizes: tuple[int, int, int]) -> None:
            x, y = input.elements.reshape(sizes), output.elements.reshape(sizes[0], sizes[2])
            y[...] = find(_without_nan(x, worst) if x.dtype == np.float32 else x, axis=1)

        return bind_by_parameters([axis], lambda: check_dimension(input, output, axis.elements), run)

    return bind


def _without_nan(x: npt.NDArray[np.float32], worst: np.float32) -> npt.NDArray[np.float32]:
    replaced = np.full_like(x, worst)
    replaced[:, :1] = -worst
    return np.where(np.isnan(x), replaced, x)


def _output_shapes_arg(node: StaticNode) -> Shapes:
    shape = node.shape(0)
    axis = require_axis(node.numbers(1)[0], len(shape))
    return [(*shape[:axis], *shape[axis + 1 :])]


ARG_MAX = Registration(
    BuiltinOperator.ARG_MAX,
    _bind_with_arg(np.argmax, np.float32(-np.inf)),
    _prepare_arg,
    builtin_data=TFLITE_ARG_MAX_PARAMS,
    max_version=3,
    types=ARG_TYPES,
    output_shapes=_output_shapes_arg,
    versions=by_input(BOOL=3, INT8=2),
)
ARG_MIN = replace(
    ARG_MAX,
    operator=BuiltinOperator.ARG_MIN,
    bind=_bind_with_arg(np.argmin, np.float32(np.inf)),
    builtin_data=TFLITE_ARG_MIN_PARAMS,
)


CUMSUM_TYPES = (TensorType.FLOAT32, TensorType.INT8)


TERM_SHIFT = 19
"""Terms are shifted left by 20 bits and halved; their sums wrap at 32 bits."""

TFLITE_CUMSUM_PARAMS = Struct("TfLiteCumsumParams", exclusive=BOOL, reverse=BOOL)
OP_DATA_CUMSUM = Struct(
    "cumsum.cc:OpData",
    output_activation_min=INT32,
    output_activation_max=INT32,
    input_offset=INT32,
    output_offset=INT32,
    input_multiplier=INT32,
    output_multiplier=INT32,
    input_shift=INT,
    output_shift=INT,
    left_shift=INT,
)


class CumsumQuantization(NamedTuple):
    """Converts int8 values to 32-bit terms, and their sums back to int8."""

    input_zero_point: int
    output: Requantization


def _prepare_cumsum(context: KernelContext, node: Node) -> None:
    node.expect(inputs=2, outputs=1)
    input = node.input(INPUT)
    axis = node.input(AXIS)
    require_type(input, *CUMSUM_TYPES)
    require_type(axis, TensorType.INT32)
    if element_count(axis) != 1:
        raise shape_error(axis, ", must have one element")
    output = node.output(0)
    require_same_type(output, input)
    if not input.dims or output.dims != input.dims:
        raise shape_error(output, f", must have the input's {list(input.dims)}, of one dimension or more")
    if axis.is_constant:
        require_axis(int(axis.data.reshape(-1)[0]), len(input.dims), input.name)
    if output.type == TensorType.INT8:
        node.op_data = _quantization(input, output)


def _requests_cumsum(node: Node) -> Iterator[Request]:
    yield from tensors(2)(node)
    if node.output(0).type == TensorType.INT8:
        yield PersistentBuffer(OP_DATA_CUMSUM.name, OP_DATA_CUMSUM.size(node.target))


def _quantization(input: TfLiteTensor, output: TfLiteTensor) -> CumsumQuantization:
    real = 2 * require_scale(input) / (2 ** (TERM_SHIFT + 1) * require_scale(output))
    significand, shift = quantize_multiplier(real)
    if not real < 1 or shift > 0:
        raise OperatorError(
            f"has scale {output.scale:g}, too small for sums of scale {input.scale:g}", tensor=output.name
        )
    stage = OutputStage.whole(output.zero_point, np.int8)
    return CumsumQuantization(input.zero_point, Requantization(QuantizedMultiplier(significand, shift), stage))


def _bind_cumsum(context: KernelContext, node: Node) -> Run:
    input, axis = (node.eval_input(index) for index in (INPUT, AXIS))
    output = node.eval_output(0)
    options = node.options(CumsumOptions)

    def views() -> list[Array]:
        number = require_axis(int(axis.elements.reshape(-1)[0]), len(input.dims), input.name)
        return [_along_first(tensor.elements, number, options.reverse) for tensor in (input, output)]

    def run(views: list[Array]) -> None:
        x, y = views
        y[...] = _cumsum(x, options.exclusive, node.op_data)

    return bind_by_parameters([axis], views, run)


def _along_first(array: Array, axis: int, reverse: bool) -> Array:
    """A view with an axis moved to the front, and reversed if requested."""
    moved = np.moveaxis(array, axis, 0)
    return moved[::-1] if reverse else moved


def _cumsum(x: Array, exclusive: bool, op: CumsumQuantization) -> Array:
    is_float = x.dtype == np.float32
    terms = x if is_float else x.astype(np.int32) - np.int32(op.input_zero_point)
    sums: Array = np.add.accumulate(terms, axis=0, dtype=terms.dtype)
    if exclusive:
        sums = np.concatenate([np.zeros_like(sums[:1]), sums[:-1]])
    if is_float:
        return sums
    # The reference starts from the input's offset, so it adds the offset once more than the number of elements.
    return op.output((sums - np.int32(op.input_zero_point)) << TERM_SHIFT)


def _is_int8(node: Node) -> bool:
    return node.input(0).type == TensorType.INT8


CUMSUM = Registration(
    BuiltinOperator.CUMSUM,
    _bind_cumsum,
    _prepare_cumsum,
    requests=_requests_cumsum,
    refusals=(Refusal(_is_int8, "its input may be float32", until="5a65a54ce"),),
    builtin_data=TFLITE_CUMSUM_PARAMS,
    types=CUMSUM_TYPES,
    cpp_method="AddCumSum",
    output_shapes=same_as_input,
)
