"""The output of `--json` matches its JSON Schema, key by key."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import float_models
import jsonschema
import models
import numpy as np
import pytest
import test_device
import test_figures
import test_firmware_tree
import test_wake_word
from example_models import FLOAT_MODEL, INT8_MODEL
from image_graphs import Images, shrinking_network
from recorded_reports import figures_of_document, require_recorded
from test_boards import reversing
from test_compression import layers, sparse
from typer.main import get_command
from typer.testing import CliRunner

import tflm
from tflm.cli.app import NAMES, app
from tflm.cli.json_schema import commands, documents, schema
from tflm.device.transports import SerialPort
from tflm.schema import ActivationFunctionType, BuiltinOperator, Conv2DOptions, Padding, TensorType


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that the commands below take."""
    path = tmp_path_factory.mktemp("json")
    rng = np.random.default_rng(0)
    np.savez(path / "in.npz", in_0_0=np.zeros((1, 1), np.int8), out_0_0=np.ones((1, 1), np.int8))
    np.savez(path / "labelled.npz", inputs=rng.integers(-128, 127, (6, 1), np.int8), labels=np.arange(6) % 2)
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x, y = main.input("x", (2,), TensorType.FLOAT32), main.tensor("y", (2,), TensorType.FLOAT32)
    main.operator("FlexErf", [x], [y])
    main.output(y)
    (path / "flex.tflite").write_bytes(builder.build())
    (path / "wide.tflite").write_bytes(_wide_model())
    (path / "word.tflite").write_bytes(test_wake_word.MODEL.data)
    (path / "flex_word.tflite").write_bytes(test_wake_word.flex_model().data)
    (path / "reversing.tflite").write_bytes(reversing())
    (path / "sparse.tflite").write_bytes(layers([sparse((64, 96), 0.1)]))
    (path / "image.tflite").write_bytes(shrinking_network(48).data)
    (path / "grown.tflite").write_bytes(test_figures.wide().data)
    (path / "padded.tflite").write_bytes(_padded_window().data)
    (path / "counter.tflite").write_bytes(models.counter(models.INT8, 4, with_init=True))
    np.save(path / "frames.npy", rng.integers(-128, 127, (3, 12, 4, 2), np.int8))
    (path / "two.toml").write_text('target = "cortex-m4"\nkernels = "cmsis-nn"\n[ram]\nSRAM = "9K"\nPSRAM = "1M"\n')
    (path / "log.txt").write_text(LOG)
    (path / "firmware.map").write_text("\nLinker script and memory map\n\n.text 0x8000000 0x9000\n")
    (path / "micro.json").write_text('{"micro": {}}')
    (path / "float.tflite").write_bytes(float_models.classifier().build())
    (path / "lstm.tflite").write_bytes(float_models.recurrent().data)
    np.savez(path / "pictures.npz", inputs=0.3 * float_models.samples(4, 8, 8, 1), labels=np.arange(4))
    np.save(path / "steps.npy", float_models.samples(4, 4, 3))
    test_firmware_tree.write(path / "sources", 1)
    (path / "sources" / "lib/tensorflow/lite/micro/d.cc").write_text("int changed;")
    (path / "sources" / "lib/tensorflow/lite/micro/c.cc").write_bytes(test_firmware_tree.TEXTS["c"][2])
    (path / "sources" / "CMakeLists.txt").write_text("-DTF_LITE_STATIC_MEMORY")
    (path / "sources" / "dependencies.lock").write_text(test_firmware_tree.LOCK)
    np.save(path / "window.npy", np.ones((1, 8, 8, 2), np.int8))
    (path / "old.txt").write_text(OLD_LOG)
    (path / "state.tflite").write_bytes(test_device.model_with_state().data)
    for name, wrong in (("device", ""), ("wrong", "1")):
        command = f"'{sys.executable}' '{Path(test_device.__file__).with_name('simulated_device.py')}'"
        (path / name).write_text(f"#!/bin/sh\nexec {command} state.tflite {wrong}\n")
        (path / name).chmod(0o755)
    for arguments in (["init"], ["add", "."], ["-c", "user.name=A", "-c", "user.email=a@b", "commit", "-m", "base"]):
        subprocess.run(["git", "-C", str(path), *arguments], check=True, capture_output=True)
    (path / "odd.tflite").write_bytes(INT8_MODEL.read_bytes()[:4] + bytes(4) + INT8_MODEL.read_bytes()[8:])
    return path


def _padded_window() -> tflm.Model:
    """A convolution along time that pads it, and one over the whole window."""
    images = Images(tflm.ModelBuilder().subgraph(), (1, 12, 4, 2))
    x = images.convolution(images.last, 3, (3, 1))
    images.main.output(images.convolution(x, 2, (12, 4), padding=Padding.VALID))
    return tflm.Model(images.main.builder.build())


def _wide_model() -> bytes:
    """Convolutions that are wider than what goes in and out: a smaller plan and a tiling are found."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    tensors = [main.input("x", (1, 8, 8, 2), TensorType.INT8, tflm.quantized(0.5))]
    for i, (before, channels) in enumerate([(2, 32), (32, 2)]):
        weights = np.ones((channels, 1, 1, before), np.int8)
        kernel = main.constant(f"w{i}", weights, quantization=tflm.quantized(0.5))
        tensors.append(main.tensor(f"t{i}", (1, 8, 8, channels), TensorType.INT8, tflm.quantized(0.5)))
        options = Conv2DOptions(stride_w=1, stride_h=1, fused_activation_function=ActivationFunctionType.NONE)
        main.operator(BuiltinOperator.CONV_2D, [tensors[i], kernel, -1], [tensors[-1]], options)
    main.output(main.tensor("y", (1, 8, 8, 2), TensorType.INT8, tflm.quantized(0.5)))
    main.operator(BuiltinOperator.RELU, [tensors[-1]], [len(tensors) + 2])
    return builder.build()


LOG = """\
FULLY_CONNECTED took 2 ticks (0 ms).
FULLY_CONNECTED took 2 ticks (0 ms).
FULLY_CONNECTED took 2 ticks (0 ms).
FULLY_CONNECTED took 2 ticks (0 ms).
"Unique Tag","Total ticks across all events with that tag."
FULLY_CONNECTED, 8
arena_used_bytes 772
Didn't find op for builtin opcode 'SOFTMAX'
"""
"""Of a device whose arena is that of CMSIS-NN on a Cortex-M4."""

OLD_LOG = "arena_used_bytes 548\n"
"""Of a device with TFLM of 2021."""

INT8, FLOAT = str(INT8_MODEL), str(FLOAT_MODEL)

INVOCATIONS: dict[str, list[str]] = {
    "arena": [
        f"arena {INT8} {FLOAT} --board esp32-s3-eye --budget 1K",
        f"arena {INT8} --ram 64K",
        f"arena {INT8} --all-targets",
        "arena wide.tflite -t cortex-m4 --kernels cmsis-nn",
        "arena reversing.tflite -t cortex-m4",
        "arena counter.tflite --board nano33ble --budget 64K",
    ],
    "arena --boards": [f"arena {INT8} flex.tflite --boards"],
    "boards": ["boards", "boards xiao"],
    "calibrate-report": [f"calibrate-report {INT8} --inputs labelled.npz"],
    "check": [
        "check flex.tflite --board nano33ble",
        f"check {INT8}",
        "check wide.tflite -t esp32s3 --kernels esp-nn@1.2.3 --tflm esphome",
        "check wide.tflite --board nucleo-l053r8 --reserve 7K",
    ],
    "compare": [f"compare {FLOAT} {INT8} --tolerance 0", f"compare {INT8} {INT8}", f"compare {INT8} in.npz"],
    "compress": [
        f"compress {INT8} --board esp32-s3-eye",
        "compress sparse.tflite --board esp32-s3-eye --ram 16K",
        "compress sparse.tflite -t cortex-m4 --kernels cmsis-nn --decompression-memory 8K --ram 900",
    ],
    "compile": ["compile wide.tflite firmware", "compile wide.tflite calling --kernels cmsis-nn"],
    "device": ["device run state.tflite --port exec:./device", "device run state.tflite --port exec:./wrong"],
    "device list": ["device list"],
    "device-log": [f"device-log log.txt {INT8} -t cortex-m4", f"device-log old.txt {INT8} -t cortex-m4"],
    "doctor": ["doctor"],
    "evaluate": [
        f"evaluate {INT8} --inputs labelled.npz --workers 1",
        f"evaluate {INT8} --inputs labelled.npz --workers 1 --reference {FLOAT}",
    ],
    "firmware": ["firmware sources", "firmware ."],
    "fit": [
        "fit wide.tflite --board nrf52dk",
        "fit wide.tflite --board nucleo-l053r8 --reserve 7K",
        "fit image.tflite --board two.toml --reserve 0 --macs 0 --kernels cmsis-nn",
        "fit image.tflite --ram 10K --reserve 0",
    ],
    "flash": [
        f"flash {INT8} --target cortex-m4 --kernels cmsis-nn",
        f"flash {INT8} --target esp32",
        "flash image.tflite --target cortex-m4 --kernels cmsis-nn",
    ],
    "flash --map": [f"flash {INT8} --board STM32F405 --map firmware.map"],
    "fold, strip": [f"fold {INT8}", f"strip {INT8}"],
    "gate": ["gate wide.tflite flex.tflite --base HEAD --budget 2K", f"gate {INT8} --board nano33ble"],
    "inspect": [f"inspect {INT8}", "inspect flex.tflite", "inspect counter.tflite", "inspect image.tflite"],
    "inspect --check": ["inspect odd.tflite --check"],
    "plan": [
        f"plan {INT8} --in-place --reorder --board nano33ble",
        "plan wide.tflite --in-place",
        "plan grown.tflite --reorder -o planned.tflite --board nucleo-l053r8 --reserve 7K",
    ],
    "plan --memories": [
        f"plan {INT8} --memories SRAM,PSRAM --board esp32-s3-eye -o planned",
        "plan wide.tflite --memories A:1M --reorder -o planned",
        "plan grown.tflite --memories A:3K,B:1M --reorder",
    ],
    "profile": [f"profile {INT8} --runs 1"],
    "profile --compiled": [f"profile {INT8} --compiled", "profile wide.tflite --compiled"],
    "profile --target": [f"profile {INT8} --board nano33ble", "profile wide.tflite --target cortex-m4"],
    "quantize": [
        "quantize float.tflite --inputs pictures.npz -t esp32s3 --kernels esp-nn@1.1.0",
        "quantize lstm.tflite --inputs steps.npy",
        "quantize float.tflite --inputs pictures.npz -t cortex-m4 --kernels cmsis-nn -o made.tflite",
    ],
    "releases": ["releases", "releases lib-tflite-micro"],
    "resize": [f"resize {INT8} -o resized.tflite"],
    "run": [f"run {INT8} --random", f"run {FLOAT} --random", f"run {INT8} --random 2 --steps 2"],
    "stream": ["stream wide.tflite --inputs window.npy", "stream padded.tflite --causal --inputs frames.npy"],
    "tile": [
        "tile wide.tflite --macs 100% --tail-ram 1M",
        "tile image.tflite --macs 100% --board nucleo-l053r8 --reserve 7K",
    ],
    "versions": [f"versions {INT8}", "versions flex.tflite", f"versions {INT8} -o updated.tflite"],
    "wake-word": [
        "wake-word word.tflite",
        "wake-word flex_word.tflite -t esp32",
        "wake-word word.tflite --manifest micro.json",
    ],
}
"""Calls of the commands for each document."""

OF_THIS_MACHINE = {"compile", "doctor", "profile", "profile --compiled"}
"""Documents whose figures are not recorded: they are of this machine, or of kernels that get smaller and faster."""

UNSET = {
    "arena": (
        "boards[].verdict.stops boards[].verdict.unknown budgets[].ram_left_bytes budgets[].stack_bytes "
        "budgets[].static_ram_bytes models[].npu_bytes models[].peak.subgraph_index verdict.stops "
        "verdict.unknown"
    ),
    "arena --boards": "models[].boards[].verdict.stops",
    "check": "findings[].shown findings[].subgraph_index fits",
    "compare": "lost outputs[].operator",
    "compress": "advice tensors[].subgraph",
    "device": (
        "device.heap_free_bytes device.overflow device.stack_used_bytes documented "
        "operators[].estimated_cycles wrong.invoke wrong.known wrong.overwrites"
    ),
    "device-log": (
        "arena.another_model arena.equal arena.fitting[].resource_variables arena.resource_variables "
        "operators[].subgraph_index"
    ),
    "evaluate": "changed_answers left_out signal[].lost",
    "fit": "cut_short interrupted steps[].extra_macs steps[].reason verdict.stops",
    "flash": "data_bytes",
    "flash --map": "parts[].ram_bytes",
    "inspect --check": "findings[].field findings[].place",
    "plan --memories": "interrupted order",
    "profile": "operators[].subgraph_index",
    "quantize": (
        "alternatives[].reason findings[].operator_index findings[].shown findings[].stops "
        "findings[].subgraph_index int8_weights"
    ),
    "run": "outputs[].index",
    "stream": "input",
    "versions": "min_runtime_version",
    "wake-word": "manifest.enough manifest.tensor_arena_size",
}
"""Keys that hold null, false, 0 or nothing in all these documents."""


def printed(folder: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> Any:
    """The document that a command prints."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr("tflm.firmware.source_tree._known_files", test_firmware_tree.known_files)
    monkeypatch.setattr("tflm.quantization.quantization.require_quantizer", lambda: None)
    monkeypatch.setattr("tflm.quantization.quantization.quantized_by", float_models.stand_in)
    monkeypatch.setattr("tflm.cli.device.serial_ports", lambda: [SerialPort("/dev/ttyACM0", "a board")])
    answer = CliRunner().invoke(app, [*call.split(), "--json"])
    assert answer.exit_code in (0, 1), answer.output
    return json.loads(answer.stdout)


def closed(part: Any) -> Any:
    """A schema that allows no keys but those that it has."""
    if isinstance(part, list):
        return [closed(each) for each in part]
    if not isinstance(part, dict):
        return part
    closing = {"additionalProperties": False} if isinstance(part.get("required"), list) else {}
    return {name: closed(each) for name, each in part.items()} | closing


@functools.cache
def validator_of(command: str) -> Any:
    """Check the schema of a command, and return what refuses documents with other keys. A check takes longer than most
    commands."""
    form = schema(command)
    jsonschema.Draft202012Validator.check_schema(form)
    return jsonschema.Draft202012Validator(closed(form))


def paths_in(value: Any, path: str = "", holding: bool = False) -> set[str]:
    """Yield the paths of values, such as `models[].peak.bytes`, with those around them; or only those that hold more
    than null, false, 0 or nothing.
    """
    found = set() if holding and not value else {path.lstrip(".")}
    if isinstance(value, dict):
        found |= {inner for key, each in value.items() for inner in paths_in(each, f"{path}.{key}", holding)}
    if isinstance(value, list):
        found |= {inner for each in value for inner in paths_in(each, f"{path}[]", holding)}
    return found


@pytest.mark.parametrize("document", INVOCATIONS)
def test_documents_hold_what_their_schema_says_and_no_more(
    document: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, holding = set[str](), set[str]()
    for call in INVOCATIONS[document]:
        answer = printed(folder, monkeypatch, call)
        validator_of(call.split()[0]).validate(answer)
        found |= paths_in(answer)
        holding |= paths_in(answer, holding=True)
        if document not in OF_THIS_MACHINE:
            require_recorded(f"{call} --json", [*figures_of_document(answer)])
    named = {key.path.removesuffix("?") for key in documents()[document] if "*" not in key.path}
    assert named <= found, "a key is declared that no document has"
    unset = sorted(key for key in named - holding if not key.startswith("compiled."))  # of kernels that are measured
    assert document in OF_THIS_MACHINE or unset == UNSET.get(document, "").split(), "a key never holds anything"


def test_every_command_with_json_has_a_schema_and_every_document_a_call() -> None:
    group: Any = get_command(app)
    with_json = [name for name in NAMES if any("--json" in p.opts for p in group.get_command(None, name).params)]
    assert commands() == with_json
    assert set(documents()) == set(INVOCATIONS)


def test_every_key_says_what_it_holds() -> None:
    keys = [key for document in documents().values() for key in document]
    assert [key for key in keys if not (key.path and key.type and key.meaning)] == []
    assert {key.path: key for key in documents()["flash"]}["operators[].own_bytes"].type == "integer"


def test_a_wrong_document_is_refused() -> None:
    form = schema("resize")
    good: Any = {"model": "m", "inputs": [{"name": "x", "shape": [1]}], "outputs": []}
    jsonschema.validate(good, form)
    for bad in ({**good, "model": 1}, {"model": "m", "inputs": []}, {**good, "inputs": [{"name": "x"}]}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(bad, form)
    jsonschema.validate({**good, "new": 1}, form)


def test_the_command_prints_the_schema_with_its_version() -> None:
    answer = CliRunner().invoke(app, ["json-schema", "arena"])
    assert json.loads(answer.stdout) == schema("arena")
    assert schema("arena")["$id"] == "urn:pytflm:json:arena:1"
    assert CliRunner().invoke(app, ["json-schema", "export"]).exit_code == 2
