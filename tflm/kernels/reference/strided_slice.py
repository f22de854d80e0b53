"""STRIDED_SLICE: a range with a stride in each dimension; SLICE: without a stride; DYNAMIC_UPDATE_SLICE.

The ranges of STRIDED_SLICE must be constants, those of SLICE need not. As in TFLM, `ellipsis_mask`, `new_axis_mask` and
`offset` are ignored.

DYNAMIC_UPDATE_SLICE is its first input with a slice replaced, whose start is an input as well. A slice that extends
beyond the input is shifted to fit.
"""

from __future__ import annotations

import math

import numpy as np

from tflm.errors import OperatorError
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.overlap import FAR, NOWHERE, Move, OperatorFacts, first_in_its_place
from tflm.kernels.registration import Registration
from tflm.kernels.requests import tensors
from tflm.kernels.shapes import Shapes, StaticNode, same_as_input
from tflm.kernels.support.checks import (
    constant_integers,
    element_count,
    require_alike,
    require_one_type,
    require_rank,
    require_type,
    shape_error,
)
from tflm.kernels.support.elementwise import Copy, Copying, view_of
from tflm.memory.tensor import TfLiteTensor
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.options import StridedSliceOptions
from tflm.schema.version_rules import Feature, by_input, either, input_is, option, rank_above
from tflm.targets import BOOL, INT, INT8, INT32, UINT16, Array, Since, Struct

INPUT, BEGIN, SIZE = range(3)
STRIDED_SLICE_RANK, SLICE_RANK = 4, 5
TYPES = (TensorType.FLOAT32, TensorType.INT8, TensorType.INT16, TensorType.INT32, TensorType.BOOL)

TFLITE_STRIDED_SLICE_PARAMS = Struct(
    "TfLiteStridedSliceParams",
    begin_mask=INT,
    end_mask=INT,
    ellipsis_mask=INT,
    new_axis_mask=INT,
    shrink_axis_mask=INT,
    offset=Since("982aaef60", BOOL),
)
STRIDED_SLICE_PARAMS = Struct(
    "StridedSliceParams",
    start_indices_count=INT8,
    start_indices=Array(INT32, 5),
    stop_indices_count=INT8,
    stop_indices=Array(INT32, 5),
    strides_count=INT8,
    strides=Array(INT32, 5),
    begin_mask=UINT16,
    ellipsis_mask=UINT16,
    end_mask=UINT16,
    new_axis_mask=UINT16,
    shrink_axis_mask=UINT16,
    offset=Since("982aaef60", BOOL),
)


def _prepare_strided_slice(context: KernelContext, node: Node) -> None:
    """The op data are slices of the input, one for each dimension."""
    input, begin, end, strides, output = node.expect_tensors(4)
    require_one_type(TYPES, input, output)
    rank = require_rank(input, STRIDED_SLICE_RANK)
    options = node.options(StridedSliceOptions)
    bounds = [constant_integers(tensor, rank) for tensor in (begin, end, strides)]
    slices, shape = [], []
    for axis, (size, first, last, stride) in enumerate(zip(input.dims, *bounds)):
        if stride == 0:
            raise OperatorError("has a stride of 0", tensor=strides.name)
        whole_start, whole_stop = (0, size) if stride > 0 else (size - 1, -1)
        start = whole_start if options.begin_mask >> axis & 1 else _clamped(first, size, stride)
        if options.shrink_axis_mask >> axis & 1:
            slices.append(slice(start, start + 1))
            _require_inside(start, size, stride, input)
        else:
            stop = whole_stop if options.end_mask >> axis & 1 else _clamped(last, size, stride)
            selected = range(start, stop, stride)
            if start + len(selected) * stride > np.iinfo(np.int32).max:  # where the reference's loop ends
                raise OperatorError(
                    f"has a stride of {stride}, which leads from {start} beyond 32 bits", tensor=strides.name
                )
            slices.append(slice(start, None if stop < 0 else stop, stride) if selected else slice(0))
            shape.append(len(selected))
    if shape != list(output.dims):
        raise shape_error(output, f", must have {shape}")
    node.op_data = slices


def _clamped(index: int, size: int, stride: int) -> int:
    # A negative index counts from the end. As a result, -1 is the position before the first element.
    index += size if index < 0 else 0
    return min(max(index, 0), size) if stride > 0 else min(max(index, -1), size - 1)


def _require_inside(start: int, size: int, stride: int, input: TfLiteTensor) -> None:
    if not 0 <= start < size or stride < 0:
        raise shape_error(input, "; the index of a dimension that shrinks is out of range")


def _copies_of_strided_slice(node: Node) -> list[Copy]:
    source = view_of(node.eval_input(INPUT).elements, node.op_data)
    return [(node.eval_output(0).elements.reshape(source.shape), source)]


def _prepare_slice(context: KernelContext, node: Node) -> None:
    input, begin, size, output = node.expect_tensors(3)
    require_one_type(TYPES, input, output)
    require_one_type((TensorType.INT32, TensorType.INT64), begin, size)
    rank = require_rank(input, SLICE_RANK)
    for numbers in (begin, size):
        if len(numbers.dims) != 1 or numbers.dims[0] < rank or numbers.dims != begin.dims:
            raise shape_error(numbers, f", must have one number for each of {rank} dimensions")


def _copies_of_slice(node: Node) -> list[Copy]:
    """A size of -1 stands for the rest of the dimension."""
    input, output = node.eval_input(INPUT), node.eval_output(0)
    # TFLM takes 32 bits of each number.
    starts, sizes = (node.eval_input(i).elements[: len(input.dims)].astype(np.int32).tolist() for i in (BEGIN, SIZE))
    slices = []
    for elements, start, size in zip(input.dims, starts, sizes):
        stop = elements if size == -1 else start + size
        if not 0 <= start <= stop <= elements:
            raise shape_error(input, f"; cannot slice {size} elements from {start} out of {elements}")
        slices.append(slice(start, stop))
    source = view_of(input.elements, slices)
    if source.size != output.elements.size:
        raise shape_error(output, f", the slice has {list(source.shape)}")
    return [(output.elements.reshape(source.shape), source)]


def _moves(operator: OperatorFacts) -> list[Move] | None:
    """Only a slice of the outermost dimension is contiguous."""
    if len(operator.inputs) < 2 or not operator.outputs:
        return None
    input, begin = operator.inputs[:2]
    output = operator.outputs[0]
    starts = begin.integers() if begin is not None and begin.type in (TensorType.INT32, TensorType.INT64) else None
    if input is None or starts is None or len(starts) < len(input.dims) or len(output.dims) != len(input.dims):
        return None
    sliced = [axis for axis, (whole, part) in enumerate(zip(input.dims, output.dims)) if whole != part]
    outermost = sliced[0] if sliced else 0
    if len(sliced) > 1 or math.prod(input.dims[:outermost]) != 1:
        return None
    row = math.prod(input.dims[outermost + 1 :]) * input.itemsize
    source = int(starts[outermost]) * row if sliced else 0
    if not 0 <= source <= input.bytes - output.bytes:
        return None
    return [Move(0, source, 0, 0, output.bytes, ascending=True)]


def _forwards(operator: OperatorFacts, input: int) -> range:
    """The operator reads elements in ascending order and writes them consecutively."""
    return range(FAR) if input == INPUT else NOWHERE


def _sliced(node: StaticNode) -> Shapes:
    shape, begins, sizes = node.shape(0), node.numbers(1), node.numbers(2)
    if not len(shape) == len(begins) == len(sizes):
        raise OperatorError(f"has sizes for {len(sizes)} dimensions, the input has {len(shape)}")
    found = [size if size != -1 else whole - begin for whole, begin, size in zip(shape, begins, sizes)]
    if any(begin + size > whole or size < 0 for whole, begin, size in zip(shape, begins, found)):
        raise OperatorError(f"a slice of {found} from {begins} on is not inside {list(shape)}")
    return [found]


def _static_slices(node: StaticNode) -> tuple[slice | int, ...]:
    shape, begins, ends, strides = node.shape(0), node.numbers(1), node.numbers(2), node.numbers(3)
    if node.option("ellipsis_mask") or node.option("new_axis_mask") or node.option("offset"):
        raise OperatorError("does not allow its inputs to be resized with an ellipsis, new dimensions or offsets")
    if len(begins) > len(shape):
        raise OperatorError(f"has ranges for {len(begins)} dimensions, the input has {len(shape)}")
    found: list[slice | int] = []
    for i, (begin, end, stride) in enumerate(zip(begins, ends, strides)):
        if node.option("shrink_axis_mask") >> i & 1:
            if not -shape[i] <= begin < shape[i]:
                raise OperatorError(f"index {begin} is out of range for {shape[i]} elements")
            found.append(begin)
        else:
            first = None if node.option("begin_mask") >> i & 1 else begin
            found.append(slice(first, None if node.option("end_mask") >> i & 1 else end, stride))
    return tuple(found)


def _strided(node: StaticNode) -> Shapes:
    return [np.empty(node.shape(0), np.bool_)[_static_slices(node)].shape]


SLICE = Registration(
    BuiltinOperator.SLICE,
    Copying(_copies_of_slice, parameters=(BEGIN, SIZE)),
    _prepare_slice,
    requests=tensors(3),
    max_version=6,
    types=TYPES,
    overlap=_forwards,
    moves=_moves,
    since="284df73c5",
    output_shapes=_sliced,
    versions={**by_input(FLOAT16=8, INT4=7, UINT32=6), 5: rank_above(4), **by_input(INT16=4, STRING=3, INT8=2)},
)
STRIDED_SLICE = Registration(
    BuiltinOperator.STRIDED_SLICE,
    Copying(_copies_of_strided_slice),
    _prepare_strided_slice,
    op_data=STRIDED_SLICE_PARAMS,
    requests=tensors(4),
    builtin_data=TFLITE_STRIDED_SLICE_PARAMS,
    max_version=8,
    types=TYPES,
    output_shapes=_strided,
    output_values=lambda node: node.values(0)[_static_slices(node)],
    versions={
        8: option("offset"),
        7: input_is("UINT32"),
        6: Feature("ellipsis_mask and new_axis_mask", either(option("ellipsis_mask"), option("new_axis_mask"))),
        5: input_is("STRING"),
        4: rank_above(4),
        3: input_is("BOOL"),
        2: input_is("INT8"),
    },
)


UPDATE_TYPES = (TensorType.FLOAT32, TensorType.INT8, TensorType.INT16, TensorType.INT32)
UPDATE_RANK = 6
START = 2


def _prepare_update(context: KernelContext, node: Node) -> None:
    operand, update, start, output = node.expect_tensors(3)
    require_one_type(UPDATE_TYPES, operand, update)
    require_type(start, TensorType.INT32, TensorType.INT64)
    require_alike(output, operand)
    rank = require_rank(operand, UPDATE_RANK)
    if start.dims != (rank,):
        raise shape_error(start, f", must have one number for each of {rank} dimensions")
    if len(update.dims) != rank or any(part > size for part, size in zip(update.dims, operand.dims)):
        raise shape_error(update, f", which is not a slice of {list(operand.dims)}")


def _copies_update(node: Node) -> list[Copy]:
    operand, update, start = (node.eval_input(i) for i in range(3))
    y = node.eval_output(0).elements.reshape(operand.dims)
    if element_count(update) == element_count(operand):
        return [(y, update.elements)]
    first = [min(max(i, 0), size - n) for i, n, size in zip(start.elements.tolist(), update.dims, operand.dims)]
    slices = [slice(i, i + n) for i, n in zip(first, update.dims)]
    return [(y, operand.elements), (view_of(y, slices), update.elements)]


DYNAMIC_UPDATE_SLICE = Registration(
    BuiltinOperator.DYNAMIC_UPDATE_SLICE,
    Copying(_copies_update, parameters=(START,)),
    _prepare_update,
    requests=tensors(3),
    max_version=4,
    types=UPDATE_TYPES,
    overlap=first_in_its_place,
    since="62cbc8e3e",
    output_shapes=same_as_input,
    versions={
        **by_input(BFLOAT16=6, INT4=5, INT16=4, FLOAT16=3),
        2: Feature("INT64 indices", input_is("INT64", index=2)),
    },
)
