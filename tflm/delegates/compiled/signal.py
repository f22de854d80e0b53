"""The signal operators except transforms: from windows to channels, and queues of samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.compiler.intrinsics import address_of, copy_bytes, leading_zeros
from tflm.compiler.language import (
    DONE,
    REFUSED,
    Elements,
    Int16s,
    Int32s,
    Int64s,
    Shift,
    Step,
    UInt8s,
    UInt32s,
    UInt64s,
    Wide,
    inlined,
    kernel,
    standalone,
    unrolled,
)
from tflm.compiler.processor import Profile
from tflm.delegates.compiled.casts import as_float64, as_int16, as_int32, as_int64, as_uint64
from tflm.delegates.compiled.fixed_point import clamped
from tflm.delegates.compiled.movement import copy_steps
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.reference.signal.filter_bank import (
    DIGIT_BITS,
    DIGITS,
    LN_2,
    ONE,
    OUTPUT_BITS,
    SEGMENTS,
    SNR_BITS,
    FilterBank,
    SpectralSubtraction,
    largest_estimate,
    log2_beyond_line,
)
from tflm.kernels.reference.signal.frames import Framer, OverlapAdd, Stacker

LOW_32_BITS = (1 << 32) - 1


def clear_steps(*targets: npt.NDArray[Any]) -> list[Step]:
    """Set the rest of outputs, which TFLM does not write, to zeros."""
    return copy_steps([(target, np.zeros((), target.dtype)) for target in targets if target.size]) or []


# --- Window, scale, energy ---------------------------------------------------------------------------------------


@kernel
def window(x: Int16s, weights: Int16s, y: Int16s, frames: int, length: int, shift: Shift) -> int:
    """Multiply frames by the weights, shift right, and saturate."""
    for frame in range(frames):
        first = frame * length
        for i in range(length):
            y[first + i] = clamped((x[first + i] * weights[i]) >> shift, -(1 << 15), (1 << 15) - 1)
    return DONE


@inlined
def magnitude(sample: int) -> int:
    """Return the absolute value of 16 bits, without a branch."""
    sign = sample >> 15
    return (sample ^ sign) - sign


@inlined
def larger(largest: int, sample: int) -> int:
    """Return the larger one of a number and the absolute value of a sample, which wraps for -32768."""
    if sample > largest:
        return sample
    return as_int16(-sample) if -sample > largest else largest


@kernel
def auto_scale(x: Int16s, y: Int16s, scale_bit: Int32s, count: int) -> int:
    """Shift samples left as far as 16 bits allow.

    Only the highest bit of the largest absolute value counts, which is that of an OR of all. Groups with or after a
    value that wraps are compared one by one.
    """
    largest = 0
    in_groups = count & ~3
    for i in range(0, in_groups, 4):
        found = largest
        for k in unrolled(4):
            found |= magnitude(x[i + k])
        if 0 <= found < 1 << 15:
            largest = found
        else:
            for k in range(i, i + 4):
                largest = larger(largest, as_int32(x[k]))
    for i in range(in_groups, count):
        largest = larger(largest, as_int32(x[i]))
    bits = leading_zeros(largest) - 49 if largest > 0 else 0
    scale_bit[0] = bits
    for i in range(count):
        y[i] = x[i] << bits
    return DONE


@kernel
def energy(x: Int16s, y: UInt32s, count: int) -> int:
    """Compute squared magnitudes of complex numbers."""
    for i in range(count):
        y[i] = as_int64(x[2 * i] * x[2 * i]) + x[2 * i + 1] * x[2 * i + 1]
    return DONE


# --- Channels ----------------------------------------------------------------------------------------------------


class Bands(NamedTuple):
    """Sizes of a filter bank.

    Attributes:
        channels: number of channels that are computed; there is one more band, before the first channel.
        checked: number of bands that can change between invokes, and must be inside of the spectrum and the weights.
        values, weights: number of elements of the spectrum, and of weights and unweights.
    """

    channels: int
    checked: int
    values: int
    weights: int


@kernel
def filter_bank(
    x: UInt32s,
    weights: Int16s,
    unweights: Int16s,
    starts: Int16s,
    weight_starts: Int16s,
    widths: Int16s,
    y: Int64s,
    bands: Bands,
) -> int:
    """Compute weighted sums of the values in each band, and of those in the band before it.

    Args:
        starts, weight_starts, widths: for each band: its start in x, its start in the weights, and its width.
    """
    for band in range(bands.checked):
        width = as_int32(widths[band])
        end = max(starts[band] + width - bands.values, weight_starts[band] + width - bands.weights)
        if width > 0 and (min(starts[band], weight_starts[band]) < 0 or end > 0):
            return REFUSED
    carried = 0
    for band in range(bands.channels + 1):
        start, weight, width = starts[band], weight_starts[band], widths[band]
        total, next_carried = 0, 0
        for i in range(width):
            total += as_int64(x[start + i]) * weights[weight + i]
            next_carried += as_int64(x[start + i]) * unweights[weight + i]
        if band > 0:
            y[band - 1] = carried + total
        carried = next_carried
    return DONE


@kernel
def square_root(x: UInt64s, scale_bits: Int32s, y: UInt32s, count: int) -> int:
    """Compute square roots, rounded except for the largest values of 16 and 32 bits, then shifted right."""
    one, largest_16_bits, largest_32_bits = as_uint64(1), as_uint64(0xFFFF), as_uint64(0xFFFFFFFF)
    bits = as_uint64(scale_bits[0] & 31)
    for i in range(count):
        root = as_uint64(min(np.sqrt(as_float64(x[i])), 4294967295.0))
        root = root - one if root * root > x[i] else root
        rounds_up = x[i] - root * root > root and root != largest_16_bits and root != largest_32_bits
        y[i] = (root + one if rounds_up else root) >> bits
    return DONE


@kernel
def spectral_subtraction(
    x: UInt32s,
    y: UInt32s,
    noise: UInt32s,
    factors: UInt32s,
    smoothing_bits: int,
    fractional_bits: int,
    clamping: int,
    count: int,
) -> int:
    """Subtract the noise from the signal, down to a minimum share of the signal.

    Args:
        factors: for even and odd channels, the weights of new and old values in the noise estimate; and the minimum
            share.
    """
    low, smoothing, fraction = as_uint64(LOW_32_BITS), as_uint64(smoothing_bits), as_uint64(fractional_bits)
    activation_min = as_uint64(factors[4])
    for i in range(count):
        odd = i & 1
        value = as_uint64(x[i])
        signal = (value << smoothing) & low
        of_new, of_old = as_uint64(factors[odd]), as_uint64(factors[2 + odd])
        estimate = (signal * of_new + as_uint64(noise[i]) * of_old) >> fraction & low
        floor = (value * activation_min) >> fraction & low
        taken = min(estimate, signal)
        noise[i] = taken if clamping else estimate
        y[i] = max((signal - taken) >> smoothing, floor)
    return DONE


@standalone
def interpolated_gain(gains: Int16s, low: int) -> Any:
    """Return the gain for a noise estimate of at least 3, whose 32 bits are given.

    Compilers would move code of it before the test for 3.
    """
    estimate = as_int64(low) & LOW_32_BITS
    zeros = leading_zeros(estimate) & 31
    fraction = as_int32(estimate << zeros) >> (31 - DIGIT_BITS) & (DIGITS - 1)
    row = 2 + 4 * (30 - zeros)
    slope = as_int32((gains[row + 2] * fraction >> 5) + (gains[row + 1] << 5))
    return as_int16((as_int32(slope * fraction + (1 << 14)) >> 15) + gains[row])


@kernel
def automatic_gain(x: UInt32s, noise: UInt32s, gains: Int16s, y: UInt32s, largest: Wide, shift: int, count: int) -> int:
    """Multiply each channel by the gain for its noise estimate, then compress it.

    Args:
        gains: as in `wide_dynamic_function`.
        largest: largest estimate with a gain.
    """
    beyond = 0
    for i in range(count):
        beyond += noise[i] > largest
    if beyond:
        return REFUSED
    for i in range(count):
        estimate = as_int32(noise[i])
        gain = gains[estimate] if 0 <= estimate < 3 else interpolated_gain(gains, estimate)
        product = as_uint64(x[i]) * as_uint64(gain & LOW_32_BITS)
        ratio = as_int64(product >> as_uint64(shift)) & LOW_32_BITS
        small = as_int32(ratio)
        if 0 <= small < 2 << SNR_BITS:
            y[i] = small * small >> (2 + 2 * SNR_BITS - OUTPUT_BITS)
        else:
            y[i] = (ratio >> (SNR_BITS - OUTPUT_BITS)) - (1 << OUTPUT_BITS)
    return DONE


@standalone
def logarithm_of(low: int, beyond_line: Int32s, scale: int) -> Any:
    """Return the logarithm of a value above 1, whose 32 bits are given; see `interpolated_gain`."""
    value = as_int64(low) & LOW_32_BITS
    zeros = leading_zeros(value) & 31
    fraction = as_int32(value << zeros) >> 15 & (ONE - 1)
    segment, position = fraction // (ONE // SEGMENTS), fraction % (ONE // SEGMENTS)
    slope = beyond_line[segment + 1] - beyond_line[segment]
    log2 = ((31 - zeros) << 16) + fraction + beyond_line[segment] + (slope * position >> 16)
    log = (as_int64(log2) * LN_2 + ONE // 2) >> 16
    return min(as_int32(log * scale + ONE // 2) >> 16 & 0xFFFF, (1 << 15) - 1)


@kernel
def logarithm(x: UInt32s, y: Int16s, beyond_line: Int32s, shift: int, scale: int, count: int) -> int:
    """Compute natural logarithms from logarithms to base 2, whose curve is interpolated in a table."""
    for i in range(count):
        value = as_int32(as_int64(x[i]) << shift)
        y[i] = 0 if 0 <= value <= 1 else logarithm_of(value, beyond_line, scale)
    return DONE


# --- Queues ------------------------------------------------------------------------------------------------------


@inlined
def write_to_queue(samples: Int16s, state: Any, capacity: int, x: Int16s, first: int, count: int) -> int:
    """Append samples to a queue, in two parts where they wrap around its end."""
    place = (state[0] + state[1]) % capacity
    until_end = min(count, capacity - place)
    queue, source = address_of(samples), address_of(x) + 2 * first
    copy_bytes(queue + 2 * place, source, 2 * until_end)
    if count > until_end:
        copy_bytes(queue, source + 2 * until_end, 2 * (count - until_end))
    state[1] += count
    return count


@inlined
def read_from_queue(samples: Int16s, state: Any, capacity: int, y: Int16s, first: int, count: int) -> int:
    """Copy the oldest samples of a queue, in two parts where they wrap around its end."""
    place = state[0]
    until_end = min(count, capacity - place)
    queue, target = address_of(samples), address_of(y) + 2 * first
    copy_bytes(target, queue + 2 * place, 2 * until_end)
    if count > until_end:
        copy_bytes(target + 2 * until_end, queue, 2 * (count - until_end))
    return count


@inlined
def discard(state: Any, capacity: int, count: int) -> int:
    """Remove the oldest samples of a queue."""
    state[0] = (state[0] + count) % capacity
    state[1] = (state[1] - count) % capacity
    return count


@kernel
def delay(x: Int16s, y: Int16s, samples: Int16s, state: Int32s, capacity: int, count: int) -> int:
    """Delay samples."""
    write_to_queue(samples, state, capacity, x, 0, count)
    read_from_queue(samples, state, capacity, y, 0, count)
    discard(state, capacity, count)
    return DONE


@kernel
def frame(
    x: Int16s,
    y: Int16s,
    valid: UInt8s,
    samples: Int16s,
    state: Int32s,
    capacity: int,
    frames: int,
    size: int,
    step: int,
    is_first: int,
) -> int:
    """Extract overlapping frames from a row of samples. The first row initializes the flag that all are valid."""
    if is_first:
        valid[0] = 1
    for i in range(frames):
        write_to_queue(samples, state, capacity, x, i * step, step)
        if state[1] >= size:
            read_from_queue(samples, state, capacity, y, i * size, size)
            discard(state, capacity, step)
        else:
            valid[0] = 0
            for j in range(size):
                y[i * size + j] = 0
    return DONE


@kernel
def stack(
    x: Int16s,
    y: Int16s,
    valid: UInt8s,
    samples: Int16s,
    state: Int32s,
    repeats: Int32s,
    capacity: int,
    channels: int,
    size: int,
    step: int,
) -> int:
    """Combine a frame with those before and after it."""
    for _ in range(repeats[0]):
        write_to_queue(samples, state, capacity, x, 0, channels)
    repeats[0] = 1
    valid[0] = 1 if state[1] >= size else 0
    if valid[0]:
        read_from_queue(samples, state, capacity, y, 0, size)
        discard(state, capacity, step)
    else:
        for i in range(size):
            y[i] = 0
    return DONE


@inlined
def saturating_sum(a: Any, b: Any) -> Any:
    """Add int16 with saturation."""
    return clamped(as_int32(a) + b, -(1 << 15), (1 << 15) - 1)


@inlined
def plain_sum(a: Any, b: Any) -> Any:
    """Add float32."""
    return a + b


SUMS = {"int16": saturating_sum, "float32": plain_sum}
Sum = Annotated[Callable[..., Any], SUMS]


@kernel
def overlap_add(added: Sum, x: Elements, y: Elements, sums: Elements, frames: int, size: int, step: int) -> int:
    """Add overlapping frames. With each frame, the first sums are complete, and the others move to the front."""
    for i in range(frames):
        for j in range(step):
            y[i * step + j] = added(sums[j], x[i * size + j])
        for j in range(step, size):  # the last sums are always 0
            sums[j - step] = added(sums[j], x[i * size + j])
    return DONE


# --- Binding -----------------------------------------------------------------------------------------------------


def _elements(node: Node) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the first input and the first output as flat arrays."""
    x, y = node.eval_input(0).elements, node.eval_output(0).elements
    return x.reshape(-1), y.reshape(-1)


def _bind_window(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    x, y = _elements(node)
    weights = node.eval_input(1).elements
    if not x.size:
        return clear_steps(y)
    sizes = {"frames": x.size // weights.size, "length": weights.size, "shift": node.op_data & 31}
    return [window.step(x=x, weights=weights, y=y, **sizes), *clear_steps(y[x.size :])]


def _bind_auto_scale(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    x, y = _elements(node)
    return [auto_scale.step(x=x, y=y, scale_bit=node.eval_output(1).elements, count=y.size)]


def _bind_energy(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    x, y = _elements(node)
    start, end = node.op_data
    step = energy.step(x=x[2 * start :], y=y[start:], count=end - start)
    return [step, *clear_steps(y[:start], y[end:])]


def _bind_filter_bank(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    x, y = _elements(node)
    names = ("weights", "unweights", "starts", "weight_starts", "widths")
    arrays = {name: node.eval_input(i).elements for i, name in enumerate(names, 1)}
    checked = 0 if FilterBank(context, node, node.op_data).is_constant else node.op_data + 1
    bands = Bands(y.size, checked, x.size, min(arrays[name].size for name in names[:2]))
    return [filter_bank.step(x=x, **arrays, y=y.view(np.int64), bands=bands)]


def _bind_square_root(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    x, y = _elements(node)
    scale_bits = node.eval_input(1).elements
    return [square_root.step(x=x, scale_bits=scale_bits, y=y, count=x.size), *clear_steps(y[x.size :])]


def _bind_spectral_subtraction(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    op: SpectralSubtraction = node.op_data
    x, y = _elements(node)
    noise_output = node.eval_output(1).elements
    names = ("smoothing", "alternate_smoothing", "one_minus_smoothing", "alternate_one_minus_smoothing")
    factors = [op.options[name] % 2**32 for name in (*names, "min_signal_remaining")]
    step = spectral_subtraction.step(
        x=x,
        y=y,
        noise=op.noise,
        factors=np.array(factors, np.uint32),
        smoothing_bits=op.options["smoothing_bits"] & 31,
        fractional_bits=op.options["spectral_subtraction_bits"] & 63,
        clamping=bool(op.options["clamping"]),
        count=op.noise.size,
    )
    shown = copy_steps([(noise_output, op.noise[: noise_output.size])]) or []
    return [step, *shown, *clear_steps(y[op.noise.size :])]


def _bind_automatic_gain(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    x, y = _elements(node)
    noise, gains = (node.eval_input(i).elements for i in (1, 2))
    sizes = {"largest": largest_estimate(gains.size), "shift": node.op_data & 63, "count": x.size}
    return [automatic_gain.step(x=x, noise=noise, gains=gains, y=y, **sizes)]


def _bind_logarithm(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    x, y = _elements(node)
    options = {"shift": node.op_data["input_correction_bits"] & 31, "scale": node.op_data["output_scale"]}
    step = logarithm.step(x=x, y=y, beyond_line=log2_beyond_line().astype(np.int32), **options, count=x.size)
    return [step, *clear_steps(y[x.size :])]


def _queue(buffer: Any) -> dict[str, Any]:
    return {"samples": buffer.samples, "state": buffer.state, "capacity": buffer.samples.size}


def _bind_delay(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    x, y = _elements(node)
    buffers = node.op_data.buffers
    if not buffers:
        return None
    count = x.size // len(buffers)
    rows = [slice(i * count, (i + 1) * count) for i in range(len(buffers))]
    steps = [delay.step(x=x[row], y=y[row], **_queue(buffer), count=count) for row, buffer in zip(rows, buffers)]
    return [*steps, *clear_steps(y[x.size :])]


def _bind_framer(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    op: Framer = node.op_data
    x, y = _elements(node)
    rows = len(op.buffers)
    if not rows:
        return None
    frames = x.size // rows // op.step
    valid = node.eval_output(1).elements.reshape(1).view(np.uint8)
    sizes = {"frames": frames, "size": op.size, "step": op.step}
    steps = [
        frame.step(
            x=x[i * frames * op.step :],
            y=y[i * frames * op.size :],
            valid=valid,
            **_queue(buffer),
            **sizes,
            is_first=i == 0,
        )
        for i, buffer in enumerate(op.buffers)
    ]
    return [*steps, *clear_steps(y[rows * frames * op.size :])]


def _bind_stacker(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    op: Stacker = node.op_data
    x, y = _elements(node)
    valid = node.eval_output(1).elements.reshape(1).view(np.uint8)
    sizes = {"repeats": op.repeats, "channels": op.channels, "size": op.size, "step": op.step}
    return [stack.step(x=x, y=y, valid=valid, **_queue(op.buffer), **sizes), *clear_steps(y[op.size :])]


def _bind_overlap_add(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    op: OverlapAdd = node.op_data
    x, y = _elements(node)
    frames, size = node.eval_input(0).dims[-2:]
    given, type = frames * op.step, y.dtype.name
    sizes = {"frames": frames, "size": size, "step": op.step}
    steps = [
        overlap_add.step(added=type, x=x[i * frames * size :], y=y[i * given :], sums=sums, **sizes)
        for i, sums in enumerate(op.sums)
    ]
    return [*steps, *clear_steps(y[len(op.sums) * given :])]


BINDINGS = {
    "SignalDelay": _bind_delay,
    "SignalEnergy": _bind_energy,
    "SignalFftAutoScale": _bind_auto_scale,
    "SignalFilterBank": _bind_filter_bank,
    "SignalFilterBankLog": _bind_logarithm,
    "SignalFilterBankSpectralSubtraction": _bind_spectral_subtraction,
    "SignalFilterBankSquareRoot": _bind_square_root,
    "SignalFramer": _bind_framer,
    "SignalOverlapAdd": _bind_overlap_add,
    "SignalPCAN": _bind_automatic_gain,
    "SignalStacker": _bind_stacker,
    "SignalWindow": _bind_window,
}
