"""Operators that threads share: the same bits as with one thread, whoever comes to help."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from models import layer

import tflm
from tflm.compiler.calls import is_available
from tflm.delegates import Compiled
from tflm.delegates.compiled import bands, team
from tflm.schema import BuiltinOperator, TensorType

pytestmark = pytest.mark.skipif(not is_available(), reason="the engine is not installed")

OPERATORS = ["FULLY_CONNECTED", "CONV_2D", "DEPTHWISE_CONV_2D"]
TYPES = [TensorType.INT8, TensorType.FLOAT32]


def allocated(model: bytes, threads: int) -> tflm.MicroInterpreter:
    delegates = [Compiled(threads=threads)]
    interpreter = tflm.MicroInterpreter(
        tflm.Model(model), tflm.AllOpsResolver(), bytearray(1 << 20), delegates=delegates
    )
    interpreter.allocate_tensors()
    return interpreter


def answer(interpreter: tflm.MicroInterpreter, x: np.ndarray[Any, Any]) -> bytes:
    interpreter.input(0).data[...] = x
    interpreter.output(0).data[...] = 0
    interpreter.invoke()
    return interpreter.output(0).data.tobytes()


@pytest.mark.parametrize("type", TYPES, ids=lambda type: type.name)
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("channels", [17, 80])
def test_bands_give_the_same_bits(operator: str, type: TensorType, channels: int) -> None:
    """Bands are as small as possible. A vector that reaches beyond a band would change the first row of the next
    one."""
    model, ((x,),) = layer(operator, 37, 5, channels, type)
    expected = answer(allocated(model, 1), x)
    with mock.patch.object(bands, "MIN_PRODUCTS", 1), mock.patch.object(bands, "BANDS_OF_A_THREAD", 5):
        shared = [allocated(model, threads) for threads in (2, 3)]
    for interpreter in shared:
        assert all(answer(interpreter, x) == expected for _ in range(20))
    with mock.patch.object(team._workers, "call", return_value=None):
        assert answer(shared[0], x) == expected


@given(st.integers(1, 3000), st.integers(0, 1 << 14), st.sampled_from([1, 4, 5, 12]), st.integers(1, 4))
def test_bands_are_whole_tiles_that_follow_each_other(rows: int, products: int, unit: int, threads: int) -> None:
    with bands.shared_by(threads):
        found = bands.bands_of(rows, products, unit)
    assert [row for band in found for row in range(band.start, band.stop)] == list(range(rows))
    assert all((band.stop - band.start) % unit == 0 for band in found[:-1])
    assert all(band.stop - band.start >= min(unit, rows) for band in found)
    assert len(found) <= max(1, (threads > 1) * threads * bands.BANDS_OF_A_THREAD)


def large_model() -> tuple[bytes, np.ndarray[Any, Any]]:
    """A matrix, then a GATHER whose indices are an input."""
    rng = np.random.default_rng(0)
    main = (builder := tflm.ModelBuilder()).subgraph()
    x = main.input("x", (64, 256), TensorType.FLOAT32)
    places = main.input("places", (2,), TensorType.INT32)
    weights = main.constant("w", rng.standard_normal((256, 256)).astype(np.float32))
    product = main.tensor("product", (64, 256), TensorType.FLOAT32)
    y = main.tensor("y", (2, 256), TensorType.FLOAT32)
    main.operator(BuiltinOperator.FULLY_CONNECTED, [x, weights, -1], [product])
    main.operator(BuiltinOperator.GATHER, [product, places], [y])
    main.output(y)
    return builder.build(), rng.standard_normal((64, 256)).astype(np.float32)


def test_an_invoke_that_fails_leaves_a_program_that_runs() -> None:
    model, x = large_model()
    expected = answer(allocated(model, 1), x)
    interpreter = allocated(model, 2)
    for _ in range(3):
        interpreter.input(1).data[...] = [0, 64]
        with pytest.raises(tflm.OperatorError, match="64"):
            answer(interpreter, x)
        interpreter.input(1).data[...] = 0
        assert answer(interpreter, x) == expected


def test_interpreters_in_threads_share_the_workers() -> None:
    model, x = large_model()
    expected = answer(allocated(model, 1), x)
    interpreters = [allocated(model, 2) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        answers = pool.map(lambda interpreter: {answer(interpreter, x) for _ in range(30)}, interpreters)
        assert all(found == {expected} for found in answers)


IN_A_FORK = """
import os
from test_threads import allocated, answer, large_model

model, x = large_model()
interpreter = allocated(model, 2)
expected = answer(interpreter, x)
child = os.fork()
if not child:
    os._exit(0 if answer(interpreter, x) == answer(allocated(model, 2), x) == expected else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert answer(interpreter, x) == expected
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no forks")
def test_a_fork_starts_its_own_workers() -> None:
    ignored = ["-W", "ignore::DeprecationWarning"]
    subprocess.run([sys.executable, *ignored, "-c", IN_A_FORK], cwd=os.path.dirname(__file__), check=True, timeout=100)


@pytest.mark.parametrize("threads", [0, -1, 65])
def test_a_number_of_threads_out_of_range_is_rejected(threads: int) -> None:
    with pytest.raises(tflm.ArgumentError, match=f"threads is {threads}, must be from 1 to 64"):
        Compiled(threads=threads)
