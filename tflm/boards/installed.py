"""Read chips and memory sizes of boards from an installed PlatformIO or a Zephyr tree."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tflm.boards.table import Bank, Board
from tflm.bounded_reading import read_text
from tflm.errors import DataError

ChipOf = Callable[[str], "Board | None"]
"""Takes a chip's name; returns the chip, or None if it is not in the table."""


def board(name: str, chip_of: ChipOf) -> Board | None:
    """The board that an installed PlatformIO or the tree in `$ZEPHYR_BASE` calls `name`, if its chip is known."""
    if not re.fullmatch(r"[A-Za-z0-9][\w/.+-]*", name):
        return None
    return next(itertools.chain(_platformio(name, chip_of), _zephyr(name, chip_of)), None)


def _platformio(name: str, chip_of: ChipOf) -> Iterator[Board]:
    """Boards in `platforms/*/boards/NAME.json`; sizes are in bytes."""
    core = Path(os.environ.get("PLATFORMIO_CORE_DIR") or Path.home() / ".platformio")
    for path in sorted(core.glob(f"platforms/*/boards/{Path(name).name}.json")):
        try:
            described: dict[str, Any] = json.loads(read_text(path, "replace"))
            chip = chip_of(described["build"]["mcu"])
            limits = described["upload"]
            if chip is not None:
                yield _resized(chip, name, described["name"], limits["maximum_ram_size"], limits["maximum_size"], path)
        except (OSError, DataError, ValueError, KeyError, TypeError):
            continue


def _zephyr(name: str, chip_of: ChipOf) -> Iterator[Board]:
    """Boards in files `boards/**/*.yaml` with that identifier (board/soc/...); sizes are in KiB."""
    base = os.environ.get("ZEPHYR_BASE")
    for path in sorted(Path(base).glob(f"boards/**/{name.split('/')[0]}*.yaml")) if base else ():
        try:
            fields = dict(
                re.findall(r"^(identifier|name|ram|flash): *(.+?) *$", read_text(path, "replace"), re.MULTILINE)
            )
            chip = chip_of(fields["identifier"].split("/")[1])
            if chip is not None and name in (fields["identifier"], fields["identifier"].split("/")[0]):
                ram, flash = (int(fields[key]) << 10 for key in ("ram", "flash"))
                yield _resized(chip, name, fields["name"], ram, flash, path)
        except (OSError, DataError, ValueError, KeyError, IndexError):
            continue


def _resized(chip: Board, name: str, description: str, ram: int, flash: int, path: Path) -> Board:
    """The chip as a board with these sizes, in bytes; banks are kept if they add up to the RAM."""
    banks = chip.ram if sum(bank.bytes for bank in chip.ram) == int(ram) else (Bank("RAM", int(ram)),)
    found = replace(chip, name=name, description=str(description), ram=banks, flash_bytes=int(flash))
    return replace(found, source=str(path), chip=chip.name)
