"""The shares of a board's memories that SDKs take and leave: the table `sdks.csv`."""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from types import MappingProxyType
from typing import NamedTuple


class Span(NamedTuple):
    """A size that is known to lie between two.

    Attributes:
        low: at least, in bytes.
        high: at most; equal if it was measured.
    """

    low: int
    high: int

    def plus(self, other: Span) -> Span:
        """The sum of both sizes."""
        return Span(self.low + other.low, self.high + other.high)

    def __str__(self) -> str:
        return f"{self.high:,}" if self.low == self.high else f"{self.low:,} to {self.high:,}"


NOTHING = Span(0, 0)


class Origin(NamedTuple):
    """The source from which firmware gets TFLM, if not its repository.

    Attributes:
        distribution: a name of `tflm.releases.release`.
        kernels: the libraries that it can be built with, without versions.
    """

    distribution: str
    kernels: frozenset[str]


ORIGINS = MappingProxyType(
    {
        "zephyr": Origin("zephyr", frozenset({"cmsis-nn", "reference"})),
        "espressif": Origin("esp-tflite-micro", frozenset({"esp-nn", "esp-nn:ansi", "reference"})),
    }
)
"""Origins by SDK or family of parts; the SDK takes precedence."""


@dataclass(frozen=True)
class SdkShare:
    """The memory that an SDK leaves and takes on a board, in bytes.

    Attributes:
        sdk: its name.
        static: by memory, what its linker script leaves to static data; memories that are not named are whole.
        heap: by memory, the largest block of heap before anything is allocated, if it can exceed static data.
        bank: the memory of its own data; empty if that can be in any memory of the chip.
        ram: its static data, stacks of interrupts and threads, and code that runs there.
        startup: heap that it allocates before the application runs.
        stack_bytes: memory that is for the stack of the application alone.
        program: flash that a program can have; None for all but `reserved_bytes`.
        reserved_bytes: flash of the boot loader and of partitions that are not the program's.
        constants_bytes: the most constants, such as a model, that can be linked; None for no such limit.
        code: flash that it takes.
        code_in_ram: whether the program's code and constants, without the model, are copied to `bank`.
        how: linked, boot log, linker script (then what it takes is an estimate) or estimate.
        source: where the figures are from.
        date: the day of the source's commit, or on which it was read or linked, such as 2026-07-23.
    """

    sdk: str
    static: Mapping[str, Span]
    heap: Mapping[str, Span]
    bank: str
    ram: Span
    startup: Span
    stack_bytes: int
    program: Span | None
    reserved_bytes: int
    constants_bytes: int | None
    code: Span
    code_in_ram: bool
    how: str
    source: str
    date: str

    @property
    def description(self) -> str:
        """Its name and where the figures are from."""
        return f"{self.sdk} ({self.how}: {self.source}, {self.date})"


def sdk_names() -> list[str]:
    """The names of all SDKs, in the order of the table."""
    return list(dict.fromkeys(sdk for sdk, _ in _shares()))


def sdk_share(sdk: str, places: Iterable[str]) -> SdkShare | None:
    """The share of an SDK on the first of these places that the table has: a board, its chip, or a family of parts."""
    return next((_shares()[sdk, place] for place in places if (sdk, place) in _shares()), None)


def sdks_for(places: Iterable[str]) -> list[str]:
    """The SDKs that have a share on one of these places."""
    known = list(places)
    return [sdk for sdk in sdk_names() if sdk_share(sdk, known) is not None]


def sdk_shares() -> list[tuple[str, SdkShare]]:
    """All rows of the table: the places, and the share."""
    return [(row["places"], _share(row)) for row in _rows()]


def _rows() -> list[dict[str, str]]:
    text = files("tflm.boards").joinpath("sdks.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


@functools.cache
def _shares() -> Mapping[tuple[str, str], SdkShare]:
    return MappingProxyType({(row["sdk"], place): _share(row) for row in _rows() for place in row["places"].split()})


def _share(row: Mapping[str, str]) -> SdkShare:
    return SdkShare(
        sdk=row["sdk"],
        static=_by_memory(row["static"]),
        heap=_by_memory(row["heap"]),
        bank=row["bank"],
        ram=_span(row["ram"]),
        startup=_span(row["startup"]),
        stack_bytes=int(row["stack"] or 0),
        program=_span(row["program"]) if row["program"] else None,
        reserved_bytes=int(row["reserved"] or 0),
        constants_bytes=int(row["constants"]) if row["constants"] else None,
        code=_span(row["code"]),
        code_in_ram=row["code_in_ram"] == "yes",
        how=row["how"],
        source=row["source"],
        date=row["date"],
    )


def _by_memory(text: str) -> Mapping[str, Span]:
    """Read memories such as "SRAM 262144 + SDRAM 0-8388608"."""
    memories = (each.rpartition(" ") for each in text.split(" + ") if each)
    return MappingProxyType({name: _span(size) for name, _, size in memories})


def _span(text: str) -> Span:
    low, _, high = text.partition("-")
    return Span(int(low or 0), int(high or low or 0))
