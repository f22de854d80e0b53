"""Float models quantized with litert-quantizer: what TFLM, its kernel libraries and its arena make of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import float_models
import numpy as np
import pytest
from differential import assert_same_as_tflm
from oracle import Oracle

import tflm
from tflm.evaluation.samples import data_set
from tflm.firmware.device_check import check_device
from tflm.quantization.quantization import quantized_by
from tflm.quantization.recipe import Recipe, calibrated
from tflm.quantization.repairs import prepared
from tflm.schema import BuiltinOperator, ModelBuilder, TensorType, read_model, write_model

pytest.importorskip(
    "litert_quantizer",
    reason="litert-quantizer is not installed (it is 313 MB: `make quantizer` installs it and runs these tests)",
)

PLACES = [("cortex-m4", "cmsis-nn"), ("cortex-m55", "cmsis-nn"), ("esp32s3", "esp-nn"), ("cortex-m4", "arduino")]
"""Parts and kernel libraries."""

VENDORS = {"hello_world_float": "hello_world_int8", "pretrainedResnet": "pretrainedResnet_quant"}
"""Float models, and the int8 models that their authors made of them."""

SAMPLES = {
    "hello_world_float": np.linspace(0, 2 * np.pi, 200, dtype=np.float32).reshape(200, 1),
    "pretrainedResnet": np.random.default_rng(1).uniform(0, 255, (20, 32, 32, 3)).astype(np.float32),
}

TYPES: list[dict[str, Any]] = [
    {},
    {"to": "int16"},
    {"weights": "int4"},
    {"to": "int16", "weights": "int4"},
    {"io": "float"},
]


def random_inputs(model: tflm.Model, count: int) -> list[list[np.ndarray[Any, Any]]]:
    """Inputs over the whole range of their type."""
    rng = np.random.default_rng(2)
    (index,) = model.subgraphs[0].inputs or ()
    tensor = (model.subgraphs[0].tensors or [])[index]
    shape = tensor.shape or ()
    if tensor.type is TensorType.FLOAT32:
        return [[rng.normal(0, 1, shape).astype(np.float32)] for _ in range(count)]
    limits = np.iinfo(np.int8 if tensor.type is TensorType.INT8 else np.int16)
    return [[rng.integers(limits.min, limits.max, shape, limits.dtype, endpoint=True)] for _ in range(count)]


def differences(model: tflm.Model, part: str, kernels: str) -> list[str]:
    """Return what behaves differently on a device, or prevents the model from running there."""
    findings = check_device(model, target=tflm.targets.by_name(part), kernels=kernels)
    return [finding.happens for finding in findings]


@pytest.mark.parametrize("name", VENDORS)
def test_every_library_accepts_a_vendors_float_model_in_the_arena_of_its_int8_model(name: str, corpus: Path) -> None:
    model, vendors = (tflm.Model.from_file(corpus / "models" / f"{each}.tflite") for each in (name, VENDORS[name]))
    found = tflm.quantize(model, SAMPLES[name]).model
    for part, kernels in PLACES:
        assert differences(found, part, kernels) == []
        target = tflm.targets.by_name(part)
        ours, theirs = (
            tflm.measure_arena(each, tflm.AllOpsResolver(), target=target, kernels=kernels).minimum_arena_bytes
            for each in (found, vendors)
        )
        assert ours == theirs


@pytest.mark.parametrize("types", TYPES, ids=str)
@pytest.mark.parametrize("name", VENDORS)
def test_tflm_gives_the_same_answers(name: str, types: dict[str, str], corpus: Path, oracle: Oracle) -> None:
    model = tflm.Model.from_file(corpus / "models" / f"{name}.tflite")
    found = tflm.quantize(model, SAMPLES[name], **types)
    assert_same_as_tflm(oracle, found.data, random_inputs(found.model, 5))


@pytest.mark.parametrize("name", VENDORS)
def test_the_outputs_are_close_to_those_of_the_float_model(name: str, corpus: Path) -> None:
    model = tflm.Model.from_file(corpus / "models" / f"{name}.tflite")
    errors = {}
    for to in ("int8", "int16"):
        found = tflm.quantize(model, SAMPLES[name], to=to)
        difference = tflm.evaluate(found.model, SAMPLES[name], reference=model, workers=1).difference
        assert difference is not None
        errors[to] = difference.root_mean_square_error
    assert errors["int16"] < errors["int8"] < 0.05


@pytest.mark.parametrize("types", TYPES, ids=str)
@pytest.mark.parametrize(("part", "kernels"), PLACES)
def test_every_choice_of_types_is_accepted_by_the_library(part: str, kernels: str, types: dict[str, str]) -> None:
    model = tflm.Model(float_models.classifier().build())
    target = tflm.targets.by_name(part)
    found = tflm.quantize(model, float_models.samples(20, 8, 8, 1), target=target, kernels=kernels, **types)
    assert found.accepted
    assert differences(found.model, part, kernels) == []
    assert found.float_operators == ()


def test_constants_that_the_package_stores_outside_are_inside(oracle: Oracle) -> None:
    model = float_models.one_layer(1024, 512)
    samples = float_models.samples(10, 1024)
    ready = tflm.Model(prepared(model))
    ranges = calibrated(ready, data_set(samples)).ranges
    assert tflm.Model(quantized_by(Recipe(), ready, ranges)).outside
    found = tflm.quantize(model, samples)
    assert found.model.outside == ()
    assert_same_as_tflm(oracle, found.data, random_inputs(found.model, 2))


def test_operators_of_old_files_are_read_correctly() -> None:
    root = read_model(float_models.one_layer().data)
    for code in root.operator_codes or ():
        code.builtin_code = BuiltinOperator.ADD
    found = tflm.quantize(tflm.Model(write_model(root)), float_models.samples(10, 8)).model
    assert [found.operator_name(each) for each in found.subgraphs[0].operators or ()] == ["FULLY_CONNECTED"]
    assert (found.subgraphs[0].tensors or [])[0].type is TensorType.INT8


def test_an_lstm_stays_float_between_conversions(oracle: Oracle) -> None:
    found = tflm.quantize(float_models.recurrent(), float_models.samples(10, 4, 3))
    names = [found.model.operator_name(each) for each in found.model.subgraphs[0].operators or ()]
    at = names.index("UNIDIRECTIONAL_SEQUENCE_LSTM")
    assert names[at - 1 : at + 2] == ["DEQUANTIZE", "UNIDIRECTIONAL_SEQUENCE_LSTM", "QUANTIZE"]
    assert [each.operator for each in found.float_operators] == [f"{at} UNIDIRECTIONAL_SEQUENCE_LSTM"]
    assert_same_as_tflm(oracle, found.data, random_inputs(found.model, 3))


@pytest.mark.parametrize("io", ["int", "float"])
def test_the_signature_has_the_inputs_and_outputs_of_the_new_model(io: str) -> None:
    model = tflm.quantize(float_models.one_layer(), float_models.samples(10, 8), io=io).model
    (signature,) = model.root.signature_defs or ()
    assert [each.tensor_index for each in signature.inputs or ()] == list(model.subgraphs[0].inputs or ())
    assert [each.tensor_index for each in signature.outputs or ()] == list(model.subgraphs[0].outputs or ())
    main = model.subgraphs[0]
    kinds = {(main.tensors or [])[index].type for index in (*(main.inputs or ()), *(main.outputs or ()))}
    assert kinds == {TensorType.FLOAT32 if io == "float" else TensorType.INT8}


def test_a_dead_channel_keeps_its_bias(oracle: Oracle) -> None:
    """Its weights are 0, so that int32 cannot hold the bias at the package's scale."""
    root = read_model(memoryview(float_models.classifier().build()))
    tensors = (root.subgraphs or [])[0].tensors or []
    kernel, bias = (next(tensor for tensor in tensors if tensor.name == name) for name in ("kernel", "bias"))
    buffers = root.buffers or []
    values = [np.frombuffer(buffers[each.buffer].data or b"", np.float32).copy() for each in (kernel, bias)]
    values[0].reshape(16, -1)[5] = 0
    values[1][5] = 3
    for tensor, changed in zip((kernel, bias), values, strict=True):
        buffers[tensor.buffer].data = changed.tobytes()
    model, samples = tflm.Model(write_model(root)), float_models.samples(20, 8, 8, 1)
    found = tflm.quantize(model, samples)
    difference = tflm.evaluate(found.model, samples, reference=model, workers=1).difference
    assert difference is not None
    assert difference.signal_to_noise_db > 25
    assert_same_as_tflm(oracle, found.data, random_inputs(found.model, 5))


def test_an_output_that_is_read_again_is_quantized_with_float_ends() -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    first = float_models.dense(main, main.input("x", (1, 8), TensorType.FLOAT32), 8, 4)
    main.output(first, float_models.dense(main, first, 4, 2))
    found = tflm.quantize(tflm.Model(builder.build()), float_models.samples(20, 8), io="float")
    assert found.float_operators == ()
    names = [found.model.operator_name(each) for each in found.model.subgraphs[0].operators or ()]
    assert sorted(names) == ["DEQUANTIZE", "DEQUANTIZE", "FULLY_CONNECTED", "FULLY_CONNECTED", "QUANTIZE"]


@pytest.mark.parametrize("code", [BuiltinOperator.MAXIMUM, BuiltinOperator.PADV2])
def test_constants_of_another_rank_than_the_output_are_quantized(code: BuiltinOperator) -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    x, limit = main.input("x", (1, 8), TensorType.FLOAT32), main.constant("limit", np.array([0.5], np.float32))
    sides = main.constant("sides", np.array([[0, 0], [1, 1]], np.int32))
    main.output(main.tensor("y", (1, 8 if code is BuiltinOperator.MAXIMUM else 10), TensorType.FLOAT32))
    main.operator(code, [x, limit] if code is BuiltinOperator.MAXIMUM else [x, sides, limit], [sides + 1])
    assert tflm.quantize(tflm.Model(builder.build()), float_models.samples(20, 8)).float_operators == ()


def test_ranges_below_the_smallest_scale_are_rejected() -> None:
    with pytest.raises(tflm.DataError, match=r"'x' has values from .* scale the samples up"):
        tflm.quantize(float_models.one_layer(), float_models.samples(10, 8) * np.float32(1e-12))


def test_labels_show_the_effect_of_int16_on_the_worst_operators() -> None:
    model = tflm.Model(float_models.classifier().build())
    samples = float_models.samples(40, 8, 8, 1)
    records = tflm.evaluate(model, samples, workers=1).records
    labels = records["output0"].reshape(40, -1).argmax(-1)
    found = tflm.quantize(model, samples, labels)
    assert found.evaluation_before is not None
    assert found.evaluation_before.accuracy == 1
    assert found.worst()
    names = [alternative.name for alternative in found.alternatives]
    assert names[-1] == "int16 throughout"
    assert len(names) > 1
    assert all((alternative.accuracy is None) == bool(alternative.reason) for alternative in found.alternatives)


def test_failures_of_the_package_are_errors_of_this_one() -> None:
    model = tflm.Model(prepared(float_models.one_layer()))
    with pytest.raises(tflm.QuantizerError, match="litert-quantizer fails"):
        quantized_by(Recipe(), model, {})
