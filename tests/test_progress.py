"""Progress that commands show: it never goes back, and ends at the total that it was said to have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from example_models import INT8_MODEL
from typer.testing import CliRunner

from tflm.cli.app import app

ONE, TWO, INPUTS = "{one}", "{two}", "{inputs}"
COMMANDS = {
    "arena": ("arena", ONE, TWO),
    "arena on all targets": ("arena", ONE, TWO, "--all-targets"),
    "run": ("run", ONE, "--inputs", INPUTS),
    "compare": ("compare", ONE, TWO, "--inputs", INPUTS),
    "profile": ("profile", ONE),
    "evaluate": ("evaluate", ONE, "--inputs", INPUTS),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_progress_counts_to_its_total(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, list[tuple[int, int | None]]] = {}

    @contextmanager
    def recorded(what: str) -> Iterator[Callable[[int, int | None], None]]:
        steps = told.setdefault(what, [])
        yield lambda done, total: steps.append((done, total))

    for module in ("output", "evaluate"):
        monkeypatch.setattr(f"tflm.cli.{module}.progress_of", recorded)
    files = {name: tmp_path / f"{name}.tflite" for name in ("one", "two")}
    for path in files.values():
        path.write_bytes(INT8_MODEL.read_bytes())
    files["inputs"] = tmp_path / "inputs.npy"
    np.save(files["inputs"], np.arange(-3, 4, dtype=np.int8).reshape(7, 1, 1))
    answer = CliRunner().invoke(app, [part.format_map(files) for part in COMMANDS[name]])
    assert answer.exit_code == 0, answer.output
    assert told
    for what, steps in told.items():
        done = [each for each, _ in steps]
        assert {total for _, total in steps} == {done[-1]}, what
        assert done == sorted(set(done)), what
        if name != "evaluate":  # whose results come in batches
            assert done == list(range(1, done[-1] + 1)), what
