"""Load object files without LLVM, whose library takes longer to load than all kernels of a model.

It reads ELF for x86-64 as LLVM writes it for its large code model: every address is a 64-bit relocation, and there
is no writable data. It rejects everything else, which `llvm_linker` loads.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import struct
import sys
from collections.abc import Iterator
from typing import NamedTuple

HEADER = struct.Struct("<16s HHIQQQI 6H")
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
RELOCATION = struct.Struct("<QQq")

ELF64_LITTLE_ENDIAN = b"\x7fELF\2\1\1"
RELOCATABLE, X86_64 = 1, 62
"""The kind of a file with relocations, and its machine."""

WRITABLE, LOADED = 1, 2
"""Flags of sections."""

PROGBITS, SYMBOLS, RELOCATIONS, UNWIND = 1, 2, 4, 0x70000001
"""Kinds of sections. Kernels raise nothing, so that nobody unwinds their stack."""

ADDRESS_64 = 1
"""The kind of a relocation that is the address of a symbol plus a number."""


class UnsupportedError(Exception):
    """An object file that this module does not load; the message says why."""


class Section(NamedTuple):
    """A section header of an ELF file."""

    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


def load(made: bytes, entry: str) -> int:
    """Load an object file until this process ends, and return the address of its function `entry`.

    Raises:
        UnsupportedError: the file is damaged, is of another kind, lacks the function, or needs an unknown one.
        OSError: there is no memory that may be executed.
    """
    if sys.platform != "linux":
        raise UnsupportedError("only for Linux")
    try:
        return _load(made, entry)
    except (struct.error, LookupError, ValueError, OverflowError) as error:
        raise UnsupportedError(str(error)) from None


def _load(made: bytes, entry: str) -> int:
    sections = list(_sections(made))
    offsets, size = _layout(made, sections)
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ | mmap.PROT_WRITE)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for index, offset in offsets.items():
        memory[offset : offset + sections[index].size] = _contents(made, sections[index])
    for section in sections:
        if section.kind == RELOCATIONS and section.info in offsets:
            _relocate(made, sections, section, memory, base, offsets)
    (symbols,) = (section for section in sections if section.kind == SYMBOLS)
    name = entry.encode()
    for start, _, _, index, value, _ in SYMBOL.iter_unpack(_contents(made, symbols)):
        if index in offsets and _name(made, sections, symbols, start) == name:
            _make_executable(base, size)
            _images.append(memory)
            return base + offsets[index] + int(value)
    raise UnsupportedError(f"lacks {entry}")


_images: list[mmap.mmap] = []
"""Owners of loaded machine code, kept until this process ends."""


def _sections(made: bytes) -> Iterator[Section]:
    magic, kind, machine, _, _, _, offset, *_, entry_size, count, _ = HEADER.unpack_from(made)
    if not magic.startswith(ELF64_LITTLE_ENDIAN) or (kind, machine, entry_size) != (RELOCATABLE, X86_64, SECTION.size):
        raise UnsupportedError("not an object file of ELF for x86-64")
    for index in range(count):
        yield Section(*SECTION.unpack_from(made, offset + index * SECTION.size))


def _layout(made: bytes, sections: list[Section]) -> tuple[dict[int, int], int]:
    """Return the offsets in memory of the sections to load, by index, and the total size."""
    offsets, end = {}, 0
    for index, section in enumerate(sections):
        if not section.flags & LOADED or section.kind == UNWIND:
            continue
        if section.kind != PROGBITS or section.flags & WRITABLE or section.alignment > mmap.PAGESIZE:
            raise UnsupportedError(f"section {index} is not code or constants")
        if section.offset + section.size > len(made):
            raise UnsupportedError(f"section {index} is truncated")
        offsets[index] = -(-end // max(section.alignment, 1)) * max(section.alignment, 1)
        end = offsets[index] + section.size
    if sum(sections[index].size for index in offsets) > len(made):
        raise UnsupportedError("its sections overlap")
    return offsets, end


def _contents(made: bytes, section: Section) -> bytes:
    return made[section.offset : section.offset + section.size]


def _relocate(
    made: bytes, sections: list[Section], relocations: Section, memory: mmap.mmap, base: int, offsets: dict[int, int]
) -> None:
    """Write the addresses for the relocations of a section."""
    symbols, target = sections[relocations.link], sections[relocations.info]
    entries = _contents(made, symbols)
    for offset, info, added in RELOCATION.iter_unpack(_contents(made, relocations)):
        name, _, _, index, value, _ = SYMBOL.unpack_from(entries, (info >> 32) * SYMBOL.size)
        if info & 0xFFFFFFFF != ADDRESS_64 or offset + 8 > target.size or not (index == 0 or index in offsets):
            raise UnsupportedError("has another kind of relocation")
        start = base + offsets[index] + value if index else _address(_name(made, sections, symbols, name).decode())
        struct.pack_into("<Q", memory, offsets[relocations.info] + offset, start + added)


def _name(made: bytes, sections: list[Section], symbols: Section, offset: int) -> bytes:
    start = sections[symbols.link].offset + offset
    return made[start : made.index(b"\0", start)]


@functools.cache
def _address(name: str) -> int:
    """The address of a function of the C library or of CPython."""
    try:
        address = ctypes.cast(ctypes.pythonapi[name], ctypes.c_void_p).value
    except AttributeError:
        raise UnsupportedError(f"{name} is missing") from None
    assert address is not None
    return address


def _make_executable(base: int, size: int) -> None:
    protect = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)(_address("mprotect"))
    if protect(base, size, mmap.PROT_READ | mmap.PROT_EXEC):
        raise OSError("memory can't be made executable")
