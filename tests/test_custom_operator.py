"""The operator of docs/custom_operator.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from custom_operator import ROWS_SCALED
from flatbuffers import flexbuffers

import tflm
from tflm.schema import TensorType

TESTS = Path(__file__).parent
SCALES = {TensorType.FLOAT32: (None, None), TensorType.INT8: (tflm.quantized(0.5, 3), tflm.quantized(0.25, -1))}


def interpreter(type: TensorType, shape: tuple[int, ...] = (2, 4), **options: Any) -> tflm.MicroInterpreter:
    """One that has the operator, in a model of just that."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    scales = SCALES.get(type, (None, None))
    x, y = main.input("x", shape, type, scales[0]), main.tensor("y", shape, type, scales[1])
    main.operator("ROWS_SCALED", [x], [y], custom_options=bytes(flexbuffers.Dumps(options)))
    main.output(y)
    resolver = tflm.MicroMutableOpResolver(1)
    resolver.add_custom(ROWS_SCALED)
    made = tflm.MicroInterpreter(tflm.Model(builder.build()), resolver, bytearray(4096))
    made.allocate_tensors()
    return made


def test_the_document_shows_the_operator_that_is_tested() -> None:
    document = (TESTS.parent / "docs" / "custom_operator.md").read_text()
    code = re.findall(r"```python\n(.*?)```\n", document, re.DOTALL)
    assert code[0] == (TESTS / "custom_operator.py").read_text()
    assert len(code[0].splitlines()) < 60


@pytest.mark.parametrize("type", SCALES)
def test_rows_lose_their_mean_and_are_scaled(type: TensorType) -> None:
    made = interpreter(type, factor=2.0)
    real = np.array([[1, 2, 3, 4], [-8, 0, 0, 8]], np.float32)
    made.input(0).data = made.input(0).quantized(real)
    made.invoke()
    expected = 2 * (real - real.mean(axis=1, keepdims=True))
    assert np.array_equal(made.output(0).dequantized(), expected)


def test_a_factor_that_is_left_out_is_1() -> None:
    made = interpreter(TensorType.FLOAT32)
    made.input(0).data = np.eye(2, 4, dtype=np.float32)
    made.invoke()
    assert made.output(0).data[0].tolist() == [0.75, -0.25, -0.25, -0.25]


def test_its_memory_is_in_the_arena() -> None:
    buffers = {buffer.kind: buffer for buffer in interpreter(TensorType.INT8).planned_buffers()}
    assert buffers["scratch"].bytes == 16


@pytest.mark.parametrize("shape", [(1, 0, 4), (1, -1, 4), (-1,)])
def test_an_output_of_unknown_size_is_refused(shape: tuple[int, ...]) -> None:
    """Nothing else reads it, nor is it an output of the model."""
    main = tflm.ModelBuilder().subgraph()
    x, y, z = (main.tensor(name, of, TensorType.FLOAT32) for name, of in (("x", (4,)), ("y", shape), ("z", (4,))))
    main.operator("MINE", [x], [y])
    main.operator(tflm.schema.BuiltinOperator.ABS, [x], [z])
    main.output(z)
    resolver = tflm.AllOpsResolver()
    resolver.add_custom(tflm.Registration("MINE", invoke=lambda context, node: None))
    made = tflm.MicroInterpreter(tflm.Model(main.builder.build(), checks="tflm"), resolver, bytearray(4096))
    with pytest.raises(tflm.OperatorError, match=r"operator 0 MINE, tensor 'y': .* must be known and at least 1"):
        made.allocate_tensors()


@pytest.mark.parametrize(
    ("type", "shape", "reason"),
    [(TensorType.INT16, (2, 4), "is INT16, must be FLOAT32 or INT8"), (TensorType.INT8, (4,), "must be a matrix")],
)
def test_what_it_can_not_take_is_refused(type: TensorType, shape: tuple[int, ...], reason: str) -> None:
    with pytest.raises(tflm.OperatorError, match=f"operator 0 ROWS_SCALED, tensor 'x': .*{reason}"):
        interpreter(type, shape)
