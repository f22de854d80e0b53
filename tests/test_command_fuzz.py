"""Every command on damaged models, data and logs: nothing but a `TflmError` or a usage error ends it."""

from __future__ import annotations

import io
import struct
import warnings
import wave
from pathlib import Path
from typing import Any

import command_fuzz
import fuzz
import pytest
from example_models import FLOAT_MODEL, INT8_MODEL
from test_broken_models import NET
from typer.testing import CliRunner

import tflm
from tflm.cli.app import app
from tflm.cli.group import BUG
from tflm.libraries import library_for
from tflm.schema import BuiltinOperator, ConcatenationOptions, SqueezeOptions, TensorType

MUTANTS = 6
"""For each command; `make long` runs thousands."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return the models that mutants are derived from."""
    net = tmp_path_factory.mktemp("fuzz") / "net.tflite"
    net.write_bytes(NET)
    return [net, INT8_MODEL, FLOAT_MODEL]


@pytest.mark.parametrize("name", sorted(command_fuzz.CALLS))
def test_a_command_ends_in_a_result_or_an_error_that_says_what(
    name: str, models: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFLM_COMPILED", "0")
    count = MUTANTS if name not in ("boards", "doctor", "releases", "json-schema") else 1
    for seed in range(count):
        path = models[seed % len(models)]
        data = path.read_bytes() if seed % 3 == 0 else fuzz.Mutant.of(str(path), seed).data()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", RuntimeWarning)
            command_fuzz.run(data, name, seed, fuzz.change_bytes)


def test_every_command_is_tried() -> None:
    assert set(command_fuzz.CALLS) == set(command_fuzz.commands().commands)


def test_what_is_not_raised_on_purpose_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fuzzer notices it, and the command says that it is a bug."""

    def fail(*arguments: object, **settings: object) -> None:
        raise IndexError("list index out of range")

    monkeypatch.setattr(tflm.Model, "from_file", fail)
    with pytest.raises(command_fuzz.BadEnding, match="IndexError: list index out of range: tflm fold"):
        command_fuzz.run(INT8_MODEL.read_bytes(), "fold", 0, fuzz.change_bytes)
    answer = CliRunner().invoke(app, ["fold", str(INT8_MODEL)])
    assert answer.exit_code == BUG
    assert "IndexError" in answer.stderr
    assert "this is a bug in tflm" in answer.stderr


def test_too_little_memory_is_no_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **settings: object) -> None:
        raise MemoryError("Unable to allocate 4.00 GiB")

    monkeypatch.setattr("tflm.cli.run.ready_interpreter", fail)
    answer = CliRunner().invoke(app, ["run", str(INT8_MODEL), "--random"])
    assert (answer.exit_code, answer.stderr.count("\n")) == (1, 1)
    assert "too little memory for this model: Unable to allocate 4.00 GiB" in answer.stderr


OPERATORS = [
    (BuiltinOperator.SQUEEZE, SqueezeOptions()),
    (BuiltinOperator.RESHAPE, None),
    (BuiltinOperator.EXPAND_DIMS, None),
    (BuiltinOperator.CONCATENATION, ConcatenationOptions(axis=0)),
    (BuiltinOperator.STRIDED_SLICE, None),
    (BuiltinOperator.SLICE, None),
    (BuiltinOperator.SPLIT, None),
    (BuiltinOperator.UNPACK, None),
]


@pytest.mark.parametrize(("operator", "options"), OPERATORS, ids=lambda value: getattr(value, "name", ""))
@pytest.mark.parametrize("sides", [([], [1]), ([0], []), ([], []), ([0], [1])], ids=str)
def test_an_operator_that_lacks_tensors_is_refused_or_left(
    operator: BuiltinOperator, options: Any, sides: tuple[list[int], list[int]], tmp_path: Path
) -> None:
    """Also by the checks of the memory plan that the model has."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    main.input("x", (1, 4), TensorType.FLOAT32)
    y = main.tensor("y", (4,), TensorType.FLOAT32)
    main.operator(operator, *sides, options)
    main.output(y)
    builder.metadata("OfflineMemoryAllocation", struct.pack("<5i", 1, 0, 2, 0, 16))
    path = tmp_path / "model.tflite"
    path.write_bytes(builder.build())
    for name in ("inspect", "arena", "fold", "strip", "check", "versions", "stream"):
        command_fuzz.ending([name, str(path)])


@pytest.mark.parametrize("kernels", ["cmsis-nn", "arduino", "esp-nn"])
def test_operators_that_lack_tensors_have_findings_of_every_library(kernels: str) -> None:
    target = "esp32s3" if kernels == "esp-nn" else "cortex-m4"
    library = library_for(kernels, tflm.targets.by_name(target))
    for operator in {concern.operator for concern in library.concerns}:
        for inputs in ([], [0], [0, -1]):
            builder = tflm.ModelBuilder()
            main = builder.subgraph()
            main.input("x", (1, 4), TensorType.INT16)
            y = main.tensor("y", (1, 4), TensorType.INT16)
            main.operator(BuiltinOperator[operator], inputs, [y])
            main.output(y)
            assert tflm.check_device(tflm.Model(builder.build()), target=target, kernels=kernels)


@pytest.mark.parametrize("type", [TensorType.FLOAT32, TensorType.INT8])
def test_log_softmax_of_a_scalar_into_a_vector_is_refused(type: TensorType) -> None:
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (), type, tflm.quantized(0.5))
    y = main.tensor("y", (1,), type, tflm.quantized(1 / 16, 127))
    main.operator(BuiltinOperator.LOG_SOFTMAX, [x], [y])
    main.output(y)
    with pytest.raises(tflm.OperatorError, match=r"has shape \[1\]"):
        tflm.measure_arena(tflm.Model(builder.build()), tflm.AllOpsResolver())


def test_a_sound_of_damaged_chunks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every position that may contain a size is damaged."""
    monkeypatch.setenv("TFLM_COMPILED", "0")
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setparams((1, 2, 16000, 0, "NONE", ""))
        sound.writeframes(bytes(8))
    whole, path = file.getvalue(), tmp_path / "a.wav"
    for place in range(len(whole) - 3):
        for size in (0, 1, 2**31, 2**32 - 1):
            path.write_bytes(whole[:place] + struct.pack("<I", size) + whole[place + 4 :])
            command_fuzz.ending(["run", str(INT8_MODEL), "--inputs", str(path)])


def test_buffers_of_old_metadata_that_are_missing_are_left_out() -> None:
    root = tflm.schema.read_model(memoryview(INT8_MODEL.read_bytes()))
    root.metadata_buffer = (10_000, -1)
    stripped = tflm.strip(tflm.Model(tflm.schema.write_model(root)))
    assert not tflm.Model(stripped).root.metadata_buffer
