"""Kernel libraries: the arena that firmware built with them needs, and its results."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import outcomes
import pytest
from example_models import INT8_MODEL
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from models import Case
from sampling import examples
from test_arena import corpus_models

import tflm
from tflm import libraries
from tflm.kernels.arithmetic.fixed_point import multiply_by_quantized_multiplier, quantize_multiplier
from tflm.kernels.registration import OperatorMemory
from tflm.kernels.requests import PersistentBuffer, ScratchBuffer, always, nothing
from tflm.runtime.recording_micro_allocator import LoggingMicroAllocator
from tflm.schema import (
    ActivationFunctionType,
    BatchMatMulOptions,
    BuiltinOperator,
    Conv2DOptions,
    DepthwiseConv2DOptions,
    Padding,
    SoftmaxOptions,
    TensorType,
    write_model,
)
from tflm.testing.operators import OPERATORS

PART_OF_EXTENSION = {"none": "cortex-m3", "dsp": "cortex-m4", "mve": "cortex-m55"}
RECORDS = ("arena_cmsis_nn.jsonl", "arena_esp_nn.jsonl", "arena_arduino.jsonl")


def built_as(line: dict[str, Any]) -> tuple[str, str]:
    """Target and kernel library of a recorded line."""
    if "chip" in line:
        return line["chip"], "esp-nn"
    if "extension" not in line:
        return "cortex-m4", "arduino"
    return PART_OF_EXTENSION[line["extension"]], "cmsis-nn" if line["build"] == "speed" else "cmsis-nn:size"


def recorded(corpus: Path) -> Iterator[dict[str, Any]]:
    for name in RECORDS:
        with open(corpus / "golden" / name) as file:
            yield from map(json.loads, file)


def measured(model: tflm.Model, target: str, kernels: libraries.Kernels) -> tflm.ArenaMeasurement:
    target_of_name = tflm.targets.by_name(target)
    return tflm.measure_arena(model, tflm.AllOpsResolver(), target=target_of_name, kernels=kernels)


def test_every_recorded_figure_is_reproduced(corpus: Path) -> None:
    known: dict[str, tflm.Model] = {}
    lines = list(recorded(corpus))
    assert {line["model"] for line in lines} == set(corpus_models())
    for line in lines:
        name = line["model"]
        model = known.setdefault(name, tflm.Model.from_file(corpus / "models" / f"{name}.tflite"))
        found = measured(model, *built_as(line))
        scratch = [buffer.bytes for buffer in found.buffers if buffer.kind == "scratch"]
        sizes = found.arena_used_bytes, found.head_bytes, found.tail_bytes, found.minimum_arena_bytes
        wanted = [line[key] for key in ("arena_used_bytes", "head", "tail", "minimum_arena_bytes")]
        assert [*sizes, scratch] == [*wanted, [request[-1] for request in line["scratch"]]], (name, *built_as(line))


MEASURED_ON_SILICON = {
    "esp-nn-optimized": ("esp32", "esp-nn"),
    "ansi-c-reference": ("esp32", "reference"),
    "cmsis-nn-or-reference": ("cortex-m4", "arduino"),
}


def test_what_others_measured_on_boards_is_reproduced(corpus: Path) -> None:
    with open(corpus / "golden" / "silicon.jsonl") as file:
        boards = [json.loads(line) for line in file]
    assert {line["kernels"] for line in boards} == MEASURED_ON_SILICON.keys()
    for line in boards:
        model = tflm.Model.from_file(corpus / "models" / f"{line['model']}.tflite")
        found = measured(model, *MEASURED_ON_SILICON[line["kernels"]])
        assert found.arena_used_bytes == line["arena_used_bytes"], line


@pytest.mark.parametrize(
    ("kernels", "target", "part"), [("cmsis-nn", "esp32s3", "cortex-m55"), ("esp-nn", "cortex-m4", "esp32p4")]
)
def test_a_library_is_for_its_parts_only(kernels: str, target: str, part: str) -> None:
    model = tflm.Model.from_file(INT8_MODEL)
    for target_of_name in (tflm.targets.by_name(target), tflm.targets.HOST, tflm.targets.CORTEX_M):
        with pytest.raises(tflm.TflmError, match=f"{kernels}.*{target_of_name.name}.*{part}"):
            tflm.measure_arena(model, tflm.AllOpsResolver(), target=target_of_name, kernels=kernels)


def test_an_unknown_library_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"no-nn.*reference.*cmsis-nn"):
        libraries.by_name("no-nn")


def test_a_library_of_the_users_own_takes_what_it_declares() -> None:
    asked = always(PersistentBuffer("sums", 100), ScratchBuffer("columns", 48))
    own = libraries.KernelLibrary("own", "1", memory={"FULLY_CONNECTED": OperatorMemory(None, asked, nothing)})
    model = tflm.Model.from_file(INT8_MODEL)
    layers = len(model.subgraphs[0].operators or ())
    found = measured(model, "cortex-m4", own)
    assert [b.bytes for b in found.buffers if b.kind == "scratch"] == [48] * layers
    with_scratch_alone = replace(own, memory={"FULLY_CONNECTED": OperatorMemory(None, always(), nothing)})
    assert found.tail_bytes - measured(model, "cortex-m4", with_scratch_alone).tail_bytes >= 100 * layers


def answers(
    model: bytes, invocations: Sequence[Sequence[np.ndarray[Any, Any]]], kernels: str, *, start_over: bool = False
) -> list[np.ndarray[Any, Any]]:
    """The output of each invoke on a Cortex-M4; with `start_over`, of each on its own."""
    interpreter = tflm.MicroInterpreter(
        tflm.Model(model),
        tflm.AllOpsResolver(),
        bytearray(1 << 20),
        target=tflm.targets.PARTS["cortex-m4"],
        kernels=kernels,
        delegates=(),
    )
    interpreter.allocate_tensors()
    outputs = []
    for arrays in invocations:
        if start_over:
            interpreter.reset()
        for i, array in enumerate(arrays):
            interpreter.input(i).data[...] = array
        interpreter.invoke()
        outputs.append(np.array(interpreter.output(0).data))
    return outputs


def main_options(model: tflm.Model) -> Any:
    return (model.subgraphs[0].operators or [])[0].builtin_options


def tensor_of(model: tflm.Model, place: int) -> Any:
    """Input `place` of a model's one operator."""
    operator = (model.subgraphs[0].operators or [])[0]
    return (model.subgraphs[0].tensors or [])[(operator.inputs or ())[place]]


@settings(max_examples=examples(40))
@given(case=OPERATORS["UNIDIRECTIONAL_SEQUENCE_LSTM"])
def test_lstm_of_cmsis_nn_forgets(case: Case) -> None:
    data, invocations = case
    model = tflm.Model(data)
    hidden, weights = tensor_of(model, 18), [tensor_of(model, i) for i in range(1, 9)]
    assume(hidden.type == TensorType.INT8 or not hidden.quantization or hidden.quantization.zero_point == (0,))
    if any(model.constant(tensor) is None for tensor in weights):
        with pytest.raises(tflm.OperatorError, match="weights and biases must be constants"):
            answers(data, invocations, "cmsis-nn")
        return
    forgets = hidden.type != TensorType.FLOAT32
    expected = answers(data, invocations, "reference", start_over=forgets)
    for found, wanted in zip(answers(data, invocations, "cmsis-nn"), expected):
        np.testing.assert_array_equal(found, wanted)


@settings(max_examples=examples(40))
@given(case=OPERATORS["TRANSPOSE_CONV"])
def test_transpose_conv_of_cmsis_nn_leaves_its_activation_out(case: Case) -> None:
    data, invocations = case
    model = tflm.Model(data)
    inputs = (model.subgraphs[0].operators or [])[0].inputs or ()
    type, has_bias = tensor_of(model, 2).type, len(inputs) == 4 and inputs[3] >= 0
    if type == TensorType.INT16 and not has_bias:
        with pytest.raises(tflm.OperatorError, match="without a bias fails to prepare"):
            answers(data, invocations, "cmsis-nn")
        return
    if type != TensorType.FLOAT32:
        main_options(model).fused_activation_function = ActivationFunctionType.NONE
    expected = answers(write_model(model.root), invocations, "reference")
    np.testing.assert_array_equal(answers(data, invocations, "cmsis-nn")[0], expected[0])


def wrapped(value: int) -> int:
    """The low 8 bits, as int8."""
    return (value + 128) % 256 - 128


def scaled(value: int, multiplier: tuple[int, int]) -> int:
    """A sum, of 32 bits, at another scale."""
    return int(multiply_by_quantized_multiplier(np.array([value]), *multiplier)[0])


@settings(max_examples=examples(40))
@given(case=OPERATORS["SVDF"])
def test_svdf_of_cmsis_nn_leaves_the_zero_point_of_int8_states_out(case: Case) -> None:
    """Against the rule in plain Python: columns saturate at 16 bits and are stored in 8."""
    data, invocations = case
    model = tflm.Model(data)
    x, feature, time, bias, state = (tensor_of(model, place) for place in range(5))
    if time.type != TensorType.INT8:
        for found, wanted in zip(answers(data, invocations, "cmsis-nn"), answers(data, invocations, "reference")):
            np.testing.assert_array_equal(found, wanted)
        return
    tables = model.subgraphs[0].tensors or []
    (y,) = [tables[index] for index in model.subgraphs[0].outputs or ()]
    named = {"x": x, "feature": feature, "time": time, "state": state, "y": y}
    scale = {name: t.quantization.scale[0] for name, t in named.items()}
    zero = {name: t.quantization.zero_point[0] for name, t in named.items()}
    to_state = quantize_multiplier(scale["x"] * scale["feature"] / scale["state"])
    to_output = quantize_multiplier(scale["state"] * scale["time"] / scale["y"])
    features, over_time, biases = (
        np.frombuffer(model.constant(t) or b"", dtype).reshape(t.shape).tolist()
        for t, dtype in ((feature, np.int8), (time, np.int8), (bias, np.int32))
    )
    memory, batches, units = time.shape[1], x.shape[0], y.shape[1]
    filters = len(features)
    held = [zero["state"] if state.type == TensorType.INT8 else 0] * (batches * filters * memory)
    for (inputs,), found in zip(invocations, answers(data, invocations, "cmsis-nn")):
        held = held[1:] + held[-1:]
        for b, f in itertools.product(range(batches), range(filters)):
            total = sum((int(v) - zero["x"]) * w for v, w in zip(inputs[b], features[f]))
            held[(b * filters + f + 1) * memory - 1] = wrapped(
                min(max(scaled(total, to_state), -(1 << 15)), (1 << 15) - 1)
            )
        for b, unit in itertools.product(range(batches), range(units)):
            total = np.ravel(biases)[unit].item()
            for f in range(unit * filters // units, (unit + 1) * filters // units):
                remembered = held[(b * filters + f) * memory : (b * filters + f + 1) * memory]
                total += sum(w * v for w, v in zip(over_time[f], remembered))
            wanted = min(max(scaled(total, to_output) + zero["y"], -128), 127)
            assert found[b, unit] == wanted


@pytest.mark.runs(0.5)
@given(case=OPERATORS["CONV_2D"], order=st.permutations(range(4)))
@settings(max_examples=examples(20))
def test_a_plan_for_several_parts_holds_on_each(case: Case, order: list[int]) -> None:
    model = tflm.Model(case[0])
    names = [["cortex-m0", "cortex-m4", "cortex-m55", "esp32s3"][i] for i in order]
    parts = [tflm.targets.PARTS[name] for name in names]
    kernels = [["cmsis-nn", "arduino", "cmsis-nn:size", "esp-nn"][i] for i in order]
    try:
        together = tflm.plan(model, target=parts, kernels=kernels)
    except tflm.OperatorError:  # rejections of a library
        outcomes.count(ran=False)
        return
    outcomes.count(ran=True)
    on_each = [measured(together.model, name, library) for name, library in zip(names, kernels)]
    assert together.head_bytes == max(found.head_bytes for found in on_each)
    assert [found.head_bytes for found in together.after_by_part] == [found.head_bytes for found in on_each]
    assert together.minimum_arena_bytes == max(found.minimum_arena_bytes for found in on_each)
    backwards = tflm.plan(model, target=parts[::-1], kernels=kernels[::-1])
    assert together.head_bytes == backwards.head_bytes
    assert together.lower_bound_bytes == backwards.lower_bound_bytes


def test_a_plan_needs_a_library_for_each_part() -> None:
    model, parts = tflm.Model.from_file(INT8_MODEL), [tflm.targets.CORTEX_M, tflm.targets.HOST]
    with pytest.raises(tflm.ArgumentError, match="2 targets, but 1 kernel libraries"):
        tflm.plan(model, target=parts, kernels=["reference"])


@pytest.mark.parametrize("type", [TensorType.FLOAT32, TensorType.INT8])
def test_a_product_keeps_what_the_reference_kernel_keeps_beside_its_own_data(type: TensorType) -> None:
    """In another order."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    quantization = tflm.quantized(0.5) if type is TensorType.INT8 else None
    a, b = main.input("a", (2, 3, 4), type, quantization), main.input("b", (2, 4, 5), type, quantization)
    y = main.tensor("y", (2, 3, 5), type, quantization)
    main.operator(BuiltinOperator.BATCH_MATMUL, [a, b], [y], BatchMatMulOptions())
    main.output(y)
    model = tflm.Model(builder.build())
    kept = {}
    for part, kernels in (("cortex-m4", "reference"), ("cortex-m4", "cmsis-nn"), ("cortex-m55", "cmsis-nn")):
        allocator = LoggingMicroAllocator(bytearray(1 << 14), "greedy", tflm.targets.PARTS[part], kernels=kernels)
        tflm.MicroInterpreter(model, tflm.AllOpsResolver(), allocator, delegates=()).allocate_tensors()
        kept[part, kernels] = [a.size for a in allocator.log if a.what == "what operator 0 BATCH_MATMUL keeps"]
    own = [sizes[0] for sizes in kept.values()]
    assert own[0] < own[1] == own[2]
    assert kept["cortex-m4", "cmsis-nn"] == kept["cortex-m55", "cmsis-nn"]
    assert sorted(kept["cortex-m4", "cmsis-nn"][1:]) == sorted(kept["cortex-m4", "reference"][1:])


@pytest.mark.parametrize(
    ("kernels", "target"), [("esp-nn", "esp32s3"), ("cmsis-nn", "cortex-m4"), ("cmsis-nn", "cortex-m55")]
)
def test_layers_of_floats_take_the_scratch_of_tflms_kernels(kernels: str, target: str) -> None:
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 9, 9, 8), TensorType.FLOAT32)
    a, b, y = (main.tensor(name, (1, 9, 9, 8), TensorType.FLOAT32) for name in "aby")
    weights = [main.constant(f"w{n}", np.ones((n, 3, 3, 8), np.float32)) for n in (8, 1)]
    bias = main.constant("bias", np.ones(8, np.float32))
    same: dict[str, Any] = {"padding": Padding.SAME, "stride_h": 1, "stride_w": 1}
    main.operator(BuiltinOperator.CONV_2D, [x, weights[0], bias], [a], Conv2DOptions(**same))
    depthwise = DepthwiseConv2DOptions(depth_multiplier=1, **same)
    main.operator(BuiltinOperator.DEPTHWISE_CONV_2D, [a, weights[1], bias], [b], depthwise)
    main.operator(BuiltinOperator.SOFTMAX, [b], [y], SoftmaxOptions(beta=1.0))
    main.output(y)
    measured = tflm.measure_arena(tflm.Model(builder.build()), tflm.AllOpsResolver(), target=target, kernels=kernels)
    assert not [buffer for buffer in measured.buffers if buffer.kind == "scratch" and buffer.bytes]
