"""Every kernel against TFLM itself, over types, shapes and quantization."""

from __future__ import annotations

import numpy as np
import pytest
from differential import assert_same_as_tflm, run
from hypothesis import given
from hypothesis import strategies as st
from oracle import Oracle
from strategies import OPERATORS

from tflm.schema import (
    ActivationFunctionType,
    BuiltinOperator,
    LeakyReluOptions,
    ModelBuilder,
    MulOptions,
    TensorType,
    quantized,
)


@pytest.mark.parametrize("operator", OPERATORS)
@given(data=st.data())
def test_kernel_gives_what_tflm_gives(oracle: Oracle, operator: str, data: st.DataObject) -> None:
    assert_same_as_tflm(oracle, *data.draw(OPERATORS[operator]))


def test_a_negative_slope_that_rounds_to_one_has_the_wrong_sign(oracle: Oracle) -> None:
    """TFLM takes the sign off a significand of -2^31, which stays what it is."""
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 256), TensorType.INT8, quantized(1.5193523168563843))
    y = main.tensor("y", (1, 256), TensorType.INT8, quantized(1.8162567615509033))
    main.operator(BuiltinOperator.LEAKY_RELU, [x], [y], LeakyReluOptions(alpha=-1.1954151391983032))
    main.output(y)
    every = np.arange(-128, 128, dtype=np.int8).reshape(1, 256)
    assert_same_as_tflm(oracle, builder.build(), [[every]])
    ((values,),) = run(builder.build(), [[every]])
    np.testing.assert_array_equal(values[:, :128], every[:, :128])


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
