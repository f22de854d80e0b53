"""Which sources this version follows: its answers and its arenas are those of these commits."""

from __future__ import annotations

TFLM_COMMIT = "90b983c2b"
"""Of tensorflow/tflite-micro: structures, requests of the arena, arithmetic."""

TFLM_DATE = "2026-08-20"

TFLM_WHEEL = "0.dev20261023182759"
"""Of the tflite-micro package; where its later arithmetic differs, its answers are followed."""
