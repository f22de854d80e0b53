"""Imports the modules of the families, which fill the registry."""

from __future__ import annotations

from tflm.delegates.flex import elementwise, images, matrices, neural, quantization, reductions, shapes, spectra

IMPORTED = (elementwise, images, matrices, neural, quantization, reductions, shapes, spectra)
