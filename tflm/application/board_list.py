"""The list of boards and chips, as a report and as figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tflm.boards import Board
from tflm.boards.sdks import sdks_for
from tflm.report import TEXT, Report, Table, short_size


def board_list_report(found: Sequence[Board]) -> Report:
    """List boards with part, kernels, SDK, memories and flash."""
    columns = dict.fromkeys(("board", "", "part", "kernels", "SDK", "RAM, fastest first", "flash"), TEXT)
    notes = ["--board also takes other names of vendors, PlatformIO, Zephyr and Arduino, and a file: my_board.toml"]
    return Report("", [], [Table("", columns, map(_row, found))], notes)


def _row(board: Board) -> tuple[str, ...]:
    ram = " + ".join(f"{bank.name} {short_size(bank.bytes)}" for bank in board.ram)
    flash = "" if board.flash_bytes is None else short_size(board.flash_bytes)
    return board.name, board.description, board.target.name, board.kernels, board.sdk, ram, flash


def board_figures(board: Board) -> dict[str, Any]:
    """Return the JSON document of a board; sizes in bytes."""
    return {
        "name": board.name,
        "description": board.description,
        "chip": board.chip or None,
        "target": board.target.name,
        "kernels": board.kernels,
        "sdk": board.sdk or None,
        "sdks": sdks_for(board.places),
        "npu": board.npu or None,
        "ram": [{"name": bank.name, "bytes": bank.bytes} for bank in board.ram],
        "flash_bytes": board.flash_bytes,
        "aliases": list(board.aliases),
        "source": board.source or None,
    }
