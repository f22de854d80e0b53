"""Convolutions with few channels, whose tiles have several rows or columns: every output, next to the borders too."""

from __future__ import annotations

import numpy as np
import pytest

import tflm
from tflm.schema import (
    BuiltinOperator,
    Conv2DOptions,
    DepthwiseConv2DOptions,
    ModelBuilder,
    Padding,
    TensorType,
    quantized,
)

pytest.importorskip("numba", reason="needs the extra `fast`")

INT8 = TensorType.INT8


def layer(
    shape: tuple[int, int, int], taps: tuple[int, int], stride: int, padding: Padding, channels: int | None
) -> bytes:
    """A convolution of two images of int8 with random weights; by channel if `channels` is None."""
    rng = np.random.default_rng([*shape, *taps, stride, padding])
    height, width, depth = shape
    count, depth_of_weights = (depth, 1) if channels is None else (channels, depth)
    output = [
        -(-size // stride) if padding is Padding.SAME else (size - tap) // stride + 1
        for size, tap in zip((height, width), taps)
    ]
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (2, *shape), INT8, quantized(0.05, 3))
    weights = rng.integers(-127, 128, (count, *taps, depth_of_weights), np.int8)
    scales = quantized(list(rng.uniform(0.001, 0.02, count)), 0, 3 if channels is None else 0)
    if channels is None:
        weights = np.ascontiguousarray(weights.transpose(3, 1, 2, 0))
    operands = [
        x,
        main.constant("weights", weights, scales),
        main.constant("bias", rng.integers(-999, 1000, count, np.int32), quantized(0.001)),
    ]
    y = main.tensor("y", (2, *output, count), INT8, quantized(0.1, -20))
    if channels is None:
        by_channel = DepthwiseConv2DOptions(depth_multiplier=1, padding=padding, stride_h=stride, stride_w=stride)
        main.operator(BuiltinOperator.DEPTHWISE_CONV_2D, operands, [y], by_channel)
    else:
        options = Conv2DOptions(padding=padding, stride_h=stride, stride_w=stride)
        main.operator(BuiltinOperator.CONV_2D, operands, [y], options)
    main.output(y)
    return builder.build()


def outputs(model: bytes, *delegates: tflm.delegates.Delegate) -> np.ndarray:
    interpreter = tflm.MicroInterpreter(
        tflm.Model(model), tflm.AllOpsResolver(), bytearray(1 << 17), delegates=delegates
    )
    interpreter.allocate_tensors()
    data = interpreter.input(0).data
    data[...] = np.random.default_rng(1).integers(-128, 128, data.shape, np.int8)
    interpreter.invoke()
    return np.array(interpreter.output(0).data)


@pytest.mark.parametrize("channels", [4, 8, 16, 24])
@pytest.mark.parametrize("taps", [(3, 3), (2, 2), (4, 3)])
@pytest.mark.parametrize(("width", "padding"), [(16, Padding.SAME), (19, Padding.SAME), (23, Padding.VALID)])
def test_depthwise_layers(channels: int, taps: tuple[int, int], width: int, padding: Padding) -> None:
    model = layer((5, width, channels), taps, 1, padding, None)
    np.testing.assert_array_equal(outputs(model, tflm.delegates.Compiled()), outputs(model))


@pytest.mark.parametrize(
    ("channels", "depth", "taps", "stride", "width"),
    [(8, 3, 3, 2, 24), (8, 8, 1, 1, 30), (5, 4, 1, 1, 9), (24, 2, 1, 1, 10), (1, 1, 5, 1, 16), (2, 16, 1, 2, 15)],
)
def test_joined_windows(channels: int, depth: int, taps: int, stride: int, width: int) -> None:
    for padding in Padding:
        model = layer((6, width, depth), (taps, taps), stride, padding, channels)
        np.testing.assert_array_equal(outputs(model, tflm.delegates.Compiled()), outputs(model))
