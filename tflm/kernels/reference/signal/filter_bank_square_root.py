"""SignalFilterBankSquareRoot: amplitudes from the energies of channels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tflm.kernels.arithmetic.numpy_calls import scalar
from tflm.kernels.host_memory import kept
from tflm.kernels.reference.signal.common import Values, require_rank, require_room
from tflm.kernels.registration import KernelContext, Node, Registration, Run
from tflm.kernels.requests import tensors
from tflm.kernels.support.checks import element_count, require_type
from tflm.schema.enums import TensorType

ShiftedRoots = Callable[[int, int], None]
"""Writes square roots, rounded to the nearest integer and then shifted to the right by so many bits, of integers of
which the largest is given too."""

LARGEST_16_BITS = 2**16 - 1
"""The largest root that the reference gives to a number of 32 bits, rounded or not."""

EXACT_IN_FLOAT = 2**50
"""Of smaller integers, twice the square root calculated in floats is right when it is rounded down."""


def _prepare(context: KernelContext, node: Node) -> None:
    node.expect(inputs=2, outputs=1)
    input = context.input_tensor(node, 0)
    scale_bits = context.input_tensor(node, 1)
    output = context.output_tensor(node, 0)
    for tensor, rank, type in (
        (input, 1, TensorType.UINT64),
        (scale_bits, 0, TensorType.INT32),
        (output, 1, TensorType.UINT32),
    ):
        require_rank(tensor, rank)
        require_type(tensor, type)
    require_room(output, element_count(input), element_count(output))


def _bind(context: KernelContext, node: Node) -> Run:
    x = context.get_eval_input(node, 0).elements
    scale_bits = context.get_eval_input(node, 1).elements
    output = context.get_eval_output(node, 0).elements
    y, rest = output[: x.size], output[x.size :]
    roots, large_roots = _bind_roots(x, y), _bind_large_roots(x, y)

    def run() -> None:
        bits = scale_bits.item() & 31  # undefined in C beyond 31; x86 takes the count modulo 32
        largest = x.item(x.argmax())
        if largest < EXACT_IN_FLOAT:
            roots(bits, largest)
        else:
            large_roots(bits, largest)
        if rest.size:
            rest.fill(0)

    return run if x.size else lambda: rest.fill(0)


def _bind_roots(x: Values, y: Values) -> ShiftedRoots:
    """For integers below `EXACT_IN_FLOAT`."""
    floats, twice, mask = (kept(np.empty(x.size, dtype)) for dtype in (np.float64, np.uint32, np.bool_))
    unharmed = (2 * LARGEST_16_BITS + 1) ** 2 // 4
    one, too_large, instead = (scalar(value, np.uint32) for value in (1, 2 * LARGEST_16_BITS + 1, 2 * LARGEST_16_BITS))
    shifts = [scalar(bits + 1, np.uint32) for bits in range(32)]
    sqrt, add, right_shift = np.sqrt, np.add, np.right_shift

    def run(bits: int, largest: int) -> None:
        floats[...] = x
        sqrt(floats, floats)
        add(floats, floats, floats)
        twice[...] = floats
        if largest > unharmed:
            np.equal(twice, too_large, mask)
            np.copyto(twice, instead, where=mask)
        add(twice, one, twice)
        right_shift(twice, shifts[bits], y)

    return run


def _bind_large_roots(x: Values, y: Values) -> ShiftedRoots:
    """For integers of up to 64 bits."""
    floats = kept(np.empty(x.size, np.float64))
    roots, squares = (kept(np.empty(x.size, np.uint64)) for _ in range(2))
    mask, smaller = (kept(np.empty(x.size, np.bool_)) for _ in range(2))
    one, largest_32_bits, largest_16_bits = (scalar(value, np.uint64) for value in (1, 2**32 - 1, LARGEST_16_BITS))

    def run(bits: int, largest: int) -> None:
        floats[...] = x
        np.sqrt(floats, floats)
        roots[...] = floats
        np.minimum(roots, largest_32_bits, out=roots)
        np.multiply(roots, roots, squares)
        np.greater(squares, x, mask)
        np.subtract(roots, one, roots, where=mask)
        np.multiply(roots, roots, squares)
        np.subtract(x, squares, squares)
        np.greater(squares, roots, mask)  # what is left is more than half of the step to the next square
        for limit in (largest_16_bits, largest_32_bits):
            np.not_equal(roots, limit, smaller)
            np.logical_and(mask, smaller, mask)
        np.add(roots, one, roots, where=mask)
        np.right_shift(roots, scalar(bits, np.uint64), roots)
        y[...] = roots

    return run


FILTER_BANK_SQUARE_ROOT = Registration(
    "SignalFilterBankSquareRoot", _bind, _prepare, requests=tensors(2), types=(TensorType.UINT64,), since="2548022e0"
)
