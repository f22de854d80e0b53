"""A model that a process runs without what tests import."""

from __future__ import annotations

from typing import Any

import numpy as np

import tflm
from tflm.schema import BuiltinOperator, TensorType


def relu_model() -> bytes:
    """One RELU of 8 floats."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x, y = main.input("x", (1, 8), TensorType.FLOAT32), main.tensor("y", (1, 8), TensorType.FLOAT32)
    main.operator(BuiltinOperator.RELU, [x], [y])
    main.output(y)
    return builder.build()


def allocated(**options: Any) -> tflm.MicroInterpreter:
    """An interpreter of the model, ready to be invoked."""
    interpreter = tflm.MicroInterpreter(tflm.Model(relu_model()), tflm.AllOpsResolver(), bytearray(1 << 14), **options)
    interpreter.allocate_tensors()
    return interpreter


def answer(interpreter: tflm.MicroInterpreter) -> list[float]:
    """Return the model's results for -4 to 3."""
    interpreter.input(0).data[...] = np.arange(-4, 4, dtype=np.float32)[np.newaxis]
    interpreter.invoke()
    values: list[float] = interpreter.output(0).data[0].tolist()
    return values


RELU_OF_RANGE = [0, 0, 0, 0, 0, 1, 2, 3]
