"""SignalFilterBankLog: the natural logarithm of each channel."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from tflm.kernels.arithmetic.numpy_calls import scalar
from tflm.kernels.host_memory import kept
from tflm.kernels.reference.signal.common import Program, Values, options_by_place, require_rank, require_room
from tflm.kernels.registration import KernelContext, Node, Registration, Run
from tflm.kernels.requests import tensors
from tflm.kernels.support.checks import element_count, require_type
from tflm.schema.enums import TensorType
from tflm.targets import INT, Struct

LOG_PARAMS = Struct("TFLMSignalLogParams", input_correction_bits=INT, output_scale=INT)

SEGMENTS = 128
ONE = 2**16
"""1.0 as the logarithms have it, and the table of them."""


def _prepare(context: KernelContext, node: Node) -> None:
    node.expect(inputs=1, outputs=1)
    input = context.input_tensor(node, 0)
    output = context.output_tensor(node, 0)
    require_rank(input, 1)
    require_rank(output, 1)
    require_type(input, TensorType.UINT32)
    require_type(output, TensorType.INT16)
    require_room(output, element_count(input), element_count(output))
    node.op_data = options_by_place(node.custom_options, "input_correction_bits", "output_scale")


def log2_beyond_line() -> npt.NDArray[np.int64]:
    """log2(1 + f) - f at the ends of 128 segments, in 16 fractional bits."""
    ends = np.arange(SEGMENTS + 1, dtype=np.float64) / SEGMENTS
    return np.round(ONE * (np.log2(1 + ends) - ends)).astype(np.int64)


@functools.cache
def _curve_of_log2() -> Values:
    """For x = 2^e * (1 + f): log2(x) less 1023 + f + e, for each f of 16 bits, in 16 fractional bits.

    Lines between the ends of segments; as in the reference, these are flatter than they should be.
    """
    table = log2_beyond_line()
    segment, position = np.divmod(np.arange(ONE, dtype=np.int64), ONE // SEGMENTS)
    curve: Values = table[segment] + ((np.diff(table)[segment] * position) >> 16) - 1023 * ONE
    return curve


def _bind(context: KernelContext, node: Node) -> Run:
    x = context.get_eval_input(node, 0).elements
    output = context.get_eval_output(node, 0).elements
    y = output[: x.size].view(np.uint16)
    scaled, floats = kept(np.empty(x.size, np.uint32)), kept(np.empty(x.size, np.float64))
    log2, curve, log = (kept(np.empty(x.size, np.int64)) for _ in range(3))
    fractions = kept(np.empty(x.size, np.intp))
    program = Program()
    # Undefined in C beyond 31 bits; x86 takes the count modulo 32.
    program.call(np.left_shift, x, scalar(node.op_data["input_correction_bits"] & 31, np.uint32), scaled)
    program.larger(scaled, scalar(1, np.uint32), scaled)
    program.copy(floats, scaled)
    # A float is its exponent, biased by 1023, and the digits behind the leading one: of these, 16 bits are kept.
    program.call(np.right_shift, floats.view(np.int64), scalar(52 - 16, np.int64), log2)
    program.copy(fractions, log2.view(np.uint16)[0::4])
    program.gather(curve, _curve_of_log2(), fractions)
    program.call(np.add, log2, curve, log2)
    # times ln(2) in Q0.16, rounded: with 16 more bits, the result is the upper half
    program.call(np.multiply, log2, scalar(round(np.log(2) * ONE) << 16, np.int64), log2)
    program.call(np.add, log2, scalar(ONE // 2 << 16, np.int64), log2)
    program.copy(log, log2.view(np.int32)[1::2])
    program.call(np.multiply, log, scalar(node.op_data["output_scale"], np.int64), log)
    program.call(np.add, log, scalar(ONE // 2, np.int64), log)
    program.smaller(log.view(np.uint16)[1::4], scalar(2**15 - 1, np.uint16), y)
    program.clear(output[x.size :])
    return program.run


FILTER_BANK_LOG = Registration(
    "SignalFilterBankLog",
    _bind,
    _prepare,
    op_data=LOG_PARAMS,
    requests=tensors(),
    types=(TensorType.UINT32,),
    since="2548022e0",
)
