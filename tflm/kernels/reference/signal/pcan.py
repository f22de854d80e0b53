"""SignalPCAN: per-channel automatic gain; each channel by what a table gives for its noise estimate."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.arithmetic.numpy_calls import scalar
from tflm.kernels.host_memory import kept
from tflm.kernels.reference.signal.common import Program, Values, options_by_place, require_rank, require_room
from tflm.kernels.registration import KernelContext, Node, Registration, Run
from tflm.kernels.requests import tensors
from tflm.kernels.support.checks import element_count, require_same_size, require_type
from tflm.memory.tensor import TfLiteEvalTensor
from tflm.schema.enums import TensorType
from tflm.targets import INT, Struct

PCAN_PARAMS = Struct("TfLitePcanParams", snr_shift=INT)

ONE_EXPONENT, EXPONENTS = 1023, 32
"""The exponent of 1.0 as floats of 64 bits have it, and how many of them 32-bit numbers have."""

DIGIT_BITS, FRACTION_BITS = 10, 11
"""Binary digits of a noise estimate that count, and what they are a fraction with."""

DIGITS = 1 << DIGIT_BITS

SNR_BITS, OUTPUT_BITS = 12, 6
"""Fractional bits of the signal-to-noise ratio, and of the output."""


def _prepare(context: KernelContext, node: Node) -> None:
    node.expect(inputs=3, outputs=1)
    input, noise, gains = (context.input_tensor(node, index) for index in range(3))
    output = context.output_tensor(node, 0)
    for tensor in (input, noise, gains, output):
        require_rank(tensor, 1)
        require_type(tensor, TensorType.INT16 if tensor is gains else TensorType.UINT32)
    require_same_size(output, input)
    require_room(noise, element_count(input), element_count(noise))
    node.op_data = options_by_place(node.custom_options, "snr_shift")["snr_shift"]


def _bind(context: KernelContext, node: Node) -> Run:
    x = context.get_eval_input(node, 0).elements
    noise, gains = context.get_eval_input(node, 1), context.get_eval_input(node, 2)
    y = context.get_eval_output(node, 0).elements
    program = Program()
    gain = _gain(program, noise.elements[: x.size], gains)
    ratios, indices = kept(np.empty(x.size, np.uint64)), kept(np.empty(x.size, np.intp))
    program.copy(ratios, x)
    program.call(np.multiply, ratios, gain, ratios)
    # Undefined in C beyond 63 bits; x86 takes the count modulo 64.
    program.call(np.right_shift, ratios, scalar(node.op_data & 63, np.uint64), ratios)
    # The output is r^2 / 4 for ratios below 2, r - 1 above: one of the two addends is always what it is at 2.
    ratio = ratios.view(np.uint32)[0::2]
    two = scalar(2 << SNR_BITS, np.uint32)
    below, above = (kept(np.empty(x.size, np.uint32)) for _ in range(2))
    program.smaller(ratio, two, above)  # as an index of 32 bits, a larger one would be negative
    program.copy(indices, above)
    program.gather(below, _squares(), indices)
    program.larger(ratio, two, above)
    program.call(np.right_shift, above, scalar(SNR_BITS - OUTPUT_BITS, np.uint32), above)
    program.call(np.add, below, above, y)
    return program.run


@functools.cache
def _squares() -> Values:
    """For each ratio r up to 2, r^2 / 4, less 2; in the bits of the output."""
    ratios = np.arange((2 << SNR_BITS) + 1, dtype=np.int64)
    return ((ratios**2 >> (2 + 2 * SNR_BITS - OUTPUT_BITS)) - (2 << OUTPUT_BITS)).astype(np.uint32)


def _gain(program: Program, noise: Values, gains: TfLiteEvalTensor) -> Values:
    """The gain of each channel, a signed number in the bits of uint64."""
    table = kept(np.zeros(1 + EXPONENTS * DIGITS, np.uint64))
    _lay_out(table, gains.elements)
    largest = largest_estimate(gains.elements.size)
    if largest < 2**32 - 1:
        program.call(_check_estimates, noise, largest, gains.name)
    if not gains.is_constant:
        program.call(_lay_out, table, gains.elements)
    floats, indices, gain = (
        kept(np.empty(noise.size, np.float64)),
        kept(np.empty(noise.size, np.intp)),
        kept(np.empty_like(noise, "u8")),
    )
    program.copy(floats, noise)
    # A float is its exponent and the digits behind the leading one. That of 0 is all zeros: it comes before the others.
    program.call(np.right_shift, floats.view(np.int64), scalar(52 - DIGIT_BITS), indices)
    program.call(np.subtract, indices, scalar(ONE_EXPONENT * DIGITS - 1, np.intp), indices)
    program.gather(gain, table, indices)
    return gain


def complete_gains(gains: Values) -> npt.NDArray[np.int32]:
    """Gains for all noise estimates, 0 where none is given."""
    complete = kept(np.zeros(2 + 4 * (EXPONENTS - 1), np.int32))
    complete[: gains.size] = gains[: complete.size]
    return complete


def _lay_out(table: Values, gains: Values) -> None:
    """Set the table: the gain for a noise estimate of 0; then, by number of bits, for all digits behind the first.

    Gains are given for 0 and 1, then for each number of bits: a constant, a linear and a quadratic coefficient of a
    polynomial in the digits, and one that is not used.
    """
    complete = complete_gains(gains)
    table[:2] = complete[:2].view(np.uint32)
    fraction = np.arange(DIGITS, dtype=np.int32) << (FRACTION_BITS - DIGIT_BITS)
    for row, (constant, linear, quadratic, _) in zip(table[1:].reshape(-1, DIGITS)[1:], complete[2:].reshape(-1, 4)):
        slope = (quadratic * fraction >> 6) + (linear << 5)
        row[...] = (slope * fraction + (constant << 16) + (1 << 15) >> 16).view(np.uint32)  # rounded


def largest_estimate(size: int) -> int:
    """The largest noise estimate for which a table of `size` gains has one."""
    return min(size - 1, 2) if size < 5 else (1 << min((size + 3) // 4, 32)) - 1


def _check_estimates(noise: Values, largest: int, name: str) -> None:
    if noise.size and noise.item(noise.argmax()) > largest:
        reason = f"has no gain for a noise estimate of {noise.max()}, only up to {largest}"
        raise OperatorError(reason, tensor=name)


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
