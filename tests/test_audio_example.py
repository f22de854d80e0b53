"""The audio example: a C program makes the same decisions as the package, for any size of the chunks."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from checked_program import SANITIZERS, needs_compiler
from test_emulated_projects import built, called, tree

import tflm

__all__ = ["tree"]

EXAMPLE = Path(__file__).parents[1] / "examples" / "audio"
FRONTEND, KEYWORDS, HOP, STEP = "audio_preprocessor_int8", "micro_speech_quantized", 2, 320


def expected_decisions(models: Path, samples: np.ndarray) -> list[str]:
    """Return the decisions of the streaming form after its warm-up, formatted as by the program."""
    streamed = tflm.stream(tflm.Model.from_file(models / f"{KEYWORDS}.tflite"), hop=HOP)
    frontend, network = (
        tflm.MicroInterpreter(model, tflm.AllOpsResolver(), bytearray(1 << 16))
        for model in (tflm.Model.from_file(models / f"{FRONTEND}.tflite"), streamed.model)
    )
    frontend.allocate_tensors()
    network.allocate_tensors()
    frames, decisions = [], []
    for first in range(0, samples.size - 480 + 1, STEP):
        frontend.input(0).data[...] = samples[first : first + 480]
        frontend.invoke()
        frames.append(np.array(frontend.output(0).data))
        if len(frames) % HOP:
            continue
        network.input(0).data[...] = np.concatenate(frames[-HOP:])
        network.invoke()
        scores = np.array(network.output(0).data).reshape(-1)
        if len(frames) // HOP >= streamed.warm_up:
            name = ("silence", "unknown", "yes", "no")[int(scores.argmax())]
            decisions.append(f"{(first + 480) / 16000:6.2f} s  {name:<7}  {(int(scores.max()) + 128) / 256:.3f}")
    return decisions


@pytest.fixture
def samples() -> np.ndarray:
    """Two seconds of a rising tone that comes and goes."""
    time = np.arange(2 * 16000) / 16000
    return (8000 * np.sin(2 * np.pi * (200 + 300 * time) * time) * (np.sin(9 * time) > 0)).astype("<i2")


@needs_compiler
def test_chunks_of_any_size_get_the_same_decisions(corpus: Path, samples: np.ndarray, tmp_path: Path) -> None:
    models = corpus / "models"
    for name, hop in ((FRONTEND, None), (KEYWORDS, HOP)):
        short = "frontend" if hop is None else "keywords"
        tflm.compile_model(tflm.Model.from_file(models / f"{name}.tflite"), short, stream=hop).write(tmp_path)
    sources = [EXAMPLE / name for name in ("decide.c", "compiled.c", "main.c")]
    generated = [tmp_path / "frontend.c", tmp_path / "keywords.c"]
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", *SANITIZERS, f"-I{EXAMPLE}", f"-I{tmp_path}"]
    subprocess.run(["cc", *flags, *sources, *generated, "-o", tmp_path / "decide", "-lm"], check=True)
    expected = expected_decisions(models, samples)
    assert len(expected) > 20
    for chunk in (7, 320, 481, 4096):
        call = [tmp_path / "decide", str(chunk)]
        ran = subprocess.run(call, input=samples.tobytes(), capture_output=True, check=True)
        assert ran.stdout.decode().splitlines() == expected


def test_firmware_with_interpreters_gets_the_same_decisions(
    tree: Path, corpus: Path, samples: np.ndarray, tmp_path: Path
) -> None:
    """`make projects` builds it with TFLM's sources, and runs it under emulation."""
    models, clip = corpus.resolve() / "models", tmp_path / "clip.raw"
    clip.write_bytes(samples.tobytes())
    values = {"FRONTEND": models / f"{FRONTEND}.tflite", "KEYWORDS": models / f"{KEYWORDS}.tflite", "CLIP": clip}
    values |= {"BUILD": tmp_path, "TFLM": f"{sys.executable} -m tflm"}
    called("make", "-C", EXAMPLE, "firmware", *(f"{name}={value}" for name, value in values.items()))
    image = built(tmp_path / "firmware", tree, "cortex-m3-reference")
    shown = called("qemu-system-arm", "-M", "mps2-an385", "-nographic", "-semihosting", "-kernel", image)
    names = ("silence", "unknown", "yes", "no")
    found = re.findall(r"(\d+) ms, keyword (\d+), score (\d+)", shown)
    decisions = [f"{int(ms) / 1000:6.2f} s  {names[int(i)]:<7}  {int(score) / 256:.3f}" for ms, i, score in found]
    assert decisions == expected_decisions(models, samples)
