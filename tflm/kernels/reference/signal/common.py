"""Code shared by the signal operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.node import Node
from tflm.kernels.support.checks import AnyTensor, element_count, require_type, shape_error
from tflm.memory.tensor import TfLiteTensor
from tflm.schema.enums import TensorType
from tflm.schema.flexbuffer import FlexbufferMap

Values = npt.NDArray[Any]


def options_by_place(custom_options: memoryview, *names: str) -> dict[str, int]:
    """The custom options of a node, all 32-bit integers.

    Args:
        custom_options: the bytes of a flexbuffer.
        names: of all options, in alphabetical order. As in TFLM, values are found by position; names are not compared.

    Raises:
        OperatorError: the options are not a map, or lack a position.
    """
    options = FlexbufferMap(custom_options)
    return {name: options.element_as_int32(place) for place, name in enumerate(names)}


def require_rank(tensor: AnyTensor, rank: int) -> None:
    """Reject a tensor with another number of dimensions."""
    if len(tensor.dims) != rank:
        raise shape_error(tensor, f", must have {rank} dimensions")


def tensors_of(
    node: Node, inputs: Sequence[tuple[int, TensorType]], outputs: Sequence[tuple[int, TensorType]]
) -> list[TfLiteTensor]:
    """The inputs and outputs of a node, which must have these ranks and types."""
    found = node.expect_tensors(len(inputs), len(outputs))
    for tensor, (rank, type) in zip(found, (*inputs, *outputs)):
        require_rank(tensor, rank)
        require_type(tensor, type)
    return found


def require_room(tensor: AnyTensor, needed: int, available: int) -> None:
    """Reject a tensor that holds fewer elements than the operator reads or writes."""
    if needed > available:
        raise shape_error(tensor, f", too small: {needed} elements are needed, there are {available}")


def rows_of(tensor: AnyTensor) -> tuple[int, int]:
    """The number and the length of a tensor's rows. Refuses a scalar and empty rows."""
    if not tensor.dims or not tensor.dims[-1]:
        raise shape_error(tensor, ", must have rows of samples")
    return element_count(tensor) // tensor.dims[-1], tensor.dims[-1]


def require_channels(options: dict[str, int]) -> int:
    """The option `num_channels`; rejects a negative one."""
    count = options["num_channels"]
    if count < 0:
        raise OperatorError(f"num_channels is {count}, must not be negative")
    return count


def write(output: Values, values: Values) -> None:
    """Write values to the start of an output, both in one dimension. The rest, which TFLM leaves unchanged, becomes
    0."""
    output[: values.size] = values
    output[values.size :] = 0


def most_significant_bit(x: Values) -> Values:
    """MostSignificantBit32: the number of bits that integers of up to 32 bits have without leading zeros."""
    return np.frexp(x.astype(np.float64))[1].astype(np.int64)
