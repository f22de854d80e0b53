"""The `tflm` command, run as a user runs it."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from command_server import command_server
from example_models import EXAMPLE, FLOAT_MODEL, INT8_MODEL

import tflm
from tflm.application.timing import FAR_APART, OperatorTime, disagreement_line, timing_report
from tflm.cli import group, output
from tflm.release import TFLM_COMMIT
from tflm.schema import ActivationFunctionType, AddOptions, BuiltinOperator, FullyConnectedOptions, TensorType

Answer = subprocess.CompletedProcess[str]


def run(*arguments: object, cwd: Path | None = None, **environment: str) -> Answer:
    """Run the command in a process of its own."""
    return command_server().run([str(argument) for argument in arguments], cwd, environment)


def figures(*arguments: object) -> Any:
    """Return the command's output with `--json`."""
    answer = run(*arguments, "--json")
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


def refusal(*arguments: object, **environment: str) -> str:
    """The one line on standard error of a command that fails."""
    answer = run(*arguments, **environment)
    assert answer.returncode == 1, answer.stdout + answer.stderr
    assert answer.stderr.startswith("tflm: ")
    assert answer.stderr.count("\n") == 1
    return answer.stderr


@pytest.fixture
def two_inputs(tmp_path: Path) -> Path:
    """A model of x + 2 y, in int8, by way of two sums."""
    builder = tflm.ModelBuilder("x + 2 y")
    main = builder.subgraph()
    x, y = (main.input(name, (1, 4), TensorType.INT8, tflm.quantized(0.5)) for name in "xy")
    h, z = (main.tensor(name, (1, 4), TensorType.INT8, tflm.quantized(0.5)) for name in "hz")
    main.operator(BuiltinOperator.ADD, [x, y], [h], AddOptions())
    main.operator(BuiltinOperator.ADD, [h, y], [z], AddOptions())
    main.output(z)
    path = tmp_path / "two inputs.tflite"
    path.write_bytes(builder.build())
    return path


# --- The program itself ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command", ["arena", "compare", "device-log", "export", "gate", "inspect", "json-schema", "plan", "profile", "run"]
)
def test_each_command_explains_itself_with_an_example(command: str) -> None:
    answer = run(command, "--help", COLUMNS="200")
    assert answer.returncode == 0
    assert answer.stdout.startswith(f"Usage: tflm {command} ")
    assert f"\n    tflm {command} " in answer.stdout.partition("Example")[2]


def test_the_program_lists_its_commands_and_its_version() -> None:
    listed = run("--help")
    assert "arena" in listed.stdout
    bare = run()
    assert (bare.returncode, bare.stdout, bare.stderr) == (0, listed.stdout, "")
    ours, followed = run("--version").stdout.splitlines()
    assert ours == f"tflm {tflm.__version__}"
    assert TFLM_COMMIT in followed


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing"],
        ["run", "--bad", INT8_MODEL],
        ["run", INT8_MODEL],
        ["arena"],
        ["arena", INT8_MODEL, "--planner", "none"],
        ["arena", INT8_MODEL, "--second-planner", "linear"],
        ["arena", INT8_MODEL, FLOAT_MODEL, "--html", "page.html"],
        ["arena", INT8_MODEL, FLOAT_MODEL, "--node-data", "data.json"],
        ["arena", INT8_MODEL, "--boards", "--badge", "badge.svg"],
        ["gate", INT8_MODEL, "--budget", "much"],
        ["json-schema", "nothing"],
        ["run", INT8_MODEL, "--random", -1],
        ["run", INT8_MODEL, "--random", 1, "--dump-tensors"],
        ["run", INT8_MODEL, "--inputs", "in.npz", "--steps", 2],
        ["compare", INT8_MODEL, "recorded.npz", "--inputs", "in.npz"],
        ["compare", INT8_MODEL, "recorded.npz", "--seed", 1],
        ["compare", INT8_MODEL, FLOAT_MODEL, "--inputs", "in.npz", "--steps", 2],
        ["compare", INT8_MODEL, FLOAT_MODEL, "--tolerance", "nan"],
        ["arena", INT8_MODEL, "--target", "cortex-m4", "--ram", 0],
        ["profile", INT8_MODEL, "--runs", 0],
        ["arena", INT8_MODEL, "--target", "z80"],
        ["run", INT8_MODEL, "--random", 1, "--target", "z80"],
        ["export", INT8_MODEL, "somewhere", "--target", "z80"],
    ],
    ids=lambda arguments: " ".join(Path(str(argument)).name for argument in arguments),
)
def test_wrong_usage_ends_with_status_2_and_nothing_on_standard_output(arguments: list[object]) -> None:
    answer = run(*arguments)
    assert answer.returncode == 2
    assert answer.stdout == ""
    assert answer.stderr.startswith("Usage: tflm ")
    assert "Error: " in answer.stderr.splitlines()[-1]


COMMANDS: dict[str, Callable[[object], list[object]]] = {
    "arena": lambda model: ["arena", model],
    "compare": lambda model: ["compare", model, FLOAT_MODEL],
    "export": lambda model: ["export", model, "somewhere"],
    "inspect": lambda model: ["inspect", model],
    "plan": lambda model: ["plan", model],
    "profile": lambda model: ["profile", model],
    "run": lambda model: ["run", model, "--random", 1],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_that_is_not_there_is_named(command: str, tmp_path: Path) -> None:
    assert "nothing.tflite: No such file" in refusal(*COMMANDS[command](tmp_path / "nothing.tflite"))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_that_is_no_model_is_named_with_what_is_wrong(command: str) -> None:
    assert "README.md: " in refusal(*COMMANDS[command](EXAMPLE / "README.md"))


def test_a_traceback_is_shown_on_request() -> None:
    answer = run("--debug", "inspect", EXAMPLE / "README.md")
    assert answer.returncode == 1
    assert "Traceback" in answer.stderr


def test_an_operator_that_is_not_there_is_named(tmp_path: Path) -> None:
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 4), TensorType.FLOAT32)
    y = main.tensor("y", (1, 4), TensorType.FLOAT32)
    main.operator("NOBODYS_OWN", [x], [y])
    main.output(y)
    (tmp_path / "own.tflite").write_bytes(builder.build())
    for command in ("arena", "compare", "export", "profile", "run"):
        assert "NOBODYS_OWN" in refusal(*COMMANDS[command](tmp_path / "own.tflite"))
    assert "NOBODYS_OWN" in run("inspect", tmp_path / "own.tflite").stdout


def on_a_terminal(*arguments: object) -> str:
    """Return the command's output to standard error if that is a terminal."""
    import pty  # is not there on Windows

    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "tflm", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLE.parents[1]), "TERM": "xterm"}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs, env=environment) as process:
        os.close(theirs)
        written = b""
        with contextlib.suppress(OSError):  # how Linux says that the other end is closed
            while part := os.read(ours, 4096):
                written += part
        os.close(ours)
    assert process.returncode == 0
    return written.decode()


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_what_is_done_at_once_shows_no_bar() -> None:
    assert on_a_terminal("profile", INT8_MODEL, "--runs", 1) == ""


@pytest.mark.parametrize(
    ("patience", "terminal", "shown"), [(0.0, True, True), (0.0, False, False), (60.0, True, False)]
)
def test_a_bar_is_for_terminals_and_for_what_takes_long(
    monkeypatch: pytest.MonkeyPatch, patience: float, terminal: bool, shown: bool
) -> None:
    screen = io.StringIO()
    screen.isatty = lambda: terminal  # type: ignore[method-assign]
    monkeypatch.setattr(output, "PATIENCE_SECONDS", patience)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with output.progress("working", 2) as advance:
        for _ in range(2):
            time.sleep(0.1)
            advance()
    assert ("working" in screen.getvalue()) == shown


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["arena", "--help"], ["--version"], ["inspect", INT8_MODEL], ["inspect", INT8_MODEL, "--json"]],
    ids=lambda arguments: " ".join(map(str, arguments[::2])),
)
def test_a_reader_that_stops_early_ends_the_command_as_sigpipe_would(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "tflm", *map(str, arguments)]
    with open(writer, "wb") as output_end:
        answer = subprocess.run(command, stdout=output_end, stderr=subprocess.PIPE, timeout=60, check=False)
    assert (answer.returncode, answer.stderr) == (141, b"")


@pytest.mark.parametrize("arguments", [["arena", "no_file"], ["arena", "--no-option"], ["--debug", "arena", "no_file"]])
def test_a_reader_of_errors_that_stops_early_ends_the_command_as_sigpipe_would(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "tflm", *arguments]
    with open(writer, "wb") as output_end:
        answer = subprocess.run(command, stdout=output_end, stderr=subprocess.STDOUT, timeout=60, check=False)
    assert answer.returncode == 141


def test_windows_names_a_closed_pipe_differently(monkeypatch: pytest.MonkeyPatch) -> None:
    closed, invalid = OSError(errno.EINVAL, "Invalid argument"), OSError(errno.EINVAL, "Invalid argument", "a?.json")
    assert not group._is_closed_pipe(closed)
    monkeypatch.setattr(group, "os", SimpleNamespace(name="nt"))
    assert group._is_closed_pipe(closed)
    assert not group._is_closed_pipe(invalid)
    assert not group._is_closed_pipe(OSError(errno.ENOSPC, "No space left on device"))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["inspect", INT8_MODEL, "--json"]])
def test_output_that_cannot_be_written_is_an_error_in_one_line(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "tflm", *map(str, arguments)]
    with open("/dev/full", "wb") as full:
        answer = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
    assert (answer.returncode, answer.stderr) == (1, b"tflm: No space left on device\n")


@pytest.mark.skipif(os.name == "nt", reason="needs a POSIX shell")
def test_a_closed_output_is_no_error() -> None:
    command = f"{sys.executable} -m tflm inspect {INT8_MODEL} >&-"
    answer = subprocess.run(["sh", "-c", command], capture_output=True, timeout=60, check=False)
    assert (answer.returncode, answer.stderr) == (0, b"")


def completions(shell: str, words: str) -> str:
    """Return the command's completions for the last of some words."""
    bash = {"COMP_WORDS": words, "COMP_CWORD": f"{len(words.split()) - 1}"}
    return run(**bash, _TYPER_COMPLETE_ARGS=words, _TFLM_COMPLETE=f"complete_{shell}").stdout


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_shell_completes_commands_options_and_names(shell: str) -> None:
    assert "arena" in completions(shell, "tflm ar")
    assert "run" not in completions(shell, "tflm ar")
    assert "--target" in completions(shell, "tflm export --ta")
    assert "cortex-m" in completions(shell, "tflm arena --target cor")
    assert "best_fit" in completions(shell, "tflm arena --planner be")


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_is_a_script_that_the_shell_takes(shell: str) -> None:
    script = run(_TFLM_COMPLETE=f"source_{shell}").stdout
    assert "_TFLM_COMPLETE" in script
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} in $PATH")
    subprocess.run([shell, "-n", "-c", script], check=True, timeout=60)


LOADED = """
import contextlib, io, sys
from tflm.cli.app import app
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    app(sys.argv[1:])
print(*sys.modules)
"""


def loaded(*arguments: object) -> set[str]:
    """The modules, and packages of `tflm`, that a command imports."""
    command = [sys.executable, "-c", LOADED, *map(str, arguments)]
    names = subprocess.check_output(command, text=True, cwd=EXAMPLE.parents[1]).split()
    return {*names, *(".".join(name.split(".")[:2]) for name in names)}


def test_the_help_loads_no_command() -> None:
    found = loaded("--help")
    assert not {"numpy", "rich", "flatbuffers"} & found
    packages = {name for name in found if name.startswith("tflm.") and name.count(".") == 1}
    assert packages == {"tflm.application", "tflm.cli", "tflm.errors", "tflm.hooks", "tflm.release", "tflm.report"}


def test_arena_loads_what_it_needs() -> None:
    found = loaded("arena", INT8_MODEL)
    assert "tflm.runtime" in found
    others = {"boards", "c", "delegates", "evaluation", "planning", "quantization", "rewriting", "testing"}
    assert not {f"tflm.{package}" for package in others} & found
    assert (
        not {"matplotlib", "numba", "llvmlite", "rich", "hashlib", "tflm.firmware.board_fit", "tflm.arena_page"} & found
    )
    assert "tflm.boards" in loaded("arena", INT8_MODEL, "--board", "pico")


# --- tflm arena --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", tflm.targets.TARGETS)
def test_arena_gives_the_figures_of_the_library(target: str) -> None:
    (model,) = figures("arena", INT8_MODEL, "--target", target)["models"]
    machine = tflm.targets.by_name(target)
    measured = tflm.measure_arena(tflm.Model.from_file(INT8_MODEL), tflm.AllOpsResolver(), target=machine)
    assert model["arena_used_bytes"] == measured.arena_used_bytes
    assert model["minimum_arena_bytes"] == measured.minimum_arena_bytes
    assert model["head_bytes"] + model["tail_bytes"] == model["arena_used_bytes"]
    assert [buffer["offset"] for buffer in model["buffers"]] == [buffer.offset for buffer in measured.buffers]


def test_a_budget_that_is_kept_and_one_that_is_not() -> None:
    needed = figures("arena", INT8_MODEL)["needed_bytes"]
    assert run("arena", INT8_MODEL, "--budget", needed).returncode == 0
    assert f"1 more than the budget of {needed - 1:,}" in refusal("arena", INT8_MODEL, "--budget", needed - 1)
    assert run("arena", INT8_MODEL, "--budget", "64K").returncode == 0
    assert run("arena", INT8_MODEL, "--budget", "plenty").returncode == 2


def test_all_targets_are_one_table() -> None:
    lines = run("arena", INT8_MODEL, "--all-targets").stdout.splitlines()
    assert {line.split()[1] for line in lines[1:]} == set(tflm.targets.TARGETS)


def test_models_that_share_an_arena_share_its_head(two_inputs: Path) -> None:
    answer = figures("arena", INT8_MODEL, two_inputs)
    models, shared = answer["models"], answer["shared"]
    assert shared["head_bytes"] == max(model["head_bytes"] for model in models)
    assert max(model["tail_bytes"] for model in models) < shared["tail_bytes"] < sum(m["tail_bytes"] for m in models)
    assert answer["needed_bytes"] >= shared["arena_used_bytes"]
    sizes = (answer["needed_bytes"], *(shared[key] for key in ("arena_used_bytes", "head_bytes", "tail_bytes")))
    lines = run("arena", INT8_MODEL, two_inputs).stdout.splitlines()[-4:]
    assert all(f"  {size:,} B" in line for line, size in zip(lines, sizes, strict=True))


def test_the_plan_can_be_drawn(tmp_path: Path) -> None:
    answer = run(
        *(
            "arena",
            INT8_MODEL,
            "--second-planner",
            "linear",
            "--html",
            tmp_path / "a.html",
            "--plot",
            tmp_path / "a.svg",
        )
    )
    assert answer.returncode == 0, answer.stderr
    page = (tmp_path / "a.html").read_text()
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page
    assert "<svg" in (tmp_path / "a.svg").read_text()


@pytest.mark.parametrize(("former", "present"), [("--beside", "--second-planner")])
def test_a_former_name_of_an_option_works_and_says_the_present_one(former: str, present: str) -> None:
    for given in ([former, "unknown"], [f"{former}=unknown"]):
        answer = run("arena", INT8_MODEL, *given)
        assert (answer.returncode, "unknown planner 'unknown'" in answer.stderr) == (2, True)
        assert f"{former} is deprecated; use {present}" in answer.stderr
    assert former not in run("arena", "--help").stdout


def test_a_name_in_the_model_can_not_break_out_of_the_page(tmp_path: Path) -> None:
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("</script><script>alert(1)</script>", (4,), TensorType.FLOAT32)
    y = main.tensor("y", (4,), TensorType.FLOAT32)
    main.operator(BuiltinOperator.RELU, [x], [y])
    main.output(y)
    (tmp_path / "m.tflite").write_bytes(builder.build())
    assert run("arena", tmp_path / "m.tflite", "--html", tmp_path / "a.html").returncode == 0
    assert "</script><script>alert" not in (tmp_path / "a.html").read_text()


@pytest.mark.parametrize("option", ["--html", "--plot"])
def test_a_picture_that_can_not_be_written_is_named(option: str, tmp_path: Path) -> None:
    assert "no folder/a.svg: no folder" in refusal("arena", INT8_MODEL, option, tmp_path / "no folder" / "a.svg")


@pytest.mark.parametrize("name", ["a.docx", "a"])
def test_a_kind_of_picture_that_does_not_exist_is_refused(name: str, tmp_path: Path) -> None:
    assert f"{name}: " in refusal("arena", INT8_MODEL, "--plot", tmp_path / name)
    assert list(tmp_path.iterdir()) == []


# --- tflm run ----------------------------------------------------------------------------------------------------


def test_answers_of_several_steps_are_kept(two_inputs: Path, tmp_path: Path) -> None:
    steps = [(np.full((1, 4), s, np.int8), np.full((1, 4), 10, np.int8)) for s in range(3)]
    arrays = {f"in_{s}_{i}": values for s, pair in enumerate(steps) for i, values in enumerate(pair)}
    np.savez(tmp_path / "in.npz", **arrays)
    answer = run(
        "run", two_inputs, "--inputs", tmp_path / "in.npz", "--outputs", tmp_path / "out.npz", "--dump-tensors"
    )
    assert answer.returncode == 0, answer.stderr
    out = np.load(tmp_path / "out.npz")
    assert [out[f"out_{s}_0"].tolist() for s in range(3)] == [[[20 + s] * 4] for s in range(3)]
    assert out["tensor_2_2"].tolist() == [[12] * 4]


@pytest.mark.parametrize("suffix", [".npy", ".bin"])
def test_one_tensor_may_be_a_file_of_its_own(suffix: str, tmp_path: Path) -> None:
    value = np.array([[42]], np.int8)
    given, answered = tmp_path / f"in{suffix}", tmp_path / f"out{suffix}"
    if suffix == ".npy":
        np.save(given, value)
    else:
        given.write_bytes(value.tobytes())
    assert run("run", INT8_MODEL, "--inputs", given, "--outputs", answered).returncode == 0
    answer = np.load(answered) if suffix == ".npy" else np.frombuffer(answered.read_bytes(), np.int8)
    np.savez(tmp_path / "in.npz", in_0_0=value)
    (expected,) = figures("run", INT8_MODEL, "--inputs", tmp_path / "in.npz")["outputs"]
    assert answer.reshape(-1).tolist() == np.array(expected["values"]).reshape(-1).tolist()


def test_random_inputs_are_the_same_for_the_same_seed() -> None:
    answers = [figures("run", INT8_MODEL, "--random", seed, "--steps", 5)["outputs"] for seed in (7, 7, 8)]
    assert answers[0] == answers[1] != answers[2]


INPUTS = {
    "no such file": (None, "in.npz: No such file"),
    "no npz": (b"what is this", "is not a .npz file"),
    "nothing called in": ({"x": np.zeros((1, 4), np.int8)}, "has 1 arrays, but the model has 2 inputs"),
    "a name of another form": ({"in_0": np.zeros((1, 4), np.int8)}, "'in_0' should be called in_<step>_<i>"),
    "an input is missing": ({"in_0_0": np.zeros((1, 4), np.int8)}, "in_0_1 is missing; the model has 2 inputs"),
    "an object": ({"in_0_0": np.array([object()])}, "'in_0_0' is not an array"),
    "a step that is far away": ({"in_99999999999_0": np.zeros((1, 4), np.int8)}, "in_0_0 is missing"),
    "a step is missing": ({f"in_1_{i}": np.zeros((1, 4), np.int8) for i in range(2)}, "in_0_0 is missing"),
    "too many": ({f"in_0_{i}": np.zeros((1, 4), np.int8) for i in range(3)}, "in_0_2 is too many"),
    "another shape": (
        {f"in_0_{i}": np.zeros(5, np.int8) for i in range(2)},
        "input 'x' takes shape [1, 4], or [N, 4] for N samples, not [5]",
    ),
    "another type": (
        {f"in_0_{i}": np.full((1, 4), 300) for i in range(2)},
        "has int64 numbers from 300 to 300; input 'x' takes int8",
    ),
}


@pytest.mark.parametrize(("content", "message"), INPUTS.values(), ids=INPUTS)
def test_inputs_that_do_not_fit_are_refused(two_inputs: Path, tmp_path: Path, content: Any, message: str) -> None:
    path = tmp_path / "in.npz"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        np.savez(path, **content)
    assert message in refusal("run", two_inputs, "--inputs", path)


def test_an_npz_that_is_broken_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "in.npz"
    np.savez(path, in_0_0=np.zeros((1, 1), np.int8))
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert "in.npz: is not a .npz file" in refusal("run", INT8_MODEL, "--inputs", path)
    path.write_bytes(whole.replace(b"\x93NUMPY", b"\x93NOMPY"))
    assert "in.npz: 'in_0_0' is not an array" in refusal("run", INT8_MODEL, "--inputs", path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("in_0_0.npy", "no array")
    assert "in.npz: 'in_0_0' is not an array" in refusal("run", INT8_MODEL, "--inputs", path)


def test_a_single_file_is_refused_where_there_is_more_than_one_tensor(two_inputs: Path, tmp_path: Path) -> None:
    (tmp_path / "in.bin").write_bytes(bytes(4))
    assert "the model has 2 inputs; give them in an .npz" in refusal("run", two_inputs, "--inputs", tmp_path / "in.bin")
    (tmp_path / "long.bin").write_bytes(bytes(4))
    assert "has 4 bytes; the input is int8 of shape [1, 1]" in refusal(
        "run", INT8_MODEL, "--inputs", tmp_path / "long.bin"
    )
    assert "use an .npz for several" in refusal(
        *("run", INT8_MODEL, "--random", 1, "--steps", 2, "--outputs", tmp_path / "out.npy")
    )


def test_outputs_that_can_not_be_written_are_named(tmp_path: Path) -> None:
    for name in ("out.npz", "out.npy", "out.bin"):
        path = tmp_path / "no folder" / name
        assert f"{name}: no folder" in refusal("run", INT8_MODEL, "--random", 1, "--outputs", path)
    assert "is a directory" in refusal("run", INT8_MODEL, "--random", 1, "--outputs", tmp_path)


@pytest.fixture
def negation(tmp_path: Path) -> Path:
    """A model of -x, for four floats."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x, y = main.input("x", (4,), TensorType.FLOAT32), main.tensor("y", (4,), TensorType.FLOAT32)
    main.operator(BuiltinOperator.NEG, [x], [y])
    main.output(y)
    path = tmp_path / "negation.tflite"
    path.write_bytes(builder.build())
    return path


def test_numbers_that_json_lacks_are_text(negation: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", np.array([1, np.nan, np.inf, -np.inf], np.float32))
    (output,) = figures("run", negation, "--inputs", tmp_path / "in.npy")["outputs"]
    assert output["values"] == [-1, "NaN", "-Infinity", "Infinity"]


# --- tflm inspect, tflm profile ----------------------------------------------------------------------------------


def test_inspect_counts_what_the_file_holds() -> None:
    report = figures("inspect", INT8_MODEL)
    assert report["file_bytes"] == INT8_MODEL.stat().st_size
    assert report["multiply_accumulates"] == 16 + 16 * 16 + 16
    (subgraph,) = report["subgraphs"]
    assert [op["operator"] for op in subgraph["operators"]] == ["FULLY_CONNECTED"] * 3
    assert sum(tensor["file_bytes"] for tensor in subgraph["tensors"]) == report["constant_bytes"]
    assert "FULLY_CONNECTED" in run("inspect", INT8_MODEL).stdout


def test_profile_times_each_operator() -> None:
    report = figures("profile", INT8_MODEL, "--runs", 3, "--delegate", "none")
    assert sorted(operator["index"] for operator in report["operators"]) == [0, 1, 2]
    assert sum(operator["share"] for operator in report["operators"]) == pytest.approx(1)
    printed = run("profile", INT8_MODEL, "--runs", 3, "--delegate", "none").stdout
    assert printed[0] in "123456789"


def test_a_profile_whose_rows_do_not_add_up_to_its_headline_says_so() -> None:
    close = 100 * FAR_APART
    assert disagreement_line(100, 100 + close) == disagreement_line(100, 100 - close) == ""
    assert "" not in (disagreement_line(100, 101 + close), disagreement_line(100, 99 - close))
    assert "add up to 25.0 us, 0.25 of it: the machine may have been busy" in disagreement_line(100, 25)
    assert "add up to 400.0 us, 4.00 of it: timing takes" in disagreement_line(100, 400)
    operators = [OperatorTime(0, 0, "RELU", 1.0, 25.0, 0.1, 0), OperatorTime(1, 0, "RELU", 1.0, 75.0, 0.3, 0)]
    assert timing_report(100, 3, operators).notes == [disagreement_line(100, 25)]
    assert timing_report(25, 3, operators).notes == []
    timed = [operators[0], replace(operators[0], multiply_accumulates=50), OperatorTime(0, 1, "ADD", 1.0, 0.0, 0.0, 5)]
    (table,) = timing_report(25, 3, timed).tables
    assert [(row[-2], row[-1]) for row in table.rows] == [("", ""), ("50", "2"), ("5", "")]
    report = figures("profile", INT8_MODEL, "--runs", 3)
    total = sum(operator["microseconds"] for operator in report["operators"])
    assert report["operators_microseconds"] == pytest.approx(total)


# --- tflm compare ------------------------------------------------------------------------------------------------


def test_a_model_equals_itself() -> None:
    report = figures("compare", INT8_MODEL, INT8_MODEL, "--tolerance", 0)
    assert report["outputs_agree"]
    assert all(tensor["largest_error"] == 0 for tensor in report["tensors"])
    assert run("compare", INT8_MODEL, INT8_MODEL, "--tolerance", 0, "--check").returncode == 0


def test_a_quantized_model_is_near_its_float_form() -> None:
    report = figures("compare", FLOAT_MODEL, INT8_MODEL)
    assert report["outputs"][0]["snr_db"] > 30
    assert report["first_diverging"] is None


def test_the_first_operator_that_diverges_is_named(tmp_path: Path) -> None:
    def chain(second: float) -> bytes:
        builder = tflm.ModelBuilder()
        main = builder.subgraph()
        tensors = [main.input("x", (1, 4), TensorType.FLOAT32)]
        for i, factor in enumerate((1.0, second, 3.0)):
            weights = main.constant(f"w{i}", np.eye(4, dtype=np.float32) * np.float32(factor))
            tensors.append(main.tensor(f"t{i}", (1, 4), TensorType.FLOAT32))
            options = FullyConnectedOptions(fused_activation_function=ActivationFunctionType.NONE)
            main.operator(BuiltinOperator.FULLY_CONNECTED, [tensors[i], weights, -1], [tensors[-1]], options)
        main.output(tensors[-1])
        return builder.build()

    for name, factor in (("a", 2.0), ("b", 4.0)):
        (tmp_path / f"{name}.tflite").write_bytes(chain(factor))
    report = figures("compare", tmp_path / "a.tflite", tmp_path / "b.tflite")
    assert report["first_diverging"]["tensor"] == "t1"
    assert report["first_diverging"]["operator"] == "1 FULLY_CONNECTED"
    assert "is off by" in refusal("compare", tmp_path / "a.tflite", tmp_path / "b.tflite", "--check")


def test_a_model_is_held_to_recorded_answers(tmp_path: Path) -> None:
    (output,) = figures("run", INT8_MODEL, "--random", 3)["outputs"]
    given = np.random.default_rng(3).integers(-128, 127, (1, 1), endpoint=True).astype(np.int8)
    right = np.array(output["values"], np.int8)
    np.savez(tmp_path / "right.npz", in_0_0=given, out_0_0=right)
    np.savez(tmp_path / "wrong.npz", in_0_0=given, out_0_0=right ^ 1)
    check = ("--tolerance", 0, "--check")
    assert run("compare", INT8_MODEL, tmp_path / "right.npz", *check).returncode == 0
    assert "is off by" in refusal("compare", INT8_MODEL, tmp_path / "wrong.npz", *check)


RECORDINGS = {
    "no such file": (None, "recorded.npz: No such file"),
    "no outputs": ({"in_0_0": np.zeros((1, 1), np.int8)}, "out_0_0 is missing"),
    "another shape": (
        {"out_0_0": np.zeros((2, 1), np.int8)},
        "out_0_0 is int8 of [2, 1], the model returns int8 of [1, 1]",
    ),
    "another type": ({"out_0_0": np.array([["a"]])}, "out_0_0 is <U1 of [1, 1], the model returns int8 of [1, 1]"),
}


@pytest.mark.parametrize(("content", "message"), RECORDINGS.values(), ids=RECORDINGS)
def test_recorded_answers_that_do_not_fit_are_refused(tmp_path: Path, content: Any, message: str) -> None:
    path = tmp_path / "recorded.npz"
    if content is not None:
        np.savez(path, **{"in_0_0": np.zeros((1, 1), np.int8), **content})
    assert message in refusal("compare", INT8_MODEL, path)


def test_a_nan_on_one_side_is_a_difference_and_one_on_both_is_none(negation: Path, tmp_path: Path) -> None:
    x = np.array([1, np.nan, np.inf, -np.inf], np.float32)
    np.savez(tmp_path / "both.npz", in_0_0=x, out_0_0=-x)
    np.savez(tmp_path / "one.npz", in_0_0=x, out_0_0=np.nan_to_num(-x, posinf=np.inf, neginf=-np.inf))
    report = figures("compare", negation, tmp_path / "both.npz", "--tolerance", 0, "--check")
    assert report["outputs"][0]["largest_error"] == 0
    assert "is off by inf" in refusal("compare", negation, tmp_path / "one.npz", "--check")


def test_models_of_different_shapes_can_not_be_compared(two_inputs: Path) -> None:
    assert "different inputs" in refusal("compare", INT8_MODEL, two_inputs)


def test_inspect_checks_a_model(tmp_path: Path) -> None:
    """Errors end it with status 1; warnings are printed."""
    good, odd, bad = (tmp_path / f"{name}.tflite" for name in ("good", "odd", "bad"))
    data = INT8_MODEL.read_bytes()
    good.write_bytes(data)
    odd.write_bytes(data[:4] + bytes(4) + data[8:])
    bad.write_bytes(data[: len(data) // 2])
    assert run("inspect", good, "--check").stdout == "no errors or warnings\n"
    answer = run("inspect", odd, "--check")
    assert answer.returncode == 0
    assert answer.stdout.startswith("warning: ")
    (finding,) = figures("inspect", odd, "--check")["findings"]
    assert finding["level"] == "warning"
    answer = run("inspect", bad, "--check")
    assert answer.returncode == 1
    assert "error: " in answer.stdout


def test_the_tflm_of_the_firmware_is_named() -> None:
    """Its figures are those of the release, and the document says which it is."""
    older = figures("arena", INT8_MODEL, "--target", "cortex-m4", "--tflm", "2021-05-13")
    today = figures("arena", INT8_MODEL, "--target", "cortex-m4")
    assert "7ab94a02c" not in today["release"]
    assert older["release"] == tflm.releases.by_name("2021-05-13").name
    assert older["models"][0]["tail_bytes"] < today["models"][0]["tail_bytes"]
    assert {each["release"] for each in older["other_kernels"]} == {older["release"]}
    assert "unknown release 'esp 1'" in run("arena", INT8_MODEL, "--tflm", "esp 1").stderr


def test_releases_are_listed() -> None:
    assert "71fba59b5" in run("releases", "zephyr").stdout
    listed = {(each["name"], each["version"]) for each in figures("releases")["releases"]}
    assert {("chirale", "2.0.0"), ("esphome", "2025.5")} <= listed
    assert "unknown distribution" in run("releases", "esp").stderr
