"""Operators on spectra: energies, filter banks and what follows them, up to the automatic gain of channels."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.host_memory import track_host_array
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.reference.signal.common import (
    Values,
    most_significant_bit,
    options_by_place,
    require_channels,
    require_room,
    tensors_of,
    write,
)
from tflm.kernels.registration import Registration, Run
from tflm.kernels.requests import PersistentBuffer, Request, tensors
from tflm.kernels.support.checks import element_count, require_same_size
from tflm.memory.tensor import TfLiteEvalTensor
from tflm.schema.enums import TensorType
from tflm.schema.flexbuffer import FlexbufferMap
from tflm.targets import BOOL, INT, INT32, POINTER, SIZE_T, UINT32, Struct

FILTER_BANK_PARAMS = Struct(
    "TFLMSignalFilterBankParams",
    config=Struct(
        "FilterbankConfig",
        num_channels=INT32,
        channel_frequency_starts=POINTER,
        channel_weight_starts=POINTER,
        channel_widths=POINTER,
        weights=POINTER,
        unweights=POINTER,
        output_scale=INT32,
        input_correction_bits=INT32,
    ),
    work_area=POINTER,
)


class Band(NamedTuple):
    """A part of the spectrum: its weights belong to one channel, its unweights to the next."""

    start: int
    weight_start: int
    width: int

    @property
    def values(self) -> slice:
        """Its values in the spectrum."""
        return slice(self.start, self.start + self.width)

    @property
    def weights(self) -> slice:
        """Its values in weights and unweights."""
        return slice(self.weight_start, self.weight_start + self.width)


class FilterBank:
    """The inputs of a filter bank.

    Args:
        channels: number of channels; there is one more band, before the first channel.
    """

    def __init__(self, context: KernelContext, node: Node, channels: int):
        inputs = [node.eval_input(index) for index in range(6)]
        self.spectrum, self.weights, self.unweights, *self._bands = inputs
        self._count = channels + 1
        self.is_constant = all(tensor.is_constant for tensor in inputs[1:])

    def bands(self) -> list[Band]:
        """The bands from the current inputs.

        Raises:
            OperatorError: a band is outside the spectrum or the weights.
        """
        sizes = [element_count(tensor) for tensor in (self.spectrum, self.weights, self.unweights)]
        found = []
        for numbers in zip(*(tensor.elements[: self._count].tolist() for tensor in self._bands)):
            band = Band(*numbers)
            if band.width <= 0:
                band = Band(0, 0, 0)
            elif min(numbers) < 0 or band.values.stop > sizes[0] or band.weights.stop > min(sizes[1:]):
                raise OperatorError(f"{band} lies outside of {sizes[0]} values or {min(sizes[1:])} weights")
            found.append(band)
        return found


def _init_bank(context: KernelContext, node: Node) -> None:
    node.op_data = _channels(node.custom_options)


def _init_requests_bank(node: Node) -> Iterator[Request]:
    yield PersistentBuffer("sums", (_channels(node.custom_options) + 1) * 8)


def _channels(custom_options: memoryview) -> int:
    return require_channels(options_by_place(custom_options, "num_channels"))


def _prepare_bank(context: KernelContext, node: Node) -> None:
    channels = node.op_data
    *inputs, output = tensors_of(node, [(1, TensorType.UINT32), *[(1, TensorType.INT16)] * 5], [(1, TensorType.UINT64)])
    for tensor in inputs[3:]:
        require_room(tensor, channels + 1, element_count(tensor))
    if output.dims[0] > channels:
        raise OperatorError(f"has {output.dims[0]} elements, more than num_channels {channels}", tensor=output.name)
    bank = FilterBank(context, node, channels)
    if bank.is_constant:
        bank.bands()


def _bind_bank(context: KernelContext, node: Node) -> Run:
    bank = FilterBank(context, node, node.op_data)
    sources = [tensor.elements for tensor in (bank.spectrum, bank.weights, bank.unweights)]
    y = node.eval_output(0).elements
    constant_bands = bank.bands() if bank.is_constant else None

    def run() -> None:
        x, weights, unweights = (source.astype(np.uint64) for source in sources)
        bands = [(x[band.values], band.weights) for band in constant_bands or bank.bands()]
        falling = [np.dot(values, unweights[place]) for values, place in bands[:-1]]
        rising = [np.dot(values, weights[place]) for values, place in bands[1:]]
        y[...] = (np.array(falling, np.uint64) + np.array(rising, np.uint64))[: y.size]

    return run


FILTER_BANK = Registration(
    "SignalFilterBank",
    _bind_bank,
    _prepare_bank,
    _init_bank,
    op_data=FILTER_BANK_PARAMS,
    requests=tensors(6),
    init_requests=_init_requests_bank,
    types=(TensorType.UINT32,),
    since="2548022e0",
)


ENERGY_PARAMS = Struct("TFLMSignalEnergyParams", end_index=INT32, start_index=INT32)


def _prepare_energy(context: KernelContext, node: Node) -> None:
    input, output = tensors_of(node, [(1, TensorType.INT16)], [(1, TensorType.UINT32)])
    end, start = options_by_place(node.custom_options, "end_index", "start_index").values()
    if start >= end:
        start = end = 0
    if start < 0:
        raise OperatorError(f"start_index is {start}, must not be negative")
    require_room(input, 2 * end, element_count(input))
    require_room(output, end, element_count(output))
    node.op_data = start, end


def _bind_energy(context: KernelContext, node: Node) -> Run:
    start, end = node.op_data
    x, y = node.eval_input(0).elements, node.eval_output(0).elements

    def run() -> None:
        # A sum of two squares, 2^31 at most, does not fit an int32.
        real, imaginary = x[2 * start : 2 * end].astype(np.uint32).reshape(-1, 2).T
        y[start:end] = real * real + imaginary * imaginary
        y[:start] = y[end:] = 0

    return run


ENERGY = Registration(
    "SignalEnergy",
    _bind_energy,
    _prepare_energy,
    op_data=ENERGY_PARAMS,
    requests=tensors(),
    types=(TensorType.INT16,),
    since="8ee06dcba",
)


LOG_PARAMS = Struct("TFLMSignalLogParams", input_correction_bits=INT, output_scale=INT)

SEGMENTS = 128
ONE = 2**16
"""1.0 as the logarithms have it, and the table of them."""

LN_2 = round(np.log(2) * ONE)
"""Q0.16."""


def _prepare_log(context: KernelContext, node: Node) -> None:
    input, output = tensors_of(node, [(1, TensorType.UINT32)], [(1, TensorType.INT16)])
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
    reference, the slopes are slightly too small."""
    table = log2_beyond_line()
    segment, position = np.divmod(fraction, ONE // SEGMENTS)
    log2: Values = fraction + table[segment] + (np.diff(table)[segment] * position >> 16)
    return log2


def _bind_log(context: KernelContext, node: Node) -> Run:
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
    _bind_log,
    _prepare_log,
    op_data=LOG_PARAMS,
    requests=tensors(),
    types=(TensorType.UINT32,),
    since="2548022e0",
)


LARGEST_16_BITS, LARGEST_32_BITS = 2**16 - 1, 2**32 - 1


def _prepare_root(context: KernelContext, node: Node) -> None:
    input, _, output = tensors_of(node, [(1, TensorType.UINT64), (0, TensorType.INT32)], [(1, TensorType.UINT32)])
    require_room(output, element_count(input), element_count(output))


def _bind_root(context: KernelContext, node: Node) -> Run:
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
    "SignalFilterBankSquareRoot",
    _bind_root,
    _prepare_root,
    requests=tensors(2),
    types=(TensorType.UINT64,),
    since="2548022e0",
)


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


def _init_subtraction(context: KernelContext, node: Node) -> None:
    options = options_by_place(node.custom_options, *OPTIONS)
    options["clamping"] = FlexbufferMap(node.custom_options).element_as_bool(OPTIONS.index("clamping"))
    require_channels(options)
    context.allocate_requested(node)
    node.op_data = SpectralSubtraction(options, node.persistent["noise_estimate"].view(np.uint32))


def _init_requests_subtraction(node: Node) -> Iterator[Request]:
    yield PersistentBuffer("noise_estimate", 4 * require_channels(options_by_place(node.custom_options, *OPTIONS)))


def _prepare_subtraction(context: KernelContext, node: Node) -> None:
    op: SpectralSubtraction = node.op_data
    input, output, noise = tensors_of(node, [(1, TensorType.UINT32)], [(1, TensorType.UINT32)] * 2)
    for tensor in (input, output):
        require_room(tensor, op.noise.size, element_count(tensor))
    if noise.dims[0] > op.noise.size:
        reason = f"has {noise.dims[0]} elements, more than num_channels {op.noise.size}"
        raise OperatorError(reason, tensor=noise.name)
    op.noise.fill(0)


def _bind_subtraction(context: KernelContext, node: Node) -> Run:
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


def _reset_subtraction(context: KernelContext, node: Node) -> None:
    node.op_data.noise.fill(0)


FILTER_BANK_SPECTRAL_SUBTRACTION = Registration(
    "SignalFilterBankSpectralSubtraction",
    _bind_subtraction,
    _prepare_subtraction,
    _init_subtraction,
    reset=_reset_subtraction,
    op_data=SPECTRAL_SUBTRACTION_PARAMS,
    requests=tensors(1, 2),
    init_requests=_init_requests_subtraction,
    types=(TensorType.UINT32,),
    since="2548022e0",
)


PCAN_PARAMS = Struct("TfLitePcanParams", snr_shift=INT)

DIGIT_BITS = 10
"""Binary digits after the first that count in a noise estimate."""

DIGITS = 1 << DIGIT_BITS

SNR_BITS, OUTPUT_BITS = 12, 6
"""Fractional bits of the signal-to-noise ratio, and of the output."""


def _prepare_pcan(context: KernelContext, node: Node) -> None:
    unsigned = (1, TensorType.UINT32)
    input, noise, _, output = tensors_of(node, [unsigned, unsigned, (1, TensorType.INT16)], [unsigned])
    require_same_size(output, input)
    require_room(noise, element_count(input), element_count(noise))
    node.op_data = options_by_place(node.custom_options, "snr_shift")["snr_shift"]


def _bind_pcan(context: KernelContext, node: Node) -> Run:
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
    """The largest noise estimate that a table of `size` gains covers."""
    return min(size - 1, 2) if size < 5 else (1 << min((size + 3) // 4, 32)) - 1


def _check_estimates(noise: Values, gains: TfLiteEvalTensor) -> None:
    largest = largest_estimate(gains.elements.size)
    if noise.max(initial=0) > largest:
        reason = f"has no gain for a noise estimate of {noise.max()}, only up to {largest}"
        raise OperatorError(reason, tensor=gains.name)


PCAN = Registration(
    "SignalPCAN",
    _bind_pcan,
    _prepare_pcan,
    op_data=PCAN_PARAMS,
    requests=tensors(3),
    types=(TensorType.UINT32,),
    cpp_method="AddPCAN",
    since="e01fdf05a",
)
