"""Indices that come from other operators: checked in each run, and free to change from one to the next."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from differential import run

import tflm
from tflm.schema import BuiltinOperator, GatherOptions, TensorType, quantized
from tflm.testing.drawing import SingleOperator

FLOAT32, INT8, INT32 = TensorType.FLOAT32, TensorType.INT8, TensorType.INT32
TABLE = np.arange(12, dtype=np.float32).reshape(4, 3)


def taken(operator: BuiltinOperator, numbers: Any, shape: tuple[int, ...], options: Any = None) -> Any:
    """Return the operator's result for a table of 4 x 3 at these indices."""
    model = SingleOperator()
    if operator == BuiltinOperator.EMBEDDING_LOOKUP:
        model.input(INT32, [np.array(numbers, np.int32)])
        model.constant(TABLE)
    else:
        model.input(FLOAT32, [TABLE])
        model.input(INT32, [np.array(numbers, np.int32)])
    ((y,),) = run(*model.case(operator, [(shape, FLOAT32, None)], options))
    return y


@pytest.mark.parametrize(
    ("operator", "indices", "shape", "options"),
    [
        (BuiltinOperator.GATHER, [0, 4], (2, 3), None),
        (BuiltinOperator.GATHER, [-1, 0], (2, 3), None),
        (BuiltinOperator.GATHER, [3, 0], (4, 2), GatherOptions(axis=1)),
        (BuiltinOperator.GATHER_ND, [[4]], (1, 3), None),
        (BuiltinOperator.GATHER_ND, [[3, 3]], (1,), None),
        (BuiltinOperator.GATHER_ND, [[2**31 - 1, 2**31 - 1]], (1,), None),
        (BuiltinOperator.EMBEDDING_LOOKUP, [4], (1, 3), None),
        (BuiltinOperator.EMBEDDING_LOOKUP, [-(2**31)], (1, 3), None),
    ],
)
def test_an_index_outside_is_refused(
    operator: BuiltinOperator, indices: Any, shape: tuple[int, ...], options: Any
) -> None:
    with pytest.raises(tflm.OperatorError, match="index"):
        taken(operator, indices, shape, options)


def test_a_number_of_an_index_may_leave_its_dimension_if_the_slice_does_not_leave_the_input() -> None:
    np.testing.assert_array_equal(taken(BuiltinOperator.GATHER_ND, [[3, -2], [-1, 4]], (2,)), [7, 1])


@pytest.mark.parametrize("shape", [(2, 2, 3), (1, 1, 1, 1), (3, 4, 5)])
def test_the_shape_of_the_output_follows_from_the_inputs(shape: tuple[int, ...]) -> None:
    y = taken(BuiltinOperator.GATHER, [[1, 2], [0, 3]], shape)
    np.testing.assert_array_equal(y, TABLE[np.array([[1, 2], [0, 3]])])


def test_rows_that_become_floats_have_no_zero_point() -> None:
    model = SingleOperator()
    model.input(INT32, [np.zeros(1, np.int32)])
    model.constant(np.ones((2, 2), np.int8), quantized(0.5, 1))
    with pytest.raises(tflm.OperatorError, match="has zero point 1, must have 0"):
        run(*model.case(BuiltinOperator.EMBEDDING_LOOKUP, [((1, 2), FLOAT32, None)]))
