"""`tflm plan`, run as a user runs it."""

from __future__ import annotations

import importlib.util
import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from example_models import INT8_MODEL
from image_graphs import shrinking_network
from test_cli import figures, refusal, run
from test_planning import wide_graph
from typer.testing import CliRunner

import tflm
from tflm.cli.app import app
from tflm.cli.plan import buffers_as_csv
from tflm.memory import OptimalPlanner, plan_bytes
from tflm.memory.plan_search import DEFAULT_TIME_LIMIT
from tflm.planning.minimalloc_csv import read_csv
from tflm.schema.patch import with_metadata
from tflm.schema.tables import METADATA_NAME, encode_offsets


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
    assert "; optimal: " in answer.stdout


def test_a_model_can_be_planned_where_it_stands_if_told_so(branches: Path) -> None:
    before = branches.read_bytes()
    answer = run("plan", branches, "-o", branches, "--reorder")
    assert answer.returncode == 2
    assert "--force" in answer.stderr
    assert branches.read_bytes() == before
    assert run("plan", branches, "-o", branches, "--reorder", "--force").returncode == 0
    assert tflm.Model.from_file(branches).metadata("OfflineMemoryAllocation") is not None
    assert len(list(branches.parent.iterdir())) == 1


@pytest.mark.parametrize("place", ["beside", "in place"])
def test_a_plan_that_gains_nothing_leaves_the_bytes_alone_unless_told(tmp_path: Path, place: str) -> None:
    model = tmp_path / "model.tflite"
    model.write_bytes(INT8_MODEL.read_bytes())
    output = model if place == "in place" else tmp_path / "planned.tflite"
    answer = run("plan", model, "-o", output, "--force")
    assert output.read_bytes() == INT8_MODEL.read_bytes()
    assert "the plan is not smaller" in answer.stdout
    assert "the head stays at" in answer.stdout
    assert not figures("plan", model, "-o", output, "--force")["written"]
    assert figures("plan", model, "-o", output, "--force", "--always")["written"]
    assert tflm.Model.from_file(output).metadata("OfflineMemoryAllocation") is not None


def test_what_moved_is_said_and_why_the_rest_did_not(branches: Path) -> None:
    printed = figures("plan", branches, "--reorder")
    gained = printed["head_bytes_before"] - printed["head_bytes"]
    assert printed["gains"]
    assert f"the head shrinks by {gained:,} bytes" in run("plan", branches, "--reorder").stdout
    assert not figures("plan", branches)["gains"]
    assert "the live buffers of one operator need this much" in " ".join(run("plan", branches).stdout.split())


def test_the_planned_buffers_can_be_had_as_csv(branches: Path) -> None:
    file = branches.with_suffix(".csv")
    printed = figures("plan", branches, "--csv", file)
    buffers = read_csv(file.read_text())
    assert plan_bytes(buffers, [buffer.offline_offset for buffer in buffers]) == printed["head_bytes"]
    measured = tflm.measure_arena(tflm.Model.from_file(INT8_MODEL), tflm.AllOpsResolver())
    for i, (one, same) in enumerate(zip(read_csv(buffers_as_csv(measured)), measured.buffers, strict=True)):
        assert (one.name, one.size) == (f"{i} {same.name}", -(-same.size // 16) * 16)
        assert (one.first_use, one.last_use, one.offset) == (same.first_use, same.last_use, same.offset)


def test_a_limit_of_steps_or_time_replaces_the_usual_time(branches: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same steps give the same plan on every machine."""
    limits = []

    class Noted(OptimalPlanner):
        def __init__(self, **settings: Any) -> None:
            limits.append((settings["time_limit"], settings["step_limit"]))
            super().__init__(**settings)

    monkeypatch.setattr("tflm.cli.plan.OptimalPlanner", Noted)
    for options in ("", "--steps 50", "--time-limit 3", "--steps 50 --time-limit 3"):
        assert CliRunner().invoke(app, ["plan", str(branches), *options.split()]).exit_code == 0
    assert limits == [(DEFAULT_TIME_LIMIT, None), (None, 50), (3, None), (3, 50)]


def test_what_can_not_be_done_is_said(tmp_path: Path) -> None:
    assert "no folder " in refusal("plan", INT8_MODEL, "-o", tmp_path / "nowhere" / "planned.tflite")
    assert run("plan", INT8_MODEL, "--planner", "best").returncode == 2
    assert run("plan", INT8_MODEL, "--planner", "greedy", "--steps", 5).returncode == 2


def test_a_plan_does_not_stand_in_the_way_of_looking_at_every_tensor(branches: Path) -> None:
    """It is ignored then, as is said; the tensors are those of the model without it."""
    planned, dumps = branches.with_name("planned.tflite"), [branches.with_suffix(f".{i}.npz") for i in range(2)]
    assert run("plan", branches, "-o", planned, "--always").returncode == 0
    plain, ignoring = (
        run("run", model, "--random", 1, "--dump-tensors", "--outputs", dump)
        for model, dump in zip((branches, planned), dumps)
    )
    assert plain.stderr == ""
    assert ignoring.returncode == 0
    assert "plan is ignored" in ignoring.stderr
    expected, given = (dict(np.load(dump)) for dump in dumps)
    assert expected.keys() == given.keys()
    assert all(np.array_equal(expected[key], given[key]) for key in expected)
    comparison = run("compare", branches, planned)
    assert comparison.returncode == 0
    assert "plan is ignored" in comparison.stderr
    linear = [figures("arena", model, "--planner", "linear") for model in (branches, planned)]
    assert linear[0]["needed_bytes"] == linear[1]["needed_bytes"]


def test_with_all_tensors_preserved_a_plan_is_ignored_with_a_warning(branches: Path) -> None:
    planned = tflm.plan(tflm.Model.from_file(branches)).model
    interpreter = tflm.MicroInterpreter(planned, tflm.AllOpsResolver(), bytearray(1 << 16), preserve_all_tensors=True)
    with pytest.warns(tflm.PlanIgnored, match="separate memory"):
        interpreter.allocate_tensors()
    buffers = sorted((buffer.offset, buffer.bytes) for buffer in interpreter.planned_buffers())
    assert all(offset + size <= after for (offset, size), (after, _) in itertools.pairwise(buffers))


def test_a_plan_that_loses_values_is_obeyed_if_that_is_wanted(branches: Path) -> None:
    model = tflm.Model.from_file(branches)
    count = len(model.subgraphs[0].tensors or ())
    lossy = branches.with_name("lossy.tflite")
    lossy.write_bytes(with_metadata(model, METADATA_NAME, encode_offsets([0] * count)))
    assert "share bytes" in refusal("arena", lossy)
    assert run("arena", lossy, "--checks", "tflm").returncode == 0
    assert run("run", lossy, "--random", 1, "--checks", "tflm").returncode == 0
    assert "use all or tflm" in run("arena", lossy, "--checks", "some").stderr


def test_a_plan_of_several_memories_writes_the_planner(branches: Path) -> None:
    folder = branches.with_name("made")
    call = ("plan", branches, "--memories", "SRAM:6K,PSRAM:1M", "--reorder", "-o", folder)
    printed = figures(*call, "--cost", "PSRAM:3")
    assert [(each["name"], each["cost"]) for each in printed["memories"]] == [("SRAM", 1), ("PSRAM", 3)]
    assert (folder / "memory_plan.h").is_file()
    assert printed["proved_optimal"]
    assert len(printed["written"]) == 1 + (printed["order"] is not None)
    assert all(rival["cost"] is None or printed["cost"] <= rival["cost"] for rival in printed["rivals"])
    shown = run(*call)
    assert shown.returncode == 0
    assert "largest first" in shown.stdout
    assert "proved to be the cheapest" in shown.stdout
    assert f"wrote {folder / 'memory_plan.h'}" in shown.stdout
    assert "ms in" not in shown.stdout


def test_operators_are_reordered_whatever_plan_the_model_has(branches: Path) -> None:
    """A plan for the old order may lose values in the new one; that of several memories takes its place."""
    call = ("plan", branches, "--memories", "SRAM:6K,PSRAM:1M", "--reorder")
    expected = figures(*call)
    planned = branches.with_name("planned.tflite")
    assert run("plan", branches, "--in-place", "--always", "-o", planned).returncode == 0
    assert {**figures("plan", planned, *call[2:]), "model": str(branches)} == expected


def test_a_rate_gives_the_time_of_the_traffic(branches: Path) -> None:
    call = ("plan", branches, "--memories", "SRAM:6K,PSRAM:1M", "--rate", "psram:0.5")
    slow = figures(*call)["memories"][1]
    assert slow["rate"] == 500_000
    lines = run(*call).stdout.splitlines()
    (chosen,) = (line.split() for line in lines if line.startswith("this plan"))
    assert chosen[-2:] == [f"{slow['traffic_bytes']:,}", f"{slow['traffic_bytes'] / 500:,.2f}"]
    assert any(line.split()[-2:] == ["in", "PSRAM"] and "ms in PSRAM" in line for line in lines)


def test_memories_of_a_board_have_what_its_firmware_leaves() -> None:
    printed = figures("plan", INT8_MODEL, "--board", "esp32-s3-eye", "--memories", "psram,sram")
    slow, fast = printed["memories"]
    assert (slow["name"], slow["cost"], fast["name"], fast["cost"]) == ("PSRAM", 6, "SRAM", 1)
    assert 0 < fast["bytes"] < 320 << 10
    assert (slow["rate"], fast["rate"]) == (80e6, None)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--memories", "SRAM"), "has no size"),
        (("--memories", "SRAM:0"), "0 bytes"),
        (("--memories", "SRAM:1K,SRAM:2K"), "named twice"),
        (("--memories", ":1K"), "invalid memories"),
        (("--memories", "SRAM:1Q"), "invalid size"),
        (("--memories", "A:1K,B:1M", "--cost", "C:2"), "unknown memory 'C'; --memories has A, B"),
        (("--memories", "A:1K,B:1M", "--cost", "A:0"), "number above 0"),
        (("--memories", "A:1K,B:1M", "--cost", "A:-1"), "number above 0"),
        (("--memories", "A:1K,B:1M", "--cost", "A:fast"), "invalid cost 'fast'"),
        (("--memories", "A:1K,B:1M", "--rate", "C:2"), "--rate names the unknown memory 'C'"),
        (("--memories", "A:1K,B:1M", "--rate", "A:0"), "number above 0"),
        (("--memories", "A:1K,B:1M", "--rate", "A:fast"), "invalid rate 'fast'"),
        (("--memories", "FAST", "--board", "esp32-s3-eye"), "has SRAM, PSRAM"),
        (("--memories", "SRAM:600K", "--board", "esp32-s3-eye"), "not 600K"),
        (("--cost", "A:1"), "--cost and --rate are for --memories"),
        (("--rate", "A:1"), "--cost and --rate are for --memories"),
        (("--memories", "A:1M", "--tail-ram", "1K"), "omit --head-ram"),
    ],
)
def test_invalid_memories_are_refused(options: tuple[str, ...], reason: str) -> None:
    answer = run("plan", INT8_MODEL, *options)
    assert answer.returncode == 2
    assert reason in " ".join(answer.stderr.split())


def test_a_buffer_that_fits_no_memory_is_named_with_what_helps(tmp_path: Path) -> None:
    path = tmp_path / "image.tflite"
    path.write_bytes(shrinking_network(64).data)
    answer = run("plan", path, "--memories", "A:11K,B:10K")
    assert answer.returncode != 0
    assert "'x' (12288 bytes) fits none of A next to the tail (" in answer.stderr
    assert "tflm tile" in answer.stderr


def test_arena_draws_each_memory(tmp_path: Path) -> None:
    path, page, image = tmp_path / "image.tflite", tmp_path / "arena.html", tmp_path / "arena.svg"
    path.write_bytes(shrinking_network(64).data)
    call = ("arena", path, "--memories", "SRAM:12K,PSRAM:1M")
    assert run(*call, "--html", page).returncode == 0
    drawn = json.loads(re.findall(r'<script type="application/json" id="data">(.*?)</script>', page.read_text())[0])
    printed = figures("plan", path, "--memories", "SRAM:12K,PSRAM:1M")
    assert {plan["planner"].split(",")[0] for plan in drawn} == {"SRAM", "PSRAM"}
    for plan in drawn:
        memory = plan["planner"].split(",")[0]
        offsets = [each["offset"] for each in printed["buffers"] if each["memory"] == memory]
        assert [b["offset"] for b in plan["buffers"]] == offsets
        assert all(b["offset"] + b["bytes"] <= plan["head_bytes"] for b in plan["buffers"])
        assert plan["peak"]["bytes"] <= plan["head_bytes"]
    if importlib.util.find_spec("matplotlib") is not None:
        assert run(*call, "--plot", image).returncode == 0
        assert image.stat().st_size
    for wrong in ([], ["--html", page, "--second-planner", "linear"], ["--html", page, "--planner", "linear"]):
        answer = run(*call, *wrong)
        assert answer.returncode == 2
        assert "--memories needs --html or --plot" in " ".join(answer.stderr.split())
