"""Fourier transforms over the innermost dimensions, and spectrograms; computed in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np

from tflm.delegates.flex.registry import FLOAT32, OPERATORS, Array, ints, operator, require

COMPLEX64 = np.dtype(np.complex64)


def _add_transforms(suffix: str, rank: int) -> None:
    """Add the transforms over the last `rank` dimensions."""
    axes = range(-rank, 0)

    def real(x: Array, length: Array, *, Tcomplex: np.dtype[Any] = COMPLEX64) -> Array:  # noqa: N803
        return np.fft.rfftn(x.astype(np.float64), ints(length), axes).astype(Tcomplex)

    def inverse_real(x: Array, length: Array, *, Treal: np.dtype[Any] = FLOAT32) -> Array:  # noqa: N803
        return np.fft.irfftn(x.astype(np.complex128), ints(length), axes).astype(Treal)

    OPERATORS[f"FFT{suffix}"] = lambda x: np.fft.fftn(x.astype(np.complex128), axes=axes).astype(x.dtype)
    OPERATORS[f"IFFT{suffix}"] = lambda x: np.fft.ifftn(x.astype(np.complex128), axes=axes).astype(x.dtype)
    OPERATORS[f"RFFT{suffix}"], OPERATORS[f"IRFFT{suffix}"] = real, inverse_real


for _suffix, _rank in {"": 1, "2D": 2, "3D": 3}.items():
    _add_transforms(_suffix, _rank)
OPERATORS.update({f"Batch{name}": OPERATORS[name] for name in ("FFT", "IFFT", "FFT2D", "IFFT2D", "FFT3D", "IFFT3D")})


@operator("AudioSpectrogram")
def _audio_spectrogram(x: Array, *, window_size: int, stride: int, magnitude_squared: bool = False) -> Array:
    """Magnitudes over windows of a Hann curve, padded to a power of two: [channels, windows, frequencies]."""
    require(x.ndim == 2 and len(x) >= window_size > 1, f"takes [samples, channels], at least {window_size} samples")
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window_size, dtype=np.int64) / window_size)
    windows = np.lib.stride_tricks.sliding_window_view(x.T.astype(np.float64), window_size, axis=1)[:, ::stride]
    spectrum = abs(np.fft.rfft(windows * hann, 1 << (window_size - 1).bit_length()))
    return (spectrum**2 if magnitude_squared else spectrum).astype(np.float32)
