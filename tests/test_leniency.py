"""What TFLM runs correctly is not rejected: more dimensions than an operator broadcasts, unused inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from differential import run
from oracle import Oracle

import tflm
from tflm.schema import ELEMENT_TYPES, AddOptions, BuiltinOperator, Padding, Pool2DOptions, TensorType

COMPARISONS = ("EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL")
ALIKE = {
    **{(name, TensorType.FLOAT32): TensorType.BOOL for name in COMPARISONS},
    **{(name, TensorType.INT8): TensorType.BOOL for name in COMPARISONS},
    **{(name, TensorType.BOOL): TensorType.BOOL for name in ("LOGICAL_AND", "LOGICAL_OR")},
    **{(name, TensorType.FLOAT32): TensorType.FLOAT32 for name in ("FLOOR_DIV", "FLOOR_MOD", "SQUARED_DIFFERENCE")},
    ("SQUARED_DIFFERENCE", TensorType.INT8): TensorType.INT8,
    ("SELECT_V2", TensorType.INT8): TensorType.INT8,
}
"""The type of the output by operator and type of the inputs."""

Case = tuple[bytes, list[np.ndarray[Any, Any]]]


def alike(operator: str, type: TensorType, shape: tuple[int, ...]) -> Case:
    """A model of one operator on inputs of one shape, and some."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    rng = np.random.default_rng(0)
    scale = tflm.quantized(0.5) if type == TensorType.INT8 else None
    inputs = [main.input("condition", shape, TensorType.BOOL)] if operator == "SELECT_V2" else []
    inputs += [main.input(name, shape, type, scale) for name in "xy"]
    of = ALIKE[operator, type]
    output = main.tensor("z", shape, of, scale if of == TensorType.INT8 else None)
    main.operator(BuiltinOperator[operator], inputs, [output])
    main.output(output)
    tables = [(builder.model.subgraphs or [])[0].tensors[i] for i in inputs]
    values = [rng.integers(0 if t.type == TensorType.BOOL else 1, 2, shape) for t in tables]
    return builder.build(), [v.astype(ELEMENT_TYPES[t.type].dtype) for v, t in zip(values, tables)]


@pytest.mark.parametrize("shape", [(1, 2, 1, 3, 2), (2, 1, 2, 1, 2, 3)], ids=len)
@pytest.mark.parametrize(("operator", "type"), ALIKE, ids=lambda value: getattr(value, "name", value))
def test_inputs_of_one_shape_may_have_more_dimensions(
    operator: str, type: TensorType, shape: tuple[int, ...], request: pytest.FixtureRequest
) -> None:
    model, inputs = alike(operator, type, shape)
    ((answer,),) = run(model, [inputs])
    flat, _ = alike(operator, type, (int(np.prod(shape)),))
    ((expected,),) = run(flat, [[x.reshape(-1) for x in inputs]])
    assert answer.reshape(-1).tolist() == expected.tolist()
    ((right,),) = request.getfixturevalue("oracle").run(model, [inputs])
    assert np.array_equal(answer, right)


def test_more_dimensions_than_tflm_has_room_for_are_refused() -> None:
    model, inputs = alike("EQUAL", TensorType.FLOAT32, (1,) * 7)
    with pytest.raises(tflm.OperatorError, match="has 7 dimensions, at most 6 are supported"):
        run(model, [inputs])


def with_one_more_input(operator: BuiltinOperator, count: int, given: int) -> Case:
    """A float operator of `count` inputs that is given one more: the first once again, or -1."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    inputs = [main.input(f"x{i}", (1, 2, 2, 1), TensorType.FLOAT32) for i in range(count)]
    output = main.tensor("y", (1, 2, 2, 1), TensorType.FLOAT32)
    pool = Pool2DOptions(padding=Padding.SAME, stride_w=1, stride_h=1, filter_width=2, filter_height=2)
    options = pool if count == 1 else AddOptions() if operator is BuiltinOperator.ADD else None
    main.operator(operator, [*inputs, given], [output], options)
    main.output(output)
    values = np.arange(1, 5, dtype=np.float32).reshape(1, 2, 2, 1)
    return builder.build(), [values * (i + 1) for i in range(count)]


@pytest.mark.parametrize("given", [0, -1])
@pytest.mark.parametrize(
    ("operator", "count"), [("ADD", 2), ("SUB", 2), ("DIV", 2), ("AVERAGE_POOL_2D", 1), ("MAX_POOL_2D", 1)]
)
def test_inputs_that_tflm_does_not_count_may_be_more(oracle: Oracle, operator: str, count: int, given: int) -> None:
    model, inputs = with_one_more_input(BuiltinOperator[operator], count, given)
    assert np.array_equal(run(model, [inputs])[0][0], oracle.run(model, [inputs])[0][0])


@pytest.mark.parametrize("operator", ["MUL", "SQUARED_DIFFERENCE", "FLOOR_DIV", "FLOOR_MOD"])
def test_those_that_tflm_counts_may_not(operator: str) -> None:
    model, inputs = with_one_more_input(BuiltinOperator[operator], 2, 0)
    with pytest.raises(tflm.OperatorError, match="has 3 inputs, must have 2"):
        run(model, [inputs])
