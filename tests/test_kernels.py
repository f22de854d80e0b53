"""Every kernel against TFLM itself, over types, shapes and quantization."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from differential import assert_same_as_tflm
from hypothesis import given
from hypothesis import strategies as st
from oracle import INSTALLED, Oracle
from strategies import OPERATORS

from tflm.schema import ActivationFunctionType, BuiltinOperator, ModelBuilder, MulOptions, TensorType

pytestmark = pytest.mark.skipif(not INSTALLED, reason="tflite-micro is not installed (pip install 'pytflm[oracle]')")


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    oracle = Oracle()
    yield oracle
    oracle.close()


@pytest.mark.parametrize("operator", OPERATORS)
@given(data=st.data())
def test_kernel_gives_what_tflm_gives(oracle: Oracle, operator: str, data: st.DataObject) -> None:
    assert_same_as_tflm(oracle, *data.draw(OPERATORS[operator]))


def test_options_of_another_operator_say_nothing(oracle: Oracle) -> None:
    """TFLM looks for the operator's own options, and takes others for none: the sum is not clamped at 6."""
    builder = ModelBuilder()
    main = builder.subgraph()
    a, b = (main.input(name, (1, 3), TensorType.FLOAT32) for name in "ab")
    y = main.tensor("y", (1, 3), TensorType.FLOAT32)
    main.operator(BuiltinOperator.ADD, [a, b], [y], MulOptions(fused_activation_function=ActivationFunctionType.RELU6))
    main.output(y)
    values = np.array([[-4, 0.5, 9]], np.float32)
    assert_same_as_tflm(oracle, builder.build(), [[values, values]])
