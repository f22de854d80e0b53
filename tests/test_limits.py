"""Numbers at which something changes: units, ties, sums that a float still holds, sizes that are refused."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import wave
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from differential import run
from test_public_defaults import PACKAGE, paths_of_declarations

import tflm
from tflm import bounded_reading
from tflm.application import arena_plot, checkout, device_run, models, output_files, stream_run
from tflm.application.firmware_report import tree_report
from tflm.application.models import bytes_from
from tflm.application.running import Step
from tflm.compat.tflite_micro import runtime
from tflm.evaluation import input_files, metrics
from tflm.firmware.firmware_tree import FirmwareTree
from tflm.firmware.source_tree import Modified, SourceCopy
from tflm.schema import (
    BuiltinOperator,
    Conv2DOptions,
    FullyConnectedOptions,
    ModelBuilder,
    Padding,
    TensorType,
    c_array,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [("1000", 1000), ("1K", 1024), ("64k", 65536), ("3KiB", 3072), ("1.5M", 3 << 19), ("2MB", 2 << 20)],
)
def test_units_are_powers_of_1024(text: str, size: int) -> None:
    assert bytes_from(text) == size


def test_halves_are_quantized_away_from_zero() -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (6,), TensorType.INT8, tflm.quantized(0.5))
    y = main.tensor("y", (6,), TensorType.INT8, tflm.quantized(0.5))
    main.operator(BuiltinOperator.RELU, [x], [y])
    main.output(y)
    interpreter = tflm.MicroInterpreter(tflm.Model(builder.build()), tflm.AllOpsResolver(), bytearray(4096))
    interpreter.allocate_tensors()
    halves = interpreter.input(0).quantized([0.25, 0.75, 1.25, -0.25, -0.75, -1.25])
    assert halves.tolist() == [1, 2, 3, -1, -2, -3]


def test_a_sum_that_float32_does_not_hold_is_exact() -> None:
    """1041 products of 127 and 127 are an odd number above 2^24; the bias takes it to 1."""
    depth, rows = 1041, 2
    total = 127 * 127 * depth
    assert 1 << 24 < total < 1 << 25
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, depth), TensorType.INT8, tflm.quantized(1.0))
    weights = main.constant("weights", np.full((rows, depth), 127, np.int8), tflm.quantized(1.0))
    bias = main.constant("bias", np.full(rows, 1 - total, np.int32), tflm.quantized(1.0))
    y = main.tensor("y", (1, rows), TensorType.INT8, tflm.quantized(1.0))
    main.operator(BuiltinOperator.FULLY_CONNECTED, [x, weights, bias], [y], FullyConnectedOptions())
    main.output(y)
    for delegates in ((), None):
        ((answer,),) = run(builder.build(), [[np.full((1, depth), 127, np.int8)]], delegates=delegates)
        assert set(answer.reshape(-1).tolist()) == {1}


def convolution(filters: int, channels: int) -> bytes:
    """Return an int8 CONV_2D with this many filters, and this many output channels."""
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 4, 4, 2), TensorType.INT8, tflm.quantized(0.5))
    weights = main.constant("weights", np.ones((filters, 1, 1, 2), np.int8), tflm.quantized([0.5] * filters))
    y = main.tensor("y", (1, 4, 4, channels), TensorType.INT8, tflm.quantized(0.5))
    options = Conv2DOptions(padding=Padding.VALID, stride_w=1, stride_h=1)
    main.operator(BuiltinOperator.CONV_2D, [x, weights, -1], [y], options)
    main.output(y)
    return builder.build()


@pytest.mark.parametrize("channels", [4, 6])
def test_an_output_has_no_channel_without_a_filter(channels: int) -> None:
    x = np.zeros((1, 4, 4, 2), np.int8)
    assert run(convolution(3, 3), [[x]])[0][0].shape == (1, 4, 4, 3)
    with pytest.raises(tflm.OperatorError, match="3"):
        run(convolution(3, channels), [[x]])


def relu(width: int) -> bytes:
    """A float RELU of a row."""
    builder = ModelBuilder()
    main = builder.subgraph()
    x, y = (make(name, (1, width), TensorType.FLOAT32) for make, name in ((main.input, "x"), (main.tensor, "y")))
    main.operator(BuiltinOperator.RELU, [x], [y])
    main.output(y)
    return builder.build()


def test_the_smallest_arena_is_a_multiple_of_16() -> None:
    """Where the tail has 8 bytes more than one, and nothing but head and tail counts."""
    measured = tflm.measure_arena(tflm.Model(relu(1000)), tflm.AllOpsResolver(), target=tflm.targets.by_name("riscv32"))
    assert measured.arena_used_bytes % 16 == 8
    assert measured.minimum_arena_bytes == measured.arena_used_bytes + 8


def test_the_compatible_arena_has_ten_bytes_for_each_of_the_model() -> None:
    def needed(model: bytes) -> int:
        plan = tflm.measure_arena(tflm.Model(model), tflm.AllOpsResolver(), target=tflm.targets.HOST_WHEEL)
        return plan.minimum_arena_bytes

    size = len(relu(1))
    fits, exceeds = (
        next(w for w in range(1, 4096, 16) if needed(relu(w)) > 10 * size + extra) for extra in (-256, 256)
    )
    runtime.Interpreter.from_bytes(relu(fits))
    with pytest.raises(RuntimeError):
        runtime.Interpreter.from_bytes(relu(exceeds))


def test_scratch_memory_is_held_while_its_operator_runs() -> None:
    """It shares no byte with the operator's inputs and outputs, nor with tensors that are alive at the time."""
    builder = ModelBuilder()
    main = builder.subgraph()
    tensors = [main.input("x", (1, 8, 8, 4), TensorType.INT8, tflm.quantized(0.5))]
    axis = main.constant("axis", np.int32([1, 2]))
    tensors.append(main.tensor("mean", (1, 1, 1, 4), TensorType.INT8, tflm.quantized(0.25)))
    main.operator(BuiltinOperator.MEAN, [tensors[0], axis], [tensors[1]], tflm.schema.ReducerOptions(keep_dims=True))
    tensors.append(main.tensor("y", (1, 1, 1, 4), TensorType.INT8, tflm.quantized(0.25)))
    main.operator(BuiltinOperator.RELU, [tensors[1]], [tensors[2]])
    main.output(tensors[2])
    measured = tflm.measure_arena(tflm.Model(builder.build()), tflm.AllOpsResolver())
    scratch = [buffer for buffer in measured.buffers if buffer.tensor is None]
    assert scratch
    for buffer in scratch:
        assert (buffer.first_use, buffer.last_use) == (1, 1)
        for other in measured.buffers:
            if other is not buffer and other.first_use <= 1 <= other.last_use:
                assert other.offset + other.bytes <= buffer.offset or buffer.offset + buffer.bytes <= other.offset


# --- Both sides of every limit ---------------------------------------------------------------------------------------

LIMIT = 200
"""What the limit under test is set to."""


def file_of(folder: Path, size: int, head: bytes = b"") -> Path:
    """A file of so many bytes."""
    path = folder / "file"
    path.write_bytes(head + bytes(size - len(head)))
    return path


def standard_input(monkeypatch: pytest.MonkeyPatch, size: int) -> Path:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"\n" * size)))
    return models.STANDARD_INPUT


def sound(folder: Path, size: int) -> Path:
    """A WAV file of so many bytes, one a sample."""
    path = folder / "sound.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(1)
        file.setframerate(16000)
        file.writeframes(bytes(size - 44))
    assert path.stat().st_size == size
    return path


def samples(folder: Path, count: int) -> Path:
    """An array of so many samples of one byte."""
    np.save(folder / "in.npy", np.zeros((count, 1), np.int8))
    return folder / "in.npy"


def scores(classes: int) -> np.ndarray:
    """The record of a sample of class 0, with scores of so many classes."""
    record = np.zeros(1, [("ran", "?"), ("label", "<i8"), ("output0", np.int8, (1, classes))])
    record["ran"] = True
    return record


def from_commit(folder: Path, size: int) -> None:
    """Read a file of so many bytes from a commit."""
    path = file_of(folder, size)
    for words in ("init -q", "add file", "-c user.name=a -c user.email=a@b commit -qm a"):
        subprocess.run(["git", *words.split()], cwd=folder, check=True)
    assert checkout.Checkout(path).file_at(path, "HEAD") == bytes(size)


INPUT = SimpleNamespace(data=np.zeros((1,), np.int8), name="x")
REFUSED: dict[str, Callable[[Path, pytest.MonkeyPatch, int], object]] = {
    "tflm.schema.c_array.MAX_TEXT_BYTES": lambda folder, patch, size: c_array.model_in_c(memoryview(b" " * size)),
    "tflm.bounded_reading.MAX_TEXT_BYTES": lambda folder, patch, size: bounded_reading.read_text(file_of(folder, size)),
    "tflm.application.models.MAX_TEXT_BYTES": lambda folder, patch, size: models.lines_of_log(
        standard_input(patch, size)
    ),
    "tflm.application.models.MAX_MODEL_BYTES": lambda folder, patch, size: [
        models.bytes_of_model(standard_input(patch, size)),
        models.bytes_of_model(file_of(folder, size)),
    ],
    "tflm.application.checkout.MAX_MODEL_BYTES": lambda folder, patch, size: from_commit(folder, size),
    "tflm.evaluation.metrics.MAX_CLASSES": lambda folder, patch, size: metrics.classification(scores(size)),
    "tflm.evaluation.input_files.MAX_ARRAY_BYTES": lambda folder, patch, size: input_files.stored_array(
        samples(folder, size)
    ).read(),
    "tflm.evaluation.input_files.MAX_STEPS": lambda folder, patch, size: input_files.read_inputs(
        samples(folder, size), [INPUT]
    ),
    "tflm.evaluation.input_files.MAX_SOUND_BYTES": lambda folder, patch, size: input_files.read_sound(
        sound(folder, size)
    ),
}
"""For each limit of what is read, what reads something of a size."""

ELSEWHERE = {
    "tflm.schema.c_array.MAX_ARRAYS": "test_other_formats.py",
    "tflm.schema.reader.MAX_MODEL_BYTES": "test_other_formats.py",
    "tflm.schema.reader.LARGEST_PLACEHOLDER": "test_other_formats.py",
    "tflm.schema.model.LARGEST_COPY": "test_bounded_reading.py",
    "tflm.schema.verifier.LARGEST_SCALE": "test_broken_models.py",
    "tflm.schema.verifier.MAXIMUM_TENSOR_BYTES": "test_broken_models.py",
    "tflm.schema.verifier.MAXIMUM_RANK": "test_broken_models.py",
    "tflm.schema.verifier.MAXIMUM_DEPTH": "test_broken_models.py",
    "tflm.schema.verifier.MAXIMUM_STEPS": "test_broken_models.py",
    "tflm.application.stream_run.MAX_COLUMNS": "below",
}
"""Other limits, and the tests of both sides."""

SEARCHED_OR_WRITTEN = {"c", "memory", "planning", "runtime", "schedule"}
"""Folders whose limits bound searches and programs, not what is read."""


@pytest.mark.parametrize("limit", REFUSED)
def test_what_has_the_size_of_a_limit_is_read_and_one_more_is_refused(
    limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limit, LIMIT)
    REFUSED[limit](tmp_path, monkeypatch, LIMIT)
    more = tmp_path / "more"
    more.mkdir()
    with pytest.raises(tflm.TflmError, match=r"200|larger"):
        REFUSED[limit](more, monkeypatch, LIMIT + 1)


def test_every_limit_is_walked() -> None:
    """A limit is a constant that something is compared with."""
    found = set()
    paths = [path.relative_to(PACKAGE).with_suffix("") for path in paths_of_declarations()]
    for path in (path for path in paths if path.parts[0] not in SEARCHED_OR_WRITTEN):
        module = ".".join(("tflm", *path.parts))
        nodes = ast.walk(ast.parse((PACKAGE / path).with_suffix(".py").read_text(encoding="utf-8")))
        compared = [each for each in nodes if isinstance(each, ast.Compare) and not isinstance(each.ops[0], ast.In)]
        operands = [each for node in compared for each in (node.left, *node.comparators)]
        names = [each.id for each in operands if isinstance(each, ast.Name)]
        found |= {f"{module}.{name}" for name in names if re.match("_?(MAX|LARGEST|LONGEST)", name)}
    assert found - REFUSED.keys() == ELSEWHERE.keys()


# --- How much of a list is shown -------------------------------------------------------------------------------------


def steps_of(outputs: int) -> list[Step]:
    """Three invokes with an output of so many elements."""
    return [Step([np.full((1, outputs), step, np.float32)], [None], {}) for step in range(3)]


def columns(count: int, _: pytest.MonkeyPatch) -> int:
    """The elements of an output in a table."""
    (table,) = stream_run.stream_report("t", None, ["y"], steps_of(count)).tables
    assert [row[0] for row in table.rows] == ["1", "2", "3"]
    return len(table.columns) - 1


def named_paths(count: int, _: pytest.MonkeyPatch) -> int:
    """The files that an error names, with the number of others."""
    text = output_files._names([Path(f"f{i}") for i in range(count)])
    shown = text.count("f")
    assert text.endswith(f" and {count - shown} more") == (shown < count)
    return shown


def modified_files(count: int, _: pytest.MonkeyPatch) -> int:
    """The files of a firmware that differ from the release, with the number of all."""
    changed = tuple(Modified(f"f{i}") for i in range(count))
    copy = SourceCopy("cmsis-nn", ".", "v1", "v1", True, 10 * count, 9 * count, changed)
    _copies, table = tree_report(FirmwareTree(".", (copy,), (), (), None, "cmsis-nn", ())).tables
    assert (f"of {count}" in table.title) == (len(table.rows) < count)
    return len(table.rows)


def elements(count: int, _: pytest.MonkeyPatch) -> int:
    """The elements of a tensor from the first wrong one on."""
    return len(device_run._shown(np.arange(count + 5), 5).split())


def labelled(count: int, _: pytest.MonkeyPatch) -> int:
    """The buffers with a label in a drawing, the largest."""
    buffers = [{"first_use": 3, "last_use": 6, "bytes": 100 + i, "offset": 64, "name": f"{i}"} for i in range(count)]
    axes = MagicMock()
    named: list[int] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(arena_plot, "_name", lambda axes, plan, buffer: named.append(buffer["bytes"]))
        patched.setattr(arena_plot, "_look", lambda kind: {})
        patched.setattr(arena_plot, "block_kind", lambda plan, buffer: "")
        arena_plot._draw(axes, {"buffers": buffers, "peak": {"step": 5, "bytes": 77}, "steps": [""] * 8})
    assert named == [100 + i for i in reversed(range(count))][: len(named)]
    assert [(call.args, call.kwargs["width"], call.kwargs["bottom"]) for call in axes.bar.call_args_list] == [
        ((2.5, buffer["bytes"]), 4, 64) for buffer in buffers
    ]
    axes.set_xlim.assert_called_once_with(-0.5, 7.5)
    assert (axes.axvline.call_args.args, axes.axhline.call_args.args) == ((5,), (77,))
    return len(named)


def characters(count: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """The characters of a line of a log."""
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"a" * count + b"\nb")))
    first, second = models.lines_of_log(models.STANDARD_INPUT)
    assert second == "b"
    return len(first)


SHOWN: dict[str, Callable[[int, pytest.MonkeyPatch], int]] = {
    "tflm.application.stream_run.MAX_COLUMNS": columns,
    "tflm.application.output_files.NAMED": named_paths,
    "tflm.application.firmware_report.MODIFIED_SHOWN": modified_files,
    "tflm.application.device_run.SHOWN": elements,
    "tflm.application.arena_plot.NAMED_BUFFERS": labelled,
    "tflm.application.models.MAX_LINE": characters,
}
"""For each limit, what shows something of a length, and returns how much is shown."""


@pytest.mark.parametrize("more", [-1, 0, 1])
@pytest.mark.parametrize("limit", SHOWN)
def test_so_much_of_a_list_is_shown(limit: str, more: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit, 5)
    assert SHOWN[limit](5 + more, monkeypatch) == min(5 + more, 5)


@pytest.mark.parametrize(("curves", "has_legend"), [(1, False), (2, True), (5, True), (6, False)])
def test_a_legend_names_several_curves_but_not_too_many(
    curves: int, has_legend: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_run, "MAX_COLUMNS", 5)
    figure = MagicMock()
    axes = figure.subplots.return_value
    axes.lines = [None] * curves
    monkeypatch.setattr(stream_run, "write_image", lambda path, inches, draw: draw(figure))
    stream_run.plot_outputs(Path("a.png"), "t", None, ["y"], steps_of(curves))
    assert figure.legend.called == has_legend
    drawn = [(list(call.args[0]), call.args[1]) for call in axes.plot.call_args_list]
    assert drawn == [([1, 2, 3], [0.0, 1.0, 2.0])] * curves
    axes.set_xlabel.assert_called_once_with("invoke")
    streamed: Any = SimpleNamespace(hop=4)
    stream_run.plot_outputs(Path("a.png"), "t", streamed, ["y"], steps_of(curves))
    assert list(axes.plot.call_args.args[0]) == [4, 8, 12]
    axes.set_xlabel.assert_called_with("frames")
