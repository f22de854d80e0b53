"""`tflm tile`, `fold` and `strip`, run as a user runs them."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from example_models import INT8_MODEL
from image_graphs import Images
from test_cli import figures, refusal, run
from test_rewriting import network

import tflm
from tflm.application.rewriting_report import tile_progress
from tflm.atomic_write import write_atomically
from tflm.schema import ModelBuilder, Padding


@pytest.fixture
def vision(tmp_path: Path) -> Path:
    """A model that bands make smaller."""
    path = tmp_path / "vision.tflite"
    path.write_bytes(network())
    return path


def padded() -> bytes:
    """Return a convolution after a PAD."""
    builder = ModelBuilder()
    images = Images(builder.subgraph(), (1, 8, 8, 2))
    images.convolution(images.pad(images.last, (1, 1), (1, 1)), 4, strides=(2, 2), padding=Padding.VALID)
    images.main.output(images.last)
    return builder.build()


def test_tile_gives_the_figures_of_the_model_that_it_writes(vision: Path) -> None:
    output, picture = vision.with_name("tiled.tflite"), vision.with_name("both.svg")
    printed = figures("tile", vision, "-o", output, "--plot", picture)
    measured = tflm.measure_arena(
        tflm.Model.from_file(output), tflm.AllOpsResolver(), target=tflm.targets.by_name("cortex-m")
    )
    assert measured.minimum_arena_bytes == printed["minimum_arena_bytes"] < printed["minimum_arena_bytes_before"]
    assert measured.head_bytes == printed["head_bytes"]
    assert printed["file_bytes"] == output.stat().st_size
    assert 0 < printed["extra_macs"] <= 0.1
    assert printed["needed_operators"] == ["CONCATENATION", "SLICE"]
    assert [end - first for stage in printed["stages"] for first, end in stage["bands"]]
    assert picture.stat().st_size


def test_tile_says_in_words_what_it_did(vision: Path) -> None:
    answer = run("tile", vision, "--ram", "18K")
    assert answer.returncode == 0, answer.stderr
    for words in ("bands of rows", "resolver needs", "multiply-accumulates", "smallest arena", "fits into 18,432 B"):
        assert words in " ".join(answer.stdout.split())


def test_tile_says_so_where_it_finds_nothing() -> None:
    answer = run("tile", INT8_MODEL)
    assert answer.returncode == 0, answer.stderr
    assert "found no arena smaller" in answer.stdout
    answer = run("tile", INT8_MODEL, "--ram", "1K")
    assert answer.returncode == 1
    assert "it does not fit: " in answer.stdout
    assert run("tile", INT8_MODEL, "--macs", "many").returncode == 2


def test_tile_that_can_not_meet_an_arena_says_what_is_missing_and_fails(vision: Path) -> None:
    output = vision.with_name("tiled.tflite")
    smallest = figures("tile", vision)["minimum_arena_bytes"]
    answer = run("tile", vision, "-o", output, "--ram", "1K")
    assert answer.returncode == 1
    assert f"it does not fit: {smallest - 1024:,} B" in " ".join(answer.stdout.split())
    assert f"{smallest:,} bytes, {smallest - 1024:,} more than --ram 1,024" in answer.stderr
    assert not output.exists()
    printed = run("tile", vision, "--ram", "1K", "--json")
    assert printed.returncode == 1
    assert json.loads(printed.stdout)["minimum_arena_bytes"] == smallest


def test_tile_says_so_where_the_model_fits_already(vision: Path) -> None:
    output = vision.with_name("tiled.tflite")
    needed = figures("arena", vision)["models"][0]["minimum_arena_bytes"]
    for ram in (needed, 1 << 20):
        answer = run("tile", vision, "-o", output, "--ram", ram)
        assert answer.returncode == 0, answer.stderr
        assert "it already fits into" in answer.stdout
        assert "nothing was found" not in answer.stdout
        assert output.read_bytes() == vision.read_bytes()


def test_tile_tells_what_it_checks_after_the_search(vision: Path) -> None:
    told: list[str] = []
    tflm.tile(tflm.Model.from_file(vision), verify=2, progress=lambda at: told.append(tile_progress(at)))
    checks = [text for text in told if text.startswith("checking")]
    assert told[-len(checks) :] == checks
    assert [text.split(", ")[1] for text in checks] == [
        "values in the plan",
        *(f"run {i} of 8" for i in range(1, 9)),
    ]


WRITERS = {
    "plan": ["plan"],
    "tile": ["tile"],
    "compress": ["compress"],
    "fold": ["fold"],
    "strip": ["strip"],
    "resize": ["resize"],
    "versions": ["versions"],
}


@pytest.mark.parametrize("command", WRITERS)
def test_what_is_written_is_named_and_nothing_is_left_behind(command: str, tmp_path: Path) -> None:
    path, output, folder = tmp_path / "padded.tflite", tmp_path / "out" / "new.tflite", tmp_path / "out"
    path.write_bytes(padded())
    folder.mkdir()
    answer = run(command, path, "-o", output)
    assert answer.returncode == 0, answer.stderr
    assert f"wrote {output}" in answer.stdout
    output.unlink()
    for wrong in (folder, tmp_path / "nowhere" / "new.tflite", path / "new.tflite", Path("/proc/new.tflite")):
        error = refusal(command, path, "-o", wrong)
        assert str(wrong) in error
        assert ".part" not in error
    assert list(folder.iterdir()) == []
    assert sorted(each.name for each in tmp_path.iterdir()) == ["out", "padded.tflite"]


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"before")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_atomically(tmp_path / "link", b"after")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"after"
    write_atomically("/dev/null", b"gone")
    assert not Path("/dev/null").is_file()

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="No space left") as error:
        write_atomically(tmp_path / "file", b"again")
    assert error.value.filename == str(tmp_path / "file")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "link"]
    assert (tmp_path / "file").read_bytes() == b"after"


def test_fold_and_strip_write_smaller_models(tmp_path: Path) -> None:
    path, output = tmp_path / "padded.tflite", tmp_path / "rewritten.tflite"
    path.write_bytes(padded())
    folded = figures("fold", path, "-o", output)
    assert (folded["operators_before"], folded["operators"]) == (2, 1)
    assert len(tflm.Model.from_file(output).subgraphs[0].operators or ()) == 1
    stripped = figures("strip", path, "-o", output)
    assert output.stat().st_size == stripped["file_bytes"] < stripped["file_bytes_before"]
    assert run("strip", path, "-o", path).returncode == 2
    shown = run("strip", path, "-o", path, "--force").stdout
    before, after = (stripped[key] for key in ("file_bytes_before", "file_bytes"))
    assert f"file       {before:,} B" in shown
    assert f"(-{100 * (before - after) / before:.1f}%)" in shown
