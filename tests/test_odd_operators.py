"""Operators as no converter writes them, which TFLM runs all the same: it checks less, and the results are defined."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from differential import UNWRITTEN, assert_close, run
from models import FLOAT32, INT8, INT16, Case
from oracle import Oracle

import tflm
from tflm.schema import (
    ELEMENT_TYPES,
    ActivationFunctionType,
    BuiltinOperator,
    Conv2DOptions,
    DepthwiseConv2DOptions,
    MirrorPadMode,
    MirrorPadOptions,
    Padding,
    QuantizationParameters,
    SplitOptions,
    SplitVOptions,
    SVDFOptions,
    TensorType,
    TransposeConvOptions,
    quantized,
)
from tflm.testing.drawing import Output, SingleOperator

Input = tuple[npt.ArrayLike, TensorType, "QuantizationParameters | None"]

NUMBERS = [-100, -3, 0, 2, 5, 127]
MATRIX = np.arange(12).reshape(3, 4)
IMAGE = np.arange(36).reshape(1, 6, 6, 1)
WEIGHTS = np.arange(9).reshape(1, 3, 3, 1)


def case(
    operator: BuiltinOperator, input: Input, constants: list[Any], outputs: list[Output], options: Any = None
) -> Case:
    """A model of an operator with one input that changes, behind or before its constants."""
    model = SingleOperator()
    elements, type, parameters = input
    before = constants if operator == BuiltinOperator.SPLIT else []
    for constant in before:
        model.constant(constant)
    model.input(type, [np.asarray(elements, ELEMENT_TYPES[type].dtype)], parameters)
    for constant in [] if before else constants:
        model.constant(constant)
    return model.case(operator, outputs, options)


def without_scale(operator: BuiltinOperator, type: TensorType, output: QuantizationParameters | None) -> Case:
    return case(operator, (NUMBERS, type, None), [], [((6,), type, output)])


def comparison(operator: BuiltinOperator, type: TensorType, result: TensorType) -> Case:
    model = SingleOperator()
    for elements in (NUMBERS, NUMBERS[::-1]):
        model.input(type, [np.array(elements, ELEMENT_TYPES[type].dtype)], quantized(0.5) if type == INT8 else None)
    return model.case(operator, [((6,), result, None)])


def convolution(operator: BuiltinOperator, padding: Padding, stride: int, dilations: tuple[int, int]) -> Case:
    kind = Conv2DOptions if operator == BuiltinOperator.CONV_2D else DepthwiseConv2DOptions
    options = kind(padding=padding, stride_w=stride, stride_h=stride)
    options.dilation_h_factor, options.dilation_w_factor = dilations
    if isinstance(options, DepthwiseConv2DOptions):
        options.depth_multiplier = 1
    covered = [1 if padding == Padding.SAME else 2 * dilation + 1 for dilation in dilations]
    rows, columns = ((6 + stride - size) // stride for size in covered)
    constants = [WEIGHTS.astype(np.float32), np.zeros(1, np.float32)]
    return case(operator, (IMAGE, FLOAT32, None), constants, [((1, rows, columns, 1), FLOAT32, None)], options)


def split(operator: BuiltinOperator, shapes: list[tuple[int, ...]]) -> Case:
    axis, outputs = np.array(0, np.int32), [(shape, FLOAT32, None) for shape in shapes]
    if operator == BuiltinOperator.SPLIT:
        return case(operator, (MATRIX, FLOAT32, None), [axis], outputs, SplitOptions(num_splits=3))
    sizes = np.array([shape[0] for shape in shapes], np.int32)
    return case(operator, (MATRIX, FLOAT32, None), [sizes, axis], outputs, SplitVOptions(num_splits=2))


def svdf(activation: ActivationFunctionType, value: float) -> Case:
    model = SingleOperator()
    model.input(FLOAT32, [np.full((1, 2), value, np.float32)])
    for constant in (np.eye(2), np.ones((2, 1)), np.zeros(2)):
        model.constant(constant.astype(np.float32))
    state = model.main.tensor("state", (1, 2), FLOAT32)
    assert model.main.table.tensors
    model.main.table.tensors[state].is_variable = True
    model.operands.append(state)
    options = SVDFOptions(rank=1, fused_activation_function=activation)
    return model.case(BuiltinOperator.SVDF, [((1, 2), FLOAT32, None)], options)


def transpose_convolution(taps: int, stride: int, value: float, activation: ActivationFunctionType) -> Case:
    """Infinity among the inputs: TFLM adds it to the outputs that the filter reaches, and to no others."""
    model = SingleOperator()
    size = 3 * stride + taps
    x, weights = np.arange(32.0).reshape(1, 4, 4, 2), np.arange(2 * taps * taps * 2.0) - 3
    x[0, 1, 2, 1] = value
    model.constant(np.array([1, size, size, 2], np.int32))
    model.constant(weights.reshape(2, taps, taps, 2).astype(np.float32))
    model.input(FLOAT32, [x.astype(np.float32)])
    model.constant(np.array([0.5, -1], np.float32))
    options = TransposeConvOptions(
        padding=Padding.VALID, stride_w=stride, stride_h=stride, fused_activation_function=activation
    )
    return model.case(BuiltinOperator.TRANSPOSE_CONV, [((1, size, size, 2), FLOAT32, None)], options)


CASES: dict[str, Case] = {
    **{
        f"TRANSPOSE_CONV-{taps}-{stride}-{value}-{activation.name}": transpose_convolution(
            taps, stride, value, activation
        )
        for (taps, stride), value, activation in itertools.product(
            [(1, 2), (2, 3), (3, 2), (2, 2)],
            (np.inf, -np.inf, np.nan),
            (ActivationFunctionType.NONE, ActivationFunctionType.RELU6),
        )
    },
    "LOGISTIC": without_scale(BuiltinOperator.LOGISTIC, INT8, quantized(1 / 256, -128)),
    "TANH": without_scale(BuiltinOperator.TANH, INT8, None),
    **{f"RELU6-{type.name}": without_scale(BuiltinOperator.RELU6, type, None) for type in (INT8, INT16)},
    **{
        f"{operator}-{type.name}-{result.name}": comparison(BuiltinOperator[operator], type, result)
        for operator, type, result in itertools.product(
            ("EQUAL", "NOT_EQUAL", "LESS"), (INT8, FLOAT32), (INT8, TensorType.UINT8)
        )
    },
    **{
        f"{operator}-{padding.name}-{stride}-{dilations}": convolution(
            BuiltinOperator[operator], padding, stride, dilations
        )
        for operator, padding, stride, dilations in itertools.product(
            ("CONV_2D", "DEPTHWISE_CONV_2D"), Padding, (1, 2), ((0, 0), (0, 1), (2, 0))
        )
    },
    "SPLIT": split(BuiltinOperator.SPLIT, [(1, 1, 4)] * 3),
    "SPLIT_V": split(BuiltinOperator.SPLIT_V, [(1, 1, 4), (2, 4, 1)]),
    "TRANSPOSE": case(
        BuiltinOperator.TRANSPOSE,
        (MATRIX, FLOAT32, None),
        [np.array([1, 0], np.int32)],
        [((4, 3, 1), FLOAT32, None)],
    ),
    **{
        f"SVDF-{activation.name}-{value}": svdf(activation, value)
        for activation, value in itertools.product(
            [
                ActivationFunctionType.NONE,
                ActivationFunctionType.RELU,
                ActivationFunctionType.RELU_N1_TO_1,
                ActivationFunctionType.RELU6,
            ],
            (np.nan, np.inf),
        )
    },
}


@pytest.mark.parametrize("delegates", [None, ()], ids=["engine", "numpy"])
@pytest.mark.parametrize("name", CASES)
def test_what_tflm_runs_runs_here(oracle: Oracle, name: str, delegates: Any) -> None:
    model, invocations = CASES[name]
    (expected,) = oracle.run(model, invocations)
    assert_close(run(model, invocations, delegates=delegates)[0], expected)


@pytest.mark.parametrize("type", [FLOAT32, INT8])
def test_log_softmax_of_a_scalar_writes_nothing(oracle: Oracle, type: TensorType) -> None:
    """TFLM leaves the output as it is."""
    parameters = (quantized(0.5), quantized(1 / 16, 127)) if type == INT8 else (None, None)
    model, invocations = case(BuiltinOperator.LOG_SOFTMAX, (5, type, parameters[0]), [], [((), type, parameters[1])])
    oracle.run(model, invocations)
    dtype = ELEMENT_TYPES[type].dtype
    assert run(model, invocations) == [[np.frombuffer(UNWRITTEN * dtype.itemsize, dtype)]]


@pytest.mark.parametrize("shapes", [[(1, 1, 4), (1, 2, 4)], [(1, 4), (1, 4)], [(1, 5), (2, 4)]], ids=str)
def test_outputs_that_tflm_would_write_beyond_or_in_part_are_refused(shapes: list[tuple[int, ...]]) -> None:
    model, invocations = split(BuiltinOperator.SPLIT_V, shapes)
    with pytest.raises(tflm.TflmError):
        run(model, invocations)


def test_mirrored_borders_are_compiled_to_c() -> None:
    model = SingleOperator()
    model.input(FLOAT32, [np.ones((3, 4), np.float32)])
    model.constant(np.array([[2, 1], [1, 2]], np.int32))
    data, _ = model.case(BuiltinOperator.MIRROR_PAD, [((6, 7), FLOAT32, None)], MirrorPadOptions())
    assert "model.c" in tflm.compile_model(tflm.Model(data)).files


@pytest.mark.parametrize("mode", MirrorPadMode)
@pytest.mark.parametrize("is_constant", [False, True])
def test_mirrored_borders_of_other_sizes_are_tflms(oracle: Oracle, mode: MirrorPadMode, is_constant: bool) -> None:
    """TFLM reads the padding before a dimension, fills whatever the output has, and checks no place that it reads."""
    rng = np.random.default_rng(is_constant)
    ran = 0
    for _ in range(40):
        rank = int(rng.integers(1, 4))
        shape, padded = (tuple(rng.integers(1, size, rank).tolist()) for size in (5, 9))
        model = SingleOperator()
        model.input(INT8, [rng.integers(-128, 128, shape, np.int8)], quantized(0.5))
        paddings = rng.integers(-2, 4, (rank, 2)).astype(rng.choice([np.int32, np.int64]))
        if is_constant:
            model.constant(paddings)
        else:
            model.input(TensorType.INT64 if paddings.dtype == np.int64 else TensorType.INT32, [paddings])
        data, inputs = model.case(
            BuiltinOperator.MIRROR_PAD, [(padded, INT8, quantized(0.5))], MirrorPadOptions(mode=mode)
        )
        try:
            outputs = run(data, inputs)
        except tflm.OperatorError:
            continue
        ran += 1
        assert_close(outputs[0], oracle.run(data, inputs)[0])
        assert "mirror_pad_0_source" not in tflm.compile_model(tflm.Model(data)).files["model.c"], (
            "copied as a constant"
        )
    assert ran > 20
