"""Quantization without litert-quantizer: ranges, recipes, repairs, the choice of types, the estimate."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import float_models
import numpy as np
import pytest
from example_models import INT8_MODEL
from hypothesis import HealthCheck, assume, given, reject, settings
from hypothesis import strategies as st
from oracle import Oracle, OracleError
from test_outside import with_data_behind
from typer.testing import CliRunner

import tflm
from tflm.cli.app import app
from tflm.evaluation.samples import data_set
from tflm.firmware.device_check import check_device
from tflm.graph import Graph
from tflm.quantization import quantization as module
from tflm.quantization.quantization import PACKAGE
from tflm.quantization.quantized_model import estimated_int8_arena, int8_outline
from tflm.quantization.recipe import Range, Recipe, calibrated
from tflm.quantization.repairs import _requantized, finished, is_float, prepared, with_fitting_biases
from tflm.schema import (
    BuiltinOperator,
    CallOnceOptions,
    Conv2DOptions,
    DepthwiseConv2DOptions,
    FullyConnectedOptions,
    ModelBuilder,
    Padding,
    QuantizeOptions,
    ReshapeOptions,
    TensorType,
    quantized,
    read_model,
    write_model,
)
from tflm.schema.tables import METADATA_NAME, Buffer, encode_offsets
from tflm.testing.operators import OPERATORS

M4 = tflm.targets.by_name("cortex-m4")
LAYER = float_models.one_layer()


@pytest.fixture
def without_package(monkeypatch: pytest.MonkeyPatch) -> list[Recipe]:
    """A stand-in for litert-quantizer; the recipes that it is called with."""
    recipes: list[Recipe] = []

    def quantized_by(recipe: Recipe, model: tflm.Model, ranges: Any) -> bytes:
        recipes.append(recipe)
        return float_models.stand_in(recipe, model, ranges)

    monkeypatch.setattr(module, "require_quantizer", lambda: None)
    monkeypatch.setattr(module, "quantized_by", quantized_by)
    return recipes


# Ranges


def test_ranges_are_the_extremes_of_all_samples() -> None:
    found = calibrated(LAYER, data_set(np.array([[-3.0] * 8, [5.0] * 8, [1.0] * 8], np.float32)))
    assert found.samples == 3
    assert found.ranges[0] == Range(-3, 5)
    interpreter = tflm.MicroInterpreter(LAYER, tflm.AllOpsResolver(), bytearray(4096))
    interpreter.allocate_tensors()
    outputs = []
    for value in (-3, 5, 1):
        interpreter.input(0).data[...] = value
        interpreter.invoke()
        outputs.append(np.array(interpreter.output(0).data))
    [output] = list(LAYER.subgraphs[0].outputs or ())
    np.testing.assert_allclose(found.ranges[output], (np.min(outputs), np.max(outputs)), rtol=1e-6)


def test_constants_and_integers_have_no_range() -> None:
    assert set(calibrated(LAYER, data_set(np.ones((1, 8), np.float32))).ranges) == {0, 3}
    main = ModelBuilder().subgraph()
    x, number = main.input("x", (1, 8), TensorType.FLOAT32), main.tensor("number", (1, 8), TensorType.INT32)
    y = main.tensor("y", (1, 8), TensorType.FLOAT32)
    main.operator(BuiltinOperator.CAST, [x], [number])
    main.operator(BuiltinOperator.CAST, [number], [y])
    main.output(y)
    model = tflm.Model(main.builder.build())
    assert calibrated(model, data_set(np.full((1, 8), 1.5, np.float32))).ranges == {x: (1.5, 1.5), y: (1, 1)}


def test_the_limit_counts_samples() -> None:
    assert calibrated(LAYER, data_set(float_models.samples(9, 8)), limit=4).samples == 4


@pytest.mark.parametrize("limit", [None, 1, 8, 9, 10])
def test_progress_ends_at_the_samples_that_are_run(limit: int | None) -> None:
    told: list[tuple[int, int | None]] = []
    calibrated(LAYER, data_set(float_models.samples(9, 8)), limit, lambda done, total: told.append((done, total)))
    total = min(limit or 9, 9)
    assert told == [(done + 1, total) for done in range(total)]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        *(
            (np.array([[value, *[1] * 7]], np.float32), "not finite.*leave this sample out")
            for value in (np.nan, np.inf, -np.inf)
        ),
        (np.zeros((0, 8), np.float32), "no samples"),
        (np.zeros((2, 7), np.float32), "sample 0"),
    ],
)
def test_bad_samples_are_rejected(data: Any, reason: str) -> None:
    with pytest.raises(tflm.DataError, match=reason):
        calibrated(LAYER, data_set(data))


# Recipes


@pytest.mark.parametrize("weights", ["int8", "int4"])
@pytest.mark.parametrize("activations", ["int8", "int16"])
def test_no_rule_is_dynamic_and_only_convolutions_have_a_scale_for_each_channel(activations: str, weights: str) -> None:
    for rule in Recipe(activations, weights).rules():
        config = rule["op_config"]
        assert "activation_tensor_config" in config
        by_channel = config["weight_tensor_config"]["granularity"] == "CHANNELWISE"
        assert by_channel == ("CONV" in rule["operation"])
        assert config["activation_tensor_config"]["symmetric"] == (activations == "int16")
        assert config["weight_tensor_config"]["symmetric"]
        assert (config["compute_precision"], config["explicit_dequantize"]) == ("INTEGER", False)


@pytest.mark.parametrize(
    ("recipe", "rows"),
    [
        (Recipe(), ".*: * 8 8; CONV_2D 8 8; DEPTHWISE_CONV_2D 8 8; FULLY_CONNECTED 8 8; CONV_2D_TRANSPOSE 8 8"),
        (
            Recipe("int16", "int4", float_io=True, without_int4=frozenset({"CONV_2D"})),
            ".*: * 16 8; CONV_2D 16 8; DEPTHWISE_CONV_2D 16 8; FULLY_CONNECTED 16 4; CONV_2D_TRANSPOSE 16 8; "
            "INPUT none; OUTPUT none",
        ),
        (
            Recipe(
                weights="int4", in_float=frozenset({"TRANSPOSE_CONV", "SUB", "MUL", "ADD", "DIV"}), int16_tensors=("t",)
            ),
            ".*: * 8 8; CONV_2D 8 4; DEPTHWISE_CONV_2D 8 8; FULLY_CONNECTED 8 4; ADD none; DIV none; MUL none; "
            "SUB none; CONV_2D_TRANSPOSE none; "
            "^t(;|$): * 16 8; CONV_2D 16 8; DEPTHWISE_CONV_2D 16 8; CONV_2D_TRANSPOSE 16 8",
        ),
    ],
)
def test_the_last_rule_that_matches_has_the_types_of_an_operator(recipe: Recipe, rows: str) -> None:
    found, scope = [], ""
    for rule in recipe.rules():
        kind = "none" if rule["algorithm_key"] == "no_quantize" else rule["algorithm_key"]
        if kind == "min_max_uniform_quantize":
            config = rule["op_config"]
            tensors = config["activation_tensor_config"], config["weight_tensor_config"]
            assert tensors[0]["granularity"] == "TENSORWISE"
            assert {tensor["dtype"] for tensor in tensors} == {"INT"}
            kind = " ".join(str(tensor["num_bits"]) for tensor in tensors)
        found.append(f"{'' if rule['regex'] == scope else rule['regex'] + ': '}{rule['operation']} {kind}")
        scope = rule["regex"]
    assert "; ".join(found) == rows


def four_bit_layer(scales: int) -> tflm.Model:
    """A dense layer with 4-bit weights."""
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 8), TensorType.INT8, quantized(0.5))
    packed = np.full(16, 0x21, np.int8)
    weights = main.constant("w", packed, quantized([0.5] * scales), type=TensorType.INT4, shape=(4, 8))
    main.output(main.tensor("y", (1, 4), TensorType.INT8, quantized(0.5)))
    main.operator(BuiltinOperator.FULLY_CONNECTED, [x, weights, -1], [weights + 1], FullyConnectedOptions())
    return tflm.Model(builder.build())


def test_tflm_takes_4_bit_dense_weights_with_one_scale_alone(oracle: Oracle) -> None:
    inputs = [np.ones((1, 8), np.int8)]
    oracle.run(bytes(four_bit_layer(1).data), [inputs])
    with pytest.raises(OracleError):
        oracle.run(bytes(four_bit_layer(4).data), [inputs])
    assert any(finding.stops for finding in check_device(four_bit_layer(4), target=M4))


def test_rejected_4_bit_weights_become_8_bit_weights_and_then_float() -> None:
    recipe = Recipe(weights="int4").without("FULLY_CONNECTED")
    assert recipe is not None
    bits = {rule["operation"]: rule["op_config"]["weight_tensor_config"]["num_bits"] for rule in recipe.rules()}
    assert (bits["CONV_2D"], bits["FULLY_CONNECTED"]) == (4, 8)
    both = recipe.without("CONV_2D")
    assert both is not None
    assert both.without_int4 == {"CONV_2D", "FULLY_CONNECTED"}
    in_float = recipe.without("FULLY_CONNECTED")
    assert in_float is not None
    assert in_float.rules()[-1]["algorithm_key"] == "no_quantize"
    assert in_float.without("FULLY_CONNECTED") is None
    both_in_float = in_float.without("ADD")
    assert both_in_float is not None
    assert (both_in_float.in_float, both_in_float.without_int4) == ({"FULLY_CONNECTED", "ADD"}, {"FULLY_CONNECTED"})
    assert Recipe(weights="int4", in_float=frozenset({"CONV_2D"})).without("CONV_2D") is None


def test_a_recipe_names_operators_as_the_quantizer_does() -> None:
    assert "CONV_2D_TRANSPOSE" in {rule["operation"] for rule in Recipe().rules()}


def test_int16_is_for_the_operators_of_one_tensor_whatever_its_name() -> None:
    """The quantizer looks for the expression in the names of an operator's outputs, joined by semicolons."""
    usual, name = len(Recipe().rules()), "a+b/x[0].y"
    rules = Recipe(int16_tensors=(name,)).rules()[usual:]
    assert {rule["operation"] for rule in rules} >= {"*", "CONV_2D", "DEPTHWISE_CONV_2D"}
    for rule in rules:
        assert rule["op_config"]["activation_tensor_config"]["num_bits"] == 16
        assert all(re.search(rule["regex"], text) for text in (name, f"{name};z"))
        assert not any(re.search(rule["regex"], text) for text in (f"{name}1", f"z{name}", "aab/x0_y", "a+b/x0y"))


# Repairs before


def outputs_of(model: tflm.Model, values: np.ndarray[Any, Any]) -> list[Any]:
    interpreter = tflm.MicroInterpreter(model, tflm.AllOpsResolver(), bytearray(1 << 14))
    interpreter.allocate_tensors()
    interpreter.input(0).data[...] = values
    interpreter.invoke()
    return [interpreter.output(i).data.tolist() for i in range(len(model.subgraphs[0].outputs or ()))]


def quantized_inputs(model: tflm.Model, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Real values as a model takes them whose inputs have a scale of 1/64, or are floats."""
    is_float = model.subgraphs[0].tensors[0].type is TensorType.FLOAT32
    return values if is_float else np.clip(np.rint(values * 64), -128, 127).astype(np.int8)


def chain(*outputs: int) -> tflm.Model:
    """Dense layers one after another, some of which are outputs of the model."""
    builder = ModelBuilder()
    main = builder.subgraph()
    tensors = [main.input("x", (1, 8), TensorType.FLOAT32)]
    for width in (8, 5, 4, 2):
        tensors.append(float_models.dense(main, tensors[-1], width, {8: 5, 5: 4, 4: 2, 2: 3}[width]))
    main.output(*(tensors[i] for i in outputs))
    return tflm.Model(builder.build())


@pytest.mark.parametrize("float_io", [False, True])
@pytest.mark.parametrize("model", [LAYER, chain(4), chain(1, 4), chain(4, 2, 1), chain(0, 3)])
def test_a_model_computes_the_same_after_its_repairs(model: tflm.Model, float_io: bool) -> None:
    after = tflm.Model(prepared(model, float_io))
    assert outputs_of(after, float_models.samples(1, 8)) == outputs_of(model, float_models.samples(1, 8))
    before, main = model.subgraphs[0], after.subgraphs[0]
    assert tflm.verify(after.data) == []
    for now, then in zip((*main.inputs, *main.outputs), (*before.inputs, *before.outputs), strict=True):
        assert main.tensors[now].name == before.tensors[then].name
    written = {tensor for operator in main.operators for tensor in operator.outputs}
    read = {tensor for operator in main.operators for tensor in operator.inputs}
    assert not float_io or not read & written & {*main.outputs}


def test_a_signature_is_added_with_the_names_of_inputs_and_outputs() -> None:
    root = read_model(memoryview(prepared(chain(4, 2))))
    (signature,) = root.signature_defs or ()
    (main,) = root.subgraphs or ()
    assert [each.name for each in (*(signature.inputs or ()), *(signature.outputs or ()))] == [
        "x",
        "dense_2",
        "dense_5",
    ]
    assert [each.tensor_index for each in signature.inputs or ()] == [*(main.inputs or ())]
    assert [each.tensor_index for each in signature.outputs or ()] == [*(main.outputs or ())]
    assert (signature.signature_key, signature.subgraph_index) == ("serving_default", 0)


def test_a_signature_is_left_as_it_is() -> None:
    builder = float_models.classifier()
    builder.signature("mine", {"picture": 0}, {"class": 9})
    signatures = read_model(memoryview(prepared(tflm.Model(builder.build())))).signature_defs or ()
    assert [signature.signature_key for signature in signatures] == ["mine"]


def test_operator_codes_of_old_files_are_moved_to_the_newer_field() -> None:
    root = read_model(LAYER.data)
    for code in root.operator_codes or ():
        code.builtin_code = BuiltinOperator.ADD
    old = tflm.Model(write_model(root))
    assert old.operator_name((old.subgraphs[0].operators or [])[0]) == "FULLY_CONNECTED"
    (code,) = read_model(memoryview(prepared(old))).operator_codes or ()
    assert code.builtin_code is BuiltinOperator.FULLY_CONNECTED


def test_every_tensor_gets_a_name_of_its_own() -> None:
    root = read_model(LAYER.data)
    tensors = (root.subgraphs or [])[0].tensors or []
    for tensor, name in zip(tensors, ("same", "same", None, "same_0"), strict=True):
        tensor.name = name
    (main,) = read_model(memoryview(prepared(tflm.Model(write_model(root))))).subgraphs or ()
    assert [tensor.name for tensor in main.tensors or ()] == ["same_0_", "same_1", "tensor_2", "same_0"]


def test_a_memory_plan_of_the_float_model_is_dropped() -> None:
    builder = float_models.classifier()
    builder.metadata(METADATA_NAME, encode_offsets([-1] * 10))
    model = tflm.Model(prepared(tflm.Model(builder.build())))
    assert model.metadata(METADATA_NAME) is None


def test_operators_whose_outputs_are_never_read_are_dropped() -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 8), TensorType.FLOAT32)
    main.output(float_models.dense(main, x, 8, 4))
    float_models.dense(main, x, 8, 3)
    assert len(tflm.Model(prepared(tflm.Model(builder.build()))).subgraphs[0].operators or ()) == 1


def test_weights_stored_as_float16_become_float32() -> None:
    model = tflm.Model(prepared(float_models.half_layer()))
    assert [model.operator_name(each) for each in model.subgraphs[0].operators or ()] == ["FULLY_CONNECTED"]
    (operator,) = model.subgraphs[0].operators or ()
    weights = (model.subgraphs[0].tensors or [])[(operator.inputs or ())[1]]
    content = model.constant(weights)
    assert content is not None
    np.testing.assert_array_equal(np.frombuffer(content, np.float32), np.arange(32, dtype=np.float32))


@pytest.mark.parametrize("given", [2, 3], ids=["left out", "absent"])
def test_a_convolution_without_a_bias_gets_a_zero_for_each_channel(given: int) -> None:
    main = (builder := ModelBuilder()).subgraph()
    x, y = main.input("x", (1, 4, 5, 2), TensorType.FLOAT32), main.tensor("y", (1, 4, 5, 3), TensorType.FLOAT32)
    weights = main.constant("weights", np.ones((3, 1, 1, 2), np.float32))
    main.operator(BuiltinOperator.CONV_2D, [x, weights, -1][:given], [y], Conv2DOptions(stride_w=1, stride_h=1))
    main.output(y)
    model = tflm.Model(prepared(tflm.Model(builder.build())))
    (operator,) = model.subgraphs[0].operators or ()
    assert len(operator.inputs or ()) == 3
    bias = (model.subgraphs[0].tensors or [])[(operator.inputs or ())[2]]
    content = model.constant(bias)
    assert content is not None
    assert np.frombuffer(content, np.float32).tolist() == [0, 0, 0]


@pytest.mark.usefixtures("without_package")
@pytest.mark.parametrize("float_io", [False, True])
def test_no_operator_reads_a_float_output(float_io: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    first = float_models.dense(main, main.input("x", (1, 8), TensorType.FLOAT32), 8, 4)
    main.output(first, float_models.dense(main, first, 4, 2))
    graph = tflm.Model(prepared(tflm.Model(builder.build()), float_io)).subgraphs[0]
    read = {tensor for operator in graph.operators or () for tensor in operator.inputs or ()}
    assert bool(read & set(graph.outputs or ())) != float_io
    given: list[bytes] = []
    usual = module.quantized_by
    monkeypatch.setattr(module, "quantized_by", lambda *of: given.append(bytes(of[1].data)) or usual(*of))
    model = tflm.Model(builder.build())
    tflm.quantize(model, float_models.samples(2, 8), io="float" if float_io else "int")
    assert given == [prepared(model, float_io)]
    made = [(graph.tensors or [])[tensor] for operator in graph.operators or () for tensor in operator.outputs or ()]
    assert sorted(tuple(tensor.shape or ()) for tensor in made) == [(1, 2), (1, 4), *[(1, 4)] * float_io]


# Repairs after


@pytest.mark.parametrize(("operator", "dimension"), [("CONV_2D", 0), ("DEPTHWISE_CONV_2D", 3)])
def test_scales_of_an_outline_lie_along_channels(operator: str, dimension: int) -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    shape = (5, 3, 3, 4) if operator == "CONV_2D" else (1, 3, 3, 4)
    channels = shape[dimension]
    x, weights = main.input("x", (1, 3, 3, 4), TensorType.FLOAT32), main.constant("w", np.ones(shape, np.float32))
    bias, y = (
        main.constant("b", np.ones(channels, np.float32)),
        main.tensor("y", (1, 1, 1, channels), TensorType.FLOAT32),
    )
    windows: dict[str, Any] = {"padding": Padding.VALID, "stride_w": 1, "stride_h": 1}
    kinds = {
        "CONV_2D": Conv2DOptions(**windows),
        "DEPTHWISE_CONV_2D": DepthwiseConv2DOptions(**windows, depth_multiplier=1),
    }
    main.operator(BuiltinOperator[operator], [x, weights, bias], [y], kinds[operator])
    main.output(y)
    outline = tflm.Model(int8_outline(tflm.Model(builder.build())))
    found = (outline.subgraphs[0].tensors or [])[weights].quantization
    assert found is not None
    assert (len(found.scale or ()), found.quantized_dimension) == (channels, dimension)
    tflm.measure_arena(outline, tflm.AllOpsResolver())


@pytest.mark.parametrize("operands", [[], [-1]])
def test_a_layer_without_a_bias_has_an_outline(operands: list[int]) -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    x, weights = main.input("x", (1, 2), TensorType.FLOAT32), main.constant("w", np.ones((3, 2), np.float32))
    y = main.tensor("y", (1, 3), TensorType.FLOAT32)
    main.operator(BuiltinOperator.FULLY_CONNECTED, [x, weights, *operands], [y], FullyConnectedOptions())
    main.output(y)
    outline = tflm.Model(int8_outline(tflm.Model(builder.build())))
    assert [tensor.type for tensor in outline.subgraphs[0].tensors or ()] == [TensorType.INT8] * 3


@pytest.mark.parametrize("operands", [[], [-1]])
def test_a_layer_without_a_bias_is_left_as_it_is(operands: list[int]) -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 2), TensorType.INT8, quantized(0.5))
    weights = main.constant("w", np.ones((3, 2), np.int8), quantized(0.5))
    y = main.tensor("y", (1, 3), TensorType.INT8, quantized(0.5))
    main.operator(BuiltinOperator.FULLY_CONNECTED, [x, weights, *operands], [y], FullyConnectedOptions())
    main.output(y)
    before = tflm.Model(builder.build())
    (operator,) = tflm.Model(with_fitting_biases(bytes(before.data), before)).subgraphs[0].operators or ()
    assert operator.inputs == (x, weights, *operands)


@pytest.mark.parametrize("channels", [1, 4])
@pytest.mark.parametrize(
    ("type", "outputs", "columns"), [(TensorType.INT8, 4, 2), (TensorType.INT4, 4, 2), (TensorType.INT4, 3, 1)]
)
def test_biases_beyond_int32_get_weights_with_larger_scales(
    channels: int, type: TensorType, outputs: int, columns: int
) -> None:
    """The last output has weights of 0, and a bias that saturates at the scale of its weights."""
    floats = np.array([[1, 2], [-3, 4], [5, -6], [0, 0]], np.float32)[-outputs:, :columns]
    biases = np.array([0.5, -0.5, 1, -1000], np.float32)[-outputs:]
    tiny = np.float32(1e-9)
    scales = [*[1.0] * (outputs - 1), float(tiny)] if channels == 4 else [float(tiny)]

    def model(x: Any, weights: np.ndarray[Any, Any], biases: np.ndarray[Any, Any], **quantization: Any) -> tflm.Model:
        builder = ModelBuilder()
        main = builder.subgraph()
        bias = main.constant("b", biases, quantization.get("b"))
        if quantization["of"]:
            main.tensor("other", (1,), *x)  # the quantizer numbers tensors anew
        weights_index = main.constant("w", weights, quantization.get("w"), **quantization["of"])
        operands = [main.input("x", (1, columns), *x), weights_index, bias]
        y = main.tensor("y", (1, outputs), *x)
        main.output(y)
        main.operator(BuiltinOperator.FULLY_CONNECTED, operands, [y], FullyConnectedOptions())
        return tflm.Model(builder.build())

    before = model((TensorType.FLOAT32, None), floats, biases, of={})
    packed = np.zeros(-(-outputs * columns // (2 if type is TensorType.INT4 else 1)), np.int8)
    saturated = model(
        (TensorType.INT8, quantized(0.5)),
        packed,
        np.full(outputs, 2**31 - 1, np.int32),
        w=quantized(scales),
        b=quantized([0.5 * scale for scale in scales]),
        of={"type": type, "shape": (outputs, columns)},
    )
    after = tflm.Model(with_fitting_biases(bytes(saturated.data), before))
    tensors = after.subgraphs[0].tensors or []
    (operator,) = after.subgraphs[0].operators or ()
    assert tensors[(operator.outputs or ())[0]].name == "y"
    _, weights, bias = (tensors[i] for i in operator.inputs or ())
    assert (weights.type, bias.type) == (type, TensorType.INT32)
    assert weights.quantization is not None
    assert bias.quantization is not None
    found = np.frombuffer(after.constant(bias) or b"", np.int32) * np.array(bias.quantization.scale, np.float64)
    np.testing.assert_allclose(found, biases, rtol=1e-6, atol=1e-5)
    larger = np.array(weights.quantization.scale, np.float64)
    np.testing.assert_allclose(larger[-1], 1000 / (0.5 * 2**30), rtol=1e-6)
    np.testing.assert_array_equal(larger[:-1], scales[:-1])
    integers, limit = np.frombuffer(after.constant(weights) or b"", np.int8), 127
    if type is TensorType.INT4:
        integers, limit = np.stack([integers << 4 >> 4, integers >> 4], axis=1).reshape(-1), 7
    wanted = np.clip(np.rint(floats / larger[:, np.newaxis]), -limit, limit)
    np.testing.assert_array_equal(integers[: floats.size], wanted.reshape(-1))


@pytest.mark.parametrize("dimension", [0, 1, 3])
def test_scales_of_a_new_constant_lie_along_its_dimension(dimension: int) -> None:
    shape, scales = np.roll((3, 2, 1, 4), dimension), np.array([0.5, 1, 2], np.float32)
    integers = np.random.default_rng(0).integers(-127, 128, shape).astype(np.int8)
    parameters = quantized([1.0] * 3, 0, dimension)
    builder = ModelBuilder()
    main = builder.subgraph()
    main.output(main.constant("w", np.zeros(shape, np.int8), parameters))
    graph = Graph(tflm.Model(builder.build()))
    reals = integers * scales.reshape([3 if i == dimension else 1 for i in range(4)])
    made = _requantized(graph, 0, reals, scales)
    np.testing.assert_array_equal(graph.constant(made), integers)


def test_constants_outside_the_flatbuffer_are_moved_inside() -> None:
    outside = with_data_behind(INT8_MODEL.read_bytes())
    assert tflm.Model(outside).outside
    inside = tflm.Model(finished(outside))
    assert inside.outside == ()
    assert tflm.verify(inside.data) == []


def test_operators_get_the_versions_that_they_need() -> None:
    root = read_model(memoryview(INT8_MODEL.read_bytes()))
    for code in root.operator_codes or ():
        code.version = 1
    (code,) = read_model(memoryview(finished(write_model(root)))).operator_codes or ()
    assert code.version == 4


def test_quantize_operators_that_change_nothing_are_removed() -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    tensors = [main.input("x", (1, 8), TensorType.INT8, quantized(0.5))]
    tensors += [main.tensor(f"t{i}", (1, 8), TensorType.INT8, quantized(scale)) for i, scale in enumerate((0.5, 0.25))]
    for before, after in pairwise(tensors):
        main.operator(BuiltinOperator.QUANTIZE, [before], [after], QuantizeOptions())
    main.output(tensors[-1])
    model = tflm.Model(finished(builder.build()))
    assert len(model.subgraphs[0].operators or ()) == 1


# The whole


def test_a_model_is_quantized_and_measured(without_package: list[Recipe], tmp_path: Path) -> None:
    machine: Any = {"target": M4, "kernels": "cmsis-nn", "release": "2023-06-01"}
    found = tflm.quantize(LAYER, float_models.samples(5, 8), to="int16", io="float", **machine)
    assert without_package == [Recipe("int16", float_io=True)]
    assert found.accepted
    assert not replace(found, after=None).accepted
    assert found.samples == 5
    assert found.float_operators == ()
    measured = tflm.measure_arena(found.model, tflm.AllOpsResolver(), **machine)
    assert found.minimum_arena_bytes == measured.minimum_arena_bytes
    found.write(tmp_path / "int8.tflite")
    assert (tmp_path / "int8.tflite").read_bytes() == found.data


def test_labels_add_the_accuracy_of_both_models_and_the_effect_of_int16(without_package: list[Recipe]) -> None:
    model = tflm.Model(float_models.classifier().build())
    labelled = float_models.samples(8, 8, 8, 1), np.arange(8) % 4
    found = tflm.quantize(model, *labelled, limit=6)
    assert found.evaluation_before is not None
    assert found.evaluation is not None
    assert found.samples == found.evaluation_before.count == found.evaluation.count == 6
    for evaluated, expected in ((found.evaluation_before, model), (found.evaluation, found.model)):
        answers = [outputs_of(expected, sample)[0] for sample in quantized_inputs(expected, labelled[0][:6])]
        assert evaluated.accuracy == pytest.approx(np.mean(np.argmax(answers, axis=-1).reshape(-1) == labelled[1][:6]))
    assert (found.evaluation_before.difference, found.evaluation.difference is None) == (None, False)
    assert found.file_bytes_before == len(model.data)
    in_float = tflm.measure_arena(model, tflm.AllOpsResolver(), target=tflm.targets.by_name("cortex-m"))
    assert found.minimum_arena_bytes_before == in_float.minimum_arena_bytes
    losses = sorted((each for each in found.evaluation.signal if each.lost > 0), key=lambda each: -each.lost)
    assert found.worst() == losses[:5]
    assert [each.name for each in found.alternatives] == [
        *(f"int16 for {loss.operator}" for loss in losses[:3]),
        "int16 throughout",
    ]
    assert [recipe.int16_tensors for recipe in without_package] == [(), *((each.tensor,) for each in losses[:3]), ()]
    assert [recipe.activations == "int16" for recipe in without_package] == [*[False] * (1 + len(losses[:3])), True]
    cost = found.evaluation.accuracy, found.minimum_arena_bytes, len(found.data), ""
    assert all(each[1:] == cost for each in found.alternatives)  # the stand-in makes the same of every recipe


def test_an_alternative_that_the_library_rejects_has_the_reason(
    without_package: list[Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    (rejecting, *_) = [finding for finding in check_device(four_bit_layer(4), target=M4) if finding.stops]
    answers = iter([[], [rejecting], []])
    monkeypatch.setattr(module, "check_device", lambda *_, **__: next(answers))
    found = tflm.quantize(LAYER, float_models.samples(6, 8), labels=np.arange(6) % 4)
    reason = f"{rejecting.operator}: {rejecting.happens}"
    assert [each.reason for each in found.alternatives] == [reason, ""]
    assert found.alternatives[0][1:] == (None, None, None, reason)


def test_an_operator_that_the_library_rejects_is_tried_with_other_types(
    without_package: list[Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    rejecting = [finding for finding in check_device(four_bit_layer(4), target=M4) if finding.stops]
    answers = iter([rejecting, rejecting, [], *[rejecting] * 2])
    monkeypatch.setattr(module, "check_device", lambda *_, **__: next(answers))
    found = tflm.quantize(LAYER, float_models.samples(5, 8), np.arange(5) % 4, weights="int4")
    assert [len(each.without_int4) + len(each.in_float) for each in without_package] == [0, 1, 2, 2, 0]
    assert found.recipe.in_float == {"FULLY_CONNECTED"}
    assert without_package[-1] == Recipe("int16", "int4")
    assert all(each.reason for each in found.alternatives)


def test_the_reason_is_the_one_of_the_operator_that_stays_float(
    without_package: list[Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    rejecting = [finding for finding in check_device(four_bit_layer(4), target=M4) if finding.stops]
    answers = iter([rejecting, []])
    monkeypatch.setattr(module, "check_device", lambda *_, **__: next(answers))
    monkeypatch.setattr(module, "quantized_by", lambda recipe, model, ranges: bytes(model.data))
    found = tflm.quantize(tflm.Model(float_models.classifier().build()), float_models.samples(3, 8, 8, 1), to="int16")
    assert [each.operator for each in found.float_operators] == [
        "0 CONV_2D",
        "1 RESHAPE",
        "2 FULLY_CONNECTED",
        "3 SOFTMAX",
    ]
    reasons = [each.reason for each in found.float_operators]
    assert reasons[2] == "reference kernels reject it with int16 activations"
    assert reasons[3] == "litert-quantizer has no int16 SOFTMAX"


@pytest.mark.parametrize("operator", ["", "QUANTIZE", "DEQUANTIZE"])
def test_what_is_no_operator_of_the_model_is_not_tried_with_other_types(
    operator: str, without_package: list[Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    (rejecting, *_) = [finding for finding in check_device(four_bit_layer(4), target=M4) if finding.stops]
    monkeypatch.setattr(module, "check_device", lambda *_, **__: [replace(rejecting, operator=operator)])
    found = tflm.quantize(LAYER, float_models.samples(2, 8), weights="int4")
    assert without_package == [Recipe(weights="int4")]
    assert not found.accepted


def test_what_the_package_leaves_float_is_listed(
    without_package: list[Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "quantized_by", lambda recipe, model, ranges: bytes(model.data))
    found = tflm.quantize(float_models.recurrent(), float_models.samples(3, 4, 3))
    assert found.float_operators[0] == (
        "0 UNIDIRECTIONAL_SEQUENCE_LSTM",
        "litert-quantizer has no int8 UNIDIRECTIONAL_SEQUENCE_LSTM",
    )


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"to": "int32"}, "to is"), ({"weights": "int2"}, "weights is"), ({"io": "uint8"}, "io is")],
)
def test_unknown_types_are_rejected(options: dict[str, str], reason: str) -> None:
    with pytest.raises(tflm.ArgumentError, match=reason):
        tflm.quantize(LAYER, float_models.samples(1, 8), **options)


def test_a_quantized_model_is_rejected() -> None:
    with pytest.raises(tflm.ArgumentError, match="quantized already"):
        tflm.quantize(tflm.Model.from_file(INT8_MODEL), float_models.samples(1, 1))


def test_a_model_without_floats_is_rejected() -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    main.output(main.input("x", (1, 8), TensorType.INT32))
    with pytest.raises(tflm.ArgumentError, match="no float tensors"):
        tflm.quantize(tflm.Model(builder.build()), np.zeros((1, 8), np.int32))


def test_a_model_that_runs_another_subgraph_is_rejected() -> None:
    builder = ModelBuilder()
    main, once = builder.subgraph(), builder.subgraph("once")
    main.operator(BuiltinOperator.CALL_ONCE, [], [], CallOnceOptions(init_subgraph_index=1))
    main.output(float_models.dense(main, main.input("x", (1, 8), TensorType.FLOAT32), 8, 4))
    once.output(once.input("y", (1, 8), TensorType.FLOAT32))
    with pytest.raises(tflm.ArgumentError, match="CALL_ONCE runs another subgraph"):
        tflm.quantize(tflm.Model(builder.build()), float_models.samples(1, 8))


def test_integers_and_another_subgraph_do_not_keep_a_model_from_being_quantized(without_package: list[Recipe]) -> None:
    builder = ModelBuilder()
    main, other = builder.subgraph(), builder.subgraph("never runs")
    x, y = main.input("x", (1, 8), TensorType.FLOAT32), main.tensor("y", (8,), TensorType.FLOAT32)
    shape = main.constant("all in one", np.array([-1], np.int32))  # NaN as a float
    main.operator(BuiltinOperator.RESHAPE, [x, shape], [y], ReshapeOptions(new_shape=(-1,)))
    main.output(y)
    other.output(other.input("number", (1,), TensorType.INT32))
    model = tflm.Model(builder.build())
    assert is_float(model)
    found = tflm.quantize(model, np.array([[-3] * 8, [5] * 8], np.float32))
    assert (found.accepted, found.samples) == (True, 2)
    assert not is_float(found.model)


def test_constants_that_are_not_finite_are_rejected() -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    main.constant("lost", np.array([1, np.inf], np.float32))
    main.output(float_models.dense(main, main.input("x", (1, 8), TensorType.FLOAT32), 8, 4))
    with pytest.raises(tflm.ArgumentError, match="'lost' has values that are not finite"):
        tflm.quantize(tflm.Model(builder.build()), float_models.samples(1, 8))


def fake_package(monkeypatch: pytest.MonkeyPatch, quantize: Callable[..., Any]) -> None:
    """A package whose quantizer calls a function with the model, the rules and the statistics."""

    class Quantizer:
        def __init__(self, model: memoryview, rules: Any):
            self.model, self.rules = bytes(model), rules

        def quantize(self, statistics: Any, **options: bool) -> Any:
            return SimpleNamespace(quantized_model=bytearray(quantize(self.model, self.rules, statistics)))

    monkeypatch.setattr(module, "require_quantizer", lambda: SimpleNamespace(Quantizer=Quantizer))


def test_the_package_gets_the_model_the_rules_and_the_ranges_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Any] = []
    fake_package(monkeypatch, lambda *arguments: called.append(arguments) or b"made")
    recipe, ranges = Recipe("int8", "int8"), {0: Range(-3.0, 5.0), 3: Range(0.0, 2.0)}
    assert module.quantized_by(recipe, LAYER, ranges) == b"made"
    ((model, rules, statistics),) = called
    names = [(LAYER.subgraphs[0].tensors or [])[index].name for index in ranges]
    assert (model, rules) == (bytes(LAYER.data), recipe.rules())
    assert statistics == dict(zip(names, ({"min": -3, "max": 5}, {"min": 0, "max": 2}), strict=True))


@pytest.mark.parametrize("sign", [1, -1])
def test_ranges_are_refused_below_what_the_package_distinguishes_from_0(
    sign: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_package(monkeypatch, lambda *arguments: b"")
    least = module.SMALLEST_MAGNITUDE
    for magnitude in (0.0, least, 2 * least):
        assert module.quantized_by(Recipe(), LAYER, {0: Range(*sorted((0.0, sign * magnitude)))}) == b""
    with pytest.raises(tflm.DataError, match="tensor 'x' has values from"):
        module.quantized_by(Recipe(), LAYER, {0: Range(*sorted((0.0, sign * least * 0.99)))})


def test_a_failure_of_the_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_package(monkeypatch, lambda *arguments: 1 // 0)
    with pytest.raises(tflm.QuantizerError, match="litert-quantizer fails: ZeroDivisionError: "):
        module.quantized_by(Recipe(), LAYER, {})


def test_without_the_package_the_error_has_the_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "litert_quantizer", None)
    with pytest.raises(tflm.ArgumentError, match="pip install 'litert-quantizer"):
        tflm.quantize(LAYER, float_models.samples(1, 8))


def test_the_extra_has_the_tested_versions() -> None:
    assert f'quantize = ["{PACKAGE}"]' in (Path(__file__).parents[1] / "pyproject.toml").read_text()


# The command


def test_the_command_writes_the_model_and_reports_it(without_package: list[Recipe], tmp_path: Path) -> None:
    (tmp_path / "float.tflite").write_bytes(LAYER.data)
    np.savez(tmp_path / "data.npz", inputs=float_models.samples(8, 8), labels=np.arange(8) % 4)
    words = ["quantize", "float.tflite", "--inputs", "data.npz", "-o", "int8.tflite", "-t", "cortex-m4"]
    answer = CliRunner().invoke(app, [str(tmp_path / w) if "." in w else w for w in words])
    assert answer.exit_code == 0, answer.output
    assert tflm.Model.from_file(tmp_path / "int8.tflite").subgraphs[0].tensors
    before, after = ((tmp_path / f"{name}.tflite").stat().st_size for name in ("float", "int8"))
    change = f"{before:,} B, now {after:,} B ({after / before - 1:+.1%})"
    for text in ("int8 activations, int8 weights", "arena", "accuracy", "int16 throughout", change):
        assert text in answer.stdout


def test_a_rejected_model_is_not_written(
    without_package: list[Recipe], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rejecting = [finding for finding in check_device(four_bit_layer(4), target=M4) if finding.stops]
    monkeypatch.setattr(module, "check_device", lambda *_, **__: rejecting)
    (tmp_path / "float.tflite").write_bytes(LAYER.data)
    np.save(tmp_path / "data.npy", float_models.samples(8, 8))
    words = ["quantize", "float.tflite", "--inputs", "data.npy", "-o", "int8.tflite"]
    answer = CliRunner().invoke(app, [str(tmp_path / w) if "." in w else w for w in words])
    assert answer.exit_code == 1
    assert not (tmp_path / "int8.tflite").exists()


# The estimate


@pytest.mark.parametrize(
    ("before", "after"),
    [("hello_world_float", "hello_world_int8"), ("pretrainedResnet", "pretrainedResnet_quant")],
)
@pytest.mark.parametrize(
    ("part", "kernels"),
    [("cortex-m4", "cmsis-nn"), ("cortex-m55", "cmsis-nn"), ("esp32s3", "esp-nn"), ("cortex-m4", "arduino")],
)
def test_the_estimated_arena_is_that_of_the_vendors_int8_model(
    before: str, after: str, part: str, kernels: str, corpus: Path
) -> None:
    models = [tflm.Model.from_file(corpus / "models" / f"{name}.tflite") for name in (before, after)]
    target = tflm.targets.by_name(part)
    measured = tflm.measure_arena(models[1], tflm.AllOpsResolver(), target=target, kernels=kernels)
    assert estimated_int8_arena(models[0], target=target, kernels=kernels) == measured.minimum_arena_bytes


CONVOLUTIONS = {"CONV_2D": 0, "DEPTHWISE_CONV_2D": 3}
"""The dimension of the weights that has a scale for each index."""

ESTIMATED = (*CONVOLUTIONS, "SOFTMAX", "LOGISTIC", "AVERAGE_POOL_2D", "ADD", "MUL")


def in_both(data: bytes, dimension: int) -> tuple[bytes, bytes] | None:
    """A model with weights that have a scale for each index of a dimension, and with floats; None if it is not int8."""
    root = read_model(memoryview(data))
    main = (root.subgraphs or [])[0]
    tensors, (operator, *_) = main.tensors or [], main.operators or []
    if {tensor.type for tensor in tensors} not in ({TensorType.INT8}, {TensorType.INT8, TensorType.INT32}):
        return None
    if dimension >= 0:
        weights = tensors[operator.inputs[1]]
        weights.quantization = quantized([1 / 64] * weights.shape[dimension], 0, dimension)
    before = write_model(root)
    for tensor in tensors:
        tensor.type, tensor.quantization = TensorType.FLOAT32, None
        if tensor.buffer:
            (root.buffers or []).append(Buffer(data=bytes(4 * int(np.prod(tensor.shape)))))
            tensor.buffer = len(root.buffers or ()) - 1
    return before, write_model(root)


@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(st.data(), st.sampled_from(["cmsis-nn", "reference"]))
@pytest.mark.parametrize("name", ESTIMATED)
def test_the_estimated_arena_of_an_operator_in_float_is_that_of_the_operator_in_int8(
    name: str, data: st.DataObject, kernels: str
) -> None:
    """litert-quantizer adds zeros as the bias of a convolution without one."""
    both = in_both(data.draw(OPERATORS[name])[0], CONVOLUTIONS.get(name, -1))
    assume(both is not None)
    model, in_float = map(tflm.Model, both or ())
    try:
        measured = tflm.measure_arena(model, tflm.AllOpsResolver(), target=M4, kernels=kernels)
    except tflm.TflmError:
        reject()
    estimate = estimated_int8_arena(in_float, target=M4, kernels=kernels)
    inputs = (model.subgraphs[0].operators or [])[0].inputs
    if name in CONVOLUTIONS and inputs[2:] in ((), (-1,)):
        assert estimate is not None
        assert estimate >= measured.minimum_arena_bytes
    else:
        assert estimate == measured.minimum_arena_bytes
