"""Kernels for small parts: slower on a desktop than those of the compiled engine, and fast on a Cortex-M.

They are written in the same language. `find` gives what binds an operator, and what a planner must know of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from tflm.c.kernels import (
    arithmetic,
    dense,
    depthwise_convolution,
    flat_convolution,
    pooling,
    quotients,
    recurrence,
    signal,
)
from tflm.c.kernels.part import Part, SmallKernel, element_wise, no_overlap, no_scratch

KERNELS: Mapping[str, SmallKernel] = {
    "CONV_2D": SmallKernel(
        flat_convolution.bind_conv_2d, flat_convolution.scratch_bytes, flat_convolution.overlap, True
    ),
    "DEPTHWISE_CONV_2D": SmallKernel(
        depthwise_convolution.bind, depthwise_convolution.scratch_bytes, depthwise_convolution.overlap, True
    ),
    "FULLY_CONNECTED": SmallKernel(dense.bind, dense.scratch_bytes, no_overlap, False),
    **dict.fromkeys(("ADD", "MUL", "SUB"), SmallKernel(arithmetic.bind, no_scratch, element_wise, False)),
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D"), SmallKernel(pooling.bind, no_scratch, pooling.overlap, True)),
    "DIV": SmallKernel(quotients.bind_div, no_scratch, element_wise, False),
    "RSQRT": SmallKernel(quotients.bind_rsqrt, no_scratch, element_wise, False),
    "SVDF": SmallKernel(recurrence.bind_svdf, recurrence.scratch_bytes, no_overlap, False),
    "SignalFilterBankSquareRoot": SmallKernel(signal.bind_square_root, no_scratch, no_overlap, False),
    "SignalRfft": SmallKernel(signal.bind_rfft, no_scratch, no_overlap, False),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": SmallKernel(recurrence.bind_lstm, no_scratch, recurrence.lstm_overlap, False),
}
"""By operator."""

__all__ = ["KERNELS", "Part", "SmallKernel"]
