"""Damaged models with fixed seeds: each ends in a result or a `TflmError`. `tools/fuzz.py` runs as many as wanted."""

from __future__ import annotations

import random
from pathlib import Path

import fuzz
import outcomes
import pytest
from conftest import CORPUS
from hypothesis import given
from hypothesis import strategies as st
from sampling import some
from test_broken_models import NET

import tflm
from tflm.testing import graphs

EXAMPLES = sorted((Path(__file__).parents[1] / "examples" / "hello_world").glob("*.tflite"))
SMALL_ENOUGH = 200_000
CORPUS_MODELS = [path for path in sorted((CORPUS / "models").glob("*.tflite")) if path.stat().st_size < SMALL_ENOUGH]

BATCH = 50
BATCHES = 20


@pytest.mark.runs(0.1)
@pytest.mark.parametrize("batch", some(range(BATCHES), *range(BATCHES // 2)))
def test_damaged_models_end_in_a_result_or_an_error_that_says_what(batch: int) -> None:
    paths = EXAMPLES + CORPUS_MODELS
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        outcomes.count(ran=fuzz.check(fuzz.Mutant.of(str(paths[seed % len(paths)]), seed).data()) == "result")


@pytest.mark.runs(0.5)
@given(model=graphs() | st.just(NET), seed=st.integers(0, 2**32))
def test_a_change_to_a_table_leaves_a_file_that_can_be_read(model: bytes, seed: int) -> None:
    """The mutator itself: it changes something, and most of what it writes is still a flatbuffer."""
    changed = fuzz.change_table(model, random.Random(seed))
    assert isinstance(changed, bytes)
    try:
        tflm.schema.read_model(memoryview(changed))
    except tflm.ModelError:
        outcomes.count(ran=False)
    else:
        outcomes.count(ran=True)


def test_a_mutant_is_the_same_each_time() -> None:
    mutant = fuzz.Mutant.of(str(EXAMPLES[0]), 7)
    assert mutant.data() == mutant.data() != EXAMPLES[0].read_bytes()


def test_what_is_wrong_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing outside the arena, another exception, and an error that says nothing."""
    data = EXAMPLES[0].read_bytes()

    def spoil(_data: bytes, arena: memoryview) -> None:
        arena.obj[0] = 1

    monkeypatch.setattr(fuzz, "_run", spoil)
    with pytest.raises(fuzz.BadError, match="outside the arena"):
        fuzz.check(data)

    def say_nothing(_data: bytes, _arena: memoryview) -> None:
        raise tflm.TflmError(" ")

    monkeypatch.setattr(fuzz, "_run", say_nothing)
    with pytest.raises(fuzz.BadError, match="says nothing"):
        fuzz.check(data)
