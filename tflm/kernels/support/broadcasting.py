"""Two inputs of different shapes made to match, as numpy broadcasts them."""

from __future__ import annotations

import math

import numpy as np

from tflm.errors import OperatorError
from tflm.kernels.support.checks import AnyTensor, element_count

MAXIMUM_RANK = 8

RANK_OF_A_SHAPE = 6
"""Dimensions that TFLM's shapes have room for. Tensors of one shape are worked on without a look at more than these."""


def require_broadcast(
    input1: AnyTensor,
    input2: AnyTensor,
    output: AnyTensor,
    maximum_rank: int = MAXIMUM_RANK,
    maximum_rank_alike: int = RANK_OF_A_SHAPE,
) -> None:
    """Refuse inputs whose shapes don't go together, or don't give the output's.

    Args:
        maximum_rank: the most dimensions that the operator broadcasts.
        maximum_rank_alike: the most that two inputs of one shape may have, where that is more.
    """
    try:
        shape = np.broadcast_shapes(input1.dims, input2.dims)
    except ValueError:
        reason = f"has shape {list(input1.dims)}, which does not broadcast with {list(input2.dims)} of {input2.name!r}"
        raise OperatorError(reason, tensor=input1.name) from None
    most = max(maximum_rank, maximum_rank_alike) if input1.dims == input2.dims else maximum_rank
    if len(shape) > most:
        raise OperatorError(f"has {len(shape)} dimensions, {most} is the most", tensor=output.name)
    if element_count(output) != math.prod(shape):
        reason = f"has shape {list(output.dims)}, the inputs give {list(shape)}"
        raise OperatorError(reason, tensor=output.name)
