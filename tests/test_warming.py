"""`tflm warm` compiles the kernels of models; later processes compile none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tflm
from tflm.application.running import has_floats, is_long_for_numpy

pytest.importorskip("numba", reason="needs the extra `fast`")

MODEL = Path(__file__).parents[1] / "examples" / "hello_world" / "hello_world_int8.tflite"


def command(cache: Path, *arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TFLM_COMPILED": "1", "TFLM_CACHE_DIR": str(cache), **variables}
    return subprocess.run(
        [sys.executable, "-m", "tflm", *map(str, arguments)], env=environment, capture_output=True, text=True
    )


def kernels_in(cache: Path) -> list[str]:
    return sorted(file.name for file in cache.iterdir() if file.name != "lock")


def test_a_model_that_was_warmed_runs_without_compiling(tmp_path: Path) -> None:
    warmed = command(tmp_path, "warm", MODEL)
    assert warmed.returncode == 0, warmed.stderr
    kernels = kernels_in(tmp_path)
    assert warmed.stdout == f"{len(kernels)} kernels in {tmp_path}\n"
    for arguments in (("warm", MODEL), ("run", MODEL, "--random")):
        again = command(tmp_path, *arguments)
        assert (again.returncode, again.stderr) == (0, "")
        assert kernels_in(tmp_path) == kernels


@pytest.mark.parametrize("missing", ["all", "tiles", "program"])
def test_a_short_run_compiles_nothing_and_answers_the_same(missing: str, tmp_path: Path) -> None:
    expected = command(tmp_path, "run", MODEL, "--random", "7", "--steps", "9", TFLM_COMPILED="0").stdout
    if missing != "all":
        assert command(tmp_path, "warm", MODEL).returncode == 0
        removed = [file for file in tmp_path.iterdir() if missing in file.name]
        assert removed
        for file in removed:
            file.unlink()
    before = kernels_in(tmp_path)
    answer = command(tmp_path, "run", MODEL, "--random", "7", "--steps", "9")
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, expected, "")
    assert kernels_in(tmp_path) == before


def test_long_runs_are_compiled() -> None:
    model = tflm.Model.from_file(MODEL)
    assert not is_long_for_numpy(model, 1000)
    assert is_long_for_numpy(model, 100_000)


def test_models_with_floats_are_always_compiled() -> None:
    assert not has_floats(tflm.Model.from_file(MODEL))
    assert has_floats(tflm.Model.from_file(MODEL.with_name("hello_world_float.tflite")))


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"TFLM_COMPILED": "0"}, "TFLM_COMPILED=0 turns the compiled engine off"),
        ({"TFLM_CACHE_DIR": os.devnull}, "the folder of the cache cannot be written"),
    ],
    ids=["engine off", "no folder"],
)
def test_warming_says_why_nothing_is_cached(variables: dict[str, str], message: str, tmp_path: Path) -> None:
    answer = command(tmp_path, "warm", MODEL, **variables)
    assert answer.returncode == 1
    assert message in answer.stderr
