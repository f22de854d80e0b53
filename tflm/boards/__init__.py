"""Boards that people own: their part, what their firmware is usually built with, RAM in its banks, flash, clock."""

from __future__ import annotations

import csv
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from types import MappingProxyType

from tflm import targets
from tflm.errors import ArgumentError
from tflm.targets import Target

UNITS = {"K": 1 << 10, "M": 1 << 20}


@dataclass(frozen=True)
class Bank:
    """A memory of a board that an arena can lie in, in one piece.

    Attributes:
        name: what the maker calls it.
        bytes: its size.
    """

    name: str
    bytes: int


@dataclass(frozen=True)
class Board:
    """A board as its maker sells it.

    Attributes:
        name: what `--board` and `by_name` call it.
        description: what it is.
        target: its part.
        kernels: the kernel library that firmware for it is usually built with, by name.
        npu: its Ethos-U, as Vela calls the configuration; empty without one.
        ram: its memories, the fastest first.
        flash_bytes: what program and model have, in whatever they lie; None where it is not known.
        mhz: the clock that firmware usually sets; None for parts of which no instructions were counted.
        optimization: what firmware is usually compiled with, such as "-Os"; empty where `mhz` is None.
        source: where the figures are from.
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


def _size(text: str) -> int:
    match = re.fullmatch(r"([0-9]+)([KM])", text)
    assert match is not None, f"{text!r} is no size such as 256K or 1M"
    return int(match[1]) * UNITS[match[2]]


def _banks(text: str) -> tuple[Bank, ...]:
    return tuple(Bank(name, _size(size)) for name, _, size in (bank.rpartition(" ") for bank in text.split(" + ")))


@functools.cache
def boards() -> Mapping[str, Board]:
    """All boards of the table `boards.csv`, by name, in its order."""
    text = files("tflm.boards").joinpath("boards.csv").read_text(encoding="utf-8")
    return MappingProxyType(
        {
            row["name"]: Board(
                name=row["name"],
                description=row["description"],
                target=targets.by_name(row["target"]),
                kernels=row["kernels"],
                npu=row["npu"],
                ram=_banks(row["ram"]),
                flash_bytes=_size(row["flash"]),
                mhz=float(row["mhz"]) if row["mhz"] else None,
                optimization=row["optimization"],
                source=row["source"],
            )
            for row in csv.DictReader(text.splitlines())
        }
    )


def by_name(name: str) -> Board:
    """The board called `name`.

    Raises:
        ArgumentError: there is none of that name; the message lists them.
    """
    if name not in boards():
        raise ArgumentError(f"unknown board {name!r}; known are {', '.join(boards())}")
    return boards()[name]
