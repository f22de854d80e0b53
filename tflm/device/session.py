"""Requests to a device: each is answered, or raises an error within its time limit.

A request is sent again until its answer comes. The device carries out a request with a new number once, and answers one
with the last number again. It forgets the session when it is reset: it refuses all later requests of that session, so
that old contents are never mistaken for new ones.

Frames on the wire are a begin that text never contains, a length, and a CRC-32:

    F5 D7 | length of the payload, 2 bytes | kind | session, 4 | sequence number, 4 | payload | CRC-32, 4

Numbers are little-endian. The CRC-32, that of zlib, is over everything between the first two bytes and itself. A
reader that finds no frame at a begin continues one byte later, so that it finds every whole frame between any other
bytes.
"""

from __future__ import annotations

import secrets
import struct
import time
import zlib
from enum import IntEnum
from typing import NamedTuple, Protocol

from tflm.errors import DeviceError, DeviceReset

BEGIN = b"\xf5\xd7"

HEAD = struct.Struct("<2sHBII")
CHECK = struct.Struct("<I")

MAX_PAYLOAD = 4096
"""Maximum payload of a frame to the computer, in bytes; the device reports its own limit."""

REPLY = 0x80
"""Added to the kind of a request, for its reply."""


class Kind(IntEnum):
    """Kinds of requests, and ANNOUNCE, which a device sends before each operator if it is asked to."""

    HELLO = 1
    FACTS = 2
    WRITE = 3
    INVOKE = 4
    RESUME = 5
    READ = 6
    CHECKSUM = 7
    RESET = 8
    ANNOUNCE = 9


class Frame(NamedTuple):
    """A request, or a reply if `REPLY` is in its kind.

    Attributes:
        kind: the kind of the request.
        session: number of the session, chosen by the computer when it connected.
        sequence: number of the request in its session.
        payload: the remaining bytes.
    """

    kind: int
    session: int
    sequence: int
    payload: bytes = b""

    def encoded(self) -> bytes:
        """The bytes of the frame."""
        head = HEAD.pack(BEGIN, len(self.payload), self.kind, self.session, self.sequence)
        return head + self.payload + CHECK.pack(zlib.crc32((head + self.payload)[len(BEGIN) :]))


class FrameReader:
    """Finds frames in a stream of bytes.

    Attributes:
        max_bytes: the largest payload of a frame; a longer one is treated as other bytes.
        strays: how many bytes belonged to no frame.
    """

    def __init__(self, max_bytes: int = MAX_PAYLOAD):
        self.max_bytes = max_bytes
        self.strays = 0
        self._pending = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that end in the next bytes of the stream."""
        self._pending += data
        found = []
        while (frame := self._next()) is not None:
            found.append(frame)
        return found

    def give_up(self) -> list[Frame]:
        """Skip an incomplete frame, and return the frames after its start."""
        if self._pending:
            self._skip(1)
        return self.feed(b"")

    def _next(self) -> Frame | None:
        """The next whole frame; None if more bytes are needed."""
        pending = self._pending
        while pending:
            begin = pending.find(BEGIN)
            if begin < 0:
                begin = len(pending) - pending.endswith(BEGIN[:1])
            self._skip(begin)
            if len(pending) < HEAD.size:
                return None
            _, length, kind, session, sequence = HEAD.unpack_from(pending)
            end = HEAD.size + length
            if length > self.max_bytes:
                self._skip(1)
            elif len(pending) < end + CHECK.size:
                return None
            elif CHECK.unpack_from(pending, end)[0] == zlib.crc32(pending[len(BEGIN) : end]):
                payload = bytes(pending[HEAD.size : end])
                del pending[: end + CHECK.size]
                return Frame(kind, session, sequence, payload)
            else:
                self._skip(1)
        return None

    def _skip(self, count: int) -> None:
        self.strays += count
        del self._pending[:count]


PROTOCOL = 1

LIMIT = 5.0
"""Seconds in which a request must be answered, unless it says otherwise."""

PATIENCE = 0.3
"""Seconds after which a request is sent again; twice as long each time, up to `MAX_PATIENCE`."""

MAX_PATIENCE = 3.0

READ_SECONDS = 0.1
"""Seconds that a read of the wire waits at most."""


class Status(IntEnum):
    """How a device answers a request."""

    DONE = 0
    PAUSED = 1
    FAILED = 2
    UNKNOWN_SESSION = 3
    OUT_OF_RANGE = 4
    NOT_NOW = 5


class Transport(Protocol):
    """A stream of bytes to a device and back, with a clock.

    Attributes:
        name: for errors.
    """

    name: str

    def read(self, seconds: float) -> bytes:
        """The bytes that have come; waits for the first one, but not for longer than `seconds`.

        Raises:
            DeviceReset: the wire is cut.
        """

    def write(self, data: bytes) -> None:
        """Send bytes.

        Raises:
            DeviceReset: the wire is cut.
        """

    def close(self) -> None:
        """Close the wire, and end a program at its other side."""

    def now(self) -> float:
        """Seconds on a clock that never goes back."""
        return time.monotonic()


class Answer(NamedTuple):
    """The status of a reply, and the rest of it."""

    status: Status
    data: bytes


class Session:
    """The requests of one connection to a device.

    Attributes:
        transport: the wire.
        payload: the most bytes that a request may have.
        announced: the last operator that the device announced; None if there was none since the last request.
    """

    payload: int
    _number: int
    _sequence: int

    def __init__(self, transport: Transport):
        self.transport = transport
        self.announced: int | None = None
        self._reader = FrameReader()

    def open(self, limit: float = LIMIT) -> None:
        """Begin a new session; the device forgets the one before.

        Raises:
            DeviceError: no answer, or that of another version of the protocol.
        """
        self._number, self._sequence = secrets.randbelow(0xFFFFFFFF) + 1, -1
        answer = self.request(Kind.HELLO, limit=limit)
        version, self.payload = struct.unpack("<II", answer.data)
        if version != PROTOCOL:
            raise DeviceError(
                f"{self.transport.name}: the firmware has version {version} of the protocol, not {PROTOCOL}; write it "
                "again with this version of tflm, and flash it"
            )

    def request(self, kind: Kind, payload: bytes = b"", *, max_bytes: int = 64, limit: float = LIMIT) -> Answer:
        """Send a request, and return the answer.

        Args:
            kind: kind of the request.
            payload: its data.
            max_bytes: maximum size of the reply in bytes.
            limit: maximum number of seconds until it arrives.

        Raises:
            DeviceReset: the device does not know the session, or the wire is cut.
            DeviceError: no answer within the limit, or the request was invalid.
        """
        self._sequence += 1
        frame = Frame(kind, self._number, self._sequence, payload).encoded()
        self._reader.max_bytes = max(max_bytes + 1, 64)
        self.announced = None
        now = self.transport.now
        begin, wait, strays = now(), PATIENCE, self._reader.strays
        while now() - begin < limit:
            self.transport.write(frame)
            try:
                found = self._reply(kind, min(now() + wait, begin + limit))
                if found is not None:
                    return self._checked(kind, found)
            except DeviceReset as error:
                raise DeviceReset(f"{error}{self._unended()}") from None
            wait = min(2 * wait, MAX_PATIENCE)
        raise DeviceError(self._silence(kind, limit, self._reader.strays - strays))

    def _reply(self, kind: Kind, end: float) -> Frame | None:
        """The reply to the present request; None if none comes until `end`."""
        while (left := end - self.transport.now()) > 0:
            for frame in self._reader.feed(self.transport.read(min(left, READ_SECONDS))):
                if self._is_reply(frame, kind):
                    return frame
        return next((frame for frame in self._reader.give_up() if self._is_reply(frame, kind)), None)

    def _is_reply(self, frame: Frame, kind: Kind) -> bool:
        if frame.session != self._number or frame.sequence != self._sequence or not frame.payload:
            return False
        if frame.kind == Kind.ANNOUNCE | REPLY and len(frame.payload) == 4:
            self.announced = int.from_bytes(frame.payload, "little")
        return frame.kind == kind | REPLY

    def _checked(self, kind: Kind, frame: Frame) -> Answer:
        status, data = Status(frame.payload[0]), frame.payload[1:]
        if status is Status.UNKNOWN_SESSION:
            raise DeviceReset(f"{self.transport.name}: the device was reset, or answers another program as well")
        if status is Status.NOT_NOW:
            raise DeviceError(f"{self.transport.name}: the device can't {kind.name.lower()} now; connect again")
        return Answer(status, data)

    def _silence(self, kind: Kind, limit: float, strays: int) -> str:
        text = f"{self.transport.name}: no answer to {kind.name.lower()!r} within {limit:g} s"
        if self.announced is not None:
            return text + self._unended()
        text += "; "
        if strays:
            return text + (
                f"{strays} bytes came that are no answer: check the baud rate, and that the firmware is one that "
                "tflm export --serve wrote"
            )
        return text + "nothing came: check the port, the cable and that the firmware runs"

    def _unended(self) -> str:
        """The operator that the device announced last."""
        return "" if self.announced is None else f"; operator {self.announced} began, and did not end"
