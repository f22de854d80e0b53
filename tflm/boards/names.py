"""Find a board by its name here, a vendor's, PlatformIO or Zephyr name, an Arduino FQBN, or a chip."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from tflm.boards import installed
from tflm.boards.sdks import sdks_for
from tflm.boards.table import Board, boards, chips
from tflm.errors import ArgumentError

MOST_LISTED = 12
"""Most boards listed in a message."""

PACKAGE_CODE = r"[a-z]{2,4}[0-9]?[a-z]?"
"""The suffix after a chip's name in a part number: ZGT6 in STM32F746ZGT6, QIAA in nRF52840-QIAA."""


def by_name(name: str, sdk: str | None = None) -> Board:
    """The board or chip called `name`, with an SDK in place of its usual one.

    Case, hyphens, underscores, dots and spaces do not matter. Accepts vendors' names, PlatformIO and Zephyr
    identifiers, Arduino FQBNs, part numbers of chips, then the boards of an installed PlatformIO and of the Zephyr tree
    in `$ZEPHYR_BASE`, then unique prefixes of names.

    Raises:
        ArgumentError: the name is unknown, with the three nearest names; or ambiguous, with the boards that match.
    """
    board = _named(name)
    return board if sdk is None else with_sdk(board, sdk)


def with_sdk(board: Board, sdk: str) -> Board:
    """A board with another SDK.

    Raises:
        ArgumentError: there are no figures for the SDK on the board; the message lists those that there are.
    """
    known_sdks = sdks_for(board.places)
    if sdk not in known_sdks:
        raise ArgumentError(f"unknown SDK {sdk!r} for {board.name}; use one of {', '.join(known_sdks)}")
    return replace(board, sdk=sdk)


def _named(name: str) -> Board:
    found = known(name)
    if found is None:
        found = installed.board(name, known)
    if found is not None:
        return found
    begin_so = sorted(_beginning_with(_key(name)))
    if len(begin_so) == 1:
        return boards()[begin_so[0]]
    if begin_so:
        more = f" and {len(begin_so) - MOST_LISTED} more" if len(begin_so) > MOST_LISTED else ""
        raise ArgumentError(f"ambiguous board {name!r}: it may be {', '.join(begin_so[:MOST_LISTED])}{more}")
    raise ArgumentError(
        f"unknown board {name!r}; did you mean {' or '.join(map(repr, _nearest(name)))}? For a bare part use "
        "--target, such as cortex-m4 or esp32s3. tflm arena --boards lists all boards."
    )


def completions() -> list[str]:
    """Every name and identifier of boards and chips, for shells and search boxes."""
    aliases = [alias for board in boards().values() for alias in board.aliases]
    return [*boards(), *chips(), *aliases]


def known(name: str) -> Board | None:
    """The board or chip of the tables with this name or identifier; None if there is none."""
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
    return {_key(name): chip for name, chip in chips().items()}


def _chip_of_part(key: str) -> Board | None:
    """Return the chip with this part number, or None."""
    for name, chip in _chip_names().items():
        if re.fullmatch(name + PACKAGE_CODE, key):
            return chip
    return None


def _beginning_with(key: str) -> set[str]:
    return {board.name for name, board in _board_names().items() if key and name.startswith(key)}


def _nearest(name: str, count: int = 3) -> list[str]:
    """The names of the nearest boards and chips, the nearest first."""
    names = {**_chip_names(), **_board_names()}
    nearest = difflib.get_close_matches(_key(name), names, n=8 * count, cutoff=0.0)
    return list(dict.fromkeys(names[key].name for key in nearest))[:count]
