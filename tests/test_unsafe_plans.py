"""Plans in which an output overlaps inputs that its operator still needs: the engine has numpy's results."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import outcomes
import pytest
from differential import assert_close
from hypothesis import given, settings
from hypothesis import strategies as st
from models import Arrays
from test_overlaps import FLOOR, with_places

import tflm
from tflm.delegates import Compiled
from tflm.delegates.compiled.bindings import FAMILIES
from tflm.schema import BuiltinOperator, TensorType
from tflm.schema.options import GatherOptions
from tflm.testing.operators import OPERATORS

pytest.importorskip("numba", reason="needs the extra `fast`")

COMPILED = sorted(OPERATORS.keys() & {operator for operators in FAMILIES.values() for operator in operators})


def answers(model: bytes, invocations: list[Arrays], engine: bool) -> list[Arrays] | tuple[type, str]:
    """The outputs of each invoke, or the error."""
    outputs = []
    try:
        loaded = tflm.Model(model, checks="tflm")
        delegates = [Compiled()] if engine else []
        interpreter = tflm.MicroInterpreter(loaded, tflm.AllOpsResolver(), bytearray(1 << 21), delegates=delegates)
        interpreter.allocate_tensors()
        for inputs in invocations:
            for i, values in enumerate(inputs):
                interpreter.input(i).data[...] = values
            interpreter.invoke()
            outputs.append([np.array(interpreter.output(i).data) for i in range(interpreter.outputs_size())])
    except tflm.TflmError as error:
        return type(error), str(error)
    return outputs


@pytest.fixture(scope="module")
def child() -> Iterator[ProcessPoolExecutor]:
    """A process that may crash."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as executor:
        yield executor


def require_same(child: ProcessPoolExecutor, model: bytes, invocations: list[Arrays]) -> bool:
    """Compare the engine with numpy; returns whether the model ran."""
    expected = answers(model, invocations, engine=False)
    found = child.submit(answers, model, invocations, True).result()
    if isinstance(expected, tuple) or isinstance(found, tuple):
        assert found == expected
        return False
    for ours, theirs in zip(found, expected, strict=True):
        assert_close(ours, theirs)
    return True


def with_outputs_over_inputs(model: tflm.Model) -> Iterator[bytes]:
    """The model with each output of its last operator over each input, at several distances."""
    operator = (model.subgraphs[0].operators or [])[-1]
    tensors = model.subgraphs[0].tensors or []
    for output in operator.outputs or ():
        for input in operator.inputs or ():
            if input >= 0 and not model.buffers[tensors[input].buffer].data and -1 not in (tensors[input].shape or ()):
                for distance in (-16, 16):
                    yield with_places(model, {output: FLOOR, input: FLOOR + distance})


@pytest.mark.runs(0.2)
@pytest.mark.parametrize("operator", COMPILED)
@given(data=st.data())
@settings(max_examples=2)
def test_the_engine_answers_as_numpy_whatever_an_output_lies_over(
    child: ProcessPoolExecutor, operator: str, data: st.DataObject
) -> None:
    case, invocations = data.draw(OPERATORS[operator])
    outcomes.count(ran=not isinstance(answers(case, invocations, engine=False), tuple))
    for model in with_outputs_over_inputs(tflm.Model(case, checks="tflm")):
        require_same(child, model, invocations)


COUNT, ROWS = 64, 8
INT32, FLOAT32, BOOL = TensorType.INT32, TensorType.FLOAT32, TensorType.BOOL


def picking(operator: str) -> tuple[bytes, int, list[Arrays]]:
    """A model whose first output is as long as its indices or divisors; these are input number..., and values.

    The values that it writes are out of range as indices.
    """
    main = (builder := tflm.ModelBuilder()).subgraph()
    rng = np.random.default_rng(1)
    wild = rng.integers(1 << 28, 1 << 30, (ROWS, 1)).astype(np.int32)
    real = wild.view(np.float32)
    indices = rng.integers(0, ROWS, COUNT).astype(np.int32)
    if operator == "BasicClassifier":
        x, k, t = (main.input(name, (n,), INT32) for name, n in (("x", ROWS), ("k", COUNT), ("t", COUNT)))
        reached, chosen = main.tensor("reached", (COUNT,), BOOL), main.tensor("chosen", (COUNT,), INT32)
        main.operator(operator, [x, k, t], [reached, chosen])
        main.output(chosen)
        return builder.build(), k, [[wild.reshape(-1), indices, np.zeros(COUNT, np.int32)]]
    if "DIV" in operator:
        type = INT32 if operator == "DIV" else FLOAT32
        x, k = main.input("x", (COUNT, 1), type), main.input("k", (1, COUNT), type)
        y = main.tensor("y", (COUNT, COUNT), type)
        main.operator(BuiltinOperator[operator], [x, k], [y])
        main.output(y)
        dtype = np.int32 if type == INT32 else np.float32
        return builder.build(), k, [[np.zeros((COUNT, 1), dtype), np.ones((1, COUNT), dtype)]]
    x, y = main.input("x", (ROWS, 1), FLOAT32), main.tensor("y", (COUNT, 1), FLOAT32)
    shape = (COUNT, 1) if operator == "GATHER_ND" else (COUNT,)
    k = main.input("k", shape, INT32)
    options = GatherOptions() if operator == "GATHER" else None
    main.operator(BuiltinOperator[operator], [k, x] if operator == "EMBEDDING_LOOKUP" else [x, k], [y], options)
    main.output(y)
    return builder.build(), k, [[real, indices.reshape(shape)]]


@pytest.mark.parametrize("distance", [-128, -16, 16])
@pytest.mark.parametrize("operator", ["BasicClassifier", "DIV", "EMBEDDING_LOOKUP", "FLOOR_DIV", "GATHER", "GATHER_ND"])
def test_checked_indices_and_divisors_are_those_that_are_used(
    child: ProcessPoolExecutor, operator: str, distance: int
) -> None:
    data, checked, invocations = picking(operator)
    model = tflm.Model(data)
    output = (model.subgraphs[0].outputs or ())[0]
    shared = with_places(model, {output: FLOOR, checked: FLOOR + distance})
    with pytest.raises(tflm.ModelError, match="share bytes"):
        tflm.Model(shared)
    assert require_same(child, shared, invocations)
