"""IF and WHILE: what is rejected and when, limits of iterations, and the arena that subgraphs share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from differential import assert_same_as_tflm, measured_figures, printed_figures, run
from hypothesis import given
from large_operators import large_flow
from models import FLOAT32, INT32, Case
from oracle import Oracle

import tflm
from tflm.c.control_flow import If, Repeat, RunOnce, SubgraphCall, While, calls_in, translated
from tflm.schema import AddOptions, BuiltinOperator, IfOptions, ModelBuilder, TensorType, WhileOptions
from tflm.testing.operators import OPERATORS


def counting(limit_type: TensorType = TensorType.BOOL, *, body_shape: tuple[int, ...] = (1,)) -> bytes:
    """A loop that adds 1 for as long as its input, a condition, holds: never, or without end."""
    builder = ModelBuilder()
    main = builder.subgraph()
    goes_on, x = main.input("goes_on", (1,), limit_type), main.input("x", (1,), INT32)
    results = [main.tensor("went_on", (1,), limit_type), main.tensor("y", (1,), INT32)]
    options = WhileOptions(cond_subgraph_index=1, body_subgraph_index=2)
    main.operator(BuiltinOperator.WHILE, [goes_on, x], results, options)
    main.output(results[1])
    condition = builder.subgraph("condition")
    condition.output(condition.input("goes_on", (1,), limit_type))
    condition.input("x", (1,), INT32)
    body = builder.subgraph("body")
    goes_on, x = body.input("goes_on", (1,), limit_type), body.input("x", body_shape, INT32)
    y = body.tensor("y", body_shape, INT32)
    body.operator(BuiltinOperator.ADD, [x, body.constant("one", np.ones(body_shape, np.int32))], [y], AddOptions())
    body.output(goes_on, y)
    return builder.build()


def choosing(else_shape: tuple[int, ...] = (3,), else_type: TensorType = FLOAT32) -> bytes:
    """x or x, according to a condition; the second x may be of another form."""
    builder = ModelBuilder()
    main = builder.subgraph()
    condition, x = main.input("condition", (1,), TensorType.BOOL), main.input("x", (3,), FLOAT32)
    y = main.tensor("y", (3,), FLOAT32)
    main.operator(BuiltinOperator.IF, [condition, x], [y], IfOptions(then_subgraph_index=1, else_subgraph_index=2))
    main.output(y)
    for shape, type in (((3,), FLOAT32), (else_shape, else_type)):
        branch = builder.subgraph("branch")
        branch.output(branch.input("x", shape, type))
    return builder.build()


X = np.array([1, 2, 3], np.float32)


@pytest.mark.parametrize("limit", [0, 1, 1000])
def test_a_loop_is_given_up_at_the_limit(limit: int) -> None:
    interpreter = tflm.MicroInterpreter(
        tflm.Model(counting()), tflm.AllOpsResolver(), bytearray(1 << 14), while_limit=limit
    )
    interpreter.allocate_tensors()
    interpreter.input(0).data = [True]
    with pytest.raises(tflm.OperatorError, match=f"operator 0 WHILE: .*after {limit} iterations") as error:
        interpreter.invoke()
    assert (error.value.subgraph_index, error.value.operator_index) == (0, 0)
    assert interpreter.output(0).data[0] == limit
    interpreter.input(0).data = [False]
    interpreter.invoke()


def test_a_limit_that_is_met_just_so_is_none() -> None:
    model, _ = large_flow(BuiltinOperator.WHILE, TensorType.INT8)
    interpreter = tflm.MicroInterpreter(tflm.Model(model), tflm.AllOpsResolver(), bytearray(1 << 21), while_limit=3)
    interpreter.allocate_tensors()
    interpreter.invoke()
    assert interpreter.output(0).data[0] == 3


@pytest.mark.parametrize("limit", [-1, 0.5, "3"])
def test_a_limit_is_a_number_of_iterations(limit: object) -> None:
    with pytest.raises(tflm.InterpreterError, match="number of iterations"):
        tflm.MicroInterpreter(tflm.Model(counting()), tflm.AllOpsResolver(), bytearray(99), while_limit=limit)


def test_a_condition_is_the_first_byte_of_a_tensor(oracle: Oracle) -> None:
    for goes_on in ([0], [256]):
        inputs = [np.array(goes_on, np.int32), np.array([7], np.int32)]
        assert_same_as_tflm(oracle, counting(INT32), [inputs])


def test_a_body_that_does_not_fit_is_refused_when_it_runs() -> None:
    model = counting(body_shape=(2,))
    zero = np.zeros(1, np.int32)
    assert run(model, [[np.array([False]), zero]]) == [[zero]]
    with pytest.raises(tflm.OperatorError, match="sizes must match"):
        run(model, [[np.array([True]), zero]])


def test_a_branch_of_another_size_is_refused_when_it_runs() -> None:
    assert np.array_equal(run(choosing((4,)), [[np.array([True]), X]])[0][0], X)
    with pytest.raises(tflm.OperatorError, match="sizes must match"):
        run(choosing((4,)), [[np.array([False]), X]])


def test_packed_constants_have_the_size_of_their_elements() -> None:
    """Six elements of 4 bits lie in three bytes of the file, and take six of the arena."""
    builder = ModelBuilder()
    main = builder.subgraph()
    condition, y = main.input("condition", (1,), TensorType.BOOL), main.tensor("y", (3,), TensorType.INT8)
    main.operator(BuiltinOperator.IF, [condition], [y], IfOptions(then_subgraph_index=1, else_subgraph_index=2))
    main.output(y)
    for type, shape in ((TensorType.INT8, (3,)), (TensorType.INT4, (6,))):
        branch = builder.subgraph("branch")
        branch.output(branch.constant("c", np.array([1, 2, 3], np.int8), type=type, shape=shape))
    assert run(builder.build(), [[np.array([True])]])[0][0].tolist() == [1, 2, 3]
    with pytest.raises(tflm.OperatorError, match="sizes must match"):
        run(builder.build(), [[np.array([False])]])


def test_a_branch_of_another_type_is_given_the_bytes(oracle: Oracle) -> None:
    assert_same_as_tflm(oracle, choosing((3,), INT32), [[np.array([False]), X]])


def test_without_options_there_is_nothing_to_run() -> None:
    for operator in (BuiltinOperator.IF, BuiltinOperator.WHILE):
        builder = ModelBuilder()
        main = builder.subgraph()
        x = main.input("x", (1,), TensorType.BOOL)
        main.operator(operator, [x], [main.tensor("y", (1,), TensorType.BOOL)])
        with pytest.raises(tflm.OperatorError, match="has no options"):
            run(builder.build(), [])


@given(case=OPERATORS["IF"] | OPERATORS["WHILE"])
def test_subgraphs_take_what_the_wheel_says(oracle: Oracle, case: Case) -> None:
    model, _ = case
    assert measured_figures(model) == printed_figures(oracle.allocations(model))


def test_calls_of_c_are_found_in_all_control_flow() -> None:
    def around(before: int, after: int) -> SubgraphCall[int]:
        return SubgraphCall([before], 0, [after])

    def double(calls: Any) -> list[int]:
        return [2 * call for call in calls]

    flow: list[Any] = [
        1,
        If("x", around(2, 3), around(4, 5)),
        While([6], 0, "x", around(7, 8)),
        Repeat(9, (2,), {}),
        RunOnce("x", 0),
    ]
    assert list(calls_in(flow, int)) == [*range(1, 10)]
    twice: Any = [translated(each, double, lambda place, _: place) for each in flow[1:]]
    assert list(calls_in(twice, int)) == [*range(4, 20, 2)]
