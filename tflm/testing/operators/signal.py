"""Models of the signal operators."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from tflm.schema import ELEMENT_TYPES, TENSOR_TYPES, BuiltinOperator, TensorType
from tflm.testing.drawing import FLOAT32, INT16, INT32, Draw, OperatorCase, values
from tflm.testing.operators.single_operator import Output, SingleOperator, custom_options

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


@st.composite
def window(draw: Draw) -> OperatorCase:
    """SignalWindow over one or more frames."""
    length, frames = draw(st.integers(1, 40)), draw(ROWS)
    shape = (*frames, length) if draw(st.booleans()) else (*frames[:-1], math.prod(frames[-1:]) * length)
    model = SingleOperator()
    model.drawn(draw, INT16, shape)
    model.either(draw, values(draw, INT16, (length,)) >> draw(st.integers(0, 4)), INT16)
    return model.case("SignalWindow", [(shape, INT16, None)], shift=draw(SHIFTS))


@st.composite
def fft_auto_scale(draw: Draw) -> OperatorCase:
    """SignalFftAutoScale of samples of any size, sometimes with the lowest one."""
    shape = (draw(st.integers(1, 40)),)
    samples = values(draw, INT16, shape) >> draw(st.integers(0, 16))
    for index in draw(st.lists(st.integers(0, shape[0] - 1), max_size=2)):
        samples[index] = -(2**15)
    model = SingleOperator()
    model.input(INT16, [samples])
    return model.case("SignalFftAutoScale", [(shape, INT16, None), ((), INT32, None)])


def shifted(draw: Draw, type: TensorType, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Elements of a type; integers are sometimes small."""
    elements = values(draw, type, shape)
    return elements if type == FLOAT32 else elements >> draw(st.sampled_from([0, 0, 1, 4, 12]))


@st.composite
def rfft(draw: Draw) -> OperatorCase:
    """SignalRfft of one or more rows, sometimes zero-padded."""
    type, length, rows = draw(st.sampled_from([INT16, INT32, FLOAT32])), draw(LENGTHS), draw(ROWS)
    model = SingleOperator()
    model.input(type, [shifted(draw, type, (*rows, draw(st.just(length) | st.integers(1, length))))])
    return model.case("SignalRfft", [((*rows, length + 2), type, None)], T=int(type), fft_length=length)


@st.composite
def irfft(draw: Draw) -> OperatorCase:
    """SignalIrfft of one or more rows, sometimes with extra bins that are ignored."""
    type, length, rows = draw(st.sampled_from([INT16, INT32, FLOAT32])), draw(LENGTHS), draw(ROWS)
    model = SingleOperator()
    model.input(type, [shifted(draw, type, (*rows, length + 2 + 2 * draw(st.sampled_from([0, 0, 1, 5]))))])
    return model.case("SignalIrfft", [((*rows, length), type, None)], T=int(type), fft_length=length)


def with_state(draw: Draw, type: TensorType, shape: tuple[int, ...]) -> SingleOperator:
    """The start of a model that runs several times, with an input of that shape."""
    model = SingleOperator(invokes=draw(st.integers(1, 6)))
    model.drawn(draw, type, shape)
    return model


@st.composite
def delay(draw: Draw) -> OperatorCase:
    """SignalDelay by less or more than a frame, over several invokes."""
    shape = (*draw(ROWS), draw(st.integers(1, 12)))
    model = with_state(draw, INT16, shape)
    return model.case("SignalDelay", [(shape, INT16, None)], delay_length=draw(st.integers(0, 30)))


def case_if_valid(model: SingleOperator, operator: str, shape: tuple[int, ...], **numbers: int) -> OperatorCase:
    """A case whose first output is zero where the second says that it is not valid: TFLM leaves it unset."""
    main = model.main
    y, valid = main.tensor("y", shape, INT16), main.tensor("valid", (), TensorType.BOOL)
    main.operator(operator, model.operands, [y, valid], custom_options=custom_options(numbers))
    model.operands = [valid, y, main.constant("zeros", np.zeros(shape, np.int16))]
    return model.case(BuiltinOperator.SELECT_V2, [(shape, INT16, None)], also=[valid])


@st.composite
def framer(draw: Draw) -> OperatorCase:
    """SignalFramer of frames that overlap, or that leave samples out, over several invokes."""
    rows, step, frames = draw(st.sampled_from([(), (1,), (3,)])), draw(st.integers(1, 8)), draw(st.integers(1, 4))
    size = draw(st.integers(1, 20))
    prefill = draw(st.booleans()) and size >= step
    model = with_state(draw, INT16, (*rows, frames * step))
    framed = (*rows, frames, size)
    return case_if_valid(model, "SignalFramer", framed, frame_size=size, frame_step=step, prefill=prefill)


@st.composite
def stacker(draw: Draw) -> OperatorCase:
    """SignalStacker of frames before and behind, over several invokes."""
    channels, left, right = draw(st.integers(1, 6)), draw(st.integers(0, 4)), draw(st.integers(0, 4))
    count = left + right + 1
    numbers = {"num_channels": channels, "stacker_left_context": left, "stacker_right_context": right}
    model = with_state(draw, INT16, (channels,))
    step = draw(st.integers(1, count))
    return case_if_valid(model, "SignalStacker", (channels * count,), **numbers, stacker_step=step)


@st.composite
def overlap_add(draw: Draw) -> OperatorCase:
    """SignalOverlapAdd of frames at any step, over several invokes."""
    type = draw(st.sampled_from([INT16, FLOAT32]))
    rows, frames, size = draw(st.sampled_from([(), (1,), (3,)])), draw(st.integers(1, 4)), draw(st.integers(1, 12))
    step = draw(st.integers(1, size))
    model = with_state(draw, type, (*rows, frames, size))
    return model.case("SignalOverlapAdd", [((*rows, frames * step), type, None)], T=int(type), frame_step=step)


@st.composite
def energy(draw: Draw) -> OperatorCase:
    """SignalEnergy of a part of a spectrum; a filter bank behind it takes out that part, for TFLM writes no other."""
    bins = draw(st.integers(2, 40))
    start, end = sorted(draw(st.lists(st.integers(0, bins), min_size=2, max_size=2, unique=True)))
    model = SingleOperator()
    model.drawn(draw, INT16, (2 * bins,))
    energies = model.main.tensor("energies", (bins,), UINT32)
    numbers = custom_options({"start_index": start, "end_index": end})
    model.main.operator("SignalEnergy", model.operands, [energies], custom_options=numbers)
    model.operands = [energies]
    count = end - start
    ones, zeros = np.ones(bins, np.int16), np.zeros(bins, np.int16)
    for array in (ones, zeros, np.r_[start, start:end], np.zeros(count + 1, np.int64), np.r_[0, [1] * count]):
        model.constant(array.astype(np.int16))
    return model.case("SignalFilterBank", [((count,), UINT64, None)], num_channels=count)


@st.composite
def filter_bank(draw: Draw) -> OperatorCase:
    """SignalFilterBank of bands anywhere, constant or not, with weights of either sign."""
    bins, channels, taps = draw(st.integers(1, 30)), draw(st.integers(2, 8)), draw(st.integers(8, 40))
    bands = []
    for _ in range(channels + 1):
        width = draw(st.sampled_from([-1, 0]) | st.integers(1, min(bins, taps, 6)))
        bands.append((draw(st.integers(0, bins - width)), draw(st.integers(0, taps - width)), width))
    model = SingleOperator()
    model.input(UINT32, [magnitudes(draw, UINT32, (bins,))])
    weights = [values(draw, INT16, (taps,)) for _ in range(2)]
    for array in [*weights, *np.array(bands, np.int16).T]:
        model.either(draw, array, INT16)
    count = draw(st.just(channels) | st.integers(1, channels))
    return model.case("SignalFilterBank", [((count,), UINT64, None)], num_channels=channels)


@st.composite
def square_root(draw: Draw) -> OperatorCase:
    """SignalFilterBankSquareRoot of integers of up to 64 bits, next to squares and halves between them."""
    shape = (draw(st.integers(2, 30)),)
    model = SingleOperator()
    model.input(UINT64, [magnitudes(draw, UINT64, shape) >> np.uint64(draw(st.sampled_from([0, 14, 31, 32])))])
    model.either(draw, draw(st.integers(0, 4) | SHIFTS), INT32)
    return model.case("SignalFilterBankSquareRoot", [(shape, UINT32, None)])


@st.composite
def spectral_subtraction(draw: Draw) -> OperatorCase:
    """SignalFilterBankSpectralSubtraction over several invokes."""
    channels = draw(st.integers(1, 20))
    coefficients = st.integers(0, 1 << 14) | st.sampled_from([-1, 2**31 - 1, -(2**31), 0])
    names = ("smoothing", "one_minus_smoothing", "alternate_smoothing", "alternate_one_minus_smoothing")
    numbers: dict[str, Any] = {name: draw(coefficients) for name in (*names, "min_signal_remaining")}
    numbers |= {"smoothing_bits": draw(SHIFTS), "spectral_subtraction_bits": draw(st.just(14) | SHIFTS)}
    numbers |= {"num_channels": channels, "clamping": draw(st.booleans())}
    model = SingleOperator(invokes=draw(st.integers(1, 4)))
    model.input(UINT32, [magnitudes(draw, UINT32, (channels,)) for _ in model.invocations])
    outputs: list[Output] = [((channels,), UINT32, None), ((draw(st.integers(1, channels)),), UINT32, None)]
    return model.case("SignalFilterBankSpectralSubtraction", outputs, **numbers)


@st.composite
def pcan(draw: Draw) -> OperatorCase:
    """SignalPCAN with a table for all estimates, or for some."""
    shape = (draw(st.integers(1, 20)),)
    bits = draw(st.sampled_from([32, 32, 12, 4, 2, 2, 1, 0]))
    model = SingleOperator()
    model.input(UINT32, [magnitudes(draw, UINT32, shape)])
    model.input(UINT32, [magnitudes(draw, UINT32, shape) >> np.uint32(32 - bits)])
    # A table that is too short is read beyond its end by TFLM.
    gains = values(draw, INT16, (max(4 * bits - 3, bits + 1) + draw(st.integers(0, 3)),)) >> draw(st.integers(0, 8))
    model.either(draw, gains, INT16)
    return model.case("SignalPCAN", [(shape, UINT32, None)], snr_shift=draw(SHIFTS))


@st.composite
def filter_bank_log(draw: Draw) -> OperatorCase:
    """SignalFilterBankLog of integers of any size."""
    shape = (draw(st.integers(2, 40)),)
    scale = draw(st.sampled_from([64, 64, 1600, -1, 2**31 - 1, -(2**31)]) | st.integers(0, 2000))
    bits = draw(st.integers(0, 4) | SHIFTS)
    model = SingleOperator()
    model.input(UINT32, [magnitudes(draw, UINT32, shape)])
    outputs: list[Output] = [(shape, INT16, None)]
    return model.case("SignalFilterBankLog", outputs, input_correction_bits=bits, output_scale=scale)


OPERATORS = {
    "SignalDelay": delay(),
    "SignalEnergy": energy(),
    "SignalFftAutoScale": fft_auto_scale(),
    "SignalFilterBank": filter_bank(),
    "SignalFilterBankLog": filter_bank_log(),
    "SignalFilterBankSpectralSubtraction": spectral_subtraction(),
    "SignalFilterBankSquareRoot": square_root(),
    "SignalFramer": framer(),
    "SignalIrfft": irfft(),
    "SignalOverlapAdd": overlap_add(),
    "SignalPCAN": pcan(),
    "SignalRfft": rfft(),
    "SignalStacker": stacker(),
    "SignalWindow": window(),
}

COUNT = 1 << 17
"""Elements of a large tensor."""


def large(operator: str, inputs: list[Any], outputs: list[Any], constants: int = 0, **numbers: Any) -> OperatorCase:
    """A model of one operator, with these values for its inputs; the last ones are constants.

    Args:
        outputs: shape and type of each.
    """
    model = SingleOperator()
    for place, array in enumerate(inputs):
        if place < len(inputs) - constants:
            model.input(TENSOR_TYPES[array.dtype], [array])
        else:
            model.constant(array)
    return model.case(operator, [(*output, None) for output in outputs], **numbers)


def ramp(type: TensorType, *shape: int, highest: int = 1000) -> np.ndarray[Any, Any]:
    """Integers from 0 to below `highest`, over and over."""
    return np.resize(np.arange(highest, dtype=np.int64), shape).astype(ELEMENT_TYPES[type].dtype)


def large_filter_bank() -> OperatorCase:
    """Adjacent bands of 30 bins."""
    starts = ramp(INT16, 1001, highest=1001) * np.int16(30)
    bank = [ramp(INT16, 30030), ramp(INT16, 30030), starts, starts, np.full(1001, 30, np.int16)]
    outputs = [((1000,), UINT64)]
    return large("SignalFilterBank", [ramp(UINT32, 30030), *bank], outputs, constants=5, num_channels=1000)


def large_subtraction() -> OperatorCase:
    """With ordinary coefficients."""
    numbers = dict.fromkeys(("alternate_smoothing", "alternate_one_minus_smoothing", "smoothing"), 800)
    numbers |= {"one_minus_smoothing": 900, "min_signal_remaining": 800, "num_channels": COUNT, "clamping": 1}
    numbers |= {"smoothing_bits": 10, "spectral_subtraction_bits": 14}
    outputs = [((COUNT,), UINT32)] * 2
    return large("SignalFilterBankSpectralSubtraction", [ramp(UINT32, COUNT)], outputs, **numbers)


def large_roots(zeros: int) -> OperatorCase:
    """Of integers that end with this many zero bits."""
    numbers = ramp(UINT64, COUNT) << np.uint64(zeros)
    return large("SignalFilterBankSquareRoot", [numbers, np.array(2, np.int32)], [((COUNT,), UINT32)])


def large_fft_auto_scale(lowest: int) -> OperatorCase:
    """Samples from the lowest one on."""
    samples = ramp(INT16, COUNT) + np.int16(lowest)
    return large("SignalFftAutoScale", [samples], [((COUNT,), INT16), ((), INT32)])


def large_rfft(type: TensorType) -> OperatorCase:
    """Several long rows with zeros behind them."""
    return large("SignalRfft", [ramp(type, 16, 4000)], [((16, 4098), type)], T=int(type), fft_length=4096)


def large_irfft(type: TensorType) -> OperatorCase:
    """Several long rows."""
    return large("SignalIrfft", [ramp(type, 16, 4098)], [((16, 4096), type)], T=int(type), fft_length=4096)


def large_delay() -> OperatorCase:
    """By more than a row."""
    return large("SignalDelay", [ramp(INT16, 2, COUNT // 2)], [((2, COUNT // 2), INT16)], delay_length=COUNT)


def large_framer() -> OperatorCase:
    """Frames of which half overlaps."""
    outputs = [((COUNT // 1024, 2048), INT16), ((), TensorType.BOOL)]
    return large("SignalFramer", [ramp(INT16, COUNT)], outputs, frame_size=2048, frame_step=1024, prefill=1)


def large_stacker() -> OperatorCase:
    """Of two frames."""
    numbers = {"stacker_left_context": 1, "stacker_right_context": 0, "stacker_step": 1, "num_channels": COUNT}
    return large("SignalStacker", [ramp(INT16, COUNT)], [((2 * COUNT,), INT16), ((), TensorType.BOOL)], **numbers)


def large_overlap_add(type: TensorType) -> OperatorCase:
    """Frames of which half overlaps."""
    half = COUNT // 4
    return large("SignalOverlapAdd", [ramp(type, 2, 2 * half)], [((2 * half,), type)], T=int(type), frame_step=half)


def large_pcan() -> OperatorCase:
    """With a table for all estimates."""
    inputs = [ramp(UINT32, COUNT), ramp(UINT32, COUNT), ramp(INT16, 125)]
    return large("SignalPCAN", inputs, [((COUNT,), UINT32)], constants=1, snr_shift=6)


def large_window() -> OperatorCase:
    """Many frames."""
    inputs = [ramp(INT16, 64, 2000), ramp(INT16, 2000)]
    return large("SignalWindow", inputs, [((64, 2000), INT16)], constants=1, shift=12)


def large_energy() -> OperatorCase:
    """All bins but a few."""
    outputs = [((COUNT // 2,), UINT32)]
    return large("SignalEnergy", [ramp(INT16, COUNT)], outputs, start_index=5, end_index=COUNT // 2)


def large_log() -> OperatorCase:
    """Logarithms in ordinary units."""
    outputs = [((COUNT,), INT16)]
    return large("SignalFilterBankLog", [ramp(UINT32, COUNT)], outputs, input_correction_bits=3, output_scale=64)


LARGE = {
    "SignalDelay": large_delay,
    "SignalEnergy": large_energy,
    "SignalFftAutoScale": partial(large_fft_auto_scale, -5),
    "SignalFftAutoScale-lowest": partial(large_fft_auto_scale, -(2**15)),
    "SignalFilterBank": large_filter_bank,
    "SignalFilterBankLog": large_log,
    "SignalFilterBankSpectralSubtraction": large_subtraction,
    "SignalFilterBankSquareRoot": partial(large_roots, 10),
    "SignalFilterBankSquareRoot-large": partial(large_roots, 54),
    "SignalFramer": large_framer,
    "SignalIrfft-FLOAT32": partial(large_irfft, FLOAT32),
    "SignalIrfft-INT16": partial(large_irfft, INT16),
    "SignalIrfft-INT32": partial(large_irfft, INT32),
    "SignalOverlapAdd-FLOAT32": partial(large_overlap_add, FLOAT32),
    "SignalOverlapAdd-INT16": partial(large_overlap_add, INT16),
    "SignalPCAN": large_pcan,
    "SignalRfft-FLOAT32": partial(large_rfft, FLOAT32),
    "SignalRfft-INT16": partial(large_rfft, INT16),
    "SignalRfft-INT32": partial(large_rfft, INT32),
    "SignalStacker": large_stacker,
    "SignalWindow": large_window,
}
