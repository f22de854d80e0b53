"""A device in Python that answers as the firmware does, and a link to it that loses, changes and delays bytes."""

from __future__ import annotations

import os
import select
import struct
import sys
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import tflm
from tflm.device.device import NEVER, DataKind
from tflm.device.session import PROTOCOL, REPLY, Frame, FrameReader, Kind, Status
from tflm.runtime.growing_arena import ready_interpreter
from tflm.runtime.micro_profiler import MicroProfiler

PAYLOAD = 64


def off_by_one(wrong: int) -> Callable[[int, Any], None]:
    """A fault of one operator: one element is off by one."""

    def fault(operator: int, output: Any) -> None:
        if operator == wrong:
            output[0, 1] ^= 1

    return fault


class SimulatedDevice(MicroProfiler):
    """The state machine of the firmware around a model.

    Args:
        model: the model, which runs as here.
        fault: changes the output of an operator, as a wrong kernel would: takes its index and the output.
        overflow: the operator that used up the stack.

    Attributes:
        invokes: how often it was invoked.
        announcing: whether it was asked to announce each operator, in some request.
    """

    def __init__(self, model: tflm.Model, fault: Callable[[int, Any], None] | None = None, overflow: int | None = None):
        super().__init__()
        self.full = 0 if overflow is None else 1 + overflow
        self.model, self.fault = model, fault
        main = model.subgraphs[0]
        self.taken = [[i for i in op.inputs or () if i >= 0] for op in main.operators or ()]
        self.made = [[i for i in op.outputs or () if i >= 0] for op in main.operators or ()]
        self.invokes = 0
        self.announcing: set[bool] = set()
        self.restart()

    def restart(self) -> None:
        """Reset the device: everything in RAM is lost."""
        self.reader = FrameReader(PAYLOAD)
        self.session = self.last = 0
        self.result = b""
        self.paused: int | None = None
        self.begin()

    def begin(self) -> None:
        """A new interpreter."""
        self.interpreter = ready_interpreter(self.model, delegates=[], preserve_all_tensors=True, profiler=self)
        self.memory = (NEVER, NEVER)  # used stack and free heap
        self.table = [(NEVER, 0)] * len(self.made)
        self.tensors: dict[tuple[int, int], bytes] = {}

    def begin_operator(self, tag: str, place: tuple[int, int]) -> int:
        """Keep an operator's inputs."""
        if not place[0]:
            self.tensors |= {(2 * place[1], i): self.bytes_of(i) for i in self.taken[place[1]]}
        return -1 if place[0] else place[1]

    def end_event(self, event_handle: int) -> None:
        """Keep an operator's outputs, and their checksum."""
        if event_handle < 0:
            return
        made = self.made[event_handle]
        if self.fault is not None and made:
            self.fault(event_handle, self.interpreter.get_tensor(made[0]).data)
        checksum = 0
        for i in [*made, *self.taken[event_handle]]:
            self.tensors[2 * event_handle + 1, i] = self.bytes_of(i)
        for i in made:
            checksum = zlib.crc32(self.bytes_of(i), checksum)
        self.table[event_handle] = (event_handle + 7, checksum)

    def bytes_of(self, index: int) -> bytes:
        """The bytes of a tensor."""
        return np.ascontiguousarray(self.interpreter.get_tensor(index).data).tobytes()

    def feed(self, data: bytes) -> bytes:
        """Return what the device sends when it receives these bytes."""
        return b"".join(self.answered(frame) for frame in self.reader.feed(data) if not frame.kind & REPLY)

    def quiet(self) -> bytes:
        """Return what the device sends after a while without input."""
        return b"".join(self.answered(frame) for frame in self.reader.give_up() if not frame.kind & REPLY)

    def answered(self, frame: Frame) -> bytes:
        """The reply to a request."""
        return frame._replace(kind=frame.kind | REPLY, payload=self.payload(frame)).encoded()

    def payload(self, frame: Frame) -> bytes:
        """The payload of the reply."""
        kind, is_new = frame.kind, frame.sequence == self.last + 1
        if kind == Kind.HELLO:
            if frame.session != self.session:
                self.session, self.last, self.paused = frame.session, 0, None
            return bytes([Status.DONE]) + struct.pack("<II", PROTOCOL, PAYLOAD)
        if frame.session != self.session or not (is_new or frame.sequence == self.last):
            return bytes([Status.UNKNOWN_SESSION])
        self.last = frame.sequence
        if kind == Kind.FACTS:
            facts = len(self.model.data), zlib.crc32(self.model.data), 1, *self.memory, len(self.made), 1000, self.full
            return bytes([Status.DONE]) + struct.pack("<8I", *facts) + b"reference kernels"
        if kind in (Kind.INVOKE, Kind.RESUME):
            if is_new:
                announces, stop = struct.unpack("<II", frame.payload)
                self.announcing.add(bool(announces))
                self.run(kind == Kind.INVOKE, stop)
            return self.result
        if kind == Kind.RESET:
            if is_new:
                self.begin()
            return bytes([Status.DONE])
        return self.accessed(kind, frame.payload)

    def run(self, begins: bool, stop: int) -> None:
        """Run to the end, or to the first place from `stop` on."""
        assert begins == (self.paused is None)
        if begins:
            self.interpreter.invoke()
            self.invokes += 1
        stops = stop < 2 * len(self.made)
        self.paused = stop if stops else None
        self.result = bytes([Status.PAUSED if stops else Status.DONE]) + struct.pack(
            "<II", stop if stops else 9, self.full
        )

    def accessed(self, kind: int, request: bytes) -> bytes:
        """The reply to WRITE, READ or CHECKSUM."""
        what, index, begin = struct.unpack_from("<III", request)
        if kind == Kind.WRITE:
            assert what == DataKind.INPUT
            assert self.paused is None
            flat = self.interpreter.input(index).data.reshape(-1).view(np.uint8)
            flat[begin : begin + len(request) - 12] = np.frombuffer(request[12:], np.uint8)
            return bytes([Status.DONE])
        data = {
            DataKind.TENSOR: lambda: (
                self.tensors.get((self.paused or 0, index), b"") if self.paused is not None else b""
            ),
            DataKind.OUTPUT: lambda: np.ascontiguousarray(self.interpreter.output(index).data).tobytes(),
            DataKind.OPERATORS: lambda: struct.pack(
                f"<{2 * len(self.table)}I", *(n for row in self.table for n in row)
            ),
            DataKind.MODEL: lambda: bytes(self.model.data),
        }[DataKind(what)]()
        if kind == Kind.CHECKSUM:
            return bytes([Status.DONE]) + struct.pack("<I", zlib.crc32(self.bytes_of(index)))
        count = struct.unpack_from("<I", request, 12)[0]
        if begin + count > len(data):
            return bytes([Status.OUT_OF_RANGE])
        return bytes([Status.DONE]) + data[begin : begin + count]


class Mishap(NamedTuple):
    """A fault that happens to a byte of either direction, by its number."""

    byte: int
    kind: str
    bit: int


MISHAPS = ("drop", "double", "flip", "late", "again", "chatter", "reset")


class LossyLink:
    """A transport to a simulated device, whose clock only runs while something is waited for.

    Attributes:
        seconds: on that clock.
    """

    name = "lossy"

    def __init__(self, device: SimulatedDevice, mishaps: Sequence[Mishap] = ()):
        self.device = device
        self.seconds = 0.0
        self._mishaps = {mishap.byte: mishap for mishap in mishaps}
        self._count = 0
        self._coming: list[tuple[float, int, bool, bytes]] = []

    def now(self) -> float:
        """The clock."""
        return self.seconds

    def write(self, data: bytes) -> None:
        """Bytes to the device."""
        self._send(data, to_device=True)

    def read(self, seconds: float) -> bytes:
        """Bytes from the device."""
        found = self._deliver()
        if not found:
            self.seconds += seconds
            self._send(self.device.quiet(), to_device=False)
            found = self._deliver()
        return found

    def close(self) -> None:
        """Nothing to close."""

    def _deliver(self) -> bytes:
        """Deliver bytes that are due to the device, and return those for the computer."""
        found = b""
        while due := sorted(each for each in self._coming if each[0] <= self.seconds and each[2]):
            self._coming.remove(due[0])
            self._send(self.device.feed(due[0][3]), to_device=False)
        for each in sorted(each for each in self._coming if each[0] <= self.seconds):
            self._coming.remove(each)
            found += each[3]
        return found

    def _send(self, data: bytes, to_device: bool) -> None:
        at, sent = self.seconds, bytearray()
        for byte in data:
            mishap = self._mishaps.get(self._count)
            self._count += 1
            kind = "" if mishap is None else mishap.kind
            if kind == "reset":
                self.device.restart()
            if kind == "late":
                self._come(at, to_device, bytes(sent))
                at, sent = at + 0.7, bytearray()
            if kind == "again":
                self._come(at + 2.5, to_device, data)
            if kind == "chatter":
                sent += b"E (123) wifi: \xf5\xd7\x30\x00lost\r\n"
            if kind != "drop":
                sent.append(byte ^ (1 << mishap.bit if mishap is not None and kind == "flip" else 0))
            if kind == "double":
                sent.append(byte)
        self._come(at, to_device, bytes(sent))

    def _come(self, at: float, to_device: bool, data: bytes) -> None:
        if data:
            self._coming.append((at, self._count, to_device, data))


def main() -> None:
    """Serve the model that the arguments name, with an operator that is wrong, at standard input and output."""
    wrong = int(sys.argv[2]) if len(sys.argv) > 2 else None
    device = SimulatedDevice(tflm.Model.from_file(sys.argv[1]), None if wrong is None else off_by_one(wrong))
    while True:
        if not select.select([0], [], [], 0.05)[0]:
            os.write(1, device.quiet())
        elif data := os.read(0, 4096):
            os.write(1, device.feed(data))
        else:
            return


if __name__ == "__main__":
    main()
