"""The commits of TFLM whose results and arenas this version reproduces."""

from __future__ import annotations

TFLM_COMMIT = "90b983c2b"
"""The commit of tensorflow/tflite-micro for structures, arena requests and arithmetic."""

TFLM_DATE = "2026-08-20"

TFLM_WHEEL = "0.dev20261023182759"
"""The commit of the tflite-micro package, whose results are used where its later arithmetic differs."""
