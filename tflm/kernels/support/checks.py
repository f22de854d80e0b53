"""Checks of a kernel's tensors in the prepare phase; errors name the tensor that fails."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Union

from tflm.errors import OperatorError
from tflm.kernels.node import Node
from tflm.memory.tensor import TfLiteEvalTensor, TfLiteTensor
from tflm.schema.enums import TensorType

AnyTensor = Union[TfLiteTensor, TfLiteEvalTensor]


def shape_error(tensor: AnyTensor, reason: str) -> OperatorError:
    """The error of a tensor with an unsupported shape; the reason follows the shape."""
    return OperatorError(f"has shape {list(tensor.dims)}{reason}", tensor=tensor.name)


def require_type(tensor: AnyTensor, *types: TensorType) -> None:
    """Reject a tensor of any other type."""
    if tensor.type not in types:
        names = ", ".join(kind.name for kind in types)
        raise OperatorError(f"is {tensor.type.name}; supported here: {names}", tensor=tensor.name)


def require_same_type(tensor: AnyTensor, other: AnyTensor) -> None:
    """Reject two tensors of different types."""
    if tensor.type != other.type:
        reason = f"is {tensor.type.name}, but {other.name!r} is {other.type.name}; they must be of one type"
        raise OperatorError(reason, tensor=tensor.name)


def require_one_type(types: Collection[TensorType], tensor: AnyTensor, *others: AnyTensor) -> None:
    """Reject a tensor of a type that is not among these, and others of another type than the tensor's."""
    require_type(tensor, *types)
    for other in others:
        require_same_type(other, tensor)


def require_zero_point(tensor: TfLiteTensor, zero_point: int) -> None:
    """Reject a tensor whose zero point differs."""
    if tensor.zero_point != zero_point:
        reason = f"has zero point {tensor.zero_point}, must have {zero_point} for {tensor.type.name}"
        raise OperatorError(reason, tensor=tensor.name)


def require_symmetric_int16(*tensors: TfLiteTensor) -> None:
    """Reject int16 tensors with a zero point other than 0; others may have any."""
    for tensor in tensors:
        if tensor.type == TensorType.INT16:
            require_zero_point(tensor, 0)


def require_scale(tensor: TfLiteTensor) -> float:
    """The scale of a quantized tensor; raises `OperatorError` unless it is positive and finite."""
    if tensor.quantization is None:
        raise OperatorError(f"is {tensor.type.name} without scale and zero point", tensor=tensor.name)
    if not (math.isfinite(tensor.scale) and tensor.scale > 0):
        raise OperatorError(f"has scale {tensor.scale:g}, must be positive and finite", tensor=tensor.name)
    return tensor.scale


def scale_or_none(tensor: TfLiteTensor) -> float:
    """The scale of a tensor; 0 without quantization, as in TFLM, which then does not check it.

    Raises:
        OperatorError: the scale is not positive and finite.
    """
    return 0.0 if tensor.quantization is None else require_scale(tensor)


def element_count(tensor: AnyTensor) -> int:
    """Number of elements."""
    return math.prod(tensor.dims)


def require_rank(tensor: AnyTensor, limit: int) -> int:
    """The number of dimensions; raises `OperatorError` for more than `limit`."""
    if len(tensor.dims) > limit:
        raise OperatorError(f"has {len(tensor.dims)} dimensions, at most {limit} are supported", tensor=tensor.name)
    return len(tensor.dims)


def require_same_size(tensor: AnyTensor, other: AnyTensor) -> None:
    """Reject two tensors with different numbers of elements."""
    if element_count(tensor) != element_count(other):
        raise shape_error(tensor, f", {other.name!r} has {list(other.dims)}: the sizes must match")


def require_same_shape(tensor: AnyTensor, other: AnyTensor) -> None:
    """Reject two tensors of different shapes."""
    if tensor.dims != other.dims:
        raise shape_error(tensor, f", must be that of {other.name!r}, {list(other.dims)}")


def require_alike(tensor: AnyTensor, other: AnyTensor) -> None:
    """Reject two tensors of different types, or with different numbers of elements."""
    require_same_type(tensor, other)
    require_same_size(tensor, other)


def unary_tensors(node: Node, *types: TensorType) -> tuple[TfLiteTensor, TfLiteTensor]:
    """The input and output of a unary node, checked to have one of these types, and the same size."""
    input, output = node.expect_tensors(1)
    require_type(input, *types)
    require_alike(output, input)
    return input, output


def constant_integers(tensor: TfLiteTensor, count: int) -> list[int]:
    """The first elements of an INT32 tensor; raises `OperatorError` if it is not constant or too short."""
    require_type(tensor, TensorType.INT32)
    if not tensor.is_constant:
        raise OperatorError("must be a constant of the model", tensor=tensor.name)
    if element_count(tensor) < count:
        raise shape_error(tensor, f", must have {count} elements")
    return [int(element) for element in tensor.data.reshape(-1)[:count]]
