"""Kernels take their working memory before the first invoke, however large their tensors are."""

from __future__ import annotations

import pytest
from strategies import LARGE
from working_memory import TRANSIENT_LIMIT, transient_and_growth

import tflm


@pytest.mark.parametrize("name", LARGE)
def test_a_large_invoke_takes_no_memory_of_its_own(name: str) -> None:
    model, (inputs, *_) = LARGE[name]()
    interpreter = tflm.MicroInterpreter(tflm.Model(model), tflm.AllOpsResolver(), bytearray(1 << 24))
    interpreter.allocate_tensors()
    for i, values in enumerate(inputs):
        interpreter.input(i).data[...] = values
    transient, _ = transient_and_growth(interpreter.invoke, times=2)
    assert transient < TRANSIENT_LIMIT
