"""Models that TFLM's own compression tool made: the answers and the arena of TFLM, even where its tables do not fit."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from differential import assert_close, assert_same_as_tflm, measured_figures, printed_figures, run
from models import INT8, INT16
from oracle import PYTHON, Oracle
from tensor_compressor import Request, compressed_by_tflm

import tflm
from tflm.libraries import Effect
from tflm.rewriting.verification import random_inputs
from tflm.schema import BuiltinOperator, MirrorPadMode, ModelBuilder, Padding, TensorType
from tflm.schema.options import (
    ConcatenationOptions,
    Conv2DOptions,
    DepthwiseConv2DOptions,
    FullyConnectedOptions,
    MirrorPadOptions,
    TransposeConvOptions,
    VarHandleOptions,
)

CHANNELS = 6
WINDOWS: dict[str, Any] = {"padding": Padding.VALID, "stride_w": 1, "stride_h": 1}
LAYERS: dict[BuiltinOperator, tuple[Any, tuple[int, ...], tuple[int, ...], tuple[int, ...], int]] = {
    BuiltinOperator.FULLY_CONNECTED: (FullyConnectedOptions(), (1, 12), (CHANNELS, 12), (1, CHANNELS), 0),
    BuiltinOperator.CONV_2D: (Conv2DOptions(**WINDOWS), (1, 5, 5, 3), (CHANNELS, 3, 3, 3), (1, 3, 3, CHANNELS), 0),
    BuiltinOperator.DEPTHWISE_CONV_2D: (
        DepthwiseConv2DOptions(depth_multiplier=1, **WINDOWS),
        (1, 5, 5, CHANNELS),
        (1, 3, 3, CHANNELS),
        (1, 3, 3, CHANNELS),
        3,
    ),
}
"""Options, shapes of input, weights and output, and the dimension of the channels."""

WEIGHTS, BIAS = 1, 2


def slices_of_few_values(rng: np.random.Generator, shape: tuple[int, ...], axis: int | None, count: int) -> Any:
    """Weights with at most `count` different values, other ones in each slice along `axis`."""
    weights = np.empty(shape, np.int8)
    for part in [weights] if axis is None else np.moveaxis(weights, axis, 0):
        part[...] = rng.choice(rng.choice(np.arange(-127, 128), count, replace=False), part.shape)
    return weights


def layer(operator: BuiltinOperator, type: TensorType, by_channel: bool, axis: int | None, bits: int) -> bytes:
    """A layer with weights of few values, quantized as a whole or by channel."""
    options, x_shape, shape, y_shape, dimension = LAYERS[operator]
    rng = np.random.default_rng(bits)
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", x_shape, type, tflm.quantized(0.5, 0 if type == INT16 else 3))
    scales = rng.uniform(0.005, 0.02, CHANNELS if by_channel else 1)
    weights = main.constant(
        "w", slices_of_few_values(rng, shape, axis, 2**bits), tflm.quantized(scales.tolist(), 0, dimension * by_channel)
    )
    bias = rng.choice(rng.integers(-100, 100, 4), CHANNELS).astype(np.int64 if type == INT16 else np.int32)
    bias_index = main.constant("b", bias, tflm.quantized((0.5 * scales).tolist(), 0))
    y = main.tensor("y", y_shape, type, tflm.quantized(0.5, 0))
    main.operator(operator, [x, weights, bias_index], [y], options)
    main.output(y)
    assert (weights, bias_index) == (WEIGHTS, BIAS)
    return builder.build()


def axes(operator: BuiltinOperator) -> tuple[int | None, ...]:
    """The ways in which the tool makes tables for the weights."""
    return None, 0, len(LAYERS[operator][2]) - 1


@pytest.mark.parametrize("operator", LAYERS)
@pytest.mark.parametrize("by_channel", [False, True])
@pytest.mark.parametrize("widths", [(1, 3, 7), pytest.param((2, 4, 5, 6), marks=pytest.mark.long)])
def test_compressed_layers_are_tflms(
    oracle: Oracle, operator: BuiltinOperator, by_channel: bool, widths: tuple[int, ...]
) -> None:
    """With tables along another dimension than the scales, TFLM reads values of other slices, or behind all tables."""
    cases = list(itertools.product((INT8, INT16), axes(operator), widths))
    plain = [layer(operator, type, by_channel, axis, bits) for type, axis, bits in cases]
    requests: list[Request] = [(model, [(WEIGHTS, bits, axis)]) for model, (_, axis, bits) in zip(plain, cases)]
    differs = set()
    for before, model, (_, axis, _) in zip(plain, compressed_by_tflm(PYTHON, requests), cases, strict=True):
        inputs = random_inputs(tflm.Model(before), np.random.default_rng(5))
        assert_same_as_tflm(oracle, model, [inputs])
        assert printed_figures(oracle.allocations(model)) == measured_figures(model)
        fits = has_tables_that_fit(operator, by_channel, axis)
        found = tflm.check_device(tflm.Model(model), target=tflm.targets.CORTEX_M)
        assert [(finding.effect, finding.shown) for finding in found] == ([] if fits else [(Effect.DIFFERS, True)])
        if not np.array_equal(run(model, [inputs])[0][0], run(before, [inputs])[0][0]):
            differs.add(axis)
    assert differs == {axis for axis in axes(operator) if not has_tables_that_fit(operator, by_channel, axis)}


def has_tables_that_fit(operator: BuiltinOperator, by_channel: bool, axis: int | None) -> bool:
    """Whether there is a table for each scale."""
    _, _, shape, _, dimension = LAYERS[operator]
    return axis == dimension if by_channel else axis is None or shape[axis] == 1


@pytest.mark.parametrize("operator", LAYERS)
@pytest.mark.parametrize("type", [INT8, INT16])
def test_biases_are_compressed_like_weights(oracle: Oracle, operator: BuiltinOperator, type: TensorType) -> None:
    plain = [layer(operator, type, by_channel, None, 3) for by_channel in (False, True)]
    (whole, by_channel) = compressed_by_tflm(
        PYTHON, [(plain[0], [(WEIGHTS, 3, None), (BIAS, 2, None)]), (plain[1], [(BIAS, 4, 0)])]
    )
    for before, model in zip(plain, (whole, by_channel)):
        inputs = random_inputs(tflm.Model(before), np.random.default_rng(5))
        assert_same_as_tflm(oracle, model, [inputs])
        assert_close(run(model, [inputs])[0], run(before, [inputs])[0])
        assert printed_figures(oracle.allocations(model)) == measured_figures(model)
        assert tflm.check_device(tflm.Model(model), target=tflm.targets.CORTEX_M) == []
        assert tflm.verify(model) == []


def reader_of(operator: BuiltinOperator, values: Any) -> tuple[bytes, int]:
    """A model whose operator reads a constant that is not the weights of a layer, and the constant's index."""
    builder = ModelBuilder()
    main = builder.subgraph()
    half = tflm.quantized(0.5)
    x = main.input("x", values.shape, INT8, half)
    constant = main.constant("constant", values, half)
    y = main.tensor("y", values.shape, INT8, half)
    if operator == BuiltinOperator.TRANSPOSE_CONV:
        shape = main.constant("shape", np.array(values.shape, np.int32))
        main.operator(operator, [shape, constant, x], [y], TransposeConvOptions(**WINDOWS | {"padding": Padding.SAME}))
    elif operator == BuiltinOperator.ASSIGN_VARIABLE:
        handle = main.tensor("handle", (), TensorType.RESOURCE)
        main.operator(BuiltinOperator.VAR_HANDLE, [], [handle], VarHandleOptions(container="", shared_name="kept"))
        main.operator(operator, [handle, constant], [])
        main.operator(BuiltinOperator.READ_VARIABLE, [handle], [read := main.tensor("r", values.shape, INT8, half)])
        main.operator(BuiltinOperator.ADD, [x, read], [y])
    elif operator == BuiltinOperator.CONCATENATION:
        y = main.tensor("y2", (2, *values.shape[1:]), INT8, half)
        main.operator(operator, [x, constant], [y], ConcatenationOptions(axis=0))
    elif operator == BuiltinOperator.GATHER:
        indices = main.constant("indices", np.zeros(1, np.int32))
        main.operator(operator, [constant, indices], [z := main.tensor("z", values.shape, INT8, half)])
        main.operator(BuiltinOperator.ADD, [x, z], [y])
    else:
        main.operator(operator, [x, constant], [y])
    main.output(y)
    return builder.build(), constant


READERS = (
    "TRANSPOSE_CONV",
    "CONCATENATION",
    "ASSIGN_VARIABLE",
    "ADD",
    "MUL",
    "PRELU",
    "GATHER",
    "BATCH_MATMUL",
    "MAXIMUM",
)


@pytest.mark.parametrize("name", READERS)
def test_constants_of_all_operators_are_decoded_as_in_tflm(oracle: Oracle, name: str) -> None:
    shape = (1, 4, 4, 1) if name == "TRANSPOSE_CONV" else (1, 3, 3)
    cases = list(itertools.product((None, 0, len(shape) - 1), (1, 3, 6)))
    plain = []
    for axis, bits in cases:
        values = slices_of_few_values(np.random.default_rng(bits), shape, axis, 2**bits)
        plain.append(reader_of(BuiltinOperator[name], values))
    requests: list[Request] = [(model, [(i, bits, axis)]) for (model, i), (axis, bits) in zip(plain, cases)]
    for (before, _), model in zip(plain, compressed_by_tflm(PYTHON, requests), strict=True):
        inputs = random_inputs(tflm.Model(before), np.random.default_rng(5))
        assert_same_as_tflm(oracle, model, [inputs, inputs])
        assert printed_figures(oracle.allocations(model)) == measured_figures(model)


def test_paddings_are_decoded_as_in_tflm(oracle: Oracle) -> None:
    """Paddings read from tables that do not fit lead to other places than the shapes say."""
    shape, rng = (4, 5, 6), np.random.default_rng(5)
    cases = list(itertools.product(MirrorPadMode, (None, 0, 1), (1, 2)))
    requests: list[Request] = []
    for mode, axis, bits in cases:
        paddings = rng.permutation([2, 0, 0, 1, 0, 2 // bits]).reshape(3, 2).astype(np.int32) // (3 - bits)
        builder = ModelBuilder()
        main = builder.subgraph()
        x, constant = main.input("x", shape, INT8, tflm.quantized(0.5)), main.constant("paddings", paddings)
        padded = tuple((shape + paddings.sum(1)).tolist())
        main.output(y := main.tensor("y", padded, INT8, tflm.quantized(0.5)))
        main.operator(BuiltinOperator.MIRROR_PAD, [x, constant], [y], MirrorPadOptions(mode=mode))
        requests.append((builder.build(), [(constant, bits, axis)]))
    differ = 0
    for (before, _), model in zip(requests, compressed_by_tflm(PYTHON, requests), strict=True):
        inputs = random_inputs(tflm.Model(before), rng)
        assert_same_as_tflm(oracle, model, [inputs])
        assert printed_figures(oracle.allocations(model)) == measured_figures(model)
        differ += not np.array_equal(run(model, [inputs])[0][0], run(before, [inputs])[0][0])
    assert differ > 0


def test_values_behind_the_tables_end_with_the_model() -> None:
    """After the end of the model, TFLM reads arbitrary bytes of the flash, so its results are unknown."""
    builder = ModelBuilder()
    main = builder.subgraph()
    codes = main.constant("codes", np.full(2, 255, np.uint8))
    head = np.zeros(16 + 2, np.uint8)
    head[[1, 4, 5, 6]] = 1, 1, 0xF1, 255
    tables = main.constant("tables", head)
    main.operator("TFLM_DECODE", [codes, tables], [y := main.tensor("y", (16,), INT8, tflm.quantized([0.5] * 16, 0))])
    main.output(y)
    with pytest.raises(tflm.OperatorError, match="'codes': has an index beyond the 2 values of the table"):
        run(builder.build(), [[]])
