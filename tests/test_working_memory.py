"""Kernels of the engine need no working memory in an invoke; numpy kernels need a few times their tensors."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from large_operators import LARGE, large_arena
from sampling import one_type_each, some
from working_memory import TRANSIENT_LIMIT, numpy_transient_limit, transient_and_growth

import tflm
from tflm.delegates import Compiled
from tflm.delegates.compiled.bindings import FAMILIES

COMPILED = {operator for operators in FAMILIES.values() for operator in operators}


def compiled(names: Iterable[str]) -> list[str]:
    """The large operators that the engine has kernels for."""
    return [name for name in names if name.split("-")[0] in COMPILED]


def ready(name: str, *delegates: Compiled) -> tflm.MicroInterpreter:
    model, (inputs, *_) = LARGE[name]()
    interpreter = tflm.MicroInterpreter(tflm.Model(model), tflm.AllOpsResolver(), large_arena(), delegates=delegates)
    interpreter.allocate_tensors()
    for i, values in enumerate(inputs):
        interpreter.input(i).data[...] = values
    return interpreter


@pytest.mark.parametrize("name", some(LARGE, *one_type_each(LARGE, 1)))
def test_a_large_invoke_of_numpy_takes_a_few_times_its_tensors(name: str) -> None:
    transient, _ = transient_and_growth(ready(name).invoke, times=2)
    assert transient < numpy_transient_limit(tflm.Model(LARGE[name]()[0]))


@pytest.mark.parametrize("name", some(compiled(LARGE), *compiled(one_type_each(LARGE))))
def test_a_large_invoke_of_the_engine_takes_no_memory_of_its_own(name: str) -> None:
    transient, _ = transient_and_growth(ready(name, Compiled()).invoke, times=2)
    assert transient < TRANSIENT_LIMIT
