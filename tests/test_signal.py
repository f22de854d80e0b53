"""Signal operators: what they ask of the arena, and their state after a reset."""

from __future__ import annotations

import numpy as np
from differential import assert_close, measured_figures, printed_figures
from hypothesis import given
from hypothesis import strategies as st
from models import Case
from oracle import Oracle
from strategies import signal

import tflm

CASES = st.one_of(*signal.OPERATORS.values())


@given(case=CASES)
def test_they_take_what_the_wheel_says(oracle: Oracle, case: Case) -> None:
    model, _ = case
    assert measured_figures(model) == printed_figures(oracle.allocations(model))


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
