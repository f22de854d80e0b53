"""The mode in which a thread rounds floats: kernels do not depend on it, and leave it as it is."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from differential import run
from models import Arrays, layer

import tflm
from tflm.compiler.calls import is_available
from tflm.schema import AddOptions, BuiltinOperator, DivOptions, TensorType

FE_TONEAREST = 0
FE_UPWARD = {"x86_64": 0x800, "aarch64": 0x400000}.get(platform.machine())

pytestmark = [
    pytest.mark.skipif(not is_available(), reason="needs the extra `fast`"),
    pytest.mark.skipif(platform.system() != "Linux" or FE_UPWARD is None, reason="sets the mode with libm"),
]


@contextmanager
def rounding_up() -> Iterator[None]:
    """Let this thread round up."""
    libm = ctypes.CDLL("libm.so.6")
    assert libm.fesetround(FE_UPWARD) == 0
    try:
        yield
    finally:
        libm.fesetround(FE_TONEAREST)


def rounds_up() -> bool:
    """Whether this thread rounds up."""
    return bool(np.add(np.float32(1), np.float32(2**-30), dtype=np.float32) > 1)


LARGEST = (1 << 31) - 1
DIVISORS = [-LARGEST - 1, -LARGEST, -65537, -1000, -3, -2, -1, 1, 2, 3, 999, 46341, LARGEST - 1, LARGEST]


def model_of(operator: str) -> tuple[bytes, Arrays]:
    """A model of that operator and its inputs, with whole vectors and some more elements."""
    if operator == "DIV":
        multiples = [(LARGEST - LARGEST % abs(y), y) for y in DIVISORS]
        pairs = [(sign * (x - offset), y) for x, y in multiples for offset in (0, 1) for sign in (-1, 1)]
        pairs += [(-LARGEST - 1, y) for y in DIVISORS]
        builder = tflm.ModelBuilder()
        main = builder.subgraph()
        numbers = [main.input(name, (len(pairs),), TensorType.INT32) for name in ("a", "b")]
        quotients = main.tensor("y", (len(pairs),), TensorType.INT32)
        main.operator(BuiltinOperator.DIV, numbers, [quotients], DivOptions())
        main.output(quotients)
        return builder.build(), list(np.array(pairs, np.int32).T)
    if operator != "ADD":
        model, (inputs,) = layer(operator, 9, 5, 35, TensorType.INT8)
        return model, inputs
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    scales = {"a": 0.3, "b": 0.7}
    inputs = [main.input(name, (70,), TensorType.INT8, tflm.quantized(scale)) for name, scale in scales.items()]
    y = main.tensor("y", (70,), TensorType.INT8, tflm.quantized(0.9))
    main.operator(BuiltinOperator.ADD, inputs, [y], AddOptions())
    main.output(y)
    rng = np.random.default_rng(1)
    return builder.build(), [rng.integers(-128, 128, 70).astype(np.int8) for _ in inputs]


@pytest.mark.parametrize("operator", ["ADD", "CONV_2D", "DEPTHWISE_CONV_2D", "DIV", "FULLY_CONNECTED"])
def test_results_and_the_mode_stay_as_they_are(operator: str) -> None:
    model, inputs = model_of(operator)
    ((expected,),) = run(model, [inputs], delegates=())
    resolver, delegates = tflm.AllOpsResolver(), [tflm.delegates.Compiled()]
    interpreter = tflm.MicroInterpreter(tflm.Model(model), resolver, bytearray(1 << 16), delegates=delegates)
    interpreter.allocate_tensors()
    for place, values in enumerate(inputs):
        interpreter.input(place).data[...] = values
    with rounding_up():
        assert rounds_up()
        interpreter.invoke()
        assert rounds_up()
    np.testing.assert_array_equal(interpreter.output(0).data, expected)
