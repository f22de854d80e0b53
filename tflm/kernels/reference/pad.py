"""PAD and PADV2: the input with a border of one value on every side of every dimension."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tflm.errors import OperatorError
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.registration import Registration
from tflm.kernels.requests import Request, TempInput, TempOutput
from tflm.kernels.shapes import padded_shape
from tflm.kernels.support.checks import constant_integers, element_count, require_same_type, require_type
from tflm.kernels.support.views import Copy, Copying, view_of
from tflm.memory.tensor import TfLiteTensor
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.version_rules import Versions, by_input, rank_above
from tflm.targets import INT8, INT32, UINT8, Array, Struct

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


def _prepare(context: KernelContext, node: Node) -> None:
    """The op data are the default padding value and, for each dimension, the slice of the output without padding."""
    node.expect(inputs=range(2, 4), outputs=1)
    input = node.input(INPUT)
    paddings = node.input(PADDINGS)
    value = node.input(VALUE) if node.has_input(VALUE) else None
    output = node.output(0)
    require_type(input, *TYPES)
    require_same_type(output, input)
    if element_count(paddings) != 2 * len(output.dims):
        reason = f"has shape {list(paddings.dims)}; each of {len(output.dims)} dimensions needs two numbers"
        raise OperatorError(reason, tensor=paddings.name)
    inside = _inside(input, output, constant_integers(paddings, 2 * len(output.dims)))
    if value is not None:
        _check_value(value, output)
    elif output.type == TensorType.INT8 and not -128 <= output.zero_point <= 127:
        raise OperatorError(f"has zero point {output.zero_point}, which int8 does not hold", tensor=output.name)
    node.op_data = output.zero_point if output.type == TensorType.INT8 else 0, inside


def _requests(node: Node) -> Iterator[Request]:
    yield TempInput(INPUT)
    yield TempInput(PADDINGS)
    if node.has_input(VALUE):
        yield TempInput(VALUE)
    yield TempOutput(0)


def _inside(input: TfLiteTensor, output: TfLiteTensor, paddings: list[int]) -> tuple[slice, ...]:
    if len(input.dims) > MAXIMUM_RANK:
        raise OperatorError(
            f"has {len(input.dims)} dimensions, at most {MAXIMUM_RANK} are supported", tensor=input.name
        )
    before, after = paddings[::2], paddings[1::2]
    wanted = [size + left + right for size, left, right in zip(input.dims, before, after)]
    if len(input.dims) != len(output.dims) or min(paddings, default=0) < 0 or list(output.dims) != wanted:
        reason = f"has shape {list(output.dims)}; {list(input.dims)} padded by {before} before and {after} after"
        raise OperatorError(f"{reason} requires {wanted}", tensor=output.name)
    return tuple(slice(left, left + size) for left, size in zip(before, input.dims))


def _check_value(value: TfLiteTensor, output: TfLiteTensor) -> None:
    require_same_type(value, output)
    if element_count(value) != 1:
        raise OperatorError(f"has shape {list(value.dims)}, must be one element", tensor=value.name)
    if output.type == TensorType.INT8 and (value.scale, value.zero_point) != (output.scale, output.zero_point):
        reason = f"has scale {value.scale:g} and zero point {value.zero_point}, the output has {output.scale:g}"
        raise OperatorError(f"{reason} and {output.zero_point}; they must be equal", tensor=value.name)


def _copies(node: Node) -> list[Copy]:
    zero_point, inside = node.op_data
    x, y = node.eval_input(INPUT).elements, node.eval_output(0).elements
    if x.size == y.size:
        return [(y, x)]
    value = node.eval_input(VALUE).elements.reshape(()) if node.has_input(VALUE) else np.asarray(zero_point, y.dtype)
    return [(y, value), (view_of(y, inside), x)]


VERSIONS: Versions = {**by_input(FLOAT8=6, BOOL=5), 4: rank_above(4), **by_input(INT16=3, INT8=2)}


def _registration(operator: BuiltinOperator, cpp_method: str) -> Registration:
    return Registration(
        operator,
        Copying(_copies),
        _prepare,
        op_data=OP_DATA_PAD,
        requests=_requests,
        max_version=4,
        types=TYPES,
        cpp_method=cpp_method,
        output_shapes=padded_shape,
        versions=VERSIONS,
    )


PAD = _registration(BuiltinOperator.PAD, "AddPad")
PADV2 = _registration(BuiltinOperator.PADV2, "AddPadV2")
