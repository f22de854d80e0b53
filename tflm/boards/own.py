"""Boards that are described in a file of TOML: `--board my_board.toml`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tflm import targets
from tflm.boards.sdks import sdks_for
from tflm.boards.table import UNITS, Bank, Board
from tflm.errors import ArgumentError
from tflm.toml_files import read_toml

TEXTS = ("name", "description", "kernels", "sdk", "npu")
KEYS = (*TEXTS, "chip", "target", "flash", "ram")


def own_board(path: Path, chip_of: Callable[[str], Board | None]) -> Board:
    """Return the board that a file describes: a chip of the table or a target, with changes.

    Args:
        chip_of: returns a chip or board of the table by its name; None if there is none.

    Raises:
        ArgumentError: a key is unknown, missing or has a value that is not allowed; the message lists what is.
        OSError: the file can't be read.
    """
    described = read_toml(path)
    unknown = [key for key in described if key not in KEYS]
    if unknown:
        raise ArgumentError(f"{path}: unknown key {unknown[0]!r}; use {', '.join(KEYS)}")
    base = _base(path, described, chip_of)
    texts: dict[str, Any] = {key: _text(path, described, key) for key in TEXTS if key in described}
    found = replace(base, **texts, aliases=(), source=str(path))
    if "ram" in described:
        found = replace(found, ram=_banks(path, described["ram"]))
    if "flash" in described:
        found = replace(found, flash_bytes=_size(path, "flash", described["flash"]))
    if not found.ram:
        raise ArgumentError(
            f'{path}: no memories; write a table [ram] with lines such as SRAM = "128K", the fastest first'
        )
    if found.sdk and found.share is None:
        known = ", ".join(sdks_for(found.places))
        raise ArgumentError(f"{path}: no figures for the SDK {found.sdk!r} on {found.target.name}; use one of {known}")
    return found


def _base(path: Path, described: Mapping[str, Any], chip_of: Callable[[str], Board | None]) -> Board:
    if ("chip" in described) == ("target" in described):
        raise ArgumentError(
            f'{path}: name either a chip of the table (chip = "RP2040") or a target (target = "cortex-m4")'
        )
    name = path.stem
    if "target" in described:
        target = targets.by_name(_text(path, described, "target"))
        return Board(name, name, target, "reference", "", ())
    chip = chip_of(_text(path, described, "chip"))
    if chip is None:
        raise ArgumentError(f"{path}: unknown chip {described['chip']!r}; tflm boards lists the known ones")
    return replace(chip, name=name, description=name, chip=chip.chip or chip.name)


def _text(path: Path, described: Mapping[str, Any], key: str) -> str:
    value = described[key]
    if not isinstance(value, str):
        raise ArgumentError(f"{path}: {key} is {value!r}; it must be a text in quotes")
    return value


def _banks(path: Path, table: Any) -> tuple[Bank, ...]:
    if not isinstance(table, dict):
        raise ArgumentError(f'{path}: ram must be a table [ram] with lines such as SRAM = "128K", the fastest first')
    return tuple(Bank(name, _size(path, name, size)) for name, size in table.items())


def _size(path: Path, key: str, value: Any) -> int:
    match = re.fullmatch(r"([0-9]+)([KM]?)", str(value))
    if match is None or not int(match[1]):
        raise ArgumentError(f"{path}: {key} is {value!r}; it must be bytes, or a size such as '64K' or '1M'")
    return int(match[1]) * UNITS.get(match[2], 1)
