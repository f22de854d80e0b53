"""SignalFilterBankSquareRoot: amplitudes from the energies of channels."""

from __future__ import annotations

import numpy as np

from tflm.kernels.node import KernelContext, Node
from tflm.kernels.reference.signal.common import Values, require_rank, require_room, write
from tflm.kernels.registration import Registration, Run
from tflm.kernels.requests import tensors
from tflm.kernels.support.checks import element_count, require_type
from tflm.schema.enums import TensorType

LARGEST_16_BITS, LARGEST_32_BITS = 2**16 - 1, 2**32 - 1


def _prepare(context: KernelContext, node: Node) -> None:
    node.expect(inputs=2, outputs=1)
    input = node.input(0)
    scale_bits = node.input(1)
    output = node.output(0)
    for tensor, rank, type in (
        (input, 1, TensorType.UINT64),
        (scale_bits, 0, TensorType.INT32),
        (output, 1, TensorType.UINT32),
    ):
        require_rank(tensor, rank)
        require_type(tensor, type)
    require_room(output, element_count(input), element_count(output))


def _bind(context: KernelContext, node: Node) -> Run:
    x, scale_bits, y = node.eval_input(0).elements, node.eval_input(1).elements, node.eval_output(0).elements

    def run() -> None:
        bits = np.uint64(scale_bits.item() & 31)  # undefined in C beyond 31; x86 takes the count modulo 32
        write(y, sqrt_64(x) >> bits)

    return run


def sqrt_64(x: Values) -> Values:
    """Sqrt64: square roots of uint64, rounded to nearest, but never up from the largest of 16 and of 32 bits."""
    roots = np.minimum(np.sqrt(x.astype(np.float64)), LARGEST_32_BITS).astype(np.uint64)
    roots -= roots * roots > x
    is_nearer_to_next = x - roots * roots > roots
    rounded: Values = roots + (is_nearer_to_next & (roots != LARGEST_16_BITS) & (roots != LARGEST_32_BITS))
    return rounded


FILTER_BANK_SQUARE_ROOT = Registration(
    "SignalFilterBankSquareRoot", _bind, _prepare, requests=tensors(2), types=(TensorType.UINT64,), since="2548022e0"
)
