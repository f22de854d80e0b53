"""Arena, instructions and flash of each operator for several kernel libraries, as `make figures` recorded them."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
from large_operators import LARGE

import tflm

RECORDED = Path(__file__).with_name("recorded") / "operator_figures.json"
RESOLVER = tflm.AllOpsResolver()

BUILDS: dict[str, dict[str, Any]] = {
    "cmsis-nn on cortex-m4": {"kernels": "cmsis-nn", "target": "cortex-m4"},
    "cmsis-nn:size on cortex-m55": {"kernels": "cmsis-nn:size", "target": "cortex-m55"},
    "esp-nn on esp32s3": {"kernels": "esp-nn", "target": "esp32s3"},
}

model = functools.cache(lambda name: tflm.Model(LARGE[name]()[0]))


def figures(build: dict[str, Any], name: str) -> list[Any]:
    """Head, tail and smallest arena, instructions and guessed ones, and the flash of the operator; or a refusal."""
    try:
        measured = tflm.measure_arena(model(name), RESOLVER, **build)
    except tflm.TflmError as error:
        return [type(error).__name__]
    found: list[Any] = [measured.head_bytes, measured.tail_bytes, measured.minimum_arena_bytes]
    for work in (_instructions, _flash):
        try:
            found += work(model(name), build)
        except tflm.TflmError as error:
            found.append(type(error).__name__)
    return found


def _instructions(model: tflm.Model, build: dict[str, Any]) -> list[Any]:
    estimate = tflm.estimate(model, **build)
    return [estimate.instructions, round(estimate.covered, 6), estimate.milliseconds]


def _flash(model: tflm.Model, build: dict[str, Any]) -> list[Any]:
    flash = tflm.flash(model, **build)
    return [flash.flash_bytes, flash.bss_bytes, flash.stack_bytes]


@pytest.mark.parametrize("build", BUILDS)
def test_figures_are_those_that_were_recorded(build: str) -> None:
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))[build]
    assert {name: figures(BUILDS[build], name) for name in LARGE} == recorded


if __name__ == "__main__":
    lines = (
        f"{json.dumps(build)}: {{\n"
        + ",\n".join(f"{json.dumps(name)}: {json.dumps(figures(BUILDS[build], name))}" for name in LARGE)
        + "\n}"
        for build in BUILDS
    )
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
