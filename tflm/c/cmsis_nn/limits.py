"""Where sums of int16 are those of TFLM, which have 64 bits."""

from __future__ import annotations

import numpy as np

from tflm.c.cmsis_nn.structures import Array
from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier, WideQuantizedMultiplier, reduced_significand

LARGEST_ACTIVATION = 1 << 15
"""The largest absolute value of an int16."""

LARGEST_SUM = (1 << 31) - 1
"""Some of CMSIS-NN's kernels add up 32 bits, the bias included."""

LARGEST_RESULT = 1 << 30
"""They have twice the scaled result in 32 bits before they round it."""

LARGEST_SHIFT = 14
"""They shift to the right by 14 less the multiplier's power of two."""


def wide_sums_fit(weights: Array, bias: Array | None, multiplier: QuantizedMultiplier) -> bool:
    """Whether sums of 64 bits, and what they are scaled to, fit the bits that CMSIS-NN has for them.

    Args:
        weights: (channels, depth).
        bias: of each channel.
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
