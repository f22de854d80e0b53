"""Wires to a device: a serial port, a socket, or the standard input and output of a program."""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import socket
import subprocess
import sys
from typing import Any, NamedTuple

from tflm.device.session import Transport
from tflm.errors import DeviceError, DeviceReset

BAUD = 115200

CHUNK = 4096


class FileWire(Transport):
    """A wire of one or two file descriptors: a terminal, a socket, or pipes of a program.

    Args:
        name: for errors.
        source, target: descriptors that are read and written.
        owner: closed with them.
    """

    def __init__(self, name: str, source: int, target: int, owner: Any = None):
        self.name, self._source, self._target, self._owner = name, source, target, owner

    def read(self, seconds: float) -> bytes:
        try:
            if not select.select([self._source], [], [], seconds)[0]:
                return b""
            data = os.read(self._source, CHUNK)
        except (OSError, ValueError) as error:
            raise _cut(self.name, error) from None
        if not data:
            raise _cut(self.name, "the other side closed it")
        return data

    def write(self, data: bytes) -> None:
        try:
            while data:
                if not select.select([], [self._target], [], WRITE_SECONDS)[1]:
                    return  # the other side reads nothing: the request will not be answered
                data = data[os.write(self._target, data) :]
        except (OSError, ValueError) as error:
            raise _cut(self.name, error) from None

    def close(self) -> None:
        if self._owner is not None:
            self._owner.close()


WRITE_SECONDS = 1.0
"""How long a write waits for room."""


def _cut(name: str, error: object) -> DeviceReset:
    """The error of a wire that is cut."""
    return DeviceReset(f"{name}: the connection is lost: {error}; check the cable, and connect again")


class _Program:
    """A program that serves at its standard input and output."""

    def __init__(self, command: str):
        words = shlex.split(command)
        try:
            self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        except OSError as error:
            raise DeviceError(f"exec:{command}: {error.strerror or error}") from None

    def close(self) -> None:
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        try:
            self.process.wait(WRITE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class SerialWire(Transport):
    """A serial port, by pyserial or something with its methods `read`, `write`, `close` and its `timeout`."""

    def __init__(self, name: str, port: Any):
        self.name, self._port = name, port

    def read(self, seconds: float) -> bytes:
        try:
            self._port.timeout = seconds
            first = bytes(self._port.read(1))
            return first + bytes(self._port.read(self._port.in_waiting)) if first else b""
        except (OSError, TypeError) as error:  # pyserial raises TypeError for a port that was closed meanwhile
            raise _cut(self.name, error) from None

    def write(self, data: bytes) -> None:
        try:
            self._port.write(data)
        except OSError as error:
            if "timeout" not in str(error).lower():
                raise _cut(self.name, error) from None

    def close(self) -> None:
        self._port.close()


def wire_to(port: str, baud: int = BAUD) -> Transport:
    """Open a wire.

    Args:
        port: a serial port such as /dev/ttyACM0 or COM3; tcp:HOST:PORT or unix:PATH for a socket; or exec:COMMAND for
            a program that serves at its standard input and output.
        baud: of a serial port.

    Raises:
        DeviceError: it cannot be opened, or pyserial is missing.
    """
    kind, _, rest = port.partition(":")
    if kind in ("tcp", "unix") and rest:
        return _to_socket(port, kind, rest)
    if kind == "exec" and rest:
        program = _Program(rest)
        process = program.process
        assert process.stdin is not None
        assert process.stdout is not None
        return FileWire(port, process.stdout.fileno(), process.stdin.fileno(), program)
    return _to_serial(port, baud)


def _to_socket(port: str, kind: str, address: str) -> FileWire:
    host, _, number = address.rpartition(":")
    try:
        if kind == "unix":
            found = _to_unix_socket(address)
        else:
            found = socket.create_connection((host or "localhost", int(number)), WRITE_SECONDS)
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except (OSError, ValueError) as error:
        raise DeviceError(f"{port}: {error}; is the emulator or the bridge running?") from None
    return FileWire(port, found.fileno(), found.fileno(), found)


def _to_unix_socket(address: str) -> socket.socket:
    found = socket.socket(socket.AF_UNIX)
    try:
        found.connect(address)
    except OSError:
        found.close()
        raise
    return found


def _to_serial(port: str, baud: int) -> SerialWire:
    try:
        import serial
    except ImportError:
        raise DeviceError("a serial port needs pyserial: pip install pyserial") from None
    try:
        return SerialWire(port, serial.Serial(port, baud, timeout=0, write_timeout=WRITE_SECONDS))
    except (OSError, ValueError) as error:
        known = ", ".join(each.port for each in serial_ports()) or "none"
        denied = "; add yourself to the group dialout" if "Permission" in str(error) and sys.platform == "linux" else ""
        raise DeviceError(f"{port}: {error}{denied}; ports of this machine: {known}") from None


class SerialPort(NamedTuple):
    """A serial port of this machine.

    Attributes:
        port: its name, as for `--port`.
        description: the system's description.
    """

    port: str
    description: str


def serial_ports() -> list[SerialPort]:
    """The serial ports of this machine.

    Raises:
        DeviceError: pyserial is missing.
    """
    try:
        from serial.tools.list_ports import comports
    except ImportError:
        raise DeviceError("listing serial ports needs pyserial: pip install pyserial") from None
    return sorted(SerialPort(each.device, each.description or "") for each in comports())
