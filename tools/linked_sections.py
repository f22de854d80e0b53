"""List the sections that a linker kept, and which section refers to which.

The linker's map lists the sections that it kept and their sizes; the objects contain the references. Equal strings of
several objects are merged, so each string is a separate section here.
"""

from __future__ import annotations

import io
import re
import struct
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import SymbolTableSection

TEXT, EXTAB, EXIDX, DATA, BSS = range(5)
WRITE, ALLOCATE, MERGE, STRINGS = 1, 2, 0x10, 0x20
KEPT = re.compile(r"^ (\.\S+|COMMON)\s+0x([0-9a-f]+)\s+0x([0-9a-f]+) ([^\n]+)", re.MULTILINE)
ABSOLUTE = frozenset({2, 38})  # R_ARM_ABS32, R_ARM_TARGET1: the address is stored directly
MOVED = frozenset({47})  # R_ARM_THM_MOVW_ABS_NC: the address is in two instructions, of which this is one


class Key(NamedTuple):
    """A section by its object, as named in the map, and its name; a string by its bytes."""

    object: str
    section: str
    bytes: bytes = b""


@dataclass
class Section:
    """A kept section.

    Attributes:
        address: its address in the firmware.
        sizes: as flash and RAM count them.
        names: the global symbols that it defines.
        refers: the sections that it refers to.
        words: those whose address it holds, by the place in it.
    """

    address: int
    sizes: tuple[int, ...]
    names: set[str] = field(default_factory=set)
    refers: set[Key] = field(default_factory=set)
    words: dict[int, Key] = field(default_factory=dict)


def read_map(text: str) -> tuple[dict[Key, tuple[int, int]], list[str]]:
    """Address and size of the sections that were kept, and every archive member that was loaded, kept or not."""
    loaded = text.partition("\nDiscarded input sections")[0]
    members = re.findall(r"^(\S+\([^)]+\))", loaded, re.MULTILINE)
    kept = {}
    for name, address, size, source in KEPT.findall(text.partition("\nLinker script and memory map")[2]):
        if int(size, 16) and int(address, 16):
            kept[Key(source, name)] = int(address, 16), int(size, 16)
    return kept, list(dict.fromkeys(members))


def members_of(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Names and bytes of an archive's members."""
    data, names, at = archive.read_bytes(), b"", 8
    while at < len(data):
        name, size = data[at : at + 16].rstrip(), int(data[at + 48 : at + 58])
        content = data[at + 60 : at + 60 + size]
        if name == b"//":
            names = content
        elif name != b"/":
            start = int(name[1:]) if name.startswith(b"/") else None
            full = name if start is None else names[start : names.index(b"\n", start)]
            yield full.rstrip(b"/").decode(), content
        at += 60 + size + size % 2


class Object:
    """A relocatable object: its sections, symbols and what each section refers to."""

    def __init__(self, source: str, data: bytes) -> None:
        """`source` is its name in the map."""
        elf = ELFFile(io.BytesIO(data))
        self.source = source
        self.sections: list[Any] = list(elf.iter_sections())
        self.symbols: list[Any] = [
            symbol
            for table in self.sections
            if isinstance(table, SymbolTableSection)
            for symbol in table.iter_symbols()
        ]
        self.relocations = {
            table["sh_info"]: list(table.iter_relocations())
            for table in self.sections
            if isinstance(table, RelocationSection)
        }

    def key(self, index: int) -> Key:
        """The key of a section, by its place."""
        return Key(self.source, self.sections[index].name)

    def defined(self) -> Iterator[tuple[str, int, bool]]:
        """Each global symbol that it defines: name, index of the section, whether it is weak."""
        for symbol in self.symbols:
            if symbol["st_info"]["bind"] != "STB_LOCAL" and isinstance(symbol["st_shndx"], int):
                yield symbol.name, symbol["st_shndx"], symbol["st_info"]["bind"] == "STB_WEAK"

    def undefined(self) -> Iterator[str]:
        """Each symbol that another object must define."""
        for symbol in self.symbols:
            if symbol["st_shndx"] == "SHN_UNDEF" and symbol["st_info"]["bind"] == "STB_GLOBAL":
                yield symbol.name

    def string_at(self, index: int, offset: int) -> Key:
        """The string, or the constant, that begins there in a section whose parts are merged."""
        section = self.sections[index]
        data = section.data()
        end = data.find(b"\0", offset) + 1 if section["sh_flags"] & STRINGS else offset + section["sh_entsize"]
        return Key("", "", data[offset:end])


@dataclass
class Link:
    """A link: its kept sections and objects."""

    sections: dict[Key, Section]
    objects: list[Object]
    definers: dict[str, list[tuple[Object, Key, bool]]]

    def defining(self, name: str) -> Key | None:
        """The kept section that defines a symbol."""
        found = sorted((weak, i) for i, (_, key, weak) in enumerate(self.definers[name]) if key in self.sections)
        return self.definers[name][found[0][1]][1] if found else None


def read_link(map_text: str) -> Link:
    """Read a link from its map, and the objects that it names."""
    kept, members = read_map(map_text)
    sources = dict.fromkeys([*(key.object for key in kept), *members])
    objects = [read for source in sources for read in _objects(source)]
    link = Link({}, objects, defaultdict(list))
    for each in objects:
        for name, index, weak in each.defined():
            link.definers[name].append((each, each.key(index), weak))
    for each in objects:
        for index, section in enumerate(each.sections):
            if each.key(index) in kept and not section["sh_flags"] & MERGE:
                _add(link, each, index, *kept[each.key(index)])
    for each in objects:
        for index in range(len(each.sections)):
            if each.key(index) in link.sections:
                _connect(link, each, index)
    _merge_ends(link)
    return link


def _merge_ends(link: Link) -> None:
    """Merge strings that are the end of another string."""
    strings = sorted((key for key in link.sections if key.bytes.endswith(b"\0")), key=lambda key: key.bytes[::-1])
    for shorter, longer in pairwise(strings):
        if longer.bytes.endswith(shorter.bytes):
            link.sections[shorter].sizes = (0,) * 5


def _objects(source: str) -> list[Object]:
    archive, _, member = source.removesuffix(")").partition("(")
    if not member:
        return [Object(source, Path(source).read_bytes())] if Path(source).exists() else []
    return [Object(source, data) for name, data in _archive(archive) if name == member]


_ARCHIVES: dict[str, list[tuple[str, bytes]]] = {}


def _archive(path: str) -> list[tuple[str, bytes]]:
    if path not in _ARCHIVES:
        _ARCHIVES[path] = list(members_of(Path(path)))
    return _ARCHIVES[path]


def _add(link: Link, origin: Object, index: int, address: int, size: int) -> None:
    section = origin.sections[index]
    alignment = max(section["sh_addralign"], 4 if section["sh_flags"] & WRITE else 1)
    size = -(-size // alignment) * alignment
    name, sizes = section.name, [0] * 5
    if not section["sh_flags"] & ALLOCATE:
        return
    if name.startswith(".ARM.ex"):
        sizes[EXTAB if name.startswith(".ARM.extab") else EXIDX] = size
    elif section["sh_type"] == "SHT_NOBITS":
        sizes[BSS] = size
    else:
        sizes[DATA if section["sh_flags"] & WRITE else TEXT] = size
    link.sections.setdefault(origin.key(index), Section(address, tuple(sizes)))


def _connect(link: Link, origin: Object, index: int) -> None:
    """Add what a section refers to: by its relocations, and the unwinding table that goes with its code."""
    section = link.sections[origin.key(index)]
    section.names |= {name for name, place, _ in origin.defined() if place == index}
    for relocation in origin.relocations.get(index, ()):
        target = _target(link, origin, index, relocation)
        if target is not None:
            section.refers.add(target)
            if relocation["r_info_type"] in ABSOLUTE | MOVED:
                section.words[relocation["r_offset"]] = target
    for other, table in enumerate(origin.sections):
        if table["sh_type"] == "SHT_ARM_EXIDX" and table["sh_link"] == index and origin.key(other) in link.sections:
            section.refers.add(origin.key(other))


def _target(link: Link, origin: Object, index: int, relocation: Any) -> Key | None:
    symbol = origin.symbols[relocation["r_info_sym"]]
    place = symbol["st_shndx"]
    if symbol["st_info"]["bind"] != "STB_LOCAL":
        return link.defining(symbol.name)
    if not isinstance(place, int):
        return None
    if origin.sections[place]["sh_flags"] & MERGE:
        addend = 0
        if relocation["r_info_type"] in ABSOLUTE and symbol["st_info"]["type"] == "STT_SECTION":
            (addend,) = struct.unpack_from("<I", origin.sections[index].data(), relocation["r_offset"])
        string = origin.string_at(place, symbol["st_value"] + addend)
        link.sections.setdefault(string, Section(0, (len(string.bytes), 0, 0, 0, 0)))
        return string
    return origin.key(place) if origin.key(place) in link.sections else None


def reached(link: Link, roots: set[Key]) -> set[Key]:
    """Every section that roots refer to, themselves included."""
    found, new = set(roots), list(roots)
    while new:
        fresh = link.sections[new.pop()].refers - found
        found |= fresh
        new += fresh
    return found
