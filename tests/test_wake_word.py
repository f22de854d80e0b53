"""The tensor_arena_size of models for ESPHome's micro_wake_word, by its releases."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import tflm
from tflm.application.wake_word import Manifest, ManifestUpdate, read_manifest
from tflm.cli.app import app
from tflm.firmware.device_check import operator_findings
from tflm.firmware.wake_word import S3, Need, needs_in, size_for_all, tensor_arena_sizes
from tflm.libraries import library_for
from tflm.libraries.pins import ESPHOME
from tflm.schema import BuiltinOperator, TensorType
from tflm.schema.options import Conv2DOptions
from tflm.targets import Target

FORM = ((1, 16, 40), TensorType.INT8, (1, 1), TensorType.UINT8)
"""Shapes and types of the input and the output that micro_wake_word accepts; only the 16 may differ."""


def wake_word_model(
    shape: tuple[int, ...],
    type: TensorType,
    out_shape: tuple[int, ...],
    out_type: TensorType,
    last: str | BuiltinOperator = BuiltinOperator.QUANTIZE,
    pads: bool = False,
) -> tflm.Model:
    """A convolution whose scratch buffer depends on the version of ESP-NN."""
    half = tflm.quantized(0.5)
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", shape, type, half)
    image = main.tensor("image", (1, 5, 8, 16), TensorType.INT8, half)
    features = main.tensor("features", (1, 5, 8, 16), TensorType.INT8, half)
    score = main.tensor("score", out_shape, TensorType.INT8, half)
    y = main.tensor("y", out_shape, out_type, half)
    filters = main.constant("filters", np.ones((16, 5, 3, 16), np.int8), half)
    weights = main.constant("weights", np.ones((1, 640), np.int8), half)
    if pads:
        padded = main.tensor("padded", shape, type, half)
        main.operator(BuiltinOperator.PAD, [x, main.constant("none", np.zeros((len(shape), 2), np.int32))], [padded])
        x = padded
    main.operator(BuiltinOperator.RESHAPE, [x, main.constant("s", np.array([1, 5, 8, 16], np.int32))], [image])
    main.operator(BuiltinOperator.CONV_2D, [image, filters], [features], Conv2DOptions(stride_w=1, stride_h=1))
    main.operator(BuiltinOperator.FULLY_CONNECTED, [features, weights, -1], [score])
    main.operator(last, [score], [y])
    main.output(y)
    return tflm.Model(builder.build())


MODEL = wake_word_model(*FORM)
DATA = bytes(MODEL.data)


def flex_model() -> tflm.Model:
    return wake_word_model(*FORM, last="FlexErf")


@functools.cache
def needs_of(data: bytes, target: Target = S3) -> list[Need]:
    """The needs of a model, which are computed once."""
    return tensor_arena_sizes(tflm.Model(data), target)


@pytest.fixture(autouse=True)
def computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command know what another call has computed."""

    def known(model: tflm.Model, target: Target, advance: Callable[[], None]) -> list[Need]:
        return needs_of(bytes(model.data), target)

    monkeypatch.setattr("tflm.cli.wake_word.tensor_arena_sizes", known)


def allocate(size: int, kernels: str, release: str) -> None:
    resolver = tflm.AllOpsResolver()
    arena = bytearray(size)
    tflm.MicroInterpreter(MODEL, resolver, arena, target=S3, kernels=kernels, release=release).allocate_tensors()


def test_a_size_is_the_smallest_that_works_in_its_release() -> None:
    needs = needs_of(DATA)
    assert {need.first_esphome for need in needs} == {*ESPHOME}
    for need in needs:
        assert need.tensor_arena_size is not None
        for version in need.esp_nn:
            case = f"esp-nn@{version}", f"esphome {need.last_esphome or need.first_esphome}"
            allocate(need.tensor_arena_size, *case)
            with pytest.raises(tflm.ArenaExhausted):
                allocate(need.tensor_arena_size - 16, *case)


def test_one_size_works_in_all_releases() -> None:
    needs = needs_of(DATA)
    sizes = {need.tensor_arena_size for need in needs if need.tensor_arena_size is not None}
    assert len(sizes) > 1
    assert size_for_all(needs) == max(sizes)


def test_versions_are_listed_once_and_in_their_order() -> None:
    """Each release's, however many need the same."""
    for first in ESPHOME:
        of_release = [need for need in needs_of(DATA) if need.first_esphome == first]
        versions = [version for need in of_release for version in need.esp_nn]
        assert len(versions) == len(set(versions))
        assert (len(versions) == 1) is of_release[0].is_pinned


def test_known_issues_stand_beside_the_size() -> None:
    for need in needs_of(DATA):
        for version in need.esp_nn:
            library = library_for(f"esp-nn@{version}", S3, f"esphome {need.first_esphome}")
            found = operator_findings(MODEL, target=S3, kernels=library)
            assert list(need.findings) == found


def test_sizes_as_builds_of_each_version_had_them(corpus: Path) -> None:
    model = tflm.Model.from_file(corpus / "models" / "okay_nabu_v2.tflite")
    found = {
        (need.component, version): need.tensor_arena_size
        for need in tensor_arena_sizes(model)
        for version in need.esp_nn
    }
    components = {"1.3.1": "1.3.1", "1.3.3": "1.3.3.1"}
    compared = 0
    for line in map(json.loads, (corpus / "golden" / "arena_esp_versions.jsonl").read_text().splitlines()):
        case = components.get(line["esp_tflite_micro"]), line["esp_nn"]
        if line["model"] == "okay_nabu_v2" and line["chip"] == "esp32s3" and case in found:
            assert found[case] == line["minimum_arena_bytes"], line
            compared += 1
    assert compared > 5


def test_a_model_that_no_release_takes_has_no_size() -> None:
    needs = tensor_arena_sizes(flex_model())
    assert size_for_all(needs) is None
    assert all("FlexErf" in need.refused for need in needs)


def test_operators_that_micro_wake_word_does_not_register_are_refused() -> None:
    """Its resolver has PAD since 2024.7, and never had CAST."""
    padded, cast = (
        tensor_arena_sizes(wake_word_model(*FORM, **changes))
        for changes in ({"pads": True}, {"last": BuiltinOperator.CAST})
    )
    assert {need.refused for need in cast} == {"micro_wake_word does not register CAST"}
    refused = {need.first_esphome for need in padded if need.refused}
    assert refused == {"2024.2"}
    assert size_for_all(padded) is not None
    assert size_for_all(cast) is None


def read(tmp_path: Path, model: tflm.Model, *options: str) -> Any:
    path = tmp_path / "m.tflite"
    path.write_bytes(model.data)
    return CliRunner().invoke(app, ["wake-word", str(path), *options], env={"COLUMNS": "160"})


def test_the_command_lists_releases(tmp_path: Path) -> None:
    told = json.loads(read(tmp_path, MODEL, "--json").stdout)
    shown = " ".join(read(tmp_path, MODEL).stdout.split())
    assert told["tensor_arena_size"] == size_for_all(needs_of(DATA))
    for release in told["releases"]:
        assert f"{release['tensor_arena_size']:,}" in shown
    assert "2025.5 to 2026.3" in shown
    assert "2026.4 on" in shown
    assert "CONV_2D is slow" in shown


@pytest.mark.parametrize(
    "place_and_value",
    [
        *((0, shape) for shape in [(1, 16, 39), (1, 640), (2, 8, 40), (1, 16, 40, 1), (1, 256, 40), ()]),
        *((1, type) for type in (TensorType.UINT8, TensorType.FLOAT32)),
        *((2, shape) for shape in [(1,), (1, 2), (2, 1), (1, 1, 1), ()]),
        *((3, type) for type in (TensorType.INT8, TensorType.FLOAT32)),
    ],
)
def test_other_inputs_and_outputs_are_refused_as_esphome_refuses_them(
    place_and_value: tuple[int, Any], tmp_path: Path
) -> None:
    form: list[Any] = list(FORM)
    form[place_and_value[0]] = place_and_value[1]
    path = manifest(tmp_path, 5)
    answer = read(tmp_path, wake_word_model(*form), "--manifest", str(path))
    shape, type, out_shape, out_type = form
    found = f"takes {type.name.lower()} {list(shape)} and returns {out_type.name.lower()} {list(out_shape)}"
    assert (answer.exit_code, answer.stdout) == (1, "")
    assert found in answer.stderr
    assert "int8 [1, stride, 40]" in answer.stderr
    assert "tflm arena --target esp32s3" in answer.stderr
    assert path.read_bytes() == MANIFEST.replace("SIZE", "5").encode()


@pytest.mark.parametrize("stride", [1, 255])
def test_every_stride_that_a_byte_counts_is_accepted(stride: int) -> None:
    assert tensor_arena_sizes(wake_word_model((1, stride, 40), *FORM[1:]))


def test_another_maker_s_part_is_refused(tmp_path: Path) -> None:
    answer = read(tmp_path, MODEL, "--target", "cortex-m4")
    assert answer.exit_code == 2
    assert "Espressif" in answer.stderr


# --- Manifests ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def needed() -> int:
    """What the model needs in all releases, in bytes."""
    return size_for_all(needs_of(DATA)) or 0


MANIFEST = """\
{
    "type": "micro",  "wake_word": "Okay N\\u00e4bu ü",
    "version":2, "other": {"tensor_arena_size": 1},
    "micro": {
        "probability_cutoff": 0.850,
        "tensor_arena_size" :  SIZE ,
        "minimum_esphome_version": "2024.7.0"
    }
}\r
"""


def manifest(tmp_path: Path, size: object, text: str = MANIFEST) -> Path:
    path = tmp_path / "micro.json"
    path.write_bytes(text.replace("SIZE", str(size)).encode())
    return path


@pytest.mark.parametrize("spare", [-1000, 0, 16])
def test_a_manifest_gets_the_size_and_nothing_else_changes(tmp_path: Path, needed: int, spare: int) -> None:
    path = manifest(tmp_path, needed + spare)
    assert read(tmp_path, MODEL, "--manifest", str(path)).exit_code == 0
    assert path.read_bytes() == MANIFEST.replace("SIZE", str(needed)).encode()
    assert {each.name for each in tmp_path.iterdir()} == {"m.tflite", "micro.json"}


@pytest.mark.parametrize("text", ['{"micro": {}}', '{"micro": {"a": [1, {"b": "}"}]}}', '{"micro":\n {\n  "a": 1\n }}'])
def test_a_manifest_without_the_size_gets_one(tmp_path: Path, needed: int, text: str) -> None:
    path = manifest(tmp_path, 0, text)
    before = json.loads(text)
    assert read(tmp_path, MODEL, "--manifest", str(path)).exit_code == 0
    assert json.loads(path.read_text()) == {"micro": {**before["micro"], "tensor_arena_size": needed}}


def test_a_manifest_of_another_size_is_told(tmp_path: Path) -> None:
    assert read_manifest(manifest(tmp_path, 0)).size == 0
    beginnings = {None: "m had no", 0: "m had", 99: "m had", 100: "m had", 101: "m had"}
    ends = {None: "cannot be allocated.", 0: "cannot be allocated.", 99: "cannot be allocated.", 100: "is exact."}
    for had, beginning in beginnings.items():
        update = ManifestUpdate(Manifest(Path("m"), "", had), 100, written=False)
        (note,) = update.notes()
        assert note.startswith(beginning)
        assert note.endswith(ends.get(had, "1 bytes of RAM more than the model needs."))
        assert update.enough is (had is not None and had >= 100)


@pytest.mark.parametrize(("spare", "status"), [(-1, 1), (0, 0), (1, 0), (None, 1)])
def test_a_check_tells_sizes_that_are_too_small_and_writes_nothing(
    tmp_path: Path, needed: int, spare: int | None, status: int
) -> None:
    path = manifest(tmp_path, "null" if spare is None else needed + spare)
    before = path.read_bytes()
    answer = read(tmp_path, MODEL, "--manifest", str(path), "--check")
    assert answer.exit_code == status
    assert path.read_bytes() == before
    assert (f"the model needs {needed:,} bytes" in answer.stderr) is (status == 1)


def test_a_named_release_has_its_own_size(tmp_path: Path) -> None:
    by_release = {first: size_for_all(needs_in(needs_of(DATA), f"esphome {first}")) for first in ESPHOME}
    assert len(set(by_release.values())) > 1
    path = manifest(tmp_path, 1)
    for release, size in by_release.items():
        assert read(tmp_path, MODEL, "--manifest", str(path), "--tflm", f"esphome {release}").exit_code == 0
        assert json.loads(path.read_text())["micro"]["tensor_arena_size"] == size


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a JSON file"),
        ("[" * 100_000, "not a JSON file"),
        ('"\xff"', "no object"),
        ("[1]", "no object"),
        ('{"micro": 3}', "no object"),
        ('{"micro": {"tensor_arena_size": "1"}}', "must be a number of bytes"),
        ('{"micro": {"tensor_arena_size": true}}', "must be a number of bytes"),
    ],
)
def test_what_is_no_manifest_is_refused_and_left_as_it_is(tmp_path: Path, text: str, message: str) -> None:
    path = manifest(tmp_path, 0, text)
    before = path.read_bytes()
    answer = read(tmp_path, MODEL, "--manifest", str(path))
    assert answer.exit_code == 1
    assert message in answer.stderr
    assert path.read_bytes() == before


def test_options_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    assert "name it with --manifest" in read(tmp_path, MODEL, "--check").stderr
    assert "not a release of ESPHome" in read(tmp_path, MODEL, "--tflm", "2024-05-01").stderr


def test_a_model_that_no_release_takes_leaves_the_manifest(tmp_path: Path) -> None:
    path = manifest(tmp_path, 5)
    answer = read(tmp_path, flex_model(), "--manifest", str(path))
    assert answer.exit_code == 1
    assert "no release of ESPHome accepts this model" in answer.stderr
    assert path.read_bytes() == MANIFEST.replace("SIZE", "5").encode()
