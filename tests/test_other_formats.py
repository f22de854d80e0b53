"""Files that are not models are named, with the way to a model; models in C source are read."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from example_models import FLOAT_MODEL, INT8_MODEL
from hypothesis import given
from hypothesis import strategies as st
from test_arena import corpus_models
from test_cli import figures, refusal

import tflm
from tflm.schema.c_array import MAX_ARRAYS
from tflm.schema.reader import FORMATS

MODEL = INT8_MODEL.read_bytes()


def zipped(*names: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, MODEL)
    return file.getvalue()


def tarred() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("model.tflite"))
    return file.getvalue()


def field(number: int, content: bytes | int) -> bytes:
    """A field of a protobuf message."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(value: int) -> bytes:
    digits = bytearray()
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    return bytes([*digits, value])


def npy() -> bytes:
    file = io.BytesIO()
    np.save(file, np.zeros(3))
    return file.getvalue()


NODE = field(1, b"input") + field(2, b"Placeholder") + field(5, b"dtype")
OP_LIST = field(1, field(1, b"Add") + field(2, field(1, b"x")) * 40)
META_GRAPH = field(1, field(2, OP_LIST) + field(4, b"serve")) + field(2, field(1, NODE))
GRAPH = field(1, field(1, b"x") + field(4, b"Relu"))

FILES = {
    "h5": (b"\x89HDF\r\n\x1a\n" + bytes(600), "HDF5", "tf.lite.TFLiteConverter"),
    "keras": (zipped("metadata.json", "config.json", "model.weights.h5"), "Keras", "tf.lite.TFLiteConverter"),
    "onnx of PyTorch": (field(1, 8) + field(2, b"pytorch") + field(3, b"2.1") + field(7, GRAPH), "ONNX", "onnx2tf"),
    "onnx without producer": (field(1, 3) + field(7, GRAPH) + field(8, field(2, 13)), "ONNX", "onnx2tf"),
    "saved model": (field(1, 1) + field(2, META_GRAPH), "SavedModel", "from_saved_model"),
    "frozen graph": (field(1, NODE) * 3 + field(4, field(1, 27)), "frozen", "from_frozen_graph"),
    "core ml": (field(1, 4) + field(2, field(1, field(1, b"image"))), "Core ML", "convert the"),
    "torch": (zipped("net/data.pkl", "net/version"), "PyTorch", "litert_torch"),
    "torch before 1.6": (pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1001, 2), "PyTorch", "litert_torch"),
    "pickle": (pickle.dumps({"weights": [1.0]}), "pickle", "litert_torch"),
    "executorch": (struct.pack("<I4s", 28, b"ET12") + bytes(80), "ExecuTorch", "litert_torch"),
    "tensorflow.js": (b'{"format": "layers-model", "modelTopology": {"a": 1}}', "TensorFlow.js", "convert the"),
    "html": (b"\n<!DOCTYPE html>\n<html></html>", "web page", "Raw"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 2048\n", "Git LFS", "git lfs pull"),
    "gzip": (gzip.compress(MODEL), "gzip", "unpack"),
    "zip": (zipped("model.tflite"), "zip", "unpack"),
    "tar": (tarred(), "tar archive", "unpack"),
    "npy": (npy(), "NumPy", "inputs"),
    "text": ("Modell für die Küche\n".encode(), "text", ".tflite"),
    "empty": (b"", "empty", "repeat"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_another_format_is_named_with_the_way_to_a_model(name: str, tmp_path: Path) -> None:
    data, what, advice = FILES[name]
    path = tmp_path / "model.tflite"
    path.write_bytes(data)
    loaders: list[Callable[[], object]] = [lambda: tflm.Model(data), lambda: tflm.Model.from_file(path)]
    for load in loaders:
        with pytest.raises(tflm.ModelError, match=r"this is not a \.tflite model but") as raised:
            load()
        assert what in raised.value.reason
        assert advice in raised.value.reason
    assert [finding.reason for finding in tflm.verify(data)] == [raised.value.reason]


def test_every_format_is_tried() -> None:
    """Of two rows for one format, both."""
    tried = {each.name for each in FORMATS for data, _, _ in FILES.values() if each.name in str(tflm.verify(data))}
    assert tried == {each.name for each in FORMATS} - {"NumPy arrays (.npz)"}


@pytest.mark.parametrize("command", [("inspect",), ("inspect", "--check"), ("arena",), ("check",)])
def test_commands_name_the_file_and_its_format(command: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(FILES["onnx of PyTorch"][0])
    if command != ("inspect", "--check"):  # lists the error as a finding
        assert "net.onnx: file: this is not a .tflite model but an ONNX model" in refusal(*command, path)
    assert "Is a directory: a folder, not a .tflite model" in refusal(*command, tmp_path)


@pytest.mark.parametrize(
    ("inside", "said"),
    [
        ("saved_model.pb", "from_saved_model"),
        ("Manifest.json", "Core ML"),
        ("a.tflite", "such as a.tflite"),
        ("b", "name a"),
    ],
)
def test_a_folder_is_refused_by_what_is_in_it(inside: str, said: str, tmp_path: Path) -> None:
    (tmp_path / inside).write_bytes(b"")
    with pytest.raises(tflm.ArgumentError, match=said):
        tflm.Model.from_file(tmp_path)


# --- Files that were cut off -----------------------------------------------------------------------------------------


@given(data=st.data())
def test_a_model_that_ends_early_was_cut_off(data: st.DataObject) -> None:
    model = data.draw(st.sampled_from([MODEL, FLOAT_MODEL.read_bytes()]))
    length = data.draw(st.integers(1, len(model) - 1))
    errors = [finding for finding in tflm.verify(model[:length]) if finding.level == "error"]
    if not errors:  # what it lacks is padding
        assert tflm.Model(model[:length]).root == tflm.Model(model).root
        return
    assert "cut off" in errors[0].reason
    stated = errors[0].reason.partition("at least ")[2].partition(" bytes")[0].replace(",", "")
    assert 0 < int(stated or 1) <= len(model) - length


def test_real_models_that_end_early_were_cut_off(corpus: Path) -> None:
    for name in corpus_models():
        model = (corpus / "models" / f"{name}.tflite").read_bytes()
        for length in {8, 9, len(model) // 3, len(model) // 2, len(model) - 64}:
            with pytest.raises(tflm.ModelError, match="cut off"):
                tflm.Model(model[:length])


# --- Models in C source ----------------------------------------------------------------------------------------------


def in_lines(words: list[str], width: int = 12) -> str:
    return ",\n".join("  " + ", ".join(words[i : i + width]) for i in range(0, len(words), width))


HEX = [f"0x{byte:02x}" for byte in MODEL]
STYLES = {
    "xxd": f"unsigned char model_tflite[] = {{\n{in_lines(HEX)}\n}};\nunsigned int model_tflite_len = {len(MODEL)};\n",
    "generate_cc_arrays": f'#include "m.h"\nalignas(16) const unsigned char m[] = {{{",".join(map(hex, MODEL))}}};\n',
    "decimal": f"const uint8_t g_model[{len(MODEL)}] = {{{','.join(map(str, MODEL))},}};",
    "signed": f"const int8_t m[] = {{{','.join(str((byte ^ 128) - 128) for byte in MODEL)}}};",
    "attribute": f"const unsigned char m[] __attribute__((aligned(4))) = {{{','.join(HEX)}}};",
    "std::array": f"constexpr std::array<uint8_t, {len(MODEL)}> m = {{{{{','.join(HEX)}}}}};",
    "braces": f"const unsigned char m[]{{{','.join(each + 'U' for each in HEX)}}};",
    "octal": f"const unsigned char m[] = {{{','.join(f'0{byte:o}' for byte in MODEL)}}};",
    "comments": "/* {1, 2} */ // {3}\nconst char m[] = { // TFL3\n"
    + in_lines([f"{each} /* , */" for each in HEX])
    + "/**/};",
    "several arrays": "const float scale[] = {0.5f, 1};\nint n[2][2] = {{1, 2}, {3, 4}};\n"
    f"const unsigned char m[] = {{{','.join(HEX)}}};\nconst unsigned char other[] = {{1,2,3,4,5,6,7,8,9}};\n",
}


@pytest.mark.parametrize("style", STYLES)
def test_a_model_in_c_source_is_the_model(style: str, tmp_path: Path) -> None:
    path = tmp_path / "model_data.cc"
    path.write_text(STYLES[style])
    assert bytes(tflm.Model.from_file(path).data) == MODEL
    assert bytes(tflm.Model(path.read_bytes()).data) == MODEL
    assert tflm.verify(path.read_bytes()) == tflm.verify(MODEL)


def test_what_export_writes_is_read_by_commands(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "tflm", "export", INT8_MODEL, tmp_path / "out"], check=True, stdout=subprocess.DEVNULL
    )
    (source,) = (path for path in (tmp_path / "out").rglob("*model_data.cc"))
    assert bytes(tflm.Model.from_file(source).data) == MODEL
    of_source, of_model = (figures("arena", path)["models"][0] for path in (source, INT8_MODEL))
    assert of_source["minimum_arena_bytes"] == of_model["minimum_arena_bytes"]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("const char a[] = {1, 2};\nint b[] = {3};", r"no model in its arrays \(a, b\)"),
        ("int b[] = {1, 2, 3, 4, e, f, g, h, i};", r"no model in its arrays \(b\)"),
        ("".join(f"int {name}[] = {{1}};\n" for name in "abcd"), r"no model in its arrays \(a, b, c, d\)"),
        ("".join(f"int {name}[] = {{1}};\n" for name in "abcdef"), r"in its arrays \(a, b, c, d and 2 more\)"),
        (STYLES["decimal"] + STYLES["signed"], r"several models in its arrays \(g_model, m\)"),
        (STYLES["xxd"][:9000], "cut off: no brace closes the array model_tflite after 1,4"),
        (STYLES["decimal"].replace(",0,", ",256,", 1).replace("{28,256", "{28,0"), "256, which is not a byte"),
        (STYLES["xxd"].replace("0x54, 0x46", "0x54, 0x46", 1).replace("};", "x };", 1), "in place of a number"),
        ("extern const unsigned char g_model[];\n", "not a .tflite model but text"),
    ],
    ids=[
        "no model",
        "no bytes",
        "four arrays",
        "six arrays",
        "two models",
        "cut off",
        "no byte",
        "no number",
        "no array",
    ],
)
def test_c_source_without_one_model_is_refused(source: str, said: str) -> None:
    with pytest.raises(tflm.ModelError, match=said):
        tflm.Model(source.encode())


@pytest.mark.parametrize("text", ["{1", "{0x1c,", "={", "= {1,2,3,4,0x54,0x46,0x4c,0x33", "/*", "//", "{ ", "a", "[{0"])
def test_hostile_text_is_refused_in_linear_time(text: str) -> None:
    """Repeated to 2 MB: quadratic work would take minutes."""
    with pytest.raises(tflm.ModelError):
        tflm.Model((text * (2_000_000 // len(text))).encode())


def test_only_so_many_arrays_are_looked_at() -> None:
    source = "char a[] = {1};" * MAX_ARRAYS
    with pytest.raises(tflm.ModelError, match="a, a, a, a and 996 more"):
        tflm.Model((source + STYLES["xxd"]).encode())
