"""Frames on the wire between a computer and a device: a begin that text never contains, a length, and a CRC-32.

    F5 D7 | length of the payload, 2 bytes | kind | session, 4 | sequence number, 4 | payload | CRC-32, 4

Numbers are little-endian. The CRC-32, that of zlib, is over everything between the first two bytes and itself. A reader
that finds no frame at a begin continues one byte later, so that it finds every whole frame between any other bytes.
"""

from __future__ import annotations

import struct
import zlib
from enum import IntEnum
from typing import NamedTuple

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
