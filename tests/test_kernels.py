"""Every kernel against TFLM itself, over types, shapes and quantization."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from differential import assert_close, assert_same_as_tflm, run
from hypothesis import given
from hypothesis import strategies as st
from oracle import Oracle

from tflm.schema import (
    ActivationFunctionType,
    BatchMatMulOptions,
    BuiltinOperator,
    Conv2DOptions,
    DepthwiseConv2DOptions,
    FullyConnectedOptions,
    LeakyReluOptions,
    ModelBuilder,
    MulOptions,
    TensorType,
    quantized,
)
from tflm.testing.operators import OPERATORS


@pytest.mark.runs(0.5)
@pytest.mark.parametrize("operator", OPERATORS)
@given(data=st.data())
def test_kernel_gives_what_tflm_gives(oracle: Oracle, operator: str, data: st.DataObject) -> None:
    """The default delegates and numpy alone have TFLM's results."""
    delegates = data.draw(st.sampled_from([None, ()]))
    assert_same_as_tflm(oracle, *data.draw(OPERATORS[operator]), delegates=delegates)


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


LAYERS: dict[str, tuple[tuple[int, ...], tuple[int, ...], Any]] = {
    "MUL": ((256,), (1,), MulOptions()),
    "PRELU": ((256,), (1,), None),
    "FULLY_CONNECTED": ((256, 1), (1, 1), FullyConnectedOptions()),
    "BATCH_MATMUL": ((256, 1), (1, 1), BatchMatMulOptions()),
    "CONV_2D": ((1, 16, 16, 1), (1, 1, 1, 1), Conv2DOptions(stride_w=1, stride_h=1)),
    "DEPTHWISE_CONV_2D": (
        (1, 16, 16, 1),
        (1, 1, 1, 1),
        DepthwiseConv2DOptions(stride_w=1, stride_h=1, depth_multiplier=1),
    ),
}


@pytest.mark.parametrize("exponent", [24, 30])
@pytest.mark.parametrize("operator", LAYERS)
def test_results_wrap_where_the_zero_point_is_added(oracle: Oracle, operator: str, exponent: int) -> None:
    """Products are close to -2^31 at the output's scale, because the product of the scales is slightly less than
    2^exponent."""
    x_shape, weights_shape, options = LAYERS[operator]
    step = 2.0**-23
    scales = 1 + 512 * step, 1 - 512 * step, 2.0**-exponent
    every = np.arange(-128, 128, dtype=np.int8).reshape(x_shape)
    for zero_point in (-128, 127):
        builder = ModelBuilder()
        main = builder.subgraph()
        x = main.input("x", x_shape, TensorType.INT8, quantized(scales[0]))
        weights = main.constant("weights", np.ones(weights_shape, np.int8), quantized([scales[1]]))
        y = main.tensor("y", x_shape, TensorType.INT8, quantized(scales[2], zero_point))
        main.operator(BuiltinOperator[operator], [x, weights], [y], options)
        main.output(y)
        expected = oracle.run(builder.build(), [[every]])
        for delegates in (None, ()):
            assert_close(run(builder.build(), [[every]], delegates=delegates)[0], expected[0])
