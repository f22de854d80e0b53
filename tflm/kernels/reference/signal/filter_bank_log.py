"""SignalFilterBankLog: the natural logarithm of each channel."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from tflm.kernels.node import KernelContext, Node
from tflm.kernels.reference.signal.common import (
    Values,
    most_significant_bit,
    options_by_place,
    require_rank,
    require_room,
    write,
)
from tflm.kernels.registration import Registration, Run
from tflm.kernels.requests import tensors
from tflm.kernels.support.checks import element_count, require_type
from tflm.schema.enums import TensorType
from tflm.targets import INT, Struct

LOG_PARAMS = Struct("TFLMSignalLogParams", input_correction_bits=INT, output_scale=INT)

SEGMENTS = 128
ONE = 2**16
"""1.0 as the logarithms have it, and the table of them."""

LN_2 = round(np.log(2) * ONE)
"""Q0.16."""


def _prepare(context: KernelContext, node: Node) -> None:
    node.expect(inputs=1, outputs=1)
    input = node.input(0)
    output = node.output(0)
    require_rank(input, 1)
    require_rank(output, 1)
    require_type(input, TensorType.UINT32)
    require_type(output, TensorType.INT16)
    require_room(output, element_count(input), element_count(output))
    node.op_data = options_by_place(node.custom_options, "input_correction_bits", "output_scale")


@functools.cache
def log2_beyond_line() -> npt.NDArray[np.int64]:
    """log2(1 + f) - f at the ends of 128 segments, in 16 fractional bits."""
    ends = np.arange(SEGMENTS + 1, dtype=np.float64) / SEGMENTS
    return np.round(ONE * (np.log2(1 + ends) - ends)).astype(np.int64)


def log_32(x: Values, scale: int) -> Values:
    """Log32: the natural logarithm of positive integers, times `scale`, rounded to an integer."""
    integer = most_significant_bit(x) - 1
    fraction = (x - (1 << integer) << 16) >> integer
    log2 = (integer << 16) + log2_fraction_part_32(fraction)
    log: Values = log2 * LN_2 + ONE // 2 >> 16
    scaled: Values = scale * log + ONE // 2 >> 16
    return scaled


def log2_fraction_part_32(fraction: Values) -> Values:
    """Log2FractionPart32: log2(1 + fraction), both Q0.16, interpolated between the ends of segments. As in the
    reference, the slopes are slightly too small.
    """
    table = log2_beyond_line()
    segment, position = np.divmod(fraction, ONE // SEGMENTS)
    log2: Values = fraction + table[segment] + (np.diff(table)[segment] * position >> 16)
    return log2


def _bind(context: KernelContext, node: Node) -> Run:
    x, y = node.eval_input(0).elements, node.eval_output(0).elements
    # Undefined in C beyond 31 bits; x86 takes the count modulo 32.
    correction_bits = np.uint32(node.op_data["input_correction_bits"] & 31)
    scale = node.op_data["output_scale"]

    def run() -> None:
        corrected = np.maximum(x << correction_bits, np.uint32(1)).astype(np.int64)
        write(y, np.minimum(log_32(corrected, scale) & 0xFFFF, 2**15 - 1))

    return run


FILTER_BANK_LOG = Registration(
    "SignalFilterBankLog",
    _bind,
    _prepare,
    op_data=LOG_PARAMS,
    requests=tensors(),
    types=(TensorType.UINT32,),
    since="2548022e0",
)
