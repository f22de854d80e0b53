"""SignalPCAN: automatic gain per channel; the gain for its noise estimate comes from a table."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.reference.signal.common import (
    Values,
    most_significant_bit,
    options_by_place,
    require_rank,
    require_room,
)
from tflm.kernels.registration import Registration, Run
from tflm.kernels.requests import tensors
from tflm.kernels.support.checks import element_count, require_same_size, require_type
from tflm.memory.tensor import TfLiteEvalTensor
from tflm.schema.enums import TensorType
from tflm.targets import INT, Struct

PCAN_PARAMS = Struct("TfLitePcanParams", snr_shift=INT)

DIGIT_BITS = 10
"""Binary digits after the first that count in a noise estimate."""

DIGITS = 1 << DIGIT_BITS

SNR_BITS, OUTPUT_BITS = 12, 6
"""Fractional bits of the signal-to-noise ratio, and of the output."""


def _prepare(context: KernelContext, node: Node) -> None:
    node.expect(inputs=3, outputs=1)
    input, noise, gains = (node.input(index) for index in range(3))
    output = node.output(0)
    for tensor in (input, noise, gains, output):
        require_rank(tensor, 1)
        require_type(tensor, TensorType.INT16 if tensor is gains else TensorType.UINT32)
    require_same_size(output, input)
    require_room(noise, element_count(input), element_count(noise))
    node.op_data = options_by_place(node.custom_options, "snr_shift")["snr_shift"]


def _bind(context: KernelContext, node: Node) -> Run:
    x, y = node.eval_input(0).elements, node.eval_output(0).elements
    noise, gains = node.eval_input(1).elements[: x.size], node.eval_input(2)
    snr_shift = np.uint64(node.op_data & 63)  # undefined in C beyond 63 bits; x86 takes the count modulo 64

    def run() -> None:
        _check_estimates(noise, gains)
        gain = wide_dynamic_function(noise, gains.elements)
        snr = x.astype(np.uint64) * gain.astype(np.uint32) >> snr_shift
        y[...] = pcan_shrink(snr.astype(np.uint32))

    return run


def wide_dynamic_function(x: Values, lut: Values) -> Values:
    """WideDynamicFunction: the gains, as int16, for noise estimates x.

    The table has gains for 0 and 1; then, for each number of bits from 2 on, a constant, a linear and a quadratic
    coefficient of a polynomial in the next ten bits, and one that is not used.
    """
    complete = complete_gains(lut)
    interval = most_significant_bit(x)
    fraction = (x.astype(np.int64) << DIGIT_BITS + 1 >> interval & DIGITS - 1).astype(np.int32)
    constant, linear, quadratic, _ = complete[2:].reshape(-1, 4)[np.maximum(interval, 2) - 2].T
    slope = (quadratic * fraction >> 5) + (linear << 5)
    gain = (slope * fraction + (1 << 14) >> 15) + constant
    return np.where(x < 2, complete[np.minimum(x, 1)], gain).astype(np.int16)


def pcan_shrink(snr: Values) -> Values:
    """PcanShrink: for ratios r up to 2, r^2 / 4; r - 1 above."""
    squares = snr * snr >> (2 + 2 * SNR_BITS - OUTPUT_BITS)
    return np.where(snr < 2 << SNR_BITS, squares, (snr >> SNR_BITS - OUTPUT_BITS) - (1 << OUTPUT_BITS))


def complete_gains(gains: Values) -> npt.NDArray[np.int32]:
    """Gains for all 32-bit noise estimates; 0 if the table has none."""
    complete = np.zeros(2 + 4 * (32 - 1), np.int32)
    complete[: gains.size] = gains[: complete.size]
    return complete


def largest_estimate(size: int) -> int:
    """The largest noise estimate for which a table of `size` gains has one."""
    return min(size - 1, 2) if size < 5 else (1 << min((size + 3) // 4, 32)) - 1


def _check_estimates(noise: Values, gains: TfLiteEvalTensor) -> None:
    largest = largest_estimate(gains.elements.size)
    if noise.max(initial=0) > largest:
        reason = f"has no gain for a noise estimate of {noise.max()}, only up to {largest}"
        raise OperatorError(reason, tensor=gains.name)


PCAN = Registration(
    "SignalPCAN",
    _bind,
    _prepare,
    op_data=PCAN_PARAMS,
    requests=tensors(3),
    types=(TensorType.UINT32,),
    cpp_method="AddPCAN",
    since="e01fdf05a",
)
