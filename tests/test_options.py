"""Every option of every command has a visible effect, and options that exclude each other are rejected together."""

from __future__ import annotations

import inspect
import itertools
import shutil
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import float_models
import pytest
import test_firmware_tree
from command_fuzz import commands
from recorded_reports import SENTENCES, figures_of_text, layout_of_text, require_recorded, sentences_of_text
from simulated_device import LossyLink, Mishap, SimulatedDevice
from test_device import model_with_state
from test_json_schema import FLOAT, INT8, folder
from typer.testing import CliRunner

import tflm
from tflm.cli.app import app
from tflm.device.transports import BAUD, wire_to

__all__ = ["folder"]

COMMANDS = sorted(commands().commands)

BASES = {
    "arena": f"{INT8}",
    "boards": "xiao",
    "calibrate-report": f"{INT8} --inputs labelled.npz",
    "check": "wide.tflite",
    "compare": f"{INT8} {FLOAT} --tolerance 0",
    "compile": "wide.tflite new",
    "compress": "sparse.tflite",
    "device": "run state.tflite --port simulated",
    "device-log": f"log.txt {INT8}",
    "doctor": "",
    "evaluate": f"{INT8} --inputs labelled.npz --workers 1",
    "export": f"{INT8} new",
    "firmware": "sources",
    "fit": "wide.tflite --ram 64K",
    "flash": f"{INT8}",
    "fold": f"{INT8}",
    "gate": f"{INT8} --budget 4K",
    "inspect": f"{INT8}",
    "json-schema": "arena",
    "plan": "wide.tflite",
    "profile": f"{INT8} --runs 1",
    "quantize": "float.tflite --inputs pictures.npz",
    "releases": "",
    "resize": f"{INT8} -o resized.tflite",
    "run": f"{INT8} --random 1",
    "stream": "wide.tflite",
    "strip": f"{INT8}",
    "tile": "wide.tflite",
    "versions": f"{INT8}",
    "wake-word": "word.tflite",
    "warm": f"{INT8}",
}
"""A call of each command."""

SHARED = {
    "--board": "--board unknown",
    "--checks": "--checks unknown",
    "--json": "--json",
    "--kernels": "--kernels unknown",
    "--reserve": "--reserve 1K",
    "--sdk": "--sdk unknown",
    "--show-settings": "--show-settings",
    "--source": "--source nowhere",
    "--target": "--target unknown",
    "--tflm": "--tflm unknown",
}
"""Options of many commands. A value that is unknown is refused by each command that looks at it."""

EXCLUSIVE = {
    "arena": (
        ("--ram 1K", "--boards", "--all-targets", "--board pico"),
        *((plan, "--memories A:1M --html a.html") for plan in ("--planner linear", "--second-planner linear")),
        *(("--boards", f"{alone} a") for alone in ("--html", "--plot", "--badge", "--node-data", "--budget")),
        *(("--boards", "--short"), ("--all-targets", "--kernels cmsis-nn --target cortex-m4")),
    ),
    "compare": (("--inputs in.npz", "--seed 1"), ("--inputs in.npz", "--steps 1")),
    "compile": (("--serve", "--feed-rows 1"), ("--ram 1K", "--memories A:1M", "--optimize ram")),
    "device": (("--inputs in.npz", "--random 1"), ("--inputs in.npz", "--seed 1")),
    "export": (*(("--compiled", each) for each in ("--tflm esphome", "--typed", "--dump")),),
    "fit": (("--ram 1M", "--board pico"),),
    "flash": (*(("--map firmware.map --board pico", each) for each in ("--build unknown", "--flash-data nowhere")),),
    "plan": (
        *(("--planner greedy", each) for each in ("--steps 1", "--time-limit 1")),
        *(("--memories A:1M", each) for each in ("--head-ram 1K", "--csv a.csv", "--always", "--planner greedy")),
    ),
    "profile": (
        *(("--delegate none", each) for each in ("--target cortex-m4", "--board pico")),
        *(("--compiled", each) for each in ("--delegate none", "--target cortex-m4", "--board pico", "--mhz 1")),
    ),
    "run": (("--inputs in.npz", "--random 1"),),
    "tile": (("--ram 1M", "--head-ram 1K --tail-ram 1M"),),
}
"""Options of a command of which one excludes the others. What an option needs beside it follows it."""

EVERYWHERE = (
    ("--board nano33ble", "--target cortex-m4"),
    ("--source sources", "--tflm esphome"),
    ("--json", "--short"),
)
"""The same, wherever a command has them."""

BESIDE = " | "
"""Between options that one needs beside it, and that one."""

ELSEWHERE = {
    ("plan", "--reorder"): "test_cli_plan.py",
    ("run", "--inputs"): "test_cli_run.py",
    ("run", "--real"): "test_cli_run.py",
    ("tile", "--alias"): "test_rewriting.py",
    ("versions", "--downgrade"): "test_cli_versions.py",
}
"""Options that change nothing for these models, and the tests that see them."""

OWN = {
    "arena": (
        "--html a.html | --second-planner linear",
        "--board nano33ble | --reserve 250K",
        *("--boards", "--ram 1K", "--planner linear", "--budget 1", "--all-targets", "--html a.html", "--plot a.svg"),
        *("--badge a.svg", "--memories A:1K,B:4K --html a.html", "--node-data a.json", "--shape 0=2,1", "--short"),
    ),
    "calibrate-report": ("--limit 1", "--picture a.svg"),
    "check": (
        "--board nano33ble | --reserve 250K",
        "--short",
    ),
    "compare": ("--inputs in.npz", "--seed 1", "--steps 1", "--tolerance 1000", "--delegate none", "--check"),
    "compile": (
        "--memories A:64K",
        "--optimize unknown",
        "--stream 2",
        "--stream 2 | --stream-input 1",
        "--name other",
        "--ram 1M",
        "--self-test 1",
        "--serve",
        "--max-constants 1",
        "--feed-rows 1",
    ),
    "device": (
        *("--port nowhere", "--baud 9600", "--inputs nowhere", "--random 1", "--save a.npz", "--output a", "--mhz 1"),
        "--save a.npz | --seed 1",
        "--port stuck | --limit 1",
    ),
    "device-log": ("--mhz 64",),
    "evaluate": (
        "--confusion a.png",
        "--labels nowhere",
        "--leave-out",
        "--port nowhere",
        "--top 1",
        "--results a.npz",
        "--limit 1",
        "--worst worst",
        f"--reference {FLOAT}",
    ),
    "export": (
        "--memories A:64K",
        "--ram 1",
        "--board nano33ble | --reserve 250K",
        "--typed",
        "--dump",
        "--serve",
        "--compiled",
        *(f"--compiled --kernels cmsis-nn | {part}" for part in ("--target cortex-m4", "--board nrf52dk")),
        "--project none --board nano33ble",
    ),
    "fit": ("--ram 6K | --time-limit 0", "--macs unknown", "--hop 2", "--reserve 62K", "--short", "--output fitted"),
    "flash": (
        "--board pico --map firmware.map | --reserve 300K",
        "--build unknown",
        "--flash-data nowhere",
        "--map firmware.map",
    ),
    "fold": ("--output a.tflite",),
    "gate": ("--board nano33ble | --reserve 250K", "--base HEAD", "--summary a.md", "--short"),
    "inspect": ("--check",),
    "plan": (
        "--memories A:1K,B:1M | --cost A:1,B:9",
        "--memories A:1K,B:1M | --rate B:40",
        "--board nano33ble | --reserve 250K",
        *(
            "--output a.tflite",
            "--planner unknown",
            "--planner greedy --steps 1",
            "--planner greedy --time-limit 1",
            "--in-place",
            "--overlap unknown",
        ),
        *("--memories A:1M --output a", "--head-ram 1M --tail-ram 1M", "--csv a.csv", "--always --output a.tflite"),
    ),
    "profile": (
        "--compiled",
        "--optimization Os",
        "--mhz 1",
        "--seed 1",
        "--calibration nowhere",
        "--delegate unknown",
        "--node-data a.json",
    ),
    "resize": ("--shape 0=2,1",),
    "run": (
        "--outputs a.npz | --dump-tensors",
        "--frontend nowhere",
        "--steps 2",
        "--outputs a.npz",
        "--plot a.svg",
        "--random 2",
        "--stream",
        "--hop 2",
        "--frontend-step 2",
    ),
    "stream": (
        "--causal",
        "--inputs nowhere",
        "--hop 2",
        "--axis 2",
        "--input 5",
        "--initial nowhere",
        "--output a.tflite",
    ),
    "strip": ("--output a.tflite",),
    "tile": (
        "--overlap unknown",
        "--verify 1",
        "--time-limit 0",
        "--board nano33ble | --reserve 250K",
        "--output a.tflite",
        "--macs unknown",
        "--ram 1",
        "--head-ram 1K --tail-ram 1M",
        *(
            f"--output a.tflite | {room}"
            for room in ("--head-ram 1K --tail-ram 1M", "--board nano33ble --reserve 250K")
        ),
        "--plot a.svg",
    ),
    "versions": ("--output a.tflite",),
    "compress": (
        "--verify 1",
        "--decompression-memory 8K",
        "--flash 1K",
        "--output a.tflite",
        "--ram 1K",
        "--ram 1M",
    ),
    "quantize": (
        "--io unknown",
        "--labels nowhere",
        "--limit 1",
        "--output a.tflite",
        "--to int16",
        "--weights int4",
    ),
    "wake-word": ("--manifest micro.json", "--check --manifest micro.json"),
}
"""Options of a command of its own, with values that change what it does."""


class Ending(NamedTuple):
    """What can be seen of a call."""

    status: int
    output: str
    errors: str
    files: frozenset[tuple[str, bytes]]


Call = Callable[[str, str], Ending]


def simulated(port: str, baud: int) -> Any:
    """The wire to a device in this process, which may get stuck; or to the one that the port names."""
    if port not in ("simulated", "stuck") or baud != BAUD:
        return wire_to(port, baud)
    lost = [Mishap(byte, "drop", 0) for byte in range(150, 9000)] if port == "stuck" else []
    return LossyLink(SimulatedDevice(model_with_state()), lost)


def spellings_of(command: str) -> list[list[str]]:
    """What each option of a command may be written as."""
    parameters = commands().get_command(None, command).params
    return [[*each.opts, *each.secondary_opts] for each in parameters if each.param_type_name == "option"]


def options_of(command: str) -> list[str]:
    return [names[0] for names in spellings_of(command)]


@pytest.fixture(scope="module")
def call(folder: Path) -> Iterator[Call]:
    """Runs a command where it can write, and removes what it wrote."""
    before = {path.name for path in folder.iterdir()}

    def ending(command: str, arguments: str) -> Ending:
        answer = CliRunner().invoke(app, [command, *arguments.split()])
        written = [path for path in folder.iterdir() if path.name not in before]
        files = {
            (str(f.relative_to(folder)), f.read_bytes()) for w in written for f in (w, *w.rglob("*")) if f.is_file()
        }
        for path in written:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        return Ending(answer.exit_code, answer.stdout, answer.stderr, frozenset(files))

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("tflm.device.device.wire_to", simulated)
        patch.setattr("tflm.firmware.source_tree._known_files", test_firmware_tree.known_files)
        patch.setattr("tflm.quantization.quantization.require_quantizer", lambda: None)
        patch.setattr("tflm.quantization.quantization.quantized_by", float_models.stand_in)
        patch.setenv("TFLM_COMPILED", "0")
        patch.setenv("COLUMNS", "400")  # so that no line breaks where the path of the checkout is long
        yield ending


OF_THIS_MACHINE = {"doctor", "profile", "warm"}
"""Commands of which nothing is recorded: what they say is of this machine."""


def require_recorded_ending(call: str, ending: Ending) -> None:
    """Compare the status, the numbers, the models and the sentences of a call with what was recorded."""
    if call.split()[0] in OF_THIS_MACHINE:
        return
    models = sorted(f"{name}:{zlib.crc32(data):x}" for name, data in ending.files if name.endswith(".tflite"))
    printed = figures_of_text(f"{ending.output}\n{ending.errors}")
    layout = f"layout={layout_of_text(ending.output)}"
    require_recorded(call, [f"status={ending.status}", layout, *printed, *models])
    require_recorded(call, sentences_of_text(f"{ending.output}\n{ending.errors}"), SENTENCES, " | ")


@pytest.mark.parametrize("command", COMMANDS)
def test_an_option_of_many_commands_is_seen_by_each(command: str, call: Call) -> None:
    plain = call(command, BASES[command])
    require_recorded_ending(f"{command} {BASES[command]}", plain)
    ignored = []
    for option in options_of(command):
        if option in SHARED:
            arguments = f"{BASES[command]} {SHARED[option]}"
            ending = call(command, arguments)
            if ending.status:
                require_recorded(f"{command} {arguments}", sentences_of_text(ending.errors), SENTENCES, " | ")
            if ending[:3] == plain[:3]:
                ignored.append(option)
    assert ignored == []


@pytest.mark.parametrize("command", OWN)
def test_an_option_of_one_command_is_seen(command: str, call: Call) -> None:
    def ending(arguments: str) -> Ending:
        if arguments not in endings:
            line = f"{BASES[command]} {arguments}"
            endings[arguments] = call(command, line)
            require_recorded_ending(f"{command} {line}", endings[arguments])
        return endings[arguments]

    endings: dict[str, Ending] = {}
    ignored = []
    for each in OWN[command]:
        setting, _, option = each.rpartition(BESIDE)
        if ending(setting) == ending(f"{setting} {option}"):
            ignored.append(each)
    assert ignored == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_walked(command: str) -> None:
    walked = " ".join((BASES[command], *OWN.get(command, ()))).split()
    known = {*walked, *SHARED, "--force"}  # --force has tests of its own: test_output_files.py
    missing = [names for names in spellings_of(command) if not known.intersection(names)]
    assert [names[0] for names in missing if (command, names[0]) not in ELSEWHERE] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_options_that_exclude_each_other_say_so(command: str, call: Call) -> None:
    has = set(options_of(command))
    everywhere = [pair for pair in EVERYWHERE if {each.split()[0] for each in pair} <= has]
    for group in (*everywhere, *EXCLUSIVE.get(command, ())):
        for pair in itertools.combinations(group, 2):
            names = [each.split()[0] for each in pair]
            answer = call(command, f"{BASES[command]} {' '.join(pair)}")
            assert (answer.status, [name for name in names if name in answer.errors]) == (2, names)


@pytest.mark.parametrize("command", [name for name in COMMANDS if callable(getattr(tflm, name, None))])
def test_options_have_the_defaults_of_the_function(command: str) -> None:
    parameters = inspect.signature(getattr(tflm, command)).parameters
    options = {each.name: each.default for each in commands().get_command(None, command).params}
    shared = {name for name in options.keys() & parameters.keys() if isinstance(options[name], (bool, int, float))}
    shared -= {"verify"}  # a command verifies more, since it is called once
    assert {name: parameters[name].default for name in shared} == {name: options[name] for name in shared}
