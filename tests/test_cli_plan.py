"""`tflm plan`, run as a user runs it."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_cli import INT8_MODEL, figures, refusal, run
from test_planning import wide_graph

import tflm
from tflm.memory import plan_bytes
from tflm.memory.minimalloc_csv import read_csv


@pytest.fixture
def branches(tmp_path: Path) -> Path:
    """A model whose operators can be put into a better order."""
    path = tmp_path / "branches.tflite"
    path.write_bytes(wide_graph([3, 5, 2, 4], joined=True))
    return path


@pytest.mark.parametrize("options", [[], ["--in-place", "--reorder"], ["--steps", 50], ["--planner", "breadth"]])
def test_plan_gives_the_figures_of_the_library_and_writes_the_model(branches: Path, options: list[object]) -> None:
    output = branches.with_name("planned.tflite")
    printed = figures("plan", branches, "-o", output, "--target", "host", *options)
    planned = tflm.measure_arena(tflm.Model.from_file(output), tflm.AllOpsResolver())
    assert planned.head_bytes == printed["head_bytes"] <= printed["greedy_head_bytes"]
    assert planned.minimum_arena_bytes == printed["minimum_arena_bytes"] <= printed["minimum_arena_bytes_before"]
    assert (printed["order"] is not None) == ("--reorder" in options)
    expected = tflm.plan(
        tflm.Model.from_file(branches), in_place="--in-place" in options, reorder="--reorder" in options
    )
    if "--planner" not in options:
        assert printed["head_bytes"] == expected.head_bytes
        assert printed["proved_optimal"] == expected.proved_optimal


def test_plan_says_what_was_gained(branches: Path) -> None:
    answer = run("plan", branches, "--reorder")
    assert answer.returncode == 0, answer.stderr
    assert answer.stderr == ""
    assert "operators reordered" in answer.stdout
    assert "no plan of these buffers is smaller" in answer.stdout


def test_a_model_can_be_planned_where_it_stands(branches: Path) -> None:
    before = branches.read_bytes()
    assert run("plan", branches, "-o", branches).returncode == 0
    assert branches.read_bytes().endswith(before[8:])
    assert len(list(branches.parent.iterdir())) == 1


def test_the_planned_buffers_can_be_had_as_csv(branches: Path) -> None:
    file = branches.with_suffix(".csv")
    printed = figures("plan", branches, "--csv", file)
    buffers = [named.buffer for named in read_csv(file.read_text())]
    assert plan_bytes(buffers, [buffer.offline_offset for buffer in buffers]) == printed["head_bytes"]


def test_what_can_not_be_done_is_said(tmp_path: Path) -> None:
    assert "No such file" in refusal("plan", INT8_MODEL, "-o", tmp_path / "nowhere" / "planned.tflite")
    assert run("plan", INT8_MODEL, "--planner", "best").returncode == 2
    assert run("plan", INT8_MODEL, "--planner", "greedy", "--steps", 5).returncode == 2
