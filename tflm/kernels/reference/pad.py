"""PAD and PADV2, with one value; MIRROR_PAD, mirrored at the border element (REFLECT) or including it (SYMMETRIC)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.registration import Registration
from tflm.kernels.requests import Request, ScratchBuffer, TempInput, TempOutput, tensors
from tflm.kernels.shapes import padded_shape
from tflm.kernels.support.checks import (
    constant_integers,
    element_count,
    require_one_type,
    require_rank,
    require_same_type,
    require_type,
    shape_error,
)
from tflm.kernels.support.elementwise import Copy, Copying, view_of
from tflm.memory.tensor import TfLiteTensor
from tflm.schema.enums import BuiltinOperator, MirrorPadMode, TensorType
from tflm.schema.options import MirrorPadOptions
from tflm.schema.version_rules import by_input, rank_above
from tflm.targets import INT, INT8, INT32, UINT8, Array, EnumType, Struct

INPUT, PADDINGS, VALUE = range(3)
MAXIMUM_RANK = 5
TYPES = (TensorType.FLOAT32, TensorType.INT8, TensorType.INT16, TensorType.INT32)

PAD_PARAMS = Struct(
    "PadParams",
    left_padding_count=INT8,
    left_padding=Array(INT32, 5),
    right_padding_count=INT8,
    right_padding=Array(INT32, 5),
    resizing_category=UINT8,
)
OP_DATA_PAD = Struct("pad.h:OpData", params=PAD_PARAMS, output_zero_point=INT32)


def _prepare_pad(context: KernelContext, node: Node) -> None:
    """The op data are the default padding value and, for each dimension, the slice of the output without padding."""
    node.expect(inputs=range(2, 4), outputs=1)
    input = node.input(INPUT)
    paddings = node.input(PADDINGS)
    value = node.input(VALUE) if node.has_input(VALUE) else None
    output = node.output(0)
    require_one_type(TYPES, input, output)
    if element_count(paddings) != 2 * len(output.dims):
        raise shape_error(paddings, f"; each of {len(output.dims)} dimensions needs two numbers")
    inside = _inside(input, output, constant_integers(paddings, 2 * len(output.dims)))
    if value is not None:
        _check_value(value, output)
    elif output.type == TensorType.INT8 and not -128 <= output.zero_point <= 127:
        raise OperatorError(f"has zero point {output.zero_point}, which int8 does not hold", tensor=output.name)
    node.op_data = output.zero_point if output.type == TensorType.INT8 else 0, inside


def _requests_pad(node: Node) -> Iterator[Request]:
    yield TempInput(INPUT)
    yield TempInput(PADDINGS)
    if node.has_input(VALUE):
        yield TempInput(VALUE)
    yield TempOutput(0)


def _inside(input: TfLiteTensor, output: TfLiteTensor, paddings: list[int]) -> tuple[slice, ...]:
    require_rank(input, MAXIMUM_RANK)
    before, after = paddings[::2], paddings[1::2]
    wanted = [size + left + right for size, left, right in zip(input.dims, before, after)]
    if len(input.dims) != len(output.dims) or min(paddings, default=0) < 0 or list(output.dims) != wanted:
        reason = f"has shape {list(output.dims)}; {list(input.dims)} padded by {before} before and {after} after"
        raise OperatorError(f"{reason} requires {wanted}", tensor=output.name)
    return tuple(slice(left, left + size) for left, size in zip(before, input.dims))


def _check_value(value: TfLiteTensor, output: TfLiteTensor) -> None:
    require_same_type(value, output)
    if element_count(value) != 1:
        raise shape_error(value, ", must be one element")
    if output.type == TensorType.INT8 and (value.scale, value.zero_point) != (output.scale, output.zero_point):
        reason = f"has scale {value.scale:g} and zero point {value.zero_point}, the output has {output.scale:g}"
        raise OperatorError(f"{reason} and {output.zero_point}; they must be equal", tensor=value.name)


def _copies_pad(node: Node) -> list[Copy]:
    zero_point, inside = node.op_data
    x, y = node.eval_input(INPUT).elements, node.eval_output(0).elements
    if x.size == y.size:
        return [(y, x)]
    value = node.eval_input(VALUE).elements.reshape(()) if node.has_input(VALUE) else np.asarray(zero_point, y.dtype)
    return [(y, value), (view_of(y, inside), x)]


PAD = Registration(
    BuiltinOperator.PAD,
    Copying(_copies_pad),
    _prepare_pad,
    op_data=OP_DATA_PAD,
    requests=_requests_pad,
    max_version=4,
    types=TYPES,
    cpp_method="AddPad",
    output_shapes=padded_shape,
    versions={**by_input(FLOAT8=6, BOOL=5), 4: rank_above(4), **by_input(INT16=3, INT8=2)},
)
PADV2 = replace(PAD, operator=BuiltinOperator.PADV2, cpp_method="AddPadV2")


MIRROR_TYPES = (TensorType.FLOAT32, TensorType.INT8)

TFLITE_MIRROR_PADDING_PARAMS = Struct("TfLiteMirrorPaddingParams", mode=EnumType(largest=2))
OP_DATA_MIRROR_PAD = Struct(
    "OpDataMirrorPad",
    input_dims=INT,
    output_size=INT,
    offset=INT,
    output_dims_num_elements_buffer_index=INT,
    input_dims_num_elements_buffer_index=INT,
)


def _prepare_mirror(context: KernelContext, node: Node) -> None:
    """The op data is the distance from the border to the first mirrored element: 1 for REFLECT, 0 for SYMMETRIC."""
    input, paddings = (node.input(i) for i in (INPUT, PADDINGS))
    output = node.output(0)
    require_one_type(MIRROR_TYPES, output, input)
    require_type(paddings, TensorType.INT32, TensorType.INT64)
    rank = len(input.dims)
    if paddings.dims != (rank, 2) or len(output.dims) != rank:
        raise shape_error(paddings, f"; {rank} dimensions need {[rank, 2]}, and an output of as many")
    options = node.builtin_options
    node.op_data = 1 if isinstance(options, MirrorPadOptions) and options.mode == MirrorPadMode.REFLECT else 0


def _requests_mirror(node: Node) -> Iterator[Request]:
    yield from tensors(2)(node)
    rank = len(node.input(INPUT).dims)
    yield ScratchBuffer("elements in a step of each output dimension", 4 * rank)
    yield ScratchBuffer("elements in a step of each input dimension", 4 * rank)


def _copies_mirror(node: Node) -> list[Copy]:
    """Return the copies. TFLM reads the elements that each padding before a dimension leads to, regardless of the
    output's shape."""
    x, y = node.eval_input(INPUT).elements, node.eval_output(0).elements
    paddings = node.eval_input(PADDINGS).elements.astype(np.int32)
    if not y.size:
        return []
    parts = [_parts(*sizes, node.op_data) for sizes in zip(x.shape, y.shape, paddings[:, 0].tolist())]
    steps = [math.prod(x.shape[i + 1 :]) for i in range(x.ndim)]
    places = [[place for part in of_dimension for place in part.ends] for of_dimension in parts]
    first, last = (sum(end(p) * step for p, step in zip(places, steps)) for end in (min, max))
    if first < 0 or last >= x.size:
        reason = f"has shape {list(y.shape)}; cannot pad {list(x.shape)} with {paddings.tolist()}"
        raise OperatorError(f"{reason}, which reads elements {first} to {last}", tensor=node.eval_output(0).name)
    return [(view_of(y, [part.written for part in both]), _read(x, both, steps)) for both in itertools.product(*parts)]


class _Part(NamedTuple):
    """Along a dimension: a slice of the output, and where the input is read for its first element and from then on."""

    written: slice
    first: int
    step: int

    @property
    def length(self) -> int:
        return int(self.written.stop - self.written.start)

    @property
    def ends(self) -> tuple[int, int]:
        return self.first, self.first + (self.length - 1) * self.step


def _parts(size: int, padded: int, before: int, offset: int) -> list[_Part]:
    """The padding before, the input, the padding after, and what lies behind the last element that can be mirrored."""
    end, mirrored = before + size, max(size - offset, 0)
    places = [min(max(place, 0), padded) for place in (0, before, end, end + mirrored, padded)]
    starts = ((before + offset - 1, -1), (-before, 1), (end + mirrored - 1, -1), (0, 0))
    parts = zip(map(slice, places, places[1:]), starts)
    return [_Part(part, at_zero + part.start * step, step) for part, (at_zero, step) in parts if part.start < part.stop]


def _read(x: npt.NDArray[Any], parts: Sequence[_Part], steps: Sequence[int]) -> npt.NDArray[Any]:
    """A view of what parts of all dimensions read; a place beyond the end of a row lies in the next one."""
    first = sum(part.first * step for part, step in zip(parts, steps))
    strides = [part.step * step * x.itemsize for part, step in zip(parts, steps)]
    # A view by `as_strided` would hide the memory that it is of from the generator of C.
    return np.ndarray([part.length for part in parts], x.dtype, x.reshape(-1), first * x.itemsize, strides)


MIRROR_PAD = Registration(
    BuiltinOperator.MIRROR_PAD,
    Copying(_copies_mirror, parameters=(PADDINGS,)),
    _prepare_mirror,
    op_data=OP_DATA_MIRROR_PAD,
    requests=_requests_mirror,
    builtin_data=TFLITE_MIRROR_PADDING_PARAMS,
    max_version=3,
    types=MIRROR_TYPES,
    since="873b98c42",
    output_shapes=padded_shape,
    versions=by_input(INT16=3, INT8=2),
)
