"""SignalFilterBankSpectralSubtraction: takes off what in each channel is always there, the noise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tflm.errors import OperatorError
from tflm.kernels.arithmetic.numpy_calls import scalar
from tflm.kernels.host_memory import kept
from tflm.kernels.reference.signal.common import (
    Program,
    Values,
    options_by_place,
    require_channels,
    require_rank,
    require_room,
)
from tflm.kernels.registration import KernelContext, Node, Registration, Run
from tflm.kernels.requests import NodeView, PersistentBuffer, Request, tensors
from tflm.kernels.support.checks import element_count, require_type
from tflm.schema.enums import TensorType
from tflm.schema.flexbuffer import FlexbufferMap
from tflm.targets import BOOL, INT32, POINTER, SIZE_T, UINT32, Struct

SPECTRAL_SUBTRACTION_PARAMS = Struct(
    "TFLMSignalSpectralSubtractionParams",
    config=Struct(
        "SpectralSubtractionConfig",
        num_channels=INT32,
        smoothing=UINT32,
        one_minus_smoothing=UINT32,
        min_signal_remaining=UINT32,
        alternate_smoothing=UINT32,
        alternate_one_minus_smoothing=UINT32,
        smoothing_bits=UINT32,
        spectral_subtraction_bits=UINT32,
        clamping=BOOL,
    ),
    noise_estimate=POINTER,
    noise_estimate_size=SIZE_T,
)

OPTIONS = (
    "alternate_one_minus_smoothing",
    "alternate_smoothing",
    "clamping",
    "min_signal_remaining",
    "num_channels",
    "one_minus_smoothing",
    "smoothing",
    "smoothing_bits",
    "spectral_subtraction_bits",
)
"""Coefficients have `spectral_subtraction_bits` fractional bits, the alternate ones are those of odd channels. The
noise estimate has `smoothing_bits` more fractional bits than the signal."""


@dataclass
class SpectralSubtraction:
    """The options, and the noise estimate of each channel, which is kept from one invoke to the next."""

    options: dict[str, int]
    noise: Values


def _init(context: KernelContext, node: Node) -> None:
    options = options_by_place(node.custom_options, *OPTIONS)
    options["clamping"] = FlexbufferMap(node.custom_options).element_as_bool(OPTIONS.index("clamping"))
    require_channels(options)
    context.allocate_requested(node)
    node.op_data = SpectralSubtraction(options, node.persistent["noise_estimate"].view(np.uint32))


def _init_requests(node: NodeView) -> Iterator[Request]:
    yield PersistentBuffer("noise_estimate", 4 * require_channels(options_by_place(node.custom_options, *OPTIONS)))


def _prepare(context: KernelContext, node: Node) -> None:
    op: SpectralSubtraction = node.op_data
    node.expect(inputs=1, outputs=2)
    input = context.input_tensor(node, 0)
    output = context.output_tensor(node, 0)
    noise = context.output_tensor(node, 1)
    for tensor in (input, output, noise):
        require_rank(tensor, 1)
        require_type(tensor, TensorType.UINT32)
    for tensor in (input, output):
        require_room(tensor, op.noise.size, element_count(tensor))
    if noise.dims[0] > op.noise.size:
        reason = f"has {noise.dims[0]} elements, more than num_channels {op.noise.size}"
        raise OperatorError(reason, tensor=noise.name)
    op.noise.fill(0)


def _bind(context: KernelContext, node: Node) -> Run:
    op: SpectralSubtraction = node.op_data
    options, noise = op.options, op.noise
    count = noise.size
    x = context.get_eval_input(node, 0).elements[:count]
    output = context.get_eval_output(node, 0).elements
    noise_output = context.get_eval_output(node, 1).elements
    # Undefined in C beyond the type's bits; x86 takes counts modulo 32, or 64.
    smoothing_bits = scalar(options["smoothing_bits"] & 31, np.uint32)
    fractional_bits = scalar(options["spectral_subtraction_bits"] & 63, np.uint64)
    of_noise = _factors(options["one_minus_smoothing"], options["alternate_one_minus_smoothing"], count)
    smoothing = _factors(options["smoothing"], options["alternate_smoothing"], count)
    remaining = _factors(options["min_signal_remaining"], options["min_signal_remaining"], count)
    factors = np.concatenate([smoothing, remaining, of_noise])
    signal, difference = (kept(np.empty(count, np.uint32)) for _ in range(2))
    products = kept(np.empty(3 * count, np.uint64))
    new, least, old = np.split(products, 3)
    shifted = products[: 2 * count]
    estimate, floor, _ = np.split(products.view(np.uint32)[0::2], 3)  # the low halves
    program = Program()
    program.call(np.left_shift, x, smoothing_bits, signal)
    program.copy(new, signal)
    program.copy(least, x)
    program.copy(old, noise)
    program.call(np.multiply, products, factors, products)
    program.call(np.add, new, old, new)
    program.call(np.right_shift, shifted, fractional_bits, shifted)
    program.copy(noise, estimate)
    program.smaller(noise, signal, difference)
    if options["clamping"]:
        program.copy(noise, difference)
    program.call(np.subtract, signal, difference, difference)
    program.call(np.right_shift, difference, smoothing_bits, difference)
    program.larger(difference, floor, output[:count])
    program.copy(noise_output, noise[: noise_output.size])
    program.clear(output[count:])
    return program.run


def _factors(of_even: int, of_odd: int, count: int) -> Values:
    """A factor for each channel; the reference takes it for an unsigned number of 32 bits."""
    return np.resize(np.array([of_even % 2**32, of_odd % 2**32], np.uint64), count)


def _reset(context: KernelContext, node: Node) -> None:
    node.op_data.noise.fill(0)


FILTER_BANK_SPECTRAL_SUBTRACTION = Registration(
    "SignalFilterBankSpectralSubtraction",
    _bind,
    _prepare,
    _init,
    reset=_reset,
    op_data=SPECTRAL_SUBTRACTION_PARAMS,
    requests=tensors(1, 2),
    init_requests=_init_requests,
    types=(TensorType.UINT32,),
    since="2548022e0",
)
