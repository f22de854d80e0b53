"""SignalFilterBankSpectralSubtraction: subtracts an estimate of the noise from each channel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tflm.errors import OperatorError
from tflm.kernels.host_memory import track_host_array
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.reference.signal.common import (
    Values,
    options_by_place,
    require_channels,
    require_rank,
    require_room,
    write,
)
from tflm.kernels.registration import Registration, Run
from tflm.kernels.requests import PersistentBuffer, Request, tensors
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


def _init_requests(node: Node) -> Iterator[Request]:
    yield PersistentBuffer("noise_estimate", 4 * require_channels(options_by_place(node.custom_options, *OPTIONS)))


def _prepare(context: KernelContext, node: Node) -> None:
    op: SpectralSubtraction = node.op_data
    node.expect(inputs=1, outputs=2)
    input = node.input(0)
    output = node.output(0)
    noise = node.output(1)
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
    x, y = node.eval_input(0).elements[:count], node.eval_output(0).elements
    noise_output = node.eval_output(1).elements
    # Undefined in C beyond the type's bits; x86 takes counts modulo 32, or 64.
    smoothing_bits = np.uint32(options["smoothing_bits"] & 31)
    fraction_bits = np.uint64(options["spectral_subtraction_bits"] & 63)
    smoothing = _coefficients(options["smoothing"], options["alternate_smoothing"], count)
    one_minus_smoothing = _coefficients(options["one_minus_smoothing"], options["alternate_one_minus_smoothing"], count)
    min_signal_remaining = np.uint64(options["min_signal_remaining"] % 2**32)

    def run() -> None:
        scaled_up = x << smoothing_bits
        estimate = (scaled_up * smoothing + noise * one_minus_smoothing >> fraction_bits).astype(np.uint32)
        subtracted = np.minimum(estimate, scaled_up)
        floor = (x * min_signal_remaining >> fraction_bits).astype(np.uint32)
        noise[...] = subtracted if options["clamping"] else estimate
        write(y, np.maximum(scaled_up - subtracted >> smoothing_bits, floor))
        noise_output[...] = noise[: noise_output.size]

    return run


def _coefficients(even: int, odd: int, count: int) -> Values:
    """The coefficient of each channel, which the reference reads as an unsigned 32-bit number."""
    return track_host_array(np.resize(np.array([even % 2**32, odd % 2**32], np.uint64), count))


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
