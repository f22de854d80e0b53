"""`tflm tile`, `fold` and `strip`, run as a user runs them."""

from __future__ import annotations

from pathlib import Path

import pytest
from image_graphs import Images
from test_cli import INT8_MODEL, figures, run
from test_rewriting import network

import tflm
from tflm.schema import ModelBuilder, Padding


@pytest.fixture
def vision(tmp_path: Path) -> Path:
    """A model that bands make smaller."""
    path = tmp_path / "vision.tflite"
    path.write_bytes(network())
    return path


def padded() -> bytes:
    """A convolution behind a PAD."""
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
    assert "nothing was found that is smaller" in answer.stdout
    assert run("tile", INT8_MODEL, "--macs", "many").returncode == 2


def test_fold_and_strip_write_smaller_models(tmp_path: Path) -> None:
    path, output = tmp_path / "padded.tflite", tmp_path / "rewritten.tflite"
    path.write_bytes(padded())
    folded = figures("fold", path, "-o", output)
    assert (folded["operators_before"], folded["operators"]) == (2, 1)
    assert len(tflm.Model.from_file(output).subgraphs[0].operators or ()) == 1
    stripped = figures("strip", path, "-o", output)
    assert output.stat().st_size == stripped["file_bytes"] < stripped["file_bytes_before"]
    assert run("strip", path, "-o", path).returncode == 2
    assert run("strip", path, "-o", path, "--force").returncode == 0
