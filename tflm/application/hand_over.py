"""Advice for models that do not fit: the next command, and kernel builds that need much less."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from tflm import boards
from tflm.application.compiled_fit import CompiledFit, compile_command
from tflm.application.machine import BUILDS, Machine
from tflm.boards import Board
from tflm.errors import TflmError
from tflm.firmware.board_fit import BoardFit, Split
from tflm.releases import Release
from tflm.report import with_thousands
from tflm.schema.model import Model

MUCH_LESS = 0.5
"""Another build is suggested if its arena is below this share, even if the model fits."""


def continue_with(path: Path | str, machine: Machine, ram: str | None) -> str:
    """The `tflm fit` command for a model that does not fit the board; without one, a memory of the size `ram`."""
    return _command("fit", path, machine, ram if machine.board is None else None)


def continue_within(path: Path | str, machine: Machine, budget: str) -> str:
    """The `tflm tile` command for a model whose arena is larger than a budget."""
    return _command("tile", path, machine, budget)


def _command(name: str, path: Path | str, machine: Machine, ram: str | None) -> str:
    words = ["tflm", name, str(path)]
    usual = "reference"
    if machine.board is not None:
        words += _board_words(machine.board)
        usual = machine.library(machine.board.kernels).name
    else:
        words += ["--target", machine.target.name]
    if machine.kernels.name != usual:
        words += ["--kernels", machine.kernels.name]
    if machine.release is not None:
        words += ["--tflm", machine.release.name if isinstance(machine.release, Release) else machine.release]
    words += [] if ram is None else ["--ram", ram]
    words += [] if machine.reserve is None or name != "fit" else ["--reserve", str(machine.reserve)]
    return f"continue with: {shlex.join(words)}"


def _board_words(board: Board) -> list[str]:
    """The options for a board, which may be described in a file."""
    name = board.name if board.name in {*boards.boards(), *boards.chips()} else board.source
    return ["--board", name, *([] if board.sdk == boards.by_name(name).sdk else ["--sdk", board.sdk])]


def not_fitting(path: Path, model: Model, machine: Machine, fit: BoardFit, ram: str | None = None) -> str:
    """Advice for a model that does not fit: a better build, if any, and the next command."""
    better = other_build(model, fit)
    return "; ".join([*([better] if better else []), continue_with(path, machine, ram)])


def compiled_instead(path: Path, found: CompiledFit | None) -> str:
    """The sizes of a model as C, and the command that compiles it; empty if it cannot be compiled."""
    if found is None:
        return ""
    return f"without an interpreter it takes {with_thousands(found.ram_bytes)} of RAM: {compile_command(path, found)}"


def fit_or_none(model: Model, machine: Machine, split: Split | None = None) -> BoardFit | None:
    """The fit of a model on a machine's board; None if it can't be laid out with these kernels."""
    try:
        return machine.fit(model, split=split)
    except TflmError:
        return None


def other_build(model: Model, fit: BoardFit) -> str:
    """Describe a build of the board's firmware that needs much less; empty if there is none.

    Such a build fits if this one does not, or fits the chip's own RAM, or needs less than half.
    """
    better = [other for other in _other_fits(model, fit) if _is_better(other, fit)]
    if not better:
        return ""
    best = min(better, key=lambda other: other.measured.minimum_arena_bytes)
    arena = with_thousands(best.measured.minimum_arena_bytes)
    where = " and ".join(f"{p.part} in {p.bank.name}" for p in best.placements if p.bank is not None)
    fits = f", and fits: {where}" if best.fits_ram else ""
    return f"with {best.measured.kernels.name} kernels the arena has {arena}{fits}"


def _other_fits(model: Model, fit: BoardFit) -> Iterator[BoardFit]:
    library, board = fit.measured.kernels, fit.board
    release = board.chosen_release(library)
    machine = Machine(board.target, library, board, release, fit.reserve_bytes)
    others = map(machine.library, BUILDS.get(library.name.partition("@")[0], ()))
    fits = (fit_or_none(model, machine._replace(kernels=other), fit.split) for other in others)
    return (fit for fit in fits if fit is not None)


def _is_better(other: BoardFit, fit: BoardFit) -> bool:
    if other.fits_ram != fit.fits_ram:
        return other.fits_ram
    if other.fits_ram and other.on_chip != fit.on_chip:
        return other.on_chip
    return other.measured.minimum_arena_bytes < MUCH_LESS * fit.measured.minimum_arena_bytes
