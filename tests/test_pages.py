"""The commands on the pages run in the order of the page, with existing files."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_cli import run
from test_tensor_dump import device_tensors, lines_of

import tflm
from tflm.schema import (
    BuiltinOperator,
    Conv2DOptions,
    FullyConnectedOptions,
    Padding,
    ReshapeOptions,
    TensorType,
)

ROOT = Path(__file__).parents[1]

PAGES = (
    "README.md",
    "docs/building_models.md",
    "docs/ci.md",
    "docs/custom_operator.md",
    "docs/delegates.md",
    "docs/device_logs.md",
    "docs/evaluation.md",
    "docs/firmware_budget.md",
    "docs/fitting.md",
    "docs/getting_started.md",
    "docs/how_the_arena_works.md",
    "docs/kernel_libraries.md",
    "docs/litert.md",
    "docs/model_explorer.md",
    "docs/planning.md",
    "docs/sizing_an_arena.md",
    "docs/smaller.md",
)

NOT_HERE = ("output/model_vela.tflite",)
"""Files that commands make which are not this package's."""


def pictures(classes: bool = False, quantized: bool = True) -> bytes:
    """Two convolutions of pictures of 8 by 8, in the place of a reader's model; or a layer that tells ten classes."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    kind, dtype = (TensorType.INT8, np.int8) if quantized else (TensorType.FLOAT32, np.float32)
    scale = tflm.quantized(0.5) if quantized else None
    x = main.input("image", (1, 8, 8, 1), kind, scale)
    if classes:
        flat, y = main.tensor("flat", (1, 64), kind, scale), main.tensor("classes", (1, 10), kind, scale)
        main.operator(BuiltinOperator.RESHAPE, [x], [flat], ReshapeOptions(new_shape=(1, 64)))
        weights = main.constant("weights", np.eye(10, 64, dtype=dtype), scale)
        main.operator(BuiltinOperator.FULLY_CONNECTED, [flat, weights, -1], [y], FullyConnectedOptions())
        main.output(y)
        return builder.build()
    same = Conv2DOptions(padding=Padding.SAME, stride_w=1, stride_h=1, dilation_w_factor=1, dilation_h_factor=1)
    depth = 1
    for i in range(2):
        y = main.tensor(f"y{i}", (1, 8, 8, 4), kind, scale)
        weights = main.constant(f"weights{i}", np.ones((4, 3, 3, depth), dtype), tflm.quantized([0.1] * 4))
        main.operator(BuiltinOperator.CONV_2D, [x, weights], [y], same)
        x, depth = y, 4
    main.output(x)
    return builder.build()


def blocks(page: Path) -> list[tuple[str, str]]:
    """The blocks of a page that are in Python or for a shell, in order: (language, code)."""
    return re.findall(r"^```(python|sh)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def commands(code: str) -> list[list[str]]:
    """The calls of `tflm` and `python -c` in a block for a shell; others need what this package does not bring."""
    lines = code.replace("\\\n", " ").splitlines()
    calls = [shlex.split(line, comments=True) for line in lines]
    return [call for call in calls if call[:1] == ["tflm"] or call[:2] == ["python", "-c"]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the reader's folder: a clone, with models and data."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    names = ("model", "person_detect", "keyword", "vww_96_int8", "wake_word", "commands")
    for name in names:
        (tmp_path / f"{name}.tflite").write_bytes(pictures())
    (tmp_path / "digits_int8.tflite").write_bytes(pictures(classes=True))
    (tmp_path / "digits_float.tflite").write_bytes(pictures(classes=True, quantized=False))
    rng = np.random.default_rng(0)
    images = rng.integers(0, 9, (20, 8, 8, 1)).astype(np.float32)
    np.savez(tmp_path / "digits.npz", image=images, labels=np.arange(20, dtype=np.int64) % 10)
    sizes = ROOT / "tflm" / "firmware" / "data" / "flash" / "groups_m4_cmsis-nn.json"
    (tmp_path / "mine.json").write_bytes(sizes.read_bytes())  # as if made with a compiler of the reader's own
    given, arena = np.full((1, 8, 8, 1), 3, np.int8), bytearray(1 << 14)
    interpreter = tflm.MicroInterpreter(tflm.Model(pictures()), tflm.AllOpsResolver(), arena)
    interpreter.allocate_tensors()
    interpreter.input(0).data[...] = given
    interpreter.invoke()
    np.savez(tmp_path / "recorded.npz", in_0_0=given, out_0_0=np.array(interpreter.output(0).data))
    dumped = lines_of(device_tensors(tmp_path / "model.tflite", 1))
    (tmp_path / "serial.txt").write_text("\n".join(["arena_used_bytes: 1234", *dumped]))
    _keep_in_git(tmp_path)
    return tmp_path


def _keep_in_git(folder: Path) -> None:
    """Models under the control of git, as a branch of a server has them."""
    (folder / "models").mkdir()
    (folder / "models" / "model.tflite").write_bytes(pictures())
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for command in (["init", "-q"], ["add", "models"], [*who, "commit", "-q", "-m", "Add a model"]):
        subprocess.run(["git", "-C", str(folder), *command], check=True, capture_output=True)
    subprocess.run(["git", "-C", str(folder), "update-ref", "refs/remotes/origin/main", "HEAD"], check=True)


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_says_runs_in_its_order(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {"__name__": page}
    found = 0
    for language, code in blocks(ROOT / page):
        if language == "python":
            exec(compile(code, page, "exec"), names)
            found += 1
        for call in commands(code) if language == "sh" else ():
            found += 1
            if call[0] == "python":
                exec(compile(call[2], page, "exec"), {})
            elif not set(NOT_HERE) & set(call):
                answer = run(*call[1:], cwd=folder)
                assert answer.returncode == 0, f"{shlex.join(call)}: {answer.stdout}{answer.stderr}"
    assert found


def test_nothing_is_installed_from_where_it_is_not() -> None:
    """The package is not published: hints name missing packages, or an extra of a clone."""
    places = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/**/*"), *ROOT.glob("tflm/**/*.py")]
    texts = {path: path.read_text(encoding="utf-8") for path in places if path.suffix in (".md", ".py")}
    assert texts
    assert [path for path, text in texts.items() if re.search(r"pip install[^\n]*pytflm", text)] == []
