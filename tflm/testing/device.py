"""A pytest fixture for firmware that `tflm export --serve` or `tflm compile --serve` writes.

In a `conftest.py`: `from tflm.testing.device import device, pytest_addoption`. Then `pytest --tflm-port PORT
--tflm-model model.tflite` runs tests that take `device`. With pytest-embedded's serial port, use `embedded_device`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tflm.device import Device, connect
from tflm.device.transports import SerialWire
from tflm.errors import DeviceError, WrongModel
from tflm.schema.model import Model

START_SECONDS = 10.0
"""How long a device may take to start."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--tflm-port` and `--tflm-model`."""
    group = parser.getgroup("tflm")
    group.addoption("--tflm-port", help="the device: a serial port, tcp:HOST:PORT, unix:PATH or exec:COMMAND")
    group.addoption("--tflm-model", help="its model; by default, it is read from the device")


def _scope(fixture_name: str, config: pytest.Config) -> str:
    """With pytest-embedded, which starts an emulator for each test, devices have the scope of a test."""
    return "function" if config.getoption("embedded_services", None) else "session"


@pytest.fixture(scope=_scope)  # type: ignore[arg-type]
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    """The device at `--tflm-port`; tests are skipped without one. With pytest-embedded, name it after `dut`."""
    port = request.config.getoption("--tflm-port", None)
    if not port:
        pytest.skip("needs a device: --tflm-port PORT")
    path = request.config.getoption("--tflm-model", None)
    with _started(port, None if path is None else Model.from_file(path)) as found:
        yield found


def _started(port: str, model: Model | None) -> Device:
    """A device that may have been started just now."""
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            return connect(port, model)
        except WrongModel:
            raise
        except DeviceError:
            if time.monotonic() > end:
                raise
        time.sleep(START_SECONDS / 100)


@contextmanager
def embedded_device(serial: Any, model: Model | None = None) -> Iterator[Device]:
    """The device at the port of pytest-embedded's fixture `serial`, which reads nothing meanwhile.

    With its QEMU, pass `--qemu-extra-args="-serial tcp::5555,server,nowait"` and `--tflm-port tcp:localhost:5555`.

    Args:
        serial: the fixture.
        model: the model; None to read it from the device.
    """
    with serial.disable_redirect_thread(), Device(lambda: SerialWire(str(serial.port), serial.proc), model) as found:
        yield found
