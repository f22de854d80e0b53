"""STRIDED_SLICE, every n-th element of a range in each dimension, forwards or backwards; SLICE, all of a range.

The ranges of STRIDED_SLICE are constants of the model; those of SLICE may come from other operators. As in TFLM, the
masks for an ellipsis and for new dimensions are ignored, and so is the option that counts ends from beginnings.
"""

from __future__ import annotations

import math

import numpy as np

from tflm.errors import OperatorError
from tflm.kernels.overlap import FAR, NOWHERE, Move, OperatorFacts
from tflm.kernels.registration import KernelContext, Node, Registration, Run
from tflm.kernels.requests import tensors
from tflm.kernels.support.checks import constant_integers, require_same_type, require_type
from tflm.kernels.support.parameters import bind_by_parameters
from tflm.kernels.support.views import bind_copy, view_of
from tflm.memory.tensor import TfLiteEvalTensor, TfLiteTensor
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.options import StridedSliceOptions
from tflm.targets import BOOL, INT, INT8, INT32, UINT16, Array, Since, Struct

INPUT = 0
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
    node.expect(inputs=4, outputs=1)
    input, begin, end, strides = (context.input_tensor(node, i) for i in range(4))
    output = context.output_tensor(node, 0)
    require_type(input, *TYPES)
    require_same_type(output, input)
    rank = _rank(input, STRIDED_SLICE_RANK)
    options = node.options(StridedSliceOptions) or StridedSliceOptions()
    bounds = [constant_integers(tensor, rank) for tensor in (begin, end, strides)]
    slices, shape = [], []
    for axis, (size, first, last, stride) in enumerate(zip(input.dims, *bounds)):
        if stride == 0:
            raise OperatorError("has a stride of 0", tensor=strides.name)
        start = first_index(first, size, stride, masked=bool(options.begin_mask >> axis & 1))
        if options.shrink_axis_mask >> axis & 1:
            slices.append(slice(start, start + 1))
            _require_inside(start, size, stride, input)
        else:
            stop = end_index(last, size, stride, masked=bool(options.end_mask >> axis & 1))
            selected = range(start, stop, stride)
            if start + len(selected) * stride > np.iinfo(np.int32).max:  # the reference counts on to there
                raise OperatorError(
                    f"has a stride of {stride}, which leads from {start} beyond 32 bits", tensor=strides.name
                )
            slices.append(slice(start, None if stop < 0 else stop, stride) if selected else slice(0))
            shape.append(len(selected))
    if shape != list(output.dims):
        raise OperatorError(f"has shape {list(output.dims)}, the slices give {shape}", tensor=output.name)
    node.op_data = slices


def _rank(input: TfLiteTensor, most: int) -> int:
    if len(input.dims) > most:
        raise OperatorError(f"has {len(input.dims)} dimensions, {most} is the most", tensor=input.name)
    return len(input.dims)


def first_index(index: int, size: int, stride: int, masked: bool) -> int:
    """Where a slice begins: a negative index counts from the end; masked, at the first element in its direction."""
    if masked:
        return 0 if stride > 0 else size - 1
    index += size if index < 0 else 0
    return min(max(index, 0), size) if stride > 0 else min(max(index, -1), size - 1)


def end_index(index: int, size: int, stride: int, masked: bool) -> int:
    """Before which element a slice ends, in its direction; -1 for the one before the first."""
    if masked:
        return size if stride > 0 else -1
    index += size if index < 0 else 0
    return min(max(index, 0), size) if stride > 0 else min(max(index, -1), size - 1)


def _require_inside(start: int, size: int, stride: int, input: TfLiteTensor) -> None:
    if not 0 <= start < size or stride < 0:
        reason = f"has shape {list(input.dims)}; the one element that a dimension shrinks to is not in it"
        raise OperatorError(reason, tensor=input.name)


def _bind_strided_slice(context: KernelContext, node: Node) -> Run:
    source = view_of(context.get_eval_input(node, INPUT).elements, node.op_data)
    return bind_copy(context.get_eval_output(node, 0).elements.reshape(source.shape), source)


def _prepare_slice(context: KernelContext, node: Node) -> None:
    node.expect(inputs=3, outputs=1)
    input, begin, size = (context.input_tensor(node, i) for i in range(3))
    output = context.output_tensor(node, 0)
    require_type(input, *TYPES)
    require_same_type(output, input)
    require_type(begin, TensorType.INT32, TensorType.INT64)
    require_same_type(size, begin)
    rank = _rank(input, SLICE_RANK)
    for numbers in (begin, size):
        if len(numbers.dims) != 1 or numbers.dims[0] < rank or numbers.dims != begin.dims:
            reason = f"has shape {list(numbers.dims)}, must have one number for each of {rank} dimensions"
            raise OperatorError(reason, tensor=numbers.name)


def _bind_slice(context: KernelContext, node: Node) -> Run:
    input, begin, size = (context.get_eval_input(node, i) for i in range(3))
    output = context.get_eval_output(node, 0)
    x, y = input.elements, output.elements

    def bind() -> Run:
        slices = _slices(input, begin, size)
        shape = [part.stop - part.start for part in slices]
        if math.prod(shape) != y.size:
            raise OperatorError(f"has shape {list(output.dims)}, the slice has {shape}", tensor=output.name)
        return bind_copy(y.reshape(shape), view_of(x, slices))

    return bind_by_parameters([begin, size], bind)


def _slices(input: TfLiteEvalTensor, begin: TfLiteEvalTensor, size: TfLiteEvalTensor) -> list[slice]:
    """The slice of each dimension; a size of -1 is all that is left."""
    slices = []
    # TFLM takes 32 bits of each number.
    starts, lengths = (numbers.elements[: len(input.dims)].astype(np.int32).tolist() for numbers in (begin, size))
    for elements, start, length in zip(input.dims, starts, lengths):
        stop = elements if length == -1 else start + length
        if not 0 <= start <= stop <= elements:
            reason = f"has shape {list(input.dims)}; {length} elements from {start} are no slice of {elements}"
            raise OperatorError(reason, tensor=input.name)
        slices.append(slice(start, stop))
    return slices


def _moves(operator: OperatorFacts) -> list[Move] | None:
    """A slice of the outermost dimension is one run of bytes; of others, the runs lie apart."""
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
    """Elements are read in their order, and written one behind the other."""
    return range(FAR) if input == INPUT else NOWHERE


SLICE = Registration(
    BuiltinOperator.SLICE,
    _bind_slice,
    _prepare_slice,
    requests=tensors(3),
    max_version=6,
    types=TYPES,
    overlap=_forwards,
    moves=_moves,
    since="284df73c5",
)
STRIDED_SLICE = Registration(
    BuiltinOperator.STRIDED_SLICE,
    _bind_strided_slice,
    _prepare_strided_slice,
    op_data=STRIDED_SLICE_PARAMS,
    requests=tensors(4),
    builtin_data=TFLITE_STRIDED_SLICE_PARAMS,
    max_version=8,
    types=TYPES,
)
