"""Signal operators: what they ask of the arena, and their state after a reset."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from differential import assert_close
from hypothesis import given
from hypothesis import strategies as st
from models import Case
from oracle import INSTALLED, Oracle
from strategies import signal
from test_arena import printed_figures

import tflm

CASES = st.one_of(*signal.OPERATORS.values())


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    if not INSTALLED:
        pytest.skip("tflite-micro is not installed (pip install 'pytflm[oracle]')")
    oracle = Oracle()
    yield oracle
    oracle.close()


@given(case=CASES)
def test_they_take_what_the_wheel_says(oracle: Oracle, case: Case) -> None:
    model, _ = case
    measured = tflm.measure_arena(tflm.Model(model), tflm.AllOpsResolver(), target=tflm.targets.HOST_WHEEL)
    assert printed_figures(oracle.allocations(model)) == {
        "total": measured.arena_used_bytes,
        "head": measured.head_bytes,
        "tail": measured.tail_bytes,
    }


@given(case=CASES)
def test_they_start_over_after_a_reset(case: Case) -> None:
    model, invocations = case
    interpreter = tflm.MicroInterpreter(tflm.Model(model), tflm.AllOpsResolver(), bytearray(1 << 20))
    interpreter.allocate_tensors()
    runs = []
    for _ in range(2):
        outputs = []
        for inputs in invocations:
            for i, values in enumerate(inputs):
                interpreter.input(i).data[...] = values
            interpreter.invoke()
            outputs += [np.array(interpreter.output(i).data) for i in range(interpreter.outputs_size())]
        runs.append(outputs)
        interpreter.reset()
    assert_close(runs[1], runs[0])
