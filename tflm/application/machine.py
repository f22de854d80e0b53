"""The machine that a model is allocated for, from the names in options."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, NamedTuple

from tflm import libraries, targets
from tflm.application.errors import OptionError, option_errors
from tflm.application.models import bytes_from
from tflm.errors import ArgumentError
from tflm.libraries import REFERENCE, KernelLibrary, library_for
from tflm.releases import Releases
from tflm.report import json_key, machine_keys
from tflm.runtime.micro_allocator import Planner
from tflm.schema.model import Model
from tflm.targets import Target

if TYPE_CHECKING:
    from tflm.boards import Board
    from tflm.firmware.board_fit import BoardFit, Split

DEFAULT_RESERVE = 4 << 10
"""Bytes of RAM that `tflm fit` leaves to the application: those of a small bare-metal program."""

BUILDS = {
    "cmsis-nn": ("cmsis-nn:size", "reference"),
    "cmsis-nn:size": ("cmsis-nn", "reference"),
    "esp-nn": ("esp-nn:ansi", "reference"),
    "esp-nn:ansi": ("reference",),
}
"""Alternative kernel libraries, by the usual one. The Arduino library has only its own kernels."""


class Machine(NamedTuple):
    """A target, a kernel library and, if given, a board, a TFLM release and bytes of RAM reserved for the application.

    Without a given release, the kernels are for the TFLM that projects for the board pin.
    """

    target: Target
    kernels: KernelLibrary
    board: Board | None
    release: Releases | None = None
    reserve: int | None = None

    def fit(self, model: Model, *, planner: Planner = "greedy", split: Split | None = None) -> BoardFit:
        """How a model fits the board, which there must be.

        Raises:
            TflmError: the model cannot be allocated in an arena of any size.
        """
        from tflm.firmware.board_fit import board_fit  # only for boards

        assert self.board is not None
        reserve = self.reserve or 0
        return board_fit(model, self.board, kernels=self.kernels, planner=planner, reserve=reserve, split=split)

    def library(self, kernels: str) -> KernelLibrary:
        """A kernel library for the same firmware, by name.

        Raises:
            ArgumentError: as for `library_for`.
        """
        if self.board is None:
            return library_for(kernels, self.target, self.release)
        return self.board.library(kernels, self.release)

    @property
    def place(self) -> str:
        """The board's name, or the target's if no board was chosen."""
        return self.target.name if self.board is None else self.board.name


TARGET_FIGURES = machine_keys()
"""The names of a target, its kernels and their release."""

MACHINE_FIGURES = (*TARGET_FIGURES, json_key("board", str | None, "the board; null without `--board`", "board.name"))
"""The names of a machine, with those of its board."""


@option_errors()
def target_from(name: str) -> Target:
    """Return a target by name.

    Raises:
        OptionError: the name is unknown; the message lists the known ones.
    """
    return targets.by_name(name)


@option_errors()
def kernels_from(name: str) -> KernelLibrary:
    """Return a kernel library by name.

    Raises:
        OptionError: the name is unknown; the message lists the known ones.
    """
    return libraries.by_name(name)


class MachineOptions(NamedTuple):
    """The values of `--target`, `--kernels`, `--tflm`, `--board`, `--sdk` and `--reserve`; None for those not given."""

    target: str | None = None
    kernels: str | None = None
    release: Releases | None = None
    board: str | None = None
    sdk: str | None = None
    reserve: str | None = None

    @option_errors()
    def machine(self, default: str = "cortex-m") -> Machine:
        """Return the machine. A board implies a part and kernels; kernels imply a release.

        Args:
            default: the target if neither a target nor a board is given.

        Raises:
            OptionError: a name is unknown, the library is not for the part, or the part is named twice.
        """
        if self.board is not None and self.target is not None:
            raise OptionError("use either --board, which implies the target, or --target")
        if self.sdk is not None and self.board is None:
            raise OptionError("--sdk needs a --board: an SDK takes a part of a board's memories")
        board = None if self.board is None else _board_called(self.board, self.sdk)
        target = target_from(default if self.target is None else self.target) if board is None else board.target
        reserve = None if self.reserve is None else bytes_from(self.reserve)
        machine = Machine(target, REFERENCE, board, self.release, reserve)
        usual = "reference" if board is None else board.kernels
        return machine._replace(kernels=machine.library(usual if self.kernels is None else self.kernels))


def _board_called(name: str, sdk: str | None) -> Board:
    from tflm import boards  # rarely needed

    board = boards.by_name(name, sdk)
    if boards.is_guess(name):
        warnings.warn(f"{name!r} is taken for {board.name}: {board.description}", stacklevel=3)
    return board


def libraries_for(target: Target) -> list[str]:
    """Return the names of the kernel libraries for a target."""
    return [name for name in libraries.MODULES if _is_for(name, target)]


def _is_for(library: str, target: Target) -> bool:
    try:
        library_for(library, target)
    except ArgumentError:
        return False
    return True
