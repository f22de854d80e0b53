"""Models of the signal operators."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from tflm.schema import ELEMENT_TYPES, BuiltinOperator, TensorType
from tflm.testing.drawing import (
    FLOAT32,
    INT16,
    INT32,
    Draw,
    OperatorCase,
    Output,
    custom_options,
    values,
)
from tflm.testing.operators.declared import DrawnOperator, strategy

UINT32, UINT64 = TensorType.UINT32, TensorType.UINT64

SHIFTS = st.integers(0, 15) | st.sampled_from([16, 31, 32, 40, 64, 70, -1])
"""Counts of shifts; beyond the number of bits, as x86 has it."""

LENGTHS = st.sampled_from([4, 8, 16, 32, 64, 128, 256, 512, 6, 10, 12, 18, 20, 24, 30, 36, 50, 60, 90, 100, 150, 480])
"""Lengths of transforms: twice products of 2, 3 and 5."""


ROWS = st.sampled_from([(), (1,), (3,), (2, 2)])
"""Dimensions before the last one."""


def magnitudes(draw: Draw, type: TensorType, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Unsigned integers with any number of bits; as often as not around a power of two, or one below a square."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dtype = ELEMENT_TYPES[type].dtype
    bits = 8 * dtype.itemsize
    numbers = values(draw, type, shape) >> rng.integers(0, bits, shape).astype(dtype)
    powers = (1 << rng.integers(0, bits, shape).astype(dtype)).astype(dtype) + rng.integers(-2, 3, shape).astype(dtype)
    roots = rng.integers(0, 2 ** (bits // 2), shape).astype(dtype)
    halves = roots * roots + roots + rng.integers(-1, 3, shape).astype(dtype)
    chosen: npt.NDArray[Any] = rng.choice(np.stack([numbers, numbers, powers, halves]))
    return chosen


@strategy("SignalWindow")
def window(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """SignalWindow over one or more frames."""
    length, frames = draw(st.integers(1, 40)), draw(ROWS)
    shape = (*frames, length) if draw(st.booleans()) else (*frames[:-1], math.prod(frames[-1:]) * length)
    model.operand(shape)
    model.numbers(values(draw, INT16, (length,)) >> draw(st.integers(0, 4)), INT16)
    return model.case(model.name, [(shape, INT16, None)], shift=draw(SHIFTS))


@strategy("SignalFftAutoScale")
def fft_auto_scale(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """SignalFftAutoScale of samples of any size, sometimes with the lowest one."""
    shape = (draw(st.integers(1, 40)),)
    samples = values(draw, INT16, shape) >> draw(st.integers(0, 16))
    for index in draw(st.lists(st.integers(0, shape[0] - 1), max_size=2)):
        samples[index] = -(2**15)
    model.input(INT16, [samples])
    return model.case(model.name, [(shape, INT16, None), ((), INT32, None)])


@strategy("SignalRfft", "SignalIrfft")
def fft(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """One or more rows, sometimes zero-padded, or with extra bins that are ignored by the inverse."""
    length, rows = draw(LENGTHS), draw(ROWS)
    if model.name == "SignalRfft":
        size, result = draw(st.just(length) | st.integers(1, length)), length + 2
    else:
        size, result = length + 2 + 2 * draw(st.sampled_from([0, 0, 1, 5])), length
    elements = values(draw, model.type, (*rows, size))
    model.input(
        model.type, [elements if model.type == FLOAT32 else elements >> draw(st.sampled_from([0, 0, 1, 4, 12]))]
    )
    return model.case(model.name, [((*rows, result), model.type, None)], T=int(model.type), fft_length=length)


@strategy("SignalDelay", invokes=(1, 6))
def delay(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """SignalDelay by less or more than a frame, over several invokes."""
    shape = (*draw(ROWS), draw(st.integers(1, 12)))
    model.operand(shape)
    return model.case(model.name, [(shape, INT16, None)], delay_length=draw(st.integers(0, 30)))


def case_if_valid(model: DrawnOperator, shape: tuple[int, ...], **numbers: int) -> OperatorCase:
    """A case whose first output is zero where the second says that it is not valid: TFLM leaves it unset."""
    main = model.main
    y, valid = main.tensor("y", shape, INT16), main.tensor("valid", (), TensorType.BOOL)
    main.operator(model.name, model.operands, [y, valid], custom_options=custom_options(numbers))
    model.operands = [valid, y, main.constant("zeros", np.zeros(shape, np.int16))]
    return model.case(BuiltinOperator.SELECT_V2, [(shape, INT16, None)], also=[valid])


@strategy("SignalFramer", invokes=(1, 6))
def framer(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """SignalFramer of frames that overlap, or that leave samples out, over several invokes."""
    rows, step, frames = draw(st.sampled_from([(), (1,), (3,)])), draw(st.integers(1, 8)), draw(st.integers(1, 4))
    size = draw(st.integers(1, 20))
    prefill = draw(st.booleans()) and size >= step
    model.operand((*rows, frames * step))
    framed = (*rows, frames, size)
    return case_if_valid(model, framed, frame_size=size, frame_step=step, prefill=prefill)


@strategy("SignalStacker", invokes=(1, 6))
def stacker(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Draw a SignalStacker of frames before and after, over several invokes."""
    channels, left, right = draw(st.integers(1, 6)), draw(st.integers(0, 4)), draw(st.integers(0, 4))
    count = left + right + 1
    numbers = {"num_channels": channels, "stacker_left_context": left, "stacker_right_context": right}
    model.operand((channels,))
    step = draw(st.integers(1, count))
    return case_if_valid(model, (channels * count,), **numbers, stacker_step=step)


@strategy("SignalOverlapAdd", invokes=(1, 6))
def overlap_add(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """SignalOverlapAdd of frames at any step, over several invokes."""
    rows, frames, size = draw(st.sampled_from([(), (1,), (3,)])), draw(st.integers(1, 4)), draw(st.integers(1, 12))
    step = draw(st.integers(1, size))
    model.operand((*rows, frames, size))
    outputs: list[Output] = [((*rows, frames * step), model.type, None)]
    return model.case(model.name, outputs, T=int(model.type), frame_step=step)


@strategy("SignalEnergy")
def energy(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Draw a SignalEnergy of a part of a spectrum. A filter bank after it reads only that part, because TFLM writes no
    other."""
    bins = draw(st.integers(2, 40))
    start, end = sorted(draw(st.lists(st.integers(0, bins), min_size=2, max_size=2, unique=True)))
    model.operand((2 * bins,))
    energies = model.main.tensor("energies", (bins,), UINT32)
    numbers = custom_options({"start_index": start, "end_index": end})
    model.main.operator("SignalEnergy", model.operands, [energies], custom_options=numbers)
    model.operands = [energies]
    count = end - start
    ones, zeros = np.ones(bins, np.int16), np.zeros(bins, np.int16)
    for array in (ones, zeros, np.r_[start, start:end], np.zeros(count + 1, np.int64), np.r_[0, [1] * count]):
        model.constant(array.astype(np.int16))
    return model.case("SignalFilterBank", [((count,), UINT64, None)], num_channels=count)


@strategy("SignalFilterBank")
def filter_bank(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """SignalFilterBank of bands anywhere, constant or not, with weights of either sign."""
    bins, channels, taps = draw(st.integers(1, 30)), draw(st.integers(2, 8)), draw(st.integers(8, 40))
    bands = []
    for _ in range(channels + 1):
        width = draw(st.sampled_from([-1, 0]) | st.integers(1, min(bins, taps, 6)))
        bands.append((draw(st.integers(0, bins - width)), draw(st.integers(0, taps - width)), width))
    model.input(UINT32, [magnitudes(draw, UINT32, (bins,))])
    weights = [values(draw, INT16, (taps,)) for _ in range(2)]
    for array in [*weights, *np.array(bands, np.int16).T]:
        model.numbers(array, INT16)
    count = draw(st.just(channels) | st.integers(1, channels))
    return model.case(model.name, [((count,), UINT64, None)], num_channels=channels)


@strategy("SignalFilterBankSquareRoot")
def square_root(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """SignalFilterBankSquareRoot of integers of up to 64 bits, next to squares and halves between them."""
    shape = (draw(st.integers(2, 30)),)
    model.input(UINT64, [magnitudes(draw, UINT64, shape) >> np.uint64(draw(st.sampled_from([0, 14, 31, 32])))])
    model.numbers(draw(st.integers(0, 4) | SHIFTS), INT32)
    return model.case(model.name, [(shape, UINT32, None)])


@strategy("SignalFilterBankSpectralSubtraction", invokes=(1, 4))
def spectral_subtraction(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """SignalFilterBankSpectralSubtraction over several invokes."""
    channels = draw(st.integers(1, 20))
    coefficients = st.integers(0, 1 << 14) | st.sampled_from([-1, 2**31 - 1, -(2**31), 0])
    names = ("smoothing", "one_minus_smoothing", "alternate_smoothing", "alternate_one_minus_smoothing")
    numbers: dict[str, Any] = {name: draw(coefficients) for name in (*names, "min_signal_remaining")}
    numbers |= {"smoothing_bits": draw(SHIFTS), "spectral_subtraction_bits": draw(st.just(14) | SHIFTS)}
    numbers |= {"num_channels": channels, "clamping": draw(st.booleans())}
    model.input(UINT32, [magnitudes(draw, UINT32, (channels,)) for _ in model.invocations])
    outputs: list[Output] = [((channels,), UINT32, None), ((draw(st.integers(1, channels)),), UINT32, None)]
    return model.case(model.name, outputs, **numbers)


@strategy("SignalPCAN")
def pcan(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """SignalPCAN with a table for all estimates, or for some."""
    shape = (draw(st.integers(1, 20)),)
    bits = draw(st.sampled_from([32, 32, 12, 4, 2, 2, 1, 0]))
    model.input(UINT32, [magnitudes(draw, UINT32, shape)])
    model.input(UINT32, [magnitudes(draw, UINT32, shape) >> np.uint32(32 - bits)])
    # A table that is too short is read beyond its end by TFLM.
    gains = values(draw, INT16, (max(4 * bits - 3, bits + 1) + draw(st.integers(0, 3)),)) >> draw(st.integers(0, 8))
    model.numbers(gains, INT16)
    return model.case(model.name, [(shape, UINT32, None)], snr_shift=draw(SHIFTS))


@strategy("SignalFilterBankLog")
def filter_bank_log(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """SignalFilterBankLog of integers of any size."""
    shape = (draw(st.integers(2, 40)),)
    scale = draw(st.sampled_from([64, 64, 1600, -1, 2**31 - 1, -(2**31)]) | st.integers(0, 2000))
    bits = draw(st.integers(0, 4) | SHIFTS)
    model.input(UINT32, [magnitudes(draw, UINT32, shape)])
    outputs: list[Output] = [(shape, INT16, None)]
    return model.case(model.name, outputs, input_correction_bits=bits, output_scale=scale)
