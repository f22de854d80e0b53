"""The models of the hello world."""

from __future__ import annotations

from pathlib import Path

EXAMPLE = Path(__file__).parents[1] / "examples" / "hello_world"
INT8_MODEL, FLOAT_MODEL = EXAMPLE / "hello_world_int8.tflite", EXAMPLE / "hello_world_float.tflite"
