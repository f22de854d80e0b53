"""Decide whether CMSIS-NN's sums of int16 products equal TFLM's, which have 64 bits."""

from __future__ import annotations

import numpy as np

from tflm.c.cmsis_nn.structures import Array
from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier, WideQuantizedMultiplier, reduced_significand

LARGEST_ACTIVATION = 1 << 15
"""Largest absolute value of an int16."""

LARGEST_SUM = (1 << 31) - 1
"""Limit of sums with the bias, which some of CMSIS-NN's kernels keep in 32 bits."""

LARGEST_RESULT = 1 << 30
"""Limit of scaled results, which are doubled in 32 bits before they are rounded."""

LARGEST_SHIFT = 14
"""Limit of the multiplier's power of two: kernels shift right by 14 minus this."""


def wide_sums_fit(weights: Array, bias: Array | None, multiplier: QuantizedMultiplier) -> bool:
    """Return whether 64-bit sums and their scaled results fit the bits that CMSIS-NN has for them.

    Args:
        weights: (channels, depth).
        bias: one for each channel.
        multiplier: of the sums, one for all channels or one for each; sums of 32 bits always fit.
    """
    if not isinstance(multiplier, WideQuantizedMultiplier):
        return True
    largest = np.abs(weights.astype(np.int64)).sum(axis=1, dtype=np.int64) * LARGEST_ACTIVATION
    if bias is not None:
        largest += np.abs(bias.astype(np.int64))
    shift = np.asarray(multiplier.shift, np.int64)
    results = np.ldexp(reduced_significand(multiplier.significand) * largest.astype(np.float64), shift - 15)
    return bool(shift.max() <= LARGEST_SHIFT and largest.max() <= LARGEST_SUM and results.max() + 1 < LARGEST_RESULT)
