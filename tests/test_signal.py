"""Signal operators: what they ask of the arena, and their state after a reset."""

from __future__ import annotations

import numpy as np
import pytest
from differential import assert_close, measured_figures, printed_figures
from hypothesis import given
from hypothesis import strategies as st
from models import Case
from oracle import Oracle

import tflm
from tflm.kernels.reference.signal import kiss_fft
from tflm.testing.operators import signal

CASES = st.one_of(*signal.OPERATORS.values())


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


LENGTHS = st.sampled_from([4, 6, 8, 10, 12, 16, 18, 20, 30, 50, 60, 64, 90, 250, 256])


@given(length=LENGTHS, seed=st.integers(0, 2**32 - 1))
@pytest.mark.parametrize("scalar", [kiss_fft.INT16, kiss_fft.INT32, kiss_fft.FLOAT32])
def test_transforms_are_fourier_transforms(scalar: kiss_fft.Scalar, length: int, seed: int) -> None:
    """Of fixed-point numbers they are divided by their length, and each stage rounds."""
    one = 2**scalar.fraction_bits
    x = (np.random.default_rng(seed).uniform(-0.9, 0.9, (3, length)) * one).astype(scalar.dtype)
    divisor = length if scalar.fraction_bits else 1
    tolerance = 16 / one if scalar.fraction_bits else 1e-4
    spectra = kiss_fft.KissFftrConfig(scalar, length // 2, inverse=False).kiss_fftr(x)
    expected = np.fft.rfft(x / one) / divisor
    np.testing.assert_allclose(spectra[..., 0] / one, expected.real, atol=tolerance)
    np.testing.assert_allclose(spectra[..., 1] / one, expected.imag, atol=tolerance)
    values = kiss_fft.KissFftrConfig(scalar, length // 2, inverse=True).kiss_fftri(spectra)
    expected = np.fft.irfft(spectra[..., 0] + 1j * spectra[..., 1], length) * (1 if scalar.fraction_bits else length)  # type: ignore[assignment]
    np.testing.assert_allclose(values / one, expected / one, atol=tolerance)
