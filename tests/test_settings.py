"""A project's settings: found upwards, checked, and the same as options on the command line."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import float_models
import numpy as np
import pytest
import test_json_schema
import test_tensor_dump
from example_models import INT8_MODEL
from typer.main import get_command
from typer.testing import CliRunner

from tflm.application.errors import OptionError
from tflm.application.machine import MachineOptions
from tflm.application.settings import KEYS, budgets_of, settings, smallest_budget
from tflm.cli.app import NAMES, app

pytestmark = pytest.mark.filterwarnings("ignore::tflm.errors.VersionAssumed")

EVERYTHING = """
board = "esp32-s3-eye"
sdk = "esp-idf+wifi"
kernels = "esp-nn:ansi"
tflm = "esp-tflite-micro 1.3.3"
reserve = "12K"
[budgets]
"*.tflite" = "3K"
"""
OPTIONS = ["--board", "esp32-s3-eye", "--sdk", "esp-idf+wifi", "--kernels", "esp-nn:ansi"]
OPTIONS += ["--tflm", "esp-tflite-micro 1.3.3"]
ARENA = 716
"""Bytes of the arena with these settings: for any others, `device-log` searches for the build that has as many."""

RESERVE = ["--reserve", "12K"]
BUDGET = ["--budget", "3K"]

CALLS = {
    "arena": ["arena model.tflite", *RESERVE, *BUDGET],
    "arena --json": ["arena model.tflite --json", *RESERVE, *BUDGET],
    "check": ["check model.tflite", *RESERVE],
    "compare": ["compare model.tflite dump.txt"],
    "compress": ["compress model.tflite"],
    "device": ["device run model.tflite --port exec:./device --seed 0"],
    "device-log": ["device-log log.txt model.tflite"],
    "export": ["export model.tflite made", *RESERVE],
    "fit": ["fit model.tflite", *RESERVE],
    "flash": ["flash model.tflite --map firmware.map", *RESERVE],
    "gate": ["gate model.tflite", *RESERVE, *BUDGET],
    "gate --json": ["gate model.tflite --json", *RESERVE, *BUDGET],
    "plan": ["plan model.tflite", *RESERVE],
    "quantize": ["quantize float.tflite --inputs pictures.npz"],
    "run": ["run model.tflite --random"],
    "stream": ["stream wide.tflite"],
    "tile": ["tile wide.tflite --macs 100%", *RESERVE],
}
"""A call of each command that takes the settings, with the options that it has besides those of the machine."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a model, and a folder inside it."""
    (tmp_path / "model.tflite").write_bytes(INT8_MODEL.read_bytes())
    (tmp_path / "inner" / "most").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def files(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files that the calls of all commands take."""
    (project / "float.tflite").write_bytes(float_models.classifier().build())
    np.savez(project / "pictures.npz", inputs=0.3 * float_models.samples(4, 8, 8, 1), labels=np.arange(4))
    monkeypatch.setattr("tflm.quantization.quantization.require_quantizer", lambda: None)
    monkeypatch.setattr("tflm.quantization.quantization.quantized_by", float_models.stand_in)
    (project / "wide.tflite").write_bytes(test_json_schema._wide_model())
    (project / "log.txt").write_text(test_json_schema.LOG.replace("arena_used_bytes 772", f"arena_used_bytes {ARENA}"))
    (project / "firmware.map").write_text("\nLinker script and memory map\n\n.text 0x8000000 0x9000\n")
    dump = test_tensor_dump.lines_of(test_tensor_dump.device_tensors(INT8_MODEL, 1))
    (project / "dump.txt").write_text("\n".join(dump))
    device = Path(__file__).with_name("simulated_device.py")
    (project / "device").write_text(f"#!/bin/sh\nexec '{sys.executable}' '{device}' model.tflite\n")
    (project / "device").chmod(0o755)
    return project


def tflm(folder: Path, *arguments: str) -> tuple[int, str, str]:
    with _in_folder(folder):
        done = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "300"})
    return done.exit_code, done.stdout, done.stderr


@contextlib.contextmanager
def _in_folder(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    yield
    os.chdir(before)


@pytest.mark.parametrize("call", CALLS)
def test_settings_and_the_same_options_give_the_same_bytes(files: Path, call: str) -> None:
    command, *more = CALLS[call]
    with_options = tflm(files, *command.split(), *OPTIONS, *more)
    assert with_options[0] in (0, 1), with_options[2]
    (files / "tflm.toml").write_text(EVERYTHING)
    assert tflm(files, *command.split()) == with_options
    (files / "tflm.toml").unlink()
    table, _, budgets = EVERYTHING.partition("[budgets]")
    (files / "pyproject.toml").write_text(f"[tool.tflm]\n{table}[tool.tflm.budgets]{budgets}")
    assert tflm(files, *command.split()) == with_options


def test_every_command_that_takes_settings_has_a_call() -> None:
    group: Any = get_command(app)
    commands = {name: group.get_command(None, name) for name in NAMES}
    taking = {name for name, command in commands.items() if _options_of(command) & {"--show-settings"}}
    assert taking == {call.split()[0] for call in CALLS}
    assert {name for name in taking if _options_of(commands[name]) & {"--reserve"}} == {
        call.split()[0] for call, (_, *more) in CALLS.items() if more[:2] == RESERVE
    }


def test_settings_do_not_stop_the_comparison_of_models(project: Path) -> None:
    (project / "tflm.toml").write_text(EVERYTHING)
    assert tflm(project, "compare", "model.tflite", "model.tflite")[0] == 0
    assert tflm(project, "compare", "model.tflite", "model.tflite", "--board", "pico")[0] == 2


def _options_of(command: Any) -> set[str]:
    """The options of a command, or of the commands of a group."""
    inner = [_options_of(each) for each in getattr(command, "commands", {}).values()]
    return set().union(*inner, *(parameter.opts for parameter in command.params))


@pytest.mark.parametrize("command", ["arena", "check", "gate", "fit", "flash --map firmware.map"])
def test_a_reserve_counts_in_every_verdict(files: Path, command: str) -> None:
    (files / "tflm.toml").write_text('board = "pico"\n')
    call = command.replace(" ", " model.tflite ", 1) if " " in command else f"{command} model.tflite"
    assert tflm(files, *call.split())[0] == 0
    (files / "tflm.toml").write_text('board = "pico"\nreserve = "260K"\n')
    status, said, _ = tflm(files, *call.split())
    assert status == 1
    assert re.search("does not fit|: no: ", said.splitlines()[0])
    assert tflm(files, *call.split(), "--reserve", "1K")[0] == 0


@pytest.mark.parametrize(
    ("command", "more"),
    [
        ("fit model.tflite -o made", RESERVE),
        ("export model.tflite made", RESERVE),
        ("export model.tflite made --typed", RESERVE),
    ],
)
def test_settings_and_the_same_options_give_the_same_projects(
    project: Path, command: str, more: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with other spellings of the options, in another order."""
    spelt = ["--tflm=esp-tflite-micro 1.3.3", "-k", "esp-nn:ansi", "--sdk", "esp-idf+wifi", "-besp32-s3-eye"]
    made = []
    for options in ([*OPTIONS, *more], [*more, *spelt], []):
        if not options:
            (project / "tflm.toml").write_text(EVERYTHING.partition("[budgets]")[0])
        monkeypatch.setattr("sys.argv", ["tflm", *command.split(), *options])
        answer = tflm(project, *command.split(), *options)
        assert answer[0] == 0, answer[2]
        folder = project / "made"
        made.append({path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()})
        shutil.rmtree(folder)
    assert made[0] == made[1] == made[2]
    assert any(b"--tflm 'esp-tflite-micro 1.3.3'" in data for data in made[0].values())


def test_settings_are_those_of_the_nearest_folder(project: Path) -> None:
    inner = project / "inner"
    assert settings(project / "inner" / "most").path is None
    (project / "tflm.toml").write_text('board = "pico"')
    assert settings(inner / "most").values == {"board": "pico"}
    (inner / "pyproject.toml").write_text("[project]\nname = 'other'")
    assert settings(inner / "most").values == {"board": "pico"}
    (inner / "pyproject.toml").write_text("[tool.tflm]\nboard = 'pico2'")
    assert settings(inner / "most").values == {"board": "pico2"}
    (inner / "pyproject.toml").write_text("[tool.tflm")
    assert settings(inner / "most").values == {"board": "pico"}
    (inner / "pyproject.toml").write_text("[tool.tflm]\ntarget = 'cortex-m4'")
    assert settings(inner / "most").values == {"target": "cortex-m4"}
    (inner / "tflm.toml").write_text("kernels = 'reference'")
    assert settings(inner / "most").values == {"kernels": "reference"}
    assert settings(inner / "most").path == inner / "tflm.toml"


def test_options_win_and_another_machine_leaves_out_board_sdk_and_kernels(project: Path) -> None:
    (project / "tflm.toml").write_text(EVERYTHING)
    found = settings(project)
    none = MachineOptions()
    everything = MachineOptions(None, "esp-nn:ansi", "esp-tflite-micro 1.3.3", "esp32-s3-eye", "esp-idf+wifi", "12K")
    assert found.machine(none, False) == everything
    assert found.machine(none._replace(kernels="reference"), False) == everything._replace(kernels="reference")
    only = MachineOptions(release="esp-tflite-micro 1.3.3", reserve="12K")
    assert found.machine(none._replace(board="pico"), False) == only._replace(board="pico")
    assert found.machine(none._replace(target="cortex-m4"), False) == only._replace(target="cortex-m4")
    assert found.machine(none, True) == only


def test_budgets_are_by_path_or_name_and_the_first_that_matches_counts(project: Path) -> None:
    budgets = '"models/*.tflite" = "64K"\n"wake*" = 512\n"*" = "1M"\n'
    (project / "tflm.toml").write_text(f"[budgets]\n{budgets}")
    found = settings(project)
    models = [project / name for name in ("models/wake.tflite", "wake.tflite", "other.tflite")]
    sizes = [found.budget_of(model) for model in models]
    assert sizes == [64 << 10, 512, 1 << 20]
    with _in_folder(project):
        assert smallest_budget(models) == 512
    inner = project / "inner"
    (inner / "tflm.toml").write_text('[budgets]\n"mine/*" = 7\n"/*/other.tflite" = 9\n')
    with _in_folder(inner):
        assert budgets_of([Path("mine/x"), Path("x"), *models]) == dict(
            zip([Path("mine/x"), Path("x"), *models], [7, None, None, None, 9])
        )
        assert smallest_budget([Path("x")]) is None
    (project / "tflm.toml").write_text('board = "nrf52840dk"\n[budgets]\n"model.*" = "1K"\n')
    status, said, _ = tflm(project, "gate", "model.tflite")
    assert status == 1
    assert "more than the budget of 1,024" in said


def test_a_board_in_a_file_is_found_from_the_settings(project: Path) -> None:
    (project / "mine.toml").write_text('name = "mine"\nchip = "RP2040"\nflash = "2M"\n')
    (project / "tflm.toml").write_text('board = "mine.toml"\n')
    status, said, errors = tflm(project / "inner", "arena", "../model.tflite")
    assert status == 0, errors
    assert "on mine: mine" in said


def test_show_settings_says_what_holds_and_where_from(project: Path) -> None:
    (project / "tflm.toml").write_text(EVERYTHING)
    status, said, _ = tflm(project / "inner", "gate", "none.tflite", "--sdk", "esp-idf", "--show-settings")
    lines = [" ".join(line.split()) for line in said.splitlines()]
    place = project / "tflm.toml"
    assert status == 0
    held = ("kernels esp-nn:ansi", "tflm esp-tflite-micro 1.3.3", "board esp32-s3-eye", "sdk esp-idf", "reserve 12K")
    facts = [f"{each} ({'--sdk' if each.startswith('sdk') else place})" for each in held]
    budgets = [f"budget *.tflite = 3K ({place})"]
    assert [line for line in lines if line] == [f"settings of {place}", "target default", *facts, *budgets]
    said = tflm(project, "arena", "none.tflite", "--reserve", "1K", "--budget", "2K", "--show-settings")[1]
    lines = [" ".join(line.split()) for line in said.splitlines()]
    assert lines[-2:] == ["reserve 1K (--reserve)", "budget 2K (--budget)"]
    status, said, _ = tflm(project.parent, "gate", "none.tflite", "--show-settings", "--kernels", "reference")
    assert said.startswith("no settings")
    lines = [" ".join(line.split()) for line in said.splitlines() if line]
    assert lines[1:] == [
        "target default",
        "kernels reference (--kernels)",
        *(f"{key} default" for key in ("tflm", "board", "sdk", "reserve")),
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("bord = 'pico'", f"unknown setting 'bord'; use {', '.join(KEYS)}"),
        ("reserve = '3Q'", "reserve: "),
        ("[budgets]\n'*' = '3Q'", "3Q"),
        ("budgets = 3", "budgets must be a table"),
        ("board = ", "is not TOML"),
        ("board = 'pico'\ntarget = 'cortex-m4'", "use either board"),
    ],
)
def test_what_is_wrong_in_a_file_is_told(project: Path, text: str, says: str) -> None:
    (project / "tflm.toml").write_text(text)
    with pytest.raises(OptionError) as caught:
        settings(project)
    assert says in str(caught.value)
    assert str(project / "tflm.toml") in str(caught.value)


def test_a_model_as_c_takes_the_board_alone(project: Path) -> None:
    (project / "tflm.toml").write_text('board = "nrf52840dk"\nkernels = "reference"\ntflm = "2024-06-01"\n')
    assert tflm(project, "export", "model.tflite", "out", "--compiled", "--project", "none")[0] == 0
