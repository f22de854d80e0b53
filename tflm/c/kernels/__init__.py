"""Kernels for small processors: fast on a Cortex-M, slower on a desktop than those of the compiled engine.

They are written in the same language. `KERNELS` has the functions that bind an operator, and its memory needs for
planners.
"""

from __future__ import annotations

from collections.abc import Mapping

from tflm.c.kernels import (
    broadcasts,
    dense,
    depthwise_convolution,
    flat_convolution,
    permutation,
    pooling,
    recurrence,
    signal,
    transposed_convolution,
    windows_in_place,
)
from tflm.c.kernels.part import Part, SmallKernel, no_kernels, no_overlap, no_scratch
from tflm.delegates.compiled.bindings import FAMILIES

BROADCAST = {*FAMILIES["elementwise"]} - {"ADD_N"}
"""Operators whose inputs broadcast."""

KERNELS: Mapping[str, SmallKernel] = {
    **dict.fromkeys(BROADCAST, SmallKernel(broadcasts.bind, no_scratch, None, False)),
    "CONV_2D": SmallKernel(
        flat_convolution.bind_conv_2d,
        flat_convolution.scratch_bytes,
        flat_convolution.overlap,
        True,
        SmallKernel(flat_convolution.bind_lean_conv_2d, no_scratch, windows_in_place.overlap, False),
    ),
    "DEPTHWISE_CONV_2D": SmallKernel(
        depthwise_convolution.bind,
        depthwise_convolution.scratch_bytes,
        depthwise_convolution.overlap,
        True,
        SmallKernel(depthwise_convolution.bind_in_place, no_scratch, depthwise_convolution.overlap_in_place, False),
        overlap_backwards=depthwise_convolution.overlap_backwards,
    ),
    "FULLY_CONNECTED": SmallKernel(
        dense.bind, no_scratch, no_overlap, False, SmallKernel(dense.bind_in_place, no_scratch, no_overlap, False)
    ),
    **dict.fromkeys(
        ("AVERAGE_POOL_2D", "L2_POOL_2D", "MAX_POOL_2D"), SmallKernel(pooling.bind, no_scratch, pooling.overlap, True)
    ),
    "SVDF": SmallKernel(recurrence.bind_svdf, no_scratch, no_overlap, False),
    "SignalFilterBankSquareRoot": SmallKernel(signal.bind_square_root, no_scratch, no_overlap, False),
    "TRANSPOSE_CONV": SmallKernel(transposed_convolution.bind, no_scratch, no_overlap, False),
    "TRANSPOSE": SmallKernel(
        no_kernels,
        no_scratch,
        None,
        False,
        SmallKernel(permutation.bind_transpose, no_scratch, permutation.overlap, False),
    ),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": SmallKernel(
        recurrence.bind_lstm,
        no_scratch,
        recurrence.lstm_overlap,
        False,
        SmallKernel(recurrence.bind_lstm_in_parts, no_scratch, recurrence.overlap_of_parts, False),
    ),
}
"""The kernels of each operator."""

__all__ = ["KERNELS", "Part", "SmallKernel"]
