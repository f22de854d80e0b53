"""Checks of operators whose two inputs broadcast as in numpy."""

from __future__ import annotations

import math

import numpy as np

from tflm.errors import OperatorError
from tflm.kernels.support.checks import AnyTensor, element_count

MAXIMUM_RANK = 8

RANK_OF_A_SHAPE = 6
"""Maximum rank of a shape in TFLM; it also applies to inputs of equal shapes, which need no broadcast."""


def require_broadcast(
    input1: AnyTensor,
    input2: AnyTensor,
    output: AnyTensor,
    maximum_rank: int = MAXIMUM_RANK,
    maximum_rank_alike: int = RANK_OF_A_SHAPE,
) -> None:
    """Reject inputs that do not broadcast, or whose broadcast size differs from the output's.

    Args:
        maximum_rank: the most dimensions that the operator broadcasts.
        maximum_rank_alike: the most dimensions of two inputs of the same shape, if larger.
    """
    try:
        shape = np.broadcast_shapes(input1.dims, input2.dims)
    except ValueError:
        reason = f"has shape {list(input1.dims)}, which does not broadcast with {list(input2.dims)} of {input2.name!r}"
        raise OperatorError(reason, tensor=input1.name) from None
    limit = max(maximum_rank, maximum_rank_alike) if input1.dims == input2.dims else maximum_rank
    if len(shape) > limit:
        raise OperatorError(f"has {len(shape)} dimensions, at most {limit} are supported", tensor=output.name)
    if element_count(output) != math.prod(shape):
        reason = f"has shape {list(output.dims)}, must have {list(shape)}"
        raise OperatorError(reason, tensor=output.name)
