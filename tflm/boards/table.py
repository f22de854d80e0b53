"""The tables of boards and chips: part, usual kernel library, RAM by bank, flash, clock."""

from __future__ import annotations

import csv
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from types import MappingProxyType

from tflm import targets
from tflm.targets import Target

UNITS = {"K": 1 << 10, "M": 1 << 20}


@dataclass(frozen=True)
class Bank:
    """A contiguous memory of a board that can hold an arena.

    Attributes:
        name: the vendor's name for it.
        bytes: its size.
    """

    name: str
    bytes: int

    @property
    def is_external(self) -> bool:
        """Whether it is slow memory outside the chip."""
        return self.name in ("PSRAM", "SDRAM")


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

    @property
    def on_chip_ram(self) -> tuple[Bank, ...]:
        """The memories of the chip itself, without PSRAM and SDRAM."""
        return tuple(bank for bank in self.ram if not bank.is_external)


def _size(text: str) -> int:
    match = re.fullmatch(r"([0-9]+)([KM])", text)
    assert match is not None, f"{text!r} is not a size such as 256K or 1M"
    return int(match[1]) * UNITS[match[2]]


def _banks(text: str) -> tuple[Bank, ...]:
    return tuple(Bank(name, _size(size)) for name, _, size in (bank.rpartition(" ") for bank in text.split(" + ")))


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
    )


@functools.cache
def boards() -> Mapping[str, Board]:
    """All boards of the table `boards.csv`, by name, in its order."""
    return MappingProxyType({row["name"]: _board(row) for row in _rows("boards.csv")})


@functools.cache
def chips() -> Mapping[str, Board]:
    """Bare chips of the table `chips.csv`, by name, with on-chip RAM and, if any, on-chip flash."""
    return MappingProxyType({row["name"]: _board(row) for row in _rows("chips.csv")})
