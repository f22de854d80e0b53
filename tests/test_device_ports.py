"""Devices at serial ports: host firmware behind pseudo-terminals, the command, and flashing tools."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from test_cli import run
from test_device import STEPS, changed_table, firmware, model_with_state
from test_projects import CASES, TINY, machine
from typer.testing import CliRunner

import tflm
from tflm.application.device_flash import flash_device
from tflm.application.errors import RequestError
from tflm.application.export import Firmware
from tflm.application.projects import project_files
from tflm.atomic_write import write_files
from tflm.cli.app import app
from tflm.device.session import Session
from tflm.device.transports import wire_to
from tflm.device.verdict import Status, compare
from tflm.libraries.kernel_library import REFERENCE

tty = pytest.importorskip("tty", reason="has no pseudo-terminals")
pytest.importorskip("serial", reason="needs the extra `device`")

SLOW_COUNTER = """#include <stdio.h>
static int ServedInvoke(void) {{
  FILE *file = fopen("{path}", "a");
  fputc('.', file);
  fclose(file);
  poll(0, 0, 4);
"""


class Board:
    """A board at a serial port: a program behind a pseudo-terminal.

    Attributes:
        port: name of the port, which stays the same when the board is unplugged.
    """

    def __init__(self, program: list[str], port: Path):
        self.port, self._program = port, program
        self.plug_in()

    def plug_in(self) -> None:
        self._end, self._other = os.openpty()
        tty.setraw(self._other)
        self.port.unlink(missing_ok=True)
        self.port.symlink_to(os.ttyname(self._other))
        self._process = subprocess.Popen(self._program, stdin=self._end, stdout=self._end)

    def unplug(self) -> None:
        self._process.kill()
        self._process.wait()
        for each in (self._end, self._other):
            os.close(each)

    def say(self, text: bytes) -> None:
        """Print text, as other code on the board would."""
        os.write(self._end, text)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A firmware that is right."""
    return [firmware(tmp_path_factory.mktemp("firmware")).removeprefix("exec:")]


@pytest.fixture
def board(program: list[str], tmp_path: Path) -> Iterator[Board]:
    found = Board(program, tmp_path / "ttyACM0")
    yield found
    found.unplug()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of the model."""
    (tmp_path / "m.tflite").write_bytes(model_with_state().data)
    return tmp_path / "m.tflite"


def test_the_command_compares_a_board_and_saves_what_it_answered(board: Board, path: Path, tmp_path: Path) -> None:
    answer = run("device", "run", path, "--port", board.port, "--random", "3", "--save", tmp_path / "log.npz", "--json")
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout)
    assert (found["verdict"], found["invokes"], found["operators_compared"]) == ("equal", 3, 3)
    assert all(each["microseconds"] > 0 for each in found["operators"])
    compared = run("compare", path, tmp_path / "log.npz")
    assert compared.returncode == 0, compared.stderr
    shown = run("device", "run", path, "--port", board.port)
    assert shown.stdout.startswith("equal: 3 operators, 3 invokes")


def test_a_board_that_differs_ends_with_status_1(path: Path, tmp_path: Path) -> None:
    port = firmware(tmp_path / "f", lambda text: changed_table(text, "logistic_2"))
    answer = run("device", "run", path, "--port", port, "--json")
    assert answer.returncode == 1, answer.stderr
    assert answer.stderr.startswith("tflm: differs: operator 2 LOGISTIC is wrong in")
    found = json.loads(answer.stdout)
    assert (found["verdict"], found["wrong"]["operator_index"]) == ("differs", 2)


def test_a_board_that_gives_no_answer_ends_with_status_2(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Session.open, "__defaults__", (0.2,))
    board = Board(["sleep", "60"], tmp_path / "ttyACM0")
    answer = CliRunner().invoke(app, ["device", "run", str(path), "--port", str(board.port)])
    board.unplug()
    assert answer.exit_code == 2
    assert "no answer to 'hello' within 0.2 s; nothing came" in answer.stderr


@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_a_socket_that_nobody_serves_is_told_and_closed(kind: str, tmp_path: Path) -> None:
    address = str(tmp_path / "none") if kind == "unix" else "localhost:1"
    with pytest.raises(tflm.DeviceError, match="is the emulator or the bridge running"):
        wire_to(f"{kind}:{address}")


def test_a_request_may_come_in_pieces(program: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy computer's USB, or on a network, the firmware waits for the rest of a frame."""
    monkeypatch.setattr("tflm.device.session.PATIENCE", 4.0)
    wire = wire_to(f"exec:{program[0]}")
    whole, sent = wire.write, []

    def write(data: bytes) -> None:
        sent.append(data)
        for piece in (data[:1], data[1:9], data[9:]):
            whole(piece)
            time.sleep(0.03)

    monkeypatch.setattr(wire, "write", write)
    with tflm.device.Device(lambda: wire, model_with_state()) as device:
        device.invoke()
    assert len(sent) == len(set(sent))


def test_a_board_with_another_model_ends_with_status_1_and_none_with_2(board: Board, tmp_path: Path) -> None:
    (tmp_path / "other.tflite").write_bytes(TINY.data)
    for port, status, text in [(board.port, 1, "has another model"), (tmp_path / "ttyUSB9", 2, "ttyUSB9")]:
        answer = run("device", "run", tmp_path / "other.tflite", "--port", port)
        assert (answer.returncode, answer.stderr.count("\n")) == (status, 1)
        assert text in answer.stderr


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (b"E (123) wifi: no answer\r\n", "bytes came that are no answer: check the baud rate"),
        (bytes(range(128, 256)), "bytes came that are no answer: check the baud rate"),  # as of another rate
        (b"", "nothing came: check the port, the cable and that the firmware runs"),
    ],
)
def test_a_port_with_another_firmware_is_told(said: bytes, text: str, tmp_path: Path) -> None:
    board = Board(["sleep", "60"], tmp_path / "ttyACM0")
    session = Session(wire_to(str(board.port)))
    board.say(said)
    with pytest.raises(tflm.DeviceError, match=r"no answer to 'hello' within 0\.2 s") as error:
        session.open(limit=0.2)
    assert text in str(error.value)
    session.transport.close()
    board.unplug()


def test_what_other_code_prints_does_not_change_the_verdict(board: Board) -> None:
    stop = threading.Event()

    def talk() -> None:
        while not stop.wait(0.003):
            board.say(b"I (1234) wifi: \xf5\xd7 beacon\r\n")

    thread = threading.Thread(target=talk)
    thread.start()
    try:
        with tflm.device.connect(str(board.port), model_with_state()) as device:
            verdict = compare(device, STEPS, target=tflm.targets.HOST, kernels=REFERENCE)
    finally:
        stop.set()
        thread.join()
    assert verdict.status is Status.EQUAL


def test_an_unplugged_cable_is_told_with_the_limit(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tflm.device.device.REOPEN_SECONDS", 0.2)
    with tflm.device.connect(str(board.port), model_with_state()) as device:
        device.invoke()
        board.unplug()
        board.port.unlink()
        with pytest.raises(tflm.DeviceError, match=r"ttyACM0.*(check the cable|ports of this machine)"):
            device.invoke()
        board.plug_in()


SAMPLES = np.random.default_rng(3).integers(-128, 128, (200, 1, 5), np.int8)
LABELS = np.random.default_rng(4).integers(0, 4, 200)


def test_an_evaluation_goes_on_when_the_board_is_back(board: Board) -> None:
    def report(done: int, total: int | None) -> None:
        if done == 3:
            board.unplug()
            threading.Timer(0.1, board.plug_in).start()

    with tflm.device.connect(str(board.port), model_with_state()) as device:
        found = tflm.evaluate(device.model, SAMPLES[:8], LABELS[:8], device=device, report=report)
    expected = tflm.evaluate(model_with_state(), SAMPLES[:8], LABELS[:8], workers=1)
    np.testing.assert_array_equal(found.records["output0"], expected.records["output0"])


def test_an_evaluation_that_is_killed_computes_nothing_twice(path: Path, tmp_path: Path) -> None:
    """The firmware counts its invokes: those of 200 samples, and one that ran when the command was killed."""
    count, results = tmp_path / "count", tmp_path / "results"

    def counted(text: str) -> str:
        begin = "static int ServedInvoke(void) {\n"
        assert text.count(begin) == 1
        return text.replace(begin, SLOW_COUNTER.format(path=count))

    board = Board([firmware(tmp_path / "f", main=counted).removeprefix("exec:")], tmp_path / "ttyACM0")
    np.savez(tmp_path / "data.npz", x=SAMPLES, labels=LABELS)
    words = ["evaluate", path, "--inputs", tmp_path / "data.npz", "--port", board.port, "--results", results, "--json"]
    with subprocess.Popen([sys.executable, "-m", "tflm", *map(str, words)], stdout=subprocess.DEVNULL) as command:
        while command.poll() is None and (not count.exists() or len(count.read_text()) < 60):
            time.sleep(0.005)
        command.send_signal(signal.SIGKILL)
    assert command.returncode == -signal.SIGKILL
    assert 60 <= len(count.read_text()) < 200
    answer = run(*words)
    assert answer.returncode == 0, answer.stderr
    assert len(count.read_text()) in (200, 201)
    expected = tflm.evaluate(model_with_state(), SAMPLES, LABELS, workers=1).classification
    assert expected is not None
    assert json.loads(answer.stdout)["confusion"] == expected.confusion.tolist()
    board.unplug()


# --- The tools that flash ---------------------------------------------------------------------------------------------

TOOL = """#!/bin/sh
echo "$(basename "$0") $*" >>"{log}"
pwd >>"{log}"
exit {status}
"""

FLASHED = {
    "esp-idf": ("idf.py build flash -p PORT", "."),
    "arduino": ("arduino-cli compile --upload -b arduino:mbed_nano:nano33ble my_model -p PORT", "."),
    "zephyr": ("west flash", "."),
    "pico": ("picotool load -f -x build/my_model.uf2", "."),
    "stm32": (
        "openocd -f interface/stlink.cfg -f target/stm32f4x.cfg -c program build/my_model.elf verify reset exit",
        ".",
    ),
    "platformio": ("pio run --target upload --upload-port PORT", "."),
}
OTHERS = {
    "esp-idf": ("esptool.py --chip esp32s3 write_flash @flash_args --port PORT", "build"),
    "stm32": ("pyocd load build/my_model.elf", "."),
}
"""By kind of project: how the preferred tool is called, or the other one, and in which folder."""


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Put substitutes for tools, and no others, into `PATH`; return the file to which they write their arguments."""

    def install(*names: str, status: int = 0) -> Path:
        folder = tmp_path / "bin"
        folder.mkdir()
        for name in names:
            (folder / name).write_text(TOOL.format(log=folder / "log", status=status))
            (folder / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        return folder / "log"

    return install


def project(folder: Path, kind: str, board: str) -> None:
    """A project, and what its build would leave."""
    write_files(folder, project_files(Firmware(TINY, "my model", machine(board), "a test"), kind))
    (folder / "build").mkdir()
    for name in ("my_model.uf2", "my_model.elf", "flash_args"):
        (folder / "build" / name).touch()


@pytest.mark.parametrize(("kind", "called"), [*FLASHED.items(), *OTHERS.items()])
def test_a_project_is_flashed_with_the_tool_of_its_sdk(
    kind: str, called: tuple[str, str], stand_ins: Callable[..., Path], tmp_path: Path
) -> None:
    command, where = called
    project(tmp_path / "p", kind, CASES[kind])
    log = stand_ins(command.split()[0])
    flash_device(tmp_path / "p", machine(CASES[kind]), "PORT", kind)
    assert log.read_text().splitlines() == [command, str((tmp_path / "p" / where).resolve())]


def test_a_tool_that_is_missing_or_fails_is_told(stand_ins: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(
        RequestError, match=r"idf.py \(install ESP-IDF.*\) or esptool.py \(pip install esptool\) is needed"
    ):
        flash_device(tmp_path, machine("esp32-s3-eye"), None)
    stand_ins("picotool", status=3)
    with pytest.raises(RequestError, match="is missing; build the project first"):
        flash_device(tmp_path, machine("pico"), None)
    project(tmp_path / "p", "pico", "pico")
    with pytest.raises(RequestError, match=r"picotool load .* failed with status 3"):
        flash_device(tmp_path / "p", machine("pico"), None)


def test_the_serial_ports_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    list_ports = importlib.import_module("serial.tools.list_ports")
    for ports in ([("/dev/ttyACM1", "Pico"), ("/dev/ttyACM0", None)], []):
        found = [SimpleNamespace(device=name, description=text) for name, text in ports]
        monkeypatch.setattr(list_ports, "comports", lambda found=found: found)
        answer = CliRunner().invoke(app, ["device", "list"])
        assert answer.exit_code == 0
        assert answer.stdout == ("/dev/ttyACM0  \n/dev/ttyACM1  Pico\n" if ports else "")
        assert (answer.stderr == "") == bool(ports)
