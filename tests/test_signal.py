"""Signal operators: their arena requests, and their state after a reset."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from differential import assert_close, measured_figures, printed_figures, run
from flatbuffers import flexbuffers
from hypothesis import given
from hypothesis import strategies as st
from large_operators import LARGE
from models import Case
from oracle import Oracle

import tflm
from tflm.kernels.reference.signal import fft
from tflm.schema import ModelBuilder, TensorType, read_model
from tflm.schema.writer import write_model
from tflm.testing.operators import OPERATORS

CASES = st.one_of(*(strategy for name, strategy in OPERATORS.items() if name.startswith("Signal")))


@given(case=CASES)
def test_they_take_what_the_wheel_says(oracle: Oracle, case: Case) -> None:
    model, _ = case
    assert measured_figures(model) == printed_figures(oracle.allocations(model))


@given(case=CASES)
def test_they_start_over_after_a_reset(case: Case) -> None:
    model, invocations = case
    interpreter = tflm.MicroInterpreter(tflm.Model(model), tflm.AllOpsResolver(), bytearray(1 << 20))
    interpreter.allocate_tensors()
    runs = []
    for _ in range(2):
        outputs = []
        for inputs in invocations:
            for i, values in enumerate(inputs):
                interpreter.input(i).data[...] = values
            interpreter.invoke()
            outputs += [np.array(interpreter.output(i).data) for i in range(interpreter.outputs_size())]
        runs.append(outputs)
        interpreter.reset()
    assert_close(runs[1], runs[0])


@pytest.mark.parametrize("delegates", [(), None], ids=["numpy", "engine"])
@pytest.mark.parametrize("type", [TensorType.INT16, TensorType.FLOAT32])
def test_samples_beyond_the_added_frames_are_zero(type: TensorType, delegates: Any) -> None:
    """Whatever the arena held before; TFLM leaves them as they are."""
    builder = ModelBuilder()
    main = builder.subgraph()
    x, y = main.input("x", (2, 3, 4), type), main.tensor("y", (2, 8), type)
    options = bytes(flexbuffers.Dumps({"T": int(type), "frame_step": 2}))
    main.operator("SignalOverlapAdd", [x], [y], custom_options=options)
    main.output(y)
    interpreter = tflm.MicroInterpreter(
        tflm.Model(builder.build()), tflm.AllOpsResolver(), bytearray(1 << 12), delegates=delegates
    )
    interpreter.allocate_tensors()
    interpreter.output(0).data[...] = 77
    interpreter.input(0).data[...] = 1
    interpreter.invoke()
    added = interpreter.output(0).data.reshape(-1)
    assert added.tolist() == [1, 1, 2, 2, 2, 2] * 2 + [0] * 4


@pytest.mark.parametrize("delegates", [(), None], ids=["numpy", "engine"])
@pytest.mark.parametrize("zeros", range(5))
@pytest.mark.parametrize(
    ("samples", "bits"),
    [
        ([0], 0),
        ([1], 14),
        ([-1], 14),
        ([3, -2], 13),
        ([16383, -16383], 1),
        ([-16384], 0),
        ([32767], 0),
        ([-32768], 0),
        ([1000, -32768, 1], 14),
        ([-32768, -5], 0),
        ([-32768, -5, -5], 12),
        ([-32768, -7, -5, 1, -32768, 2, -1], 13),
    ],
)
def test_samples_are_scaled_by_the_largest_one(samples: list[int], bits: int, zeros: int, delegates: Any) -> None:
    """The absolute value of -32768 wraps to itself, so that any other sample after it replaces it, with its sign."""
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (zeros + len(samples),), TensorType.INT16)
    y = main.tensor("y", (zeros + len(samples),), TensorType.INT16)
    scale = main.tensor("scale", (), TensorType.INT32)
    main.operator("SignalFftAutoScale", [x], [y, scale])
    main.output(y, scale)
    given = np.array([0] * zeros + samples, np.int16)
    [(scaled, found)] = run(builder.build(), [[given]], delegates=delegates)
    assert int(found) == bits
    assert np.asarray(scaled).tolist() == (given << bits).tolist()


@pytest.mark.parametrize("delegates", [(), None], ids=["numpy", "engine"])
def test_a_table_has_gains_up_to_an_estimate(delegates: Any) -> None:
    """A gain for 0, 1 and 2; from 3 on three of the four entries of each number of bits, which begin with that of 2."""
    for size, estimate in itertools.product(range(1, 12), range(10)):
        builder = ModelBuilder()
        main = builder.subgraph()
        x, noise = (main.input(name, (1,), TensorType.UINT32) for name in ("x", "noise"))
        gains = main.constant("gains", np.arange(size, dtype=np.int16))
        y = main.tensor("y", (1,), TensorType.UINT32)
        options = bytes(flexbuffers.Dumps({"snr_shift": 6}))
        main.operator("SignalPCAN", [x, noise, gains], [y], custom_options=options)
        main.output(y)
        values = [np.ones(1, np.uint32), np.full(1, estimate, np.uint32)]
        entries = estimate + 1 if estimate < 3 else 2 + 4 * (estimate.bit_length() - 2) + 3
        if entries > size:
            with pytest.raises(tflm.OperatorError, match="has no gain for a noise estimate"):
                run(builder.build(), [values], delegates=delegates)
        else:
            run(builder.build(), [values], delegates=delegates)


LENGTHS = st.sampled_from([4, 6, 8, 10, 12, 16, 18, 20, 30, 50, 60, 64, 90, 250, 256])


@given(length=LENGTHS, seed=st.integers(0, 2**32 - 1))
@pytest.mark.parametrize("scalar", [fft.INT16, fft.INT32, fft.FLOAT32])
def test_transforms_are_fourier_transforms(scalar: fft.Scalar, length: int, seed: int) -> None:
    """Fixed-point results are divided by the length, and each stage rounds."""
    one = 2**scalar.fraction_bits
    x = (np.random.default_rng(seed).uniform(-0.9, 0.9, (3, length)) * one).astype(scalar.dtype)
    divisor = length if scalar.fraction_bits else 1
    tolerance = 16 / one if scalar.fraction_bits else 1e-4
    spectra = fft.KissFftrConfig(scalar, length // 2, inverse=False).kiss_fftr(x)
    expected = np.fft.rfft(x / one) / divisor
    np.testing.assert_allclose(spectra[..., 0] / one, expected.real, atol=tolerance)
    np.testing.assert_allclose(spectra[..., 1] / one, expected.imag, atol=tolerance)
    values = fft.KissFftrConfig(scalar, length // 2, inverse=True).kiss_fftri(spectra)
    expected = np.fft.irfft(spectra[..., 0] + 1j * spectra[..., 1], length) * (1 if scalar.fraction_bits else length)  # type: ignore[assignment]
    np.testing.assert_allclose(values / one, expected / one, atol=tolerance)


@pytest.mark.parametrize("table", [3, 4, 5], ids=["frequencies", "weights", "widths"])
def test_constant_bands_outside_of_the_spectrum_or_the_weights_are_refused_at_once(table: int) -> None:
    """Bands that are an input are looked at in each invoke."""
    data, _ = LARGE["SignalFilterBank"]()
    root = read_model(memoryview(data))
    (main, *_) = root.subgraphs or ()
    (operator, *_) = main.operators or ()
    tensor = (main.tensors or [])[(operator.inputs or ())[table]]
    tflm.measure_arena(tflm.Model(data), tflm.AllOpsResolver())
    buffer = (root.buffers or [])[tensor.buffer]
    buffer.data = np.full(tensor.shape, 32767, np.int16).tobytes()
    with pytest.raises(tflm.OperatorError, match="lies outside of"):
        tflm.measure_arena(tflm.Model(write_model(root)), tflm.AllOpsResolver())
