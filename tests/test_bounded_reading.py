"""Files of users: what claims or holds more than can be of use is refused before it is read."""

from __future__ import annotations

import io
import itertools
import math
import os
import struct
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from example_models import FLOAT_MODEL, INT8_MODEL
from test_cli import refusal
from test_evaluation import IMAGES, classifier

import tflm
from tflm import bounded_reading
from tflm.application.comparison import compare_recorded
from tflm.application.running import input_names
from tflm.bounded_reading import read_at_most, read_text
from tflm.evaluation import input_files
from tflm.evaluation.input_files import read_inputs
from tflm.evaluation.runner import inputs_of
from tflm.evaluation.samples import data_set
from tflm.runtime.growing_arena import ready_interpreter
from tflm.schema import TensorType

MAX_BYTES = 8 << 20
"""What reading may take of memory in these tests; files claim far more."""

MODEL = tflm.Model.from_file(INT8_MODEL)
INPUTS = inputs_of(ready_interpreter(MODEL))


def header(shape: tuple[int, ...], descr: str = "|i1") -> bytes:
    """The beginning of a .npy file."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"shape": shape, "fortran_order": False, "descr": descr})
    return file.getvalue()


def zeros_npz(path: Path, arrays: dict[str, tuple[tuple[int, ...], int]]) -> None:
    """An .npz of arrays of zeros: their shapes, and how many bytes there are."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, (shape, size) in arrays.items():
            with archive.open(f"{name}.npy", "w") as member:
                member.write(header(shape))
                for _ in range(0, size, 1 << 20):
                    member.write(bytes(min(size, 1 << 20)))


def little_memory(read: Callable[[], Any]) -> str:
    """The error of a reader, which took little memory to find it."""
    tracemalloc.start()
    try:
        with pytest.raises(tflm.DataError) as error:
            read()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MAX_BYTES
    return str(error.value)


@pytest.mark.parametrize("shape", [(1 << 50,), (1, 1 << 50), (1 << 62, 1 << 62), (-1,)])
def test_a_header_that_claims_anything_is_refused(shape: tuple[int, ...], tmp_path: Path) -> None:
    path = tmp_path / "in.npy"
    path.write_bytes(header(shape) + b"\0")
    for read in (lambda: read_inputs(path, INPUTS), lambda: data_set(path), lambda: data_set(np.zeros(1), path)):
        assert "in.npy" in little_memory(read)
    assert "in.npy: is" in refusal("run", INT8_MODEL, "--inputs", path)


@pytest.mark.parametrize(
    ("shape", "reason"), [((32 << 20, 2), "not [33554432, 2]"), ((64 << 20,), "67,108,864 samples")]
)
def test_an_array_of_another_shape_is_refused_unread(shape: tuple[int, ...], reason: str, tmp_path: Path) -> None:
    size = math.prod(shape)
    (tmp_path / "in.npy").write_bytes(header(shape))
    with (tmp_path / "in.npy").open("r+b") as file:
        file.truncate(size + 128)
    zeros_npz(tmp_path / "first.npz", {"in_0_0": (shape, size)})
    zeros_npz(tmp_path / "named.npz", {next(iter(input_names(MODEL))): (shape, size)})
    for name, real in itertools.product(("in.npy", "first.npz", "named.npz"), (False, True)):
        assert reason in little_memory(partial(read_inputs, tmp_path / name, INPUTS, input_names(MODEL), real))


def test_arrays_that_are_no_inputs_are_not_read(tmp_path: Path) -> None:
    size = 64 << 20
    zeros_npz(tmp_path / "in.npz", {"in_0_0": ((1, 1), 1), "other": ((size,), size)})
    tracemalloc.start()
    ((array,),) = read_inputs(tmp_path / "in.npz", INPUTS)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert array.shape == (1, 1)
    assert peak < MAX_BYTES


def test_a_recorded_answer_of_another_shape_is_refused_unread(tmp_path: Path) -> None:
    size = 64 << 20
    zeros_npz(tmp_path / "in.npz", {"in_0_0": ((1, 1), 1), "out_0_0": ((size,), size)})
    with pytest.raises(Exception, match="out_0_0 is int8 of"):
        compare_recorded(INT8_MODEL, tmp_path / "in.npz")


def test_an_archive_gives_no_more_than_fits_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_files, "MAX_ARRAY_BYTES", 1000)
    np.savez(tmp_path / "many.npz", **{f"in_{i}_0": np.zeros((1, 1), np.int8) for i in range(1001)})
    np.savez(tmp_path / "fits.npz", **{f"in_{i}_0": np.zeros((1, 1), np.int8) for i in range(1000)})
    np.savez(tmp_path / "data.npz", x=np.zeros((1001, 1), np.int8))
    np.savez(tmp_path / "two.npz", x=np.zeros((501, 1), np.int8), y=np.zeros((501, 1), np.int8))
    assert "at most 1,000 B are read" in little_memory(lambda: read_inputs(tmp_path / "many.npz", INPUTS))
    for name in ("data.npz", "two.npz"):
        assert "at most 1,000 B are read" in little_memory(partial(data_set, tmp_path / name))
    assert len(read_inputs(tmp_path / "fits.npz", INPUTS)) == 1000


def test_bytes_are_read_as_far_as_the_input_takes_them(tmp_path: Path) -> None:
    assert "has more than 1 bytes" in little_memory(lambda: read_inputs(Path("/dev/zero"), INPUTS))
    (tmp_path / "in.bin").write_bytes(bytes(4))
    assert "has 4 bytes" in little_memory(lambda: read_inputs(tmp_path / "in.bin", INPUTS))


@pytest.mark.parametrize("suffix", [".csv", ".wav"])
def test_text_and_sound_are_limited(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"in{suffix}"
    path.touch()
    with path.open("r+b") as file:
        file.truncate(200 << 20)
    assert "at most 134,217,728 are read" in little_memory(lambda: read_inputs(path, INPUTS))


def test_a_wav_file_has_as_many_samples_as_there_are(tmp_path: Path) -> None:
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, 16000, 16000, 1, 8)
    data = struct.pack("<4sI", b"data", (1 << 32) - 1) + b"\x80\x81"
    (tmp_path / "in.wav").write_bytes(struct.pack("<4sI4s", b"RIFF", (1 << 32) - 1, b"WAVE") + form + data)
    steps = read_inputs(tmp_path / "in.wav", INPUTS)
    assert [int(array[0, 0]) for (array,) in steps] == [0, 1]


def png(width: int, height: int, data: bytes) -> bytes:
    """A picture in grey of that size, as it says."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    "content",
    [
        png(60_000, 60_000, b""),
        png(5000, 5000, b""),
        png(1, 1, b""),
        png(1, 1, b"\0\0")[:40],
        b"%!PS-Adobe-3.0 EPSF-3.0\n",
    ],
    ids=["bomb", "large", "no data", "cut off", "a program"],
)
def test_a_picture_is_read_if_its_size_is_the_inputs(content: bytes, tmp_path: Path) -> None:
    pytest.importorskip("PIL.Image", reason="needs Pillow").init()  # imports what reads each format
    path = tmp_path / "in.png"
    path.write_bytes(content)
    assert "in.png" in little_memory(lambda: read_inputs(path, INPUTS))


def test_logs_models_and_documents_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    path.write_bytes(bytes(11))
    monkeypatch.setattr(bounded_reading, "MAX_TEXT_BYTES", 10)
    for read in (lambda: read_at_most(path, 10), lambda: read_at_most("/dev/zero", 10), lambda: read_text(path)):
        assert "at most 10 are read" in little_memory(read)
    assert read_at_most(path, 11) == bytes(11)
    path.write_bytes(b"\xff")
    with pytest.raises(tflm.DataError, match="is not UTF-8 text"):
        read_text(path)


@pytest.mark.parametrize(
    "members",
    [
        {"in_0_0.txt": b"x"},
        {"in_0_0.npy": b"\x93NUMPY\x02\x00" + b"\xff" * 4},
        {"in_0_0.npy": b"\x93NUMPY\x01\x00\x10\x27" + b"(" * 10_000},
    ],
    ids=["no array", "a header of 4 GiB", "deep"],
)
def test_members_that_are_no_arrays_are_refused(members: dict[str, bytes], tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "in.npz", "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    assert "in.npz" in little_memory(lambda: read_inputs(tmp_path / "in.npz", INPUTS))


@pytest.mark.parametrize("shape", ["(True, 1)", "(1000000000, 0)", "(9223372036854775807, 0)", f"({2**70}, 0)"])
@pytest.mark.parametrize("command", ["evaluate", "calibrate-report", "run"])
def test_samples_without_values_are_refused(command: str, shape: str, tmp_path: Path) -> None:
    """There could be any number of them in a file of 128 bytes."""
    text = f"{{'descr': '|i1', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    (tmp_path / "in.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + b"\0")
    assert "in.npy: " in refusal(command, INT8_MODEL, "--inputs", tmp_path / "in.npy")


def test_pipes_are_not_waited_for(tmp_path: Path) -> None:
    """In a folder of samples they are skipped; as an argument they are rejected."""
    for name in ("a.png", "b.npy", "c.npz", "d.csv"):
        os.mkfifo(tmp_path / name)
    for command in ("evaluate", "run"):
        assert "holds no" in refusal(command, INT8_MODEL, "--inputs", tmp_path)
        for name in ("b.npy", "c.npz"):
            assert "not a regular file" in refusal(command, INT8_MODEL, "--inputs", tmp_path / name)
    (tmp_path / "e.npz").mkdir()
    assert "Is a directory" in refusal("run", INT8_MODEL, "--inputs", tmp_path / "e.npz")


@pytest.mark.parametrize("label", ["30000", "-1", "2", "0.5", "nan", "inf", "1e30"])
def test_a_label_that_is_no_class_is_refused(label: str, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text(f"x,label\n1.0,{label}\n2.0,0\n")
    said = little_memory(lambda: tflm.evaluate(MODEL, tmp_path / "in.csv", workers=1))
    assert "label" in said


def test_a_model_with_very_many_classes_has_no_confusion_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tflm.evaluation.metrics.MAX_CLASSES", 2)
    with pytest.raises(tflm.DataError, match="at most 2 are classes"):
        tflm.evaluate(classifier(), IMAGES[:4], np.arange(4) % 3, workers=1)


def test_a_long_line_of_headings_takes_no_room_for_its_table(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("a," * 20_000 + "\n" + "1\n" * 20_000)
    assert "line 2: expected 20001 numbers" in little_memory(lambda: data_set(tmp_path / "in.csv"))


def test_deep_json_of_flash_data_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text("[" * 100_000)
    assert "not a file of tools/flash_groups.py" in refusal("flash", INT8_MODEL, "--flash-data", tmp_path / "mine.json")


def test_integers_for_a_model_in_float_are_refused_by_run_and_evaluate(tmp_path: Path) -> None:
    path = tmp_path / "in.npy"
    np.save(path, np.zeros((1, 1), np.int8))
    for arguments in (["run", FLOAT_MODEL, "--inputs", path], ["evaluate", FLOAT_MODEL, "--inputs", path]):
        error = refusal(*arguments)
        assert "int8" in error
        assert "float32" in error


def test_a_reference_in_float_gets_what_the_integers_stand_for() -> None:
    quantized, reference = classifier(), classifier(TensorType.FLOAT32)
    tensor = inputs_of(ready_interpreter(quantized))[0]
    real = ((IMAGES[:20].astype(np.float64) - tensor.zero_point) * tensor.scale).astype(np.float32)
    by_integers = tflm.evaluate(quantized, IMAGES[:20], reference=reference, workers=1)
    by_reals = tflm.evaluate(quantized, real, reference=reference, workers=1)
    assert by_integers.difference == by_reals.difference
    assert by_integers.signal == by_reals.signal
    with pytest.raises(tflm.DataError, match=r"int8 numbers.*takes float32"):
        tflm.evaluate(reference, IMAGES[:20], workers=1)


@pytest.mark.parametrize("address", ["https://example.org/model.tflite", "s3://bucket/model.tflite"])
@pytest.mark.parametrize("command", [["arena"], ["inspect", "--check"], ["gate"]], ids=lambda command: command[0])
def test_a_url_is_told_from_a_path(command: list[str], address: str) -> None:
    error = refusal(command[0], address, *command[1:])
    assert f"{address} is a URL" in error
    assert f"curl -LO {address}" in error


@pytest.mark.parametrize(("size", "is_mapped"), [(16 << 20, False), ((16 << 20) + 1, True)])
def test_a_model_of_16_mib_is_read_and_a_larger_one_mapped(size: int, is_mapped: bool, tmp_path: Path) -> None:
    path = tmp_path / "large.tflite"
    path.write_bytes(INT8_MODEL.read_bytes())
    os.truncate(path, size)
    model = tflm.Model.from_file(path)
    with path.open("r+b") as file:
        file.write(bytes(8))
    assert (bytes(model.data[:8]) == bytes(8)) == is_mapped
