"""Read what a linker placed in flash and RAM, by part of the firmware: from GNU ld's map or from an ELF file."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tflm.compiler.object_loader import Section
from tflm.errors import FirmwareError

MODEL, TFLM, ARENA, REST = "model", "TFLM and kernels", "arena", "SDK, C library and application"

PARTS = (MODEL, TFLM, ARENA, REST)

NAMES = ((MODEL, r"_model_data"), (ARENA, r"(tensor|head|tail)_arena|\bram(_\d+)?\b"))
"""Parts by names of the symbols that exported sources define."""

OF_TFLM = (
    r"tflite|tflm|cmsis[-_]nn|/signal/|kiss_?fft|"
    r"(^|\W)arm_(nn|convolve|depthwise|fully|softmax|max|avg|elementwise|s8|s16)"
)
"""Files and symbols of TFLM and its kernels."""

RESERVED = r"\.(heap|stack|debug|stab|comment|ARM\.attributes|note)"
"""Output sections that reserve memory other than static data, or that are not loaded."""

ZEROED = r"\.(bss|noinit|tbss|uninitialized)|.*\.(bss|noinit)$"

HIGHEST_BYTES = 512 << 20
"""Largest file that is read."""

SHF_ALLOC, SHT_SYMTAB, SHT_NOBITS = 2, 2, 8


class Placed(NamedTuple):
    """A piece that the linker placed.

    Attributes:
        part: one of `PARTS`.
        bytes: its size.
        in_flash, in_ram: whether it takes flash, and RAM; initialized data takes both.
    """

    part: str
    bytes: int
    in_flash: bool
    in_ram: bool


@dataclass(frozen=True)
class Linked:
    """Sizes of a firmware in bytes, by part.

    Attributes:
        flash: code, constants and initial values.
        ram: static data, without heap and stack.
    """

    flash: dict[str, int]
    ram: dict[str, int]

    @property
    def flash_bytes(self) -> int:
        """Flash of all parts."""
        return sum(self.flash.values())

    @property
    def ram_bytes(self) -> int:
        """Static RAM of all parts."""
        return sum(self.ram.values())


def read_linked(path: Path) -> Linked:
    """Read a map of GNU ld, or an ELF file with its symbols.

    Raises:
        FirmwareError: it is neither.
        OSError: it can't be read.
    """
    if path.stat().st_size > HIGHEST_BYTES:
        raise FirmwareError(f"{path} has more than {HIGHEST_BYTES:,} bytes: not a map or ELF file of a microcontroller")
    data = path.read_bytes()
    try:
        placed = list(_of_elf(data) if data.startswith(b"\x7fELF") else _of_map(data.decode(errors="replace")))
    except (struct.error, IndexError, ValueError) as error:
        raise FirmwareError(f"{path} is damaged ({error})") from None
    if not placed:
        raise FirmwareError(f"{path} is neither a map of GNU ld nor an ELF file; link with -Wl,-Map=firmware.map")
    return Linked(
        {part: sum(each.bytes for each in placed if each.part == part and each.in_flash) for part in PARTS},
        {part: sum(each.bytes for each in placed if each.part == part and each.in_ram) for part in PARTS},
    )


def _part(symbol: str, file: str) -> str:
    for part, pattern in NAMES:
        if re.search(pattern, symbol):
            return part
    return TFLM if re.search(OF_TFLM, f"{file} {symbol}", re.IGNORECASE) else REST


# --- Maps of GNU ld ---------------------------------------------------------------------------------------------------


def _of_map(text: str) -> Iterator[Placed]:
    _, found, body = text.partition("\nLinker script and memory map\n")
    if not found:
        return
    writable = _writable(text)
    in_flash = in_ram = False
    for line in re.sub(r"\n( ?[.\w][^\s]*)\n +(?=0x)", r"\n\1 ", body).splitlines():
        output = re.match(r"([.\w]\S*) +(0x[0-9a-f]+) +(0x[0-9a-f]+)( load address .*)?$", line)
        piece = re.match(r" (\S+) +(0x[0-9a-f]+) +(0x[0-9a-f]+)(?: (.*))?$", line)
        if output:
            address, is_counted = int(output[2], 16), not re.match(RESERVED, output[1])
            in_ram = is_counted and any(start <= address < end for start, end in writable)
            is_loaded = bool(output[4]) and not re.match(ZEROED, output[1])
            in_flash = is_counted and (is_loaded or not in_ram)
            yield Placed(REST, int(output[3], 16), in_flash, in_ram)
        elif re.match(r"[.\w/]", line):
            in_flash = in_ram = False
        elif piece and (in_flash or in_ram):
            part, size = _part(piece[1], _file(piece[4] or "")), int(piece[3], 16)
            yield Placed(part, size, in_flash, in_ram)
            yield Placed(REST, -size, in_flash, in_ram)


def _file(path: str) -> str:
    """An object file without the folders of the build, which may be called as TFLM is."""
    return re.sub(r"^.*/CMakeFiles/[^/]*/?|^.*/(?=[^/]*[.]a[(])", "", path)


def _writable(text: str) -> list[tuple[int, int]]:
    """Start and end of the memories with write access."""
    rows = re.findall(r"^(\S+) +(0x[0-9a-f]+) +(0x[0-9a-f]+) +(\w+)$", text, re.MULTILINE)
    return [(int(start, 16), int(start, 16) + int(size, 16)) for _, start, size, access in rows if "w" in access]


# --- ELF --------------------------------------------------------------------------------------------------------------


def _of_elf(data: bytes) -> Iterator[Placed]:
    if data[4:6] != b"\x01\x01":
        raise ValueError("not an ELF file of 32 bits, little-endian")
    start, size, count, names = struct.unpack_from("<I10xHHH", data, 32)
    sections = [Section(*struct.unpack_from("<10I", data, start + i * size)) for i in range(count)]
    moved = _moved(data)
    kinds: dict[int, tuple[bool, bool]] = {}
    left: dict[int, int] = {}
    for i, section in enumerate(sections):
        name = _text(data, sections[names].offset + section.name)
        if section.flags & SHF_ALLOC and not re.match(RESERVED, name):
            is_moved = any(start <= section.address < end for start, end in moved)
            kinds[i] = section.kind != SHT_NOBITS, section.kind == SHT_NOBITS or is_moved
            left[i] = section.size
    for table in (section for section in sections if section.kind == SHT_SYMTAB):
        texts, seen = sections[table.link].offset, set()
        for place in range(table.offset, table.offset + table.size, 16):
            name, value, size, kind, _, section = struct.unpack_from("<IIIBBH", data, place)
            if section in kinds and size and kind & 15 in (1, 2) and (section, value) not in seen:
                seen.add((section, value))
                part = _part(_text(data, texts + name), "")
                if part != REST:
                    size = min(size, left[section])
                    left[section] -= size
                    yield Placed(part, size, *kinds[section])
    for i, rest in left.items():
        yield Placed(REST, rest, *kinds[i])


def _moved(data: bytes) -> list[tuple[int, int]]:
    """Start and end of what start-up code copies from the flash: such a segment has another address there."""
    (start,), (size, count) = struct.unpack_from("<I", data, 28), struct.unpack_from("<HH", data, 42)
    rows = [struct.unpack_from("<5I", data, start + i * size) for i in range(count)]
    return [(at, at + length) for kind, _, at, load, length in rows if kind == 1 and at != load and length]


def _text(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode(errors="replace")
