"""Find a board by its name here, a vendor's, PlatformIO or Zephyr name, an Arduino FQBN, or a chip.

Boards may also be described in a file of TOML, `--board my_board.toml`, or come from an installed PlatformIO or a
Zephyr tree.
"""

from __future__ import annotations

import csv
import difflib
import functools
import itertools
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from tflm import targets
from tflm.boards.sdks import sdks_for
from tflm.boards.table import UNITS, Bank, Board, boards, chips
from tflm.bounded_reading import read_text, read_toml
from tflm.errors import ArgumentError, DataError

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


ChipOf = Callable[[str], "Board | None"]
"""Takes a chip's name; returns the chip, or None if it is not in the table."""


def installed_board(name: str, chip_of: ChipOf) -> Board | None:
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


MAX_LISTED = 12
"""Maximum number of boards listed in a message."""

SIMILAR = 0.7
"""The minimum similarity of a name that is suggested, from 0 to 1."""

OWN = "--ram SIZE, or describe the board in a file (--board my_board.toml)"

PACKAGE_CODE = r"[a-z]{2,4}[0-9]?[a-z]?"
"""The suffix after a chip's name in a part number: ZGT6 in STM32F746ZGT6, QIAA in nRF52840-QIAA."""


def by_name(name: str, sdk: str | None = None) -> Board:
    """The board or chip called `name`, with an SDK in place of its usual one.

    Case, hyphens, underscores, dots and spaces do not matter. Accepts vendors' names, PlatformIO and Zephyr
    identifiers, Arduino FQBNs, part numbers of chips, then the boards of an installed PlatformIO and of the Zephyr tree
    in `$ZEPHYR_BASE`, then unique prefixes of names. A name that ends in .toml is a file that describes a board.

    Raises:
        ArgumentError: the name is unknown, with near names or its family; or ambiguous, with the boards that match.
    """
    board = _named(name)
    return board if sdk is None else with_sdk(board, sdk)


def with_sdk(board: Board, sdk: str) -> Board:
    """Return a board with another SDK, and with that SDK's usual kernels if the board's are another SDK's.

    Raises:
        ArgumentError: there are no figures for the SDK on the board; the message lists the SDKs that have figures.
    """
    known_sdks = sdks_for(board.places)
    if sdk not in known_sdks:
        raise ArgumentError(f"unknown SDK {sdk!r} for {board.name}; use one of {', '.join(known_sdks)}")
    return replace(board, sdk=sdk, kernels=_kernels_with(board, sdk))


def _kernels_with(board: Board, sdk: str) -> str:
    """The usual kernels with an SDK: Arduino's are a library of Arduino, and Zephyr has no ESP-NN."""
    if board.kernels == "arduino" and sdk != "arduino":
        return "cmsis-nn"
    return "reference" if board.kernels == "esp-nn" and sdk == "zephyr" else board.kernels


def is_guess(name: str) -> bool:
    """Whether `by_name` takes a name as the beginning of a longer one."""
    return not _is_file(name) and known(name) is None and installed_board(name, known) is None


def _named(name: str) -> Board:
    if _is_file(name):
        return own_board(Path(name), known)
    found = known(name)
    if found is None:
        found = installed_board(name, known)
    if found is not None:
        return found
    family = _family(name)
    begin_so = _beginning_with(_key(name)) if family is None or family["target"] else []
    if len(begin_so) == 1:
        return begin_so[0]
    if begin_so:
        more = f" and {len(begin_so) - MAX_LISTED} more" if len(begin_so) > MAX_LISTED else ""
        listed = ", ".join(board.name for board in begin_so[:MAX_LISTED])
        raise ArgumentError(f"ambiguous board {name!r}: it may be {listed}{more}; tflm boards {name} lists them")
    raise ArgumentError(f"unknown board {name!r}{_hint(name, family)} tflm boards [WORDS] lists the known ones.")


def _hint(name: str, family: Mapping[str, str] | None) -> str:
    """Suggest what to type instead of an unknown name: similar names, or the target of its family."""
    near = _nearest(name)
    if family is not None and not family["target"]:
        instead = f"; {' and '.join(map(repr, near))} {'have' if near[1:] else 'has'} one" if near else ""
        return f": TFLM is for processors of 32 bits, not for {family['family']}{instead}."
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
    if family is not None:
        return f"{hint} For another part of the family {family['family']} use --target {family['target']} with {OWN}."
    return f"{hint} For a bare part use --target, such as cortex-m4 or esp32s3, with {OWN}."


def _is_file(name: str) -> bool:
    return name.endswith(".toml")


@functools.cache
def _families() -> tuple[Mapping[str, str], ...]:
    text = files("tflm.boards").joinpath("families.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def _family(name: str) -> Mapping[str, str] | None:
    """The family of parts that a name belongs to; one that TFLM does not run on needs the whole name."""
    key = _key(name)
    for family in _families():
        if re.match(family["name"], key) if family["target"] else re.fullmatch(family["name"], key):
            return family
    return None


def completions() -> list[str]:
    """Every name and identifier of boards and chips, for shells and search boxes."""
    aliases = [alias for board in (*boards().values(), *chips().values()) for alias in board.aliases]
    return [*boards(), *chips(), *aliases]


def with_words(words: Sequence[str]) -> list[Board]:
    """The boards and chips that have all these words in their names, description or chip."""
    keys = [_key(word) for word in words]
    known_boards = (*boards().values(), *chips().values())
    return [board for board in known_boards if all(any(key in text for text in _texts(board)) for key in keys)]


def _texts(board: Board) -> list[str]:
    return [_key(text) for text in (board.name, board.description, board.chip, board.target.name, *board.aliases)]


def known(name: str) -> Board | None:
    """Return the board or chip with this name or identifier; None if there is none."""
    for spelling in _spellings(name):
        key = _key(spelling)
        found = _board_names().get(key) or _chip_names().get(key) or _chip_of_part(key)
        if found is not None:
            return found
    return None


def _key(name: str) -> str:
    return re.sub("[^a-z0-9]", "", name.lower())


def _spellings(name: str) -> Iterable[str]:
    """Return the name, and the board's part of an FQBN (package:architecture:board:options) or Zephyr target."""
    yield name
    if name.count(":") >= 2:
        yield ":".join(name.split(":")[:3])
        yield name.split(":")[2]
    if "/" in name or "@" in name:
        yield re.split("[/@]", name)[0]


@functools.cache
def _board_names() -> Mapping[str, Board]:
    return {_key(name): board for board in boards().values() for name in (*board.aliases, board.name)}


@functools.cache
def _chip_names() -> Mapping[str, Board]:
    return {_key(name): chip for chip in chips().values() for name in (*chip.aliases, chip.name)}


def _chip_of_part(key: str) -> Board | None:
    """Return the chip with this part number, or None."""
    for name, chip in _chip_names().items():
        if re.fullmatch(name + PACKAGE_CODE, key):
            return chip
    return None


def _beginning_with(key: str) -> list[Board]:
    """The boards and chips with a name that begins so, in alphabetical order."""
    names = {**_chip_names(), **_board_names()}
    found = {board.name: board for name, board in names.items() if key and name.startswith(key)}
    return [found[name] for name in sorted(found)]


def _nearest(name: str, count: int = 3) -> list[str]:
    """The names of the boards and chips that have all its words, or else of the most similar ones; none if none is."""
    by_words = with_words(name.split()) if len(name.split()) > 1 else []
    if by_words:
        return [board.name for board in by_words[:MAX_LISTED]]
    names = {**_chip_names(), **_board_names()}
    nearest = difflib.get_close_matches(_key(name), names, n=8 * count, cutoff=SIMILAR)
    return list(dict.fromkeys(names[key].name for key in nearest))[:count]
