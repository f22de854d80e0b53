"""One meaning of `--inputs`: every command that has it takes the same samples from the same file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import float_models
import numpy as np
import pytest
from typer.main import get_command
from typer.testing import CliRunner

import tflm
from tflm.application.comparison import Probe
from tflm.cli.app import app
from tflm.evaluation.input_files import count_samples
from tflm.schema import BuiltinOperator, TensorType

CALLS = {
    "run": "run {model} --inputs {data}",
    "compare": "compare {model} {model} --inputs {data}",
    "evaluate": "evaluate {model} --inputs {data} --workers 1",
    "calibrate-report": "calibrate-report {model} --inputs {data}",
    "quantize": "quantize {float} --inputs {data}",
}

SHAPE = (1, 3, 4)


def doubling(path: Path, type: TensorType) -> Path:
    """A model that returns its input plus itself."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    scale = None if type is TensorType.FLOAT32 else tflm.quantized(0.5)
    x, y = main.input("x", SHAPE, type, scale), main.tensor("y", SHAPE, type, scale)
    main.operator(BuiltinOperator.ADD, [x, x], [y])
    main.output(y)
    path.write_bytes(builder.build())
    return path


def files(folder: Path) -> dict[str, int | None]:
    """The number of samples of each file; None for files that no command takes."""
    rng = np.random.default_rng(0)
    counts: dict[str, int | None] = {}
    for shape, count in {
        SHAPE: 1,
        (3, 4): 1,
        (1, *SHAPE): 1,
        (1, 3, 4, 1): 1,
        (5, 3, 4): 5,
        (5, *SHAPE): 5,
        (2, 3, 1, 4): 2,
        (3, 3, 4): 3,
        (12,): None,
        (5, 12): None,
        (4, 3): None,
        (2, 5, 3, 4): None,
    }.items():
        name = "x".join(map(str, shape))
        values = rng.normal(0, 1, shape).astype(np.float32)
        np.save(folder / f"{name}.npy", values)
        np.savez(folder / f"{name}.npz", x=values)
        np.savez(folder / f"{name}_labelled.npz", anything=values, labels=np.zeros(count or shape[0], np.int64))
        counts |= {f"{name}.npy": count, f"{name}.npz": count, f"{name}_labelled.npz": count}
    recorded: dict[str, Any] = {f"in_{step}_0": values[:1, 0, :3] for step in range(4)}
    np.savez(folder / "recorded.npz", **recorded, out_0_0=values[0])
    (folder / "folder").mkdir()
    for i in range(3):
        np.save(folder / "folder" / f"{i}.npy", values[0, 0])
    return counts | {"recorded.npz": 4, "folder": 3, "missing.npy": None}


def samples_of(command: str, found: dict[str, Any], steps: list[int]) -> int:
    """The number of samples that a command took."""
    if command == "compare":
        return len(steps) // 2
    return int(found["steps" if command == "run" else "samples"])


def test_the_calls_are_all_commands_with_inputs() -> None:
    group: Any = get_command(app)
    named = {
        name for name in group.commands for each in group.get_command(None, name).params if "--inputs" in each.opts
    }
    assert named - {"device", "stream"} == set(CALLS)  # one sends samples over a wire, the other cuts windows


@pytest.mark.parametrize("command", CALLS)
def test_every_command_takes_the_same_samples(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tflm.quantization.quantization.require_quantizer", lambda: None)
    monkeypatch.setattr("tflm.quantization.quantization.quantized_by", float_models.stand_in)
    steps: list[int] = []
    step = Probe.step

    def counted(self: Probe, values: list[Any]) -> Any:
        steps.append(1)
        return step(self, values)

    monkeypatch.setattr(Probe, "step", counted)
    models = {
        "model": str(doubling(tmp_path / "int8.tflite", TensorType.INT8)),
        "float": str(doubling(tmp_path / "float.tflite", TensorType.FLOAT32)),
    }
    for name, count in files(tmp_path).items():
        steps.clear()
        arguments = CALLS[command].format(data=tmp_path / name, **models).split()
        answer = CliRunner().invoke(app, [*arguments, "--json"])
        assert answer.exit_code == (count is None), (name, answer.output)
        if count is None:
            assert name in answer.stderr or "[1, 3, 4]" in answer.stderr, name
        else:
            assert samples_of(command, json.loads(answer.stdout), steps) == count, name


def test_numbers_of_text_are_real_values_for_models_in_any_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = {type: doubling(tmp_path / f"{type.name}.tflite", type) for type in (TensorType.INT8, TensorType.FLOAT32)}
    integers, floats = paths.values()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "x.csv").write_text("3," * 11 + "5\n")
    taken: list[Any] = []
    step = Probe.step
    monkeypatch.setattr(Probe, "step", lambda self, values: [taken.append(values), step(self, values)][1])
    for one, other in ((integers, floats), (floats, integers)):
        for data in (tmp_path / "folder", tmp_path / "folder" / "x.csv"):
            answer = CliRunner().invoke(app, ["compare", str(one), str(other), "--inputs", str(data), "--check"])
            assert (answer.exit_code, "0.00%" in answer.stdout) == (0, True), answer.output
    assert all(np.asarray(values).reshape(-1).tolist() == [3.0] * 11 + [5.0] for values in taken)
    (tmp_path / "folder" / "x.csv").write_text("3.25," * 11 + "5\n")
    tflm.evaluate(tflm.Model.from_file(integers), tmp_path / "folder", workers=1)


def test_an_array_is_one_sample_or_several_and_never_both() -> None:
    """An array with the input's shape, ignoring dimensions of 1, is one sample; no shape is ambiguous."""
    sizes = (1, 2, 3)
    shapes = [(), *((a,) for a in sizes), *((a, b) for a in sizes for b in sizes)]
    for wanted in shapes:
        for shape in [*shapes, *((a, *each) for a in (0, *sizes) for each in shapes)]:
            squeezed = tuple(size for size in shape if size != 1)
            inner = tuple(size for size in shape[1:] if size != 1)
            one = squeezed == tuple(size for size in wanted if size != 1)
            several = bool(shape) and inner == tuple(size for size in wanted if size != 1)
            assert count_samples(shape, wanted) == (1 if one else shape[0] if several else None)
            assert not (one and several) or shape[0] == 1
