"""The `tflite-micro` package for Python: TFLM with support for compressed weights, built from a more recent source."""

from __future__ import annotations

from types import MappingProxyType

from tflm.kernels.reference.fully_connected import TFLITE_FULLY_CONNECTED_PARAMS
from tflm.libraries.kernel_library import Release
from tflm.release import TFLM_WHEEL
from tflm.targets import POINTER, Array

WHEEL = Release(
    f"TFLM of the tflite-micro package {TFLM_WHEEL}",
    structures=MappingProxyType(
        {
            TFLITE_FULLY_CONNECTED_PARAMS.name: TFLITE_FULLY_CONNECTED_PARAMS.extend(
                TFLITE_FULLY_CONNECTED_PARAMS.name, extension=Array(POINTER, 2)
            )
        }
    ),
    options=frozenset({"compression"}),
    recording=True,
)
