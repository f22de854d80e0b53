"""The hello world example, run as a newcomer runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from example_models import EXAMPLE

import tflm

MODELS = ["hello_world_float.tflite", "hello_world_int8.tflite"]


def script(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script of the example with these arguments."""
    return subprocess.run([sys.executable, EXAMPLE / name, *arguments], capture_output=True, text=True)


@pytest.mark.long
def test_training_gives_the_bytes_that_are_committed(tmp_path: Path) -> None:
    done = script("train.py", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    for name in MODELS:
        assert (tmp_path / name).read_bytes() == (EXAMPLE / name).read_bytes()


@pytest.mark.parametrize("name", MODELS)
def test_it_shows_the_answers_the_arena_and_the_curve(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "sine.png"
    done = script("hello_world.py", "--model", str(EXAMPLE / name), "--points", "9", "--plot", str(picture))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    worst = next(float(line.split()[-1]) for line in lines if line.startswith("worst error"))
    assert worst < 0.05
    assert any(line.startswith("arena: ") and "of 2048 bytes used" in line for line in lines)
    assert sum(line.count("o") for line in lines if "|" in line) == 9
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", MODELS)
def test_the_models_are_good(name: str) -> None:
    assert tflm.verify((EXAMPLE / name).read_bytes()) == []


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--arena-bytes", "1024"], 1, "the arena is too small"),
        (["--model", "missing.tflite"], 1, "missing.tflite"),
        (["--model", __file__], 1, "not a .tflite model"),
        (["--points", "1"], 2, "must be 2 or more"),
        (["--arena-bytes", "many"], 2, "invalid"),
    ],
)
def test_what_goes_wrong_is_one_readable_line(arguments: list[str], status: int, message: str) -> None:
    done = script("hello_world.py", *arguments)
    assert done.returncode == status
    assert message in done.stderr
    assert "Traceback" not in done.stderr
