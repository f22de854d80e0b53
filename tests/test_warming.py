"""`tflm warm` compiles the kernels of models; later processes compile none."""

from __future__ import annotations

import itertools
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from example_models import FLOAT_MODEL, INT8_MODEL
from typer.testing import CliRunner

import tflm
from tflm.application.common_layers import common_models
from tflm.application.errors import RequestError
from tflm.application.progress import silent
from tflm.application.running import is_long_for_numpy
from tflm.application.warming import warm_cache
from tflm.cli.app import app
from tflm.compiler import cached_files, machine_code
from tflm.delegates import Compiled
from tflm.runtime.growing_arena import ready_interpreter
from tflm.schema import TensorType

pytest.importorskip("numba", reason="needs the extra `fast`")


def command(cache: Path, *arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TFLM_COMPILED": "1", "TFLM_CACHE_DIR": str(cache), **variables}
    return subprocess.run(
        [sys.executable, "-m", "tflm", *map(str, arguments)], env=environment, capture_output=True, text=True
    )


def kernels_in(cache: Path) -> list[str]:
    return sorted(file.name for file in cache.iterdir() if "." in file.name)


def copy_kernels(cache: Path, folder: Path, missing: str) -> None:
    """Copy a cache without the kernels whose name contains a word."""
    for file in cache.iterdir():
        if missing not in file.name:
            shutil.copy(file, folder)


WARM = ("warm", INT8_MODEL, FLOAT_MODEL)
RUN = ("run", INT8_MODEL, "--random", "7", "--steps", "9")
RUN_FLOATS = ("run", FLOAT_MODEL, "--random", "7", "--steps", "9", "--json")


@pytest.fixture(scope="module")
def warmed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return a cache with the kernels of both models, and the command's output."""
    cache = tmp_path_factory.mktemp("cache")
    answer = command(cache, *WARM)
    assert answer.returncode == 0, answer.stderr
    return cache, answer.stdout


@pytest.fixture(scope="module")
def by_numpy(tmp_path_factory: pytest.TempPathFactory) -> str:
    return command(tmp_path_factory.mktemp("none"), *RUN, TFLM_COMPILED="0").stdout


def test_kernels_that_could_not_be_kept_are_an_error(warmed: tuple[Path, str], tmp_path: Path) -> None:
    copy_kernels(warmed[0], tmp_path, "program")
    answer = subprocess.run(
        [sys.executable, "-m", "tflm", *WARM],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64)),
        env={**os.environ, "TFLM_COMPILED": "1", "TFLM_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (answer.returncode, answer.stdout) == (1, "")
    expected = f"1 of {len(kernels_in(warmed[0]))} kernels could not be kept in {tmp_path}: is the disk full?"
    assert expected in answer.stderr, answer.stderr


def test_a_model_that_was_warmed_runs_without_compiling(warmed: tuple[Path, str], by_numpy: str) -> None:
    cache, said = warmed
    kernels = kernels_in(cache)
    size, compiled = r"[\d.]+ KiB", rf"compiled {len(kernels)} of them in [\d.]+ s"
    assert re.fullmatch(rf"{len(kernels)} kernels, {size}, in {re.escape(str(cache))}\n{compiled}\n", said)
    again = command(cache, *WARM)
    assert (again.stdout, again.stderr) == (said[: said.index("compiled")], "")
    answer = command(cache, *RUN)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, by_numpy, "")
    assert kernels_in(cache) == kernels


@pytest.mark.parametrize("missing", ["", "program"], ids=["all", "program"])
def test_a_short_run_compiles_nothing_and_answers_the_same(
    missing: str, warmed: tuple[Path, str], by_numpy: str, tmp_path: Path
) -> None:
    copy_kernels(warmed[0], tmp_path, missing)
    before = kernels_in(tmp_path)
    answer = command(tmp_path, *RUN)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, by_numpy, "")
    assert kernels_in(tmp_path) == before


def test_a_short_run_computes_floats_with_numpy_whatever_is_cached(warmed: tuple[Path, str], tmp_path: Path) -> None:
    expected = command(tmp_path, *RUN_FLOATS, TFLM_COMPILED="0").stdout
    for cache in (tmp_path, warmed[0]):  # an empty cache, and one with all kernels
        answer = command(cache, *RUN_FLOATS)
        assert (answer.returncode, answer.stdout, answer.stderr) == (0, expected, "")


def kernels_of(models: Iterable[tflm.Model]) -> set[str]:
    names: set[str] = set()
    for model in models:
        engine = Compiled(compiles=False)
        ready_interpreter(model, delegates=[engine])
        names |= engine.kernels.keys()
    return names


def test_a_kernel_that_cannot_be_compiled_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TFLM_COMPILED", raising=False)
    monkeypatch.setattr(cached_files, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(machine_code, "unknown", lambda kernels: list(kernels)[:2])
    monkeypatch.setattr(machine_code, "load", lambda kernels: {"it is odd": [kernel.symbol for kernel in kernels]})
    with pytest.raises(RequestError, match=r"^cannot compile \S+, \S+: it is odd$"):
        warm_cache([tflm.Model.from_file(INT8_MODEL)], silent)


@pytest.fixture(scope="module")
def common_layers() -> list[tflm.Model]:
    return list(common_models())


def test_common_layers_have_the_kernels_of_common_networks(corpus: Path, common_layers: list[tflm.Model]) -> None:
    common = kernels_of(common_layers)
    names = ("hello_world_int8", "micro_speech_quantized", "kws_ref_model", "person_detect", "pretrainedResnet_quant")
    networks = [tflm.Model.from_file(corpus / "models" / f"{name}.tflite") for name in names]
    assert kernels_of(networks) <= common
    recurrent = tflm.Model.from_file(corpus / "models" / "trained_lstm.tflite")
    assert any("recurrent" in name for name in kernels_of([recurrent]) - common)


WITHOUT_INT16 = {"HARD_SWISH", "LEAKY_RELU", "RELU", "RELU6"}
"""Operators that TFLM or the engine has for 8 bits and floats only."""

CONVERSIONS = {"QUANTIZE", "DEQUANTIZE"}


def weighted_layers(model: tflm.Model) -> list[tuple[object, ...]]:
    """Sizes, activation, zero point and the largest weight of the layers with weights, in alphabetical order."""
    main, found = model.subgraphs[0], []
    for operator in main.operators:
        name = model.operator_name(operator)
        if name not in ("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV"):
            continue
        at = 2 if name == "TRANSPOSE_CONV" else 0
        x, weights, y = (main.tensors[i] for i in (operator.inputs[at], operator.inputs[1], operator.outputs[0]))
        zero = 0 if y.quantization is None else y.quantization.zero_point[0]
        options: Any = operator.builtin_options
        larger, smaller = sorted((x.shape[1], y.shape[1]), reverse=True)
        assert options.stride_h == options.stride_w == larger // smaller
        facts = (*x.shape[2:], *y.shape[2:], options.fused_activation_function.name, zero)
        values = np.frombuffer(model.constant(weights), np.float32 if x.type == TensorType.FLOAT32 else np.int8)
        assert y.type == x.type
        found.append((name, *facts, int(values.max())))
    return sorted(found)


@pytest.mark.parametrize("type", ["INT8", "INT16", "FLOAT32"])
def test_common_layers_have_all_tiles_activations_and_strides(type: str, common_layers: list[tflm.Model]) -> None:
    (model,) = (each for each in common_layers if each.description == f"common layers of {type}")
    ranges = [("NONE", 0), ("RELU", 0), ("RELU", -128)][: 3 if type == "INT8" else 2]
    channels = (4, 8, 16, 24, 32, 48, 64)
    expected: list[tuple[object, ...]] = []
    for activation, zero in ranges:
        for n in channels:
            for positions in (1, 2, 4, 5, 6, 8, 12, 15, 16, 24):
                weights = (1, 127) if zero else (1,)
                expected += [("CONV_2D", positions, 4, positions, n, activation, zero, weight) for weight in weights]
            for after, before in itertools.product((8, 4), (1, n)):
                expected.append(("DEPTHWISE_CONV_2D", 8, before, after, n, activation, zero, 1))
        expected.append(("TRANSPOSE_CONV", 4, 8, 8, 8, activation, zero, 1))
    assert weighted_layers(model) == sorted(expected)


def test_common_layers_are_of_all_types(common_layers: list[tflm.Model]) -> None:
    operators, sizes = {}, {}
    for model in common_layers:
        main = model.subgraphs[0]
        name = main.tensors[main.inputs[0]].type.name
        operators[name] = {model.operator_name(operator) for operator in main.operators}
        dense = (each for each in main.operators if model.operator_name(each) == "FULLY_CONNECTED")
        sizes[name] = {main.tensors[each.inputs[1]].shape for each in dense}
    assert operators["INT8"] >= {"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV", "SOFTMAX", "MEAN"}
    assert operators["INT8"] >= {"AVERAGE_POOL_2D", "MAX_POOL_2D", "ADD", "SUB", "MUL", "LOGISTIC", "TANH"}
    assert operators["INT8"] >= {"RESHAPE", "PAD", "CONCATENATION", "TRANSPOSE", *WITHOUT_INT16, *CONVERSIONS}
    assert operators["INT16"] == operators["INT8"] - WITHOUT_INT16
    assert operators["FLOAT32"] == operators["INT8"] - CONVERSIONS - {"RESIZE_NEAREST_NEIGHBOR"}
    assert sizes["INT8"] == sizes["INT16"] == sizes["FLOAT32"]
    for units, channels in ((1024, (1, 2, 3, 4, 5, 6, 7, 8)), (16, (4, 8, 16, 24, 32, 48, 64))):
        assert {shape[0] for shape in sizes["INT8"] if shape[1] == units} == set(channels)


def test_long_runs_are_compiled() -> None:
    model = tflm.Model.from_file(INT8_MODEL)
    assert not is_long_for_numpy(model, 1000)
    assert is_long_for_numpy(model, 1_000_000)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("TFLM_COMPILED", "0", "TFLM_COMPILED=0 turns the compiled engine off"),
        ("TFLM_CACHE_DIR", os.devnull, "the folder of the cache cannot be written"),
    ],
    ids=["engine off", "no folder"],
)
def test_warming_says_why_nothing_is_cached(
    variable: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    monkeypatch.setattr(cached_files, "cache_folder", cached_files.cache_folder.__wrapped__)
    answer = CliRunner().invoke(app, ["warm", str(INT8_MODEL)])
    assert answer.exit_code == 1
    assert message in answer.stderr
