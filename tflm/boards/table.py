"""The tables of boards and chips: part, usual kernel library, RAM by bank, flash, clock."""

from __future__ import annotations

import csv
import functools
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from types import MappingProxyType

from tflm import targets
from tflm.boards.sdks import ORIGINS, SdkShare, Span, sdk_share
from tflm.errors import VersionAssumed
from tflm.libraries import KernelLibrary, Kernels, library_for
from tflm.releases import Release, Releases
from tflm.report import json_key
from tflm.targets import Target

UNITS = {"K": 1 << 10, "M": 1 << 20}


@dataclass(frozen=True)
class Bank:
    """A contiguous memory of a board that can hold an arena.

    Attributes:
        name: the vendor's name for it.
        bytes: its size.
        rate: bytes that its bus moves in a second, without commands and latencies; None if unknown.
    """

    name: str
    bytes: int
    rate: float | None = None

    @property
    def is_external(self) -> bool:
        """Whether it is slow memory outside the chip."""
        return self.name in ("PSRAM", "SDRAM")


MEMORY_FIGURES = (json_key("name", str, "a memory of the board, the fastest first"), json_key("bytes", int, "its size"))


@dataclass(frozen=True)
class Board:
    """A board or a bare chip.

    Attributes:
        name: its name for `--board` and `by_name`.
        description: a description.
        target: its part.
        kernels: the name of the kernel library that its firmware is usually built with.
        npu: its Ethos-U, as a configuration of Vela; empty without one.
        ram: its memories, the fastest first.
        flash_bytes: memory for program and model; None if unknown.
        mhz: the clock that firmware usually sets; None for parts without timing data.
        optimization: the usual optimization level, such as "-Os"; empty if `mhz` is None.
        source: the source of the figures.
        chip: its chip; empty if none is listed, and for chips.
        aliases: other names: the vendor's, PlatformIO's, Zephyr's, and Arduino FQBNs.
        sdk: the SDK that its firmware is built with; empty to count none.
    """

    name: str
    description: str
    target: Target
    kernels: str
    npu: str
    ram: tuple[Bank, ...]
    flash_bytes: int | None = None
    mhz: float | None = None
    optimization: str = ""
    source: str = ""
    chip: str = ""
    aliases: tuple[str, ...] = ()
    sdk: str = ""

    @property
    def on_chip_ram(self) -> tuple[Bank, ...]:
        """The memories of the chip itself, without PSRAM and SDRAM."""
        return tuple(bank for bank in self.ram if not bank.is_external)

    @property
    def places(self) -> tuple[str, ...]:
        """Its names in the table of SDKs: the board, its chip, the family of parts."""
        return self.name, self.chip or self.name, self.target.family

    def distribution(self, kernels: str) -> str:
        """The distribution of TFLM that its SDK's projects pin; empty for TFLM itself, and without an SDK.

        Args:
            kernels: a kernel library; the projects get one that the distribution lacks from TFLM itself.
        """
        origin = ORIGINS.get(self.sdk) or ORIGINS.get(self.target.family)
        if origin is None or not self.sdk or kernels.partition("@")[0] not in origin.kernels:
            return ""
        return origin.distribution

    def library(self, kernels: Kernels | None = None, release: Releases | None = None) -> KernelLibrary:
        """The kernel library that its firmware is built with.

        Args:
            kernels: as for `library_for`; its usual ones by default.
            release: the TFLM of the firmware; for kernels by name, by default the one that its SDK's projects pin.

        Raises:
            ArgumentError: as for `library_for`.
        """
        named = self.kernels if kernels is None else kernels
        if release is not None or not isinstance(named, str):
            return library_for(named, self.target, release)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", VersionAssumed)  # no version was given
            return library_for(named, self.target, self.distribution(named) or None)

    def chosen_release(self, library: KernelLibrary) -> Release | None:
        """The TFLM of a library; None if it is the default one of firmware for this board."""
        usual = self.library(library.name.partition("@")[0])
        return None if usual.release == library.release else library.release

    @property
    def share(self) -> SdkShare | None:
        """The memory that its SDK leaves and takes; None without an SDK, or if the table does not have it."""
        return sdk_share(self.sdk, self.places) if self.sdk else None

    @property
    def memories(self) -> tuple[Bank, ...]:
        """Its memories as large as the SDK leaves them for certain, the fastest first."""
        return tuple(_resized(bank, self._left(bank).low) for bank in self.ram)

    @property
    def memories_at_best(self) -> tuple[Bank, ...]:
        """Its memories as large as the SDK leaves them at most."""
        return tuple(_resized(bank, self._left(bank).high) for bank in self.ram)

    @property
    def sdk_banks(self) -> tuple[Bank, ...]:
        """The memories that can hold the data of the SDK and of TFLM: one, or all of the chip."""
        named = tuple(bank for bank in self.memories if bank.name == self._sdk_bank)
        return named or tuple(bank for bank in self.memories if not bank.is_external)

    @property
    def program(self) -> Span | None:
        """Flash that a program can have; None if the flash is unknown."""
        if self.flash_bytes is None:
            return None
        if self.share is None:
            return Span(self.flash_bytes, self.flash_bytes)
        room = self.flash_bytes - self.share.reserved_bytes
        limit = self.share.program or Span(room, room)
        return Span(min(limit.low, room), min(limit.high, room))

    def static_bytes(self, bank: Bank) -> int:
        """Bytes of a memory that static data can have for certain; the heap may have more."""
        limits = {} if self.share is None else self.share.static
        return min(limits.get(self._known_as(bank), Span(bank.bytes, bank.bytes)).low, bank.bytes)

    @property
    def _sdk_bank(self) -> str:
        """The memory of the SDK's data: the one that it names, or the largest if this board uses another name."""
        if self.share is None or not self.share.bank or not self.on_chip_ram:
            return ""
        names = [bank.name for bank in self.ram]
        return self.share.bank if self.share.bank in names else max(self.on_chip_ram, key=lambda each: each.bytes).name

    def _known_as(self, bank: Bank) -> str:
        return self.share.bank if self.share is not None and bank.name == self._sdk_bank else bank.name

    def _left(self, bank: Bank) -> Span:
        share = self.share
        whole = Span(bank.bytes, bank.bytes)
        if share is None:
            return whole
        static = share.static.get(self._known_as(bank), whole)
        heap = share.heap.get(self._known_as(bank), Span(0, 0))
        low = max(static.low, heap.low - share.startup.high)
        high = max(static.high, heap.high - share.startup.low)
        return Span(min(low, bank.bytes), min(high, bank.bytes))


def _resized(bank: Bank, size: int) -> Bank:
    return bank if bank.bytes == size else replace(bank, bytes=size)


def _size(text: str) -> int:
    match = re.fullmatch(r"([0-9]+)([KM])", text)
    assert match is not None, f"{text!r} is not a size such as 256K or 1M"
    return int(match[1]) * UNITS[match[2]]


def _banks(text: str) -> tuple[Bank, ...]:
    return tuple(_bank(bank) for bank in text.split(" + "))


def _bank(text: str) -> Bank:
    memory, _, rate = text.removesuffix(" MB/s").partition(" at ")
    name, _, size = memory.rpartition(" ")
    return Bank(name, _size(size), float(rate) * 1e6 if rate else None)


def _rows(table: str) -> list[dict[str, str]]:
    text = files("tflm.boards").joinpath(table).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def _board(row: Mapping[str, str]) -> Board:
    return Board(
        name=row["name"],
        description=row.get("description") or f"{row['name']}, the bare chip",
        target=targets.by_name(row["target"]),
        kernels=row["kernels"],
        npu=row["npu"],
        ram=_banks(row["ram"]),
        flash_bytes=_size(row["flash"]) if row["flash"] else None,
        mhz=float(row["mhz"]) if row["mhz"] else None,
        optimization=row["optimization"],
        source=row.get("source", ""),
        chip=row.get("chip", ""),
        aliases=tuple(row.get("aliases", "").split()),
        sdk=row["sdk"],
    )


@functools.cache
def boards() -> Mapping[str, Board]:
    """All boards of the table `boards.csv`, by name, in its order."""
    return MappingProxyType({row["name"]: _board(row) for row in _rows("boards.csv")})


@functools.cache
def chips() -> Mapping[str, Board]:
    """Bare chips of the table `chips.csv`, by name, with on-chip RAM and, if any, on-chip flash."""
    return MappingProxyType({row["name"]: _board(row) for row in _rows("chips.csv")})
