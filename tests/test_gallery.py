"""The gallery: every example runs, draws its picture, and finds what its page promises."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from image_network import image_network

GALLERY = Path(__file__).parents[1] / "examples" / "gallery"
SCREEN = 75

FOUND = {
    "arena_of_an_esp32s3": "esp-nn: tensor_arena of 102,800 bytes",
    "custom_operator": "bytes of the arena are used",
    "data_set": "signal to noise",
    "device_log": "cmsis-nn: 772 bytes, as on the device",
    "fit_into_64_kib": "row bands: 54,656 bytes, fits",
    "property_tested_planner": "no overlap",
    "two_models": "one for both: 72,720 bytes",
    "wake_word": "the word ends at slice 39",
}


def test_the_gallery_has_eight_examples_of_one_screen() -> None:
    lines = {path.stem: len(path.read_text(encoding="utf-8").splitlines()) for path in GALLERY.glob("*.py")}
    assert set(lines) == set(FOUND)
    assert max(lines.values()) <= SCREEN


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name == "fit_into_64_kib" else ()) for name in FOUND]
)
def test_an_example_runs_and_draws_its_picture(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra `plot`")
    picture = tmp_path / f"{name}.svg"
    monkeypatch.setattr("sys.argv", [name, str(picture)])
    runpy.run_path(str(GALLERY / f"{name}.py"))
    assert FOUND[name] in capsys.readouterr().out
    assert "<svg" in picture.read_text(encoding="utf-8")


def test_the_model_of_the_gallery_is_that_of_the_generator() -> None:
    assert (GALLERY / "image_network.tflite").read_bytes() == image_network()
