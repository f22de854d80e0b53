"""The pytest fixture for a firmware, and serial ports as pyserial has them."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from simulated_device import LossyLink, SimulatedDevice
from test_device import model_with_state

import tflm
import tflm.testing.device
from tflm.device import Device
from tflm.device.transports import SerialWire
from tflm.testing.device import embedded_device

TESTS = """
def test_one(device):
    device.invoke()
    assert device.invokes == 1

def test_two(device):
    device.invoke()
    assert device.invokes in (1, 2)
"""


class EmbeddedServices:
    """The option of pytest-embedded, and what is kept of a run of tests."""

    def __init__(self) -> None:
        self.outcomes: list[str] = []

    def pytest_addoption(self, parser: pytest.Parser) -> None:
        parser.addoption("--embedded-services")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.outcomes.append(report.outcome)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[list[str], list[Any]]]:
    """Runs two tests of a firmware with options; returns their outcomes, and the devices that were connected."""
    (tmp_path / "test_of_firmware.py").write_text(TESTS)
    (tmp_path / "m.tflite").write_bytes(model_with_state().data)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)

    def run_tests(*options: str) -> tuple[list[str], list[Any]]:
        connected = []

        def connect(port: str, model: tflm.Model | None) -> Device:
            device = Device(lambda: LossyLink(SimulatedDevice(model_with_state())), model)
            connected.append((port, model is not None, device))
            return device

        monkeypatch.setattr(tflm.testing.device, "connect", connect)
        embedded = EmbeddedServices()
        arguments = ["-p", "no:cacheprovider", "-p", "no:faulthandler", "-p", "no:terminal"]
        arguments += ["-p", "no:unraisableexception"]  # which collects garbage of all tests, several times
        arguments += ["--import-mode=importlib", "--rootdir"]
        pytest.main([*arguments, str(tmp_path), str(tmp_path), *options], [tflm.testing.device, embedded])
        return embedded.outcomes, connected

    return run_tests


def test_without_a_port_the_tests_of_a_firmware_are_skipped(run: Any) -> None:
    assert run() == (["skipped", "skipped"], [])


def test_tests_share_a_device_which_is_closed_after_them(run: Any, tmp_path: Path) -> None:
    outcomes, connected = run("--tflm-port", "tcp:there:1")
    assert outcomes == ["passed", "passed"]
    ((port, has_model, device),) = connected
    assert (port, has_model, device.invokes) == ("tcp:there:1", False, 2)


def test_each_test_has_a_device_where_each_starts_an_emulator(run: Any, tmp_path: Path) -> None:
    options = ["--tflm-port", "tcp:there:1", "--tflm-model", str(tmp_path / "m.tflite"), "--embedded-services", "qemu"]
    outcomes, connected = run(*options)
    assert outcomes == ["passed", "passed"]
    assert [(port, has_model, device.invokes) for port, has_model, device in connected] == [
        ("tcp:there:1", True, 1)
    ] * 2


@pytest.mark.parametrize(
    ("failures", "connections"),
    [
        ([tflm.DeviceError("no answer")] * 3, 4),
        ([tflm.DeviceError("no answer"), tflm.WrongModel("another model")], 2),
        (itertools.repeat(tflm.DeviceError("no answer")), 42),  # at the end of the time once more
    ],
)
def test_a_device_may_take_a_while_to_start(failures: Any, connections: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried again until the time is over, but that of another model is not."""
    clock, tried, remaining = [100.0], [0], iter(failures)

    def connect(port: str, model: tflm.Model | None) -> str:
        tried[0] += 1
        for failure in remaining:
            raise failure
        return port

    def sleep(seconds: float) -> None:
        clock[0] += 0.25

    monkeypatch.setattr(tflm.testing.device, "connect", connect)
    monkeypatch.setattr(tflm.testing.device, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep))
    expected = (
        contextlib.nullcontext() if isinstance(failures, list) and len(failures) == 3 else pytest.raises(tflm.TflmError)
    )
    with expected:
        assert tflm.testing.device._started("port", None) == "port"
    assert tried == [connections]


class Port:
    """A serial port as pyserial has it, to a simulated device; the next call of a method may raise an error."""

    def __init__(self) -> None:
        self.link = LossyLink(SimulatedDevice(model_with_state()))
        self.timeout: float | None = 0.0
        self.received = b""
        self.error: Exception | None = None
        self.is_open = True

    @property
    def in_waiting(self) -> int:
        return len(self.received)

    def read(self, size: int) -> bytes:
        self._fail()
        if not self.received and self.timeout:
            self.received = self.link.read(self.timeout)
        data, self.received = self.received[:size], self.received[size:]
        return data

    def write(self, data: bytes) -> None:
        self._fail()
        self.link.write(data)

    def close(self) -> None:
        self.is_open = False

    def _fail(self) -> None:
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("model", [None, model_with_state()])
def test_the_port_of_pytest_embedded_is_read_by_one_reader(model: tflm.Model | None) -> None:
    port, redirected = Port(), [True]

    @contextlib.contextmanager
    def disable_redirect_thread() -> Iterator[None]:
        redirected[0] = False
        yield
        redirected[0] = True

    serial = SimpleNamespace(port="/dev/ttyACM0", proc=port, disable_redirect_thread=disable_redirect_thread)
    with embedded_device(serial, model) as device:
        device.invoke()
        assert (device.invokes, redirected, port.is_open) == (1, [False], True)
    assert (redirected, port.is_open) == ([True], False)


def test_a_serial_wire_waits_for_the_first_byte_and_takes_all_that_have_come() -> None:
    port = Port()
    wire = SerialWire("port", port)
    port.received = b"abc"
    assert (wire.read(0.25), port.timeout) == (b"abc", 0.25)
    assert wire.read(0.0) == b""


@pytest.mark.parametrize("error", [OSError("Input/output error"), OSError("gone"), TypeError("closed")])
def test_a_serial_wire_tells_that_it_is_cut(error: Exception) -> None:
    port = Port()
    wire = SerialWire("port", port)
    port.error = error
    with pytest.raises(tflm.DeviceReset, match=f"port: the connection is lost: {error}; check the cable"):
        wire.read(0.0)
    if isinstance(error, OSError):
        with pytest.raises(tflm.DeviceReset, match=f"port: the connection is lost: {error}; check the cable"):
            wire.write(b"x")


def test_a_serial_port_that_takes_nothing_for_a_while_is_not_cut() -> None:
    """The request is not answered, and sent again."""
    port = Port()
    port.error = OSError("Write timeout")
    SerialWire("port", port).write(b"x")
