"""Real models: TFLM's recorded answers over successive invokes, state, and memory taken while running."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from differential import assert_close, run
from models import Arrays
from test_arena import corpus_models
from working_memory import TRANSIENT_LIMIT, numpy_transient_limit, transient_and_growth

import tflm
from tflm.delegates import default_delegates

NAMES = corpus_models()


def recorded(corpus: Path, name: str) -> tuple[list[Arrays], list[Arrays]]:
    """Inputs and outputs of successive invokes."""
    golden = np.load(corpus / "golden" / f"{name}.npz")
    steps = len({key.split("_")[1] for key in golden})

    def arrays(side: str, step: int) -> Arrays:
        count = sum(key.startswith(f"{side}_{step}_") for key in golden)
        return [golden[f"{side}_{step}_{i}"] for i in range(count)]

    return [arrays("in", step) for step in range(steps)], [arrays("out", step) for step in range(steps)]


def ready(corpus: Path, name: str) -> tflm.MicroInterpreter:
    model = tflm.Model.from_file(corpus / "models" / f"{name}.tflite")
    interpreter = tflm.MicroInterpreter(model, tflm.AllOpsResolver(), bytearray(1 << 20))
    interpreter.allocate_tensors()
    return interpreter


def test_every_model_is_here(corpus: Path) -> None:
    assert len(NAMES) == 61


@pytest.mark.parametrize("name", NAMES)
def test_recorded_outputs_are_reproduced(corpus: Path, name: str) -> None:
    inputs, outputs = recorded(corpus, name)
    model = (corpus / "models" / f"{name}.tflite").read_bytes()
    for actual, expected in zip(run(model, inputs), outputs, strict=True):
        assert_close(actual, expected)


@pytest.mark.parametrize("name", NAMES)
def test_a_model_starts_over_after_reset(corpus: Path, name: str) -> None:
    inputs, outputs = recorded(corpus, name)
    interpreter = ready(corpus, name)
    for _ in range(2):
        for arrays, expected in zip(inputs, outputs, strict=True):
            for i, values in enumerate(arrays):
                interpreter.input(i).data[...] = values
            interpreter.invoke()
            assert_close([np.array(interpreter.output(i).data) for i in range(len(expected))], expected)
        interpreter.reset()


@pytest.mark.parametrize("name", NAMES)
def test_invokes_take_little_working_memory_and_leave_none_behind(corpus: Path, name: str) -> None:
    transient, growth = transient_and_growth(ready(corpus, name).invoke, times=100)
    model = tflm.Model.from_file(corpus / "models" / f"{name}.tflite")
    by_numpy = not default_delegates(model)
    assert transient < (numpy_transient_limit(model) if by_numpy else TRANSIENT_LIMIT)
    assert growth < 1500  # the smallest object has 16 bytes
