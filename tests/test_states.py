"""Variables as state: whatever reads and assigns them, and in whatever order, the model answers as before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from differential import run

import tflm
from tflm.runtime.growing_arena import ready_interpreter
from tflm.schedule.states import StatefulModel, with_states
from tflm.schema import AddOptions, BuiltinOperator, CallOnceOptions, ReshapeOptions, TensorType, VarHandleOptions

INPUTS = [
    [np.array(values, np.int8)] for values in ([-128, 5, 100, 0], [3, -7, 1, 90], [0, 0, -1, -128], [9, 9, -9, 2])
]


def model_of(uses: str) -> tflm.Model:
    """A model that does with a variable what these words say, one after the other."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    last = x = main.input("x", (4,), TensorType.INT8)
    handle = main.tensor("handle", (), TensorType.RESOURCE)
    main.operator(BuiltinOperator.VAR_HANDLE, [], [handle], VarHandleOptions(shared_name="v", container=""))
    for use in uses.split():
        if use == "read":
            read, larger = (main.tensor(name, (4,), TensorType.INT8) for name in ("read", "larger"))
            main.operator(BuiltinOperator.READ_VARIABLE, [handle], [read])
            main.operator(BuiltinOperator.MINIMUM if last == x else BuiltinOperator.MAXIMUM, [last, read], [larger])
            last = larger
        elif use == "once":
            main.operator(BuiltinOperator.CALL_ONCE, [], [], CallOnceOptions(init_subgraph_index=1))
        else:
            constant = main.constant("constant", np.array([1, 2, 3, 4], np.int8))
            source = {"assign": last, "input": x, "constant": constant}[use]
            main.operator(BuiltinOperator.ASSIGN_VARIABLE, [handle, source], [])
    main.output(last)
    if "once" in uses:
        first = builder.subgraph("first")
        handle = first.tensor("handle", (), TensorType.RESOURCE)
        first.operator(BuiltinOperator.VAR_HANDLE, [], [handle], VarHandleOptions(shared_name="v", container=""))
        value = first.constant("value", np.array([7, -7, 0, 1], np.int8))
        first.operator(BuiltinOperator.ASSIGN_VARIABLE, [handle, value], [])
    return tflm.Model(builder.build())


def answers(stateful: StatefulModel) -> list[Any]:
    """Answers of a model whose states are set before each invoke to what the last one left."""
    interpreter = ready_interpreter(stateful.model, delegates=(), preserve_all_tensors=True)
    values = {state: np.array(initial) for state, initial in stateful.initial.items()}
    found = []
    for (x,) in INPUTS:
        interpreter.input(0).data[...] = x
        for state, value in values.items():
            interpreter.get_tensor(state).data[...] = value.reshape(interpreter.get_tensor(state).data.shape)
        interpreter.invoke()
        values = {state: np.array(interpreter.get_tensor(source).data) for state, source in stateful.states.items()}
        found.append([np.array(interpreter.output(0).data)])
    return found


@pytest.mark.parametrize(
    ("uses", "becomes_state"),
    [
        ("read assign", True),
        ("read read assign", False),
        ("read assign assign", False),
        ("read assign read", False),
        ("read assign constant", False),
        ("read input", False),
        ("read constant", False),
        ("assign read", False),
        ("input read assign", False),
        ("once read assign", True),
        ("once once read assign", False),
        ("read once assign", False),
        ("read assign once", False),
        ("once read input", False),
    ],
)
def test_variables_become_state_where_that_changes_nothing(uses: str, becomes_state: bool) -> None:
    model = model_of(uses)
    stateful = with_states(model)
    assert bool(stateful.states) == becomes_state
    np.testing.assert_array_equal(answers(stateful), run(model.data, INPUTS, delegates=()))


@pytest.mark.parametrize("is_assigned", [True, False])
@pytest.mark.parametrize("shape", [(-1, 2), (2, -1), (-1,)])
def test_dimensions_that_operators_compute_change_nothing(shape: tuple[int, ...], is_assigned: bool) -> None:
    """A RESHAPE computes the -1 of its output, whether it is assigned to the variable or not."""
    computed = (4,) if len(shape) == 1 else (2, 2)

    def compiled(shape: tuple[int, ...]) -> tflm.CompiledModel:
        builder = tflm.ModelBuilder()
        main = builder.subgraph()
        x, handle = main.input("x", (4,), TensorType.INT8), main.tensor("handle", (), TensorType.RESOURCE)
        read, smaller = (main.tensor(name, (4,), TensorType.INT8) for name in ("read", "smaller"))
        reshaped = main.tensor("reshaped", shape, TensorType.INT8)
        options = ReshapeOptions(new_shape=computed)
        main.operator(BuiltinOperator.VAR_HANDLE, [], [handle], VarHandleOptions(shared_name="v", container=""))
        main.operator(BuiltinOperator.READ_VARIABLE, [handle], [read])
        main.operator(BuiltinOperator.MINIMUM, [x, read], [smaller])
        main.operator(BuiltinOperator.RESHAPE, [smaller], [reshaped], options)
        main.operator(BuiltinOperator.ASSIGN_VARIABLE, [handle, reshaped if is_assigned else smaller], [])
        main.output(reshaped)
        return tflm.compile_model(tflm.Model(builder.build()))

    partial, whole = compiled(shape), compiled(computed)
    assert (partial.ram_bytes, partial.warm_up, partial.stages) == (whole.ram_bytes, whole.warm_up, whole.stages)


def test_variables_are_told_apart_by_container_and_name() -> None:
    """Each handle reads its variable, then assigns it the sum of what it read and an input of its own size."""
    names = [("", "a"), ("", "b"), ("one", "a"), ("two", "a"), ("one", "b"), (None, "a"), ("one", "a")]
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (4,), TensorType.FLOAT32)
    for container, name in names:
        handle = main.tensor("handle", (1,), TensorType.RESOURCE)
        options = VarHandleOptions(container=container, shared_name=name)
        main.operator(BuiltinOperator.VAR_HANDLE, [], [handle], options)
        read, total = (main.tensor(name, (4,), TensorType.FLOAT32) for name in ("read", "total"))
        main.operator(BuiltinOperator.READ_VARIABLE, [handle], [read])
        main.operator(BuiltinOperator.ADD, [read, x], [total], AddOptions())
        main.operator(BuiltinOperator.ASSIGN_VARIABLE, [handle, total], [])
        main.output(total)
    data, invocations = builder.build(), [[np.array([1, 2, -3, k], np.float32)] for k in range(3)]
    values: dict[tuple[str, str], Any] = {}
    expected = []
    for (fed,) in invocations:
        answers = []
        for container, name in names:
            key = container or "", name
            answers.append(values.get(key, 0) + fed)
            values[key] = answers[-1]
        expected.append(answers)
    for delegates in ((), None):
        np.testing.assert_array_equal(run(data, invocations, delegates=delegates), expected)
