"""Models of the signal operators."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from flatbuffers import flexbuffers
from hypothesis import strategies as st

from tflm.schema import ELEMENT_TYPES, TENSOR_TYPES, BuiltinOperator, ModelBuilder, SubgraphBuilder, TensorType
from tflm.testing.drawing import FLOAT32, INT16, INT32, Draw, OperatorCase, values

UINT32, UINT64 = TensorType.UINT32, TensorType.UINT64

SHIFTS = st.integers(0, 15) | st.sampled_from([16, 31, 32, 40, 64, 70, -1])
"""Counts of shifts; beyond the number of bits, as x86 has it."""

LENGTHS = st.sampled_from([4, 8, 16, 32, 64, 128, 256, 512, 6, 10, 12, 18, 20, 24, 30, 36, 50, 60, 90, 100, 150, 480])
"""Lengths of transforms: twice products of 2, 3 and 5."""


def options(**numbers: Any) -> bytes:
    """Custom options."""
    return bytes(flexbuffers.Dumps(numbers))


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


def input_or_constant(
    draw: Draw, main: SubgraphBuilder, inputs: list[Any], name: str, array: np.ndarray[Any, Any]
) -> int:
    """A tensor with these values, which are added to the inputs if they are not the model's own."""
    if draw(st.booleans()):
        return main.constant(name, array)
    inputs.append(array)
    return main.input(name, array.shape, TENSOR_TYPES[array.dtype])


@st.composite
def window(draw: Draw) -> OperatorCase:
    """SignalWindow over one or more frames."""
    length, frames = draw(st.integers(1, 40)), draw(st.sampled_from([(), (1,), (3,), (2, 2)]))
    shape = (*frames, length) if draw(st.booleans()) else (*frames[:-1], math.prod(frames[-1:]) * length)
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", shape, INT16)
    inputs = [values(draw, INT16, shape)]
    weights = values(draw, INT16, (length,)) >> draw(st.integers(0, 4))
    w = input_or_constant(draw, main, inputs, "w", weights)
    y = main.tensor("y", shape, INT16)
    main.operator("SignalWindow", [x, w], [y], custom_options=options(shift=draw(SHIFTS)))
    main.output(y)
    return builder.build(), [inputs]


@st.composite
def fft_auto_scale(draw: Draw) -> OperatorCase:
    """SignalFftAutoScale of samples of any size, the lowest one among them at times."""
    shape = (draw(st.integers(1, 40)),)
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", shape, INT16)
    y, scale = main.tensor("y", shape, INT16), main.tensor("scale", (), TensorType.INT32)
    main.operator("SignalFftAutoScale", [x], [y, scale])
    main.output(y, scale)
    samples = values(draw, INT16, shape) >> draw(st.integers(0, 16))
    for index in draw(st.lists(st.integers(0, shape[0] - 1), max_size=2)):
        samples[index] = -(2**15)
    return builder.build(), [[samples]]


@st.composite
def rfft(draw: Draw) -> OperatorCase:
    """SignalRfft of one or more rows, with zeros behind them at times."""
    type, length = draw(st.sampled_from([INT16, INT32, FLOAT32])), draw(LENGTHS)
    rows = draw(st.sampled_from([(), (1,), (3,), (2, 2)]))
    shape = (*rows, draw(st.just(length) | st.integers(1, length)))
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", shape, type)
    y = main.tensor("y", (*rows, length + 2), type)
    main.operator("SignalRfft", [x], [y], custom_options=options(T=int(type), fft_length=length))
    main.output(y)
    samples = values(draw, type, shape)
    return builder.build(), [[samples if type == FLOAT32 else samples >> draw(st.sampled_from([0, 0, 1, 4, 12]))]]


@st.composite
def irfft(draw: Draw) -> OperatorCase:
    """SignalIrfft of one or more rows, with bins behind them at times that do not count."""
    type, length = draw(st.sampled_from([INT16, INT32, FLOAT32])), draw(LENGTHS)
    rows = draw(st.sampled_from([(), (1,), (3,), (2, 2)]))
    shape = (*rows, length + 2 + 2 * draw(st.sampled_from([0, 0, 1, 5])))
    builder = ModelBuilder()
    main = builder.subgraph()
    x, y = main.input("x", shape, type), main.tensor("y", (*rows, length), type)
    main.operator("SignalIrfft", [x], [y], custom_options=options(T=int(type), fft_length=length))
    main.output(y)
    spectrum = values(draw, type, shape)
    return builder.build(), [[spectrum if type == FLOAT32 else spectrum >> draw(st.sampled_from([0, 0, 1, 4, 12]))]]


def several(draw: Draw, type: TensorType, shape: tuple[int, ...]) -> list[list[np.ndarray[Any, Any]]]:
    """Inputs of several invokes."""
    return [[values(draw, type, shape)] for _ in range(draw(st.integers(1, 6)))]


@st.composite
def delay(draw: Draw) -> OperatorCase:
    """SignalDelay by less or more than a frame, over several invokes."""
    shape = (*draw(st.sampled_from([(), (1,), (3,), (2, 2)])), draw(st.integers(1, 12)))
    builder = ModelBuilder()
    main = builder.subgraph()
    x, y = main.input("x", shape, INT16), main.tensor("y", shape, INT16)
    main.operator("SignalDelay", [x], [y], custom_options=options(delay_length=draw(st.integers(0, 30))))
    main.output(y)
    return builder.build(), several(draw, INT16, shape)


def output_if_valid(main: SubgraphBuilder, y: int, valid: int, shape: tuple[int, ...]) -> None:
    """Zeros instead of an output that is not valid: TFLM leaves there whatever was."""
    result = main.tensor("result", shape, INT16)
    zeros = main.constant("zeros", np.zeros(shape, np.int16))
    main.operator(BuiltinOperator.SELECT_V2, [valid, y, zeros], [result])
    main.output(result, valid)


@st.composite
def framer(draw: Draw) -> OperatorCase:
    """SignalFramer of frames that overlap, or that leave samples out, over several invokes."""
    rows, step, frames = draw(st.sampled_from([(), (1,), (3,)])), draw(st.integers(1, 8)), draw(st.integers(1, 4))
    size = draw(st.integers(1, 20))
    prefill = draw(st.booleans()) and size >= step
    shape, framed = (*rows, frames * step), (*rows, frames, size)
    builder = ModelBuilder()
    main = builder.subgraph()
    x, y, valid = main.input("x", shape, INT16), main.tensor("y", framed, INT16), main.tensor("v", (), TensorType.BOOL)
    custom_options = options(frame_size=size, frame_step=step, prefill=prefill)
    main.operator("SignalFramer", [x], [y, valid], custom_options=custom_options)
    output_if_valid(main, y, valid, framed)
    return builder.build(), several(draw, INT16, shape)


@st.composite
def stacker(draw: Draw) -> OperatorCase:
    """SignalStacker of frames before and behind, over several invokes."""
    channels, left, right = draw(st.integers(1, 6)), draw(st.integers(0, 4)), draw(st.integers(0, 4))
    size = channels * (left + right + 1)
    step = draw(st.integers(1, left + right + 1))
    builder = ModelBuilder()
    main = builder.subgraph()
    x, y = main.input("x", (channels,), INT16), main.tensor("y", (size,), INT16)
    valid = main.tensor("v", (), TensorType.BOOL)
    numbers = {"stacker_left_context": left, "stacker_right_context": right, "stacker_step": step}
    custom_options = options(num_channels=channels, **numbers)
    main.operator("SignalStacker", [x], [y, valid], custom_options=custom_options)
    output_if_valid(main, y, valid, (size,))
    return builder.build(), several(draw, INT16, (channels,))


@st.composite
def overlap_add(draw: Draw) -> OperatorCase:
    """SignalOverlapAdd of frames at any step, over several invokes."""
    type = draw(st.sampled_from([INT16, FLOAT32]))
    rows, frames, size = draw(st.sampled_from([(), (1,), (3,)])), draw(st.integers(1, 4)), draw(st.integers(1, 12))
    step = draw(st.integers(1, size))
    shape = (*rows, frames, size)
    builder = ModelBuilder()
    main = builder.subgraph()
    x, y = main.input("x", shape, type), main.tensor("y", (*rows, frames * step), type)
    main.operator("SignalOverlapAdd", [x], [y], custom_options=options(T=int(type), frame_step=step))
    main.output(y)
    return builder.build(), several(draw, type, shape)


@st.composite
def energy(draw: Draw) -> OperatorCase:
    """SignalEnergy of a part of a spectrum; a filter bank behind it takes out that part, for TFLM writes no other."""
    bins = draw(st.integers(2, 40))
    start, end = sorted(draw(st.lists(st.integers(0, bins), min_size=2, max_size=2, unique=True)))
    builder = ModelBuilder()
    main = builder.subgraph()
    x, energies = main.input("x", (2 * bins,), INT16), main.tensor("energies", (bins,), UINT32)
    main.operator("SignalEnergy", [x], [energies], custom_options=options(start_index=start, end_index=end))
    count = end - start
    ones, zeros = np.ones(bins, np.int16), np.zeros(bins, np.int16)
    numbers = [ones, zeros, np.r_[start, start:end], np.zeros(count + 1, np.int64), np.r_[0, [1] * count]]
    bank = [main.constant(f"bank {i}", array.astype(np.int16)) for i, array in enumerate(numbers)]
    y = main.tensor("y", (count,), UINT64)
    main.operator("SignalFilterBank", [energies, *bank], [y], custom_options=options(num_channels=count))
    main.output(y)
    return builder.build(), [[values(draw, INT16, (2 * bins,))]]


@st.composite
def filter_bank(draw: Draw) -> OperatorCase:
    """SignalFilterBank of bands anywhere, constant or not, with weights of either sign."""
    bins, channels, taps = draw(st.integers(1, 30)), draw(st.integers(2, 8)), draw(st.integers(8, 40))
    bands = []
    for _ in range(channels + 1):
        width = draw(st.sampled_from([-1, 0]) | st.integers(1, min(bins, taps, 6)))
        bands.append((draw(st.integers(0, bins - width)), draw(st.integers(0, taps - width)), width))
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (bins,), UINT32)
    inputs = [magnitudes(draw, UINT32, (bins,))]
    arrays = [values(draw, INT16, (taps,)) for _ in range(2)] + [np.array(numbers, np.int16) for numbers in zip(*bands)]
    bank = [input_or_constant(draw, main, inputs, f"bank {i}", array) for i, array in enumerate(arrays)]
    y = main.tensor("y", (draw(st.just(channels) | st.integers(1, channels)),), UINT64)
    main.operator("SignalFilterBank", [x, *bank], [y], custom_options=options(num_channels=channels))
    main.output(y)
    return builder.build(), [inputs]


@st.composite
def square_root(draw: Draw) -> OperatorCase:
    """SignalFilterBankSquareRoot of integers of up to 64 bits, next to squares and halves between them."""
    shape = (draw(st.integers(2, 30)),)
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", shape, UINT64)
    inputs = [magnitudes(draw, UINT64, shape) >> np.uint64(draw(st.sampled_from([0, 14, 31, 32])))]
    bits = input_or_constant(draw, main, inputs, "bits", np.array(draw(st.integers(0, 4) | SHIFTS), np.int32))
    y = main.tensor("y", shape, UINT32)
    main.operator("SignalFilterBankSquareRoot", [x, bits], [y], custom_options=options())
    main.output(y)
    return builder.build(), [inputs]


@st.composite
def spectral_subtraction(draw: Draw) -> OperatorCase:
    """SignalFilterBankSpectralSubtraction over several invokes."""
    channels = draw(st.integers(1, 20))
    bits = draw(st.just(14) | SHIFTS)
    coefficients = st.integers(0, 1 << 14) | st.sampled_from([-1, 2**31 - 1, -(2**31), 0])
    names = ("smoothing", "one_minus_smoothing", "alternate_smoothing", "alternate_one_minus_smoothing")
    numbers = {name: draw(coefficients) for name in (*names, "min_signal_remaining")}
    numbers |= {"smoothing_bits": draw(SHIFTS), "spectral_subtraction_bits": bits, "num_channels": channels}
    builder = ModelBuilder()
    main = builder.subgraph()
    x, y = main.input("x", (channels,), UINT32), main.tensor("y", (channels,), UINT32)
    noise = main.tensor("noise", (draw(st.integers(1, channels)),), UINT32)
    clamping = draw(st.booleans())
    custom_options = options(**dict(sorted({**numbers, "clamping": clamping}.items())))
    main.operator("SignalFilterBankSpectralSubtraction", [x], [y, noise], custom_options=custom_options)
    main.output(y, noise)
    return builder.build(), [[magnitudes(draw, UINT32, (channels,))] for _ in range(draw(st.integers(1, 4)))]


@st.composite
def pcan(draw: Draw) -> OperatorCase:
    """SignalPCAN with a table for all estimates, or for some."""
    channels = draw(st.integers(1, 20))
    builder = ModelBuilder()
    main = builder.subgraph()
    x, noise = main.input("x", (channels,), UINT32), main.input("noise", (channels,), UINT32)
    bits = draw(st.sampled_from([32, 32, 12, 4, 2, 2, 1, 0]))
    estimates = magnitudes(draw, UINT32, (channels,)) >> np.uint32(32 - bits)
    inputs = [magnitudes(draw, UINT32, (channels,)), estimates]
    # A table that is too short is read beyond its end by TFLM.
    gains = values(draw, INT16, (max(4 * bits - 3, bits + 1) + draw(st.integers(0, 3)),)) >> draw(st.integers(0, 8))
    lut = input_or_constant(draw, main, inputs, "lut", gains)
    y = main.tensor("y", (channels,), UINT32)
    main.operator("SignalPCAN", [x, noise, lut], [y], custom_options=options(snr_shift=draw(SHIFTS)))
    main.output(y)
    return builder.build(), [inputs]


@st.composite
def filter_bank_log(draw: Draw) -> OperatorCase:
    """SignalFilterBankLog of integers of any size."""
    shape = (draw(st.integers(2, 40)),)
    scale = draw(st.sampled_from([64, 64, 1600, -1, 2**31 - 1, -(2**31)]) | st.integers(0, 2000))
    builder = ModelBuilder()
    main = builder.subgraph()
    x, y = main.input("x", shape, UINT32), main.tensor("y", shape, INT16)
    custom_options = options(input_correction_bits=draw(st.integers(0, 4) | SHIFTS), output_scale=scale)
    main.operator("SignalFilterBankLog", [x], [y], custom_options=custom_options)
    main.output(y)
    return builder.build(), [[magnitudes(draw, UINT32, shape)]]


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


def large(operator: str, inputs: list[Any], outputs: list[Any], constants: int = 0, **numbers: int) -> OperatorCase:
    """A model of one operator, with these values for its inputs; the last ones are constants.

    Args:
        outputs: shape and type of each.
    """
    builder = ModelBuilder()
    main = builder.subgraph()
    given = inputs[: len(inputs) - constants]
    tensors = [main.input(f"x{i}", array.shape, TENSOR_TYPES[array.dtype]) for i, array in enumerate(given)]
    tensors += [main.constant(f"c{i}", array) for i, array in enumerate(inputs[len(given) :])]
    results = [main.tensor(f"y{i}", *output) for i, output in enumerate(outputs)]
    main.operator(operator, tensors, results, custom_options=options(**dict(sorted(numbers.items()))))
    main.output(*results)
    return builder.build(), [given]


def ramp(type: TensorType, *shape: int, highest: int = 1000) -> np.ndarray[Any, Any]:
    """Integers from 0 to below `highest`, over and over."""
    return np.resize(np.arange(highest, dtype=np.int64), shape).astype(ELEMENT_TYPES[type].dtype)


def large_filter_bank() -> OperatorCase:
    """Bands of 30 bins beside each other."""
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
    """Of integers with so many zero bits at the end."""
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
