"""BOOL tensors whose bytes are other than 0 and 1: C leaves them to the compiler, and this follows TFLM on x86."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from oracle import Oracle

import tflm
from tflm.schema import BuiltinOperator, BuiltinOptions, IfOptions, ReducerOptions, TensorType, WhileOptions

Arrays = list[np.ndarray[Any, Any]]

BYTES = np.array([0, 1, 2, 3, 4, 128, 254, 255], np.uint8)
PAIRS = np.array(list(itertools.product(BYTES, BYTES)), np.uint8).T.copy()
FIRST, SECOND = PAIRS

NUMBERS = {
    TensorType.FLOAT32: np.float32,
    TensorType.INT8: np.int8,
    TensorType.INT16: np.int16,
    TensorType.INT32: np.int32,
    TensorType.UINT32: np.uint32,
    TensorType.BOOL: np.uint8,
}


def one_operator(
    operator: BuiltinOperator,
    inputs: Arrays,
    output: tuple[TensorType, tuple[int, ...]],
    options: BuiltinOptions | None = None,
    constants: Arrays | None = None,
) -> bytes:
    """A model of one operator on such inputs, of which those of bytes are truth values."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    types = {np.uint8: TensorType.BOOL, np.int8: TensorType.INT8}
    scale = tflm.quantized(1.0)
    of = [
        main.input(f"x{i}", x.shape, types[x.dtype.type], scale if x.dtype == np.int8 else None)
        for i, x in enumerate(inputs)
    ]
    of += [main.constant(f"c{i}", constant) for i, constant in enumerate(constants or [])]
    y = main.tensor("y", output[1], output[0], scale if output[0] == TensorType.INT8 and len(inputs) == 3 else None)
    main.operator(operator, of, [y], options)
    main.output(y)
    return builder.build()


def with_condition(operator: BuiltinOperator) -> bytes:
    """IF, or WHILE with a condition that is a variable set to NOT_EQUAL of itself and 1 after each turn."""
    builder = tflm.ModelBuilder()
    main, first, second = (builder.subgraph() for _ in range(3))
    condition, x = main.input("condition", (1,), TensorType.BOOL), main.input("x", (1,), TensorType.INT8)
    y = main.tensor("y", (1,), TensorType.INT8)
    if operator is BuiltinOperator.IF:
        for branch, result in ((first, 7), (second, -7)):
            branch.input("x", (1,), TensorType.INT8)
            branch.output(branch.constant("result", np.array([result], np.int8)))
        main.operator(operator, [condition, x], [y], IfOptions(then_subgraph_index=1, else_subgraph_index=2))
    else:
        end = main.tensor("end", (1,), TensorType.BOOL)
        first.output(first.input("condition", (1,), TensorType.BOOL))
        first.input("x", (1,), TensorType.INT8)
        before = second.input("condition", (1,), TensorType.BOOL)
        second.input("x", (1,), TensorType.INT8)
        after = second.tensor("after", (1,), TensorType.BOOL)
        second.operator(BuiltinOperator.NOT_EQUAL, [before, before], [after])
        second.output(after, second.constant("result", np.array([7], np.int8)))
        options = WhileOptions(cond_subgraph_index=1, body_subgraph_index=2)
        main.operator(operator, [condition, x], [end, y], options)
    main.output(y)
    return builder.build()


def binary(operator: BuiltinOperator) -> bytes:
    """A model of one operator on all pairs."""
    return one_operator(operator, [FIRST, SECOND], (TensorType.BOOL, FIRST.shape))


CASES: dict[str, tuple[bytes, Arrays, np.ndarray[Any, Any]]] = {
    "LOGICAL_AND": (binary(BuiltinOperator.LOGICAL_AND), [FIRST, SECOND], FIRST & SECOND),
    "LOGICAL_OR": (binary(BuiltinOperator.LOGICAL_OR), [FIRST, SECOND], FIRST | SECOND),
    "EQUAL": (binary(BuiltinOperator.EQUAL), [FIRST, SECOND], (FIRST == SECOND).view(np.uint8)),
    "NOT_EQUAL": (binary(BuiltinOperator.NOT_EQUAL), [FIRST, SECOND], FIRST ^ SECOND),
    "LOGICAL_NOT": (
        one_operator(BuiltinOperator.LOGICAL_NOT, [BYTES], (TensorType.BOOL, BYTES.shape)),
        [BYTES],
        BYTES ^ np.uint8(1),
    ),
    "REDUCE_ALL": (
        one_operator(
            BuiltinOperator.REDUCE_ALL,
            [PAIRS],
            (TensorType.BOOL, FIRST.shape),
            ReducerOptions(keep_dims=False),
            [np.array([0], np.int32)],
        ),
        [PAIRS],
        FIRST & SECOND & np.uint8(1),
    ),
    "SELECT_V2": (
        one_operator(
            BuiltinOperator.SELECT_V2,
            [BYTES, np.full(8, 7, np.int8), np.full(8, -7, np.int8)],
            (TensorType.INT8, BYTES.shape),
        ),
        [BYTES, np.full(8, 7, np.int8), np.full(8, -7, np.int8)],
        np.array([-7, *[7] * 7], np.int8),
    ),
    **{
        f"CAST-{type.name}": (
            one_operator(BuiltinOperator.CAST, [BYTES], (type, BYTES.shape)),
            [BYTES],
            BYTES.astype(dtype),
        )
        for type, dtype in NUMBERS.items()
    },
    **{
        f"{operator.name}-{byte}": (
            with_condition(operator),
            [np.array([byte], np.uint8), np.array([-7], np.int8)],
            np.array([7 if byte else -7], np.int8),
        )
        for operator in (BuiltinOperator.IF, BuiltinOperator.WHILE)
        for byte in BYTES.tolist()
    },
}
"""By name: a model, the bytes of its inputs, and those of its output."""


@pytest.mark.parametrize("delegates", [None, ()], ids=["compiled", "numpy"])
@pytest.mark.parametrize("name", CASES)
def test_bytes_of_truth_values_count_as_they_are(name: str, delegates: tuple[()] | None) -> None:
    model, inputs, expected = CASES[name]
    arena = bytearray(1 << 14)
    interpreter = tflm.MicroInterpreter(tflm.Model(model), tflm.AllOpsResolver(), arena, delegates=delegates)
    interpreter.allocate_tensors()
    for i, values in enumerate(inputs):
        plain(interpreter.input(i).data)[...] = values
    interpreter.invoke()
    assert plain(interpreter.output(0).data).tolist() == expected.tolist()


def plain(data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A view without the checks of `TensorData`, where truth values are bytes."""
    view = data.view(np.ndarray)
    return view.view(np.uint8) if view.dtype == np.bool_ else view


@pytest.mark.parametrize("name", CASES)
def test_tflm_takes_them_so_on_x86(oracle: Oracle, name: str) -> None:
    model, inputs, expected = CASES[name]
    given = [x.view(np.bool_) if x.dtype == np.uint8 else x for x in inputs]
    ((output,),) = oracle.run(model, [given])
    assert plain(output).reshape(-1).tolist() == expected.tolist()
